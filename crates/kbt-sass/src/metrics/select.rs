//! Which functions and which parts of them are looked at.

use super::Analysis;
use crate::Interval;
use crate::outcome::{Section, SectionKind};
use regex_lite::Regex;
use std::ops::Range;

/// A choice of functions and of parts. The default is everything.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Functions whose name matches.
    pub function: Option<Regex>,
    /// Regions, loops and blocks whose name matches.
    pub region: Option<Regex>,
    /// Instructions at these addresses.
    pub addresses: Option<Range<u64>>,
    /// Instructions from these source lines of a file whose path ends so (any file if empty).
    pub lines: Option<LineRange>,
}

/// A range of source lines, both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRange {
    /// The end of the file's path; empty for any file.
    pub file: String,
    /// The first line.
    pub first: u32,
    /// The last line.
    pub last: u32,
}

/// Text that selects nothing that could exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// Not a regular expression.
    #[error("{option} `{text}` is no regular expression: {reason}")]
    Regex {
        /// The option it was given for.
        option: &'static str,
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not a range of addresses or lines.
    #[error("`{0}` is no range; expected addresses 0x160..0x640 or lines FILE:12-40 or 12-40")]
    Range(String),
}

/// A regular expression, for the option named.
pub fn pattern(option: &'static str, text: &str) -> Result<Regex, SelectionError> {
    Regex::new(text).map_err(|e| SelectionError::Regex {
        option,
        text: text.to_owned(),
        reason: e.to_string(),
    })
}

/// `0x160..0x640`, end excluded.
pub fn address_range(text: &str) -> Result<Range<u64>, SelectionError> {
    let hex = |t: &str| u64::from_str_radix(t.trim().strip_prefix("0x")?, 16).ok();
    let range = text.split_once("..").and_then(|(a, b)| Some(hex(a)?..hex(b)?));
    range.filter(|r| !r.is_empty()).ok_or_else(|| SelectionError::Range(text.to_owned()))
}

/// `k.cu:12-40`, `12-40` or `k.cu:12`.
pub fn line_range(text: &str) -> Result<LineRange, SelectionError> {
    let (file, lines) = text.rsplit_once(':').unwrap_or(("", text));
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(LineRange { file: file.to_owned(), first, last }),
        _ => Err(SelectionError::Range(text.to_owned())),
    }
}

impl Selection {
    /// Whether a function is looked at.
    #[must_use]
    pub fn takes_function(&self, name: &str) -> bool {
        self.function.as_ref().is_none_or(|f| f.is_match(name))
    }

    /// The part of a function that the address and line ranges leave, if there are any.
    #[must_use]
    pub fn range(&self, analysis: &Analysis<'_>) -> Option<Interval> {
        if self.addresses.is_none() && self.lines.is_none() {
            return None;
        }
        let insns = &analysis.function.instructions;
        let whole = analysis.whole();
        let keep = whole.indices().filter(|i| {
            let here = insns.get(*i);
            let at = here.is_some_and(|h| self.addresses.as_ref().is_none_or(|r| r.contains(&h.address)));
            let line = here.and_then(|h| h.line.as_ref());
            at && self.lines.as_ref().is_none_or(|range| {
                line.is_some_and(|l| {
                    l.file.ends_with(&range.file) && (range.first..=range.last).contains(&l.line)
                })
            })
        });
        Some(Interval::new(keep.map(|i| i..i + 1)))
    }

    /// Takes out of a function's section what is not selected. False where nothing of it is left.
    pub(super) fn narrow(&self, analysis: &Analysis<'_>, section: &mut Section) -> bool {
        if let Some(range) = self.range(analysis) {
            let mut part = analysis.count(&section.name, SectionKind::Range, &range);
            part.arch = section.arch;
            let selected = part.instructions > 0;
            *section = part;
            return selected;
        }
        let Some(region) = &self.region else { return true };
        let keep = |list: &mut Vec<Section>| list.retain(|s| region.is_match(&s.name));
        keep(&mut section.loops);
        keep(&mut section.blocks);
        for role in &mut section.regions {
            if !region.is_match(&role.name) {
                keep(&mut role.loops);
            }
        }
        section.regions.retain(|r| region.is_match(&r.name) || !r.loops.is_empty());
        !(section.loops.is_empty() && section.blocks.is_empty() && section.regions.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_nonsense_says_what_would_be_accepted() {
        assert_eq!(address_range("0x160..0x640"), Ok(0x160..0x640));
        let lines = line_range("dir/k.cu:12-40").unwrap();
        assert_eq!((lines.file.as_str(), lines.first, lines.last), ("dir/k.cu", 12, 40));
        assert_eq!(line_range("7").unwrap().last, 7);
        for text in ["", "0x10..0x10", "16..32", "0x20..0x10"] {
            assert!(address_range(text).unwrap_err().to_string().contains("0x160..0x640"), "{text}");
        }
        for text in ["", "k.cu:", "9-3", "a-b"] {
            assert!(line_range(text).is_err(), "{text}");
        }
    }
}
