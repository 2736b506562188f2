//! What ptxas makes of the operations that are several instructions, and latencies, where a profile has none.

use kbt_device::{Arch, Lowered, Lowering, Pipe};
use kbt_evidence::Provenance;

struct Row {
    operation: &'static str,
    /// Targets from this compute capability up to, but not including, that one.
    from: u16,
    below: u16,
    results: f64,
    /// Opcode, pipe, count.
    instructions: &'static [(&'static str, Pipe, f64)],
    how: &'static str,
}

/// A packed conversion of two values in one F2FP, on the targets that have FP4 and FP6.
const fn packed(operation: &'static str) -> Row {
    Row {
        operation,
        from: 100,
        below: u16::MAX,
        results: 2.0,
        instructions: &[("F2FP", Pipe::Alu, 1.0)],
        how: "ptxas 13.0.88: one F2FP a pair, on the ALU pipe as every F2FP",
    }
}

/// A function as ptxas writes it where the hardware's own flushes or overflows: what runs under a predicate is issued
/// whether it is true or not.
const fn scaled(operation: &'static str, instructions: &'static [(&'static str, Pipe, f64)]) -> Row {
    Row {
        operation,
        from: 70,
        below: u16::MAX,
        results: 1.0,
        instructions,
        how: "ptxas 13.0.88 on this instruction for sm_90a, the load of a constant left out",
    }
}

/// A division by a number, as it is asked for here; no PTX is called so.
pub(super) const DIV_BY_NUMBER: &str = "div.rn.f32.number";

/// Functions whose operand is scaled where it is, under a predicate, if nothing uses it afterwards.
pub(super) const IN_PLACE: [&str; 2] = ["ex2.approx.f32", "lg2.approx.f32"];

/// The path that is usually taken; what only special operands reach is left out.
const ROWS: &[Row] = &[
    Row {
        operation: "div.rn.f32",
        from: 70,
        below: u16::MAX,
        results: 1.0,
        instructions: &[
            ("MUFU.RCP", Pipe::Xu, 1.0),
            ("FFMA", Pipe::Fma, 5.0),
            // Scoreboarded; its pipe is not known, so only its issue slot counts.
            ("FCHK", Pipe::Unknown, 1.0),
            ("BSSY", Pipe::Cbu, 1.0),
            ("BRA", Pipe::Cbu, 1.0),
            ("BSYNC", Pipe::Cbu, 1.0),
        ],
        how: "ptxas 13.0.88 on __fdiv_rn for sm_90a: the path without the slow-path call",
    },
    Row {
        operation: "sqrt.rn.f32",
        from: 70,
        below: u16::MAX,
        results: 1.0,
        instructions: &[
            ("MUFU.RSQ", Pipe::Xu, 1.0),
            ("FMUL.FTZ", Pipe::Fma, 2.0),
            ("FFMA", Pipe::Fma, 2.0),
            ("IADD3", Pipe::Alu, 1.0),
            ("ISETP.GT.U32.AND", Pipe::Alu, 1.0),
            ("BSSY", Pipe::Cbu, 1.0),
            ("BRA", Pipe::Cbu, 1.0),
            ("BSYNC", Pipe::Cbu, 1.0),
        ],
        how: "ptxas 13.0.88 on __fsqrt_rn for sm_90a: the path without the slow-path call",
    },
    // A divisor that is a number: its reciprocal is one too, and is refined in the code.
    Row {
        operation: DIV_BY_NUMBER,
        from: 70,
        below: u16::MAX,
        results: 1.0,
        instructions: &[
            ("FFMA", Pipe::Fma, 5.0),
            ("FCHK", Pipe::Unknown, 1.0),
            ("BSSY", Pipe::Cbu, 1.0),
            ("BRA", Pipe::Cbu, 1.0),
            ("BSYNC", Pipe::Cbu, 1.0),
        ],
        how: "ptxas 13.0.88 on div.rn.f32 by a constant for sm_90a: the path without the slow-path call",
    },
    Row {
        operation: "rcp.rn.f32",
        from: 70,
        below: u16::MAX,
        results: 1.0,
        instructions: &[
            ("MUFU.RCP", Pipe::Xu, 1.0),
            ("FFMA", Pipe::Fma, 2.0),
            ("FADD.FTZ", Pipe::Fma, 1.0),
            ("VIADD", Pipe::Alu, 1.0),
            ("LOP3.LUT", Pipe::Alu, 1.0),
            ("ISETP.GT.U32.AND", Pipe::Alu, 1.0),
            ("BSSY", Pipe::Cbu, 1.0),
            ("BRA", Pipe::Cbu, 1.0),
            ("BSYNC", Pipe::Cbu, 1.0),
        ],
        how: "ptxas 13.0.88 on rcp.rn.f32 for sm_90a: the path without the slow-path call",
    },
    // Functions that keep subnormals: the operand is scaled up where it needs it, and the result back.
    scaled(
        "ex2.approx.f32",
        &[("FSETP", Pipe::Alu, 1.0), ("FMUL", Pipe::Fma, 2.0), ("MUFU.EX2", Pipe::Xu, 1.0)],
    ),
    scaled(
        "lg2.approx.f32",
        &[
            ("FSETP", Pipe::Alu, 1.0),
            ("FMUL", Pipe::Fma, 1.0),
            ("FADD", Pipe::Fma, 1.0),
            ("MUFU.LG2", Pipe::Xu, 1.0),
        ],
    ),
    scaled(
        "rcp.approx.f32",
        &[
            ("FSETP", Pipe::Alu, 2.0),
            ("FSEL", Pipe::Alu, 2.0),
            ("FMUL", Pipe::Fma, 2.0),
            ("MUFU.RCP", Pipe::Xu, 1.0),
        ],
    ),
    scaled(
        "sqrt.approx.f32",
        &[("FSETP", Pipe::Alu, 1.0), ("FMUL", Pipe::Fma, 2.0), ("MUFU.SQRT", Pipe::Xu, 1.0)],
    ),
    scaled(
        "rsqrt.approx.f32",
        &[("FSETP", Pipe::Alu, 1.0), ("FMUL", Pipe::Fma, 2.0), ("MUFU.RSQ", Pipe::Xu, 1.0)],
    ),
    // What several divisions share, and what each has for itself.
    scaled(
        "div.approx.f32.divisor",
        &[("FSETP", Pipe::Alu, 1.0), ("FMUL", Pipe::Fma, 1.0), ("MUFU.RCP", Pipe::Xu, 1.0)],
    ),
    scaled("div.approx.f32.dividend", &[("FMUL", Pipe::Fma, 2.0)]),
    scaled(
        "div.full.f32.divisor",
        &[("FSETP", Pipe::Alu, 2.0), ("FMUL", Pipe::Fma, 2.0), ("MUFU.RCP", Pipe::Xu, 1.0)],
    ),
    scaled("div.full.f32.dividend", &[("FMUL", Pipe::Fma, 3.0)]),
    scaled(
        "div.full.ftz.f32.divisor",
        &[("FSETP", Pipe::Alu, 1.0), ("FMUL", Pipe::Fma, 1.0), ("MUFU.RCP", Pipe::Xu, 1.0)],
    ),
    scaled("div.full.ftz.f32.dividend", &[("FMUL", Pipe::Fma, 2.0)]),
    Row {
        operation: "e2m1.round.below7",
        from: 70,
        below: u16::MAX,
        results: 1.0,
        instructions: &[("FMNMX", Pipe::Alu, 1.0), ("FFMA", Pipe::Fma, 2.0)],
        how: "ptxas 13.0.88 on kbt::quant::e2m1_round_below7 for sm_90a",
    },
    packed("cvt.rn.satfinite.e2m1x2.f32"),
    packed("cvt.rn.satfinite.e2m3x2.f32"),
    packed("cvt.rn.satfinite.e3m2x2.f32"),
    packed("cvt.rz.satfinite.ue8m0x2.f32"),
    Row { from: 89, ..packed("cvt.rn.satfinite.e5m2x2.f32") },
    Row { from: 80, ..packed("cvt.rn.f16x2.f32") },
    Row {
        operation: "cvt.rz.satfinite.ue8m0x2.f32",
        from: 70,
        below: 100,
        results: 1.0,
        instructions: &[("SHF.R.U32.HI", Pipe::Alu, 1.0), ("LOP3.LUT", Pipe::Alu, 1.0)],
        how: "ptxas 13.0.88 for sm_90a on the exponent field of a positive f32, shifted out and back",
    },
];

/// The mined lowering of an operation on a target.
pub(super) fn find(operation: &str, arch: Arch) -> Option<Lowering> {
    let row = ROWS.iter().find(|r| r.operation == operation && (r.from..r.below).contains(&arch.sm))?;
    let instructions = row
        .instructions
        .iter()
        .map(|&(opcode, pipe, count)| Lowered { opcode: opcode.to_owned(), pipe, count })
        .collect();
    Some(Lowering {
        operation: operation.to_owned(),
        results: row.results,
        instructions,
        provenance: Provenance::mined(row.how),
    })
}

/// Cycles to a dependent instruction where the profile has none: 4 on ALU and FMA (stall counts of ptxas 13.5 for
/// sm_80 to sm_103a), 18 for ex2, 42 for rcp, lg2 and rsqrt, 24 for a shuffle (published for B300). Only the third
/// of three criteria uses these.
pub(super) fn latency(pipe: Pipe, opcode: &str) -> f64 {
    match pipe {
        Pipe::Xu if opcode.contains("EX2") || opcode.contains("ex2") => 18.0,
        Pipe::Xu => 42.0,
        Pipe::Lsu => 24.0,
        _ => 4.0,
    }
}
