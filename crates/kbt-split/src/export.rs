//! The sweep's table for other tools: CSV, and Kernel Tuner's results format T4 1.0.0.

use crate::outcome::{PointOutcome, PointStatus, SplitOutcome};
use crate::record::CheckOutcome;
use kbt_target::Setting;
use serde_json::{Map, Number, Value, json};

/// The columns beside the index and the knobs.
const COLUMNS: [&str; 16] = [
    "first_chunks",
    "chunks",
    "first_tiles",
    "tiles",
    "status",
    "check",
    "time_us",
    "low_time_us",
    "high_time_us",
    "processes",
    "to_baseline_ratio",
    "low_ratio",
    "high_ratio",
    "speed",
    "against",
    "why",
];

impl SplitOutcome {
    /// One row a point: knobs, integers, status, times, ratio.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let knobs: Vec<&String> = self.baseline().into_iter().flat_map(|b| b.setting.0.keys()).collect();
        let header = ["index".to_owned()].into_iter().chain(knobs.iter().map(|k| knob_column(k)));
        let mut rows = vec![header.chain(COLUMNS.map(str::to_owned)).collect::<Vec<_>>()];
        for p in &self.points {
            let mut row = vec![p.index.to_string()];
            row.extend(knobs.iter().map(|k| p.setting.get(k).unwrap_or_default().to_owned()));
            let integers = p.integers.map(|i| [i.first_chunks, i.chunks, i.first_tiles, i.tiles]);
            row.extend((0..4).map(|i| integers.map(|n| n[i].to_string()).unwrap_or_default()));
            row.extend([p.status.word().to_owned(), check_word(p.check.as_ref()).to_owned()]);
            row.extend([p.time_us, p.low_time_us, p.high_time_us].map(number));
            row.push(p.processes_count.to_string());
            let r = p.to_baseline;
            row.extend(
                [r.map(|r| r.ratio), r.and_then(|r| r.low_ratio), r.and_then(|r| r.high_ratio)].map(number),
            );
            row.push(p.speed.map(|s| s.to_string()).unwrap_or_default());
            row.push(p.against.map(|a| a.to_string()).unwrap_or_default());
            row.push(p.status.why().unwrap_or_default().to_owned());
            rows.push(row);
        }
        let line = |row: Vec<String>| row.iter().map(|f| quoted(f)).collect::<Vec<_>>().join(",") + "\n";
        rows.into_iter().map(line).collect()
    }

    /// Kernel Tuner's T4 results: times in milliseconds, one result a setting, the forbidden ones among them.
    #[must_use]
    pub fn to_t4(&self) -> Value {
        let ran = self.points.iter().filter(|p| p.status != PointStatus::NotRun).map(t4_result);
        let forbidden = self.forbidden.iter().map(|f| {
            json!({
                "configuration": configuration(&f.setting),
                "times": {"runtimes": []},
                "invalidity": "constraints",
                "correctness": 0,
                "objectives": ["time"],
                "measurements": [],
            })
        });
        json!({ "schema_version": "1.0.0", "results": ran.chain(forbidden).collect::<Vec<_>>() })
    }
}

fn t4_result(p: &PointOutcome) -> Value {
    let invalidity = match &p.status {
        PointStatus::Timed => "correct",
        PointStatus::Wrong { .. } => "correctness",
        PointStatus::Failed { timeout: true, .. } => "timeout",
        PointStatus::Refused { .. } => "constraints",
        PointStatus::Failed { .. } | PointStatus::Unmeasured { .. } | PointStatus::NotRun => "runtime",
    };
    let ms = p.time_us.map(|us| us / 1000.0);
    let mut measurements = Vec::new();
    if let Some(ms) = ms {
        measurements.push(json!({"name": "time", "value": ms, "unit": "ms"}));
    }
    if let Some(r) = p.to_baseline {
        measurements.push(json!({"name": "time_over_baseline", "value": r.ratio, "unit": ""}));
    }
    json!({
        "timestamp": p.provenance.date.clone().unwrap_or_default(),
        "configuration": configuration(&p.setting),
        "times": {"runtimes": ms.into_iter().collect::<Vec<_>>()},
        "invalidity": invalidity,
        "correctness": u8::from(matches!(p.check, Some(CheckOutcome::Bitwise | CheckOutcome::Accurate { .. }))),
        "objectives": ["time"],
        "measurements": measurements,
    })
}

/// A knob's column, which is never called as one of the others.
fn knob_column(knob: &str) -> String {
    let taken = knob == "index" || COLUMNS.contains(&knob);
    if taken { format!("knob {knob}") } else { knob.to_owned() }
}

/// A setting with its numbers as numbers, as Kernel Tuner has them. What is no number as JSON writes them (007, nan)
/// stays a text, so that no two settings become one.
fn configuration(setting: &Setting) -> Value {
    let value = |text: &str| text.parse::<Number>().map_or_else(|_| json!(text), Value::Number);
    Value::Object(setting.0.iter().map(|(k, v)| (k.clone(), value(v.as_str()))).collect::<Map<_, _>>())
}

fn check_word(check: Option<&CheckOutcome>) -> &'static str {
    match check {
        Some(CheckOutcome::Bitwise) => "bitwise",
        Some(CheckOutcome::Accurate { .. }) => "accurate",
        Some(CheckOutcome::Wrong { .. }) => "wrong",
        Some(CheckOutcome::Unchecked { .. }) => "unchecked",
        None => "",
    }
}

fn number(value: Option<f64>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// A field of a CSV row, in quotes where it needs them (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_never_shares_its_column_with_a_result() {
        assert_eq!(["N", "status", "index"].map(knob_column), ["N", "knob status", "knob index"]);
    }

    #[test]
    fn numbers_of_a_setting_are_numbers_and_the_rest_is_text() {
        let values = ["4", "-0.5", "1e3", "007", "nan", "+1", "", "99999999999999999999x"];
        let setting =
            values.iter().enumerate().fold(Setting::default(), |s, (i, v)| s.with(i.to_string(), *v));
        let found = configuration(&setting);
        let found: Vec<&Value> = (0..values.len()).map(|i| &found[i.to_string()]).collect();
        let expect = [
            json!(4),
            json!(-0.5),
            json!(1e3),
            json!("007"),
            json!("nan"),
            json!("+1"),
            json!(""),
            json!(values[7]),
        ];
        assert_eq!(found, expect.iter().collect::<Vec<_>>());
    }

    #[test]
    fn fields_with_commas_or_quotes_are_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
