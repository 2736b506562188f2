//! Measures the ceilings: events around launches whose bytes and operations are known.

use crate::ceilings::{
    Kernel, MEMORY_THREADS, Module, OPERAND_BYTES, TILE_BYTES, is_tensor, random_operands,
};
use crate::rows::round;
use kbt_device::{Ceiling, CeilingKind, DeviceProfile};
use kbt_evidence::Provenance;
use kbt_gpu::{Args, Buffer, Function, Gpu, GpuError, LaunchShape};

/// Bytes of each HBM buffer: many times what L2 holds.
const HBM_BYTES: u64 = 2 << 30;
/// Bytes of the L2 buffer: a part that every L2 in use holds with room to spare.
const L2_BYTES: u64 = 16 << 20;
/// Passes over tiles that a block of the L2 kernel makes.
const L2_PASSES: u32 = 256;
/// Passes of a tensor kernel: some milliseconds.
const TENSOR_PASSES: u32 = 1500;
/// Launches of a tensor kernel under which power and clock are read: a tenth of a second.
const LOAD_LAUNCHES: u32 = 30;
/// Rounds of the mbarrier kernel.
const ROUNDS: u32 = 4096;

/// Adds the ceilings that `wanted` names to the profile; returns what was refused, and why.
pub(super) fn measure(
    gpu: &Gpu,
    module: &Module,
    profile: &mut DeviceProfile,
    provenance: &dyn Fn() -> Provenance,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<String>, GpuError> {
    let wanted = |kind: CeilingKind| wanted(&format!("ceiling:{kind}"));
    let mut refused: Vec<String> =
        module.refused.iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
    let loaded = gpu.load(&module.cubin)?;
    for kernel in module.kernels.iter().filter(|k| wanted(k.kind)) {
        let function = loaded.function(kernel.name)?;
        match ceiling(gpu, kernel, &function, profile, provenance) {
            Ok(ceiling) => profile.ceilings.push(ceiling),
            // One ceiling that fails (too little free memory, say) does not end the others.
            Err(error) => refused.push(format!("{}: {error}", kernel.kind)),
        }
    }
    for derived in [derived_shared(profile), derived_fp32(profile)].into_iter().flatten() {
        if wanted(derived.kind) {
            profile.ceilings.push(derived);
        }
    }
    profile.ceilings.sort_by_key(|c| c.kind);
    Ok(refused)
}

fn ceiling(
    gpu: &Gpu,
    kernel: &Kernel,
    function: &Function,
    profile: &DeviceProfile,
    provenance: &dyn Fn() -> Provenance,
) -> Result<Ceiling, GpuError> {
    let sms = gpu.info().sm_count;
    let (micros, work, what) = match kernel.kind {
        CeilingKind::HbmRead | CeilingKind::HbmWrite | CeilingKind::HbmCopy => {
            let (from, to) = (random(gpu, HBM_BYTES)?, gpu.alloc(HBM_BYTES as usize)?);
            let blocks = (HBM_BYTES / TILE_BYTES) as u32;
            let mut args = Args::new();
            args.push_buffer(&from).push_buffer(&to);
            let micros = time(gpu, function, LaunchShape::linear(blocks, MEMORY_THREADS), &mut args, 15)?;
            (micros, f64::from(blocks) * kernel.per_cta, format!("{} GiB buffers", HBM_BYTES >> 30))
        }
        CeilingKind::L2Read => {
            let (from, to) = (random(gpu, L2_BYTES)?, gpu.alloc(64)?);
            let blocks = sms * (2048 / MEMORY_THREADS);
            let mut args = Args::new();
            args.push_buffer(&from).push_buffer(&to).push((L2_BYTES / TILE_BYTES) as u32).push(L2_PASSES);
            let micros = time(gpu, function, LaunchShape::linear(blocks, MEMORY_THREADS), &mut args, 15)?;
            let work = f64::from(blocks) * f64::from(L2_PASSES) * kernel.per_cta;
            (micros, work, format!("a {} MiB buffer, past L1", L2_BYTES >> 20))
        }
        kind if is_tensor(kind) => {
            let from = gpu.upload(&random_operands(kind))?;
            let to = gpu.alloc(64)?;
            debug_assert_eq!(from.len(), OPERAND_BYTES as usize);
            let mut args = Args::new();
            args.push_buffer(&from).push_buffer(&to).push(TENSOR_PASSES);
            let shape = LaunchShape::linear(sms, 256);
            let micros = time(gpu, function, shape, &mut args, 15)?;
            let work = f64::from(sms) * f64::from(TENSOR_PASSES) * kernel.per_cta;
            let state = under_load(gpu, function, shape, &mut args, &micros)?;
            (micros, work, format!("WGMMA m64n256 from shared memory, random data, dense{state}"))
        }
        CeilingKind::LaunchLatency => {
            let micros = time(gpu, function, LaunchShape::linear(1, 32), &mut Args::new(), 200)?;
            (micros, 1.0, "events around an empty kernel".to_owned())
        }
        _ => {
            let out = gpu.zeros(8)?;
            let mut args = Args::new();
            args.push_buffer(&out).push(ROUNDS);
            let mut micros = Vec::new();
            let clock_mhz = profile.sm_clock_mhz.unwrap_or(gpu.info().max_sm_clock_mhz);
            for _ in 0..11 {
                // SAFETY: the kernel takes an address for one u64, and a count.
                unsafe { gpu.launch(function, LaunchShape::linear(1, 1), &mut args)? };
                let cycles = out.read::<u64>()?;
                micros.push(cycles[0] as f64 / f64::from(ROUNDS) / clock_mhz);
            }
            (micros, 1.0, format!("cycles of {ROUNDS} rounds of one thread at {clock_mhz:.0} MHz"))
        }
    };
    Ok(from_times(kernel, micros, work, &what, provenance()))
}

/// A buffer of random bits: data that is all alike is cheaper to move than data is.
fn random(gpu: &Gpu, bytes: u64) -> Result<Buffer, GpuError> {
    let mut state = 1u64;
    let pattern: Vec<u64> = (0..1 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        })
        .collect();
    let pattern = gpu.upload(&pattern)?;
    let mut buffer = gpu.alloc(bytes as usize)?;
    buffer.fill_with(&pattern)?;
    gpu.synchronize()?;
    Ok(buffer)
}

/// Times launches; a result that is not finite or positive cannot come back from events.
fn time(
    gpu: &Gpu,
    function: &Function,
    shape: LaunchShape,
    args: &mut Args,
    n: usize,
) -> Result<Vec<f64>, GpuError> {
    gpu.time_launches(n, 3, || {
        // SAFETY: each caller's arguments are its kernel's parameters, and its buffers outlive the launches.
        unsafe { gpu.launch(function, shape, args) }
    })
}

/// Power and clock while the kernel runs for long: the tensor core alone may reach the card's power limit, and what a
/// short burst reads is then more than the card sustains.
fn under_load(
    gpu: &Gpu,
    function: &Function,
    shape: LaunchShape,
    args: &mut Args,
    micros: &[f64],
) -> Result<String, GpuError> {
    for _ in 0..LOAD_LAUNCHES {
        // SAFETY: as in `time`; the launches have ended when this function returns.
        unsafe { gpu.launch(function, shape, args)? };
    }
    // Asked in the last third of the launches: what is asked as they begin is the state before them.
    let launch_s = micros.iter().sum::<f64>() / micros.len().max(1) as f64 * 1e-6;
    std::thread::sleep(std::time::Duration::from_secs_f64(launch_s * f64::from(LOAD_LAUNCHES) * 0.7));
    let state = gpu.monitor().sample();
    gpu.synchronize()?;
    let power = state.power_w.map(|w| format!(" at {w:.0} W"));
    let clock = state.sm_clock_mhz.map(|mhz| format!(", SM clock {mhz:.0} MHz"));
    let said = [power, clock].into_iter().flatten().collect::<String>();
    Ok(if said.is_empty() { said } else { format!("; under such load{said}") })
}

/// A ceiling from the times of launches that each did `work`.
fn from_times(kernel: &Kernel, mut micros: Vec<f64>, work: f64, what: &str, mut p: Provenance) -> Ceiling {
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share).round() as usize];
    let seconds = at(0.5) * 1e-6;
    p.by = format!("{}: kernel {}, {what}, median of {} launches", p.by, kernel.name, micros.len());
    let mut ceiling = Ceiling {
        kind: kernel.kind,
        bytes_per_s: None,
        flop_per_s: None,
        seconds: None,
        spread_percent: Some(round((at(0.9) - at(0.1)) / at(0.5) * 100.0, 1000.0)),
        provenance: p,
    };
    match kernel.kind {
        kind if is_tensor(kind) => ceiling.flop_per_s = Some((work / seconds).round()),
        CeilingKind::LaunchLatency | CeilingKind::MbarrierRoundTrip => {
            ceiling.seconds = Some(round(seconds, 1e12));
        }
        _ => ceiling.bytes_per_s = Some((work / seconds).round()),
    }
    ceiling
}

/// Shared memory's bandwidth from the rate of 16-byte loads.
fn derived_shared(profile: &DeviceProfile) -> Option<Ceiling> {
    let (per_second, p) = per_second(profile, "ld.shared.b128")?;
    let bytes_per_s = Some((per_second * 16.0).round());
    Some(Ceiling {
        kind: CeilingKind::SharedRead,
        bytes_per_s,
        flop_per_s: None,
        seconds: None,
        spread_percent: None,
        provenance: p,
    })
}

/// FP32 arithmetic from the rate of multiply-adds.
fn derived_fp32(profile: &DeviceProfile) -> Option<Ceiling> {
    let (per_second, p) = per_second(profile, "fma.rn.f32")?;
    let flop_per_s = Some((per_second * 2.0).round());
    Some(Ceiling {
        kind: CeilingKind::Fp32,
        bytes_per_s: None,
        flop_per_s,
        seconds: None,
        spread_percent: None,
        provenance: p,
    })
}

/// Lanes a second of the whole device.
fn per_second(profile: &DeviceProfile, instruction: &str) -> Option<(f64, Provenance)> {
    let row = profile.rate(instruction).ok()?;
    let hz = profile.sm_clock_mhz? * 1e6;
    let how = format!("rate of {instruction} x SMs x SM clock");
    let inputs = [(instruction, &row.provenance), ("SM clock", &profile.provenance)];
    let provenance = Provenance::computed(how, inputs);
    Some((row.lanes_per_clk_sm? * f64::from(profile.sm_count?) * hz, provenance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_device::{Arch, Pipe, RateRow};

    #[test]
    fn a_ceiling_is_work_over_the_median_time() {
        let kernel = &crate::ceilings::kernels(Arch::SM_103A)[2];
        assert_eq!(kernel.kind, CeilingKind::HbmCopy);
        let p = Provenance::measured("c", "d", "2026-01-01");
        let ceiling = from_times(kernel, vec![1000.0, 990.0, 1200.0], 4.0e9, "x", p);
        assert_eq!(ceiling.bytes_per_s, Some(4.0e12));
    }

    #[test]
    fn shared_memory_and_fp32_follow_from_their_rates() {
        let p = Provenance::measured("c", "d", "2026-01-01");
        let mut profile = DeviceProfile::new("t", Arch::SM_90A, p.clone());
        assert!(derived_shared(&profile).is_none());
        profile.sm_count = Some(132);
        profile.sm_clock_mhz = Some(1000.0);
        profile.rates.push(RateRow {
            instruction: "ld.shared.b128".into(),
            opcode: None,
            pipe: Pipe::Lsu,
            lanes_per_clk_sm: Some(8.0),
            results_per_clk_sm: None,
            latency_clk: None,
            spread_percent: None,
            refused: None,
            provenance: p,
        });
        let shared = derived_shared(&profile).unwrap();
        assert_eq!(shared.bytes_per_s, Some(8.0 * 16.0 * 132.0 * 1e9));
        assert!(shared.provenance.kind.is_measurement());
    }
}
