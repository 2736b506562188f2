//! What a target's process says on standard output: its times, and lines about the device.
//!
//! `kbt-ready` and `kbt-done` are the marks of a turn. The other lines that count are `kbt-time-us N`, `kbt-clock-mhz N`, `kbt-power-w N`, `kbt-throttle REASON`,
//! `kbt-device NAME`, `kbt-driver VERSION`, and whatever the file's own `time:` pattern matches.

use crate::launch::Report;
use crate::turn::{Gate, Mark};
use regex::Regex;
use std::sync::Arc;

/// No launch takes longer.
const HOUR_US: f64 = 3.6e9;

/// The groups of a time pattern, with the microseconds in one of their unit.
const UNITS: &[(&str, f64)] = &[("ns", 1e-3), ("us", 1.0), ("ms", 1e3), ("s", 1e6)];

/// So much of a line is shown.
const SHOWN: usize = 120;

/// A compiled `time:` pattern: which group holds the number, and its unit.
#[derive(Debug, Clone)]
pub struct TimePattern {
    regex: Regex,
    group: &'static str,
    us: f64,
}

/// Why a `time:` pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimePatternError {
    /// It is no regular expression.
    #[error("not a regular expression: {0}")]
    Regex(String),
    /// It does not say which part is the time.
    #[error(
        "the pattern needs exactly one group named ns, us, ms or s around the number, as in \
         `took (?<ms>[0-9.]+)`"
    )]
    Groups,
}

impl TimePattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Where it is no regular expression or has no group, or several, named after a unit.
    pub fn new(pattern: &str) -> Result<Self, TimePatternError> {
        let regex = Regex::new(pattern).map_err(|e| {
            let text = e.to_string();
            TimePatternError::Regex(text.lines().last().unwrap_or_default().trim().to_owned())
        })?;
        let mut found = UNITS.iter().filter(|(unit, _)| regex.capture_names().flatten().any(|n| n == *unit));
        match (found.next(), found.next()) {
            (Some((group, us)), None) => Ok(Self { group, us: *us, regex }),
            _ => Err(TimePatternError::Groups),
        }
    }
}

/// Collects a [`Report`] from lines.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    pattern: Option<TimePattern>,
    /// Who is told of the marks of a turn.
    gate: Option<Arc<Gate>>,
    pub(crate) report: Report,
    /// The first line that was to be a time and is none.
    pub(crate) bad_time: Option<String>,
}

impl LineReader {
    pub(crate) fn new(pattern: Option<TimePattern>) -> Self {
        Self { pattern, ..Self::default() }
    }

    pub(crate) fn with_turn(mut self, gate: Option<&Arc<Gate>>) -> Self {
        self.gate = gate.cloned();
        self
    }

    /// What a run with no time should have printed.
    pub(crate) fn looked_for(pattern: Option<&str>) -> String {
        pattern.map_or_else(|| "lines `kbt-time-us N`".to_owned(), |p| format!("lines that match `{p}`"))
    }

    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if let (Some(gate), Some(mark)) = (&self.gate, Mark::of(line)) {
            gate.mark(mark, !self.report.times_us.is_empty());
        }
        if let Some(p) = &self.pattern {
            let text = p.regex.captures(line).and_then(|c| c.name(p.group)).map(|m| m.as_str());
            // What is no number at all may be a table's heading.
            if let Some(number) = text.and_then(|t| t.parse::<f64>().ok()) {
                let us = p.us;
                self.time(line, Some(number * us));
            }
        }
        let Some(rest) = line.strip_prefix("kbt-") else { return };
        let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
        let value = value.trim();
        let report = &mut self.report;
        match key {
            "time-us" if self.pattern.is_none() => self.time(line, value.parse().ok()),
            "clock-mhz" => report.clocks_mhz.extend(positive(value)),
            "power-w" => report.power_w.extend(positive(value)),
            "throttle" if !value.is_empty() => report.throttle = Some(value.to_owned()),
            "device" if !value.is_empty() => report.device = Some(value.to_owned()),
            "driver" if !value.is_empty() => report.driver = Some(value.to_owned()),
            _ => {}
        }
    }

    /// A launch that took no time, or one that is no number, was not timed: the process's other times are no better.
    fn time(&mut self, line: &str, us: Option<f64>) {
        match us.filter(|us| is_positive(*us) && *us <= HOUR_US) {
            Some(us) => self.report.times_us.push(us),
            None => self.bad_time = self.bad_time.take().or_else(|| Some(line.chars().take(SHOWN).collect())),
        }
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|v| is_positive(*v))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(pattern: Option<&str>, text: &str) -> LineReader {
        let mut reader = LineReader::new(pattern.map(|p| TimePattern::new(p).unwrap()));
        text.lines().for_each(|l| reader.line(l));
        reader
    }

    fn read(pattern: Option<&str>, text: &str) -> Report {
        let reader = reader(pattern, text);
        assert_eq!(reader.bad_time, None);
        reader.report
    }

    #[test]
    fn a_line_whose_time_cannot_be_is_kept_as_it_is() {
        for bad in ["nan", "inf", "0", "0.0", "-1", "-inf", "12 us", "abc", ""] {
            let line = format!("kbt-time-us {bad}");
            let found = reader(None, &format!("kbt-time-us 7\n{line}\nkbt-time-us -9"));
            assert_eq!(found.bad_time.as_deref(), Some(line.trim_end()));
        }
        for bad in ["nan", "0", "-3"] {
            let found =
                reader(Some(r"took (?<ms>[^ ]+)"), &format!("took 7 of it\ntook {bad} of it\ntook ms"));
            assert_eq!(found.bad_time, Some(format!("took {bad} of it")));
        }
        // Where the file has a pattern of its own, the other lines are no times.
        assert_eq!(reader(Some(r"took (?<ms>[^ ]+)"), "kbt-time-us nan").bad_time, None);
    }

    #[test]
    fn the_documented_lines_are_read_and_others_ignored() {
        let report = read(
            None,
            "hello\nkbt-time-us 12.5\nkbt-time-us 13\r\nkbt-clock-mhz 1980\n\
             kbt-power-w 612.5\nkbt-throttle sw power cap\nkbt-device NVIDIA H200\nkbt-driver 580.159.04\nkbt-device",
        );
        assert_eq!(report.times_us, [12.5, 13.0]);
        assert_eq!(report.clocks_mhz, [1980.0]);
        assert_eq!(report.power_w, [612.5]);
        assert_eq!(report.throttle.as_deref(), Some("sw power cap"));
        assert_eq!(report.device.as_deref(), Some("NVIDIA H200"));
        assert_eq!(report.driver.as_deref(), Some("580.159.04"));
    }

    #[test]
    fn a_pattern_reads_times_in_its_own_unit_and_then_alone_counts() {
        let report =
            read(Some(r"fwd: (?<ms>[0-9.]+) ms"), "fwd: 1.5 ms, bwd 3 ms\nkbt-time-us 9\nfwd: ... ms");
        assert_eq!(report.times_us, [1500.0]);
    }

    #[test]
    fn the_cells_of_a_table_of_flash_attention_s_benchmark_are_read() {
        // benchmarks/benchmark_attn.py prints ms/TFLOPS/MFU%/TBs/BW% for each backend of a row.
        let table = "FWD (ms / TFLOPS / MFU% / TBs / BW%)\nhdim causal batch seqlen FA4\n 128 False 2 4096 \
                     0.98/1118/44.7%/0.55/6.8%\n 128 True 2 4096 0.55/ 998/39.9%/0.98/12.1%\n";
        let report = read(Some(r"(?<ms>[0-9.]+)/ *[0-9.]+/ *[0-9.]+%/"), table);
        assert_eq!(report.times_us, [980.0, 550.0]);
    }

    #[test]
    fn a_pattern_may_use_what_people_write() {
        let report = read(Some(r"(?i)\btime:\s+(?<us>\d+\.\d+)\s*us\b"), "Time:  12.5 us\nuptime: 3.0 us");
        assert_eq!(report.times_us, [12.5]);
    }

    #[test]
    fn a_pattern_must_say_which_part_is_the_time() {
        assert_eq!(TimePattern::new("([0-9]+)").unwrap_err(), TimePatternError::Groups);
        assert_eq!(TimePattern::new("(?<ms>.)(?<us>.)").unwrap_err(), TimePatternError::Groups);
        assert!(TimePattern::new("(").unwrap_err().to_string().contains("unclosed"));
    }
}
