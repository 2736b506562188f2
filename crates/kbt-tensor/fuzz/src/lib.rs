//! What the fuzz targets share: a file put through everything that reads one, and a zip around bytes whose checksum
//! would otherwise keep changed ones from the reader behind it.

use kbt_tensor::{Dtype, ReadOptions, Tensor, TensorFile, TensorSet, npy_bytes};
use std::io::Read;

/// A tensor larger than this is not taken whole: a few bytes of a file may stand for a gigabyte of zeros.
const TAKEN_WHOLE: usize = 1 << 20;
/// Tensors of one file that are taken: every one may be a view of the same storage.
const TAKEN: usize = 64;

/// What a caller may say of the tensor `x`.
const HINTS: [Option<Dtype>; 4] = [None, Some(Dtype::E4m3), Some(Dtype::E2m1), Some(Dtype::F16)];

/// Reads a file in every way. Its tensors are those of its first reading that had any.
pub fn everything(bytes: &[u8]) -> Vec<Tensor> {
    let mut first = Vec::new();
    for hint in HINTS {
        let options = ReadOptions { dtypes: hint.map(|dtype| ("x".to_owned(), dtype)).into_iter().collect() };
        let Ok(file) = TensorFile::from_bytes(bytes.to_vec(), "x", &options) else { continue };
        let tensors: Vec<Tensor> =
            file.infos().take(TAKEN).filter_map(|info| tensor(&file, &info.name)).collect();
        round_trip(&tensors);
        let _ = (file.notes(), file.input_digests());
        if first.is_empty() {
            first = tensors;
        }
    }
    first
}

/// One tensor, whole and as a stream, which must agree.
fn tensor(file: &TensorFile, name: &str) -> Option<Tensor> {
    let info = file.infos().find(|info| info.name == name).expect("its name came from there");
    // A zero extent makes a tensor empty, however large the others are.
    let elements = if info.shape.contains(&0) { 0 } else { info.shape.iter().product::<usize>() };
    if info.dtype.bytes_for(elements).is_none_or(|bytes| bytes > TAKEN_WHOLE) {
        return None;
    }
    let tensor = file.load(name).ok()?;
    let mut streamed = Vec::new();
    file.stream(name).expect("it was loaded").read_to_end(&mut streamed).expect("it was loaded");
    assert_eq!(streamed, tensor.bytes(), "`{name}` streams as it loads");
    assert_eq!(tensor.len(), elements);
    let _ = (tensor.to_f32(), tensor.to_f64());
    Some(tensor)
}

/// What was read can be written, and reads back the same.
fn round_trip(tensors: &[Tensor]) {
    let mut set = TensorSet::new();
    for tensor in tensors {
        set.insert(tensor.clone()).expect("a file has no name twice");
        let _ = npy_bytes(tensor);
    }
    // The one name that the format keeps for itself cannot be written.
    let Ok(bytes) = set.to_safetensors() else { return };
    let back = TensorSet::from_bytes(bytes, "x", &ReadOptions::default());
    assert_eq!(back.expect("it was just written"), set);
}

/// A zip archive of stored entries, with the checksums that they have.
pub fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let size = u32::try_from(data.len()).expect("inputs are small").to_le_bytes();
        let name_length = u16::try_from(name.len()).expect("names are short").to_le_bytes();
        let place = u32::try_from(archive.len()).expect("inputs are small").to_le_bytes();
        // Version, flags, method, time and date, CRC-32, both sizes, the name's length and the extra field's.
        let common = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &crc32fast::hash(data).to_le_bytes()[..],
            &size,
            &size,
            &name_length,
            &[0, 0],
        ]
        .concat();
        archive.extend([b"PK\x03\x04", &common[..], name.as_bytes(), data].concat());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 10], &place, name.as_bytes()].concat());
    }
    let count = u16::try_from(entries.len()).expect("entries are few").to_le_bytes();
    let size = u32::try_from(directory.len()).expect("inputs are small").to_le_bytes();
    let place = u32::try_from(archive.len()).expect("inputs are small").to_le_bytes();
    let end = [b"PK\x05\x06\0\0\0\0", &count[..], &count, &size, &place, &[0, 0]].concat();
    [archive, directory, end].concat()
}
