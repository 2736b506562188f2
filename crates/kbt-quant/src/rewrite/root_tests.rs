//! Roots, comparisons and choices: what the search makes of them, and what it refuses.

use super::*;
use crate::cost::CostModel;
use crate::lang::{Op, Program};
use kbt_device::{DeviceProfile, embedded_profile};

const HEAD: &str = "layout group=4 lanes=1 row=16\nelem x in [-100, 100]\nelem v in [0.001, 1000]\nrow m in [-100, 100]\n\
                    const k in [0.01, 0.5]\n";

fn h200() -> DeviceProfile {
    embedded_profile("h200-sxm").unwrap().unwrap()
}

fn find(text: &str) -> Search {
    let program: Program = text.parse().unwrap();
    let device = h200();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap();
    assert!(found.saturated && found.rejected.is_empty(), "{:?}", found.rejected);
    found
}

/// The best candidate's output.
fn best(body: &str) -> String {
    let found = find(&format!("{HEAD}{body}"));
    let program = &found.candidates.first().unwrap_or_else(|| panic!("nothing for {body}")).priced.program;
    let text = program.to_string();
    text.lines().filter(|l| l.starts_with("out") || l.starts_with('t')).collect::<Vec<_>>().join("; ")
}

/// That a rule is refused for this reason, and that no candidate has what it would lead to.
fn refused(text: &str, rule: &str, because: &str, without: Op) {
    let found = find(text);
    let hit = found.refused.iter().any(|r| r.rule == rule && r.because.contains(because));
    assert!(hit, "{rule} {because}: {:#?}", found.refused);
    for c in &found.candidates {
        assert!(c.priced.program.nodes.iter().all(|n| n.op != without), "{}", c.priced.program);
    }
}

#[test]
fn a_division_by_a_root_is_a_product_with_its_reciprocal() {
    assert_eq!(best("out y = x / sqrt_rn(v)"), "out y = x * rsqrt(v)");
    assert_eq!(best("out y = x / sqrt(v)"), "out y = x * rsqrt(v)");
    assert_eq!(best("out y = rcp(sqrt(v))"), "out y = rsqrt(v)");
    assert_eq!(best("out y = v * rsqrt(v)"), "out y = sqrt(v)");
    assert_eq!(best("out y = sqrt(v) * sqrt(v) + x"), "out y = x + v");
    assert_eq!(best("out y = sqrt(exp2(x))"), "out y = exp2(x * 0.5)");
    assert_eq!(best("out y = row_max(sqrt(v))"), "out y = sqrt(row_max(v))");
    assert_eq!(best("out y = group_max(tanh(x))"), "out y = tanh(group_max(x))");
    let of_zero = HEAD.replace("[0.001, 1000]", "[0, 1000]");
    let because = "must lie in [2^-126, 2^126], so that its reciprocal exists";
    refused(&format!("{of_zero}out y = x / sqrt_rn(v)"), "div-to-rcp", because, Op::Rsqrt);
    refused(
        &format!("{of_zero}out y = rcp(sqrt(v))"),
        "rcp-sqrt",
        "v must be positive and finite",
        Op::Rsqrt,
    );
    let of_both = HEAD.replace("[0.001, 1000]", "[-1000, 1000]");
    refused(
        &format!("{of_both}out y = row_max(sqrt_rn(v))"),
        "sqrt-approx",
        "must not be negative",
        Op::Sqrt,
    );
}

#[test]
fn a_root_mean_square_is_not_negative() {
    let text = "layout group=16 lanes=4 row=16\nelem x in [-100, 100]\nconst eps in [2^-30, 1]\n\
                out y = x / sqrt_rn(group_sum(x * x) / 16 + eps)\n";
    let found = find(text);
    let operations = &found.candidates[0].priced.operations;
    assert_eq!(
        (operations["div"], operations["sqrt_rn"], operations["rsqrt"]),
        (0.0, 0.0, 0.25),
        "{operations:?}"
    );
    // Of any other product the sign is not known.
    let other = text.replace("elem x in [-100, 100]\n", "elem x in [-100, 100]\nelem w in [-1, 1]\n");
    let other = other.replace("x * x", "x * w + 200");
    refused(&other.replace("+ 200", "+ 1"), "sqrt-approx", "must not be negative", Op::Rsqrt);
}

#[test]
fn a_choice_of_the_greater_is_a_maximum() {
    assert_eq!(best("out y = select(lt(x, m), m, x)"), "out y = max(x, m)");
    assert_eq!(best("out y = select(le(m, x), x, m)"), "out y = max(x, m)");
    assert_eq!(best("out y = select(lt(x, m), x, m)"), "out y = -max(-x, -m)");
    assert_eq!(best("out y = select(lt(0, x), x, x * k)"), "out y = max(x, x * k)");
    assert_eq!(best("out y = select(lt(x, v), exp2(x), exp2(m))"), "out y = exp2(select(lt(x, v), x, m))");
    assert_eq!(best("out y = select(lt(k, v), x * m, v * m)"), "out y = m * select(lt(k, v), x, v)");
    // inf - inf is NaN, of which a comparison is false and a maximum the other operand.
    let open =
        HEAD.replace("x in [-100, 100]", "x in [-inf, inf]").replace("m in [-100, 100]", "m in [-inf, inf]");
    refused(
        &format!("{open}t = x - m\nout y = select(lt(t, v), v, t)"),
        "select-less-max",
        "t must not be NaN",
        Op::Max,
    );
    let steep = HEAD.replace("k in [0.01, 0.5]", "k in [0.01, 2]");
    refused(
        &format!("{steep}out y = select(lt(0, x), x, x * k)"),
        "select-leaky",
        "k must lie in [0, 1]",
        Op::Max,
    );
}

#[test]
fn comparisons_of_values_that_meet_void_no_search() {
    // The greatest element less the maximum is 0 one way and, in f64, next to 0 the other; both are the same.
    let text = "layout group=4 lanes=1 row=16\nelem s in [-100, 100]\nm = group_max(s)\n\
                k = 1.4426950408889634\nt = (s - m) * k\nu = fma(s, k, -(m * k))\nout y = select(lt(t, 0), 1, s)\nout z = select(lt(u, 0), s, 1)\n";
    let found = find(text);
    assert_eq!(found.candidates[0].priced.operations["lt"], 1.0, "{}", found.candidates[0].priced.program);
}

#[test]
fn a_promise_of_a_range_does_not_promise_nan_away() {
    // With a factor of either sign a masked score is +inf, and less its own maximum NaN: what may be NaN is not finite.
    let text = "layout group=4 lanes=1 row=4\nelem s in [-inf, 1e30]\nconst c in [-4, 4]\nt = s * c\n\
                d = t - group_max(t)\nassume d in [-inf, 0]\np = exp2(d * 1.442695)\nassume group_sum(p) in [1, 260]\n\
                out y = p / group_sum(p)\n";
    let program: Program = text.parse().unwrap();
    let device = h200();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap();
    let may_be_nan = |r: &Refusal| r.because.contains("or NaN");
    assert!(found.refused.iter().any(may_be_nan), "{:#?}", found.refused);
}
