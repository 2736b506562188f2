//! From measured forms to the rows of a profile.

mod alone;
mod compound;
mod mix;

pub use mix::mix_rows;

use crate::choice::Preference;
use crate::measure::{FormRate, ISSUE_PER_CLK, STEADY_PERCENT};
use crate::net::{self, CleanRates, Form, Known, relative};
use crate::prepare::Prepared;
use alone::{alone, held_back};
use compound::compound;
use kbt_device::{Pipe, RateRow};
use kbt_evidence::Provenance;
use std::collections::BTreeMap;

/// A rate above the issue limit of 128 lanes is no rate; this much is measuring error.
const ABOVE_ISSUE: f64 = 1.01;

/// One form and what was measured of it.
pub struct Measured {
    /// The form.
    pub prepared: Prepared,
    /// Its rate, or why there is none.
    pub rate: Result<FormRate, String>,
    /// How the device was (clock, throttling), as provenances say it.
    pub provenance: Provenance,
}

/// What is to be said of a row beyond its numbers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Note {
    /// The instruction, or a mix's two.
    pub instruction: String,
    /// The form that the numbers are of; none where the row is refused.
    #[serde(default)]
    pub form: Option<String>,
    /// One line a form.
    pub reasoning: Vec<String>,
}

/// The clean rates by mnemonic, for taking companions off.
#[must_use]
pub fn clean_rates(all: &[Measured]) -> CleanRates {
    let mut rates = CleanRates::new();
    for m in all.iter().filter(|m| m.prepared.parts.len() == 1 && !m.prepared.parts[0].entry.compound) {
        let (Ok(rate), Some(verified)) = (&m.rate, m.prepared.widest()) else { continue };
        let mut targets = verified.code.per_op.iter().filter(|p| p.target);
        // A single opcode that takes its pipe alone.
        if let (Some(target), None) = (targets.next(), targets.next())
            && net::is_clean(&verified.code)
        {
            let known = rates.entry(target.opcode.clone()).or_insert(f64::INFINITY);
            *known = known.min(rate.clk_per_op);
        }
    }
    rates
}

fn with_relatives(rates: &CleanRates, all: &[Measured]) -> CleanRates {
    let mut more = rates.clone();
    for companion in all.iter().flat_map(|m| &m.prepared.verified).flat_map(|v| v.code.companions()) {
        if let (false, Some(rate)) =
            (rates.contains_key(&companion.opcode), relative(rates, &companion.opcode))
        {
            more.insert(companion.opcode.clone(), rate);
        }
    }
    more
}

/// The rows of all instructions, in the order of the forms, and the reasoning behind each. What is known beside this run
/// tells whether a companion on another pipe was what took the time.
#[must_use]
pub fn rate_rows(all: &[Measured], known: &Known) -> (Vec<RateRow>, Vec<Note>) {
    let mut rates = clean_rates(all);
    // What could be solved with the clean rates is known for what needs it in turn (a vote needs a compare).
    let first = rows_with(all, &with_relatives(&rates, all), known).0;
    let mut known = known.clone();
    known.add(&first);
    for row in first {
        if let (Some(opcode), Some(lanes)) = (row.opcode, row.lanes_per_clk_sm) {
            rates.entry(opcode).or_insert(32.0 / lanes);
        }
    }
    rows_with(all, &with_relatives(&rates, all), &known)
}

fn rows_with(all: &[Measured], rates: &CleanRates, known: &Known) -> (Vec<RateRow>, Vec<Note>) {
    let (mut rows, mut notes, alone) = (Vec::new(), Vec::new(), alone(all));
    let single: Vec<&Measured> = all.iter().filter(|m| m.prepared.parts.len() == 1).collect();
    let mut rest = &single[..];
    while let Some(first) = rest.first() {
        let entry = &first.prepared.parts[0].entry;
        let forms = rest.iter().take_while(|m| m.prepared.parts[0].entry.is_same(entry)).count();
        let (row, note) = rate_row(&rest[..forms], (rates, known), &alone);
        rows.push(row);
        notes.push(note);
        rest = &rest[forms..];
    }
    (rows, notes)
}

/// One instruction's row from its forms (at least one).
fn rate_row(
    forms: &[&Measured],
    (rates, known): (&CleanRates, &Known),
    alone: &BTreeMap<String, (f64, String)>,
) -> (RateRow, Note) {
    let entry = &forms[0].prepared.parts[0].entry;
    let mut forms: Vec<&Measured> = forms.to_vec();
    if forms.len() > 1 {
        // Forms without a verified kernel last; of the others machine code says which to take.
        forms.sort_by_cached_key(|m| {
            let preference = Preference::of(&m.prepared);
            (preference.is_none(), preference)
        });
    }
    let opcode = forms[0].prepared.widest().and_then(|v| v.code.opcode());
    let mut refusals: Vec<String> = Vec::new();
    let mut drifted: Vec<String> = Vec::new();
    let mut measured = Vec::new();
    for m in &forms {
        match (&m.rate, m.prepared.widest()) {
            (_, Some(verified)) if verified.code.opcode() != opcode => drifted.push(format!(
                "{}: {} here, another instruction than the row's",
                m.prepared.form,
                verified.code.opcode().unwrap_or_default()
            )),
            (Ok(rate), Some(verified)) => measured.push((*m, rate, &verified.code)),
            (Err(why), _) => refusals.push(format!("{}: {why}", m.prepared.form)),
            (Ok(_), None) => refusals.push(format!("{}: no verified kernel", m.prepared.form)),
        }
    }
    let net = if entry.compound {
        compound(&measured, rates)
    } else {
        let forms: Vec<Form<'_>> = measured
            .iter()
            .map(|(m, rate, code)| Form { name: &m.prepared.form, code, clk_per_op: rate.clk_per_op })
            .collect();
        net::solve(&forms, rates, known)
    };
    let mut reasoning = net.reasoning.clone();
    if let Some(several) = opcode.as_deref().filter(|o| o.contains('+')) {
        reasoning
            .push(format!("{several} take turns: a mean of their latencies is none, and there is no other"));
    }
    reasoning.extend(drifted.iter().chain(&refusals).cloned());
    let chosen = measured.iter().find(|(m, ..)| net.form.as_deref() == Some(m.prepared.form.as_str()));
    let mut row = RateRow {
        instruction: entry.name.clone(),
        opcode,
        pipe: forms[0].prepared.widest().map_or(Pipe::Unknown, |v| v.code.pipe()),
        lanes_per_clk_sm: None,
        results_per_clk_sm: None,
        latency_clk: measured.iter().find_map(|(_, rate, _)| rate.latency_clk).map(|l| round(l, 100.0)),
        spread_percent: None,
        refused: None,
        provenance: forms[0].provenance.clone(),
    };
    let held_back = match (&net.clk_per_op, chosen) {
        (Ok(clk), Some((_, _, code))) if !entry.compound => held_back(code, *clk, alone),
        _ => None,
    };
    match (net.clk_per_op.clone().and_then(|clk| held_back.map_or(Ok(clk), Err)), chosen) {
        (Ok(clk), Some((m, rate, code))) if 32.0 / clk <= 32.0 * ISSUE_PER_CLK * ABOVE_ISSUE => {
            row.pipe = code.pipe();
            row.lanes_per_clk_sm = Some(round(32.0 / clk, 1000.0));
            row.results_per_clk_sm = Some(round(32.0 / clk * entry.results, 1000.0));
            row.spread_percent = Some(round(rate.spread_percent, 1000.0));
            row.provenance = provenance(m, rate);
            if !rate.plateau {
                reasoning.push("the sweep of warps and chains found no plateau: a lower bound".to_owned());
            }
            if rate.spread_percent > STEADY_PERCENT {
                reasoning.push(format!(
                    "UNSTEADY: its repeats lie {:.1} % apart, in the longest window too",
                    rate.spread_percent
                ));
            }
        }
        (Ok(clk), _) => {
            row.refused = Some(format!(
                "{:.1} lanes beat the issue limit of {:.0}: the window is not what was counted",
                32.0 / clk,
                32.0 * ISSUE_PER_CLK
            ));
        }
        (Err(why), _) => {
            refusals.retain(|r| !why.contains(r));
            let why = if measured.is_empty() { String::new() } else { why };
            refusals.extend((!why.is_empty()).then_some(why));
            row.refused = Some(refusals.join("; "));
        }
    }
    let form = row.lanes_per_clk_sm.and(net.form);
    (row, Note { instruction: entry.name.clone(), form, reasoning })
}

/// The device's provenance with the statement of how this row was made.
fn provenance(m: &Measured, rate: &FormRate) -> Provenance {
    let what = match m.prepared.widest().map(|v| (v.plans[0].ops[0], v.code.opcode())) {
        Some((n, Some(opcode))) => format!("{n} and {} {opcode} in the windows compared", 2 * n),
        Some((n, None)) => format!("{n} and {} operations in the windows compared", 2 * n),
        None => String::new(),
    };
    let mut p = m.provenance.clone();
    p.by = format!(
        "{}: {what}, form {}, {} warps x {} chains, at least {:.2} with the loop{}, cubin {}",
        p.by,
        m.prepared.form,
        rate.warps,
        rate.chains,
        32.0 / rate.with_loop_clk,
        if rate.plateau { "" } else { ", no plateau" },
        m.prepared.digest
    );
    p
}

/// Rounded to `1 / steps`: digits beyond the spread are noise in a file.
#[must_use]
pub fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{measure, model::Model};
    use crate::prepare::tests::prepared;

    pub(super) fn measured(name: &str, target: &str, per_op: &[(&str, f64)]) -> Measured {
        let p = prepared(name, target, per_op);
        let pipes = [
            ("MUFU.EX2", ("xu", 8.0)),
            ("F2FP.X", ("alu", 2.0)),
            ("PRMT", ("alu", 2.0)),
            ("FFMA", ("fma", 1.0)),
            ("SEL", ("alu", 2.0)),
            ("ISETP.GE.AND", ("alu", 2.0)),
            ("ISETP.NE.AND", ("alu", 2.0)),
            ("VOTE.ANY", ("alu", 2.0)),
        ];
        let mut model = Model { prepared: &p, pipes: pipes.into(), latency: 4.0, overhead: 12.0 };
        let rate = measure(&p, &mut model);
        Measured { rate, prepared: p, provenance: Provenance::measured("test", "model", "2026-01-01") }
    }

    #[test]
    fn rows_hold_net_rates_and_refusals_say_why() {
        let mut broken = measured("folded", "MUFU.RCP", &[("MUFU.RCP", 1.0)]);
        broken.prepared.verified.clear();
        broken.rate = Err("128 MUFU.RCP were written, the body has 0".into());
        let all = [
            measured("ex2", "MUFU.EX2", &[("MUFU.EX2", 1.0)]),
            measured("prmt", "PRMT", &[("PRMT", 1.0)]),
            measured("cvt", "F2FP", &[("F2FP.X", 1.0), ("PRMT", 1.0)]),
            broken,
        ];
        let (rows, notes) = rate_rows(&all, &Known::default());
        let lanes: Vec<_> = rows.iter().map(|r| (r.instruction.as_str(), r.lanes_per_clk_sm)).collect();
        assert_eq!(lanes, [("ex2", Some(16.0)), ("prmt", Some(64.0)), ("cvt", Some(64.0)), ("folded", None)]);
        assert_eq!(rows[3].refused.as_deref(), Some("clean: 128 MUFU.RCP were written, the body has 0"));
        assert!(notes[2].reasoning[0].contains("net of 1 PRMT"), "{:?}", notes[2]);
        assert_eq!((rows[0].latency_clk, rows[2].latency_clk), (Some(8.0), None));
        assert!(rows[0].provenance.by.contains("128 and 256 MUFU.EX2"), "{}", rows[0].provenance.by);
    }

    #[test]
    fn an_opcode_that_is_faster_alone_gets_no_rate_from_a_form_with_something_beside() {
        let with = |clk: f64| {
            let mut wide = measured("mad.wide", "IMAD.WIDE", &[("IMAD.WIDE", 1.0), ("IADD3", 1.5)]);
            wide.rate.as_mut().unwrap().clk_per_op = clk;
            let mut plain = measured("mul.wide", "IMAD.WIDE", &[("IMAD.WIDE", 1.0)]);
            plain.rate.as_mut().unwrap().clk_per_op = 1.0;
            rate_rows(&[wide, plain], &Known::embedded(kbt_device::Arch::SM_90A)).0
        };
        let rows = with(1.308);
        let why = rows[0].refused.as_deref().unwrap();
        assert!(why.contains("alone does 32.00 lanes (mul.wide)") && why.contains("1.5 IADD3"), "{why}");
        assert_eq!((rows[0].lanes_per_clk_sm, rows[1].lanes_per_clk_sm), (None, Some(32.0)));
        assert_eq!(with(1.02)[0].refused, None);
    }

    #[test]
    fn an_operation_that_beats_its_own_instructions_is_refused() {
        let with = |clk: f64| {
            let mut bfi = measured("bfi", "NOTHING", &[("PRMT", 4.0), ("SEL", 1.0)]);
            bfi.prepared.parts[0].entry.compound = true;
            bfi.rate.as_mut().unwrap().clk_per_op = clk;
            let all =
                [bfi, measured("prmt", "PRMT", &[("PRMT", 1.0)]), measured("sel", "SEL", &[("SEL", 1.0)])];
            rate_rows(&all, &Known::default()).0.remove(0)
        };
        // 5 instructions of 64 lanes: 12.8 operations.
        let why = with(32.0 / 13.41).refused.unwrap();
        assert!(why.contains("13.41 operations") && why.contains("12.80 on the alu pipe"), "{why}");
        assert_eq!(with(32.0 / 12.8).lanes_per_clk_sm, Some(12.8));
    }

    #[test]
    fn a_row_whose_repeats_lie_apart_says_so() {
        let mut row = measured("ex2", "MUFU.EX2", &[("MUFU.EX2", 1.0)]);
        let unsteady = |m: Measured| {
            rate_rows(&[m], &Known::default()).1[0].reasoning.iter().any(|l| l.starts_with("UNSTEADY"))
        };
        row.rate.as_mut().unwrap().spread_percent = 0.6;
        assert!(unsteady(row));
        assert!(!unsteady(measured("ex2", "MUFU.EX2", &[("MUFU.EX2", 1.0)])));
    }

    #[test]
    fn what_was_solved_serves_what_needs_it_and_relatives_stand_in_where_they_agree() {
        // `cmp` is solved with `sel`; `vote` needs a relative of `cmp`.
        let all = [
            measured("sel", "SEL", &[("SEL", 1.0)]),
            measured("cmp", "ISETP", &[("ISETP.GE.AND", 1.0), ("SEL", 1.0)]),
            measured("vote", "VOTE", &[("VOTE.ANY", 1.0), ("ISETP.NE.AND", 1.0)]),
        ];
        let (rows, _) = rate_rows(&all, &Known::default());
        let lanes: Vec<_> = rows.iter().map(|r| r.lanes_per_clk_sm).collect();
        assert_eq!(lanes, [Some(64.0); 3], "{:?}", rows.iter().map(|r| &r.refused).collect::<Vec<_>>());
        let apart: CleanRates = [("IMAD.HI".to_owned(), 1.0), ("IMAD.WIDE".to_owned(), 0.5)].into();
        assert_eq!(relative(&apart, "IMAD.MOV"), None);
    }
}
