//! A tensor in memory, its bytes always row-major and little-endian.

use crate::dtype::{f32_to_bf16, f32_to_f16};
use crate::{Dtype, TensorError};
use sha2::{Digest, Sha256};

/// A named tensor. Its bytes are row-major and little-endian; `e2m1` packs two codes a byte, the first in the
/// low nibble, and so has an even number of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// The number of elements of a shape; `None` where that overflows.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    // A zero extent makes the tensor empty, however large the others are.
    if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) }
}

/// The bytes that a tensor takes, with the reason where no such tensor can be.
pub(crate) fn byte_length(dtype: Dtype, shape: &[usize]) -> Result<usize, String> {
    let count = elements(shape)
        .ok_or_else(|| format!("shape {shape:?} has more elements than memory can address"))?;
    if dtype == Dtype::E2m1 && !count.is_multiple_of(2) {
        return Err(format!("shape {shape:?} has an odd number of e2m1 codes; two share a byte"));
    }
    dtype
        .bytes_for(count)
        .ok_or_else(|| format!("shape {shape:?} of {dtype} takes more bytes than memory can address"))
}

impl Tensor {
    /// A tensor over given bytes.
    ///
    /// # Errors
    /// Where the bytes are not as many as the shape and the type demand.
    pub fn new(
        name: impl Into<String>,
        dtype: Dtype,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<Self, TensorError> {
        let name = name.into();
        let expected = byte_length(dtype, &shape).map_err(|p| TensorError::tensor(&name, p))?;
        if bytes.len() != expected {
            let problem =
                format!("shape {shape:?} of {dtype} takes {expected} bytes; there are {}", bytes.len());
            return Err(TensorError::tensor(&name, problem));
        }
        Ok(Self { name, dtype, shape, bytes })
    }

    /// A tensor from f32 values: f64 and f32 hold them exactly, f16 and bf16 round to nearest even.
    ///
    /// # Errors
    /// Where the count does not fit the shape, or the type is none of the four: 8- and 4-bit formats have more
    /// than one rounding rule, so their codes come from an encoder and go through [`Tensor::new`].
    pub fn from_f32(
        name: impl Into<String>,
        shape: Vec<usize>,
        dtype: Dtype,
        values: &[f32],
    ) -> Result<Self, TensorError> {
        let bytes = match dtype {
            Dtype::F64 => values.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect(),
            Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Dtype::F16 => values.iter().flat_map(|&v| f32_to_f16(v).to_le_bytes()).collect(),
            Dtype::Bf16 => values.iter().flat_map(|&v| f32_to_bf16(v).to_le_bytes()).collect(),
            _ => {
                let problem = format!("f32 values become f64, f32, f16 or bf16 here, not {dtype}");
                return Err(TensorError::tensor(&name.into(), problem));
            }
        };
        Self::new(name, dtype, shape, bytes)
    }

    /// An f64 tensor.
    ///
    /// # Errors
    /// Where the count does not fit the shape.
    pub fn from_f64(name: impl Into<String>, shape: Vec<usize>, values: &[f64]) -> Result<Self, TensorError> {
        Self::new(name, Dtype::F64, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its element type.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its extents, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, taken out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Its number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        elements(&self.shape).unwrap_or(0)
    }

    /// Whether it has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same tensor under another name.
    #[must_use]
    pub fn renamed(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The values as f32, exactly.
    ///
    /// # Errors
    /// For f64 and for 32- and 64-bit integers, whose values an f32 need not hold.
    pub fn to_f32(&self) -> Result<Vec<f32>, TensorError> {
        if !self.dtype.fits_f32() {
            let problem = format!("not every {} is an f32; take it as f64", self.dtype);
            return Err(TensorError::tensor(&self.name, problem));
        }
        #[expect(clippy::cast_possible_truncation, reason = "every value of the type is an f32")]
        Ok(self.decoded().into_iter().map(|v| v as f32).collect())
    }

    /// The values as f64, exactly.
    ///
    /// # Errors
    /// For 64-bit integers, whose values an f64 need not hold.
    pub fn to_f64(&self) -> Result<Vec<f64>, TensorError> {
        if matches!(self.dtype, Dtype::I64 | Dtype::U64) {
            return Err(TensorError::tensor(&self.name, format!("not every {} is an f64", self.dtype)));
        }
        Ok(self.decoded())
    }

    fn decoded(&self) -> Vec<f64> {
        let mut values = Vec::with_capacity(self.len());
        self.dtype.decode_f64(&self.bytes, &mut values);
        values
    }

    /// SHA-256 of its bytes in hex: what `hashlib.sha256(t.tobytes()).hexdigest()` gives in Python.
    #[must_use]
    pub fn sha256(&self) -> String {
        sha256_hex(&self.bytes)
    }
}

/// SHA-256 of bytes, in hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_must_fit_shape_and_type() {
        for (dtype, shape, bytes, fits) in [
            (Dtype::F32, vec![2, 3], 24, true),
            (Dtype::F32, vec![2, 3], 20, false),
            (Dtype::F32, vec![], 4, true),
            (Dtype::F32, vec![usize::MAX, 0, 7], 0, true),
            (Dtype::F32, vec![usize::MAX, 2], 0, false),
            (Dtype::F64, vec![usize::MAX], 0, false),
            (Dtype::E2m1, vec![4], 2, true),
            (Dtype::E2m1, vec![3], 2, false),
        ] {
            let got = Tensor::new("t", dtype, shape.clone(), vec![0; bytes]);
            assert_eq!(got.is_ok(), fits, "{dtype} {shape:?} {bytes}: {got:?}");
        }
    }

    #[test]
    fn values_come_out_exactly_or_not_at_all() {
        let t = Tensor::from_f32("t", vec![3], Dtype::Bf16, &[1.0, -2.5, f32::INFINITY]).unwrap();
        assert_eq!(t.to_f32().unwrap(), [1.0, -2.5, f32::INFINITY]);
        let t = Tensor::from_f64("t", vec![1], &[0.1]).unwrap();
        assert!(t.to_f32().unwrap_err().to_string().contains("f64"));
        assert_eq!(t.to_f64().unwrap(), [0.1]);
        assert!(Tensor::new("t", Dtype::I64, vec![1], vec![0; 8]).unwrap().to_f64().is_err());
        assert!(Tensor::from_f32("t", vec![1], Dtype::E4m3, &[1.0]).is_err());
    }

    #[test]
    fn the_digest_is_that_of_the_bytes() {
        let t = Tensor::new("t", Dtype::U8, vec![3], b"abc".to_vec()).unwrap();
        assert_eq!(t.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
