//! `kbt validate` as scripts see it: exit codes, and what is named.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use kbt_tensor::{Dtype, Tensor, TensorSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code, standard output and standard error of `kbt validate ARGS`, run in `folder`.
fn validate(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    let out = command.arg("validate").args(args).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

/// Writes an output computed from an input of one value.
fn output(folder: &Path, name: &str, values: &[f32], input: f32) -> PathBuf {
    let tensor = |name: &str, values: &[f32]| {
        let mut set = TensorSet::new();
        set.insert(Tensor::from_f32(name, vec![values.len()], Dtype::F32, values).unwrap()).unwrap();
        set
    };
    let mut set = tensor("o", values);
    set.record_inputs(&tensor("q", &[input]));
    let path = folder.join(name);
    set.write_safetensors(&path).unwrap();
    path
}

#[test]
fn a_comparison_says_by_its_exit_code_whether_it_passed_failed_or_would_mislead() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name, values, input| output(folder.path(), name, values, input);
    write("saved", &[1.01, 2.0, 3.0], 1.0);
    write("same", &[1.01, 2.0, 3.0], 1.0);
    write("as-good", &[1.0, 2.01, 3.0], 1.0);
    write("worse", &[1.0, 2.1, 3.0], 1.0);
    write("other-input", &[1.01, 2.0, 3.0], 2.0);
    write("right", &[1.0, 2.0, 3.0], 1.0);
    write("blind", &[0.0; 3], 1.0);
    for (args, code, says) in [
        (&["saved", "same"][..], 0, "every bit is the same"),
        (&["saved", "as-good"], 1, "2 of 3 elements differ, the first at [0]; a reordering keeps every bit"),
        (&["saved", "as-good", "--class", "algebra", "--reference", "right"], 0, "as accurate"),
        (&["saved", "worse", "--class", "algebra", "--reference", "right"], 1, "relative RMS error"),
        (&["saved", "worse", "--class", "algebra"], 3, "no reference"),
        (&["saved", "other-input"], 3, "another input `q`"),
        (&["saved", "same", "--reference", "blind"], 3, "0 everywhere"),
        (&["saved", "none"], 2, "none"),
        (&["saved", "same", "--factor", "nan"], 2, "accepted: a finite number above 0"),
        (&["saved", "same", "--dtype", "p=e4m3"], 2, "no file has a tensor `p`"),
        (&["saved", "same", "--dtype", "o=e9"], 2, "`e9` is no element type"),
    ] {
        let (exit, out, err) = validate(folder.path(), &[&["compare"], args].concat());
        assert_eq!(exit, Some(code), "{args:?}: {out}{err}");
        assert!(format!("{out}{err}").contains(says), "{args:?}: {out}{err}");
    }
    for name in ["u1", "u2"] {
        let mut set = TensorSet::new();
        set.insert(Tensor::new(name, Dtype::U8, vec![4], vec![1, 2, 3, 0x7f]).unwrap()).unwrap();
        set.write_safetensors(&folder.path().join(name)).unwrap();
    }
    let (one, both) = (["u1", "u2", "--dtype", "u1=e4m3"], ["--dtype", "u2=e4m3"]);
    let (code, out, err) = validate(folder.path(), &[&["compare"], &one[..]].concat());
    let says = "--dtype u1=e4m3 does not reach `u2`, which is compared with it and is u8";
    assert!(code == Some(2) && out.is_empty() && err.contains(says), "{out}{err}");
    assert_eq!(validate(folder.path(), &[&["compare"], &one[..], &both[..]].concat()).0, Some(0));
    let (code, _, err) = validate(folder.path(), &["compare", "-", "-"]);
    assert!(code == Some(2) && err.contains("standard input (-) holds one file"), "{err}");
}

#[test]
fn a_tensor_without_a_partner_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, names: &[&str]| {
        let mut set = TensorSet::new();
        for name in names {
            set.insert(Tensor::from_f32(*name, vec![3], Dtype::F32, &[1.0, 2.0, 3.0]).unwrap()).unwrap();
        }
        set.write_safetensors(&folder.path().join(file)).unwrap();
    };
    for (file, names) in [("a", &["a"][..]), ("b", &["b"]), ("ab", &["a", "b"]), ("cd", &["c", "d"])] {
        write(file, names);
    }
    for (args, code, says) in [
        (&["a", "b"][..], 0, &["`a` is compared with the variant's `b`: each is the only tensor"][..]),
        (&["a", "ab"], 0, &["`b` is only in the variant's output; not compared"]),
        (&["ab", "a"], 1, &["`b` is missing from the variant's output"]),
        (&["ab", "cd"], 1, &["`a` is missing", "`b` is missing", "`c` is only in", "`d` is only in"]),
        (&["ab", "ab", "--reference", "a"], 0, &["not in the reference, so their errors are not known: `b`"]),
        (&["ab", "ab", "--reference", "cd"], 3, &["holds `c`, `d` and none of what is compared, `a`, `b`"]),
        (&["a", "a", "--reference", "b"], 0, &["every bit is the same"]),
        (&["ab", "ab", "--reference", "ab", "--baseline-seed", "cd,ab"], 2, &["another seed", "has no `a`"]),
    ] {
        let (exit, out, err) = validate(folder.path(), &[&["compare"], args].concat());
        assert_eq!(exit, Some(code), "{args:?}: {out}{err}");
        assert!(says.iter().all(|s| format!("{out}{err}").contains(s)), "{args:?}: {out}{err}");
    }
}

#[test]
fn a_pickle_that_would_run_something_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    output(folder.path(), "saved", &[1.0, 2.0], 1.0);
    std::fs::write(folder.path().join("evil.pt"), b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.")
        .unwrap();
    let (exit, _, err) = validate(folder.path(), &["compare", "saved", "evil.pt"]);
    assert_eq!(exit, Some(2));
    assert!(err.contains("evil.pt: refused: the pickle asks for `posix.system`"), "{err}");
}

/// A program whose output is wrong in the 18th of 20 runs, where its condition holds.
fn racy(condition: &str) -> String {
    format!(
        "n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count; \
         if {condition} && [ $((n % 20)) = 17 ]; then printf bad; else printf good$KBT_INPUT_SET; fi"
    )
}

#[test]
fn a_planted_race_of_one_in_twenty_is_found_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let script = racy("true");
    let (exit, out, err) = validate(folder.path(), &["flake", "--", "sh", "-c", &script]);
    assert_eq!(exit, Some(1), "{out}{err}");
    assert!(out.contains("differs from itself at run 17, input set 1"), "{out}");
    std::fs::remove_file(folder.path().join("count")).unwrap();
    let clean = racy("false");
    let (exit, out, err) = validate(folder.path(), &["flake", "--", "sh", "-c", &clean]);
    assert_eq!(exit, Some(0), "{out}{err}");
    assert!(out.contains("no difference in 60 runs: the rate is below 4.87 %"), "{out}");
    assert_eq!(std::fs::read_to_string(folder.path().join("count")).unwrap().trim(), "60");
}

#[test]
fn work_between_the_runs_that_fails_is_an_error_and_no_finding() {
    let folder = tempfile::tempdir().unwrap();
    let flake = |between: &str| {
        validate(
            folder.path(),
            &["flake", "-n", "3", "--between", between, "--", "sh", "-c", "printf $KBT_INPUT_SET"],
        )
    };
    assert_eq!(flake("echo x >> log").0, Some(0));
    assert_eq!(std::fs::read_to_string(folder.path().join("log")).unwrap(), "x\nx\n");
    let (exit, _, err) = flake("exit 4");
    assert_eq!((exit, err.contains("--between: exit code 4")), (Some(2), true), "{err}");
}

/// Whether a process lives (a zombie does not), by its number in a file.
fn lives(file: &Path) -> bool {
    let id = std::fs::read_to_string(file).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

fn within_10_s(holds: impl Fn() -> bool) -> bool {
    let start = std::time::Instant::now();
    while !holds() {
        if start.elapsed().as_secs() >= 10 {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    true
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_run_started_ends_with_it_and_with_kbt() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, background) = (folder.path(), folder.path().join("background"));
    // In a session of its own, so that no process group holds it.
    let starts = "setsid sleep 300 & echo $! > background";
    let script = format!("{starts}; printf same");
    let (exit, out, err) = validate(dir, &["flake", "-n", "3", "--sets", "1", "--", "sh", "-c", &script]);
    assert_eq!(exit, Some(0), "{out}{err}");
    assert!(!lives(&background), "left behind by a run that ended");

    std::fs::remove_file(&background).unwrap();
    let script = format!("echo $$ > leader; {starts}; sleep 300");
    let mut kbt = Command::new(env!("CARGO_BIN_EXE_kbt"))
        .args(["validate", "flake", "--", "sh", "-c", &script])
        .current_dir(dir)
        // What a kbt that was ended leaves there goes with the test's folder.
        .env("TMPDIR", dir)
        .spawn()
        .unwrap();
    let wrote = || std::fs::read_to_string(&background).is_ok_and(|text| text.ends_with('\n'));
    assert!(within_10_s(wrote));
    let leader = dir.join("leader");
    assert!(lives(&leader) && lives(&background));
    let term = Command::new("kill").args(["-s", "TERM", &kbt.id().to_string()]).status().unwrap();
    assert!(term.success());
    kbt.wait().unwrap();
    assert!(within_10_s(|| !lives(&leader) && !lives(&background)), "left behind by a kbt that was ended");
}

#[test]
fn an_input_set_has_one_reference() {
    let folder = tempfile::tempdir().unwrap();
    output(folder.path(), "a", &[1.0, 2.0], 1.0);
    let args =
        ["flake", "-n", "4", "--reference", "0=a", "--reference", "0=a", "--", "sh", "-c", "cp a $KBT_OUT"];
    let (code, out, err) = validate(folder.path(), &args);
    assert!(code == Some(2) && out.is_empty() && err.contains("input set 0 has one already"), "{out}{err}");
}

#[test]
fn the_knob_to_blame_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = "if [ $FORM = log2 ]; then printf bad; else printf good$KBT_INPUT_SET; fi";
    let knobs = ["bisect", "--knob", "SPLIT=1,2", "--knob", "FORM=linear,log2", "--knob", "REGS=1,2"];
    let (exit, out, err) = validate(folder.path(), &[&knobs[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(exit, Some(0), "{out}{err}");
    assert!(out.lines().any(|line| line.starts_with("FORM (")), "{out}");
    let unsteady = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; [ $n -lt 2 ] && printf first; printf x$KBT_INPUT_SET";
    let (exit, out, err) =
        validate(folder.path(), &["bisect", "--knob", "A=1,2", "--", "sh", "-c", unsteady]);
    assert_eq!(exit, Some(1), "{out}{err}");
    assert!(out.contains("differs from itself at run 0, input set 0"), "{out}");
    assert!(out.contains("bisect's own first run") && !out.contains("saved"), "{out}");
    for name in kbt_target::RESERVED {
        let knob = format!("{name}=1,2");
        let (exit, _, err) = validate(folder.path(), &["bisect", "--knob", &knob, "--", "sh", "-c", script]);
        assert!(exit == Some(2) && err.contains(&format!("`{name}` is set by kbt")), "{err}");
    }
    let (exit, _, err) = validate(folder.path(), &["bisect", "--knob", "A=1,1", "--", "sh", "-c", script]);
    assert!(exit == Some(2) && err.contains("knob `A` has one value"), "{err}");
}

#[test]
fn a_probe_is_written_and_its_right_output_passes() {
    let folder = tempfile::tempdir().unwrap();
    let shape = ["--keys", "64", "--heads", "1"];
    for kind in
        ["v-one", "one-hot", "two-hot", "uniform", "masked-row", "masked-group", "tie-aligned", "extremes"]
    {
        let (exit, out, err) =
            validate(folder.path(), &[&["probe", kind, "--out", "probe.safetensors"], &shape[..]].concat());
        assert_eq!(exit, Some(0), "{kind}: {out}{err}");
        // The file holds the right output under the name that a check looks for.
        let (exit, out, err) =
            validate(folder.path(), &[&["probe", kind, "--check", "probe.safetensors"], &shape[..]].concat());
        assert_eq!(exit, Some(0), "{kind}: {out}{err}");
    }
    let (exit, _, err) = validate(folder.path(), &["probe", "v-two", "--out", "x"]);
    assert_eq!((exit, err.contains("v-one one-hot")), (Some(2), true), "{err}");
}

#[test]
fn a_probe_of_many_keys_fails_an_output_that_is_scaled_and_a_log_sum_that_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let shape = ["--keys", "4096", "--queries", "8", "--heads", "1", "--dim", "64", "--dtype", "f32"];
    let probe = |args: &[&str]| validate(folder.path(), &[&["probe", "uniform"], args, &shape[..]].concat());
    assert_eq!(probe(&["--out", "probe"]).0, Some(0));
    let right = TensorSet::read(&folder.path().join("probe"), &Default::default()).unwrap();
    let values = |name: &str| right.require(name).unwrap().to_f64().unwrap();
    let write = |file: &str, o: f64, lse: Option<&dyn Fn(usize, f64) -> f64>, base: &str| {
        let mut set = TensorSet::new();
        let mut insert = |name: &str, values: Vec<f64>| {
            let shape = right.require(name).unwrap().shape().to_vec();
            set.insert(Tensor::from_f64(name, shape, &values).unwrap()).unwrap();
        };
        insert("o", values("o").iter().map(|v| o * v).collect());
        if let Some(lse) = lse {
            insert("lse", values("lse").iter().enumerate().map(|(row, l)| lse(row, *l)).collect());
        }
        set.set_metadata("lse_base", base);
        set.write_safetensors(&folder.path().join(file)).unwrap();
    };
    let natural = |_, l: f64| l;
    let base_2 = |_, l: f64| l / std::f64::consts::LN_2;
    write("right", 1.0, Some(&natural), "e");
    write("alone", 1.0, None, "e");
    write("scaled", 0.9, Some(&natural), "e");
    write("off", 1.0, Some(&|row, l| if row == 5 { 1.2 * l } else { l }), "e");
    write("base-2", 1.0, Some(&base_2), "2");
    write("mislabelled", 1.0, Some(&base_2), "e");
    write("unknown", 1.0, Some(&natural), "10");
    for (args, code, says) in [
        (&["--check", "right"][..], 0, "every log-sum is within"),
        (&["--check", "alone"], 0, "no `lse` was written, so log-sums are not checked"),
        (&["--check", "scaled"], 1, "is right (allowed"),
        (&["--check", "off"], 1, "`lse` [0, 0, 5] is 9.98"),
        (&["--check", "base-2"], 0, "every log-sum is within"),
        (&["--check", "mislabelled"], 1, "all are right to base 2"),
        (&["--check", "mislabelled", "--lse-base", "2"], 0, "every log-sum is within"),
        (&["--check", "unknown"], 2, "unknown: metadata: `lse_base` is `10`; accepted: e (natural) and 2"),
        (&["--check", "right", "--lse-base", "10"], 2, "accepted: e (natural) and 2"),
    ] {
        let (exit, out, err) = probe(args);
        assert_eq!(exit, Some(code), "{args:?}: {out}{err}");
        assert!(format!("{out}{err}").contains(says), "{args:?}: {out}{err}");
    }
}

#[test]
fn the_reference_of_the_built_in_kernel_passes_every_probe_and_makes_no_input_up() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let reference = |inputs: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
        command
            .args(["kernel", "reference", "attention"])
            .current_dir(dir)
            .env("KBT_OUT", "right.safetensors");
        command.env_remove("KBT_INPUTS").envs(inputs.map(|i| ("KBT_INPUTS", i)));
        let out = command.output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let shape = ["--keys", "48", "--queries", "32", "--heads", "4", "--heads-kv", "2", "--dim", "64"];
    for kind in ["v-one", "one-hot", "two-hot", "uniform"] {
        let (exit, _, err) =
            validate(dir, &[&["probe", kind, "--out", "inputs.safetensors"], &shape[..]].concat());
        assert_eq!(exit, Some(0), "{err}");
        assert_eq!(reference(Some(".")), (Some(0), String::new()));
        let (exit, out, err) =
            validate(dir, &[&["probe", kind, "--check", "right.safetensors"], &shape[..]].concat());
        assert_eq!(exit, Some(0), "{kind}: {out}{err}");
    }
    let (exit, err) = reference(None);
    assert!(exit == Some(2) && err.contains("KBT_INPUTS is not set"), "{err}");
    let (exit, err) = reference(Some("nowhere"));
    assert!(exit == Some(2) && err.contains("nowhere"), "{err}");
}
