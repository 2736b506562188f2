//! The ladder's readers for `kbt target check`: what it says of a target's files is what a run would find.

use super::algebra::lifted;
use super::found::Found;
use super::trace::input_named;
use super::{TargetTuner, facts_lack};
use crate::recording::{FACTS_FILE, TRACE_FILE};
use crate::{Backend, StepFailure};
use kbt_evidence::Step;
use kbt_target::artifacts::Artifact;
use kbt_target::check::{Readers, Replay, Studied};
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_trace::{AnalyseOptions, Input, analyse};
use std::path::Path;

impl Readers for TargetTuner<'_> {
    fn facts_lack(&self) -> Option<String> {
        // Facts that are wrong have ended the check before.
        facts_lack(&self.target).unwrap_or_else(|e| Some(e.to_string()))
    }

    fn measurement(&self, step: Step) -> Replay {
        let recording = match self.backend {
            Backend::Live(_) => return Replay::Live,
            Backend::Model(p) => {
                return Replay::Nowhere(format!("needs a live device, and profile {} is none", p.name));
            }
            Backend::Recorded(recording) => recording,
        };
        let name = &recording.meta.name;
        let has = match step {
            Step::Triage => recording.file(&self.key(), FACTS_FILE).is_some(),
            _ => matches!(recording.step(&self.key(), step), Ok(Some(record)) if record.outcome.is_some()),
        };
        match (has, self.recorded_with(step)) {
            (false, _) => {
                Replay::Nowhere(format!("needs a live device, and recording {name} has none of this target"))
            }
            (true, Ok(with)) => {
                let with = with.map(|w| format!(", {w}")).unwrap_or_default();
                Replay::Recorded(format!("replayed from recording {name}{with}"))
            }
            (true, Err(why)) => Replay::Nowhere(reason(why)),
        }
    }

    fn code(&self, found: &[Artifact]) -> Studied {
        let found = Found { files: found.to_vec(), ..Found::default() };
        let code = match self.choose(&found) {
            Ok(code) => code,
            Err(none) => {
                return Studied {
                    algebra: Err(none.reason.clone()),
                    kernel: Err(none.reason),
                    no_tools: none.no_tools,
                    broken: none.broken,
                };
            }
        };
        let mut broken = code.broken;
        for artifact in found.of(kbt_target::artifacts::ArtifactKind::Ptx) {
            let text = std::fs::read(&artifact.path).unwrap_or_default();
            let module = kbt_ptx::parse(&String::from_utf8_lossy(&text));
            let cut = module.as_ref().ok().and_then(|m| m.ends_early());
            if let Some(cut) = cut.filter(|_| broken.iter().all(|(path, _)| *path != artifact.path)) {
                broken.push((artifact.path.clone(), format!("it is not whole: {cut}")));
            }
        }
        let algebra = match (&code.ptx, self.backend) {
            (None, _) => Err("needs PTX: name it under build.artifacts or write it to KBT_DUMP".to_owned()),
            (Some(ptx), Backend::Model(profile)) => {
                lifted(ptx, &code.function, profile).map(|_| ()).map_err(reason)
            }
            (Some(ptx), Backend::Recorded(r)) => {
                lifted(ptx, &code.function, r.profile()).map(|_| ()).map_err(reason)
            }
            // Its rates are measured in a run, whatever they are.
            (Some(ptx), Backend::Live(_)) => match kbt_ptx::parse(ptx) {
                Ok(module) => {
                    module.ends_early().map_or(Ok(()), |cut| Err(format!("the PTX is not whole: {cut}")))
                }
                Err(e) => Err(format!("the PTX does not read: {e}")),
            },
        };
        Studied { kernel: Ok(code.chosen), no_tools: false, broken, algebra }
    }

    fn outputs(&self, path: &Path) -> Result<(), String> {
        let file = TensorFile::open(path, &ReadOptions::default()).map_err(|e| e.to_string())?;
        match self.target.lost_outputs(file.infos().map(|info| info.name.as_str())) {
            Some(lost) => Err(lost),
            None => Ok(()),
        }
    }

    fn trace(&self, path: &Path) -> Result<(), String> {
        let format = self.target.trace.as_ref().map(|t| t.format.as_str()).unwrap_or_default();
        let input = input_named(format).ok_or_else(|| {
            let known = Input::ALL.map(Input::as_str).join(", ");
            format!("trace format `{format}` is not known; known: {known}")
        })?;
        let name = path.display().to_string();
        let file = std::fs::File::open(path).map_err(|e| format!("{name}: {e}; the run wrote no trace"))?;
        let options = kbt_trace::ReadOptions { input, ..kbt_trace::ReadOptions::default() };
        let mut source = kbt_trace::open(Box::new(file), &name, &options).map_err(|e| e.to_string())?;
        let options = AnalyseOptions {
            name: TRACE_FILE.to_owned(),
            provenance: None,
            observer: None,
            clean: None,
            cta: None,
            timeline_steps: 1,
            threads: None,
        };
        analyse(source.as_mut(), &options).map(|_| ()).map_err(|e| e.to_string())
    }
}

fn reason(failure: StepFailure) -> String {
    match failure {
        StepFailure::Refused { reason, .. } | StepFailure::Fatal(reason) => reason,
    }
}
