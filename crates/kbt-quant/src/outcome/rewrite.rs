//! A search's result as a file: programs as text, costs by pipe, guards, proof.

use super::SCHEMA;
use crate::cost::Cost;
use crate::emit;
use crate::rewrite::{Candidate, Priced, Refusal, Replay, Search};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A program and its predicted cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedOutcome {
    /// Its text.
    pub program: String,
    /// How often each operation is done, an element and lane.
    pub operations: BTreeMap<String, f64>,
    /// Cycles of each pipe and of the issue port, an element and SM.
    pub pipes: BTreeMap<String, f64>,
    /// The busiest of them.
    pub busiest_pipe: String,
    /// Its cycles: the least time an element can take on an SM.
    pub cycles_per_element: f64,
    /// Instructions issued, an element.
    pub issue_slots: f64,
    /// Cycles along the longest dependence from an input to an output; no number where a latency on it is not known.
    #[serde(deserialize_with = "number_or_none")]
    pub chain: f64,
    /// How the numbers are known: a model over rates, as weak as the weakest of them.
    pub provenance: Provenance,
}

/// A cheaper program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateOutcome {
    /// Its text.
    pub program: String,
    /// How often each operation is done, an element and lane.
    pub operations: BTreeMap<String, f64>,
    /// Cycles of each pipe and of the issue port, an element and SM.
    pub pipes: BTreeMap<String, f64>,
    /// The busiest of them.
    pub busiest_pipe: String,
    /// Its cycles.
    pub cycles_per_element: f64,
    /// Instructions issued, an element.
    pub issue_slots: f64,
    /// Cycles along the longest dependence; no number where a latency on it is not known.
    #[serde(deserialize_with = "number_or_none")]
    pub chain: f64,
    /// The rules that lead to it from the baseline, in the order of the proof.
    pub rules: Vec<String>,
    /// What must hold, or be kept in the code.
    pub guards: Vec<String>,
    /// The bit-level comparison with the baseline.
    pub replay: Replay,
    /// CUDA C++ for it, device and host, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_source: Option<String>,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// No program of the graph is cheaper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoundOutcome {
    /// Cycles of the busiest pipe, an element and SM.
    pub cycles_per_element: f64,
    /// Issue slots of programs that reach it.
    pub issue_slots: f64,
    /// Whether the first candidate, or the baseline, reaches it.
    pub reached: bool,
    /// What that means.
    pub statement: String,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// The size of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphOutcome {
    /// Terms.
    pub terms_count: usize,
    /// Classes of equal terms.
    pub classes_count: usize,
    /// Rounds of rule application.
    pub iterations_count: usize,
    /// Whether no rule had anything to add.
    pub saturated: bool,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// A rule whose condition failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRule {
    /// The rule.
    pub rule: String,
    /// What it says.
    pub says: String,
    /// The condition that fails, and of what.
    pub because: String,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewriteOutcome {
    /// `kbt.quant/1`.
    pub schema: String,
    /// The program's name: a built-in one, or the file.
    pub name: String,
    /// The device whose profile gave the costs.
    pub device: String,
    /// The program given.
    pub baseline: PricedOutcome,
    /// Cheaper programs, best first.
    pub candidates: Vec<CandidateOutcome>,
    /// Programs that the rules allow but the replay does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<CandidateOutcome>,
    /// The bound.
    pub lower_bound: BoundOutcome,
    /// Rules that were refused.
    pub refused: Vec<RefusedRule>,
    /// What was not done for want of steps; more effort does it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_off: Vec<String>,
    /// The graph searched.
    pub graph: GraphOutcome,
}

/// What is written as `null` is no number.
fn number_or_none<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

fn pipes(cost: &Cost) -> BTreeMap<String, f64> {
    cost.named().filter(|(cycles, _)| *cycles > 0.0).map(|(cycles, name)| (name.to_owned(), cycles)).collect()
}

impl PricedOutcome {
    pub(super) fn new(priced: &Priced, provenance: &Provenance) -> Self {
        Self {
            program: priced.program.to_string(),
            operations: priced.operations.clone(),
            pipes: pipes(&priced.cost),
            busiest_pipe: priced.cost.busiest_pipe().to_owned(),
            cycles_per_element: priced.cost.busiest(),
            issue_slots: priced.cost.issue_slots,
            chain: priced.chain_cycles,
            provenance: provenance.clone(),
        }
    }
}

impl CandidateOutcome {
    fn new(candidate: &Candidate, provenance: &Provenance) -> Self {
        let p = PricedOutcome::new(&candidate.priced, provenance);
        Self {
            program: p.program,
            operations: p.operations,
            pipes: p.pipes,
            busiest_pipe: p.busiest_pipe,
            cycles_per_element: p.cycles_per_element,
            issue_slots: p.issue_slots,
            chain: p.chain,
            rules: candidate.rules.clone(),
            guards: candidate.guards.clone(),
            replay: candidate.replay.clone(),
            cuda_source: None,
            provenance: p.provenance,
        }
    }
}

/// The provenance of costs: a model, no stronger than `modelled` whatever its rates are.
pub(super) fn of_costs(sources: &BTreeMap<String, Provenance>) -> Provenance {
    let model = Provenance::modelled(
        "instructions over their rates, every pipe perfectly filled: a lower bound of time, error not yet measured",
    );
    let inputs = sources.iter().map(|(name, p)| (name.as_str(), p));
    Provenance::computed(model.by.clone(), inputs.chain([("cost model", &model)]))
}

impl RewriteOutcome {
    /// The outcome of a search.
    #[must_use]
    pub fn new(name: &str, device: &str, search: &Search) -> Self {
        let provenance = of_costs(&search.sources);
        let bound = search.lower_bound;
        let within = if search.saturated {
            "among all programs that the rules lead to"
        } else {
            "within this graph, which was cut off before the rules had nothing to add"
        };
        let statement = match (bound.reached, search.candidates.is_empty()) {
            (true, false) => format!("the first candidate is optimal {within}"),
            (true, true) => format!("the baseline is optimal {within}"),
            (false, _) if !bound.complete => format!(
                "a relaxation: no program is cheaper {within}, but the search for the cheapest was cut off after its number \
                 of steps, and what it had found is not known to be the best"
            ),
            (false, _) => {
                format!("a relaxation: no program is cheaper {within}, but none is known to reach it")
            }
        };
        let refused = |r: &Refusal| RefusedRule {
            rule: r.rule.clone(),
            says: r.says.clone(),
            because: r.because.clone(),
        };
        Self {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            device: device.to_owned(),
            baseline: PricedOutcome::new(&search.baseline, &provenance),
            candidates: search.candidates.iter().map(|c| CandidateOutcome::new(c, &provenance)).collect(),
            rejected: search.rejected.iter().map(|c| CandidateOutcome::new(c, &provenance)).collect(),
            lower_bound: BoundOutcome {
                cycles_per_element: bound.busiest_cycles,
                issue_slots: bound.issue_slots,
                reached: bound.reached,
                statement,
                provenance,
            },
            refused: search.refused.iter().map(refused).collect(),
            cut_off: search.cut_off.clone(),
            graph: GraphOutcome {
                terms_count: search.terms,
                classes_count: search.classes,
                iterations_count: search.iterations,
                saturated: search.saturated,
                provenance: Provenance::modelled(
                    "equality saturation of the program's own graph; exact counts",
                ),
            },
        }
    }

    /// Gives every candidate its CUDA source.
    #[must_use]
    pub fn with_cuda(mut self, search: &Search) -> Self {
        for (outcome, candidate) in self.candidates.iter_mut().zip(&search.candidates) {
            outcome.cuda_source = Some(emit::cuda(&candidate.priced.program, &self.name, &candidate.guards));
        }
        self
    }

    /// The share of the baseline's busiest-pipe cycles that the best candidate saves; 0 where there is none.
    #[must_use]
    pub fn gain(&self) -> f64 {
        let best = self.candidates.first().map_or(self.baseline.cycles_per_element, |c| c.cycles_per_element);
        1.0 - best / self.baseline.cycles_per_element
    }

    /// The share of the baseline's issue slots that the best candidate saves.
    #[must_use]
    pub fn issue_gain(&self) -> f64 {
        let best = self.candidates.first().map_or(self.baseline.issue_slots, |c| c.issue_slots);
        1.0 - best / self.baseline.issue_slots
    }

    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} on {}, cycles an element and SM [{}]",
            self.name, self.device, self.baseline.provenance.kind
        );
        let b = &self.baseline;
        let _ = writeln!(
            out,
            "\nbaseline: {}",
            line(b.cycles_per_element, &b.busiest_pipe, b.issue_slots, b.chain, &b.pipes)
        );
        let _ = write!(out, "{}", indent(&b.program));
        for (i, c) in self.candidates.iter().enumerate() {
            let _ = writeln!(
                out,
                "\ncandidate {}: {}",
                i + 1,
                line(c.cycles_per_element, &c.busiest_pipe, c.issue_slots, c.chain, &c.pipes)
            );
            let _ = write!(out, "{}", indent(&c.program));
            let _ = writeln!(out, "  by     {}", c.rules.join(", "));
            for guard in &c.guards {
                let _ = writeln!(out, "  guard  {guard}");
            }
            let r = &c.replay;
            let _ = writeln!(
                out,
                "  replay {} rows, {} of them at code boundaries: {} of {} codes differ, {} explained as ties, {} wrong",
                r.rows_count,
                r.tie_rows_count,
                r.differing_count,
                r.codes_count,
                r.explained_count,
                r.wrong_count
            );
            if !r.left_out.is_empty() {
                let _ = writeln!(out, "  not compared at the boundaries of: {}", r.left_out.join(", "));
            }
            if !r.errors.is_empty() {
                let _ = writeln!(out, "  error bounds, of the greatest value: {}", r.errors_text());
            }
        }
        let bound = &self.lower_bound;
        let _ = writeln!(
            out,
            "\nlower bound: {:.4} cycles, {:.2} issue slots: {}",
            bound.cycles_per_element, bound.issue_slots, bound.statement
        );
        for text in &self.cut_off {
            let _ = writeln!(out, "cut off: {text}");
        }
        for r in &self.refused {
            let _ = writeln!(out, "refused {} ({}): {}", r.rule, r.says, r.because);
        }
        for r in &self.rejected {
            let _ = writeln!(out, "rejected by replay: {}", r.replay.wrong.join("; "));
        }
        out
    }
}

fn line(cycles: f64, pipe: &str, issue: f64, chain: f64, pipes: &BTreeMap<String, f64>) -> String {
    let each: Vec<String> = pipes.iter().map(|(name, cycles)| format!("{name} {cycles:.4}")).collect();
    format!("{cycles:.4} on {pipe}, {issue:.2} issue slots, chain {chain:.0} clk ({})", each.join(", "))
}

fn indent(program: &str) -> String {
    program.lines().map(|l| format!("  | {l}\n")).collect()
}
