//! Which functions of a piece keep subnormals.

use crate::cost::{Compiled, FLUSHING};
use crate::lang::Op;
use kbt_ptx::Function;

/// Whether a function is compiled to flush subnormals.
pub(super) fn flushes(f: &Function) -> bool {
    let plain =
        |i: &&kbt_ptx::Instruction| i.has("f32") && matches!(i.base(), "add" | "sub" | "mul" | "fma" | "mad");
    f.instructions().filter(plain).any(|i| i.has("ftz"))
}

/// The functions that a rewrite of a piece has without `.ftz`: those that the piece has so, and those that it does not have,
/// where any is so or the function's other arithmetic is.
pub(super) fn kept(compiled: &[(Compiled, f64)], flushes: bool) -> Vec<Op> {
    let has = |what: Compiled| compiled.iter().any(|(c, _)| *c == what);
    let stays = |(op, name): (Op, &'static str)| {
        has(Compiled::Ptx(name)) || op == Op::Rcp && DIVISORS.iter().any(|name| has(Compiled::Ptx(name)))
    };
    let flushed = |(op, _): (Op, &'static str)| has(Compiled::Op(op));
    let any_kept = FLUSHING.into_iter().any(stays);
    let others = any_kept || !flushes && !FLUSHING.into_iter().any(flushed);
    FLUSHING.into_iter().filter(|f| stays(*f) || !flushed(*f) && others).map(|(op, _)| op).collect()
}

/// Divisions that have a reciprocal without `.ftz`.
const DIVISORS: [&str; 2] = ["div.approx.f32.divisor", "div.full.f32.divisor"];
