//! The sweep's table for other tools: CSV, and Kernel Tuner's results format T4 1.0.0.

use crate::outcome::{PointOutcome, PointStatus, SplitOutcome};
use crate::record::CheckOutcome;
use kbt_target::Setting;
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;

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
        let settings =
            self.points.iter().map(|p| &p.setting).chain(self.forbidden.iter().map(|f| &f.setting));
        let numbers = numbers(settings);
        let configuration = |setting: &Setting| configuration(setting, &numbers);
        let ran = self.points.iter().filter(|p| p.status != PointStatus::NotRun);
        let ran = ran.map(|p| t4_result(p, configuration(&p.setting)));
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

/// A point with a runtime for each of its processes; an outcome that does not hold them gives their median.
fn t4_result(p: &PointOutcome, configuration: Value) -> Value {
    let invalidity = match &p.status {
        PointStatus::Timed => "correct",
        PointStatus::Wrong { .. } => "correctness",
        PointStatus::Failed { timeout: true, .. } => "timeout",
        PointStatus::Refused { .. } => "constraints",
        PointStatus::Failed { .. } | PointStatus::Unmeasured { .. } | PointStatus::NotRun => "runtime",
    };
    let ms = p.time_us.map(|us| us / 1000.0);
    let each_ms: Vec<f64> = match p.times_us.is_empty() {
        true => ms.into_iter().collect(),
        false => p.times_us.iter().map(|us| us / 1000.0).collect(),
    };
    let mut measurements = Vec::new();
    if let Some(ms) = ms {
        measurements.push(json!({"name": "time", "value": ms, "unit": "ms"}));
    }
    if let Some(r) = p.to_baseline {
        measurements.push(json!({"name": "time_over_baseline", "value": r.ratio, "unit": ""}));
    }
    json!({
        "timestamp": p.provenance.date.clone().unwrap_or_default(),
        "configuration": configuration,
        "times": {"runtimes": each_ms},
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

/// The values of knobs that are written as numbers: those that JSON writes as they are or as equal numbers, unless two
/// values of one knob (1e3 and 1000) would become one; then both stay texts.
type Numbers<'a> = BTreeMap<(&'a str, &'a str), Number>;

fn numbers<'a>(settings: impl Iterator<Item = &'a Setting>) -> Numbers<'a> {
    let values = settings.flat_map(|s| s.0.iter().map(|(knob, value)| (knob.as_str(), value.as_str())));
    let all: Numbers<'a> = values.filter_map(|v| Some((v, v.1.parse().ok()?))).collect();
    let is_twice = |of: &(&str, &str), number: &Number| {
        let equal = |other: &Number| number.as_f64().is_some() && number.as_f64() == other.as_f64();
        all.iter().any(|(other, n)| other.0 == of.0 && other.1 != of.1 && equal(n))
    };
    all.iter().filter(|(of, n)| !is_twice(of, n)).map(|(of, n)| (*of, n.clone())).collect()
}

/// A setting with its numbers as numbers, as Kernel Tuner has them. What is no number as JSON writes them (007, nan)
/// stays a text.
fn configuration(setting: &Setting, numbers: &Numbers<'_>) -> Value {
    let value = |knob: &str, text: &str| {
        numbers.get(&(knob, text)).map_or_else(|| json!(text), |number| Value::Number(number.clone()))
    };
    let values = setting.0.iter().map(|(k, v)| (k.clone(), value(k, v.as_str())));
    Value::Object(values.collect::<Map<_, _>>())
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
        let found = configuration(&setting, &numbers([&setting].into_iter()));
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
    fn two_values_of_a_knob_never_become_one_number() {
        let values = ["1e3", "1000", "2", "1.0", "1", "0.50"];
        let settings = values.map(|v| Setting::default().with("N", v).with("M", "1000"));
        let numbers = numbers(settings.iter());
        let found = settings.each_ref().map(|s| configuration(s, &numbers));
        let of_n = found.each_ref().map(|c| &c["N"]);
        assert_eq!(of_n, [&json!("1e3"), &json!("1000"), &json!(2), &json!("1.0"), &json!("1"), &json!(0.5)]);
        assert!(found.iter().all(|c| c["M"] == json!(1000)), "another knob's value is no second one");
    }

    #[test]
    fn fields_with_commas_or_quotes_are_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
