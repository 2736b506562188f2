//! A made-up run directory, from the step crates' own types. Its numbers are invented for the test and say so.

pub(crate) mod outcomes;
mod trace;
mod variants;

use kbt_evidence::{Evidence, Figure, FixClass, Known, Provenance, Standing, Step, Unit, Verdict};
use serde_json::{Value, json};
use std::path::Path;

/// How every number of the made-up run is known.
pub(crate) fn recorded(by: &str) -> Provenance {
    Provenance::measured(format!("{by} (made up for a test)"), "NVIDIA H200", "2026-11-30")
        .with_driver("580.00")
        .with_sm_clock_mhz(1980.0)
        .read_back()
}

/// A step file with an outcome.
pub(crate) fn step(step: Step, headline: &str, verdicts: &[Verdict], outcome: &Value) -> Value {
    json!({
        "schema": "kbt.step/1", "step": step, "origin": "recorded", "headline": headline, "verdicts": verdicts,
        "outcome": outcome,
        "timing": {"wall_s": 1.25, "provenance": Provenance::measured("kbt tune, wall clock of the step", "host", "2026-11-30")},
    })
}

/// A step file of a step that was refused.
pub(crate) fn refused(step: Step, why: &str, needs: &str) -> Value {
    json!({
        "schema": "kbt.step/1", "step": step, "origin": "refused", "headline": format!("refused: {why}"), "verdicts": [],
        "needs": needs,
        "timing": {"wall_s": 0.0, "provenance": Provenance::measured("kbt tune, wall clock of the step", "host", "2026-11-30")},
    })
}

fn put(path: &Path, value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap();
    bytes.push(b'\n');
    std::fs::write(path, &bytes).unwrap();
    bytes
}

/// A run directory with no step in it yet.
pub(crate) fn empty_run(dir: &Path, mode: &str) -> Value {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir.join("steps")).unwrap();
    let run = json!({
        "schema": "kbt.run/1", "pv_mode": mode, "device": "recorded: h200-sxm (NVIDIA H200, 2026-11-30)", "quick": false
    });
    put(&dir.join("run.json"), &run);
    run
}

/// Writes a run directory of these step files, with its journal and summary.
pub(crate) fn write_run(dir: &Path, steps: &[(Step, Value)]) {
    let run = empty_run(dir, "fp4");
    let mut journal = String::from("{\"event\":\"started\",\"at\":\"2026-11-30T12:00:00Z\"}\n");
    for (step, value) in steps {
        let bytes = put(&dir.join("steps").join(format!("{}-{step}.json", step.index())), value);
        let event =
            json!({"event": "step_finished", "step": step, "digest": blake3::hash(&bytes).to_string()});
        journal += &format!("{event}\n");
    }
    std::fs::write(dir.join("journal.jsonl"), journal).unwrap();
    std::fs::write(dir.join("facts.yaml"), outcomes::facts().to_yaml().unwrap()).unwrap();
    put(&dir.join("summary.json"), &summary(&run));
}

fn summary(run: &Value) -> Value {
    let p = recorded("kbt tune");
    let time = |name: &str, us: f64, low: f64, high: f64| {
        Figure::new(name, us, Unit::Microseconds, p.clone()).with_spread(
            low,
            high,
            "least to most of 8 processes",
        )
    };
    let algebra = Verdict::new(
        FixClass::Algebra,
        Standing::Recommended,
        Step::Algebra,
        "the log2 form of the quantisation removes `div` and the scaling pass after exp2",
    )
    .with(Evidence::supports(
        "`log2` is faster than `linear`, timed in turn",
        vec![time("linear", 912.4, 909.8, 915.1), time("log2", 801.3, 799.0, 804.4)],
    ))
    .with(Evidence::against("the row sum changes in its last bits", vec![]))
    .next("build with KBT_QUANT_FORM=log2");
    let handoff = Verdict::new(FixClass::HandoffSplit, Standing::Recommended, Step::Handoff, "3/4 beats 1/2")
        .with(Evidence::supports("measured", vec![Figure::new("ratio", 0.958, Unit::Ratio, p.clone())]))
        .next("KBT_SPLIT_NUM=3 KBT_SPLIT_DEN=4");
    let class = |class: FixClass, standing: Standing, step: Step, reason: &str, known: Option<Known>| json!({"class": class, "standing": standing, "step": step, "reason": reason, "known": known});
    json!({
        "schema": "kbt.summary/1", "run": run, "steps": [],
        "classes": [
            class(FixClass::MemoryTraffic, Standing::RuledOut, Step::Triage, "HBM explains 4 % of the time", Some(Known::Recorded)),
            class(FixClass::Reorder, Standing::RuledOut, Step::Schedule, "two source orders compile to equally interleaved code", Some(Known::Mined)),
            class(FixClass::RegisterBudget, Standing::RuledOut, Step::Schedule, "no register is spilled", Some(Known::Mined)),
            class(FixClass::InstructionChoice, Standing::Open, Step::Rates, "another choice may help for ex2.approx.ftz.f32", Some(Known::Recorded)),
            class(FixClass::Algebra, Standing::Recommended, Step::Algebra, &algebra.reason, Some(Known::Recorded)),
            class(FixClass::HandoffSplit, Standing::Recommended, Step::Handoff, &handoff.reason, Some(Known::Recorded)),
            class(FixClass::Correctness, Standing::RuledOut, Step::Validate, "3 variants are right in every run made", Some(Known::Recorded)),
        ],
        "recommendations": [{"verdict": algebra}, {"verdict": handoff}],
        "struck": [{"class": FixClass::Reorder, "ruled_out_by": Step::Schedule, "reason": "equally interleaved", "contradicted_by": Step::Algebra, "claim": "interleave by hand"}],
        "sent_back": [],
    })
}
