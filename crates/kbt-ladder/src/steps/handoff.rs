//! Step 5: the sweep over the split and the chunks, on top of the algebra that step 4 measured best.

use super::{AttentionTuner, algebra, fatal, output};
use crate::{History, Origin, StepFailure, StepOutput};
use kbt_evidence::{Provenance, Step};
use kbt_split::{
    CheckOutcome, Choice, Correctness, HandoffTimes, Space, Spec, SplitOutcome, Sweep, WithoutHandoff,
};
use kbt_target::{Setting, Target, TimingPolicy};
use kbt_tensor::{ReadOptions, Tensor, TensorSet};
use kbt_trace::outcome::TraceOutcome;
use kbt_validate::compare::{ChangeClass, Rules, Sides, compare};
use std::path::Path;

/// The knobs that step 5 varies.
const HANDOFF_KNOBS: [&str; 3] = ["KBT_SPLIT_NUM", "KBT_SPLIT_DEN", "KBT_CHUNKS"];

impl AttentionTuner<'_> {
    pub(super) fn handoff(&mut self, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        let times =
            Self::earlier::<TraceOutcome>(history, Step::Trace)?.as_ref().and_then(|t| handoff_times(t).ok());
        if !self.is_live() {
            let Some(mut outcome) = self.recorded::<SplitOutcome>(Step::Handoff)? else {
                return Err(self.needs_live("sweep"));
            };
            if let Some(times) = &times {
                outcome = outcome.with_model(times).map_err(fatal)?;
            }
            return output(Origin::Recorded, &outcome);
        }
        let mut base = algebra::best_setting(self.plain(), history)?;
        base.0.retain(|knob, _| !HANDOFF_KNOBS.contains(&knob.as_str()));
        let choice =
            Choice { fix: base, vary: Some(HANDOFF_KNOBS.iter().map(|k| (*k).to_owned()).collect()) };
        let space = Space::new(&self.target, &choice).map_err(fatal)?;
        // Each comparison is of four processes a block; a sweep of a dozen points has minutes, not hours.
        let timing = TimingPolicy {
            min_blocks: 2,
            max_blocks: if self.quick { 2 } else { 3 },
            slow_margin: Some(0.05),
            ..TimingPolicy::default()
        };
        let spec = Spec::new(self.target.clone(), space, timing);
        let dir = self.run.join("sweep");
        let launcher = self.launcher();
        let resume = dir.join("spec.json").exists();
        let correctness = Bitwise(&self.target);
        let mut sweep = Sweep::prepare(&dir, spec, resume, &launcher, &correctness).map_err(fatal)?;
        sweep.budget_s = Some(if self.quick { 45.0 } else { 110.0 });
        let mut outcome = sweep.run().map_err(fatal)?;
        outcome.without = self.without_handoff(&outcome)?;
        if let Some(times) = &times {
            outcome = outcome.with_model(times).map_err(fatal)?;
        }
        output(Origin::Live, &outcome)
    }

    /// The kernel that keeps P in registers, against the best split.
    fn without_handoff(&mut self, sweep: &SplitOutcome) -> Result<Option<WithoutHandoff>, StepFailure> {
        let best = match sweep.best.and_then(|i| sweep.points.iter().find(|p| p.index == i)) {
            Some(best) if sweep.refused.is_none() => best.setting.clone(),
            _ => return Ok(None),
        };
        let setting = in_registers(&best);
        self.note("  P in registers against the best split");
        let (comparison, how) = self.compared(&best, &setting)?;
        Ok(Some(WithoutHandoff::new(best, setting, &comparison, how)))
    }
}

/// A setting with P in registers, all else equal. Its split says how much of P is packed before the first product, and its
/// chunks mean nothing, so they are the default's.
pub(super) fn in_registers(setting: &Setting) -> Setting {
    let knobs =
        [("KBT_TOPOLOGY", "registers"), ("KBT_SPLIT_NUM", "7"), ("KBT_SPLIT_DEN", "8"), ("KBT_CHUNKS", "4")];
    knobs.iter().fold(setting.clone(), |setting, (knob, value)| setting.with(*knob, *value))
}

/// A split moves no arithmetic: a point is right if it is bitwise the baseline.
struct Bitwise<'t>(&'t Target);

impl Correctness for Bitwise<'_> {
    fn check(&self, reference: &Path, outputs: &Path, _: &Setting) -> Result<CheckOutcome, String> {
        let read = |path: &Path| {
            TensorSet::read(path, &ReadOptions::default()).map_err(|e| format!("{}: {e}", path.display()))
        };
        let (saved, variant) = (read(reference)?, read(outputs)?);
        if let Some(statement) = self.0.lost_outputs(variant.iter().map(Tensor::name)) {
            return Ok(CheckOutcome::Wrong { statement });
        }
        let rules = Rules { class: ChangeClass::Reorder, ..Rules::default() };
        let how = Provenance::given("outputs of the sweep's processes");
        let found = compare(&Sides::new(&saved, &variant), &rules, how).map_err(|e| e.to_string())?;
        Ok(if found.identical() {
            CheckOutcome::Bitwise
        } else {
            CheckOutcome::Wrong { statement: found.violations.join("; ") }
        })
    }
}

/// A time of the handoff that a trace does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the trace does not tell {0}")]
pub struct LacksTime(&'static str);

/// What the model of the handoff needs, as a coarse trace has it.
///
/// # Errors
/// Names the first time that the trace does not tell.
pub fn handoff_times(trace: &TraceOutcome) -> Result<HandoffTimes, LacksTime> {
    let h = trace.handoff.as_ref().ok_or(LacksTime("which events and barriers are the handoff"))?;
    let told = |value: Option<f64>, what| value.ok_or(LacksTime(what));
    Ok(HandoffTimes {
        // The trace brackets the writing of a whole tile of P, and the product of both producers' tiles at once:
        // per tile of one producer they are these.
        chunk_cycles: told(h.chunk_cycles, "the time of a chunk")?
            * told(h.chunks_per_step, "how many chunks a step writes")?,
        tile_cycles: told(h.tile_cycles, "the time of a tile")?
            * told(h.tiles_per_handoff, "how many tiles a handoff has")?,
        chunks_count: Some(1),
        tiles_count: Some(1),
        other_consumer_cycles: told(h.consumer_other_cycles, "the consumer's other work")?,
        round_trip_cycles: told(h.round_trip_cycles, "the time from a signal to its being seen")?,
        producer_other_cycles: told(h.producer_other_cycles, "the producer's other work")?,
        producers_count: h.producers.len() as u32,
        consumer_feeds_producer: false,
        provenance: trace.provenance.clone(),
    })
}
