//! The JSON of NVIDIA's in-kernel event tracer (`run-iket --postprocess json`), in both of its shapes.
//!
//! Documented: `launches[].ranges[].{rangeName, startTs, endTs, warpLocs[]}`, `markers[].{markerName, timestamp,
//! location}`. As shipped: names and places are indices into `stringTable` and `locationTable`
//! (`rangeNameIdx`, `warpLocIdxs`, `markerNameIdx`, `locIdx`). Stamps are nanoseconds in steps of 32. A lane is a
//! warp of a CTA of one launch; the format knows no roles.

use super::named::{Names, Spans};
use super::{ReadOptions, flashinfer::gcd, json};
use crate::{
    Clock, CtaTrace, Input, MemoryTrace, ProblemKind, Problems, Role, StepRule, TimeLine, TraceError,
    TraceInfo, spelt,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The timer's documented step.
const QUANTUM_NS: u64 = 32;
/// The longest trace, 52 days: a stamp that far from the middle one is no time of it.
const LONGEST_NS: u64 = 1 << 52;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    string_table: Vec<String>,
    #[serde(default)]
    location_table: Vec<Location>,
    launches: Vec<Launch>,
    /// Launches of CUDA graphs: how their nodes record is not documented, so that none is read.
    #[serde(default)]
    graph_launches: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Launch {
    #[serde(deserialize_with = "name")]
    kernel_name: Option<String>,
    grid_dim_x: Option<u64>,
    grid_dim_y: Option<u64>,
    ranges: Vec<Range>,
    markers: Vec<Marker>,
}

/// A name, where it is a text: one that is none must not cost the launch.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_str().map(str::to_owned))
}

/// A time stamp, where it is one: a negative one, or a text, must not cost the file.
fn stamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64())
}

#[derive(Deserialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(default)]
    sm_id: Option<i64>,
    #[serde(default)]
    cta_id: Vec<u64>,
    warp_id: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Range {
    range_name: Option<String>,
    range_name_idx: Option<usize>,
    #[serde(default, deserialize_with = "stamp")]
    start_ts: Option<u64>,
    #[serde(default, deserialize_with = "stamp")]
    end_ts: Option<u64>,
    #[serde(default)]
    warp_locs: Vec<Location>,
    #[serde(default)]
    warp_loc_idxs: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    marker_name: Option<String>,
    marker_name_idx: Option<usize>,
    #[serde(default, deserialize_with = "stamp")]
    timestamp: Option<u64>,
    location: Option<Location>,
    loc_idx: Option<usize>,
}

/// Whether the JSON is this format's: it alone has `launches` with ranges at the top.
pub(super) fn is_iket(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(1 << 16)];
    let has = |word: &str| json::mentions(head, word);
    !has("\"traceEvents\"") && (has("\"launches\"") || (has("\"stringTable\"") && has("\"locationTable\"")))
}

pub(super) fn read(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let mut problems = Problems::default();
    let file: File = json::parse(bytes, name, &mut problems)?;
    let graphs = file.graph_launches.as_array().map_or(0, Vec::len) as u64;
    problems.add(ProblemKind::Ignored, None, graphs, || "graphLaunches".into());
    let mut names = Names::default();
    let mut lanes = Lanes::new();
    let mut quantum = 0;
    let taken = taken(&file.launches, name, options)?;
    let middle = middle(&taken);
    let far = |at: u64| at.abs_diff(middle) > LONGEST_NS;
    for &(index, launch) in &taken {
        let grid = (launch.grid_dim_x.unwrap_or(1 << 16), launch.grid_dim_y.unwrap_or(1 << 16));
        for range in &launch.ranges {
            let text =
                range.range_name.as_ref().or(range.range_name_idx.and_then(|i| file.string_table.get(i)));
            let shipped = range.warp_loc_idxs.first().and_then(|&i| file.location_table.get(i));
            let location = range.warp_locs.first().or(shipped);
            let means = text.and_then(|text| names.span(text));
            let lane = location.and_then(|location| lane(&mut lanes, index, grid, location));
            let (Some(spans), Some(means), Some(start), Some(end)) =
                (lane, means, range.start_ts, range.end_ts)
            else {
                problems.add(ProblemKind::UnknownRecord, None, 1, || format!("a range of launch {index}"));
                continue;
            };
            if end < start {
                problems.add(ProblemKind::ClockBackwards, None, 1, || format!("a range of launch {index}"));
                continue;
            }
            if far(start) || far(end) {
                problems.add(ProblemKind::FarStamp, None, 1, || format!("a range of launch {index}"));
                continue;
            }
            problems.add(ProblemKind::OtherWarps, None, u64::from(range.other_warps()), || {
                format!("first in launch {index}")
            });
            quantum = gcd(gcd(quantum, start), end);
            spans.span(start, end, means);
        }
        for marker in &launch.markers {
            let text =
                marker.marker_name.as_ref().or(marker.marker_name_idx.and_then(|i| file.string_table.get(i)));
            let shipped = marker.loc_idx.and_then(|i| file.location_table.get(i));
            let location = marker.location.as_ref().or(shipped);
            let lane = location.and_then(|location| lane(&mut lanes, index, grid, location));
            match (lane, text.and_then(|text| names.instant(text)), marker.timestamp) {
                (Some(_), Some(_), Some(at)) if far(at) => {
                    problems.add(ProblemKind::FarStamp, None, 1, || format!("a marker of launch {index}"));
                }
                (Some(spans), Some(id), Some(at)) => spans.instant(at, id),
                _ => problems
                    .add(ProblemKind::UnknownRecord, None, 1, || format!("a marker of launch {index}")),
            }
        }
    }
    let launches = taken.len();
    problems.add(ProblemKind::Ignored, None, names.too_many, || "more than 65536 names".into());
    let recorded: Vec<_> = taken.iter().filter(|(_, launch)| launch.recorded()).collect();
    if recorded.len() > 1 {
        problems.add(ProblemKind::Launches, None, recorded.len() as u64, || "--launch takes one".into());
    }
    let kernels: BTreeSet<_> =
        recorded.iter().filter_map(|(_, launch)| launch.kernel_name.as_ref()).collect();
    let kernel =
        kernels.first().filter(|_| kernels.len() == 1).map(|name| ("kernel".to_owned(), (*name).clone()));
    let (roles, ctas) = into_ctas(lanes);
    if ctas.is_empty() {
        let why = match problems.count(ProblemKind::UnknownRecord) {
            0 => {
                format!(
                    "{launches} launches without ranges; a kernel compiled before the run records nothing"
                )
            }
            lost => format!(
                "{lost} ranges and markers of {launches} launches, none with a name, a place and times; where the \
                 file was cut its tables may be missing"
            ),
        };
        return Err(problems.empty(name, why));
    }
    let (events, barriers) = names.tables();
    let info = TraceInfo {
        format: Input::Iket,
        level: None,
        // Stamps relative to some origin may share more factors than the timer's step.
        clock: Clock::Nanoseconds {
            quantum_ns: if quantum % QUANTUM_NS == 0 { QUANTUM_NS } else { 1 },
            sm_mhz: options.clock_mhz,
        },
        time_line: TimeLine::default(),
        roles,
        events,
        barriers,
        edges: Vec::new(),
        meta: kernel.into_iter().collect(),
    };
    Ok(MemoryTrace::new(info, ctas, problems).on_one_line())
}

/// The launches that are read, with their numbers: all, or the one asked for.
fn taken<'a>(
    launches: &'a [Launch],
    name: &str,
    options: &ReadOptions,
) -> Result<Vec<(usize, &'a Launch)>, TraceError> {
    let numbered = launches.iter().enumerate();
    let Some(wanted) = options.launch else { return Ok(numbered.collect()) };
    let found: Vec<_> =
        numbered.clone().filter(|(index, launch)| *index == wanted && launch.recorded()).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let with = numbered.filter(|(_, launch)| launch.recorded()).map(|(index, launch)| {
        let kernel = launch.kernel_name.as_ref().map_or_else(String::new, |k| format!(" ({})", spelt(k)));
        format!("{index}{kernel}")
    });
    let with: Vec<_> = with.collect();
    let none = if with.is_empty() { ", and nor has any other" } else { "" };
    Err(TraceError::Argument {
        what: "--launch",
        found: format!("{wanted}, which in {name} has no ranges and no markers{none}"),
        accepted: if with.is_empty() { "a file with ranges".into() } else { with.join(", ") },
    })
}

impl Launch {
    /// Whether anything of it was recorded.
    const fn recorded(&self) -> bool {
        !self.ranges.is_empty() || !self.markers.is_empty()
    }
}

impl Range {
    /// Whether it names more warps than the one that it is shown on.
    fn other_warps(&self) -> bool {
        self.warp_locs.iter().any(|other| *other != self.warp_locs[0])
            || self.warp_loc_idxs.iter().any(|other| *other != self.warp_loc_idxs[0])
    }
}

/// The middle one of the stamps that begin ranges, else of the markers'.
fn middle(launches: &[(usize, &Launch)]) -> u64 {
    let starts = launches.iter().flat_map(|(_, l)| &l.ranges).filter_map(|r| r.start_ts);
    let mut stamps: Vec<u64> = starts.collect();
    if stamps.is_empty() {
        stamps.extend(launches.iter().flat_map(|(_, l)| &l.markers).filter_map(|m| m.timestamp));
    }
    let half = stamps.len() / 2;
    if stamps.is_empty() { 0 } else { *stamps.select_nth_unstable(half).1 }
}

/// A CTA's SM, and each warp's spans.
type Warps = (Option<u32>, BTreeMap<u64, Spans>);
/// By launch and linear CTA.
type Lanes = BTreeMap<(usize, u64), Warps>;

fn lane<'a>(
    lanes: &'a mut Lanes,
    launch: usize,
    grid: (u64, u64),
    location: &Location,
) -> Option<&'a mut Spans> {
    let [x, y, z] = location.cta_id[..] else { return None };
    let linear = grid.1.checked_mul(z)?.checked_add(y)?.checked_mul(grid.0)?.checked_add(x)?;
    let cta = lanes.entry((launch, linear)).or_default();
    cta.0 = cta.0.or(location.sm_id.and_then(|sm| u32::try_from(sm).ok()));
    Some(cta.1.entry(location.warp_id?).or_default())
}

fn into_ctas(mut lanes: Lanes) -> (Vec<Role>, Vec<CtaTrace>) {
    lanes.values_mut().for_each(|(_, warps)| warps.retain(|_, spans| !spans.is_empty()));
    lanes.retain(|_, (_, warps)| !warps.is_empty());
    let mut warps: Vec<u64> = lanes.values().flat_map(|(_, warps)| warps.keys().copied()).collect();
    warps.sort_unstable();
    warps.dedup();
    let roles = warps.iter().map(|w| Role::new(format!("warp {w}"), StepRule::Unstated)).collect();
    let cta = |(order, ((_, linear), (smid, lanes))): (usize, ((usize, u64), Warps))| CtaTrace {
        // A number that no grid has is replaced by the CTA's place in the file.
        cta: u32::try_from(linear).unwrap_or(order as u32),
        smid,
        anchor: None,
        lanes: lanes
            .into_iter()
            .filter_map(|(warp, spans)| Some(spans.into_lane(warps.binary_search(&warp).ok()?)))
            .collect(),
    };
    (roles, lanes.into_iter().enumerate().map(cta).collect())
}
