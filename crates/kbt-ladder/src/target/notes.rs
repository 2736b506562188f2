//! What is not this build's must not bind: a step that rests on stale machine code says so, and its verdicts stay open.

use super::TargetTuner;
use crate::steps::{Outcome, output};
use crate::{Origin, StepFailure, StepOutput};
use kbt_device::Arch;
use kbt_evidence::{Evidence, Standing, Verdict};
use std::path::Path;

impl TargetTuner<'_> {
    /// A step's output with the notes that its reader must have beside it.
    pub(super) fn noted<T: Outcome>(
        &self,
        outcome: &T,
        stale: Option<&str>,
        notes: &[String],
    ) -> Result<StepOutput, StepFailure> {
        let mut out = output(Origin::Live, outcome)?;
        for note in notes {
            out.headline += &format!("; {note}");
        }
        if let Some(why) = stale {
            out.headline += &format!("; of STALE machine code: {why}");
            out.verdicts = out.verdicts.into_iter().map(|v| softened(v, why)).collect();
        }
        Ok(out)
    }
}

/// A verdict whose next command names this kernel's PTX and target, where it named any.
pub(super) fn with_file(mut verdict: Verdict, ptx: Option<&Path>, arch: Arch) -> Verdict {
    if let (Some(next), Some(ptx)) = (&verdict.next, ptx) {
        let path = ptx.display().to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=@%:,".contains(c);
        let word = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', "'\\''")) };
        verdict.next =
            Some(next.replace("FILE.ptx", &word).replace("--arch ARCH", &format!("--arch {arch}")));
    }
    verdict
}

/// A verdict on machine code that may be another build's: open, whatever it was.
fn softened(mut verdict: Verdict, why: &str) -> Verdict {
    if matches!(verdict.standing, Standing::RuledOut | Standing::Recommended) {
        verdict.reason = format!("{}, in machine code that may be another build's", verdict.reason);
        verdict.standing = Standing::Open;
    }
    let verdict = verdict.with(Evidence::against(format!("the machine code is stale: {why}"), Vec::new()));
    verdict.next("build the target from scratch and run the ladder again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::{FixClass, Step};

    #[test]
    fn the_next_command_names_this_kernels_file() {
        let next = |file: Option<&str>| {
            let open = Verdict::new(FixClass::RegisterBudget, Standing::Open, Step::Schedule, "so");
            let open = open.next("kbt sass regs FILE.ptx --arch ARCH sweeps the budgets");
            with_file(open, file.map(Path::new), "sm_90a".parse().unwrap()).next.unwrap()
        };
        assert_eq!(
            next(Some("run/code/0-k.ptx")),
            "kbt sass regs run/code/0-k.ptx --arch sm_90a sweeps the budgets"
        );
        assert_eq!(
            next(Some("a run/it's")),
            r"kbt sass regs 'a run/it'\''s' --arch sm_90a sweeps the budgets"
        );
        assert_eq!(next(None), "kbt sass regs FILE.ptx --arch ARCH sweeps the budgets");
    }

    #[test]
    fn nothing_stale_rules_out_or_recommends() {
        for (standing, expect) in [
            (Standing::RuledOut, Standing::Open),
            (Standing::Recommended, Standing::Open),
            (Standing::Refused, Standing::Refused),
        ] {
            let verdict = softened(Verdict::new(FixClass::Reorder, standing, Step::Schedule, "so"), "old");
            assert_eq!(verdict.standing, expect);
            assert!(verdict.evidence.iter().any(|e| e.statement.contains("old")));
        }
    }
}
