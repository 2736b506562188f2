//! `kbt split` as scripts meet it: the contract's exit codes, a sweep's files, the model on a recorded trace, two
//! sweeps side by side, and an engine that is not there.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use kbt_tensor::{Dtype, Tensor, TensorSet};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.current_dir(dir).env("KBT_CUDA", dir.join("none")).arg("split").args(args).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A kernel that is a shell script: 3/4 is its best split, and CHUNKS = 8 crashes.
fn fake(dir: &Path, best: &str) -> PathBuf {
    let script = format!(
        "[ $CHUNKS = 8 ] && kill -SEGV $$\n[ -z $KBT_OUT ] || cp o.npy.safetensors $KBT_OUT\n\
         t=100; [ $NUM = {best} ] && t=80\nfor i in 1 2 3; do echo kbt-time-us $t.$i; done\necho kbt-device Fake\n"
    );
    std::fs::write(dir.join("run.sh"), script).unwrap();
    // One f32 tensor `o` of four elements: an 8-byte header length, the header, the data.
    let header = br#"{"o":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    std::fs::write(dir.join("o.npy.safetensors"), file).unwrap();
    let text = "schema: kbt.target/1\nname: fake\nrun: {command: [sh, run.sh]}\nknobs:\n  \
        - {name: NUM, values: [1, 2, 3], default: 2}\n  - {name: CHUNKS, values: [4, 8], default: 4}\n\
        handoff: {num: NUM, den: 4, chunks: CHUNKS, tiles: 8}\noutputs: [{name: o}]\nlimits: {cooldown_s: 0}\n";
    let path = dir.join("fake.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_contract_says_yes_no_or_that_it_was_asked_nonsense() {
    let dir = tempfile::tempdir().unwrap();
    let contract = |num: &str, den: &str, chunks: &str, more: &[&str]| {
        let args = ["contract", "--num", num, "--den", den, "--chunks", chunks, "--tiles", "8"];
        run(dir.path(), &[&args[..], more].concat())
    };
    let (code, out, _) = contract("7", "8", "4", &[]);
    assert!(code == Some(1) && out.contains("3/4 < 7/8"), "{code:?} {out}");
    assert_eq!(contract("3", "4", "4", &[]).0, Some(0));
    for (num, den, chunks, says) in [
        ("8", "8", "4", "8/8 is no split"),
        ("1", "2", "1", "1 chunks and 8 tiles"),
        ("1", "0", "4", "1/0 is no"),
    ] {
        let (code, out, err) = contract(num, den, chunks, &[]);
        assert!(code == Some(2) && err.contains(says) && err.contains("accepted") && out.is_empty(), "{err}");
    }
    let (code, out, _) = contract("7", "8", "4", &["--format", "json"]);
    let report = json(&out);
    assert_eq!((code, report["schema"].as_str()), (Some(1), Some("kbt.split.contract/1")));
    assert_eq!(report["integers"]["first_tiles"], 7);
    assert_eq!(report["provenance"]["kind"], "given");
}

#[test]
fn a_sweep_leaves_its_tables_and_is_set_beside_another() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fake(dir, "3");
    let (code, out, err) = run(dir, &["sweep", "fake.yaml", "--out", "a", "--dry-run"]);
    assert_eq!((code, out.lines().count()), (Some(0), 6), "{out}{err}");
    assert!(!dir.join("a").exists() && out.starts_with("0  CHUNKS=4 NUM=2\n"), "{out}");
    let (code, out, err) = run(dir, &["sweep", "fake.yaml", "--out", "a", "--format", "json"]);
    assert_eq!(code, Some(0), "{err}");
    let outcome = json(&out);
    let best = &outcome["points"][usize::try_from(outcome["best"].as_u64().unwrap()).unwrap()];
    assert_eq!(best["setting"]["NUM"], "3");
    let failed = outcome["points"].as_array().unwrap().iter().filter(|p| p["status"]["kind"] == "failed");
    assert_eq!(failed.count(), 3, "{out}");
    for file in ["spec.json", "journal.jsonl", "outcome.json", "table.csv", "t4.json"] {
        assert!(dir.join("a").join(file).is_file(), "{file}");
    }
    assert!(dir.join("a/points/0/cache").exists() || !dir.join("a/points/0/out.safetensors").exists());
    let (code, _, err) = run(dir, &["sweep", "fake.yaml", "--out", "a"]);
    assert!(code == Some(2) && err.contains("--resume"), "{err}");
    let (code, out, err) = run(dir, &["compare", "a", "a/outcome.json", "--format", "json"]);
    assert_eq!((code, json(&out)["schema"].as_str()), (Some(0), Some("kbt.split.compare/1")), "{err}");
    // A kernel whose worst and best have changed places contradicts the first.
    std::fs::write(
        dir.join("run.sh"),
        std::fs::read_to_string(dir.join("run.sh")).unwrap().replace("t=80", "t=130"),
    )
    .unwrap();
    assert_eq!(run(dir, &["sweep", "fake.yaml", "--out", "b", "--exhaustive"]).0, Some(0));
    let (code, out, _) = run(dir, &["compare", "a", "b"]);
    assert!(code == Some(1) && out.contains("1 faster in one and slower in the other"), "{out}");
    // Where nothing could be compared, nothing was found to agree.
    std::fs::write(dir.join("run.sh"), "exit 9\n").unwrap();
    assert_eq!(run(dir, &["sweep", "fake.yaml", "--out", "c"]).0, Some(3));
    let (code, out, err) = run(dir, &["compare", "c", "c"]);
    assert!(code == Some(3) && out.starts_with("0 points compared"), "{out}");
    assert!(err.contains("refused: no point beside the baseline"), "{err}");
}

#[test]
fn an_output_that_cannot_be_read_is_its_settings_own_and_nobody_need_listen() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fake(dir, "3");
    let script = std::fs::read_to_string(dir.join("run.sh")).unwrap();
    let damaged = "[ $NUM = 1 ] && [ -n \"$KBT_OUT\" ] && head -c 70 o.npy.safetensors >$KBT_OUT\nt=100";
    std::fs::write(dir.join("run.sh"), script.replace("t=100", damaged)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.current_dir(dir).args(["split", "sweep", "fake.yaml", "--out", "a", "--format", "json"]);
    let output = command.stdin(Stdio::null()).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "progress that nobody reads is no failure");
    let outcome = json(&String::from_utf8(output.stdout).unwrap());
    let points = outcome["points"].as_array().unwrap();
    let point = points.iter().find(|p| p["setting"] == serde_json::json!({"NUM": "1", "CHUNKS": "4"}));
    let status = &point.unwrap()["status"];
    assert_eq!(status["kind"], "wrong", "{status}");
    assert!(status.to_string().contains("data_offsets"), "{status}");
}

#[test]
fn the_model_reads_a_recorded_trace_and_is_scored_against_the_recorded_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm/bf16");
    let trace = recording.join("trace.kbttrace").display().to_string();
    let asked = ["model", "--trace", &trace, "--chunks", "4", "--tiles", "8", "--format", "json"];
    let (code, out, err) = run(dir.path(), &asked);
    assert_eq!(code, Some(0), "{err}");
    let model = json(&out);
    // Every legal pair of 4 chunks and 8 tiles: first tiles up to 2, 4 and 6.
    assert_eq!(model["curve"].as_array().unwrap().len(), 12);
    assert!(model["times"]["producer_other_cycles"].as_f64().unwrap() > 500.0, "{out}");
    assert!(model.get("score").is_none());
    // A run's step file is an analysis already; the sweep of the same run scores it.
    let step = recording.join("2-trace.json").display().to_string();
    let sweep: Value = json(&std::fs::read_to_string(recording.join("5-handoff.json")).unwrap());
    std::fs::write(dir.path().join("outcome.json"), sweep["outcome"].to_string()).unwrap();
    let asked =
        ["model", "--trace", &step, "--chunks", "2,4,8", "--tiles", "8", "--sweep", ".", "--format", "json"];
    let (code, out, err) = run(dir.path(), &asked);
    assert_eq!(code, Some(0), "{err}");
    let score = &json(&out)["score"];
    assert_eq!(score["points_count"], 15, "{out}");
    // As the ladder scored it on the device, and no better: the model misses what the smallest first parts cost.
    let error = |score: &Value| score["max_error_percent"].as_f64().unwrap();
    let then = error(&sweep["outcome"]["model"]["score"]);
    assert!((error(score) - then).abs() < 1e-6 && then < 10.0, "{score}");
    // That file serves as it is, and another step's does not.
    let of_step = |step: &str| {
        let file = recording.join(step).display().to_string();
        let times = ["model", "--trace", &trace, "--chunks", "2,4,8", "--tiles", "8", "--format", "json"];
        run(dir.path(), &[times.as_slice(), &["--sweep", &file]].concat())
    };
    let (code, out, err) = of_step("5-handoff.json");
    assert_eq!((code, json(&out)["score"]["points_count"].as_u64()), (Some(0), Some(15)), "{err}");
    let (code, _, err) = of_step("2-trace.json");
    assert!(code == Some(2) && err.contains("`kbt.trace/1`; accepted: a sweep's directory"), "{err}");
    let (code, _, err) = run(dir.path(), &["model", "--chunks", "4", "--tiles", "8"]);
    assert!(code == Some(2) && err.contains("--trace"), "{err}");
}

#[test]
fn an_engine_that_is_not_there_and_options_of_another_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), "3");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.current_dir(dir.path()).env("PATH", dir.path());
    command.args(["split", "sweep", "fake.yaml", "--out", "a", "--engine", "slurm"]);
    let output = command.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && err.contains("scontrol: not found"), "{err}");
    let (code, _, err) =
        run(dir.path(), &["sweep", "fake.yaml", "--out", "a", "--engine", "slurm", "--gpus", "0,1"]);
    assert!(code == Some(2) && err.contains("--gpus"), "{err}");
    for (more, says) in [
        (["--gpus", "0,0"], "`0`: accepted: each GPU once"),
        (["--gpus", "0,"], "``: accepted: each GPU once"),
        (["--sbatch", "--gpus=1"], "--sbatch is for the engine slurm"),
        (["--reference", "none.safetensors"], "none.safetensors: No such file"),
        (["--reference", "run.sh"], "run.sh: not recognised as safetensors"),
    ] {
        let args = [&["sweep", "fake.yaml", "--out", "a"][..], &more].concat();
        let (code, _, err) = run(dir.path(), &args);
        assert!(code == Some(2) && err.contains(says), "{more:?}: {err}");
    }
    for budget in ["--budget=nan", "--budget=-1", "--budget=inf"] {
        let (code, _, err) = run(dir.path(), &["sweep", "fake.yaml", "--out", "a", budget]);
        assert!(code == Some(2) && err.contains("accepted: seconds, 0 or more"), "{err}");
    }
    assert!(!dir.path().join("a").exists());
}

/// A safetensors file of one f32 tensor a name.
fn tensors(path: &Path, tensors: &[(&str, [f32; 4])]) {
    let mut set = TensorSet::new();
    for (name, values) in tensors {
        set.insert(Tensor::from_f32(*name, vec![4], Dtype::F32, values).unwrap()).unwrap();
    }
    set.write_safetensors(path).unwrap();
}

#[test]
fn a_setting_that_changes_the_arithmetic_is_judged_by_the_targets_own_reference() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // FORM 1 errs a tenth more than the baseline does in `o`, and in `lse`, where the baseline is right, a little.
    let right = [("o", [1.0, 2.0, 3.0, 4.0]), ("lse", [5.0, 6.0, 7.0, 8.0])];
    tensors(&dir.join("right.st"), &right);
    tensors(&dir.join("0.st"), &[("o", [1.01, 2.0, 3.0, 4.0]), right[1]]);
    tensors(&dir.join("1.st"), &[("o", [1.011, 2.0, 3.0, 4.0]), ("lse", [5.0, 6.0, 7.0, 8.0001])]);
    let script = "[ -z $KBT_OUT ] || cp $FORM.st $KBT_OUT\ntouch $KBT_INPUTS/q\necho kbt-time-us 10$FORM\n";
    std::fs::write(dir.join("run.sh"), script).unwrap();
    let made = "[ -e $KBT_INPUTS/q ] && echo made >>made && cp right.st $KBT_OUT\n";
    std::fs::write(dir.join("reference.sh"), made).unwrap();
    let sweep = |name: &str, lse: &str, reference: &str, more: &[&str]| {
        let text = format!(
            "schema: kbt.target/1\nname: fake\nrun: {{command: [sh, run.sh]}}\nknobs:\n  \
             - {{name: FORM, change: algebra, values: [0, 1], default: 0}}\noutputs: [{{name: o}}, {{name: lse{lse}}}]\n\
             {reference}limits: {{cooldown_s: 0}}\n"
        );
        std::fs::write(dir.join("fake.yaml"), text).unwrap();
        let (_, out, err) =
            run(dir, &[&["sweep", "fake.yaml", "--out", name, "--format", "json"], more].concat());
        let point = json(&out)["points"][1].clone();
        (point["status"]["kind"].as_str().unwrap_or_default().to_owned(), format!("{point}{err}"))
    };
    let own = "reference: {command: [sh, reference.sh]}\n";
    let (status, all) = sweep("strict", ", tolerance: 1.0e-4", own, &[]);
    assert!(status == "wrong" && all.contains("1.02 times is allowed") && !all.contains("`lse`"), "{all}");
    let (status, all) = sweep("factor", ", tolerance: 1.0e-4", own, &["--factor", "1.2"]);
    assert!(
        status == "timed"
            && all.contains("`o`: as accurate as the baseline within a factor of 1.2; `lse`: relative"),
        "{all}"
    );
    let (status, all) = sweep("lse", "", own, &["--factor", "1.2"]);
    assert!(status == "wrong" && all.contains("`lse`") && !all.contains("`o`"), "{all}");
    assert_eq!(std::fs::read_to_string(dir.join("made")).unwrap().lines().count(), 3, "once a sweep");
    // A sweep goes on as it was begun, or not at all.
    for said in [&["--factor", "1.2", "--resume"][..], &["--resume"]] {
        let (status, all) = sweep("factor", ", tolerance: 1.0e-4", own, said);
        assert!(status == "timed", "{all}");
    }
    for (factor, more) in [("1.5", vec![]), ("1.2", vec!["--reference", "right.st"])] {
        let asked = ["sweep", "fake.yaml", "--out", "factor", "--resume", "--factor", factor];
        let (code, out, err) = run(dir, &[&asked[..], &more].concat());
        let named = if more.is_empty() {
            ["--factor 1.2,", "--factor 1.5 "]
        } else {
            ["no --reference,", "right.st"]
        };
        assert!(code == Some(2) && out.is_empty() && named.iter().all(|n| err.contains(n)), "{err}");
        let one = ["run-one", "factor/spec.json", "--index", "1", "--factor", factor];
        assert_eq!(run(dir, &[&one[..], &more].concat()).0, Some(2));
    }
    // Finished, it needs nothing more; with a point left it needs what the baseline left.
    let resume = ["sweep", "fake.yaml", "--out", "factor", "--resume", "--factor", "1.2"];
    let (kept, journal) = (dir.join("factor/inputs/0"), dir.join("factor/journal.jsonl"));
    let lines = std::fs::read_to_string(&journal).unwrap();
    for file in [dir.join("factor/reference.safetensors"), kept] {
        std::fs::rename(&file, dir.join("away")).unwrap();
        assert_eq!(run(dir, &resume).0, Some(0), "{}", file.display());
        let unfinished = lines.lines().take(2).map(|l| format!("{l}\n")).collect::<String>();
        std::fs::write(&journal, unfinished).unwrap();
        let (code, _, err) = run(dir, &resume);
        assert!(
            code == Some(2) && err.contains("is gone, and the sweep's baseline has run with it"),
            "{err}"
        );
        std::fs::rename(dir.join("away"), &file).unwrap();
        std::fs::write(&journal, &lines).unwrap();
    }
    let (_, all) = sweep("none", "", "", &[]);
    assert!(all.contains("--reference FILE"), "{all}");
    let (_, all) = sweep("broken", "", "reference: {command: [sh, -c, 'echo no >&2; exit 7']}\n", &[]);
    assert!(all.contains("reference program: exit code 7: no"), "{all}");
    let (code, _, err) = run(dir, &["sweep", "fake.yaml", "--out", "a", "--factor", "0.9"]);
    assert!(code == Some(2) && err.contains("accepted: a number of 1 or more"), "{err}");
}

#[test]
fn an_output_that_nobody_wrote_is_named_and_a_time_that_cannot_be_is_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tensors(&dir.join("0.st"), &[("o", [1.0, 2.0, 3.0, 4.0]), ("lse", [5.0, 6.0, 7.0, 8.0])]);
    tensors(&dir.join("1.st"), &[("o", [1.0, 2.0, 3.0, 4.0])]);
    let script = "[ -z $KBT_OUT ] || cp $(($N % 2)).st $KBT_OUT\n[ $N = 2 ] && echo kbt-time-us nan\necho kbt-time-us 10\n";
    std::fs::write(dir.join("run.sh"), script).unwrap();
    let sweep = |name: &str, default: u32| {
        let text = format!(
            "schema: kbt.target/1\nname: fake\nrun: {{command: [sh, run.sh]}}\nknobs:\n  - {{name: N, values: [0, 1, 2], \
             default: {default}}}\noutputs: [{{name: o}}, {{name: lse}}]\nlimits: {{cooldown_s: 0}}\n"
        );
        std::fs::write(dir.join("fake.yaml"), text).unwrap();
        let (code, out, err) = run(dir, &["sweep", "fake.yaml", "--out", name, "--format", "json"]);
        (code, json(&out), err)
    };
    let (code, outcome, err) = sweep("a", 0);
    assert_eq!(code, Some(0), "{err}");
    let status = |n: &str| {
        let points = outcome["points"].as_array().unwrap();
        points.iter().find(|p| p["setting"]["N"] == n).unwrap()["status"].clone()
    };
    assert_eq!((status("0")["kind"].as_str(), status("1")["kind"].as_str()), (Some("timed"), Some("wrong")));
    assert!(status("1").to_string().contains("lists `lse`"), "{outcome}");
    assert_eq!(status("2")["kind"], "failed");
    assert!(status("2").to_string().contains("printed `kbt-time-us nan`, which is no time"), "{outcome}");
    // Where the baseline lacks it too, nothing could be seen to differ.
    let (code, outcome, err) = sweep("b", 1);
    assert_eq!(code, Some(3), "{err}");
    assert!(outcome["refused"].as_str().unwrap().contains("lists `lse`"), "{outcome}");
}
