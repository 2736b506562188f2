//! What each register of a function can hold, over all threads and all ways through it.
//!
//! One value a register; where several instructions write it, one for each and one for what may come from
//! another block. Branches and selects on a comparison with a constant cut the values
//! that they exclude. Loads, calls and floating point give anything.

use super::code::{Code, Op, Register};
use super::range::Range;
use super::value::{Base, Compare, Value};
use std::collections::HashMap;

/// A comparison of a register with a constant.
#[derive(Debug, Clone, Copy)]
struct Test {
    register: Register,
    compare: Compare,
    with: i64,
}

/// The values of a function's registers.
#[derive(Debug)]
pub(crate) struct Values<'c, 'p> {
    code: &'c Code<'p>,
    variables: HashMap<&'c str, Base>,
    values: Vec<Value>,
    /// What the only definition of a predicate compares.
    tests: Vec<Option<Test>>,
    /// What holds in each block, from the branches that lead to it.
    known: Vec<Vec<Test>>,
    threads: i64,
    /// The only instruction that writes each register.
    definitions: Vec<Option<usize>>,
}

/// Rounds after which values that still grow are given up.
const ROUNDS: usize = 8;
/// Rounds after which all values are given up; none of the kernels met takes a third of them.
const MOST_ROUNDS: usize = 64;

impl<'c, 'p> Values<'c, 'p> {
    /// `variables` are the shared variables that the function can name.
    pub(crate) fn new(code: &'c Code<'p>, variables: HashMap<&'c str, Base>) -> Self {
        let mut all = Self {
            code,
            variables,
            values: vec![Value::Nothing; code.registers],
            tests: vec![None; code.registers],
            known: vec![Vec::new(); code.blocks.len()],
            threads: threads(code),
            definitions: vec![None; code.registers],
        };
        for (i, op) in code.ops.iter().enumerate().filter(|(_, op)| op.guard.is_none()) {
            op.targets.iter().for_each(|(register, _)| all.definitions[*register] = Some(i));
        }
        // Registers that stand for several writes: loops go through them alone.
        let mut joined = vec![false; code.registers];
        code.blocks.iter().flat_map(|b| &b.last).for_each(|(register, _)| joined[*register] = true);
        let forward = code.forward();
        for round in 0..MOST_ROUNDS {
            // Comparisons are with registers too, so what holds is known only as the values are.
            all.find_tests(&joined);
            let mut changed = false;
            for &b in &forward {
                let block = &code.blocks[b];
                for op in &code.ops[block.ops.clone()] {
                    for (register, value) in all.results(op) {
                        changed |= all.values[register] != value;
                        all.values[register] = value;
                    }
                }
                for &(register, version) in &block.last {
                    let old = all.values[register];
                    let mut new = old.join(all.values[version]);
                    if new != old && round >= ROUNDS {
                        new = new.widen();
                    }
                    changed |= new != old;
                    all.values[register] = new;
                }
            }
            if !changed {
                return all;
            }
        }
        // Whatever still changes is in a part that nothing enters, or in a circle that was not foreseen.
        all.values.iter_mut().for_each(|v| *v = v.widen());
        all
    }

    /// What an operand holds where an instruction reads it: `%r1`, `[%rd1+16]`, `12`, `shared_bytes`.
    pub(crate) fn operand(&self, op: &Op<'_>, text: &str) -> Value {
        let text = text.trim().trim_start_matches('[').trim_end_matches(']');
        let (first, offset) = match text.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-')) {
            Some((at, '+')) => (&text[..at], text[at + 1..].trim_start_matches('+')),
            Some((at, _)) => (&text[..at], &text[at..]),
            None => (text, ""),
        };
        let value = self.atom(op, first.trim());
        if offset.is_empty() { value } else { value.add(self.atom(op, offset.trim())) }
    }

    fn atom(&self, op: &Op<'_>, text: &str) -> Value {
        if let Some(number) = integer(text) {
            return Value::constant(number);
        }
        if let Some(base) = self.variables.get(text) {
            return Value::Address(*base, Range::constant(0));
        }
        if let Some(range) = self.special(text) {
            return Value::Number(range);
        }
        let Some(register) = op.register(text) else { return Value::Any };
        let value = self.values[register];
        let mut at = Some(op.block);
        let mut refined = value;
        while let Some(b) = at {
            for test in self.known[b].iter().filter(|t| t.register == register) {
                refined = refined.refined(test.compare, test.with).unwrap_or(Value::Nothing);
            }
            at = self.code.idom(b);
        }
        refined
    }

    fn special(&self, name: &str) -> Option<Range> {
        Some(match name {
            "%tid.x" => Range::between(0, self.threads - 1),
            "%tid.y" | "%tid.z" => Range::between(0, 1023),
            "%laneid" => Range::between(0, 31),
            "%warpid" | "%nwarpid" => Range::between(0, 63),
            _ => return None,
        })
    }

    /// The comparison a predicate stands for, if it has one definition.
    fn find_tests(&mut self, joined: &[bool]) {
        for op in self.code.ops.iter().filter(|o| o.insn.base() == "setp" && o.guard.is_none()) {
            let [to, left, right] = op.insn.operands.as_slice() else { continue };
            let Some(&(to, _)) = op.targets.first().filter(|_| !to.contains('|')) else { continue };
            let compare = op.insn.modifiers().next().and_then(Compare::of);
            let with = self.operand(op, right).as_constant();
            let test = compare.zip(op.register(left)).zip(with);
            self.tests[to] = test.map(|((compare, register), with)| Test { register, compare, with });
        }
        for b in 0..self.code.blocks.len() {
            self.known[b].clear();
            for (p, block) in self.code.blocks[b].predecessors.iter().map(|p| (*p, &self.code.blocks[*p])) {
                // The edge itself must lead here from everywhere else: no other way into the block but its loop.
                let others = self.code.blocks[b].predecessors.iter().filter(|o| **o != p);
                if !others.copied().all(|o| self.code.dominates(b, o)) || block.successors.len() != 2 {
                    continue;
                }
                let Some(branch) = block.ops.clone().last().and_then(|i| self.code.ops.get(i)) else {
                    continue;
                };
                let (Some((predicate, negated)), "bra") = (branch.guard, branch.insn.base()) else {
                    continue;
                };
                // A test of a register that several instructions write says nothing of a later one.
                let Some(test) = self.tests[predicate].filter(|t| !joined[t.register]) else { continue };
                let falls = block.ops.end == self.code.blocks[b].ops.start;
                let holds = falls == negated;
                let compare = if holds { test.compare } else { test.compare.opposite() };
                self.known[b].push(Test { compare, ..test });
            }
        }
    }

    /// The registers that an instruction defines, with what it puts there.
    fn results(&self, op: &Op<'p>) -> Vec<(Register, Value)> {
        let Some(&(first, _)) = op.targets.first() else { return Vec::new() };
        let is_vector = op.insn.operands.first().is_some_and(|o| o.starts_with('{'));
        let low = if is_vector { self.low_half(op) } else { self.result(op, first) };
        (op.targets.iter().enumerate())
            .map(|(n, &(register, before))| {
                let value = if n == 0 { low } else { Value::Any };
                // Under a predicate the register may keep what it held.
                let kept = if op.guard.is_some() { self.values[before] } else { Value::Nothing };
                (register, kept.join(value))
            })
            .collect()
    }

    fn result(&self, op: &Op<'p>, to: Register) -> Value {
        let source = |n: usize| op.insn.operands.get(n).map_or(Value::Any, |o| self.operand(op, o));
        let is_float =
            op.insn.modifiers().any(|m| matches!(m, "f16" | "f32" | "f64" | "bf16" | "f16x2" | "bf16x2"));
        let signed = op.insn.modifiers().any(|m| matches!(m, "s16" | "s32" | "s64"));
        match op.insn.base() {
            _ if is_float => Value::Any,
            "mov" | "cvt" | "cvta" | "mapa" | "shfl" | "ldu" => self.moved(op, source(1)),
            "add" => source(1).add(source(2)),
            "sub" => self.remainder(op).unwrap_or_else(|| source(1).subtract(source(2))),
            "mul" if !op.insn.has("hi") => source(1).multiply(source(2)),
            "mad" if !op.insn.has("hi") => source(1).multiply(source(2)).add(source(3)),
            "shl" => match source(2).as_constant() {
                Some(bits @ 0..=31) => source(1).multiply(Value::constant(1 << bits)),
                _ => Value::Any,
            },
            "shr" => source(1).shift_right(source(2), signed),
            "and" => source(1).and(source(2), to),
            "or" | "xor" => source(1).or(source(2)),
            "neg" => Value::constant(0).subtract(source(1)),
            "not" => Value::constant(-1).subtract(source(1)),
            "div" => match source(2).as_constant().filter(|n| *n > 0 && n.count_ones() == 1) {
                Some(n) => source(1).shift_right(Value::constant(i64::from(n.trailing_zeros())), false),
                None => Value::Any,
            },
            "rem" => match source(2).as_constant() {
                Some(n) if n > 0 => {
                    let positive = source(1).number().is_some_and(|r| r.lo >= 0);
                    Value::Number(Range::between(if positive || !signed { 0 } else { 1 - n }, n - 1))
                }
                _ => Value::Any,
            },
            "min" | "max" => source(1).join(source(2)),
            "bfe" => match source(3).as_constant() {
                Some(bits @ 1..=30) if !signed => Value::Number(Range::between(0, (1 << bits) - 1)),
                _ => Value::Any,
            },
            // Bits above those of what they go into: a sum.
            "bfi" => match (source(3).as_constant(), source(4).as_constant(), source(2).number()) {
                (Some(at @ 0..=30), Some(bits @ 1..=30), Some(low))
                    if at + bits <= 31 && low.lo >= 0 && low.hi < 1 << at =>
                {
                    let high = source(1).and(Value::constant((1 << bits) - 1), to);
                    high.multiply(Value::constant(1 << at)).add(source(2))
                }
                _ => Value::Any,
            },
            "popc" | "clz" => Value::Number(Range::between(0, 64)),
            "selp" => self.selected(op),
            "elect" | "setp" | "vote" => Value::Number(Range::between(0, 1)),
            _ => Value::Any,
        }
    }

    /// `x - (y & -2^k)`, where `y` is `x` or `x` plus a rounding that is 0: the rest of a division, which
    /// compilers write this way for numbers that have a sign.
    fn remainder(&self, op: &Op<'p>) -> Option<Value> {
        let [_, left, right] = op.insn.operands.as_slice() else { return None };
        let x = op.register(left)?;
        self.values[x].number().filter(|n| n.lo >= 0 && !n.is_all())?;
        let mask = self.definition(op.register(right)?).filter(|o| o.insn.base() == "and")?;
        let [_, from, kept] = mask.insn.operands.as_slice() else { return None };
        let bits = integer(kept)?.trailing_zeros();
        let y = mask.register(from)?;
        let same = y == x
            || self.definition(y).is_some_and(|sum| {
                let [_, a, b] = sum.insn.operands.as_slice() else { return false };
                let is = |n: &str| sum.register(n) == Some(x);
                let zero = |n: &str| self.operand(sum, n).as_constant() == Some(0);
                sum.insn.base() == "add" && (is(a) && zero(b) || is(b) && zero(a))
            });
        // The mask must keep every bit above those it rounds off.
        let top = self.values[x].number()?.hi | ((1_i64 << bits.min(30)) - 1);
        let whole = integer(kept)? | ((1_i64 << bits.min(30)) - 1);
        (same && bits <= 30 && (whole & top) == top)
            .then(|| Value::Number(Range::between(0, (1_i64 << bits) - 1)))
    }

    /// The one instruction that writes a register.
    fn definition(&self, register: Register) -> Option<&'c Op<'p>> {
        self.definitions[register].and_then(|i| self.code.ops.get(i))
    }

    /// `mov.b64 %rd1, {%r1, %r2}`: the low half with the high half's bits, where those are known.
    fn moved(&self, op: &Op<'p>, plain: Value) -> Value {
        let Some(pair) = op.insn.operands.get(1).and_then(|o| o.strip_prefix('{')?.strip_suffix('}')) else {
            return plain;
        };
        let parts: Vec<_> = pair.split(',').map(|p| self.operand(op, p)).collect();
        match parts.as_slice() {
            [low, high] => match high.as_constant() {
                Some(high) if op.insn.has("b64") => low.or(Value::constant(high << 32)),
                _ if matches!(low, Value::Matrix(..)) => *low,
                _ => Value::Any,
            },
            _ => Value::Any,
        }
    }

    /// `mov.b64 {%r1, %r2}, %rd1`: an address or descriptor keeps its address in the low half.
    fn low_half(&self, op: &Op<'p>) -> Value {
        match op.insn.operands.get(1).map(|o| self.operand(op, o)) {
            Some(whole @ (Value::Matrix(..) | Value::Address(..))) if op.insn.base() == "mov" => whole,
            _ => Value::Any,
        }
    }

    /// `selp a, b, p`: where `p` compares one of the two, only what the comparison leaves of it.
    fn selected(&self, op: &Op<'p>) -> Value {
        let [_, left, right, predicate] = op.insn.operands.as_slice() else { return Value::Any };
        let test = op.register(predicate).and_then(|p| self.tests[p]);
        let side = |text: &str, holds: bool| {
            let value = self.operand(op, text);
            match test.filter(|t| op.register(text) == Some(t.register)) {
                Some(t) if holds => value.refined(t.compare, t.with).unwrap_or(Value::Nothing),
                Some(t) => value.refined(t.compare.opposite(), t.with).unwrap_or(Value::Nothing),
                None => value,
            }
        };
        side(left, true).join(side(right, false))
    }
}

/// Threads of a CTA along x, from `.maxntid` or `.reqntid`; the most there can be where neither stands.
fn threads(code: &Code<'_>) -> i64 {
    let limits =
        code.function.directives.iter().filter(|d| matches!(d.name.as_str(), ".maxntid" | ".reqntid"));
    let first = limits.filter_map(|d| d.text.split(',').next()?.trim().parse().ok()).next();
    first.filter(|n| (1..=1024).contains(n)).unwrap_or(1024)
}

/// An integer literal: decimal, hexadecimal, with a sign or an unsigned suffix.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_end_matches('U');
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?.cast_signed(),
        None => digits.parse::<u64>().ok()?.cast_signed(),
    };
    Some(if negative { value.wrapping_neg() } else { value })
}
