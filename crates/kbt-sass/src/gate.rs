//! The gate: metrics of now against a committed baseline, for what tests cannot see.
//!
//! A baseline is a metrics outcome as it was written. Findings are ordered by how much they tell: spills
//! first, then how the units interleave, then counts.

use crate::LoopKind;
use crate::outcome::{MetricsOutcome, Section};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// What may change without failing the gate. Percentages are relative to the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tolerance {
    /// Bytes of spills that may be added to a function.
    pub spill_bytes: u64,
    /// Bytes of stack that may be added to a function.
    pub stack_bytes: u64,
    /// Whether local arrays may appear.
    pub local_arrays: bool,
    /// Change of the share of possible transitions, in percentage points.
    pub transitions_percent: f64,
    /// Change of instructions, in all and by pipe.
    pub instructions_percent: f64,
    /// Change of the sum of stalls.
    pub stalls_percent: f64,
    /// Change of tensor, copy and barrier operations.
    pub operations_percent: f64,
    /// Whether role regions and loops of the source may disappear.
    pub structure: bool,
    /// Functions whose names contain one of these are not compared.
    pub ignore: Vec<String>,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            spill_bytes: 0,
            stack_bytes: 0,
            local_arrays: false,
            transitions_percent: 5.0,
            instructions_percent: 5.0,
            stalls_percent: 10.0,
            operations_percent: 0.0,
            structure: false,
            ignore: Vec::new(),
        }
    }
}

/// What changed beyond its tolerance, most telling first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateRule {
    /// A function of the baseline is gone.
    Missing,
    /// Spilled bytes.
    Spills,
    /// A local array appeared.
    LocalArray,
    /// Stack bytes.
    Stack,
    /// Transitions between the two units.
    Interleave,
    /// A role region or a loop is gone.
    Structure,
    /// Tensor, copy or barrier operations.
    Operations,
    /// Stalls.
    Stalls,
    /// Instructions in all.
    Instructions,
    /// Instructions of one pipe.
    Pipe,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateFinding {
    /// Which rule.
    pub rule: GateRule,
    /// Function, and region or loop within it.
    pub place: String,
    /// What was and what is.
    pub message: String,
    /// How far beyond the baseline, in percent of it; the order within one rule.
    pub change_percent: f64,
}

impl fmt::Display for GateFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// The gate's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateReport {
    /// Always `kbt.sass.gate/1`.
    pub schema: String,
    /// How the counts of the baseline are known.
    pub baseline: kbt_evidence::Provenance,
    /// How the counts of now are known; it covers the findings.
    pub provenance: kbt_evidence::Provenance,
    /// Functions compared.
    pub compared: u64,
    /// Functions that the baseline does not have, which is no failure.
    pub new_functions: Vec<String>,
    /// What failed, most telling first.
    pub findings: Vec<GateFinding>,
}

/// How many findings people are shown.
const SHOWN: usize = 3;

impl GateReport {
    /// Whether nothing changed beyond its tolerance.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.is_empty()
    }

    /// The three most telling findings: the worst of each rule, in the order of the rules, before a second of any.
    #[must_use]
    pub fn most_telling(&self) -> Vec<&GateFinding> {
        let mut seen = BTreeSet::new();
        let (first, more): (Vec<_>, Vec<_>) = self.findings.iter().partition(|f| seen.insert(f.rule));
        let mut shown: Vec<&GateFinding> = first.into_iter().chain(more).take(SHOWN).collect();
        shown.sort_by_key(|f| f.rule);
        shown
    }

    /// The report as text: the three most telling findings and how many more there are.
    #[must_use]
    pub fn render_text(&self) -> String {
        if self.passes() {
            return format!("gate passed: {} functions as in the baseline\n", self.compared);
        }
        let mut out = String::new();
        for finding in self.most_telling() {
            out += &format!("{finding}\n");
        }
        if self.findings.len() > SHOWN {
            out += &format!("and {} more findings (--format json lists them)\n", self.findings.len() - SHOWN);
        }
        if self.baseline != self.provenance {
            out += &format!("baseline: {}\nnow: {}\n", self.baseline.by, self.provenance.by);
        }
        out
    }
}

/// Compares metrics with a baseline.
#[must_use]
pub fn gate(baseline: &MetricsOutcome, now: &MetricsOutcome, tolerance: &Tolerance) -> GateReport {
    let ignored = |name: &str| tolerance.ignore.iter().any(|i| name.contains(i.as_str()));
    // A listing of several members has a name more than once: the first is compared with the first.
    let mut now_by_name: BTreeMap<_, VecDeque<&Section>> = BTreeMap::new();
    for new in &now.functions {
        now_by_name.entry((new.name.as_str(), new.arch)).or_default().push_back(new);
    }
    let mut findings = Vec::new();
    let mut compared = 0;
    for old in baseline.functions.iter().filter(|f| !ignored(&f.name)) {
        let same = now_by_name.get_mut(&(old.name.as_str(), old.arch));
        match same.and_then(VecDeque::pop_front) {
            Some(new) => {
                compared += 1;
                compare(old, new, &place(old), tolerance, &mut findings);
            }
            None => findings.push(GateFinding {
                rule: GateRule::Missing,
                place: place(old),
                message: "is in the baseline and not in the listing".to_owned(),
                change_percent: 100.0,
            }),
        }
    }
    findings
        .sort_by(|a, b| a.rule.cmp(&b.rule).then(b.change_percent.abs().total_cmp(&a.change_percent.abs())));
    let known: BTreeSet<_> = baseline.functions.iter().map(|f| (&f.name, f.arch)).collect();
    let new = now.functions.iter().filter(|f| !ignored(&f.name) && !known.contains(&(&f.name, f.arch)));
    GateReport {
        schema: "kbt.sass.gate/1".to_owned(),
        baseline: baseline.provenance.clone(),
        provenance: now.provenance.clone(),
        compared,
        new_functions: new.map(|f| f.name.clone()).collect(),
        findings,
    }
}

fn place(function: &Section) -> String {
    function.arch.map_or_else(|| function.name.clone(), |arch| format!("{} ({arch})", function.name))
}

/// Compares one section, and its regions and loops by name.
fn compare(old: &Section, new: &Section, place: &str, tolerance: &Tolerance, out: &mut Vec<GateFinding>) {
    let mut find = |rule, message: String, change_percent| {
        out.push(GateFinding { rule, place: place.to_owned(), message, change_percent });
    };
    let (was, is) = (&old.local_memory, &new.local_memory);
    for (what, was, is) in [
        ("spill loads", was.spill_load_bytes, is.spill_load_bytes),
        ("spill stores", was.spill_store_bytes, is.spill_store_bytes),
        ("shared spill loads", was.shared_spill_load_bytes, is.shared_spill_load_bytes),
        ("shared spill stores", was.shared_spill_store_bytes, is.shared_spill_store_bytes),
    ] {
        if is > was.saturating_add(tolerance.spill_bytes) {
            find(GateRule::Spills, format!("{what} {was} -> {is} bytes"), percent(was, is));
        }
    }
    if is.array && !was.array && !tolerance.local_arrays {
        find(GateRule::LocalArray, "a local array is in local memory now".to_owned(), 100.0);
    }
    if is.stack_bytes > was.stack_bytes.saturating_add(tolerance.stack_bytes) {
        let message = format!("stack {} -> {} bytes", was.stack_bytes, is.stack_bytes);
        find(GateRule::Stack, message, percent(was.stack_bytes, is.stack_bytes));
    }
    let share = |s: &Section| 100.0 * s.interleave.transitions as f64 / s.interleave.possible.max(1) as f64;
    let (before, after) = (&old.interleave, &new.interleave);
    if (share(new) - share(old)).abs() > tolerance.transitions_percent {
        let message = format!(
            "{}/{} transitions {} of {} -> {} of {}",
            after.a, after.b, before.transitions, before.possible, after.transitions, after.possible
        );
        find(GateRule::Interleave, message, percent(before.transitions, after.transitions));
    }
    let mut out_of_reach = None;
    let mut beyond = |rule, what: &str, was: u64, is: u64, limit: f64| {
        if percent(was, is).abs() > limit {
            find(rule, format!("{what} {was} -> {is}"), percent(was, is));
        }
    };
    let (was, is) = (old.operations, new.operations);
    for (what, was, is) in [
        ("tensor operations", was.tensor, is.tensor),
        ("tensor-memory operations", was.tmem, is.tmem),
        ("bulk copies", was.tma, is.tma),
        ("mbarrier operations", was.mbarrier, is.mbarrier),
        ("barriers", was.barrier, is.barrier),
        ("proxy fences", was.proxy_fence, is.proxy_fence),
        ("warpgroup waits", was.warpgroup_wait, is.warpgroup_wait),
    ] {
        beyond(GateRule::Operations, what, was, is, tolerance.operations_percent);
    }
    if let (Some(was), Some(is)) = (old.issue.stall_cycles, new.issue.stall_cycles) {
        beyond(GateRule::Stalls, "cycles of stalls", was, is, tolerance.stalls_percent);
    } else if old.issue.stall_cycles.is_some() && old.instructions > 0 {
        // A check that falls away unseen is no check.
        let message = "the baseline has stall counts and this listing has none: it needs its encoding (-hex)";
        out_of_reach = Some(message.to_owned());
    }
    let limit = tolerance.instructions_percent;
    beyond(GateRule::Instructions, "instructions", old.instructions, new.instructions, limit);
    let pipes: BTreeSet<&String> = old.pipes.keys().chain(new.pipes.keys()).collect();
    for pipe in pipes {
        let count = |s: &Section| s.pipes.get(pipe).copied().unwrap_or(0);
        // A pipe with a handful of instructions moves by many percent for one of them.
        let (was, is) = (count(old), count(new));
        if was.abs_diff(is) > 2 {
            beyond(GateRule::Pipe, &format!("instructions on {pipe}"), was, is, limit);
        }
    }
    if let Some(message) = out_of_reach {
        out.push(GateFinding {
            rule: GateRule::Stalls,
            place: place.to_owned(),
            message,
            change_percent: 100.0,
        });
    }
    for part in old.regions.iter().chain(&old.loops) {
        let now = new.regions.iter().chain(&new.loops).find(|p| p.name == part.name && p.kind == part.kind);
        match now {
            Some(now) => compare(part, now, &format!("{place} {}", part.name), tolerance, out),
            // Loops that wait or replay come and go with the compiler.
            None if !tolerance.structure && part.of_loop.is_none_or(|l| l.kind == LoopKind::User) => {
                out.push(GateFinding {
                    rule: GateRule::Structure,
                    place: format!("{place} {}", part.name),
                    message: "is in the baseline and not in the code: unrolled, split or gone".to_owned(),
                    change_percent: 100.0,
                });
            }
            None => {}
        }
    }
}

fn percent(was: u64, is: u64) -> f64 {
    match (was, is) {
        (0, 0) => 0.0,
        (0, _) => 100.0,
        _ => 100.0 * (is as f64 - was as f64) / was as f64,
    }
}
