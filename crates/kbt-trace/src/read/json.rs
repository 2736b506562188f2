//! JSON that may end early: what came before the cut is read, and the cut is said.

use crate::TraceError;
use serde::de::DeserializeOwned;

/// Reads a value; where the text ends inside it, its whole objects and lists before the cut, and where that is.
pub(super) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
    name: &str,
) -> Result<(T, Option<String>), TraceError> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok((value, None)),
        Err(error) => error,
    };
    if error.is_eof()
        && let Some((whole, kept)) = repaired(bytes)
        && let Ok(value) = serde_json::from_slice(&whole)
    {
        return Ok((value, Some(format!("at offset {} of JSON; read up to offset {kept}", bytes.len()))));
    }
    Err(TraceError::json(name)(error))
}

/// Whether the text has `word` in it anywhere.
pub(super) fn mentions(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|w| w == word.as_bytes())
}

/// The text up to the end of its last whole object or list, with what is open there closed; and how much was kept.
/// `None` where nothing is whole yet.
fn repaired(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut open: Vec<u8> = Vec::new();
    // After the last closing bracket only opening ones follow, so that what was open there still lies at the bottom.
    let mut kept = None;
    let (mut in_string, mut escaped) = (false, false);
    for (index, &byte) in bytes.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' => {
                if open.pop() != Some(byte) {
                    return None;
                }
                kept = Some((index + 1, open.len()));
            }
            _ => {}
        }
    }
    let (end, depth) = kept?;
    let mut whole = bytes[..end].to_vec();
    whole.extend(open[..depth].iter().rev());
    Some((whole, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn cut(text: &str) -> Result<String, String> {
        let parsed = parse::<Value>(text.as_bytes(), "a");
        parsed.map(|(value, _)| value.to_string()).map_err(|e| e.to_string())
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
        for text in [r#"{"a":[1}"#, "[1,,", "{]", "[{}] x", "nul"] {
            assert!(cut(text).is_err(), "{text}");
        }
    }
}
