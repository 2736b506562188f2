//! Every reader on faithful buffers, and on each way that they go wrong.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test: its inputs are whole cycles")]

mod chrome;
#[path = "../common/mod.rs"]
mod common;
mod fa4_fp4;
mod flashinfer;
mod iket;
mod kbt_file;
mod malformed;
mod placed;
mod proton;

use common::*;
use kbt_trace::bindings as b;
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, Input, Level, ProblemKind, ReadOptions, TraceError, Unit};
use serde_json::json;
use std::collections::BTreeMap;

fn problem(outcome: &TraceOutcome, kind: ProblemKind) -> u64 {
    outcome.problems.iter().filter(|p| p.kind == kind).map(|p| p.count).sum()
}

fn error(bytes: &[u8], options: &ReadOptions) -> String {
    analysed(bytes, options, AnalyseOptions::default()).unwrap_err().to_string()
}

/// A strided profiler buffer: per block and group its records (event, type, stamp).
fn slots(
    groups: u32,
    lanes: &[Vec<(u32, u32, u32)>],
    depth: usize,
    tag_block: impl Fn(u32, u32) -> u32,
) -> Vec<u8> {
    let blocks = lanes.len() as u32 / groups;
    let mut words = vec![blocks, groups];
    words.resize(2 + 2 * depth * lanes.len(), 0);
    for (lane, records) in lanes.iter().enumerate() {
        let (block, group) = (lane as u32 / groups, lane as u32 % groups);
        for (k, &(event, kind, stamp)) in records.iter().enumerate() {
            let at = 2 + 2 * (lane + k * lanes.len());
            words[at] = (block + 7) << 24 | tag_block(block, group) << 12 | event << 2 | kind;
            words[at + 1] = stamp;
        }
    }
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn what_no_reader_knows_is_refused_with_the_names_of_the_formats() {
    let message = error(b"hello, world, this is text", &ReadOptions::default());
    assert!(message.contains("--input: kbt, fa4-fp4, flashinfer, iket, proton, chrome"), "{message}");
    assert!(matches!(
        analysed(&[], &ReadOptions::default(), AnalyseOptions::default()),
        Err(TraceError::Unknown { .. })
    ));
}
