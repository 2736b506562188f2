//! What operations cost, and profiles for tests.

use super::amount::whole;
use super::*;

/// A profile with Hopper's published rates.
pub(crate) fn hopper() -> DeviceProfile {
    profile("test-sm_90a", "sm_90a", &[])
}

/// A profile whose only source is published figures; `overrides` replaces rates by instruction name.
pub(crate) fn profile(name: &str, arch: &str, overrides: &[(&str, f64)]) -> DeviceProfile {
    let rows = [
        ("ex2.approx.ftz.f32", "MUFU.EX2", "xu", 16.0),
        ("lg2.approx.ftz.f32", "MUFU.LG2", "xu", 16.0),
        ("rcp.approx.ftz.f32", "MUFU.RCP", "xu", 16.0),
        ("fma.rn.f32", "FFMA", "fma", 128.0),
        ("max.f32", "FMNMX", "alu", 64.0),
        ("cvt.rn.satfinite.e4m3x2.f32", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", "alu", 64.0),
        ("cvt.rn.bf16x2.f32", "F2FP.BF16.F32.PACK_AB", "alu", 64.0),
        ("shfl.sync.bfly.b32", "SHFL.BFLY", "lsu", 32.0),
    ];
    let mut text = format!(
        "schema: kbt.device/1\nname: {name}\narch: {arch}\nprovenance: {{kind: assumed, by: test}}\nrates:\n"
    );
    let extra = overrides.iter().filter(|(n, _)| rows.iter().all(|r| r.0 != *n));
    for (instruction, opcode, pipe, lanes) in
        rows.into_iter().chain(extra.map(|(n, lanes)| (*n, "NATIVE", "alu", *lanes)))
    {
        let lanes = overrides.iter().find(|(n, _)| *n == instruction).map_or(lanes, |o| o.1);
        text += &format!(
            "  - {{instruction: {instruction}, opcode: {opcode}, pipe: {pipe}, lanes_per_clk_sm: {lanes}, \
             provenance: {{kind: published, by: CUDA C++ Best Practices Guide 13.0, date: 2026-11-30}}}}\n"
        );
    }
    DeviceProfile::from_yaml(&text, name).unwrap()
}

const LAYOUT: Layout = Layout { group: 16, lanes: 4, row: 128 };

#[test]
fn a_division_is_not_a_reciprocal() {
    let profile = hopper();
    let model = CostModel::new(&profile, LAYOUT);
    let (div, rcp) = (model.operation(Op::Div).unwrap(), model.operation(Op::Rcp).unwrap());
    assert!(div.cost.issue_slots >= 8.0 && rcp.cost.issue_slots == 1.0, "{div:?}");
    assert_eq!(div.cost.cycles[4], rcp.cost.cycles[4], "both take one MUFU");
    assert_eq!(div.provenance.kind, kbt_evidence::Known::Published, "as weak as its weakest input");
}

#[test]
fn shapes_and_lanes_divide_the_cost() {
    let profile = hopper();
    let model = CostModel::new(&profile, LAYOUT);
    let of = |op, from, to| model.node(op, from, to).unwrap().unwrap().cost;
    assert_eq!(of(Op::Exp2, Shape::Elem, Shape::Elem).busiest(), 1.0 / 16.0);
    assert_eq!(of(Op::Exp2, Shape::Group, Shape::Group).busiest(), 1.0 / 64.0);
    // Four elements a lane: three maxima, then two hops of a shuffle and a maximum.
    assert_eq!(of(Op::GroupMax, Shape::Elem, Shape::Group).issue_slots, (3.0 + 2.0 + 2.0) / 4.0);
    assert_eq!(of(Op::RowSum, Shape::Elem, Shape::Row).issue_slots, 1.0);
    assert_eq!(of(Op::RowMax, Shape::Group, Shape::Row).issue_slots, 7.0 / 32.0);
}

#[test]
fn a_missing_rate_names_the_microbenchmark() {
    let mut profile = hopper();
    profile.rates.retain(|r| r.instruction != "ex2.approx.ftz.f32");
    let error = CostModel::new(&profile, LAYOUT).operation(Op::Exp2).unwrap_err().to_string();
    assert!(
        error.contains("rate for `ex2.approx.ftz.f32`") && error.contains("kbt microbench run"),
        "{error}"
    );
    // A shuffle too by its instruction, which is what the microbenchmark is called.
    let mut profile = hopper();
    profile.rates.retain(|r| !r.instruction.starts_with("shfl."));
    let model = CostModel::new(&profile, LAYOUT);
    let error = model.node(Op::GroupMax, Shape::Elem, Shape::Group).unwrap_err().to_string();
    assert!(error.contains("--only '^shfl.sync.bfly.b32$'"), "{error}");
}

#[test]
fn a_lowering_to_one_instruction_does_not_take_the_rate_of_another() {
    // These profiles say that the operation is one instruction, and have the rates of others of its pipe.
    for name in ["h200-sxm", "sm_103a"] {
        let whole = kbt_device::embedded_profile(name).unwrap().unwrap();
        for (op, instruction) in [
            (Op::Exp2, "ex2.approx.ftz.f32"),
            (Op::Log2, "lg2.approx.ftz.f32"),
            (Op::Rcp, "rcp.approx.ftz.f32"),
            (Op::Sqrt, "sqrt.approx.ftz.f32"),
            (Op::Rsqrt, "rsqrt.approx.ftz.f32"),
            (Op::Tanh, "tanh.approx.f32"),
            (Op::Cvt(Format::E4m3), "cvt.rn.satfinite.e4m3x2.f32"),
        ] {
            assert!(whole.lowering(instruction).is_ok(), "{name}: {instruction}");
            let mut profile = whole.clone();
            let slower = instruction.replace(".ftz", "");
            profile.rates.retain(|r| r.instruction != instruction && r.instruction != slower);
            let error = CostModel::new(&profile, LAYOUT).operation(op).unwrap_err().to_string();
            assert!(error.contains(instruction) && error.contains("kbt microbench run"), "{error}");
        }
    }
}

#[test]
fn the_error_of_a_measured_rate_decides_nothing() {
    assert_eq!((whole(16.009), whole(15.993), whole(64.43), whole(0.5)), (16.0, 16.0, 64.0, 0.5));
    let measured = profile("t", "sm_90a", &[("rcp.approx.ftz.f32", 16.009), ("ex2.approx.ftz.f32", 16.004)]);
    let model = CostModel::new(&measured, LAYOUT);
    assert_eq!(model.operation(Op::Rcp).unwrap().cost, model.operation(Op::Exp2).unwrap().cost);
}

#[test]
fn fp4_is_software_on_hopper_and_an_instruction_where_there_is_one() {
    let hopper = hopper();
    let software = CostModel::new(&hopper, LAYOUT).operation(Op::Cvt(Format::E2m1)).unwrap();
    let blackwell = profile("t", "sm_100a", &[("cvt.rn.satfinite.e2m1x2.f32", 64.0)]);
    let native = CostModel::new(&blackwell, LAYOUT).operation(Op::Cvt(Format::E2m1)).unwrap();
    assert_eq!((software.cost.issue_slots, native.cost.issue_slots), (4.5, 0.5));
}

#[test]
fn functions_that_keep_subnormals_are_the_instructions_that_sass_has() {
    let profile = hopper();
    let functions = FLUSHING.map(|(op, _)| op);
    let model = CostModel::new(&profile, LAYOUT).keeping_subnormals(&functions);
    let plain = CostModel::new(&profile, LAYOUT);
    for (op, slots) in [(Op::Exp2, 4.0), (Op::Log2, 4.0), (Op::Rcp, 7.0)] {
        assert_eq!(model.operation(op).unwrap().cost.issue_slots, slots, "{op:?}");
        assert_eq!(plain.operation(op).unwrap().cost.issue_slots, 1.0);
        // Compiled code says for itself which it has.
        assert_eq!(model.compiled(Compiled::Op(op)).unwrap().cost.issue_slots, 1.0);
    }
    let whole = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let model = CostModel::new(&whole, LAYOUT).keeping_subnormals(&functions);
    for op in functions {
        let slots = model.operation(op).unwrap().cost.issue_slots;
        assert!((4.0..=8.0).contains(&slots), "{op:?}: {slots}");
    }
    for (name, slots) in [
        ("rcp.rn.f32", 10.0),
        ("div.full.f32.divisor", 5.0),
        ("div.full.f32.dividend", 3.0),
        ("div.full.ftz.f32.divisor", 3.0),
        ("div.full.ftz.f32.dividend", 2.0),
        ("div.approx.f32.divisor", 3.0),
        ("div.approx.f32.dividend", 2.0),
    ] {
        let hopper = CostModel::new(&profile, LAYOUT).compiled(Compiled::Ptx(name)).unwrap();
        assert_eq!(hopper.cost.issue_slots, slots, "{name}");
        CostModel::new(&whole, LAYOUT).compiled(Compiled::Ptx(name)).unwrap();
    }
}

#[test]
fn a_division_by_a_number_has_no_reciprocal() {
    let whole = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    for profile in [&hopper(), &whole] {
        let model = CostModel::new(profile, LAYOUT);
        let by_value = model.operation(Op::Div).unwrap().cost;
        let by_number = model.division_by_number(Shape::Elem).unwrap().cost;
        assert_eq!(by_number.issue_slots, by_value.issue_slots - 1.0);
        let one = model.operation(Op::Rcp).unwrap().cost;
        assert!((by_value.cycles[4] - by_number.cycles[4] - one.cycles[4]).abs() < 1e-9, "one MUFU.RCP less");
        assert_eq!(model.compiled(Compiled::DIV_BY_NUMBER).unwrap().cost, by_number);
    }
}
