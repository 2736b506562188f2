//! Chrome trace events: a process per CTA, a thread per role. For viewers that take nothing else, and read back by
//! kbt without loss of cycles: `otherData` holds how many SM cycles one unit of a time stamp is. It also holds the level
//! and where steps start, and what damages the trace follows the events: a trace that gives no verdict gives none after
//! its export either.

use super::time::{Time, minus};
use super::{ExportCounts, flows, occupancy, span_name, spans};
use crate::read::{CHROME_CYCLES, CHROME_LEVEL, CHROME_LINE, CHROME_MHZ, CHROME_PROBLEMS, CHROME_STEPS};
use crate::rings;
use crate::{Clock, CtaTrace, Kind, Source, StepRule, TimeLine, TraceError, TraceInfo};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;

/// Writes the whole of `source` as Chrome trace events.
///
/// # Errors
/// If the source cannot be read or `out` not written.
pub fn write_chrome(source: &mut dyn Source, out: &mut dyn Write) -> Result<ExportCounts, TraceError> {
    let info = source.info().clone();
    let (rings, _) = rings::find(&info);
    let mut time = Time::of(info.clock, info.time_line);
    let us_per_tick = time.ns_per_tick / 1000.0;
    let io = || TraceError::io("chrome trace");
    let mut other = json!({});
    if let Clock::Cycles { sm_mhz } = info.clock {
        other[CHROME_CYCLES] = json!(1.0 / us_per_tick);
        if let Some(mhz) = sm_mhz {
            other[CHROME_MHZ] = json!(mhz);
        } else {
            other["unit"] = json!("SM cycles / 1000: the SM clock is not known");
        }
    }
    if matches!(info.time_line, TimeLine::Cta | TimeLine::Sm) {
        other[CHROME_LINE] = json!(info.time_line.as_str());
    }
    if let Some(level) = info.level {
        other[CHROME_LEVEL] = json!(level);
    }
    other[CHROME_STEPS] = steps(&info);
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":[").map_err(io())?;
    let mut counts = ExportCounts::default();
    let mut cta = CtaTrace::default();
    let (mut first, mut next_flow, mut epoch, mut pids) = (true, 1, None, Pids::default());
    while source.next_cta(&mut cta)? {
        let origin = time.origin(&cta);
        let shift_us = minus(origin.ns, *epoch.get_or_insert(origin.ns)) / 1000.0;
        let us = |at: u64| shift_us + minus(at, origin.tick) * us_per_tick;
        let lanes: Vec<_> = cta.lanes.iter().map(|lane| spans(lane, &mut counts.left_out)).collect();
        let flows = flows(&cta, &info, &lanes, &mut next_flow);
        let pid = pids.of(cta.cta);
        let mut events = vec![named("process_name", pid, 0, &time.name(&cta, origin))];
        counts.tracks += 1;
        let most_lines = lanes.iter().flatten().map(|s| s.line + 1).max().unwrap_or(1).max(16);
        for (index, (lane, spans)) in cta.lanes.iter().zip(&lanes).enumerate() {
            let tid = |line: usize| lane.role * most_lines + line;
            let role = info.role_name(lane.role);
            for line in 0..spans.iter().map(|s| s.line + 1).max().unwrap_or(1) {
                let name = if line == 0 { role.clone() } else { format!("{role} (line {line})") };
                events.push(named("thread_name", pid, tid(line), &name));
                counts.tracks += 1;
            }
            for span in spans {
                let (ts, dur) = (us(span.begin), (span.end - span.begin) as f64 * us_per_tick);
                let name = span_name(&info, span);
                events.push(
                    json!({"ph": "X", "pid": pid, "tid": tid(span.line), "ts": ts, "dur": dur, "name": name}),
                );
            }
            counts.slices += spans.len() as u64;
            for event in &lane.events {
                let name = match event.kind {
                    Kind::Instant => info.event_name(event.id),
                    Kind::Arrive => format!("arrive {}", info.barrier_name(event.id)),
                    _ => continue,
                };
                let ts = us(event.at);
                events.push(json!({"ph": "i", "s": "t", "pid": pid, "tid": tid(0), "ts": ts, "name": name}));
                counts.instants += 1;
            }
            let ends = |ph: &str, flow: u64, at: u64| json!({"ph": ph, "bp": "e", "id": flow, "pid": pid, "tid": tid(0), "ts": us(at), "name": "release", "cat": "release"});
            for (&(_, at, _), ids) in flows.from.range((index, 0, 0)..(index + 1, 0, 0)) {
                events.extend(ids.iter().map(|&flow| ends("s", flow, at)));
            }
            for (&(_, at, _), &flow) in flows.to.range((index, 0, 0)..(index + 1, 0, 0)) {
                events.push(ends("f", flow, at));
                counts.flows += 1;
            }
        }
        for ring in &rings {
            for part in occupancy(&cta, ring, &mut counts.left_out) {
                counts.counters += part.changes.len() as u64;
                let name = format!("ring {}: slots {}", ring.name, part.count.as_str());
                let counter = |(at, slots)| json!({"ph": "C", "pid": pid, "ts": us(at), "name": name, "args": {"slots": slots}});
                events.extend(part.changes.into_iter().map(counter));
            }
        }
        for event in events {
            let comma = if std::mem::take(&mut first) { "\n" } else { ",\n" };
            write!(out, "{comma}{event}").map_err(io())?;
        }
    }
    counts.left_out.clocks_apart = time.clocks_apart();
    // Complete only now.
    let damage: Vec<_> = source.problems().list().into_iter().filter(|p| p.kind.damages()).collect();
    let damage = json!(damage);
    write!(out, "\n],\"{CHROME_PROBLEMS}\":{damage}}}\n").and_then(|()| out.flush()).map_err(io())?;
    Ok(counts)
}

/// Where the roles' steps start, of those that say so.
fn steps(info: &TraceInfo) -> Value {
    let start = |step| match step {
        StepRule::Wait(id) => Some(json!({"wait": info.barrier_name(id)})),
        StepRule::Event(id) => Some(json!({"event": info.event_name(id)})),
        StepRule::Unstated => None,
    };
    info.roles.iter().filter_map(|role| Some((role.name.clone(), start(role.step)?))).collect()
}

/// Numbers of processes: a CTA's own, or another where a CTA of that number came before, as with several launches.
#[derive(Default)]
struct Pids {
    taken: BTreeSet<u64>,
}

impl Pids {
    fn of(&mut self, cta: u32) -> u64 {
        let own = u64::from(cta);
        let pid = if self.taken.contains(&own) { (1 << 32) + self.taken.len() as u64 } else { own };
        self.taken.insert(pid);
        pid
    }
}

fn named(what: &str, pid: u64, tid: usize, name: &str) -> Value {
    json!({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}})
}
