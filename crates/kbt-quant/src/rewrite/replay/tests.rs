//! The comparison of two programs: what it covers, what it calls wrong.

use super::ties::middle;
use super::*;
use crate::lang::builtin;

fn program(name: &str) -> Program {
    builtin(name).unwrap().parse().unwrap()
}

const KINDS: [&str; 10] = [
    "boundary of code",
    "boundary of sf",
    "ends of ranges",
    "equal operands",
    "huge",
    "huge, partly masked",
    "tiny",
    "usual",
    "usual, partly masked",
    "wholly masked",
];

#[test]
fn inputs_are_found_where_an_assumption_bounds_an_exponent_from_above() {
    // Drawn within thousands of zero the argument is far above its bound in nearly every element.
    let text = "layout group=16 lanes=4 row=128\nelem s in [-inf, 1e30]\nrow b in [-1e30, 1e30]\n\
                const c in [2^-20, 2^10]\na = fma(s, c, b)\nassume a in [-inf, 125]\nout code = cvt_e4m3(exp2(a))\n";
    let program: Program = text.parse().unwrap();
    let report = replay(&program, &program);
    assert!(report.holds() && report.differing_count == 0);
    for kind in ["huge", "huge, partly masked", "usual", "wholly masked", "tiny"] {
        assert!(report.kinds.contains_key(kind), "{kind}: {:?}", report.kinds);
    }
}

#[test]
fn the_forms_of_the_quantiser_differ_only_in_ties() {
    // Where nothing is flushed, and what is rounded apart from its maximum is small: the guards of all forms.
    let narrow = |name: &str| -> Program {
        let text = builtin(name).unwrap().replace("[-inf, 1e30]", "[-20, 10]").replace("1e30", "10");
        text.replace("[2^-20, 2^10]", "[2^-20, 1]").parse().unwrap()
    };
    let linear = program("softmax-nvfp4-linear");
    let mut differing = 0;
    for other in ["softmax-nvfp4-linear-rcp", "softmax-nvfp4-log2", "softmax-nvfp4-log2-fused"] {
        let report = replay(&linear, &program(other));
        // The ends of the ranges are beyond the guards.
        let beyond = |w: &String| w.contains("ends of ranges");
        assert!(report.wrong.iter().all(beyond), "{other}: {report:?}");
        let kinds: Vec<&str> = report.kinds.keys().map(String::as_str).collect();
        assert_eq!(kinds, KINDS, "{other}");
        let report = replay(&narrow("softmax-nvfp4-linear"), &narrow(other));
        assert!(report.holds(), "{other}: {report:?}");
        assert!(report.rows_count > 40 && report.tie_rows_count >= 12, "{report:?}");
        // Every differing code is explained.
        assert_eq!(report.differing_count, report.explained_count, "{report:?}");
        differing += report.differing_count;
    }
    assert!(differing > 0, "boundaries that nothing crosses test nothing");
}

#[test]
fn a_form_that_cancels_has_a_greater_error_bound() {
    let head = "layout group=1 row=1\nelem x in [1000, 1001]\nrow m in [999, 1000]\nconst k in [0.1, 0.2]\n";
    let baseline: Program = format!("{head}out y = (x - m) * k").parse().unwrap();
    let candidate: Program = format!("{head}out y = fma(x, k, -(m * k))").parse().unwrap();
    let report = replay(&baseline, &candidate);
    assert!(report.holds());
    let bound = report.errors["y"];
    assert!(bound.baseline_ratio < 1e-6 && bound.candidate_ratio > 3.0 * bound.baseline_ratio, "{bound:?}");
    assert!(report.errors_text().starts_with("y "), "{}", report.errors_text());
}

#[test]
fn what_becomes_of_an_infinity_is_wrong_unless_it_is_the_same() {
    let head = "layout group=16 lanes=4 row=128\nelem x in [-1000, 1000]\nrow m in [-900, 900]\nconst k in [0.5, 2]\n";
    let program = |line: &str| -> Program { format!("{head}out y = {line}").parse().unwrap() };
    for f in ["1 / ({})", "log2(abs({}))", "rsqrt(abs({}))", "rcp({})", "cvt_bf16(1 / ({}))"] {
        // A free input meets x, and the greatest of x is met by one of them.
        for (exact, fused) in
            [("(x - m) * k", "fma(x, k, -(m * k))"), ("(x - row_max(x)) * k", "fma(x, k, -(row_max(x) * k))")]
        {
            let (a, b) = (program(&f.replace("{}", exact)), program(&f.replace("{}", fused)));
            assert!(replay(&a, &a).holds(), "{a}");
            let report = replay(&a, &b);
            assert!(report.wrong.iter().any(|w| w.contains("inf became")), "{a}: {report:?}");
            // And nothing bounds the error of what is infinite in real arithmetic and a number in f32.
            let unbounded = report.errors.is_empty() || report.errors_text().contains("y no useful bound");
            assert!(unbounded || exact.contains("- m"), "{a}: {}", report.errors_text());
        }
    }
}

#[test]
fn what_overflows_by_rounding_alone_is_no_error() {
    let of = |value: f32, real: f64| Tracked { value, real, error: f64::INFINITY };
    let (inf, most) = (f32::INFINITY, f64::from(f32::MAX));
    for (x, holds) in [
        (of(inf, most * 1.01), true),
        (of(f32::MAX, most), true),
        (of(f32::MAX, 1e38), false),
        (of(1e38, f64::INFINITY), false),
        (of(-inf, f64::INFINITY), false),
        (of(f32::NAN, f64::INFINITY), false),
    ] {
        assert_eq!(compare::overflows(&x), holds, "{x:?}");
    }
}

#[test]
fn values_are_alike_within_the_sum_of_their_errors_and_no_further() {
    let of = |value: f32, error: f64| Tracked { value, real: f64::from(value), error };
    let (inf, most) = (f32::INFINITY, f32::MAX);
    let overflowed =
        |value: f32| Tracked { value, real: 4e38f64.copysign(value.into()), error: f64::INFINITY };
    let one = of(1.0, 0.01);
    for (x, y, holds) in [
        (one, of(1.019, 0.01), true),
        (one, of(1.021, 0.01), false),
        (one, of(0.979, 0.01), false),
        (one, of(f32::NAN, f64::NAN), false),
        // Without a bound, to 20 bits.
        (of(1.0, f64::NAN), of(1.0 + 0.9 / 1_048_576.0, 0.0), true),
        (of(1.0, f64::NAN), of(1.0 + 1.2 / 1_048_576.0, 0.0), false),
        // Both must overflow, whichever became infinite, and the same way.
        (overflowed(inf), overflowed(most), true),
        (overflowed(most), overflowed(inf), true),
        (overflowed(inf), of(1.0, f64::INFINITY), false),
        (of(1.0, f64::INFINITY), overflowed(inf), false),
        (overflowed(inf), overflowed(-inf), false),
        (overflowed(inf), of(f32::NAN, f64::INFINITY), false),
    ] {
        assert_eq!(compare::alike(&x, &y), holds, "{x:?} {y:?}");
    }
}

#[test]
fn a_boundary_explains_a_step_within_the_sum_of_the_errors_and_no_further() {
    let of = |real: f64, error: f64| Tracked { value: 0.0, real, error };
    let to = of(2.0, 0.01);
    for (from, holds) in [
        (of(1.231, 0.01), true),
        (of(1.269, 0.01), true),
        (of(1.229, 0.01), false),
        (of(1.271, 0.01), false),
        (of(1.25, f64::INFINITY), false),
        (of(1.25, f64::NAN), false),
    ] {
        assert_eq!(compare::explains(1.25, &from, &to), holds, "{from:?}");
    }
}

#[test]
fn a_conversion_used_as_a_value_has_the_error_of_a_step() {
    let head = "layout group=16 lanes=4 row=128\nelem s in [-10, 10]\nconst c in [0.5, 2]\n";
    let baseline: Program = format!("{head}out a = cvt_e2m1(s / c) * c\nout b = s * c").parse().unwrap();
    let candidate: Program =
        format!("{head}out a = cvt_e2m1(s * rcp(c)) * c\nout b = s * c").parse().unwrap();
    let report = replay(&baseline, &candidate);
    assert!(report.holds() && report.tie_rows_count > 0, "{report:?}");
    assert!(report.kinds.contains_key("boundary of cvt_e2m1(s / c)"), "{:?}", report.kinds);
    // A step is at least the twelfth part of the greatest code; what takes no conversion has the error of rounding.
    let (a, b) = (report.errors["a"], report.errors["b"]);
    assert!(a.candidate_ratio > 1.0 / 13.0 && a.baseline_ratio > 1.0 / 13.0, "{a:?}");
    assert!(b.candidate_ratio < 1e-6, "{b:?}");
    // A candidate that is off by more than rounding is still wrong.
    let wrong: Program =
        format!("{head}out a = cvt_e2m1(s * rcp(c) * 1.01) * c\nout b = s * c").parse().unwrap();
    assert!(!replay(&baseline, &wrong).holds());
}

#[test]
fn a_wrong_program_is_reported() {
    let text = builtin("softmax-nvfp4-log2").unwrap();
    let linear = program("softmax-nvfp4-linear");
    for (right, wrong) in [
        ("2.584962500721156", "2.58"),
        ("cvt_e4m3(scale)", "cvt_e4m3(scale * 1.07)"),
        ("row_sum(lane_sum(x) * scale)", "row_sum(lane_sum(x))"),
        ("exp2(arg - b)", "exp2(arg - b + 2^-10)"),
        // Without the clamp a fully masked group gives NaN, which FP4 turns into 6.
        ("max(group_max(arg), -100)", "group_max(arg)"),
    ] {
        assert!(text.contains(right), "{right}");
        let report = replay(&linear, &text.replace(right, wrong).parse().unwrap());
        assert!(!report.holds() && report.wrong_count > 0, "{wrong}: {report:?}");
    }
}

#[test]
fn the_middle_of_two_floats_is_in_their_order() {
    assert_eq!(middle(1.0, 1.0f32.next_up()), 1.0);
    assert_eq!(middle(-1.0, 1.0), 0.0);
    assert!(middle(-3.0, -1.0) < -1.0 && middle(-3.0, -1.0) > -3.0);
}

#[test]
fn a_bound_that_bounds_nothing_is_said_to_be_none() {
    let mut report = Replay::new();
    let bounds = |x| ErrorBound {
        baseline_ratio: 1e-6,
        candidate_ratio: 2e-6,
        baseline_huge_ratio: x,
        candidate_huge_ratio: f64::NAN,
    };
    report.errors.insert("y".to_owned(), bounds(1.5e113));
    assert_eq!(
        report.errors_text(),
        "y 2.0e-6, before 1.0e-6 (inputs in thousands: no useful bound, before no useful bound)"
    );
}
