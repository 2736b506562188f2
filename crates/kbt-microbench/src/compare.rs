//! What two profiles say differently.

use kbt_device::{Arch, DeviceProfile, Lowering, MixRow, RateRow};
use kbt_evidence::{Figure, Known, Provenance, Unit};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Rates closer than this are the same, unless their own spread is wider.
const SAME_PERCENT: f64 = 1.0;
/// Repeats that lie further apart than this are no licence to call two rates the same.
const MOST_SPREAD_PERCENT: f64 = 5.0;

/// Two profiles held against each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Always [`crate::outcome::SCHEMA`].
    pub schema: String,
    /// The first profile.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// What differs, in the first profile's order.
    pub changes: Vec<Change>,
    /// Instructions with a rate in both that is the same.
    pub same: Vec<String>,
}

/// Which profile, and how it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Its name.
    pub profile: String,
    /// Its compile target.
    pub arch: Arch,
    /// How it is known: device, driver or compiler.
    pub provenance: Provenance,
}

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The instruction or ceiling.
    pub of: String,
    /// What kind of difference.
    pub kind: ChangeKind,
    /// The difference in words.
    pub what: String,
    /// The figures of both sides and their ratio, where it is numbers that differ.
    pub figures: Vec<Figure>,
}

/// Kinds of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Another rate.
    Rate,
    /// Another latency.
    Latency,
    /// Other machine code.
    Opcode,
    /// A number in one that the other refuses.
    Refused,
    /// In one only.
    OnlyInOne,
    /// Another ceiling.
    Ceiling,
    /// Other instructions for an operation.
    Lowering,
    /// Another number of results an instruction.
    Results,
    /// Another pipe.
    Pipe,
    /// Another number of SMs, or another clock.
    Device,
    /// Another rate of a mix.
    Mix,
    /// Known in another way: mined and not measured, or assumed.
    Provenance,
}

/// Compares two profiles.
#[must_use]
pub fn compare(a: &DeviceProfile, b: &DeviceProfile) -> Comparison {
    let side =
        |p: &DeviceProfile| Side { profile: p.name.clone(), arch: p.arch, provenance: p.provenance.clone() };
    let mut result = Comparison {
        schema: crate::outcome::SCHEMA.to_owned(),
        a: side(a),
        b: side(b),
        changes: Vec::new(),
        same: Vec::new(),
    };
    // Two runs of one device may well have one name.
    let sides = match a.name == b.name {
        true => ["the first".to_owned(), "the second".to_owned()],
        false => [a.name.clone(), b.name.clone()],
    };
    device(a, b, &mut result);
    let find = |p: &'_ DeviceProfile, name: &str| p.rates.iter().find(|r| r.instruction == name).cloned();
    for row in &a.rates {
        match find(b, &row.instruction) {
            Some(other) => rows(row, &other, (a.provenance.kind, b.provenance.kind), &mut result),
            None => result.changes.push(only(&row.instruction, &sides[0])),
        }
    }
    for row in b.rates.iter().filter(|r| find(a, &r.instruction).is_none()) {
        result.changes.push(only(&row.instruction, &sides[1]));
    }
    mixes(a, b, &sides, &mut result);
    ceilings(a, b, &mut result);
    for (one, other, side) in [(a, b, &sides[0]), (b, a, &sides[1])] {
        let missing = one.ceilings.iter().filter(|c| other.ceiling(c.kind).is_err());
        result.changes.extend(missing.map(|c| only(&format!("ceiling {}", c.kind), side)));
    }
    lowerings(a, b, &sides, &mut result);
    result
}

fn only(name: &str, profile: &str) -> Change {
    Change {
        of: name.to_owned(),
        kind: ChangeKind::OnlyInOne,
        what: format!("only in {profile}"),
        figures: Vec::new(),
    }
}

fn rows(a: &RateRow, b: &RateRow, kinds: (Known, Known), result: &mut Comparison) {
    let mut push = |kind, what: String, figures| {
        result.changes.push(Change { of: a.instruction.clone(), kind, what, figures });
    };
    if a.opcode != b.opcode {
        let name = |o: &Option<String>| o.clone().unwrap_or_else(|| "no single opcode".to_owned());
        push(ChangeKind::Opcode, format!("{} became {}", name(&a.opcode), name(&b.opcode)), Vec::new());
    }
    if a.pipe != b.pipe {
        push(ChangeKind::Pipe, format!("the {} pipe became the {} pipe", a.pipe, b.pipe), Vec::new());
    }
    // Where the profiles themselves are of two kinds, that is said once.
    if a.provenance.kind != b.provenance.kind && (a.provenance.kind, b.provenance.kind) != kinds {
        push(
            ChangeKind::Provenance,
            format!("{} became {}", a.provenance.kind, b.provenance.kind),
            Vec::new(),
        );
    }
    let spread = a.spread_percent.unwrap_or(0.0).max(b.spread_percent.unwrap_or(0.0));
    let allowed = SAME_PERCENT.max(spread.min(MOST_SPREAD_PERCENT));
    match (a.lanes_per_clk_sm, b.lanes_per_clk_sm) {
        (Some(x), Some(y)) if (y / x - 1.0).abs() * 100.0 > allowed => {
            let figures = pair("rate", (x, &a.provenance), (y, &b.provenance), Unit::LanesPerClkSm);
            push(
                ChangeKind::Rate,
                format!("{x:.2} became {y:.2} lanes/clk/SM ({:+.1} %)", (y / x - 1.0) * 100.0),
                figures,
            );
        }
        (Some(_), Some(_)) => result.same.push(a.instruction.clone()),
        (Some(_), None) => push(
            ChangeKind::Refused,
            format!("refused by the second: {}", b.refused.as_deref().unwrap_or("no reason")),
            Vec::new(),
        ),
        (None, Some(_)) => push(
            ChangeKind::Refused,
            format!("refused by the first: {}", a.refused.as_deref().unwrap_or("no reason")),
            Vec::new(),
        ),
        (None, None) => {}
    }
    // Where the lanes differ the results differ with them; here it is how many results an instruction gives.
    let results = |r: &RateRow| Some((r.results_per_clk_sm?, r.results_per_clk_sm? / r.lanes_per_clk_sm?));
    match (results(a), results(b)) {
        (Some((x, each)), Some((y, other))) if (other / each - 1.0).abs() * 100.0 > SAME_PERCENT => push(
            ChangeKind::Results,
            format!(
                "{each:.2} results an instruction became {other:.2}: {x:.2} became {y:.2} results/clk/SM"
            ),
            pair("results", (x, &a.provenance), (y, &b.provenance), Unit::ResultsPerClkSm),
        ),
        _ => {}
    }
    if a.lanes_per_clk_sm.is_some() && b.lanes_per_clk_sm.is_some() {
        match (a.results_per_clk_sm, b.results_per_clk_sm) {
            (Some(_), None) => push(ChangeKind::Results, "results only in the first".to_owned(), Vec::new()),
            (None, Some(_)) => push(ChangeKind::Results, "results only in the second".to_owned(), Vec::new()),
            _ => {}
        }
    }
    match (a.latency(), b.latency()) {
        (Some(x), Some(y)) if (x - y).abs() > 0.5 => push(
            ChangeKind::Latency,
            format!("{x:.1} became {y:.1} clk"),
            pair("latency", (x, &a.provenance), (y, &b.provenance), Unit::Cycles),
        ),
        (Some(x), None) => {
            push(ChangeKind::Latency, format!("latency {x:.1} clk only in the first"), Vec::new())
        }
        (None, Some(y)) => {
            push(ChangeKind::Latency, format!("latency {y:.1} clk only in the second"), Vec::new())
        }
        _ => {}
    }
}

/// The number of SMs and the clock.
fn device(a: &DeviceProfile, b: &DeviceProfile, result: &mut Comparison) {
    let number = |v: Option<f64>| v.map_or_else(|| "not stated".to_owned(), |v| v.to_string());
    for (of, unit, x, y) in [
        ("sm_count", Unit::Count, a.sm_count.map(f64::from), b.sm_count.map(f64::from)),
        ("sm_clock_mhz", Unit::Megahertz, a.sm_clock_mhz, b.sm_clock_mhz),
    ] {
        if x != y {
            let figures = x.zip(y).map(|(x, y)| pair(of, (x, &a.provenance), (y, &b.provenance), unit));
            result.changes.push(Change {
                of: of.to_owned(),
                kind: ChangeKind::Device,
                what: format!("{} became {}", number(x), number(y)),
                figures: figures.unwrap_or_default(),
            });
        }
    }
}

/// Mixes by their parts and numbers of each.
fn mixes(a: &DeviceProfile, b: &DeviceProfile, sides: &[String; 2], result: &mut Comparison) {
    let name = |m: &MixRow| {
        let parts: Vec<String> = m.parts.iter().map(|(name, n)| format!("{n} {name}")).collect();
        format!("mix {}", parts.join(" + "))
    };
    for x in &a.mixes {
        let Some(y) = b.mixes.iter().find(|y| y.parts == x.parts) else {
            result.changes.push(only(&name(x), &sides[0]));
            continue;
        };
        let mut push = |kind, what, figures| result.changes.push(Change { of: name(x), kind, what, figures });
        match (x.lanes_per_clk_sm, y.lanes_per_clk_sm) {
            (Some(v), Some(w)) if (w / v - 1.0).abs() * 100.0 > SAME_PERCENT => push(
                ChangeKind::Mix,
                format!("{v:.2} became {w:.2} lanes/clk/SM ({:+.1} %)", (w / v - 1.0) * 100.0),
                pair("mix", (v, &x.provenance), (w, &y.provenance), Unit::LanesPerClkSm),
            ),
            (Some(_), None) => push(
                ChangeKind::Refused,
                format!("refused by the second: {}", y.refused.as_deref().unwrap_or("no reason")),
                Vec::new(),
            ),
            (None, Some(_)) => push(
                ChangeKind::Refused,
                format!("refused by the first: {}", x.refused.as_deref().unwrap_or("no reason")),
                Vec::new(),
            ),
            _ => {}
        }
    }
    for y in b.mixes.iter().filter(|y| a.mixes.iter().all(|x| x.parts != y.parts)) {
        result.changes.push(only(&name(y), &sides[1]));
    }
}

fn ceilings(a: &DeviceProfile, b: &DeviceProfile, result: &mut Comparison) {
    for x in &a.ceilings {
        let Ok(y) = b.ceiling(x.kind) else { continue };
        let of = |c: &kbt_device::Ceiling| {
            let numbers = [
                (c.bytes_per_s, Unit::BytesPerSecond),
                (c.flop_per_s, Unit::FlopPerSecond),
                (c.seconds, Unit::Seconds),
            ];
            numbers.into_iter().find_map(|(v, unit)| Some((v?, unit)))
        };
        let (Some((v, unit)), Some((w, other))) = (of(x), of(y)) else { continue };
        if unit != other {
            result.changes.push(Change {
                of: format!("ceiling {}", x.kind),
                kind: ChangeKind::Ceiling,
                what: format!("{v:.4e} {} became {w:.4e} {}", unit.symbol(), other.symbol()),
                figures: Vec::new(),
            });
            continue;
        }
        let allowed = SAME_PERCENT.max(x.spread_percent.unwrap_or(0.0)).max(y.spread_percent.unwrap_or(0.0));
        if (w / v - 1.0).abs() * 100.0 > allowed {
            result.changes.push(Change {
                of: format!("ceiling {}", x.kind),
                kind: ChangeKind::Ceiling,
                what: format!("{v:.4e} became {w:.4e} {} ({:+.1} %)", unit.symbol(), (w / v - 1.0) * 100.0),
                figures: pair(x.kind.as_str(), (v, &x.provenance), (w, &y.provenance), unit),
            });
        }
    }
}

/// Operations of several instructions that became others; of one instruction the row says so.
fn lowerings(a: &DeviceProfile, b: &DeviceProfile, sides: &[String; 2], result: &mut Comparison) {
    let text = |l: &Lowering| {
        let parts: Vec<String> = l.instructions.iter().map(|i| format!("{} {}", i.count, i.opcode)).collect();
        parts.join(", ")
    };
    for x in &a.lowering {
        let Some(y) = b.lowering.iter().find(|y| y.operation == x.operation) else {
            result.changes.push(only(&format!("lowering {}", x.operation), &sides[0]));
            continue;
        };
        if x.instructions != y.instructions && x.instructions.len().max(y.instructions.len()) > 1 {
            result.changes.push(Change {
                of: format!("lowering {}", x.operation),
                kind: ChangeKind::Lowering,
                what: format!("{} became {}", text(x), text(y)),
                figures: Vec::new(),
            });
        }
    }
    for y in b.lowering.iter().filter(|y| a.lowering.iter().all(|x| x.operation != y.operation)) {
        result.changes.push(only(&format!("lowering {}", y.operation), &sides[1]));
    }
}

/// Both figures and their ratio.
fn pair(name: &str, a: (f64, &Provenance), b: (f64, &Provenance), unit: Unit) -> Vec<Figure> {
    let first = Figure::new(format!("{name}, first"), a.0, unit, a.1.clone());
    let second = Figure::new(format!("{name}, second"), b.0, unit, b.1.clone());
    let ratio = Figure::computed(
        format!("{name}, second / first"),
        b.0 / a.0,
        Unit::Ratio,
        "second / first",
        &[&first, &second],
    );
    vec![first, second, ratio]
}

impl Comparison {
    /// The comparison for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "first:  {} ({})", self.a.profile, self.a.provenance);
        let _ = writeln!(out, "second: {} ({})", self.b.profile, self.b.provenance);
        if self.a.arch != self.b.arch {
            let _ = writeln!(
                out,
                "for different compile targets, {} and {}: a difference may be the chip's or the compiler's",
                self.a.arch, self.b.arch
            );
        }
        out.push('\n');
        for c in &self.changes {
            let _ = writeln!(out, "{:<36} {}", c.of, c.what);
        }
        let _ = writeln!(out, "{} the same within {SAME_PERCENT} % or their spread", self.same.len());
        out
    }
}

#[cfg(test)]
mod tests;
