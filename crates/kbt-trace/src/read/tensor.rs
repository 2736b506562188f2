//! A profiler buffer that was saved as a tensor: safetensors, npy, npz or `.pt`, read by kbt-tensor.

use super::slots::Shape;
use crate::{TraceError, spelt};
use kbt_tensor::{Dtype, ReadOptions, TensorFile};

/// Element types that profilers' buffers have.
const TYPES: [Dtype; 4] = [Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64];

/// Whether the bytes start as a tensor file does. No other format of a trace does.
pub(super) fn is_tensor_file(bytes: &[u8]) -> bool {
    // safetensors: the length of a JSON header, which is inside the file.
    let header = || {
        let length = u64::from_le_bytes(*bytes.first_chunk()?);
        (bytes.get(8) == Some(&b'{') && length < bytes.len() as u64 - 8).then_some(())
    };
    bytes.starts_with(b"\x93NUMPY") || bytes.starts_with(b"PK\x03\x04") || header().is_some()
}

/// The bytes of the buffer: the tensor named `wanted`, else the only one that can be a profiler's.
pub(super) fn buffer(bytes: Vec<u8>, name: &str, wanted: Option<&str>) -> Result<Vec<u8>, TraceError> {
    let file = TensorFile::from_bytes(bytes, name, &ReadOptions::default())?;
    let load = |tensor: &str| Ok::<_, TraceError>(file.load(tensor)?.into_bytes());
    let describe = || {
        let each = file.infos().map(|t| format!("{} ({:?}, {:?})", spelt(&t.name), t.dtype, t.shape));
        each.collect::<Vec<_>>().join(", ")
    };
    let argument = |what, found: String, accepted: &str| TraceError::Argument {
        what,
        found: format!("{name}: {found}"),
        accepted: accepted.to_owned(),
    };
    const ACCEPTED: &str =
        "a tensor of i32, u32, i64 or u64 whose first 8 bytes are the numbers of blocks and groups";
    if let Some(wanted) = wanted {
        let Some(info) = file.infos().find(|t| t.name == wanted) else {
            return Err(argument("--tensor", format!("no tensor {wanted}"), &describe()));
        };
        if !TYPES.contains(&info.dtype) {
            return Err(argument("--tensor", format!("{wanted} is {:?}", info.dtype), ACCEPTED));
        }
        return load(wanted);
    }
    let mut found = Vec::new();
    for info in file.infos().filter(|t| TYPES.contains(&t.dtype)) {
        let bytes = load(&info.name)?;
        if Shape::of(&bytes).is_some() {
            found.push((info.name.clone(), bytes));
        }
    }
    match found.len() {
        1 => Ok(found.swap_remove(0).1),
        0 => Err(argument("tensor file", format!("it holds {}", describe()), ACCEPTED)),
        _ => {
            let names: Vec<_> = found.iter().map(|f| spelt(&f.0)).collect();
            Err(argument(
                "tensor file",
                "several tensors can be a buffer".into(),
                &format!("--tensor with one of {}", names.join(", ")),
            ))
        }
    }
}
