//! Tensor maps: the descriptors that bulk tensor copies (TMA) read.

use crate::{Gpu, GpuError};
use cudarc::driver::sys;

macro_rules! mirrored {
    ($(#[$doc:meta])* $name:ident => $raw:ident { $($(#[$vdoc:meta])* $variant:ident = $value:ident $(, $bits:literal)?;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vdoc])* $variant,)* }
        impl $name {
            const fn raw(self) -> sys::$raw { match self { $(Self::$variant => sys::$raw::$value,)* } }
        }
    };
}

mirrored! {
    /// What one element is.
    ElementType => CUtensorMapDataType_enum {
        /// One byte; also for any 8-bit float.
        U8 = CU_TENSOR_MAP_DATA_TYPE_UINT8;
        /// 16-bit integer.
        U16 = CU_TENSOR_MAP_DATA_TYPE_UINT16;
        /// 32-bit integer.
        U32 = CU_TENSOR_MAP_DATA_TYPE_UINT32;
        /// IEEE half.
        F16 = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        /// bfloat16.
        Bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        /// IEEE single.
        F32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        /// IEEE double.
        F64 = CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    }
}

mirrored! {
    /// How rows of the box are permuted in shared memory against bank conflicts.
    Swizzle => CUtensorMapSwizzle_enum {
        /// Not at all.
        None = CU_TENSOR_MAP_SWIZZLE_NONE;
        /// Within 32 bytes.
        B32 = CU_TENSOR_MAP_SWIZZLE_32B;
        /// Within 64 bytes.
        B64 = CU_TENSOR_MAP_SWIZZLE_64B;
        /// Within 128 bytes.
        B128 = CU_TENSOR_MAP_SWIZZLE_128B;
    }
}

mirrored! {
    /// What elements outside the tensor read as.
    OobFill => CUtensorMapFloatOOBfill_enum {
        /// Zero.
        Zeros = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        /// A NaN that an FMA treats as zero; floats only.
        NanRequestZeroFma = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    }
}

impl ElementType {
    /// Bytes an element.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

impl Swizzle {
    /// Bytes of the box's inner row at most; `None` for no such limit.
    const fn span(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::B32 => Some(32),
            Self::B64 => Some(64),
            Self::B128 => Some(128),
        }
    }
}

/// A tiled tensor in global memory and the box that one copy moves. Dimensions run from the innermost out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiled {
    /// Element type.
    pub element: ElementType,
    /// Device address of the first element; 16-byte aligned.
    pub address: u64,
    /// Elements in each dimension.
    pub dims: Vec<u64>,
    /// Bytes from one index to the next in dimension 1 and up (dimension 0 is contiguous); multiples of 16.
    pub strides: Vec<u64>,
    /// Elements of the box in each dimension, at most 256.
    pub box_dims: Vec<u32>,
    /// Shared-memory layout of the box.
    pub swizzle: Swizzle,
    /// What elements outside the tensor read as.
    pub oob_fill: OobFill,
}

/// A tensor that the hardware cannot describe; says which rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TensorMapError(String);

impl Tiled {
    /// Checks the rules of the encoding that the driver only answers with "invalid value".
    pub fn validate(&self) -> Result<(), TensorMapError> {
        let fail = |message: String| Err(TensorMapError(message));
        let rank = self.dims.len();
        if !(1..=5).contains(&rank) {
            return fail(format!("rank {rank} is not 1 to 5"));
        }
        if self.strides.len() + 1 != rank || self.box_dims.len() != rank {
            return fail(format!(
                "rank {rank} needs {} strides and {rank} box dimensions, got {} and {}",
                rank - 1,
                self.strides.len(),
                self.box_dims.len()
            ));
        }
        if !self.address.is_multiple_of(16) {
            return fail(format!("address {:#x} is not 16-byte aligned", self.address));
        }
        if let Some(d) = self.dims.iter().position(|d| *d == 0 || *d > 1 << 32) {
            return fail(format!("dimension {d} has {} elements; 1 to 2^32 are possible", self.dims[d]));
        }
        if let Some(d) = self.strides.iter().position(|s| !s.is_multiple_of(16) || *s >= 1 << 40) {
            let stride = self.strides[d];
            return fail(format!(
                "stride of dimension {} is {stride} bytes; it must be a multiple of 16",
                d + 1
            ));
        }
        if let Some(d) = self.box_dims.iter().position(|b| *b == 0 || *b > 256) {
            return fail(format!("box dimension {d} is {}; 1 to 256 are possible", self.box_dims[d]));
        }
        let inner = u64::from(self.box_dims[0]) * u64::from(self.element.bytes());
        if !inner.is_multiple_of(16) {
            return fail(format!("the box's inner row has {inner} bytes; it must be a multiple of 16"));
        }
        if let Some(span) = self.swizzle.span().filter(|span| inner > *span) {
            return fail(format!("the box's inner row has {inner} bytes; this swizzle spans {span}"));
        }
        Ok(())
    }
}

/// An encoded tensor map, to be passed by value as a `const __grid_constant__` parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap {
    words: [u64; 16],
}

impl TensorMap {
    /// A map of nothing, for a parameter that the kernel does not read.
    #[must_use]
    pub const fn zeroed() -> Self {
        Self { words: [0; 16] }
    }

    /// Encodes a tiled tensor. Needs a device because the driver does the encoding.
    pub fn tiled(gpu: &Gpu, tensor: &Tiled) -> Result<Self, GpuError> {
        tensor.validate()?;
        gpu.context().bind()?;
        let mut raw = sys::CUtensorMap { opaque: [0; 16] };
        let element_strides = [1u32; 5];
        // The driver reads no stride of a one-dimensional tensor, but wants a pointer.
        let strides = if tensor.strides.is_empty() { vec![0] } else { tensor.strides.clone() };
        // SAFETY: all arrays have the lengths that `validate` checked and live through the call.
        let status = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut raw,
                tensor.element.raw(),
                tensor.dims.len() as u32,
                tensor.address as *mut std::ffi::c_void,
                tensor.dims.as_ptr(),
                strides.as_ptr(),
                tensor.box_dims.as_ptr(),
                element_strides.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                tensor.swizzle.raw(),
                sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                tensor.oob_fill.raw(),
            )
        };
        crate::error::check(status, || format!("cuTensorMapEncodeTiled({tensor:?})"))?;
        Ok(Self { words: raw.opaque })
    }
}

impl std::fmt::Debug for TensorMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorMap({:016x} ..)", self.words[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile() -> Tiled {
        Tiled {
            element: ElementType::Bf16,
            address: 0x1000,
            dims: vec![128, 4096],
            strides: vec![256],
            box_dims: vec![64, 128],
            swizzle: Swizzle::B128,
            oob_fill: OobFill::Zeros,
        }
    }

    #[test]
    fn a_map_is_what_a_kernel_takes() {
        assert_eq!((size_of::<TensorMap>(), align_of::<TensorMap>()), (128, 64));
        assert_eq!(tile().validate(), Ok(()));
    }

    #[test]
    fn each_broken_rule_is_named() {
        let check = |change: fn(&mut Tiled), expect: &str| {
            let mut tensor = tile();
            change(&mut tensor);
            let error = tensor.validate().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(|t| t.dims.clear(), "rank 0");
        check(|t| t.strides.clear(), "1 strides");
        check(|t| t.address = 8, "16-byte");
        check(|t| t.dims[1] = 0, "dimension 1");
        check(|t| t.strides[0] = 24, "multiple of 16");
        check(|t| t.box_dims[1] = 257, "box dimension 1");
        check(|t| t.box_dims[0] = 4, "inner row has 8 bytes");
        check(|t| t.box_dims[0] = 128, "spans 128");
    }
}
