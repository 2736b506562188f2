//! `kbt trace` from outside: the names that scripts use, exit codes, files that are written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod diff;
mod export;
mod observe;
mod stats;

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

/// Files of a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
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
