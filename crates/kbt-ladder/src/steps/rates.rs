//! Step 1: what the mode's instructions can do on this device, and the profile that all steps read.

use super::{AttentionTuner, fatal, output};
use crate::recording::PROFILE_FILE;
use crate::{Backend, Origin, StepFailure, StepOutput};
use kbt_device::DeviceProfile;
use kbt_kernels::attention::PvMode;
use kbt_microbench::gpu::{RunOptions, run};
use kbt_microbench::outcome::rates_for;
use kbt_microbench::spec::Spec;
use kbt_toolchain::Toolchain;
use std::path::Path;

impl AttentionTuner<'_> {
    pub(super) fn rates(&mut self) -> Result<StepOutput, StepFailure> {
        let profile = self.profile()?;
        let mode = match self.mode {
            PvMode::Bf16 => kbt_microbench::PvMode::Bf16,
            PvMode::Fp8 => kbt_microbench::PvMode::Fp8,
            PvMode::Fp4 => kbt_microbench::PvMode::Fp4,
        };
        let origin = match self.backend {
            Backend::Recorded(_) => Origin::Recorded,
            Backend::Live(_) | Backend::Model(_) => Origin::Live,
        };
        output(origin, &rates_for(&profile, mode))
    }
}

/// The live device's profile: measured once a run, then read back from the run directory. It is still this run's
/// measurement, so its provenance stays as it was written.
pub(super) fn live_profile(
    run_dir: &Path,
    tools: Option<&Toolchain>,
    progress: &mut dyn FnMut(&str),
) -> Result<DeviceProfile, StepFailure> {
    let path = run_dir.join(PROFILE_FILE);
    if path.exists() {
        let text = std::fs::read_to_string(&path).map_err(|e| fatal(format!("{}: {e}", path.display())))?;
        return DeviceProfile::from_yaml(&text, PROFILE_FILE).map_err(fatal);
    }
    let Some(tools) = tools else {
        return Err(StepFailure::Refused {
            reason: "rates are verified in machine code, and there is no CUDA assembler and disassembler"
                .into(),
            needs: "`cargo xtask setup`, or KBT_CUDA set to a toolkit's folder".into(),
        });
    };
    progress("  measuring instruction rates and ceilings");
    let spec = Spec::embedded().map_err(fatal)?;
    let options = RunOptions {
        spec: &spec,
        only: &|_| true,
        ordinal: 0,
        name: "live".into(),
        command: "kbt tune: kbt microbench run".into(),
        progress: &|_| {},
    };
    let measured = run(tools, &options).map_err(fatal)?;
    let text = measured.profile.to_yaml().map_err(fatal)?;
    crate::rundir::write_atomic(&path, text.as_bytes()).map_err(fatal)?;
    Ok(measured.profile)
}
