//! `--only`: which entries, mixes and ceilings a run takes.

use regex::Regex;

/// A regular expression over names; without one everything is taken.
#[derive(Debug, Clone, Default)]
pub struct Filter(Option<Regex>);

/// A pattern that is no regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is no regular expression: {message}")]
pub struct FilterError {
    pattern: String,
    message: String,
}

impl Filter {
    /// From the option's value.
    pub fn new(pattern: Option<&str>) -> Result<Self, FilterError> {
        let error = |pattern: &str, e: &regex::Error| FilterError {
            pattern: pattern.to_owned(),
            message: e.to_string().lines().last().unwrap_or_default().trim().to_owned(),
        };
        Ok(Self(pattern.map(|p| Regex::new(p).map_err(|e| error(p, &e))).transpose()?))
    }

    /// Whether a name is taken: an instruction's, `a+b` of a mix, `ceiling:KIND`.
    #[must_use]
    pub fn accepts(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|r| r.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_selects_and_a_broken_one_is_named() {
        let filter = Filter::new(Some("^ex2|^ceiling:")).unwrap();
        assert!(filter.accepts("ex2.approx.ftz.f32") && filter.accepts("ceiling:hbm_read"));
        assert!(!filter.accepts("max.f32") && Filter::default().accepts("anything"));
        assert!(Filter::new(Some("(")).unwrap_err().to_string().starts_with("`(` is no regular expression"));
    }
}
