//! Conversions: to narrower formats, and reading back what was converted.

use super::{At, Decoder, register};
use crate::format::Format;
use crate::lang::Op;
use crate::lift::value::Value;
use kbt_ptx::Instruction;

impl Decoder<'_, '_> {
    pub(super) fn converted(&mut self, i: &Instruction, at: At) -> Option<()> {
        let words: Vec<&str> = i.modifiers().collect();
        let (&to, &from) = (words.get(words.len().checked_sub(2)?)?, words.last()?);
        let plain = |allowed: &[&str]| words[..words.len() - 2].iter().all(|w| allowed.contains(w));
        let operand = i.operands.get(1)?;
        // Reading back what was converted here.
        let known = self.known(operand);
        let value = match (to, from, known) {
            ("f16x2", "e4m3x2" | "e5m2x2", Some(Value::Codes(_, ids)))
                if ids.len() == 2 && plain(&["rn"]) =>
            {
                Value::Halves(ids[0], ids[1])
            }
            ("u16", "u32", Some(Value::Halves(lo, _))) => Value::Half(lo),
            ("u16", "u32", Some(value @ Value::Half(_))) => value,
            ("f32", "f16", Some(Value::Half(id))) => Value::F32(id),
            ("f32", "bf16", Some(Value::Codes(Format::Bf16, ids))) if ids.len() == 1 => Value::F32(ids[0]),
            ("u32" | "u16", "u8" | "u16", Some(value @ (Value::Codes(..) | Value::Half(_)))) => value,
            ("f32", "f32", _) => return None,
            (format, "f32", _) => return self.narrowed(i, at, format, &plain),
            _ => return None,
        };
        self.set(i, value);
        Some(())
    }

    fn narrowed(
        &mut self,
        i: &Instruction,
        at: At,
        format: &str,
        plain: &dyn Fn(&[&str]) -> bool,
    ) -> Option<()> {
        let (name, two) = format.strip_suffix("x2").map_or((format, false), |name| (name, true));
        let format: Format = name.parse().ok()?;
        let usual: &[&str] = match format {
            Format::Bf16 | Format::F16 => &["rn"],
            Format::Ue8m0 => &["rz", "satfinite"],
            _ => &["rn", "satfinite"],
        };
        if !plain(usual) || !usual.iter().all(|w| i.has(w)) || i.operands.len() != if two { 3 } else { 2 } {
            return None;
        }
        // The first source goes to the upper half.
        let mut ids = Vec::new();
        for operand in i.operands[1..].iter().rev() {
            let x = self.float(operand, at)?;
            ids.push(match self.scalar.nodes[x].number() {
                Some(_) => x,
                None => self.scalar.op(Op::Cvt(format), &[x], at, &register(i)),
            });
        }
        let value = match (format, ids.as_slice()) {
            (Format::F16, &[id]) => Value::Half(id),
            (Format::F16, &[lo, hi]) => Value::Halves(lo, hi),
            _ => Value::Codes(format, ids),
        };
        // One instruction converts both.
        if let Value::Codes(_, ids) = &value
            && let [lo, hi] = ids.as_slice()
            && self.scalar.nodes[*lo].is(Op::Cvt(format))
            && self.scalar.nodes[*hi].number().is_some()
        {
            // A half that is constant still costs its lane of the pair.
            self.scalar.nodes[*lo].price = vec![Op::Cvt(format).into(); 2];
        }
        self.set(i, value);
        Some(())
    }
}
