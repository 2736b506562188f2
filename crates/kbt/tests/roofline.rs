//! `kbt roofline` as scripts see it: gathering facts with a program and a profiler that are shell scripts.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Prints its times, as a target's program does.
const PROGRAM: &str = "#!/bin/sh
echo kbt-device NVIDIA H200
echo kbt-driver CUDA 13.0
for t in 199 200 201 200 202; do echo kbt-time-us $t; done
";

/// Refuses one metric as an older chip does, then counts the rest: a kernel at its device-memory roof.
const NCU: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo 'Version 2025.3.1.0 (build 1)'; exit 0; fi
echo "$@" >> "$(dirname "$0")/asked"
while [ $# -gt 0 ]; do
  case "$1" in
    --log-file) log=$2; shift 2 ;;
    --metrics) metrics=$2; shift 2 ;;
    --kernel-name | --launch-count | --page | --print-units | --clock-control | --cache-control | --target-processes)
      shift 2 ;;
    --csv) shift ;;
    *) break ;;
  esac
done
case ",$metrics," in
  *,sm__inst_executed_pipe_tc.sum,*)
    echo '==ERROR== Failed to find metric sm__inst_executed_pipe_tc.sum' > "$log"; exit 1 ;;
esac
{
  echo '==WARNING== Note: Running with uncontrolled GPU caches. Profiling results may be inconsistent.'
  echo '==PROF== Connected to process 1'
  "$@"
  echo '"ID","Kernel Name","Grid Size","Block Size","CC","gpu__time_duration.sum","dram__bytes.sum","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","launch__grid_size"'
  echo '"","","","","","ns","byte","%",""'
  echo '"0","triad(const float4 *, const float4 *, float4 *, float, unsigned long)","(65536, 1, 1)","(256, 1, 1)","9.0","198000.5","805306368","92.5","65536"'
} > "$log"
"#;

const TARGET: &str = "schema: kbt.target/1
name: triad
facts: {sheet: triad.facts.yaml}
run: {command: [./program]}
limits: {cooldown_s: 0}
";

const DECLARED: &str = "operator: {kind: elementwise, flop_per_element: 2, inputs: 2, outputs: 1}
shape: {elements: 67108864}
dtypes: {inputs: [fp32, fp32], output: fp32}
dataflow: {reuse: none}
timing: {method: cuda_events, warmup_launches: 20, kernels: 1, communication_included: false}
profiler: {kernel: triad}
";

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn folder(ncu: Option<&str>, program: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("program"), program);
    write(&folder.path().join("triad.yaml"), TARGET);
    write(&folder.path().join("triad.facts.yaml"), DECLARED);
    if let Some(text) = ncu {
        fs::create_dir(folder.path().join("bin")).unwrap();
        write(&folder.path().join("bin/ncu"), text);
    }
    folder
}

/// Runs kbt in a folder whose `bin` has the only tools.
fn kbt(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kbt"))
        .args(["roofline"])
        .args(args)
        .current_dir(folder)
        .env("PATH", format!("{}:/usr/bin:/bin", folder.join("bin").display()))
        .env_remove("KBT_CUDA")
        .env_remove("CUDA_HOME")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_and_a_profiler_become_a_sheet_that_triages() {
    let folder = folder(Some(NCU), PROGRAM);
    let out = kbt(folder.path(), &["gather", "triad.yaml", "--out", "facts.yaml", "--csv", "ncu.csv"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let sheet = fs::read_to_string(folder.path().join("facts.yaml")).unwrap();
    for part in [
        "median_us: 200.0",
        "launches: 15.0",
        "p10 to p90 of 15 launches in 3 processes",
        "kernel_us: 198.0005",
        "warmup_launches: 20",
        "grid_ctas: 65536.0",
        "tool: ncu 2025.3.1.0 --clock-control none --cache-control none",
        "dram__bytes.sum: 805306368.0",
        "device: NVIDIA H200",
        "kind: hbm_read",
    ] {
        assert!(sheet.contains(part), "{part} is not in\n{sheet}");
    }
    // Asked twice: with the metric that this chip lacks, and without it.
    let asked = fs::read_to_string(folder.path().join("bin/asked")).unwrap();
    assert_eq!(asked.lines().map(|l| l.contains("pipe_tc.sum")).collect::<Vec<_>>(), [true, false]);
    assert!(asked.contains("--kernel-name regex:triad --log-file"), "{asked}");
    // What was asked for is no complaint.
    assert!(!text(&out.stderr).contains("WARNING"), "{}", text(&out.stderr));
    assert!(fs::read_to_string(folder.path().join("ncu.csv")).unwrap().contains("198000.5"));

    let out = kbt(folder.path(), &["triage", "facts.yaml", "--device", "auto", "--format", "json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(outcome["call"], "memory-bound");
    assert_eq!(outcome["evidence"][0]["candidate"], "hbm_bandwidth");
    // A sheet is not overwritten unasked.
    let again = kbt(folder.path(), &["gather", "triad.yaml", "--out", "facts.yaml"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
}

#[test]
fn without_a_profiler_the_sheet_holds_the_times_and_says_what_it_lacks() {
    for (ncu, complaint) in [
        (None, "ncu was not found"),
        (Some("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'; exit 1\n"), "ERR_NVGPUCTRPERM"),
    ] {
        let folder = folder(ncu, PROGRAM);
        let out = kbt(folder.path(), &["gather", "triad.yaml", "--runs", "1"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert!(text(&out.stdout).contains("median_us: 200.0"), "{}", text(&out.stdout));
        assert!(!text(&out.stdout).contains("metrics:"), "{}", text(&out.stdout));
        assert!(text(&out.stderr).contains(complaint), "{}", text(&out.stderr));
    }
}

#[test]
fn a_program_that_fails_or_prints_no_time_is_an_error_that_says_so() {
    for (program, code, part) in [
        ("#!/bin/sh\necho the sum is wrong >&2; exit 1\n", 2, "the sum is wrong"),
        ("#!/bin/sh\nexit 0\n", 2, "kbt-time-us"),
        ("#!/bin/sh\necho needs sm_90a >&2; exit 3\n", 3, "needs sm_90a"),
    ] {
        let folder = folder(None, program);
        let out = kbt(folder.path(), &["gather", "triad.yaml"]);
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains(part), "{}", text(&out.stderr));
    }
}

fn fixture(name: &str) -> String {
    format!("{}/../../fixtures/facts/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn several_sheets_become_one_plot_with_each_roof_once() {
    let folder = tempfile::tempdir().unwrap();
    let (hbm, l2, gemm) =
        (fixture("planted/hbm.yaml"), fixture("planted/l2.yaml"), fixture("planted/gemm_serial.yaml"));
    let out = kbt(folder.path(), &["plot", &hbm, &l2, &gemm, "--device", "H200", "-o", "roofline.svg"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let svg = fs::read_to_string(folder.path().join("roofline.svg")).unwrap();
    for part in
        ["planted hbm", "planted l2", "planted gemm_serial", "tensor bf16", "FLOP/B, given", "TB/s, recorded"]
    {
        assert!(svg.contains(part), "{part} is not in\n{svg}");
    }
    for once in ["L2 read", "FP32 on the FMA pipe", "HBM at these mixes"] {
        assert_eq!(svg.matches(once).count(), 1, "{once}\n{svg}");
    }
    assert!(svg.starts_with("<svg") && svg.contains("xmlns="), "{svg}");
}

#[test]
fn a_sheet_that_gives_no_roof_is_refused_by_name_and_one_without_a_time_is_drawn_without_a_point() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("question.yaml"), "question: how fast is my kernel?\n").unwrap();
    let out = kbt(folder.path(), &["plot", "question.yaml", "--device", "H200", "-o", "r.svg"]);
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("question.yaml"), "{}", text(&out.stderr));
    assert!(!folder.path().join("r.svg").exists());
    let untimed = DECLARED.lines().filter(|l| !l.starts_with("timing")).collect::<Vec<_>>().join("\n");
    fs::write(folder.path().join("untimed.yaml"), untimed).unwrap();
    let out = kbt(folder.path(), &["plot", "untimed.yaml", "--device", "H200", "-o", "r.svg"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("no point, only roofs"), "{}", text(&out.stderr));
    assert!(fs::read_to_string(folder.path().join("r.svg")).unwrap().contains("HBM"));
}

#[test]
fn every_command_that_a_triage_proposes_is_one_to_copy() {
    let folder = tempfile::tempdir().unwrap();
    let facts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/facts");
    let slow = folder.path().join("slow.yaml");
    let clock = fs::read_to_string(facts.join("cublas-8192.yaml")).unwrap();
    fs::write(&slow, clock.replace("name: NVIDIA H200,", "name: NVIDIA H200, sm_clock_mhz: 1400,")).unwrap();
    let sheets = [facts.join("planted"), facts].into_iter().flat_map(|f| fs::read_dir(f).unwrap());
    let sheets = sheets.map(|e| e.unwrap().path()).chain([slow]);
    let mut commands = std::collections::BTreeSet::new();
    for sheet in sheets.filter(|p| p.extension().is_some_and(|e| e == "yaml")) {
        let out =
            kbt(folder.path(), &["triage", sheet.to_str().unwrap(), "--device", "H200", "--format", "json"]);
        let outcome: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let experiments = outcome["experiments"].as_array().unwrap().clone();
        commands.extend(experiments.iter().filter_map(|e| Some(e["command"].as_str()?.to_owned())));
    }
    // A change of the kernel's source is the user's, in words; the clock is a number of the sheet's device.
    let commands: Vec<String> = commands.into_iter().collect();
    assert!(!commands.is_empty());
    for command in commands {
        let clock = command.strip_prefix("nvidia-smi --lock-gpu-clocks=");
        assert!(clock.is_some_and(|mhz| mhz.parse::<u32>().is_ok()), "{command}");
    }
}

#[test]
fn results_rerank_and_a_contradicted_class_is_never_proposed_again() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = fixture("planted/few_ctas.yaml");
    let triage = |results: &[&str]| -> serde_json::Value {
        let mut args = vec!["triage", &sheet, "--device", "H200", "--format", "json"];
        args.extend(results.iter().flat_map(|r| ["--result", r]));
        let out = kbt(folder.path(), &args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let proposed = |o: &serde_json::Value| -> Vec<(String, String)> {
        let class = |id: &str| {
            let rows = o["evidence"].as_array().unwrap();
            rows.iter().find(|r| r["candidate"] == id).unwrap()["class"].as_str().unwrap().to_owned()
        };
        let all = o["experiments"].as_array().unwrap();
        all.iter().map(|e| e["candidate"].as_str().unwrap()).map(|c| (c.to_owned(), class(c))).collect()
    };
    // Each first experiment is made and finds nothing, until none is left.
    let (mut files, mut gone): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    loop {
        let given: Vec<&str> = files.iter().map(String::as_str).collect();
        let left = proposed(&triage(&given));
        for (candidate, class) in &left {
            assert!(!gone.contains(class), "{candidate} of {class} again, after {gone:?}");
        }
        let Some((candidate, class)) = left.first().cloned() else { break };
        let file = format!("{candidate}.yaml");
        let result = format!("experiment: {candidate}\nobserved_us: 83.1\nbaseline_us: 83.0\n");
        fs::write(folder.path().join(&file), result).unwrap();
        files.push(file);
        gone.push(class);
    }
    assert!(gone.len() >= 2, "{gone:?}");
    // What is left has no figure behind it: it is measured before anything is changed.
    let mut args = vec!["triage", sheet.as_str(), "--device", "H200"];
    args.extend(files.iter().flat_map(|f| ["--result", f.as_str()]));
    let out = kbt(folder.path(), &args);
    assert!(text(&out.stdout).contains("next      measure "), "{}", text(&out.stdout));
    // One that found what was predicted comes first.
    fs::write(
        folder.path().join("yes.yaml"),
        "experiment: memory_latency\nobserved_us: 60\nbaseline_us: 83\n",
    )
    .unwrap();
    let confirmed = triage(&["yes.yaml"]);
    assert_eq!(confirmed["evidence"][0]["candidate"], "memory_latency");
    assert_eq!(confirmed["evidence"][0]["standing"], "confirmed");
}

/// Its findings are no evidence of this kernel, and every form of the output says so.
fn another_kernel_s_run_is_not_used(folder: &Path, sheet: &str) {
    let triage = |format: &str| {
        let args = ["triage", sheet, "--device", "H200", "--run", "run", "--format", format];
        let out = kbt(folder, &args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let outcome: serde_json::Value = serde_json::from_str(&triage("json")).unwrap();
    assert_eq!(outcome["evidence"][0]["candidate"], "no_overlap");
    let told = outcome["not_used"][0].as_str().unwrap();
    assert!(told.contains("operator.kind: attention, not gemm"), "{told}");
    for format in ["text", "md"] {
        let out = triage(format);
        assert!(out.contains("another kernel") && !out.contains("the tensor pipe never waits"), "{out}");
    }
}

#[test]
fn a_plot_overwrites_plots_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(fixture("planted/hbm.yaml"), at("hbm.yaml")).unwrap();
    let sheet = fs::read_to_string(at("hbm.yaml")).unwrap();
    let plot = |out: &str, more: &[&str]| {
        let args = [&["plot", "hbm.yaml", "--device", "H200", "-o", out], more].concat();
        kbt(folder.path(), &args)
    };
    let own = plot("hbm.yaml", &[]);
    assert_eq!(own.status.code(), Some(2));
    assert!(text(&own.stderr).contains("hbm.yaml exists"), "{}", text(&own.stderr));
    assert_eq!(fs::read_to_string(at("hbm.yaml")).unwrap(), sheet);
    let drawing = "<svg xmlns=\"http://www.w3.org/2000/svg\">\n<style>text{}</style>\n</svg>\n";
    fs::write(at("r.svg"), drawing).unwrap();
    assert_eq!(plot("r.svg", &[]).status.code(), Some(2), "another program's drawing");
    assert!(plot("r.svg", &["--force"]).status.success());
    assert!(plot("r.svg", &[]).status.success(), "kbt's own");
    let printed = plot("-", &[]);
    assert!(printed.status.success() && !at("-").exists());
    assert_eq!(text(&printed.stdout).trim(), fs::read_to_string(at("r.svg")).unwrap().trim());
}

#[test]
fn a_run_s_later_steps_stand_in_the_matrix() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = fixture("planted/gemm_serial.yaml");
    let args = ["triage", &sheet, "--device", "H200", "--run", "run", "--format", "json"];
    let out = kbt(folder.path(), &args);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("run.json"), "{}", text(&out.stderr));
    fs::create_dir_all(folder.path().join("run/steps")).unwrap();
    fs::write(folder.path().join("run/run.json"), "{}").unwrap();
    let step = r#"{"schema": "kbt.step/1", "step": "trace", "origin": "live", "headline": "as traced",
        "timing": {"wall_s": 1.0, "provenance": {"kind": "measured", "by": "kbt tune", "device": "host", "date": "2026-11-30"}},
        "verdicts": [{"class": "tensor_throughput", "standing": "ruled_out", "step": "trace",
        "reason": "the tensor pipe never waits", "evidence": [{"direction": "for", "statement": "as traced",
        "figures": [{"name": "waits", "ratio": 0.01,
            "provenance": {"kind": "measured", "by": "kbt trace", "device": "NVIDIA H200", "date": "2026-11-30"}}]}]}]}"#;
    fs::write(folder.path().join("run/steps/2-trace.json"), step).unwrap();
    let out = kbt(folder.path(), &args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_ne!(outcome["evidence"][0]["class"], "overlap");
    let rows = outcome["evidence"].as_array().unwrap();
    let overlap = rows.iter().find(|r| r["candidate"] == "no_overlap").unwrap();
    assert_eq!(overlap["standing"], "barred");
    // What was measured then is a recording now.
    assert_eq!(overlap["against"][0]["figures"][0]["provenance"]["kind"], "recorded");
    assert!(!text(&out.stderr).contains("another kernel"), "{}", text(&out.stderr));
    fs::write(folder.path().join("run/facts.yaml"), "name: q\noperator: {kind: attention}\n").unwrap();
    another_kernel_s_run_is_not_used(folder.path(), &sheet);
    fs::remove_file(folder.path().join("run/facts.yaml")).unwrap();
    // A step that the journal does not hold was not finished, or will be made again.
    fs::write(folder.path().join("run/journal.jsonl"), "").unwrap();
    let out = kbt(folder.path(), &args);
    let outcome: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(outcome["evidence"][0]["candidate"], "no_overlap");
    fs::remove_file(folder.path().join("run/journal.jsonl")).unwrap();
    fs::write(folder.path().join("run/steps/2-trace.json"), step.replace("kbt.step/1", "kbt.step/9"))
        .unwrap();
    let out = kbt(folder.path(), &args);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("2-trace.json: field `schema`"), "{}", text(&out.stderr));
}
