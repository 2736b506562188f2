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
    ranges[3]["startTs"] = json!(-64);
    ranges[4]["endTs"] = json!("late");
    let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    let outcome =
        analysed(&serde_json::to_vec(&value).unwrap(), &options, AnalyseOptions::default()).unwrap();
    assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 4);
    assert_eq!(problem(&outcome, ProblemKind::ClockBackwards), 1);
    let empty = serde_json::to_vec(&json!({"launches": []})).unwrap();
    assert!(error(&empty, &options).contains("0 launches"));
}

fn read(value: &serde_json::Value) -> TraceOutcome {
    let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    analysed(&serde_json::to_vec(value).unwrap(), &options, AnalyseOptions::default()).unwrap()
}

#[test]
fn ranges_of_one_name_that_overlap_keep_their_own_ends() {
    let mut value = documented();
    let range = |i: u64| json!({"rangeName": "tma", "startTs": i * 1600, "endTs": i * 1600 + 2624, "warpLocs": [place(0)]});
    value["launches"][0]["ranges"] = (0..30).map(range).collect();
    let outcome = read(&value);
    assert_eq!(outcome.role("warp 0").unwrap().events[0].each_cycles.unwrap().p10, 2624.0);
    assert_eq!(problem(&outcome, ProblemKind::Overlap), 29);
}

#[test]
fn a_range_of_more_than_one_warp_is_said_in_both_shapes() {
    let (mut documented, mut shipped) = (documented(), shipped());
    for count in [2, 4] {
        documented["launches"][0]["ranges"][0]["warpLocs"] = (12..12 + count).map(place).collect();
        assert_eq!(problem(&read(&documented), ProblemKind::OtherWarps), 1, "{count} warps");
    }
    shipped["locationTable"] = json!([place(12), place(13)]);
    shipped["launches"][0]["ranges"][0]["warpLocIdxs"] = json!([0, 1]);
    assert_eq!(problem(&read(&shipped), ProblemKind::OtherWarps), 1);
    documented["launches"][0]["ranges"][0]["warpLocs"] = json!([place(12), place(12)]);
    assert_eq!(problem(&read(&documented), ProblemKind::OtherWarps), 0, "twice the same");
}

#[test]
fn a_far_stamp_a_marker_named_like_a_wait_and_a_second_launch_are_seen() {
    let clean = read(&documented());
    let mut value = documented();
    let far = json!({"rangeName": "mma", "startTs": 64, "endTs": 1_u64 << 63, "warpLocs": [place(12)]});
    value["launches"][0]["ranges"].as_array_mut().unwrap().push(far);
    let outcome = read(&value);
    assert_eq!((problem(&outcome, ProblemKind::FarStamp), &outcome.roles), (1, &clean.roles));
    let mut value = documented();
    let marker = json!({"markerName": "wait over", "timestamp": 320, "location": place(12)});
    value["launches"][0]["markers"].as_array_mut().unwrap().push(marker);
    let outcome = read(&value);
    assert_eq!(outcome.trace.records, clean.trace.records + 1);
    assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 0);
    assert_eq!(problem(&clean, ProblemKind::Launches), 0);
    let mut value = documented();
    let again = value["launches"][0].clone();
    value["launches"].as_array_mut().unwrap().push(again);
    assert_eq!(problem(&read(&value), ProblemKind::Launches), 2);
}

#[test]
fn one_launch_of_several_is_read_alone() {
    let mut value = documented();
    let mut slow = value["launches"][0].clone();
    slow["kernelName"] = json!("slow\nkernel");
    for range in slow["ranges"].as_array_mut().unwrap() {
        for stamp in ["startTs", "endTs"] {
            range[stamp] = json!(range[stamp].as_u64().unwrap() * 2 + 1_000_000);
        }
    }
    let idle = json!({"kernelName": "idle", "ranges": [], "markers": []});
    value["launches"].as_array_mut().unwrap().extend([idle, slow]);
    let of = |launch| ReadOptions { clock_mhz: Some(1000.0), launch, ..ReadOptions::default() };
    let bytes = serde_json::to_vec(&value).unwrap();
    let read = |launch| analysed(&bytes, &of(launch), AnalyseOptions::default()).unwrap();
    let period = |outcome: &TraceOutcome| outcome.role("warp 12").unwrap().mean_period_cycles.unwrap();
    let all = read(None);
    assert_eq!((period(&all), all.trace.ctas, all.trace.kernel.as_deref()), (960.0, 2, None));
    assert!(all.problems.iter().any(|p| p.kind == ProblemKind::Launches && p.says.contains("--launch")));
    let (first, third) = (read(Some(0)), read(Some(2)));
    assert_eq!((period(&first), period(&third), third.trace.ctas), (640.0, 1280.0, 1));
    assert_eq!(third.trace.kernel.as_deref(), Some("slow\nkernel"));
    assert_eq!(problem(&third, ProblemKind::Launches), 0);
    for launch in [1, 7] {
        let message = error(&bytes, &of(Some(launch)));
        assert!(message.contains(&format!("--launch: {launch}, which")), "{message}");
        assert!(message.ends_with("accepted: 0 (k), 2 (slow\\nkernel)"), "{message}");
    }
    let options = ReadOptions { launch: Some(0), ..ReadOptions::default() };
    let own = file(&info(Level::Coarse), 64, &pipeline(0, 5, 0));
    assert!(error(&own, &options).contains("--launch"));
    assert!(
        error(
            br#"[{"ph": "X", "ts": 1, "dur": 2, "name": "a"}]"#,
            &ReadOptions { unit: Some(Unit::Nanoseconds), ..options }
        )
        .contains("IKET traces only")
    );
}

#[test]
fn launches_of_graphs_are_not_read_and_that_is_said() {
    let mut value = shipped();
    value["graphLaunches"] = json!([{"graphId": 1, "ranges": []}, {"graphId": 2}]);
    let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    let read = |value: &serde_json::Value| {
        analysed(&serde_json::to_vec(value).unwrap(), &options, AnalyseOptions::default()).unwrap()
    };
    let outcome = read(&value);
    assert_eq!(problem(&outcome, ProblemKind::Ignored), 2);
    assert!(outcome.problems.iter().any(|p| p.says.contains("graphLaunches")), "{:?}", outcome.problems);
    assert_eq!(problem(&read(&shipped()), ProblemKind::Ignored), 0);
}
