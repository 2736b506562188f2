//! One run of the thing under test, whoever starts it: a process, a target, or a simulation in a test.

use kbt_tensor::{ReadOptions, Tensor, TensorError, TensorSet, sha256_hex};

/// Starts fresh runs.
pub trait Runner {
    /// One fresh run with these knobs in its environment, on input set `set` (0, 1, …), to its end.
    ///
    /// # Errors
    /// Where the run gave no output.
    fn run(&self, env: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure>;
}

/// What a run left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutput {
    /// Bytes of no known format.
    Bytes(Vec<u8>),
    /// Tensors.
    Tensors(TensorSet),
}

/// Why a run gave no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunFailure {
    /// It could not be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// It ended with something other than success.
    #[error("it ended with {status}{}", said(stderr))]
    Failed {
        /// Exit code or signal, in words.
        status: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// It was still running at its limit, and was killed.
    #[error("it was still running after {limit_s} s and was killed")]
    TimedOut {
        /// The limit.
        limit_s: u64,
    },
    /// It ended well but its output cannot be used.
    #[error("its output cannot be used: {0}")]
    Output(String),
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

impl RunOutput {
    /// Takes bytes as tensors where they are a tensor file, else as they are.
    ///
    /// # Errors
    /// Where they look like a tensor file but are damaged, or a pickle that would run something.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, TensorError> {
        let tensors =
            bytes.starts_with(b"\x93NUMPY") || bytes.starts_with(b"PK") || bytes.get(8) == Some(&b'{');
        if !tensors {
            return Ok(Self::Bytes(bytes));
        }
        match TensorSet::from_bytes(bytes.clone(), "output", &ReadOptions::default()) {
            Ok(set) => Ok(Self::Tensors(set)),
            // A zip or a text that only looks like tensors.
            Err(TensorError::Unsupported { .. }) => Ok(Self::Bytes(bytes)),
            Err(error) => Err(error),
        }
    }

    /// SHA-256 over the content: the bytes, or names, types, shapes and bytes of the tensors. Metadata is left
    /// out: it may hold a time.
    #[must_use]
    pub fn digest(&self) -> String {
        match self {
            Self::Bytes(bytes) => sha256_hex(bytes),
            Self::Tensors(set) => {
                let each =
                    |t: &Tensor| format!("{} {} {:?} {}\n", t.name(), t.dtype(), t.shape(), t.sha256());
                sha256_hex(set.iter().map(each).collect::<String>().as_bytes())
            }
        }
    }

    /// The name of an input that the two were not both computed from, where both record their inputs' digests.
    #[must_use]
    pub fn other_input(&self, other: &Self) -> Option<String> {
        let (Self::Tensors(a), Self::Tensors(b)) = (self, other) else { return None };
        let (a, b) = (a.input_digests(), b.input_digests());
        if a.is_empty() || b.is_empty() {
            return None;
        }
        a.keys().chain(b.keys()).find(|name| a.get(*name) != b.get(*name)).map(|name| (*name).to_owned())
    }

    /// The first place where `other` differs, in words; `None` where the contents are the same bit for bit.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => {
                if a == b {
                    return None;
                }
                let place = a.iter().zip(b).position(|(x, y)| x != y);
                Some(place.map_or_else(
                    || format!("{} bytes and {} bytes", a.len(), b.len()),
                    |p| format!("byte {p}: {:#04x} and {:#04x}", a[p], b[p]),
                ))
            }
            (Self::Tensors(a), Self::Tensors(b)) => tensor_difference(a, b),
            _ => Some("tensors and other bytes".to_owned()),
        }
    }
}

fn tensor_difference(a: &TensorSet, b: &TensorSet) -> Option<String> {
    let names = |set: &TensorSet| set.iter().map(|t| t.name().to_owned()).collect::<Vec<_>>();
    if names(a) != names(b) {
        return Some(format!("tensors {:?} and {:?}", names(a), names(b)));
    }
    a.iter().zip(b.iter()).find_map(|(a, b)| {
        let name = a.name();
        if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
            return Some(format!(
                "`{name}`: {} {:?} and {} {:?}",
                a.dtype(),
                a.shape(),
                b.dtype(),
                b.shape()
            ));
        }
        let byte = a.bytes().iter().zip(b.bytes()).position(|(x, y)| x != y)?;
        let first = byte * 8 / a.dtype().bits();
        let index =
            (first..a.len()).find(|&i| a.dtype().code(a.bytes(), i) != b.dtype().code(b.bytes(), i))?;
        let code = |t: &Tensor| t.dtype().code(t.bytes(), index).unwrap_or_default();
        let place = crate::compare::unravel(index, a.shape());
        Some(format!("`{name}` {place:?}: bits {:#x} and {:#x}", code(a), code(b)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_tensor::Dtype;

    fn set(values: &[f32]) -> RunOutput {
        let mut set = TensorSet::new();
        set.insert(Tensor::from_f32("o", vec![values.len() / 2, 2], Dtype::Bf16, values).unwrap()).unwrap();
        RunOutput::Tensors(set)
    }

    #[test]
    fn the_first_difference_is_named_by_its_place() {
        let a = set(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(a.difference(&a), None);
        assert_eq!(a.difference(&set(&[1.0, 2.0, -3.0, 0.0])).unwrap(), "`o` [1, 0]: bits 0x4040 and 0xc040");
        assert_eq!(a.difference(&set(&[1.0, 2.0])).unwrap(), "`o`: bf16 [2, 2] and bf16 [1, 2]");
        let bytes = |b: &[u8]| RunOutput::from_bytes(b.to_vec()).unwrap();
        assert_eq!(bytes(b"abc").difference(&bytes(b"abd")).unwrap(), "byte 2: 0x63 and 0x64");
        assert_eq!(bytes(b"abc").difference(&bytes(b"abcd")).unwrap(), "3 bytes and 4 bytes");
        assert_eq!(a.difference(&bytes(b"abc")).unwrap(), "tensors and other bytes");
    }

    #[test]
    fn metadata_does_not_count_and_tensor_files_are_recognised() {
        let RunOutput::Tensors(mut tensors) = set(&[1.0, 2.0]) else { panic!() };
        let plain = RunOutput::Tensors(tensors.clone());
        tensors.set_metadata("time", "12:00");
        let timed = RunOutput::from_bytes(tensors.to_safetensors().unwrap()).unwrap();
        assert_eq!((plain.difference(&timed), plain.digest()), (None, timed.digest()));
        assert!(RunOutput::from_bytes(b"PK no zip".to_vec()).is_err());
    }
}
