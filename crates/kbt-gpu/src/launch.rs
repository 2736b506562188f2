//! Kernel launches: the shape, the arguments, and the check of one against the kernel.

use crate::error::check;
use crate::{Buffer, Function, Gpu, GpuError, Stream};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Grid, block, cluster and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks a cluster in x, y, z; all ones for no cluster (a kernel compiled with a cluster keeps its own).
    pub cluster: [u32; 3],
    /// Dynamic shared memory a block, in bytes.
    pub dynamic_smem: u32,
    /// Whether all blocks must be resident at once (a grid that synchronises with itself).
    pub cooperative: bool,
}

impl LaunchShape {
    /// A one-dimensional launch without a cluster or dynamic shared memory.
    #[must_use]
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            cluster: [1, 1, 1],
            dynamic_smem: 0,
            cooperative: false,
        }
    }

    /// The same with dynamic shared memory, in bytes a block.
    #[must_use]
    pub const fn with_smem(self, bytes: u32) -> Self {
        Self { dynamic_smem: bytes, ..self }
    }

    /// The same with a cluster of blocks.
    #[must_use]
    pub const fn with_cluster(self, cluster: [u32; 3]) -> Self {
        Self { cluster, ..self }
    }
}

/// One argument's storage, aligned for anything a kernel takes by value (a tensor map wants 64).
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([MaybeUninit<u8>; 128]);

/// Arguments of a launch, in the order of the kernel's parameters, each passed by value.
#[derive(Default)]
pub struct Args {
    values: Vec<(Box<[Line]>, usize)>,
}

impl Args {
    /// No arguments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. Its layout must be the parameter's: a number, or a `#[repr(C)]` struct.
    pub fn push<T: Copy + 'static>(&mut self, value: T) -> &mut Self {
        const { assert!(align_of::<T>() <= align_of::<Line>(), "no kernel parameter is aligned above 128") };
        let lines = size_of::<T>().div_ceil(size_of::<Line>()).max(1);
        let mut storage = vec![Line([MaybeUninit::uninit(); 128]); lines].into_boxed_slice();
        // SAFETY: the storage is large and aligned enough; MaybeUninit bytes may hold padding.
        unsafe { storage.as_mut_ptr().cast::<T>().write(value) };
        self.values.push((storage, size_of::<T>()));
        self
    }

    /// Adds a buffer's device address. The buffer must outlive the launch.
    pub fn push_buffer(&mut self, buffer: &Buffer) -> &mut Self {
        self.push(buffer.address())
    }

    /// How many arguments there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn pointers(&mut self) -> Vec<*mut c_void> {
        self.values.iter_mut().map(|(storage, _)| storage.as_mut_ptr().cast()).collect()
    }

    /// Says what does not fit the parameters `(offset, size)` of a kernel, if anything.
    fn mismatch(&self, params: &[(usize, usize)]) -> Option<String> {
        if self.values.len() != params.len() {
            return Some(format!("takes {} parameters, {} were given", params.len(), self.values.len()));
        }
        let wrong = self.values.iter().zip(params).position(|((_, given), (_, taken))| given != taken)?;
        Some(format!(
            "parameter {wrong} (from 0) has {} bytes, {} were given",
            params[wrong].1, self.values[wrong].1
        ))
    }
}

impl Gpu {
    /// Launches a kernel on the default stream. Returns when the launch is queued, not when it is done.
    ///
    /// Number and sizes of the arguments are checked where the driver states the parameters.
    ///
    /// # Safety
    /// The arguments must mean what the kernel takes them for, and every address among them must stay
    /// valid until the kernel is done.
    pub unsafe fn launch(
        &self,
        function: &Function,
        shape: LaunchShape,
        args: &mut Args,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_on(self.stream(), function, shape, args) }
    }

    /// Launches a kernel on a stream.
    ///
    /// # Safety
    /// As for [`Gpu::launch`].
    pub unsafe fn launch_on(
        &self,
        stream: &Stream,
        function: &Function,
        shape: LaunchShape,
        args: &mut Args,
    ) -> Result<(), GpuError> {
        if let Some(message) = function.params.as_deref().and_then(|p| args.mismatch(p)) {
            return Err(GpuError::Arguments { kernel: function.name().to_owned(), message });
        }
        function.allow_dynamic_smem(shape.dynamic_smem)?;
        function.context().bind()?;
        let mut attributes = attributes(&shape);
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.dynamic_smem,
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let mut pointers = args.pointers();
        // SAFETY: configuration, attributes and argument storage live through the call, which copies them;
        // that the arguments fit the kernel is the caller's promise.
        let status = unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.raw(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check(status, || format!("launch of {} with {shape:?}", function.name()))
    }
}

fn attributes(shape: &LaunchShape) -> Vec<sys::CUlaunchAttribute> {
    use sys::CUlaunchAttributeID_enum as Id;
    let attribute = |id, value| sys::CUlaunchAttribute { id, pad: [0; 4], value };
    let mut attributes = Vec::new();
    if shape.cluster != [1, 1, 1] {
        let [x, y, z] = shape.cluster;
        let dims = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        attributes.push(attribute(
            Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            sys::CUlaunchAttributeValue { clusterDim: dims },
        ));
    }
    if shape.cooperative {
        attributes.push(attribute(
            Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            sys::CUlaunchAttributeValue { cooperative: 1 },
        ));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorMap;

    #[test]
    fn arguments_keep_their_values_and_alignment() {
        #[derive(Clone, Copy)]
        #[repr(C)]
        struct Big {
            head: u8,
            numbers: [u64; 40],
        }
        let mut args = Args::new();
        args.push(7u32).push(TensorMap::zeroed()).push(Big { head: 3, numbers: [9; 40] }).push(1.5f32);
        let pointers = args.pointers();
        assert!(pointers.iter().all(|p| p.addr() % 128 == 0));
        // SAFETY: each pointer is the storage of the value pushed at its place.
        unsafe {
            assert_eq!(*pointers[0].cast::<u32>(), 7);
            let big = &*pointers[2].cast::<Big>();
            assert_eq!((big.head, big.numbers[39]), (3, 9));
            assert_eq!(*pointers[3].cast::<f32>(), 1.5);
        }
    }

    #[test]
    fn arguments_that_do_not_fit_are_named() {
        let mut args = Args::new();
        args.push(1u64).push(2u32);
        assert_eq!(args.mismatch(&[(0, 8), (8, 4)]), None);
        assert_eq!(args.mismatch(&[(0, 8)]).unwrap(), "takes 1 parameters, 2 were given");
        let wrong = args.mismatch(&[(0, 8), (64, 128)]).unwrap();
        assert_eq!(wrong, "parameter 1 (from 0) has 128 bytes, 4 were given");
    }

    #[test]
    fn only_what_is_asked_for_becomes_a_launch_attribute() {
        let plain = LaunchShape::linear(132, 128).with_smem(1024);
        assert_eq!(attributes(&plain).len(), 0);
        let cluster = attributes(&plain.with_cluster([2, 1, 1]));
        assert_eq!(cluster.len(), 1);
        // SAFETY: the attribute was made with this member.
        assert_eq!(unsafe { cluster[0].value.clusterDim }.x, 2);
        assert_eq!(attributes(&LaunchShape { cooperative: true, ..plain }).len(), 1);
    }
}
