//! A setting: one value for each knob, as the text that the process will see.

use serde::de::{self, DeserializeSeed, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A scalar from a file, kept as its text. A process sees text, so `4` and `"4"` are the same value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Scalar(pub String);

impl Scalar {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ScalarThen(Ok).deserialize(deserializer)
    }
}

/// Reads a scalar and judges it while the reader still knows its line.
pub(crate) struct ScalarThen<F>(pub(crate) F);

impl<'de, F: FnOnce(Scalar) -> Result<Scalar, String>> DeserializeSeed<'de> for ScalarThen<F> {
    type Value = Scalar;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Scalar, D::Error> {
        from.deserialize_any(self)
    }
}

impl<F: FnOnce(Scalar) -> Result<Scalar, String>> Visitor<'_> for ScalarThen<F> {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a string, true or false")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
        (self.0)(Scalar(text.to_owned())).map_err(E::custom)
    }
    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Scalar, E> {
        (self.0)(Scalar(v.to_string())).map_err(E::custom)
    }
    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Scalar, E> {
        (self.0)(Scalar(v.to_string())).map_err(E::custom)
    }
    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Scalar, E> {
        (self.0)(Scalar(v.to_string())).map_err(E::custom)
    }
    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Scalar, E> {
        (self.0)(Scalar(v.to_string())).map_err(E::custom)
    }
}

/// One value for each knob, by knob name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting(pub BTreeMap<String, Scalar>);

impl Setting {
    /// The value of a knob.
    #[must_use]
    pub fn get(&self, knob: &str) -> Option<&str> {
        self.0.get(knob).map(Scalar::as_str)
    }

    /// The same setting with one knob changed.
    #[must_use]
    pub fn with(mut self, knob: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(knob.into(), Scalar(value.into()));
        self
    }

    /// The knobs whose values differ from those in `base`.
    #[must_use]
    pub fn differs_from(&self, base: &Self) -> Self {
        let differs = |(k, v): &(&String, &Scalar)| base.0.get(*k) != Some(*v);
        Self(self.0.iter().filter(differs).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(no knobs)");
        }
        for (i, (knob, value)) in self.0.iter().enumerate() {
            write!(f, "{}{knob}={value}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_of_any_kind_become_the_text_that_the_process_sees() {
        let read: Vec<Scalar> = serde_yaml::from_str("[4, -1, 0.5, true, fp8, '4']").unwrap();
        let text: Vec<&str> = read.iter().map(Scalar::as_str).collect();
        assert_eq!(text, ["4", "-1", "0.5", "true", "fp8", "4"]);
        assert!(serde_yaml::from_str::<Scalar>("[1]").is_err());
    }

    #[test]
    fn a_setting_names_what_changed_against_another() {
        let base = Setting::default().with("A", "1").with("B", "2");
        let other = base.clone().with("B", "3");
        assert_eq!(other.differs_from(&base).to_string(), "B=3");
        assert_eq!(base.to_string(), "A=1 B=2");
    }
}
