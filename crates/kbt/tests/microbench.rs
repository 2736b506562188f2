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
    assert_eq!(ran.status.code(), Some(1), "one of the two failed: {}", text(&ran.stderr));
    assert!(out.contains("mine.yaml:5: ptxas") && out.contains("'frobnicate', in `frobnicate.b32"), "{out}");
    assert!(!out.contains("kernel.ptx"), "{out}");
    assert!(out.contains("1 of 2 instructions and mixes verified; not: bad"), "{out}");
}

#[test]
fn a_virtual_architecture_is_refused_with_the_target_to_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.yaml").display().to_string();
    let ran = kbt(&["mine", "--arch", "compute_90a", "--out", &out], None);
    assert_eq!(ran.status.code(), Some(2));
    let told = text(&ran.stderr);
    assert!(told.contains("virtual architecture") && told.contains("for example sm_90a"), "{told}");
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

/// A spec of one good entry with more keys.
fn spec(dir: &tempfile::TempDir, keys: &str) -> String {
    let text = format!(
        "instructions:\n  - name: good\n    target: [PRMT]\n{keys}    chains:\n      clean: {{x: b32, with: {{a: b32, b: b32}}, \
         rotate: 3, step: \"prmt.b32 %x, %x, %a, %b;\"}}\n"
    );
    file(dir, "mine.yaml", &text)
}

#[test]
fn results_that_are_no_number_are_told_with_their_line_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.yaml").display().to_string();
    for results in [".nan", "-3", "0", ".inf"] {
        let spec = spec(&dir, &format!("    results: {results}\n"));
        let ran = kbt(&["mine", "--arch", "sm_90a", "--spec", &spec, "--out", &out], None);
        assert_eq!(ran.status.code(), Some(2), "{results}: {}", text(&ran.stderr));
        let told = text(&ran.stderr);
        assert!(told.contains("mine.yaml:2: `good`: results is") && told.contains("above 0"), "{told}");
        assert!(!dir.path().join("p.yaml").exists());
    }
}

#[test]
fn what_has_no_row_says_why_and_what_would_have_one() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: what_has_no_row_says_why_and_what_would_have_one not run");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.yaml").display().to_string();
    let mine = |arch: &str, spec: &str, more: &[&str]| {
        let args = [&["mine", "--arch", arch, "--spec", spec, "--out", &out], more].concat();
        let ran = kbt(&args, None);
        (ran.status.code(), text(&ran.stderr))
    };
    let newer = spec(&dir, "    sm: 100\n");
    let (code, told) = mine("sm_90a", &newer, &[]);
    assert_eq!(code, Some(2));
    assert!(told.contains("are for sm_100 and newer, and --arch is sm_90a"), "{told}");
    let only = spec(&dir, "    only: [100a]\n");
    let (code, told) = mine("sm_90a", &only, &[]);
    assert_eq!(code, Some(2));
    assert!(told.contains("none of its entries is for sm_90a; others only: good"), "{told}");
    let good = spec(&dir, "");
    let (code, told) = mine("sm_90a", &good, &["--only", "^zzz"]);
    assert_eq!(code, Some(2));
    assert!(told.contains("--only matches no entry"), "{told}");
    let empty = file(&dir, "empty.yaml", "instructions: []\n");
    let (code, told) = mine("sm_90a", &empty, &[]);
    assert_eq!(code, Some(2));
    assert!(told.contains("empty.yaml: no entries"), "{told}");
    // A target that the compiler does not know is one refusal.
    let (code, told) = mine("sm_99", &good, &[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("does not assemble for sm_99") && told.lines().count() < 3, "{told}");
    assert!(!dir.path().join("p.yaml").exists());
    let ran = kbt(&["run", "--verify-only", "--arch", "sm_99", "--spec", &good], None);
    assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stderr));
    let ran = kbt(&["run", "--verify-only", "--arch", "sm_90a", "--spec", &good], None);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
}

#[test]
fn an_entry_for_another_target_is_named_beside_the_rows() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: an_entry_for_another_target_is_named_beside_the_rows not run");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let chains = "    chains:\n      clean: {x: b32, with: {a: b32, b: b32}, rotate: 3, step: \"prmt.b32 %x, %x, %a, %b;\"}\n";
    let both = format!(
        "instructions:\n  - name: here\n    target: [PRMT]\n{chains}  - name: newer\n    sm: 100\n    target: [PRMT]\n{chains}"
    );
    let spec = file(&dir, "mine.yaml", &both);
    let ran = kbt(&["run", "--verify-only", "--spec", &spec], None);
    assert!(text(&ran.stdout).contains("1 not for sm_90a: newer"), "{}", text(&ran.stdout));
    let ran = kbt(&["mine", "--arch", "sm_90a", "--spec", &spec, "--out", "-"], None);
    assert!(
        ran.status.success() && text(&ran.stderr).contains("not for sm_90a: newer"),
        "{}",
        text(&ran.stderr)
    );
}

#[test]
fn options_that_would_be_ignored_and_files_that_hold_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/h200-sxm/mixes.yaml");
    let out = dir.path().join("pipes.yaml").display().to_string();
    let pipes = |more: &[&str], mixes: &str| {
        let args = [&["pipes", "--profile", "h200-sxm", "--mixes", mixes, "--out", &out], more].concat();
        let ran = kbt(&args, None);
        (ran.status.code(), text(&ran.stderr))
    };
    for more in [&["--only", "^zzz"][..], &["--budget", "5"]] {
        let (code, told) = pipes(more, recorded);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("cannot be used with") && told.contains("--mixes"), "{told}");
    }
    let whole = std::fs::read_to_string(recorded).unwrap();
    let none = format!("{}\nmixes: []\n", whole.split("\nmixes:").next().unwrap());
    let (code, told) = pipes(&[], &file(&dir, "none.yaml", &none));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("none.yaml") && told.contains("0 mixes"), "{told}");
    let ran = kbt(&["run", "--verify-only", "--out", "q.yaml"], None);
    assert_eq!(ran.status.code(), Some(2));
    assert!(text(&ran.stderr).contains("cannot be used with"), "{}", text(&ran.stderr));
}

#[test]
fn a_mode_whose_rates_are_refused_ends_with_three_after_its_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let bare = file(
        &dir,
        "bare.yaml",
        "schema: kbt.device/1\nname: bare\narch: sm_90a\nprovenance: {kind: mined, by: ptxas}\n",
    );
    let ran = kbt(&["table", &bare, "--pv-mode", "fp8"], None);
    assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stdout));
    assert!(!ran.stdout.is_empty() && text(&ran.stderr).contains("refused"), "{}", text(&ran.stderr));
    assert!(kbt(&["table", "h200-sxm", "--pv-mode", "fp8"], None).status.success());
    // A conversion that has a rate is not said to have none, and one refused suspect among others is told too.
    let ran = kbt(&["table", "sm_120a", "--pv-mode", "bf16"], None);
    let why = "refused: no rate of ex2.approx.ftz.f32, so no answer for cvt.rn.bf16x2.f32";
    assert_eq!(ran.status.code(), Some(3));
    assert!(text(&ran.stderr).contains(why), "{}", text(&ran.stderr));
    let ran = kbt(&["table", "sm_90a", "--pv-mode", "fp4"], None);
    assert_eq!(ran.status.code(), Some(3));
    assert!(text(&ran.stderr).contains("no rate of "), "{}", text(&ran.stderr));
}

#[test]
fn loops_of_negative_or_no_cycles_are_told_before_anything_is_scored() {
    let dir = tempfile::tempdir().unwrap();
    for cycles in ["-4.0", ".nan", "0"] {
        let loops = file(
            &dir,
            "loops.yaml",
            &format!(
                "schema: kbt.loops/1\ncompiler: c\nprovenance: {{kind: mined, by: ptxas}}\nrefused: []\nloops:\n- {{name: a, \
                 digest: '1', spread_percent: 0.1, cycles: [{cycles}]}}\n"
            ),
        );
        let ran = kbt(&["loops", "score", &loops], None);
        assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stderr));
        let why = "loop `a`: cycles holds ";
        assert!(text(&ran.stderr).contains(why), "{}", text(&ran.stderr));
    }
}
