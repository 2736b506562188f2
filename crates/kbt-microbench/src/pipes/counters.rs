//! The profiler's counters of instructions by pipe, as Nsight Compute exports them: `ncu --csv`, the raw page (one
//! row a kernel, a row of units under the header) or one row a metric.

use std::collections::BTreeMap;

/// The metric that counts all instructions.
pub const EXECUTED: &str = "sm__inst_executed.sum";
/// What stands before the pipe's name in a metric's, and after it.
const PIPE: (&str, &str) = ("sm__inst_executed_pipe_", ".sum");
/// The profiler's word for missing permission.
const NO_PERMISSION: &str = "ERR_NVGPUCTRPERM";

/// The counters of all kernels, and what could not be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// By kernel name.
    pub kernels: BTreeMap<String, Kernel>,
    /// Lines and cells that were not understood.
    pub problems: Vec<String>,
}

/// One kernel's counters, in warp instructions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kernel {
    /// All of them.
    pub executed: Option<f64>,
    /// By pipe.
    pub pipes: BTreeMap<String, f64>,
}

/// An export that has no counters to offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountersError {
    /// The profiler was not allowed to read them.
    #[error(
        "{0}: the profiler had no permission to read counters ({NO_PERMISSION}); an administrator allows it with the \
         driver option NVreg_RestrictProfilingToAdminUsers=0"
    )]
    NoPermission(String),
    /// No header of an export was found.
    #[error("{0}: no line names a column `Kernel Name`; expected the output of `ncu --csv --page raw`")]
    NoHeader(String),
    /// There is no counter of a pipe in it.
    #[error("{0}: no column `sm__inst_executed_pipe_….sum`; pass these metrics to ncu, and {EXECUTED}")]
    NoPipes(String),
}

impl Counters {
    /// Reads an export; `origin` names the file in errors.
    pub fn from_csv(text: &str, origin: &str) -> Result<Self, CountersError> {
        if text.contains(NO_PERMISSION) {
            return Err(CountersError::NoPermission(origin.to_owned()));
        }
        let lines: Vec<Vec<String>> = records(text.trim_start_matches('\u{feff}'));
        let at = lines
            .iter()
            .position(|l| l.iter().any(|c| c == "Kernel Name"))
            .ok_or_else(|| CountersError::NoHeader(origin.to_owned()))?;
        let header = &lines[at];
        let column = |name: &str| header.iter().position(|c| c == name);
        let mut counters = Self::default();
        let long = column("Metric Name").zip(column("Metric Value"));
        let name_at = column("Kernel Name").unwrap_or(0);
        for (line, cells) in lines.iter().enumerate().skip(at + 1) {
            let Some(kernel) = cells.get(name_at).map(|n| kernel_name(n)).filter(|n| !n.is_empty()) else {
                // The row of units names no kernel, and the profiler's own lines have fewer cells.
                continue;
            };
            let mut put = |metric: &str, value: &str| counters.put(&kernel, metric, value, line + 1);
            match long {
                Some((metric, value)) => {
                    if let (Some(metric), Some(value)) = (cells.get(metric), cells.get(value)) {
                        put(metric, value);
                    }
                }
                None => header.iter().zip(cells).for_each(|(metric, value)| put(metric, value)),
            }
        }
        if counters.kernels.values().all(|k| k.pipes.is_empty()) {
            return Err(CountersError::NoPipes(origin.to_owned()));
        }
        Ok(counters)
    }

    fn put(&mut self, kernel: &str, metric: &str, value: &str, line: usize) {
        let pipe = metric.strip_prefix(PIPE.0).and_then(|m| m.strip_suffix(PIPE.1));
        if pipe.is_none() && metric != EXECUTED {
            return;
        }
        let Some(count) = number(value) else {
            self.problems.push(format!("line {line}: {kernel}: {metric} is `{value}`, no number"));
            return;
        };
        let entry = self.kernels.entry(kernel.to_owned()).or_default();
        // A kernel that was launched again is counted again: all launches together.
        match pipe {
            Some(pipe) => *entry.pipes.entry(pipe.to_owned()).or_default() += count,
            None => *entry.executed.get_or_insert(0.0) += count,
        }
    }
}

impl Kernel {
    /// The pipes that have no parts of their own: `fma` is the sum of a heavy and a light half, and where both it and
    /// the heavy half were counted the light one is the rest.
    #[must_use]
    pub fn leaves(&self) -> BTreeMap<String, f64> {
        let mut leaves = self.pipes.clone();
        if let (Some(all), Some(heavy)) = (self.pipes.get("fma"), self.pipes.get("fmaheavy")) {
            leaves.remove("fma");
            leaves.entry("fmalite".to_owned()).or_insert((all - heavy).max(0.0));
        }
        leaves
    }
}

/// `1234`, `1,234`, `1234.5`; the profiler writes other numbers in the same way.
fn number(text: &str) -> Option<f64> {
    text.trim().replace(',', "").parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
}

/// The name without template arguments or parameters.
fn kernel_name(text: &str) -> String {
    text.split(['(', '<']).next().unwrap_or_default().trim().to_owned()
}

/// Records of comma-separated cells, with quotes (doubled within) and line ends of either kind.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut cells, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                cells.push(std::mem::take(&mut cell));
                all.push(std::mem::take(&mut cells));
            }
            '\r' if !quoted => {}
            c => cell.push(c),
        }
    }
    if !cell.is_empty() || !cells.is_empty() {
        cells.push(cell);
        all.push(cells);
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const RAW: &str = "==PROF== Connected to process 1\r
\"ID\",\"Kernel Name\",\"sm__inst_executed.sum\",\"sm__inst_executed_pipe_alu.sum\",\"sm__inst_executed_pipe_fma.sum\",\"sm__inst_executed_pipe_fmaheavy.sum\"\r
\"\",\"\",\"inst\",\"inst\",\"inst\",\"inst\"\r
\"0\",\"lop3_b32\",\"1,100\",\"1,000\",\"0\",\"0\"\r
\"1\",\"mad_lo_s32(int)\",\"1100\",\"50\",\"1000\",\"990\"\r
\"2\",\"odd\",\"1100\",\"n/a\",\"1\",\"1\"\r
";

    #[test]
    fn the_raw_page_is_read_kernel_by_kernel() {
        let c = Counters::from_csv(RAW, "c.csv").unwrap();
        assert_eq!(c.kernels["lop3_b32"].executed, Some(1100.0));
        assert_eq!(c.kernels["lop3_b32"].pipes["alu"], 1000.0);
        let leaves = c.kernels["mad_lo_s32"].leaves();
        assert_eq!((leaves["fmaheavy"], leaves["fmalite"], leaves.get("fma")), (990.0, 10.0, None));
        assert_eq!(c.problems, ["line 6: odd: sm__inst_executed_pipe_alu.sum is `n/a`, no number"]);
    }

    #[test]
    fn a_row_a_metric_is_read_too() {
        let text = "\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
                    \"a\",\"sm__inst_executed_pipe_xu.sum\",\"inst\",\"7\"\n\"a\",\"gpu__time.sum\",\"ns\",\"x\"\n";
        assert_eq!(Counters::from_csv(text, "c").unwrap().kernels["a"].pipes["xu"], 7.0);
    }

    #[test]
    fn what_offers_no_counters_says_what_is_missing() {
        let error = |text: &str| Counters::from_csv(text, "c.csv").unwrap_err().to_string();
        assert!(error("==ERROR== ERR_NVGPUCTRPERM - no permission").contains("no permission"));
        assert!(error("hello").contains("`ncu --csv --page raw`"));
        assert!(error("\"Kernel Name\",\"x\"\n\"a\",\"1\"\n").contains("sm__inst_executed.sum"));
    }
}
