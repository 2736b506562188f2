//! A profile as a table, for people and for scripts.

use crate::published::Beside;
use kbt_device::{Arch, CeilingKind, DeviceProfile, Lowering, MixRow, Pipe};
use kbt_evidence::{Known, Provenance};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A profile's rows in the form that scripts read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Always [`crate::outcome::SCHEMA`].
    pub schema: String,
    /// The profile's name.
    pub profile: String,
    /// Its compile target.
    pub arch: Arch,
    /// The device, where one was measured.
    pub device: Option<String>,
    /// One row an instruction.
    pub rows: Vec<Row>,
    /// Published figures beside the rows, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Vec<Beside>>,
}

/// One instruction. Every field is there; what is not known is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name in the spec.
    pub instruction: String,
    /// The full SASS mnemonic with modifiers.
    pub opcode: Option<String>,
    /// Lanes a clock and SM.
    pub lanes_per_clk_sm: Option<f64>,
    /// Results a clock and SM.
    pub results_per_clk_sm: Option<f64>,
    /// Cycles to a dependent instruction.
    pub latency_clk: Option<f64>,
    /// Its pipe.
    pub pipe: Pipe,
    /// How the numbers are known.
    pub provenance: Provenance,
    /// Why there is no rate.
    pub refused: Option<String>,
}

impl Table {
    /// The table of a profile.
    #[must_use]
    pub fn of(profile: &DeviceProfile) -> Self {
        Self {
            schema: crate::outcome::SCHEMA.to_owned(),
            profile: profile.name.clone(),
            arch: profile.arch,
            device: profile.device.clone(),
            rows: profile
                .rates
                .iter()
                .map(|r| Row {
                    instruction: r.instruction.clone(),
                    opcode: r.opcode.clone(),
                    lanes_per_clk_sm: r.lanes_per_clk_sm,
                    results_per_clk_sm: r.results_per_clk_sm,
                    latency_clk: r.latency(),
                    pipe: r.pipe,
                    provenance: r.provenance.clone(),
                    refused: r.refused.clone(),
                })
                .collect(),
            published: None,
        }
    }

    /// The same with published figures beside the rows.
    #[must_use]
    pub fn with_published(mut self, beside: Vec<Beside>) -> Self {
        self.published = Some(beside);
        self
    }
}

/// The whole profile for people: rates, mixes, ceilings, lowering.
#[must_use]
pub fn render_profile(profile: &DeviceProfile) -> String {
    let mut out = format!("profile {} ({})", profile.name, profile.arch);
    if let Some(device) = &profile.device {
        let _ = write!(out, ", {device}");
    }
    if let (Some(sms), Some(mhz)) = (profile.sm_count, profile.sm_clock_mhz) {
        let _ = write!(out, ", {sms} SMs at {mhz:.0} MHz");
    }
    let _ = writeln!(out, "\n{}\n", profile.provenance);
    out.push_str(&lines(profile.rates.iter().map(|r| Line {
        instruction: &r.instruction,
        opcode: r.opcode.as_deref(),
        pipe: r.pipe,
        lanes: r.lanes_per_clk_sm,
        results: r.results_per_clk_sm,
        latency: r.latency(),
        refused: r.refused.as_deref(),
        known: r.provenance.kind,
        plateau: has_plateau(&r.provenance),
    })));
    if !profile.mixes.is_empty() {
        out.push('\n');
    }
    for mix in &profile.mixes {
        let _ = writeln!(out, "{}", mix_line(mix));
    }
    if !profile.ceilings.is_empty() {
        out.push('\n');
    }
    for c in &profile.ceilings {
        let value = match (c.bytes_per_s, c.flop_per_s, c.seconds) {
            (Some(b), ..) => format!("{:.3} TB/s", b * 1e-12),
            (_, Some(f), _) => format!("{:.1} TFLOP/s", f * 1e-12),
            (.., Some(s)) if c.kind == CeilingKind::LaunchLatency => format!("{:.2} us", s * 1e6),
            (.., Some(s)) => format!("{:.1} ns", s * 1e9),
            _ => "unknown".to_owned(),
        };
        let spread = c.spread_percent.map_or_else(String::new, |s| format!(", repeats within {s:.1} %"));
        let state: String = states(&c.provenance.by).map(|s| format!(", {s}")).collect();
        let _ = writeln!(
            out,
            "ceiling {:<20} {value:>16}  {}{spread}{state}",
            c.kind.as_str(),
            c.provenance.kind
        );
    }
    if !profile.lowering.is_empty() {
        out.push('\n');
    }
    // Of one instruction the row says which; n of one are an operation of several.
    let several =
        |l: &&Lowering| l.instructions.iter().map(|i| i.count).sum::<f64>() > 1.0 || l.instructions.len() > 1;
    for l in profile.lowering.iter().filter(several) {
        let parts: Vec<String> =
            l.instructions.iter().map(|i| format!("{} {}", trim(i.count), i.opcode)).collect();
        let _ = writeln!(out, "lowering {:<28} {}", l.operation, parts.join(", "));
    }
    out
}

/// What a provenance says of the device's state, in brackets: held down by its power or heat, shared with others.
fn states(by: &str) -> impl Iterator<Item = &str> {
    by.split('[').skip(1).filter_map(|part| Some(part.split_once(']')?.0))
}

/// One line of the table of rates.
pub(crate) struct Line<'a> {
    pub(crate) instruction: &'a str,
    pub(crate) opcode: Option<&'a str>,
    pub(crate) pipe: Pipe,
    pub(crate) lanes: Option<f64>,
    pub(crate) results: Option<f64>,
    pub(crate) latency: Option<f64>,
    pub(crate) refused: Option<&'a str>,
    pub(crate) known: Known,
    pub(crate) plateau: bool,
}

/// Whether the sweep behind a number found a plateau; its provenance says where it did not.
pub(crate) fn has_plateau(provenance: &Provenance) -> bool {
    !provenance.by.split(", ").any(|part| part == "no plateau")
}

/// What a number without a plateau is.
const NO_PLATEAU: &str = "no plateau: more warps or chains might have given more; the rate is a lower bound";

/// The table of rates with its head.
pub(crate) fn lines<'a>(rows: impl Iterator<Item = Line<'a>>) -> String {
    let mut out = format!(
        "{:<36} {:>8} {:>8} {:>7}  {:<9} {:<9} {}\n",
        "instruction", "lanes", "results", "latency", "pipe", "known", "machine code"
    );
    let number =
        |v: Option<f64>, digits: usize| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
    let mut bounds = false;
    for r in rows {
        let code = match (r.refused, r.opcode) {
            (Some(why), _) => format!("refused: {why}"),
            (None, Some(opcode)) => opcode.to_owned(),
            (None, None) => "several instructions".to_owned(),
        };
        let mark = if r.plateau { "" } else { " (no plateau)" };
        bounds |= !r.plateau;
        let _ = writeln!(
            out,
            "{:<36} {:>8} {:>8} {:>7}  {:<9} {:<9} {code}{mark}",
            r.instruction,
            number(r.lanes, 2),
            number(r.results, 2),
            number(r.latency, 1),
            r.pipe.as_str(),
            r.known.as_str(),
        );
    }
    if bounds {
        let _ = writeln!(out, "{NO_PLATEAU}");
    }
    out
}

/// `mix 1 ex2 + 4 fma: 79.1 lanes, separate pipes allow 80.0, one pipe 40.0`.
pub(crate) fn mix_line(mix: &MixRow) -> String {
    let parts: Vec<String> = mix.parts.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let mut line = format!("mix {}:", parts.join(" + "));
    match (mix.lanes_per_clk_sm, &mix.refused) {
        (Some(lanes), _) => {
            let _ = write!(line, " {lanes:.2} lanes");
        }
        (None, Some(why)) => {
            let _ = write!(line, " refused: {why}");
        }
        (None, None) => line.push_str(" not measured"),
    }
    if let (Some(separate), Some(shared)) = (mix.separate_lanes_per_clk_sm, mix.shared_lanes_per_clk_sm) {
        let _ = write!(line, ", separate pipes allow {separate:.2}, one pipe {shared:.2}");
    }
    let bound = if has_plateau(&mix.provenance) { "" } else { ", no plateau: a lower bound" };
    let _ = write!(line, " ({}{bound})", mix.provenance.kind);
    line
}

fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_device::RateRow;
    use kbt_evidence::audit;

    #[test]
    fn a_ceiling_of_a_device_that_was_held_down_says_so_and_how_far_its_repeats_lie() {
        let by = "kbt microbench run [the device was throttling: PowerCap]: kernel wgmma_bf16";
        let mut profile = DeviceProfile::new("h", Arch::SM_90A, Provenance::mined("ptxas"));
        profile.ceilings.push(kbt_device::Ceiling {
            kind: CeilingKind::TensorBf16,
            bytes_per_s: None,
            flop_per_s: Some(956.1e12),
            seconds: None,
            spread_percent: Some(11.897),
            provenance: Provenance::measured(by, "NVIDIA H200", "2026-01-01"),
        });
        let text = render_profile(&profile);
        let told = "measured, repeats within 11.9 %, the device was throttling: PowerCap";
        assert!(text.contains(told), "{text}");
    }

    #[test]
    fn an_operation_of_several_of_one_opcode_has_its_line() {
        let p = Provenance::mined("ptxas");
        let mut profile = DeviceProfile::new("h", Arch::SM_90A, p.clone());
        for (operation, count) in [("ex2.approx.f16x2", 2.0), ("sad.u32", 1.0)] {
            profile.lowering.push(Lowering {
                operation: operation.to_owned(),
                results: 2.0,
                instructions: vec![kbt_device::Lowered { opcode: "MUFU".into(), pipe: Pipe::Xu, count }],
                provenance: p.clone(),
            });
        }
        let text = render_profile(&profile);
        assert!(text.contains("lowering ex2.approx.f16x2             2 MUFU\n"), "{text}");
        assert!(!text.contains("lowering sad.u32"), "{text}");
    }

    #[test]
    fn a_rate_without_a_plateau_is_marked_and_the_mark_explained() {
        let told = |by: &str| {
            let p = Provenance::measured(by, "NVIDIA H200", "2026-01-01");
            let mut profile = DeviceProfile::new("h", Arch::SM_90A, p.clone());
            profile.mixes.push(MixRow {
                parts: vec![("a".into(), 1), ("b".into(), 4)],
                lanes_per_clk_sm: Some(80.0),
                separate_lanes_per_clk_sm: None,
                shared_lanes_per_clk_sm: None,
                refused: None,
                provenance: p.clone(),
            });
            profile.rates.push(RateRow {
                instruction: "a".into(),
                opcode: Some("POPC".into()),
                pipe: Pipe::Xu,
                lanes_per_clk_sm: Some(16.0),
                results_per_clk_sm: Some(16.0),
                latency_clk: None,
                spread_percent: None,
                refused: None,
                provenance: p,
            });
            render_profile(&profile)
        };
        let bound = told("run: at least 14.12 with the loop, no plateau, cubin 12");
        assert!(bound.contains("POPC (no plateau)\n") && bound.contains(NO_PLATEAU), "{bound}");
        assert!(bound.contains("80.00 lanes (measured, no plateau: a lower bound)"), "{bound}");
        assert!(!told("run: at least 14.12 with the loop, cubin 12").contains("no plateau"));
    }

    #[test]
    fn a_latency_of_opcodes_in_turn_is_not_shown() {
        let p = Provenance::mined("ptxas");
        let mut row = RateRow {
            instruction: "add.rn.f16x2".into(),
            opcode: Some("HADD2+HFMA2.MMA".into()),
            pipe: Pipe::Unknown,
            lanes_per_clk_sm: Some(128.0),
            results_per_clk_sm: Some(256.0),
            latency_clk: Some(8.0),
            spread_percent: None,
            refused: None,
            provenance: p.clone(),
        };
        let mut profile = DeviceProfile::new("h", Arch::SM_90A, p);
        profile.rates.push(row.clone());
        row.opcode = Some("HADD2".into());
        profile.rates.push(row);
        let shown: Vec<_> = Table::of(&profile).rows.iter().map(|r| r.latency_clk).collect();
        assert_eq!(shown, [None, Some(8.0)]);
    }

    #[test]
    fn scripts_find_every_field_also_of_a_refused_row() {
        let p = Provenance::mined("ptxas 13.0.88");
        let mut profile = DeviceProfile::new("sm_103a", Arch::SM_103A, p.clone());
        profile.rates.push(RateRow {
            instruction: "popc.b32".into(),
            opcode: Some("POPC".into()),
            pipe: Pipe::Xu,
            lanes_per_clk_sm: None,
            results_per_clk_sm: None,
            latency_clk: None,
            spread_percent: None,
            refused: Some("a scoreboard".into()),
            provenance: p,
        });
        let table = Table::of(&profile);
        let json = serde_json::to_value(&table).unwrap();
        for field in [
            "instruction",
            "opcode",
            "lanes_per_clk_sm",
            "results_per_clk_sm",
            "latency_clk",
            "pipe",
            "provenance",
            "refused",
        ] {
            assert!(json["rows"][0].get(field).is_some(), "{field}");
        }
        assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<Table>(json).unwrap(), table);
        assert!(render_profile(&profile).contains("refused: a scoreboard"));
    }
}
