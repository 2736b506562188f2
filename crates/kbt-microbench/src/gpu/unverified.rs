//! `run` on a machine with no compiler tools: the driver assembles, nobody sees the machine code, and every row
//! says so.

use super::runner::GpuRunner;
use super::{Run, RunError, RunOptions, arch_of, at_state, measure_one};
use crate::net::Known;
use crate::prepare::{CHAINS, as_unverified, prepare_unverified};
use crate::rows::{Measured, rate_rows};
use kbt_device::{DeviceProfile, Pipe};
use kbt_gpu::Gpu;

/// Measures instruction rates on kernels that the driver assembles. There are no mixes and no ceilings: both are
/// counted in machine code.
pub fn run_unverified(options: &RunOptions<'_>) -> Result<Run, RunError> {
    let gpu = Gpu::open(options.ordinal)?;
    let info = gpu.info().clone();
    let arch = arch_of(&info);
    let prepared = prepare_unverified(options.spec, arch, &CHAINS, options.only);
    let monitor = gpu.monitor();
    let base = info.measured(format!("{} (driver's compiler)", options.command));
    let mut runner = GpuRunner::new(&gpu)?;
    let mut all = Vec::with_capacity(prepared.len());
    for (i, p) in prepared.iter().enumerate() {
        (options.progress)(&format!("{}/{} {} (unverified)", i + 1, prepared.len(), p.title()));
        let rate = measure_one(&mut runner, p).map_err(|why| format!("{}: {why}", p.parts[0].entry.place));
        all.push(Measured {
            prepared: p.clone(),
            rate,
            provenance: at_state(base.clone(), &monitor.sample()),
        });
    }
    let (mut rates, notes) = rate_rows(&all, &Known::embedded(arch));
    for row in &mut rates {
        row.opcode = None;
        row.pipe = Pipe::Unknown;
        row.provenance = as_unverified(&row.provenance);
    }
    let state = monitor.sample();
    let mut profile = DeviceProfile::new(options.name.clone(), arch, as_unverified(&at_state(base, &state)));
    profile.device = Some(info.name.clone());
    profile.sm_count = Some(info.sm_count);
    profile.sm_clock_mhz = state.sm_clock_mhz;
    profile.rates = rates;
    let refused_ceilings =
        vec!["all: their instructions are counted in machine code; install a toolkit".to_owned()];
    Ok(Run { profile, notes, refused_ceilings })
}
