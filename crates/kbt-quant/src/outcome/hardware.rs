//! What a device's own conversions give on every f32, beside the encoders here.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Conversions of one device, each compared on all inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HardwareOutcome {
    /// `kbt.quant/1`.
    pub schema: String,
    /// One entry a conversion.
    pub conversions: Vec<HardwareConversion>,
}

/// One conversion, compared on all inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HardwareConversion {
    /// The PTX instruction.
    pub instruction: String,
    /// Inputs converted.
    pub inputs_count: u64,
    /// Inputs on which the device gives another code.
    pub differing_count: u64,
    /// The first of these.
    pub differences: Vec<HardwareDifference>,
    /// Runs of equal codes over the inputs in the order of their bits.
    pub runs_count: usize,
    /// BLAKE3 of the device's runs, one a line as first input and code in hex.
    pub digest: String,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// An input on which device and encoder differ; bits and codes in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareDifference {
    /// The f32's bits.
    pub input: String,
    /// The device's code.
    pub hardware: String,
    /// The encoder's code.
    pub encoder: String,
}

impl HardwareOutcome {
    /// An outcome of these conversions.
    #[must_use]
    pub fn new(conversions: Vec<HardwareConversion>) -> Self {
        Self { schema: super::SCHEMA.to_owned(), conversions }
    }

    /// Whether no conversion differs anywhere.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.conversions.iter().all(|c| c.differing_count == 0)
    }

    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        for c in &self.conversions {
            let verdict = match c.differing_count {
                0 => "equal".to_owned(),
                n => format!("{n} DIFFER"),
            };
            let _ = writeln!(
                out,
                "{:<36} {verdict} on {} inputs, {} runs, blake3 {} [{}]",
                c.instruction,
                c.inputs_count,
                c.runs_count,
                c.digest.get(..16).unwrap_or(&c.digest),
                c.provenance.kind
            );
            for d in &c.differences {
                let _ = writeln!(out, "  {}: device {}, kbt {}", d.input, d.hardware, d.encoder);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_difference_is_no_agreement_and_is_shown() {
        let mut conversion = HardwareConversion {
            instruction: "cvt.rn.satfinite.e4m3x2.f32".to_owned(),
            inputs_count: 1 << 32,
            differing_count: 0,
            differences: Vec::new(),
            runs_count: 509,
            digest: "0123456789abcdef0123".to_owned(),
            provenance: Provenance::measured("kbt quant hardware", "a device", "2026-01-01"),
        };
        let same = HardwareOutcome::new(vec![conversion.clone()]);
        assert!(same.agrees() && same.render_text().contains("equal on 4294967296 inputs"));
        conversion.differing_count = 1;
        let [input, hardware, encoder] = ["3f880000", "39", "38"].map(str::to_owned);
        conversion.differences = vec![HardwareDifference { input, hardware, encoder }];
        let other = HardwareOutcome::new(vec![conversion]);
        assert!(!other.agrees());
        assert!(other.render_text().contains("1 DIFFER"), "{}", other.render_text());
        assert!(other.render_text().contains("3f880000: device 39, kbt 38"));
        let json = serde_json::to_value(&other).unwrap();
        assert!(kbt_evidence::audit::uncovered_numbers(&json).is_empty());
    }
}
