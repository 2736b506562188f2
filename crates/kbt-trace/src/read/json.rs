//! JSON that may end early, or have the NaN and Infinity of Python's json: what is left is read, and what is not is said.

use crate::{ProblemKind, Problems, TraceError};
use serde::de::DeserializeOwned;
use std::ops::Range;

/// Reads a value. Where the text ends inside it, its whole objects and lists before the cut; where it has numbers that
/// JSON has no words for, null in their place. Both are counted, with the place.
pub(super) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
    name: &str,
    problems: &mut Problems,
) -> Result<T, TraceError> {
    let mut error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let words = not_numbers(bytes);
    let mut says = |words: &[Range<usize>]| {
        let count = words.len() as u64;
        problems.add(ProblemKind::NotANumber, None, count, || place(bytes, words[0].start));
    };
    if !words.is_empty() {
        match serde_json::from_slice(&with_nulls(bytes, &words)) {
            Ok(value) => {
                says(&words);
                return Ok(value);
            }
            // Any other error would name a place in the changed text.
            Err(cut) if cut.is_eof() => error = cut,
            Err(_) => {}
        }
    }
    if error.is_eof()
        && let Some((end, close)) = repaired(bytes)
    {
        let words: Vec<_> = words.into_iter().filter(|word| word.end <= end).collect();
        let mut whole = with_nulls(&bytes[..end], &words);
        whole.extend(close);
        if let Ok(value) = serde_json::from_slice(&whole) {
            says(&words);
            problems.add(ProblemKind::Truncated, None, 1, || {
                format!("at offset {} of JSON; read up to offset {end}", bytes.len())
            });
            return Ok(value);
        }
    }
    Err(TraceError::json(name)(error))
}

/// Where the text has one of the words that Python's json writes for floats that are no numbers.
fn not_numbers(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut before = b' ';
    outside_strings(bytes, |at, byte| {
        let starts = !before.is_ascii_alphanumeric() && before != b'-';
        before = byte;
        let words: &[&[u8]] = if starts { &[b"NaN", b"Infinity", b"-Infinity"] } else { &[] };
        if let Some(word) = words.iter().find(|word| bytes[at..].starts_with(word)) {
            let end = at + word.len();
            if bytes.get(end).is_none_or(|next| !next.is_ascii_alphanumeric()) {
                found.push(at..end);
            }
        }
    });
    found
}

/// The text with null in place of these words.
fn with_nulls(bytes: &[u8], words: &[Range<usize>]) -> Vec<u8> {
    let (mut text, mut from) = (Vec::with_capacity(bytes.len() + words.len()), 0);
    for word in words {
        text.extend_from_slice(&bytes[from..word.start]);
        text.extend_from_slice(b"null");
        from = word.end;
    }
    text.extend_from_slice(&bytes[from..]);
    text
}

/// A place in the text as an editor and as a program finds it.
fn place(bytes: &[u8], offset: usize) -> String {
    let before = &bytes[..offset];
    let line = before.iter().filter(|&&c| c == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&c| c != b'\n').count() + 1;
    format!("first at line {line}, column {column}, offset {offset}")
}

/// Calls `each` with every byte that is in no string, and with those that begin and end one, and its offset.
fn outside_strings(bytes: &[u8], mut each: impl FnMut(usize, u8)) {
    let (mut in_string, mut escaped) = (false, false);
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                in_string = !in_string;
                each(index, byte);
            }
            _ if in_string => {}
            _ => each(index, byte),
        }
    }
}

/// Whether the text has `word` in it anywhere.
pub(super) fn mentions(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|w| w == word.as_bytes())
}

/// The offset after its last whole object or list, and the brackets that close what is open there. `None` where nothing
/// is whole yet.
fn repaired(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let mut open: Vec<u8> = Vec::new();
    // After the last closing bracket only opening ones follow, so that what was open there still lies at the bottom.
    let (mut kept, mut sound) = (None, true);
    outside_strings(bytes, |index, byte| match byte {
        b'{' => open.push(b'}'),
        b'[' => open.push(b']'),
        b'}' | b']' => {
            sound &= open.pop() == Some(byte);
            kept = Some((index + 1, open.len()));
        }
        _ => {}
    });
    let (end, depth) = kept.filter(|_| sound)?;
    open.truncate(depth);
    open.reverse();
    Some((end, open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn cut(text: &str) -> Result<String, String> {
        let parsed = parse::<Value>(text.as_bytes(), "a", &mut Problems::default());
        parsed.map(|value| value.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_whole_before_the_cut_is_read() {
        let whole = r#"{"a":[{"n":"}]\""},{"n":2}],"b":[[1],[2]]}"#;
        assert_eq!(cut(whole).unwrap(), whole);
        for end in 0..whole.len() {
            let read = cut(&whole[..end]);
            let expected = match end {
                0..18 => None,
                18..26 => Some(r#"{"a":[{"n":"}]\""}]}"#),
                26..36 => Some(r#"{"a":[{"n":"}]\""},{"n":2}]}"#),
                36..40 => Some(r#"{"a":[{"n":"}]\""},{"n":2}],"b":[[1]]}"#),
                _ => Some(r#"{"a":[{"n":"}]\""},{"n":2}],"b":[[1],[2]]}"#),
            };
            assert_eq!(read.ok().as_deref(), expected, "{}", &whole[..end]);
        }
    }

    #[test]
    fn what_is_wrong_before_the_end_stays_an_error() {
        for text in
            [r#"{"a":[1}"#, "[1,,", "{]", "[{}] x", "nul", "[NaNs]", "[--Infinity]", "[NaN}", "[NaN NaN]"]
        {
            assert!(cut(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_null_and_counted_with_its_place() {
        for (text, value, count, at) in [
            (
                "[1,\n {\"a\": NaN, \"NaN\": \"\\\"NaN\"}]",
                r#"[1,{"a":null,"NaN":"\"NaN"}]"#,
                1,
                "line 2, column 8, offset 11",
            ),
            ("[NaN,-Infinity,Infinity]", "[null,null,null]", 3, "line 1, column 2, offset 1"),
            ("NaN", "null", 1, "line 1, column 1, offset 0"),
            // Of a text that is cut, what was read is counted alone.
            ("[[NaN],[2],[NaN", "[[null],[2]]", 1, "line 1, column 3, offset 2"),
        ] {
            let mut problems = Problems::default();
            let read: Value = parse(text.as_bytes(), "a", &mut problems).unwrap();
            let expected: Value = serde_json::from_str(value).unwrap();
            assert_eq!(read, expected, "{text}");
            assert_eq!(problems.count(ProblemKind::NotANumber), count, "{text}");
            assert!(problems.list().iter().any(|p| p.says.contains(at)), "{:?}", problems.list());
        }
        let error = cut("[NaN, tru, 1]").unwrap_err();
        assert!(error.contains("line 1 column 2"), "{error}");
    }
}
