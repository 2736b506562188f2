//! Number formats as the roofline sees them: bytes in memory, and which arithmetic ceiling they run under.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $(| $alias:literal)*, $bits:literal, $math:ident;)*) => {
        /// A number format as it lies in memory.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[$doc])* #[serde(rename = $name $(, alias = $alias)*)] $variant,)*
        }

        impl Dtype {
            /// The name in files.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $name,)* } }

            /// Bits an element takes in memory, block scales included.
            #[must_use]
            pub const fn storage_bits(self) -> f64 { match self { $(Self::$variant => $bits,)* } }

            /// The arithmetic it runs under when a matrix instruction takes it.
            #[must_use]
            pub const fn math(self) -> MathType { match self { $(Self::$variant => MathType::$math,)* } }
        }
    };
}

dtypes! {
    /// IEEE double.
    Fp64 = "fp64" | "f64" | "float64", 64.0, Fp64;
    /// IEEE single.
    Fp32 = "fp32" | "f32" | "float32", 32.0, Fp32;
    /// Single precision in memory, 19 bits in the tensor core.
    Tf32 = "tf32", 32.0, Tf32;
    /// bfloat16.
    Bf16 = "bf16" | "bfloat16", 16.0, Bf16;
    /// IEEE half.
    Fp16 = "fp16" | "f16" | "float16", 16.0, Fp16;
    /// FP8 with 4 exponent bits.
    Fp8E4m3 = "fp8_e4m3" | "e4m3" | "fp8", 8.0, Fp8;
    /// FP8 with 5 exponent bits.
    Fp8E5m2 = "fp8_e5m2" | "e5m2", 8.0, Fp8;
    /// E4M3 with one E8M0 scale for 32 elements.
    Mxfp8 = "mxfp8", 8.25, Fp8;
    /// FP6, which runs at the FP8 rate.
    Fp6 = "fp6", 6.0, Fp8;
    /// E2M1 without scales.
    Fp4 = "fp4_e2m1" | "fp4" | "e2m1", 4.0, Fp4;
    /// E2M1 with one E4M3 scale for 16 elements.
    Nvfp4 = "nvfp4", 4.5, Fp4;
    /// E2M1 with one E8M0 scale for 32 elements.
    Mxfp4 = "mxfp4", 4.25, Fp4;
    /// 8-bit integer.
    Int8 = "int8" | "s8" | "u8", 8.0, Int8;
    /// 4-bit integer.
    Int4 = "int4" | "s4" | "u4", 4.0, Int4;
    /// 32-bit integer.
    Int32 = "int32" | "s32", 32.0, Fp32;
}

impl Dtype {
    /// Bytes of `elements` elements.
    #[must_use]
    pub fn bytes(self, elements: f64) -> f64 {
        elements * self.storage_bits() / 8.0
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What kind of arithmetic a matrix instruction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MathType {
    /// Double precision.
    Fp64,
    /// Single precision, on the FMA pipe.
    Fp32,
    /// TF32 tensor-core products.
    Tf32,
    /// bf16 tensor-core products.
    Bf16,
    /// f16 tensor-core products.
    Fp16,
    /// 8-bit floating tensor-core products.
    Fp8,
    /// 4-bit floating tensor-core products.
    Fp4,
    /// 8-bit integer tensor-core products.
    Int8,
    /// 4-bit integer tensor-core products.
    Int4,
}

impl MathType {
    /// The kind of ceiling that it runs under, as a sheet names it.
    pub(crate) const fn ceiling(self, tensor: bool) -> &'static str {
        match self {
            Self::Fp64 => "fp64",
            _ if !tensor => "fp32",
            Self::Fp32 => "fp32",
            Self::Tf32 => "tensor_tf32",
            Self::Bf16 => "tensor_bf16",
            Self::Fp16 => "tensor_f16",
            Self::Fp8 => "tensor_fp8",
            Self::Fp4 => "tensor_fp4",
            Self::Int8 => "tensor_int8",
            Self::Int4 => "tensor_int4",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_read_back_and_block_scales_count_as_bytes() {
        for (text, dtype) in [("bf16", Dtype::Bf16), ("e4m3", Dtype::Fp8E4m3), ("nvfp4", Dtype::Nvfp4)] {
            assert_eq!(serde_yaml::from_str::<Dtype>(text).unwrap(), dtype);
        }
        let error = serde_yaml::from_str::<Dtype>("bf8").unwrap_err().to_string();
        assert!(error.contains("fp8_e4m3"), "{error}");
        assert_eq!(Dtype::Nvfp4.bytes(16.0), 9.0);
    }
}
