//! Launches the chain kernels and reads their clocks.

use crate::measure::Runner;
use crate::prepare::Prepared;
use crate::ptx::{self, MAX_THREADS};
use kbt_device::Arch;
use kbt_gpu::{Args, Buffer, Function, Gpu, GpuError, LaunchShape, Module};
use kbt_toolchain::{PtxasOptions, Toolchain};
use std::collections::BTreeMap;

/// Warps a block can have.
pub(super) const MAX_WARPS: usize = (MAX_THREADS / 32) as usize;
/// Start, end and SM of a warp.
pub(super) const RECORD: usize = 3;

/// A GPU with the buffers that all kernels share: one block on every SM.
pub(super) struct GpuRunner {
    gpu: Gpu,
    results: Buffer,
    clocks: Buffer,
    loaded: Option<Loaded>,
}

struct Loaded {
    module: Module,
    functions: BTreeMap<String, Function>,
    /// Start values by number of chains.
    inputs: BTreeMap<u32, Buffer>,
}

impl GpuRunner {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let blocks = gpu.info().sm_count as usize;
        Ok(Self {
            results: gpu.zeros(blocks * MAX_THREADS as usize * 4)?,
            clocks: gpu.zeros(blocks * MAX_WARPS * RECORD * 8)?,
            gpu: gpu.clone(),
            loaded: None,
        })
    }

    /// Loads a form's module and uploads its start values.
    pub(super) fn load(&mut self, prepared: &Prepared) -> Result<(), GpuError> {
        let module = self.gpu.load(&prepared.cubin)?;
        let mut inputs = BTreeMap::new();
        for verified in &prepared.verified {
            let types = prepared.inputs(verified.chains);
            let mut state = 0x1234_5678_9abc_def1u64;
            let mut words = Vec::with_capacity(types.len() * MAX_THREADS as usize);
            for data in &types {
                for _ in 0..MAX_THREADS {
                    // xorshift64*: every bit of the product is random.
                    state ^= state >> 12;
                    state ^= state << 25;
                    state ^= state >> 27;
                    words.push(data.value(state.wrapping_mul(0x2545_f491_4f6c_dd1d)));
                }
            }
            inputs.insert(verified.chains, self.gpu.upload(&words)?);
        }
        self.loaded = Some(Loaded { module, functions: BTreeMap::new(), inputs });
        Ok(())
    }

    fn launch(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<Vec<u64>, GpuError> {
        let no_kernel = || GpuError::NoKernel(kernel.to_owned());
        let loaded = self.loaded.as_mut().ok_or_else(no_kernel)?;
        if !loaded.functions.contains_key(kernel) {
            loaded.functions.insert(kernel.to_owned(), loaded.module.function(kernel)?);
        }
        let function = loaded.functions.get(kernel).ok_or_else(no_kernel)?;
        let inputs = loaded.inputs.get(&chains).ok_or_else(no_kernel)?;
        self.clocks.fill(0)?;
        let info = self.gpu.info();
        // More than half of an SM's shared memory, so that no SM holds two blocks.
        let shape = LaunchShape::linear(info.sm_count, warps * 32).with_smem(info.smem_optin / 5 * 3);
        let mut args = Args::new();
        args.push_buffer(inputs).push_buffer(&self.results).push_buffer(&self.clocks).push(trips);
        // SAFETY: the kernel's parameters are these (see `ptx::kernel`), and the buffers outlive the launch.
        unsafe { self.gpu.launch(function, shape, &mut args)? };
        self.clocks.read()
    }

    /// Launches a kernel of the loaded form and looks at nothing it writes.
    pub(super) fn launch_once(
        &mut self,
        kernel: &str,
        chains: u32,
        warps: u32,
        trips: u32,
    ) -> Result<(), GpuError> {
        self.launch(kernel, chains, warps, trips).map(|_| ())
    }

    /// The SM clock while the device computes, from cycles and events of one long kernel of multiplications.
    pub(super) fn effective_mhz(&mut self, tools: &Toolchain, arch: Arch) -> Result<f64, super::RunError> {
        let text = format!("{}{CLOCK_KERNEL}", ptx::header(arch, None));
        let assembled = tools.ptxas(text.as_bytes(), arch, &PtxasOptions::default())?;
        let function = self.gpu.load(&assembled.cubin)?.function("clock_probe")?;
        let shape = LaunchShape::linear(self.gpu.info().sm_count, 256);
        let (gpu, clocks) = (self.gpu.clone(), &self.clocks);
        let micros = gpu.time_launches(5, 2, || {
            let mut args = Args::new();
            args.push_buffer(clocks).push(200_000u32);
            // SAFETY: the kernel takes an address for one u64 a block, and a count.
            unsafe { gpu.launch(&function, shape, &mut args) }
        })?;
        let cycles: Vec<u64> = self.clocks.read()?;
        let mut mhz: Vec<f64> = micros.iter().map(|us| cycles[0] as f64 / us).collect();
        mhz.sort_by(f64::total_cmp);
        Ok(mhz.last().copied().unwrap_or_default())
    }
}

/// Cycles of a long dependent chain: milliseconds, so that a launch's own time is nothing beside it.
const CLOCK_KERNEL: &str = r#"
.visible .entry clock_probe(.param .u64 out, .param .u32 trips)
{
  .reg .b32 %n, %t;
  .reg .f32 %x;
  .reg .b64 %start, %end, %to;
  .reg .pred %p;
  ld.param.u64 %to, [out];
  ld.param.u32 %n, [trips];
  mov.u32 %t, %tid.x;
  cvt.rn.f32.u32 %x, %t;
  mov.u64 %start, %clock64;
  .pragma "nounroll";
LOOP:
  fma.rn.f32 %x, %x, %x, 0f3F000000;
  fma.rn.f32 %x, %x, %x, 0f3F000000;
  fma.rn.f32 %x, %x, %x, 0f3F000000;
  fma.rn.f32 %x, %x, %x, 0f3F000000;
  add.u32 %n, %n, -1;
  setp.ne.u32 %p, %n, 0;
  @%p bra LOOP;
  setp.eq.f32 %p, %x, 0f5EEDC10C;
  @%p ret;
  mov.u64 %end, %clock64;
  sub.u64 %end, %end, %start;
  mov.u32 %t, %ctaid.x;
  mad.wide.u32 %to, %t, 8, %to;
  st.global.u64 [%to], %end;
  ret;
}
"#;

impl Runner for GpuRunner {
    fn cycles(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<f64, String> {
        let words = self.launch(kernel, chains, warps, trips).map_err(|e| e.to_string())?;
        elapsed(&words, warps as usize)
    }
}

/// The median over the blocks of the time from the first warp's start to the last warp's end.
pub(super) fn elapsed(words: &[u64], warps: usize) -> Result<f64, String> {
    let mut spans = Vec::new();
    let mut sms = std::collections::BTreeSet::new();
    for block in words.chunks_exact(MAX_WARPS * RECORD) {
        let records: Vec<&[u64]> = block.chunks_exact(RECORD).take(warps).collect();
        if records.iter().any(|r| r[1] <= r[0]) {
            return Err("a warp wrote no clocks".to_owned());
        }
        if !sms.insert(records[0][2]) {
            return Err("two blocks shared an SM".to_owned());
        }
        let start = records.iter().map(|r| r[0]).min().unwrap_or(0);
        let end = records.iter().map(|r| r[1]).max().unwrap_or(0);
        spans.push(end - start);
    }
    spans.sort_unstable();
    spans.get(spans.len() / 2).map(|s| *s as f64).ok_or_else(|| "the device has no SM".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(sm: u64, spans: &[(u64, u64)]) -> Vec<u64> {
        let mut words = vec![0; MAX_WARPS * RECORD];
        for (i, (start, end)) in spans.iter().enumerate() {
            words[i * RECORD..][..RECORD].copy_from_slice(&[*start, *end, sm]);
        }
        words
    }

    #[test]
    fn the_span_is_from_the_first_start_to_the_last_end_the_median_of_the_sms() {
        let words = [
            block(0, &[(100, 200), (90, 190)]),
            block(2, &[(1000, 1500), (1010, 1400)]),
            block(1, &[(5, 145), (15, 150)]),
        ]
        .concat();
        assert_eq!(elapsed(&words, 2), Ok(145.0));
        assert!(elapsed(&words, 3).unwrap_err().contains("no clocks"));
        let shared = [block(4, &[(1, 2)]), block(4, &[(3, 4)])].concat();
        assert!(elapsed(&shared, 1).unwrap_err().contains("shared an SM"));
    }
}
