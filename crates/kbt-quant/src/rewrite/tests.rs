//! What the search finds and what it refuses.

use super::*;
use crate::cost::CostModel;
use crate::cost::tests::{hopper, profile};
use crate::lang::{BUILTIN, Op, Program, builtin};

fn find_on(text: &str, device: &kbt_device::DeviceProfile) -> Search {
    let program: Program = text.parse().unwrap();
    let found = search(&program, &CostModel::new(device, program.layout), &Limits::default()).unwrap();
    let all = || std::iter::once(&found.baseline).chain(found.candidates.iter().map(|c| &c.priced));
    assert!(all().all(|p| p.chain_cycles.is_finite()), "{:?}", found.baseline);
    assert!(
        found.rejected.is_empty(),
        "{:?}",
        found.rejected.iter().map(|c| &c.replay.wrong).collect::<Vec<_>>()
    );
    found
}

fn find(text: &str) -> Search {
    find_on(text, &hopper())
}

const LINEAR: &str = "softmax-nvfp4-linear";

/// The log-domain form: the group's maximum is taken of the scores, nothing is divided, each element takes one
/// multiply-add and one exp2, and what feeds the code feeds the row sum too.
fn assert_log2_form(found: &Search) {
    let best = &found.candidates[0];
    let operations = &best.priced.operations;
    for gone in ["div", "rcp"] {
        assert_eq!(operations.get(gone).copied().unwrap_or(0.0), 0.0, "{gone}: {}", best.priced.program);
    }
    let lanes = f64::from(best.priced.program.layout.elements_a_lane());
    assert_eq!(operations["exp2"], 1.0 + 1.0 / lanes, "{}", best.priced.program);
    let program = &best.priced.program;
    let scores = program.nodes.iter().position(|n| n.op == Op::Input(0)).unwrap();
    assert!(program.nodes.iter().any(|n| n.op == Op::GroupMax && n.args == [scores]), "{program}");
    assert!(found.lower_bound.reached && found.saturated);
}

#[test]
fn the_log2_form_is_found_from_the_linear_one_by_rules_that_know_nothing_of_it() {
    let found = find(builtin(LINEAR).unwrap());
    assert_log2_form(&found);
    let best = &found.candidates[0];
    // Several rules together, none of which mentions a quantiser.
    assert!(best.rules.len() >= 8, "{:?}", best.rules);
    for rule in ["group-max-exp2", "exp2-absorbs-factor", "undo-div", "lane-sum-factor"] {
        assert!(best.rules.iter().any(|r| r == rule), "{rule}: {:?}", best.rules);
    }
    insta::assert_snapshot!(best.priced.program.to_string());
    insta::assert_snapshot!(best.guards.join("\n"));
}

#[test]
fn it_is_cheaper_than_the_form_that_was_published() {
    let linear = find(builtin(LINEAR).unwrap());
    let published = find(builtin("softmax-nvfp4-log2").unwrap());
    let (best, known) = (&linear.candidates[0].priced, &published.baseline);
    assert!(
        best.cost.issue_slots < known.cost.issue_slots - 1.0,
        "{} {}",
        best.cost.issue_slots,
        known.cost.issue_slots
    );
    assert!(best.cost.busiest() < known.cost.busiest());
    assert!(known.cost.busiest() < linear.baseline.cost.busiest());
}

#[test]
fn names_group_size_scale_format_and_device_do_not_stop_it() {
    let text = builtin(LINEAR).unwrap();
    let renamed = text.replace("scale", "zz").replace("arg", "q1").replace("offset", "shift");
    assert_log2_form(&find(&renamed));
    assert_log2_form(&find(&text.replace("group=16", "group=32")));
    assert_log2_form(&find(&text.replace("lanes=4", "lanes=1")));
    for format in ["ue8m0", "e5m2"] {
        assert_log2_form(&find(&text.replace("cvt_e4m3", &format!("cvt_{format}"))));
    }
    let blackwell = profile("test-sm_103a", "sm_103a", &[("ex2.approx.ftz.f32", 32.0)]);
    assert_log2_form(&find_on(text, &blackwell));
    // The measured H200 and what ptxas says of the targets that it compiles for.
    for device in ["h200-sxm", "sm_90a", "sm_100a", "sm_103a"] {
        let device = kbt_device::embedded_profile(device).unwrap().unwrap();
        assert_log2_form(&find_on(text, &device));
        assert_log2_form(&find_on(&text.replace("group=16", "group=32"), &device));
        assert_log2_form(&find_on(&text.replace("cvt_e4m3", "cvt_ue8m0"), &device));
    }
    assert_log2_form(&find(builtin("softmax-nvfp4-linear-rcp").unwrap()));
    assert_log2_form(&find(builtin("softmax-nvfp4-two-level").unwrap()));
}

#[test]
fn nothing_is_claimed_where_nothing_is_cheaper() {
    for name in ["softmax-bf16", "softmax-fp8", "softmax-nvfp4-log2-fused"] {
        let found = find(builtin(name).unwrap());
        let gain = found
            .candidates
            .first()
            .map_or(0.0, |c| 1.0 - c.priced.cost.issue_slots / found.baseline.cost.issue_slots);
        assert!(gain < 0.08, "{name}: {gain}");
        assert!(found.lower_bound.reached);
    }
    assert!(find(builtin("softmax-bf16").unwrap()).candidates.is_empty());
}

#[test]
fn a_factor_after_exp2_moves_into_its_argument() {
    let found = find(builtin("softmax-fp8-linear").unwrap());
    assert_eq!(found.candidates[0].priced.operations["mul"], 1.0 / 32.0);
}

/// The rule, and part of the reason it was refused for.
fn check_refused(found: &Search, rule: &str, because: &str) {
    let hit = found.refused.iter().any(|r| r.rule == rule && r.because.contains(because));
    assert!(hit, "{rule} {because}: {:#?}", found.refused);
}

#[test]
fn a_masked_group_without_a_clamp_is_refused() {
    // A group of -inf has scale 0 and 0/0 codes; in the log domain -inf - -inf. Looks right, is not.
    let text = builtin(LINEAR).unwrap().replace("max(group_max(p) / 6, 2^-126)", "group_max(p) / 6");
    let found = find(&text);
    check_refused(&found, "div-to-rcp", "scale must lie in [2^-126, 2^126], so that its reciprocal exists");
    check_refused(&found, "undo-div", "scale must lie in [2^-126, 2^126]");
    for candidate in &found.candidates {
        assert!(candidate.priced.operations["div"] > 0.9, "{}", candidate.priced.program);
    }
}

#[test]
fn splitting_an_exponential_that_overflows_is_refused() {
    // 2^(s c - m c) = 2^(s c) 2^(-m c) saves the subtraction, and overflows.
    let text = "layout group=16 lanes=4 row=128\nelem s in [-1e4, 1e4]\nrow m in [-1e4, 1e4]\n\
                d = s - m\nassume d in [-2e4, 0]\nout sum = row_sum(exp2(d))\n";
    let found = find(text);
    check_refused(&found, "exp2-split", "s must lie in [-126, 128)");
    let exponent = |p: &Program| p.nodes.iter().any(|n| n.op == Op::Exp2 && p.nodes[n.args[0]].op == Op::Add);
    assert!(found.candidates.iter().all(|c| exponent(&c.priced.program)));
    // With scores that cannot overflow, the same rule is granted.
    let found = find(
        &text
            .replace("e4", "e1")
            .replace("d in [-2e1, 0]", "d in [-1e2, 0]")
            .replace("[-1e1, 1e1]", "[-60, 60]"),
    );
    assert!(found.refused.iter().all(|r| r.rule != "exp2-split"), "{:?}", found.refused);
}

#[test]
fn a_maximum_does_not_commute_with_a_negative_factor() {
    let text = builtin(LINEAR)
        .unwrap()
        .replace("const c in [2^-20, 2^10]", "const c in [-4, 4]")
        .replace("assume arg in [-inf, 11.4]\n", "");
    // s = -inf times a negative c is +inf: take the mask away, or no assumption can be met.
    let text =
        text.replace("elem s in [-inf, 1e30]", "elem s in [-1, 1]").replace("[-1e30, 1e30]", "[-1, 1]");
    let found = find(&text);
    check_refused(&found, "group-max-fma", "c must be positive and finite: it may be anything in [-4, 4]");
    let commuted = |p: &Program| {
        let s = p.nodes.iter().position(|n| n.op == Op::Input(0));
        p.nodes.iter().any(|n| n.op == Op::GroupMax && n.args.first() == s.as_ref())
    };
    for candidate in &found.candidates {
        let p = &candidate.priced.program;
        // The maximum of the scores may serve the row's maximum, not the scale.
        let feeds_row =
            p.nodes.iter().all(|n| n.op != Op::Fma || !n.args.iter().any(|&a| p.nodes[a].op == Op::GroupMax));
        assert!(!commuted(p) || feeds_row, "{p}");
    }
}

#[test]
fn every_built_in_program_is_searched_to_saturation_in_a_small_graph() {
    for (name, text) in BUILTIN {
        let found = find(text);
        assert!(found.saturated && found.lower_bound.reached, "{name}");
        // What a search takes follows from these; `benches/rewrite.rs` times it.
        assert!(found.terms < 1000 && found.iterations <= 12, "{name}: {} {}", found.terms, found.iterations);
        for candidate in &found.candidates {
            assert!(candidate.replay.tie_rows_count > 0, "{name}");
            let again: Program = candidate.priced.program.to_string().parse().unwrap();
            assert_eq!(again.to_string(), candidate.priced.program.to_string(), "{name}");
        }
    }
}

#[test]
fn a_profile_without_a_rate_the_program_needs_is_refused_by_name() {
    let mut device = hopper();
    device.rates.retain(|r| r.instruction != "shfl.sync.bfly.b32");
    let program: Program = builtin(LINEAR).unwrap().parse().unwrap();
    let error = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("kbt microbench run --only '^shfl.sync.bfly.b32$'"), "{error}");
}

#[test]
fn no_program_of_the_graph_is_below_the_lower_bound() {
    // Every candidate and every rejected form, on every device, whether or not the extraction was cut off.
    for (name, text) in BUILTIN {
        let program: Program = text.parse().unwrap();
        let device = hopper();
        let model = CostModel::new(&device, program.layout);
        let whole = search(&program, &model, &Limits::default()).unwrap();
        let cut = search(&program, &model, &Limits { steps: 3, ..Limits::default() }).unwrap();
        assert!(!cut.lower_bound.reached || cut.candidates.is_empty(), "{name}");
        for bound in [whole.lower_bound, cut.lower_bound] {
            for candidate in whole.candidates.iter().chain(&whole.rejected) {
                let cost = candidate.priced.cost;
                assert!(cost.busiest() >= bound.busiest_cycles - 1e-12, "{name}: {bound:?} {cost:?}");
            }
            assert!(whole.baseline.cost.busiest() >= bound.busiest_cycles - 1e-12, "{name}");
        }
    }
}

#[test]
fn factors_fold_and_reductions_move_under_their_conditions() {
    let head = "layout group=32 lanes=4 row=128\nelem s in [-100, 100]\nrow m in [-100, 100]\nconst c in [0.1, 10]\n";
    let found = find(&format!("{head}out y = row_sum(exp2((s - m) * c))\n"));
    let best = &found.candidates[0];
    assert_eq!(best.priced.operations["fma"], 1.0, "{}", best.priced.program);
    assert!(best.rules.iter().any(|r| r == "factor-into-fma"), "{:?}", best.rules);
    let found = find(&format!("{head}out y = row_max(fma(s, c, m))\nout z = row_max(s)\n"));
    assert!(found.candidates[0].rules.iter().any(|r| r == "row-max-fma"), "{:?}", found.candidates[0].rules);
    // Not with a factor of either sign, nor with products that overflow.
    let found = find(&format!("{head}out y = row_max(s * m)\nout z = row_max(s)\n"));
    check_refused(&found, "row-max-mul", "m must be positive and finite");
    let found = find(
        "layout group=32 lanes=4 row=128\nelem s\nrow m\nconst c in [2, 10]\nd = s - m\n\
                      assume d in [-100, 100]\nout y = exp2(d * c)\n",
    );
    check_refused(&found, "factor-into-fma", "must be finite, and so must its product with the factor");
}

#[test]
fn assumptions_that_no_input_meets_are_an_error() {
    let text = "layout group=16 lanes=4\nelem s in [0, 1]\nassume s in [5, 6]\nout y = exp2(s)";
    let program: Program = text.parse().unwrap();
    let device = hopper();
    let error = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap_err();
    assert!(matches!(error, SearchError::Assumptions), "{error}");
}
