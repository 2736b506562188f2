//! `kbt sass`: the names that scripts use, and the exit codes of what can fail.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}{}", self.out, self.err))
    }
}

fn kbt(args: &[&str], input: Option<&[u8]>) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.arg("sass").args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that does not read its input closes the pipe.
    let _closed = stdin.write_all(input.unwrap_or_default());
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: out.status.code(), out: text(out.stdout), err: text(out.stderr) }
}

fn listing(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sass/listings");
    path.join(format!("{name}.sm_90a.sass")).display().to_string()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// What the interface promises of a function, and of each region and loop in it.
fn has_the_fields(section: &Value) {
    let found = keys(section);
    for name in [
        "name",
        "arch",
        "instructions",
        "mnemonics",
        "pipes",
        "regions",
        "loops",
        "interleave",
        "local_memory",
    ] {
        assert!(found.contains(&name), "{name} is not in {found:?}");
    }
    for (object, names) in [
        ("interleave", &["a", "b", "transitions", "possible", "runs"][..]),
        ("local_memory", &["spill_load_bytes", "spill_store_bytes", "array", "stack_bytes"]),
    ] {
        for name in names {
            assert!(section[object].get(name).is_some(), "{object}.{name} of {}", section["name"]);
        }
    }
    assert!(section["mnemonics"].is_object() && section["pipes"].is_object());
    for part in section["regions"].as_array().unwrap().iter().chain(section["loops"].as_array().unwrap()) {
        has_the_fields(part);
    }
}

#[test]
fn metrics_have_the_names_that_scripts_use() {
    for name in ["forms", "roles", "spilling"] {
        let found = kbt(&["metrics", &listing(name), "--format", "json"], None);
        assert_eq!(found.code, Some(0), "{}", found.err);
        let json = found.json();
        assert_eq!(json["schema"], "kbt.sass/1");
        assert!(json["problems"].is_array());
        json["functions"].as_array().unwrap().iter().for_each(has_the_fields);
    }
    let json = kbt(&["metrics", &listing("roles"), "--format", "json"], None).json();
    let regions = |f: &Value| f["regions"].as_array().unwrap().len();
    assert!(json["functions"].as_array().unwrap().iter().any(|f| regions(f) > 1));
}

#[test]
fn metrics_select_functions_and_regions_and_read_standard_input() {
    let path = listing("forms");
    let bytes = std::fs::read(&path).unwrap();
    let piped = kbt(&["metrics", "-", "--format", "json"], Some(&bytes));
    assert_eq!(
        piped.json()["functions"],
        kbt(&["metrics", &path, "--format", "json"], None).json()["functions"]
    );
    let one = kbt(&["metrics", &path, "--function", "^softmax_chunked$", "--format", "json"], None).json();
    let names: Vec<_> = one["functions"].as_array().unwrap().iter().map(|f| f["name"].clone()).collect();
    assert_eq!(names, ["softmax_chunked"]);
    let loops = kbt(&["metrics", &path, "--region", "^loop:", "--format", "json"], None).json();
    for function in loops["functions"].as_array().unwrap() {
        assert!(!function["loops"].as_array().unwrap().is_empty(), "{function}");
    }
    let none = kbt(&["metrics", &path, "--function", "^nothing$"], None);
    assert_eq!(none.code, Some(2), "{}", none.err);
    let ptx = kbt(&["metrics", "-"], Some(b".version 9.0\n.target texmode_unified\n"));
    assert!(ptx.code == Some(2) && ptx.err.contains("--arch"), "{}", ptx.err);
}

#[test]
fn lint_fails_on_a_finding_and_passes_what_is_allowed() {
    let spilling = listing("spilling");
    let found = kbt(&["lint", &spilling], None);
    assert_eq!(found.code, Some(1), "{}", found.err);
    for word in ["[spill-in-loop]", "why: ", "fix: ", "loop depth"] {
        assert!(found.out.contains(word), "{word} is not in {}", found.out);
    }
    let json = kbt(&["lint", &spilling, "--format", "json"], None).json();
    assert_eq!(json["schema"], "kbt.sass.lint/1");
    assert!(json["provenance"]["by"].is_string(), "{json}");
    assert!(
        json["findings"].as_array().unwrap().iter().all(|f| f["place"].is_string() && f["fix"].is_string())
    );
    let allowed =
        kbt(&["lint", &spilling, "--allow", "spill-in-loop,spill,local-array-in-loop,dynamic-index"], None);
    assert_eq!(allowed.code, Some(0), "{}{}", allowed.out, allowed.err);
    let wrong = kbt(&["lint", &spilling, "--allow", "spil"], None);
    assert!(wrong.code == Some(2) && wrong.err.contains("handoff-short"), "{}", wrong.err);
    assert_eq!(kbt(&["lint", &listing("forms")], None).code, Some(0));
}

#[test]
fn diff_says_identical_or_fails_with_the_caveat() {
    let (a, b) = (listing("forms"), listing("spilling"));
    let same = kbt(&["diff", &a, &a], None);
    assert!(same.code == Some(0) && same.out.contains("identical code"), "{}{}", same.out, same.err);
    let other = kbt(&["diff", &a, &b], None);
    assert_eq!(other.code, Some(1), "{}", other.err);
    assert!(other.out.contains("proves no speed"), "{}", other.out);
}

#[test]
fn the_gate_fails_with_three_lines_and_never_passes_on_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let text = std::fs::read_to_string(listing("spilling")).unwrap();
    let (code, base) = (path("k.sass"), path("base.json"));
    let gate = |more: &[&str]| {
        let args = ["gate", code.to_str().unwrap(), "--baseline", base.to_str().unwrap()];
        kbt(&[&args[..], more].concat(), None)
    };
    // The baseline has no spills: every access of one is another operation there.
    std::fs::write(
        &code,
        text.replace("STL", "STS").replace("LDL", "LDS").replace("(*\"SpillRefill\"*)", ""),
    )
    .unwrap();
    assert_eq!(gate(&["--write"]).code, Some(0));
    assert_eq!(gate(&[]).code, Some(0));
    std::fs::write(&code, &text).unwrap();
    let found = gate(&[]);
    assert_eq!(found.code, Some(1), "{}", found.err);
    let lines: Vec<_> = found.out.lines().collect();
    assert!(lines[0].contains("spill") && lines[3].contains("more findings"), "{}", found.out);
    let tolerance = path("gate.yaml");
    std::fs::write(
        &tolerance,
        "spill_bytes: 100000\nlocal_arrays: true\nstack_bytes: 100000\ninstructions_percent: 100\n",
    )
    .unwrap();
    let lenient = gate(&["--tolerance", tolerance.to_str().unwrap()]);
    assert_eq!(lenient.code, Some(0), "{}{}", lenient.out, lenient.err);
    assert_eq!(gate(&["--function", "^nothing$"]).code, Some(2));
    let units = gate(&["--units", "MUFU,HGMMA"]);
    assert!(units.code == Some(2) && units.err.contains("--write"), "{}", units.err);
}

/// Lines of the listing without their encoding: the second word's line goes, the first word is cut off.
fn without_encoding(text: &str) -> String {
    let keep = text.lines().filter(|l| !l.trim_start().starts_with("/* 0x"));
    keep.map(|l| l.split("/* 0x").next().unwrap_or(l).trim_end().to_owned() + "\n").collect()
}

#[test]
fn no_check_passes_on_lines_that_were_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.sass");
    // Only the spills lose their addresses: what is left would look clean.
    let text = std::fs::read_to_string(listing("spilling")).unwrap();
    let lines = text.lines().map(|line| match line.split_once("*/") {
        Some((_, rest)) if line.contains("STL") || line.contains("LDL") => format!("{rest}\n"),
        _ => format!("{line}\n"),
    });
    std::fs::write(&damaged, lines.collect::<String>()).unwrap();
    let (file, base) = (damaged.to_str().unwrap(), dir.path().join("b.json"));
    for args in [
        &["lint", file][..],
        &["gate", file, "--baseline", base.to_str().unwrap(), "--write"],
        &["diff", file, file],
        &["cycles", file, "--device", "h200-sxm"],
    ] {
        let ran = kbt(args, None);
        assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("damaged.sass: line "), "{}", ran.err);
    }
    assert!(!base.exists());
}

#[test]
fn what_one_side_does_not_say_is_no_difference_and_no_pass() {
    let dir = tempfile::tempdir().unwrap();
    let hex = listing("forms");
    let (bare, base) = (dir.path().join("bare.sass"), dir.path().join("base.json"));
    std::fs::write(&bare, without_encoding(&std::fs::read_to_string(&hex).unwrap())).unwrap();
    let (bare, base) = (bare.to_str().unwrap(), base.to_str().unwrap());
    let diff = kbt(&["diff", &hex, bare], None);
    assert!(diff.code == Some(0) && diff.out.contains("identical code"), "{}{}", diff.out, diff.err);
    assert_eq!(kbt(&["gate", &hex, "--baseline", base, "--write"], None).code, Some(0));
    // The stall counts that the baseline has cannot be compared.
    let gate = kbt(&["gate", bare, "--baseline", base], None);
    assert!(gate.code == Some(1) && gate.out.contains("-hex"), "{}{}", gate.out, gate.err);
    let tolerance = dir.path().join("t.yaml");
    std::fs::write(&tolerance, "stalls_percent: -5\n").unwrap();
    let wrong = kbt(&["gate", &hex, "--baseline", base, "--tolerance", tolerance.to_str().unwrap()], None);
    assert!(wrong.code == Some(2) && wrong.err.contains("stalls_percent: -5"), "{}", wrong.err);
}

#[test]
fn a_lint_of_machine_code_says_what_only_ptx_shows() {
    let ran = kbt(&["lint", &listing("forms")], None);
    assert!(ran.out.contains("missing-proxy-fence"), "{}", ran.out);
}
