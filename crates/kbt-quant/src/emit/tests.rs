//! What generated source looks like. Whether it computes the right thing is for `tests/emit.rs`.

use super::*;

fn source(text: &str) -> String {
    function(&text.parse().unwrap(), "a step", &["keep the clamp".to_owned()])
}

#[test]
fn a_step_has_its_program_its_guards_and_its_loops() {
    let out = source(
        "layout group=16 lanes=4 row=128\nelem s\nconst new in [1, 2]\nx = exp2(s * new)\nassume x in [0, 6]\n\
         out code = cvt_e2m1(x / max(group_max(x), 2^-126))\nout q = cvt_e2m1(x)\nout sum = row_sum(x)\n",
    );
    for part in [
        "//   keep the clamp",
        "KBT_STEP_FN void a_step(const float (&s)[kGroups][4], const float new_2, const Lanes lanes, ",
        "float (&code)[kGroups][4], float (&q)[kGroups][4], float (&sum))",
        "x[g][e] = kbt_step::exp2(mul2[g][e]);",
        "kbt_step::max(group_max4[g], 1.1754944e-38f)",
        "lanes.max(group_max4[g])",
        "kbt_step::cvt_e2m1_below7(x[g][e])",
        "kbt_step::cvt_e2m1(div",
        "`sum` is this lane's part of the sum",
        "pass kbt_step::Butterfly<4>{} as lanes",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert!(!out.contains("lanes.sum"), "{out}");
}

#[test]
fn a_row_sum_that_is_used_is_added_over_lanes() {
    let out = source("layout group=16 lanes=4 row=128\nelem s\nout y = s / row_sum(s)\n");
    assert!(out.contains("lanes.sum("), "{out}");
}

#[test]
fn literals_keep_their_bits() {
    for x in [1.0f32, 0.1, 1e-40, f32::MAX, -2.5] {
        let text = number(x).replace(['(', ')'], "");
        assert_eq!(text.trim_end_matches('f').parse::<f32>().unwrap().to_bits(), x.to_bits(), "{text}");
    }
    assert_eq!(number(f32::NEG_INFINITY), "kbt_step::from_bits(0xff800000u)");
}
