//! Instructions to scalar nodes: what each PTX opcode means in the language, and what is refused.

mod arithmetic;
mod choice;
mod convert;
mod exponential;
mod reason;

use super::loops::Loop;
use super::scalar::{At, Id, Kind, Leaf, Scalar};
use super::scan::{Block, Item, Registers, registers, writes};
use super::value::{Value, float_literal, integer_literal};
use crate::format::Format;
pub(in crate::lift) use exponential::Step;
use kbt_ptx::Instruction;
pub(super) use reason::Reason;
use std::collections::{BTreeMap, HashMap};

/// Refused instructions: opcode and reason to places.
pub(super) type Refused = BTreeMap<(String, Reason), Vec<At>>;

pub(super) struct Decoder<'a, 'b> {
    pub(super) scalar: Scalar,
    pub(super) refused: Refused,
    /// Values that a rounding takes which is right below 7 only.
    pub(super) below7: Vec<Id>,
    registers: &'b Registers<'a>,
    /// The innermost loop that the block is in.
    around: Option<&'b Loop>,
    env: HashMap<String, Value>,
    /// What wrote a register whose value is not known here.
    origin: HashMap<String, Leaf>,
    /// How many registers are copies of others.
    copies: usize,
}

/// Decodes a block.
pub(super) fn block<'a>(
    block: &Block<'a>,
    registers: &Registers<'a>,
    around: Option<&Loop>,
) -> (Scalar, Refused, Vec<Id>) {
    let mut decoder = Decoder {
        scalar: Scalar::default(),
        refused: Refused::new(),
        below7: Vec::new(),
        registers,
        around,
        env: HashMap::new(),
        origin: HashMap::new(),
        copies: 0,
    };
    for item in &block.items {
        match item {
            Item::Instruction(i, at) => decoder.instruction(i, *at),
            Item::Forget(names) => {
                for name in names {
                    decoder.forget_copies(name);
                    decoder.env.remove(name);
                    decoder.origin.remove(name);
                }
            }
        }
    }
    decoder.mark_what_leaves(block);
    (decoder.scalar, decoder.refused, decoder.below7)
}

impl Decoder<'_, '_> {
    /// Values that are read elsewhere after this block wrote them are outputs.
    fn mark_what_leaves(&mut self, block: &Block<'_>) {
        let mut reads_since: HashMap<&str, usize> = HashMap::new();
        let mut written: HashMap<&str, bool> = HashMap::new();
        for (i, _) in block.instructions() {
            let skip = usize::from(writes(i));
            let guard = i.guard.iter().map(|g| g.register.as_str());
            for name in i.operands.iter().skip(skip).flat_map(|o| registers(o)).chain(guard) {
                *reads_since.entry(name).or_default() += 1;
            }
            for name in i.operands.iter().take(skip).flat_map(|o| registers(o)) {
                reads_since.insert(name, 0);
                written.insert(name, true);
            }
        }
        for name in written.into_keys() {
            let here = reads_since.get(name).copied().unwrap_or_default();
            if self.registers.reads(name) > here
                && let Some(value) = self.env.get(name)
            {
                self.scalar.outputs.extend(value.nodes());
            }
        }
    }

    fn refuse(&mut self, i: &Instruction, at: At, reason: Reason) {
        self.refused.entry((i.opcode.clone(), reason)).or_default().push(at);
    }

    /// The results are not known; the operands that are known leave the lifted part.
    fn opaque(&mut self, i: &Instruction, leaf: &Leaf) {
        let written = usize::from(writes(i));
        // A matrix instruction's accumulator is read and written by one operand.
        let unread = if matches!(i.base(), "wgmma" | "mma") { 0 } else { written };
        for name in i.operands.iter().skip(unread).flat_map(|o| registers(o)) {
            if let Some(value) = self.env.get(name) {
                self.scalar.outputs.extend(value.nodes());
            }
        }
        for name in i.operands.iter().take(written).flat_map(|o| registers(o)) {
            self.forget_copies(name);
            self.env.remove(name);
            self.origin.insert(name.to_owned(), leaf.clone());
        }
    }

    /// A register is about to change: what was copied from it is no longer what it holds.
    fn forget_copies(&mut self, name: &str) {
        let is_copy = |v: &Value| matches!(v, Value::Same(source) if source == name);
        if self.copies > 0 {
            let before = self.env.len();
            self.env.retain(|_, v| !is_copy(v));
            self.copies -= before - self.env.len();
        }
    }

    fn set(&mut self, i: &Instruction, value: Value) {
        if let Some(name) = i.operands.first().and_then(|o| registers(o).next()) {
            self.forget_copies(name);
            self.origin.remove(name);
            self.copies += usize::from(matches!(value, Value::Same(_)));
            if let Some(Value::Same(_)) = self.env.insert(name.to_owned(), value) {
                self.copies -= 1;
            }
        }
    }

    /// What is known of an operand, without making anything of it that is not.
    fn known(&self, operand: &str) -> Option<Value> {
        if let Some(value) = self.env.get(operand) {
            return Some(value.clone());
        }
        if let Some(x) = integer_literal(operand) {
            return Some(Value::Int(x));
        }
        if self.origin.contains_key(operand) {
            return None;
        }
        let definition = self.registers.definition(operand).filter(|d| d.base() == "mov")?;
        let source = definition.operands.get(1)?;
        match (float_literal(source), integer_literal(source)) {
            (Some(bits), _) => Some(Value::Bits(bits)),
            (_, Some(x)) => Some(Value::Int(x)),
            _ => None,
        }
    }

    /// A constant; a NaN is none that the language has.
    fn constant(&mut self, bits: u32, at: At) -> Option<Id> {
        let x = f32::from_bits(bits);
        if x.is_nan() { None } else { Some(self.scalar.number(x, at)) }
    }

    /// An operand as a float: a node that is there, a constant, or a new leaf. None where it is something else.
    fn float(&mut self, operand: &str, at: At) -> Option<Id> {
        if let Some(bits) = float_literal(operand) {
            return self.constant(bits, at);
        }
        match self.known(operand) {
            Some(Value::F32(id)) => return Some(id),
            Some(Value::Bits(bits)) => return self.constant(bits, at),
            Some(Value::Int(x)) => {
                return u32::try_from(x & 0xffff_ffff).ok().and_then(|bits| self.constant(bits, at));
            }
            Some(Value::Same(source)) => return self.float(&source, at),
            Some(_) => return None,
            None => {}
        }
        let name = registers(operand).next().filter(|name| *name == operand)?;
        let uniform = self.registers.is_uniform(name, 0);
        let leaf =
            if uniform { Leaf::Uniform } else { self.origin.get(name).cloned().unwrap_or(Leaf::LiveIn) };
        let invariant = uniform || leaf == Leaf::LiveIn && self.around.is_some_and(|l| l.keeps(name));
        // What is read from memory here is not what the register had before.
        let mask = self.registers.mask(name).filter(|_| leaf != Leaf::Load);
        let id = self.scalar.leaf(leaf, at, name.trim_start_matches('%'));
        self.scalar.nodes[id].invariant = invariant;
        self.scalar.nodes[id].lanes = self.registers.lanes(name);
        self.scalar.nodes[id].mask = mask;
        self.env.insert(name.to_owned(), Value::F32(id));
        Some(id)
    }

    fn floats<const N: usize>(&mut self, i: &Instruction, at: At) -> Option<[Id; N]> {
        if i.operands.len() != N + 1 {
            return None;
        }
        let mut out = [0; N];
        for (slot, operand) in out.iter_mut().zip(&i.operands[1..]) {
            *slot = self.float(operand, at)?;
        }
        Some(out)
    }

    fn instruction(&mut self, i: &Instruction, at: At) {
        // What a comparison decides leaves the lifted part where anything else is done by it.
        if let Some(value) = i.guard.as_ref().and_then(|g| self.env.get(&g.register)) {
            self.scalar.outputs.extend(value.nodes());
        }
        let reads_known = i
            .operands
            .iter()
            .skip(usize::from(writes(i)))
            .flat_map(|o| registers(o))
            .any(|r| self.env.get(r).is_some_and(|v| !v.nodes().is_empty()));
        if i.guard.is_some() && (reads_known || is_float_arithmetic(i)) && !matches!(i.base(), "st" | "bra") {
            self.refuse(i, at, Reason::Guarded);
            return self.opaque(i, &Leaf::Result(format!("@p {}", i.opcode)));
        }
        if i.guard.is_none() && self.understood(i, at) {
            return;
        }
        let leaf = if i.base().starts_with("ld") { Leaf::Load } else { Leaf::Result(i.opcode.clone()) };
        if let Some(reason) = self.reason(i, reads_known) {
            self.refuse(i, at, reason);
        }
        self.opaque(i, &leaf);
    }

    /// Why an instruction that was not understood counts as refused; none where it is no arithmetic on floats.
    fn reason(&self, i: &Instruction, reads_known: bool) -> Option<Reason> {
        let packed =
            i.operands.iter().skip(1).flat_map(|o| registers(o)).any(|r| {
                matches!(self.env.get(r), Some(Value::Codes(..) | Value::Half(_) | Value::Halves(..)))
            });
        let constants =
            || i.operands.iter().skip(1).filter(|o| is_float_arithmetic(i) && !o.starts_with('%'));
        let takes_step =
            || i.operands.iter().skip(1).any(|o| matches!(self.env.get(o), Some(Value::Exp(..))));
        let is_nan = |bits: u32| f32::from_bits(bits).is_nan();
        match i.base() {
            _ if constants().any(|o| is_malformed(o)) => Some(Reason::Literal),
            _ if constants().filter_map(|o| float_literal(o)).any(is_nan) => Some(Reason::NotANumber),
            _ if i.has("pred") && reads_known => Some(Reason::Select),
            _ if takes_step() => Some(Reason::Exponential),
            "setp" | "selp" | "slct" | "set" if reads_known || is_float_arithmetic(i) => Some(Reason::Select),
            // Reading an integer or a narrower float in gives an input, no more.
            "cvt" if !reads_known && i.modifiers().last() != Some("f32") => None,
            "add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "max" | "min" | "cvt"
                if i.has("f32") || i.has("f32x2") =>
            {
                Some(Reason::OtherRounding)
            }
            _ if is_float_arithmetic(i) => Some(Reason::NoOperation),
            "or" | "and" | "xor" | "shl" | "shr" | "prmt" | "bfe" | "bfi" | "lop3" | "not" | "mov"
            | "cvt" | "add" | "sub" | "mad" | "mul"
                if reads_known =>
            {
                Some(if packed { Reason::Packing } else { Reason::Bits })
            }
            _ => None,
        }
    }

    /// Whether the instruction was understood, and its result set.
    fn understood(&mut self, i: &Instruction, at: At) -> bool {
        if self.exponential(i, at).is_some() {
            return true;
        }
        match i.base() {
            "mov" => self.moved(i, at).is_some(),
            "shfl" => self.shuffled(i, at).is_some(),
            "cvt" => self.converted(i, at).is_some(),
            "setp" => self.compared(i, at).is_some(),
            "selp" => self.selected(i, at).is_some(),
            "shl" | "and" => self.widened(i).is_some(),
            _ => self.arithmetic(i, at).is_some(),
        }
    }

    fn moved(&mut self, i: &Instruction, at: At) -> Option<()> {
        let (to, from) = (i.operands.first()?, i.operands.get(1)?);
        if let Some(parts) = braces(from) {
            let [lo, hi] = parts.as_slice() else { return None };
            let value = match i.modifiers().last()? {
                "b64" => Value::Pair(self.float(lo, at)?, self.float(hi, at)?),
                _ => match (self.known(lo)?, self.known(hi)?) {
                    (Value::Half(a), Value::Half(b)) => Value::Halves(a, b),
                    (Value::Codes(f, mut a), Value::Codes(g, b)) if f == g && f == Format::Bf16 => {
                        a.extend(b);
                        Value::Codes(f, a)
                    }
                    _ => return None,
                },
            };
            self.set(i, value);
            return Some(());
        }
        if let Some(parts) = braces(to) {
            let [lo, hi] = parts.as_slice() else { return None };
            let (a, b) = match self.known(from)? {
                Value::Pair(a, b) => (Value::F32(a), Value::F32(b)),
                Value::Halves(a, b) => (Value::Half(a), Value::Half(b)),
                Value::Codes(Format::Bf16, ids) if ids.len() == 2 => {
                    (Value::Codes(Format::Bf16, vec![ids[0]]), Value::Codes(Format::Bf16, vec![ids[1]]))
                }
                _ => return None,
            };
            for (name, value) in [(lo, a), (hi, b)] {
                self.origin.remove(name.as_str());
                self.env.insert(name.clone(), value);
            }
            return Some(());
        }
        let value = match (float_literal(from), self.known(from)) {
            (Some(bits), _) => Value::Bits(bits),
            (None, Some(value)) => value,
            (None, None) if i.has("f32") => Value::F32(self.float(from, at)?),
            (None, None) if i.has("b32") && registers(from).next() == Some(from.as_str()) => {
                Value::Same(from.clone())
            }
            (None, None) => return None,
        };
        self.set(i, value);
        Some(())
    }

    fn shuffled(&mut self, i: &Instruction, at: At) -> Option<()> {
        if !i.has("bfly") || i.operands.len() < 4 {
            return None;
        }
        let from = self.float(&i.operands[1], at)?;
        let (Value::Int(mask), Value::Int(31)) = (self.known(&i.operands[2])?, self.known(&i.operands[3])?)
        else {
            return None;
        };
        let mask = u32::try_from(mask).ok().filter(|m| m.is_power_of_two() && *m < 32)?;
        let id = self.scalar.push(Kind::Shuffle(mask), vec![from], at, "");
        self.set(i, Value::F32(id));
        Some(())
    }

    /// bf16 to f32 by bits: the lower of a pair moved up, or the upper one masked.
    fn widened(&mut self, i: &Instruction) -> Option<()> {
        let (Value::Codes(Format::Bf16, ids), Value::Int(k)) =
            (self.known(i.operands.get(1)?)?, self.known(i.operands.get(2)?)?)
        else {
            return None;
        };
        let id = match (i.base(), k & 0xffff_ffff) {
            ("shl", 16) => *ids.first()?,
            ("and", 0xffff_0000) => *ids.get(1)?,
            _ => return None,
        };
        self.set(i, Value::F32(id));
        Some(())
    }
}

fn register(i: &Instruction) -> String {
    let name = i.operands.first().and_then(|o| registers(o).next()).unwrap_or_default();
    name.trim_start_matches('%').to_owned()
}

/// Whether an operand begins as a float's literal does and is none.
fn is_malformed(operand: &str) -> bool {
    (operand.starts_with("0f") || operand.starts_with("0F")) && float_literal(operand).is_none()
}

/// The parts of `{%f1, %f2}`.
fn braces(operand: &str) -> Option<Vec<String>> {
    let inner = operand.strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.split(',').map(|p| p.trim().to_owned()).collect())
}

/// Floating-point arithmetic on registers, whatever its kind. Matrix instructions are another matter.
fn is_float_arithmetic(i: &Instruction) -> bool {
    const MEMORY: [&str; 12] =
        ["ld", "ldu", "st", "atom", "red", "mov", "wgmma", "mma", "tcgen05", "cp", "ldmatrix", "stmatrix"];
    const TYPES: [&str; 8] = ["f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2", "tf32"];
    !MEMORY.contains(&i.base()) && i.modifiers().any(|m| TYPES.contains(&m))
}
