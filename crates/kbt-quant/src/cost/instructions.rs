//! Which instructions operations and opcodes are.

use crate::format::Format;
use crate::lang::Op;

/// Names under which a profile may have an operation's rate, best first.
pub(super) const fn instructions(op: Op) -> &'static [&'static str] {
    match op {
        Op::Exp2 => &["ex2.approx.ftz.f32"],
        Op::Log2 => &["lg2.approx.ftz.f32"],
        Op::Rcp => &["rcp.approx.ftz.f32"],
        Op::Sqrt => &["sqrt.approx.ftz.f32"],
        Op::SqrtRn => &["sqrt.rn.f32"],
        Op::Rsqrt => &["rsqrt.approx.ftz.f32"],
        Op::Tanh => &["tanh.approx.f32"],
        Op::Lt | Op::Le | Op::Eq => &["setp.lt.f32"],
        Op::Select => &["selp.f32", "selp.b32"],
        Op::Add => &["add.rn.f32", "add.f32", "fma.rn.f32"],
        Op::Mul => &["mul.rn.f32", "mul.f32", "fma.rn.f32"],
        Op::Fma => &["fma.rn.f32"],
        Op::Div => &["div.rn.f32"],
        Op::Max => &["max.f32"],
        Op::Cvt(Format::E2m1) => &["cvt.rn.satfinite.e2m1x2.f32"],
        Op::Cvt(Format::E2m3) => &["cvt.rn.satfinite.e2m3x2.f32"],
        Op::Cvt(Format::E3m2) => &["cvt.rn.satfinite.e3m2x2.f32"],
        Op::Cvt(Format::E4m3) => &["cvt.rn.satfinite.e4m3x2.f32"],
        Op::Cvt(Format::E5m2) => &["cvt.rn.satfinite.e5m2x2.f32"],
        Op::Cvt(Format::Ue8m0) => &["cvt.rz.satfinite.ue8m0x2.f32"],
        Op::Cvt(Format::Bf16) => &["cvt.rn.bf16x2.f32"],
        Op::Cvt(Format::F16) => &["cvt.rn.f16x2.f32"],
        _ => &[],
    }
}

/// The functions that flush subnormals, or else take more instructions: the operation and the instruction without `.ftz`.
pub const FLUSHING: [(Op, &str); 5] = [
    (Op::Exp2, "ex2.approx.f32"),
    (Op::Log2, "lg2.approx.f32"),
    (Op::Rcp, "rcp.approx.f32"),
    (Op::Sqrt, "sqrt.approx.f32"),
    (Op::Rsqrt, "rsqrt.approx.f32"),
];

/// The instruction whose rate an opcode's is, by how the opcode begins.
pub(super) const INSTRUCTIONS: [(&str, &str); 15] = [
    ("FFMA", "fma.rn.f32"),
    ("FADD", "add.rn.f32"),
    ("FMUL", "mul.rn.f32"),
    ("FMNMX", "max.f32"),
    ("SHFL", SHUFFLE),
    ("MUFU.EX2", "ex2.approx.ftz.f32"),
    ("MUFU.RCP", "rcp.approx.ftz.f32"),
    ("MUFU.LG2", "lg2.approx.ftz.f32"),
    ("MUFU.RSQ", "rsqrt.approx.ftz.f32"),
    ("MUFU.SQRT", "sqrt.approx.ftz.f32"),
    ("MUFU.TANH", "tanh.approx.f32"),
    ("F2FP.SATFINITE.E4M3.F32", "cvt.rn.satfinite.e4m3x2.f32"),
    ("F2FP.SATFINITE.E5M2.F32", "cvt.rn.satfinite.e5m2x2.f32"),
    ("F2FP.BF16.F32", "cvt.rn.bf16x2.f32"),
    ("F2FP.F16.F32", "cvt.rn.f16x2.f32"),
];

/// How the names of what is several instructions begin.
pub(super) const COMPOUND: [&str; 9] = [
    "div.",
    "sqrt.rn.",
    "rcp.rn.",
    "e2m1.",
    "ex2.approx.f32",
    "lg2.approx.f32",
    "rcp.approx.f32",
    "sqrt.approx.f32",
    "rsqrt.approx.f32",
];
pub(super) const ROUND_E2M1: &str = "e2m1.round.below7";
pub(super) const SHUFFLE: &str = "shfl.sync.bfly.b32";
