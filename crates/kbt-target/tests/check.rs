//! What a check says of a run that is not whole, and of machine code with several kernels.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use kbt_target::check::{CheckReport, FindingState, check};
use kbt_target::{ProcessLauncher, Target};
use std::path::Path;

fn checked(folder: &Path, rest: &str) -> CheckReport {
    let text =
        format!("schema: kbt.target/1\nname: k\nknobs: [{{name: N, values: [1, 2], default: 1}}]\n{rest}\n");
    let target = Target::from_yaml(&text, "k.yaml", folder).unwrap();
    check(&target, &ProcessLauncher::new(&target), &folder.join("scratch"), None).unwrap()
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
    assert!(said(&report, "triage").0 && said(&report, "handoff").0, "{report}");
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
fn of_several_kernels_the_check_names_each_and_a_kernel_that_is_none_of_them_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let ptx = ".version 8.8\n.target sm_90a\n.visible .entry scale(\n.param .u64 p)\n{ret;}\n.entry add_one()\n{ret;}\n";
    std::fs::write(folder.path().join("k.ptx"), ptx).unwrap();
    let rest = "run: {command: [sh, -c, 'echo kbt-time-us 5']}\nbuild: {command: [touch, k.ptx], artifacts: {ptx: [k.ptx]}}";
    let kernel = |report: &CheckReport| {
        report.findings.iter().find(|f| f.what == "kernel").map(|f| (f.state, f.found.clone())).unwrap()
    };
    let report = checked(folder.path(), rest);
    let (state, found) = kernel(&report);
    assert!(
        state == FindingState::Ok && found.starts_with("2 kernels: add_one, scale; no `kernel:`"),
        "{found}"
    );
    let report = checked(folder.path(), &format!("{rest}\nkernel: ^scale$"));
    assert_eq!(kernel(&report), (FindingState::Ok, "scale is studied, which `kernel:` names".into()));
    let report = checked(folder.path(), &format!("{rest}\nkernel: scael"));
    assert_eq!(
        kernel(&report),
        (FindingState::Failed, "`kernel: scael` is none of the machine code's: add_one, scale".into())
    );
    for step in ["rates", "schedule", "algebra"] {
        assert!(!said(&report, step).0, "{report}");
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
