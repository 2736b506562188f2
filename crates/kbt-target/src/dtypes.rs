//! Element types by tensor, in the order of the file: an operator's inputs come in its own order, its outputs after them.

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// `{a: bf16, b: bf16, c: f32}`, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dtypes(Vec<(String, String)>);

impl Dtypes {
    /// Whether no tensor has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tensor and element type, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, dtype)| (name.as_str(), dtype.as_str()))
    }

    /// The element type of a tensor.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, dtype)| dtype)
    }
}

impl Serialize for Dtypes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, dtype) in &self.0 {
            map.serialize_entry(name, dtype)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Dtypes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Dtypes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("element types by tensor, as in {x: bf16, y: f32}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Dtypes, A::Error> {
                let mut found = Dtypes::default();
                while let Some((name, dtype)) = map.next_entry::<String, String>()? {
                    if found.get(&name).is_some() {
                        return Err(A::Error::custom(format!("the tensor `{name}` has two element types")));
                    }
                    found.0.push((name, dtype));
                }
                Ok(found)
            }
        }
        from.deserialize_map(Pairs)
    }
}
