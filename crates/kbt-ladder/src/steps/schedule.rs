//! Step 3: the machine code of the plain kernel, of another source order, and of the assembler at -O1.

use super::{AttentionTuner, fatal, output};
use crate::{Origin, StepFailure, StepOutput};
use kbt_evidence::{Figure, Provenance, Step, Unit as Measure};
use kbt_kernels::attention::Knobs;
use kbt_kernels::cache::Cache;
use kbt_sass::outcome::{ScheduleBuilder, ScheduleOutcome, VariantInput, VariantKind};
use kbt_sass::{Listing, Unit};
use kbt_target::{Setting, TimingPolicy, stats};
use kbt_toolchain::{NvdisasmOptions, PtxasOptions, ResourceReport, Tool, Toolchain};

const FUNCTION: &str = "attention_forward";
/// Softmax warps on each scheduler: two warpgroups of four warps over four schedulers.
const WARPS_PER_SCHEDULER: u32 = 2;

struct Code {
    name: &'static str,
    kind: VariantKind,
    built_by: String,
    listing: Listing,
    remarks: Vec<String>,
}

impl AttentionTuner<'_> {
    pub(super) fn schedule(&mut self) -> Result<StepOutput, StepFailure> {
        // The built-in attention kernel is Hopper code whatever the device: another one has no business with its
        // schedule.
        let arch = self.backend.arch();
        if arch.sm != 90 {
            return Err(StepFailure::Refused {
                reason: format!("the built-in attention kernel is sm_90a code, and the device is {arch}"),
                needs: "a kernel for that device: `kbt sass metrics FILE` reads its machine code".into(),
            });
        }
        let usable = |t: &&Toolchain| t.has(Tool::Nvdisasm) && t.has(Tool::Ptxas) && t.has(Tool::Nvcc);
        let Some(tools) = self.tools.as_ref().filter(usable).cloned() else {
            return match self.recorded::<ScheduleOutcome>(Step::Schedule)? {
                Some(outcome) => output(Origin::Recorded, &outcome),
                None => Err(StepFailure::Refused {
                    reason: "no CUDA compiler and disassembler to read the machine code with".into(),
                    needs: "`cargo xtask setup`, or KBT_CUDA set to a toolkit's folder".into(),
                }),
            };
        };
        let plain = Knobs::plain(self.mode);
        let other = Knobs { source_order: kbt_kernels::attention::SourceOrder::ExpFirst, ..plain };
        let codes = [
            compile(&tools, "chunk by chunk", VariantKind::SourceOrder, &plain, 3)?,
            compile(&tools, "all exp2 first", VariantKind::SourceOrder, &other, 3)?,
            compile(&tools, "chunk by chunk at -O1", VariantKind::OptLevel, &plain, 1)?,
        ];
        let profile = self.profile()?;
        let units = [Unit::mufu(), Unit::f2fp()];
        let mut builder = ScheduleBuilder::new(FUNCTION, None, units, Some(&profile), WARPS_PER_SCHEDULER);
        for code in &codes {
            let input = VariantInput {
                name: code.name,
                kind: code.kind,
                built_by: &code.built_by,
                listing: &code.listing,
                function: Some(FUNCTION),
                remarks: code.remarks.clone(),
            };
            builder.add(input).map_err(fatal)?;
        }
        let mut outcome = builder.finish();
        if self.is_live() {
            self.time_orders(&mut outcome)?;
        } else if let Some(recorded) = self.recorded::<ScheduleOutcome>(Step::Schedule)? {
            for variant in &mut outcome.variants {
                variant.time =
                    recorded.variants.iter().find(|v| v.name == variant.name).and_then(|v| v.time.clone());
            }
        }
        output(Origin::Live, &outcome)
    }

    /// Times the two source orders against each other, interleaved.
    fn time_orders(&mut self, outcome: &mut ScheduleOutcome) -> Result<(), StepFailure> {
        let plain = self.plain();
        let other = plain.clone().with("KBT_SOURCE_ORDER", "exp_first");
        let (a, b) = self.versus(&plain, &other)?;
        for (variant, time) in outcome.variants.iter_mut().zip([a, b]) {
            variant.time = Some(time);
        }
        Ok(())
    }

    /// Two settings timed in turn: the time of each as a figure with the spread over its processes.
    pub(super) fn versus(&mut self, a: &Setting, b: &Setting) -> Result<(Figure, Figure), StepFailure> {
        let (found, p) = self.compared(a, b)?;
        let figure = |samples: &[kbt_target::Sample]| {
            let times: Vec<f64> = samples.iter().map(|s| s.time_us).collect();
            let median = stats::median(&times)?;
            let (low, high) = times.iter().fold((f64::MAX, f64::MIN), |(l, h), t| (l.min(*t), h.max(*t)));
            let what = format!("least to most of {} processes, interleaved", times.len());
            Some(
                Figure::new("time of the kernel", median, Measure::Microseconds, p.clone())
                    .with_spread(low, high, what),
            )
        };
        match (figure(&found.a), figure(&found.b)) {
            (Some(a), Some(b)) => Ok((a, b)),
            _ => Err(fatal("a comparison without samples")),
        }
    }

    /// Two settings timed in turn, and how what they gave is known.
    pub(super) fn compared(
        &mut self,
        a: &Setting,
        b: &Setting,
    ) -> Result<(kbt_target::Comparison, Provenance), StepFailure> {
        let launcher = self.launcher();
        let policy = TimingPolicy { min_blocks: 2, max_blocks: 3, ..TimingPolicy::default() };
        let rest = self.target.limits.cooldown_s;
        let (request_a, request_b) = (self.timed(a.clone())?, self.timed(b.clone())?);
        let found = kbt_target::compare(&launcher, &request_a, &request_b, &policy, rest)
            .map_err(|e| fatal(format!("{a} against {b}: {e}")))?;
        Ok((found, self.provenance_of("kbt tune: two settings in turn")))
    }
}

fn compile(
    tools: &Toolchain,
    name: &'static str,
    kind: VariantKind,
    knobs: &Knobs,
    opt_level: u8,
) -> Result<Code, StepFailure> {
    let built = Cache::from_env().obtain(&knobs.variant(), Some(tools)).map_err(fatal)?;
    let arch = built.variant.arch;
    // Assembled here at every level, so that all variants have one assembler.
    let options = PtxasOptions { opt_level, ..PtxasOptions::default() };
    let assembled = tools.ptxas(&built.ptx, arch, &options).map_err(fatal)?;
    let nvdisasm = NvdisasmOptions { hex: true, ..NvdisasmOptions::default() };
    let text = tools.disassemble(&assembled.cubin, &nvdisasm).map_err(fatal)?;
    let mut listing = kbt_sass::parse(text.as_bytes()).map_err(fatal)?;
    let built_by = format!("ptxas {} -O{opt_level}", assembled.version);
    listing.assembler = Some(built_by.clone());
    Ok(Code { name, kind, built_by, listing, remarks: remarks(&assembled.resources) })
}

fn remarks(resources: &ResourceReport) -> Vec<String> {
    resources.messages.iter().map(|m| m.text.clone()).collect()
}
