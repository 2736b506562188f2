//! Which line of a block-style YAML file holds which key. The YAML parser keeps no positions, and a number
//! given by a user is known by its file and line.

use std::collections::HashMap;

/// Lines (from 1) by dotted key path, list items by index: `timing.median_us`, `ceilings.0.kind`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LineIndex {
    lines: HashMap<String, usize>,
    /// Keys that stand twice: path, first line, second line.
    twice: Vec<(String, usize, usize)>,
}

impl LineIndex {
    /// Indexes a text. Flow collections and block scalars cost precision, never a wrong key above them.
    pub(crate) fn of(text: &str) -> Self {
        let mut found: HashMap<String, usize> = HashMap::new();
        let mut twice = Vec::new();
        // (indent of the key, path) of the mappings and list items that are open.
        let mut open: Vec<(usize, String)> = Vec::new();
        let mut items: HashMap<String, usize> = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let body = line.trim_start();
            if body.is_empty() || body.starts_with('#') {
                continue;
            }
            let mut indent = line.len() - body.len();
            let mut rest = body;
            while let Some(item) =
                rest.strip_prefix("- ").or_else(|| (rest == "-").then_some(rest).map(|_| ""))
            {
                // A list may be indented like its key: its items belong to that key all the same.
                open.retain(|(i, path)| {
                    *i < indent || (*i == indent && !path.ends_with(|c: char| c.is_ascii_digit()))
                });
                let parent = open.last().map_or("", |(_, path)| path.as_str()).to_owned();
                let index = items.entry(parent.clone()).or_insert(0);
                let path = join(&parent, &index.to_string());
                *index += 1;
                found.entry(path.clone()).or_insert(number + 1);
                open.push((indent, path));
                let inner = item.trim_start();
                indent += rest.len() - inner.len();
                rest = inner;
            }
            if let Some(key) = key_of(rest) {
                open.retain(|(i, _)| *i < indent);
                let path = join(open.last().map_or("", |(_, path)| path.as_str()), key);
                let first = *found.entry(path.clone()).or_insert(number + 1);
                if first != number + 1 {
                    twice.push((path.clone(), first, number + 1));
                }
                open.push((indent, path));
            }
        }
        Self { lines: found, twice }
    }

    /// A key that stands twice, of those that `of` picks by their paths: its path, its first and its second line.
    pub(crate) fn twice(&self, of: impl Fn(&str) -> bool) -> Option<&(String, usize, usize)> {
        self.twice.iter().find(|(path, ..)| of(path))
    }

    /// The line of a path, or of the closest thing around it.
    pub(crate) fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

/// The key of a `key: value` line.
fn key_of(text: &str) -> Option<&str> {
    let (key, after) = text.split_once(':')?;
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.\"'".contains(c));
    (plain && (after.is_empty() || after.starts_with(' '))).then(|| key.trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lists_and_comments_are_placed_and_an_unknown_key_takes_its_section() {
        let text = "# head\ntiming:\n  median_us: 3  # us\n\nceilings:\n- kind: a\n  bytes_per_s: 1\n- kind: b\n\
                    profiler:\n  metrics:\n    dram__bytes.sum: 4\n  rules:\n    - one\n";
        let index = LineIndex::of(text);
        for (path, line) in [
            ("timing", Some(2)),
            ("timing.median_us", Some(3)),
            ("timing.high_us", Some(2)),
            ("ceilings.0.bytes_per_s", Some(7)),
            ("ceilings.1.kind", Some(8)),
            ("profiler.metrics.dram__bytes.sum", Some(11)),
            ("profiler.rules.0", Some(13)),
            ("device", None),
        ] {
            assert_eq!(index.line(path), line, "{path}");
        }
    }
}
