//! Which figure becomes a roof.

use super::*;
use crate::dtype::MathType;
use kbt_device::{Ceiling, CeilingKind};

fn recorded() -> Provenance {
    Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-11-30").read_back()
}

#[test]
fn a_recorded_ceiling_comes_before_a_published_one_and_gaps_are_filled() {
    let mut profile = DeviceProfile::new("h200-sxm", Arch::SM_90A, recorded());
    profile.device = Some("NVIDIA H200".into());
    profile.sm_count = Some(132);
    profile.sm_clock_mhz = Some(1980.0);
    profile.ceilings.push(Ceiling {
        kind: CeilingKind::TensorBf16,
        bytes_per_s: None,
        flop_per_s: Some(780e12),
        seconds: None,
        spread_percent: None,
        provenance: recorded(),
    });
    let c = Ceilings::from_profile(&profile);
    let bf16 = c.roof(RoofKind::TensorBf16).unwrap();
    assert_eq!((bf16.value, bf16.provenance.kind), (780e12, Known::Recorded));
    let (kind, hbm) = c.hbm(0.5).unwrap();
    assert_eq!((kind, hbm.value), (RoofKind::HbmPeak, 4.8e12));
    assert_eq!(hbm.provenance.kind, Known::Published);
    // 16 ex2 lanes x 132 SMs x 1980 MHz, as weak as the published rate.
    let ex2 = c.roof(RoofKind::Ex2).unwrap();
    assert_eq!((ex2.value, ex2.provenance.kind), (16.0 * 132.0 * 1980e6, Known::Published));
    assert!(c.measured(&[RoofKind::TensorBf16]) && !c.measured(&[RoofKind::HbmPeak]));
}

#[test]
fn the_device_memory_roof_follows_the_mix_of_reads_and_writes() {
    let rate = |kind, tbs: f64| Ceiling {
        kind,
        bytes_per_s: Some(tbs * 1e12),
        flop_per_s: None,
        seconds: None,
        spread_percent: None,
        provenance: recorded(),
    };
    let mut profile = DeviceProfile::new("h200-sxm", Arch::SM_90A, recorded());
    profile.device = Some("NVIDIA H200".into());
    profile.ceilings = vec![rate(CeilingKind::HbmRead, 4.6), rate(CeilingKind::HbmCopy, 4.0)];
    let roof = |share: f64| Ceilings::from_profile(&profile).hbm(share).map(|(k, f)| (k, f.value)).unwrap();
    assert_eq!(roof(1.0), (RoofKind::HbmRead, 4.6e12));
    assert_eq!(roof(0.5), (RoofKind::HbmCopy, 4.0e12));
    // Halfway in time a byte, which is below halfway in rate.
    let (kind, between) = roof(0.75);
    assert_eq!(kind, RoofKind::HbmMix);
    assert!((between / 1e12 - 2.0 / (1.0 / 4.6 + 1.0 / 4.0)).abs() < 1e-9 && between < 4.3e12, "{between}");
    // No pure writes were measured, and the data sheet is no better known than the copy.
    assert_eq!(roof(0.2).0, RoofKind::HbmCopy);
}

#[test]
fn formats_without_a_tensor_core_fall_back_to_16_bit_and_say_so() {
    let h200 = Ceilings::published(published::part("H200").unwrap());
    let (kind, _, note) = h200.math(MathType::Fp4, true).unwrap();
    assert_eq!(kind, RoofKind::TensorBf16);
    assert!(note.unwrap().contains("no FP4 tensor core"));
    let b200 = Ceilings::published(published::part("B200").unwrap());
    assert_eq!(b200.math(MathType::Fp4, true).unwrap().0, RoofKind::TensorFp4);
    let (_, tf32, note) = h200.math(MathType::Tf32, true).unwrap();
    assert_eq!(tf32.value, 494.5e12);
    assert_eq!(tf32.provenance.kind, Known::Assumed);
    assert!(note.is_some());
}

#[test]
fn a_sheets_own_ceiling_beats_the_data_sheet_but_not_a_measurement() {
    let text =
        "ceilings:\n- {kind: hbm_copy, bytes_per_s: 592.0e9, provenance: {kind: given, by: own copy}}\n";
    let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
    let c = Ceilings::published(published::part("RTX 5070").unwrap()).with_sheet(&sheet);
    assert_eq!(c.hbm(0.7).unwrap().1.value, 592e9);
    let own = "ceilings:\n- {kind: tensor_bf16, flop_per_s: 700.0e12, provenance: {kind: given, by: own product}}\n";
    let sheet = FactSheet::from_yaml(own, "f.yaml").unwrap();
    let bf16 = |c: Ceilings| c.with_sheet(&sheet).roof(RoofKind::TensorBf16).unwrap().value;
    assert_eq!(bf16(Ceilings::published(published::part("H200").unwrap())), 700e12);
    let mut profile = DeviceProfile::new("h200-sxm", Arch::SM_90A, recorded());
    profile.ceilings.push(Ceiling {
        kind: CeilingKind::TensorBf16,
        bytes_per_s: None,
        flop_per_s: Some(780e12),
        seconds: None,
        spread_percent: None,
        provenance: recorded(),
    });
    assert_eq!(bf16(Ceilings::from_profile(&profile)), 780e12);
}

/// Every format on every kind of part: the roof, its rate and how it came about, or the ceiling that is needed.
#[test]
fn each_format_has_its_roof_on_each_part_or_names_the_ceiling_it_lacks() {
    use MathType as M;
    use RoofKind as R;
    type Row<'a> = (&'a str, M, Option<(R, f64)>, &'a str);
    let rows: &[Row<'_>] = &[
        ("A100", M::Int4, Some((R::TensorInt4, 1248.0)), ""),
        ("A100", M::Int8, Some((R::TensorInt8, 624.0)), ""),
        ("A100", M::Fp8, Some((R::TensorBf16, 312.0)), "no FP8 tensor core: 16-bit"),
        ("A100", M::Fp4, Some((R::TensorBf16, 312.0)), "no FP4 tensor core: 16-bit"),
        ("A100", M::Tf32, Some((R::TensorTf32, 156.0)), ""),
        ("A100", M::Fp64, Some((R::Fp64, 19.49)), "twice the FP64 FMA rate"),
        ("L40S", M::Int4, Some((R::TensorInt4, 1466.0)), ""),
        ("RTX 4090", M::Int4, Some((R::TensorInt4, 1321.2)), ""),
        ("RTX 4090", M::Fp8, Some((R::TensorFp8, 330.3)), ""),
        ("H100", M::Int4, Some((R::TensorInt8, 1978.9)), "no int4 tensor core: 8-bit integer products"),
        ("H200", M::Int4, Some((R::TensorInt8, 1979.0)), "no int4 tensor core: 8-bit integer products"),
        ("H200", M::Fp16, Some((R::TensorBf16, 989.0)), ""),
        ("B200", M::Int4, Some((R::TensorInt8, 4500.0)), "no int4 tensor core"),
        ("B200", M::Fp4, Some((R::TensorFp4, 9000.0)), ""),
        ("GB300", M::Int8, None, "tensor_int8"),
        ("GB300", M::Int4, None, "tensor_int8"),
        ("V100", M::Fp16, Some((R::TensorF16, 125.0)), ""),
        ("V100", M::Bf16, Some((R::Fp32, 15.67)), "no bf16 tensor core: fp32 products"),
        ("V100", M::Tf32, Some((R::Fp32, 15.67)), "no TF32 tensor core: fp32 products"),
        ("V100", M::Fp8, Some((R::TensorF16, 125.0)), "no FP8 tensor core: 16-bit"),
        ("V100", M::Int8, None, "tensor_int8"),
        ("RTX 5070", M::Bf16, None, "tensor_bf16"),
    ];
    for (name, math, roof, said) in rows {
        let c = Ceilings::published(published::part(name).unwrap());
        match (c.math(*math, true), roof) {
            (Some((kind, figure, note)), Some((wanted, tera))) => {
                assert_eq!(kind, *wanted, "{name} {math:?}");
                assert!(
                    (figure.value / (tera * 1e12) - 1.0).abs() < 2e-3,
                    "{name} {math:?}: {}",
                    figure.value
                );
                assert!(note.as_deref().unwrap_or_default().contains(said), "{name} {math:?}: {note:?}");
                assert_eq!(note.is_some(), !said.is_empty(), "{name} {math:?}: {note:?}");
            }
            (None, None) => assert_eq!(c.multiplied_as(*math).0.ceiling(true), *said, "{name} {math:?}"),
            (found, _) => panic!("{name} {math:?}: {found:?}"),
        }
    }
}

#[test]
fn a_measured_f16_rate_is_the_roof_of_f16_products_alone() {
    let own =
        "ceilings:\n- {kind: tensor_f16, flop_per_s: 650.0e12, provenance: {kind: given, by: own product}}\n";
    let sheet = FactSheet::from_yaml(own, "f.yaml").unwrap();
    let c = Ceilings::published(published::part("H200").unwrap()).with_sheet(&sheet);
    let rate = |math| c.math(math, true).map(|(kind, f, _)| (kind, f.value)).unwrap();
    assert_eq!(rate(MathType::Fp16), (RoofKind::TensorF16, 650e12));
    assert_eq!(rate(MathType::Bf16), (RoofKind::TensorBf16, 989e12));
}

#[test]
fn a_sheets_own_measurement_comes_before_a_recording_of_the_part() {
    let own = |kind: &str| {
        let known = format!("{{kind: {kind}, by: own copy, device: NVIDIA H200, date: 2026-12-01}}");
        let text = format!("ceilings:\n- {{kind: hbm_copy, bytes_per_s: 3.2e12, provenance: {known}}}\n");
        FactSheet::from_yaml(&text, "f.yaml").unwrap()
    };
    let mut profile = DeviceProfile::new("h200-sxm", Arch::SM_90A, recorded());
    profile.device = Some("NVIDIA H200".into());
    profile.ceilings.push(Ceiling {
        kind: CeilingKind::HbmCopy,
        bytes_per_s: Some(4.0e12),
        flop_per_s: None,
        seconds: None,
        spread_percent: None,
        provenance: recorded(),
    });
    let roof = |kind: &str| {
        let c = Ceilings::from_profile(&profile).with_sheet(&own(kind));
        c.roof(RoofKind::HbmCopy).unwrap().value
    };
    assert_eq!(roof("measured"), 3.2e12);
    assert_eq!(roof("recorded"), 3.2e12);
}
