//! Loaded machine code and the kernels in it.

use crate::error::check;
use crate::gpu::Context;
use crate::{Gpu, GpuError};
use cudarc::driver::sys;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A loaded cubin, fatbin or PTX image.
#[derive(Clone)]
pub struct Module {
    loaded: Arc<Loaded>,
}

struct Loaded {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: module handles may be used from any thread with the context current.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded once, unloaded once; functions hold the module through an Arc.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

/// A kernel of a module, with what the compiler gave it.
pub struct Function {
    module: Arc<Loaded>,
    raw: sys::CUfunction,
    name: String,
    /// Registers a thread.
    pub num_regs: u32,
    /// Local memory a thread in bytes: spills and local arrays.
    pub local_bytes: u32,
    /// Static shared memory a block in bytes.
    pub static_smem: u32,
    /// Most threads a block may have with these registers.
    pub max_threads: u32,
    /// Offset and size of each parameter in bytes; `None` where the driver does not say.
    pub(crate) params: Option<Vec<(usize, usize)>>,
    dynamic_smem: AtomicU32,
}

// SAFETY: function handles may be used from any thread with the context current.
unsafe impl Send for Function {}
// SAFETY: as above; the one mutable field is atomic.
unsafe impl Sync for Function {}

impl Gpu {
    /// Loads a cubin, a fatbin, or PTX text (which the driver then compiles; kbt cannot verify its code).
    pub fn load(&self, image: &[u8]) -> Result<Module, GpuError> {
        self.context().bind()?;
        // PTX must end in a zero byte, and an image at an odd address is not promised to load.
        let mut words = vec![0u64; image.len() / 8 + 1];
        // SAFETY: `words` has room for the image and at least one zero byte after it.
        unsafe {
            std::ptr::copy_nonoverlapping(image.as_ptr(), words.as_mut_ptr().cast::<u8>(), image.len());
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current and the image is readable during the call.
        check(unsafe { sys::cuModuleLoadData(&raw mut raw, words.as_ptr().cast()) }, || {
            format!("cuModuleLoadData({} bytes)", image.len())
        })?;
        Ok(Module { loaded: Arc::new(Loaded { context: self.context().clone(), raw }) })
    }
}

impl Module {
    /// A kernel by its (mangled) name.
    pub fn function(&self, name: &str) -> Result<Function, GpuError> {
        let missing = || GpuError::NoKernel(name.to_owned());
        let c_name = CString::new(name).map_err(|_| missing())?;
        self.loaded.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded; name and output outlive the call.
        match unsafe { sys::cuModuleGetFunction(&raw mut raw, self.loaded.raw, c_name.as_ptr()) } {
            sys::CUresult::CUDA_ERROR_NOT_FOUND => return Err(missing()),
            status => check(status, || format!("cuModuleGetFunction({name})"))?,
        }
        use sys::CUfunction_attribute_enum as A;
        let get = |attribute: A| {
            let mut value = 0;
            // SAFETY: the function belongs to the loaded module.
            check(unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, raw) }, || {
                format!("cuFuncGetAttribute({attribute:?}) of {name}")
            })?;
            Ok::<u32, GpuError>(u32::try_from(value).unwrap_or(0))
        };
        Ok(Function {
            num_regs: get(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: get(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_smem: get(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: get(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            dynamic_smem: AtomicU32::new(get(A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?),
            params: params(raw),
            module: self.loaded.clone(),
            raw,
            name: name.to_owned(),
        })
    }
}

impl Module {
    /// The bytes of a `__constant__` or `__device__` variable by its (mangled) name, as they are now.
    pub fn variable(&self, name: &str) -> Result<Vec<u8>, GpuError> {
        let missing = || GpuError::NoVariable(name.to_owned());
        let c_name = CString::new(name).map_err(|_| missing())?;
        self.loaded.context.bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module is loaded; name and outputs outlive the call.
        match unsafe {
            sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, self.loaded.raw, c_name.as_ptr())
        } {
            sys::CUresult::CUDA_ERROR_NOT_FOUND => return Err(missing()),
            status => check(status, || format!("cuModuleGetGlobal({name})"))?,
        }
        let mut value = vec![0u8; bytes];
        // SAFETY: the driver gave address and size of a variable of the loaded module; `value` has that size.
        check(unsafe { sys::cuMemcpyDtoH_v2(value.as_mut_ptr().cast(), address, bytes) }, || {
            format!("cuMemcpyDtoH({name}, {bytes} bytes)")
        })?;
        Ok(value)
    }
}

/// Offset and size of every parameter.
fn params(function: sys::CUfunction) -> Option<Vec<(usize, usize)>> {
    let mut all = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded and the symbol exists in this driver.
        match unsafe { sys::cuFuncGetParamInfo(function, all.len(), &raw mut offset, &raw mut size) } {
            sys::CUresult::CUDA_SUCCESS => all.push((offset, size)),
            // The index past the last parameter ends the list.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Some(all),
            _ => return None,
        }
    }
}

impl Function {
    /// The kernel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Allows launches with up to this much dynamic shared memory (bytes a block). A launch that asks for
    /// more than was allowed raises the limit itself; this call only tells early whether it would work.
    pub fn set_max_dynamic_smem(&self, bytes: u32) -> Result<(), GpuError> {
        self.module.context.bind()?;
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the function belongs to the loaded module.
        check(unsafe { sys::cuFuncSetAttribute(self.raw, attribute, value) }, || {
            format!("cuFuncSetAttribute(dynamic shared memory, {bytes} bytes) of {}", self.name)
        })?;
        self.dynamic_smem.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// How many blocks of this shape one SM holds at once.
    pub fn blocks_per_sm(&self, threads: u32, dynamic_smem: u32) -> Result<u32, GpuError> {
        self.allow_dynamic_smem(dynamic_smem)?;
        self.module.context.bind()?;
        let mut blocks = 0;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        // SAFETY: the function belongs to the loaded module, the output outlives the call.
        check(
            unsafe {
                sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &raw mut blocks,
                    self.raw,
                    threads,
                    dynamic_smem as usize,
                )
            },
            || format!("cuOccupancyMaxActiveBlocksPerMultiprocessor of {}", self.name),
        )?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    pub(crate) fn allow_dynamic_smem(&self, bytes: u32) -> Result<(), GpuError> {
        if bytes > self.dynamic_smem.load(Ordering::Relaxed) {
            self.set_max_dynamic_smem(bytes)
        } else {
            Ok(())
        }
    }

    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    pub(crate) fn context(&self) -> &Context {
        &self.module.context
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({}, {} registers)", self.name, self.num_regs)
    }
}
