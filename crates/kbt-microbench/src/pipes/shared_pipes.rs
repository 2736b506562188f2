//! Pipes that the profiler counts apart and the hardware feeds as one: a small table with sources.

use kbt_device::Arch;
use serde::Deserialize;
use std::collections::BTreeSet;

const EMBEDDED: &str = include_str!("shared_pipes.yaml");

/// Pipes that are fed as one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharedPipes {
    /// The architectures of which it is said.
    sm: Vec<u16>,
    /// Names of pipes, as counters have them.
    pipes: BTreeSet<String>,
    /// Who says so, and where.
    source: String,
}

impl SharedPipes {
    /// The embedded table's rows for an architecture.
    pub(crate) fn of(arch: Arch) -> Result<Vec<Self>, serde_yaml::Error> {
        let all: Vec<Self> = serde_yaml::from_str(EMBEDDED)?;
        Ok(all.into_iter().filter(|row| row.sm.contains(&arch.sm)).collect())
    }

    /// The pipe of the row that a counter's name is of, or of a part of.
    fn named(&self, counter: &str) -> Option<&str> {
        self.pipes.iter().map(String::as_str).find(|pipe| {
            counter.strip_prefix(pipe).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
    }

    /// Which two pipes of the row two instructions run on, where these are two, and the source.
    pub(crate) fn explain(&self, a: &BTreeSet<String>, b: &BTreeSet<String>) -> Option<String> {
        let on = |counters: &BTreeSet<String>| counters.iter().find_map(|c| self.named(c)).map(str::to_owned);
        let (a, b) = (on(a)?, on(b)?);
        (a != b).then(|| format!("{a} and {b} ({})", self.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn a_row_explains_its_own_pipes_on_its_own_architectures_and_no_others() {
        let explained = |sm: u16, a: &[&str], b: &[&str]| {
            let rows = SharedPipes::of(Arch { sm, suffix: None }).unwrap();
            rows.iter().find_map(|row| row.explain(&set(a), &set(b)))
        };
        let hmma = ["tensor", "tensor_op_hmma"];
        let said = explained(90, &hmma, &["fp64"]).unwrap();
        assert!(said.starts_with("tensor and fp64 (") && said.contains("302018/7"), "{said}");
        assert_eq!(explained(90, &["fp16"], &["fp64"]), None, "said of GA100 alone");
        assert!(explained(80, &["fp16"], &["fp64"]).is_some());
        assert_eq!(explained(90, &["fp64"], &["fp64"]), None);
        assert_eq!(explained(90, &["fp64"], &["tensorial"]), None);
        assert_eq!(explained(86, &hmma, &["fp64"]), None);
    }
}
