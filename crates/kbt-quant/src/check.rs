//! A described scheme for quantising P, checked: does its offset fit, which codes and groups does it lose, what would
//! cost nothing and help.

mod advice;
mod error;

use crate::format::{Conversion, Format, Rounding};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

pub use error::SchemeError;

/// The schema that scheme files state.
pub const SCHEMA: &str = "kbt.scheme/1";

/// What the row sum adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowSum {
    /// P before quantisation.
    #[default]
    Unquantised,
    /// The dequantised codes.
    Quantised,
}

/// A scheme: P = 2^(score - row maximum + offset), in groups with a scale or without.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheme {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What the scheme is called.
    pub name: String,
    /// The elements' format.
    pub element: Format,
    /// The group scale's format; none where P is converted as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Format>,
    /// How the scale is rounded: of ue8m0 `rz` or `rp`, of others `rn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_rounding: Option<Rounding>,
    /// Added to every exp2 argument, in powers of two.
    pub offset_log2: f64,
    /// How far below the true maximum a row's maximum in use may be, in powers of two.
    #[serde(default)]
    pub rescale_threshold_log2: f64,
    /// What the row sum adds up.
    #[serde(default)]
    pub row_sum: RowSum,
    /// How the numbers above are known; a file's are given by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// P and a row's sum of up to 2^24 of it are f32, and must not reach 2^128.
const IN_F32: f64 = 104.0;
/// Where exp2 flushes to zero.
const FLUSHED: f64 = -126.0;

/// An offset that is stated with four digits, as it is printed, is off by half of the last: no overflow.
const ROUNDED: f64 = 0.5e-4 + 1e-9;

impl Scheme {
    /// The greatest offset that a scheme may have, and the least with its sign turned.
    const MOST_OFFSET: f64 = 100.0;

    /// Reads a scheme from YAML; `origin` names the file.
    pub fn from_yaml(text: &str, origin: &str) -> Result<Self, SchemeError> {
        let mut scheme: Self =
            serde_yaml::from_str(text).map_err(|e| SchemeError::of_yaml(text, origin, &e))?;
        let error = |field: &str, message: String| Err(SchemeError::of_field(text, origin, field, &message));
        if scheme.schema != SCHEMA {
            return error("schema", format!("`{}` is not `{SCHEMA}`", scheme.schema));
        }
        if scheme.element == Format::Ue8m0 {
            return error(
                "element",
                "ue8m0 is a scale's format: it has neither a sign nor a fraction".to_owned(),
            );
        }
        if !scheme.offset_log2.is_finite() || scheme.offset_log2.abs() > Self::MOST_OFFSET {
            return error(
                "offset_log2",
                format!("{}: expected a number from -100 to 100", scheme.offset_log2),
            );
        }
        let threshold = scheme.rescale_threshold_log2;
        if !(0.0..=100.0).contains(&threshold) {
            return error("rescale_threshold_log2", format!("{threshold}: expected a number from 0 to 100"));
        }
        if let Some(scale) = scheme.scale
            && !matches!(scale, Format::E4m3 | Format::Ue8m0 | Format::E5m2)
        {
            return error(
                "scale",
                format!("{scale} is no scale's format; accepted are e4m3, e5m2 and ue8m0"),
            );
        }
        if let Some(rounding) = scheme.scale_rounding {
            let Some(format) = scheme.scale else {
                return error("scale_rounding", "the scheme has no scale".to_owned());
            };
            let accepted: &[Rounding] = match format {
                Format::Ue8m0 => &[Rounding::Rz, Rounding::Rp],
                _ => &[Rounding::Rn],
            };
            if !accepted.contains(&rounding) {
                let accepted: Vec<&str> = accepted.iter().map(|r| r.as_str()).collect();
                let message = format!(
                    "{format} has no conversion `.{}`; accepted: {}",
                    rounding.as_str(),
                    accepted.join(", ")
                );
                return error("scale_rounding", message);
            }
        }
        scheme.provenance.get_or_insert_with(|| Provenance::given(origin));
        Ok(scheme)
    }

    /// A scheme known to the crate. `why` says where its numbers come from.
    #[must_use]
    pub fn new(name: &str, element: Format, scale: Option<Format>, offset_log2: f64, why: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            element,
            scale,
            scale_rounding: None,
            offset_log2,
            rescale_threshold_log2: 0.0,
            row_sum: RowSum::Unquantised,
            provenance: Some(Provenance::given(why)),
        }
    }

    /// The greatest value that element and scale hold together.
    fn held(&self) -> f64 {
        f64::from(self.element.max()) * self.scale.map_or(1.0, |s| f64::from(s.max()))
    }

    /// The greatest value that P may have: it and its row's sum are f32.
    fn limit(&self) -> f64 {
        self.held().min(IN_F32.exp2())
    }

    /// Checks the scheme.
    #[must_use]
    pub fn check(&self) -> CheckOutcome {
        let given = self.provenance.clone().unwrap_or_else(|| Provenance::given(self.name.as_str()));
        let provenance = Provenance::computed("exact arithmetic on the formats", [("scheme", &given)]);
        let limit = self.limit();
        let needed = self.offset_log2 + self.rescale_threshold_log2;
        let fits = needed <= limit.log2() + ROUNDED;
        let greatest = needed.exp2();
        let budget = Budget {
            offset_log2: self.offset_log2,
            rescale_threshold_log2: self.rescale_threshold_log2,
            limit_log2: limit.log2(),
            slack_log2: limit.log2() - needed,
            fits,
            greatest_p_ratio: greatest,
            provenance: provenance.clone(),
        };
        let mut findings = Vec::new();
        if !fits && limit < self.held() {
            findings.push(format!(
                "P reaches 2^{needed} and f32, in which it and the row sum are computed, ends at 2^128: a row of 2^24 \
                 keys is infinite from 2^{IN_F32} on"
            ));
        } else if !fits && matches!(self.element, Format::F16 | Format::Bf16) {
            findings.push(format!(
                "P reaches {greatest} but {} hold {limit}: a conversion to {} does not saturate, so the greatest keys \
                 become infinite",
                self.holders(),
                self.element
            ));
        } else if !fits {
            findings.push(format!(
                "P reaches {greatest} but {} hold {limit}: it saturates while the row sum counts it whole, so the \
                 weight of the greatest keys is too small by up to {:.0} %",
                self.holders(),
                100.0 * (1.0 - limit / greatest)
            ));
        }
        let codes = self.codes(greatest, provenance.clone());
        let (what, below) = self.flush();
        if below >= 0.0 {
            findings.push(format!(
                "nothing is left: {what} are lost below 2^{below:.2} of the row maximum, and none is above it"
            ));
        }
        if self.scale_rounding == Some(Rounding::Rz) {
            findings.push(
                "the scale is rounded down, to as little as half of what the group's greatest element needs: divided \
                 by it elements saturate, divided by the unrounded scale the group comes out too small, by up to 50 %"
                    .to_owned(),
            );
        }
        let flush = Flush { what: what.to_owned(), below_row_max_log2: Some(below), provenance };
        let improvements = self.improvements(&budget, &codes);
        CheckOutcome {
            schema: crate::outcome::SCHEMA.to_owned(),
            scheme: Self { provenance: Some(given), ..self.clone() },
            budget,
            codes,
            flush,
            findings,
            improvements,
        }
    }

    fn holders(&self) -> String {
        match self.scale {
            Some(scale) => format!("{} elements and {scale} scales", self.element),
            None => format!("{} elements", self.element),
        }
    }

    fn codes(&self, greatest: f64, provenance: Provenance) -> Codes {
        let elements = self.element.values();
        let finite = |values: &[f32]| values.iter().filter(|v| v.is_finite()).count();
        // With a scale every group's greatest element is about the format's maximum; without, P itself.
        let top = if self.scale.is_some() { f64::INFINITY } else { greatest };
        let reach = Conversion::usual(self.element).round(top as f32);
        // What exp2 flushes is zero; divided by a scale it may be anything.
        let least = if self.scale.is_some() { 0.0 } else { FLUSHED.exp2() };
        let taken = |v: f32| v <= reach && (v == 0.0 || f64::from(v) >= least);
        let used = elements.iter().filter(|v| v.is_finite() && !v.is_sign_negative() && taken(**v)).count();
        let (scale_codes, scale_used) = match self.scale {
            None => (0, 0),
            Some(format) => {
                let values = format.values();
                let usual = Conversion::usual(format);
                let rounding = self.scale_rounding.unwrap_or(usual.rounding);
                let most =
                    Conversion { rounding, ..usual }.round((greatest / f64::from(self.element.max())) as f32);
                let used =
                    values.iter().filter(|v| v.is_finite() && !v.is_sign_negative() && **v <= most).count();
                (finite(&values), used)
            }
        };
        Codes {
            element_codes_count: finite(&elements),
            element_unreachable_count: finite(&elements) - used,
            scale_codes_count: scale_codes,
            scale_unreachable_count: scale_codes - scale_used,
            provenance,
        }
    }

    /// What is lost to zero, and below what power of two of the row maximum.
    fn flush(&self) -> (&'static str, f64) {
        // Half the least value is a tie and goes to zero, the even code. ue8m0 has no zero: it floors at 2^-127.
        let (what, least) = match self.scale {
            Some(Format::Ue8m0) => ("groups", 0.0),
            Some(format) => (
                "groups whose scale rounds to zero",
                f64::from(format.min_positive()) / 2.0 * f64::from(self.element.max()),
            ),
            None => ("elements that round to zero", f64::from(self.element.min_positive()) / 2.0),
        };
        if least.log2() >= FLUSHED {
            return (what, least.log2() - self.offset_log2);
        }
        let what =
            if self.scale.is_some() { "groups that exp2 flushes" } else { "elements that exp2 flushes" };
        (what, FLUSHED - self.offset_log2)
    }
}

/// Whether offset and threshold fit the formats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The scheme's offset.
    pub offset_log2: f64,
    /// The scheme's rescale threshold.
    pub rescale_threshold_log2: f64,
    /// log2 of the greatest value that element and scale hold.
    pub limit_log2: f64,
    /// What is left.
    pub slack_log2: f64,
    /// Whether nothing saturates.
    pub fits: bool,
    /// The greatest P, as a multiple of what the row maximum gives without offset.
    pub greatest_p_ratio: f64,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// Codes that never occur.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Codes {
    /// Finite element codes.
    pub element_codes_count: usize,
    /// Those that P, which is not negative, never takes.
    pub element_unreachable_count: usize,
    /// Finite scale codes; 0 without a scale.
    pub scale_codes_count: usize,
    /// Those that no group's scale takes.
    pub scale_unreachable_count: usize,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// What is lost to zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flush {
    /// What is lost.
    pub what: String,
    /// It is lost where its score's exponent lies this far below the row maximum (a negative number of powers of two).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_row_max_log2: Option<f64>,
    /// How the number is known.
    pub provenance: Provenance,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// `kbt.quant/1`.
    pub schema: String,
    /// The scheme checked.
    pub scheme: Scheme,
    /// Whether it fits.
    pub budget: Budget,
    /// Codes that never occur.
    pub codes: Codes,
    /// What is lost to zero.
    pub flush: Flush,
    /// What is wrong.
    pub findings: Vec<String>,
    /// What would cost nothing and help.
    pub improvements: Vec<String>,
}

impl CheckOutcome {
    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        let b = &self.budget;
        let _ = writeln!(
            out,
            "{}: {}",
            self.scheme.name,
            if self.findings.is_empty() { "fits" } else { "DOES NOT FIT" }
        );
        let _ = writeln!(
            out,
            "  budget     offset {:.4} + threshold {:.4} of {:.4} powers of two ({:.4} left)",
            b.offset_log2,
            b.rescale_threshold_log2,
            b.limit_log2,
            // What fits only as rounded leaves nothing.
            if b.fits { b.slack_log2.max(0.0) } else { b.slack_log2 }
        );
        let c = &self.codes;
        let _ = write!(
            out,
            "  codes      {} of {} element codes never occur",
            c.element_unreachable_count, c.element_codes_count
        );
        if c.scale_codes_count > 0 {
            let _ = write!(out, ", {} of {} scale codes", c.scale_unreachable_count, c.scale_codes_count);
        }
        out.push('\n');
        match self.flush.below_row_max_log2 {
            Some(below) => {
                let _ =
                    writeln!(out, "  lost       {}: below 2^{below:.2} of the row maximum", self.flush.what);
            }
            None => {
                let _ = writeln!(out, "  lost       {}", self.flush.what);
            }
        }
        for (label, lines) in [("wrong", &self.findings), ("free", &self.improvements)] {
            for line in lines {
                let _ = writeln!(out, "  {label:<10} {line}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
