//! Knobs, what they accept and which of them are one kernel.

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Knobs, KnobError> {
    let get = |n: &str| pairs.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_owned());
    Knobs::from_variables(get, 128)
}

#[test]
fn knobs_are_read_and_bad_values_name_the_variable_and_what_it_takes() {
    let knobs = read(&[("KBT_PV_MODE", "fp4"), ("KBT_QUANT_FORM", "log2"), ("KBT_CHUNKS", "8")]).unwrap();
    assert_eq!((knobs.pv_mode, knobs.quant_form, knobs.chunks), (PvMode::Fp4, QuantForm::Log2, 8));
    for (name, value, says) in [
        ("KBT_PV_MODE", "fp5", "bf16, fp8, fp4"),
        ("KBT_CHUNKS", "3", "2, 4, 8"),
        ("KBT_SPLIT_DEN", "0", "1 to 64"),
        ("KBT_EXP2_EIGHTHS", "9", "0 to 8"),
        ("KBT_RESCALE_LOG2", "-1", "0 to 8"),
        ("KBT_SOFTMAX_REGISTERS", "100", "multiple of 8"),
        ("KBT_SOFTMAX_REGISTERS", "24", "from 128 to 232"),
        ("KBT_SOFTMAX_REGISTERS", "232", "takes 128 to 160"),
        ("KBT_ROLLED", "yes", "0, 1"),
        ("KBT_TILE_N", "64", "128, 176, 192"),
        ("KBT_TILE_N", "176", "accepted: 128"),
    ] {
        let error = read(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
}

#[test]
fn the_variables_that_are_read_are_those_that_are_listed() {
    let asked = std::cell::RefCell::new(Vec::new());
    let get = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        None
    };
    Knobs::from_variables(get, 128).unwrap();
    let mut asked = asked.into_inner();
    let mut listed = Knobs::VARIABLES.to_vec();
    asked.sort();
    listed.sort_unstable();
    assert_eq!(asked, listed);
}

#[test]
fn a_split_that_rounds_below_the_consumer_is_refused() {
    let seven_eighths = [("KBT_SPLIT_NUM", "7"), ("KBT_SPLIT_DEN", "8"), ("KBT_CHUNKS", "4")];
    assert!(matches!(read(&seven_eighths), Err(KnobError::Contract { first_chunks: 3, first_tiles: 7, .. })));
    let in_registers = [&seven_eighths[..], &[("KBT_TOPOLOGY", "registers")]].concat();
    assert!(read(&in_registers).is_ok());
}

#[test]
fn every_default_variant_is_a_setting_of_the_knobs() {
    for (name, variant) in crate::variant::defaults() {
        let number = |d: &str| variant.defines[d].parse::<usize>().unwrap();
        let knobs = Knobs {
            pv_mode: PvMode::ALL[number("KBT_PV_MODE")],
            quant_form: QuantForm::ALL[number("KBT_QUANT_FORM")],
            split_num: number("KBT_SPLIT_NUM") as u32,
            split_den: number("KBT_SPLIT_DEN") as u32,
            chunks: number("KBT_CHUNKS") as u32,
            topology: Topology::ALL[number("KBT_TOPOLOGY")],
            source_order: SourceOrder::ALL[number("KBT_SOURCE_ORDER")],
            exp2_eighths: number("KBT_EXP2_EIGHTHS") as u32,
            rescale_log2: number("KBT_RESCALE_LOG2") as u32,
            softmax_registers: number("KBT_SOFTMAX_REGISTERS") as u32,
            tile_n: number("KBT_TILE_N") as u32,
            rolled: number("KBT_ROLLED") == 1,
            head_dim: number("KBT_HEAD_DIM") as u32,
            trace: TraceLevel::ALL[number("KBT_TRACE_LEVEL")],
        };
        assert_eq!(knobs.variant(), variant, "{name}");
    }
}

#[test]
fn settings_with_one_machine_code_are_one_variant() {
    let a = read(&[("KBT_SPLIT_NUM", "2"), ("KBT_SPLIT_DEN", "4")]).unwrap();
    let b = read(&[("KBT_QUANT_FORM", "log2")]).unwrap();
    assert_eq!(a.variant(), b.variant(), "bf16 has no quantisation, and 2/4 is 1/2");
    assert_eq!((a.without_effect(), b.without_effect()), (vec![], vec!["KBT_QUANT_FORM"]));
    let fused = read(&[("KBT_PV_MODE", "fp8"), ("KBT_QUANT_FORM", "log2_fused")]).unwrap();
    assert_eq!(fused.canonical().quant_form, QuantForm::Log2);
    let fp4 = [("KBT_PV_MODE", "fp4"), ("KBT_QUANT_FORM", "log2"), ("KBT_EXP2_EIGHTHS", "2")];
    assert_eq!(read(&fp4).unwrap().without_effect(), ["KBT_EXP2_EIGHTHS"]);
    let in_registers = read(&[("KBT_TOPOLOGY", "registers"), ("KBT_CHUNKS", "8")]).unwrap();
    assert_eq!(in_registers.without_effect(), ["KBT_CHUNKS"]);
}

#[test]
fn the_softmax_has_no_fewer_registers_than_at_launch_and_no_more_than_there_are() {
    let takes = |registers: &str, topology: &str| {
        read(&[("KBT_SOFTMAX_REGISTERS", registers), ("KBT_TOPOLOGY", topology)]).is_ok()
    };
    for (topology, least, most) in [("smem", 128, 160), ("registers", 168, 232)] {
        assert!(takes(&least.to_string(), topology) && takes(&most.to_string(), topology), "{topology}");
        assert!(!takes(&(least - 8).to_string(), topology) && !takes(&(most + 8).to_string(), topology));
    }
    let small = |mode: &str| {
        let get = |n: &str| match n {
            "KBT_PV_MODE" => Some(mode.to_owned()),
            "KBT_TOPOLOGY" => Some("registers".to_owned()),
            _ => None,
        };
        Knobs::from_variables(get, 64).unwrap().softmax_registers_range()
    };
    assert_eq!((small("fp4"), small("bf16")), ((168, 232), (128, 160)));
}
