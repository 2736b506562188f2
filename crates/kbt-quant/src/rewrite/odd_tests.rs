//! Programs that nobody would write and generators do: lines that nothing uses, values that cancel, choices between
//! equals, long chains.

use super::*;
use crate::cost::CostModel;
use crate::lang::Program;

const HEAD: &str = "layout group=16 lanes=4 row=128\nelem s in [0, 5]\nelem w in [-100, 100]\ngroup g in [-10, 10]\n\
                    row r in [1, 2]\nconst c in [1, 2]\n";

/// Has rates of comparisons and of tanh.
fn device() -> kbt_device::DeviceProfile {
    kbt_device::embedded_profile("sm_90a").unwrap().unwrap()
}

fn find(lines: &str) -> Search {
    let program: Program = format!("{HEAD}{lines}").parse().unwrap();
    let device = device();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default());
    let found = found.unwrap_or_else(|e| panic!("{lines}: {e}"));
    assert!(found.rejected.is_empty(), "{lines}: {:?}", found.rejected);
    found
}

#[test]
fn lines_that_nothing_uses_do_not_enter_the_graph() {
    let used = "t2 = group_max(w)\nt3 = tanh(t2)\nt4 = log2(max(t3, 0.001))\nout o = t4 - s\n";
    let dead =
        "t0 = tanh(r)\nt1 = w / t0\nt5 = t1 * 0.1\nt6 = exp2(fma(s, c, t5)) / r\nt7 = row_sum(t6 * t6)\n";
    let (alone, beside) = (find(used), find(&format!("{dead}{used}")));
    assert_eq!((alone.terms, alone.classes), (beside.terms, beside.classes));
    // The program given stays as it was given.
    assert!(beside.baseline.program.to_string().contains("tanh(r)"), "{}", beside.baseline.program);
}

#[test]
fn what_is_promised_of_an_unused_value_still_holds() {
    // The sum is not needed, but the promise of it bounds the one that is.
    let text = "d = w - r\nassume d in [-50, 0]\nout y = exp2(-(r - w))\n";
    let found = find(text);
    assert!(found.candidates.iter().all(|c| c.guards.iter().any(|g| g.contains("assumed:"))));
}

#[test]
fn a_program_that_the_rules_take_apart_has_a_result() {
    for lines in [
        "out o = log2(exp2(s))\n",
        "t = exp2(r)\nout o = t / t\n",
        "t = w / r\nout o = t - w\n",
        "t = s - w\nout o = -t + t\n",
        "out o = select(lt(s, r), r, r)\n",
        "t = select(lt(s, r), r, r)\nout o = select(lt(t, w), w, s)\n",
        "out o = group_sum(s - s)\n",
        "t = row_sum(w)\nout o = t - t\n",
    ] {
        let found = find(lines);
        assert!(found.baseline.cost.issue_slots > 0.0, "{lines}: {:?}", found.baseline);
    }
}

#[test]
fn a_subtraction_that_cancels_is_paid_for_and_saved() {
    let found = find("out o = s - s\n");
    assert_eq!(found.baseline.cost.issue_slots, 1.0);
    assert_eq!(found.candidates[0].priced.cost.issue_slots, 0.0, "{}", found.candidates[0].priced.program);
}

#[test]
fn a_reciprocal_of_an_exponential_that_is_flushed_is_refused() {
    // 2^130 / 2^128.5 is infinity over infinity as written; 2^-130 in a divisor is 0, so infinity instead of 2^3.
    let text =
        "layout group=1\nelem a in [-inf, 125]\nelem b in [-inf, 125]\nout y = exp2(a) * rcp(exp2(b))\n";
    let program: Program = text.parse().unwrap();
    let device = device();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap();
    assert!(found.candidates.is_empty() && found.rejected.is_empty(), "{:?}", found.candidates);
    assert!(found.refused.iter().any(|r| r.rule == "rcp-exp2"), "{:?}", found.refused);
    // Within the range of exp2 it is granted.
    let program: Program = text.replace("-inf", "-125").parse().unwrap();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap();
    assert!(found.candidates[0].rules.iter().any(|r| r == "rcp-exp2"), "{:?}", found.candidates);
}

#[test]
fn the_maximum_folded_into_a_multiply_add_holds_up_to_a_stated_magnitude() {
    let text = "layout group=16 lanes=4 row=128\nelem s in [-1e30, 1e30]\nconst c in [2^-20, 2^10]\nm = row_max(s)\n\
                d = (s - m) * c\nassume d in [-inf, 0]\nout p = exp2(d)\nout sum = row_sum(exp2(d))\n";
    let program: Program = text.parse().unwrap();
    let device = device();
    let model = CostModel::new(&device, program.layout);
    let found = search(&program, &model, &Limits::default()).unwrap();
    let best = &found.candidates[0];
    let folded = best.priced.program.to_string();
    assert!(best.priced.operations["fma"] >= 1.0, "{folded}");
    let guard = best.guards.iter().find(|g| g.starts_with("only where |")).unwrap();
    assert!(guard.contains("<= 16384"), "{guard}");
    // Beyond 0 by as much as the guard allows; the promise itself is one about (s - m) c.
    assert!(folded.contains("in [-inf, 0.0009765625]"), "{folded}");
    // Rows of thousands are compared within the guard, and say how much is lost there.
    assert!(best.replay.kinds["huge"] > 0 && best.replay.wrong_count == 0, "{:?}", best.replay);
    let lost = best.replay.errors["p"];
    assert!(lost.candidate_huge_ratio > 10.0 * lost.baseline_huge_ratio, "{lost:?}");
    assert!(lost.candidate_huge_ratio < 4e-3, "{lost:?}");
    // Ranges that keep the product small are guard enough.
    let text = text.replace("1e30", "10").replace("2^10", "2");
    let found = search(&text.parse().unwrap(), &model, &Limits::default()).unwrap();
    assert!(
        found.candidates[0].guards.iter().all(|g| !g.starts_with("only where")),
        "{:?}",
        found.candidates[0]
    );
}

#[test]
fn an_assumption_about_an_input_is_met_by_drawing_within_it() {
    let found = find("assume w in [0, 1]\nassume r in [1.5, 1.51]\nout o = exp2(w) / r\n");
    assert!(found.candidates.iter().all(|c| c.replay.rows_count > 30), "{:?}", found.candidates);
    assert!(found.baseline.cost.issue_slots > 1.0);
}

#[test]
fn a_search_in_a_large_graph_ends_within_its_steps_and_says_so() {
    let head = "t0 = s\n".to_owned();
    let chain = |n: usize| {
        let lines = (0..n).map(|i| format!("t{} = exp2(t{i} * 0.5 + t{i} / 3) / (t{i} + 2)\n", i + 1));
        head.clone() + &lines.collect::<String>() + &format!("out y = t{n}\n")
    };
    let found = find(&chain(40));
    assert!(found.classes > 200, "{}", found.classes);
    // Nothing is promised that was not proven.
    assert!(found.lower_bound.complete || !found.lower_bound.reached);
    let program: Program = format!("{HEAD}{}", chain(3)).parse().unwrap();
    let device = device();
    let limits = Limits { steps: 2, ..Limits::default() };
    let cut = search(&program, &CostModel::new(&device, program.layout), &limits).unwrap();
    assert!(!cut.lower_bound.complete && !cut.lower_bound.reached);
    let outcome = crate::outcome::RewriteOutcome::new("t", "t", &cut);
    assert!(outcome.lower_bound.statement.contains("cut off after its number of steps"), "{outcome:?}");
}

/// A program of many conversions, each of its own factor.
fn many(conversions: usize) -> Program {
    let inputs: String = (0..8).map(|i| format!("elem s{i} in [-100, 100]\n")).collect();
    let outputs: String = (0..conversions)
        .map(|i| format!("out o{i} = cvt_e4m3(exp2(s{} * {} - m) / g)\n", i % 8, 0.125 * (i + 1) as f64))
        .collect();
    let text = format!(
        "layout group=32 lanes=4 row=128\n{inputs}row m in [0.1, 10]\ngroup g in [0.1, 10]\n{outputs}"
    );
    text.parse().unwrap()
}

#[test]
fn what_is_left_out_for_want_of_steps_is_said() {
    let device = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let program = many(6);
    let model = CostModel::new(&device, program.layout);
    let whole = search(&program, &model, &Limits::default()).unwrap();
    let best = &whole.candidates[0].replay;
    assert!(best.left_out.is_empty() && whole.cut_off.is_empty(), "{:?} {:?}", best.left_out, whole.cut_off);
    assert!(
        best.kinds.keys().filter(|kind| kind.starts_with("boundary of")).count() == 6,
        "{:?}",
        best.kinds
    );
    // Enough for two of six at once, and for one candidate.
    let limits = Limits { values: 4_000_000, ..Limits::default() };
    let cut = search(&program, &model, &limits).unwrap();
    let replay = &cut.candidates[0].replay;
    let compared = replay.kinds.keys().filter(|kind| kind.starts_with("boundary of")).count();
    assert!(
        compared > 0 && compared + replay.left_out.len() == 6,
        "{:?} {:?}",
        replay.kinds,
        replay.left_out
    );
    let none = search(&program, &model, &Limits { values: 0, ..Limits::default() }).unwrap();
    assert_eq!(none.candidates[0].replay.left_out.len(), 6);
    assert_eq!(none.candidates[0].replay.tie_rows_count, 0);
}
