//! Where the nodes of a YAML text stand, by their path from the root.
//!
//! The YAML reader keeps no positions, but it states where a reading failed. A visitor that follows a path and fails at
//! its end is told the line by the reader itself: in flow collections, under quoted keys and behind anchors alike.

use crate::Scalar;
use crate::setting::ScalarThen;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// The failure that says that the end of the path was reached.
const HERE: &str = "the end of the path";
/// The failure of a key that its mapping has already; the key's path follows, in brackets that no key has.
const TWICE: (&str, &str) = ("given twice <<", ">>");

/// The line, counted from 1, of the node at a path: of its key in a mapping, of the item in a list, which the path names
/// by its number. Where there is no such node, the line of the closest one around it.
pub(crate) fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    (0..=path.len()).rev().find_map(|n| {
        let error = Seek(&path[..n]).deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
        error.location().filter(|_| error.to_string().contains(HERE)).map(|l| l.line())
    })
}

/// The first key that its mapping has twice: its path, and the line of its second place.
pub(crate) fn twice(text: &str) -> Option<(String, Option<usize>)> {
    let error = Walk("").deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    let message = error.to_string();
    let path = message.split_once(TWICE.0)?.1.rsplit_once(TWICE.1)?.0.to_owned();
    Some((path, error.location().map(|l| l.line())))
}

/// Follows a path and fails at its end.
#[derive(Clone, Copy)]
struct Seek<'p>(&'p [&'p str]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    // A node that is no collection fails with this text by itself.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { HERE } else { "a collection" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Err(A::Error::custom(HERE)) };
        // The last key of the path fails by itself, so that the line is the key's and not its value's.
        let judge = |key: Scalar| match rest.is_empty() && key.as_str() == *first {
            true => Err(HERE.to_owned()),
            false => Ok(key),
        };
        while let Some(key) = map.next_key_seed(ScalarThen(judge))? {
            if key.as_str() == *first {
                map.next_value_seed(Seek(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Err(A::Error::custom(HERE)) };
        let before = first.parse().unwrap_or(usize::MAX);
        for _ in 0..before {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        list.next_element_seed(Seek(rest))?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Walks everything below a path and fails at a key that stands twice.
#[derive(Clone, Copy)]
struct Walk<'p>(&'p str);

impl Walk<'_> {
    fn below(self, key: &str) -> String {
        if self.0.is_empty() { key.to_owned() } else { format!("{}.{key}", self.0) }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any node")
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        let judge = |seen: &BTreeSet<Scalar>, key: Scalar| match seen.contains(&key) {
            true => Err(format!("{}{}{}", TWICE.0, self.below(key.as_str()), TWICE.1)),
            false => Ok(key),
        };
        while let Some(key) = map.next_key_seed(ScalarThen(|key| judge(&seen, key)))? {
            map.next_value_seed(Walk(&self.below(key.as_str())))?;
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for n in 0.. {
            if list.next_element_seed(Walk(&self.below(&n.to_string())))?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# schema: x\nabout: run and name\nrun:\n  # command: none\n  command: [./k,\n    '{N}']\n  \
                        env: {A: '1',\n    \"B\": 2}\nknobs:\n- name: N\n  values:\n  - 1\n  - 2\n-   name: T\n    \
                        default: |\n      name: x\n";

    #[test]
    fn a_node_is_found_by_its_path_and_not_by_what_stands_in_comments_and_texts() {
        for (path, line) in [
            (&["run"][..], 3),
            (&["run", "command"], 5),
            (&["run", "command", "0"], 5),
            (&["run", "command", "1"], 6),
            (&["run", "env", "A"], 7),
            (&["run", "env", "B"], 8),
            (&["run", "env", "C"], 7),
            (&["knobs", "0", "name"], 10),
            (&["knobs", "0", "values", "1"], 13),
            (&["knobs", "1"], 14),
            (&["knobs", "1", "default"], 15),
            (&["knobs", "1", "default", "name"], 15),
            (&["knobs", "7"], 9),
            (&["about", "deep"], 2),
            (&["nothing"], 2),
        ] {
            assert_eq!(line_of(TEXT, path), Some(line), "{path:?}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_named_with_the_line_of_its_second_place() {
        assert_eq!(twice(TEXT), None);
        for (text, path, line) in [
            ("a: 1\nb: 2\na: 3\n", "a", 3),
            ("a:\n  b: {x: 1, y: 2,\n    x: 3}\n", "a.b.x", 3),
            ("a:\n- {x: 1}\n- x: 1\n  x: 2\n", "a.1.x", 4),
            ("a:\n  1: x\n  '1': y\n", "a.1", 3),
        ] {
            assert_eq!(twice(text), Some((path.to_owned(), Some(line))), "{text}");
        }
    }
}
