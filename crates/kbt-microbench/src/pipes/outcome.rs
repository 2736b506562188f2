//! What `pipes` found: its types and their text.

use super::mixes::{MixTime, Refused};
use super::versus::Comparison;
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The schema that outcomes state.
pub const SCHEMA: &str = "kbt.pipes/1";

/// Lanes a clock and SM of an instruction that occupies each of the four schedulers' share for one cycle.
pub(crate) const LANES: f64 = 128.0;

/// Resources that instructions share, as far as throughput can tell. Plain numbers are the model's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipesOutcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The compile target.
    pub arch: Arch,
    /// The device's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How the model's numbers are known.
    pub provenance: Provenance,
    /// The resources, without the issue port, which is given: one instruction a cycle and scheduler.
    pub resources: Vec<Resource>,
    /// What each instruction uses.
    pub instructions: Vec<InstructionRow>,
    /// What throughput cannot tell here, and why.
    pub unidentifiable: Vec<Unidentifiable>,
    /// The times that all of this rests on.
    pub measured: Measured,
    /// The same mixes as the model has them.
    pub predicted: Vec<Predicted>,
    /// Largest and median of the predictions' errors, without sign.
    pub largest_error_percent: f64,
    /// The median.
    pub median_error_percent: f64,
    /// What could not be measured.
    pub refused: Vec<Refused>,
    /// Instructions whose rate alone is not the one that the given profile has, as text.
    pub not_as_in_profile: Vec<String>,
    /// The partition beside the profiler's pipe counters.
    pub comparison: Comparison,
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// `r1`, `r2`, …: the inference knows no names of pipes.
    pub name: String,
    /// The instruction that stands for it.
    pub representative: String,
    /// Scheduler cycles that its cheapest member occupies it: one unit.
    pub unit_cycles: f64,
    /// Lanes a clock and SM of an instruction of one unit.
    pub lanes_per_clk_sm: f64,
    /// Where every member issues others beside it: cycles of the cheapest with them, so that a unit is at most that. In
    /// `unit_cycles` they are taken off, with the errors that theirs have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_unit_cycles: Option<f64>,
    /// Those whose bottleneck it is, net of what feeds their result back.
    pub members: Vec<String>,
}

/// What one instruction uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionRow {
    /// Its name.
    pub instruction: String,
    /// The opcodes under test.
    pub opcode: String,
    /// What an operation issues beside them.
    pub companions: Vec<String>,
    /// Cycles an operation alone, companions included.
    pub cycles: f64,
    /// The resources that are its bottleneck, net of the companions; empty where that cannot be told.
    pub bottleneck: Vec<String>,
    /// Cycles it occupies each resource it was tested against, net of the companions. Where a companion's bottleneck is
    /// the resource, what is left after taking it off may be nothing.
    pub usage: Vec<Use>,
}

/// A use of a resource by one instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// The resource.
    pub resource: String,
    /// At least so many cycles.
    pub least_cycles: f64,
    /// At most so many.
    pub most_cycles: f64,
    /// In units of the resource, where that is a whole or half number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<f64>,
}

/// What throughput cannot tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unidentifiable {
    /// An instruction, or a pair.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// How they are known.
    pub provenance: Provenance,
    /// One row a mix.
    pub mixes: Vec<MixTime>,
}

/// The model's time of a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// The names.
    pub of: [String; 2],
    /// Operations of each.
    pub counts: [u32; 2],
    /// Cycles a round.
    pub predicted_cycles: f64,
    /// Predicted over measured, less one.
    pub error_percent: f64,
}

impl PipesOutcome {
    /// The row of an instruction.
    #[must_use]
    pub fn row(&self, instruction: &str) -> Option<&InstructionRow> {
        self.instructions.iter().find(|r| r.instruction == instruction)
    }

    /// Holds the instructions alone against a profile's rates; what is more than 3 % apart is kept.
    pub fn hold_against(&mut self, profile: &DeviceProfile) {
        for row in self.instructions.iter().filter(|r| r.companions.is_empty()) {
            let Ok(rate) = profile.rate(&row.instruction) else { continue };
            let (here, there) = (LANES / row.cycles, rate.lanes_per_clk_sm.unwrap_or(0.0));
            if (here / there - 1.0).abs() > 0.03 {
                self.not_as_in_profile.push(format!(
                    "{}: {here:.1} lanes/clk/SM here, {there:.1} in {} ({})",
                    row.instruction, profile.name, rate.provenance.kind
                ));
            }
        }
    }

    /// Writes the outcome as YAML.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        serde_yaml::to_string(self)
    }

    /// One line.
    #[must_use]
    pub fn headline(&self) -> String {
        format!(
            "{} resources behind {} instructions on {}, from {} mixes; predictions off by {:.1} % in the median, \
             {:.1} % at most",
            self.resources.len(),
            self.instructions.len(),
            self.device.clone().unwrap_or_else(|| self.arch.to_string()),
            self.measured.mixes.len(),
            self.median_error_percent,
            self.largest_error_percent
        )
    }

    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = format!("{}\n\n", self.headline());
        for r in &self.resources {
            let _ = writeln!(out, "{}", head(r));
            for member in &r.members {
                let row = self.row(member);
                let units = row
                    .and_then(|i| i.usage.iter().find(|u| u.resource == r.name)?.units)
                    .map_or_else(String::new, |u| format!("{u} x"));
                let opcode = row.map_or("", |i| i.opcode.as_str());
                let _ = writeln!(out, "       {units:>5} {member:<36} {opcode}");
            }
        }
        let beside: Vec<String> = self.instructions.iter().filter_map(beside).collect();
        if !beside.is_empty() {
            let _ = writeln!(
                out,
                "\ntime that an instruction takes of other resources than its bottleneck, cycles each, its companions' taken off (by \
                 throughput: a port or queue in common looks the same as a use of the pipe, and `--counters` tells them apart):\n{}",
                beside.join("\n")
            );
        }
        if !self.unidentifiable.is_empty() {
            let _ = writeln!(out, "\nnot to be told from throughput:");
        }
        for (why, what) in grouped(self.unidentifiable.iter().map(|u| (u.why.as_str(), u.what.as_str()))) {
            let _ = writeln!(out, "  {why}: {}", what.join(", "));
        }
        if !self.refused.is_empty() {
            let _ = writeln!(out, "\nnot measured:");
        }
        // The counts that stand before the last colon differ from mix to mix; the file has them.
        let reason = |r: &'_ Refused| r.why.rfind(": ").map_or(0, |at| at + 2);
        for (why, what) in grouped(self.refused.iter().map(|r| (&r.why[reason(r)..], r.what.as_str()))) {
            let _ = writeln!(out, "  {why}: {}", what.join(", "));
        }
        for line in &self.not_as_in_profile {
            let _ = writeln!(out, "not as in the profile: {line}");
        }
        let _ = write!(out, "\n{}", self.comparison.render_text());
        out
    }
}

/// What has one reason stands together, in the order in which the reasons come first.
fn grouped<'a>(rows: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (why, what) in rows {
        match groups.iter_mut().find(|(w, _)| *w == why) {
            Some((_, list)) => list.push(what),
            None => groups.push((why, vec![what])),
        }
    }
    groups
}

/// Less an operation than this, in cycles, is within the errors of what it is the difference of.
const SURELY: f64 = 0.1;

/// The line of a resource.
fn head(r: &Resource) -> String {
    match r.most_unit_cycles {
        Some(most) => format!(
            "{:<4} {:>6.1} to {:.1} lanes/clk/SM a unit of {:.2} to {most:.2} cycles: no member is ever without companions",
            r.name,
            LANES / most,
            r.lanes_per_clk_sm,
            r.unit_cycles
        ),
        None => format!(
            "{:<4} {:>6.1} lanes/clk/SM a unit of {:.2} cycles",
            r.name, r.lanes_per_clk_sm, r.unit_cycles
        ),
    }
}

/// A line on what an instruction uses beside its bottleneck, where it surely uses something.
fn beside(row: &InstructionRow) -> Option<String> {
    let uses: Vec<String> = row
        .usage
        .iter()
        .filter(|u| !row.bottleneck.contains(&u.resource) && u.least_cycles >= SURELY)
        .map(|u| {
            let range =
                if u.most_cycles > u.least_cycles { format!(" to {}", u.most_cycles) } else { String::new() };
            format!("{}{range} cycles of {}", u.least_cycles, u.resource)
        })
        .collect();
    let without = match &row.companions[..] {
        [] => String::new(),
        some => format!(" (without its {})", some.join(", ")),
    };
    (!uses.is_empty()).then(|| format!("  {}{without}: {}", row.instruction, uses.join(", ")))
}
