//! A number with its unit, its spread and its provenance.

use crate::Provenance;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

macro_rules! units {
    ($($(#[$doc:meta])* $variant:ident = $field:literal, $show:literal;)*) => {
        /// A unit of measure. In files the unit is the field's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Unit { $($(#[$doc])* $variant,)* }

        impl Unit {
            /// Every unit.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The field name that carries a number of this unit in JSON and YAML.
            #[must_use]
            pub const fn field(self) -> &'static str { match self { $(Self::$variant => $field,)* } }

            /// How people write the unit.
            #[must_use]
            pub const fn symbol(self) -> &'static str { match self { $(Self::$variant => $show,)* } }
        }
    };
}

units! {
    /// SM clock cycles.
    Cycles = "cycles", "clk";
    /// Thread-level instructions a clock and SM: 32 x warp instructions.
    LanesPerClkSm = "lanes_per_clk_sm", "lanes/clk/SM";
    /// Results (elements) a clock and SM.
    ResultsPerClkSm = "results_per_clk_sm", "results/clk/SM";
    /// Bytes.
    Bytes = "bytes", "B";
    /// Bytes a second.
    BytesPerSecond = "bytes_per_s", "B/s";
    /// Bytes a clock and SM.
    BytesPerClkSm = "bytes_per_clk_sm", "B/clk/SM";
    /// Floating-point operations.
    Flop = "flop", "FLOP";
    /// Floating-point operations a second.
    FlopPerSecond = "flop_per_s", "FLOP/s";
    /// Floating-point operations a clock and SM.
    FlopPerClkSm = "flop_per_clk_sm", "FLOP/clk/SM";
    /// Floating-point operations a byte.
    FlopPerByte = "flop_per_byte", "FLOP/B";
    /// Microseconds.
    Microseconds = "us", "us";
    /// Seconds.
    Seconds = "s", "s";
    /// Megahertz.
    Megahertz = "mhz", "MHz";
    /// Watts.
    Watts = "w", "W";
    /// A count of things.
    Count = "count", "";
    /// A ratio of two like quantities.
    Ratio = "ratio", "x";
    /// Percent.
    Percent = "percent", "%";
    /// An error relative to a reference.
    RelativeError = "relative_error", "rel";
}

impl Unit {
    fn from_field(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|u| u.field() == name)
    }
}

/// The interval a value lies in, and what kind of interval that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What the ends are, for example `p10 to p90 of 30 launches`.
    pub what: String,
}

/// A number that knows its unit and how it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What the number says, in the field's terms.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// Its spread, where one is known.
    pub spread: Option<Spread>,
    /// How it is known.
    pub provenance: Provenance,
}

impl Figure {
    /// A figure without a spread.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64, unit: Unit, provenance: Provenance) -> Self {
        Self { name: name.into(), value, unit, spread: None, provenance }
    }

    /// The same figure with its spread.
    #[must_use]
    pub fn with_spread(mut self, low: f64, high: f64, what: impl Into<String>) -> Self {
        self.spread = Some(Spread { low, high, what: what.into() });
        self
    }

    /// A figure computed from others: the weakest provenance among them, their names as inputs.
    #[must_use]
    pub fn computed(name: impl Into<String>, value: f64, unit: Unit, how: &str, inputs: &[&Self]) -> Self {
        let from = inputs.iter().map(|f| (f.name.as_str(), &f.provenance));
        Self::new(name, value, unit, Provenance::computed(how, from))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} [{}]", self.name, number(self.value), self.unit.symbol(), self.provenance.kind)
    }
}

/// A number as people read it: about four significant digits, no exponent for the usual sizes.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let decimals = match magnitude {
        m if m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        let unit = self.unit.field();
        map.serialize_entry(unit, &self.value)?;
        if let Some(spread) = &self.spread {
            map.serialize_entry(&format!("low_{unit}"), &spread.low)?;
            map.serialize_entry(&format!("high_{unit}"), &spread.high)?;
            map.serialize_entry("spread", &spread.what)?;
        }
        map.serialize_entry("provenance", &self.provenance)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FigureVisitor;
        impl<'de> Visitor<'de> for FigureVisitor {
            type Value = Figure;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a figure: name, one number in a field named with its unit, provenance")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figure, A::Error> {
                let (mut name, mut value, mut provenance) = (None, None, None);
                let (mut low, mut high, mut what) = (None, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "name" => name = Some(map.next_value()?),
                        "provenance" => provenance = Some(map.next_value()?),
                        "spread" => what = Some(map.next_value::<String>()?),
                        other => {
                            let (slot, unit) = match (other.strip_prefix("low_"), other.strip_prefix("high_"))
                            {
                                (Some(unit), _) => (&mut low, unit),
                                (_, Some(unit)) => (&mut high, unit),
                                _ => (&mut value, other),
                            };
                            let unit = Unit::from_field(unit)
                                .ok_or_else(|| de::Error::custom(format!("`{other}` names no known unit")))?;
                            *slot = Some((unit, map.next_value::<f64>()?));
                        }
                    }
                }
                let (unit, value) = value.ok_or_else(|| de::Error::custom("a figure needs a number"))?;
                let spread = match (low, high, what) {
                    (Some((_, low)), Some((_, high)), what) => {
                        Some(Spread { low, high, what: what.unwrap_or_default() })
                    }
                    _ => None,
                };
                Ok(Figure {
                    name: name.ok_or_else(|| de::Error::missing_field("name"))?,
                    value,
                    unit,
                    spread,
                    provenance: provenance.ok_or_else(|| de::Error::missing_field("provenance"))?,
                })
            }
        }
        deserializer.deserialize_map(FigureVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_written_with_its_unit_as_the_field_and_read_back_equal() {
        let figure = Figure::new("ex2 rate", 16.0, Unit::LanesPerClkSm, Provenance::mined("ptxas 13.0.88"))
            .with_spread(15.9, 16.1, "p10 to p90 of 30 launches");
        let text = serde_json::to_string(&figure).unwrap();
        assert!(text.contains(r#""lanes_per_clk_sm":16.0"#), "{text}");
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), figure);
    }

    #[test]
    fn a_figure_without_provenance_or_with_an_unknown_unit_is_refused() {
        assert!(serde_json::from_str::<Figure>(r#"{"name":"x","cycles":1.0}"#).is_err());
        let unit = r#"{"name":"x","furlongs":1.0,"provenance":{"kind":"assumed","by":"y"}}"#;
        assert!(serde_json::from_str::<Figure>(unit).unwrap_err().to_string().contains("furlongs"));
    }

    #[test]
    fn numbers_are_shown_with_the_digits_that_matter() {
        for (value, text) in
            [(16.0, "16"), (0.954, "0.954"), (2048.4, "2048"), (4.3e12, "4.300e12"), (0.0, "0")]
        {
            assert_eq!(number(value), text);
        }
    }
}
