//! Small PTX by hand: what is lifted, what is refused.

use super::*;

pub(super) fn lifted(body: &str) -> LiftedFunction {
    let (module, found) = read(body);
    assert_eq!(module.problems, []);
    found
}

fn read(body: &str) -> (Module, LiftedFunction) {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.visible .entry k(\n.param .u64 p\n)\n{{\n.reg .f32 %f<99>;\n{body}\nret;\n}}\n"
    );
    let module = kbt_ptx::parse(&text).unwrap();
    let found = lift(&module, &|_| true, &Region::Whole).remove(0);
    (module, found)
}

/// The programs of the pieces.
fn check(body: &str, programs: &[&str]) -> LiftedFunction {
    let found = lifted(body);
    let lines = |p: &Piece| {
        let text = p.program.to_string();
        let of = |l: &&str| !l.starts_with("assume");
        text.lines().filter(of).collect::<Vec<_>>().join("\n")
    };
    let shown: Vec<String> = found.pieces.iter().map(lines).collect();
    assert_eq!(shown, programs, "{:?} {:?}", found.unlifted, found.refused);
    found
}

#[test]
fn a_straight_line_becomes_one_expression() {
    check(
        "ld.param.f32 %f1, [p];\nld.global.f32 %f2, [%rd1];\nmul.f32 %f3, %f2, 0f3FB8AA3B;\n\
         ex2.approx.ftz.f32 %f4, %f3;\nadd.f32 %f5, %f4, 0f3F800000;\ndiv.rn.f32 %f6, %f1, %f5;\n\
         st.global.f32 [%rd2], %f6;",
        &["layout group=1 lanes=1 row=1\nelem f2 in [-inf, 1e30]\nconst f1 in [-65504, 65504]\n\
           out f6 = f1 / (exp2(f2 * 1.442695) + 1)"],
    );
}

/// Instructions that are refused: opcode, how many, part of the reason.
pub(super) fn refused(found: &LiftedFunction, expected: &[(&str, usize, &str)]) {
    let shown: Vec<(&str, usize, &str)> =
        found.refused.iter().map(|r| (r.instruction.as_str(), r.places.len(), r.because.as_str())).collect();
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
    for ((opcode, count, because), (o, c, part)) in shown.iter().zip(expected) {
        assert!(opcode == o && count == c && because.contains(part), "{shown:?}");
    }
}

/// A program's lines after the layout, without ranges.
pub(super) fn short(body: &str, expected: &[&str]) {
    let found = lifted(body);
    let of = |p: &Piece| {
        let text = p.program.to_string();
        let keep = |l: &&str| !l.starts_with("assume");
        let lines = text.lines().filter(keep).map(|l| l.split(" in [").next().unwrap_or(l).to_owned());
        lines.collect::<Vec<_>>().join("; ")
    };
    let shown: Vec<String> = found.pieces.iter().map(of).collect();
    assert_eq!(shown, expected, "{:?} {:?}", found.unlifted, found.refused);
}

/// `ld.global.f32` of registers f1 to fN.
pub(super) fn loads(n: usize) -> String {
    (1..=n).map(|i| format!("ld.global.f32 %f{i}, [%rd{i}];\n")).collect()
}

#[test]
fn differences_minima_magnitudes_and_three_operands() {
    let one = |op: &str| format!("{}{op}\nst.global.f32 [%rd9], %f9;", loads(3));
    let head = "layout group=1 lanes=1 row=1; elem f1; elem f2";
    short(&one("sub.f32 %f9, %f1, %f2;"), &[&format!("{head}; out f9 = f1 - f2")]);
    short(&one("min.f32 %f9, %f1, %f2;"), &[&format!("{head}; out v = -max(-f1, -f2)")]);
    short(&one("div.full.f32 %f9, %f1, %f2;"), &[&format!("{head}; out f9 = f1 * rcp(f2)")]);
    short(&one("rcp.rn.f32 %f9, %f1;"), &["layout group=1 lanes=1 row=1; elem f1; out f9 = 1 / f1"]);
    short(&one("abs.f32 %f4, %f1;\nadd.f32 %f9, %f4, %f2;"), &[&format!("{head}; out f9 = abs(f1) + f2")]);
    short(
        &one("mul.f32 %f4, %f1, %f2;\nmax.f32 %f9, %f4, %f2, 0f00000000;"),
        &[&format!("{head}; out f9 = max(max(f1 * f2, f2), 0)")],
    );
}

#[test]
fn two_operations_in_one_instruction_are_two() {
    let body = format!(
        "{}mov.b64 %rd20, {{%f1, %f2}};\nmov.b64 %rd21, {{%f3, %f4}};\nmul.rn.f32x2 %rd22, %rd20, %rd21;\n\
         mov.b64 {{%f5, %f6}}, %rd22;\nst.global.v2.f32 [%rd30], {{%f5, %f6}};",
        loads(4)
    );
    short(&body, &["layout group=1 lanes=1 row=1; elem f1; elem f3; out rd22 = f1 * f3"]);
}

#[test]
fn what_is_converted_is_read_back_through_its_bits() {
    let body = "ld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd2];\nld.global.f32 %f3, [%rd3];\n\
                cvt.rn.bf16x2.f32 %r1, %f2, %f1;\nshl.b32 %r2, %r1, 16;\nmov.b32 %f4, %r2;\n\
                and.b32 %r3, %r1, -65536;\nmov.b32 %f5, %r3;\nsub.f32 %f6, %f1, %f4;\nsub.f32 %f7, %f2, %f5;\n\
                st.global.f32 [%rd3], %f6;\nst.global.f32 [%rd4], %f7;";
    short(body, &["layout group=1 lanes=1 row=1; elem f1; out f6 = f1 - cvt_bf16(f1)"]);
}

#[test]
fn arithmetic_on_codes_alone_stays_behind_the_conversions_unless_something_else_takes_it() {
    let body = "ld.global.f32 %f1, [%rd1];\ncvt.rn.bf16.f32 %rs1, %f1;\ncvt.f32.bf16 %f2, %rs1;\n\
                mul.f32 %f3, %f2, 0f40400000;\nneg.f32 %f4, %f3;\nst.global.f32 [%rd2], %f4;";
    let found = lifted(body);
    assert_eq!(found.pieces[0].kept.get("mul"), Some(&1));
    short(body, &["layout group=1 lanes=1 row=1; elem f1; out rs1 = cvt_bf16(f1)"]);
    short(
        &format!("{body}\nadd.f32 %f5, %f4, %f1;\nst.global.f32 [%rd2], %f5;"),
        &["layout group=1 lanes=1 row=1; elem f1; out v = -(cvt_bf16(f1) * 3); out f5 = v + f1"],
    );
}

#[test]
fn a_copy_is_what_it_was_copied_from_until_that_changes() {
    let body = "mov.b32 %r1, %f1;\nmov.b32 %f2, %r1;\nmul.f32 %f3, %f2, %f1;\nst.global.f32 [%rd1], %f3;";
    short(body, &["layout group=1 lanes=1 row=1; elem f1; out f3 = f1 * f1"]);
    let body = "mov.b32 %r1, %f1;\nld.global.f32 %f1, [%rd2];\nmov.b32 %f2, %r1;\nadd.f32 %f3, %f2, %f1;\n\
                st.global.f32 [%rd1], %f3;";
    short(body, &["layout group=1 lanes=1 row=1; elem r1; elem f1; out f3 = r1 + f1"]);
}

#[test]
fn chains_over_a_lane_and_butterflies_over_lanes_are_reductions() {
    let body = "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\n\
        mov.u32 %r9, 31;\nmov.u32 %r8, -1;\n\
        mul.f32 %f10, %f1, %f1;\nfma.rn.f32 %f11, %f2, %f2, %f10;\nfma.rn.f32 %f12, %f3, %f3, %f11;\n\
        fma.rn.f32 %f13, %f4, %f4, %f12;\n\
        mov.b32 %r1, %f13;\nshfl.sync.bfly.b32 %r2|%p1, %r1, 1, %r9, %r8;\nmov.b32 %f14, %r2;\n\
        add.f32 %f15, %f13, %f14;\nmov.b32 %r3, %f15;\nshfl.sync.bfly.b32 %r4|%p2, %r3, 2, %r9, %r8;\n\
        mov.b32 %f16, %r4;\nadd.f32 %f17, %f16, %f15;\nst.global.f32 [%rd2], %f17;";
    let found = lifted(body);
    let piece = &found.pieces[0];
    assert_eq!(piece.program.layout, crate::lang::Layout { group: 16, lanes: 4, row: 16 });
    short(body, &["layout group=16 lanes=4 row=16; elem f1; out f17 = group_sum(f1 * f1)"]);
    // As compiled: a multiplication, three multiply-adds, and two steps of a shuffle and an addition, for four values.
    assert_eq!(
        piece.compiled,
        [(Op::Add, 0.5), (Op::Mul, 0.25), (Op::Fma, 0.75)].map(|(op, n)| (op.into(), n))
    );
    assert_eq!(piece.shuffles, 0.5);
    // A shuffle of another kind stays outside.
    let found = lifted(&body.replace("bfly", "down"));
    assert!(found.pieces.iter().all(|p| p.program.layout.lanes == 1), "{:?}", found.pieces);
}

#[test]
fn a_value_a_lane_is_a_group_over_lanes() {
    let body = "ld.global.f32 %f1, [%rd1];\nmov.b32 %r1, %f1;\nshfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1;\n\
        mov.b32 %f2, %r2;\nmax.f32 %f3, %f1, %f2;\nmov.b32 %r3, %f3;\n\
        shfl.sync.bfly.b32 %r4|%p2, %r3, 2, 31, -1;\nmov.b32 %f4, %r4;\nmax.f32 %f5, %f3, %f4;\n\
        sub.f32 %f6, %f1, %f5;\nst.global.f32 [%rd2], %f6;";
    short(body, &["layout group=4 lanes=4 row=4; elem f1; out f6 = f1 - group_max(f1)"]);
}

#[test]
fn a_sum_of_two_is_a_sum_of_two() {
    let body = format!("{}add.f32 %f9, %f1, %f2;\nst.global.f32 [%rd9], %f9;", loads(2));
    short(&body, &["layout group=1 lanes=1 row=1; elem f1; elem f2; out f9 = f1 + f2"]);
}

#[test]
fn operations_that_mix_elements_are_a_program_over_threads_where_they_are_few() {
    // y_i = (x_1 + x_2 + x_3) x_j with j another element than i: each product takes two elements.
    let body = format!(
        "{}add.f32 %f4, %f1, %f2;\nadd.f32 %f5, %f4, %f3;\nmul.f32 %f6, %f1, %f2;\nmul.f32 %f7, %f2, %f3;\n\
         mul.f32 %f8, %f3, %f1;\nmul.f32 %f9, %f6, %f5;\nmul.f32 %f10, %f7, %f5;\nmul.f32 %f11, %f8, %f5;\n\
         st.global.f32 [%rd9], %f9;\nst.global.f32 [%rd9+4], %f10;\nst.global.f32 [%rd9+8], %f11;",
        loads(3)
    );
    let found = lifted(&body);
    let [piece] = found.pieces.as_slice() else { panic!("{:?}", found.unlifted) };
    let note = piece.follows.iter().find(|f| f.starts_with("an element is a thread")).unwrap();
    assert!(note.contains("two elements"), "{note}");
    short(
        &body,
        &[
            "layout group=1 lanes=1 row=1; elem f1; elem f2; elem f3; t1 = f3 + f1 + f2; out f9 = f1 * f2 * t1; \
           out f10 = f2 * f3 * t1; out f11 = f3 * f1 * t1",
        ],
    );
    // The same for a hundred elements is out of proportion: refused, with the instruction named.
    let sum: String = (1..100).map(|i| format!("add.f32 %s{}, %s{i}, %f{};\n", i + 1, i + 1)).collect();
    let products: String = (1..=100)
        .map(|i| {
            let next = i % 100 + 1;
            format!("mul.f32 %p{i}, %f{i}, %f{next};\nmul.f32 %q{i}, %p{i}, %s100;\nst.global.f32 [%rd9], %q{i};\n")
        })
        .collect();
    let found = lifted(&format!("{}mov.f32 %s1, %f1;\n{sum}{products}", loads(100)));
    assert_eq!(found.pieces.len(), 0);
    let [unlifted] = found.unlifted.as_slice() else { panic!("{:?}", found.unlifted) };
    assert!(unlifted.because.contains("two elements"), "{unlifted:?}");
    assert!(unlifted.place.ptx_line > 100, "{unlifted:?}");
}

#[test]
fn another_lanes_value_outside_a_reduction_is_refused_and_the_rest_lifted() {
    let body = "ld.global.f32 %f1, [%rd1];\nmov.b32 %r1, %f1;\nshfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1;\n\
                mov.b32 %f2, %r2;\nmul.f32 %f3, %f2, 0f40400000;\nsub.f32 %f4, %f1, %f3;\nst.global.f32 [%rd2], %f4;";
    let found = lifted(body);
    refused(&found, &[("shfl.sync.bfly.b32", 1, "another lane's value")]);
    assert!(
        found.pieces[0].inputs.contains(&"result of shfl.sync.bfly.b32".to_owned()),
        "{:?}",
        found.pieces[0].inputs
    );
    assert_eq!(found.pieces[0].program.layout.lanes, 1);
}

#[test]
fn what_was_not_read_of_a_function_is_told() {
    let text = ".version 9.0\n.target sm_90a\n.entry k()\n{\nld.global.f32 %f1, [%rd1];\nadd.f32 %f2, %f1, %f1;\n\
                st.global.f32 [%rd1], %f2;\n}\n.entry l()\n{\nmul.f32 %f1, %f2, 0f3F8;\nst.global.f32 [%rd1], %f1;\nmul.f3";
    let module = kbt_ptx::parse(text).unwrap();
    let found = lift(&module, &|_| true, &Region::Whole);
    assert_eq!(found[0].unread, []);
    let lines: Vec<u32> = found[1].unread.iter().map(|p| p.line).collect();
    assert_eq!(lines, [11, 13, 9], "{:?}", found[1].unread);
    refused(&found[1], &[("mul.f32", 1, "no literal")]);
}

#[test]
fn what_the_language_cannot_say_is_refused_by_name_and_its_result_an_input() {
    let found = lifted(
        "ld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd2];\nmul.f32 %f3, %f1, %f2;\n\
         mul.f32 %f4, %f3, 0f7FFFFFFF;\nsqrt.rz.f32 %f5, %f3;\n\
         add.rz.f32 %f6, %f3, %f2;\nmov.b32 %r1, %f3;\nand.b32 %r2, %r1, 2147483647;\n\
         @%p1 add.f32 %f7, %f3, %f2;\nadd.f32 %f8, %f4, %f5;\nadd.f32 %f9, %f6, %f7;\nmul.f32 %f10, %f8, %f9;\n\
         sin.approx.f32 %f11, %f10;\nadd.s32 %r5, %r6, 1;\nmul.f32 %f12, %f11, %f11;\nst.global.f32 [%rd3], %f12;",
    );
    refused(
        &found,
        &[
            ("add.f32", 1, "predicate"),
            ("add.rz.f32", 1, "rounds"),
            ("and.b32", 1, "bits of a float"),
            ("mul.f32", 1, "NaN constant"),
            ("sin.approx.f32", 1, "no such operation"),
            ("sqrt.rz.f32", 1, "rounds"),
        ],
    );
    let inputs: Vec<&str> = found.pieces.iter().flat_map(|p| &p.inputs).map(String::as_str).collect();
    for expected in [
        "result of mul.f32",
        "result of sqrt.rz.f32",
        "result of sin.approx.f32",
        "result of add.rz.f32",
        "result of @p add.f32",
    ] {
        assert!(inputs.contains(&expected), "{expected}: {inputs:?}");
    }
}

#[test]
fn blocks_end_at_branches_and_values_that_cross_them_are_inputs_and_outputs() {
    let found = check(
        "ld.global.f32 %f1, [%rd1];\nmul.f32 %f2, %f1, 0f40000000;\n@%p1 bra L;\nadd.f32 %f3, %f2, 0f3F800000;\n\
         st.global.f32 [%rd1], %f3;\nL:\nret;",
        &[
            "layout group=1 lanes=1 row=1\nelem f1 in [-65504, 65504]\nout f2 = f1 * 2",
            "layout group=1 lanes=1 row=1\nelem f2 in [-65504, 65504]\nout f3 = f2 + 1",
        ],
    );
    assert_eq!(found.pieces[1].inputs, ["from another block"]);
}

#[test]
fn copies_of_a_piece_are_one_piece_with_all_its_places() {
    let step = |n: usize| {
        format!(
            "ld.global.f32 %f{n}1, [%rd1];\nmul.f32 %f{n}2, %f{n}1, 0f40000000;\nst.global.f32 [%rd2], %f{n}2;\n"
        )
    };
    let found = lifted(&format!("{}bra L;\nL:\n{}", step(1), step(2)));
    let [piece] = found.pieces.as_slice() else { panic!("{:?}", found.pieces) };
    assert_eq!(piece.lines.len(), 2);
    let product = piece.program.nodes.iter().position(|n| n.op == Op::Mul).unwrap();
    assert_eq!(piece.places[product].iter().map(|p| p.ptx_line).collect::<Vec<_>>(), [9, 14]);
}

#[test]
fn regions_are_lines_or_labels_and_nothing_else() {
    let lines = |file: Option<&str>, from, to| Region::Lines { file: file.map(str::to_owned), from, to };
    assert_eq!("40-90".parse(), Ok(lines(None, 40, 90)));
    assert_eq!("a/b.cuh:1-2".parse(), Ok(lines(Some("a/b.cuh"), 1, 2)));
    let labels = Region::Labels { from: "$L__BB0_3".to_owned(), to: "$L__BB0_5".to_owned() };
    assert_eq!("$L__BB0_3-$L__BB0_5".parse(), Ok(labels));
    for wrong in ["", "40", "90-40", "x:", "1-b", "%f1-%f2"] {
        let error = wrong.parse::<Region>().unwrap_err().to_string();
        assert!(error.contains("expected source lines `40-90`"), "{wrong}: {error}");
    }
}

#[test]
fn odd_ptx_is_lifted_without_fault() {
    // Operands missing, registers undefined, literals cut off: nothing of it is a reason to stop.
    for line in [
        "add.f32 %f1;",
        "add.f32;",
        "fma.rn.f32 %f1, %f2, %f3;",
        "mov.b64 {%f1}, %rd1;",
        "mov.b64 {%f1, %f2, %f3}, %rd1;",
        "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1;",
        "cvt.f32 %f1, %f2;",
        "cvt %f1, %f2;",
        "shfl.sync.bfly.b32 %r1|%p1, %f1, 4294967296, 31, -1;",
        "shfl.sync.bfly.b32 %r1|%p1;",
        "max.f32 %f1, %f2, 0f3F8;",
        "mul.f32 %f1, %f1, 99999999999999999999;",
        "mul.rn.f32x2 %rd1, %rd2, %rd3;",
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1, %f2}, %rd1, %rd2, 1;",
    ] {
        let body =
            format!("ld.global.f32 %f2, [%rd1];\nadd.f32 %f2, %f2, %f2;\n{line}\nst.global.f32 [%rd1], %f1;");
        let _ = read(&body);
    }
}

#[test]
fn a_factor_that_many_share_is_told_from_what_it_multiplies_in_either_order() {
    let body = "mul.f32 %f10, %f1, %f2;\nmul.f32 %f11, %f3, %f1;\nmul.f32 %f12, %f1, %f4;\n\
                st.global.f32 [%rd1], %f10;\nst.global.f32 [%rd1+4], %f11;\nst.global.f32 [%rd1+8], %f12;";
    short(body, &["layout group=3 lanes=1 row=3; row f1; elem f2; out f10 = f1 * f2"]);
}
