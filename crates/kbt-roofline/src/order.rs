//! The order of work: P0 correctness and credible timing, P1 the primary bottleneck, P2 what else has evidence,
//! P3 what has none yet, and fine-tuning.

use crate::ceilings::is_firm;
use crate::facts::{OperatorKind, TimingMethod};
use crate::outcome::{CandidateStanding as Standing, OrderStep, Priority, TriageOutcome};
use crate::triage::Case;

/// Launches before a median is worth trusting: a public study of B200 and B300 kernels read 10 % too much work
/// into 3 warm-up and 50 timed launches, against 20 and 500.
const WARMUP: f64 = 20.0;
/// Below this a launch is of the order of the kernel.
const SHORT_US: f64 = 10.0;

/// All steps, in order.
pub(crate) fn order(outcome: &TriageOutcome, case: &Case<'_>) -> Vec<OrderStep> {
    let mut steps = credibility(outcome, case);
    let title = |id: &str| {
        outcome.evidence.iter().find(|r| r.candidate == id).map_or(String::new(), |r| r.title.clone())
    };
    for (index, experiment) in outcome.experiments.iter().enumerate() {
        let supported = outcome.evidence.iter().any(|r| {
            r.candidate == experiment.candidate
                && matches!(r.standing, Standing::Supported | Standing::Contested)
        });
        let priority = match (index, supported) {
            (0, _) if outcome.confirmed().is_none() => Priority::P1,
            (_, true) => Priority::P2,
            (_, false) => Priority::P3,
        };
        steps.push(OrderStep {
            priority,
            action: format!("{}: {}", experiment.candidate, experiment.factor),
            why: format!("{}; predicted {}", title(&experiment.candidate), experiment.prediction),
        });
    }
    // A confirmed change is kept first: what is left is predicted from the time before it. A conflict to settle is P0 already.
    if (outcome.experiments.is_empty() || outcome.confirmed().is_some())
        && outcome.contradictions.iter().all(|c| !c.settle_first)
    {
        let next = outcome.next();
        steps.push(OrderStep { priority: Priority::P1, action: next.action, why: next.falsified });
    }
    if outcome.contradictions.iter().any(|c| !c.settle_first) {
        steps.push(OrderStep {
            priority: Priority::P3,
            action: "ceilings: measure them again beside the call (kbt microbench run --only '^ceiling:')"
                .to_owned(),
            why: "a figure is a few percent above a ceiling or a whole: the kernel is at it, the ceiling is short".to_owned(),
        });
    }
    steps.push(OrderStep {
        priority: Priority::P3,
        action: fine_tuning(case.work.kind).to_owned(),
        why: "worth it only once no candidate above has evidence".to_owned(),
    });
    steps.sort_by_key(|s| s.priority);
    steps
}

/// What must be settled before any figure is believed.
pub(crate) fn credibility(outcome: &TriageOutcome, case: &Case<'_>) -> Vec<OrderStep> {
    let mut steps: Vec<OrderStep> = Vec::new();
    let mut p0 = |action: String, why: String| {
        steps.push(OrderStep { priority: Priority::P0, action, why });
    };
    for c in outcome.contradictions.iter().filter(|c| c.settle_first) {
        p0(format!("resolve: {}", c.what), format!("a figure that cannot be; {}", c.causes.join("; or ")));
    }
    let t = case.sheet.timing.clone().unwrap_or_default();
    if let Some(l2) = case.accounts.may_fit {
        p0(
            "state whether the caches were cold (`timing.cache`), and time the call with L2 flushed between launches"
                .to_owned(),
            format!("cold caches assumed; {}", crate::bounds::fits(case.work, l2)),
        );
    }
    if t.communication_included.is_none() {
        p0(
            "state whether communication is inside the time".to_owned(),
            "a roofline does not explain a link between GPUs".to_owned(),
        );
    } else if t.communication_included == Some(true) && t.communication_us.is_none() {
        p0(
            "time the call without its communication".to_owned(),
            "communication is inside the time and its share is not known".to_owned(),
        );
    }
    match t.method {
        Some(TimingMethod::CudaEvents | TimingMethod::CudaGraph | TimingMethod::DeviceClock) => {}
        Some(method) => p0(
            "time the call with CUDA events or graph replays".to_owned(),
            format!("the time comes from {}, which is not the call's own", method.phrase()),
        ),
        None => p0(
            "state how the time was taken (`timing.method`)".to_owned(),
            "a time of unknown method may hold launches, transfers or a profiler's clocks".to_owned(),
        ),
    }
    if t.warmup_launches.is_none_or(|w| w < WARMUP) {
        p0(
            format!("warm up with at least {WARMUP} launches"),
            match t.warmup_launches {
                Some(w) => format!("{w} were made; short warm-ups have read 10 % off"),
                None => "the warm-up is not stated; short ones have read 10 % off".to_owned(),
            },
        );
    }
    if t.low_us.is_none() || t.high_us.is_none() {
        p0(
            "repeat the timing and state its spread".to_owned(),
            "without one, no experiment can be told from noise; 2 % is assumed".to_owned(),
        );
    }
    if t.median_us.is_some_and(|us| us / t.kernels.unwrap_or(1.0) < SHORT_US) {
        p0(
            match t.method {
                Some(TimingMethod::CudaGraph) => {
                    "put many calls into the replayed graph and divide, unless the time is that already"
                }
                _ => "time many calls in one graph replay and divide",
            }
            .to_owned(),
            format!(
                "a kernel under {SHORT_US} us is of the order of its own launch: roofline has little to say of it"
            ),
        );
    }
    if case.accounts.warm {
        p0(
            "time the call with cold caches too (another buffer each launch, or L2 flushed between)"
                .to_owned(),
            "the data may lie in L2 (`timing.cache: warm`), so that device memory is not what it waits for"
                .to_owned(),
        );
    }
    let firm = |f: &kbt_evidence::Figure| is_firm(f.provenance.kind);
    let roofs = case.accounts.hbm_roof.iter().map(|(_, f)| f).chain(&case.accounts.compute_roof);
    if !roofs.into_iter().all(firm) {
        p0(
            "measure the ceilings of this device: kbt microbench run --only '^ceiling:' --out PROFILE.yaml"
                .to_owned(),
            "published peaks are assumptions; shares of them are orders of magnitude".to_owned(),
        );
    }
    if let Some(other) = &outcome.sheet_device {
        p0(
            format!("triage with {other}'s ceilings, or time the call on {}", case.ceilings.device),
            "the sheet was timed on another device than the ceilings describe".to_owned(),
        );
    }
    // A time that was measured here says at which clock.
    let clock = case.accounts.time_us.as_ref().and_then(|t| t.provenance.sm_clock_mhz);
    if clock.is_none() && case.sheet.device.as_ref().is_none_or(|d| d.sm_clock_mhz.is_none()) {
        p0(
            "log the SM clock and the power during the timing".to_owned(),
            "a throttled run reads as a slower kernel".to_owned(),
        );
    }
    p0(
        "save the inputs and outputs of the present kernel before the first change: kbt validate compare"
            .to_owned(),
        "an experiment that computes something else proves nothing".to_owned(),
    );
    steps
}

const fn fine_tuning(kind: OperatorKind) -> &'static str {
    match kind {
        OperatorKind::Gemm => "fine-tuning: tile order for L2, cluster shape, epilogue store width",
        OperatorKind::Attention => "fine-tuning: order of the heads, rescale threshold, epilogue store width",
        OperatorKind::Normalization => {
            "fine-tuning: rows a CTA, access width, cache hints for data read once"
        }
        OperatorKind::Elementwise => {
            "fine-tuning: access width, elements a thread, cache hints for data read once"
        }
        OperatorKind::Reduction => "fine-tuning: partial sums a thread, the final pass's CTA count",
        OperatorKind::Convolution => "fine-tuning: layout of the channels, tile order, filter residency",
        OperatorKind::Counts => "fine-tuning: access width and cache hints of the hottest loop",
    }
}
