//! PyTorch's zip format: the tensors that its pickle describes, as views over its storages.

use crate::archive::Entry;
use crate::file::{Contents, Located, ReadOptions};
use crate::layout::View;
use crate::npy::{double_last, reinterpret};
use crate::pickle::{self, Id, Pickle, Value};
use crate::source::Source;
use crate::tensor::{byte_length, elements};
use crate::{Dtype, TensorError, TensorInfo};

/// A pickle of descriptions is small; the data is elsewhere.
pub(crate) const LONGEST_PICKLE: u64 = 1 << 28;
/// Nesting of dictionaries and lists that is followed. Cycles end here too.
const DEEPEST: usize = 16;
/// Values visited: a pickle can name one value from many places, and so on within it.
const MOST_VALUES: usize = 1 << 20;
/// Bytes of one key, and of all names together: a pickle can name one text from many places, too.
const LONGEST_KEY: usize = 1 << 12;
const LONGEST_NAMES: usize = 1 << 26;
/// A view that repeats its storage (stride 0) is written out in full. What all such views of a file add to their storages
/// may be this much.
const LARGEST_EXPANSION: usize = 1 << 30;

/// PyTorch's names of storages and dtypes. `float4_e2m1fn_x2` has two codes an element.
const TORCH: [(&str, Dtype); 30] = [
    ("DoubleStorage", Dtype::F64),
    ("FloatStorage", Dtype::F32),
    ("HalfStorage", Dtype::F16),
    ("BFloat16Storage", Dtype::Bf16),
    ("LongStorage", Dtype::I64),
    ("IntStorage", Dtype::I32),
    ("ShortStorage", Dtype::I16),
    ("CharStorage", Dtype::I8),
    ("ByteStorage", Dtype::U8),
    ("BoolStorage", Dtype::Bool),
    ("float64", Dtype::F64),
    ("float32", Dtype::F32),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::Bf16),
    ("float8_e4m3fn", Dtype::E4m3),
    ("float8_e5m2", Dtype::E5m2),
    ("float8_e8m0fnu", Dtype::E8m0),
    ("float4_e2m1fn_x2", Dtype::E2m1),
    ("int64", Dtype::I64),
    ("int32", Dtype::I32),
    ("int16", Dtype::I16),
    ("int8", Dtype::I8),
    ("uint64", Dtype::U64),
    ("uint32", Dtype::U32),
    ("uint16", Dtype::U16),
    ("uint8", Dtype::U8),
    ("bool", Dtype::Bool),
    ("double", Dtype::F64),
    ("float", Dtype::F32),
    ("half", Dtype::F16),
];

pub(crate) fn torch_dtype(name: &str) -> Option<Dtype> {
    TORCH.iter().find(|row| row.0 == name).map(|row| row.1)
}

pub(crate) fn contents(
    source: &Source,
    entries: &[Entry],
    options: &ReadOptions,
) -> Result<Contents, TensorError> {
    let find = |name: &str| entries.iter().find(|e| e.name == name);
    let is_program = |e: &&Entry| e.name == "data.pkl" || e.name.ends_with("/data.pkl");
    let program = entries.iter().find(is_program).ok_or_else(|| source.malformed("zip", "no data.pkl"))?;
    let folder = program.name.strip_suffix("data.pkl").unwrap_or_default();
    let swap = match find(&format!("{folder}byteorder")) {
        None => false,
        Some(entry) => match entry.read(source, 64)?.as_slice() {
            b"little" => false,
            b"big" => true,
            _ => return Err(source.malformed(format!("{folder}byteorder"), "`little` or `big` expected")),
        },
    };
    let pickle = pickle::read(&source.name, &program.read(source, LONGEST_PICKLE)?)?;
    let walk = Walk { source, entries, folder, swap, options, pickle: &pickle };
    let mut found = Found::default();
    walk.collect(pickle.root, &mut Vec::new(), &mut found)?;
    Ok(Contents { located: found.located, notes: found.notes, ..Contents::default() })
}

struct Walk<'a> {
    source: &'a Source,
    entries: &'a [Entry],
    folder: &'a str,
    swap: bool,
    options: &'a ReadOptions,
    pickle: &'a Pickle,
}

#[derive(Default)]
struct Found {
    located: Vec<Located>,
    notes: Vec<String>,
    visited: usize,
    names: usize,
    /// Bytes that views take beyond those of their storages.
    expanded: usize,
}

impl Walk<'_> {
    /// Tensors get the names of the keys that lead to them, joined by dots; list items their index.
    fn collect(&self, id: Id, path: &mut Vec<String>, found: &mut Found) -> Result<(), TensorError> {
        found.visited += 1;
        if found.visited > MOST_VALUES || path.len() > DEEPEST {
            let problem = format!("more than {MOST_VALUES} values or {DEEPEST} levels");
            return Err(self.source.malformed("pickle", problem));
        }
        found.names += path.iter().map(String::len).sum::<usize>();
        if found.names > LONGEST_NAMES {
            let problem = format!("names of more than {LONGEST_NAMES} bytes in all");
            return Err(self.source.malformed("pickle", problem));
        }
        let note = |found: &mut Found, what: &str| {
            found.notes.push(format!("`{}` is {what}, no tensor; left out", path.join(".")));
        };
        match self.pickle.value(id) {
            Value::Dict(entries) => {
                for &(key, value) in entries {
                    path.push(match self.pickle.value(key) {
                        Value::Text(text) if text.len() <= LONGEST_KEY => text.clone(),
                        Value::Text(text) => {
                            let problem =
                                format!("a key of {} bytes; at most {LONGEST_KEY} are taken", text.len());
                            return Err(self.source.malformed("pickle", problem));
                        }
                        Value::Int(number) => number.to_string(),
                        _ => {
                            return Err(self
                                .source
                                .malformed("pickle", "a key that is neither text nor integer"));
                        }
                    });
                    self.collect(value, path, found)?;
                    path.pop();
                }
            }
            Value::List(items) | Value::Tuple(items) => {
                for (index, &item) in items.iter().enumerate() {
                    path.push(index.to_string());
                    self.collect(item, path, found)?;
                    path.pop();
                }
            }
            Value::Call(function, arguments) if function == "torch._utils._rebuild_parameter" => {
                let tensor = arguments
                    .first()
                    .ok_or_else(|| self.source.malformed("pickle", "a parameter of nothing"))?;
                self.tensor(*tensor, &path.join("."), found)?;
            }
            Value::Call(..) => self.tensor(id, &path.join("."), found)?,
            Value::Bool(_) => note(found, "a truth value"),
            Value::Int(_) => note(found, "an integer"),
            Value::Text(_) => note(found, "a text"),
            Value::Other(what) => note(found, what),
            Value::Global(_) | Value::Persistent(_) => note(found, "a reference"),
        }
        Ok(())
    }

    fn tensor(&self, id: Id, name: &str, found: &mut Found) -> Result<(), TensorError> {
        let name = if name.is_empty() { self.source.stem.as_str() } else { name };
        let located =
            self.locate(id, name).map_err(|p| self.source.malformed(format!("tensor `{name}`"), p))?;
        // The view's own length is known to fit since it was located.
        let length = byte_length(located.info.dtype, &located.info.shape).unwrap_or(usize::MAX);
        found.expanded = found.expanded.saturating_add(length.saturating_sub(located.stored));
        if found.expanded > LARGEST_EXPANSION {
            let problem = format!(
                "the views of this file repeat {} bytes of their storages; at most {LARGEST_EXPANSION} are taken, so \
                 save them after .contiguous()",
                found.expanded
            );
            return Err(self.source.malformed(format!("tensor `{name}`"), problem));
        }
        found.located.push(located);
        Ok(())
    }

    /// `_rebuild_tensor_v2(storage, offset, size, stride, …)`; v3 adds a dtype at index 6.
    fn locate(&self, id: Id, name: &str) -> Result<Located, String> {
        let Value::Call(function, arguments) = self.pickle.value(id) else {
            return Err("a parameter of something that is no tensor".to_owned());
        };
        let argument = |index: usize| {
            arguments
                .get(index)
                .map(|&id| self.pickle.value(id))
                .ok_or(format!("{function} without argument {index}"))
        };
        let (typed, key) = self.storage(argument(0)?)?;
        let known = match (function.ends_with("_v3"), typed) {
            (true, _) => self.dtype(argument(6)?)?,
            (false, Some(dtype)) => dtype,
            (false, None) => return Err("an untyped storage without a dtype".to_owned()),
        };
        let offset = self.number(argument(1)?)?;
        let (shape, strides) = (self.numbers(argument(2)?)?, self.numbers(argument(3)?)?);
        if shape.len() != strides.len() {
            return Err(format!("{} extents and {} strides", shape.len(), strides.len()));
        }
        self.place(name, known, &key, View::new(known.bits().div_ceil(8), shape, offset, strides))
    }

    fn place(&self, name: &str, known: Dtype, key: &str, mut view: View) -> Result<Located, String> {
        let entry = format!("{}data/{key}", self.folder);
        let entry = self.entries.iter().find(|e| e.name == entry).ok_or(format!("no entry `{entry}`"))?;
        let dtype = reinterpret(known, self.options.dtype(name))?;
        let needed = view.extent().and_then(|n| n.checked_mul(view.width)).ok_or("its view overflows")?;
        if needed as u64 > entry.size {
            return Err(format!("its view takes {needed} bytes of a storage of {}", entry.size));
        }
        let shape = if dtype == Dtype::E2m1 { double_last(&view.shape)? } else { view.shape.clone() };
        byte_length(dtype, &shape)?;
        let mut skip = 0;
        let mut stored = needed;
        if view.is_row_major() {
            stored = elements(&view.shape).unwrap_or(0) * view.width;
            skip = needed - stored;
            view.offset = 0;
        }
        Ok(Located {
            info: TensorInfo { name: name.to_owned(), dtype, shape },
            entry: entry.clone(),
            skip: skip as u64,
            stored,
            view,
            swap: self.swap,
            code_a_byte: false,
        })
    }

    /// `('storage', type, key, device, elements)`.
    fn storage(&self, value: &Value) -> Result<(Option<Dtype>, String), String> {
        let Value::Persistent(id) = value else { return Err("its storage is no reference".to_owned()) };
        let Value::Tuple(parts) = self.pickle.value(*id) else {
            return Err("its storage is no tuple".to_owned());
        };
        let part = |index: usize| parts.get(index).map(|&id| self.pickle.value(id));
        match (part(0), part(1), part(2)) {
            (Some(Value::Text(kind)), Some(Value::Global(class)), Some(Value::Text(key)))
                if kind == "storage" =>
            {
                Ok((class.strip_prefix("torch.").and_then(torch_dtype), key.clone()))
            }
            _ => Err("its storage is not ('storage', type, key, …)".to_owned()),
        }
    }

    fn dtype(&self, value: &Value) -> Result<Dtype, String> {
        match value {
            Value::Global(name) => name.strip_prefix("torch.").and_then(torch_dtype),
            _ => None,
        }
        .ok_or_else(|| "its dtype is none".to_owned())
    }

    fn number(&self, value: &Value) -> Result<usize, String> {
        match value {
            Value::Int(n) => usize::try_from(*n).map_err(|_| format!("{n} where a size is expected")),
            _ => Err("something else where a size is expected".to_owned()),
        }
    }

    fn numbers(&self, value: &Value) -> Result<Vec<usize>, String> {
        match value {
            Value::Tuple(items) => items.iter().map(|&id| self.number(self.pickle.value(id))).collect(),
            _ => Err("something else where a shape is expected".to_owned()),
        }
    }
}
