//! Triton Proton's circular buffer.

use super::*;

/// Two warps, 8 records a warp; warp 1 wrote 12 and kept the newest.
fn buffer(times: bool) -> Vec<u8> {
    let header = if times { 10 } else { 4 };
    let block_bytes = (header + 2) * 4 + 2 * 64;
    let mut words = vec![1, 0, 0, 32, block_bytes, 1, 2, block_bytes];
    words.extend([0xdead_beef, 5, 3, 128]);
    words.resize(8 + header as usize, 0);
    words.extend([16, 24]);
    let record = |i: u32, at: u32| [(i % 2) << 31 | 1 << 23, at + i * 10];
    words.extend((0..8).flat_map(|i| record(i, 100)));
    let mut ring = [[0; 2]; 8];
    (0..12).for_each(|i| ring[i as usize % 8] = record(i, 500));
    words.extend(ring.concat());
    words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect()
}

#[test]
fn both_header_sizes_and_a_wrapped_segment_are_read() {
    for times in [false, true] {
        let outcome = analysed(&buffer(times), &ReadOptions::default(), AnalyseOptions::default()).unwrap();
        assert_eq!(outcome.trace.format, Input::Proton);
        assert_eq!(problem(&outcome, ProblemKind::Dropped), 4);
        assert_eq!(problem(&outcome, ProblemKind::ClockBackwards), 0);
        for warp in ["warp 0", "warp 1"] {
            let role = outcome.role(warp).unwrap();
            assert_eq!((role.steps, role.period_cycles.unwrap().median), (4, 20.0), "{warp}");
        }
    }
}

#[test]
fn a_missing_preamble_and_a_cut_file_are_counted() {
    let mut bytes = buffer(true);
    bytes[32] = 0;
    let options = ReadOptions { input: Input::Proton, ..ReadOptions::default() };
    assert!(error(&bytes, &options).contains("without a record"));
    let bytes = buffer(true);
    let outcome = analysed(&bytes[..bytes.len() - 60], &options, AnalyseOptions::default()).unwrap();
    assert!(problem(&outcome, ProblemKind::Truncated) >= 1);
}

#[test]
fn sizes_that_do_not_fit_the_file_are_said() {
    let read = |bytes: &[u8]| analysed(bytes, &ReadOptions::default(), AnalyseOptions::default()).unwrap();
    assert_eq!(problem(&read(&buffer(true)), ProblemKind::Inconsistent), 0);
    let mut bytes = buffer(true);
    bytes[16] = 7;
    assert_eq!(problem(&read(&bytes), ProblemKind::Inconsistent), 1, "the payload's size");
    let mut bytes = buffer(true);
    bytes.extend([0; 80]);
    let outcome = read(&bytes);
    assert!(outcome.problems.iter().any(|p| p.says.contains("80 bytes after")), "{:?}", outcome.problems);
}

#[test]
fn a_file_cut_before_its_first_record_says_that_it_is_cut() {
    let message = error(&buffer(true)[..60], &ReadOptions { input: Input::Proton, ..ReadOptions::default() });
    assert!(message.contains("without a record") && message.contains("ends early"), "{message}");
}

#[test]
fn a_clock_that_steps_back_costs_its_step_alone() {
    let mut bytes = buffer(true);
    // Warp 0's fourth record, the end in the second of three steps.
    let at = 32 + 12 * 4 + 3 * 8 + 4;
    bytes[at..at + 4].copy_from_slice(&90_u32.to_le_bytes());
    let outcome = analysed(&bytes, &ReadOptions::default(), AnalyseOptions::default()).unwrap();
    let steps = |role: &str| outcome.role(role).unwrap().steady_steps;
    assert_eq!((steps("warp 0"), steps("warp 1")), (2, 3), "{:?}", outcome.problems);
    assert_eq!(problem(&outcome, ProblemKind::StepDropped), 1);
}
