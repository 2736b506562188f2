//! `kbt trace` from outside: the names that scripts use, exit codes, files that are written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn recording(mode: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../fixtures/recordings/h200-sxm/{mode}/trace.kbttrace"))
}

fn kbt(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kbt")).arg("trace").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = kbt(args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// flash-attention-fp4's buffer: 30 steps of softmax of 4381 cycles, 1952 of them a wait for S.
fn fa4(stamp: impl Fn(u32) -> u32) -> Vec<u8> {
    let mut words = vec![1, 4];
    words.resize(2 + 2 * 4 * 70, 0);
    for (k, at) in (0..30).flat_map(|step| [step * 4381, step * 4381 + 1952]).enumerate() {
        for group in 0..4 {
            let slot = 2 + 2 * (group + k * 4);
            words[slot] = 9 << 24 | 6 << 2 | (k as u32 % 2);
            words[slot + 1] = stamp(1000 + at);
        }
    }
    words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect()
}

#[test]
fn stats_has_the_fields_and_role_names_that_scripts_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.bin");
    std::fs::write(&file, fa4(|at| at)).unwrap();
    let stats = json(&["stats", file.to_str().unwrap(), "--input", "fa4-fp4", "--format", "json"]);
    let roles = stats["roles"].as_array().unwrap();
    let names: Vec<_> = roles.iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["MMA", "Softmax0", "Softmax1", "Correction"]);
    let softmax = &roles[1];
    assert_eq!((&softmax["steps"], &softmax["busy_cycles"]), (&30.into(), &2429.0.into()));
    for quantile in ["median", "p10", "p90"] {
        assert_eq!(softmax["period_cycles"][quantile], 4381.0);
    }
    assert_eq!((&softmax["waits"][0]["on"], &softmax["waits"][0]["cycles"]), (&"S".into(), &1952.0.into()));
}

#[test]
fn nanoseconds_without_a_clock_are_refused_and_name_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.bin");
    std::fs::write(&file, fa4(|at| at / 32 * 32)).unwrap();
    let file = file.to_str().unwrap();
    let output = kbt(&["stats", file]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("--clock-mhz"), "{}", text(&output.stderr));
    assert_eq!(kbt(&["stats", file, "--clock-mhz", "1500"]).status.code(), Some(0));
    assert_eq!(kbt(&["stats", file, "--clock-mhz", "-3"]).status.code(), Some(2));
    assert_eq!(kbt(&["stats", "/nowhere.kbttrace"]).status.code(), Some(2));
}

#[test]
fn a_recorded_trace_has_rings_and_is_written_in_every_viewers_format() {
    let file = recording("fp8");
    let file = file.to_str().unwrap();
    let stats = json(&["stats", file, "--format", "json"]);
    let rings: Vec<_> =
        stats["rings"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert!(rings.contains(&"K") && rings.contains(&"P 0"), "{rings:?}");
    let folder = tempfile::tempdir().unwrap();
    for (to, counts) in [
        ("perfetto", &["tracks", "slices", "instants", "flows", "counters"][..]),
        ("chrome", &["tracks", "slices", "instants", "flows", "counters"]),
        ("svg", &["steps", "rows", "spans", "arrows", "curves"]),
    ] {
        let out = folder.path().join(to);
        let written = json(&["export", file, "--to", to, "-o", out.to_str().unwrap(), "--format", "json"]);
        for count in counts {
            assert!(written[*count].as_u64().unwrap() > 0, "{to}: {count}");
        }
        assert!(std::fs::metadata(&out).unwrap().len() > 1000, "{to}");
    }
    let drawn = kbt(&["export", file, "--to", "svg", "-o", "-", "--steps", "1"]);
    assert!(text(&drawn.stdout).starts_with("<svg") && text(&drawn.stdout).contains(">K full<"));
    assert_eq!(
        kbt(&["export", file, "--to", "svg", "-o", "-", "--cta", "4294967295"]).status.code(),
        Some(2)
    );
}

#[test]
fn parquet_without_kbt_frame_names_the_command_that_builds_it() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("kbt");
    std::fs::copy(env!("CARGO_BIN_EXE_kbt"), &alone).unwrap();
    let out = folder.path().join("t.parquet");
    let output = Command::new(&alone)
        .args(["trace", "export"])
        .arg(recording("fp8"))
        .args(["--to", "parquet", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cargo build --release -p kbt-frame"), "{}", text(&output.stderr));
    assert!(!out.exists());
}

/// A kbt-frame that fails in the middle must fail the export.
#[cfg(unix)]
#[test]
fn parquet_fails_with_its_kbt_frame() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("kbt");
    std::fs::copy(env!("CARGO_BIN_EXE_kbt"), &alone).unwrap();
    let frame = folder.path().join("kbt-frame");
    let export = |script: &str| {
        std::fs::write(&frame, script).unwrap();
        std::fs::set_permissions(&frame, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut kbt = Command::new(&alone);
        kbt.args(["trace", "export"]).arg(recording("fp8")).args(["--to", "parquet", "-o", "t.parquet"]);
        kbt.current_dir(folder.path()).output().unwrap()
    };
    let output = export("#!/bin/sh\nexit 2\n");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = export("#!/bin/sh\ncat > rows\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = std::fs::read_to_string(folder.path().join("rows")).unwrap();
    let last: Value = serde_json::from_str(rows.lines().last().unwrap()).unwrap();
    assert_eq!(last["rows"], rows.lines().count() - 2);
}

#[test]
fn a_gate_on_a_diff_fails_with_exit_code_1() {
    let (bf16, fp8) = (recording("bf16"), recording("fp8"));
    let (bf16, fp8) = (bf16.to_str().unwrap(), fp8.to_str().unwrap());
    assert_eq!(kbt(&["diff", fp8, fp8, "--gate", "period=0", "--gate", "ring K=0"]).status.code(), Some(0));
    let output = kbt(&["diff", bf16, fp8, "--gate", "Softmax0: period<=1", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        diff["violations"][0].as_str().unwrap().starts_with("Softmax0 period: "),
        "{}",
        diff["violations"]
    );
    assert_eq!(kbt(&["diff", bf16, fp8, "--gate", "speed=1"]).status.code(), Some(2));
    assert_eq!(kbt(&["diff", bf16, fp8, "--gate", "period"]).status.code(), Some(2));
}

#[test]
fn a_cut_trace_passes_no_gate() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (recording("fp4"), folder.path().join("cut.kbttrace"));
    std::fs::write(&cut, &std::fs::read(&whole).unwrap()[..100_000]).unwrap();
    let (whole, cut) = (whole.to_str().unwrap(), cut.to_str().unwrap());
    for (a, b) in [(whole, cut), (cut, whole)] {
        assert_eq!(kbt(&["diff", a, b]).status.code(), Some(0), "told, not judged");
        let output = kbt(&["diff", a, b, "--gate", "period=100"]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("cut.kbttrace: the file ends early"),
            "{said}"
        );
    }
}

#[test]
fn a_target_that_refuses_is_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("refusing.yaml");
    let yaml = "schema: kbt.target/1\nname: refusing\nrun: {command: [sh, -c, 'echo no such card >&2; exit 3']}\n\
                trace: {format: kbt, levels: {coarse: {}}}\noutputs: [{name: o}]\nlimits: {cooldown_s: 0}\n";
    std::fs::write(&target, yaml).unwrap();
    let output = kbt(&["observe", target.to_str().unwrap(), "--rounds", "6"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("no such card"), "{:?} {said}", output.status);
}

#[test]
fn a_reason_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("torn.json");
    std::fs::write(&file, r#"{"traceEvents": [{"ph": "X", "ts": "1", "dur": 2, "name": "a"}]}"#).unwrap();
    for name in [file.to_str().unwrap(), "no-such-file"] {
        let output = kbt(&["stats", name]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let reason = if name == "no-such-file" { "No such file" } else { "invalid type" };
        assert_eq!(message.matches(reason).count(), 1, "{message}");
    }
}
