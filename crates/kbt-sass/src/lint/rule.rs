//! The rules: names, why each matters, what usually helps.

use serde::{Deserialize, Serialize};

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
    /// Warpgroup matrix instructions are waited for one by one.
    WgmmaSerialised,
    /// Generic stores to shared memory reach a reader of the async proxy with no proxy fence between (PTX).
    MissingProxyFence,
    /// A consumer multiplies more before the second barrier than its producer stores before the first (PTX).
    HandoffShort,
    /// The compiler ignored a register budget.
    #[serde(rename = "register-budget-ignored")]
    BudgetIgnored,
}

/// A rule's row.
struct Row {
    rule: LintRule,
    name: &'static str,
    why: &'static str,
    fix: &'static str,
}

const TABLE: [Row; 8] = [
    Row {
        rule: LintRule::SpillInLoop,
        name: "spill-in-loop",
        why: "every turn of the loop pays the loads and stores, and results stay the same bit for bit, so no test \
              sees it",
        fix: "give the role more registers (`kbt sass regs` sweeps the budgets), or keep less alive across the loop",
    },
    Row {
        rule: LintRule::Spill,
        name: "spill",
        why: "registers went to memory and back, once a thread",
        fix: "give the kernel more registers (`kbt sass regs` sweeps the budgets), or allow the rule",
    },
    Row {
        rule: LintRule::LocalArrayInLoop,
        name: "local-array-in-loop",
        why: "an array that registers could hold is loaded and stored on every turn",
        fix: "index it by constants: unroll the loops over it to the end, and pass no address of it to a function",
    },
    Row {
        rule: LintRule::DynamicIndex,
        name: "dynamic-index",
        why: "registers have no index, so an array that is indexed at run time lives in local memory whole",
        fix: "unroll until the index is known, select among values, or put the array in shared memory",
    },
    Row {
        rule: LintRule::WgmmaSerialised,
        name: "wgmma-serialised",
        why: "the tensor core idles between products that should overlap",
        fix: "do not touch accumulators between fence and wait, make no calls there (device asserts are calls), and \
              leave registers for all accumulators",
    },
    Row {
        rule: LintRule::MissingProxyFence,
        name: "missing-proxy-fence",
        why: "wgmma, tcgen05 and bulk copies read shared memory through the async proxy, which may not see ordinary \
              stores yet: results are wrong now and then",
        fix: "let every storing thread run `fence.proxy.async.shared::cta` after its stores and before it arrives",
    },
    Row {
        rule: LintRule::HandoffShort,
        name: "handoff-short",
        why: "the consumer multiplies a part of the tile that is not stored yet when the first barrier opens",
        fix: "round both fractions from the same split and check first chunks x tiles >= first tiles x chunks",
    },
    Row {
        rule: LintRule::BudgetIgnored,
        name: "register-budget-ignored",
        why: "the roles keep the registers of the launch, so the large role spills or the kernel has fewer CTAs",
        fix: "cap the registers at entry (`__launch_bounds__(THREADS, 1)` or `.maxnreg`), and let roles be the sides \
              of one if/else",
    },
];

impl LintRule {
    /// Every rule.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.rule)
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.rule == self).unwrap_or(&TABLE[0])
    }

    /// The rule's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Why it matters.
    #[must_use]
    pub fn why(self) -> &'static str {
        self.row().why
    }

    /// What usually helps.
    #[must_use]
    pub fn fix(self) -> &'static str {
        self.row().fix
    }
}

/// Text that names no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no lint rule; the rules are {names}", names = names())]
pub struct UnknownRule(String);

fn names() -> String {
    LintRule::all().map(LintRule::as_str).collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for LintRule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let rule = Self::all().find(|r| r.as_str() == text);
        rule.ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_row_and_its_name_back() {
        for (n, rule) in LintRule::all().enumerate() {
            assert_eq!(rule as usize, n, "{rule:?}");
            assert_eq!(rule.as_str().parse(), Ok(rule));
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.as_str());
        }
        let message = "spil".parse::<LintRule>().unwrap_err().to_string();
        assert!(message.contains("spill-in-loop") && message.contains("handoff-short"), "{message}");
    }
}
