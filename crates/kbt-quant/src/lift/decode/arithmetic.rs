//! Arithmetic on f32 and on pairs of f32.

use super::{At, Decoder, Id, register};
use crate::cost::{Compiled, FLUSHING};
use crate::format::Format;
use crate::lang::Op;
use crate::lift::scalar::Kind;
use crate::lift::value::Value;
use kbt_ptx::Instruction;

impl Decoder<'_, '_> {
    pub(super) fn arithmetic(&mut self, i: &Instruction, at: At) -> Option<()> {
        let words: Vec<&str> = i.modifiers().collect();
        let (&kind, rest) = words.split_last()?;
        let only = |allowed: &[&str]| rest.iter().all(|w| *w == "ftz" || allowed.contains(w));
        let base = i.base();
        if kind == "f32x2" && only(&["rn"]) {
            return self.packed(i, at);
        }
        if kind != "f32" {
            return None;
        }
        let r = register(i);
        let id = match base {
            "add" | "sub" | "mul" | "fma" | "mad" if only(&["rn"]) => {
                let id = self.plain(i, at, &r)?;
                self.scalar.nodes[id].contracts |= !rest.contains(&"rn");
                id
            }
            "max" | "min" if only(&[]) => self.extreme(i, at, &r)?,
            "neg" if only(&[]) => {
                let [a] = self.floats(i, at)?;
                self.negated(a, at)
            }
            "abs" if only(&[]) => {
                let [a] = self.floats(i, at)?;
                match self.scalar.nodes[a].number() {
                    Some(x) => self.scalar.number(x.abs(), at),
                    None => self.scalar.op(Op::Abs, &[a], at, &r),
                }
            }
            "ex2" if only(&["approx"]) => self.unary(Op::Exp2, i, at, &r)?,
            "lg2" if only(&["approx"]) => self.unary(Op::Log2, i, at, &r)?,
            "rcp" if only(&["approx"]) => self.unary(Op::Rcp, i, at, &r)?,
            "sqrt" if only(&["approx"]) => self.unary(Op::Sqrt, i, at, &r)?,
            "sqrt" if only(&["rn"]) => self.unary(Op::SqrtRn, i, at, &r)?,
            "rsqrt" if only(&["approx"]) => self.unary(Op::Rsqrt, i, at, &r)?,
            "tanh" if only(&["approx"]) => self.unary(Op::Tanh, i, at, &r)?,
            "rcp" if only(&["rn"]) => {
                let [a] = self.floats(i, at)?;
                let one = self.scalar.number(1.0, at);
                let id = self.scalar.op(Op::Div, &[one, a], at, &r);
                self.scalar.nodes[id].price = vec![Compiled::Ptx("rcp.rn.f32")];
                id
            }
            "div" if only(&["rn"]) => {
                let [a, b] = self.floats(i, at)?;
                let id = self.scalar.op(Op::Div, &[a, b], at, &r);
                if self.scalar.nodes[b].number().is_some() {
                    self.scalar.nodes[id].price = vec![Compiled::DIV_BY_NUMBER];
                }
                id
            }
            // Both are a reciprocal and a multiplication in machine code, with what keeps the reciprocal in range.
            "div" if only(&["approx", "full"]) => {
                let [a, b] = self.floats(i, at)?;
                let inverse = self.scalar.op(Op::Rcp, &[b], at, &r);
                let id = self.scalar.op(Op::Mul, &[a, inverse], at, &r);
                let known = self.scalar.nodes[b].number().is_some();
                let instruction = match (i.has("full"), i.has("ftz")) {
                    _ if known => None,
                    (true, true) => Some(("div.full.ftz.f32.divisor", "div.full.ftz.f32.dividend")),
                    (true, false) => Some(("div.full.f32.divisor", "div.full.f32.dividend")),
                    (false, true) => None,
                    (false, false) => Some(("div.approx.f32.divisor", "div.approx.f32.dividend")),
                };
                // The product with the reciprocal has no stated rounding.
                self.scalar.nodes[id].contracts = true;
                if let Some((divisor, dividend)) = instruction {
                    self.scalar.nodes[inverse].price = vec![Compiled::Ptx(divisor)];
                    self.scalar.nodes[id].price = vec![Compiled::Ptx(dividend)];
                }
                id
            }
            _ => return None,
        };
        self.scalar.nodes[id].flushes = rest.contains(&"ftz");
        self.set(i, Value::F32(id));
        Some(())
    }

    fn unary(&mut self, op: Op, i: &Instruction, at: At, r: &str) -> Option<Id> {
        let [a] = self.floats(i, at)?;
        let id = self.scalar.op(op, &[a], at, r);
        let kept = FLUSHING.iter().find(|(of, _)| *of == op && !i.has("ftz"));
        if let Some((_, name)) = kept {
            self.scalar.nodes[id].price = vec![Compiled::Ptx(name)];
        }
        Some(id)
    }

    fn negated(&mut self, a: Id, at: At) -> Id {
        if let Some(x) = self.scalar.nodes[a].number() {
            return self.scalar.number(-x, at);
        }
        if self.scalar.nodes[a].is(Op::Neg) {
            return self.scalar.nodes[a].args[0];
        }
        // Another lane's value negated is that lane's negated value: so a minimum over lanes is a butterfly of maxima.
        if let Kind::Shuffle(mask) = self.scalar.nodes[a].kind {
            let (of, register) = (self.scalar.nodes[a].args[0], self.scalar.nodes[a].register.clone());
            let negated = self.negated(of, at);
            return self.scalar.push(Kind::Shuffle(mask), vec![negated], self.scalar.nodes[a].at, &register);
        }
        self.scalar.op(Op::Neg, &[a], at, "")
    }

    fn plain(&mut self, i: &Instruction, at: At, r: &str) -> Option<Id> {
        if matches!(i.base(), "fma" | "mad") {
            let [a, b, c] = self.floats(i, at)?;
            return Some(self.fused(a, b, c, at, r));
        }
        let [a, b] = self.floats(i, at)?;
        Some(match i.base() {
            "add" => self.scalar.op(Op::Add, &[a, b], at, r),
            "sub" => {
                let b = self.negated(b, at);
                self.scalar.op(Op::Add, &[a, b], at, r)
            }
            _ => self.scalar.op(Op::Mul, &[a, b], at, r),
        })
    }

    /// A multiply-add, or the last of the three instructions that round a value below 7 to e2m1:
    /// t = max(x, 1.5); p = t 2^22 - x; t 2^22 - p.
    fn fused(&mut self, t: Id, k: Id, c: Id, at: At, r: &str) -> Id {
        const ANCHOR: f32 = 4_194_304.0;
        let nodes = &self.scalar.nodes;
        let rounded = || {
            let p = nodes[c].is(Op::Neg).then(|| &nodes[nodes[c].args[0]]).filter(|p| p.is(Op::Fma))?;
            let &[t2, k2, minus] = p.args.as_slice() else { return None };
            let x = nodes[minus].is(Op::Neg).then(|| nodes[minus].args[0])?;
            let top = nodes[t].is(Op::Max) && nodes[t].args.contains(&x);
            let floor = nodes[t].args.iter().any(|&a| nodes[a].number() == Some(1.5));
            let same = t2 == t && k2 == k && nodes[k].number() == Some(ANCHOR);
            (same && top && floor).then_some(x)
        };
        match rounded() {
            Some(x) => {
                let id = self.scalar.op(Op::Cvt(Format::E2m1), &[x], at, r);
                self.scalar.nodes[id].price = [Op::Max, Op::Fma, Op::Fma].map(Compiled::Op).to_vec();
                self.below7.push(x);
                id
            }
            None => self.scalar.op(Op::Fma, &[t, k, c], at, r),
        }
    }

    /// Maxima and minima of two or three.
    fn extreme(&mut self, i: &Instruction, at: At, r: &str) -> Option<Id> {
        let mut ids = Vec::new();
        for operand in i.operands.get(1..).filter(|o| (2..=3).contains(&o.len()))? {
            let id = self.float(operand, at)?;
            ids.push(if i.base() == "min" { self.negated(id, at) } else { id });
        }
        let (&first, rest) = ids.split_first()?;
        let id = rest.iter().fold(first, |a, &b| self.scalar.op(Op::Max, &[a, b], at, r));
        Some(if i.base() == "min" { self.negated(id, at) } else { id })
    }

    /// Two operations in one instruction.
    fn packed(&mut self, i: &Instruction, at: At) -> Option<()> {
        let mut pairs = Vec::new();
        for operand in &i.operands[1..] {
            let Some(Value::Pair(a, b)) = self.known(operand) else { return None };
            pairs.push((a, b));
        }
        let r = register(i);
        let mut half = |ids: Vec<Id>| -> Option<Id> {
            Some(match (i.base(), ids.as_slice()) {
                ("add", &[a, b]) => self.scalar.op(Op::Add, &[a, b], at, &r),
                ("sub", &[a, b]) => {
                    let b = self.negated(b, at);
                    self.scalar.op(Op::Add, &[a, b], at, &r)
                }
                ("mul", &[a, b]) => self.scalar.op(Op::Mul, &[a, b], at, &r),
                ("fma", &[a, b, c]) => self.fused(a, b, c, at, &r),
                _ => return None,
            })
        };
        let lo = half(pairs.iter().map(|p| p.0).collect())?;
        let hi = half(pairs.iter().map(|p| p.1).collect())?;
        self.set(i, Value::Pair(lo, hi));
        Some(())
    }
}
