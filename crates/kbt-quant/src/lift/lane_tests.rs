//! Sums over lanes that are none, values that lanes share, and what ptxas contracts.

use super::tests::{lifted, loads, short};
use crate::lang::Op;

/// A butterfly step: `v` of register `from` becomes register `to`.
fn step(op: &str, from: u32, to: u32, mask: u32) -> String {
    format!(
        "mov.b32 %r{from}, %f{from};\nshfl.sync.bfly.b32 %s{to}|%p1, %r{from}, {mask}, 31, -1;\nmov.b32 %g{to}, %s{to};\n\
         {op}.f32 %f{to}, %f{from}, %g{to};\n"
    )
}

#[test]
fn a_butterfly_with_a_step_twice_is_no_sum_over_lanes() {
    let body = |masks: [u32; 3]| {
        let steps: String = masks.iter().zip(1..).map(|(mask, i)| step("add", i, i + 1, *mask)).collect();
        format!("ld.global.f32 %f1, [%rd1];\n{steps}st.global.f32 [%rd2], %f4;")
    };
    short(&body([1, 2, 4]), &["layout group=8 lanes=8 row=8; elem f1; out f4 = group_sum(f1)"]);
    for masks in [[1, 1, 2], [1, 2, 1], [2, 1, 1]] {
        let found = lifted(&body(masks));
        assert!(found.pieces.is_empty(), "{}", found.pieces[0].program);
        let [not] = found.unlifted.as_slice() else { panic!("{:?}", found.unlifted) };
        assert!(not.because.contains("lanes"), "{not:?}");
    }
    // The whole butterfly twice: every lane adds the sum itself.
    let twice = "ld.global.f32 %f1, [%rd1];\n".to_owned()
        + &step("add", 1, 2, 1)
        + &step("add", 2, 3, 2)
        + &step("add", 3, 4, 1)
        + &step("add", 4, 5, 2)
        + "st.global.f32 [%rd2], %f5;";
    let found = lifted(&twice);
    assert!(found.pieces.is_empty(), "{}", found.pieces[0].program);
}

#[test]
fn another_lanes_value_that_is_used_twice_is_an_input_of_both() {
    // The sum with the other lane, and its product with the other lane's value; then a step on, and a maximum.
    for (op, steps) in [("add", 1), ("add", 2), ("max", 1), ("max", 2)] {
        let all: String = (1..=steps).map(|i| step(op, i, i + 1, 1 << (i - 1))).collect();
        let (sum, other) = (steps + 1, steps + 1);
        let body = format!(
            "ld.global.f32 %f1, [%rd1];\n{all}mul.f32 %f9, %f{sum}, %g{other};\nst.global.f32 [%rd2], %f9;"
        );
        let found = lifted(&body);
        assert!(found.refused.iter().any(|r| r.instruction.starts_with("shfl")), "{op}: {:?}", found.refused);
        assert!(!found.pieces.is_empty() || !found.unlifted.is_empty(), "{op}: {found:?}");
    }
}

/// Four elements, a sum over them and what `sum` adds to it, a butterfly, and each element times the result.
fn summed(sum: &str) -> String {
    let products: String = (1..=4)
        .map(|i| format!("mul.f32 %f{}, %f{i}, %f12;\nst.global.f32 [%rd2+{i}], %f{};\n", 20 + i, 20 + i))
        .collect();
    format!("{}{sum}{}{products}", loads(5), step("add", 10, 11, 1) + &step("add", 11, 12, 2))
}

#[test]
fn only_elements_are_added_up_over_lanes() {
    let all = "add.f32 %f6, %f1, %f2;\nadd.f32 %f7, %f6, %f3;\n";
    let out = "layout group=16 lanes=4 row=16; elem f1; out f21 = f1 * group_sum(f1)";
    short(&summed(&format!("{all}add.f32 %f10, %f7, %f4;\n")), &[out]);
    // What a lane had before is another in each lane: an element of its own.
    let carried = lifted(&summed(&format!("{all}add.f32 %f8, %f7, %f4;\nadd.f32 %f10, %f8, %f5;\n")));
    let program = carried.pieces[0].program.to_string();
    assert!(program.contains("elem f5") && program.contains("group_sum(f5 + "), "{program}");
    // A number is added once a lane.
    let found = lifted(&summed(&format!("{all}add.f32 %f8, %f7, %f4;\nadd.f32 %f10, %f8, 0f3F800000;\n")));
    assert!(found.pieces.is_empty(), "{}", found.pieces[0].program);
    assert!(found.unlifted[0].because.contains("each lane adds 1,"), "{:?}", found.unlifted);
    // An element twice is no sum of the group.
    let found = lifted(&summed(&format!("{all}add.f32 %f10, %f7, %f3;\n")));
    assert!(found.pieces.is_empty(), "{}", found.pieces[0].program);
}

#[test]
fn that_lanes_agree_on_a_value_of_their_row_is_taken_for_granted() {
    let body = summed("add.f32 %f6, %f1, %f2;\nadd.f32 %f7, %f6, %f3;\nadd.f32 %f10, %f7, %f4;\n");
    let body = body.replace("mul.f32 %f21, %f1, %f12", "fma.rn.f32 %f21, %f1, %f12, %f5");
    let body = (2..=4).fold(body, |b, i| {
        b.replace(&format!("mul.f32 %f2{i}, %f{i}, %f12"), &format!("fma.rn.f32 %f2{i}, %f{i}, %f12, %f5"))
    });
    let found = lifted(&body);
    let assumed = &found.pieces[0].assumed;
    assert!(assumed.iter().any(|a| a == "f5 is the same in all 4 lanes of its group"), "{assumed:?}");
}

#[test]
fn values_that_share_are_said_once_however_often_they_are_used() {
    // Each is of the two before it: as a tree the last has 10^19 operations.
    let lines: String = (2..92).map(|i| format!("add.rn.f32 %f{}, %f{i}, %f{};\n", i + 1, i - 1)).collect();
    let found = lifted(&format!("{}{lines}st.global.f32 [%rd9], %f92;", loads(2)));
    let program = &found.pieces[0].program;
    assert_eq!(program.to_string().lines().filter(|l| l.contains(" + ")).count(), 89, "{program}");
    let mut unnamed = program.clone();
    unnamed.names.clear();
    let text = unnamed.expression(unnamed.outputs[0].1, true);
    assert!(text.contains('…') && text.len() < 2000, "{text}");
}

#[test]
fn a_product_and_a_sum_that_ptxas_makes_one_are_priced_as_one() {
    let body = |mul: &str, add: &str, more: &str| {
        format!("{}{mul} %f4, %f1, %f2;\n{add} %f5, %f3, %f4;\nst.global.f32 [%rd9], %f5;\n{more}", loads(3))
    };
    let compiled = |body: &str| lifted(body).pieces[0].compiled.clone();
    let c = crate::cost::Compiled::Op;
    let (one, two) = (vec![(c(Op::Fma), 1.0)], vec![(c(Op::Add), 1.0), (c(Op::Mul), 1.0)]);
    assert_eq!(compiled(&body("mul.f32", "add.f32", "")), one);
    assert_eq!(compiled(&body("mul.ftz.f32", "sub.ftz.f32", "")), one);
    // A stated rounding keeps them apart, and so does another use of the product.
    assert_eq!(compiled(&body("mul.rn.f32", "add.f32", "")), two);
    assert_eq!(compiled(&body("mul.f32", "add.rn.f32", "")), two);
    assert_eq!(compiled(&body("mul.f32", "add.f32", "st.global.f32 [%rd8], %f4;")), two);
    // A sum of products: each but the first goes with its addition.
    let products: String = (1..=4).map(|i| format!("mul.f32 %f{}, %f{i}, %f{i};\n", 4 + i)).collect();
    let sum = "add.f32 %f9, %f5, %f6;\nadd.f32 %f10, %f9, %f7;\nadd.f32 %f11, %f10, %f8;\nst.global.f32 [%rd9], %f11;";
    assert_eq!(compiled(&format!("{}{products}{sum}", loads(4))), [(c(Op::Mul), 0.25), (c(Op::Fma), 0.75)]);
}

/// A maximum over four lanes of four scores, less a value of the row, which `give` computes into f5.
fn scored(give: &str) -> String {
    let terms: String = (1..=4).map(|i| format!("add.f32 %f{}, %f{i}, %f5;\n", 10 + i)).collect();
    let max = "max.f32 %f15, %f11, %f12;\nmax.f32 %f16, %f15, %f13;\nmax.f32 %f17, %f16, %f14;\n";
    let step = |x: usize, mask: usize| {
        format!(
            "mov.b32 %r{x}, %f{x};\nshfl.sync.bfly.b32 %s{x}|%q{x}, %r{x}, {mask}, 31, -1;\nmov.b32 %f{}, %s{x};\n\
             max.f32 %f{}, %f{x}, %f{};\n",
            x + 20,
            x + 1,
            x + 20
        )
    };
    format!(
        "{give}{}{terms}{max}{}{}st.global.f32 [%rd9], %f19;",
        (1..=4).map(|i| format!("ld.global.f32 %f{i}, [%rd{i}];\n")).collect::<String>(),
        step(17, 1),
        step(18, 2)
    )
}

#[test]
fn a_value_that_ptx_shows_to_be_of_the_thread_is_not_taken_to_be_of_the_row() {
    let by = |index: &str| {
        format!(
            "mov.u32 %r1, %tid.x;\n{index}mul.wide.u32 %rd6, %r2, 4;\nadd.s64 %rd7, %rd8, %rd6;\n\
             ld.global.f32 %f5, [%rd7];\n"
        )
    };
    // Four lanes have a row: what is read by the thread's number over 4 is the row's.
    let found = lifted(&scored(&by("shr.u32 %r2, %r1, 2;\n")));
    assert_eq!(found.unlifted, []);
    let same = "f5 is the same in all 4 lanes of its group";
    assert!(found.pieces[0].assumed.iter().any(|a| a == same), "{:?}", found.pieces[0].assumed);
    for index in ["and.b32 %r2, %r1, 3;\n", "shr.u32 %r2, %r1, 1;\n", "add.s32 %r2, %r1, 5;\n"] {
        let found = lifted(&scored(&by(index)));
        // An element of its own then.
        let [piece] = found.pieces.as_slice() else { panic!("{index}: {:?}", found.unlifted) };
        let program = piece.program.to_string();
        assert!(program.contains("elem f5") && !program.contains("group f5"), "{index}: {program}");
        assert!(piece.follows.iter().any(|f| f.contains("f5 depends on the thread")), "{:?}", piece.follows);
    }
}

#[test]
fn a_value_of_the_thread_that_no_reduction_over_lanes_takes_is_each_lanes_own() {
    let body = summed("add.f32 %f6, %f1, %f2;\nadd.f32 %f7, %f6, %f3;\nadd.f32 %f10, %f7, %f4;\n");
    let body = (1..=4).fold(body, |b, i| {
        b.replace(&format!("mul.f32 %f2{i}, %f{i}, %f12"), &format!("fma.rn.f32 %f2{i}, %f{i}, %f12, %f5"))
    });
    let found = lifted(&format!("mov.u32 %r40, %laneid;\ncvt.rn.f32.u32 %f5, %r40;\n{body}"));
    let piece = &found.pieces[0];
    assert!(piece.assumed.iter().all(|a| !a.contains("the same in all")), "{:?}", piece.assumed);
    assert!(piece.follows.iter().any(|f| f.starts_with("f5 depends on the thread")), "{:?}", piece.follows);
}

#[test]
fn a_lanes_own_part_of_a_maximum_stands_for_the_greatest_of_the_lanes() {
    // The lane's part so far, of another block, in the chain before the butterfly.
    let index = "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd6, %r1, 4;\nadd.s64 %rd7, %rd8, %rd6;\nld.global.f32 %f5, [%rd7];\n";
    let body = scored(index);
    let body = (1..=4).fold(body, |b, i| {
        b.replace(
            &format!("add.f32 %f{}, %f{i}, %f5;", 10 + i),
            &format!("mul.f32 %f{}, %f{i}, %f6;", 10 + i),
        )
    });
    let body = body.replace("max.f32 %f15, %f11, %f12;", "max.f32 %f9, %f11, %f5;\nmax.f32 %f15, %f9, %f12;");
    let found = lifted(&format!("ld.param.f32 %f6, [p];\n{body}"));
    assert_eq!(found.unlifted, []);
    let follows = &found.pieces[0].follows;
    assert!(
        follows.iter().any(|f| f.contains("f5 depends on the thread: it stands for the greatest")),
        "{follows:?}"
    );
}

/// Values that are no elements of one row: each goes with the reduction of all in a way of its own.
fn a_thread(op: &str) -> String {
    let own: String = [(6, 1, 2), (7, 6, 3), (10, 7, 4)]
        .map(|(to, a, b)| format!("{op}.f32 %f{to}, %f{a}, %f{b};\n"))
        .concat();
    let steps: String = (0..5).map(|k| step(op, 10 + k, 11 + k, 1 << k)).collect();
    let each: String = (1..=4)
        .map(|i| {
            let by = 20 + i;
            format!("add.f32 %f{by}, %f15, 0f4{i}000000;\nmul.f32 %f{0}, %f{i}, %f{by};\nst.global.f32 [%rd9+{i}], %f{0};\n", 30 + i)
        })
        .collect();
    format!("{}{own}{steps}{each}", loads(4))
}

#[test]
fn one_butterfly_of_several_values_of_a_thread_is_one_reduction() {
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    for (op, reduction) in [("max", "group_max("), ("add", "group_sum(")] {
        let found = lifted(&a_thread(op));
        let [piece] = found.pieces.as_slice() else { panic!("{found:?}") };
        let text = piece.program.to_string();
        assert_eq!(text.matches(reduction).count(), 1, "{text}");
        assert!(text.contains("layout group=32 lanes=32"), "{text}");
        let limits = crate::rewrite::Limits::default();
        let out = crate::outcome::lift_outcome("k.ptx", &[found], &profile, &limits).unwrap();
        let piece = &out.functions[0].pieces[0];
        assert_eq!(piece.rewrite.baseline.issue_slots, piece.compiled.issue_slots, "{text}");
        assert_eq!(piece.rewrite.baseline.cycles_per_element, piece.compiled.cycles_per_element, "{text}");
    }
}

#[test]
fn a_minimum_over_lanes_is_a_maximum_of_what_is_negated() {
    let own = "min.f32 %f6, %f1, %f2;\nmin.f32 %f7, %f6, %f3;\nmin.f32 %f10, %f7, %f4;\n";
    let steps: String = (0..5).map(|k| step("min", 10 + k, 11 + k, 1 << k)).collect();
    let each: String = (1..=4)
        .map(|i| format!("sub.f32 %f{0}, %f15, %f{i};\nst.global.f32 [%rd9+{i}], %f{0};\n", 20 + i))
        .collect();
    let body = format!("{}{own}{steps}{each}", loads(4));
    short(&body, &["layout group=128 lanes=32 row=128; elem f1; out f21 = -group_max(-f1) - f1"]);
    // Over lanes alone.
    let alone = format!("{}{steps}st.global.f32 [%rd9], %f15;", loads(1).replace("%f1,", "%f10,"));
    short(&alone, &["layout group=32 lanes=32 row=32; elem f10; out v = -group_max(-f10)"]);
}
