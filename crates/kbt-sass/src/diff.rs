//! Two versions of one function: what kind of difference, and how they align.
//!
//! The first question is whether the bytes are the same, because then nothing else matters. Registers and
//! predicates are renamed away before orders are compared. A static order proves no speed; every result says
//! so.

use crate::metrics::{LocalAccess, local_accesses};
use crate::{Function, Graph, Instruction};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The kinds of difference, from none to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// The same bytes; without hex columns the same text.
    Identical,
    /// The same instructions in the same order with other control fields (stalls, barriers, yield, reuse).
    ControlOnly,
    /// The same order of the same operations with other registers, constants or addresses.
    RenamedOnly,
    /// The same operations in another order.
    Reordered,
    /// Operations were added or removed.
    Changed,
}

impl DiffKind {
    /// What it means, as a phrase.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Identical => "identical code",
            Self::ControlOnly => "the same instructions with other control fields",
            Self::RenamedOnly => "the same operations in the same order with other registers or constants",
            Self::Reordered => "the same operations in another order",
            Self::Changed => "operations added or removed",
        }
    }
}

/// The difference between two functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionDiff {
    /// The function in the first listing.
    pub a: String,
    /// The function in the second.
    pub b: String,
    /// What kind of difference.
    pub kind: DiffKind,
    /// Whether encodings were compared; else the text was.
    pub by_encoding: bool,
    /// Instructions of each.
    pub a_instructions: u64,
    /// Instructions of each.
    pub b_instructions: u64,
    /// Instructions whose control fields differ at the same place, where the instructions are the same.
    pub control_changes: u64,
    /// Operations that the second has more of, by full mnemonic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added: BTreeMap<String, u64>,
    /// Operations that the second has fewer of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub removed: BTreeMap<String, u64>,
    /// Spill loads and stores in each.
    pub a_spills: u64,
    /// Spill loads and stores in each.
    pub b_spills: u64,
    /// How the instructions align, cut to what differs; absent where the code is the same or too far apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alignment: Vec<AlignedLine>,
    /// What this says nothing about.
    pub caveat: String,
}

/// One line of an alignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignedLine {
    /// `-` in the first only, `+` in the second only, `~` in both with other registers, blank in both.
    pub mark: String,
    /// The instruction, with its address.
    pub text: String,
}

/// What is true of every static comparison.
pub const CAVEAT: &str =
    "a static order proves no speed: time both, interleaved, on the device before preferring one";

/// The alignment is given up where more edits than this are needed.
const MOST_EDITS: usize = 2000;
/// Equal lines shown around a difference.
const CONTEXT: usize = 2;

/// Compares two versions of a function, without the padding behind them.
#[must_use]
pub fn diff(a: &Function, b: &Function) -> FunctionDiff {
    let (left, right) = (code(a), code(b));
    let by_encoding = left.iter().chain(right).all(|i| i.encoding.is_some());
    let same_text = left.len() == right.len() && left.iter().zip(right).all(|(x, y)| same_text(x, y));
    let same_words = left.iter().zip(right).all(|(x, y)| x.encoding == y.encoding);
    let control_changes =
        if same_text { left.iter().zip(right).filter(|(x, y)| x.control != y.control).count() } else { 0 };
    let shapes = |code: &[Instruction]| code.iter().map(shape).collect::<Vec<_>>();
    let (left_shapes, right_shapes) = (shapes(left), shapes(right));
    let (added, removed) = changes(left, right);
    let kind = if same_text && (!by_encoding || same_words) && control_changes == 0 {
        DiffKind::Identical
    } else if same_text && control_changes > 0 {
        DiffKind::ControlOnly
    } else if left_shapes == right_shapes {
        DiffKind::RenamedOnly
    } else if sorted(&left_shapes) == sorted(&right_shapes) {
        DiffKind::Reordered
    } else {
        DiffKind::Changed
    };
    let alignment = if kind >= DiffKind::RenamedOnly {
        align(left, right, &left_shapes, &right_shapes)
    } else {
        Vec::new()
    };
    FunctionDiff {
        a: a.name.clone(),
        b: b.name.clone(),
        kind,
        by_encoding,
        a_instructions: left.len() as u64,
        b_instructions: right.len() as u64,
        control_changes: control_changes as u64,
        added,
        removed,
        a_spills: spills(a),
        b_spills: spills(b),
        alignment,
        caveat: CAVEAT.to_owned(),
    }
}

fn code(function: &Function) -> &[Instruction] {
    &function.instructions[..Graph::new(function).code_len]
}

/// The same text, whatever labels its targets have.
fn same_text(a: &Instruction, b: &Instruction) -> bool {
    if a.guard != b.guard || a.opcode() != b.opcode() {
        return false;
    }
    a.operands() == b.operands() || (!a.targets.is_empty() && a.targets == b.targets && shape(a) == shape(b))
}

/// An instruction with registers, predicates and code addresses renamed away.
fn shape(insn: &Instruction) -> String {
    let mut out = String::with_capacity(insn.text().len() + 4);
    if let Some(guard) = insn.guard {
        out.push_str(match (guard.uniform, guard.negated) {
            (false, false) => "@P ",
            (false, true) => "@!P ",
            (true, false) => "@UP ",
            (true, true) => "@!UP ",
        });
    }
    out.push_str(insn.opcode());
    let has_target = !insn.targets.is_empty();
    for operand in insn.operand_list() {
        out.push(' ');
        if operand.starts_with("`(") || (has_target && operand.starts_with("0x")) {
            out.push_str("TARGET");
        } else {
            rename(operand, &mut out);
        }
    }
    out
}

/// Drops the number of each register, uniform register, predicate, convergence barrier and `.reuse` mark.
fn rename(operand: &str, out: &mut String) {
    let operand = operand.replace(".reuse", "");
    let bytes = operand.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let start = i;
        while i < bytes.len() && (bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_') {
            i += 1;
        }
        if i == start {
            let end = operand[i..].chars().next().map_or(i + 1, |c| i + c.len_utf8());
            out.push_str(&operand[i..end]);
            i = end;
            continue;
        }
        let word = &operand[start..i];
        let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let class = &word[..word.len() - digits.len()];
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        out.push_str(if matches!(class, "R" | "UR" | "P" | "UP" | "B" | "SB") && is_number {
            class
        } else {
            word
        });
    }
}

fn sorted(shapes: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = shapes.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted
}

/// Operations added and removed, by full mnemonic.
fn changes(left: &[Instruction], right: &[Instruction]) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let mut balance: HashMap<&str, i64> = HashMap::new();
    for insn in left {
        *balance.entry(insn.opcode()).or_default() -= 1;
    }
    for insn in right {
        *balance.entry(insn.opcode()).or_default() += 1;
    }
    let pick = |sign: i64| {
        (balance.iter())
            .filter(|(_, n)| **n * sign > 0)
            .map(|(opcode, n)| ((*opcode).to_owned(), n.unsigned_abs()))
            .collect()
    };
    (pick(1), pick(-1))
}

fn spills(function: &Function) -> u64 {
    let is_spill =
        |a: &&Option<LocalAccess>| matches!(a, Some(LocalAccess::Spill | LocalAccess::SharedSpill));
    local_accesses(function).iter().filter(is_spill).count() as u64
}

/// The alignment after Myers, around the differences.
fn align(left: &[Instruction], right: &[Instruction], a: &[String], b: &[String]) -> Vec<AlignedLine> {
    let Some(pairs) = common(a, b) else { return Vec::new() };
    let line = |mark: &str, insn: &Instruction| AlignedLine {
        mark: mark.to_owned(),
        text: format!("{:#06x} {insn}", insn.address),
    };
    let mut lines = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (x, y) in pairs.into_iter().chain(std::iter::once((left.len(), right.len()))) {
        lines.extend(left[i..x].iter().map(|insn| line("-", insn)));
        lines.extend(right[j..y].iter().map(|insn| line("+", insn)));
        if let (Some(old), Some(new)) = (left.get(x), right.get(y)) {
            lines.push(if same_text(old, new) { line(" ", new) } else { line("~", new) });
        }
        (i, j) = (x + 1, y + 1);
    }
    let shown: BTreeSet<usize> = (lines.iter().enumerate())
        .filter(|(_, l)| l.mark != " ")
        .flat_map(|(n, _)| n.saturating_sub(CONTEXT)..=n + CONTEXT)
        .collect();
    lines.into_iter().enumerate().filter(|(n, _)| shown.contains(n)).map(|(_, l)| l).collect()
}

/// Index pairs of a longest common subsequence; `None` where more than [`MOST_EDITS`] edits are needed.
fn common(a: &[String], b: &[String]) -> Option<Vec<(usize, usize)>> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let most = (MOST_EDITS as isize).min(n + m);
    let at = |v: &[isize], k: isize| v[(k + most + 1) as usize];
    let mut v = vec![0_isize; (2 * most + 3) as usize];
    let mut trace: Vec<Vec<isize>> = Vec::new();
    for d in 0..=most {
        trace.push(v[(most + 1 - d - 1) as usize..=(most + 1 + d + 1) as usize].to_vec());
        for k in (-d..=d).step_by(2) {
            let down = k == -d || (k != d && at(&v, k - 1) < at(&v, k + 1));
            let mut x = if down { at(&v, k + 1) } else { at(&v, k - 1) + 1 };
            while x < n && x - k < m && a[x as usize] == b[(x - k) as usize] {
                x += 1;
            }
            v[(k + most + 1) as usize] = x;
            if x >= n && x - k >= m {
                return Some(backtrack(&trace, n, m));
            }
        }
    }
    None
}

fn backtrack(trace: &[Vec<isize>], n: isize, m: isize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut x, mut y) = (n, m);
    for (d, v) in trace.iter().enumerate().rev() {
        let d = d as isize;
        let at = |k: isize| v[(k + d + 1) as usize];
        let k = x - y;
        let down = k == -d || (k != d && at(k - 1) < at(k + 1));
        let before = if down { k + 1 } else { k - 1 };
        let (px, py) = if d == 0 { (0, 0) } else { (at(before), at(before) - before) };
        while x > px && y > py {
            x -= 1;
            y -= 1;
            pairs.push((x as usize, y as usize));
        }
        (x, y) = (px, py);
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: &[&str]) -> Function {
        let mut text = String::from("\t.section\t.text.f,\"ax\",@progbits\n");
        for (n, line) in lines.iter().enumerate() {
            let (body, hex) = line.split_once(" # ").unwrap_or((line, ""));
            text += &format!("/*{:04x}*/ {body} ;", n * 16);
            if let Some((low, high)) = hex.split_once(' ') {
                text += &format!(" /* 0x{low} */\n /* 0x{high} */");
            }
            text += "\n";
        }
        crate::parse(text.as_bytes()).unwrap().functions.remove(0)
    }

    fn check(a: &[&str], b: &[&str], kind: DiffKind) -> FunctionDiff {
        let found = diff(&function(a), &function(b));
        assert_eq!(found.kind, kind, "{found:?}");
        found
    }

    const LOW: &str = "00000a00ff017b82";

    #[test]
    fn the_kinds_are_told_apart() {
        let base = ["MUFU.EX2 R0, R1", "F2FP.BF16.F32.PACK_AB R2, R0, R1", "EXIT"];
        check(&base, &base, DiffKind::Identical);
        check(&base, &["MUFU.EX2 R7, R8", "F2FP.BF16.F32.PACK_AB R9, R7, R8", "EXIT"], DiffKind::RenamedOnly);
        check(&base, &["F2FP.BF16.F32.PACK_AB R2, R0, R1", "MUFU.EX2 R0, R1", "EXIT"], DiffKind::Reordered);
        let changed = check(&base, &["MUFU.RCP R0, R1", "EXIT"], DiffKind::Changed);
        assert_eq!(changed.added.keys().collect::<Vec<_>>(), ["MUFU.RCP"]);
        assert_eq!(changed.removed.keys().collect::<Vec<_>>(), ["F2FP.BF16.F32.PACK_AB", "MUFU.EX2"]);
        let control = check(
            &[&format!("NOP # {LOW} 000e300000000800")],
            &[&format!("NOP # {LOW} 000e320000000800")],
            DiffKind::ControlOnly,
        );
        assert_eq!(control.control_changes, 1);
        // Same text and control, another encoding: an operand that the text does not show.
        check(
            &[&format!("NOP # {LOW} 000e300000000800")],
            &[&format!("NOP # {LOW} 000e300000000801")],
            DiffKind::RenamedOnly,
        );
    }

    #[test]
    fn an_alignment_rebuilds_both_sides_for_every_small_pair() {
        let all: Vec<Vec<String>> = (0..3_u32.pow(4))
            .map(|n| (0..4).map(|d| ["A", "B", "C"][(n / 3_u32.pow(d) % 3) as usize].to_owned()).collect())
            .collect();
        let longest = |a: &[String], b: &[String]| {
            let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
            for i in 1..=a.len() {
                for j in 1..=b.len() {
                    let best = table[i - 1][j].max(table[i][j - 1]);
                    table[i][j] = if a[i - 1] == b[j - 1] { table[i - 1][j - 1] + 1 } else { best };
                }
            }
            table[a.len()][b.len()]
        };
        for a in all.iter().map(|a| &a[..3]) {
            for b in &all {
                let pairs = common(a, b).unwrap();
                assert!(pairs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
                assert!(pairs.iter().all(|(x, y)| a[*x] == b[*y]), "{a:?} {b:?} {pairs:?}");
                assert_eq!(pairs.len(), longest(a, b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn registers_predicates_targets_and_reuse_are_renamed_away() {
        let f = function(&["@!UP3 LDG.E R26.reuse, desc[UR4][R8.64+0x4] ", "EXIT"]);
        assert_eq!(shape(&f.instructions[0]), "@!UP LDG.E R desc[UR][R.64+0x4]");
    }
}
