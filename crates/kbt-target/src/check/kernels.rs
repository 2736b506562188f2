//! Which of the kernels in a target's machine code is the one that the ladder studies.

use super::{Finding, FindingState};
use crate::Target;

/// Which of several kernels is studied, and whether `kernel:` names one that is there.
pub(super) fn chosen(target: &Target, kernels: &[String]) -> Option<Finding> {
    let finding = |ok, found| Finding {
        what: "kernel".into(),
        state: FindingState::of(ok),
        found,
        figures: Vec::new(),
    };
    let all = kernels.join(", ");
    match target.kernel.as_deref() {
        _ if kernels.is_empty() => None,
        None if kernels.len() == 1 => None,
        None => Some(finding(
            true,
            format!(
                "{} kernels: {all}; no `kernel:`, so the one with the most instructions is studied",
                kernels.len()
            ),
        )),
        Some(pattern) => {
            // Whether it is a regular expression was asked when the file was read.
            let pattern_of = regex::Regex::new(pattern).ok()?;
            let taken: Vec<&str> =
                kernels.iter().map(String::as_str).filter(|k| pattern_of.is_match(k)).collect();
            Some(match taken.as_slice() {
                [] => finding(false, format!("`kernel: {pattern}` is none of the machine code's: {all}")),
                [one] => finding(true, format!("{one} is studied, which `kernel:` names")),
                several => finding(
                    true,
                    format!(
                        "{}; of what `kernel: {pattern}` names the one with the most instructions is studied",
                        several.join(", ")
                    ),
                ),
            })
        }
    }
}
