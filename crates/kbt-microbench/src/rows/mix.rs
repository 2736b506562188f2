//! The rows of mixes: what two instructions do together, beside what their own rates allow.

use super::{Measured, provenance, round};
use crate::measure::ISSUE_PER_CLK;
use kbt_device::{MixRow, RateRow};

/// The rows of the mixes, with what the parts' own rates allow.
#[must_use]
pub fn mix_rows(all: &[Measured], rows: &[RateRow]) -> Vec<MixRow> {
    all.iter().filter(|m| m.prepared.parts.len() == 2).map(|m| mix_row(m, rows)).collect()
}

fn mix_row(m: &Measured, rows: &[RateRow]) -> MixRow {
    let counts: Vec<u32> = m.prepared.parts.iter().map(|p| p.steps * p.chain.ops).collect();
    let names = m.prepared.parts.iter().map(|p| p.entry.name.clone());
    let own: Option<Vec<f64>> = m
        .prepared
        .parts
        .iter()
        .map(|p| rows.iter().find(|r| r.instruction == p.entry.name)?.lanes_per_clk_sm)
        .collect();
    let total: f64 = counts.iter().copied().map(f64::from).sum();
    let clks = |own: &[f64]| -> Vec<f64> {
        counts.iter().zip(own).map(|(n, lanes)| f64::from(*n) * 32.0 / lanes).collect()
    };
    let issue = total / ISSUE_PER_CLK;
    let separate = own.as_deref().map(|o| 32.0 * total / clks(o).into_iter().fold(issue, f64::max));
    let shared = own.as_deref().map(|o| 32.0 * total / clks(o).iter().sum::<f64>().max(issue));
    let mut row = MixRow {
        parts: names.zip(counts.iter().copied()).collect(),
        lanes_per_clk_sm: None,
        separate_lanes_per_clk_sm: separate.map(|v| round(v, 1000.0)),
        shared_lanes_per_clk_sm: shared.map(|v| round(v, 1000.0)),
        refused: None,
        provenance: m.provenance.clone(),
    };
    match &m.rate {
        Ok(rate) => {
            // The time is of one instruction of the first part and what goes with it.
            row.lanes_per_clk_sm =
                Some(round(32.0 * total / (rate.clk_per_op * f64::from(counts[0])), 1000.0));
            row.provenance = provenance(m, rate);
        }
        Err(why) => row.refused = Some(why.clone()),
    }
    row
}

#[cfg(test)]
mod tests {
    use crate::net::Known;
    use crate::rows::tests::measured;
    use crate::rows::{mix_rows, rate_rows};

    #[test]
    fn a_mix_is_held_against_what_separate_and_shared_pipes_allow() {
        let parts =
            [measured("ex2", "MUFU.EX2", &[("MUFU.EX2", 1.0)]), measured("cvt", "F2FP", &[("F2FP.X", 1.0)])];
        let (rows, _) = rate_rows(&parts, &Known::default());
        let mut mix = measured("ex2", "MUFU.EX2", &[("MUFU.EX2", 1.0), ("F2FP.X", 4.0)]);
        let mut second = parts[1].prepared.parts[0].clone();
        second.steps = 4;
        mix.prepared.parts.push(second);
        let row = &mix_rows(&[mix], &rows)[0];
        assert_eq!(row.parts, [("ex2".to_owned(), 1), ("cvt".to_owned(), 4)]);
        assert_eq!(
            (row.lanes_per_clk_sm, row.separate_lanes_per_clk_sm, row.shared_lanes_per_clk_sm),
            (Some(80.0), Some(80.0), Some(40.0))
        );
    }
}
