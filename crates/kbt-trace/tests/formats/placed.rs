//! When CTAs ran beside each other, in every file that is written: as their common clock has it, or said not to be known.

use super::common::wire::{bytes_of, decode, number};
use super::*;
use kbt_trace::export::{write_chrome, write_perfetto, write_rows};
use kbt_trace::{Source, open};

/// Each CTA's first time, in ns, by the order of the file, and its name; beside that, what is told of clocks.
struct Placed {
    perfetto: Vec<(String, u64)>,
    chrome: Vec<(String, f64)>,
    rows: Vec<Option<u64>>,
    unit: String,
    apart: u64,
}

fn placed(bytes: &[u8], options: &ReadOptions) -> Placed {
    let source = || -> Box<dyn Source> {
        open(Box::new(std::io::Cursor::new(bytes.to_vec())), "a.trace", options).unwrap()
    };
    let mut out = Vec::new();
    let apart = write_perfetto(source().as_mut(), &mut out).unwrap().left_out.clocks_apart;
    let (mut names, mut perfetto): (BTreeMap<u64, usize>, Vec<(String, u64)>) = Default::default();
    for (_, packet) in decode(&out).iter().filter_map(|(field, value)| match value {
        wire::Value::Bytes(bytes) => Some((field, decode(bytes))),
        wire::Value::Number(_) => None,
    }) {
        if let Some(track) = bytes_of(&packet, 60).map(|track| decode(&track)) {
            let uuid = number(&track, 1).unwrap();
            match number(&track, 5) {
                Some(parent) => names.insert(uuid, names[&parent]),
                None => {
                    perfetto.push((String::from_utf8(bytes_of(&track, 2).unwrap()).unwrap(), u64::MAX));
                    names.insert(uuid, perfetto.len() - 1)
                }
            };
            continue;
        }
        let track = number(&decode(&bytes_of(&packet, 11).unwrap()), 11).unwrap();
        let first = &mut perfetto[names[&track]].1;
        *first = (*first).min(number(&packet, 8).unwrap());
    }
    let mut out = Vec::new();
    assert_eq!(write_chrome(source().as_mut(), &mut out).unwrap().left_out.clocks_apart, apart);
    let file: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let chrome = events.iter().filter(|e| e["name"] == "process_name").map(|process| {
        let own = events.iter().filter(|e| e["pid"] == process["pid"]).filter_map(|e| e["ts"].as_f64());
        (process["args"]["name"].as_str().unwrap().to_owned(), 1000.0 * own.fold(f64::INFINITY, f64::min))
    });
    let chrome = chrome.collect();
    let mut out = Vec::new();
    assert_eq!(write_rows(source().as_mut(), "a", &mut out).unwrap().left_out.clocks_apart, apart);
    let lines: Vec<serde_json::Value> = out
        .split(|c| *c == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    let mut rows: Vec<(u64, Option<u64>)> = Vec::new();
    for row in lines.iter().filter_map(serde_json::Value::as_array) {
        let row = (row[0].as_u64().unwrap(), row[10].as_u64());
        if rows.last() != Some(&row) {
            rows.push(row);
        }
    }
    let unit = lines[0]["cta_begin_unit"].as_str().unwrap().to_owned();
    Placed { perfetto, chrome, rows: rows.into_iter().map(|r| r.1).collect(), unit, apart }
}

fn times<T: Copy>(named: &[(String, T)]) -> Vec<T> {
    named.iter().map(|(_, at)| *at).collect()
}

fn at_mhz(mhz: f64) -> ReadOptions {
    ReadOptions { clock_mhz: Some(mhz), ..ReadOptions::default() }
}

#[test]
fn the_global_timers_ctas_keep_their_offsets() {
    // The timer wraps between the first block and the second; block 2 began before both.
    let base = u32::MAX - 319;
    let lane = |begin: u32| -> Vec<_> {
        (0..20)
            .flat_map(|i| {
                [(1, 0, begin.wrapping_add(i * 320)), (1, 1, begin.wrapping_add(i * 320 + 64 + i % 3 * 32))]
            })
            .collect()
    };
    let begins = [base, base.wrapping_add(64_000), base.wrapping_sub(3200)];
    let found = placed(&slots(1, &begins.map(lane), 50, |b, _| b), &at_mhz(1500.0));
    assert_eq!(times(&found.perfetto), [3200, 67_200, 0]);
    assert_eq!(times(&found.chrome), [3200.0, 67_200.0, 0.0]);
    assert_eq!((found.rows, found.unit.as_str()), (vec![Some(3200), Some(67_200), Some(0)], "ns"));
    assert_eq!(found.apart, 0);
    assert_eq!(found.perfetto[0].0, "CTA 0, SM 7");
}

#[test]
fn ctas_of_one_sm_keep_their_offsets_and_sms_are_said_to_have_none() {
    let lane = |begin: u32| -> Vec<_> {
        (0..20).flat_map(|i| [(6, 0, begin + i * 900), (6, 1, begin + i * 900 + 400)]).collect()
    };
    let lanes: Vec<_> = [1000, 77, 500_000].iter().flat_map(|begin| vec![lane(*begin); 4]).collect();
    let mut bytes = slots(4, &lanes, 50, |b, _| b);
    // Block 2 ran on block 0's SM.
    for word in bytes.chunks_exact_mut(8).skip(1).filter(|word| word[3] == 9) {
        word[3] = 7;
    }
    let found = placed(&bytes, &at_mhz(2000.0));
    assert_eq!(times(&found.perfetto), [0, 0, 249_500]);
    assert_eq!(times(&found.chrome), [0.0, 0.0, 249_500.0]);
    assert_eq!((found.rows, found.unit.as_str()), (vec![Some(0), Some(0), Some(499_000)], "cycles"));
    assert_eq!(found.apart, 2, "SM 7 and SM 8");
    assert_eq!(found.perfetto[1].0, "CTA 1, SM 8, from the first record of its SM");
    // What Chrome's file says of it is read back.
    let mut out = Vec::new();
    let source = |bytes: Vec<u8>| open(Box::new(std::io::Cursor::new(bytes)), "a", &at_mhz(2000.0)).unwrap();
    write_chrome(source(bytes).as_mut(), &mut out).unwrap();
    let again = placed(&out, &ReadOptions::default());
    assert_eq!((times(&again.perfetto), again.apart), (vec![0, 0, 249_500], 2));
}

#[test]
fn chrome_and_iket_files_have_one_time_line() {
    let span =
        |pid: &str, at: f64| json!({"ph": "X", "pid": pid, "tid": "w", "ts": at, "dur": 0.5, "name": "mma"});
    let events = [span("late", 200.25), span("late", 201.25), span("early", 10.5), span("early", 11.5)];
    let found = placed(json!(events).to_string().as_bytes(), &at_mhz(1000.0));
    assert_eq!(times(&found.perfetto), [10_500, 200_250]);
    assert_eq!((times(&found.chrome), found.apart), (vec![0.0, 189_750.0], 0));
    assert_eq!((found.rows, found.unit.as_str()), (vec![Some(0), Some(189_750)], "ns"));
    // Cycles without a clock: a cycle is shown as a nanosecond.
    let span =
        |pid: &str, at: u64| json!({"ph": "X", "pid": pid, "tid": "w", "ts": at, "dur": 5, "name": "mma"});
    let cycles = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    let found = placed(json!([span("a", 1100), span("b", 700)]).to_string().as_bytes(), &cycles);
    assert_eq!((times(&found.chrome), found.unit.as_str()), (vec![400.0, 0.0], "cycles"));
    assert_eq!(found.rows, [Some(400), Some(0)]);

    // Nanoseconds since 1970, which a float cannot tell to less than 256; two launches of one CTA.
    let epoch = 1_760_000_000_000_000_000_u64;
    let range = |at: u64| {
        json!({"rangeName": "mma", "startTs": epoch + at, "endTs": epoch + at + 64,
        "warpLocs": [{"smId": 1, "ctaId": [0, 0, 0], "warpId": 0}]})
    };
    let launches = json!({"launches": [{"ranges": [range(320), range(640)]}, {"ranges": [range(960)]}]});
    let found = placed(launches.to_string().as_bytes(), &at_mhz(1000.0));
    assert_eq!(times(&found.perfetto), [epoch + 320, epoch + 960]);
    assert_eq!(times(&found.chrome), [0.0, 640.0], "processes of their own");
}

#[test]
fn protons_ctas_lie_where_they_were_initialised() {
    let block = |cta: u32, sm: u32, init: u64, clock: u32| -> Vec<u32> {
        let record = |i: u32| [(i % 2) << 31 | 1 << 23, clock + i * 10];
        let header = [0xdead_beef, cta, sm, 64, init as u32, (init >> 32) as u32, 0, 0, 0, 0, 16];
        header.into_iter().chain((0..8).flat_map(record)).collect()
    };
    let file = |blocks: &[Vec<u32>]| -> Vec<u8> {
        let bytes = 4 * blocks[0].len() as u32;
        let head = [1, 0, 0, 32, bytes * blocks.len() as u32, blocks.len() as u32, 1, bytes];
        head.into_iter().chain(blocks.concat()).flat_map(u32::to_le_bytes).collect()
    };
    let epoch = 1_760_000_000_000_000_000;
    let blocks = [block(0, 3, epoch + 700, 5000), block(1, 4, epoch + 1000, 90)];
    let found = placed(&file(&blocks), &at_mhz(2000.0));
    assert_eq!(times(&found.perfetto), [epoch + 700, epoch + 1000]);
    assert_eq!(times(&found.chrome), [0.0, 300.0]);
    assert_eq!((found.rows, found.unit.as_str()), (vec![Some(epoch + 700), Some(epoch + 1000)], "ns"));
    assert_eq!((found.apart, found.perfetto[0].0.as_str()), (0, "CTA 0, SM 3"));
    // Without those times the SM's clock is what is left.
    let blocks = [block(0, 3, 0, 5000), block(1, 4, 0, 90), block(2, 3, 0, 9000)];
    let found = placed(&file(&blocks), &at_mhz(2000.0));
    assert_eq!((times(&found.perfetto), found.apart), (vec![0, 0, 2000], 2));
}

#[test]
fn kbts_own_ctas_lie_on_the_global_timer() {
    let mut rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, 20, 9_000)).collect();
    let epoch = 1_760_000_000_000_000_000;
    rings.iter_mut().for_each(|ring| ring.header.open_global_ns += epoch);
    let found = placed(&file(&info(Level::Coarse), 1024, &rings), &ReadOptions::default());
    // Each begins 500 cycles after its open(), at 2 GHz.
    assert_eq!(times(&found.perfetto), [epoch + 1_000_250, epoch + 1_000_750]);
    let chrome = times(&found.chrome);
    assert!((chrome[1] - chrome[0] - 500.0).abs() < 1e-6, "{chrome:?}");
    assert_eq!(found.rows, [Some(epoch + 1_000_250), Some(epoch + 1_000_750)]);
    assert_eq!(found.apart, 0);
}
