//! How a number is known, weakest first, and how that combines.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kinds of knowledge, ordered from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Taken to be so, with the reason why.
    Assumed,
    /// Computed by a model whose known error is stated.
    Modelled,
    /// Somebody published it: source and the date it was checked.
    Published,
    /// The user said so: a file and line, or a setting.
    Given,
    /// Read from compiler output: the tool and its version.
    Mined,
    /// A measurement read back from a file.
    Recorded,
    /// Measured now: device, driver, clocks, date, command.
    Measured,
}

impl Known {
    /// Every kind, weakest first.
    pub const ALL: [Self; 7] = [
        Self::Assumed,
        Self::Modelled,
        Self::Published,
        Self::Given,
        Self::Mined,
        Self::Recorded,
        Self::Measured,
    ];

    /// The word used in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Assumed => "assumed",
            Self::Modelled => "modelled",
            Self::Published => "published",
            Self::Given => "given",
            Self::Mined => "mined",
            Self::Recorded => "recorded",
            Self::Measured => "measured",
        }
    }

    /// Whether a device was asked: a measurement of now, or one read back.
    #[must_use]
    pub const fn is_measurement(self) -> bool {
        matches!(self, Self::Recorded | Self::Measured)
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a number comes from. Built through the constructors, which ask for what each kind must state;
/// reading one back from a file applies the same rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
#[non_exhaustive]
pub struct Provenance {
    /// How it is known.
    pub kind: Known,
    /// The statement that goes with the kind: why (assumed), which model and its error (modelled), the source
    /// and date (published), file and line (given), tool and version (mined), command (measured, recorded).
    pub by: String,
    /// The device measured, by its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The driver version at the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The SM clock during the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<f64>,
    /// ISO date of the measurement, or of the day a publication was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// What a computed figure was computed from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    kind: Known,
    by: String,
    device: Option<String>,
    driver: Option<String>,
    sm_clock_mhz: Option<f64>,
    date: Option<String>,
    #[serde(default)]
    inputs: Vec<String>,
}

/// A provenance that does not state what its kind must state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenanceError {
    kind: Known,
    missing: &'static str,
}

impl fmt::Display for ProvenanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "provenance `{}` must state `{}`", self.kind, self.missing)
    }
}

impl std::error::Error for ProvenanceError {}

impl TryFrom<Raw> for Provenance {
    type Error = ProvenanceError;

    fn try_from(raw: Raw) -> Result<Self, ProvenanceError> {
        let Raw { kind, by, device, driver, sm_clock_mhz, date, inputs } = raw;
        let missing = |missing| Err(ProvenanceError { kind, missing });
        if by.trim().is_empty() {
            return missing("by");
        }
        // A computed figure inherits its kind from inputs that already stated device and date.
        if inputs.is_empty() {
            if kind.is_measurement() && device.is_none() {
                return missing("device");
            }
            if (kind.is_measurement() || kind == Known::Published) && date.is_none() {
                return missing("date");
            }
        }
        Ok(Self { kind, by, device, driver, sm_clock_mhz, date, inputs })
    }
}

impl Provenance {
    fn plain(kind: Known, by: impl Into<String>) -> Self {
        Self {
            kind,
            by: by.into(),
            device: None,
            driver: None,
            sm_clock_mhz: None,
            date: None,
            inputs: Vec::new(),
        }
    }

    /// Taken to be so, because `why`.
    #[must_use]
    pub fn assumed(why: impl Into<String>) -> Self {
        Self::plain(Known::Assumed, why)
    }

    /// Computed by `model`; the text names the model and its known error.
    #[must_use]
    pub fn modelled(model: impl Into<String>) -> Self {
        Self::plain(Known::Modelled, model)
    }

    /// Published by `source`, checked on `date` (ISO).
    #[must_use]
    pub fn published(source: impl Into<String>, date: impl Into<String>) -> Self {
        Self { date: Some(date.into()), ..Self::plain(Known::Published, source) }
    }

    /// Given by the user at `place` (file and line, or the name of a setting).
    #[must_use]
    pub fn given(place: impl Into<String>) -> Self {
        Self::plain(Known::Given, place)
    }

    /// Read from the output of `tool` (name and version).
    #[must_use]
    pub fn mined(tool: impl Into<String>) -> Self {
        Self::plain(Known::Mined, tool)
    }

    /// Measured by `command` on `device` at `date` (ISO).
    #[must_use]
    pub fn measured(command: impl Into<String>, device: impl Into<String>, date: impl Into<String>) -> Self {
        Self { device: Some(device.into()), date: Some(date.into()), ..Self::plain(Known::Measured, command) }
    }

    /// The driver version that goes with a measurement.
    #[must_use]
    pub fn with_driver(mut self, driver: impl Into<String>) -> Self {
        self.driver = Some(driver.into());
        self
    }

    /// The SM clock that goes with a measurement.
    #[must_use]
    pub fn with_sm_clock_mhz(mut self, mhz: f64) -> Self {
        self.sm_clock_mhz = Some(mhz);
        self
    }

    /// The same knowledge read back from a file: a measurement becomes a recording, anything weaker stays.
    #[must_use]
    pub fn read_back(mut self) -> Self {
        if self.kind == Known::Measured {
            self.kind = Known::Recorded;
        }
        self
    }

    /// The provenance of a figure computed as `how` from named inputs: the weakest kind among them, with the
    /// weakest input's device and date. With no input the figure is an assumption, whatever `how` says.
    #[must_use]
    pub fn computed<'a>(
        how: impl Into<String>,
        inputs: impl IntoIterator<Item = (&'a str, &'a Provenance)>,
    ) -> Self {
        let mut weakest: Option<&Provenance> = None;
        let mut names = Vec::new();
        for (name, provenance) in inputs {
            names.push(format!("{name} ({})", provenance.kind));
            if weakest.is_none_or(|w| provenance.kind < w.kind) {
                weakest = Some(provenance);
            }
        }
        match weakest {
            Some(w) => Self { by: how.into(), inputs: names, ..w.clone() },
            None => Self::assumed(how),
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        if let Some(date) = &self.date {
            write!(f, ", {date}")?;
        }
        write!(f, ": {}", self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computed_figure_is_as_weak_as_its_weakest_input() {
        let rate = Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-11-30");
        let count = Provenance::mined("ptxas 13.0.88");
        let p = Provenance::computed("count / rate", [("rate", &rate), ("count", &count)]);
        assert_eq!(p.kind, Known::Mined);
        assert_eq!(p.inputs, ["rate (measured)", "count (mined)"]);
        assert_eq!(Provenance::computed("nothing", []).kind, Known::Assumed);
    }

    #[test]
    fn a_measurement_without_device_or_date_is_refused_on_reading() {
        for (text, field) in [
            (r#"{"kind":"measured","by":"x","date":"2026-11-30"}"#, "device"),
            (r#"{"kind":"recorded","by":"x","device":"d"}"#, "date"),
            (r#"{"kind":"published","by":"x"}"#, "date"),
            (r#"{"kind":"assumed","by":" "}"#, "by"),
        ] {
            let error = serde_json::from_str::<Provenance>(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{field}`")), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Provenance>(r#"{"kind":"mined","by":"ptxas 13.0.88"}"#).is_ok());
    }

    #[test]
    fn reading_back_weakens_only_measurements() {
        let m = Provenance::measured("c", "d", "2026-11-30").read_back();
        assert_eq!(m.kind, Known::Recorded);
        assert_eq!(Provenance::assumed("x").read_back().kind, Known::Assumed);
    }

    #[test]
    fn kinds_are_ordered_from_weakest_to_strongest() {
        assert!(Known::ALL.windows(2).all(|w| w[0] < w[1]));
    }
}
