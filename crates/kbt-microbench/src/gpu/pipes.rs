//! `pipes` on a live GPU: measures the instructions alone and the mixes that the inference asks for, and launches
//! single-instruction kernels for the profiler.

use super::runner::GpuRunner;
use super::{RunError, arch_of, at_state};
use crate::filter::Filter;
use crate::measure::measure;
use crate::pipes::assemble::{AssembleError, Assembler, Built, Item};
use crate::pipes::subjects::subjects;
use crate::pipes::{Mixes, Refused, Request, Solo, counts, next_mixes};
use crate::prepare::PreparedPart;
use crate::spec::SpecError;
use kbt_gpu::{Gpu, GpuError};
use kbt_toolchain::{Tool, ToolError, Toolchain};
use std::path::Path;

/// Scheduler cycles for each SM cycle of a warp's share: an SM has four schedulers.
const SCHEDULERS: f64 = 4.0;
/// A time this close to a whole or half number of cycles is planned with as that number, so that a second run builds
/// the same kernels.
const NEAR: f64 = 0.025;
/// What the profiler counts: warps of one block, and trips of the loop. Many enough that what stands around the loop
/// is nothing beside it.
const COUNTER_LAUNCH: (u32, u32) = (8, 512);

/// What to run.
pub struct PipesOptions<'a> {
    /// The device.
    pub ordinal: u32,
    /// The command, for provenances.
    pub command: String,
    /// Mixes at most.
    pub budget: usize,
    /// Which instructions.
    pub only: &'a Filter,
    /// A folder in which compiled modules are kept.
    pub cache: Option<&'a Path>,
    /// Told what is being done.
    pub progress: &'a dyn Fn(&str),
}

/// Why there is no measurement at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipesError {
    /// No GPU, or one that failed; or no compiler.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Nothing could be built.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The list of subjects cannot be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl From<GpuError> for PipesError {
    fn from(error: GpuError) -> Self {
        Self::Run(error.into())
    }
}

impl From<ToolError> for PipesError {
    fn from(error: ToolError) -> Self {
        Self::Run(error.into())
    }
}

/// Measures until the inference has no more questions or the budget is spent.
pub fn measure_mixes(tools: &Toolchain, options: &PipesOptions<'_>) -> Result<Mixes, PipesError> {
    let gpu = Gpu::open(options.ordinal)?;
    let info = gpu.info().clone();
    let arch = arch_of(&info);
    let ptxas = tools.version(Tool::Ptxas)?;
    let assembler = Assembler::new(tools, arch, options.cache)?;
    let parts: Vec<PreparedPart> =
        subjects(arch)?.into_iter().filter(|p| options.only.accepts(&p.entry.name)).collect();
    let monitor = gpu.monitor();
    let mut runner = GpuRunner::new(&gpu)?;
    let base = info.measured(format!("{} (ptxas {ptxas})", options.command));
    let mut mixes = Mixes::new(arch, base.clone());
    mixes.device = Some(info.name.clone());
    let mut known: Vec<PreparedPart> = Vec::new();
    (options.progress)(&format!("{} instructions alone", parts.len()));
    let items: Vec<Item> = parts.iter().map(Item::solo).collect();
    for (part, built) in parts.iter().zip(assembler.build(&items)?) {
        match built.and_then(|b| Ok((cycles(&mut runner, &b)?, b))) {
            Ok((cycles, built)) => {
                mixes.solos.push(built.solo(cycles));
                known.push(part.clone());
            }
            Err(refused) => mixes.refused.push(refused),
        }
    }
    loop {
        let wanted = next_mixes(&mixes, options.budget);
        if wanted.is_empty() {
            break;
        }
        (options.progress)(&format!("{} mixes measured, {} more", mixes.mixes.len(), wanted.len()));
        let planned: Vec<(Item, [u32; 2])> = wanted.iter().map(|r| plan(r, &known, &mixes.solos)).collect();
        let items: Vec<Item> = planned.iter().map(|(item, _)| item.clone()).collect();
        for ((request, (_, counts)), built) in wanted.iter().zip(planned).zip(assembler.build(&items)?) {
            let of = request.of.map(|i| mixes.solos[i].instruction.clone());
            match built.and_then(|b| Ok((cycles(&mut runner, &b)?, b))) {
                Ok((operation, built)) => mixes.mixes.push(built.mix(of, counts, operation)),
                Err(refused) => mixes.refused.push(refused),
            }
        }
    }
    mixes.provenance = at_state(base, &monitor.sample());
    Ok(mixes)
}

/// The kernel of a mix that was asked for.
fn plan(request: &Request, parts: &[PreparedPart], solos: &[Solo]) -> (Item, [u32; 2]) {
    let parts = request.of.map(|i| &parts[i]);
    let solos = request.of.map(|i| &solos[i]);
    let cycles = solos.map(|s| {
        let near = (s.measured_cycles * 2.0).round() / 2.0;
        if near > 0.0 && (s.measured_cycles / near - 1.0).abs() <= NEAR { near } else { s.measured_cycles }
    });
    let counts = counts(cycles, solos.map(Solo::issued), parts.map(|p| p.chain.ops), request.share);
    (Item::mix(parts, solos, counts), counts)
}

/// Scheduler cycles of an operation of the first part.
fn cycles(runner: &mut GpuRunner, built: &Built) -> Result<f64, Refused> {
    let refused = |why: String| Refused { what: built.title(), why };
    let mut prepared = built.prepared.clone();
    prepared.cubin = built.cubin.to_vec();
    runner.load(&prepared).map_err(|e| refused(e.to_string()))?;
    let rate = measure(&prepared, runner).map_err(refused)?;
    Ok(rate.clk_per_op * SCHEDULERS)
}

/// Launches the kernel of each instruction once, under the instruction's own name with `_` for what no identifier
/// may hold, so that a profiler counts its instructions by pipe. Returns the names, and what was refused.
pub fn counter_kernels(
    tools: &Toolchain,
    options: &PipesOptions<'_>,
) -> Result<(Vec<String>, Vec<Refused>), PipesError> {
    let gpu = Gpu::open(options.ordinal)?;
    let arch = arch_of(gpu.info());
    let assembler = Assembler::new(tools, arch, options.cache)?;
    let parts: Vec<PreparedPart> =
        subjects(arch)?.into_iter().filter(|p| options.only.accepts(&p.entry.name)).collect();
    let items: Vec<Item> = parts.iter().map(|p| Item::solo(p).named_as_is()).collect();
    let mut runner = GpuRunner::new(&gpu)?;
    let (mut names, mut refused) = (Vec::new(), Vec::new());
    for built in assembler.build(&items)? {
        let launched = built.and_then(|b| {
            let error = |e: GpuError| Refused { what: b.title(), why: e.to_string() };
            let mut prepared = b.prepared.clone();
            prepared.cubin = b.cubin.to_vec();
            runner.load(&prepared).map_err(error)?;
            let plan = &b.verified().plans[0];
            runner.launch_once(&plan.name, plan.chains, COUNTER_LAUNCH.0, COUNTER_LAUNCH.1).map_err(error)?;
            Ok(plan.name.clone())
        });
        match launched {
            Ok(name) => names.push(name),
            Err(why) => refused.push(why),
        }
    }
    Ok((names, refused))
}
