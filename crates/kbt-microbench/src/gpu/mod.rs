//! `run`: the whole measurement on a live GPU (feature `gpu`).

mod ceilings;
mod loops;
pub mod pipes;
mod runner;
mod unverified;

pub use loops::measure_loops;
pub use unverified::run_unverified;

use crate::measure::measure;
use crate::net::Known;
use crate::prepare::{CHAINS, Prepared, prepare};
use crate::rows::{Measured, Note, mix_rows, rate_rows};
use crate::spec::Spec;
use crate::{ceilings as kernels, lowering::lowering};
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;
use kbt_gpu::{DeviceInfo, DeviceState, Gpu, GpuError};
use kbt_toolchain::{Tool, ToolError, Toolchain};
use runner::GpuRunner;

/// What to run.
pub struct RunOptions<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// Which entries, mixes (`a+b`) and ceilings (`ceiling:NAME`).
    pub only: &'a (dyn Fn(&str) -> bool + Sync),
    /// The device.
    pub ordinal: u32,
    /// The profile's name.
    pub name: String,
    /// The command, for provenances.
    pub command: String,
    /// Told what is being done.
    pub progress: &'a dyn Fn(&str),
}

/// What a run gives.
#[derive(Debug, Clone)]
pub struct Run {
    /// The profile.
    pub profile: DeviceProfile,
    /// The reasoning behind each row.
    pub notes: Vec<Note>,
    /// Ceilings that were refused, and why.
    pub refused_ceilings: Vec<String>,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No GPU, or one that failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A compiler tool is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// The compile target of a device: with its own instructions where it has some.
#[must_use]
pub fn arch_of(info: &DeviceInfo) -> Arch {
    let sm = u16::try_from(info.sm()).unwrap_or(0);
    Arch { sm, suffix: (sm >= 90).then_some('a') }
}

/// Prepares, verifies, measures.
pub fn run(tools: &Toolchain, options: &RunOptions<'_>) -> Result<Run, RunError> {
    let gpu = Gpu::open(options.ordinal)?;
    let info = gpu.info().clone();
    let arch = arch_of(&info);
    let ptxas = tools.version(Tool::Ptxas)?;
    (options.progress)(&format!("assembling and verifying for {arch} with ptxas {ptxas}"));
    let prepared = prepare(options.spec, arch, tools, &CHAINS, options.only)?;
    let wants_ceilings =
        kernels::kernels(arch).iter().any(|k| (options.only)(&format!("ceiling:{}", k.kind)));
    let module = if wants_ceilings { Some(kernels::prepare(arch, tools)?) } else { None };
    let monitor = gpu.monitor();
    let base = info.measured(format!("{} (ptxas {ptxas})", options.command));
    let mut runner = GpuRunner::new(&gpu)?;
    let clock_mhz = runner.effective_mhz(tools, arch)?;
    let mut all = Vec::with_capacity(prepared.len());
    for (i, p) in prepared.iter().enumerate() {
        (options.progress)(&format!("{}/{} {}", i + 1, prepared.len(), p.title()));
        let rate = measure_one(&mut runner, p);
        let provenance = at_state(base.clone(), &monitor.sample());
        all.push(Measured { prepared: p.clone(), rate, provenance });
    }
    let (rates, notes) = rate_rows(&all, &Known::embedded(arch));
    let mixes = mix_rows(&all, &rates);
    let provenance = at_state(base.clone(), &monitor.sample());
    let mut profile = DeviceProfile::new(options.name.clone(), arch, provenance);
    profile.device = Some(info.name.clone());
    profile.sm_count = Some(info.sm_count);
    profile.sm_clock_mhz = Some(clock_mhz.round());
    profile.lowering = lowering(&prepared, &ptxas);
    profile.rates = rates;
    profile.mixes = mixes;
    let mut refused_ceilings = Vec::new();
    if let Some(module) = module {
        (options.progress)("ceilings");
        let state = || at_state(base.clone(), &monitor.sample());
        let wanted = |name: &str| (options.only)(name);
        refused_ceilings = ceilings::measure(&gpu, &module, &mut profile, &state, &wanted)?;
    }
    Ok(Run { profile, notes, refused_ceilings })
}

fn measure_one(runner: &mut GpuRunner, prepared: &Prepared) -> Result<crate::measure::FormRate, String> {
    if let Some(why) = prepared.refusal() {
        return Err(why);
    }
    runner.load(prepared).map_err(|e| e.to_string())?;
    measure(prepared, runner)
}

/// A provenance with the device's state: its clock, and a word where it was held down or shared.
fn at_state(mut provenance: Provenance, state: &DeviceState) -> Provenance {
    provenance.sm_clock_mhz = state.sm_clock_mhz;
    if state.is_throttling() == Some(true) {
        let reasons: Vec<String> = state.throttle.iter().flatten().map(|r| format!("{r:?}")).collect();
        provenance.by.push_str(&format!(" [the device was throttling: {}]", reasons.join(", ")));
    }
    if state.is_shared() == Some(true) {
        provenance.by.push_str(" [other processes used the device]");
    }
    provenance
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_gpu::ThrottleReason;

    #[test]
    fn a_row_says_that_the_device_was_held_down_or_shared() {
        let measured = Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-01-01");
        let by = |state: &DeviceState| at_state(measured.clone(), state).by;
        let free = DeviceState {
            sm_clock_mhz: Some(1980.0),
            throttle: Some(vec![ThrottleReason::Idle]),
            compute_processes: Some(1),
            ..DeviceState::default()
        };
        assert_eq!(by(&free), "kbt microbench run");
        assert_eq!(at_state(measured.clone(), &free).sm_clock_mhz, Some(1980.0));
        assert_eq!(by(&DeviceState::default()), "kbt microbench run");
        let hot = DeviceState { throttle: Some(vec![ThrottleReason::PowerCap]), ..free.clone() };
        assert_eq!(by(&hot), "kbt microbench run [the device was throttling: PowerCap]");
        let both = DeviceState { compute_processes: Some(2), ..hot };
        assert!(
            by(&both).ends_with("[the device was throttling: PowerCap] [other processes used the device]")
        );
    }
}
