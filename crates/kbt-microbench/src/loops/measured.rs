//! What a run of the loops gives: cycles a trip, by loop and number of warps.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLoops {
    /// `kbt.loops/1`.
    pub schema: String,
    /// Who compiled the loops, for which target.
    pub compiler: String,
    /// The card, the command, the date.
    pub provenance: Provenance,
    /// Loops without a time, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(String, String)>,
    /// The loops, in the corpus' order.
    pub loops: Vec<MeasuredLoop>,
}

/// One loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLoop {
    /// The kernel's name.
    pub name: String,
    /// The digest of its instructions' encodings, 16 hex digits: a time belongs to this machine code alone.
    pub digest: String,
    /// Cycles until each warp has made one more trip, for 1, 2, 3 .. warps a scheduler: the median over the SMs and
    /// the repeats.
    pub cycles: Vec<f64>,
    /// Largest less smallest over the repeats, relative to the median, in percent: of the worst number of warps.
    pub spread_percent: f64,
}

impl MeasuredLoops {
    /// The schema this version writes.
    pub const SCHEMA: &'static str = "kbt.loops/1";

    /// The first number that cannot be a measurement, and what is accepted.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != Self::SCHEMA {
            return Err(format!("schema `{}` is not `{}`", self.schema, Self::SCHEMA));
        }
        for l in &self.loops {
            if l.cycles.is_empty() {
                return Err(format!(
                    "loop `{}` has no cycles; one number for each number of warps is expected",
                    l.name
                ));
            }
            if let Some(x) = l.cycles.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
                return Err(format!(
                    "loop `{}`: cycles holds {x}; finite numbers above 0 are expected",
                    l.name
                ));
            }
            if !(l.spread_percent.is_finite() && l.spread_percent >= 0.0) {
                return Err(format!(
                    "loop `{}`: spread_percent is {}; a finite number of at least 0 is expected",
                    l.name, l.spread_percent
                ));
            }
        }
        Ok(())
    }

    /// The file, one line a loop.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        let head = Self { loops: Vec::new(), ..self.clone() };
        let mut text = serde_yaml::to_string(&head)?.replace("loops: []\n", "loops:\n");
        for l in &self.loops {
            let cycles: Vec<String> = l.cycles.iter().map(f64::to_string).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "- {{name: {}, digest: '{}', spread_percent: {}, cycles: [{}]}}",
                l.name,
                l.digest,
                l.spread_percent,
                cycles.join(", ")
            );
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_back_as_it_was() {
        let measured = MeasuredLoops {
            schema: MeasuredLoops::SCHEMA.to_owned(),
            compiler: "ptxas 13.0.88".to_owned(),
            provenance: Provenance::measured("run", "card", "2026-11-30"),
            refused: vec![("a".to_owned(), "ptxas left no loop".to_owned())],
            loops: vec![MeasuredLoop {
                name: "chain_00_c1".to_owned(),
                digest: "0123456789012345".to_owned(),
                cycles: vec![44.0, 70.25],
                spread_percent: 0.12,
            }],
        };
        assert_eq!(serde_yaml::from_str::<MeasuredLoops>(&measured.to_yaml().unwrap()).unwrap(), measured);
        for (cycles, spread_percent, says) in [
            (vec![44.0, -1.0], 0.1, "cycles holds -1"),
            (vec![f64::NAN], 0.1, "cycles holds NaN"),
            (vec![0.0], 0.1, "cycles holds 0"),
            (vec![f64::INFINITY], 0.1, "cycles holds inf"),
            (vec![], 0.1, "has no cycles"),
            (vec![44.0], -0.1, "spread_percent is -0.1"),
        ] {
            let one = MeasuredLoop { cycles, spread_percent, ..measured.loops[0].clone() };
            let why = MeasuredLoops { loops: vec![one], ..measured.clone() }.check().unwrap_err();
            assert!(why.starts_with("loop `chain_00_c1`") && why.contains(says), "{why}");
        }
        assert_eq!(measured.check(), Ok(()));
        let none = MeasuredLoops { loops: Vec::new(), ..measured };
        let yaml = none.to_yaml().unwrap();
        assert!(serde_yaml::from_str::<serde_yaml::Value>(&yaml).is_ok(), "{yaml}");
    }
}
