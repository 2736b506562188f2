//! Where the numbers of a sheet end, as data, and which of its values exclude each other.

use super::SheetError;
use crate::ceilings::RoofKind;
use crate::facts::{Dataflow, DeviceFacts, FactSheet, Implementation, Operator, OperatorKind, Timing};

/// A number of a sheet with its ends.
struct Limit {
    path: &'static str,
    value: Option<f64>,
    least: f64,
    most: f64,
    whole: bool,
}

impl Limit {
    const fn whole(path: &'static str, value: Option<f64>, least: f64, most: f64) -> Self {
        Self { path, value, least, most, whole: true }
    }

    const fn from_zero(path: &'static str, value: Option<f64>) -> Self {
        Self { path, value, least: 0.0, most: f64::INFINITY, whole: false }
    }

    const fn above(path: &'static str, value: Option<f64>, least: f64) -> Self {
        Self { path, value, least, most: f64::INFINITY, whole: false }
    }

    /// What is wrong with the value, if anything.
    fn broken(&self) -> Option<String> {
        let value = self.value?;
        let fits = (self.least..=self.most).contains(&value) && !(self.whole && value.fract() != 0.0);
        let kind = if self.whole { "a whole number" } else { "a number" };
        let ends = if self.most.is_finite() {
            format!("from {} to {}", self.least, self.most)
        } else {
            format!("of {} or more", self.least)
        };
        (!fits).then(|| format!("`{}` is {value}; {kind} {ends} is needed", self.path))
    }
}

/// Registers a thread and threads a CTA: CUDA C++ Programming Guide, compute capabilities 7.0 to 12.0.
fn limits(o: &Operator, i: &Implementation, t: &Timing, d: &DeviceFacts, f: &Dataflow) -> [Limit; 30] {
    const NO_END: f64 = f64::INFINITY;
    [
        Limit::whole("implementation.grid_ctas", i.grid_ctas, 1.0, NO_END),
        Limit::whole("implementation.block_threads", i.block_threads, 1.0, 1024.0),
        Limit::whole("implementation.registers_per_thread", i.registers_per_thread, 1.0, 255.0),
        Limit::whole("implementation.ctas_per_sm", i.ctas_per_sm, 1.0, NO_END),
        Limit::whole("implementation.tiles", i.tiles, 1.0, NO_END),
        Limit::from_zero("implementation.shared_bytes_per_cta", i.shared_bytes_per_cta),
        Limit::from_zero("implementation.spill_bytes_per_thread", i.spill_bytes_per_thread),
        Limit::from_zero("implementation.issue_slots_per_element", i.issue_slots_per_element),
        Limit::whole("timing.warmup_launches", t.warmup_launches, 0.0, NO_END),
        Limit::whole("timing.launches", t.launches, 1.0, NO_END),
        Limit::whole("timing.kernels", t.kernels, 1.0, NO_END),
        Limit::whole("implementation.pipeline_stages", i.pipeline_stages, 1.0, NO_END),
        Limit::whole("implementation.host_syncs", i.host_syncs, 0.0, NO_END),
        Limit::whole("implementation.access_bytes_per_thread", i.access_bytes_per_thread, 1.0, NO_END),
        Limit::from_zero("implementation.bytes_in_flight_per_sm", i.bytes_in_flight_per_sm),
        Limit::above("device.power_limit_w", d.power_limit_w, 1.0),
        Limit::whole("operator.inputs", o.inputs, 0.0, NO_END),
        Limit::whole("operator.outputs", o.outputs, 0.0, NO_END),
        Limit::from_zero("timing.communication_us", t.communication_us),
        Limit::from_zero("timing.host_transfer_us", t.host_transfer_us),
        Limit::from_zero("timing.submission_us", t.submission_us),
        Limit::whole("device.sm_count", d.sm_count, 1.0, NO_END),
        Limit::from_zero("device.power_draw_w", d.power_draw_w),
        Limit::from_zero("device.l2_bytes", d.l2_bytes),
        Limit::from_zero("dataflow.intermediate_hbm_bytes", f.intermediate_hbm_bytes),
        Limit::from_zero("dataflow.l2_bytes", f.l2_bytes),
        Limit::from_zero("dataflow.shared_bytes", f.shared_bytes),
        Limit::from_zero("dataflow.chain_length", f.chain_length),
        Limit::from_zero("dataflow.chain_latency_ns", f.chain_latency_ns),
        Limit::from_zero("dataflow.atomics_of_one_address", f.atomics_of_one_address),
    ]
}

impl FactSheet {
    /// Numbers with an end: whole ones, those that the hardware limits, and shares of a whole.
    pub(super) fn check_limits(&self) -> Result<(), SheetError> {
        let o = self.operator.clone().unwrap_or_default();
        let i = self.implementation.clone().unwrap_or_default();
        let t = self.timing.clone().unwrap_or_default();
        let d = self.device.clone().unwrap_or_default();
        let f = self.dataflow.clone().unwrap_or_default();
        for limit in limits(&o, &i, &t, &d, &f) {
            if let Some(wrong) = limit.broken() {
                return Err(self.error(limit.path, wrong));
            }
        }
        for (index, role) in i.roles.iter().flatten().enumerate() {
            if !(0.0..=100.0).contains(&role.busy_percent) {
                let path = format!("implementation.roles.{index}.busy_percent");
                let told = format!(
                    "`busy_percent` of role `{}` is {}; 0 to 100 is needed",
                    role.name, role.busy_percent
                );
                return Err(self.error(&path, told));
            }
        }
        // Above a whole is a contradiction to report: counters of different passes do that. Below nothing is no counter.
        let metrics = self.profiler.as_ref().and_then(|p| p.metrics.as_ref());
        if let Some((name, value)) = metrics.into_iter().flatten().find(|(_, v)| **v < 0.0) {
            let path = format!("profiler.metrics.{name}");
            return Err(self.error(&path, format!("`{path}` is {value}, and no counter is negative")));
        }
        Ok(())
    }

    /// Ceilings without a number, or with one of another kind.
    pub(super) fn check_ceilings(&self) -> Result<(), SheetError> {
        for (index, ceiling) in self.ceilings.iter().enumerate() {
            let set = [
                ("bytes_per_s", ceiling.bytes_per_s),
                ("flop_per_s", ceiling.flop_per_s),
                ("seconds", ceiling.seconds),
            ];
            let given: Vec<&str> = set.iter().filter(|(_, v)| v.is_some()).map(|(key, _)| *key).collect();
            let positive = set.iter().all(|(_, v)| v.is_none_or(|v| v > 0.0));
            let wanted = RoofKind::of(ceiling.kind).map(RoofKind::number_key);
            let path = format!("ceilings.{index}");
            if given.len() != 1 || !positive {
                let told = format!(
                    "ceiling `{}` needs exactly one positive number: {}",
                    ceiling.kind,
                    wanted.unwrap_or("bytes_per_s, flop_per_s or seconds")
                );
                return Err(self.error(&path, told));
            }
            if let (Some(wanted), [given]) = (wanted, given.as_slice())
                && wanted != *given
            {
                let told = format!("ceiling `{}` is in `{wanted}`, and `{given}` is given", ceiling.kind);
                return Err(self.error(&path, told));
            }
        }
        Ok(())
    }

    /// Values that exclude each other.
    pub(super) fn check_agreement(&self) -> Result<(), SheetError> {
        if let Some(o) = &self.operator
            && let Some(read) = o.hbm_read_bytes
            && (read < 0.0 || o.hbm_bytes.is_some_and(|all| read > all))
        {
            let all = o.hbm_bytes.map_or_else(|| "unstated".to_owned(), |b| b.to_string());
            return Err(self.error(
                "operator.hbm_read_bytes",
                format!("`operator.hbm_read_bytes` is {read}; it is a part of `operator.hbm_bytes`, which is {all}"),
            ));
        }
        let most = match self.operator.as_ref().and_then(|o| o.kind) {
            Some(OperatorKind::Gemm | OperatorKind::Convolution) => Some(2),
            Some(OperatorKind::Attention) => Some(3),
            Some(OperatorKind::Reduction) => Some(1),
            _ => None,
        };
        let given = self.dtypes.as_ref().and_then(|d| d.inputs.as_ref()).map_or(0, Vec::len);
        if let Some(most) = most.filter(|most| given > *most) {
            return Err(self.error(
                "dtypes.inputs",
                format!("`dtypes.inputs` has {given} formats and the operator {most} inputs; one for all, or one an input"),
            ));
        }
        if let Some(i) = &self.implementation
            && let (Some(false), Some(used)) = (i.tensor_instructions, &i.mma_instruction)
        {
            return Err(self.error(
                "implementation.tensor_instructions",
                format!(
                    "`tensor_instructions` is false and `mma_instruction` is `{used}`; one of them is wrong"
                ),
            ));
        }
        Ok(())
    }
}
