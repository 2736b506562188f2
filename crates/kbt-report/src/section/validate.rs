//! Step 6: each variant against the saved output, the reference, its probes and itself.

use super::{sentence, whole};
use crate::doc::{Block, Inline, Line, Mark, Row, Sources, Table, cell, code, line, prose, strong};
use crate::number;
use kbt_validate::compare::{Comparison, TensorComparison};
use kbt_validate::flake::FlakeFinding;
use kbt_validate::outcome::{ValidateOutcome, VariantResult, VariantStanding};

pub(super) fn blocks(sources: &Sources, o: &ValidateOutcome) -> Vec<Block> {
    let mut blocks = Vec::new();
    blocks.extend(variants(sources, o).block());
    blocks.extend(errors(sources, o).block());
    blocks.extend(probes(sources, o));
    let faults: Vec<Line> = o
        .variants
        .iter()
        .flat_map(|v| v.faults().into_iter().chain(v.problems.clone()).map(move |f| (v, f)))
        .map(|(v, f)| line![strong(v.name.as_str()), ": ", prose(&sentence(&f))])
        .chain(o.problems.iter().map(|p| prose(&sentence(p))))
        .collect();
    if !faults.is_empty() {
        blocks.push(Block::Heading("What speaks against a variant, or could not be looked at".into()));
        blocks.push(Block::List(faults));
    }
    let notes: Vec<Line> = o
        .variants
        .iter()
        .flat_map(|v| {
            let compared = v.comparison.iter().flat_map(|c| &c.notes);
            let notes = compared.chain(v.flake.iter().flat_map(|f| &f.notes));
            notes.map(|n| line![strong(v.name.as_str()), ": ", prose(&sentence(n))]).collect::<Vec<_>>()
        })
        .collect();
    if !notes.is_empty() {
        blocks
            .push(Block::Fold { title: line!["Notes of the comparisons"], blocks: vec![Block::List(notes)] });
    }
    let knobs: Vec<Line> = o
        .variants
        .iter()
        .filter(|v| !v.knobs.is_empty())
        .map(|v| {
            let all: Vec<String> = v.knobs.iter().map(|(k, x)| format!("{k}={x}")).collect();
            line![strong(v.name.as_str()), ": ", code(all.join(" "))]
        })
        .collect();
    if !knobs.is_empty() {
        blocks.push(Block::Fold { title: line!["The variants' knobs"], blocks: vec![Block::List(knobs)] });
    }
    blocks
}

fn standing(v: &VariantResult) -> Line {
    match v.standing() {
        VariantStanding::Right => line![Inline::Mark(Mark::Good, "right".into())],
        VariantStanding::Wrong => line![Inline::Mark(Mark::Bad, "wrong".into())],
        VariantStanding::Unknown => line![Inline::Mark(Mark::Unclear, "not fully checked".into())],
    }
}

fn variants(sources: &Sources, o: &ValidateOutcome) -> Table {
    let columns = [
        "Variant",
        "Claims to be",
        "Found",
        "#Elements that differ from the saved output",
        "Runs",
        "#Rate that the runs exclude",
        "#Probes passed",
    ];
    let mut table = Table::new("Every variant", &columns);
    for v in &o.variants {
        let differing = v.comparison.as_ref().map(differing);
        let runs = v.flake.as_ref().map(|f| {
            let what = match f.finding {
                FlakeFinding::Same => "all the same",
                FlakeFinding::DiffersFromItself => "differs from itself",
                FlakeFinding::DiffersFromReference => "the same, but not the saved output",
                FlakeFinding::OtherInputs => "other inputs",
                FlakeFinding::RunFailed => "a run failed",
                FlakeFinding::Uncompared => "compared with nothing",
            };
            format!("{} runs: {what}", f.runs_count)
        });
        let bound = v.flake.as_ref().and_then(|f| f.rate.as_ref()).map(|r| {
            format!(
                "above {} ({} confidence)",
                number::percent(r.high_ratio),
                number::percent(r.confidence_ratio)
            )
        });
        let passed = v.probes.iter().filter(|p| p.passed).count();
        let probes = (!v.probes.is_empty()).then(|| format!("{passed} of {}", v.probes.len()));
        let mut row = Row::new(vec![
            line![strong(v.name.as_str())],
            line![if v.class == kbt_validate::compare::ChangeClass::Reorder {
                "a reordering"
            } else {
                "an algebraic change"
            }],
            standing(v),
            cell(differing),
            cell(runs),
            cell(bound),
            cell(probes),
        ]);
        let from = [v.comparison.as_ref().map(|c| &c.provenance), v.flake.as_ref().map(|f| &f.provenance)];
        for p in from.into_iter().flatten().chain(v.probes.iter().map(|p| &p.provenance)) {
            row = row.known(sources.of(p));
        }
        table.row(row);
    }
    table
}

fn differing(c: &Comparison) -> String {
    let (differ, all) =
        c.tensors.iter().fold((0, 0), |(d, a), t| (d + t.bits.differing_count, a + t.bits.elements_count));
    if differ == 0 {
        format!("0 of {}: bitwise", whole(all))
    } else {
        format!("{} of {}", whole(differ), whole(all))
    }
}

fn errors(sources: &Sources, o: &ValidateOutcome) -> Table {
    let columns = [
        "Variant",
        "Tensor",
        "#Relative RMS error",
        "#Baseline's",
        "#Over the baseline's",
        "#Mean absolute error",
        "#Largest absolute error",
        "#Baseline's largest",
    ];
    let mut table = Table::new("Error against the reference", &columns);
    let tensors = o.variants.iter().filter_map(|v| Some((v, v.comparison.as_ref()?)));
    for (v, c, t) in tensors.flat_map(|(v, c)| c.tensors.iter().map(move |t| (v, c, t))) {
        let Some(own) = &t.variant else { continue };
        table.row(
            Row::new(vec![
                line![strong(v.name.as_str())],
                line![code(&t.name)],
                cell(own.relative_rms_error.map(number::scientific)),
                cell(t.baseline.as_ref().and_then(|b| b.relative_rms_error).map(number::scientific)),
                cell(over(t).map(number::ratio)),
                line![number::scientific(own.mean_abs_error)],
                line![number::scientific(own.max_abs_error)],
                cell(t.baseline.as_ref().map(|b| number::scientific(b.max_abs_error))),
            ])
            .known(sources.of(&c.provenance)),
        );
    }
    table
}

fn over(t: &TensorComparison) -> Option<f64> {
    let own = t.variant.as_ref()?.relative_rms_error?;
    let base = t.baseline.as_ref()?.relative_rms_error?;
    (base > 0.0).then_some(own / base)
}

fn probes(sources: &Sources, o: &ValidateOutcome) -> Option<Block> {
    let mut table = Table::new(
        "Probes with known answers",
        &["Variant", "Probe", "Passed", "#Largest error", "#Allowed", "~Shows"],
    );
    for (v, p) in o.variants.iter().flat_map(|v| v.probes.iter().map(move |p| (v, p))) {
        let mark = if p.passed {
            Inline::Mark(Mark::Good, "yes".into())
        } else {
            Inline::Mark(Mark::Bad, "no".into())
        };
        table.row(
            Row::new(vec![
                line![v.name.as_str()],
                line![code(p.kind.as_str())],
                line![mark],
                line![number::scientific(p.max_abs_error)],
                line![number::scientific(p.allowed_abs_error)],
                prose(&p.statement),
            ])
            .known(sources.of(&p.provenance)),
        );
    }
    table.block().map(|t| Block::Fold { title: line!["The probes"], blocks: vec![t] })
}
