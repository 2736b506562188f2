//! The rows of a trace as Parquet: as kbt-trace writes them, and damaged.

use kbt_frame::trace_rows;
use kbt_trace::export::write_rows;
use kbt_trace::{
    Anchor, Barrier, BarrierPurpose, CtaTrace, Edge, Event, EventName, EventPurpose, Kind, Lane, Level,
    MemoryTrace, Problems, Releaser, Role, StepRule, TraceInfo,
};
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::fs::File;

/// A producer that works from 0 to 70 and arrives at 75, a consumer that waits for it from 10 to 80, `ctas` times.
fn rows(ctas: u32) -> String {
    let mut info = TraceInfo::new(Level::Coarse, Some(2000.0));
    info.roles = ["Producer", "Consumer"].map(|name| Role::new(name, StepRule::Unstated)).to_vec();
    info.events = vec![EventName::new("work", EventPurpose::Plain)];
    info.barriers = vec![Barrier::new("full", BarrierPurpose::Plain)];
    info.edges = vec![Edge { barrier: 0, arriving: Releaser::Role(0), waiting: 1 }];
    info.meta = [("device", "Test GPU"), ("date", "2026-01-01")].map(|(k, v)| (k.into(), v.into())).into();
    let lane = |role, records: &[(u64, Kind)]| Lane {
        role,
        events: records.iter().map(|&(at, kind)| Event { at: 500 + at, kind, id: 0, step: 3 }).collect(),
        closed: Some(600),
        ..Lane::default()
    };
    let cta = |cta| CtaTrace {
        cta,
        smid: (cta > 0).then_some(7),
        anchor: (cta > 0).then_some(Anchor { ticks: 410, global_ns: 1000 }),
        lanes: vec![
            lane(0, &[(0, Kind::Begin), (70, Kind::End), (75, Kind::Arrive)]),
            lane(1, &[(10, Kind::WaitBegin), (80, Kind::WaitEnd)]),
        ],
    };
    let mut source = MemoryTrace::new(info, (0..ctas).map(cta).collect(), Problems::default());
    let mut out = Vec::new();
    write_rows(&mut source, "a.kbttrace", &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn parquet(text: &str) -> Result<(DataFrame, String), String> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace.parquet");
    let written = trace_rows(&mut text.as_bytes(), "standard input", &out);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            assert_eq!(left, [""; 0]);
            return Err(error.to_string());
        }
    };
    assert_eq!(left, ["trace.parquet"]);
    let frame = ParquetReader::new(File::open(&out).unwrap()).finish().unwrap();
    assert_eq!(frame.shape(), (written.rows, written.columns));
    let metadata =
        ParquetReader::new(File::open(&out).unwrap()).get_metadata().unwrap().key_value_metadata().clone();
    let head = metadata.unwrap().into_iter().find(|m| m.key == "kbt.trace").and_then(|m| m.value).unwrap();
    Ok((frame, head))
}

#[test]
fn spans_arrivals_and_releases_are_rows_with_names() {
    let (frame, head) = parquet(&rows(2)).unwrap();
    assert!(head.contains("Test GPU"), "{head}");
    let names: Vec<_> = frame.get_column_names().into_iter().map(|n| n.to_string()).collect();
    let expected = [
        "cta",
        "sm",
        "role",
        "kind",
        "name",
        "begin_cycles",
        "end_cycles",
        "step",
        "released_at_cycles",
        "released_by",
        "cta_begin_ns",
    ];
    assert_eq!(names, expected);
    let text = |column: &str| -> Vec<Option<String>> {
        frame.column(column).unwrap().str().unwrap().iter().map(|v| v.map(str::to_owned)).collect()
    };
    let count =
        |column: &str| -> Vec<Option<i64>> { frame.column(column).unwrap().i64().unwrap().iter().collect() };
    let some = |values: &[&str]| values.iter().map(|v| Some((*v).to_owned())).collect::<Vec<_>>();
    assert_eq!(text("kind")[..3], some(&["event", "arrive", "wait"]));
    assert_eq!(text("name")[..3], some(&["work", "full", "full"]));
    assert_eq!(text("role")[..3], some(&["Producer", "Producer", "Consumer"]));
    assert_eq!(count("begin_cycles")[..3], [Some(0), Some(75), Some(10)]);
    assert_eq!(count("end_cycles")[..3], [Some(70), None, Some(80)]);
    assert_eq!(count("released_at_cycles")[..3], [None, None, Some(75)]);
    assert_eq!(text("released_by")[..3], [None, None, Some("Producer".to_owned())]);
    assert_eq!(count("sm"), [None, None, None, Some(7), Some(7), Some(7)]);
    assert_eq!(count("step")[0], Some(3));
    // CTA 1 was anchored 90 cycles before its first record, at 2 GHz.
    assert_eq!(count("cta_begin_ns"), [None, None, None, Some(1045), Some(1045), Some(1045)]);
}

#[test]
fn more_rows_than_a_group_come_back_whole() {
    const CTAS: u32 = 90_000;
    let (frame, _) = parquet(&rows(CTAS)).unwrap();
    assert_eq!(frame.height(), 3 * CTAS as usize);
    let last = frame.column("cta").unwrap().i64().unwrap().get(frame.height() - 1);
    assert_eq!(last, Some(i64::from(CTAS) - 1));
}

#[test]
fn damaged_rows_are_refused_by_line_and_leave_no_file() {
    let whole = rows(2);
    let lines: Vec<_> = whole.lines().collect();
    let join = |lines: &[&str]| lines.join("\n") + "\n";
    let error = |text: &str| parquet(text).unwrap_err();
    assert!(error("").contains("empty"));
    assert!(error("{}").contains("line 1"));
    assert!(
        error(&whole.replacen("kbt.trace-rows/1", "kbt.trace-rows/9", 1))
            .contains("expected `kbt.trace-rows/1`")
    );
    assert!(error(&join(&lines[..5])).contains("4 rows and no last line"), "{}", error(&join(&lines[..5])));
    assert!(error(&join(&[&lines[..4], &lines[5..]].concat())).contains("a last line that tells 6"));
    let with = |line: &str| error(&join(&[lines[0], line, r#"{"rows":1}"#]));
    assert!(with("[0,null,0").contains("line 2"), "{}", with("[0,null,0"));
    assert!(with("[0,null,0]").contains("3 numbers; expected 11"));
    assert!(with("[0,null,9,0,0,0,1,null,null,null,null]").contains("role 9; there are 2"));
    assert!(with("[0,null,0,0,0,null,1,null,null,null,null]").contains("no begin"));
    assert!(error(&whole.replacen("\"begin\"", "\"start\"", 1)).contains("no `begin`"));
}
