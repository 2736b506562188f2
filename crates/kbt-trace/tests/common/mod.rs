//! Synthetic traces: a pipeline of a softmax and a P·V role whose numbers are known by construction.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests; each binary takes some"
)]

pub mod wire;

use kbt_evidence::Provenance;
use kbt_trace::bindings as b;
use kbt_trace::kbt::{FileWriter, RingRecords, tag};
use kbt_trace::observe::ObserverReport;
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{
    AnalyseOptions, Barrier, BarrierPurpose, Edge, EventName, EventPurpose, Level, ReadOptions, Releaser,
    Role, StepRule, TraceError, TraceInfo, Work, analyse, open,
};

pub const SOFTMAX: u32 = 0;
pub const PV: u32 = 1;
pub const P_FULL: u32 = 0;
pub const P_EMPTY: u32 = 1;
pub const K_FULL: u32 = 2;
pub const CHUNK: u32 = 0;
pub const TILE: u32 = 1;

/// Names of the synthetic kernel.
pub fn info(level: Level) -> TraceInfo {
    let mut info = TraceInfo::new(level, Some(2000.0));
    let math = Work { math: true, ..Work::default() };
    let tensor = Work { tensor: true, ..Work::default() };
    let load = Work { load: true, ..Work::default() };
    info.roles = vec![
        Role::new("Softmax", StepRule::Wait(P_EMPTY as u16)).works(math),
        Role::new("PV", StepRule::Wait(P_FULL as u16)).works(tensor),
        Role::new("Load", StepRule::Unstated).works(load),
    ];
    info.events =
        vec![EventName::new("chunk", EventPurpose::ChunkWrite), EventName::new("tile", EventPurpose::Tile)];
    info.barriers = vec![
        Barrier::new("P_full", BarrierPurpose::First),
        Barrier::new("P_empty", BarrierPurpose::Free),
        Barrier::new("K_full", BarrierPurpose::Plain),
    ];
    info.edges = vec![
        Edge { barrier: 0, arriving: Releaser::Role(0), waiting: 1 },
        Edge { barrier: 1, arriving: Releaser::Role(1), waiting: 0 },
        Edge { barrier: 2, arriving: Releaser::Hardware { issuer: Some(2) }, waiting: 0 },
    ];
    for (key, value) in [
        ("device", "Test GPU"),
        ("date", "2026-11-30"),
        ("command", "test"),
        ("driver", "1.0"),
        ("kernel", "toy"),
    ] {
        info.meta.insert(key.into(), value.into());
    }
    info
}

/// Records of a ring as (kind, id, clock since open), with the header's counts set for nothing dropped.
pub fn ring(cta: u32, role: u32, open: u64, records: &[(u32, u32, u64)], close: u64) -> RingRecords {
    let header = b::kbt_trace_ring {
        opened: b::KBT_TRACE_RING_OPEN,
        closed: b::KBT_TRACE_RING_CLOSED,
        cta,
        smid: cta * 2,
        role,
        total: records.len() as u32,
        open_clock: open,
        close_clock: open + close,
        open_global_ns: 1_000_000 + u64::from(cta) * 500,
        close_global_ns: 1_000_000 + u64::from(cta) * 500 + close / 2,
        ..Default::default()
    };
    let record = |&(kind, id, at): &(u32, u32, u64)| b::kbt_trace_record {
        tag: tag(kind, id, 0),
        clock: (open + at) as u32,
    };
    RingRecords { header, records: records.iter().map(record).collect() }
}

/// `steps` steps of 1000 cycles: softmax waits 20 for P_empty and is busy 980, of which two chunks of 100; P·V waits
/// 400 for P_full, 60 of them after the arrival, and works 600, all of it one tile.
pub fn pipeline(cta: u32, steps: u64, open: u64) -> Vec<RingRecords> {
    let (mut softmax, mut pv) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let at = 500 + step * 1000;
        softmax.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_EMPTY, at),
            (b::KBT_TRACE_WAIT_END, P_EMPTY, at + 20),
            (b::KBT_TRACE_BEGIN, CHUNK, at + 700),
            (b::KBT_TRACE_END, CHUNK, at + 800),
            (b::KBT_TRACE_BEGIN, CHUNK, at + 850),
            (b::KBT_TRACE_END, CHUNK, at + 950),
            (b::KBT_TRACE_ARRIVE, P_FULL, at + 960),
        ]);
        pv.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_FULL, at + 620),
            (b::KBT_TRACE_WAIT_END, P_FULL, at + 1020),
            (b::KBT_TRACE_BEGIN, TILE, at + 1020),
            (b::KBT_TRACE_END, TILE, at + 1620),
        ]);
    }
    let close = 500 + steps * 1000 + 2000;
    vec![ring(cta, SOFTMAX, open, &softmax, close), ring(cta, PV, open, &pv, close)]
}

/// [`pipeline`] with P·V's releases recorded: softmax fills P at 960 of each step, P·V lets go at 1600, which is 600 of
/// softmax's next step.
pub fn filled_and_freed(cta: u32, steps: u64) -> Vec<RingRecords> {
    let mut rings = pipeline(cta, steps, 0);
    let mut pv = Vec::new();
    for step in 0..steps {
        let at = 500 + step * 1000;
        pv.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_FULL, at + 620),
            (b::KBT_TRACE_WAIT_END, P_FULL, at + 1020),
            (b::KBT_TRACE_BEGIN, TILE, at + 1020),
            (b::KBT_TRACE_END, TILE, at + 1590),
            (b::KBT_TRACE_ARRIVE, P_EMPTY, at + 1600),
        ]);
    }
    rings[1] = ring(cta, PV, 0, &pv, 500 + steps * 1000 + 2500);
    rings
}

pub fn file(info: &TraceInfo, capacity: u32, rings: &[RingRecords]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FileWriter::write(&mut bytes, info, capacity, rings).unwrap();
    bytes
}

pub fn analysed(
    bytes: &[u8],
    options: &ReadOptions,
    more: AnalyseOptions,
) -> Result<TraceOutcome, TraceError> {
    let mut source = open(Box::new(std::io::Cursor::new(bytes.to_vec())), "a.trace", options)?;
    let more = AnalyseOptions { name: "a.trace".into(), ..more };
    analyse(source.as_mut(), &more)
}

pub fn outcome(bytes: &[u8]) -> TraceOutcome {
    let more = AnalyseOptions { timeline_steps: 3, ..AnalyseOptions::default() };
    analysed(bytes, &ReadOptions::default(), more).unwrap()
}

/// An observer report in which coarse tracing costs `percent`.
pub fn observed(percent: f64) -> ObserverReport {
    let off = vec![100.0; 10];
    let coarse = vec![100.0 + percent; 10];
    let provenance = Provenance::measured("kbt trace observe", "Test GPU", "2026-11-30");
    ObserverReport::new(&[(Level::Off, off), (Level::Coarse, coarse)], 5.0, provenance).unwrap()
}
