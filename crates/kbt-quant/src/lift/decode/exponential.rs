//! `expf` as nvcc writes it out: ten instructions that split x log2 e into a whole number n, whose power is made of bits,
//! and a fraction, whose power the hardware gives. Together they are one exp2.
//!
//! ```text
//! s = saturate(x k + 1/2)     n' = fma.rm(s, 252, 2^23 + 2^22 + 1)    n = n' - (2^23 + 2^22 + 127)
//! f = x log2 e - n            in two steps, for more bits of log2 e
//! exp x = ex2(f) (n' << 23)
//! ```

use super::{At, Decoder, Id, register};
use crate::cost::Compiled;
use crate::lang::Op;
use crate::lift::value::Value;
use kbt_ptx::Instruction;

/// How far the steps have come for an x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lift) enum Step {
    /// x log2 e / 252 + 1/2, held within [0, 1].
    Saturated,
    /// 2^23 + 2^22 + 1 + n + 126: n in the last bits.
    Shifted,
    /// n.
    Whole,
    /// -n.
    Negated,
    /// x log2 e - n with the first bits of log2 e.
    Coarse,
    /// x log2 e - n.
    Fraction,
    /// ex2 of it.
    Part,
    /// 2^n.
    Power,
}

// Constants of nvcc's expf, as bits.
const SHARE: u32 = 0x3bbb_989d;
const HALF: u32 = 0x3f00_0000;
const RANGE: u32 = 0x437c_0000;
const SHIFT: u32 = 0x4b40_0001;
const UNSHIFT: u32 = 0xcb40_007f;
const LOG2_E: u32 = 0x3fb8_aa3b;
const LOG2_E_REST: u32 = 0x32a5_7060;

/// An operand of the steps.
enum Part {
    Step(Step, Id),
    Node(Id),
}

impl Decoder<'_, '_> {
    /// The next step, if the instruction is one.
    pub(super) fn exponential(&mut self, i: &Instruction, at: At) -> Option<()> {
        let words: Vec<&str> = i.modifiers().filter(|w| *w != "ftz").collect();
        let next = match (i.base(), words.as_slice()) {
            ("cvt", ["sat", "f32", "f32"]) => self.saturated(i)?,
            ("fma", ["rm", "f32"]) => self.step(i, Step::Saturated, Step::Shifted, [RANGE, SHIFT])?,
            ("add", ["f32"] | ["rn", "f32"]) => self.step(i, Step::Shifted, Step::Whole, [UNSHIFT])?,
            ("neg", ["f32"]) => self.step(i, Step::Whole, Step::Negated, [])?,
            ("ex2", ["approx", "f32"]) => self.step(i, Step::Fraction, Step::Part, [])?,
            ("shl", ["b32"]) if i.operands.get(2).is_some_and(|o| self.is_int(o, 23)) => {
                self.step(i, Step::Shifted, Step::Power, [])?
            }
            ("fma", ["rn", "f32"]) => match self.less_whole(i) {
                Some(value) => value,
                None => self.product(i, at)?,
            },
            ("mul", ["f32"] | ["rn", "f32"]) => self.product(i, at)?,
            _ => return None,
        };
        self.set(i, next);
        Some(())
    }

    fn part(&self, operand: &str) -> Option<Part> {
        match self.known(operand)? {
            Value::Exp(step, x) => Some(Part::Step(step, x)),
            Value::F32(id) => Some(Part::Node(id)),
            _ => None,
        }
    }

    fn is_int(&self, operand: &str, x: i64) -> bool {
        self.known(operand) == Some(Value::Int(x))
    }

    /// Whether an operand is a constant of these bits.
    fn is_bits(&self, operand: &str, bits: u32) -> bool {
        if crate::lift::value::float_literal(operand) == Some(bits) {
            return true;
        }
        match self.known(operand) {
            Some(Value::Bits(b)) => b == bits,
            Some(Value::F32(id)) => self.scalar.nodes[id].number().map(f32::to_bits) == Some(bits),
            _ => false,
        }
    }

    /// cvt.sat of x k + 1/2.
    fn saturated(&self, i: &Instruction) -> Option<Value> {
        let Some(Part::Node(id)) = self.part(i.operands.get(1)?) else { return None };
        let node = &self.scalar.nodes[id];
        let &[x, k, half] = node.args.as_slice() else { return None };
        let is = |id: Id, bits| self.scalar.nodes[id].number().map(f32::to_bits) == Some(bits);
        (node.is(Op::Fma) && is(k, SHARE) && is(half, HALF)).then_some(Value::Exp(Step::Saturated, x))
    }

    /// A step whose first operand is the one before, the rest these constants.
    fn step<const N: usize>(
        &self,
        i: &Instruction,
        from: Step,
        to: Step,
        constants: [u32; N],
    ) -> Option<Value> {
        let Some(Part::Step(step, x)) = self.part(i.operands.get(1)?) else { return None };
        let all = constants
            .iter()
            .enumerate()
            .all(|(k, bits)| i.operands.get(k + 2).is_some_and(|o| self.is_bits(o, *bits)));
        (step == from && all).then_some(Value::Exp(to, x))
    }

    /// x log2 e - n, and the rest of log2 e.
    fn less_whole(&self, i: &Instruction) -> Option<Value> {
        let [_, a, k, c] = i.operands.as_slice() else { return None };
        let (Some(Part::Node(x)), Some(Part::Step(step, of))) = (self.part(a), self.part(c)) else {
            return None;
        };
        let (bits, next) = match step {
            Step::Negated => (LOG2_E, Step::Coarse),
            Step::Coarse => (LOG2_E_REST, Step::Fraction),
            _ => return None,
        };
        (x == of && self.is_bits(k, bits)).then_some(Value::Exp(next, x))
    }

    /// Both powers multiplied: exp2(x log2 e), perhaps with something added.
    fn product(&mut self, i: &Instruction, at: At) -> Option<Value> {
        let (a, b) = (self.part(i.operands.get(1)?)?, self.part(i.operands.get(2)?)?);
        let (Part::Step(s, x), Part::Step(t, y)) = (a, b) else { return None };
        let both = x == y && matches!((s, t), (Step::Part, Step::Power) | (Step::Power, Step::Part));
        let addend = match i.operands.get(3) {
            _ if !both => return None,
            Some(operand) => Some(self.float(operand, at)?),
            None => None,
        };
        let r = register(i);
        let factor = self.scalar.number(f32::from_bits(LOG2_E), at);
        let argument = self.scalar.op(Op::Mul, &[x, factor], at, "");
        let power = self.scalar.op(Op::Exp2, &[argument], at, &r);
        // The steps above; the saturation is a part of its multiply-add, the shift costs what a maximum does.
        self.scalar.nodes[argument].price.clear();
        let mut price =
            [Op::Fma, Op::Fma, Op::Add, Op::Fma, Op::Fma, Op::Max, Op::Exp2].map(Compiled::Op).to_vec();
        let Some(addend) = addend else {
            price.push(Op::Mul.into());
            self.scalar.nodes[power].price = price;
            return Some(Value::F32(power));
        };
        self.scalar.nodes[power].price = price;
        let sum = self.scalar.op(Op::Add, &[power, addend], at, &r);
        self.scalar.nodes[sum].price = vec![Op::Fma.into()];
        Some(Value::F32(sum))
    }
}
