//! The ladder on a target of the user's own, on a device that is not there: the processes are shell scripts, the
//! machine code is a listing or PTX, and the GPU is a description.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use kbt_evidence::{FixClass, Standing, Step, audit};
use kbt_gpu::DeviceInfo;
use kbt_ladder::recording::Recording;
use kbt_ladder::target::TargetTuner;
use kbt_ladder::{Backend, Board, Ladder, Origin, RunDir, RunSpec, StepRecord};
use kbt_target::Target;
use kbt_tensor::{Dtype, Tensor, TensorSet};
use std::path::Path;

/// A small loop of exponentials and packed conversions.
const LISTING: &str = "\t.target\tsm_90a\n\t.section\t.text.softmax,\"ax\",@progbits\n\
    /*0000*/ MUFU.EX2 R0, R1 ;\n/*0010*/ MUFU.EX2 R2, R3 ;\n/*0020*/ F2FP.BF16.F32.PACK_AB R4, R2, R0 ;\n\
    /*0030*/ FADD R5, R5, R0 ;\n/*0040*/ @P0 BRA 0x0 ;\n/*0050*/ EXIT ;\n";

fn live() -> Backend {
    Backend::Live(Box::new(DeviceInfo {
        ordinal: 0,
        name: "NVIDIA H200".into(),
        compute_capability: (9, 0),
        sm_count: 132,
        cuda_version: (13, 0),
        driver_version: Some("580".into()),
        l2_bytes: 60 << 20,
        smem_optin: 232_448,
        max_sm_clock_mhz: 1980.0,
        max_memory_clock_mhz: 3201.0,
        memory_bytes: 141 << 30,
        pci_bus_id: "0000:00:00.0".into(),
    }))
}

struct Fake {
    dir: tempfile::TempDir,
    backend: Backend,
}

impl Fake {
    /// A target in a folder of its own: `files` beside it, `yaml` below its head.
    fn new(backend: Backend, files: &[(&str, &str)], yaml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let text = format!("schema: kbt.target/1\nname: fake\nlimits: {{cooldown_s: 0}}\n{yaml}");
        std::fs::write(dir.path().join("fake.yaml"), text).unwrap();
        Self { dir, backend }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn climb(&self) -> (Board, RunDir, String) {
        let path = self.path("run");
        let file = self.path("fake.yaml");
        let spec = RunSpec {
            schema: "kbt.run/1".into(),
            pv_mode: None,
            target: Some(file.display().to_string()),
            device: self.backend.describe(),
            quick: true,
            kbt: "test".into(),
        };
        let mut run = RunDir::create(&path, &spec, true).unwrap();
        // Rates that a real device gave, so that nothing is measured here.
        let profile = Recording::newest().unwrap().profile().to_yaml().unwrap();
        run.write("profile.yaml", profile.as_bytes()).unwrap();
        let mut said = String::new();
        let mut progress = |text: &str| said += &format!("{text}\n");
        let target = Target::load(&file).unwrap();
        let name = file.display().to_string();
        let mut tuner =
            TargetTuner::new(target, &name, &self.backend, &path, None, true, &mut progress).unwrap();
        let board = Ladder::new(&mut run).climb(&mut tuner).unwrap();
        for record in run.finished().values() {
            let value = serde_json::to_value(record).unwrap();
            assert_eq!(audit::uncovered_numbers(&value), Vec::<String>::new(), "{}", record.step);
        }
        (board, run, said)
    }
}

fn step(run: &RunDir, step: Step) -> &StepRecord {
    &run.finished()[&step]
}

const FACTS: &str = "facts:\n  operator: elementwise\n  shapes: {elements: 67108864}\n  dtypes: {x: f32, y: f32}\n  reuse: none\n";

fn tensor(value: f32) -> Vec<u8> {
    let mut set = TensorSet::new();
    let values: Vec<f32> = (0..16).map(|i| value + i as f32).collect();
    set.insert(Tensor::from_f32("y", vec![16], Dtype::F32, &values).unwrap()).unwrap();
    set.to_safetensors().unwrap()
}

/// Prints a time that depends on the knob, saves the outputs that lie beside it, and leaves machine code.
const RUN: &str = "case $N in 1) t=150 ;; 2) t=100 ;; 3) echo no such tile >&2; exit 3 ;; esac\n\
    echo kbt-device NVIDIA H200; echo kbt-driver 580; for i in 1 2 3; do echo kbt-time-us $t.$i; done\n\
    [ -z \"$KBT_OUT\" ] || cp $OUTPUT $KBT_OUT\n[ -z \"$KBT_DUMP\" ] || cp k.sass $KBT_DUMP\n";

fn whole(knob: &str, output: &str) -> Fake {
    let yaml = format!(
        "run: {{command: [sh, run.sh], env: {{OUTPUT: {output}}}}}\n{FACTS}\
         knobs:\n  - {{name: N, values: [1, 2, 3], default: 1{knob}}}\noutputs: [{{name: y}}]\ninputs: {{sets: 1}}\n\
         reference: {{command: [sh, -c, 'cp right.st $KBT_OUT']}}\n"
    );
    let fake = Fake::new(live(), &[("run.sh", RUN), ("k.sass", LISTING)], &yaml);
    for (name, value) in [("right.st", 1.0), ("wrong.st", 2.0)] {
        std::fs::write(fake.path(name), tensor(value)).unwrap();
    }
    fake
}

#[test]
fn a_target_that_gives_all_but_a_trace_is_timed_swept_and_validated() {
    let fake = whole("", "right.st");
    let (board, run, said) = fake.climb();
    assert_eq!(step(&run, Step::Triage).origin, Origin::Live, "{said}");
    let facts = std::fs::read_to_string(fake.path("run/facts.yaml")).unwrap();
    assert!(facts.contains("median_us: 150.2"), "{facts}");
    let rates = step(&run, Step::Rates);
    assert!(rates.headline.contains("MUFU.EX2"), "{}", rates.headline);
    let trace = step(&run, Step::Trace);
    assert_eq!((trace.origin, trace.headline.as_str()), (Origin::Refused, "target fake gives no trace"));
    assert_eq!(step(&run, Step::Algebra).origin, Origin::Refused);
    let split = step(&run, Step::Handoff).outcome.as_ref().unwrap();
    assert_eq!(split["points"][1]["status"]["kind"], "timed", "{split:#}");
    assert!(split["points"][1]["to_baseline"]["ratio"].as_f64().unwrap() < 0.7);
    assert_eq!(split["points"][2]["status"]["kind"], "refused", "{split:#}");
    let right = step(&run, Step::Validate);
    assert!(right.headline.starts_with("2 variants: 2 bitwise identical"), "{}", right.headline);
    assert_eq!(board.last_word(FixClass::Correctness).unwrap().standing, Standing::RuledOut);
}

#[test]
fn outputs_that_the_reference_does_not_have_are_wrong_however_often_they_repeat() {
    let (board, run, _) = whole(", change: algebra", "wrong.st").climb();
    let found = step(&run, Step::Validate);
    assert!(found.headline.contains("relative RMS error"), "{}", found.headline);
    assert_eq!(board.last_word(FixClass::Correctness).unwrap().standing, Standing::Recommended);
}

#[test]
fn a_build_that_fails_and_a_run_without_a_time_are_named_and_the_ladder_goes_on() {
    let yaml = format!(
        "run: {{command: [sh, -c, 'echo hello']}}\n{FACTS}build: {{command: [sh, -c, 'echo no compiler >&2; exit 7']}}\n"
    );
    let (_, run, said) = Fake::new(live(), &[], &yaml).climb();
    assert_eq!(run.finished().len(), 7, "{said}");
    let rates = step(&run, Step::Rates);
    assert_eq!(rates.origin, Origin::Refused);
    for word in ["the build failed: exit code 7", "no compiler"] {
        assert!(rates.headline.contains(word), "{} should say {word}", rates.headline);
    }
    let triage = &step(&run, Step::Triage).headline;
    assert!(triage.contains("not launched, since the build failed: exit code 7"), "{triage}");
    let yaml = format!("run: {{command: [sh, -c, 'echo hello']}}\n{FACTS}");
    let (_, run, _) = Fake::new(live(), &[], &yaml).climb();
    let rates = &step(&run, Step::Rates).headline;
    assert!(rates.contains("the run failed: printed no time"), "{rates}");
    let triage = &step(&run, Step::Triage).headline;
    assert!(triage.contains("printed no time"), "{triage}");
    assert!(run.finished().values().all(|r| r.origin != Origin::Refused || r.needs.is_some()));
}

#[test]
fn machine_code_of_another_build_is_named_and_decides_nothing() {
    let yaml = "run: {command: [sh, -c, 'echo kbt-time-us 5']}\nbuild:\n  command: [sh, -c, 'if [ -f fresh.sass ]; then cat fresh.sass > k.sass; fi']\n  artifacts: {sass: [k.sass]}\n";
    let fake = Fake::new(live(), &[("k.sass", LISTING)], yaml);
    let (_, run, _) = fake.climb();
    let schedule = step(&run, Step::Schedule);
    assert!(schedule.headline.contains("STALE"), "{}", schedule.headline);
    let bound = |v: &kbt_evidence::Verdict| matches!(v.standing, Standing::RuledOut | Standing::Recommended);
    assert!(!schedule.verdicts.iter().any(bound), "{:?}", schedule.verdicts);
    // The same listing written by the build is this build's, and may rule.
    std::fs::write(fake.path("fresh.sass"), LISTING).unwrap();
    std::fs::File::options()
        .append(true)
        .open(fake.path("k.sass"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    let (_, run, _) = fake.climb();
    let schedule = step(&run, Step::Schedule);
    assert!(!schedule.headline.contains("STALE"), "{}", schedule.headline);
    assert!(schedule.verdicts.iter().any(bound), "{:?}", schedule.verdicts);
}

#[test]
fn code_of_another_architecture_is_no_code_of_this_device() {
    let listing = LISTING.replace("sm_90a", "sm_80");
    let yaml = "run: {command: [sh, -c, 'cp k.sass $KBT_DUMP; echo kbt-time-us 5']}\n";
    let (_, run, _) = Fake::new(live(), &[("k.sass", listing.as_str())], yaml).climb();
    let rates = step(&run, Step::Rates);
    assert_eq!(rates.origin, Origin::Refused);
    assert!(rates.headline.contains("it is sm_80 code, and the device is sm_90a"), "{}", rates.headline);
}

#[test]
fn the_kernel_that_the_file_names_is_the_one_studied() {
    let long =
        LISTING.replace("softmax", "longer").replace("/*0050*/ EXIT ;", "/*0050*/ NOP ;\n/*0060*/ EXIT ;");
    let both = format!("{LISTING}{}", long.split_once('\n').unwrap().1);
    let yaml = "run: {command: [sh, -c, 'cp k.sass $KBT_DUMP; echo kbt-time-us 5']}\n";
    let studied = |yaml: &str| {
        let (_, run, _) = Fake::new(live(), &[("k.sass", both.as_str())], yaml).climb();
        let kernel = step(&run, Step::Rates).outcome.as_ref().map(|o| o["kernel"].clone());
        kernel.unwrap_or_else(|| step(&run, Step::Rates).headline.clone().into())
    };
    assert_eq!(studied(yaml), "longer");
    assert_eq!(studied(&format!("{yaml}kernel: ^soft\n")), "softmax");
    let none = studied(&format!("{yaml}kernel: gemm\n"));
    assert!(none.as_str().unwrap().contains("of a kernel like `gemm`"), "{none}");
}

#[test]
fn a_run_is_of_one_target_file() {
    let fake = whole("", "right.st");
    fake.climb();
    let changed = std::fs::read_to_string(fake.path("fake.yaml")).unwrap().replace("[1, 2, 3]", "[1, 2]");
    std::fs::write(fake.path("fake.yaml"), changed).unwrap();
    let target = Target::load(&fake.path("fake.yaml")).unwrap();
    let mut quiet = |_: &str| {};
    let made =
        TargetTuner::new(target, "fake.yaml", &fake.backend, &fake.path("run"), None, true, &mut quiet);
    let error = made.err().unwrap().to_string();
    assert!(error.contains("began with another target file"), "{error}");
}

#[test]
fn nothing_of_the_surroundings_but_the_documented_minimum_is_seen_or_kept() {
    // cargo's own variables stand for the secrets of a user's shell.
    let secret = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let fake = whole("", "right.st");
    let spy = format!("env > env-$$.txt\n{RUN}");
    std::fs::write(fake.path("run.sh"), spy).unwrap();
    fake.climb();
    let mut open = vec![fake.dir.path().to_owned()];
    let mut looked = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains("CARGO_MANIFEST_DIR") && !text.contains(&secret), "{}", path.display());
            looked += 1;
        }
    }
    assert!(looked > 20, "{looked} files");
    assert!(Path::new(&fake.path("run/sweep/journal.jsonl")).exists());
}

#[test]
fn a_trace_is_read_where_the_target_gives_one_and_refused_where_it_does_not_keep_its_word() {
    let recorded = Recording::newest().unwrap();
    let bytes = recorded.file("bf16", "trace.kbttrace").unwrap().to_vec();
    let traced = |script: &str, format: &str| {
        let yaml = format!(
            "run: {{command: [sh, -c, '{script}; echo kbt-time-us 5']}}\ntrace: {{format: {format}, levels: {{coarse: {{}}}}}}\n"
        );
        let fake = Fake::new(live(), &[], &yaml);
        std::fs::write(fake.path("t.kbttrace"), &bytes).unwrap();
        let (_, run, _) = fake.climb();
        let record = step(&run, Step::Trace).clone();
        (record.origin, record.headline)
    };
    let copies = "[ $KBT_TRACE = off ] || cp t.kbttrace $KBT_TRACE_OUT";
    let (origin, headline) = traced(copies, "kbt");
    assert!(origin == Origin::Live && headline.contains("set the pace"), "{headline}");
    let (origin, headline) = traced("true", "kbt");
    assert!(origin == Origin::Refused && headline.contains("wrote no "), "{headline}");
    let (origin, headline) = traced(copies, "nsys");
    assert!(origin == Origin::Refused && headline.contains("`nsys` is not known"), "{headline}");
}

#[test]
fn what_an_earlier_build_left_is_not_launched_after_a_failed_one() {
    let yaml = format!(
        "run: {{command: [sh, -c, 'echo ran >> launches; echo kbt-time-us 5']}}\n{FACTS}\
         knobs: [{{name: N, values: [1, 2], default: 1}}]\noutputs: [{{name: y}}]\n\
         trace: {{format: kbt, levels: {{coarse: {{}}}}}}\nbuild: {{command: [sh, -c, 'exit 7']}}\n"
    );
    let fake = Fake::new(live(), &[], &yaml);
    let (_, run, _) = fake.climb();
    assert!(!fake.path("launches").exists());
    for at in [Step::Trace, Step::Handoff, Step::Validate] {
        assert_eq!(step(&run, at).origin, Origin::Refused);
        assert!(step(&run, at).headline.contains("not launched"), "{}", step(&run, at).headline);
    }
}

/// A recording of a run of `whole`, in a folder of its own.
fn recording_of(fake: &Fake, into: &Path, force: bool) -> Result<(), String> {
    kbt_ladder::recording::import(&[fake.path("run")], into, force).map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn a_recording_answers_for_the_target_file_that_it_was_made_with() {
    let fake = whole("", "right.st");
    fake.climb();
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("card");
    recording_of(&fake, &into, false).unwrap();
    let replay = |from: &str, to: &str| {
        let backend = Backend::Recorded(Box::new(Recording::load(&into).unwrap()));
        let again = Fake { backend, ..whole("", "right.st") };
        let text = std::fs::read_to_string(again.path("fake.yaml")).unwrap();
        assert!(text.contains(from));
        std::fs::write(again.path("fake.yaml"), text.replacen(from, to, 1)).unwrap();
        again.climb().1
    };
    let same = replay("elements", "elements");
    assert_eq!(
        step(&same, Step::Handoff).origin,
        Origin::Recorded,
        "{}",
        step(&same, Step::Handoff).headline
    );
    assert_eq!(step(&same, Step::Validate).origin, Origin::Recorded);
    assert!(
        !step(&same, Step::Triage).headline.contains("target file"),
        "{}",
        step(&same, Step::Triage).headline
    );
    let other = replay("67108864", "1024");
    for at in [Step::Triage, Step::Handoff, Step::Validate] {
        let found = step(&other, at);
        assert_eq!(found.origin, Origin::Refused, "{at}: {}", found.headline);
        assert!(
            found.headline.contains("of another target file named fake: its facts"),
            "{}",
            found.headline
        );
    }
    let other = replay("values: [1, 2, 3]", "values: [1, 2]");
    assert_eq!(step(&other, Step::Handoff).origin, Origin::Refused);
    assert_ne!(step(&other, Step::Triage).origin, Origin::Refused);
    std::fs::remove_file(into.join("fake/target.json")).unwrap();
    let old = replay("elements", "elements");
    let validate = &step(&old, Step::Validate).headline;
    assert!(validate.contains("recorded with an unknown target file"), "{validate}");
    let old = replay("67108864", "1024");
    assert_eq!(step(&old, Step::Validate).origin, Origin::Refused);
}

#[test]
fn an_import_replaces_nothing_unasked_and_leaves_nothing_half_written() {
    let fake = whole("", "right.st");
    fake.climb();
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("card");
    let run = fake.path("run");
    let twice =
        kbt_ladder::recording::import(&[run.clone(), run.clone()], &into, true).unwrap_err().to_string();
    assert!(twice.contains("a recording keeps one run of each"), "{twice}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    recording_of(&fake, &into, false).unwrap();
    let error = recording_of(&fake, &into, false).unwrap_err();
    assert!(error.contains("card/fake: the recording has a run of `fake`; --force replaces it"), "{error}");
    recording_of(&fake, &into, true).unwrap();
    std::fs::write(run.join("profile.yaml"), "schema: nothing\n").unwrap();
    let before = std::fs::read(into.join("profile.yaml")).unwrap();
    recording_of(&fake, &into, true).unwrap_err();
    assert_eq!(std::fs::read(into.join("profile.yaml")).unwrap(), before);
    recording_of(&fake, &dir.path().join("new"), false).unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the recording is there");
}

#[test]
fn a_kernel_of_many_instructions_an_element_is_not_called_memory_bound() {
    let climb = |listing: &str, flop: &str| {
        let run = "echo kbt-time-us 2900; [ -z \"$KBT_DUMP\" ] || cp k.sass $KBT_DUMP";
        let facts = FACTS.replace("  reuse", &format!("{flop}  reuse"));
        let yaml = format!("run: {{command: [sh, run.sh]}}\n{facts}");
        let fake = Fake::new(live(), &[("run.sh", run), ("k.sass", listing)], &yaml);
        step(&fake.climb().1, Step::Triage).headline.clone()
    };
    let listing = |n: usize| {
        let line = |(i, text): (usize, &str)| format!("/*{:04x}*/ {text} ;\n", i * 16);
        let body = ["LDG.E R0, [R2]"].into_iter().chain(vec!["FFMA R0, R0, R0, R0"; n]);
        let all = body.chain(["STG.E [R2], R0", "EXIT"]).enumerate().map(line);
        format!("\t.target\tsm_90a\n\t.section\t.text.k,\"ax\",@progbits\n{}", all.collect::<String>())
    };
    let told = climb(&listing(1024), "");
    assert!(told.contains("1027 issue slots an element") && !told.starts_with("memory-bound"), "{told}");
    let told = climb(&listing(1024), "  flop_per_element: 2048\n");
    assert!(told.starts_with("compute-bound") && !told.contains("issue slots"), "{told}");
    // Four elements a thread.
    assert!(climb(&listing(1024).replace("STG.E ", "STG.E.128 "), "").contains("257 issue slots an element"));
    assert!(!climb(&listing(8), "").contains("issue slots"));
    // Two loops over the elements, of which the first stores nothing: both count.
    let two = |n: usize| {
        let pass = |at: usize, last: &str| {
            let mut body = vec!["LDG.E R0, [R2]".to_owned()];
            body.extend(vec!["FFMA R0, R0, R0, R0".to_owned(); n]);
            body.extend((!last.is_empty()).then(|| last.to_owned()));
            body.push(format!("@P0 BRA `(.L_{at})"));
            body
        };
        let mut all = pass(0, "");
        all.extend(pass(all.len(), "STG.E [R2], R0"));
        all.push("EXIT".to_owned());
        let line = |(i, text): (usize, &String)| format!(".L_{i}:\n/*{:04x}*/ {text} ;\n", i * 16);
        let lines: String = all.iter().enumerate().map(line).collect();
        format!("\t.target\tsm_90a\n\t.section\t.text.k,\"ax\",@progbits\n{lines}")
    };
    let told = climb(&two(500), "");
    assert!(told.contains("1005 issue slots an element"), "{told}");
}
