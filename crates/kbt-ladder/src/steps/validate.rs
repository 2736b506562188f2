//! Step 6: every variant that the run may recommend, on saved inputs: against the plain kernel's saved output,
//! against attention in f64, on probes with known answers, and again and again.

use super::handoff::in_registers;
use super::{AttentionTuner, algebra, fatal, output};
use crate::{History, Origin, StepFailure, StepOutput};
use kbt_evidence::{Provenance, Step};
use kbt_kernels::attention::PvMode;
use kbt_split::SplitOutcome;
use kbt_target::{LaunchRequest, Launcher, ProcessLauncher, Setting, Status, Target};
use kbt_tensor::{Dtype, ReadOptions, Tensor, TensorSet};
use kbt_validate::compare::{ChangeClass, Rules, Sides, compare};
use kbt_validate::flake::{FlakePlan, flake};
use kbt_validate::outcome::{ValidateOutcome, VariantResult};
use kbt_validate::probe::{LseBase, PFormat, Probe, ProbeKind, ProbeOutput};
use kbt_validate::reference::{AttentionInputs, AttentionShape, attention_reference};
use kbt_validate::runner::{RunFailure, RunOutput, Runner};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A size whose f64 reference is seconds on a CPU: several key tiles, and a tail in both directions.
const SIZE: [usize; 3] = [2, 4, 1000];
/// The size of the probes: three key tiles, the last one partial.
const PROBE_SIZE: [usize; 3] = [1, 2, 333];

impl AttentionTuner<'_> {
    pub(super) fn validate(&mut self, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        if !self.is_live() {
            return self.replay::<ValidateOutcome>(Step::Validate, "validation");
        }
        let dir = self.run.join("validate");
        let mut variants = Vec::new();
        let plain = self.plain();
        for (name, setting, class) in self.variants(history)? {
            self.note(format!("  {name}"));
            let runs = match (self.quick, name.as_str()) {
                (true, _) => 20,
                (false, "tuned") => 60,
                (false, "plain") => 30,
                (false, _) => 20,
            };
            variants.push(self.check_variant(&dir, &name, &plain, &setting, class, runs)?);
        }
        output(Origin::Live, &ValidateOutcome::new(variants))
    }

    /// The plain kernel, each form of the quantisation, the other topology, and what the run came to.
    fn variants(&self, history: &History<'_>) -> Result<Vec<(String, Setting, ChangeClass)>, StepFailure> {
        let plain = self.plain();
        let mut variants = vec![("plain".to_owned(), plain.clone(), ChangeClass::Reorder)];
        for &form in algebra::forms(self.mode) {
            if plain.get("KBT_QUANT_FORM") != Some(form) {
                variants.push((
                    form.to_owned(),
                    plain.clone().with("KBT_QUANT_FORM", form),
                    ChangeClass::Algebra,
                ));
            }
        }
        let split = Self::earlier::<SplitOutcome>(history, Step::Handoff)?;
        // The very setting that step 5 timed, where it did.
        let without = split.as_ref().and_then(|s| s.without.as_ref()).map(|w| w.setting.clone());
        let registers = without.unwrap_or_else(|| in_registers(&plain));
        variants.push(("P in registers".to_owned(), registers, ChangeClass::Algebra));
        if let Some(split) = split
            && let Some(best) = split.best.and_then(|i| split.points.iter().find(|p| p.index == i))
            && variants.iter().all(|(_, s, _)| *s != best.setting)
        {
            let class = if best.setting.get("KBT_QUANT_FORM") == plain.get("KBT_QUANT_FORM") {
                ChangeClass::Reorder
            } else {
                ChangeClass::Algebra
            };
            variants.push(("tuned".to_owned(), best.setting.clone(), class));
        }
        Ok(variants)
    }

    fn check_variant(
        &mut self,
        dir: &Path,
        name: &str,
        plain: &Setting,
        setting: &Setting,
        class: ChangeClass,
        runs: u32,
    ) -> Result<VariantResult, StepFailure> {
        let mut result = VariantResult::new(name, class);
        let process = Processes::new(&self.target, SIZE, &[], dir)?;
        let how = self.provenance_of("kbt tune: outputs of fresh processes on saved inputs");
        let (saved, variant) = match (process.tensors(plain, 0), process.tensors(setting, 0)) {
            (Ok(saved), Ok(variant)) => (saved, variant),
            (Err(e), _) | (_, Err(e)) => {
                result.problems.push(e.to_string());
                return Ok(result);
            }
        };
        let reference = reference(&process.inputs(0), false)?;
        let sides =
            Sides { reference: Some(&reference), baseline: Some(&saved), ..Sides::new(&saved, &variant) };
        let rules = Rules { class, ..Rules::default() };
        result.comparison = Some(compare(&sides, &rules, how.clone()).map_err(fatal)?);
        result.knobs =
            setting.differs_from(plain).0.iter().map(|(k, v)| (k.clone(), v.to_string())).collect();

        for kind in ProbeKind::ALL {
            match self.probe(dir, kind, setting, &how)? {
                Ok(probe) => result.probes.push(probe),
                Err(problem) => result.problems.push(problem),
            }
        }

        let plan = FlakePlan { runs, sets: 2, ..FlakePlan::default() };
        let runner = SettingRunner { process: &process, setting };
        let references: BTreeMap<u32, RunOutput> = (0..plan.sets)
            .filter_map(|set| Some((set, RunOutput::Tensors(process.tensors(setting, set).ok()?))))
            .collect();
        let how = self.provenance_of("kbt tune: fresh processes, alternating input sets");
        result.flake = Some(flake(&runner, &plan, &references, how));
        Ok(result)
    }

    fn probe(
        &self,
        dir: &Path,
        kind: ProbeKind,
        setting: &Setting,
        how: &Provenance,
    ) -> Result<Result<kbt_validate::probe::ProbeResult, String>, StepFailure> {
        let [batch, heads, seqlen] = PROBE_SIZE;
        let shape = AttentionShape { batch, heads, heads_kv: heads, seq_q: seqlen, seq_k: seqlen, dim: 128 };
        let probe = match Probe::new(kind, shape, Dtype::Bf16, 1) {
            Ok(probe) => probe,
            Err(e) => return Ok(Err(format!("probe {kind}: {e}"))),
        };
        let folder = dir.join(format!("probe-{kind}"));
        let scale = probe.scale.to_string();
        let mut options = vec!["--scale", &scale];
        if probe.causal {
            options.push("--causal");
        }
        let process = Processes::new(&self.target, PROBE_SIZE, &options, &folder)?;
        std::fs::create_dir_all(process.inputs(0)).map_err(fatal)?;
        probe.inputs.write_safetensors(&process.inputs(0).join("inputs.safetensors")).map_err(fatal)?;
        let outputs = match process.tensors(setting, 0) {
            Ok(outputs) => outputs,
            Err(e) => return Ok(Err(format!("probe {kind}: {e}"))),
        };
        let format = match self.mode {
            PvMode::Bf16 => PFormat::Bf16,
            PvMode::Fp8 => PFormat::E4m3,
            PvMode::Fp4 => PFormat::Nvfp4,
        };
        let output = ProbeOutput {
            o: outputs.require("o").map_err(fatal)?,
            lse: outputs.get("lse").map(|lse| (lse, LseBase::Natural)),
        };
        probe.check(output, format, how.clone()).map(Ok).map_err(fatal)
    }
}

/// Attention in f64 over the saved inputs, as the tensors `o` and `lse`.
fn reference(inputs: &Path, causal: bool) -> Result<TensorSet, StepFailure> {
    let set = TensorSet::read(&inputs.join("inputs.safetensors"), &ReadOptions::default()).map_err(fatal)?;
    let tensor = |name| set.require(name).map_err(fatal);
    let inputs = AttentionInputs::new(tensor("q")?, tensor("k")?, tensor("v")?).map_err(fatal)?;
    let rows = attention_reference(&inputs, causal, (inputs.shape.dim as f64).sqrt().recip());
    let s = inputs.shape;
    let mut reference = TensorSet::new();
    let lse = Tensor::from_f64("lse", vec![s.batch, s.heads, s.seq_q], &rows.lse).map_err(fatal)?;
    let o = Tensor::from_f64("o", vec![s.batch, s.heads, s.seq_q, s.dim], &rows.o).map_err(fatal)?;
    for tensor in [lse, o] {
        reference.insert(tensor).map_err(fatal)?;
    }
    Ok(reference)
}

/// The target's process at another size, its inputs and outputs in a folder of its own.
struct Processes {
    target: Target,
    dir: PathBuf,
}

impl Processes {
    fn new(
        target: &Target,
        [batch, heads, seqlen]: [usize; 3],
        options: &[&str],
        dir: &Path,
    ) -> Result<Self, StepFailure> {
        let mut target = target.clone();
        let sized = ["--batch", "--heads", "--seqlen"].iter().zip([batch, heads, seqlen]);
        for (flag, value) in sized {
            let at = target.run.command.iter().position(|a| a == flag);
            match at.and_then(|i| target.run.command.get_mut(i + 1)) {
                Some(argument) => *argument = value.to_string(),
                None => return Err(fatal(format!("the built-in target's command has no {flag}"))),
            }
        }
        // Outputs are wanted, not times.
        let once = ["--launches", "1", "--warmup", "1"];
        target.run.command.extend(once.iter().chain(options).map(|o| (*o).to_owned()));
        std::fs::create_dir_all(dir).map_err(fatal)?;
        Ok(Self { target, dir: dir.to_owned() })
    }

    fn inputs(&self, set: u32) -> PathBuf {
        self.dir.join(format!("inputs-{set}"))
    }

    fn tensors(&self, setting: &Setting, set: u32) -> Result<TensorSet, RunFailure> {
        let inputs = self.inputs(set);
        let out = self.dir.join("out.safetensors");
        let start = |e: std::io::Error| RunFailure::Start(e.to_string());
        std::fs::create_dir_all(&inputs).map_err(start)?;
        let request = LaunchRequest {
            input_set: set,
            inputs: Some(inputs),
            ..LaunchRequest::saving(setting.clone(), &out)
        };
        let launch = ProcessLauncher::new(&self.target).launch(&request);
        match &launch.status {
            Status::Ok => {
                TensorSet::read(&out, &ReadOptions::default()).map_err(|e| RunFailure::Output(e.to_string()))
            }
            Status::TimedOut { limit_s } => Err(RunFailure::TimedOut { limit_s: *limit_s as u64 }),
            status => Err(RunFailure::Failed {
                status: status.to_string(),
                stderr: launch.stderr_tail.trim().to_owned(),
            }),
        }
    }
}

/// One setting, run again and again.
struct SettingRunner<'a> {
    process: &'a Processes,
    setting: &'a Setting,
}

impl Runner for SettingRunner<'_> {
    fn run(&self, env: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure> {
        let mut setting = self.setting.clone();
        for (name, value) in env {
            setting = setting.with(name, value.as_str());
        }
        self.process.tensors(&setting, set).map(RunOutput::Tensors)
    }
}
