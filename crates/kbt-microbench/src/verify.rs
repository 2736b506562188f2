//! What the machine code of a kernel holds between its two clock reads.
//!
//! A rate is worth nothing unless the timed window holds the instructions that were meant. Here the window is
//! found, its loop is counted by opcode, and two bodies (U and 2U operations) are compared: what differs
//! belongs to the operations, what is the same is the loop's own and cancels in the measurement.

mod certain;
mod code;
mod window;

pub use certain::Uncertain;
pub use code::{FormCode, PerOp};
pub use window::{Counts, LARGEST_BODY, Window, WindowError};

use crate::spec::Entry;
use code::kind_of_work;
use std::collections::{BTreeMap, BTreeSet};

/// The share of an instruction an operation that counts may be off by: what the scheduler leaves out or adds in places,
/// and the rounding of the counts.
const UNEVEN: f64 = 0.125;

/// One instruction that was meant, and how many of it.
pub struct Meant<'a> {
    /// The entry, which knows its target mnemonics.
    pub entry: &'a Entry,
    /// Target instructions (compound: operations) in the two bodies.
    pub ops: [i64; 2],
    /// What only feeds the output back ([`crate::spec::Chain::back`]).
    pub back: &'a BTreeMap<String, f64>,
}

/// Compares the windows of U and 2U operations with what was meant. Counts of the result are per operation of
/// the first part.
pub fn check_pair(small: &Window, large: &Window, meant: &[Meant<'_>]) -> Result<FormCode, WindowError> {
    for part in meant.iter().filter(|part| !part.entry.compound) {
        for (window, expected) in [(small, part.ops[0]), (large, part.ops[1])] {
            let found = window.body.iter().filter(|(op, _)| part.entry.is_target(op)).map(|(_, n)| n).sum();
            if found != expected {
                let target = part.entry.target.join(" or ");
                return Err(WindowError::TargetCount {
                    target,
                    expected,
                    found,
                    body: summary(&window.body),
                });
            }
        }
    }
    let timed = |opcode: &str| meant.iter().any(|part| part.entry.is_target(opcode));
    for window in [small, large] {
        if let Some((target, why)) = certain::first_uncertain(&window.instructions, &timed) {
            return Err(WindowError::Uncertain { target: target.to_owned(), why });
        }
    }
    // What stands around the loop runs once a window of thousands of cycles: a special register read here and
    // not there is nothing, a branch or more than a few instructions is another compilation.
    let edge = difference(&small.edge, &large.edge);
    if edge.values().map(|n| n.abs()).sum::<i64>() > 6 || edge.keys().any(|op| op.starts_with("BRA")) {
        return Err(WindowError::Edge(summary(&edge)));
    }
    let more = meant.first().map_or(1, |part| part.ops[1] - part.ops[0]);
    let memory = meant.iter().any(|part| part.entry.memory);
    let mut per_op = Vec::new();
    let mut kinds: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let opcodes: BTreeSet<&String> = small.body.keys().chain(large.body.keys()).collect();
    for opcode in opcodes {
        let count = |w: &Window| w.body.get(opcode).copied().unwrap_or(0);
        let (n, target) = (count(large) - count(small), timed(opcode));
        if is_memory(opcode) && !target && !memory {
            return Err(WindowError::Memory(opcode.clone()));
        }
        let issue_only = [large, small].iter().any(|w| w.pipes.get(opcode) == Some(&None));
        // How many NOPs spell out a wait is the scheduler's choice at each place.
        if !target && !issue_only {
            let (at_first, added) = kinds.entry(kind_of_work(opcode)).or_default();
            *at_first += count(small);
            *added += n;
        }
        let share = n as f64 / more as f64;
        // One instruction more or less is the scheduler's.
        let whole = if share < 0.04 || n <= 1 { 0.0 } else { (share * 12.0).round() / 12.0 };
        if whole > 0.0 {
            let pipe = large.pipes.get(opcode).or_else(|| small.pipes.get(opcode)).copied().flatten();
            per_op.push(PerOp { opcode: opcode.clone(), pipe, count: whole, target });
        }
    }
    // Counts grow with the operations; what is left is the loop's own. ptxas may place a move more or less, and
    // in a compound operation choose another opcode for the same work; more than that means that the two bodies
    // were compiled in different ways.
    let stray = if meant.iter().any(|part| part.entry.compound) { 8 } else { 4 };
    for (kind, (at_first, added)) in kinds {
        let own = at_first - added;
        if added < -stray || own < -stray || own > 40 {
            return Err(WindowError::Uneven(added, kind.to_owned(), more));
        }
    }
    let back = way_back(&mut per_op, meant)?;
    whole_operation(&per_op, meant)?;
    one_instruction(&mut per_op, meant, [small, large]);
    per_op.sort_by(|a, b| (b.target, &a.opcode).cmp(&(a.target, &b.opcode)));
    Ok(FormCode { per_op, back, ops: meant.first().map_or(0, |part| part.ops[0]), length: large.length })
}

/// Takes out of a compound operation what only feeds its output back. A way back that is not there as the entry says is
/// another lowering, of which nobody knows what belongs to the operation.
fn way_back(per_op: &mut Vec<PerOp>, meant: &[Meant<'_>]) -> Result<Vec<PerOp>, WindowError> {
    let mut back = Vec::new();
    for (opcode, &count) in meant.iter().flat_map(|part| part.back) {
        let op = per_op.iter_mut().find(|op| op.opcode == *opcode);
        let found = op.as_ref().map_or(0.0, |op| op.count);
        let Some(op) = op.filter(|_| found > count - UNEVEN) else {
            return Err(WindowError::NoWayBack { opcode: opcode.clone(), expected: count, found });
        };
        back.push(PerOp { count: count.min(op.count), ..op.clone() });
        op.count -= count;
    }
    let rest = |op: &PerOp| op.count > if back.iter().any(|b| b.opcode == op.opcode) { UNEVEN } else { 0.0 };
    per_op.retain(|op| op.target || rest(op));
    Ok(back)
}

/// A compound operation is at least one instruction on a pipe: with less, ptxas folded steps of the chain together, or
/// all of them away.
fn whole_operation(per_op: &[PerOp], meant: &[Meant<'_>]) -> Result<(), WindowError> {
    if !meant.iter().any(|part| part.entry.compound) {
        return Ok(());
    }
    let work: Vec<&PerOp> = per_op.iter().filter(|op| op.pipe.is_some()).collect();
    let total: f64 = work.iter().map(|op| op.count).sum();
    if total > 1.0 - UNEVEN {
        return Ok(());
    }
    let seen: Vec<String> = work.iter().map(|op| format!("{:.2} {}", op.count, op.opcode)).collect();
    Err(WindowError::Folded(if seen.is_empty() { "nothing on a pipe".to_owned() } else { seen.join(", ") }))
}

/// A compound operation of which ptxas makes one instruction is that instruction.
fn one_instruction(per_op: &mut [PerOp], meant: &[Meant<'_>], windows: [&Window; 2]) {
    let [part] = meant else { return };
    let mut work = per_op.iter_mut().filter(|p| p.pipe.is_some());
    let (true, Some(op), None) = (part.entry.compound, work.next(), work.next()) else { return };
    let is_op = |opcode: &str| opcode == op.opcode;
    let counted = |(window, ops): (&Window, i64)| window.body.get(&op.opcode) == Some(&ops);
    let certain = |w: &Window| certain::first_uncertain(&w.instructions, &is_op).is_none();
    op.target = windows.into_iter().zip(part.ops).all(counted) && windows.into_iter().all(certain);
}

/// Whether an opcode reads or writes memory.
fn is_memory(opcode: &str) -> bool {
    let base = opcode.split('.').next().unwrap_or(opcode);
    const NAMES: [&str; 14] = [
        "LDG", "STG", "LDL", "STL", "LDS", "STS", "LD", "ST", "ATOM", "ATOMG", "ATOMS", "RED", "LDSM", "STSM",
    ];
    NAMES.contains(&base)
}

/// `MUFU.EX2 128, ISETP.NE.AND 1`, the most frequent first.
#[must_use]
pub fn summary(counts: &Counts) -> String {
    let mut list: Vec<_> = counts.iter().collect();
    list.sort_by_key(|(op, n)| (-**n, op.as_str()));
    let shown: Vec<String> = list.iter().take(6).map(|(op, n)| format!("{op} {n}")).collect();
    let more = if list.len() > 6 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn difference(a: &Counts, b: &Counts) -> Counts {
    let mut diff = Counts::new();
    for (op, n) in b {
        *diff.entry(op.clone()).or_default() += n;
    }
    for (op, n) in a {
        *diff.entry(op.clone()).or_default() -= n;
    }
    diff.retain(|_, n| *n != 0);
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use kbt_device::Pipe;
    use kbt_sass::Function;

    /// A kernel with two clock reads around `body`, which ends in a branch back to its start; in nvdisasm's form.
    fn listing(body: &[&str], after: &[&str]) -> Function {
        let mut text = "\t.target sm_90a\n//--------------------- .text.k --------------------------\n\
                        \t.section\t.text.k,\"ax\",@progbits\n.text.k:\n"
            .to_owned();
        let mut address = 0;
        let mut line = |insn: &str| {
            if let Some(label) = insn.strip_suffix(':') {
                text.push_str(&format!(".{label}:\n"));
            } else {
                text.push_str(&format!("        /*{address:04x}*/                   {insn} ;\n"));
                address += 16;
            }
        };
        line("CS2R R2, SR_CLOCKLO");
        line("L_x_0:");
        body.iter().for_each(|l| line(l));
        line("@P0 BRA `(.L_x_0)");
        after.iter().for_each(|l| line(l));
        line("CS2R R4, SR_CLOCKLO");
        line("EXIT");
        kbt_sass::parse(text.as_bytes()).unwrap().functions.remove(0)
    }

    fn window(op: &str, n: usize, rest: &[&str]) -> Window {
        let body: Vec<&str> = std::iter::repeat_n(op, n).chain(rest.iter().copied()).collect();
        Window::find(&listing(&body, &[])).unwrap()
    }

    fn entry(yaml: &str) -> Entry {
        let text = format!(
            "instructions:\n  - name: t\n    {yaml}\n    chains: {{f: {{x: b32, step: 'op %x;'}}}}\n"
        );
        Spec::from_yaml(&text, "test").unwrap().instructions.remove(0)
    }

    fn compare(small: &Window, large: &Window, entry: &Entry, n: i64) -> Result<FormCode, WindowError> {
        check_pair(small, large, &[Meant { entry, ops: [n, 2 * n], back: &entry.chains["f"].back }])
    }

    const LOOP: &[&str] = &["UIADD3 UR4, UR4, -0x1, URZ", "ISETP.NE.U32.AND P0, PT, RZ, UR4, PT"];

    #[test]
    fn the_loop_s_own_instructions_cancel_and_the_target_remains() {
        let ex2 = entry("target: [MUFU.EX2]");
        let (small, large) = (window("MUFU.EX2 R4, R4", 8, LOOP), window("MUFU.EX2 R4, R4", 16, LOOP));
        assert_eq!((small.body["MUFU.EX2"], small.body["BRA"], small.length), (8, 1, 11));
        let code = compare(&small, &large, &ex2, 8).unwrap();
        assert_eq!(code.per_op.len(), 1);
        assert_eq!((code.opcode().as_deref(), code.pipe()), (Some("MUFU.EX2"), Pipe::Xu));
    }

    #[test]
    fn a_feedback_move_is_counted_for_each_operation() {
        let pair = |n| window("F2FP.X R4, R4, R5", n, &["PRMT R4, R4, 0x5410, R4"].repeat(n));
        let cvt = entry("target: ['F2FP*']");
        let code = compare(&pair(8), &pair(16), &cvt, 8).unwrap();
        let companions: Vec<_> = code.companions().map(|c| (c.opcode.as_str(), c.count)).collect();
        assert_eq!(companions, [("PRMT", 1.0)]);
    }

    #[test]
    fn more_targets_than_were_meant_are_refused_too() {
        let ex2 = entry("target: [MUFU.EX2]");
        let of =
            |n, m| compare(&window("MUFU.EX2 R4, R4", n, LOOP), &window("MUFU.EX2 R4, R4", m, LOOP), &ex2, 8);
        assert!(of(8, 16).is_ok());
        for (n, m) in [(9, 16), (8, 17), (32, 32), (16, 32)] {
            assert!(matches!(of(n, m), Err(WindowError::TargetCount { .. })), "{n} and {m}");
        }
    }

    #[test]
    fn what_stands_once_for_twelve_operations_is_counted_too() {
        let body = |n: usize| {
            window("USHF.L.W.U32.HI UR4, UR4, 0x5, UR4", 12 * n, &["S2UR UR4, SR_CLOCKHI"].repeat(n))
        };
        let shf = entry("target: ['USHF*']");
        let code = compare(&body(8), &body(16), &shf, 96).unwrap();
        let companions: Vec<_> = code.companions().map(|c| (c.opcode.as_str(), c.count)).collect();
        assert_eq!(companions, [("S2UR", 1.0 / 12.0)]);
    }

    #[test]
    fn a_compound_operation_of_one_instruction_is_that_instruction() {
        let sad = entry("compound: true");
        let of = |lines: &[&str]| {
            let each = |n: usize| {
                let body: Vec<&str> = lines.repeat(n).into_iter().chain(LOOP.iter().copied()).collect();
                Window::find(&listing(&body, &[])).unwrap()
            };
            compare(&each(8), &each(16), &sad, 8).unwrap()
        };
        let one = of(&["VABSDIFF.U32 R4, R4, R5, R6"]);
        assert_eq!((one.opcode().as_deref(), one.pipe()), (Some("VABSDIFF.U32"), Pipe::Alu));
        assert_eq!(of(&["PRMT R4, R4, R5, R6", "SEL R4, R4, R5, P0"]).opcode(), None);
        assert_eq!(of(&["PRMT R4, R4, R5, R6", "PRMT R4, R4, R5, R6"]).opcode(), None, "two of one opcode");
        assert_eq!(of(&["@P1 PRMT R4, R4, R5, R6"]).opcode(), None, "it may not run");
    }

    #[test]
    fn an_operation_of_less_than_one_instruction_is_refused_and_a_way_back_is_taken_out() {
        let each = |lines: &[&str], n: usize| {
            let body: Vec<&str> = lines.repeat(n).into_iter().chain(LOOP.iter().copied()).collect();
            Window::find(&listing(&body, &[])).unwrap()
        };
        // Of `n` operations the code holds `lines` so many times.
        let of = |e: &Entry, lines: &[&str], n: usize| compare(&each(lines, n), &each(lines, 2 * n), e, 16);
        let op = entry("compound: true");
        let told = |lines: &[&str], n| of(&op, lines, n).unwrap_err().to_string();
        assert!(told(&[], 0).starts_with("an operation became nothing on a pipe: ptxas folded"));
        assert!(told(&["NOP"], 16).starts_with("an operation became nothing on a pipe"), "issue slots only");
        assert!(told(&["IADD3 R4, R4, R5, R6"], 8).starts_with("an operation became 0.50 IADD3: "));
        let adds = ["IADD3 R4, R4, R5, R6", "LOP3.LUT R4, R4, R5, RZ, 0x3c, !PT"];
        let mut with_back = op.clone();
        with_back.chains.get_mut("f").unwrap().back.insert("LOP3.LUT".into(), 1.0);
        let code = of(&with_back, &adds, 16).unwrap();
        assert_eq!((code.text().as_str(), code.back[0].opcode.as_str()), ("1 IADD3", "LOP3.LUT"));
        assert_eq!(code.opcode().as_deref(), Some("IADD3"), "what is left is one instruction");
        let why = of(&with_back, &adds[..1], 16).unwrap_err().to_string();
        assert!(
            why.starts_with("the way back is 1 LOP3.LUT an operation") && why.contains("has 0.00"),
            "{why}"
        );
    }

    #[test]
    fn a_drifted_or_folded_target_is_refused_with_what_stands_there_instead() {
        let meant = entry("target: ['F2FP*']");
        let (small, large) =
            (window("F2F.BF16.F32 R4, R4", 8, LOOP), window("F2F.BF16.F32 R4, R4", 16, LOOP));
        let error = compare(&small, &large, &meant, 8).unwrap_err().to_string();
        assert!(error.starts_with("8 F2FP* were written, the body has 0 (F2F.BF16.F32 8"), "{error}");
        let folded = listing(&[], &[]);
        let no_loop = Function { instructions: folded.instructions[..1].to_vec(), ..folded.clone() };
        assert_eq!(Window::find(&no_loop).unwrap_err(), WindowError::Clocks(1));
    }

    #[test]
    fn a_spill_a_long_body_and_unlike_bodies_are_refused() {
        let ex2 = entry("target: [MUFU.EX2]");
        let spilled = |n| window("MUFU.EX2 R4, R4", n, &["STL [R1], R4"]);
        assert_eq!(
            compare(&spilled(8), &spilled(16), &ex2, 8).unwrap_err(),
            WindowError::Memory("STL".into())
        );
        let long = ["MUFU.EX2 R4, R4"; LARGEST_BODY + 1];
        assert!(matches!(Window::find(&listing(&long, &[])), Err(WindowError::TooLong(_))));
        let other = window("MUFU.EX2 R4, R4", 16, &["FMUL R4, R4, R5"; 60]);
        let error = compare(&window("MUFU.EX2 R4, R4", 8, &["FMUL R4, R4, R5"; 80]), &other, &ex2, 8);
        assert!(matches!(error, Err(WindowError::Uneven(-20, ..))), "{error:?}");
        let peeled = Window::find(&listing(&["MUFU.EX2 R4, R4"; 16], &["MUFU.EX2 R4, R4"; 8])).unwrap();
        let error = compare(&window("MUFU.EX2 R4, R4", 8, &[]), &peeled, &ex2, 8);
        assert!(matches!(error, Err(WindowError::Edge(_))), "{error:?}");
    }

    #[test]
    fn a_target_that_may_not_run_or_may_run_again_is_refused() {
        let ex2 = entry("target: [MUFU.EX2]");
        let told = |body: &[&str]| {
            let (small, large) = (body.to_vec(), body.repeat(2));
            let find = |body: &[&str]| Window::find(&listing(body, &[])).unwrap();
            let n = small.iter().filter(|l| l.contains("MUFU")).count() as i64;
            check_pair(
                &find(&small),
                &find(&large),
                &[Meant { entry: &ex2, ops: [n, 2 * n], back: &ex2.chains["f"].back }],
            )
            .map(|code| code.per_op.len())
            .map_err(|e| e.to_string())
        };
        assert_eq!(told(&["MUFU.EX2 R4, R4"; 8]), Ok(1));
        assert_eq!(told(&["@PT MUFU.EX2 R4, R4"; 8]), Ok(1), "PT is always true");
        for (body, says) in [
            (vec!["@P1 MUFU.EX2 R4, R4"; 8], "under the guard @P1"),
            (vec!["@!P1 MUFU.EX2 R4, R4"; 8], "under the guard @!P1"),
            (vec!["@UP1 MUFU.EX2 R4, R4"; 8], "under the guard @UP1"),
        ] {
            let why = told(&body).unwrap_err();
            assert!(why.starts_with("MUFU.EX2 is counted, but it stands") && why.contains(says), "{why}");
        }
        let whole = |body: &[&str]| {
            let window = Window::find(&listing(body, &[])).unwrap();
            certain::first_uncertain(&window.instructions, &|o| ex2.is_target(o)).map(|(_, why)| why)
        };
        let around = ["FADD R1, R1, R2", "@P1 BRA `(.L_x_1)", "MUFU.EX2 R4, R4", "L_x_1:", "FADD R1, R1, R2"];
        assert_eq!(whole(&around), Some(Uncertain::Skipped("BRA".into())));
        let before = ["MUFU.EX2 R4, R4", "@P1 BRA `(.L_x_1)", "FADD R1, R1, R2", "L_x_1:", "MUFU.EX2 R4, R4"];
        assert_eq!(whole(&before), None, "what the branch goes around is another instruction");
        let inner = ["FADD R1, R1, R2", "L_x_1:", "MUFU.EX2 R4, R4", "@P1 BRA `(.L_x_1)", "FADD R1, R1, R2"];
        assert_eq!(whole(&inner), Some(Uncertain::Repeated("BRA".into())));
        assert_eq!(whole(&["@P1 EXIT", "MUFU.EX2 R4, R4"]), Some(Uncertain::Skipped("EXIT".into())));
        let call =
            ["@P1 BRA `(.L_x_1)", "CALL.REL.NOINC `(.L_x_0)", "MUFU.EX2 R4, R4", "L_x_1:", "MUFU.EX2 R4, R4"];
        assert_eq!(whole(&call), None, "the slow path was not counted");
    }

    #[test]
    fn a_slow_path_behind_a_forward_branch_is_not_counted() {
        let body = [
            "MUFU.RCP R4, R4",
            "@P1 BRA `(.L_x_1)",
            "MOV R6, R4",
            "CALL.REL.NOINC `(.L_x_0)",
            "L_x_1:",
            "FFMA R4, R4, R5, R4",
        ];
        let w = Window::find(&listing(&body, &[])).unwrap();
        assert_eq!(w.body.get("CALL.REL.NOINC"), None);
        assert_eq!((w.body["FFMA"], w.body["BRA"]), (1, 2));
    }
}
