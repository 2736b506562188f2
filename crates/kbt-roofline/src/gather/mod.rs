//! A fact sheet gathered on a GPU machine. The user declares the operator, its shape, formats and dataflow; the
//! program's own times, the profiler's counters, the machine code and the device's ceilings are put beside them, each
//! section with its provenance. Running the program and the tools is the caller's work.

mod machine;
mod request;

pub use machine::MachineCode;
pub use request::{CONDITIONS, ProfilerRequest};

use crate::facts::{DeviceFacts, FactSheet, Implementation, Profiler, Timing};
use crate::import::Import;
use crate::published::same_device;
use kbt_device::Ceiling;
use kbt_evidence::Provenance;

/// What was gathered.
#[derive(Debug, Clone, PartialEq)]
pub struct Gathered {
    /// The command that gathered it.
    pub command: String,
    /// The device, by its own name; none where neither the driver nor the program states it.
    pub device: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// Of the day, ISO.
    pub date: String,
    /// The time of each launch that the program printed, in microseconds, in any order.
    pub launches_us: Vec<f64>,
    /// In how many processes.
    pub processes: usize,
    /// What the profiler counted, and its name and version.
    pub profile: Option<(Import, String)>,
    /// What the machine code holds.
    pub machine_code: Option<MachineCode>,
    /// SMs.
    pub sm_count: Option<f64>,
    /// What L2 holds.
    pub l2_bytes: Option<f64>,
    /// Ceilings of a profile, with the device that it is of.
    pub ceilings: Option<(String, Vec<Ceiling>)>,
}

impl Gathered {
    fn measured(&self, by: String) -> Provenance {
        let device = self.device.clone().unwrap_or_else(|| "a device that nothing names".to_owned());
        let found = Provenance::measured(by, device, self.date.clone());
        match &self.driver {
            Some(driver) => found.with_driver(driver.clone()),
            None => found,
        }
    }

    /// Puts what was gathered beside what the user declares. What the user declares of the same thing gives way to
    /// what was measured, but for the kernel's name and the device's.
    #[must_use]
    pub fn into_sheet(self, declared: FactSheet) -> FactSheet {
        let mut sheet = declared;
        let timing = self.timing(&sheet);
        let implementation = self.implementation(&sheet);
        sheet.timing = timing.or(sheet.timing);
        sheet.implementation = implementation.or(sheet.implementation);
        sheet.profiler = self.profiler().or(sheet.profiler);
        sheet.device = Some(self.device_facts(&sheet));
        if let Some((device, ceilings)) = &self.ceilings
            && self.device.as_deref().is_some_and(|d| same_device(d, device))
            && sheet.ceilings.is_empty()
        {
            sheet.ceilings.clone_from(ceilings);
        }
        sheet
    }

    fn timing(&self, declared: &FactSheet) -> Option<Timing> {
        let mut times = self.launches_us.clone();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len().max(1) - 1) as f64 * share).round() as usize).copied();
        let median = at(0.5)?;
        let stated = declared.timing.clone().unwrap_or_default();
        let count = times.len();
        let each = self.profile.as_ref().and_then(|(p, _)| p.sheet.timing.as_ref()?.median_us);
        let kernel_us = stated.kernels.and_then(|n| Some(n * each?));
        let mut by = format!("{}: times that the program printed", self.command);
        if kernel_us.is_some() {
            by.push_str("; kernel_us: kernels a call x the profiler's median duration of one");
        }
        if declared.timing.is_some() {
            by.push_str("; method, warm-up and kernels of a call as its fact sheet declares them");
        }
        Some(Timing {
            median_us: Some(median),
            low_us: at(0.1),
            high_us: at(0.9),
            spread: Some(format!("p10 to p90 of {count} launches in {} processes", self.processes)),
            launches: Some(count as f64),
            kernel_us: kernel_us.or(stated.kernel_us),
            provenance: Some(self.measured(by)),
            ..stated
        })
    }

    fn implementation(&self, declared: &FactSheet) -> Option<Implementation> {
        let stated = declared.implementation.clone();
        let profiled =
            self.profile.as_ref().and_then(|(p, tool)| Some((p.sheet.implementation.clone()?, tool)));
        let machine = self.machine_code.as_ref();
        if profiled.is_none() && machine.is_none() {
            return None;
        }
        let mut all = stated.clone().unwrap_or_default();
        let mut sources: Vec<(&str, Provenance)> = Vec::new();
        let mut how: Vec<String> = Vec::new();
        if let Some((launch, tool)) = profiled {
            all.grid_ctas = launch.grid_ctas.or(all.grid_ctas);
            all.block_threads = launch.block_threads.or(all.block_threads);
            all.ctas_per_sm = launch.ctas_per_sm.or(all.ctas_per_sm);
            all.registers_per_thread = launch.registers_per_thread.or(all.registers_per_thread);
            all.shared_bytes_per_cta = launch.shared_bytes_per_cta.or(all.shared_bytes_per_cta);
            how.push(format!("grid, block, residency, registers, shared memory: {tool}"));
            sources.push(("the launch", self.measured(tool.clone())));
        }
        if let Some(code) = machine {
            all.spill_bytes_per_thread = Some(code.spill_bytes);
            all.tensor_instructions = Some(code.matrix_instruction.is_some());
            all.mma_instruction = code.matrix_instruction.map(str::to_owned).or(all.mma_instruction);
            all.async_copies = Some(code.asynchronous_copies);
            // Warps can share the work by branches that no region shows: only a yes is known.
            all.warp_specialized = code.has_roles.then_some(true).or(all.warp_specialized);
            all.access_bytes_per_thread = code.widest_access_bytes.or(all.access_bytes_per_thread);
            how.push(format!(
                "spills, matrix instruction, copies, roles, access width: {} of {}",
                code.provenance.by, code.function
            ));
            sources.push(("the machine code", code.provenance.clone()));
        }
        if let Some(stated) = stated {
            how.push("the rest as its fact sheet declares it".to_owned());
            let by = Provenance::given(declared.origin.clone());
            sources.push(("the fact sheet", stated.provenance.unwrap_or(by)));
        }
        all.provenance =
            Some(Provenance::computed(how.join("; "), sources.iter().map(|(name, p)| (*name, p))));
        Some(all)
    }

    fn profiler(&self) -> Option<Profiler> {
        let (import, tool) = self.profile.as_ref()?;
        let mut found = import.sheet.profiler.clone()?;
        if let Some(metrics) = &mut found.metrics {
            metrics.retain(|name, _| request::is_read(name));
        }
        let by = format!("{}: {tool}, median of {} launches", self.command, import.launches);
        Some(Profiler { tool: Some(tool.clone()), provenance: Some(self.measured(by)), ..found })
    }

    fn device_facts(&self, declared: &FactSheet) -> DeviceFacts {
        let stated = declared.device.clone().unwrap_or_default();
        let target = self.profile.as_ref().and_then(|(p, _)| p.sheet.device.as_ref()?.compile_target.clone());
        let provenance = match (&self.device, &stated.provenance) {
            (None, Some(stated)) => Some(stated.clone()),
            (None, None) => None,
            (Some(_), _) => Some(self.measured(format!("{}: the driver and the program", self.command))),
        };
        DeviceFacts {
            name: self.device.clone().or(stated.name),
            driver: self.driver.clone().or(stated.driver),
            sm_count: self.sm_count.or(stated.sm_count),
            l2_bytes: self.l2_bytes.or(stated.l2_bytes),
            compile_target: stated.compile_target.or(target),
            provenance,
            ..stated
        }
    }
}

#[cfg(test)]
mod tests;
