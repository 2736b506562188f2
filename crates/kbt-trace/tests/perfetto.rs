//! Our Perfetto files, read with Perfetto's own protobuf definitions: the PyPI package `perfetto`, which pip installs
//! into the build folder at the version and digests of `oracle/requirements.txt`.
//!
//! Needs Python 3 with pip and, the first time, the package index. `KBT_OFFLINE=1` leaves it out aloud.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test, which says aloud what it could not test"
)]

mod common;

use common::*;
use kbt_trace::export::{ExportCounts, write_perfetto};
use kbt_trace::{
    CtaTrace, Event, Kind, Lane, Level, MemoryTrace, Problems, ReadOptions, Source, TraceInfo, open,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the package; `None`, said aloud, where there is no Python with pip.
fn package() -> Option<PathBuf> {
    let runs = |args: &[&str]| {
        let output = Command::new("python3").args(args).output();
        output.is_ok_and(|o| o.status.success())
    };
    if std::env::var_os("KBT_OFFLINE").is_some() || !runs(&["-m", "pip", "--version"]) {
        eprintln!("KBT_OFFLINE is set or there is no python3 with pip: Perfetto's definitions are NOT tried");
        return None;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto-0.59.1");
    if !folder.is_dir() {
        let partial = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target"])
            .arg(partial.path())
            .arg("-r")
            .arg(tests.join("oracle/requirements.txt"))
            .output()
            .unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "pip: {says}; KBT_OFFLINE=1 leaves this test out");
        // Of two tests that install at once the first one's folder stays.
        if std::fs::rename(partial.path(), &folder).is_ok() {
            let _ = partial.keep();
        }
        assert!(folder.is_dir());
    }
    Some(folder)
}

/// What Perfetto's definitions find in a file of `source`, beside what was written; `None` where they are not at hand.
fn read_back(source: &mut dyn Source) -> Option<(ExportCounts, Value)> {
    let package = package()?;
    let file = tempfile::NamedTempFile::new().unwrap();
    let written = write_perfetto(source, &mut file.as_file()).unwrap();
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/read_perfetto.py"))
        .arg(file.path())
        .env("PYTHONPATH", package)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((written, serde_json::from_slice(&output.stdout).unwrap()))
}

#[test]
fn tracks_slices_flows_and_counters_are_those_that_were_written() {
    const STEPS: u64 = 20;
    const RING: &str = "ring P: slots taken";
    let rings: Vec<_> = (0..2).flat_map(|cta| filled_and_freed(cta, STEPS)).collect();
    let bytes = file(&info(Level::Coarse), 1024, &rings);
    let mut source = open(Box::new(std::io::Cursor::new(bytes)), "a", &ReadOptions::default()).unwrap();
    let Some((written, read)) = read_back(source.as_mut()) else { return };
    let expected = ExportCounts {
        tracks: 8,
        slices: 2 * STEPS * 5,
        instants: 2 * 3 * STEPS,
        flows: 2 * STEPS,
        counters: 2 * 2 * STEPS,
        ..ExportCounts::default()
    };
    assert_eq!(written, expected);
    let names = ["CTA 0, SM 0", "Softmax", "PV", RING, "CTA 1, SM 2", "Softmax", "PV", RING];
    assert_eq!(read["tracks"], json!(names));
    assert_eq!(read["slices"].as_array().unwrap().len() as u64, written.slices);
    assert_eq!(read["instants"], written.instants);
    assert_eq!(read["flows"], written.flows);
    let values = read["counters"][RING].as_array().unwrap();
    assert_eq!(values.len() as u64, written.counters);
    assert_eq!(values[..3], [json!(1), json!(0), json!(1)]);
    // CTA 1 opens at 1000500 ns; at 2 GHz its first wait for P lasts from cycle 1120 to 1520.
    let wait = json!(["PV", "wait P_full", 1_001_060, 1_001_260]);
    assert!(read["slices"].as_array().unwrap().contains(&wait), "{}", read["slices"]);
}

#[test]
fn crossing_spans_are_slices_of_their_own_tracks() {
    let at = |at, kind, id| Event { at, kind, id, step: 0 };
    let events =
        vec![at(0, Kind::Begin, 0), at(50, Kind::Begin, 1), at(90, Kind::End, 0), at(120, Kind::End, 1)];
    let lane = Lane { events, ..Lane::default() };
    let info = TraceInfo { edges: Vec::new(), ..info(Level::Coarse) };
    let cta = CtaTrace { lanes: vec![lane], ..CtaTrace::default() };
    let mut source = MemoryTrace::new(info, vec![cta], Problems::default());
    let Some((_, read)) = read_back(&mut source) else { return };
    assert_eq!(read["slices"], json!([["Softmax", "chunk", 0, 45], ["Softmax (line 1)", "tile", 25, 60]]));
}
