//! Times the loops of a corpus on the GPU.

use super::runner::{MAX_WARPS, RECORD, elapsed};
use crate::loops::{INPUTS, LoopModule, MeasuredLoop, MeasuredLoops, PreparedLoop, TRIPS, warp_counts};
use crate::ptx::MAX_THREADS;
use kbt_gpu::{Args, Buffer, Function, Gpu, GpuError, LaunchShape};

/// Pairs of launches at each number of warps.
const REPEATS: usize = 5;

struct Bench {
    gpu: Gpu,
    inputs: Buffer,
    results: Buffer,
    clocks: Buffer,
}

/// Times every loop of the modules at each number of warps that its registers allow.
pub fn measure_loops(
    ordinal: u32,
    modules: &[LoopModule],
    compiler: &str,
    command: &str,
    progress: &dyn Fn(&str),
) -> Result<MeasuredLoops, GpuError> {
    let gpu = Gpu::open(ordinal)?;
    let blocks = gpu.info().sm_count as usize;
    let words: Vec<u64> = (0..INPUTS * MAX_THREADS as usize)
        .map(|i| {
            // Floats of [0.5, 1.5): a hash of the index, so that no two threads have the same.
            let mut h = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            h ^= h >> 29;
            h = h.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let unit = (h >> 40) as f32 / (1u64 << 24) as f32;
            u64::from((0.5 + unit).to_bits())
        })
        .collect();
    let mut bench = Bench {
        inputs: gpu.upload(&words)?,
        results: gpu.zeros(blocks * MAX_THREADS as usize * 4)?,
        clocks: gpu.zeros(blocks * MAX_WARPS * RECORD * 8)?,
        gpu,
    };
    let mut measured = MeasuredLoops {
        schema: MeasuredLoops::SCHEMA.to_owned(),
        compiler: compiler.to_owned(),
        provenance: bench.gpu.info().measured(command),
        loops: Vec::new(),
        refused: Vec::new(),
    };
    for module in modules {
        measured.refused.extend(module.refused.iter().cloned());
        let loaded = bench.gpu.load(&module.cubin)?;
        for l in &module.loops {
            progress(&l.name);
            match bench.time(&loaded.function(&l.name)?, l) {
                Ok((cycles, spread_percent)) => measured.loops.push(MeasuredLoop {
                    name: l.name.clone(),
                    digest: l.digest.clone(),
                    cycles,
                    spread_percent,
                }),
                Err(Failed::Refused(why)) => measured.refused.push((l.name.clone(), why)),
                Err(Failed::Gpu(e)) => return Err(e),
            }
        }
    }
    Ok(measured)
}

enum Failed {
    Gpu(GpuError),
    Refused(String),
}

impl From<GpuError> for Failed {
    fn from(e: GpuError) -> Self {
        Self::Gpu(e)
    }
}

impl Bench {
    /// Cycles a trip by number of warps, and the widest spread.
    fn time(&mut self, function: &Function, l: &PreparedLoop) -> Result<(Vec<f64>, f64), Failed> {
        let (mut cycles, mut widest) = (Vec::new(), 0.0f64);
        for warps in warp_counts(l.max_threads) {
            // Once each for the instruction cache.
            self.launch(function, warps, TRIPS[0])?;
            let mut samples = Vec::with_capacity(REPEATS);
            for _ in 0..REPEATS {
                let few = self.launch(function, warps, TRIPS[0])?;
                let many = self.launch(function, warps, TRIPS[1])?;
                samples.push((many - few) / f64::from(TRIPS[1] - TRIPS[0]));
            }
            samples.sort_by(f64::total_cmp);
            let median = samples[REPEATS / 2];
            if median <= 0.0 {
                return Err(Failed::Refused(format!("more trips took no longer at {warps} warps")));
            }
            widest = widest.max((samples[REPEATS - 1] - samples[0]) / median * 100.0);
            cycles.push((median * 1000.0).round() / 1000.0);
        }
        Ok((cycles, (widest * 100.0).round() / 100.0))
    }

    fn launch(&mut self, function: &Function, warps: u32, trips: u32) -> Result<f64, Failed> {
        self.clocks.fill(0)?;
        let info = self.gpu.info();
        // More than half of an SM's shared memory, so that no SM holds two blocks.
        let shape = LaunchShape::linear(info.sm_count, warps * 128).with_smem(info.smem_optin / 5 * 3);
        let mut args = Args::new();
        args.push_buffer(&self.inputs).push_buffer(&self.results).push_buffer(&self.clocks).push(trips);
        // SAFETY: the kernels' parameters are these (`loops::kernel`, `kernels/loops`), and the buffers outlive the
        // launch and hold what `INPUTS`, `MAX_THREADS` and `MAX_WARPS` promise.
        unsafe { self.gpu.launch(function, shape, &mut args)? };
        let words: Vec<u64> = self.clocks.read()?;
        elapsed(&words, (warps * 4) as usize).map_err(Failed::Refused)
    }
}
