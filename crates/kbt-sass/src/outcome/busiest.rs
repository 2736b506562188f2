//! Where a kernel's time is looked for: the loop that its instructions, by what they cost, make the busiest.

use crate::{Analysis, Instruction, Interval, LoopKind, Role};
use std::cmp::Reverse;

/// Cycles of a scheduler that a warp's instruction keeps the unit it needs: assumed weights to choose a loop by, never printed.
/// Of classes by their mnemonics; what is not here takes one. A warp does not wait for the products of wgmma, which cost it as much here as those that it does wait for;
/// one that a single thread issues (tcgen05) costs no more than any instruction.
/// MUFU follows its measured rate (docs/measurements.md), the others are rounded guesses; device memory at 15 B/clk/SM (4 TB/s over 132 SMs at 1.98 GHz).
const COSTS: &[(&str, u64)] = &[
    ("HGMMA", 16),
    ("QGMMA", 16),
    ("IGMMA", 16),
    ("HMMA", 16),
    ("QMMA", 16),
    ("IMMA", 16),
    ("DMMA", 16),
    ("MUFU", 8),
    ("F2FP", 2),
    ("DFMA", 2),
    ("DADD", 2),
    ("DMUL", 2),
    ("LDS", 2),
    ("STS", 2),
    ("LDSM", 2),
    ("LDL", 4),
    ("STL", 4),
];

/// Accesses to global memory, whose cost goes by their width.
const GLOBAL: &[&str] = &["LDG", "STG", "LDGSTS", "REDG", "ATOMG", "LD", "ST"];
/// Of 4 bytes a lane.
const GLOBAL_COST: u64 = 32;

/// Trips of an inner loop for each of the loop around it: as optimisers guess where nothing is known.
const TRIPS: u64 = 4;
/// Deeper loops weigh no more: what a guess to the fourth power says is nothing.
const MOST_DEPTH: u32 = 4;

fn cost(insn: &Instruction) -> u64 {
    let mnemonic = insn.mnemonic();
    if GLOBAL.contains(&mnemonic) {
        let wide = ["64", "128", "256"].iter().find(|w| insn.has_modifier(w));
        return GLOBAL_COST * wide.and_then(|w| w.parse::<u64>().ok()).map_or(1, |bits| bits / 32);
    }
    COSTS.iter().find(|(m, _)| *m == mnemonic).map_or(1, |(_, cycles)| *cycles)
}

/// The user loop that a kernel's time is looked for in. Of the outermost loops the one whose instructions cost most, those of
/// inner loops several times; in it, the loop with the most transcendental instructions and packed conversions, of several the
/// innermost and costliest.
#[must_use]
pub fn busiest_loop(analysis: &Analysis<'_>) -> Option<String> {
    let most = analysis.roles.iter().filter_map(|r| r.registers).max().unwrap_or(0);
    busiest_loop_outside(analysis, |role| role.registers.is_some_and(|n| gives_away(n, most)))
}

/// Whether a role with this budget, beside one with the most, moves data for the others rather than computing.
pub(crate) const fn gives_away(registers: u32, most: u32) -> bool {
    registers * 2 < most
}

/// The same, with the roles that are left out told.
pub(crate) fn busiest_loop_outside(
    analysis: &Analysis<'_>,
    left_out: impl Fn(&Role) -> bool,
) -> Option<String> {
    let loops = &analysis.loops;
    let is_user = |l: &usize| loops[*l].kind == LoopKind::User;
    let is_giver = |l: &usize| {
        let inside = |r: &&Role| loops[*l].body.indices().next().is_some_and(|i| r.body.contains(i));
        analysis.roles.iter().filter(inside).any(&left_out)
    };
    let user: Vec<usize> = (0..loops.len()).filter(|l| is_user(l) && !is_giver(l)).collect();
    let mut depth = vec![0_u32; analysis.function.instructions.len()];
    for i in user.iter().flat_map(|l| loops[*l].body.indices()) {
        depth[i] += 1;
    }
    let insns =
        |body: &Interval| body.indices().map(|i| (i, &analysis.function.instructions[i])).collect::<Vec<_>>();
    // What a trip of a loop costs, its inner loops with the trips that are guessed.
    let weight = |l: usize| -> u64 {
        let own = loops[l].body.indices().map(|i| depth[i]).min().unwrap_or(0);
        let trips = |i: usize| TRIPS.pow((depth[i] - own).min(MOST_DEPTH));
        insns(&loops[l].body).into_iter().map(|(i, insn)| cost(insn) * trips(i)).sum()
    };
    let outermost = |mut l: usize| {
        while let Some(around) = loops[l].parent.filter(is_user) {
            l = around;
        }
        l
    };
    let nest =
        user.iter().copied().filter(|l| outermost(*l) == *l).max_by_key(|l| (weight(*l), Reverse(*l)))?;
    let conversions = |l: usize| {
        let of = |(_, i): &(usize, &Instruction)| matches!(i.mnemonic(), "MUFU" | "F2FP");
        insns(&loops[l].body).into_iter().filter(of).count()
    };
    let within = user.into_iter().filter(|l| outermost(*l) == nest);
    let best = within.max_by_key(|l| (conversions(*l), loops[*l].depth, weight(*l), Reverse(*l)))?;
    Some(analysis.loop_name(best).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Function, Unit};

    /// A listing of instructions; `@P0 BRA N` goes back to the line of that number.
    fn function(lines: &[&str]) -> Function {
        let mut text = String::from("\t.section\t.text.f,\"ax\",@progbits\n");
        for (n, line) in lines.iter().enumerate() {
            let line = match line.split_once("BRA ") {
                Some((guard, to)) => format!("{guard}BRA `(.L_{to})"),
                None => (*line).to_owned(),
            };
            text += &format!(".L_{n}:\n/*{:04x}*/ {line} ;\n", n * 16);
        }
        crate::parse(text.as_bytes()).unwrap().functions.remove(0)
    }

    fn busiest(lines: &[&str]) -> String {
        let function = function(lines);
        busiest_loop(&Analysis::new(&function, &Unit::mufu(), &Unit::f2fp())).unwrap()
    }

    const EPILOGUE: [&str; 3] = ["MUFU.EX2 R0, R1", "MUFU.RCP R2, R0", "FMUL R3, R2, R1"];

    #[test]
    fn a_role_that_gives_its_registers_away_is_not_where_the_time_is_looked_for() {
        let kernel = |gives: &str| {
            let copies = ["LDG.E.128 R4, desc[UR4][R8.64]"; 8];
            let mut lines = vec!["@P0 BRA 14".to_owned(), format!("USETMAXREG{gives}")];
            lines.extend(copies.iter().map(|l| (*l).to_owned()));
            lines.extend(["@P0 BRA 2".to_owned(), "EXIT".to_owned(), "NOP".to_owned(), "NOP".to_owned()]);
            lines.push("USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8".to_owned());
            lines.extend(vec!["FFMA R4, R8, R12, R4".to_owned(); 40]);
            lines.extend(["@P0 BRA 15".to_owned(), "EXIT".to_owned()]);
            busiest(&lines.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(kernel(".DEALLOC.CTAPOOL 0x28"), "loop:1");
        assert_eq!(kernel(".TRY_ALLOC.CTAPOOL UP0, 0xe0"), "loop:0");
    }

    /// Loops one after the other, each with its body.
    fn loops(bodies: &[&[&str]]) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for body in bodies {
            let start = lines.len();
            lines.extend(body.iter().map(|l| (*l).to_owned()));
            lines.push(format!("@P0 BRA {start}"));
        }
        lines.push("EXIT".to_owned());
        lines
    }

    fn of(bodies: &[&[&str]]) -> String {
        let lines = loops(bodies);
        busiest(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn the_costlier_loop_is_busier_whatever_its_instructions_are() {
        let products = ["HMMA.16816.F32.BF16 R4, R8, R12, R4"; 4];
        let sums = ["FFMA R4, R8, R12, R4"; 40];
        assert_eq!(
            (of(&[&products, &EPILOGUE]), of(&[&EPILOGUE, &sums])),
            ("loop:0".into(), "loop:1".into())
        );
        let partials = ["LDS R4, [R8]"; 16];
        let stream = ["LDG.E.128 R4, desc[UR4][R8.64]", "FFMA R4, R8, R12, R4"];
        assert_eq!(of(&[&partials, &stream]), "loop:1");
        // As many of each as cost less.
        assert_eq!(of(&[&products[..1], &EPILOGUE]), "loop:1");
    }

    #[test]
    fn in_a_nest_the_conversions_decide_and_then_the_depth() {
        let around =
            ["MOV R0, R1", "FFMA R4, R8, R12, R4", "@P0 BRA 1", "MUFU.RCP R2, R0", "@P1 BRA 0", "EXIT"];
        assert_eq!(busiest(&around), "loop:0");
        let inner = ["MOV R0, R1", "FFMA R4, R8, R12, R4", "@P0 BRA 1", "MOV R2, R0", "@P1 BRA 0", "EXIT"];
        assert_eq!(busiest(&inner), "loop:0.0");
        // An inner loop counts several times: its trips cost more than the loop beside it.
        let beside = [
            "MOV R0, R1",
            "FFMA R4, R8, R12, R4",
            "@P0 BRA 1",
            "@P1 BRA 0",
            "FFMA R4, R8, R12, R4",
            "FFMA R4, R8, R12, R4",
            "FFMA R4, R8, R12, R4",
            "FFMA R4, R8, R12, R4",
            "@P1 BRA 4",
            "EXIT",
        ];
        assert_eq!(busiest(&beside), "loop:0.0");
    }
}
