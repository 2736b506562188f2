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
            output.status.code() == Some(2) && said.contains("cut.kbttrace: 1 x the file ends early"),
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

/// Files of a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
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

#[test]
fn a_comparison_says_what_is_odd_and_a_damaged_trace_passes_no_gate() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = (recording("fp4"), folder.path().join("damaged.kbttrace"));
    let mut bytes = std::fs::read(&whole).unwrap();
    bytes.extend([0; 40]);
    std::fs::write(&damaged, &bytes).unwrap();
    let (whole, damaged) = (whole.to_str().unwrap(), damaged.to_str().unwrap());
    for (a, b, which) in [(whole, damaged, "second"), (damaged, whole, "first")] {
        let told = kbt(&["diff", a, b]);
        assert_eq!(told.status.code(), Some(0));
        let note = format!("note: {which} trace: 1 x the file contradicts itself");
        assert!(text(&told.stdout).contains(&note), "{}", text(&told.stdout));
        let output = kbt(&["diff", a, b, "--gate", "period=100"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("damaged.kbttrace: 1 x"), "{said}");
    }
    let twice = kbt(&["diff", "-", "-"]);
    assert!(twice.status.code() == Some(2) && text(&twice.stderr).contains("can be read once"));
}

/// A copy of the fp4 recording with `change` made to its bytes.
fn changed(folder: &Path, name: &str, change: impl Fn(&mut [u8])) -> PathBuf {
    let mut bytes = std::fs::read(recording("fp4")).unwrap();
    change(&mut bytes);
    let file = folder.join(name);
    std::fs::write(&file, &bytes).unwrap();
    file
}

/// Opens the ring that was closed first: its mark is cleared.
fn unclosed(bytes: &mut [u8]) {
    use kbt_trace::bindings as b;
    let (open, closed) = (b::KBT_TRACE_RING_OPEN.to_le_bytes(), b::KBT_TRACE_RING_CLOSED.to_le_bytes());
    let mark: Vec<u8> = open.into_iter().chain(closed).collect();
    let at = bytes.windows(8).position(|w| w == mark).unwrap();
    bytes[at + 4..at + 8].fill(0);
}

#[test]
fn a_role_without_its_close_passes_no_gate_and_is_not_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, hung) = (recording("fp4"), changed(folder.path(), "hung.kbttrace", unclosed));
    let (whole, hung) = (whole.to_str().unwrap(), hung.to_str().unwrap());
    assert_eq!(kbt(&["diff", whole, hung]).status.code(), Some(0), "told, not judged");
    let output = kbt(&["diff", whole, hung, "--gate", "period=100"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("ended without close()"), "{said}");
    let times = "for i in 1 2 3; do echo kbt-time-us 100; done; echo kbt-clock-mhz 1980\n";
    let script = format!("{times}if [ -n \"$KBT_TRACE_OUT\" ]; then cp '{hung}' \"$KBT_TRACE_OUT\"; fi\n");
    let output = kbt(&["observe", &target(folder.path(), "kbt", &script), "--rounds", "6"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("ended without close()"), "{said}");
}

#[test]
fn a_gate_on_a_detail_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = std::mem::offset_of!(kbt_trace::bindings::kbt_trace_file_header, level);
    let detail = changed(folder.path(), "detail.kbttrace", |bytes| bytes[at] = 3);
    let (coarse, detail) = (recording("fp4"), detail.to_str().unwrap().to_owned());
    let coarse = coarse.to_str().unwrap();
    for (a, b) in [(coarse, detail.as_str()), (detail.as_str(), coarse)] {
        assert_eq!(kbt(&["diff", a, b]).status.code(), Some(0), "told, not judged");
        let output = kbt(&["diff", a, b, "--gate", "period=100"]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(3) && said.contains("detail.kbttrace: recorded at level"),
            "{said}"
        );
    }
}

/// A target whose command is a shell script; it sees `KBT_TRACE` and `KBT_TRACE_OUT`.
fn target(folder: &Path, format: &str, script: &str) -> String {
    let (file, run) = (folder.join("target.yaml"), folder.join("run.sh"));
    std::fs::write(&run, script).unwrap();
    let yaml = format!(
        "schema: kbt.target/1\nname: scripted\nrun: {{command: [sh, {}]}}\n\
         trace: {{format: {format}, levels: {{coarse: {{}}}}}}\noutputs: [{{name: o}}]\nlimits: {{cooldown_s: 0}}\n",
        run.display()
    );
    std::fs::write(&file, yaml).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn observing_needs_a_format_that_is_read_and_a_limit_that_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let bogus = target(folder.path(), "bogus", "exit 3");
    let output = kbt(&["observe", &bogus, "--rounds", "6"]);
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("trace.format bogus: accepted: auto, kbt"),
        "{said}"
    );
    let sound = target(folder.path(), "kbt", "exit 3");
    for limit in ["nan", "inf", "-1"] {
        let output = kbt(&["observe", &sound, "--rounds", "6", &format!("--limit-percent={limit}")]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("--limit-percent"), "{limit}: {said}");
    }
}

#[test]
fn the_kept_trace_is_replaced_by_a_run_that_succeeds_alone() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept.kbttrace");
    std::fs::write(&kept, "what was there").unwrap();
    let observe = |script: &str| {
        let target = target(folder.path(), "kbt", script);
        kbt(&["observe", &target, "--rounds", "6", "--trace-out", kept.to_str().unwrap()])
    };
    let times = "for i in 1 2 3; do echo kbt-time-us 100; done; echo kbt-clock-mhz 1500\n";
    let fails = observe(&format!("{times}if [ -n \"$KBT_TRACE_OUT\" ]; then exit 1; fi\n"));
    assert!(fails.status.code() == Some(2) && text(&fails.stderr).contains("at level coarse"));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "what was there");
    let trace = recording("fp8");
    let script = format!(
        "{times}\
         if [ -n \"$KBT_TRACE_OUT\" ]; then cp '{}' \"$KBT_TRACE_OUT\"; fi\n",
        trace.display()
    );
    let output = observe(&script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&kept).unwrap(), std::fs::read(&trace).unwrap());
    assert_eq!(names(folder.path()), ["kept.kbttrace", "run.sh", "target.yaml"]);
}

#[test]
fn names_from_a_file_forge_no_line_and_a_launch_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("t.json"), folder.path().join("out"));
    let range = |launch: u64, i: u64| {
        let at = 1_000_000 * launch + 640 * (launch + 1) * i;
        serde_json::json!({"rangeName": "mma\nnote: all is well\u{1b}[2J", "startTs": at, "endTs": at + 320,
            "warpLocs": [{"smId": 0, "ctaId": [0, 0, 0], "warpId": 4}]})
    };
    let launch = |l: u64| serde_json::json!({"ranges": (0..30).map(|i| range(l, i)).collect::<Vec<_>>()});
    std::fs::write(&file, serde_json::json!({"launches": [launch(0), launch(1)]}).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let args = ["stats", file, "--clock-mhz", "1000", "--launch", "1"];
    let printed = text(&kbt(&args).stdout);
    assert!(
        printed.contains("period 1280 ") && printed.contains("mma\\nnote: all is well\\u{1b}[2J"),
        "{printed}"
    );
    assert!(!printed.lines().any(|line| line.starts_with("note: all")), "{printed}");
    let stats = json(&[&args[..], &["--format", "json"]].concat());
    assert_eq!(stats["roles"][0]["events"][0]["name"], "mma\nnote: all is well\u{1b}[2J");
    let gated = kbt(&["diff", file, file, "--clock-mhz", "1000", "--gate", "event no=1"]);
    let said = text(&gated.stderr);
    assert!(
        gated.status.code() == Some(2) && said.lines().count() == 1 && !said.contains('\u{1b}'),
        "{said}"
    );
    assert_eq!(kbt(&["stats", file, "--clock-mhz", "1000", "--launch", "2"]).status.code(), Some(2));
    for to in ["svg", "perfetto", "chrome"] {
        let args = ["export", file, "--to", to, "--clock-mhz", "1000", "-o", out.to_str().unwrap()];
        let written = kbt(&args);
        assert_eq!(written.status.code(), Some(0), "{to}: {}", text(&written.stderr));
        assert!(!text(&written.stderr).contains('\u{1b}'), "{to}");
    }
}
