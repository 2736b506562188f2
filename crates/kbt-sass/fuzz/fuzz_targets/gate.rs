//! The gate's files: a baseline in JSON and tolerances in YAML, with a NUL between.
#![no_main]

use kbt_sass::outcome::MetricsOutcome;
use kbt_sass::{MeasureOptions, Tolerance, gate, measure};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let now = measure(&kbt_sass_fuzz::small_listing().expect("a listing"), MeasureOptions::default());
    kbt_sass_fuzz::bounded(data, || {
        let (baseline, tolerance) = match data.iter().position(|b| *b == 0) {
            Some(end) => (&data[..end], &data[end + 1..]),
            None => (data, &b""[..]),
        };
        let tolerance = serde_yaml::from_slice::<Tolerance>(tolerance).unwrap_or_default();
        if let Ok(baseline) = serde_json::from_slice::<MetricsOutcome>(baseline) {
            let report = gate(&baseline, &now, &tolerance);
            assert_eq!(report.passes(), report.findings.is_empty());
            let _ = report.render_text();
        }
        let _ = gate(&now, &now, &tolerance).render_text();
    });
});
