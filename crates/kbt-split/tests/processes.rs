//! Sweeps over real processes that leave behind what no kernel should.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_split::outcome::SplitOutcome;
use kbt_split::{Choice, SameBytes, Space, Spec, Sweep};
use kbt_target::{ProcessLauncher, Target, TimingPolicy};
use std::path::Path;

/// A sweep of `N` from 0 to `last`, each run by the script; everything there is done when it comes back.
fn sweep(folder: &Path, script: &str, last: usize) -> SplitOutcome {
    std::fs::write(folder.join("run.sh"), script).unwrap();
    let values = (0..=last).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "schema: kbt.target/1\nname: sh\nrun: {{command: [sh, run.sh]}}\nknobs:\n  - {{name: N, values: [{values}], \
         default: 0}}\noutputs: [{{name: o}}]\nlimits: {{cooldown_s: 0}}\n"
    );
    let target = Target::from_yaml(&text, "sh.yaml", folder).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let timing = TimingPolicy { min_blocks: 2, max_blocks: 2, resamples: 50, ..TimingPolicy::default() };
    let spec = Spec::new(target.clone(), space, timing);
    let launcher = ProcessLauncher::new(&target);
    Sweep::prepare(&folder.join("out"), spec, true, &launcher, &SameBytes).unwrap().run().unwrap()
}

#[test]
fn what_is_no_file_in_the_place_of_the_outputs_is_the_point_s_own_failure() {
    let folder = tempfile::tempdir().unwrap();
    let script = "if [ -n \"$KBT_OUT\" ]; then case $N in\n\
                  1) mkdir -p $KBT_OUT/deep;;\n2) ln -s / $KBT_OUT;;\n3) mkfifo $KBT_OUT;;\n\
                  4) mkdir $KBT_OUT; exit 7;;\n5) ln -s /nowhere $KBT_OUT;;\n*) echo o > $KBT_OUT;;\nesac; fi\n\
                  echo kbt-time-us 10\n";
    let outcome = sweep(folder.path(), script, 6);
    let why = |n: usize| outcome.points[n].status.why().unwrap_or("timed").to_owned();
    for n in [1, 2, 3] {
        assert!(
            why(n).contains("made something else of") && why(n).contains("out.safetensors"),
            "{}",
            why(n)
        );
    }
    assert_eq!((why(4).as_str(), why(0), why(6)), ("exit code 7", "timed".into(), "timed".into()));
    assert!(why(5).starts_with("wrote no"), "{}", why(5));
    assert_eq!(sweep(folder.path(), script, 6).points, outcome.points);
}
