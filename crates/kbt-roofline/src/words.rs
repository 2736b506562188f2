//! Words that people write in a sheet: flags in all their spellings, and the nearest known word to one that is not known.

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// The spellings of a flag beyond `true` and `false`, those of YAML 1.1.
const FLAGS: &[(&str, bool)] = &[
    ("true", true),
    ("yes", true),
    ("on", true),
    ("y", true),
    ("false", false),
    ("no", false),
    ("off", false),
    ("n", false),
];

/// Reads a flag, written as a flag or as a word.
pub(crate) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    from.deserialize_any(Flag)
}

struct Flag;

impl Visitor<'_> for Flag {
    type Value = Option<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, yes, no, on or off")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Some(flag))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        let known = FLAGS.iter().find(|(w, _)| w.eq_ignore_ascii_case(word.trim()));
        known.map(|(_, flag)| Some(*flag)).ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
    }
}

/// Words of the field for words of a sheet.
const SYNONYMS: &[(&[&str], &str)] = &[
    (&["layernorm", "layer_norm", "rmsnorm", "rms_norm", "softmax", "norm"], "normalization"),
    (&["matmul", "mm", "bmm", "linear", "gemv"], "gemm"),
    (&["conv", "conv2d"], "convolution"),
    (&["pointwise", "map", "activation", "copy"], "elementwise"),
    (&["sdpa", "mha", "gqa", "flash_attention"], "attention"),
    (&["sum", "reduce"], "reduction"),
    (&["half"], "fp16"),
    (&["bfloat", "brain_float"], "bf16"),
    (&["float", "single"], "fp32"),
    (&["double"], "fp64"),
    (&["bf8"], "fp8_e5m2"),
    (&["coalesced", "contiguous", "sequential"], "regular"),
    (&["random", "scattered"], "irregular"),
    (&["pointer_chasing"], "dependent_chain"),
    (&["events", "cudaevents"], "cuda_events"),
    (&["ncu", "nsys"], "profiler"),
    (&["wall", "wall_clock", "host"], "host_clock"),
    (&["time_us", "latency_us", "us"], "median_us"),
];

/// Reads a list, of which a single item may stand alone.
pub(crate) fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    struct Items<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Option<Vec<T>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
            T::deserialize(word.into_deserializer()).map(|item| Some(vec![item]))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list)).map(Some)
        }
    }

    from.deserialize_any(Items(PhantomData))
}

/// The known word that a mistyped one is likely to mean.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |w: &str| w.to_lowercase().replace(['-', ' '], "_");
    let wanted = plain(word);
    let known: Vec<&str> = known.into_iter().collect();
    let same = SYNONYMS.iter().find(|(words, _)| words.contains(&wanted.as_str()));
    if let Some(meant) = same.and_then(|(_, meant)| known.iter().find(|k| *k == meant)) {
        return Some(meant);
    }
    // A third of the letters, at least one: `bf8` is not `fp64`.
    let most = (wanted.chars().count() / 3).max(1);
    let of = |w: &str| {
        let w = plain(w);
        // Half a word of many parts is a word too: `layernorm`, `warmup` of `warmup_launches`.
        let part = wanted.len() >= 4 && (w.starts_with(&wanted) || wanted.starts_with(&w) && w.len() >= 4);
        if part { 1 } else { distance(&wanted, &w) }
    };
    known.into_iter().map(|w| (of(w), w)).filter(|(d, _)| *d <= most).min_by_key(|(d, _)| *d).map(|(_, w)| w)
}

/// Letters to insert, remove, replace or swap with a neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let above = &rows[i - 1];
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// A parser's message of an unknown word with the word that was likely meant, where there is one.
#[must_use]
pub fn with_nearest(message: String) -> String {
    let Some((_, rest)) = message.split_once("unknown ") else { return message };
    let mut words = rest.split('`').skip(1).step_by(2);
    let Some(word) = words.next() else { return message };
    match nearest(word, words) {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_a_slip_away_and_no_other_word_is() {
        let of = |word, known: &[&'static str]| nearest(word, known.iter().copied());
        assert_eq!(of("medain_us", &["low_us", "median_us", "kernel_us"]), Some("median_us"));
        assert_eq!(of("cuda-events", &["cuda_graph", "cuda_events"]), Some("cuda_events"));
        assert_eq!(of("warmup", &["launches", "warmup_launches"]), Some("warmup_launches"));
        assert_eq!(of("bf61", &["bf16", "fp16"]), Some("bf16"));
        assert_eq!(of("H20O", &["H100", "H200"]), Some("H200"));
        assert_eq!(of("bf8", &["fp64", "tf32"]), None);
        assert_eq!(of("zzz", &["gemm", "attention"]), None);
        assert_eq!(distance("abc", "acb"), 1);
    }
}
