//! No input makes a reader, the analysis or a writer panic, and what is read obeys its own sums.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::*;
use kbt_trace::export::{write_chrome, write_perfetto};
use kbt_trace::{AnalyseOptions, Input, Level, ReadOptions, TraceError, Unit, analyse, open};
use proptest::prelude::*;

/// Reads `bytes` as every format, analyses and exports what can be read.
fn try_all(bytes: &[u8]) {
    for input in Input::ALL {
        for unit in [None, Some(Unit::Cycles)] {
            let options = ReadOptions { input, clock_mhz: Some(1500.0), unit, ..ReadOptions::default() };
            let source = || open(Box::new(std::io::Cursor::new(bytes.to_vec())), "fuzz", &options);
            let more = AnalyseOptions { timeline_steps: 3, ..AnalyseOptions::default() };
            let Ok(outcome) = source().and_then(|mut s| analyse(s.as_mut(), &more)) else { continue };
            let _ = (outcome.render_text(), outcome.verdicts(), outcome.headline());
            for role in &outcome.roles {
                let Some((busy, period)) = role.busy_cycles.zip(role.mean_period_cycles) else { continue };
                assert!(busy <= period + 1e-6, "busy {busy} in a step of {period}");
            }
            let export =
                |write: fn(&mut dyn kbt_trace::Source, &mut dyn std::io::Write) -> Result<_, TraceError>| {
                    let _ = source().and_then(|mut s| write(s.as_mut(), &mut std::io::sink()));
                };
            export(write_perfetto);
            export(write_chrome);
        }
    }
}

fn kbt() -> Vec<u8> {
    let rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, 14, 1 << 40)).collect();
    file(&info(Level::Coarse), 64, &rings)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        try_all(&bytes);
    }

    #[test]
    fn a_kbt_file_with_bytes_changed_and_its_end_cut(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = kbt();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        try_all(&bytes);
        try_all(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn a_strided_buffer_of_any_records(
        blocks in 1..4_u32,
        groups in 1..6_u32,
        records in prop::collection::vec((any::<u32>(), any::<u32>()), 0..80),
        quantum in prop::sample::select(vec![1_u32, 32]),
    ) {
        let words = [blocks, groups].into_iter().chain(records.into_iter().flat_map(|(t, s)| [t, s / quantum * quantum]));
        try_all(&words.flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn a_proton_buffer_of_any_records(
        header in prop::sample::select(vec![4_usize, 10]),
        units in 1..3_usize,
        words in prop::collection::vec(any::<u32>(), 0..60),
        counts in prop::collection::vec(0..100_u32, 3),
    ) {
        let buffer = 96;
        let block = (header + units) * 4 + buffer;
        let mut bytes = vec![1, 0, 0, 32, block as u32, 1, units as u32, block as u32, 0xdead_beef, 0, 0, buffer as u32];
        bytes.resize(8 + header, 7);
        bytes.extend(&counts[..units]);
        bytes.extend(words);
        try_all(&bytes.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn chrome_events_of_any_kind(
        events in prop::collection::vec(("[XBEbeiMCs]", -1e3..1e18_f64, -10.0..1e18_f64, 0..3_u8, "[a-cw ]{0,5}"), 0..40),
        scale in prop::sample::select(vec![1.0, 1e-3]),
    ) {
        let events: Vec<_> = events
            .into_iter()
            .map(|(ph, ts, dur, lane, name)| serde_json::json!({
                "ph": ph, "ts": ts * scale, "dur": dur * scale, "pid": lane / 2, "tid": lane, "name": name,
            }))
            .collect();
        try_all(&serde_json::to_vec(&events).unwrap());
    }

    #[test]
    fn iket_ranges_of_any_kind(
        ranges in prop::collection::vec((any::<u64>(), any::<u64>(), 0..4_usize, 0..4_usize), 0..30),
        grid in any::<u64>(),
    ) {
        let ranges: Vec<_> = ranges
            .into_iter()
            .map(|(start, end, name, place)| serde_json::json!({
                "rangeNameIdx": name, "startTs": start, "endTs": end, "warpLocIdxs": [place, place],
            }))
            .collect();
        let place = |x: u64| serde_json::json!({"smId": -1, "ctaId": [x, x, 0], "warpId": x});
        let value = serde_json::json!({
            "stringTable": ["wait a", "b"], "locationTable": [place(0), place(u64::MAX)],
            "launches": [{"gridDimX": grid, "gridDimY": grid, "ranges": ranges}],
        });
        try_all(&serde_json::to_vec(&value).unwrap());
    }
}
