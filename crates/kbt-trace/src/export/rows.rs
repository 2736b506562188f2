//! A trace as rows of numbers for tables: one JSON line that says what they mean ([`RowsHead`]), then a JSON array a
//! row, then `{"rows": N}`, without which the rows are not whole. Made for `kbt-frame`, which turns them into Parquet; the columns are in [`RowsHead`]'s documentation.

use super::time::Time;
use super::{LeftOut, releases, spans};
use crate::analyse::provenance;
use crate::{Clock, CtaTrace, Input, Kind, Source, TimeLine, TraceError};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// The schema's name.
pub const ROWS_SCHEMA: &str = "kbt.trace-rows/1";

/// What the rows mean: the first line.
///
/// A row is `[cta, sm, role, kind, id, begin, end, step, released_at, released_by, cta_begin]`. `sm`, `step` (the kernel's own
/// count modulo 2^16), `released_at`, `released_by` and `cta_begin` may be null. `kind` indexes [`RowsHead::kinds`]; `id` indexes
/// the barriers for waits and arrivals and the events for the rest; `role` and `released_by` index the roles. Times are
/// in [`RowsHead::time_unit`], from the first record of the CTA; `end` is null for what has no length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowsHead {
    /// Always [`ROWS_SCHEMA`].
    pub schema: String,
    /// Columns of a row, in order.
    pub columns: Vec<String>,
    /// What a row is.
    pub kinds: Vec<String>,
    /// `cycles` or `ns`.
    pub time_unit: String,
    /// The unit of `cta_begin`, the time of the CTA's first record beside other CTAs': `cycles` or `ns`.
    pub cta_begin_unit: String,
    /// What `cta_begin` is counted from, or why it is null.
    pub cta_begin_from: String,
    /// The clock's step in [`RowsHead::time_unit`]: no statement finer than two of it holds.
    pub quantum_ticks: u64,
    /// The recorder's format.
    pub format: Input,
    /// Names by index.
    pub roles: Vec<String>,
    /// Names by index.
    pub events: Vec<String>,
    /// Names by index.
    pub barriers: Vec<String>,
    /// What the recorder says of the run.
    pub meta: BTreeMap<String, String>,
    /// How the times are known.
    pub provenance: Provenance,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowCounts {
    /// Rows.
    pub rows: u64,
    /// Records that are in none of them.
    pub left_out: LeftOut,
}

const COLUMNS: [&str; 11] =
    ["cta", "sm", "role", "kind", "id", "begin", "end", "step", "released_at", "released_by", "cta_begin"];
const KINDS: [&str; 4] = ["event", "wait", "instant", "arrive"];

type Row = (
    u32,
    Option<u32>,
    usize,
    u8,
    u16,
    u64,
    Option<u64>,
    Option<u16>,
    Option<u64>,
    Option<usize>,
    Option<u64>,
);

/// Writes every span, instant and arrival of `source`, and says how many rows there are. `name` stands for the file.
///
/// # Errors
/// If the source cannot be read or `out` not written.
pub fn write_rows(source: &mut dyn Source, name: &str, out: &mut dyn Write) -> Result<RowCounts, TraceError> {
    let info = source.info().clone();
    let names = |all: &mut dyn Iterator<Item = &String>| all.cloned().collect();
    let time_unit = if matches!(info.clock, Clock::Cycles { .. }) { "cycles" } else { "ns" };
    let (cta_begin_unit, cta_begin_from) = match info.time_line {
        TimeLine::Timer => ("ns", "the global timer's 0; null without an anchor there, or an SM clock"),
        TimeLine::Trace { .. } => (time_unit, "the first record of the trace"),
        TimeLine::Sm => (time_unit, "the first record of the SM, whose clock nothing relates to others"),
        TimeLine::Cta => (time_unit, "null: nothing relates the clocks of two CTAs"),
    };
    let head = RowsHead {
        schema: ROWS_SCHEMA.into(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        kinds: KINDS.map(str::to_owned).to_vec(),
        time_unit: time_unit.into(),
        cta_begin_unit: cta_begin_unit.into(),
        cta_begin_from: cta_begin_from.into(),
        quantum_ticks: info.clock.quantum_ticks(),
        format: info.format,
        roles: names(&mut info.roles.iter().map(|r| &r.name)),
        events: names(&mut info.events.iter().map(|e| &e.name)),
        barriers: names(&mut info.barriers.iter().map(|b| &b.name)),
        meta: info.meta.clone(),
        provenance: provenance(&info, name),
    };
    line(out, &head)?;
    let has_steps = info.format == Input::Kbt;
    let mut time = Time::of(info.clock, info.time_line);
    let (mut cta, mut rows, mut left_out) = (CtaTrace::default(), 0, LeftOut::default());
    while source.next_cta(&mut cta)? {
        let origin = cta.first_tick().unwrap_or(0);
        let cta_begin = time.begin(&cta);
        let lanes: Vec<_> = cta.lanes.iter().map(|lane| spans(lane, &mut left_out)).collect();
        let joined: BTreeMap<_, _> =
            releases(&cta, &info, &lanes).into_iter().map(|r| ((r.to, r.barrier), r.from)).collect();
        for (index, (lane, spans)) in cta.lanes.iter().zip(&lanes).enumerate() {
            let row = |kind, id, at: u64, end: Option<u64>, step, from: Option<&(usize, u64)>| -> Row {
                let time = |at: u64| at.saturating_sub(origin);
                let by = from.map(|(lane, _)| cta.lanes[*lane].role);
                let step = Some(step).filter(|_| has_steps);
                let released = from.map(|(_, at)| time(*at));
                (
                    cta.cta,
                    cta.smid,
                    lane.role,
                    kind,
                    id,
                    time(at),
                    end.map(time),
                    step,
                    released,
                    by,
                    cta_begin,
                )
            };
            for span in spans {
                let from = joined.get(&((index, span.end), span.id)).filter(|_| span.wait);
                line(out, &row(span.wait.into(), span.id, span.begin, Some(span.end), span.step, from))?;
                rows += 1;
            }
            for event in &lane.events {
                let kind = match event.kind {
                    Kind::Instant => 2,
                    Kind::Arrive => 3,
                    _ => continue,
                };
                line(out, &row(kind, event.id, event.at, None, event.step, None))?;
                rows += 1;
            }
        }
    }
    left_out.clocks_apart = time.clocks_apart();
    line(out, &serde_json::json!({ "rows": rows }))?;
    out.flush().map_err(TraceError::io("trace rows"))?;
    Ok(RowCounts { rows, left_out })
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), TraceError> {
    serde_json::to_writer(&mut *out, value)
        .map_err(std::io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .map_err(TraceError::io("trace rows"))
}
