//! What every target does with a trace, and what must hold of it.

use kbt_trace::diff::diff;
use kbt_trace::export::{svg, write_chrome, write_perfetto, write_rows};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, Input, ReadOptions, Source, TraceError, Unit, analyse, open};
use std::num::NonZeroUsize;

/// Reads `data` as `input`; what can be read is analysed, drawn and written in every way.
///
/// # Panics
/// On any finding.
pub fn everything(input: Input, data: &[u8]) {
    let units: &[Option<Unit>] = match input {
        Input::Chrome => &[None, Some(Unit::Cycles), Some(Unit::Microseconds)],
        _ => &[None],
    };
    for &unit in units {
        let options = ReadOptions { input, clock_mhz: Some(1500.0), unit, ..ReadOptions::default() };
        let source = || open(Box::new(std::io::Cursor::new(data.to_vec())), "fuzz", &options);
        let on = |threads| {
            let more = AnalyseOptions {
                name: "fuzz".into(),
                timeline_steps: 3,
                threads: NonZeroUsize::new(threads),
                ..AnalyseOptions::default()
            };
            source().and_then(|mut source| analyse(source.as_mut(), &more))
        };
        let Ok(outcome) = on(1) else { continue };
        assert_eq!(on(2).ok().as_ref(), Some(&outcome), "the outcome depends on the number of threads");
        check(&outcome);
        written(source().expect("it was read before").as_mut());
    }
}

/// What every outcome must obey.
fn check(outcome: &TraceOutcome) {
    for role in &outcome.roles {
        if let (Some(busy), Some(period)) = (role.busy_cycles, role.mean_period_cycles) {
            assert!(
                (0.0..=period * (1.0 + 1e-9) + 1e-6).contains(&busy),
                "busy {busy} in a step of {period}"
            );
        }
        for q in [role.period_cycles, role.busy_spread_cycles, role.over_ctas_cycles].into_iter().flatten() {
            assert!(q.p10 <= q.median && q.median <= q.p90, "{q:?}");
        }
    }
    for ring in &outcome.rings {
        assert!((0.0..=ring.peak_slots as f64).contains(&ring.mean_slots), "{ring:?}");
        assert!((0.0..=100.0 + 1e-9).contains(&ring.empty_percent), "{ring:?}");
    }
    // A number that is not finite becomes null, which the type does not take back.
    let json = serde_json::to_string(outcome).expect("an outcome is JSON");
    let back: Result<TraceOutcome, _> = serde_json::from_str(&json);
    assert!(back.is_ok(), "{back:?}");
    let _ = (outcome.render_text(), outcome.verdicts(), outcome.headline());
    let same = diff(outcome, outcome);
    assert!(same.changes.iter().all(|c| c.change_percent.is_none_or(|p| p == 0.0)), "a trace is itself");
    if let Ok(drawing) = svg(outcome) {
        // In places and sizes: a name may be any word.
        let mut tags = drawing.split('<').filter_map(|tag| tag.split('>').next());
        assert!(tags.all(|tag| !tag.contains("NaN") && !tag.contains("inf\"")), "{drawing}");
    }
}

/// Every writer, on a source that could be read.
fn written(source: &mut dyn Source) {
    let mut traces = Vec::new();
    let mut cta = kbt_trace::CtaTrace::default();
    while source.next_cta(&mut cta).expect("it was read before") {
        traces.push(std::mem::take(&mut cta));
    }
    let (info, problems) = (source.info().clone(), source.problems().clone());
    let memory = || kbt_trace::MemoryTrace::new(info.clone(), traces.clone(), problems.clone());
    let sink = |result: Result<u64, TraceError>| result.expect("a sink takes everything");
    let mut out = Vec::new();
    let slices = sink(write_perfetto(&mut memory(), &mut out).map(|counts| counts.slices));
    let same = sink(write_chrome(&mut memory(), &mut std::io::sink()).map(|counts| counts.slices));
    assert_eq!(slices, same, "the writers pair spans alike");
    let rows = sink(write_rows(&mut memory(), "fuzz", &mut std::io::sink()).map(|counts| counts.rows));
    assert!(rows >= slices);
}
