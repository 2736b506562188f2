//! Comparisons of floats and choices by them.

use super::{At, Decoder, register};
use crate::lang::Op;
use crate::lift::value::Value;
use kbt_ptx::Instruction;

impl Decoder<'_, '_> {
    /// `setp` of two floats. The unordered comparisons, which are true of NaN, are the opposites of ordered ones.
    pub(super) fn compared(&mut self, i: &Instruction, at: At) -> Option<()> {
        let words: Vec<&str> = i.modifiers().filter(|w| *w != "ftz").collect();
        let &[comparison, "f32"] = words.as_slice() else { return None };
        let (op, swapped, negated) = match comparison {
            "lt" => (Op::Lt, false, false),
            "le" => (Op::Le, false, false),
            "gt" => (Op::Lt, true, false),
            "ge" => (Op::Le, true, false),
            "eq" => (Op::Eq, false, false),
            "ltu" => (Op::Le, true, true),
            "leu" => (Op::Lt, true, true),
            "gtu" => (Op::Le, false, true),
            "geu" => (Op::Lt, false, true),
            "neu" => (Op::Eq, false, true),
            _ => return None,
        };
        // A second result, or a predicate that is combined, is another instruction.
        if i.operands.first()?.contains('|') {
            return None;
        }
        let [a, b] = self.floats(i, at)?;
        let operands = if swapped { [b, a] } else { [a, b] };
        let id = self.scalar.op(op, &operands, at, &register(i));
        self.set(i, Value::Predicate(id, negated));
        Some(())
    }

    /// `selp` by a comparison that is known.
    pub(super) fn selected(&mut self, i: &Instruction, at: At) -> Option<()> {
        let (a, b, by) = (i.operands.get(1)?, i.operands.get(2)?, i.operands.get(3)?);
        let Some(Value::Predicate(condition, negated)) = self.known(by) else { return None };
        // 32 bits are a float where one of both is known to be.
        let is_float = |o: &String| matches!(self.known(o), Some(Value::F32(_)));
        if !(i.has("f32") || i.has("b32") && (is_float(a) || is_float(b))) {
            return None;
        }
        let (a, b) = (self.float(a, at)?, self.float(b, at)?);
        let (yes, no) = if negated { (b, a) } else { (a, b) };
        let id = self.scalar.op(Op::Select, &[condition, yes, no], at, &register(i));
        self.set(i, Value::F32(id));
        Some(())
    }
}
