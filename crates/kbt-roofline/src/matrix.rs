//! The evidence matrix: for each candidate what supports it, what speaks against it and what is still to be
//! measured, ranked by the share of the time it would account for, with the results of experiments taken in.

use crate::apart;
use crate::candidates::{self, BottleneckClass, CandidateSpec, spec};
use crate::conditions::Condition;
use crate::experiments;
use crate::outcome::{
    Call, CandidateRow, CandidateStanding as Standing, Check, CheckStatus, ExperimentResult, InitialCall,
    Reading, ResultRow, Statement,
};
use crate::predict::{LEAST_SAVING, predict};
use crate::sheet::SheetError;
use crate::signals::{Signal, Signals};
use crate::stated;
use crate::triage::Case;
use crate::words::with_nearest;
use kbt_evidence::{Figure, Provenance, Unit};

/// A candidate without support is worth this part of one with it: it is listed, and ranked last.
const UNSUPPORTED: f64 = 0.15;
/// Counter-evidence leaves this part.
const CONTESTED: f64 = 0.4;
/// Rows that nothing speaks for are listed down to this many.
const LEAST_ROWS: usize = 5;

/// What the intensity alone is worth: less than any share of the time that matters.
const INTENSITY_ALONE: f64 = 0.05;
/// A baseline is the sheet's own call: farther apart than by this factor it is another.
const SAME_KERNEL: f64 = 1.5;
/// A result this much below every bound that its change leaves is no result.
const IMPOSSIBLE: f64 = 0.05;

/// The same where the sheet speaks against the candidate at that roof: less than what a reading supports without a share.
const INTENSITY_CONTESTED: f64 = LEAST_CLAIM / 2.0;
/// What a candidate of unknown share is taken to claim.
const LEAST_CLAIM: f64 = 0.01;

/// The candidate that sits at a call's roof.
const fn roof_candidate(call: Call) -> Option<&'static str> {
    match call {
        Call::MemoryBound => Some("hbm_bandwidth"),
        Call::ComputeBound => Some("arithmetic_roof"),
        _ => None,
    }
}

struct Ranked {
    row: CandidateRow,
    score: f64,
    place: usize,
}

/// The matrix, best first. At least three classes are in it. `by_intensity` is the initial call where the time
/// cannot be held against these ceilings: the candidate at that roof is then supported by the intensity alone.
pub(crate) fn build(
    case: &Case<'_>,
    checks: &[Check],
    results: &[ResultRow],
    by_intensity: Option<&InitialCall>,
) -> Vec<CandidateRow> {
    let refuted: Vec<&str> = results
        .iter()
        .filter(|r| r.reading == Reading::Contradicted)
        .map(|r| r.experiment.as_str())
        .collect();
    let barred: Vec<BottleneckClass> = refuted.iter().filter_map(|id| spec(id)).map(|c| c.class).collect();
    let mut ranked: Vec<Ranked> = candidates::in_order(case.by_arithmetic)
        .enumerate()
        .map(|(place, candidate)| {
            let (mut row, mut score) = judge(candidate, case, checks);
            if let Some(call) = by_intensity.filter(|c| roof_candidate(c.call) == Some(candidate.id)) {
                row.supports.push(Statement {
                    text: format!(
                        "{} by intensity: {:.1} FLOP/B against a ridge of {:.1}",
                        call.call, call.intensity.value, call.ridge.value
                    ),
                    figures: vec![call.intensity.clone(), call.ridge.clone()],
                });
                row.standing =
                    if row.against.is_empty() { Standing::Supported } else { Standing::Contested };
                let alone = if row.against.is_empty() { INTENSITY_ALONE } else { INTENSITY_CONTESTED };
                score = score.max(alone);
            }
            if let Some(result) = results.iter().rev().find(|r| r.experiment == candidate.id) {
                let statement =
                    Statement { text: result.finding.clone(), figures: vec![result.observed.clone()] };
                match result.reading {
                    Reading::Confirmed => {
                        row.standing = Standing::Confirmed;
                        row.supports.insert(0, statement);
                        // An experiment outranks any reading of counters.
                        score += 10.0;
                    }
                    Reading::Contradicted => {
                        row.standing = Standing::Refuted;
                        row.against.insert(0, statement);
                        row.counter_evidence_looked_for = true;
                        score = -2.0;
                    }
                    Reading::Inconclusive => row.needed.insert(0, result.finding.clone()),
                }
            }
            let changed = refuted.iter().find(|id| experiments::same_factor(id, candidate.id));
            let bars = match (barred.contains(&candidate.class), changed) {
                (true, _) => Some(format!(
                    "an experiment on this class ({}) was contradicted; more of the same is not proposed",
                    candidate.class
                )),
                (false, Some(id)) => Some(format!(
                    "the experiment on {id} changed the same factor and was contradicted; it is not proposed again"
                )),
                (false, None) => None,
            };
            if let Some(text) = bars.filter(|_| row.standing != Standing::Confirmed && score >= 0.0) {
                row.standing = Standing::Barred;
                row.against.insert(0, Statement { text, figures: Vec::new() });
                score = -1.0;
            }
            Ranked { row, score, place }
        })
        .collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
    let mut rows = keep(ranked);
    apart::tell(&mut rows);
    rows
}

/// Everything that anything speaks for or that was tried; the best of the rest up to five rows and three classes.
fn keep(ranked: Vec<Ranked>) -> Vec<CandidateRow> {
    let mut rows: Vec<CandidateRow> = Vec::new();
    for r in ranked {
        let tried = matches!(r.row.standing, Standing::Refuted | Standing::Confirmed | Standing::Barred);
        let classes = |rows: &[CandidateRow]| {
            let mut c: Vec<_> = rows.iter().map(|r| r.class).collect();
            c.sort_unstable();
            c.dedup();
            c.len()
        };
        let new_class = rows.iter().all(|x| x.class != r.row.class);
        let wanted = (tried && !(r.row.supports.is_empty() && r.row.standing == Standing::Barred))
            || !r.row.supports.is_empty()
            || (rows.len() < LEAST_ROWS && new_class)
            || (classes(&rows) < 3 && new_class);
        if wanted {
            rows.push(r.row);
        }
    }
    rows
}

/// No more than the kernels' own part of the time is any kernel's doing.
fn within_the_kernels(candidate: &CandidateSpec, share: Figure, signals: &Signals) -> Figure {
    use BottleneckClass as C;
    let outside = matches!(candidate.class, C::HostSide | C::Communication | C::Clocks);
    match signals.figure(Signal::HostGap).filter(|gap| !outside && share.value > 1.0 - gap.value) {
        Some(gap) => {
            let how = format!("{}, of the kernels' own time", share.name);
            Figure::computed(&share.name, 1.0 - gap.value, Unit::Ratio, &how, &[&share, gap])
        }
        None => share,
    }
}

fn judge(candidate: &CandidateSpec, case: &Case<'_>, checks: &[Check]) -> (CandidateRow, f64) {
    let signals = case.signals;
    let (mut supports, mut against, mut looked_for) = (Vec::new(), Vec::new(), Vec::new());
    let mut needed: Vec<String> = Vec::new();
    for check in checks.iter().filter(|c| candidate.checks.contains(&c.id.as_str())) {
        let figures: Vec<Figure> = check.conditions.iter().flatten().filter_map(|t| t.read.clone()).collect();
        let statement = || Statement { text: format!("{} {}", check.question, check.finding), figures };
        match check.status {
            CheckStatus::Fired => supports.push(statement()),
            CheckStatus::Clear => against.push(statement()),
            CheckStatus::NotEvaluated => {}
        }
        needed.extend(check.needed.iter().cloned());
    }
    let wanting = |c: &Condition| signals.ask(c.signal);
    for group in candidate.supports {
        let holds: Vec<Option<bool>> = group.iter().map(|c| c.holds(signals)).collect();
        if holds.iter().all(|h| *h == Some(true)) {
            supports.push(together(group, signals));
        } else if !holds.contains(&Some(false)) {
            needed.extend(group.iter().filter(|c| c.holds(signals).is_none()).filter_map(wanting));
        }
    }
    for condition in candidate.against {
        match condition.holds(signals) {
            Some(true) => against.extend(condition.statement(signals)),
            Some(false) => looked_for.extend(condition.not_against(signals)),
            None => needed.extend(wanting(condition)),
        }
    }
    if let Some(text) = stated::against(candidate.id, case) {
        against.insert(0, Statement { text, figures: Vec::new() });
    }
    let mut seen: Vec<String> = Vec::new();
    needed.retain(|n| {
        !seen.contains(n) && {
            seen.push(n.clone());
            true
        }
    });
    // One reading may answer several conditions of a candidate.
    for list in [&mut supports, &mut against, &mut looked_for] {
        list.dedup_by(|a, b| a.text == b.text);
    }
    let share = (candidate.claim)(signals).map(|s| within_the_kernels(candidate, s, signals));
    let claim = share.as_ref().map_or(0.0, |f| f.value);
    let standing = match (supports.is_empty(), against.is_empty()) {
        (false, true) => Standing::Supported,
        (false, false) => Standing::Contested,
        (true, false) => Standing::Unlikely,
        (true, true) => Standing::Open,
    };
    let score = claim.max(LEAST_CLAIM)
        * if supports.is_empty() { UNSUPPORTED } else { 1.0 }
        * if against.is_empty() { 1.0 } else { CONTESTED };
    let row = CandidateRow {
        candidate: candidate.id.to_owned(),
        class: candidate.class,
        title: candidate.title.to_owned(),
        fix: stated::fix(candidate, case),
        standing,
        share,
        counter_evidence_looked_for: !(against.is_empty() && looked_for.is_empty()),
        supports,
        against,
        looked_for,
        needed,
    };
    (row, score)
}

/// A group of conditions as one statement.
fn together(group: &[Condition], signals: &Signals) -> Statement {
    let all: Vec<Statement> = group.iter().filter_map(|c| c.statement(signals)).collect();
    Statement {
        text: all.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join("; "),
        figures: all.into_iter().flat_map(|s| s.figures).collect(),
    }
}

/// Reads results against the predictions made without them.
pub(crate) fn read_results(
    results: &[(ExperimentResult, String)],
    proposed: &[String],
    time: &Figure,
    case: &Case<'_>,
) -> Result<Vec<ResultRow>, SheetError> {
    let mut rows: Vec<ResultRow> = Vec::new();
    for (at, (result, origin)) in results.iter().enumerate() {
        let mut row = read_result(result, origin, time, case)?;
        // An experiment is confirmed or contradicted, and what follows from either is the opposite of the other.
        let decided = |r: Reading| matches!(r, Reading::Confirmed | Reading::Contradicted);
        let other = rows.iter().position(|r| {
            r.experiment == row.experiment
                && r.reading != row.reading
                && decided(r.reading)
                && decided(row.reading)
        });
        if let Some(before) = other.filter(|before| *before < at) {
            return Err(SheetError::new(
                origin,
                None,
                format!(
                    "this result of `{}` is {}, and that in {} is {}; measure again, and give the one that holds",
                    row.experiment, row.reading, results[before].1, rows[before].reading
                ),
            ));
        }
        if !proposed.contains(&row.experiment) {
            row.finding.push_str("; this experiment was not proposed for this sheet");
        }
        rows.push(row);
    }
    Ok(rows)
}

fn read_result(
    result: &ExperimentResult,
    origin: &str,
    time: &Figure,
    case: &Case<'_>,
) -> Result<ResultRow, SheetError> {
    let candidate = spec(&result.experiment).ok_or_else(|| {
        let known: Vec<&str> = candidates::all().map(|c| c.id).collect();
        SheetError::new(
            origin,
            None,
            with_nearest(format!(
                "unknown experiment `{}`; one of `{}`",
                result.experiment,
                known.join("`, `")
            )),
        )
    })?;
    let positive = |v: f64| v.is_finite() && v > 0.0;
    if !positive(result.observed_us) || !result.baseline_us.is_none_or(positive) {
        return Err(SheetError::new(origin, None, "observed_us and baseline_us must be positive"));
    }
    let provenance =
        result.provenance.clone().map_or_else(|| Provenance::given(origin.to_owned()), Provenance::read_back);
    let observed = Figure::new("observed time", result.observed_us, Unit::Microseconds, provenance.clone());
    let baseline = match result.baseline_us {
        Some(us) => Figure::new("baseline time", us, Unit::Microseconds, provenance),
        None => time.clone(),
    };
    let apart = (baseline.value / time.value).max(time.value / baseline.value);
    if apart > SAME_KERNEL {
        return Err(SheetError::new(
            origin,
            None,
            format!(
                "baseline_us is {} and the sheet's call takes {:.2} us: the baseline is the same call, measured beside the change",
                baseline.value, time.value
            ),
        ));
    }
    let share = (candidate.claim)(case.signals).map(|s| within_the_kernels(candidate, s, case.signals));
    let prediction = predict(candidate, share.as_ref(), time, case);
    let effect = prediction.saving;
    let ratio = observed.value / baseline.value;
    let noise = experiments::noise(time);
    // What no change of this kind can reach is a fault of the measurement.
    let impossible = ratio < prediction.least * (1.0 - IMPOSSIBLE);
    let reading = if impossible {
        Reading::Inconclusive
    } else if ratio <= 1.0 - effect.value.max(LEAST_SAVING) / 2.0 && ratio < 1.0 - noise {
        Reading::Confirmed
    } else if ratio >= 1.0 - effect.value / 4.0 || ratio >= 1.0 - noise {
        Reading::Contradicted
    } else {
        Reading::Inconclusive
    };
    let change = (1.0 - ratio) * 100.0;
    let finding = format!(
        "experiment: {} took {:.2} us against {:.2} us ({}), predicted {:.1} % less: {}{}{}",
        prediction.factor,
        observed.value,
        baseline.value,
        if change >= 0.0 { format!("{change:.1} % less") } else { format!("{:.1} % more", -change) },
        effect.value * 100.0,
        reading,
        if impossible {
            ", as the time lies below what the unchanged work needs: measure it again"
        } else {
            ""
        },
        result.note.as_ref().map_or_else(String::new, |n| format!("; note: {n}")),
    );
    Ok(ResultRow {
        experiment: candidate.id.to_owned(),
        reading,
        finding,
        observed: Figure::computed(
            "observed over baseline",
            ratio,
            Unit::Ratio,
            "observed over baseline",
            &[&observed, &baseline],
        ),
        predicted: Figure::computed(
            "predicted over baseline",
            1.0 - effect.value,
            Unit::Ratio,
            "1 less the predicted saving",
            &[&effect],
        ),
    })
}

impl ExperimentResult {
    /// Reads a result file.
    pub fn from_yaml(text: &str, origin: &str) -> Result<Self, SheetError> {
        let result: Self = serde_yaml::from_str(text).map_err(|e| SheetError::yaml(origin, &e))?;
        if result.schema != crate::outcome::RESULT_SCHEMA {
            return Err(SheetError::new(
                origin,
                Some(1),
                format!("schema `{}` is not `{}`", result.schema, crate::outcome::RESULT_SCHEMA),
            ));
        }
        Ok(result)
    }
}
