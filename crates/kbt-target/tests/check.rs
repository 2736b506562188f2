//! What a check says of a run that is not whole, and of machine code with several kernels.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

mod readers;

use kbt_evidence::Step;
use kbt_target::check::{CheckReport, FindingState, check};
use kbt_target::{ProcessLauncher, Target};
use std::path::Path;

fn checked(folder: &Path, rest: &str) -> CheckReport {
    let text =
        format!("schema: kbt.target/1\nname: k\nknobs: [{{name: N, values: [1, 2], default: 1}}]\n{rest}\n");
    let target = Target::from_yaml(&text, "k.yaml", folder).unwrap();
    let fake = readers::Fake { nowhere: Some(Step::Handoff), ..readers::Fake::default() };
    check(&target, &ProcessLauncher::new(&target), &folder.join("scratch"), &fake).unwrap()
}

fn said(report: &CheckReport, step: &str) -> (bool, String) {
    let ability = report.steps.iter().find(|a| a.step.as_str() == step).unwrap();
    (ability.ready, ability.why.clone())
}

#[test]
fn a_run_with_a_time_and_no_outputs_is_timed_and_one_that_fails_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let report =
        checked(folder.path(), "outputs: [{name: y}]\nrun: {command: [sh, -c, 'echo kbt-time-us 5']}");
    assert_eq!(report.state(), FindingState::Failed);
    assert!(said(&report, "triage").0, "{report}");
    assert_eq!(
        said(&report, "validate"),
        (false, "needs `outputs:` and a run that writes them to KBT_OUT".into())
    );
    let report = checked(folder.path(), "run: {command: [sh, -c, 'echo kbt-time-us 5; exit 1']}");
    for step in ["triage", "handoff", "rates"] {
        let (ready, why) = said(&report, step);
        assert!(!ready && why.starts_with("the run failed: exit code 1; "), "{step}: {why}");
    }
}

#[test]
fn what_cannot_be_read_is_not_ready_and_the_check_fails() {
    for (word, state) in [("good", FindingState::Ok), ("bad", FindingState::Failed)] {
        let folder = tempfile::tempdir().unwrap();
        let rest = format!(
            "outputs: [{{name: y}}]\ntrace: {{format: f, levels: {{coarse: {{}}}}}}\n\
             build: {{command: [sh, -c, 'echo .version .target {word} > k.ptx'], artifacts: {{ptx: [k.ptx]}}}}\n\
             run: {{command: [sh, -c, 'echo kbt-time-us 5; for f in $KBT_OUT $KBT_TRACE_OUT; do echo {word} > $f; done']}}"
        );
        let report = checked(folder.path(), &rest);
        assert_eq!(report.state(), state, "{report}");
        for step in ["rates", "schedule", "trace", "validate"] {
            assert_eq!(said(&report, step).0, word == "good", "{step}: {report}");
        }
        for what in ["machine code", "kernel", "outputs", "trace coarse"] {
            let of = |f: &&kbt_target::check::Finding| f.what == what;
            assert_eq!(report.findings.iter().find(of).unwrap().state, state, "{what}: {report}");
        }
        assert_eq!(said(&report, "algebra").0, word == "good", "{report}");
        assert_eq!(said(&report, "handoff"), (false, "a model".to_owned()));
    }
}

#[test]
fn the_fork_s_target_keeps_its_machine_code_in_the_folder_of_the_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../targets/flash-attention-fp4.yaml");
    let target = Target::load(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr/bin/env", folder.path().join("python3")).unwrap();
    std::fs::create_dir(folder.path().join("benchmarks")).unwrap();
    let shown = "#!/bin/sh\necho dump=$CUTE_DSL_DUMP_DIR keep=$CUTE_DSL_KEEP\n";
    let script = folder.path().join("benchmarks/bench_fp4.py");
    std::fs::write(&script, shown).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (dump, told) in [("/of/this/one", "dump=/of/this/one keep=ptx,cubin\n"), ("", "dump= keep=\n")] {
        let mut command = std::process::Command::new(&target.run.command[0]);
        command.args(&target.run.command[1..]).current_dir(folder.path()).env("KBT_DUMP", dump);
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let output = command.env("PATH", path).env_remove("CUTE_DSL_KEEP").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), told);
    }
}
