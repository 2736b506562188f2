//! safetensors: the JSON header with its offsets, and a writer whose output depends on its input alone.
//!
//! The format's own crate writes metadata in the order of a hash map, so the same tensors give different files;
//! here names and metadata are sorted. Data may start at any byte: it is copied, never cast.

use crate::archive::Entry;
use crate::file::{Contents, Located, ReadOptions};
use crate::layout::{View, row_strides};
use crate::npy::{double_last, reinterpret};
use crate::source::Source;
use crate::tensor::byte_length;
use crate::{Dtype, Tensor, TensorError, TensorInfo};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The format's own limit on the header.
const LONGEST_HEADER: u64 = 100_000_000;
const METADATA: &str = "__metadata__";

#[derive(Serialize, Deserialize)]
struct Record {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

pub(crate) fn contents(source: &Source, length: u64, options: &ReadOptions) -> Result<Contents, TensorError> {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&source.bytes(0, 8)?);
    let header = u64::from_le_bytes(prefix);
    if header > LONGEST_HEADER || header > length.saturating_sub(8) {
        let problem =
            format!("{header} bytes, beyond the file's {length} or the format's limit of {LONGEST_HEADER}");
        return Err(source.malformed("header length", problem));
    }
    let text = source.bytes(8, usize::try_from(header).unwrap_or(usize::MAX))?;
    let records: BTreeMap<String, Value> =
        serde_json::from_slice(&text).map_err(|e| source.malformed("header", e.to_string()))?;
    let data = 8 + header;
    let mut contents = Contents::default();
    for (name, record) in records {
        let bad = |problem: String| source.malformed(format!("header, `{name}`"), problem);
        if name == METADATA {
            contents.metadata =
                serde_json::from_value(record).map_err(|e| bad(format!("texts by name expected: {e}")))?;
            continue;
        }
        let record: Record = serde_json::from_value(record).map_err(|e| bad(e.to_string()))?;
        let located = locate(&name, &record, data, length, options.dtype(&name)).map_err(bad)?;
        contents.located.push(located);
    }
    check_places(source, &contents.located, data, length)?;
    Ok(contents)
}

fn locate(
    name: &str,
    record: &Record,
    data: u64,
    length: u64,
    asked: Option<Dtype>,
) -> Result<Located, String> {
    let known = Dtype::from_safetensors(&record.dtype).ok_or_else(|| {
        let all = Dtype::ALL.map(Dtype::safetensors_name).join(" ");
        format!("dtype `{}`; accepted: {all}", record.dtype)
    })?;
    let dtype = reinterpret(known, asked)?;
    let [start, end] = record.data_offsets;
    let stored = byte_length(known, &record.shape)?;
    if end.checked_sub(start) != Some(stored as u64) || end > length - data {
        return Err(format!(
            "data_offsets [{start}, {end}]; shape {:?} of {known} takes {stored} bytes and there are {} in all",
            record.shape,
            length - data
        ));
    }
    let shape = if dtype == Dtype::E2m1 && known != dtype {
        double_last(&record.shape)?
    } else {
        record.shape.clone()
    };
    Ok(Located {
        info: TensorInfo { name: name.to_owned(), dtype, shape },
        entry: Entry::plain(data + start, stored as u64),
        skip: 0,
        stored,
        // One row of bytes: packed codes have no element of whole bytes.
        view: View::new(1, vec![stored], 0, row_strides(&[stored])),
        swap: false,
        code_a_byte: false,
    })
}

/// The format demands that the tensors tile the data: no overlap, no hole.
fn check_places(source: &Source, located: &[Located], data: u64, length: u64) -> Result<(), TensorError> {
    let mut places: Vec<(u64, u64, &str)> =
        located.iter().map(|l| (l.entry.start(), l.entry.size, l.info.name.as_str())).collect();
    places.sort_unstable();
    let mut end = data;
    for (start, size, name) in places {
        if start != end {
            let what = if start < end { "overlaps the tensor before it" } else { "leaves a hole before it" };
            return Err(source.malformed(format!("header, `{name}`"), format!("data_offsets: {what}")));
        }
        end = start + size;
    }
    if end != length {
        return Err(source.malformed("data", format!("{} bytes belong to no tensor", length - end)));
    }
    Ok(())
}

/// The file's bytes: tensors and metadata in the order of their names, the data aligned to 8 bytes.
pub(crate) fn to_bytes<'a>(
    tensors: impl Iterator<Item = &'a Tensor> + Clone,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, TensorError> {
    let mut header = serde_json::Map::new();
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|e| TensorError::malformed("safetensors", "header", e.to_string()))
    };
    if !metadata.is_empty() {
        header.insert(METADATA.to_owned(), json(serde_json::to_value(metadata))?);
    }
    let mut place = 0u64;
    for tensor in tensors.clone() {
        if tensor.name() == METADATA {
            return Err(TensorError::tensor(METADATA, "safetensors keeps this name for itself"));
        }
        let end = place + tensor.bytes().len() as u64;
        let record = Record {
            dtype: tensor.dtype().safetensors_name().to_owned(),
            shape: tensor.shape().to_vec(),
            data_offsets: [place, end],
        };
        header.insert(tensor.name().to_owned(), json(serde_json::to_value(record))?);
        place = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    for tensor in tensors {
        bytes.extend_from_slice(tensor.bytes());
    }
    Ok(bytes)
}
