//! Chrome trace events, whoever wrote them: `X`, `B`/`E`, `b`/`e` and instants; a process is a CTA, a thread a role.
//!
//! Events may stand in any order. The unit of the time stamps is deduced from the values and said, or refused where
//! the values fit more than one (`scale`).

mod carried;
mod pairs;
mod scale;

use super::named::{Names, Spans};
use super::{CHROME_LINE, ReadOptions, json};
use crate::{CtaTrace, Input, MemoryTrace, ProblemKind, Problems, Role, TimeLine, TraceError, TraceInfo};
use pairs::{Mark, Paired, pair};
use scale::{LONGEST, Scale, scale};
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
struct Object {
    #[serde(rename = "traceEvents")]
    trace_events: Vec<Record>,
    #[serde(rename = "otherData", default)]
    other_data: Value,
    #[serde(rename = "kbt_problems", default)]
    kbt_problems: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Record {
    #[serde(deserialize_with = "text")]
    ph: String,
    #[serde(deserialize_with = "text")]
    name: String,
    pid: Value,
    tid: Value,
    id: Value,
    #[serde(deserialize_with = "number")]
    ts: Option<Number>,
    #[serde(deserialize_with = "number")]
    dur: Option<Number>,
    args: Value,
}

/// A text, or what a careless writer put in its place: one record must not cost the others.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(if value.is_null() { String::new() } else { key(&value) })
}

/// A number, also where it was written as a text. Anything else is none, and its record is counted as a problem.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Number>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => Some(number),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

pub(super) fn read(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let array = bytes.iter().find(|c| !c.is_ascii_whitespace()) == Some(&b'[');
    let mut problems = Problems::default();
    let object = if array {
        let trace_events = json::parse(bytes, name, &mut problems)?;
        Object { trace_events, other_data: Value::Null, kbt_problems: Value::Null }
    } else {
        json::parse(bytes, name, &mut problems)?
    };
    let records = object.trace_events;
    let empty = |problems: &Problems| {
        let events = records.len();
        problems.empty(
            name,
            format!("{events} trace events, none of them a span from begin to end, nor an instant"),
        )
    };
    if !records.iter().any(|r| r.ph != "M" && r.ts.is_some()) {
        return Err(empty(&problems));
    }
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
        marks: BTreeMap::new(),
    };
    for (index, record) in records.iter().enumerate() {
        if let Err(kind) = build.add(index, record) {
            problems.add(kind, None, 1, || format!("first at trace event {index}"));
        }
    }
    build.pair(&records, &mut problems);
    let Build { names, lanes, roles, .. } = build;
    problems.add(ProblemKind::Ignored, None, names.too_many, || "more than 65536 names".into());
    let cta = |(number, (pid, lanes)): (usize, (String, BTreeMap<usize, Spans>))| {
        let process = labels.process.get(&pid).unwrap_or(&pid);
        CtaTrace {
            cta: cta_number(process).unwrap_or(number as u32),
            smid: numbered(process, &["SM ", "Core"]),
            anchor: None,
            lanes: lanes.into_iter().map(|(role, spans)| spans.into_lane(role)).collect(),
        }
    };
    let ctas: Vec<_> = lanes.into_iter().enumerate().map(cta).collect();
    if ctas.is_empty() {
        return Err(empty(&problems));
    }
    let (events, barriers) = names.tables();
    let roles = roles.into_iter().map(|name| {
        let step = carried::step(&object.other_data, &name, &events, &barriers);
        Role::new(name, step)
    });
    let roles = roles.collect();
    carried::problems(&object.kbt_problems, &mut problems);
    let info = TraceInfo {
        format: Input::Chrome,
        level: carried::level(&object.other_data, &mut problems),
        clock: scale.clock,
        time_line: TimeLine::Cta,
        roles,
        events,
        barriers,
        edges: Vec::new(),
        meta: BTreeMap::new(),
    };
    let trace = MemoryTrace::new(info, ctas, problems);
    Ok(match object.other_data.get(CHROME_LINE).and_then(Value::as_str) {
        Some("cta") => trace,
        Some("sm") => trace.by_sm(),
        _ => trace.on_one_line(),
    })
}

/// Names that metadata records give to processes and threads.
struct Labels {
    process: BTreeMap<String, String>,
    thread: BTreeMap<(String, String), String>,
    /// Names of threads that some process gives to more than one of them.
    shared: BTreeSet<String>,
}

fn labels(records: &[Record]) -> Labels {
    let mut found = Labels { process: BTreeMap::new(), thread: BTreeMap::new(), shared: BTreeSet::new() };
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
    let mut seen = BTreeSet::new();
    for ((pid, _), name) in &found.thread {
        if !seen.insert((pid, name)) {
            found.shared.insert(name.clone());
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

/// The number after one of `words`, where the word begins one of the name's.
fn numbered(process: &str, words: &[&str]) -> Option<u32> {
    let starts = |at: usize| !process[..at].ends_with(|c: char| c.is_alphanumeric());
    words.iter().find_map(|word| {
        let (at, _) = process.match_indices(word).find(|(at, _)| starts(*at))?;
        let tail = &process[at + word.len()..];
        tail[..tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len())].parse().ok()
    })
}

/// What pairs begins with ends: process, thread and, for async spans, id.
type Place = (String, String, String);

struct Build<'a> {
    scale: &'a Scale,
    labels: &'a Labels,
    names: Names,
    roles: Vec<String>,
    role_ids: BTreeMap<(String, Option<String>), usize>,
    lanes: BTreeMap<String, BTreeMap<usize, Spans>>,
    marks: BTreeMap<Place, Vec<Mark>>,
}

impl Build<'_> {
    fn add(&mut self, index: usize, record: &Record) -> Result<(), ProblemKind> {
        let at = |build: &Self| {
            let ts = record.ts.as_ref().ok_or(ProblemKind::UnknownRecord)?;
            build.scale.ticks(ts).ok_or(ProblemKind::FarStamp)
        };
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
                self.span(record, start, start.saturating_add(length))
            }
            ph @ ("B" | "b" | "E" | "e") => {
                let at = at(self)?;
                // An async span is told apart by its id, a B/E pair by thread and name.
                let id = if matches!(ph, "b" | "e") { key(&record.id) } else { String::new() };
                let begins = matches!(ph, "B" | "b");
                if begins {
                    // Roles stand in the order of the file.
                    self.role(record);
                }
                let place = (key(&record.pid), key(&record.tid), id);
                self.marks.entry(place).or_default().push(Mark { at, begins, record: index });
                Ok(())
            }
            "i" | "I" | "n" => {
                let at = at(self)?;
                if let Some(event) = self.names.instant(&record.name) {
                    self.lane(record).instant(at, event);
                }
                Ok(())
            }
            "M" => Ok(()),
            _ => Err(ProblemKind::Ignored),
        }
    }

    /// Makes spans of begins and ends.
    fn pair(&mut self, records: &[Record], problems: &mut Problems) {
        for marks in std::mem::take(&mut self.marks).into_values() {
            let Paired { spans, orphan_begins, orphan_ends } = pair(marks, |r| records[r].name.as_str());
            for (begin, start, end) in spans {
                if let Err(kind) = self.span(&records[begin], start, end) {
                    problems.add(kind, None, 1, || format!("first at trace event {begin}"));
                }
            }
            for (kind, orphans) in
                [(ProblemKind::OrphanBegin, orphan_begins), (ProblemKind::OrphanEnd, orphan_ends)]
            {
                let first = orphans.first().copied().unwrap_or(0);
                problems.add(kind, None, orphans.len() as u64, || format!("first at trace event {first}"));
            }
        }
    }

    fn span(&mut self, record: &Record, start: u64, end: u64) -> Result<(), ProblemKind> {
        // Proton's summary of the call path is no lane of any CTA.
        if record.pid.as_str() == Some("Kernel Call Path") {
            return Err(ProblemKind::Ignored);
        }
        if let Some(means) = self.names.span(&record.name) {
            self.lane(record).span(start, end, means);
        }
        Ok(())
    }

    fn lane(&mut self, record: &Record) -> &mut Spans {
        let role = self.role(record);
        self.lanes.entry(key(&record.pid)).or_default().entry(role).or_default()
    }

    fn role(&mut self, record: &Record) -> usize {
        let (pid, tid) = (key(&record.pid), key(&record.tid));
        let named = self.labels.thread.get(&(pid, tid.clone()));
        // Threads of one process that bear one name are lanes of their own.
        let apart = named.filter(|name| self.labels.shared.contains(*name)).map(|_| tid.clone());
        let label = named.cloned().unwrap_or(tid);
        // Proton puts overlapping spans of one warp on lines of their own.
        let role = label.split(" (line ").next().unwrap_or(&label);
        let key = (role.to_owned(), apart);
        if let Some(&index) = self.role_ids.get(&key) {
            return index;
        }
        self.roles.push(match &key {
            (role, Some(tid)) => format!("{role} (tid {tid})"),
            (role, None) => role.clone(),
        });
        self.role_ids.insert(key, self.roles.len() - 1);
        self.roles.len() - 1
    }
}
