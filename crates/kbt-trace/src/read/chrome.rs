//! Chrome trace events, whoever wrote them: `X`, `B`/`E`, `b`/`e` and instants; a process is a CTA, a thread a role.
//!
//! The format says microseconds. Real writers put nanoseconds or cycles there, so the unit is deduced from the
//! values and said, or refused where the values fit more than one.

use super::named::{Means, Names, Spans};
use super::{ReadOptions, Unit, json};
use crate::{
    Clock, CtaTrace, Input, MemoryTrace, ProblemKind, Problems, Role, StepRule, TraceError, TraceInfo,
};
use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Object {
    #[serde(rename = "traceEvents")]
    trace_events: Vec<Record>,
    #[serde(rename = "otherData", default)]
    other_data: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Record {
    ph: String,
    name: String,
    pid: Value,
    tid: Value,
    id: Value,
    ts: Option<Number>,
    dur: Option<Number>,
    args: Value,
}

/// What a time stamp is in ticks of the trace's clock.
struct Scale {
    clock: Clock,
    /// Ticks per unit of the file.
    ticks: f64,
    /// What is subtracted first: 0, or the earliest stamp where that is negative.
    origin: f64,
    /// Stamps and lengths that can be of this trace.
    span: Plausible,
    /// Stamps below zero.
    negative: u64,
    why: &'static str,
}

/// The longest trace: 52 days in nanoseconds, 142 years in microseconds.
const LONGEST: f64 = (1_u64 << 52) as f64;

/// What lies near enough to the middle stamp: one stamp of 1e30 must neither move the others nor coarsen their clock.
#[derive(Clone, Copy)]
struct Plausible {
    middle: f64,
}

impl Plausible {
    fn of(records: &[Record]) -> Self {
        let stamps = records.iter().filter(|r| r.ph != "M").filter_map(|r| r.ts.as_ref()?.as_f64());
        let mut stamps: Vec<f64> = stamps.collect();
        let half = stamps.len() / 2;
        let middle =
            if stamps.is_empty() { 0.0 } else { *stamps.select_nth_unstable_by(half, f64::total_cmp).1 };
        Self { middle }
    }

    fn stamp(self, value: f64) -> bool {
        (value - self.middle).abs() <= LONGEST
    }
}

impl Scale {
    fn ticks(&self, number: &Number) -> Option<u64> {
        if !self.span.stamp(number.as_f64()?) {
            return None;
        }
        // Integers beyond 2^53 (absolute nanoseconds) must not pass through a float.
        if self.ticks == 1.0 && self.origin == 0.0 && number.is_u64() {
            return number.as_u64();
        }
        let ticks = ((number.as_f64()? - self.origin) * self.ticks).round();
        (0.0..1.8e19).contains(&ticks).then_some(ticks as u64)
    }
}

pub(super) fn read(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let array = bytes.iter().find(|c| !c.is_ascii_whitespace()) == Some(&b'[');
    let (object, cut) = if array {
        let (trace_events, cut) = json::parse(bytes, name)?;
        (Object { trace_events, other_data: Value::Null }, cut)
    } else {
        json::parse(bytes, name)?
    };
    let records = object.trace_events;
    let empty = || TraceError::Empty {
        name: name.to_owned(),
        why: format!("{} trace events, none of them a span or an instant", records.len()),
    };
    if !records.iter().any(|r| r.ph != "M" && r.ts.is_some()) {
        return Err(empty());
    }
    let mut problems = Problems::default();
    problems.add(ProblemKind::Truncated, None, u64::from(cut.is_some()), || cut.unwrap_or_default());
    let scale = scale(&records, &object.other_data, name, options)?;
    problems
        .add(ProblemKind::NegativeStamps, None, scale.negative, || format!("{} in the file", scale.origin));
    if options.unit.is_none() {
        problems.add(ProblemKind::UnitDetected, None, 1, || scale.why.to_owned());
    }
    let labels = labels(&records);
    let mut build = Build {
        scale: &scale,
        labels: &labels,
        names: Names::default(),
        roles: Vec::new(),
        role_ids: BTreeMap::new(),
        lanes: BTreeMap::new(),
        open: BTreeMap::new(),
    };
    for (index, record) in records.iter().enumerate() {
        if let Err(kind) = build.add(record) {
            problems.add(kind, None, 1, || format!("first at trace event {index}"));
        }
    }
    let unclosed = build.open.values().map(|stack| stack.len() as u64).sum();
    problems.add(ProblemKind::OrphanBegin, None, unclosed, String::new);
    let Build { names, lanes, roles, .. } = build;
    problems.add(ProblemKind::Ignored, None, names.too_many, || "more than 65536 names".into());
    let cta = |(number, (pid, lanes)): (usize, (String, BTreeMap<usize, Spans>))| CtaTrace {
        cta: cta_number(labels.process.get(&pid).unwrap_or(&pid)).unwrap_or(number as u32),
        smid: None,
        anchor: None,
        lanes: lanes.into_iter().map(|(role, spans)| spans.into_lane(role)).collect(),
    };
    let ctas: Vec<_> = lanes.into_iter().enumerate().map(cta).collect();
    if ctas.is_empty() {
        return Err(empty());
    }
    let (events, barriers) = names.tables();
    let info = TraceInfo {
        format: Input::Chrome,
        level: None,
        clock: scale.clock,
        roles: roles.into_iter().map(|name| Role::new(name, StepRule::Unstated)).collect(),
        events,
        barriers,
        edges: Vec::new(),
        meta: BTreeMap::new(),
    };
    Ok(MemoryTrace::new(info, ctas, problems))
}

/// Deduces the unit: by option, by what kbt or Proton wrote beside the records, else by the values.
fn scale(
    records: &[Record],
    other_data: &Value,
    name: &str,
    options: &ReadOptions,
) -> Result<Scale, TraceError> {
    let sm_mhz = options.clock_mhz;
    let timed = || records.iter().filter(|r| r.ph != "M");
    let span = Plausible::of(records);
    let stamps = || timed().filter_map(|r| r.ts.as_ref()?.as_f64()).filter(|ts| span.stamp(*ts));
    let lengths = || timed().filter_map(|r| r.dur.as_ref()?.as_f64()).filter(|dur| dur.abs() <= LONGEST);
    let values = || stamps().chain(lengths());
    let earliest = stamps().fold(0.0, f64::min);
    let negative = stamps().filter(|ts| *ts < 0.0).count() as u64;
    let integral = values().all(|v| v.fract() == 0.0);
    let steps_by_32 = |per_unit: f64| values().all(|v| (v * per_unit).round() % 32.0 == 0.0);
    let spread = values().any(|v| v != 0.0);
    let scale = |clock, ticks, why| Ok(Scale { clock, ticks, origin: earliest, span, negative, why });
    let nanoseconds = |ticks: f64| {
        // A float of this size cannot tell finer steps apart.
        let coarsest = values().fold(0.0, |a: f64, v| a.max(v.abs())) * f64::EPSILON * ticks;
        let timer = if spread && steps_by_32(ticks) { 32 } else { 1 };
        Clock::Nanoseconds {
            quantum_ns: if integral { timer } else { timer.max(coarsest.ceil() as u64) },
            sm_mhz,
        }
    };
    let cycles = Clock::Cycles { sm_mhz };
    match options.unit {
        Some(Unit::Microseconds) => return scale(nanoseconds(1000.0), 1000.0, ""),
        Some(Unit::Nanoseconds) => return scale(nanoseconds(1.0), 1.0, ""),
        Some(Unit::Cycles) => return scale(cycles, 1.0, ""),
        None => {}
    }
    if let Some(ticks) = other_data.get(super::CHROME_CYCLES).and_then(Value::as_f64).filter(|t| *t > 0.0) {
        let mhz = other_data.get(super::CHROME_MHZ).and_then(Value::as_f64);
        let clock = Clock::Cycles { sm_mhz: sm_mhz.or(mhz) };
        return scale(clock, ticks, "written by kbt: SM cycles, by the factor beside the records");
    }
    let proton = |r: &Record| {
        let place = r.pid.as_str().is_some_and(|p| p.contains(" Core") && p.contains(" CTA"));
        place || r.args.get("Frequency (MHz)").is_some()
    };
    if timed().any(proton) {
        return scale(cycles, 1000.0, "written by Proton: cycles at an assumed 1 GHz, so cycles / 1000");
    }
    match (integral, spread && steps_by_32(1.0)) {
        (true, true) => {
            scale(nanoseconds(1.0), 1.0, "all stamps are multiples of 32: nanoseconds in the us field")
        }
        (true, false) => Err(TraceError::Unit {
            name: name.to_owned(),
            why: "all stamps are whole numbers, which are microseconds, nanoseconds or cycles alike".into(),
        }),
        (false, _) => {
            scale(nanoseconds(1000.0), 1000.0, "stamps have fractions: microseconds, as the format says")
        }
    }
}

/// Names that metadata records give to processes and threads.
struct Labels {
    process: BTreeMap<String, String>,
    thread: BTreeMap<(String, String), String>,
}

fn labels(records: &[Record]) -> Labels {
    let mut found = Labels { process: BTreeMap::new(), thread: BTreeMap::new() };
    for record in records.iter().filter(|r| r.ph == "M") {
        let Some(label) = record.args.get("name").and_then(Value::as_str).map(str::to_owned) else {
            continue;
        };
        match record.name.as_str() {
            "process_name" => {
                found.process.insert(key(&record.pid), label);
            }
            "thread_name" => {
                found.thread.insert((key(&record.pid), key(&record.tid)), label);
            }
            _ => {}
        }
    }
    found
}

fn key(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The number after the last `CTA` of a process's name.
fn cta_number(process: &str) -> Option<u32> {
    let tail = process.rsplit_once("CTA").map_or(process, |(_, tail)| tail);
    let digits: String = tail.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Begins that wait for their end: by process, thread and, for async spans, id.
type OpenSpans = BTreeMap<(String, String, String), Vec<(u64, String)>>;

struct Build<'a> {
    scale: &'a Scale,
    labels: &'a Labels,
    names: Names,
    roles: Vec<String>,
    role_ids: BTreeMap<String, usize>,
    lanes: BTreeMap<String, BTreeMap<usize, Spans>>,
    open: OpenSpans,
}

impl Build<'_> {
    fn add(&mut self, record: &Record) -> Result<(), ProblemKind> {
        let at = |build: &Self| {
            let ts = record.ts.as_ref().ok_or(ProblemKind::UnknownRecord)?;
            build.scale.ticks(ts).ok_or(ProblemKind::FarStamp)
        };
        // An async span is told apart by its id, a B/E pair by nesting alone.
        let id = if matches!(record.ph.as_str(), "b" | "e") { key(&record.id) } else { String::new() };
        match record.ph.as_str() {
            "X" => {
                let start = at(self)?;
                let dur = record.dur.as_ref().and_then(Number::as_f64).ok_or(ProblemKind::UnknownRecord)?;
                if dur < 0.0 {
                    return Err(ProblemKind::ClockBackwards);
                }
                if dur > LONGEST {
                    return Err(ProblemKind::FarStamp);
                }
                let length = (dur * self.scale.ticks).round() as u64;
                self.span(record, &record.name, start, start.saturating_add(length))
            }
            "B" | "b" => {
                let start = at(self)?;
                let place = (key(&record.pid), key(&record.tid), id);
                self.open.entry(place).or_default().push((start, record.name.clone()));
                Ok(())
            }
            "E" | "e" => {
                let end = at(self)?;
                let place = (key(&record.pid), key(&record.tid), id);
                let open = self.open.get_mut(&place).and_then(Vec::pop);
                let (start, name) = open.ok_or(ProblemKind::OrphanEnd)?;
                if end < start {
                    return Err(ProblemKind::ClockBackwards);
                }
                self.span(record, &name, start, end)
            }
            "i" | "I" | "n" => {
                let at = at(self)?;
                if let Some(Means::Event(event)) = self.names.span(&record.name) {
                    self.lane(record).instant(at, event);
                }
                Ok(())
            }
            "M" => Ok(()),
            _ => Err(ProblemKind::Ignored),
        }
    }

    fn span(&mut self, record: &Record, name: &str, start: u64, end: u64) -> Result<(), ProblemKind> {
        // Proton's summary of the call path is no lane of any CTA.
        if record.pid.as_str() == Some("Kernel Call Path") {
            return Err(ProblemKind::Ignored);
        }
        if let Some(means) = self.names.span(name) {
            self.lane(record).span(start, end, means);
        }
        Ok(())
    }

    fn lane(&mut self, record: &Record) -> &mut Spans {
        let (pid, tid) = (key(&record.pid), key(&record.tid));
        let label = self.labels.thread.get(&(pid.clone(), tid.clone())).cloned().unwrap_or(tid);
        // Proton puts overlapping spans of one warp on lines of their own.
        let role = label.split(" (line ").next().unwrap_or(&label);
        let index = match self.role_ids.get(role) {
            Some(&index) => index,
            None => {
                self.roles.push(role.to_owned());
                self.role_ids.insert(role.to_owned(), self.roles.len() - 1);
                self.roles.len() - 1
            }
        };
        self.lanes.entry(pid).or_default().entry(index).or_default()
    }
}
