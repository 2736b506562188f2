//! `kbt target`, `kbt tune --target` and `kbt record import` as scripts meet them, with no GPU.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run(dir: &Path, cuda: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.current_dir(dir).env("KBT_CUDA", cuda).env("KBT_SECRET", "hunter2").args(args);
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Without CUDA tools.
fn kbt(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    run(dir, &dir.join("none"), args)
}

fn step(dir: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(dir.join("r/steps").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A kernel with an exponential in a loop; `TARGET` is its architecture.
const PTX: &str = ".version 8.8\n.target TARGET\n.address_size 64\n\
    .visible .entry decay(.param .u64 p, .param .u32 n)\n.maxntid 256, 1, 1\n{\n.reg .pred %p<2>;\n.reg .f32 %f<9>;\n\
    .reg .b32 %r<4>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [p];\nld.param.u32 %r1, [n];\nmov.u32 %r2, 0;\n\
    LOOP:\nld.global.f32 %f1, [%rd1];\nneg.f32 %f2, %f1;\nex2.approx.ftz.f32 %f3, %f2;\nfma.rn.f32 %f4, %f3, %f1, %f1;\n\
    st.global.f32 [%rd1], %f4;\nadd.u64 %rd1, %rd1, 4096;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, %r1;\n\
    @%p1 bra LOOP;\nret;\n}\n";

const YAML: &str = "schema: kbt.target/1\nname: decay\nfacts:\n  operator: elementwise\n  shapes: {elements: 1048576}\n  \
    dtypes: {x: f32, y: f32}\n  reuse: none\n\
    build: {command: [sh, -c, 'sed s/TARGET/$KBT_ARCH/ decay.ptx > $KBT_DUMP/decay.ptx']}\n\
    run: {command: [sh, -c, 'echo no GPU here >&2; exit 3']}\nknobs:\n  - {name: N, values: [1, 2], default: 1}\n";

fn folder(yaml: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("decay.ptx"), PTX).unwrap();
    std::fs::write(dir.path().join("decay.yaml"), yaml).unwrap();
    dir
}

#[test]
fn a_new_file_is_valid_has_its_knobs_uncommented_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = kbt(dir.path(), &["target", "new", "mine.yaml"]);
    assert_eq!(code, Some(0), "{err}");
    let text = std::fs::read_to_string(dir.path().join("mine.yaml")).unwrap();
    assert!(text.lines().any(|l| l == "knobs:"));
    for (file, at) in [("other.yaml", "/file"), ("-", "/text")] {
        let (code, out, err) = kbt(dir.path(), &["target", "new", file, "--format", "json"]);
        assert_eq!(code, Some(0), "{err}");
        let told: Value = serde_json::from_str(&out).unwrap();
        let expect = if file == "-" { text.as_str() } else { file };
        assert_eq!((told.pointer(at), &told["schema"]), (Some(&expect.into()), &"kbt.target.new/1".into()));
    }
    // Valid, though its program is not there.
    let (code, out, err) = kbt(dir.path(), &["target", "check", "mine.yaml"]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("FAILED   run"), "{out}");
    let (code, _, err) = kbt(dir.path(), &["target", "new", "mine.yaml"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("mine.yaml"), "{err}");
}

#[test]
fn a_misspelt_key_is_exit_2_with_its_line_and_the_nearest_one() {
    let dir = folder(&YAML.replace("knobs:", "knbos:"));
    for args in [vec!["target", "check", "decay.yaml"], vec!["tune", "--target", "decay.yaml"]] {
        let (code, _, err) = kbt(dir.path(), &args);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("decay.yaml:10: unknown field `knbos`") && err.contains("`knobs`"), "{err}");
    }
    let (code, _, err) = kbt(dir.path(), &["tune"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("--target"), "{err}");
}

#[test]
fn facts_that_no_step_reads_are_exit_2_before_anything_runs() {
    for (from, to, says) in [
        ("elements: 1048576", "elemnts: 1048576", "decay.yaml:5: facts.shapes: unknown field `elemnts`"),
        (
            "elements: 1048576",
            "elements: 0",
            "decay.yaml:5: `facts.shapes.elements` is 0; 1 or more is needed",
        ),
        (
            "operator: elementwise",
            "operator: stencil",
            "decay.yaml:4: facts.operator: unknown variant `stencil`",
        ),
        ("y: f32", "y: f33", "decay.yaml:6: `y`: unknown variant `f33`"),
        ("operator: elementwise", "sheet: none.yaml", "decay.yaml:4: the fact sheet none.yaml: "),
    ] {
        let text = YAML.replace(from, to).replace("'sed", "'touch built; sed");
        assert!(text.contains(to) && text.contains("touch built"));
        let dir = folder(&text);
        let device = ["--device", "model:sm_100a"];
        for args in [["target", "check", "decay.yaml"], ["tune", "--target", "decay.yaml"]] {
            let (code, out, err) = kbt(dir.path(), &[&args[..], &device[..]].concat());
            assert_eq!(code, Some(2), "{to}: {out}{err}");
            assert!(err.contains(says), "{to}: {err}");
            assert!(!dir.path().join("built").exists(), "{to}: the build ran");
        }
    }
}

#[test]
fn a_check_where_the_command_refuses_is_exit_3_and_tells_the_build_its_target() {
    let dir = folder(YAML);
    let args = ["target", "check", "decay.yaml", "--device", "model:sm_120a", "--format", "json"];
    let (code, out, err) = kbt(dir.path(), &args);
    assert_eq!(code, Some(3), "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let ready = |step: &str| {
        report["steps"].as_array().unwrap().iter().any(|s| s["step"] == step && s["ready"] == true)
    };
    // Without the CUDA tools nothing reads PTX: a run would refuse it too.
    assert!(!ready("algebra") && !ready("rates") && !ready("triage"), "{report:#}");
    assert!(report.to_string().contains("no CUDA tools"), "{report:#}");
}

#[test]
fn without_gpu_and_tools_the_ladder_ends_with_a_report_and_says_what_would_give_the_rest() {
    let dir = folder(YAML);
    for device in ["model:sm_100a", "model:sm_103a", "model:sm_120a", "recorded:h200-sxm"] {
        let args = ["tune", "--target", "decay.yaml", "--device", device, "--out", "r", "--force"];
        let (code, out, err) = kbt(dir.path(), &args);
        assert_eq!(code, Some(0), "{device}: {err}");
        assert!(out.contains("initial call memory-bound"), "{device}: {out}");
        assert!(out.contains("needs: a run on the real device: `cargo xtask dist`"), "{device}: {out}");
        for (name, says) in [
            ("1-rates.json", "no CUDA tools"),
            ("2-trace.json", "gives no trace"),
            ("5-handoff.json", "sweep"),
            ("6-validate.json", "saves no outputs"),
        ] {
            let headline = step(dir.path(), name)["headline"].to_string();
            assert!(headline.contains(says), "{device} {name}: {headline}");
        }
        assert!(dir.path().join("r/report.html").exists());
    }
}

#[test]
fn machine_code_is_studied_for_every_model_device_where_there_are_tools() {
    let Some(cuda) = std::env::var_os("KBT_CUDA").map(PathBuf::from).filter(|p| p.is_dir()) else {
        eprintln!("KBT_CUDA is not set: the study of machine code did not run; `cargo xtask test` sets it");
        return;
    };
    let dir = folder(YAML);
    for arch in ["sm_90a", "sm_100a", "sm_103a", "sm_120a"] {
        let device = format!("model:{arch}");
        let args = ["tune", "--target", "decay.yaml", "--device", &device, "--out", "r", "--force"];
        let (code, _, err) = run(dir.path(), &cuda, &args);
        assert_eq!(code, Some(0), "{arch}: {err}");
        let rates = step(dir.path(), "1-rates.json");
        assert_eq!(rates["outcome"]["kernel"], "decay", "{arch}: {rates:#}");
        // With its rate, or named as one that the profile lacks.
        let opcodes = rates["outcome"].to_string();
        assert!(opcodes.contains("MUFU.EX2"), "{arch}: {opcodes}");
        let variants = step(dir.path(), "3-schedule.json")["outcome"]["variants"].clone();
        assert_eq!(variants.as_array().unwrap().len(), 2, "{arch}: as built and at -O1");
        // A profile without the rates that rewrites are priced by refuses, and names them.
        let algebra = step(dir.path(), "4-algebra.json");
        let lifted = &algebra["outcome"]["lift"]["functions"][0]["name"];
        let refused = algebra["headline"].to_string().contains("has no rate for");
        assert!(lifted == "decay" || (refused && arch == "sm_120a"), "{arch}: {algebra:#}");
        let split = step(dir.path(), "5-handoff.json");
        assert_eq!(split["origin"], "refused", "{arch}: {split:#}");
        assert!(dir.path().join("r/code/metrics.txt").exists());
    }
}

#[test]
fn what_is_no_measured_run_is_no_recording() {
    let dir = folder(YAML);
    let (code, _, err) = kbt(dir.path(), &["record", "import", "."]);
    assert_eq!(code, Some(2));
    assert!(err.contains("no run directory"), "{err}");
    let args = ["tune", "--target", "decay.yaml", "--device", "model:sm_100a", "--out", "r"];
    assert_eq!(kbt(dir.path(), &args).0, Some(0));
    for path in ["r", "."] {
        let (code, _, err) = kbt(dir.path(), &["record", "import", path]);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("only a live run is a recording"), "{err}");
    }
    assert!(!dir.path().join("recordings").exists());
}

#[test]
fn a_target_file_is_read_from_standard_input_where_it_is_named_so() {
    let dir = folder(YAML);
    let piped = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
        let text = std::fs::File::open(dir.path().join("decay.yaml")).unwrap();
        command.current_dir(dir.path()).env("KBT_CUDA", dir.path().join("none")).args(args);
        let Output { status, stdout, .. } = command.stdin(text).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap())
    };
    let (code, out) = piped(&["target", "check", "-", "--device", "model:sm_120a", "--format", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report["target"].as_str()), (Some(3), Some("decay")), "{out}");
    assert_eq!(report["schema"], "kbt.target.check/1");
    let (code, out) = piped(&["tune", "--target", "-", "--device", "model:sm_120a", "--out", "r"]);
    assert_eq!(code, Some(0), "{out}");
}

#[test]
fn of_several_kernels_the_one_that_is_studied_is_named_with_the_others() {
    let kernel = |name: &str, n: usize| {
        let adds = (0..n).map(|i| format!("/*{:04x}*/ FADD R0, R0, R0 ;\n", i * 16)).collect::<String>();
        format!("\t.section\t.text.{name},\"ax\",@progbits\n{adds}/*{:04x}*/ EXIT ;\n", n * 16)
    };
    let headline = |rest: &str, why: &str| {
        let dir = folder(&format!(
            "schema: kbt.target/1\nname: k\nbuild: {{command: [cp, in, k.sass], artifacts: {{sass: [k.sass]}}}}\nrun: {{command: [a]}}\n{rest}"
        ));
        let listing = format!("\t.target\tsm_90a\n{}{}", kernel("scale", 2), kernel("reduce", 9));
        std::fs::write(dir.path().join("in"), listing).unwrap();
        let args = ["tune", "--target", "decay.yaml", "--device", "recorded:h200-sxm", "--out", "r"];
        let (code, _, err) = kbt(dir.path(), &args);
        // Refused as a whole where no kernel is the one that is named: there are no facts either.
        assert_eq!(code, Some(if rest.contains("scael") { 3 } else { 0 }), "{err}");
        let args = ["target", "check", "decay.yaml", "--device", "recorded:h200-sxm"];
        let (_, out, _) = kbt(dir.path(), &args);
        assert!(out.contains(why), "{out}");
        step(dir.path(), "1-rates.json")["headline"].as_str().unwrap().to_owned()
    };
    let told =
        headline("", "kernel        reduce is studied, of 2 kernels the one with the most instructions");
    assert!(
        told.contains("reduce is studied, of 2 kernels the one with the most instructions: reduce, scale"),
        "{told}"
    );
    let told = headline("kernel: scale\n", "kernel        scale is studied, which `kernel: scale` names");
    assert!(!told.contains("is studied"), "{told}");
    let why = "FAILED   kernel        no machine code of a kernel like `scael` could be read; the kernels there are reduce, scale";
    assert!(headline("kernel: scael\n", why).contains("no machine code of a kernel like `scael`"));
}

#[test]
fn a_check_reads_machine_code_outputs_and_traces_as_a_run_would() {
    let listing = "\t.target\tsm_100a\n\t.section\t.text.k,\"ax\",@progbits\n/*0000*/ EXIT ;\n";
    let check = |rest: &str, device: &str| {
        let dir = folder(&format!(
            "schema: kbt.target/1\nname: k\nknobs: [{{name: N, values: [1, 2], default: 1}}]\noutputs: [{{name: y}}]\n{rest}"
        ));
        std::fs::write(dir.path().join("in"), listing).unwrap();
        // One byte, `x`, as safetensors.
        let header = r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), b"0"].concat();
        std::fs::write(dir.path().join("other"), bytes).unwrap();
        let (code, out, err) = kbt(dir.path(), &["target", "check", "decay.yaml", "--device", device]);
        assert_eq!(code, Some(1), "{out}{err}");
        out
    };
    let run = |script: &str| {
        format!(
            "build: {{command: [cp, in, k.sass], artifacts: {{sass: [k.sass]}}}}\ntrace: {{format: kbt, levels: {{coarse: {{}}}}}}\n\
             run: {{command: [sh, -c, 'echo kbt-time-us 5; {script}']}}"
        )
    };
    let out = check(
        &run("echo junk > ${KBT_TRACE_OUT:-/dev/null}; cp other ${KBT_OUT:-/dev/null}"),
        "recorded:h200-sxm",
    );
    assert!(out.contains("it is sm_100a code, and the device is sm_90a"), "{out}");
    for step in ["rates", "schedule", "trace", "validate"] {
        assert!(out.contains(&format!("refused  {step}")), "{step}: {out}");
    }
    assert!(out.contains("`outputs:` lists `y`, but the file that was written holds `x`"), "{out}");
    let trace = out.lines().find(|l| l.contains("trace coarse")).unwrap();
    assert!(trace.contains("FAILED"), "{out}");
    let out = check(
        &run("echo junk > ${KBT_OUT:-/dev/null}; echo junk > ${KBT_TRACE_OUT:-/dev/null}"),
        "model:sm_100a",
    );
    assert!(out.contains("ready    rates") && out.contains("FAILED   outputs"), "{out}");
    // A run here says nothing of what a profile alone can do.
    assert!(out.contains("refused  handoff   needs a live device, and profile sm_100a"), "{out}");
}

#[test]
fn machine_code_that_was_cut_is_said_to_be() {
    let Some(cuda) = std::env::var_os("KBT_CUDA").map(PathBuf::from).filter(|p| p.is_dir()) else {
        eprintln!("KBT_CUDA is not set: cut machine code was not tried; `cargo xtask test` sets it");
        return;
    };
    let whole = "sed s/TARGET/$KBT_ARCH/ decay.ptx > $KBT_DUMP/decay.ptx";
    for (cut, says) in [
        ("head -c 420 $KBT_DUMP/decay.ptx > cut; mv cut $KBT_DUMP/decay.ptx", "decay.ptx, ptxas "),
        // Code that reads is no excuse for PTX that does not.
        (
            "head -c 420 $KBT_DUMP/decay.ptx > cut; mv cut $KBT_DUMP/decay.ptx; cp in $KBT_DUMP/decay.sass",
            "decay.ptx, it is not whole: line ",
        ),
        ("printf \"\\177ELFxx\" > $KBT_DUMP/decay.cubin", "decay.cubin, "),
    ] {
        let dir = folder(&YAML.replace(whole, &format!("{whole}; {cut}")));
        let listing = "\t.target\tsm_103a\n\t.section\t.text.decay,\"ax\",@progbits\n/*0000*/ EXIT ;\n";
        std::fs::write(dir.path().join("in"), listing).unwrap();
        let (code, out, err) =
            run(dir.path(), &cuda, &["target", "check", "decay.yaml", "--device", "model:sm_103a"]);
        assert_eq!(code, Some(1), "{out}{err}");
        let failed = out.lines().find(|l| l.contains("FAILED   machine code")).unwrap_or_default();
        assert!(out.contains(says) && !failed.is_empty(), "{out}");
        // Only a cubin that is broken beside PTX that is whole leaves something to lift.
        let lifts = cut.contains("cubin");
        assert_eq!(out.contains("ready    algebra"), lifts, "{out}");
    }
}

#[test]
fn a_rolled_loop_of_arithmetic_leaves_no_memory_bound_call() {
    let loop_of = |inner: &str| {
        format!(
            "\t.target\tsm_103a\n\t.section\t.text.k,\"ax\",@progbits\n/*0000*/ LDG.E R0, [R2] ;\n{inner}\
             /*0030*/ STG.E [R4], R0 ;\n/*0040*/ EXIT ;\n"
        )
    };
    let rolled = "/*0010*/ FFMA R0, R0, R0, 0.5 ;\n/*0020*/ @P0 BRA 0x10 ;\n";
    let straight = "/*0010*/ FFMA R0, R0, R0, 0.5 ;\n/*0020*/ FFMA R0, R0, R0, 0.5 ;\n";
    for (inner, says) in [(rolled, "no initial call"), (straight, "initial call memory-bound")] {
        let dir = folder(&YAML.replace(
            "[sh, -c, 'sed s/TARGET/$KBT_ARCH/ decay.ptx > $KBT_DUMP/decay.ptx']",
            "[cp, in, k.sass], artifacts: {sass: [k.sass]}",
        ));
        std::fs::write(dir.path().join("in"), loop_of(inner)).unwrap();
        let args = ["tune", "--target", "decay.yaml", "--device", "model:sm_103a", "--out", "r"];
        let (code, out, err) = kbt(dir.path(), &args);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.lines().next().unwrap().contains(&format!("live      {says}")), "{out}");
    }
}
