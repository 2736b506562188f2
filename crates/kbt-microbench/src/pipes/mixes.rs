//! What was measured: instructions alone, and mixes of two. A file of its own, so that a measurement on one machine
//! can be explained on another.

use kbt_device::Arch;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema that files of mixes state.
pub const SCHEMA: &str = "kbt.mixes/1";

/// Measured times. Cycles are those of one scheduler: with all warps busy, a warp's share of the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixes {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The compile target.
    pub arch: Arch,
    /// The device's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How the numbers are known.
    pub provenance: Provenance,
    /// Instructions alone.
    pub solos: Vec<Solo>,
    /// Mixes of two of them.
    pub mixes: Vec<MixTime>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub refused: Vec<Refused>,
}

/// One instruction alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solo {
    /// Its name.
    pub instruction: String,
    /// The machine code of one operation: opcodes and how many of each.
    pub opcodes: BTreeMap<String, f64>,
    /// Those of the opcodes that are under test; the others are needed to feed the result back.
    pub targets: Vec<String>,
    /// Cycles of a scheduler's register ports for an operation, from the machine code: at least, where all operands that are
    /// marked for reuse are found again, and at most, where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register_port_cycles: Option<[f64; 2]>,
    /// Scheduler cycles an operation.
    pub measured_cycles: f64,
}

/// A mix of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixTime {
    /// The names.
    pub of: [String; 2],
    /// Operations of each in a round.
    pub counts: [u32; 2],
    /// Cycles of a scheduler's register ports for a round, from the machine code: at least, where all operands that are
    /// marked for reuse are found again, and at most, where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register_port_cycles: Option<[f64; 2]>,
    /// Scheduler cycles a round.
    pub measured_cycles: f64,
}

/// What could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// An instruction, or two with ` + `.
    pub what: String,
    /// Why.
    pub why: String,
}

/// A file of mixes that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct MixesError {
    /// The file.
    pub origin: String,
    /// What is wrong, with line and column where they are known.
    pub message: String,
}

impl Solo {
    /// Instructions that an operation issues.
    #[must_use]
    pub fn issued(&self) -> f64 {
        self.opcodes.values().sum()
    }

    /// Whether the operation is nothing but its targets.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.opcodes.keys().all(|o| self.targets.contains(o))
    }
}

impl Mixes {
    /// No measurements yet.
    #[must_use]
    pub fn new(arch: Arch, provenance: Provenance) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            arch,
            device: None,
            provenance,
            solos: Vec::new(),
            mixes: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Reads a file; what was measured becomes recorded.
    pub fn from_yaml(text: &str, origin: &str) -> Result<Self, MixesError> {
        let error = |message: String| MixesError { origin: origin.to_owned(), message };
        let mut mixes: Self = serde_yaml::from_str(text).map_err(|e| error(e.to_string()))?;
        if mixes.schema != SCHEMA {
            return Err(error(format!("schema `{}` is not `{SCHEMA}`", mixes.schema)));
        }
        mixes.check().map_err(error)?;
        mixes.provenance = mixes.provenance.read_back();
        Ok(mixes)
    }

    /// Writes the file.
    pub fn to_yaml(&self) -> Result<String, MixesError> {
        let error = |e: serde_yaml::Error| MixesError { origin: SCHEMA.to_owned(), message: e.to_string() };
        serde_yaml::to_string(self).map_err(error)
    }

    /// The place of an instruction in the list.
    #[must_use]
    pub fn index(&self, instruction: &str) -> Option<usize> {
        self.solos.iter().position(|s| s.instruction == instruction)
    }

    fn check(&self) -> Result<(), String> {
        let positive = |v: f64| v.is_finite() && v > 0.0;
        let rising =
            |ports: Option<[f64; 2]>| ports.is_none_or(|[least, most]| 0.0 <= least && least <= most);
        if self.mixes.is_empty() || self.solos.is_empty() {
            return Err(format!(
                "{} solos and {} mixes: resources are told from the times of mixes; at least one is needed",
                self.solos.len(),
                self.mixes.len()
            ));
        }
        for (at, solo) in self.solos.iter().enumerate() {
            let name = &solo.instruction;
            if self.index(name) != Some(at) {
                return Err(format!("solo `{name}` is listed twice"));
            }
            if !positive(solo.measured_cycles) || !positive(solo.issued()) {
                return Err(format!("solo `{name}` needs measured_cycles and opcodes above zero"));
            }
            if !rising(solo.register_port_cycles) {
                return Err(format!(
                    "solo `{name}`: register_port_cycles are the least and the most, from 0 on"
                ));
            }
            if let Some(absent) = solo.targets.iter().find(|t| !solo.opcodes.contains_key(*t)) {
                return Err(format!("solo `{name}`: target `{absent}` is none of its opcodes"));
            }
        }
        for mix in &self.mixes {
            let title = mix.of.join(" + ");
            if let Some(absent) = mix.of.iter().find(|n| self.index(n).is_none()) {
                return Err(format!("mix `{title}`: `{absent}` is no solo of this file"));
            }
            if !rising(mix.register_port_cycles) {
                return Err(format!(
                    "mix `{title}`: register_port_cycles are the least and the most, from 0 on"
                ));
            }
            if mix.of[0] == mix.of[1] || mix.counts.contains(&0) || !positive(mix.measured_cycles) {
                return Err(format!(
                    "mix `{title}` needs two instructions, counts of at least 1 and measured_cycles above zero"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
schema: kbt.mixes/1
arch: sm_90a
provenance: {kind: measured, by: kbt microbench pipes, device: NVIDIA H200, date: 2026-11-30}
solos:
- {instruction: a, opcodes: {FADD: 1}, targets: [FADD], measured_cycles: 1.0}
- {instruction: b, opcodes: {PRMT: 1, MOV: 1}, targets: [PRMT], measured_cycles: 2.0}
mixes:
- {of: [a, b], counts: [3, 1], measured_cycles: 4.0}
";

    #[test]
    fn it_is_read_as_recorded_and_written_alike() {
        let mixes = Mixes::from_yaml(GOOD, "m.yaml").unwrap();
        assert_eq!(mixes.provenance.kind, kbt_evidence::Known::Recorded);
        assert!(mixes.solos[0].is_clean() && !mixes.solos[1].is_clean());
        assert_eq!(Mixes::from_yaml(&mixes.to_yaml().unwrap(), "m.yaml").unwrap(), mixes);
    }

    #[test]
    fn what_contradicts_itself_is_named() {
        let error = |from: &str, to: &str| {
            Mixes::from_yaml(&GOOD.replace(from, to), "m.yaml").unwrap_err().to_string()
        };
        assert_eq!(error("kbt.mixes/1", "kbt.mixes/9"), "m.yaml: schema `kbt.mixes/9` is not `kbt.mixes/1`");
        assert!(error("[a, b]", "[a, c]").contains("`c` is no solo"));
        assert!(error("[3, 1]", "[3, 0]").contains("counts of at least 1"));
        assert!(error("measured_cycles: 2.0", "measured_cycles: -2.0").contains("above zero"));
        assert!(error("targets: [PRMT]", "targets: [XMAD]").contains("`XMAD`"));
        assert!(error("instruction: b", "instruction: a").contains("twice"));
        let ports = error("counts: [3, 1]", "counts: [3, 1], register_port_cycles: [2.0, 1.0]");
        assert!(ports.contains("`a + b`: register_port_cycles are the least and the most"), "{ports}");
        assert!(error("solos:", "sols:").contains("m.yaml: "));
    }
}
