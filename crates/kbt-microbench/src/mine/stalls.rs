//! What the stall counts of a stream say: the cycles from one instruction under test to the next, and from one to
//! the instruction that needs its result.

use crate::spec::Entry;
use kbt_device::{Arch, Pipe};
use kbt_sass::{Instruction, pipe_of};
use std::collections::BTreeMap;

/// Fewer pairs of neighbours than this are no stream.
pub(super) const PAIRS: usize = 8;
/// Share of the pairs that must be alike.
const ALIKE: f64 = 0.75;

/// A wait that most pairs of a stream agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    /// Cycles, as written.
    pub clk: u32,
    /// Whether the first of the pair releases a scoreboard when its result is there.
    pub scoreboard: bool,
}

/// Cycles from each target to the next instruction on its pipe, where no other work stands between the two and the
/// second does not wait for the first one's result.
/// Instructions that take an issue slot only spell out longer waits and belong to the target before them. Before
/// an instruction on another pipe the stall tells nothing: that may issue at once.
pub(super) fn neighbours(window: &[Instruction], entry: &Entry, arch: Arch) -> Option<Vec<Interval>> {
    let pipe = |insn: &Instruction| pipe_of(Some(arch), insn).pipe;
    let mut pairs = Vec::new();
    let mut open: Option<(&Instruction, Interval)> = None;
    for insn in window {
        let control = insn.control?;
        let stall = u32::from(control.stall);
        if is_filler(insn) {
            if let Some((_, interval)) = &mut open {
                interval.clk += stall;
            }
            continue;
        }
        let is_target = entry.is_target(insn.opcode());
        if let Some((target, interval)) = open.take() {
            let same = pipe(insn) == pipe(target) && pipe(insn) != Some(Pipe::Unknown);
            let waits = result(target).is_some_and(|r| reads(insn, r));
            pairs.extend(((is_target || same) && !waits).then_some(interval));
        }
        if is_target {
            let scoreboard = control.write_barrier.is_some();
            open = Some((insn, Interval { clk: stall, scoreboard }));
        }
    }
    Some(pairs)
}

/// Cycles from each target to the next instruction, where that reads its result and is on the same pipe. With other
/// work between the two, another dependence may be what holds the second back.
pub(super) fn to_consumer(window: &[Instruction], entry: &Entry, arch: Arch) -> Option<Vec<Interval>> {
    let mut gaps = Vec::new();
    for (at, producer) in window.iter().enumerate().filter(|(_, i)| entry.is_target(i.opcode())) {
        let control = producer.control?;
        let Some(written) = result(producer) else { continue };
        let mut clk = u32::from(control.stall);
        for later in &window[at + 1..] {
            if reads(later, written) {
                if pipe_of(Some(arch), producer).pipe == pipe_of(Some(arch), later).pipe {
                    gaps.push(Interval { clk, scoreboard: control.write_barrier.is_some() });
                }
                break;
            }
            if !is_filler(later) {
                break;
            }
            clk += u32::from(later.control?.stall);
        }
    }
    Some(gaps)
}

/// The register that an instruction writes first.
fn result(insn: &Instruction) -> Option<&str> {
    insn.operand_list().next().and_then(register)
}

fn reads(insn: &Instruction, wanted: &str) -> bool {
    let guard = insn.guard.is_some_and(|g| g.to_string().trim_start_matches(['@', '!']) == wanted);
    guard || insn.operand_list().skip(1).any(|operand| register(operand) == Some(wanted))
}

/// `R12` of `-|R12.H0_H0|.reuse`; `P0` of `!P0`.
fn register(operand: &str) -> Option<&str> {
    let start = operand.trim().trim_start_matches(['-', '!', '~', '|', '[']);
    let end = start.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(start.len());
    let name = &start[..end];
    let digits = name.trim_start_matches(|c: char| c.is_ascii_uppercase());
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && digits.len() < name.len())
        .then_some(name)
}

pub(super) fn is_filler(insn: &Instruction) -> bool {
    insn.mnemonic() == "NOP" || insn.is_dead()
}

/// Why stall counts are no interval.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unclear {
    /// Too few pairs.
    Few(usize),
    /// They differ: the most frequent, and its share of them.
    Unlike(u32, f64),
}

/// The interval that enough of the pairs agree on.
pub(super) fn common(pairs: &[Interval]) -> Result<Interval, Unclear> {
    let mut counts: BTreeMap<(u32, bool), usize> = BTreeMap::new();
    for pair in pairs {
        *counts.entry((pair.clk, pair.scoreboard)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, n)| *n);
    let Some(((clk, scoreboard), n)) = most.filter(|_| pairs.len() >= PAIRS) else {
        return Err(Unclear::Few(pairs.len()));
    };
    let share = n as f64 / pairs.len() as f64;
    if share < ALIKE {
        return Err(Unclear::Unlike(clk, share));
    }
    Ok(Interval { clk, scoreboard })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use kbt_sass::Control;

    fn entry(target: &str) -> Entry {
        let text = format!(
            "instructions:\n  - name: t\n    target: [{target}]\n    chains: {{f: {{x: b32, step: 'op %x;'}}}}\n"
        );
        Spec::from_yaml(&text, "test").unwrap().instructions.remove(0)
    }

    fn code(lines: &[(&str, u8, bool)]) -> Vec<Instruction> {
        let each = |(at, (text, stall, scoreboard)): (usize, &(&str, u8, bool))| {
            let (opcode, operands) = text.split_once(' ').unwrap_or((text, ""));
            let mut insn = Instruction::new(16 * at as u64, None, opcode, operands);
            insn.control = Some(Control {
                stall: *stall,
                yield_flag: false,
                write_barrier: scoreboard.then_some(0),
                read_barrier: None,
                wait_mask: 0,
                reuse: 0,
            });
            insn
        };
        lines.iter().enumerate().map(each).collect()
    }

    #[test]
    fn only_neighbours_on_one_pipe_tell_the_interval_and_nops_belong_to_the_one_before() {
        let window = code(&[
            ("ISETP.GE.AND P0, PT, R1, R2, PT", 2, false),
            ("ISETP.GE.AND P1, PT, R3, R2, PT", 13, false),
            ("FFMA R1, R1, R4, R5", 2, false),
            ("ISETP.GE.AND P2, PT, R5, R2, PT", 1, false),
            ("NOP", 1, false),
            ("ISETP.GE.AND P3, PT, R6, R2, PT", 3, false),
            ("SEL R1, R1, R4, P0", 7, false),
            ("ISETP.GE.AND P4, PT, R7, R2, PT", 9, false),
            ("SEL R7, R7, R4, P4", 7, false),
        ]);
        let pairs = neighbours(&window, &entry("ISETP.GE.AND"), Arch::SM_90A).unwrap();
        let clk: Vec<u32> = pairs.iter().map(|i| i.clk).collect();
        assert_eq!(
            clk,
            [2, 2, 3],
            "the pair with FFMA, on another pipe, tells nothing; that with SEL does, but where it waits"
        );
    }

    #[test]
    fn a_consumer_is_who_reads_the_result_on_the_same_pipe() {
        let window = code(&[
            ("FSETP.GEU.AND P0, PT, R1, R2, PT", 3, false),
            ("NOP", 1, false),
            ("FSEL R1, R1, R4.reuse, !P0", 5, false),
            ("MUFU.EX2 R1, -|R1|", 8, true),
            ("FSETP.GEU.AND P1, PT, R1, R2, PT", 2, false),
            ("LOP3.LUT R9, R8, R8, RZ, 0x3c, !PT", 2, false),
            ("FSEL R1, R1, R4, P1", 5, false),
        ]);
        let gap = |target: &str| -> Vec<u32> {
            to_consumer(&window, &entry(target), Arch::SM_90A).unwrap().iter().map(|i| i.clk).collect()
        };
        assert_eq!(gap("FSETP.GEU.AND"), [4], "not over LOP3");
        assert_eq!(gap("FSEL"), Vec::<u32>::new(), "the consumer is on another pipe");
        assert_eq!(register("-|R12.H0_H0|.reuse"), Some("R12"));
        assert_eq!(["UR4", "0x10", "PT", "!P0"].map(register), [Some("UR4"), None, None, Some("P0")]);
    }

    #[test]
    fn unlike_and_few_pairs_are_no_interval() {
        let pairs = |list: &[u32]| -> Vec<Interval> {
            list.iter().map(|&clk| Interval { clk, scoreboard: false }).collect()
        };
        assert_eq!(common(&pairs(&[2; 8])), Ok(Interval { clk: 2, scoreboard: false }));
        assert_eq!(common(&pairs(&[2; 7])), Err(Unclear::Few(7)));
        assert_eq!(common(&pairs(&[2, 2, 2, 2, 4, 4, 4, 4])), Err(Unclear::Unlike(4, 0.5)));
        assert!(matches!(common(&pairs(&[2, 2, 2, 2, 2, 4, 4, 4])), Err(Unclear::Unlike(2, _))));
    }
}
