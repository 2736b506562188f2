//! What a listing shows that is wrong on its own, without a baseline.

use crate::metrics::LocalAccess;
use crate::{Analysis, Function, Instruction, Interval, Listing, LoopKind, Unit, metrics};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The rules, by the name that `--allow` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LintRule {
    /// Registers are spilled inside a loop.
    SpillInLoop,
    /// Registers are spilled outside loops.
    Spill,
    /// A local array is accessed inside a loop.
    LocalArrayInLoop,
    /// Local memory is addressed by a computed register: an array index that registers cannot have.
    DynamicIndex,
    /// Every warpgroup matrix instruction is waited for before the next.
    WgmmaSerialised,
    /// Generic stores to shared memory reach a reader of the async proxy with no proxy fence between (PTX).
    MissingProxyFence,
}

impl LintRule {
    /// Every rule.
    pub const ALL: [Self; 6] = [
        Self::SpillInLoop,
        Self::Spill,
        Self::LocalArrayInLoop,
        Self::DynamicIndex,
        Self::WgmmaSerialised,
        Self::MissingProxyFence,
    ];

    /// The rule's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpillInLoop => "spill-in-loop",
            Self::Spill => "spill",
            Self::LocalArrayInLoop => "local-array-in-loop",
            Self::DynamicIndex => "dynamic-index",
            Self::WgmmaSerialised => "wgmma-serialised",
            Self::MissingProxyFence => "missing-proxy-fence",
        }
    }
}

/// Text that names no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no lint rule; the rules are {RULES}")]
pub struct UnknownRule(String);

const RULES: &str =
    "spill-in-loop, spill, local-array-in-loop, dynamic-index, wgmma-serialised, missing-proxy-fence";

impl std::str::FromStr for LintRule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let rule = Self::ALL.into_iter().find(|r| r.as_str() == text);
        rule.ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Which rule.
    pub rule: LintRule,
    /// The function, and the loop in it.
    pub place: String,
    /// The source line, where the listing has it, or the line of PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What is wrong and what usually helps.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        write!(f, "{} [{}]", self.message, self.rule.as_str())
    }
}

/// What the rules found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LintOutcome {
    /// Always `kbt.sass/1`.
    pub schema: String,
    /// The findings, by function.
    pub findings: Vec<Finding>,
}

impl LintOutcome {
    /// The findings of rules that are not allowed to be broken.
    #[must_use]
    pub fn new(findings: Vec<Finding>, allowed: &[LintRule]) -> Self {
        let findings = findings.into_iter().filter(|f| !allowed.contains(&f.rule)).collect();
        Self { schema: crate::outcome::SCHEMA.to_owned(), findings }
    }

    /// One finding a line.
    #[must_use]
    pub fn render_text(&self) -> String {
        if self.findings.is_empty() {
            return "no findings\n".to_owned();
        }
        self.findings.iter().map(|f| format!("{f}\n")).collect()
    }
}

/// Looks at every function of a listing.
#[must_use]
pub fn lint(listing: &Listing) -> Vec<Finding> {
    listing.functions.iter().flat_map(lint_function).collect()
}

fn lint_function(function: &Function) -> Vec<Finding> {
    let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
    let accesses = metrics::local_accesses(function);
    let mut found = Vec::new();
    let is_spill =
        |i: usize| matches!(accesses.get(i), Some(Some(LocalAccess::Spill | LocalAccess::SharedSpill)));
    let is_array = |i: usize| matches!(accesses.get(i), Some(Some(LocalAccess::Array)));
    // Each access is told once, for the innermost loop it is in.
    let innermost = |i: usize| {
        let holding = analysis.loops.iter().enumerate().filter(|(_, l)| l.kind == LoopKind::User);
        holding.filter(|(_, l)| l.body.contains(i)).max_by_key(|(_, l)| l.depth).map(|(n, _)| n)
    };
    let mut groups: Vec<(LintRule, Option<usize>, Vec<usize>)> = Vec::new();
    for i in analysis.whole().indices() {
        let home = if is_spill(i) || is_array(i) { innermost(i) } else { None };
        let rule = match (is_spill(i), is_array(i), home) {
            (true, _, Some(_)) => LintRule::SpillInLoop,
            (true, _, None) => LintRule::Spill,
            (_, true, Some(_)) => LintRule::LocalArrayInLoop,
            _ => continue,
        };
        match groups.iter_mut().find(|(r, h, _)| *r == rule && *h == home) {
            Some((_, _, list)) => list.push(i),
            None => groups.push((rule, home, vec![i])),
        }
    }
    for (rule, home, list) in groups {
        let (loads, stores): (Vec<usize>, Vec<usize>) =
            list.iter().partition(|i| function.instructions[**i].mnemonic().starts_with("LD"));
        let what = match rule {
            LintRule::LocalArrayInLoop => {
                "of a local array; an index that is known at compile time, or full unrolling, keeps it in registers"
            }
            _ => "of spilled registers; `kbt sass regs` sweeps the register budgets",
        };
        let message = format!("{} loads and {} stores {what}", loads.len(), stores.len());
        found.push(finding(&analysis, rule, home, list.first().copied(), message));
    }
    found.extend(dynamic_index(&analysis, &is_array));
    found.extend(serialised(&analysis));
    found
}

fn finding(
    analysis: &Analysis<'_>,
    rule: LintRule,
    home: Option<usize>,
    at: Option<usize>,
    message: String,
) -> Finding {
    let name = &analysis.function.name;
    let place = home.map_or_else(|| name.clone(), |l| format!("{name} {}", analysis.loop_name(l)));
    let line = at.and_then(|i| analysis.function.instructions.get(i)?.line.clone());
    Finding { rule, place, source: line.map(|l| format!("{}:{}", l.file, l.line)), message }
}

/// Local accesses whose address is not the stack pointer's.
fn dynamic_index(analysis: &Analysis<'_>, is_array: &impl Fn(usize) -> bool) -> Option<Finding> {
    let computed = |insn: &Instruction| {
        let address = insn.operand_list().find_map(|o| o.strip_prefix('['));
        address.is_some_and(|a| !a.starts_with("R1]") && !a.starts_with("R1+"))
    };
    let whole = analysis.whole();
    let mut list = whole.indices().filter(|i| is_array(*i) && computed(&analysis.function.instructions[*i]));
    let first = list.next()?;
    let message = format!(
        "{} accesses to local memory by a computed address: an array indexed at run time cannot stay in registers",
        1 + list.count()
    );
    Some(finding(analysis, LintRule::DynamicIndex, None, Some(first), message))
}

/// Two or more warpgroup matrix instructions, each waited for to the last before the next.
fn serialised(analysis: &Analysis<'_>) -> Vec<Finding> {
    let users = || analysis.loops.iter().enumerate().filter(|(_, l)| l.kind == LoopKind::User);
    let outer: BTreeSet<usize> = users().filter_map(|(_, l)| l.parent).collect();
    let inner = users().filter(|(n, _)| !outer.contains(n));
    let mut found = Vec::new();
    for (n, l) in inner {
        if let Some(count) = waits_between(analysis, &l.body) {
            let message = format!(
                "each of {count} wgmma is waited for before the next is issued: serialised by the compiler (its \
                 remarks C7510 and following give the reason) or by the source"
            );
            found.push(finding(
                analysis,
                LintRule::WgmmaSerialised,
                Some(n),
                l.body.indices().next(),
                message,
            ));
        }
    }
    found
}

/// How many warpgroup matrix instructions a part has, if a full wait stands between every two of them.
fn waits_between(analysis: &Analysis<'_>, part: &Interval) -> Option<usize> {
    let is_mma = |i: &Instruction| matches!(i.mnemonic(), "HGMMA" | "QGMMA" | "IGMMA" | "BGMMA");
    let is_full_wait = |i: &Instruction| {
        i.mnemonic() == "WARPGROUP" && i.has_modifier("DEPBAR") && i.operand_list().last() == Some("0x0")
    };
    let mut count = 0;
    let mut waited = true;
    for insn in part.indices().filter_map(|i| analysis.function.instructions.get(i)) {
        if is_full_wait(insn) {
            waited = true;
        } else if is_mma(insn) {
            if !waited {
                return None;
            }
            count += 1;
            waited = false;
        }
    }
    (count >= 2).then_some(count)
}
