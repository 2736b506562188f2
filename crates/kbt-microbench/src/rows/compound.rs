//! The rate of a compound operation: all of its instructions, and nothing of its way back.

use super::alone::HELD_BACK;
use super::{Measured, round};
use crate::measure::{FormRate, ISSUE_PER_CLK};
use crate::net::{self, CleanRates, Net};
use crate::verify::{FormCode, PerOp};
use kbt_device::Pipe;
use std::collections::BTreeMap;

/// A compound operation is what its instructions are: its form of the fewest. One that is faster than its own instructions
/// can be on one of their pipes was not the operation that was counted.
pub(super) fn compound(measured: &[(&Measured, &FormRate, &FormCode)], rates: &CleanRates) -> Net {
    let best = measured.first();
    let impossible = best.and_then(|(m, rate, code)| {
        let mut busy: BTreeMap<Pipe, f64> = BTreeMap::new();
        for op in &code.per_op {
            if let (Some(pipe), Some(clk)) = (op.pipe, rates.get(&op.opcode)) {
                *busy.entry(pipe).or_default() += op.count * clk;
            }
        }
        let (pipe, least) = busy.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (rate.clk_per_op * HELD_BACK < least).then(|| {
            format!(
                "{}: {:.2} operations are more than its {} allow, {:.2} on the {pipe} pipe",
                m.prepared.form,
                rate.lanes(),
                code.text(),
                32.0 / least
            )
        })
    });
    let way_back = || best.and_then(|(m, rate, code)| hidden_way_back(&m.prepared.form, rate, code, rates));
    let impossible = impossible.or_else(way_back);
    let reasoning = measured
        .iter()
        .map(|(m, rate, code)| {
            let list = |ops: &[PerOp]| {
                ops.iter().map(|p| format!("{:.2} {}", p.count, p.opcode)).collect::<Vec<_>>().join(", ")
            };
            let mut line =
                format!("{}: {:.2} operations, each {}", m.prepared.form, rate.lanes(), list(&code.per_op));
            if !code.back.is_empty() {
                line.push_str(&format!("; beside {} of the way back", list(&code.back)));
            }
            line
        })
        .collect();
    Net {
        clk_per_op: match impossible {
            Some(why) => Err(why),
            None => best.map(|b| b.1.clk_per_op).ok_or_else(|| "no form was measured".to_owned()),
        },
        form: best.map(|b| b.0.prepared.form.clone()),
        reasoning,
    }
}

/// Why the way back may be part of the time that was measured. It is not where a pipe that it does not use is busy all
/// of the time with the operation itself, and its own pipes and the issue port are not.
fn hidden_way_back(form: &str, rate: &FormRate, code: &FormCode, rates: &CleanRates) -> Option<String> {
    if code.back.is_empty() {
        return None;
    }
    let back: Vec<String> =
        code.back.iter().map(|p| format!("{} {}", round(p.count, 100.0), p.opcode)).collect();
    let why = |what: String| {
        Some(format!(
            "{form}: {:.2} steps a clock and SM hold {} of the way back each, and {what}: the operation's own rate is not \
             solvable",
            rate.lanes(),
            back.join(", ")
        ))
    };
    let total = rate.clk_per_op;
    let mut busy: BTreeMap<Pipe, f64> = BTreeMap::new();
    for op in code.per_op.iter().chain(&code.back) {
        let Some(pipe) = op.pipe else { continue };
        let Some(clk) = rates.get(&op.opcode) else {
            return why(format!("{} has no clean rate in this run", op.opcode));
        };
        *busy.entry(pipe).or_default() += op.count * clk;
    }
    let beside = |pipe: Pipe| code.back.iter().any(|op| op.pipe.is_some_and(|p| net::shares(p, pipe)));
    let nearly = net::NEARLY * total;
    let instructions: f64 = code.per_op.iter().chain(&code.back).map(|op| op.count).sum();
    if instructions / ISSUE_PER_CLK >= nearly {
        return why(format!("the {instructions:.1} instructions of a step fill the issue port"));
    }
    if let Some((pipe, _)) = busy.iter().find(|(pipe, clk)| beside(**pipe) && **clk >= nearly) {
        return why(format!("its {pipe} pipe is what limits"));
    }
    if !busy.iter().any(|(pipe, clk)| !beside(*pipe) && *clk >= nearly) {
        return why("no pipe that it leaves alone explains the time".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::net::Known;
    use crate::rows::rate_rows;
    use crate::rows::tests::measured;
    use crate::verify::PerOp;
    use kbt_device::RateRow;

    /// An operation of `per_op` that takes `clk`, with `back` instructions of SEL on its way back.
    fn row(per_op: &[(&str, f64)], back: f64, clk: f64) -> RateRow {
        let mut op = measured("op", "NOTHING", per_op);
        op.prepared.parts[0].entry.compound = true;
        let sel = measured("sel", "SEL", &[("SEL", 1.0)]);
        let one: PerOp = sel.prepared.verified[0].code.per_op[0].clone();
        for v in &mut op.prepared.verified {
            v.code.back = vec![PerOp { count: back, target: false, ..one.clone() }];
        }
        let rate = op.rate.as_mut().unwrap();
        (rate.clk_per_op, rate.latency_clk) = (clk, None);
        let own = ["MUFU.EX2", "PRMT", "FFMA"].map(|o| measured(o, o, &[(o, 1.0)]));
        let all: Vec<_> = [op, sel].into_iter().chain(own).collect();
        rate_rows(&all, &Known::default()).0.remove(0)
    }

    #[test]
    fn a_way_back_is_no_part_of_a_rate_that_another_pipe_explains_and_else_the_rate_is_refused() {
        // MUFU takes 2 clk a warp instruction, SEL and PRMT 0.5.
        let hidden = row(&[("MUFU.EX2", 1.0), ("PRMT", 1.0)], 1.0, 2.0);
        assert_eq!((hidden.lanes_per_clk_sm, hidden.refused), (Some(16.0), None));
        let unexplained = row(&[("MUFU.EX2", 1.0), ("PRMT", 1.0)], 1.0, 2.2).refused.unwrap();
        assert!(unexplained.contains("no pipe that it leaves alone explains the time"), "{unexplained}");
        let limits = row(&[("MUFU.EX2", 1.0), ("PRMT", 2.0)], 2.0, 2.0).refused.unwrap();
        assert!(
            limits.contains("2 SEL of the way back") && limits.contains("its alu pipe is what limits"),
            "{limits}"
        );
        let issue = row(&[("MUFU.EX2", 1.0), ("FFMA", 6.0)], 1.0, 2.0).refused.unwrap();
        assert!(issue.contains("fill the issue port"), "{issue}");
    }
}
