//! What a listing, its PTX or its compiler's remarks show that is wrong on its own, without a baseline.
//!
//! [`lint`] looks at machine code, [`lint_ptx`] at PTX, [`lint_remark`] at what ptxas said. A [`Finding`] names
//! the place, what was seen, why it matters and what usually helps; [`LintRule`] holds the last two.

mod ptx;
mod remark;
mod rule;
mod sass;

pub use ptx::{PtxLint, lint_ptx};
pub use remark::lint_remark;
pub use rule::{LintRule, UnknownRule};
pub use sass::lint;

use crate::ptx::Handoff;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Which rule.
    pub rule: LintRule,
    /// The function, and the loop in it.
    pub place: String,
    /// The compile target, for machine code: a fatbin has one function for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The address of the first instruction concerned, for machine code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The source line, where the listing has it, or the line of PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What was seen.
    pub message: String,
    /// Why it matters.
    pub why: String,
    /// What usually helps.
    pub fix: String,
}

impl Finding {
    /// A finding at a place, with its rule's reason and remedy.
    #[must_use]
    pub fn new(rule: LintRule, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule,
            place: place.into(),
            arch: None,
            address: None,
            source: None,
            message: message.into(),
            why: rule.why().to_owned(),
            fix: rule.fix().to_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        for at in self.arch.iter().chain(&self.address).chain(&self.source) {
            write!(f, "{at}: ")?;
        }
        write!(f, "{} [{}]", self.message, self.rule.as_str())?;
        write!(f, "\n  why: {}\n  fix: {}", self.why, self.fix)
    }
}

/// What the rules found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LintOutcome {
    /// Always `kbt.sass.lint/1`.
    pub schema: String,
    /// How the listing is known; it covers the counts.
    pub provenance: Provenance,
    /// The findings, by function; any fails the lint.
    pub findings: Vec<Finding>,
    /// How many findings were left out, because their rules may be broken.
    pub allowed: u64,
    /// The two-barrier handoffs of the PTX.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handoffs: Vec<Handoff>,
    /// What could not be decided, and why; no failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl LintOutcome {
    /// The findings of rules that are not allowed to be broken, each once: a container may hold one function twice.
    #[must_use]
    pub fn new(findings: Vec<Finding>, ptx: PtxLint, allowed: &[LintRule], provenance: Provenance) -> Self {
        let mut all: Vec<Finding> = Vec::with_capacity(findings.len() + ptx.findings.len());
        let mut seen = HashSet::new();
        all.extend(findings.into_iter().chain(ptx.findings).filter(|f| seen.insert(f.clone())));
        let (left_out, findings): (Vec<_>, Vec<_>) = all.into_iter().partition(|f| allowed.contains(&f.rule));
        Self {
            schema: "kbt.sass.lint/1".to_owned(),
            provenance,
            findings,
            allowed: left_out.len() as u64,
            handoffs: ptx.handoffs,
            notes: ptx.notes,
        }
    }

    /// The findings, each with its reason and remedy; then handoffs and notes.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out: String = self.findings.iter().map(|f| format!("{f}\n")).collect();
        out.extend(self.handoffs.iter().map(|h| format!("{h}\n")));
        out.extend(self.notes.iter().map(|n| format!("note: {n}\n")));
        match (self.findings.len(), self.allowed) {
            (0, 0) => out += "no findings\n",
            (1, 0) => out += "1 finding\n",
            (n, 0) => out += &format!("{n} findings\n"),
            (n, allowed) => out += &format!("{n} findings, and {allowed} of rules that are allowed\n"),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_holds_twice_is_told_once_and_other_targets_are_told_apart() {
        let of = |arch: &str| Finding {
            arch: Some(arch.to_owned()),
            address: Some("0x0040".to_owned()),
            ..Finding::new(LintRule::Spill, "kernel", "1 loads and 0 stores of spilled registers")
        };
        let found = vec![of("sm_90a"), of("sm_100a"), of("sm_90a")];
        let outcome = LintOutcome::new(found, PtxLint::default(), &[], Provenance::mined("ptxas"));
        let archs: Vec<_> = outcome.findings.iter().filter_map(|f| f.arch.as_deref()).collect();
        assert_eq!(archs, ["sm_90a", "sm_100a"]);
        let text = outcome.render_text();
        assert!(text.contains("kernel: sm_100a: 0x0040: 1 loads") && text.contains("2 findings"), "{text}");
    }
}
