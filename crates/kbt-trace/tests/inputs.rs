//! The ways in which a trace's bytes arrive: raw, in tensor files, cut short, and foreign.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::*;
use kbt_tensor::{Dtype, Tensor, TensorSet, npy_bytes};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, Input, Level, ProblemKind, ReadOptions};
use serde_json::json;

fn read(bytes: &[u8], options: &ReadOptions) -> Result<TraceOutcome, String> {
    analysed(bytes, options, AnalyseOptions::default()).map_err(|e| e.to_string())
}

fn problem(outcome: &TraceOutcome, kind: ProblemKind) -> u64 {
    outcome.problems.iter().filter(|p| p.kind == kind).map(|p| p.count).sum()
}

/// A buffer of one block and four groups: 30 steps of 1000 ticks, of which 400 are a wait (event 6).
fn buffer(quantum: u32) -> Vec<u8> {
    let mut words = vec![1, 4];
    words.resize(2 + 2 * 4 * 64, 0);
    for step in 0..30 {
        for (k, (kind, at)) in [(0, 0), (1, 400)].into_iter().enumerate() {
            for group in 0..4 {
                let slot = 2 + 2 * (group as usize + (step as usize * 2 + k) * 4);
                words[slot] = 7 << 24 | 6 << 2 | kind;
                words[slot + 1] = (5000 + step * 1000 + at) / quantum * quantum;
            }
        }
    }
    words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect()
}

fn tensor(name: &str, dtype: Dtype, bytes: Vec<u8>) -> Tensor {
    let width = if matches!(dtype, Dtype::I32 | Dtype::U32 | Dtype::F32) { 4 } else { 8 };
    Tensor::new(name, dtype, vec![bytes.len() / width], bytes).unwrap()
}

fn safetensors(tensors: Vec<Tensor>) -> Vec<u8> {
    let mut set = TensorSet::new();
    tensors.into_iter().for_each(|t| set.insert(t).unwrap());
    set.to_safetensors().unwrap()
}

/// What `torch.save` writes for an int32 tensor: a zip of a pickle and its storage, nothing compressed.
fn pt(bytes: &[u8]) -> Vec<u8> {
    let elements = bytes.len() / 4;
    let mut pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
    let text = |pickle: &mut Vec<u8>, text: &str| {
        pickle.push(b'X');
        pickle.extend((text.len() as u32).to_le_bytes());
        pickle.extend(text.as_bytes());
    };
    let number = |pickle: &mut Vec<u8>, value: usize| {
        pickle.push(b'J');
        pickle.extend((value as i32).to_le_bytes());
    };
    text(&mut pickle, "storage");
    pickle.extend(b"ctorch\nIntStorage\n");
    text(&mut pickle, "0");
    text(&mut pickle, "cpu");
    number(&mut pickle, elements);
    pickle.extend(b"tQ");
    number(&mut pickle, 0);
    pickle.push(b'(');
    number(&mut pickle, elements);
    pickle.extend(b"t(");
    number(&mut pickle, 1);
    pickle.extend(b"t\x89ccollections\nOrderedDict\n)RtR.");
    zip(&[("a/data.pkl", &pickle), ("a/byteorder", b"little"), ("a/data/0", bytes), ("a/version", b"3\n")])
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// A zip with its members stored as they are.
fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let offset = out.len() as u32;
        let (crc, length) = (crc32(bytes).to_le_bytes(), (bytes.len() as u32).to_le_bytes());
        let common =
            [&[0; 4][..], &[0; 4], &crc, &length, &length, &(name.len() as u16).to_le_bytes(), &[0; 2]];
        out.extend(b"PK\x03\x04\x0a\x00");
        out.extend(common.concat());
        out.extend([name.as_bytes(), bytes].concat());
        directory.extend(b"PK\x01\x02\x0a\x00\x0a\x00");
        directory.extend(common.concat());
        directory.extend([&[0; 10][..], &offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let (at, length, count) = (out.len() as u32, directory.len() as u32, members.len() as u16);
    out.extend(directory);
    out.extend(b"PK\x05\x06\x00\x00\x00\x00");
    out.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    out.extend([&length.to_le_bytes()[..], &at.to_le_bytes(), &[0; 2]].concat());
    out
}

#[test]
fn a_buffer_in_any_tensor_file_is_the_raw_buffer() {
    let raw = read(&buffer(1), &ReadOptions::default()).unwrap();
    assert_eq!((raw.trace.format, raw.roles.len()), (Input::Fa4Fp4, 4));
    let i32 = || tensor("profile", Dtype::I32, buffer(1));
    let weights = tensor("weights", Dtype::F32, vec![0; 64]);
    for (what, bytes) in [
        ("safetensors", safetensors(vec![i32(), weights])),
        ("npy", npy_bytes(&i32()).unwrap()),
        ("u32 npy", npy_bytes(&tensor("profile", Dtype::U32, buffer(1))).unwrap()),
        ("i64", safetensors(vec![tensor("profile", Dtype::I64, buffer(1))])),
        ("pt", pt(&buffer(1))),
    ] {
        for input in [Input::Auto, Input::Fa4Fp4] {
            let options = ReadOptions { input, ..ReadOptions::default() };
            assert_eq!(read(&bytes, &options).as_ref(), Ok(&raw), "{what}");
        }
    }
    // FlashInfer's buffer is uint64, and its clock steps by 32 ns.
    let mhz = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    let flashinfer = read(&safetensors(vec![tensor("p", Dtype::U64, buffer(32))]), &mhz).unwrap();
    assert_eq!(flashinfer.trace.format, Input::Flashinfer);
}

#[test]
fn of_several_tensors_the_one_named_is_the_buffer() {
    let two = safetensors(vec![
        tensor("a", Dtype::I32, buffer(1)),
        tensor("b", Dtype::I32, buffer(1)),
        tensor("c", Dtype::F32, vec![0; 64]),
    ]);
    let message = read(&two, &ReadOptions::default()).unwrap_err();
    assert!(message.contains("--tensor with one of a, b"), "{message}");
    let named = |name: &str| ReadOptions { tensor: Some(name.into()), ..ReadOptions::default() };
    assert_eq!(read(&two, &named("b")), read(&buffer(1), &ReadOptions::default()));
    let message = read(&two, &named("x")).unwrap_err();
    assert!(message.contains("no tensor x") && message.contains("a (I32"), "{message}");
    let message = read(&two, &named("c")).unwrap_err();
    assert!(message.contains("c is F32") && message.contains("i32, u32, i64 or u64"), "{message}");
    let message = read(&buffer(1), &named("a")).unwrap_err();
    assert!(message.contains("a.trace is no tensor file"), "{message}");
    let none = safetensors(vec![tensor("c", Dtype::F32, vec![0; 64])]);
    let message = read(&none, &ReadOptions::default()).unwrap_err();
    assert!(message.contains("it holds c (F32"), "{message}");
}

#[test]
fn a_damaged_tensor_file_is_refused_with_its_reason() {
    let mut bytes = safetensors(vec![tensor("a", Dtype::I32, buffer(1))]);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let message = read(&bytes, &ReadOptions::default()).unwrap_err();
    assert!(message.contains("SHA-256"), "{message}");
    let whole = npy_bytes(&tensor("a", Dtype::I32, buffer(1))).unwrap();
    for bytes in [&whole[..20], &pt(&buffer(1))[..500], b"PK\x03\x04"] {
        assert!(read(bytes, &ReadOptions::default()).unwrap_err().contains("a.trace"));
    }
}

fn chrome() -> String {
    let events: Vec<_> = (0..20)
        .flat_map(|i| {
            let span = |name: &str, from: u64, length: u64| {
                json!({"ph": "X", "pid": 0, "tid": "MMA", "ts": i * 1000 + from, "dur": length, "name": name,
                       "args": {"tile": i}})
            };
            [span("wait P", 0, 300), span("PV", 300, 500)]
        })
        .collect();
    serde_json::to_string(&events).unwrap()
}

#[test]
fn chrome_json_that_was_cut_gives_what_came_before_and_says_so() {
    let cycles = ReadOptions { unit: Some(kbt_trace::Unit::Cycles), ..ReadOptions::default() };
    let array = chrome();
    for text in [array.clone(), format!("{{\"traceEvents\": {array}}}")] {
        let whole = read(text.as_bytes(), &cycles).unwrap();
        assert_eq!(problem(&whole, ProblemKind::Truncated), 0);
        // The format allows the closing bracket to be missing.
        for missing in [1, 2, 90, 1000] {
            let cut = read(&text.as_bytes()[..text.len() - missing], &cycles).unwrap();
            assert_eq!(problem(&cut, ProblemKind::Truncated), 1, "{missing}");
            assert_eq!(cut.roles[0].period_cycles.unwrap().median, 1000.0);
            assert!(cut.render_text().contains("read up to offset"), "{}", cut.render_text());
            assert!(cut.roles[0].steps <= whole.roles[0].steps);
        }
        assert!(read(&text.as_bytes()[..30], &cycles).is_err(), "no record is whole");
    }
}

#[test]
fn iket_json_that_was_cut_gives_what_came_before_and_says_so() {
    let place = json!({"smId": 4, "ctaId": [0, 0, 0], "warpId": 3});
    let range = |i: u64| {
        [("kv_wait", 0, 320), ("mma", 320, 640)].map(|(name, from, to)| {
            json!({"rangeName": name, "warpLocs": [place], "startTs": i * 960 + from, "endTs": i * 960 + to})
        })
    };
    let ranges: Vec<_> = (0..20).flat_map(range).collect();
    let text = json!({"launches": [{"kernelName": "k", "ranges": ranges}]}).to_string();
    let mhz = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
    for missing in [1, 60, 900] {
        let cut = read(&text.as_bytes()[..text.len() - missing], &mhz).unwrap();
        assert_eq!((cut.trace.format, problem(&cut, ProblemKind::Truncated)), (Input::Iket, 1), "{missing}");
        assert_eq!(cut.role("warp 3").unwrap().period_cycles.unwrap().median, 960.0);
    }
    // In the shipped shape a cut may take the tables that the ranges point into.
    let indexed = r#"{"launches":[{"ranges":[{"rangeNameIdx":0,"warpLocIdxs":[0,0],"startTs":0,"endTs":32}]"#;
    let message = read(indexed.as_bytes(), &mhz).unwrap_err();
    assert!(message.contains("its tables may be missing"), "{message}");
}

#[test]
fn foreign_json_and_a_cut_magic_are_told_from_traces() {
    let message = read(br#"{"name": "package", "launches of": 3}"#, &ReadOptions::default()).unwrap_err();
    assert!(message.contains("neither `traceEvents`") && message.contains("--input"), "{message}");
    let chrome = format!("{{\"otherData\": {{\"launches\": 1}}, \"traceEvents\": {}}}", chrome());
    let cycles = ReadOptions { unit: Some(kbt_trace::Unit::Cycles), ..ReadOptions::default() };
    assert_eq!(read(chrome.as_bytes(), &cycles).unwrap().trace.format, Input::Chrome);
    let whole = file(&info(Level::Coarse), 64, &pipeline(0, 3, 0));
    for end in 1..8 {
        let message = read(&whole[..end], &ReadOptions::default()).unwrap_err();
        assert!(message.contains(&format!("offset {end}: magic: the file ends inside it")), "{message}");
    }
}

#[test]
fn periods_below_the_clocks_step_are_refused_with_what_follows_from_them() {
    let events: Vec<_> = (0..40)
        .map(|i| json!({"ph": "X", "pid": 0, "tid": "MMA", "ts": i * 32, "dur": 0, "name": "wait P"}))
        .collect();
    let unit = Some(kbt_trace::Unit::Nanoseconds);
    let mhz = ReadOptions { clock_mhz: Some(1000.0), unit, ..ReadOptions::default() };
    let outcome = read(&serde_json::to_vec(&events).unwrap(), &mhz).unwrap();
    let role = &outcome.roles[0];
    assert_eq!((role.period_cycles, role.busy_cycles, role.slack_cycles), (None, None, None));
    assert_eq!((role.waits[0].cycles, outcome.wait_floor_cycles), (None, None));
    assert_eq!(problem(&outcome, ProblemKind::BelowQuantum), 2, "the wait and the period");
    let pace = outcome.headline();
    assert!(pace.contains("MMA has steps that the clock is too coarse to tell"), "{pace}");
}

#[test]
fn a_tenth_below_the_clocks_step_is_not_told_in_text() {
    // One wait in five takes 32 ns, a step of the timer; the others 96.
    let wait = |i: u64| {
        let dur = if i.is_multiple_of(5) { 32 } else { 96 };
        json!({"ph": "X", "pid": 0, "tid": "MMA", "ts": i * 960, "dur": dur, "name": "wait P"})
    };
    let unit = Some(kbt_trace::Unit::Nanoseconds);
    let options = ReadOptions { clock_mhz: Some(1000.0), unit, ..ReadOptions::default() };
    let events: Vec<_> = (0..40).map(wait).collect();
    let text = read(&serde_json::to_vec(&events).unwrap(), &options).unwrap().render_text();
    assert!(text.contains("each 96 (below 64 to 96)") && text.contains("period 960 (960 to 960)"), "{text}");
}

#[test]
fn every_format_has_a_name_that_target_files_use() {
    for input in Input::ALL {
        assert_eq!(Input::named(input.as_str()), Some(input));
    }
    assert_eq!((Input::named("fa4"), Input::named("bogus")), (Some(Input::Fa4Fp4), None));
}
