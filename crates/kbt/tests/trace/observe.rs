//! `kbt trace observe`.

use super::*;

#[test]
fn a_target_that_refuses_is_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("refusing.yaml");
    let yaml = "schema: kbt.target/1\nname: refusing\nrun: {command: [sh, -c, 'echo no such card >&2; exit 3']}\n\
                trace: {format: kbt, levels: {coarse: {}}}\noutputs: [{name: o}]\nlimits: {cooldown_s: 0}\n";
    std::fs::write(&target, yaml).unwrap();
    let output = kbt(&["observe", target.to_str().unwrap(), "--rounds", "6"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("no such card"), "{:?} {said}", output.status);
}

#[test]
fn observing_needs_a_format_that_is_read_and_a_limit_that_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let bogus = target(folder.path(), "bogus", "exit 3");
    let output = kbt(&["observe", &bogus, "--rounds", "6"]);
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("trace.format bogus: accepted: auto, kbt"),
        "{said}"
    );
    let sound = target(folder.path(), "kbt", "exit 3");
    for limit in ["nan", "inf", "-1"] {
        let output = kbt(&["observe", &sound, "--rounds", "6", &format!("--limit-percent={limit}")]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("--limit-percent"), "{limit}: {said}");
    }
}

#[test]
fn the_kept_trace_is_replaced_by_a_run_that_succeeds_alone() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept.kbttrace");
    std::fs::write(&kept, "what was there").unwrap();
    let observe = |script: &str| {
        let target = target(folder.path(), "kbt", script);
        kbt(&["observe", &target, "--rounds", "6", "--trace-out", kept.to_str().unwrap()])
    };
    let times = "for i in 1 2 3; do echo kbt-time-us 100; done; echo kbt-clock-mhz 1500\n";
    let fails = observe(&format!("{times}if [ -n \"$KBT_TRACE_OUT\" ]; then exit 1; fi\n"));
    assert!(fails.status.code() == Some(2) && text(&fails.stderr).contains("at level coarse"));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "what was there");
    let trace = recording("fp8");
    let script = format!(
        "{times}\
         if [ -n \"$KBT_TRACE_OUT\" ]; then cp '{}' \"$KBT_TRACE_OUT\"; fi\n",
        trace.display()
    );
    let output = observe(&script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&kept).unwrap(), std::fs::read(&trace).unwrap());
    assert_eq!(names(folder.path()), ["kept.kbttrace", "run.sh", "target.yaml"]);
}

#[test]
fn a_trace_of_kbts_own_that_is_said_to_be_anothers_is_told_where_it_is_said() {
    let trace = recording("fp8");
    let trace = trace.to_str().unwrap();
    let output = kbt(&["stats", trace, "--input", "fa4-fp4"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--input: fa4-fp4, but "), "{said}");
    assert!(said.contains("a trace of kbt's own; accepted: kbt"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let leaves = |file: &str| {
        let script = format!(
            "for i in 1 2 3; do echo kbt-time-us 100; done\n\
             if [ -n \"$KBT_TRACE_OUT\" ]; then cp '{file}' \"$KBT_TRACE_OUT\"; fi\n"
        );
        let target = target(folder.path(), "fa4-fp4", &script);
        let output = kbt(&["observe", &target, "--rounds", "6"]);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let said = leaves(trace);
    assert!(said.contains("trace.format: fa4-fp4, but ") && said.contains("accepted: kbt"), "{said}");
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, [255; 64]).unwrap();
    let said = leaves(foreign.to_str().unwrap());
    assert!(said.contains("name the format with trace.format: ") && !said.contains("--input"), "{said}");
}
