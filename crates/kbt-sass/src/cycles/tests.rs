use super::*;
use crate::{Control, Guard};
use kbt_device::{Pipe, RateRow};

const ARCH: Arch = Arch::SM_90A;

/// `stall opcode operands`, a trailing `@wN` writes and `@qN` waits for scoreboard N.
fn code(lines: &[&str]) -> Vec<Instruction> {
    let parse = |(n, line): (usize, &&str)| {
        let mut parts = line.splitn(3, ' ');
        let stall = parts.next().unwrap().parse().unwrap();
        let opcode = parts.next().unwrap();
        let rest = parts.next().unwrap_or("");
        let mark = |m: &str| rest.split(m).nth(1).map(|t| t[..1].parse::<u8>().unwrap());
        let operands = rest.split(" @").next().unwrap();
        let mut insn = Instruction::new(n as u64 * 16, None, opcode, operands);
        insn.control = Some(Control {
            stall,
            yield_flag: false,
            write_barrier: mark("@w"),
            read_barrier: None,
            wait_mask: mark("@q").map_or(0, |n| 1 << n),
            reuse: 0,
        });
        insn
    };
    lines.iter().enumerate().map(parse).collect()
}

fn profile() -> DeviceProfile {
    let row = |opcode: &str, pipe, lanes, latency| RateRow {
        instruction: opcode.to_lowercase(),
        opcode: Some(opcode.to_owned()),
        pipe,
        lanes_per_clk_sm: Some(lanes),
        results_per_clk_sm: None,
        latency_clk: Some(latency),
        spread_percent: None,
        refused: None,
        provenance: Provenance::measured("run", "card", "2026-11-30"),
    };
    let mut profile = DeviceProfile::new("test", ARCH, Provenance::assumed("a test"));
    profile.rates = vec![
        row("FFMA", Pipe::Fma, 128.0, 4.0),
        row("FADD", Pipe::Fma, 128.0, 4.0),
        row("IMAD", Pipe::FmaHeavy, 64.0, 4.0),
        row("IMAD.HI.U32", Pipe::FmaHeavy, 32.0, 6.0),
        row("HFMA2", Pipe::Fma, 64.0, 4.0),
        row("LOP3.LUT", Pipe::Alu, 64.0, 4.0),
        row("MUFU.EX2", Pipe::Xu, 16.0, 17.0),
        row("DFMA", Pipe::Fp64, 64.0, 8.0),
    ];
    profile
}

fn model(lines: &[&str]) -> LoopModel {
    LoopModel::new(Some(ARCH), &code(lines), &profile(), None).unwrap()
}

#[test]
fn one_warp_takes_its_stalls_and_the_way_back() {
    let m = model(&["4 FFMA R1, R1, R2, R3", "4 FFMA R1, R1, R2, R3", "6 BRA 0x0"]);
    // Two dependent FFMAs, then ten cycles from the branch.
    assert_eq!(m.cycles(1), 18.0);
    let limits = m.limits(1);
    assert_eq!((limits.dependence, limits.one_warp, limits.issue), (8.0, 12.0, 3.0));
    assert_eq!(limits.binding(), ("one warp".to_owned(), 12.0));
}

#[test]
fn many_warps_are_bound_by_the_pipe_that_is_busiest() {
    let lines =
        ["1 MUFU.EX2 R1, R2", "1 MUFU.EX2 R4, R6", "2 LOP3.LUT R7, R8, R9, R10, 0x96, !PT", "6 BRA 0x0"];
    let m = model(&lines);
    assert_eq!(m.limits(8).binding(), ("pipe xu".to_owned(), 128.0));
    assert!((m.cycles(8) / 128.0 - 1.0).abs() < 0.02, "{}", m.cycles(8));
    let m = model(&["1 IMAD R1, R2, R3, R4", "1 FFMA R5, R6, R7, R9", "6 BRA 0x0"]);
    // IMAD takes the heavy half two cycles, FFMA the other: the issue port binds.
    assert_eq!(m.limits(8).binding(), ("issue".to_owned(), 24.0));
    let m = model(&["2 IMAD R1, R2, R3, R4", "2 IMAD R1, R2, R3, R4", "6 BRA 0x0"]);
    assert_eq!(m.limits(8).binding(), ("pipe fma_heavy".to_owned(), 32.0));
}

#[test]
fn operands_of_one_bank_cost_a_cycle_and_reuse_saves_it() {
    let body = |operands: &'static str| {
        let line: &'static str = operands;
        let mut lines = vec![line; 32];
        lines.push("6 BRA 0x0");
        model(&lines)
    };
    let apart = body("1 FADD R1, R2, R3");
    let same = body("1 FADD R1, R2, R4");
    let reused = body("1 FADD R1, R2.reuse, R4");
    assert_eq!(apart.cycles(1), 42.0);
    assert!(same.cycles(1) > 70.0, "{}", same.cycles(1));
    assert_eq!(reused.cycles(1), 42.0);
    assert_eq!((same.limits(2).register_ports, reused.limits(2).register_ports), (128.0, 64.0));
    // One register named twice is read once.
    assert_eq!(body("1 FADD R1, R2, R2").cycles(1), 42.0);
}

#[test]
fn fp64_keeps_its_reused_operands_beside_others_of_the_same_slots() {
    // R26 and R27 are kept over the FFMA between, which keeps R17 in the same bank and slot as R27.
    let beside =
        repeated(&["1 DFMA R24, R26.reuse, R24, R26.reuse", "1 FFMA R49, R17.reuse, R42, R17.reuse"], 8);
    assert!(beside.limits(4).register_ports <= 16.0 * 4.0 + 8.0, "{:?}", beside.limits(4));
    assert!(beside.cycles(4) / (8.0 * 4.0) < 2.3, "{}", beside.cycles(4));
    // Two FFMA of one slot take it from each other.
    let others = repeated(&["1 FFMA R24, R27.reuse, R24, R27", "1 FFMA R48, R17.reuse, R42, R17"], 8);
    assert!(others.limits(4).register_ports >= 2.0 * 8.0 * 4.0, "{:?}", others.limits(4));
}

#[test]
fn a_scoreboard_holds_the_reader_until_the_result() {
    let m = model(&["1 MUFU.EX2 R1, R2 @w0", "4 FADD R2, R1, R3 @q0", "6 BRA 0x0"]);
    // 17 cycles of MUFU, 4 of FADD, 10 of the branch.
    assert_eq!(m.cycles(1), 31.0);
    assert_eq!(m.limits(1).dependence, 21.0);
}

#[test]
fn what_cannot_be_known_is_refused() {
    let refuse = |insns: &[Instruction], arch, latency| {
        LoopModel::new(Some(arch), insns, &profile(), latency).err().map(|e| e.to_string())
    };
    let load = code(&["1 LDG.E R1, desc[UR4][R2.64] @w0", "1 FADD R3, R1, R4 @q0", "6 BRA 0x0"]);
    assert!(refuse(&load, ARCH, None).unwrap().contains("--global-latency"));
    assert_eq!(refuse(&load, ARCH, Some(500)), None);
    let mut bare = code(&["1 FADD R1, R2, R3"]);
    bare[0].control = None;
    assert!(refuse(&bare, ARCH, None).unwrap().contains("-hex"));
    assert!(refuse(&load, Arch { sm: 61, suffix: None }, None).unwrap().contains("sm_70"));
    assert!(refuse(&[], ARCH, None).is_some());
}

#[test]
fn an_opcode_without_a_rate_is_named() {
    let mut insns = code(&["1 FROB R1, R2", "6 BRA 0x0"]);
    insns[1].guard = Guard::parse("@P0");
    let m = LoopModel::new(Some(ARCH), &insns, &profile(), None).unwrap();
    assert!(m.assumed().any(|(opcode, _)| opcode == "FROB"));
    let hgmma = code(&["1 HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24", "6 BRA 0x0"]);
    let m = LoopModel::new(Some(ARCH), &hgmma, &profile(), None).unwrap();
    assert_eq!(m.limits(2).pipes["tensor"], 128.0, "64 x 128 x 16 at 4096 FLOP a clock");
}

/// `lines` in turn, `times` times, and the branch.
fn repeated(lines: &[&'static str], times: usize) -> LoopModel {
    let mut all = lines.repeat(times);
    all.push("6 BRA 0x0");
    model(&all)
}

#[test]
fn packed_half_precision_takes_both_halves_of_fma() {
    let m = repeated(&["1 HFMA2 R1, R2, R3, R7", "1 FFMA R4, R2, R3, R7"], 4);
    // Four of two cycles on both halves, four on either: 12 of the 9 that issue takes.
    assert_eq!((m.limits(1).pipes["fma"], m.limits(1).pipes["fma_heavy"]), (12.0, 8.0));
    assert!(m.cycles(8) >= 96.0, "{}", m.cycles(8));
}

#[test]
fn three_operands_that_lean_to_either_bank_in_turn_share_the_ports() {
    // Two reads of one bank and one of the other: three cycles for two instructions. An H200 takes 1.53 an
    // instruction with these banks set by hand in the machine code, and 1.97 where all lean to one bank.
    let per = |m: &LoopModel| (m.cycles(8) / 8.0 - 1.0) / 64.0;
    let turns = per(&repeated(&["1 FFMA R20, R2, R3, R4", "1 FFMA R21, R5, R6, R7"], 32));
    let leaning = per(&repeated(&["1 FFMA R20, R2, R3, R4", "1 FFMA R21, R6, R5, R8"], 32));
    assert!((turns - 1.53).abs() < 0.06 && (leaning - 1.97).abs() < 0.06, "{turns} {leaning}");
}

#[test]
fn a_high_product_holds_its_own_warp_two_cycles_longer() {
    // One warp takes 6.06 cycles for each of independent ones on an H200, two warps 4.1.
    let m = repeated(&["4 IMAD.HI.U32 R1, R2, R3, RZ", "4 IMAD.HI.U32 R4, R2, R3, RZ"], 16);
    assert_eq!(m.cycles(1), 32.0 * 6.0 + 10.0);
    assert!((m.cycles(2) / 64.0 - 4.1).abs() < 0.2, "{}", m.cycles(2));
}

#[test]
fn what_waits_for_the_xu_holds_up_the_instructions_behind_it() {
    let lines =
        ["1 MUFU.EX2 R1, R2", "1 MUFU.EX2 R3, R4", "1 MUFU.EX2 R5, R6", "15 FADD R8, R9, R10", "6 BRA 0x0"];
    // The third enters the queue when the second leaves it, at cycle 8; then 15 cycles of stall and the branch.
    assert_eq!(model(&lines).cycles(1), 9.0 + 15.0 + 10.0);
}

#[test]
fn latency_that_one_warp_leaves_exposed_is_what_binds_it() {
    let m = model(&["1 MUFU.EX2 R1, R2 @w0", "4 FADD R5, R1, R3 @q0", "6 BRA 0x0"]);
    let (one, many) = (outcome::row(&m, 1), outcome::row(&m, 8));
    assert_eq!((one.binding.as_str(), one.bound_by.as_str()), ("exposed latency", "one warp"));
    assert_eq!((many.binding.as_str(), many.bound_by.as_str()), ("pipe xu", "pipe xu"));
}

#[test]
fn a_latency_that_the_profile_lacks_is_named_where_it_is_waited_for() {
    let of = |lines: &[&str]| -> Vec<String> {
        model(lines).assumed().map(|(opcode, what)| format!("{opcode}: {what}")).collect()
    };
    let waited = of(&["1 FROB R1, R2 @w0", "4 FADD R5, R1, R3 @q0", "6 BRA 0x0"]);
    assert!(waited.iter().any(|w| w == "FROB: no latency in the profile, 12 cycles"), "{waited:?}");
    assert!(!of(&["1 FROB R1, R2", "6 BRA 0x0"]).iter().any(|w| w.contains("latency")));
    let like = of(&["1 MUFU.LG2 R1, R2 @w0", "6 BRA 0x0"]);
    assert_eq!(like, ["MUFU.LG2: the rate of MUFU.EX2"]);
}
