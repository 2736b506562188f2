//! A pickle reader that rebuilds plain data and nothing else.
//!
//! A pickle is a program for a stack machine, and its GLOBAL and REDUCE opcodes call anything that Python can
//! import. Here a global is only ever a name, checked against an allow-list when it is read, and a call is only
//! ever one of the few rebuilds that [`crate::pt`] understands: a record of what was asked for, not a call.
//! Values live in one arena and refer to one another by index, so that neither a cycle nor deep nesting in a
//! hostile file can exhaust the stack.

use crate::TensorError;
use std::collections::HashMap;

/// Index of a value in the arena.
pub(crate) type Id = usize;

/// What a pickle can make here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// None, a float or bytes: no tensor depends on these.
    Other(&'static str),
    Bool(bool),
    Int(i64),
    Text(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// An allowed global, as `module.name`.
    Global(String),
    /// A persistent id: how PyTorch refers to a storage.
    Persistent(Id),
    /// An allowed global asked to be called with a tuple of arguments.
    Call(String, Vec<Id>),
}

/// A program that has run.
#[derive(Debug)]
pub(crate) struct Pickle {
    arena: Vec<Value>,
    pub(crate) root: Id,
}

impl Pickle {
    pub(crate) fn value(&self, id: Id) -> &Value {
        &self.arena[id]
    }
}

/// What may be called: the rebuilds of tensors and parameters, and an ordered dictionary.
const CALLS: [&str; 5] = [
    "collections.OrderedDict",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
];

/// The rebuilds take up to eight arguments.
const MOST_ARGUMENTS: usize = 16;
/// Values in all: a byte of a pickle makes one, and one takes tens of bytes. A tensor takes about twenty.
const MOST_VALUES: usize = 1 << 22;

fn allowed(global: &str) -> bool {
    CALLS.contains(&global)
        || global == "torch.storage.UntypedStorage"
        || global == "torch.serialization._get_layout"
        || global.strip_prefix("torch.").is_some_and(|name| crate::pt::torch_dtype(name).is_some())
}

struct Machine<'a> {
    file: &'a str,
    code: &'a [u8],
    at: usize,
    arena: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

/// Runs the pickle as far as it is allowed to go.
pub(crate) fn read(file: &str, code: &[u8]) -> Result<Pickle, TensorError> {
    let (arena, stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
    let mut machine = Machine { file, code, at: 0, arena, stack, marks, memo };
    while !machine.step()? {}
    let root = machine.pop()?;
    Ok(Pickle { arena: machine.arena, root })
}

impl Machine<'_> {
    fn bad(&self, problem: impl Into<String>) -> TensorError {
        TensorError::malformed(self.file, format!("pickle, byte {}", self.at), problem)
    }

    fn refused(&self, offset: usize, what: impl Into<String>) -> TensorError {
        TensorError::PickleRefused { file: self.file.to_owned(), global: what.into(), offset }
    }

    fn take(&mut self, n: usize) -> Result<&[u8], TensorError> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.code.len());
        let end = end.ok_or_else(|| self.bad("the pickle ends in the middle of an operation"))?;
        let bytes = &self.code[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// A little-endian unsigned number of `n` bytes.
    fn number(&mut self, n: usize) -> Result<u64, TensorError> {
        Ok(self.take(n)?.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b)))
    }

    /// A little-endian two's complement number of `n` bytes, up to 8.
    fn signed(&mut self, n: usize) -> Result<i64, TensorError> {
        if n > 8 {
            return Err(self.bad(format!("an integer of {n} bytes; at most 8 are taken")));
        }
        if n == 0 {
            return Ok(0);
        }
        let shift = 64 - 8 * n;
        Ok((self.number(n)? << shift).cast_signed() >> shift)
    }

    fn counted(&mut self, n: usize) -> Result<Vec<u8>, TensorError> {
        let length = self.number(n)?;
        Ok(self.take(usize::try_from(length).unwrap_or(usize::MAX))?.to_vec())
    }

    fn text(&mut self, n: usize) -> Result<String, TensorError> {
        String::from_utf8(self.counted(n)?).map_err(|_| self.bad("a text that is not UTF-8"))
    }

    fn line(&mut self) -> Result<String, TensorError> {
        let rest = &self.code[self.at..];
        let end = rest.iter().position(|&b| b == b'\n').ok_or_else(|| self.bad("a line without its end"))?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        self.at += end + 1;
        Ok(line)
    }

    fn push(&mut self, value: Value) {
        self.arena.push(value);
        self.stack.push(self.arena.len() - 1);
    }

    fn pop(&mut self) -> Result<Id, TensorError> {
        // What lies below the last mark belongs to somebody else.
        if self.stack.len() <= self.marks.last().copied().unwrap_or(0) {
            return Err(self.bad("an operation takes a value that is not there"));
        }
        self.stack.pop().ok_or_else(|| self.bad("an operation takes a value that is not there"))
    }

    fn top(&self) -> Result<Id, TensorError> {
        self.stack.last().copied().ok_or_else(|| self.bad("an operation takes a value that is not there"))
    }

    /// The values above the last mark, which goes.
    fn marked(&mut self) -> Result<Vec<Id>, TensorError> {
        let mark = self.marks.pop().ok_or_else(|| self.bad("no mark to go back to"))?;
        if mark > self.stack.len() {
            return Err(self.bad("the mark is above the stack"));
        }
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, n: usize) -> Result<(), TensorError> {
        let mut items = Vec::with_capacity(n);
        for _ in 0..n {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(Value::Tuple(items));
        Ok(())
    }

    fn append(&mut self, items: Vec<Id>) -> Result<(), TensorError> {
        let list = self.top()?;
        match &mut self.arena[list] {
            Value::List(values) => values.extend(items),
            _ => return Err(self.bad("an append to something that is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Result<(), TensorError> {
        let (pairs, rest) = items.as_chunks::<2>();
        let dict = self.top()?;
        match &mut self.arena[dict] {
            Value::Dict(entries) if rest.is_empty() => entries.extend(pairs.iter().map(|&[k, v]| (k, v))),
            _ => return Err(self.bad("key and value pairs for something that is no dictionary")),
        }
        Ok(())
    }

    fn global(&mut self, offset: usize, module: &str, name: &str) -> Result<(), TensorError> {
        let global = format!("{module}.{name}");
        if !allowed(&global) {
            return Err(self.refused(offset, global.escape_debug().to_string()));
        }
        self.push(Value::Global(global));
        Ok(())
    }

    fn reduce(&mut self, offset: usize) -> Result<(), TensorError> {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let Value::Global(name) = &self.arena[callable] else {
            return Err(self.refused(offset, "a call of something that is no known function"));
        };
        if !CALLS.contains(&name.as_str()) {
            return Err(self.refused(offset, name.clone()));
        }
        let Value::Tuple(arguments) = &self.arena[arguments] else {
            return Err(self.bad("a call whose arguments are no tuple"));
        };
        let value = match (name.as_str(), arguments.as_slice()) {
            ("collections.OrderedDict", []) => Value::Dict(Vec::new()),
            ("collections.OrderedDict", _) => {
                return Err(self.bad("an OrderedDict with arguments; PyTorch fills it afterwards"));
            }
            (name, arguments) if arguments.len() <= MOST_ARGUMENTS => {
                Value::Call(name.to_owned(), arguments.to_vec())
            }
            (name, arguments) => {
                let problem =
                    format!("{name} with {} arguments; at most {MOST_ARGUMENTS} are taken", arguments.len());
                return Err(self.bad(problem));
            }
        };
        self.push(value);
        Ok(())
    }

    /// BUILD sets attributes. PyTorch does that to an OrderedDict (`_metadata`), which adds no tensor.
    fn build(&mut self, offset: usize) -> Result<(), TensorError> {
        self.pop()?;
        let target = self.top()?;
        match self.arena[target] {
            Value::Dict(_) => Ok(()),
            _ => Err(self.refused(offset, "BUILD of something that is no OrderedDict")),
        }
    }

    fn remember(&mut self, key: u64) -> Result<(), TensorError> {
        let value = self.top()?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall(&mut self, key: u64) -> Result<(), TensorError> {
        let value = *self.memo.get(&key).ok_or_else(|| self.bad(format!("memo {key} is empty")))?;
        self.stack.push(value);
        Ok(())
    }

    /// One operation; true at STOP. The names are those of Python's `pickletools`.
    fn step(&mut self) -> Result<bool, TensorError> {
        let offset = self.at;
        if self.arena.len().max(self.stack.len()) > MOST_VALUES {
            return Err(self.bad(format!("more than {MOST_VALUES} values")));
        }
        let op = self.take(1)?[0];
        match op {
            b'.' => return Ok(true),                   // STOP
            0x80 => drop(self.take(1)?),               // PROTO
            0x95 => drop(self.take(8)?),               // FRAME
            b'(' => self.marks.push(self.stack.len()), // MARK
            b'0' => drop(self.pop()?),                 // POP
            b'1' => drop(self.marked()?),              // POP_MARK
            b'N' => self.push(Value::Other("None")),   // NONE
            0x88 => self.push(Value::Bool(true)),      // NEWTRUE
            0x89 => self.push(Value::Bool(false)),     // NEWFALSE
            b'K' => return self.int(1, false),         // BININT1
            b'M' => return self.int(2, false),         // BININT2
            b'J' => return self.int(4, true),          // BININT
            0x8a => {
                let n = self.number(1)?;
                return self.int(usize::try_from(n).unwrap_or(usize::MAX), true); // LONG1
            }
            0x8b => {
                let n = self.number(4)?;
                return self.int(usize::try_from(n).unwrap_or(usize::MAX), true); // LONG4
            }
            b'G' => {
                self.take(8)?;
                self.push(Value::Other("a float")); // BINFLOAT
            }
            0x8c => return self.string(1),               // SHORT_BINUNICODE
            b'X' => return self.string(4),               // BINUNICODE
            0x8d => return self.string(8),               // BINUNICODE8
            b'C' => return self.blob(1),                 // SHORT_BINBYTES
            b'B' => return self.blob(4),                 // BINBYTES
            0x8e => return self.blob(8),                 // BINBYTES8
            b')' => self.push(Value::Tuple(Vec::new())), // EMPTY_TUPLE
            b']' => self.push(Value::List(Vec::new())),  // EMPTY_LIST
            b'}' => self.push(Value::Dict(Vec::new())),  // EMPTY_DICT
            0x85..=0x87 => self.tuple(usize::from(op - 0x84))?, // TUPLE1 TUPLE2 TUPLE3
            b't' => {
                let items = self.marked()?;
                self.push(Value::Tuple(items)); // TUPLE
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?; // APPEND
            }
            b'e' => {
                let items = self.marked()?;
                self.append(items)?; // APPENDS
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?; // SETITEM
            }
            b'u' => {
                let items = self.marked()?;
                self.set_items(&items)?; // SETITEMS
            }
            b'q' => {
                let key = self.number(1)?;
                self.remember(key)?; // BINPUT
            }
            b'r' => {
                let key = self.number(4)?;
                self.remember(key)?; // LONG_BINPUT
            }
            0x94 => self.remember(self.memo.len() as u64)?, // MEMOIZE
            b'h' => {
                let key = self.number(1)?;
                self.recall(key)?; // BINGET
            }
            b'j' => {
                let key = self.number(4)?;
                self.recall(key)?; // LONG_BINGET
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(offset, &module, &name)?; // GLOBAL
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(module), Value::Text(name)) = (&self.arena[module], &self.arena[name])
                else {
                    return Err(self.bad("a global whose name is no text"));
                };
                let (module, name) = (module.clone(), name.clone());
                self.global(offset, &module, &name)?; // STACK_GLOBAL
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(Value::Persistent(id)); // BINPERSID
            }
            b'R' => self.reduce(offset)?, // REDUCE
            b'b' => self.build(offset)?,  // BUILD
            b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                return Err(self.refused(offset, format!("{module}.{name}").escape_debug().to_string())); // INST
            }
            0x81 | 0x92 | b'o' => return Err(self.refused(offset, "an instance of a class")), // NEWOBJ NEWOBJ_EX OBJ
            0x82..=0x84 => return Err(self.refused(offset, "a global by extension code")), // EXT1 EXT2 EXT4
            _ => {
                let problem = format!("opcode {op:#04x} is none that PyTorch's files use");
                return Err(TensorError::malformed(self.file, format!("pickle, byte {offset}"), problem));
            }
        }
        Ok(false)
    }

    fn int(&mut self, bytes: usize, signed: bool) -> Result<bool, TensorError> {
        let value = if signed { self.signed(bytes)? } else { self.number(bytes)?.cast_signed() };
        self.push(Value::Int(value));
        Ok(false)
    }

    fn string(&mut self, bytes: usize) -> Result<bool, TensorError> {
        let text = self.text(bytes)?;
        self.push(Value::Text(text));
        Ok(false)
    }

    fn blob(&mut self, bytes: usize) -> Result<bool, TensorError> {
        self.counted(bytes)?;
        self.push(Value::Other("bytes"));
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_data_is_rebuilt() {
        // pickle.dumps({'a': [1, -2, True], 'b': (None, 300)}, 2)
        let code = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\x88eX\x01\x00\x00\x00bq\x03NM,\x01\x86q\x04u.";
        let p = read("t", code).unwrap();
        let Value::Dict(entries) = p.value(p.root) else { panic!("{p:?}") };
        let Value::List(list) = p.value(entries[0].1) else { panic!("{p:?}") };
        let list: Vec<_> = list.iter().map(|&i| p.value(i).clone()).collect();
        assert_eq!(list, [Value::Int(1), Value::Int(-2), Value::Bool(true)]);
        let Value::Tuple(tuple) = p.value(entries[1].1) else { panic!("{p:?}") };
        assert_eq!(p.value(tuple[1]), &Value::Int(300));
    }

    #[test]
    fn whatever_would_run_is_refused_and_named() {
        for (code, named) in [
            (&b"cos\nsystem\n(X\x02\x00\x00\x00idtR."[..], "os.system"),
            (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "os.system"),
            (b"cbuiltins\neval\n.", "builtins.eval"),
            (b"ctorch.hub\nload\n.", "torch.hub.load"),
            (b"ctorch\nFloatStorage\n)R.", "torch.FloatStorage"),
            (b"(ios\nsystem\n.", "os.system"),
            (b"ccollections\nOrderedDict\n)\x81.", "an instance of a class"),
            (b"ctorch._utils\n_rebuild_tensor_v2\nNb.", "BUILD"),
            (b"K\x01)R.", "a call of something"),
            (b"\x82\x01.", "extension"),
        ] {
            let error = read("evil.pt", code).unwrap_err();
            assert!(matches!(error, TensorError::PickleRefused { .. }), "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn damage_is_an_error_with_its_place() {
        for code in [
            &b""[..],
            b".",
            b"K",
            b"X\xff\xff\xff\xffab.",
            b"h\x07.",
            b"t.",
            b"K\x01a.",
            b"]K\x01u.",
            b"}(K\x01u.",
            b"\x8a\x09aaaaaaaaa.",
            b"(0.",
            b"\xff.",
        ] {
            assert!(read("t", code).unwrap_err().to_string().contains("byte"), "{code:?}");
        }
        let cycle = b"]q\x00h\x00a.";
        assert!(read("t", cycle).is_ok(), "a cycle is data like any other");
    }
}
