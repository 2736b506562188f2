//! The PTX instruction that is a conversion.

use super::{Conversion, Format, Overflow, Rounding};

impl Conversion {
    /// The `cvt` from f32 that converts so, where PTX has one: `cvt.rn.satfinite.relu.e4m3x2.f32`. Those of eight bits
    /// and fewer convert a pair, see [`super::pack_x2`].
    ///
    /// None for what only NVIDIA's host header has (ue8m0 under `rn`, FP8 without `.satfinite`) and for what
    /// [`Self::checked`] refuses. FP4 and FP6 have no infinity, so theirs is `.satfinite` whatever overflow is set to.
    #[must_use]
    pub fn instruction(self) -> Option<String> {
        let Self { format, rounding, overflow, relu } = self.checked().ok()?;
        let satfinite = match format {
            Format::E2m1 | Format::E2m3 | Format::E3m2 => true,
            Format::E4m3 | Format::E5m2 if overflow == Overflow::Special => return None,
            Format::Ue8m0 if rounding == Rounding::Rn => return None,
            _ => overflow == Overflow::Saturate,
        };
        let satfinite = if satfinite { ".satfinite" } else { "" };
        let relu = if relu { ".relu" } else { "" };
        let pair = if format.layout().bits > 8 { "" } else { "x2" };
        Some(format!("cvt.{}{satfinite}{relu}.{format}{pair}.f32", rounding.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ptx() {
        let name = |c: Conversion| c.instruction();
        let usual = |f| Conversion::usual(f);
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(name(usual(Format::E4m3)), is("cvt.rn.satfinite.e4m3x2.f32"));
        assert_eq!(name(usual(Format::Ue8m0)), is("cvt.rz.satfinite.ue8m0x2.f32"));
        let relu = Conversion { relu: true, overflow: Overflow::Special, ..usual(Format::E2m1) };
        assert_eq!(name(relu), is("cvt.rn.satfinite.relu.e2m1x2.f32"));
        assert_eq!(name(Conversion { rounding: Rounding::Rm, ..usual(Format::Bf16) }), is("cvt.rm.bf16.f32"));
        assert_eq!(name(Conversion { overflow: Overflow::Special, ..usual(Format::E5m2) }), None);
        assert_eq!(name(Conversion { rounding: Rounding::Rz, ..usual(Format::E5m2) }), None);
    }
}
