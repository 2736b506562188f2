//! `kbt trace export`: what is written, and what is never overwritten.

use super::*;

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
    for to in ["perfetto", "chrome", "parquet"] {
        let output = kbt(&["export", file, "--to", to, "-o", "-", "--steps", "1"]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("--steps: accepted: with --to svg"),
            "{said}"
        );
    }
}

/// Copies a program by a process of its own: a file that this one had open for writing could not be run while a
/// process that another test is just starting still holds it.
fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

#[test]
fn parquet_without_kbt_frame_names_the_command_that_builds_it() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("kbt");
    copy_program(env!("CARGO_BIN_EXE_kbt").as_ref(), &alone);
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
    copy_program(env!("CARGO_BIN_EXE_kbt").as_ref(), &alone);
    let frame = folder.path().join("kbt-frame");
    let export = |script: &str| {
        let written = folder.path().join("script");
        std::fs::write(&written, script).unwrap();
        std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(&written, &frame);
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
fn an_export_never_overwrites_the_trace_that_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.kbttrace");
    std::fs::copy(recording("fp8"), &trace).unwrap();
    let before = std::fs::read(&trace).unwrap();
    // By another name, which leads to the same file.
    let other = tempfile::tempdir().unwrap();
    let there = other.path().join("link");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&trace, &there).unwrap();
    #[cfg(not(unix))]
    let there = folder.path().join("..").join(folder.path().file_name().unwrap()).join("t.kbttrace");
    for to in ["perfetto", "chrome", "parquet", "svg"] {
        let output = kbt(&["export", trace.to_str().unwrap(), "--to", to, "-o", there.to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("it is the trace that is read"),
            "{to}: {said}"
        );
        assert_eq!(std::fs::read(&trace).unwrap(), before, "{to}");
    }
    assert_eq!(names(folder.path()), ["t.kbttrace"]);
}

#[test]
fn an_export_that_fails_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (folder.path().join("t.kbttrace"), folder.path().join("out"));
    // Ring headers that are cut off: a trace without a record.
    let whole = std::fs::read(recording("fp8")).unwrap();
    std::fs::write(&out, "what was there").unwrap();
    std::fs::write(&trace, &whole[..2200]).unwrap();
    for to in ["perfetto", "chrome", "svg"] {
        let output = kbt(&["export", trace.to_str().unwrap(), "--to", to, "-o", out.to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("no records"), "{to}: {said}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "what was there", "{to}");
    }
    assert_eq!(names(folder.path()), ["out", "t.kbttrace"]);
    let all =
        ["export", trace.to_str().unwrap(), "--to", "chrome", "--cta", "0", "-o", out.to_str().unwrap()];
    assert!(text(&kbt(&all).stderr).contains("--to svg only"));
}

#[test]
fn what_an_export_leaves_out_is_said_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (folder.path().join("t.json"), folder.path().join("out"));
    let event = |ph: &str, ts: u64| serde_json::json!({"ph": ph, "pid": 0, "tid": 0, "ts": ts, "name": "a"});
    let mut buffer = fa4(|at| at);
    // The end of the first wait of group 0 becomes a second begin: two begins are left over.
    buffer[8 * 5] &= !1;
    std::fs::write(&trace, &buffer).unwrap();
    for to in ["perfetto", "chrome"] {
        let args = ["export", trace.to_str().unwrap(), "--to", to, "-o", out.to_str().unwrap()];
        let said = text(&kbt(&args).stderr);
        assert!(
            said.contains("2 x a begin without its end") && said.contains("not exported"),
            "{to}: {said}"
        );
        let written = json(&[&args[..], &["--format", "json"]].concat());
        assert_eq!((&written["orphan_begins"], &written["orphan_ends"]), (&2.into(), &0.into()), "{to}");
    }
    std::fs::write(&trace, serde_json::json!([event("B", 0), event("E", 3)]).to_string()).unwrap();
    let args = [
        "export",
        trace.to_str().unwrap(),
        "--unit",
        "cycles",
        "--to",
        "chrome",
        "-o",
        out.to_str().unwrap(),
    ];
    assert!(!text(&kbt(&args).stderr).contains("not exported"));
}
