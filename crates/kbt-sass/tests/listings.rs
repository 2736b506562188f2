//! The committed listings: what is read from them, and that damage to them is survived and told.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::fixtures;
use kbt_evidence::audit::uncovered_numbers;
use kbt_sass::outcome::MetricsOutcome;
use kbt_sass::{MeasureOptions, ParseError, ProblemKind, measure, parse};

fn fixture(name: &str) -> String {
    std::fs::read_to_string(fixtures().join("listings").join(name)).unwrap()
}

fn metrics(text: &[u8]) -> MetricsOutcome {
    measure(&parse(text).unwrap(), MeasureOptions::default())
}

#[test]
fn metrics_of_the_listings() {
    for name in ["forms", "roles", "spilling"] {
        let outcome = metrics(fixture(&format!("{name}.sm_90a.sass")).as_bytes());
        insta::assert_snapshot!(name, outcome.render_text());
    }
}

#[test]
fn the_outcome_is_read_back_equal_and_every_number_has_a_provenance() {
    let outcome = metrics(fixture("roles.sm_90a.sass").as_bytes());
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(uncovered_numbers(&json), Vec::<String>::new());
    assert_eq!(json["schema"], "kbt.sass/1");
    let function = &json["functions"][0];
    for field in ["name", "arch", "instructions", "mnemonics", "pipes", "regions", "loops"] {
        assert!(!function[field].is_null(), "{field}");
    }
    for field in ["a", "b", "transitions", "possible", "runs"] {
        assert!(!function["interleave"][field].is_null(), "{field}");
    }
    for field in ["spill_load_bytes", "spill_store_bytes", "array", "stack_bytes"] {
        assert!(!function["regions"][0]["local_memory"][field].is_null(), "{field}");
    }
    assert_eq!(serde_json::from_value::<MetricsOutcome>(json).unwrap(), outcome);
}

#[test]
fn a_listing_that_spills_speaks_for_another_register_budget() {
    let outcome = metrics(fixture("spilling.sm_90a.sass").as_bytes());
    assert_eq!(outcome.headline(), "2 functions, 574 instructions; 1 spill, 1 have local arrays; 0 problems");
    let verdicts = outcome.verdicts();
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0].standing, kbt_evidence::Standing::Recommended);
    assert_eq!(metrics(fixture("forms.sm_90a.sass").as_bytes()).verdicts(), []);
}

#[test]
fn line_ends_marks_colours_and_encodings_change_nothing() {
    let text = fixture("forms.sm_90a.sass");
    let plain = metrics(text.as_bytes()).functions;
    let crlf = text.replace('\n', "\r\n");
    let bom = format!("\u{feff}{text}");
    let colours = text.replace("MUFU", "\x1b[1;32mMUFU\x1b[0m");
    let tail = format!("{text}\0\0\0\0");
    for (what, changed) in [("CRLF", crlf), ("BOM", bom), ("ANSI", colours), ("NUL tail", tail)] {
        let outcome = metrics(changed.as_bytes());
        assert_eq!(outcome.functions, plain, "{what}");
        assert_eq!(outcome.problems, [], "{what}");
    }
    let utf16: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert_eq!(metrics(&utf16).functions, plain);
    let no_hex: String =
        text.lines().map(|l| l.split("        /* 0x").next().unwrap().to_owned() + "\n").collect();
    let stripped = parse(no_hex.as_bytes()).unwrap();
    assert_eq!(stripped.problems, [], "hex columns stripped, blank lines left");
    assert_eq!(stripped.instructions().count(), parse(text.as_bytes()).unwrap().instructions().count());
}

#[test]
fn every_truncation_is_read_or_refused_and_never_loses_a_whole_line() {
    let text = fixture("forms.sm_90a.sass");
    let whole = parse(text.as_bytes()).unwrap();
    let mut last = 0;
    for end in (0..text.len()).step_by(37) {
        match parse(&text.as_bytes()[..end]) {
            Ok(listing) => {
                let count = listing.instructions().count();
                assert!(count >= last, "{end}: {count} after {last}");
                last = count;
            }
            Err(ParseError::Empty | ParseError::Foreign { .. }) => assert!(end < 120, "{end}"),
            Err(e) => panic!("{end}: {e}"),
        }
    }
    assert!(last + 40 > whole.instructions().count());
    let cut = &text[..text.find("MUFU.EX2").unwrap()];
    let listing = parse(cut.as_bytes()).unwrap();
    assert!(listing.functions.last().unwrap().truncated);
    assert!(listing.problems.iter().any(|p| p.kind == ProblemKind::Truncated), "{:?}", listing.problems);
}

#[test]
fn what_is_not_understood_is_counted_and_the_rest_is_read() {
    let text = fixture("forms.sm_90a.sass");
    let clean = parse(text.as_bytes()).unwrap();
    let broken =
        text.replacen("STG.E", "?!stg", 1).replacen("@!P0 BRA", "@!X0 BRA", 1) + "\nsome other text\n";
    let listing = parse(broken.as_bytes()).unwrap();
    let kinds: Vec<_> = listing.problems.iter().map(|p| p.kind).collect();
    for kind in [ProblemKind::UnknownLine, ProblemKind::Instruction, ProblemKind::Address] {
        assert!(kinds.contains(&kind), "{kind:?} not in {:?}", listing.problems);
    }
    assert_eq!(listing.instructions().count(), clean.instructions().count() - 1);
    let noise = text + &"?\n".repeat(10_000);
    let listing = parse(noise.as_bytes()).unwrap();
    assert!(listing.problems.len() <= 50, "listed singly up to a limit");
    assert_eq!(listing.problem_count(), 10_000, "and counted beyond it");
}

#[test]
fn foreign_input_is_refused_with_what_was_expected() {
    let long = "x".repeat(100_000);
    for (bytes, expect) in [
        (&b""[..], "empty"),
        (b"\n\n \0\0", "empty"),
        (b"\x7fELF\x02\x01\x01", "kbt sass metrics FILE"),
        (b"\x50\xed\x55\xba rest", "fatbin"),
        (b"//\n.version 9.0\n.target sm_90a\n", "PTX"),
        (b"int main() { return 0; }", "nvdisasm -c -hex"),
        (b"{\"a\": 1}", "nvdisasm -json"),
        (b"[{\"a\": 1}]", "nvdisasm -json"),
        (long.as_bytes(), "cuobjdump -sass"),
        (&[0xff; 64], "nvdisasm"),
    ] {
        let error = parse(bytes).unwrap_err().to_string();
        assert!(error.contains(expect) && error.len() < 400, "{expect}: {error}");
    }
}

/// A small generator: the same bytes every time.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

#[test]
fn damaged_listings_go_through_everything_without_fault() {
    let texts = ["forms", "roles", "spilling"].map(|n| fixture(&format!("{n}.sm_90a.sass")).into_bytes());
    let mut noise = Noise(1);
    for round in 0..150 {
        let mut bytes = texts[round % 3].clone();
        for _ in 0..=noise.below(30) {
            if bytes.len() < 400 {
                break;
            }
            let at = noise.below(bytes.len());
            match noise.below(5) {
                0 => bytes[at] = noise.below(256) as u8,
                1 => bytes.truncate(at.max(200)),
                2 => drop(bytes.drain(at..(at + noise.below(300)).min(bytes.len()))),
                3 => {
                    let from = noise.below(bytes.len());
                    let piece = bytes[from..(from + 200).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => bytes[at] = *b"0123456789abcdef;/*@P[]{}`(,".get(noise.below(28)).unwrap(),
            }
        }
        let Ok(listing) = parse(&bytes) else { continue };
        let outcome = measure(&listing, MeasureOptions { blocks: true, ..MeasureOptions::default() });
        let _ = outcome.render_text();
        let _ = kbt_sass::lint(&listing);
        let other = parse(&texts[round % 3]).unwrap();
        let _ = kbt_sass::diff_listings(&listing, &other, |_| true).render_text();
    }
}

#[test]
fn many_loops_and_blocks_take_no_longer_than_their_number_asks() {
    let mut text = String::from("\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n");
    for n in 0..40_000_u64 {
        let address = n * 16;
        text += &format!("/*{address:04x}*/ @P0 BRA {:#x} ;\n", if n % 2 == 0 { address } else { 0 });
    }
    let started = std::time::Instant::now();
    let outcome = metrics(text.as_bytes());
    assert_eq!(outcome.functions[0].loops.len(), 20_000);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn the_gate_compares_functions_of_the_same_name_in_their_order() {
    let member = |insns: &str| format!("\tcode for sm_90a\n\t\tFunction : k\n{insns}\t\t..........\n");
    let more = "/*0000*/ NOP ;\n/*0010*/ MUFU.EX2 R0, R1 ;\n/*0020*/ EXIT ;\n";
    let both = metrics((member("/*0000*/ EXIT ;\n") + &member(more)).as_bytes());
    let report = kbt_sass::gate(&both, &both, &kbt_sass::Tolerance::default());
    assert!(report.passes() && report.compared == 2, "{}", report.render_text());
}

#[test]
fn a_tolerance_as_large_as_can_be_allows_any_spill() {
    let now = metrics(fixture("spilling.sm_90a.sass").as_bytes());
    let mut old = now.clone();
    old.functions[0].local_memory.spill_load_bytes = 1;
    old.functions[0].local_memory.stack_bytes = 1;
    let most = kbt_sass::Tolerance {
        spill_bytes: u64::MAX,
        stack_bytes: u64::MAX,
        ..kbt_sass::Tolerance::default()
    };
    assert!(kbt_sass::gate(&old, &now, &most).passes());
}
