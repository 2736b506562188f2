//! What comes from where, and what gives way to what.

use super::*;
use crate::import::import;
use kbt_evidence::Known;

const CSV: &str = "\"ID\",\"Kernel Name\",\"Grid Size\",\"CC\",\"gpu__time_duration.sum\",\"launch__grid_size\",\"dram__bytes.sum\",\"dram__bytes.max\",\"device__attribute_chip\"\n\
\"\",\"\",\"\",\"\",\"ns\",\"\",\"byte\",\"byte\",\"\"\n\
\"0\",\"k(float*)\",\"(64, 1, 1)\",\"9.0\",\"2000.5\",\"64\",\"4096\",\"512\",\"384\"\n";

const DECLARED: &str = "operator: {kind: elementwise, flop_per_element: 2}\nshape: {elements: 1024}\n\
dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none}\n\
timing: {kernels: 8, method: cuda_events, warmup_launches: 20, median_us: 1}\n";

fn gathered() -> Gathered {
    let code = MachineCode::of("k", ["LDG.E.64", "FFMA"], 16, false, Provenance::mined("nvdisasm 13.0"));
    Gathered {
        command: "kbt roofline gather k.yaml".into(),
        device: Some("NVIDIA H200".into()),
        driver: Some("580".into()),
        date: "2026-11-30".into(),
        launches_us: vec![21.0, 20.0, 22.0, 19.0, 30.0],
        processes: 1,
        profile: Some((import(CSV.as_bytes(), "k.csv", None).unwrap(), "ncu 2025.3".into())),
        machine_code: Some(code),
        sm_count: Some(132.0),
        l2_bytes: Some(62_914_560.0),
        ceilings: None,
    }
}

fn declared() -> FactSheet {
    FactSheet::from_yaml(DECLARED, "k.facts.yaml").unwrap()
}

#[test]
fn every_section_holds_what_was_gathered_and_says_how_it_is_known() {
    let sheet = gathered().into_sheet(declared());
    let timing = sheet.timing.clone().unwrap();
    assert_eq!((timing.median_us, timing.low_us, timing.high_us), (Some(21.0), Some(19.0), Some(30.0)));
    // Eight kernels of 2.0005 us; the declared method and warm-up stay, the declared time does not.
    assert_eq!((timing.kernel_us, timing.warmup_launches), (Some(16.004), Some(20.0)));
    assert_eq!(timing.provenance.unwrap().kind, Known::Measured);
    let made = sheet.implementation.clone().unwrap();
    assert_eq!((made.grid_ctas, made.spill_bytes_per_thread), (Some(64.0), Some(16.0)));
    assert_eq!((made.tensor_instructions, made.access_bytes_per_thread), (Some(false), Some(8.0)));
    assert_eq!(made.warp_specialized, None);
    // A count mined from machine code beside measured ones: the section is as weak as the weaker.
    assert_eq!(made.provenance.unwrap().kind, Known::Mined);
    let device = sheet.device.clone().unwrap();
    assert_eq!((device.name.as_deref(), device.sm_count), (Some("NVIDIA H200"), Some(132.0)));
    assert_eq!(device.l2_bytes, Some(62_914_560.0));
    assert_eq!(device.compile_target.as_deref(), Some("sm_90"));
    let again = FactSheet::from_yaml(&sheet.to_yaml().unwrap(), "f.yaml").unwrap();
    let metrics = again.profiler.unwrap().metrics.unwrap();
    assert_eq!(metrics["dram__bytes.sum"], 4096.0);
    // Of each counter its total, and no attribute of the device.
    assert_eq!(
        metrics.keys().map(String::as_str).collect::<Vec<_>>(),
        ["dram__bytes.sum", "gpu__time_duration.sum", "launch__grid_size"]
    );
}

#[test]
fn ceilings_are_taken_only_from_a_profile_of_the_same_device() {
    let ceiling = Ceiling {
        kind: kbt_device::CeilingKind::HbmRead,
        bytes_per_s: Some(4.5e12),
        flop_per_s: None,
        seconds: None,
        spread_percent: None,
        provenance: Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-11-30"),
    };
    for (of, wanted) in [("NVIDIA H200", 1), ("NVIDIA H100 80GB HBM3", 0)] {
        let with = Gathered { ceilings: Some((of.into(), vec![ceiling.clone()])), ..gathered() };
        assert_eq!(with.into_sheet(declared()).ceilings.len(), wanted, "{of}");
    }
}

#[test]
fn without_a_profiler_or_machine_code_the_declared_facts_stay() {
    let text = format!("{DECLARED}implementation: {{grid_ctas: 8}}\n");
    let bare = Gathered { profile: None, machine_code: None, ..gathered() };
    let sheet = bare.into_sheet(FactSheet::from_yaml(&text, "k.facts.yaml").unwrap());
    assert_eq!(sheet.implementation.as_ref().and_then(|i| i.grid_ctas), Some(8.0));
    assert_eq!(sheet.timing.unwrap().kernel_us, None);
    // Beside machine code, a declared number makes the section as weak as itself.
    let coded = Gathered { profile: None, ..gathered() };
    let sheet = coded.into_sheet(FactSheet::from_yaml(&text, "k.facts.yaml").unwrap());
    let made = sheet.implementation.unwrap();
    assert_eq!((made.grid_ctas, made.provenance.unwrap().kind), (Some(8.0), Known::Given));
}
