//! The schedule step's outcome: named variants of one region, compared pairwise, and what that rules out. How it
//! is collected is in `builder`.

use super::Section;
use crate::{Bound, DiffKind};
use kbt_evidence::{Evidence, Figure, FixClass, Provenance, Standing, Step, Unit as Measure, Verdict};
use serde::{Deserialize, Serialize};

/// What makes a variant differ from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VariantKind {
    /// Another order of the same source.
    SourceOrder,
    /// The same source at another optimisation level: the compiler's scheduler off or on.
    OptLevel,
    /// The same source with trace stamps.
    Trace,
    /// Anything else: a compiler version, a formula.
    Other,
}

/// One variant's machine code in the chosen region.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What makes it differ.
    pub kind: VariantKind,
    /// The assembler and what it was told: `ptxas 13.0.88 -O3`.
    pub built_by: String,
    /// Counts over the region.
    pub metrics: Section,
    /// Where the function spills registers, where that is not in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spills_elsewhere: Option<String>,
    /// The bound of the region, where a profile was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Trips of this variant's region that do what one trip of the first variant's does, where the two unroll their loop
    /// alike or differently; absent where that is not known, and then counts a trip say nothing beside the first's.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub trips: Option<f64>,
    /// What the compiler remarked: serialised wgmma, an ignored register budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// How long the variant ran, where somebody timed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Figure>,
    /// How the counts are known.
    pub provenance: Provenance,
}

#[allow(clippy::unnecessary_wraps, reason = "as serde calls it")]
const fn one() -> Option<f64> {
    Some(1.0)
}

#[allow(clippy::ref_option, clippy::float_cmp, reason = "as serde calls it; one is exact")]
fn is_one(trips: &Option<f64>) -> bool {
    *trips == Some(1.0)
}

/// Two variants compared over the whole function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The first variant's name.
    pub a: String,
    /// The second's.
    pub b: String,
    /// What kind of difference.
    pub kind: DiffKind,
    /// Instructions that the second has more of.
    pub added: u64,
    /// Instructions that the second has fewer of.
    pub removed: u64,
    /// Spill loads and stores that the second has more of (negative: fewer).
    pub spills_change: i64,
    /// How the counts are known.
    pub provenance: Provenance,
}

/// What the schedule step found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleOutcome {
    /// Always [`SCHEMA`](super::SCHEMA).
    pub schema: String,
    /// The kernel or function looked at.
    pub subject: String,
    /// The region that the metrics are of: a name, or `whole function`.
    pub region: String,
    /// The variants; the first is the one in use.
    pub variants: Vec<Variant>,
    /// All pairs.
    pub comparisons: Vec<Comparison>,
    /// What was not understood, or could not be had.
    pub problems: Vec<String>,
    /// What no static comparison can say.
    pub caveat: String,
}

/// Headroom up to this counts as none: below the run-to-run spread of one kernel.
const NO_HEADROOM_PERCENT: f64 = 5.0;
/// Two shares of the possible transitions closer than this are equally interleaved.
const SAME_SHARE_PERCENT: f64 = 5.0;

impl ScheduleOutcome {
    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        let Some(first) = self.variants.first() else { return format!("{}: no variant", self.subject) };
        let units = &first.metrics.interleave;
        let mut line = format!(
            "{} in {}: {}/{} transitions {} of {}",
            self.subject, self.region, units.a, units.b, units.transitions, units.possible
        );
        if let Some(kind) = self.source_pairs().map(|(c, _, _)| c.kind).max() {
            line += &format!("; source orders: {}", kind.phrase());
        }
        if let Some(headroom) = first.bound.as_ref().and_then(|b| b.headroom_percent) {
            line += &format!("; headroom {headroom:.0} %");
        }
        let local = &first.metrics.local_memory;
        let spills = match (&first.spills_elsewhere, local.spills()) {
            (_, true) => "; spills".to_owned(),
            (Some(place), false) => format!("; no spills in it, but {place}"),
            (None, false) => "; no spills".to_owned(),
        };
        line + &spills
    }

    /// What the step says of each class of fix that machine code can speak about.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        if self.variants.is_empty() {
            let reason = "no machine code was compared";
            return vec![
                Verdict::new(FixClass::Reorder, Standing::Refused, Step::Schedule, reason)
                    .next("kbt sass metrics FILE, with the kernel's cubin"),
            ];
        }
        vec![self.reorder(), self.register_budget()]
    }

    /// Pairs of source orders that are compiled alike.
    fn source_pairs(&self) -> impl Iterator<Item = (&Comparison, &Variant, &Variant)> {
        self.comparisons.iter().filter_map(|c| {
            let variant = |name: &str| self.variants.iter().find(|v| v.name == name);
            let (a, b) = (variant(&c.a)?, variant(&c.b)?);
            let sources = [a, b].iter().all(|v| v.kind == VariantKind::SourceOrder);
            (sources && a.built_by == b.built_by).then_some((c, a, b))
        })
    }

    fn reorder(&self) -> Verdict {
        if let Some(verdict) = self.reorder_by_time() {
            return verdict;
        }
        let first = &self.variants[0];
        let headroom = first.bound.as_ref().and_then(|b| Some((b, b.headroom_percent?)));
        let pairs: Vec<_> = self.source_pairs().collect();
        let undone = !pairs.is_empty() && pairs.iter().all(|(c, a, b)| compiled_alike(c, a, b));
        let full = headroom.is_some_and(|(_, percent)| percent <= NO_HEADROOM_PERCENT);
        let (standing, reason) = match (pairs.is_empty(), undone, headroom.is_some(), full) {
            (false, true, _, true) => (
                Standing::RuledOut,
                "source orders compile to equally interleaved code that is near its bound",
            ),
            (true, _, _, true) => (Standing::RuledOut, "the code as scheduled is near its bound"),
            (false, true, false, _) => (
                Standing::Open,
                "source orders compile to equally interleaved code; without rates the headroom is unknown",
            ),
            (false, true, true, false) => {
                (Standing::Open, "the compiler undoes source order, but its schedule has headroom")
            }
            (false, false, _, _) => {
                (Standing::Open, "source order changes the machine code: time the variants")
            }
            (true, _, true, false) => (Standing::Open, "the schedule has headroom"),
            (true, _, false, _) => {
                (Standing::Refused, "no second source order and no rates: nothing to compare with")
            }
        };
        let mut verdict = Verdict::new(FixClass::Reorder, standing, Step::Schedule, reason);
        for (comparison, a, b) in pairs {
            let statement = format!("`{}` and `{}`: {}", a.name, b.name, comparison.kind.phrase());
            let evidence = if compiled_alike(comparison, a, b) == undone {
                Evidence::supports(statement, transition_figures(a, b))
            } else {
                Evidence::against(statement, transition_figures(a, b))
            };
            verdict = verdict.with(evidence);
        }
        if let Some((bound, percent)) = headroom {
            let figure =
                Figure::new("schedule headroom", percent, Measure::Percent, bound.provenance.clone());
            let least = match bound.left_out_instructions {
                0 => self.region.clone(),
                n if self.region.contains(':') => {
                    format!("the cheapest trip of {} ({n} instructions need not execute)", self.region)
                }
                n => format!("the cheapest way to a result ({n} instructions need not execute)"),
            };
            let statement = format!(
                "{least} takes at least {:.0} cycles in {}, scheduled {:.0}",
                bound.lower_bound_cycles,
                bound.busiest,
                bound.scheduled_cycles.unwrap_or(bound.lower_bound_cycles)
            );
            verdict = verdict.with(Evidence::supports(statement, vec![figure]));
        }
        if let Some(evidence) = self.timed() {
            verdict = verdict.with(evidence);
        }
        match standing {
            Standing::RuledOut => verdict,
            Standing::Refused => {
                verdict.next("compile a second source order; kbt microbench run --out PROFILE.yaml")
            }
            _ => verdict.next("time both orders and -O1 against -O3, interleaved, on the device"),
        }
    }

    /// Two source orders that were timed against each other: the times decide, the counts explain.
    fn reorder_by_time(&self) -> Option<Verdict> {
        let (comparison, a, b) =
            self.source_pairs().find(|(_, a, b)| a.time.is_some() && b.time.is_some())?;
        let (slow, fast) = match (a.time.as_ref()?, b.time.as_ref()?) {
            (x, y) if x.value >= y.value => ((a, x), (b, y)),
            (x, y) => ((b, y), (a, x)),
        };
        let apart = slow.1.value / fast.1.value - 1.0;
        let noise = spread(slow.1).max(spread(fast.1)).max(SAME_TIME);
        let times = vec![slow.1.clone(), fast.1.clone()];
        let shares = |v: &Variant| {
            format!("`{}` {} of {}", v.name, v.metrics.interleave.transitions, v.metrics.interleave.possible)
        };
        let counts = format!("{}; transitions: {}, {}", comparison.kind.phrase(), shares(a), shares(b));
        let percent = |x: f64| format!("{:.1} %", 100.0 * x);
        let verdict = if apart <= noise {
            let reason = format!(
                "two source orders run equally fast: {} apart, {} of spread",
                percent(apart),
                percent(noise)
            );
            Verdict::new(FixClass::Reorder, Standing::RuledOut, Step::Schedule, reason)
        } else if fast.0.name == self.variants[0].name {
            let reason = format!("the source order in use is the faster one, by {}", percent(apart));
            Verdict::new(FixClass::Reorder, Standing::RuledOut, Step::Schedule, reason)
        } else {
            let reason = format!("source order `{}` is {} faster", fast.0.name, percent(apart));
            Verdict::new(FixClass::Reorder, Standing::Recommended, Step::Schedule, reason)
                .next(format!("use source order `{}`", fast.0.name))
        };
        Some(
            verdict
                .with(Evidence::supports("timed in turn on the device", times))
                .with(Evidence::supports(counts, Vec::new())),
        )
    }

    /// Timed variants whose interleaving differs: whether that mattered.
    fn timed(&self) -> Option<Evidence> {
        let mut timed: Vec<_> = self.variants.iter().filter_map(|v| Some((v, v.time.as_ref()?))).collect();
        timed.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let ((fast, low), (slow, high)) = (timed.first()?, timed.last().filter(|_| timed.len() > 1)?);
        let statement = format!(
            "`{}` ({} transitions) is {:.1} % slower than `{}` ({})",
            slow.name,
            slow.metrics.interleave.transitions,
            100.0 * (high.value / low.value - 1.0),
            fast.name,
            fast.metrics.interleave.transitions
        );
        Some(Evidence::supports(statement, vec![(*low).clone(), (*high).clone()]))
    }

    fn register_budget(&self) -> Verdict {
        let first = &self.variants[0];
        let local = &first.metrics.local_memory;
        let bytes =
            |name: &str, n: u64| Figure::new(name, n as f64, Measure::Bytes, first.provenance.clone());
        let figures = vec![
            bytes("spill loads", local.spill_load_bytes + local.shared_spill_load_bytes),
            bytes("spill stores", local.spill_store_bytes + local.shared_spill_store_bytes),
        ];
        let serialised: Vec<_> = first.remarks.iter().filter(|r| r.contains("serialized")).collect();
        let new = |standing, reason| Verdict::new(FixClass::RegisterBudget, standing, Step::Schedule, reason);
        if local.spills() {
            return new(Standing::Recommended, "registers are spilled in the region")
                .with(Evidence::supports(format!("`{}` spills in {}", first.name, self.region), figures))
                .next("kbt sass regs FILE.ptx --arch ARCH sweeps the budgets");
        }
        if let Some(place) = &first.spills_elsewhere {
            let reason = format!("no register is spilled in the region, but {place}");
            return new(Standing::Open, &reason)
                .with(Evidence::supports(format!("`{}`: {place}", first.name), Vec::new()))
                .next("kbt sass regs FILE.ptx --arch ARCH sweeps the budgets");
        }
        let no_spill =
            Evidence::supports(format!("`{}` spills nothing in {}", first.name, self.region), figures);
        if let Some(remark) = serialised.first() {
            return new(Standing::Open, "the compiler serialised wgmma, which too few registers can cause")
                .with(Evidence::supports((*remark).clone(), Vec::new()))
                .with(no_spill)
                .next("kbt sass regs FILE.ptx --arch ARCH sweeps the budgets");
        }
        new(Standing::RuledOut, "no register is spilled in the region and nothing was serialised")
            .with(no_spill)
    }
}

/// Times closer than this are the same, however small their spread: 1 %.
const SAME_TIME: f64 = 0.01;

/// Half the width of a figure's spread, relative to its value.
fn spread(figure: &Figure) -> f64 {
    figure.spread.as_ref().map_or(0.0, |s| (s.high - s.low) / (2.0 * figure.value))
}

/// Byte-identical, or the same share of the possible transitions.
fn compiled_alike(comparison: &Comparison, a: &Variant, b: &Variant) -> bool {
    let share = |v: &Variant| {
        let units = &v.metrics.interleave;
        100.0 * units.transitions as f64 / units.possible.max(1) as f64
    };
    comparison.kind <= DiffKind::RenamedOnly
        || (comparison.spills_change == 0 && (share(a) - share(b)).abs() <= SAME_SHARE_PERCENT)
}

fn transition_figures(a: &Variant, b: &Variant) -> Vec<Figure> {
    [a, b]
        .iter()
        .map(|v| {
            let units = &v.metrics.interleave;
            let name = format!("{}/{} transitions of {}", units.a, units.b, v.name);
            Figure::new(name, units.transitions as f64, Measure::Count, v.provenance.clone())
        })
        .collect()
}
