//! What two profiles say differently.

use kbt_device::{Arch, DeviceProfile, Lowering, RateRow};
use kbt_evidence::{Figure, Provenance, Unit};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Rates closer than this are the same, unless their own spread is wider.
const SAME_PERCENT: f64 = 1.0;

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
    let find = |p: &'_ DeviceProfile, name: &str| p.rates.iter().find(|r| r.instruction == name).cloned();
    for row in &a.rates {
        match find(b, &row.instruction) {
            Some(other) => rows(row, &other, &mut result),
            None => result.changes.push(only(&row.instruction, &sides[0])),
        }
    }
    for row in b.rates.iter().filter(|r| find(a, &r.instruction).is_none()) {
        result.changes.push(only(&row.instruction, &sides[1]));
    }
    ceilings(a, b, &mut result);
    for (one, other, side) in [(a, b, &sides[0]), (b, a, &sides[1])] {
        let missing = one.ceilings.iter().filter(|c| other.ceiling(c.kind).is_err());
        result.changes.extend(missing.map(|c| only(&format!("ceiling {}", c.kind), side)));
    }
    lowerings(a, b, &mut result);
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

fn rows(a: &RateRow, b: &RateRow, result: &mut Comparison) {
    let mut push = |kind, what: String, figures| {
        result.changes.push(Change { of: a.instruction.clone(), kind, what, figures });
    };
    if let (Some(x), Some(y)) = (&a.opcode, &b.opcode)
        && x != y
    {
        push(ChangeKind::Opcode, format!("{x} became {y}"), Vec::new());
    }
    let allowed = SAME_PERCENT.max(a.spread_percent.unwrap_or(0.0)).max(b.spread_percent.unwrap_or(0.0));
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
    if let (Some(x), Some(y)) = (a.latency(), b.latency())
        && (x - y).abs() > 0.5
    {
        let figures = pair("latency", (x, &a.provenance), (y, &b.provenance), Unit::Cycles);
        result.changes.push(Change {
            of: a.instruction.clone(),
            kind: ChangeKind::Latency,
            what: format!("{x:.1} became {y:.1} clk"),
            figures,
        });
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
        let (Some((v, unit)), Some((w, _))) = (of(x), of(y)) else { continue };
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
fn lowerings(a: &DeviceProfile, b: &DeviceProfile, result: &mut Comparison) {
    let text = |l: &Lowering| {
        let parts: Vec<String> = l.instructions.iter().map(|i| format!("{} {}", i.count, i.opcode)).collect();
        parts.join(", ")
    };
    for x in &a.lowering {
        let Some(y) = b.lowering.iter().find(|y| y.operation == x.operation) else { continue };
        if x.instructions != y.instructions && x.instructions.len().max(y.instructions.len()) > 1 {
            result.changes.push(Change {
                of: format!("lowering {}", x.operation),
                kind: ChangeKind::Lowering,
                what: format!("{} became {}", text(x), text(y)),
                figures: Vec::new(),
            });
        }
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
mod tests {
    use super::*;
    use kbt_device::{Arch, Pipe};
    use kbt_evidence::audit;

    fn profile(name: &str, rows: &[(&str, &str, Option<f64>)]) -> DeviceProfile {
        let p = Provenance::mined("ptxas test");
        let mut profile = DeviceProfile::new(name, Arch::SM_100A, p.clone());
        for (instruction, opcode, lanes) in rows {
            profile.rates.push(RateRow {
                instruction: (*instruction).to_owned(),
                opcode: Some((*opcode).to_owned()),
                pipe: Pipe::Xu,
                lanes_per_clk_sm: *lanes,
                results_per_clk_sm: *lanes,
                latency_clk: None,
                spread_percent: None,
                refused: lanes.is_none().then(|| "blind".to_owned()),
                provenance: p.clone(),
            });
        }
        profile
    }

    #[test]
    fn another_compilation_of_an_operation_is_a_change() {
        let lowered = |opcode: &str, count: f64| kbt_device::Lowered {
            opcode: opcode.to_owned(),
            pipe: Pipe::Xu,
            count,
        };
        let with = |instructions| {
            let mut p = profile("p", &[]);
            p.lowering.push(Lowering {
                operation: "ex2.approx.f16x2".to_owned(),
                results: 2.0,
                instructions,
                provenance: Provenance::mined("ptxas test"),
            });
            p
        };
        let two = with(vec![lowered("MUFU.EX2.F16", 2.0), lowered("PRMT", 1.0)]);
        let one = with(vec![lowered("MUFU.EX2.F16x2", 1.0)]);
        assert!(compare(&two, &two).changes.is_empty());
        let change = &compare(&two, &one).changes[0];
        assert_eq!(change.kind, ChangeKind::Lowering);
        assert_eq!(change.what, "2 MUFU.EX2.F16, 1 PRMT became 1 MUFU.EX2.F16x2");
    }

    #[test]
    fn profiles_of_different_targets_and_of_one_name_are_told_apart() {
        let (mut a, mut b) = (profile("p", &[("old", "X", Some(1.0))]), profile("p", &[]));
        b.arch = Arch::SM_90A;
        a.ceilings.push(kbt_device::Ceiling {
            kind: kbt_device::CeilingKind::HbmRead,
            bytes_per_s: Some(4.6e12),
            flop_per_s: None,
            seconds: None,
            spread_percent: None,
            provenance: Provenance::mined("ptxas test"),
        });
        let c = compare(&b, &a);
        let text = c.render_text();
        assert!(text.contains("for different compile targets, sm_90a and sm_100a"), "{text}");
        let told: Vec<_> = c.changes.iter().map(|c| (c.of.as_str(), c.what.as_str())).collect();
        assert_eq!(told, [("old", "only in the second"), ("ceiling hbm_read", "only in the second")]);
    }

    #[test]
    fn what_changed_is_said_and_the_rest_is_counted() {
        let a = profile(
            "sm_100a",
            &[
                ("ex2", "MUFU.EX2", Some(16.0)),
                ("popc", "POPC", Some(16.0)),
                ("fma", "FFMA", Some(128.0)),
                ("old", "X", Some(1.0)),
            ],
        );
        let b = profile(
            "sm_103a",
            &[
                ("ex2", "MUFU.EX2", Some(32.0)),
                ("popc", "POPC", None),
                ("fma", "FFMA", Some(128.4)),
                ("new", "Y", Some(1.0)),
            ],
        );
        let c = compare(&a, &b);
        insta::assert_snapshot!(c.render_text(), @r"
        first:  sm_100a (mined: ptxas test)
        second: sm_103a (mined: ptxas test)

        ex2                                  16.00 became 32.00 lanes/clk/SM (+100.0 %)
        popc                                 refused by the second: blind
        old                                  only in sm_100a
        new                                  only in sm_103a
        1 the same within 1 % or their spread
        ");
        let json = serde_json::to_value(&c).unwrap();
        assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<Comparison>(json).unwrap(), c);
    }
}
