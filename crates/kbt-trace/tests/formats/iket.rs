//! The JSON of NVIDIA's in-kernel event tracer.

use super::*;

fn place(warp: u64) -> serde_json::Value {
    json!({"smId": 4, "tpcId": -1, "gpcId": -1, "ctaId": [2, 1, 0], "warpId": warp})
}

fn documented() -> serde_json::Value {
    let range = |i: u64, name: &str, from: u64, to: u64| {
        json!({"rangeName": name, "rangeScope": 0, "startTs": i * 640 + from, "endTs": i * 640 + to,
               "warpLocs": [place(12)], "internalEvents": []})
    };
    let ranges: Vec<_> =
        (0..30).flat_map(|i| [range(i, "ab_wait", 0, 160), range(i, "mma", 160, 480)]).collect();
    let marker = json!({"markerName": "start", "timestamp": 0, "location": place(12)});
    json!({"launches": [{"gridId": 0, "kernelName": "k", "gridDimX": 4, "gridDimY": 2, "gridDimZ": 1,
        "ranges": ranges, "markers": [marker], "warpLifetimes": []}]})
}

fn shipped() -> serde_json::Value {
    let range = |i: u64, name: u64, from: u64, to: u64| {
        json!({"rangeNameIdx": name, "startTs": i * 640 + from, "endTs": i * 640 + to, "warpLocIdxs": [0, 0],
               "rangeId": 1, "rangeType": 0, "rangeScope": 0, "internalEvents": []})
    };
    let ranges: Vec<_> = (0..30).flat_map(|i| [range(i, 0, 0, 160), range(i, 1, 160, 480)]).collect();
    json!({"stringTable": ["ab_wait", "mma", "start"], "locationTable": [place(12)], "graphLaunches": [],
        "launches": [{"gridDimX": 4, "gridDimY": 2, "ranges": ranges,
            "markers": [{"markerNameIdx": 2, "locIdx": 0, "timestamp": 0}], "warpLifetimes": []}]})
}

#[test]
fn both_shapes_give_the_same() {
    let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    let read = |value: serde_json::Value| {
        analysed(&serde_json::to_vec(&value).unwrap(), &options, AnalyseOptions::default()).unwrap()
    };
    let (a, b) = (read(documented()), read(shipped()));
    assert_eq!(a.trace.format, Input::Iket);
    assert_eq!(a.roles, b.roles);
    let warp = a.role("warp 12").unwrap();
    assert_eq!((warp.period_cycles.unwrap().median, warp.busy_cycles), (640.0, Some(480.0)));
    assert_eq!(warp.waits[0].on, "ab");
    // x + 4 * (y + 2 * z)
    assert_eq!(warp.slowest.unwrap().cta, 6);
    assert_eq!(a.trace.quantum_cycles, 32.0);
}

#[test]
fn indices_beyond_the_tables_and_negative_ranges_are_counted() {
    let mut value = shipped();
    let ranges = value["launches"][0]["ranges"].as_array_mut().unwrap();
    ranges[0]["rangeNameIdx"] = json!(99);
    ranges[1]["warpLocIdxs"] = json!([9, 9]);
    ranges[2]["endTs"] = json!(0);
    let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    let outcome =
        analysed(&serde_json::to_vec(&value).unwrap(), &options, AnalyseOptions::default()).unwrap();
    assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 2);
    assert_eq!(problem(&outcome, ProblemKind::ClockBackwards), 1);
    let empty = serde_json::to_vec(&json!({"launches": []})).unwrap();
    assert!(error(&empty, &options).contains("0 launches"));
}
