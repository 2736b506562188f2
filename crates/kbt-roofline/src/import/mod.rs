//! Facts from Nsight Compute's CSV exports: details and raw pages, long and wide, whatever surrounds them. What is
//! understood becomes a fact sheet, what is not becomes a list of problems; rules are kept as leads.

mod lines;
mod numbers;
mod rows;
mod tables;

use crate::facts::{DeviceFacts, FactSheet, Implementation, Profiler, Timing, TimingMethod};
use crate::metrics;
use crate::sheet::SheetError;
use kbt_evidence::Provenance;
use rows::{Launch, Size};
use std::collections::BTreeMap;

/// What an export gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// The facts. An export knows no operator, shape, format or dataflow: those are for the user to add.
    pub sheet: FactSheet,
    /// The kernel chosen, by its full name there.
    pub kernel: String,
    /// Launches of it that were read; metrics are medians over them.
    pub launches: usize,
    /// The other kernels in the file, with the time each took.
    pub others: Vec<String>,
    /// Launches of the same kernel that are of another size than the one chosen, with the time each size took.
    pub left_out: Vec<String>,
    /// What was not understood.
    pub problems: Vec<String>,
}

/// Reads an export. `kernel` picks the kernel whose name contains it; without one, the kernel that took most
/// time is taken and the others are named.
pub fn import(bytes: &[u8], origin: &str, kernel: Option<&str>) -> Result<Import, SheetError> {
    let text = numbers::decode(bytes);
    let export = rows::read(&text, origin)?;
    let mut problems = export.problems;
    let mut by_name: BTreeMap<String, Vec<Launch>> = BTreeMap::new();
    for launch in export.launches {
        by_name.entry(launch.kernel.clone()).or_default().push(launch);
    }
    let time = |launches: &[Launch]| launches.iter().filter_map(Launch::duration_ns).sum::<f64>();
    let told =
        |(n, l): (&String, &Vec<Launch>)| format!("{n} ({:.1} us in {} launches)", time(l) / 1e3, l.len());
    let names: Vec<String> = by_name.iter().map(told).collect();
    let chosen = match kernel {
        Some(wanted) => named(by_name.keys(), wanted).cloned().ok_or_else(|| {
            SheetError::new(
                origin,
                None,
                format!("no kernel contains `{wanted}`; there are: {}", names.join("; ")),
            )
        })?,
        None => by_name
            .iter()
            .max_by(|a, b| time(a.1).total_cmp(&time(b.1)).then(b.0.cmp(a.0)))
            .map(|(n, _)| n.clone())
            .ok_or_else(|| SheetError::new(origin, None, "the export holds no launch"))?,
    };
    let (launches, left_out) = one_size(by_name.remove(&chosen).unwrap_or_default());
    let others = by_name.iter().map(told).collect();
    let sheet = sheet(origin, &chosen, &launches, &mut problems);
    Ok(Import { sheet, kernel: chosen, launches: launches.len(), others, left_out, problems })
}

/// The kernel of a name: the whole name, else all before its arguments, else all before its template's, else one that
/// contains it.
fn named<'a>(mut all: impl Iterator<Item = &'a String> + Clone, wanted: &str) -> Option<&'a String> {
    let before = |n: &str, mark: char| n.split(mark).next().unwrap_or(n).trim() == wanted;
    let found = |is: &dyn Fn(&str) -> bool| all.clone().find(|n| is(n));
    found(&|n| n == wanted)
        .or_else(|| found(&|n| before(n, '(')))
        .or_else(|| found(&|n| before(n, '<')))
        .or_else(|| all.find(|n| n.contains(wanted)))
}

/// The launches of the grid and block that took most time; a median over several sizes is of none of them.
fn one_size(launches: Vec<Launch>) -> (Vec<Launch>, Vec<String>) {
    let total = |l: &[Launch]| l.iter().filter_map(Launch::duration_ns).sum::<f64>();
    let mut sizes: Vec<(Size, Vec<Launch>)> = Vec::new();
    for launch in launches {
        let size = launch.size();
        match sizes.iter_mut().find(|(s, _)| *s == size) {
            Some((_, same)) => same.push(launch),
            None => sizes.push((size, vec![launch])),
        }
    }
    // Among equals the one that was launched first.
    let most = sizes.iter().map(|(_, l)| total(l)).fold(f64::NEG_INFINITY, f64::max);
    let Some(at) = sizes.iter().position(|(_, l)| total(l) >= most) else { return Default::default() };
    let (_, chosen) = sizes.remove(at);
    let said = sizes.iter().map(|(size, l)| {
        let plural = if l.len() == 1 { "launch" } else { "launches" };
        format!("{size}: {} {plural}, {:.1} us", l.len(), total(l) / 1e3)
    });
    (chosen, said.collect())
}

impl Import {
    /// The sheet as YAML, with what is still to be filled in at its head.
    pub fn to_yaml(&self) -> Result<String, SheetError> {
        let mut out = String::from(
            "# Facts from a profiler's export. It knows no operator: before a triage add\n\
             #   operator: {kind: gemm | attention | normalization | elementwise | reduction | convolution}, shape, dtypes,\n\
             #   dataflow: {reuse: ...}, device.name,\n\
             #   and timing.communication_included (true or false), where it is not there.\n\
             # The time is the profiler's own, with its clocks and cold caches: put the call's own median there, with its method.\n",
        );
        for other in &self.left_out {
            out.push_str(&format!("# left out, of another size than the launches read here: {other}\n"));
        }
        for problem in &self.problems {
            out.push_str("# not understood: ");
            out.push_str(&problem.replace('\n', " "));
            out.push('\n');
        }
        out.push_str(&self.sheet.to_yaml()?);
        Ok(out)
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// Whether a kernel's name is that of a communication library's: its time is communication, whole or in part.
fn communicates(kernel: &str) -> bool {
    let name = kernel.to_lowercase();
    ["nccl", "nvshmem", "rccl", "allreduce", "all_reduce"].iter().any(|word| name.contains(word))
}

fn sheet(origin: &str, kernel: &str, launches: &[Launch], problems: &mut Vec<String>) -> FactSheet {
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for launch in launches {
        for (name, value) in &launch.metrics {
            found.entry(name.clone()).or_default().push(*value);
        }
    }
    let ids: Vec<&str> = launches.iter().map(|l| l.id.as_str()).collect();
    let place = Provenance::given(format!("{origin}, launch {}", ids.join(", ")));
    let mut times: Vec<f64> = launches.iter().filter_map(Launch::duration_ns).map(|ns| ns / 1e3).collect();
    let count = times.len();
    let timing = median(&mut times).map(|us| Timing {
        median_us: Some(us),
        low_us: (count > 1).then(|| times[0]),
        high_us: (count > 1).then(|| times[count - 1]),
        spread: (count > 1).then(|| format!("range of {count} profiled launches")),
        method: Some(TimingMethod::Profiler),
        kernels: Some(1.0),
        launches: Some(count as f64),
        // A kernel of another name may still hold a link between GPUs: that is the user's to state.
        communication_included: communicates(kernel).then_some(true),
        provenance: Some(place.clone()),
        ..Timing::default()
    });
    if timing.is_none() {
        problems
            .push("no duration (gpu__time_duration.sum): the triage will need `timing.median_us`".to_owned());
    }
    let all: BTreeMap<String, f64> =
        found.into_iter().filter_map(|(n, mut v)| median(&mut v).map(|m| (n, m))).collect();
    let get = |name: &str| all.get(name).copied();
    let first = launches.first();
    let implementation = Implementation {
        grid_ctas: get("launch__grid_size").or(first.and_then(|l| l.grid)),
        block_threads: get("launch__block_size").or(first.and_then(|l| l.block)),
        ctas_per_sm: metrics::ctas_per_sm(&all),
        registers_per_thread: get("launch__registers_per_thread"),
        // What the kernel declares and what the launch adds; the driver's own part is neither.
        shared_bytes_per_cta: ["dynamic", "static"]
            .iter()
            .filter_map(|part| get(&format!("launch__shared_mem_per_block_{part}")))
            .reduce(|a, b| a + b),
        provenance: Some(place.clone()),
        ..Implementation::default()
    };
    let device = DeviceFacts {
        compile_target: first.and_then(|l| l.target.clone()),
        sm_clock_mhz: get("sm__cycles_elapsed.avg.per_second")
            .or_else(|| get("gpc__cycles_elapsed.avg.per_second"))
            .map(|hz| hz / 1e6),
        provenance: Some(place.clone()),
        ..DeviceFacts::default()
    };
    let mut rules: Vec<String> = launches.iter().flat_map(|l| l.rules.iter().cloned()).collect();
    rules.sort();
    rules.dedup();
    FactSheet {
        name: Some(kernel.split(['(', '<']).next().unwrap_or(kernel).trim().to_owned()),
        implementation: Some(implementation),
        timing,
        device: Some(device),
        profiler: Some(Profiler {
            tool: Some("Nsight Compute, CSV export".to_owned()),
            kernel: Some(kernel.to_owned()),
            metrics: Some(all),
            rules: (!rules.is_empty()).then_some(rules),
            provenance: Some(place),
        }),
        ..FactSheet::default()
    }
}

#[cfg(test)]
mod grouped_tests;
#[cfg(test)]
mod tests;
