//! The schedule outcome over the committed listings: pairs, bound, verdicts.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::fixtures;
use kbt_device::{Arch, DeviceProfile, Pipe, RateRow};
use kbt_evidence::audit::uncovered_numbers;
use kbt_evidence::{FixClass, Provenance, Standing, Verdict};
use kbt_sass::outcome::{ScheduleBuilder, ScheduleOutcome, VariantInput, VariantKind};
use kbt_sass::{DiffKind, Listing, Unit, parse};

fn listing(name: &str) -> Listing {
    let path = fixtures().join("listings").join(format!("{name}.sm_90a.sass"));
    let mut listing = parse(&std::fs::read(path).unwrap()).unwrap();
    listing.assembler = Some("ptxas 13.0.88 -O3".into());
    listing.disassembler = Some("nvdisasm 13.5.37".into());
    listing
}

/// Rates that make MUFU bind: the loop has 16 of it.
fn profile(ex2: f64) -> DeviceProfile {
    let provenance = || Provenance::measured("kbt microbench run", "a card", "2026-11-30");
    let mut profile = DeviceProfile::new("card", Arch::SM_90A, provenance());
    let row = |opcode: &str, pipe, lanes| RateRow {
        instruction: opcode.to_lowercase(),
        opcode: Some(opcode.to_owned()),
        pipe,
        lanes_per_clk_sm: Some(lanes),
        results_per_clk_sm: None,
        latency_clk: None,
        spread_percent: None,
        refused: None,
        provenance: provenance(),
    };
    profile.rates = vec![row("MUFU.EX2", Pipe::Xu, ex2), row("F2FP.F16.F32.PACK_AB", Pipe::Alu, 64.0)];
    profile
}

fn outcome(functions: &[(&str, &str)], profile: Option<&DeviceProfile>, warps: u32) -> ScheduleOutcome {
    let units = [Unit::mufu(), Unit::f2fp()];
    let mut builder = ScheduleBuilder::new("softmax", None, units, profile, warps);
    for (file, function) in functions {
        let listing = listing(file);
        builder
            .add(VariantInput {
                name: function,
                kind: VariantKind::SourceOrder,
                built_by: "ptxas 13.0.88 -O3",
                listing: &listing,
                function: Some(function),
                remarks: Vec::new(),
            })
            .unwrap();
    }
    builder.finish()
}

const ORDERS: [(&str, &str); 2] = [("forms", "softmax_chunked"), ("forms", "softmax_exp_first")];

fn standing(verdicts: &[Verdict], class: FixClass) -> Standing {
    verdicts.iter().find(|v| v.class == class).unwrap().standing
}

#[test]
fn two_source_orders_that_compile_alike_near_the_bound_rule_reordering_out() {
    // 16 MUFU at 16 lanes are 128 cycles a warp, 512 for four warps; the stalls of one warp are 269.
    let profile = profile(16.0);
    let outcome = outcome(&ORDERS, Some(&profile), 4);
    assert_eq!(outcome.comparisons.len(), 1);
    assert_eq!(outcome.comparisons[0].kind, DiffKind::Identical);
    let bound = outcome.variants[0].bound.as_ref().unwrap();
    assert_eq!((bound.busiest.as_str(), bound.lower_bound_cycles), ("xu", 512.0));
    assert_eq!(bound.headroom_percent, Some(0.0));
    assert!(bound.without_rate.contains_key("STG.E"), "what has no rate is named: {:?}", bound.without_rate);
    let verdicts = outcome.verdicts();
    assert_eq!(standing(&verdicts, FixClass::Reorder), Standing::RuledOut);
    assert_eq!(standing(&verdicts, FixClass::RegisterBudget), Standing::RuledOut);
    assert!(verdicts[0].evidence.iter().flat_map(|e| &e.figures).count() >= 3, "{verdicts:?}");
    assert!(outcome.headline().contains("identical code"), "{}", outcome.headline());
}

#[test]
fn with_headroom_or_without_rates_reordering_stays_open() {
    // One warp alone: 128 cycles of MUFU in 269 of stalls.
    let profile = profile(16.0);
    let alone = outcome(&ORDERS, Some(&profile), 1);
    assert!(alone.variants[0].bound.as_ref().unwrap().headroom_percent.unwrap() > 100.0);
    assert_eq!(standing(&alone.verdicts(), FixClass::Reorder), Standing::Open);
    let blind = outcome(&ORDERS, None, 1);
    assert_eq!(standing(&blind.verdicts(), FixClass::Reorder), Standing::Open);
    let single = outcome(&ORDERS[..1], None, 1);
    let verdicts = single.verdicts();
    assert_eq!(standing(&verdicts, FixClass::Reorder), Standing::Refused);
    assert!(verdicts[0].next.as_ref().unwrap().contains("kbt microbench run"));
    let none = outcome(&[], None, 1);
    assert_eq!(standing(&none.verdicts(), FixClass::Reorder), Standing::Refused);
}

#[test]
fn spills_recommend_another_register_budget() {
    let outcome = outcome(&[("spilling", "spilling")], None, 1);
    let verdicts = outcome.verdicts();
    assert_eq!(standing(&verdicts, FixClass::RegisterBudget), Standing::Recommended);
    let verdict = verdicts.iter().find(|v| v.class == FixClass::RegisterBudget).unwrap();
    assert!(verdict.evidence[0].figures.iter().all(|f| f.value > 0.0), "{verdict:?}");
    assert!(verdict.next.as_ref().unwrap().contains("kbt sass regs"));
}

#[test]
fn the_outcome_is_read_back_equal_and_every_number_has_a_provenance() {
    let profile = profile(16.0);
    let outcome = outcome(&ORDERS, Some(&profile), 2);
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(uncovered_numbers(&json), Vec::<String>::new());
    assert_eq!(serde_json::from_value::<ScheduleOutcome>(json).unwrap(), outcome);
    let verdicts = serde_json::to_value(outcome.verdicts()).unwrap();
    assert_eq!(uncovered_numbers(&verdicts), Vec::<String>::new());
}

#[test]
fn a_function_that_is_not_there_is_refused_with_those_that_are() {
    let listing = listing("forms");
    let mut builder = ScheduleBuilder::new("x", None, [Unit::mufu(), Unit::f2fp()], None, 1);
    let input = |function| VariantInput {
        name: "v",
        kind: VariantKind::Other,
        built_by: "ptxas",
        listing: &listing,
        function,
        remarks: Vec::new(),
    };
    for function in [Some("nothing"), None] {
        let error = builder.add(input(function)).unwrap_err().to_string();
        assert!(error.contains("softmax_chunked"), "{error}");
    }
}

/// A loop of so many elements a trip, each an exponential and a store of four bytes; the compiler adds what it likes.
fn unrolled(elements: usize, more: &[&str]) -> Listing {
    let mut lines = vec!["NOP".to_owned()];
    lines.extend((0..elements).map(|n| format!("MUFU.EX2 R{n}, R{n}")));
    lines.extend((0..elements).map(|n| format!("STG.E desc[UR4][R8.64+{n}], R{n}")));
    lines.extend(more.iter().map(|l| (*l).to_owned()));
    lines.extend(["@P0 BRA 0x10".to_owned(), "EXIT".to_owned()]);
    listing_of(&lines)
}

fn listing_of(lines: &[String]) -> Listing {
    let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
    for (n, line) in lines.iter().enumerate() {
        text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
    }
    parse(text.as_bytes()).unwrap()
}

#[test]
fn builds_that_unroll_differently_are_held_against_each_other_by_what_a_trip_does() {
    let straight = listing_of(&["MUFU.EX2 R0, R0", "STG.E desc[UR4][R8.64], R0", "EXIT"].map(str::to_owned));
    for (other, trips, told) in [
        (unrolled(4, &["MOV R20, R21"]), Some(1.0), None),
        (unrolled(1, &[]), Some(4.0), Some("4 trips of `at -O1` do what one of `as built` does")),
        (
            unrolled(2, &["MUFU.RCP R20, R21"]),
            None,
            Some(
                "not compared trip by trip, since how they unroll their loop is not known: a trip of the one and of \
                  the other: bytes stored 16 against 8, transcendental instructions 4 against 3",
            ),
        ),
        (straight, None, Some("the first has a loop and this one has none")),
    ] {
        let mut builder = ScheduleBuilder::new("f", None, [Unit::mufu(), Unit::f2fp()], None, 1);
        for (name, kind, listing) in [
            ("as built", VariantKind::SourceOrder, &unrolled(4, &[])),
            ("at -O1", VariantKind::OptLevel, &other),
        ] {
            let input =
                VariantInput { name, kind, built_by: "ptxas", listing, function: None, remarks: Vec::new() };
            builder.add(input).unwrap();
        }
        let outcome = builder.finish();
        assert_eq!(outcome.variants[0].trips, Some(1.0));
        assert_eq!(outcome.variants[1].trips, trips, "{:?}", outcome.problems);
        let said = outcome.problems.iter().find(|p| p.contains("`as built` and `at -O1`"));
        assert_eq!(said.is_some(), told.is_some(), "{:?}", outcome.problems);
        assert!(told.is_none_or(|t| said.unwrap().contains(t)), "{said:?}");
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<ScheduleOutcome>(json).unwrap(), outcome);
    }
}
