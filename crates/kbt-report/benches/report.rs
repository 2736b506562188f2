//! What the report of a full run takes: the recorded runs of `fixtures/recordings`, all seven steps of each, or the run
//! directories given. `cargo bench -p kbt-report --bench report [-- RUN…]`.
//!
//! The time of writing both files is set against the time that only reading the same step files as JSON takes, in the
//! same run. The benchmark fails where a report takes 2 seconds or more, or its HTML 2 MB or more.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const LONGEST_S: f64 = 2.0;
const LARGEST_BYTES: u64 = 2_000_000;
const ROUNDS: usize = 15;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|a| a == "--bench") {
        println!("run as: cargo bench -p kbt-report --bench report [-- RUN…]");
        return ExitCode::SUCCESS;
    }
    let scratch = tempfile::tempdir().unwrap();
    let given: Vec<PathBuf> = args.iter().filter(|a| *a != "--bench").map(PathBuf::from).collect();
    let runs = if given.is_empty() { recorded(scratch.path()) } else { given };
    println!(
        "{:24} {:>10} {:>12} {:>12} {:>12}",
        "run", "report, ms", "JSON as long", "HTML, kB", "Markdown, kB"
    );
    let mut within = true;
    for run in &runs {
        let report = median(|| {
            black_box(kbt_report::write(run).unwrap());
        });
        let json = median(|| {
            black_box(parsed(run));
        });
        let size = |file: &str| fs::metadata(run.join(file)).unwrap().len();
        let (html, markdown) = (size("report.html"), size("report.md"));
        let name =
            run.file_name().map_or_else(|| run.display().to_string(), |n| n.to_string_lossy().into_owned());
        let kb = |bytes: u64| bytes as f64 / 1e3;
        println!(
            "{name:24} {:10.1} {:12.1} {:12.1} {:12.1}",
            report * 1e3,
            report / json,
            kb(html),
            kb(markdown)
        );
        within &= report < LONGEST_S && html < LARGEST_BYTES;
    }
    if within {
        return ExitCode::SUCCESS;
    }
    println!("a report took {LONGEST_S} s or more, or {LARGEST_BYTES} bytes or more");
    ExitCode::FAILURE
}

fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// The run's step files, read and parsed with no more done.
fn parsed(run: &Path) -> usize {
    let files = fs::read_dir(run.join("steps")).unwrap();
    files
        .map(|f| {
            let bytes = fs::read(f.unwrap().path()).unwrap();
            black_box(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap());
            bytes.len()
        })
        .sum()
}

/// Run directories made of the recorded runs.
fn recorded(scratch: &Path) -> Vec<PathBuf> {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    let folders = |path: &Path| -> Vec<PathBuf> {
        let all = fs::read_dir(path).unwrap().map(|f| f.unwrap().path());
        let mut found: Vec<PathBuf> = all.filter(|p| p.is_dir()).collect();
        found.sort();
        found
    };
    let mut runs = Vec::new();
    for device in folders(&recordings) {
        for mode in folders(&device) {
            let name = format!("{}-{}", named(&device), named(&mode));
            let run = scratch.join(&name);
            fs::create_dir_all(run.join("steps")).unwrap();
            let spec = serde_json::json!({
                "schema": "kbt.run/1", "pv_mode": named(&mode), "device": named(&device), "quick": false
            });
            fs::write(run.join("run.json"), spec.to_string()).unwrap();
            for file in fs::read_dir(&mode).unwrap().map(|f| f.unwrap().path()) {
                let to = if file.extension().is_some_and(|e| e == "json") {
                    run.join("steps")
                } else {
                    run.clone()
                };
                fs::copy(&file, to.join(named(&file))).unwrap();
            }
            runs.push(run);
        }
    }
    assert!(!runs.is_empty(), "no recorded run under {}", recordings.display());
    runs
}

fn named(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}
