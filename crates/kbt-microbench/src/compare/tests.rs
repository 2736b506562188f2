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
    let lowered =
        |opcode: &str, count: f64| kbt_device::Lowered { opcode: opcode.to_owned(), pipe: Pipe::Xu, count };
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
fn nothing_that_differs_is_silent() {
    let mut a = profile("a", &[("ex2", "MUFU.EX2", Some(16.0))]);
    (a.sm_count, a.sm_clock_mhz, a.rates[0].latency_clk) = (Some(132), Some(1980.0), Some(18.0));
    a.mixes.push(MixRow {
        parts: vec![("ex2".to_owned(), 1), ("fma".to_owned(), 4)],
        lanes_per_clk_sm: Some(79.0),
        separate_lanes_per_clk_sm: None,
        shared_lanes_per_clk_sm: None,
        refused: None,
        provenance: Provenance::mined("ptxas test"),
    });
    let one = |edit: &dyn Fn(&mut DeviceProfile)| {
        let mut b = a.clone();
        edit(&mut b);
        compare(&a, &b).changes.iter().map(|c| format!("{}: {}", c.of, c.what)).collect::<Vec<_>>()
    };
    assert_eq!(one(&|_| {}), Vec::<String>::new());
    let said = |edit: &dyn Fn(&mut DeviceProfile), text: &str| assert_eq!(one(edit), [text]);
    said(&|p| p.sm_count = Some(78), "sm_count: 132 became 78");
    said(&|p| p.sm_clock_mhz = None, "sm_clock_mhz: 1980 became not stated");
    said(&|p| p.rates[0].pipe = Pipe::Alu, "ex2: the xu pipe became the alu pipe");
    said(&|p| p.rates[0].opcode = None, "ex2: MUFU.EX2 became no single opcode");
    said(&|p| p.rates[0].latency_clk = None, "ex2: latency 18.0 clk only in the first");
    said(
        &|p| p.rates[0].results_per_clk_sm = Some(32.0),
        "ex2: 1.00 results an instruction became 2.00: 16.00 became 32.00 results/clk/SM",
    );
    said(&|p| p.rates[0].results_per_clk_sm = None, "ex2: results only in the first");
    said(
        &|p| p.mixes[0].lanes_per_clk_sm = Some(40.0),
        "mix 1 ex2 + 4 fma: 79.00 became 40.00 lanes/clk/SM (-49.4 %)",
    );
    said(&|p| p.mixes.clear(), "mix 1 ex2 + 4 fma: only in the first");
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

#[test]
fn what_only_one_has_and_what_is_known_in_another_way_is_a_change() {
    let a = profile("p", &[("fma", "FFMA", Some(127.8))]);
    let told = |b: &DeviceProfile| {
        let changes = compare(&a, b).changes;
        changes.into_iter().map(|c| (c.of, c.kind, c.what)).collect::<Vec<_>>()
    };
    let mut b = a.clone();
    b.rates[0].provenance = Provenance::assumed("nobody measured it");
    assert_eq!(told(&b), [("fma".to_owned(), ChangeKind::Provenance, "mined became assumed".to_owned())]);
    // Profiles of two kinds differ in every row, and that is no change of a row.
    b.provenance = b.rates[0].provenance.clone();
    assert_eq!(told(&b), []);
    let mut b = a.clone();
    b.lowering.push(Lowering {
        operation: "div.rn.f32".to_owned(),
        results: 1.0,
        instructions: Vec::new(),
        provenance: Provenance::mined("ptxas test"),
    });
    for (one, other, side) in [(&a, &b, "the second"), (&b, &a, "the first")] {
        let changes = compare(one, other).changes;
        assert_eq!((changes[0].of.as_str(), changes[0].kind), ("lowering div.rn.f32", ChangeKind::OnlyInOne));
        assert_eq!(changes[0].what, format!("only in {side}"));
    }
    let mut b = a.clone();
    b.rates[0].lanes_per_clk_sm = Some(70.0);
    b.rates[0].results_per_clk_sm = Some(70.0);
    b.rates[0].spread_percent = Some(90.0);
    assert_eq!(told(&b)[0].1, ChangeKind::Rate, "a wide spread hides no fall");
}

#[test]
fn a_latency_of_another_half_cycle_and_a_ceiling_of_another_unit_are_changes() {
    let mut a = profile("p", &[("fma", "FFMA", Some(127.8))]);
    a.rates[0].latency_clk = Some(4.0);
    let mut b = a.clone();
    b.rates[0].latency_clk = Some(4.4);
    assert!(compare(&a, &b).changes.is_empty());
    b.rates[0].latency_clk = Some(5.0);
    assert_eq!(compare(&a, &b).changes[0].what, "4.0 became 5.0 clk");
    let ceiling = |bytes, flop| kbt_device::Ceiling {
        kind: kbt_device::CeilingKind::HbmRead,
        bytes_per_s: bytes,
        flop_per_s: flop,
        seconds: None,
        spread_percent: None,
        provenance: Provenance::mined("ptxas test"),
    };
    b = a.clone();
    a.ceilings.push(ceiling(Some(4.6e12), None));
    b.ceilings.push(ceiling(None, Some(4.6e12)));
    let changes = compare(&a, &b).changes;
    assert_eq!((changes.len(), changes[0].kind), (1, ChangeKind::Ceiling), "{changes:?}");
}
