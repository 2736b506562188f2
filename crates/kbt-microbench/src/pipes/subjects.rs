//! The instructions that are mixed: a list of names, looked up in the spec of rates and in entries of this module's.

use crate::prepare::PreparedPart;
use crate::spec::{Spec, SpecError};
use kbt_device::{Arch, DeviceProfile};

/// The list that comes with the crate, and the entries that only it needs.
const EMBEDDED: (&str, &str) = (include_str!("subjects.txt"), include_str!("instructions.yaml"));

/// Cycles assumed of an instruction that a profile does not know, to plan a mix with before it is measured.
const ASSUMED_CYCLES: f64 = 2.0;

/// The embedded list's subjects for a compile target, in its order.
pub fn subjects(arch: Arch) -> Result<Vec<PreparedPart>, SpecError> {
    let mut spec = Spec::from_yaml(EMBEDDED.1, "the embedded instructions of pipes")?;
    spec.instructions.extend(Spec::embedded()?.instructions);
    select(EMBEDDED.0, "the embedded list of subjects", &spec, arch)
}

/// The entries that a list names, one a line, in its order; `#` starts a comment. Those for other targets are left out.
pub fn select(list: &str, origin: &str, spec: &Spec, arch: Arch) -> Result<Vec<PreparedPart>, SpecError> {
    let mut parts = Vec::new();
    for (at, line) in list.lines().enumerate() {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        let named = || spec.instructions.iter().filter(|e| e.name == name);
        if named().next().is_none() {
            return Err(SpecError {
                origin: origin.to_owned(),
                line: Some(at + 1),
                message: format!("`{name}` is no entry of the spec"),
            });
        }
        let entry = named().find(|e| e.is_for(arch));
        let form = entry.and_then(|e| e.chains.get("clean").or_else(|| e.chains.values().next()));
        if let Some((entry, chain)) = entry.zip(form) {
            parts.push(PreparedPart { entry: entry.clone(), chain: chain.clone(), steps: 1 });
        }
    }
    Ok(parts)
}

/// Scheduler cycles of an instruction by a profile; one that it does not know is assumed to take two.
#[must_use]
pub fn cycles_by(profile: &DeviceProfile, instruction: &str) -> f64 {
    let lanes = profile.rate(instruction).ok().and_then(|r| r.lanes_per_clk_sm);
    lanes.map_or(ASSUMED_CYCLES, |l| 128.0 / l)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_list_names_entries_that_there_are() {
        let all = subjects(Arch::SM_90A).unwrap();
        assert!(all.len() >= 40, "{}", all.len());
        let mut names: Vec<&str> = all.iter().map(|p| p.entry.name.as_str()).collect();
        assert_eq!(names[0], "lop3.b32");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "a name is listed twice");
    }

    #[test]
    fn an_unknown_name_is_an_error_with_its_line() {
        let spec = Spec::embedded().unwrap();
        let error =
            select("lop3.b32\n# more\nlop4.b32 # no such\n", "mine.txt", &spec, Arch::SM_90A).unwrap_err();
        assert_eq!(error.to_string(), "mine.txt:3: `lop4.b32` is no entry of the spec");
    }
}
