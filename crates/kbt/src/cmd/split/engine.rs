//! `kbt split sweep --engine slurm`.

use super::sweep::{SweepArgs, judging, report_progress};
use crate::output::{Failure, tell};
use kbt_split::slurm::{Slurm, SlurmOptions, SlurmSweep};
use kbt_split::{Spec, SplitOutcome};
use std::time::Instant;

pub(super) fn slurm(args: &SweepArgs, spec: &Spec) -> Result<SplitOutcome, Failure> {
    if !args.gpus.is_empty() {
        return Err(Failure::input(
            "--gpus is for the engine local; accepted with slurm: --sbatch=--gpus=1, and Slurm chooses which",
        ));
    }
    let cluster = Slurm::connect()?;
    let program = std::env::current_exe().map_err(|e| Failure::input(format!("kbt itself: {e}")))?;
    let mut options = SlurmOptions::new(program);
    if !args.sbatch.is_empty() {
        options.sbatch.clone_from(&args.sbatch);
    }
    let started = Instant::now();
    let over = || args.budget.is_some_and(|s| started.elapsed().as_secs_f64() >= s);
    let judging = judging(args)?;
    let mut sweep = SlurmSweep::prepare(&args.out, spec.clone(), args.resume, &cluster, options)?;
    // The tasks read there by what their settings are judged.
    judging.record(&args.out)?;
    sweep.watch = &|progress| report_progress(progress);
    sweep.stop = &over;
    tell!(
        "tasks outlive this command: end them with scancel --name=kbt-{}, or go on with --resume",
        spec.target.name
    );
    Ok(sweep.run()?)
}
