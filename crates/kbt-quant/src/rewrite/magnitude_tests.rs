//! |a|: what it costs, and what becomes of maxima that are one.

use super::*;
use crate::cost::CostModel;
use crate::lang::Program;

const HEAD: &str =
    "layout group=16 lanes=4 row=128\nelem x in [-100, 100]\ngroup g in [-4, 4]\nconst c in [0.5, 2]\n";

fn find(body: &str) -> Search {
    let program: Program = format!("{HEAD}{body}").parse().unwrap();
    let device = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let found = search(&program, &CostModel::new(&device, program.layout), &Limits::default()).unwrap();
    assert!(found.rejected.is_empty(), "{body}: {:?}", found.rejected);
    found
}

fn best(body: &str) -> String {
    let found = find(body);
    let first = found.candidates.first().unwrap_or_else(|| panic!("nothing for {body}"));
    first.priced.program.to_string().lines().filter(|l| l.starts_with("out")).collect::<Vec<_>>().join("; ")
}

#[test]
fn an_absolute_maximum_is_one_butterfly() {
    assert_eq!(best("out y = max(group_max(x), group_max(-x))"), "out y = group_max(abs(x))");
    assert_eq!(best("out y = max(row_max(x), row_max(-x))"), "out y = row_max(abs(x))");
    assert_eq!(best("out y = group_max(max(x, -x))"), "out y = group_max(abs(x))");
    assert_eq!(best("out y = group_max(abs(x * c))"), "out y = c * group_max(abs(x))");
}

#[test]
fn a_magnitude_is_free_as_an_operand_and_an_addition_in_a_register() {
    let slots = |body: &str| find(body).baseline.cost.issue_slots;
    assert_eq!(slots("out y = abs(x) + g"), slots("out y = x + g"));
    assert_eq!(slots("out y = group_max(abs(x))"), slots("out y = group_max(x)"));
    assert_eq!(slots("out y = cvt_bf16(abs(x))"), slots("out y = cvt_bf16(x)") + 1.0);
    assert_eq!(slots("out y = abs(x)"), 1.0);
    assert!(find("out y = cvt_bf16(abs(x))").candidates.is_empty());
}

#[test]
fn two_reductions_of_one_kind_are_one_butterfly() {
    assert_eq!(best("out y = max(group_max(x), group_max(x * x))"), "out y = group_max(max(x, x * x))");
    assert_eq!(best("out y = max(row_max(x), row_max(x * x))"), "out y = row_max(max(x, x * x))");
    assert_eq!(best("out y = group_sum(x) + group_sum(exp2(x))"), "out y = group_sum(x + exp2(x))");
    assert_eq!(best("out y = row_sum(x) + row_sum(exp2(x))"), "out y = row_sum(x + exp2(x))");
}
