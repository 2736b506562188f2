//! What each step of the ladder can do with what a check found.

use super::{Ability, Ran, Readers, Replay, Studied};
use crate::Target;
use crate::launch::{Launch, Status};
use kbt_evidence::Step;

/// The machine code that is there.
pub(super) struct Code {
    /// What is studied of it; `None` where there is none.
    pub(super) studied: Option<Studied>,
    /// Whether all of it may be another build's.
    pub(super) stale: bool,
}

/// What each step can do.
pub(super) fn abilities(target: &Target, ran: &Ran, code: &Code, readers: &dyn Readers) -> Vec<Ability> {
    let run = ran.run.as_ref();
    // A time is one, whatever became of the outputs.
    let wrote = run.is_some_and(Launch::is_ok);
    let lost = |r: &Launch| matches!(r.status, Status::OutputMissing { .. });
    let timed = wrote || run.is_some_and(|r| lost(r) && !r.report.times_us.is_empty());
    let varied = target.knobs.iter().filter(|k| k.values.len() > 1).count();
    let answer = |step, ready: bool, yes: &str, no: &str| {
        let why = match (run.map(|r| &r.status), ready) {
            (_, true) => yes.to_owned(),
            (Some(Status::Refused { reason }), false) => format!("the run was refused here: {reason}"),
            (Some(Status::Ok | Status::NoTime { .. } | Status::OutputMissing { .. }), false) => no.to_owned(),
            (Some(failed), false) => format!("the run failed: {failed}; {no}"),
            (None, false) => format!("not tried, since the build failed; {no}"),
        };
        Ability { step, ready, why }
    };
    // What the file itself does not give, no run would.
    let lacks = |step, no: &str| Ability { step, ready: false, why: no.to_owned() };
    let of_code = |step, yes: &str, no: &str, read: &dyn Fn(&Studied) -> Result<(), String>| {
        let stale = if code.stale { ", which is STALE: what it says decides nothing" } else { "" };
        match &code.studied {
            None => {
                let none = answer(step, false, yes, no);
                // A run that was refused says nothing of what the build should have left.
                match run.map(|r| &r.status) {
                    Some(Status::Refused { .. }) => {
                        Ability { why: format!("{}; the build left no machine code: {no}", none.why), ..none }
                    }
                    _ => none,
                }
            }
            Some(studied) => {
                match studied.kernel.as_ref().map_err(Clone::clone).and_then(|_| read(studied)) {
                    Ok(()) => Ability { step, ready: true, why: format!("{yes}{stale}") },
                    Err(why) => lacks(step, &why),
                }
            }
        }
    };
    let kernel_alone = |_: &Studied| Ok(());
    let no_trace = "needs a `trace:` with a level `coarse` whose run writes KBT_TRACE_OUT";
    let no_outputs = "needs `outputs:` and a run that writes them to KBT_OUT";
    let no_sweep = "needs `knobs:` with more than one value and a run that prints its time";
    let steps = vec![
        match readers.facts_lack() {
            // Whatever the run gives, facts that lack something are the file's own matter.
            Some(lack) => Ability { step: Step::Triage, ready: false, why: format!("its facts lack {lack}") },
            None => answer(
                Step::Triage,
                timed,
                "facts and a time",
                "needs a run that prints its time; without one there is an initial call and no diagnosis",
            ),
        },
        of_code(
            Step::Rates,
            "for the instructions in its machine code",
            "needs PTX or a cubin: name them under build.artifacts, or let the build or the run write them to KBT_DUMP",
            &kernel_alone,
        ),
        match &target.trace {
            Some(_) => match &ran.coarse {
                Some(Ok(())) => answer(Step::Trace, true, "a coarse trace", no_trace),
                Some(Err(why)) if run.is_some_and(Launch::is_ok) => lacks(Step::Trace, why),
                _ => answer(Step::Trace, false, "a coarse trace", no_trace),
            },
            None => lacks(Step::Trace, no_trace),
        },
        of_code(Step::Schedule, "from its machine code", "needs PTX, a cubin or a listing", &kernel_alone),
        of_code(
            Step::Algebra,
            "lifted from its PTX",
            "needs PTX: name it under build.artifacts or write it to KBT_DUMP",
            &|studied| studied.algebra.clone(),
        ),
        match (&target.handoff, varied) {
            (_, 0) => lacks(Step::Handoff, no_sweep),
            (Some(_), _) => answer(Step::Handoff, timed, "a sweep within the handoff's contract", no_sweep),
            (None, _) => answer(
                Step::Handoff,
                timed,
                "a sweep of its knobs; no `handoff:`, so no contract is checked",
                no_sweep,
            ),
        },
        match target.outputs.is_empty() {
            true => lacks(Step::Validate, no_outputs),
            false if ran.outputs.is_some() => {
                lacks(Step::Validate, ran.outputs.as_deref().unwrap_or_default())
            }
            false => answer(Step::Validate, wrote, "its saved outputs", no_outputs),
        },
    ];
    steps.into_iter().map(|ability| measured_where(ability, readers)).collect()
}

/// A step that measures, on a device that has no measurement or a recorded one.
fn measured_where(ability: Ability, readers: &dyn Readers) -> Ability {
    if !matches!(ability.step, Step::Triage | Step::Trace | Step::Handoff | Step::Validate) {
        return ability;
    }
    match readers.measurement(ability.step) {
        Replay::Recorded(what) => Ability { ready: true, why: what, ..ability },
        Replay::Nowhere(why) if ability.ready => Ability { ready: false, why, ..ability },
        _ => ability,
    }
}
