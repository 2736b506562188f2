//! What a Chrome file's time stamps are: the format says microseconds, real writers put nanoseconds or cycles there.

use super::Record;
use crate::read::flashinfer::{TELLING_GAPS, USUAL_STEP_NS, gcd};
use crate::read::{CHROME_CYCLES, CHROME_MHZ, ReadOptions, Unit};
use crate::{Clock, TraceError};
use serde_json::{Number, Value};
use std::collections::BTreeSet;

/// What a time stamp is in ticks of the trace's clock.
pub(super) struct Scale {
    pub(super) clock: Clock,
    /// Ticks per unit of the file.
    pub(super) ticks: f64,
    /// What is subtracted first: 0, or the earliest stamp where that is negative.
    pub(super) origin: f64,
    /// Stamps and lengths that can be of this trace.
    span: Plausible,
    /// Stamps below zero.
    pub(super) negative: u64,
    /// How the unit was told.
    pub(super) why: &'static str,
}

/// The longest trace: 52 days in nanoseconds, 142 years in microseconds.
pub(super) const LONGEST: f64 = (1_u64 << 52) as f64;

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
    /// A stamp in ticks; `None`: it is no time of this trace.
    pub(super) fn ticks(&self, number: &Number) -> Option<u64> {
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

/// Deduces the unit: by option, by what kbt or Proton wrote beside the records, else by the values.
pub(super) fn scale(
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
        Some(Unit::Cycles) if !integral => {
            return Err(TraceError::Argument {
                what: "--unit cycles",
                found: format!("{name}: its time stamps have fractions, and a cycle counter's have none"),
                accepted: "--unit us or --unit ns, or none where kbt or Proton wrote the file".into(),
            });
        }
        Some(Unit::Cycles) => return scale(cycles, 1.0, ""),
        None => {}
    }
    if let Some(ticks) = other_data.get(CHROME_CYCLES).and_then(Value::as_f64).filter(|t| *t > 0.0) {
        let mhz = other_data.get(CHROME_MHZ).and_then(Value::as_f64);
        let clock = Clock::Cycles { sm_mhz: sm_mhz.or(mhz) };
        return scale(clock, ticks, "written by kbt: SM cycles, by the factor beside the records");
    }
    let proton =
        |r: &Record| r.pid.as_str().is_some_and(is_protons) || r.args.get("Frequency (MHz)").is_some();
    if timed().any(proton) {
        return scale(cycles, 1000.0, "written by Proton: cycles at an assumed 1 GHz, so cycles / 1000");
    }
    match (integral, spread && steps_by_32(1.0)) {
        (true, true) => match Lengths::of(records, span) {
            lengths if lengths.are_a_timers() => {
                scale(nanoseconds(1.0), 1.0, "all stamps are multiples of 32: nanoseconds in the us field")
            }
            Lengths { distinct, factor } => Err(TraceError::Unit {
                name: name.to_owned(),
                why: format!(
                    "all stamps are multiples of 32, as those of a timer in nanoseconds are, but {distinct} distinct \
                     lengths, all of them multiples of {factor}, do not tell that from microseconds or cycles; at least \
                     {TELLING_GAPS} whose only common factor is {USUAL_STEP_NS} would"
                ),
            }),
        },
        (true, false) => Err(TraceError::Unit {
            name: name.to_owned(),
            why: "all stamps are whole numbers, which are microseconds, nanoseconds or cycles alike".into(),
        }),
        (false, _) => {
            scale(nanoseconds(1000.0), 1000.0, "stamps have fractions: microseconds, as the format says")
        }
    }
}

/// The times between neighbouring stamps, and the lengths of spans.
struct Lengths {
    /// Different ones, of those that are not 0.
    distinct: usize,
    /// What all of them are multiples of.
    factor: u64,
}

impl Lengths {
    fn of(records: &[Record], span: Plausible) -> Self {
        // Absolute nanoseconds lose their last bits in a float.
        let whole = |number: &Number| number.as_i128().or_else(|| number.as_f64().map(|v| v as i128));
        let timed = || records.iter().filter(|r| r.ph != "M");
        let near = |number: &&Number| number.as_f64().is_some_and(|v| span.stamp(v));
        let mut stamps: Vec<_> =
            timed().filter_map(|r| r.ts.as_ref().filter(near)).filter_map(whole).collect();
        stamps.sort_unstable();
        let gaps = stamps.windows(2).map(|pair| pair[1] - pair[0]);
        let spans = timed().filter_map(|r| whole(r.dur.as_ref()?));
        let lengths = gaps.chain(spans).filter(|length| (1..=LONGEST as i128).contains(length));
        let distinct: BTreeSet<_> = lengths.map(|length| length as u64).collect();
        Self { factor: distinct.iter().fold(0, |all, length| gcd(all, *length)), distinct: distinct.len() }
    }

    /// Whether nothing but a timer's step explains them: a schedule in microseconds may be regular too, but has few
    /// lengths, or a factor of its own.
    fn are_a_timers(&self) -> bool {
        self.distinct >= TELLING_GAPS && self.factor == USUAL_STEP_NS
    }
}

/// Whether a process is named as Proton names a CTA: `KERNEL Core3 CTA7`, and without the kernel in some versions.
fn is_protons(process: &str) -> bool {
    let numbered = |word: &str, what: &str| {
        word.strip_prefix(what).is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
    };
    let has = |what| process.split_whitespace().any(|word| numbered(word, what));
    has("Core") && has("CTA")
}
