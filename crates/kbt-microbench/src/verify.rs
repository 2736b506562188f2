//! What the machine code of a kernel holds between its two clock reads.
//!
//! A rate is worth nothing unless the timed window holds the instructions that were meant. Here the window is
//! found, its loop is counted by opcode, and two bodies (U and 2U operations) are compared: what differs
//! belongs to the operations, what is the same is the loop's own and cancels in the measurement.

mod certain;

pub use certain::Uncertain;

use crate::spec::Entry;
use kbt_device::Pipe;
use kbt_sass::{Function, Instruction, pipe_of};
use std::collections::{BTreeMap, BTreeSet};

/// Instructions of the largest body, above which a Hopper SM starts to wait for instruction fetches
/// (about 390 in a public H100 study).
pub const LARGEST_BODY: usize = 340;

/// An eighth of an instruction an operation more or less is another lowering: below it are the few that ptxas hoists or
/// shares between the operations of a body.
const ALIKE: f64 = 0.125;

/// Opcodes and how many of each.
pub type Counts = BTreeMap<String, i64>;

/// The timed window of one kernel.
#[derive(Debug, Clone)]
pub struct Window {
    /// Opcodes of the loop's body, on the path usually taken.
    pub body: Counts,
    /// Opcodes between the clock reads and outside of the loop.
    pub edge: Counts,
    /// The pipe of each opcode of the body; `None` takes an issue slot only.
    pub pipes: BTreeMap<String, Option<Pipe>>,
    /// Instructions in the body, all paths.
    pub length: usize,
    /// The body's instructions in order, all paths, for who reads their scheduling fields.
    pub instructions: Vec<Instruction>,
}

/// Why a kernel's window cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The listing lacks the kernel.
    #[error("the listing has no kernel `{0}`")]
    NoKernel(String),
    /// There are not two clock reads.
    #[error("the machine code has {0} reads of the clock; two were written")]
    Clocks(usize),
    /// No loop stands between them.
    #[error("no loop stands between the clock reads: ptxas removed or moved it")]
    NoLoop,
    /// The larger body may not fit the instruction cache.
    #[error("the body has {0} instructions; above {LARGEST_BODY} instruction fetches would be measured")]
    TooLong(usize),
    /// The target was not counted as written.
    #[error("{expected} {target} were written, the body has {found} ({body})")]
    TargetCount {
        /// The mnemonics that were meant.
        target: String,
        /// How many were written.
        expected: i64,
        /// How many there are.
        found: i64,
        /// What the body holds instead.
        body: String,
    },
    /// A target that does not run once a trip.
    #[error("{target} is counted, but {why}")]
    Uncertain {
        /// Its mnemonic.
        target: String,
        /// Why.
        why: Uncertain,
    },
    /// Memory instructions that are not the subject.
    #[error("{0} in the window is no subject of this entry (a spill, or a moved load or store)")]
    Memory(String),
    /// The two bodies differ by no whole number of some opcode an operation.
    #[error("{0} instructions of {1} for {2} more operations: the bodies are not alike")]
    Uneven(i64, String, i64),
    /// What is outside of the loop differs.
    #[error("the code around the loop differs between the two bodies ({0})")]
    Edge(String),
}

impl Window {
    /// Finds and counts the window of a kernel that is to be timed: its body fits the instruction cache.
    pub fn find(function: &Function) -> Result<Self, WindowError> {
        let window = Self::of_any_length(function)?;
        if window.length > LARGEST_BODY {
            return Err(WindowError::TooLong(window.length));
        }
        Ok(window)
    }

    /// Finds and counts the window of a kernel that is only read.
    pub fn of_any_length(function: &Function) -> Result<Self, WindowError> {
        let code = &function.instructions;
        let clocks: Vec<usize> =
            (0..code.len()).filter(|&i| code[i].operands().contains("SR_CLOCKLO")).collect();
        let [start, end] = clocks[..] else { return Err(WindowError::Clocks(clocks.len())) };
        // The widest backward branch is the trip loop; inner ones belong to an operation.
        let (first, last) = (start + 1..end)
            .filter(|&i| is_branch(&code[i]))
            .filter_map(|i| Some((function.index_at(*code[i].targets.first()?), i)))
            .filter(|&(target, i)| target <= i && target > start)
            .max_by_key(|(target, i)| i - target)
            .ok_or(WindowError::NoLoop)?;
        let body = &code[first..=last];
        let mut counts = Counts::new();
        let mut pipes = BTreeMap::new();
        for i in usual_path(function, first, last) {
            *counts.entry(code[i].opcode().to_owned()).or_default() += 1;
            pipes.entry(code[i].opcode().to_owned()).or_insert_with(|| pipe_of(function.arch, &code[i]).pipe);
        }
        let mut edge = Counts::new();
        for insn in code[start + 1..first].iter().chain(&code[last + 1..end]).filter(|i| !i.is_dead()) {
            *edge.entry(insn.opcode().to_owned()).or_default() += 1;
        }
        Ok(Self { body: counts, edge, pipes, length: body.len(), instructions: body.to_vec() })
    }
}

fn is_branch(insn: &Instruction) -> bool {
    insn.mnemonic() == "BRA"
}

/// Whether code between a forward branch and its target is a slow path: it makes a call.
fn is_call_around(between: &[Instruction]) -> bool {
    between.iter().any(|insn| insn.mnemonic() == "CALL")
}

/// The instructions of a body that run when no slow path is taken: a forward branch around a call is taken.
fn usual_path(function: &Function, first: usize, last: usize) -> Vec<usize> {
    let code = &function.instructions;
    let mut path = Vec::new();
    let mut i = first;
    while i <= last {
        path.push(i);
        let target = is_branch(&code[i]).then(|| code[i].targets.first().copied()).flatten();
        let skip = target
            .map(|address| function.index_at(address))
            .filter(|&to| to > i + 1 && to <= last && is_call_around(&code[i + 1..to]));
        i = skip.unwrap_or(i + 1);
    }
    path
}

/// One opcode of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct PerOp {
    /// Full mnemonic.
    pub opcode: String,
    /// Its pipe; `None` takes an issue slot only.
    pub pipe: Option<Pipe>,
    /// How many an operation.
    pub count: f64,
    /// Whether it is the instruction under test.
    pub target: bool,
}

/// What one operation of a chain form compiles to, proven by comparing two bodies.
#[derive(Debug, Clone, PartialEq)]
pub struct FormCode {
    /// Opcodes of one operation, the target first.
    pub per_op: Vec<PerOp>,
    /// Operations in the smaller body.
    pub ops: i64,
    /// Instructions of the larger body.
    pub length: usize,
}

impl FormCode {
    /// The target mnemonics that were seen, with `+` between them; for a compound operation nothing.
    #[must_use]
    pub fn opcode(&self) -> Option<String> {
        let seen: Vec<&str> = self.per_op.iter().filter(|p| p.target).map(|p| p.opcode.as_str()).collect();
        (!seen.is_empty()).then(|| seen.join("+"))
    }

    /// The pipe of the target; [`Pipe::Unknown`] where there is none or several.
    #[must_use]
    pub fn pipe(&self) -> Pipe {
        let mut pipes = self.per_op.iter().filter(|p| p.target).map(|p| p.pipe);
        match (pipes.next().flatten(), pipes.next()) {
            (Some(pipe), None) => pipe,
            _ => Pipe::Unknown,
        }
    }

    /// Whether two operations of several instructions are one lowering: as much work of each kind, but for what the
    /// scheduler leaves out or adds in places. Instructions that take an issue slot only do not count.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let mut difference: BTreeMap<&str, f64> = BTreeMap::new();
        for (code, sign) in [(self, 1.0), (other, -1.0)] {
            for op in code.per_op.iter().filter(|p| p.pipe.is_some()) {
                *difference.entry(kind_of_work(&op.opcode)).or_default() += sign * op.count;
            }
        }
        difference.values().all(|d| d.abs() < ALIKE)
    }

    /// `2 PRMT, 1 SHF.R.U32.HI`.
    #[must_use]
    pub fn text(&self) -> String {
        let parts: Vec<String> = self
            .per_op
            .iter()
            .filter(|p| p.pipe.is_some())
            .map(|p| format!("{} {}", (p.count * 100.0).round() / 100.0, p.opcode))
            .collect();
        parts.join(", ")
    }

    /// Opcodes of the operation that are not the target.
    pub fn companions(&self) -> impl Iterator<Item = &PerOp> {
        self.per_op.iter().filter(|p| !p.target)
    }
}

/// One instruction that was meant, and how many of it.
pub struct Meant<'a> {
    /// The entry, which knows its target mnemonics.
    pub entry: &'a Entry,
    /// Target instructions (compound: operations) in the two bodies.
    pub ops: [i64; 2],
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
    per_op.sort_by(|a, b| (b.target, &a.opcode).cmp(&(a.target, &b.opcode)));
    Ok(FormCode { per_op, ops: meant.first().map_or(0, |part| part.ops[0]), length: large.length })
}

/// Opcodes among which ptxas chooses by pipe for one and the same work count together.
fn kind_of_work(opcode: &str) -> &str {
    match opcode {
        "MOV" | "IMAD.MOV" | "IMAD.MOV.U32" => "MOV, IMAD.MOV",
        "IADD3" | "IMAD.IADD" | "VIADD" => "IADD3, IMAD.IADD, VIADD",
        "SHF.L.U32" | "IMAD.SHL.U32" | "IMAD.U32" => "SHF.L, IMAD.SHL, IMAD.U32",
        _ => opcode,
    }
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
        check_pair(small, large, &[Meant { entry, ops: [n, 2 * n] }])
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
            check_pair(&find(&small), &find(&large), &[Meant { entry: &ex2, ops: [n, 2 * n] }])
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
