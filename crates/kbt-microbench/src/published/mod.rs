//! What others published beside what a profile says. The cells are data (`published.yaml`), each with its source;
//! a cell is never a rate of ours, and no rate of ours is changed to fit one.

use kbt_device::{DeviceProfile, RateRow};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const EMBEDDED: &str = include_str!("published.yaml");

/// Two figures within this of each other agree: published figures are rounded, and most are at a plateau.
const AGREE_PERCENT: f64 = 3.0;

/// The published cells.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// When the sources were read.
    checked: String,
    sources: BTreeMap<String, String>,
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    instruction: String,
    sm: Vec<u16>,
    lanes: Option<f64>,
    latency: Option<f64>,
    source: String,
    note: Option<String>,
}

/// Published cells that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("published cells: {0}")]
pub struct PublishedError(String);

/// A published figure beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The instruction.
    pub instruction: String,
    /// Where the two stand.
    pub standing: Standing,
    /// The published figure.
    pub published: Value,
    /// Ours; none where the profile refuses it or lacks it.
    pub ours: Option<Value>,
    /// Why the profile has none.
    pub refused: Option<String>,
    /// What is known of a published figure that others contradict.
    pub note: Option<String>,
}

/// A rate or a latency, and how it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Lanes a clock and SM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_per_clk_sm: Option<f64>,
    /// Cycles to a dependent instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_clk: Option<f64>,
    /// How it is known.
    pub provenance: Provenance,
}

/// Whether a published figure and ours say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Within 3 %.
    Agrees,
    /// Further apart.
    Disagrees,
    /// The profile has no figure.
    NoFigure,
}

impl Published {
    /// The cells that come with the crate.
    pub fn embedded() -> Result<Self, PublishedError> {
        Self::from_yaml(EMBEDDED)
    }

    fn from_yaml(text: &str) -> Result<Self, PublishedError> {
        let published: Self = serde_yaml::from_str(text).map_err(|e| PublishedError(e.to_string()))?;
        for cell in &published.cells {
            let name = &cell.instruction;
            if cell.lanes.is_some() == cell.latency.is_some() {
                return Err(PublishedError(format!("`{name}` needs lanes or latency, and not both")));
            }
            if !published.sources.contains_key(&cell.source) {
                return Err(PublishedError(format!("`{name}` names no source: `{}`", cell.source)));
            }
        }
        Ok(published)
    }

    /// The names of the instructions that cells are of.
    pub fn instructions(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|c| c.instruction.as_str())
    }

    /// The cells of a profile's compute capability beside its rows.
    #[must_use]
    pub fn beside(&self, profile: &DeviceProfile) -> Vec<Beside> {
        let cells = self.cells.iter().filter(|c| c.sm.contains(&profile.arch.sm));
        cells
            .map(|cell| {
                let row = profile.rates.iter().find(|r| r.instruction == cell.instruction);
                self.cell_beside(cell, row)
            })
            .collect()
    }

    fn cell_beside(&self, cell: &Cell, row: Option<&RateRow>) -> Beside {
        let own = row.and_then(|r| match cell.lanes {
            Some(_) => r.lanes_per_clk_sm,
            None => r.latency_clk,
        });
        let theirs = cell.lanes.or(cell.latency).unwrap_or_default();
        let value = |number: f64, provenance: Provenance| Value {
            lanes_per_clk_sm: cell.lanes.map(|_| number),
            latency_clk: cell.latency.map(|_| number),
            provenance,
        };
        let standing = match own {
            None => Standing::NoFigure,
            Some(own) if (own / theirs - 1.0).abs() * 100.0 <= AGREE_PERCENT => Standing::Agrees,
            Some(_) => Standing::Disagrees,
        };
        let source = self.sources.get(&cell.source).cloned().unwrap_or_default();
        Beside {
            instruction: cell.instruction.clone(),
            standing,
            published: value(theirs, Provenance::published(source, self.checked.clone())),
            ours: row.and_then(|r| Some(value(own?, r.provenance.clone()))),
            refused: match (row, own) {
                (None, _) => Some("the profile has no such row".to_owned()),
                (Some(row), None) => row.refused.clone(),
                _ => None,
            },
            note: cell.note.clone(),
        }
    }
}

/// For people: the disagreements first.
#[must_use]
pub fn render(rows: &[Beside]) -> String {
    let mut sorted: Vec<&Beside> = rows.iter().collect();
    sorted.sort_by_key(|b| match b.standing {
        Standing::Disagrees => 0,
        Standing::NoFigure => 1,
        Standing::Agrees => 2,
    });
    let mut out = format!(
        "{:<32} {:>9} {:>9}  {:<10} {}\n",
        "published beside ours", "ours", "published", "", "source"
    );
    for b in sorted {
        let number = |v: &Value| match (v.lanes_per_clk_sm, v.latency_clk) {
            (Some(lanes), _) => format!("{lanes:.2}"),
            (None, Some(clk)) => format!("{clk:.1} clk"),
            (None, None) => "-".to_owned(),
        };
        let standing = match b.standing {
            Standing::Agrees => "agrees",
            Standing::Disagrees => "DISAGREES",
            Standing::NoFigure => "no figure",
        };
        let ours = b.ours.as_ref().map_or_else(|| "-".to_owned(), number);
        let _ = write!(
            out,
            "{:<32} {ours:>9} {:>9}  {standing:<10} {}",
            b.instruction,
            number(&b.published),
            b.published.provenance.by
        );
        for more in [&b.note, &b.refused].into_iter().flatten() {
            let _ = write!(out, "; {more}");
        }
        out.push('\n');
    }
    let count = |s: Standing| rows.iter().filter(|b| b.standing == s).count();
    let _ = writeln!(
        out,
        "{} agree within {AGREE_PERCENT} %, {} disagree, {} have no figure of ours",
        count(Standing::Agrees),
        count(Standing::Disagrees),
        count(Standing::NoFigure)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use kbt_device::{Arch, Pipe};
    use kbt_evidence::audit;

    fn profile(rows: &[(&str, Option<f64>)]) -> DeviceProfile {
        let p = Provenance::mined("ptxas test");
        let mut profile = DeviceProfile::new("sm_103a", Arch::SM_103A, p.clone());
        for (instruction, lanes) in rows {
            profile.rates.push(RateRow {
                instruction: (*instruction).to_owned(),
                opcode: None,
                pipe: Pipe::Alu,
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
    fn every_embedded_cell_has_a_source_and_an_entry_of_the_spec() {
        let (published, spec) = (Published::embedded().unwrap(), Spec::embedded().unwrap());
        for name in published.instructions() {
            assert!(spec.entry(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_disagreement_is_listed_and_a_refusal_is_none() {
        let published = Published::embedded().unwrap();
        let rows = published.beside(&profile(&[
            ("cvt.rn.satfinite.e4m3x2.f32", Some(64.0)),
            ("popc.b32", None),
            ("lop3.b32", Some(64.0)),
        ]));
        let standing = |name: &str| -> Vec<Standing> {
            rows.iter()
                .filter(|b| b.instruction == name && b.published.lanes_per_clk_sm.is_some())
                .map(|b| b.standing)
                .collect()
        };
        assert_eq!(standing("cvt.rn.satfinite.e4m3x2.f32"), [Standing::Disagrees, Standing::Agrees]);
        assert_eq!(
            (standing("popc.b32"), standing("lop3.b32")),
            (vec![Standing::NoFigure], vec![Standing::Agrees])
        );
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
        let text = render(&rows);
        assert!(text.contains("DISAGREES") && text.contains("PRMT on the same pipe"), "{text}");
    }

    #[test]
    fn a_cell_without_a_source_or_with_two_figures_is_an_error() {
        let text = |cell: &str| format!("checked: 2026-11\nsources: {{a: x}}\ncells:\n  - {cell}\n");
        let error = |cell: &str| Published::from_yaml(&text(cell)).unwrap_err().to_string();
        assert!(error("{instruction: i, sm: [90], lanes: 1, source: b}").contains("names no source"));
        assert!(error("{instruction: i, sm: [90], lanes: 1, latency: 1, source: a}").contains("not both"));
        assert!(Published::from_yaml(&text("{instruction: i, sm: [90], lanes: 1, source: a}")).is_ok());
    }
}
