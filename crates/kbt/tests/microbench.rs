//! `kbt microbench`: the names that scripts use, and the exit codes of what can fail, with no GPU.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a failed setup is a failed test")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn kbt(args: &[&str], cuda: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.arg("microbench").args(args);
    if let Some(folder) = cuda {
        command.env("KBT_CUDA", folder);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(args: &[&str]) -> Value {
    let ran = kbt(args, None);
    assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_table_has_the_fields_that_scripts_take() {
    let table = json(&["table", "h200-sxm", "--format", "json"]);
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.len() > 300, "{}", rows.len());
    let by = |name: &str| rows.iter().find(|r| r["instruction"] == name).unwrap();
    for field in [
        "instruction",
        "opcode",
        "lanes_per_clk_sm",
        "results_per_clk_sm",
        "latency_clk",
        "pipe",
        "provenance",
    ] {
        assert!(by("cvt.rn.bf16x2.f32").get(field).is_some(), "{field}");
    }
    assert_eq!(by("cvt.rn.bf16x2.f32")["opcode"], "F2FP.BF16.F32.PACK_AB");
    assert!(by("setp.lt.f64")["refused"].as_str().unwrap().contains("pipe"));
}

#[test]
fn published_values_stand_beside_ours_with_their_source() {
    let ran = kbt(&["table", "sm_103a", "--published"], None);
    let out = text(&ran.stdout);
    assert!(ran.status.success());
    // The methodology document's own table.
    for (instruction, published) in [
        ("cvt.rn.satfinite.e4m3x2.f32", "32.00"),
        ("cvt.rn.bf16x2.f32", "62.00"),
        ("cvt.rn.satfinite.e2m1x2.f32", "57.00"),
    ] {
        let told = |l: &&str| {
            l.starts_with(instruction) && l.contains(published) && l.contains("kernel-bottleneck-tuning")
        };
        let line = out.lines().find(told).unwrap_or_else(|| panic!("{instruction} {published}: {out}"));
        assert!(line.contains("DISAGREES"), "{line}");
    }
    let at = |what: &str| out.find(what).unwrap();
    assert!(at("DISAGREES") < at(" agrees "), "disagreements first");
}

#[test]
fn two_profiles_are_compared_and_a_missing_one_is_named() {
    let ran = kbt(&["compare", "sm_100a", "sm_103a"], None);
    let out = text(&ran.stdout);
    let doubled = out.lines().find(|l| l.starts_with("ex2.approx.ftz.f32")).unwrap();
    assert!(ran.status.success() && doubled.contains("16.00 became 32.00"), "{doubled}");
    let none = kbt(&["compare", "sm_100a", "nowhere.yaml"], None);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("nowhere.yaml") && text(&none.stderr).contains("sm_103a"));
}

#[test]
fn a_template_that_ptxas_rejects_is_told_with_its_line_and_the_others_go_on() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: not run");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = file(
        &dir,
        "mine.yaml",
        "instructions:\n  - name: bad\n    target: [FROB]\n    chains:\n      clean: {x: b32, step: \"frobnicate.b32 %x, \
         %x;\"}\n  - name: good\n    target: [PRMT]\n    chains:\n      clean: {x: b32, with: {a: b32, b: b32}, rotate: 3, \
         step: \"prmt.b32 %x, %x, %a, %b;\"}\n",
    );
    let ran = kbt(&["run", "--verify-only", "--spec", &spec], None);
    let out = text(&ran.stdout);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(out.contains("mine.yaml:2: ptxas") && out.contains("'frobnicate'"), "{out}");
    assert!(out.contains("1 of 2 instructions and mixes verified; not: bad"), "{out}");
}

#[test]
fn a_spec_that_does_not_read_is_told_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let spec = file(&dir, "mine.yaml", "instructions:\n  - name: a\n    target: [X]\n    chainz: {}\n");
    let ran = kbt(&["run", "--verify-only", "--spec", &spec], None);
    assert_eq!(ran.status.code(), Some(2));
    assert!(text(&ran.stderr).contains("mine.yaml:4") && text(&ran.stderr).contains("chainz"));
}

#[test]
fn a_toolkit_that_is_named_and_not_there_is_a_mistake_and_no_wish_to_go_without() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.yaml").display().to_string();
    let ran = kbt(&["run", "--out", &out], Some("/nowhere"));
    assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains("KBT_CUDA=/nowhere"));
    assert!(!dir.path().join("p.yaml").exists());
}

#[test]
fn counters_that_may_not_be_read_refuse_the_comparison_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let csv = file(
        &dir,
        "ncu.csv",
        "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access \
         NVIDIA GPU Performance Counters on the target device 0.\n",
    );
    let mixes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/h200-sxm/mixes.yaml");
    let out = dir.path().join("pipes.yaml").display().to_string();
    let args = ["pipes", "--profile", "h200-sxm", "--mixes", mixes, "--counters", &csv, "--out", &out];
    let ran = kbt(&args, None);
    let said = text(&ran.stdout);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(said.contains("comparison with pipe counters refused") && said.contains("MUFU.EX2"), "{said}");
}
