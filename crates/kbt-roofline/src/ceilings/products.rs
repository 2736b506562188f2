//! The roof of a product: which formats a generation's matrix instructions multiply, and as what the others are multiplied.

use super::{Ceilings, RoofKind};
use crate::dtype::MathType;
use kbt_evidence::{Figure, Provenance, Unit};

/// A format that matrix instructions multiply.
struct Product {
    math: MathType,
    name: &'static str,
    roof: RoofKind,
    /// Compute capabilities, first and last, that have it.
    since: u16,
    until: u16,
    /// What it is converted to where there is none; a format that none can stand in for needs a ceiling of its own.
    stand_in: Option<MathType>,
}

const NEWEST: u16 = u16::MAX;

/// PTX ISA 9.0, the target notes of mma, wgmma and tcgen05. 4-bit integers are in the data sheets of 7.5 to 8.9 alone:
/// NVIDIA lists none for the H100 and later.
const PRODUCTS: &[Product] = &[
    product(MathType::Tf32, "TF32", RoofKind::TensorTf32, 80, NEWEST, Some(MathType::Fp32)),
    product(MathType::Bf16, "bf16", RoofKind::TensorBf16, 80, NEWEST, Some(MathType::Fp32)),
    product(MathType::Fp16, "f16", RoofKind::TensorF16, 70, NEWEST, Some(MathType::Fp32)),
    product(MathType::Fp8, "FP8", RoofKind::TensorFp8, 89, NEWEST, Some(MathType::Fp16)),
    product(MathType::Fp4, "FP4", RoofKind::TensorFp4, 100, NEWEST, Some(MathType::Fp16)),
    product(MathType::Int8, "int8", RoofKind::TensorInt8, 72, NEWEST, None),
    product(MathType::Int4, "int4", RoofKind::TensorInt4, 75, 89, Some(MathType::Int8)),
];

const fn product(
    math: MathType,
    name: &'static str,
    roof: RoofKind,
    since: u16,
    until: u16,
    stand_in: Option<MathType>,
) -> Product {
    Product { math, name, roof, since, until, stand_in }
}

/// Rates that stand in a fixed ratio to another one's in every generation that has both: the roof, that other, the ratio.
const RATIOS: &[(RoofKind, RoofKind, f64, &str)] = &[
    (RoofKind::TensorTf32, RoofKind::TensorBf16, 0.5, "tf32 at half the bf16 rate"),
    (RoofKind::TensorFp8, RoofKind::TensorBf16, 2.0, "fp8 at twice the bf16 rate"),
    (RoofKind::TensorInt4, RoofKind::TensorInt8, 2.0, "int4 at twice the int8 rate"),
];

impl Ceilings {
    /// What a format is multiplied as on this device, and how to say so where that is another one.
    pub(crate) fn multiplied_as(&self, math: MathType) -> (MathType, Option<String>) {
        let sm = self.arch.sm;
        let row = PRODUCTS.iter().find(|p| p.math == math);
        match row.filter(|p| !(p.since..=p.until).contains(&sm)) {
            Some(Product { name, stand_in: Some(other), .. }) => {
                let (other, _) = self.multiplied_as(*other);
                let what = match other {
                    MathType::Fp32 => "fp32 products on the FMA pipe",
                    MathType::Int8 => "8-bit integer products",
                    _ => "16-bit products",
                };
                (other, Some(format!("{} has no {name} tensor core: {what}", self.arch)))
            }
            _ => (math, None),
        }
    }

    /// The roof for a kind of matrix or scalar arithmetic, and what had to be assumed to find it.
    #[must_use]
    pub fn math(&self, math: MathType, tensor: bool) -> Option<(RoofKind, Figure, Option<String>)> {
        if !tensor {
            let kind = if math == MathType::Fp64 { RoofKind::Fp64 } else { RoofKind::Fp32 };
            return self.roofs.get(&kind).map(|f| (kind, f.clone(), None));
        }
        let (math, note) = self.multiplied_as(math);
        let kind = match math {
            MathType::Fp64 => {
                let (figure, note) = self.fp64_products()?;
                return Some((RoofKind::Fp64, figure, note));
            }
            MathType::Fp32 => RoofKind::Fp32,
            MathType::Fp16 => self.sixteen_bit(),
            _ => PRODUCTS.iter().find(|p| p.math == math)?.roof,
        };
        if let Some(figure) = self.roofs.get(&kind) {
            return Some((kind, figure.clone(), note));
        }
        let (_, base, ratio, what) = RATIOS.iter().find(|(roof, ..)| *roof == kind)?;
        let base = self.roofs.get(base)?;
        let why = Provenance::assumed(format!("{what}, which no source for this device states"));
        let provenance =
            Provenance::computed(*what, [(base.name.as_str(), &base.provenance), ("the ratio", &why)]);
        let figure = Figure::new(kind.as_str(), base.value * ratio, Unit::FlopPerSecond, provenance);
        Some((kind, figure, Some(format!("no {} ceiling is known: taken as {what}", kind.as_str()))))
    }

    /// The roof of f16 products: their own, unless that of bf16 is better known. From 8.0 on the two run at one rate.
    fn sixteen_bit(&self) -> RoofKind {
        let known = |kind| self.roofs.get(&kind).map(|f| f.provenance.kind);
        let (own, other) = (known(RoofKind::TensorF16), known(RoofKind::TensorBf16));
        if own >= other && own.is_some() || self.arch.sm < 80 {
            RoofKind::TensorF16
        } else {
            RoofKind::TensorBf16
        }
    }

    /// FP64 matrix products: 8.0 and 9.0 have instructions for them, at twice the rate of FMAs.
    fn fp64_products(&self) -> Option<(Figure, Option<String>)> {
        let fma = self.roofs.get(&RoofKind::Fp64)?;
        if !matches!(self.arch.sm, 80 | 90) {
            return Some((fma.clone(), None));
        }
        let twice = Provenance::published(
            "NVIDIA A100 and H100 data sheets: FP64 Tensor Core at twice FP64",
            "2026-11",
        );
        let what = "matrix products at twice the FP64 FMA rate";
        let provenance = Provenance::computed(what, [("fp64", &fma.provenance), ("the ratio", &twice)]);
        let figure = Figure::new(RoofKind::Fp64.as_str(), fma.value * 2.0, Unit::FlopPerSecond, provenance);
        Some((figure, Some(what.to_owned())))
    }
}
