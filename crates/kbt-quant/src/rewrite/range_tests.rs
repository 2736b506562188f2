//! Programs that the algebra of real numbers gets wrong within their declared ranges, and sums that round on purpose.

use super::*;
use crate::cost::CostModel;
use crate::lang::Program;

const HEAD: &str = "layout group=16 lanes=4 row=128\n";

fn find(lines: &str) -> Search {
    let program: Program = format!("{HEAD}{lines}").parse().unwrap();
    let device = kbt_device::embedded_profile("sm_90a").unwrap().unwrap();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default());
    found.unwrap_or_else(|e| panic!("{lines}: {e}"))
}

/// That no candidate nor rejected form takes the rule, and that it is refused by name.
fn refuses(lines: &str, rule: &str) {
    let found = find(lines);
    for candidate in found.candidates.iter().chain(&found.rejected) {
        assert!(!candidate.rules.iter().any(|r| r == rule), "{lines}: {}", candidate.priced.program);
    }
    assert!(found.refused.iter().any(|r| r.rule == rule), "{lines}: {:?}", found.refused);
}

#[test]
fn a_product_that_is_flushed_is_not_moved_beside_a_factor_that_undoes_it() {
    let body = "row b in [1e-30, 1]\nrow c in [1e-30, 1]\nout y = (a * b) * c\n";
    refuses(&format!("elem a in [1, 1e30]\n{body}"), "constant-factors");
    let found = find(&format!("elem a in [1, 1e6]\n{body}"));
    assert!(found.candidates.iter().any(|c| c.rules.iter().any(|r| r == "constant-factors")));
    refuses(
        "elem a in [1, 1e30]\nrow b in [1e-30, 1]\nrow c in [1e-30, 1]\nrow d in [1e-30, 1]\nout y = fma(a, b, c) * d\n",
        "constant-factor-of-fma",
    );
}

#[test]
fn a_sum_that_overflows_without_its_factor_keeps_it() {
    refuses("elem a in [0, 3e38]\nrow b in [2^-60, 1]\nout s = row_sum(a * b)\n", "row-sum-factor");
    let found = find("elem a in [0, 3e30]\nrow b in [2^-60, 1]\nout s = row_sum(a * b)\n");
    assert!(found.candidates.iter().any(|c| c.rules.iter().any(|r| r == "row-sum-factor")));
}

#[test]
fn a_logarithm_of_a_product_that_leaves_f32_is_not_split() {
    let body = "row b in [1e-30, 1e30]\nout u = log2(a)\nout s = log2(a * b)\n";
    refuses(&format!("elem a in [1e-30, 1e30]\n{body}"), "log2-of-product");
}

#[test]
fn what_a_division_loses_is_not_brought_back() {
    // By undo-div, and by way of exponentials of logarithms.
    let head = "elem s in [1e-30, 1e30]\nrow k in [1e-30, 1e30]\n";
    for lines in ["out a = (s / k) * k\nout d = exp2(log2(s) + log2(k))\n", "out b = (s * k) / k\n"] {
        let found = find(&format!("{head}{lines}"));
        for candidate in found.candidates.iter().chain(&found.rejected) {
            let values = candidate.priced.program.outputs[0].1;
            let is_input = matches!(candidate.priced.program.nodes[values].op, crate::lang::Op::Input(_));
            assert!(!is_input, "{lines}: {}", candidate.priced.program);
        }
    }
    refuses(
        "elem s in [-1e30, 1e30]\nrow k in [2^-120, 2^100]\nout y = exp2(s) * k\n",
        "exp2-absorbs-factor",
    );
}

#[test]
fn a_zero_keeps_its_sign_where_a_reciprocal_shows_it() {
    refuses("elem s in [-10, 10]\nout y = 1 / (s + 0)\n", "add-zero");
    let found = find("elem s in [-10, 10]\nout y = exp2(s) * (s + 0)\n");
    assert!(found.candidates.iter().any(|c| c.rules.iter().any(|r| r == "add-zero")));
}

#[test]
fn a_multiply_add_does_not_bring_back_a_product_that_overflows() {
    refuses("elem a\nelem b\nelem c in [-inf, inf]\nout y = a * b + c\n", "fuse");
}

#[test]
fn what_a_maximum_takes_beside_nan_is_in_its_interval() {
    let text = "layout group=1 lanes=1 row=128\nelem s in [0, 1]\nelem t in [0, inf]\nrow y in [-3, -2]\nx = s * t + 6\n\
                assume x in [5, 10]\nz = cvt_e2m1(max(x, y))\nout r = exp2(log2(z))\n";
    let program: Program = text.parse().unwrap();
    let device = kbt_device::embedded_profile("sm_90a").unwrap().unwrap();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap();
    for candidate in found.candidates.iter().chain(&found.rejected) {
        assert!(!candidate.rules.iter().any(|r| r == "exp2-log2"), "{}", candidate.priced.program);
    }
    assert!(found.refused.iter().any(|r| r.rule == "exp2-log2"), "{:?}", found.refused);
}

#[test]
fn a_sum_that_rounds_on_purpose_is_not_taken_apart() {
    for lines in [
        "elem s in [-127, 127]\nout code = cvt_bf16((s + 12582912) - 12582912)\n",
        // The fraction that is left of it, with a factor, and of a maximum.
        "elem s in [-1000, 1000]\nr = fma(s, 1.5, 12582912) - 12582912\nout f = fma(s, 1.5, -r)\n",
        "elem s in [-1000, 1000]\nr = (s + 12582912) * 3 - 37748736\nout f = r\n",
        "elem s in [-1000, 1000]\nout f = group_max(s + 12582912) - 12582912\n",
        // The error of a sum, the low part of a split, a compensated sum.
        "elem a in [-1000, 1000]\nelem b in [-1000, 1000]\ns = a + b\nbb = s - a\nout e = (a - (s - bb)) + (b - bb)\n",
        "elem x in [-1000, 1000]\nt = x * 4097\nhi = t - (t - x)\nout h = hi\nout lo = x - hi\n",
        "elem a in [-1000, 1000]\nelem b in [-1000, 1000]\nrow c in [-1, 1]\ny = b - c\nt = a + y\nout e = (t - a) - y\n",
    ] {
        let found = find(lines);
        let live = |p: &Program| {
            let live = p.live();
            let sum = |i: &usize| matches!(p.nodes[*i].op, crate::lang::Op::Add | crate::lang::Op::Fma);
            (0..p.nodes.len()).filter(|i| live[*i]).filter(sum).count()
        };
        let before = live(&found.baseline.program);
        for candidate in found.candidates.iter().chain(&found.rejected) {
            assert_eq!(live(&candidate.priced.program), before, "{lines}: {}", candidate.priced.program);
        }
        assert!(found.refused.iter().any(|r| r.because.contains("rounding the program uses")), "{lines}");
    }
}

#[test]
fn a_difference_of_many_codes_is_no_tie() {
    let program = |text: &str| -> Program { format!("{HEAD}elem s in [-127, 127]\n{text}").parse().unwrap() };
    let rounded = program("out code = cvt_bf16((s + 12582912) - 12582912)\n");
    let replay = replay(&rounded, &program("out code = cvt_bf16(s)\n"));
    assert!(!replay.holds() && replay.wrong_count > 0, "{replay:?}");
}

#[test]
fn an_error_where_the_real_value_is_0_is_shown() {
    let text = "elem a in [-1000, 1000]\nelem b in [-1000, 1000]\ns = a + b\nbb = s - a\n\
                out e = (a - (s - bb)) + (b - bb)\n";
    let program: Program = format!("{HEAD}{text}").parse().unwrap();
    assert!(replay(&program, &program).errors["e"].baseline_ratio >= 1.0);
}

#[test]
fn the_ends_of_ranges_tell_programs_apart() {
    let program = |text: &str| -> Program {
        format!("{HEAD}elem a in [1e-30, 1e30]\nrow b in [1e-30, 1e30]\n{text}").parse().unwrap()
    };
    let given = program("out s = log2(a * b)\n");
    let replay = replay(&given, &program("out s = log2(a) + log2(b)\n"));
    assert!(replay.kinds.contains_key("ends of ranges") && replay.wrong_count > 0, "{replay:?}");
}

#[test]
fn the_rounding_of_sampled_values_voids_no_search() {
    let found = find(
        "elem s in [-200, 200]\nrow k in [2^-120, 2^100]\nout y = exp2(s * 0.7) * k\nout z = exp2(s * 0.7 + 60) * 2^-60\n",
    );
    assert!(found.terms > 0);
}

#[test]
fn a_value_and_its_negative_are_found_from_either() {
    let found = find("elem s in [-100, 100]\nout y = tanh(-s) * 0.5 + 0.5\nout g = group_max(tanh(s))\n");
    assert!(found.lower_bound.reached && !found.candidates.is_empty(), "{:?}", found.lower_bound);
}

#[test]
fn large_groups_are_sampled_in_part() {
    let program: Program =
        "layout group=65536 lanes=1\nelem s in [-100, 100]\nout p = exp2(s - group_max(s)) / \
                            group_sum(exp2(s - group_max(s)))\n"
            .parse()
            .unwrap();
    let layout = sample::layout(program.layout, 256);
    assert_eq!((layout.group, layout.lanes), (256, 1));
    let replay = replay(&program, &program);
    assert!(replay.rows_count > 0 && replay.values_count <= replay.rows_count * 2 * 256, "{replay:?}");
}

#[test]
fn inputs_meet_what_is_assumed_of_sums_on_either_side() {
    // A sum's lower bound beside an upper one of another size, a bound of zero, and none above.
    for (assumed, root) in [
        ("group_sum(s) / 128 in [1, 1e30]", "rsqrt(group_sum(s) / 128)"),
        ("group_sum(s) / 128 in [0, 1e30]", "sqrt(group_sum(s) / 128)"),
        ("group_sum(s) in [0, inf]", "sqrt(group_sum(s))"),
        ("row_sum(s) in [1000, inf]", "rsqrt(row_sum(s))"),
        ("group_sum(s) in [-inf, -100]", "rsqrt(-group_sum(s))"),
        ("group_sum(s) in [-1, 1]", "rcp(group_sum(s) + 2)"),
    ] {
        let text = format!(
            "layout group=32 lanes=32 row=32\nelem s in [-65504, 65504]\nassume {assumed}\nout y = {root}\n"
        );
        let program: Program = text.parse().unwrap();
        let device = kbt_device::embedded_profile("sm_90a").unwrap().unwrap();
        let model = CostModel::new(&device, program.layout);
        if let Err(e) = search(&program, &model, &Limits::default()) {
            panic!("{assumed}: {e}");
        }
        let layout = sample::layout(program.layout, 64);
        let extent = crate::lang::eval::Extent::new(layout, 3);
        let mut rng = sample::Rng::new(7);
        let range = program.assumptions[0].range;
        for _ in 0..8 {
            let inputs =
                sample::inputs(&program, extent, sample::Size::Usual, sample::Mask::None, &mut rng).unwrap();
            let values = program.evaluate(&inputs, extent);
            for x in &values[program.assumptions[0].node] {
                assert!(
                    range.lo * (1.0 - 2e-6 * range.lo.signum()) <= *x && *x <= range.hi + 1e-3,
                    "{assumed}: {x}"
                );
            }
        }
    }
}

/// The denominator of a softmax is 1 at least, and the numerators at most, where the scale is known to be positive.
#[test]
fn less_its_own_maximum_an_exponent_is_not_above_zero() {
    let rules = |found: &Search| found.candidates.first().map(|c| c.rules.clone()).unwrap_or_default();
    let softmax = |scale: &str, max: &str| {
        find(&format!(
            "elem s in [-1e30, 1e30]\nrow m\nconst c{scale}\np = exp2((s - {max}) * c)\nout y = p / row_sum(p)\n"
        ))
    };
    let known = softmax(" in [2^-20, 2^10]", "row_max(s)");
    assert!(rules(&known).iter().any(|r| r == "div-to-rcp"), "{:?}", known.refused);
    for (scale, max, guard) in [
        (" in [-1, 1]", "row_max(s)", "(s - row_max(s)) * c is at most 0 if c is positive"),
        (" in [2^-20, 2^10]", "m", "(s - m) * c is at most 0 if m is at least every s"),
    ] {
        let unknown = softmax(scale, max);
        assert!(!rules(&unknown).iter().any(|r| r == "div-to-rcp"), "{scale} {max}");
        let refused = unknown.refused.iter().find(|r| r.rule == "div-to-rcp").unwrap();
        assert!(refused.because.ends_with(guard), "{}", refused.because);
    }
    // Beside a greater running maximum no term need be 1.
    let running = softmax(" in [2^-20, 2^10]", "max(m, row_max(s))");
    let refused = running.refused.iter().find(|r| r.rule == "div-to-rcp").unwrap();
    assert!(refused.because.contains("it may be anything in [0, "), "{}", refused.because);
}

/// What is chosen in place of -inf is finite, and moves out of a maximum.
#[test]
fn a_choice_of_a_number_for_minus_infinity_is_finite() {
    let of = |bound: &str| {
        let lines = format!(
            "elem s in [-inf, 1000]\nt = row_max(s)\nout y = row_max(s - select(eq(t, {bound}), 0, t))\nout z = row_max(s)\n"
        );
        let found = find(&lines);
        found.candidates.iter().any(|c| c.rules.iter().any(|r| r == "row-max-add"))
    };
    assert!(of("-inf") && !of("-1000"));
}

/// The guards on what is rounded of the candidates that have a multiply-add in their exponent.
fn rounding_guards(lines: &str) -> Vec<(bool, String)> {
    let found = find(lines);
    let in_exponent = |c: &&Candidate| c.priced.program.to_string().contains("exp2(fma(");
    let limited = |c: &Candidate| {
        (c.guards.iter().any(|g| g.contains("| <= 16384: rounded")), c.priced.program.to_string())
    };
    let all: Vec<(bool, String)> = found.candidates.iter().filter(in_exponent).map(limited).collect();
    assert!(!all.is_empty(), "{lines}");
    all
}

#[test]
fn a_rounded_addend_of_an_exponent_is_limited_where_it_may_be_large() {
    let lines = |most: f64| {
        format!(
            "elem s in [-100, 100]\nrow m in [-{most}, {most}]\nconst c in [0.5, 2]\nout y = exp2((s - m) * c)\n"
        )
    };
    for (most, is_limited) in [(8192.0, false), (8193.0, true)] {
        for (limited, program) in rounding_guards(&lines(most)) {
            assert_eq!(limited, is_limited, "{program}");
        }
    }
}

/// s c - m c is 0 where s = m; in one multiply-add it is what m c was rounded by, though the program has m c too.
#[test]
fn a_product_that_was_rounded_beside_another_is_limited_once_it_stands_alone() {
    let lines =
        "elem s in [-1e5, 1e5]\nrow m in [-1e5, 1e5]\nconst c in [0.5, 2]\nout y = exp2(s * c - m * c)\n";
    for (limited, program) in rounding_guards(lines) {
        assert!(limited, "{program}");
    }
}

/// An exponent of a row whose maximum's product its elements have too.
#[test]
fn a_rows_difference_takes_its_factor_in_where_its_elements_do() {
    let found = find(
        "elem s in [-100, 100]\nrow o in [-100, 100]\nconst c in [0.5, 2]\nm = max(o, row_max(s))\nassume (s - m) * c in [-inf, 0]\n\
         assume (o - m) * c in [-inf, 0]\nout y = exp2((s - m) * c)\nout z = exp2((o - m) * c)\n",
    );
    let best = found.candidates[0].priced.program.to_string();
    assert!(best.contains("exp2(fma(o, c,") && best.contains("exp2(fma(s, c,"), "{best}");
}

#[test]
fn a_sum_that_an_exponent_follows_from_has_a_guard_whatever_stands_between() {
    let head = "elem s in [-1e8, 1e8]\nrow m in [-1e8, 1e8]\nconst k in [0.5, 2]\n";
    for (f, says) in [
        ("{}", "moves the exponent fma("),
        ("cvt_bf16({})", ", from which an exponent follows, by"),
        ("group_sum({})", ", from which an exponent follows, by"),
        ("row_sum({})", ", from which an exponent follows, by"),
        ("row_sum(lane_sum({}))", ", from which an exponent follows, by"),
        ("sqrt(abs({}))", ", from which an exponent follows, by"),
        ("tanh({}) * 10", ", from which an exponent follows, by"),
        ("group_max({})", "moves the exponent "),
        ("row_max({})", "moves the exponent "),
    ] {
        let found = find(&format!("{head}out p = exp2({})\n", f.replace("{}", "(s - m) * k")));
        let apart = |c: &&Candidate| c.rules.iter().any(|r| r == "factor-into-fma");
        let mut apart = found.candidates.iter().filter(apart).peekable();
        assert!(apart.peek().is_some(), "{f}: {:?}", found.candidates);
        for c in apart {
            let guards: Vec<_> = c.guards.iter().filter(|g| g.contains("| <= 16384: rounded")).collect();
            assert!(guards.iter().any(|g| g.contains(says)), "{f}: {:?}\n{}", c.guards, c.priced.program);
        }
    }
}
