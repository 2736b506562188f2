//! Published ceilings of known parts: data, embedded. They serve as labelled assumptions where nobody has
//! measured the machine at hand.

use crate::ceilings::RoofKind;
use kbt_device::Arch;
use kbt_evidence::Provenance;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const TEXT: &str = include_str!("../data/parts.yaml");

/// What an architecture can do a clock and SM, whatever the part.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchFigures {
    /// The compile target; the suffix does not matter in look-ups.
    pub arch: Arch,
    /// FP32 lanes; an FMA is two operations.
    pub fp32_lanes_per_clk_sm: f64,
    /// FP64 lanes, where the maker states them; an FMA is two operations.
    #[serde(default)]
    pub fp64_lanes_per_clk_sm: Option<f64>,
    /// MUFU.EX2 lanes.
    pub ex2_lanes_per_clk_sm: f64,
    /// Shared-memory bytes.
    pub shared_bytes_per_clk_sm: f64,
    /// Resident warps an SM.
    pub max_warps_per_sm: f64,
    /// Bytes of L2 on the largest part.
    pub l2_bytes: f64,
    /// How these are known.
    pub provenance: Provenance,
}

/// One published ceiling.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartFigure {
    /// What it limits.
    pub kind: RoofKind,
    /// For memory.
    #[serde(default)]
    pub bytes_per_s: Option<f64>,
    /// For arithmetic.
    #[serde(default)]
    pub flop_per_s: Option<f64>,
    /// False for a figure that counts structured sparsity; such a figure is never used.
    pub dense: bool,
    /// What other sources say, where they disagree.
    #[serde(default)]
    pub disputed: Option<String>,
    /// How it is known, where that differs from the part.
    #[serde(default)]
    pub provenance: Option<Provenance>,
}

/// What a cache holds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSize {
    /// Bytes.
    pub bytes: f64,
    /// How it is known.
    pub provenance: Provenance,
}

/// A part by its published figures.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// Its compile target.
    pub arch: Arch,
    /// SMs.
    pub sm_count: f64,
    /// The SM clock behind the peak figures.
    pub sm_clock_mhz: f64,
    /// Power limit.
    pub power_limit_w: f64,
    /// Its L2, as drivers report it.
    #[serde(default)]
    pub l2: Option<CacheSize>,
    /// What other sources say of the part itself.
    #[serde(default)]
    pub disputed: Option<String>,
    /// How its figures are known.
    pub provenance: Provenance,
    /// Its ceilings.
    pub figures: Vec<PartFigure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "schema")]
    _schema: String,
    archs: Vec<ArchFigures>,
    parts: Vec<Part>,
    models: BTreeMap<String, String>,
}

/// The table. It is part of the program and tested, so a table that does not read is an empty one.
fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        serde_yaml::from_str(TEXT).unwrap_or_else(|e| Table {
            _schema: e.to_string(),
            archs: Vec::new(),
            parts: Vec::new(),
            models: BTreeMap::new(),
        })
    })
}

/// Every part with published figures.
#[must_use]
pub fn parts() -> &'static [Part] {
    &table().parts
}

/// A part by any of its names, as users and drivers write them (`B200`, `NVIDIA H200`, `NVIDIA H100 80GB HBM3`).
#[must_use]
pub fn part(name: &str) -> Option<&'static Part> {
    let wanted = normal(name);
    if wanted.is_empty() {
        return None;
    }
    let names = |p: &'static Part| p.aliases.iter().chain([&p.name]);
    parts().iter().find(|p| names(p).any(|n| normal(n) == wanted))
}

/// The other parts that a short name could mean, where it is an alias of one (`A100`: 80 GB or 40 GB).
#[must_use]
pub fn also_meant(name: &str) -> Vec<&'static str> {
    let (Some(taken), wanted) = (part(name), normal(name)) else { return Vec::new() };
    // Whoever writes a part's whole name means it.
    if normal(&taken.name) == wanted {
        return Vec::new();
    }
    let others = parts().iter().filter(|p| p.name != taken.name && normal(&p.name).starts_with(&wanted));
    others.map(|p| p.name.as_str()).collect()
}

/// The part that `model:ARCH` stands for.
#[must_use]
pub fn model_part(arch: Arch) -> Option<&'static Part> {
    table().models.get(&format!("sm_{}", arch.sm)).and_then(|name| part(name))
}

/// What an architecture can do a clock and SM.
#[must_use]
pub fn arch_figures(arch: Arch) -> Option<&'static ArchFigures> {
    table().archs.iter().find(|a| a.arch.sm == arch.sm)
}

/// Whether two names mean the same part.
#[must_use]
pub fn same_device(a: &str, b: &str) -> bool {
    match (part(a), part(b)) {
        (Some(a), Some(b)) => a.name == b.name,
        _ => normal(a) == normal(b),
    }
}

/// A name without maker, case, and punctuation.
fn normal(name: &str) -> String {
    let lower = name.to_lowercase();
    let plain: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' }).collect();
    plain.split_whitespace().filter(|w| !matches!(*w, "nvidia" | "geforce" | "gpu")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_table_reads_and_every_figure_is_dense_with_one_number_and_a_known_arch() {
        let table: Table = serde_yaml::from_str(TEXT).unwrap();
        assert!(table.parts.len() >= 12);
        for part in &table.parts {
            assert!(arch_figures(part.arch).is_some(), "{}", part.name);
            for figure in &part.figures {
                let numbers = [figure.bytes_per_s, figure.flop_per_s];
                assert_eq!(numbers.iter().flatten().count(), 1, "{} {:?}", part.name, figure.kind);
                assert!(figure.dense);
            }
        }
        for (arch, name) in &table.models {
            assert!(part(name).is_some(), "{arch}");
        }
    }

    #[test]
    fn a_short_name_says_what_else_it_could_mean() {
        assert_eq!(also_meant("A100"), ["A100 SXM 40GB"]);
        assert_eq!(also_meant("nvidia H100"), ["H100 PCIe"]);
        for whole in ["A100 SXM 80GB", "NVIDIA A100-SXM4-40GB", "B200", "H200", "nothing"] {
            assert!(also_meant(whole).is_empty(), "{whole}");
        }
    }

    #[test]
    fn parts_are_found_by_the_names_that_drivers_print() {
        for (text, name) in [
            ("B200", "B200"),
            ("nvidia h200", "H200 SXM"),
            ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
            ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
            ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ] {
            assert_eq!(part(text).unwrap().name, name);
        }
        assert!(part("H2").is_none() && part("").is_none());
        assert!(same_device("NVIDIA H200", "H200 SXM") && !same_device("H200", "H100"));
    }

    #[test]
    fn tensor_peaks_agree_with_the_rate_per_clock_and_sm_they_imply() {
        // 2048 (8.0), 1024 (8.9), 4096 (9.0), 8192 (10.x) dense bf16 operations a clock and SM.
        for (name, rate, tolerance) in
            [("A100", 2048.0, 0.01), ("H100", 4096.0, 0.01), ("B200", 8192.0, 0.01), ("L40S", 1024.0, 0.02)]
        {
            let p = part(name).unwrap();
            let peak = p.figures.iter().find(|f| f.kind == RoofKind::TensorBf16).unwrap().flop_per_s.unwrap();
            let formula = rate * p.sm_count * p.sm_clock_mhz * 1e6;
            assert!((peak / formula - 1.0).abs() < tolerance, "{name}: {peak} against {formula}");
        }
    }

    #[test]
    fn no_number_of_the_table_is_without_provenance() {
        let value: serde_json::Value = serde_yaml::from_str(TEXT).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&value), Vec::<String>::new());
    }
}
