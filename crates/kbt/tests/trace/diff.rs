//! `kbt trace diff` and its gates.

use super::*;

#[test]
fn a_gate_on_a_diff_fails_with_exit_code_1() {
    let (bf16, fp8) = (recording("bf16"), recording("fp8"));
    let (bf16, fp8) = (bf16.to_str().unwrap(), fp8.to_str().unwrap());
    assert_eq!(kbt(&["diff", fp8, fp8, "--gate", "period=0", "--gate", "ring K=0"]).status.code(), Some(0));
    let output = kbt(&["diff", bf16, fp8, "--gate", "Softmax0: period<=1", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        diff["violations"][0].as_str().unwrap().starts_with("Softmax0 period: "),
        "{}",
        diff["violations"]
    );
    assert_eq!(kbt(&["diff", bf16, fp8, "--gate", "speed=1"]).status.code(), Some(2));
    assert_eq!(kbt(&["diff", bf16, fp8, "--gate", "period"]).status.code(), Some(2));
}

#[test]
fn a_cut_trace_passes_no_gate() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (recording("fp4"), folder.path().join("cut.kbttrace"));
    std::fs::write(&cut, &std::fs::read(&whole).unwrap()[..100_000]).unwrap();
    let (whole, cut) = (whole.to_str().unwrap(), cut.to_str().unwrap());
    for (a, b) in [(whole, cut), (cut, whole)] {
        assert_eq!(kbt(&["diff", a, b]).status.code(), Some(0), "told, not judged");
        let output = kbt(&["diff", a, b, "--gate", "period=100"]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("cut.kbttrace: 1 x the file ends early"),
            "{said}"
        );
    }
}

#[test]
fn a_comparison_says_what_is_odd_and_a_damaged_trace_passes_no_gate() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = (recording("fp4"), folder.path().join("damaged.kbttrace"));
    let mut bytes = std::fs::read(&whole).unwrap();
    bytes.extend([0; 40]);
    std::fs::write(&damaged, &bytes).unwrap();
    let (whole, damaged) = (whole.to_str().unwrap(), damaged.to_str().unwrap());
    for (a, b, which) in [(whole, damaged, "second"), (damaged, whole, "first")] {
        let told = kbt(&["diff", a, b]);
        assert_eq!(told.status.code(), Some(0));
        let note = format!("note: {which} trace: 1 x the file contradicts itself");
        assert!(text(&told.stdout).contains(&note), "{}", text(&told.stdout));
        let output = kbt(&["diff", a, b, "--gate", "period=100"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("damaged.kbttrace: 1 x"), "{said}");
    }
    let twice = kbt(&["diff", "-", "-"]);
    assert!(twice.status.code() == Some(2) && text(&twice.stderr).contains("can be read once"));
}

#[test]
fn a_role_without_its_close_passes_no_gate_and_is_not_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, hung) = (recording("fp4"), changed(folder.path(), "hung.kbttrace", unclosed));
    let (whole, hung) = (whole.to_str().unwrap(), hung.to_str().unwrap());
    assert_eq!(kbt(&["diff", whole, hung]).status.code(), Some(0), "told, not judged");
    let output = kbt(&["diff", whole, hung, "--gate", "period=100"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("ended without close()"), "{said}");
    let times = "for i in 1 2 3; do echo kbt-time-us 100; done; echo kbt-clock-mhz 1980\n";
    let script = format!("{times}if [ -n \"$KBT_TRACE_OUT\" ]; then cp '{hung}' \"$KBT_TRACE_OUT\"; fi\n");
    let output = kbt(&["observe", &target(folder.path(), "kbt", &script), "--rounds", "6"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("ended without close()"), "{said}");
}

#[test]
fn a_gate_on_a_detail_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = std::mem::offset_of!(kbt_trace::bindings::kbt_trace_file_header, level);
    let detail = changed(folder.path(), "detail.kbttrace", |bytes| bytes[at] = 3);
    let (coarse, detail) = (recording("fp4"), detail.to_str().unwrap().to_owned());
    let coarse = coarse.to_str().unwrap();
    for (a, b) in [(coarse, detail.as_str()), (detail.as_str(), coarse)] {
        assert_eq!(kbt(&["diff", a, b]).status.code(), Some(0), "told, not judged");
        let output = kbt(&["diff", a, b, "--gate", "period=100"]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(3) && said.contains("detail.kbttrace: recorded at level"),
            "{said}"
        );
    }
}

#[test]
fn a_recording_that_stopped_when_full_is_told_and_passes_no_gate() {
    // The store of 128 records holds 32 of the 40 steps.
    let folder = tempfile::tempdir().unwrap();
    let step = |k: u32| {
        [(6, 0, k * 4000), (6, 1, k * 4000 + 2000), (7, 0, k * 4000 + 2100), (7, 1, k * 4000 + 2400)]
    };
    let file = |name: &str, kept: usize| {
        let mut words = vec![1, 4];
        words.resize(2 + 2 * 4 * 200, 0);
        for (k, (event, kind, at)) in (1..41).flat_map(step).take(kept).enumerate() {
            let slot = 2 + 2 * (1 + k * 4);
            (words[slot], words[slot + 1]) = (9 << 24 | event << 2 | kind, at);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (whole, full) = (file("whole.bin", 160), file("full.bin", 128));
    let stats = text(&kbt(&["stats", &full]).stdout);
    assert!(stats.contains("recorded window: ") && stats.contains("period 4000"), "{stats}");
    assert_eq!(kbt(&["diff", &whole, &whole, "--gate", "period=3"]).status.code(), Some(0));
    for (a, b) in [(&whole, &full), (&full, &whole)] {
        let output = kbt(&["diff", a, b, "--gate", "period=3"]);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("full.bin: Softmax0: 1 x the buffer filled"),
            "{said}"
        );
    }
}
