//! The attention kernel's machine code, as it is embedded: no spills, no local memory, no serialised WGMMA. And the
//! variables that it is set by.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use serde_json::Value;
use std::process::Command;

#[test]
fn no_embedded_attention_kernel_that_is_not_traced_has_a_finding() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: not run");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut linted = 0;
    for kernel in kbt_kernels::cache::embedded().iter().filter(|k| k.source.starts_with("attention/")) {
        let knob = |name: &str| kernel.defines.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        assert_eq!(knob("KBT_ROLLED"), Some("0"), "{}: the rolled variant is never embedded", kernel.name);
        // A trace spills a few bytes, which docs/limitations.md says.
        if knob("KBT_TRACE_LEVEL") != Some("0") {
            continue;
        }
        let file = folder.path().join(format!("{}.cubin", kernel.name));
        std::fs::write(&file, kernel.cubin).unwrap();
        let ran = Command::new(env!("CARGO_BIN_EXE_kbt"))
            .args(["sass", "lint", "--format", "json"])
            .arg(&file)
            .output()
            .unwrap();
        let out = String::from_utf8(ran.stdout).unwrap();
        let found: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
        assert_eq!(found["findings"], serde_json::json!([]), "{}", kernel.name);
        assert!(
            kernel.log.contains("0 bytes spill stores, 0 bytes spill loads"),
            "{}: {}",
            kernel.name,
            kernel.log
        );
        // What the machine code does not show: the compiler's own remark that it serialised wgmma.
        assert!(!kernel.log.contains("C75"), "{}: {}", kernel.name, kernel.log);
        linted += 1;
    }
    assert!(linted >= 7, "{linted} kernels");
}

#[test]
fn a_variable_that_is_nearly_a_knob_is_refused_and_a_foreign_one_is_not() {
    let run = |name: &str| {
        let out = tempfile::tempdir().unwrap();
        let ran = Command::new(env!("CARGO_BIN_EXE_kbt"))
            .args(["kernel", "compile", "attention", "-o"])
            .arg(out.path().join("attention.cubin"))
            .env(name, "registers")
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    for (wrong, meant) in
        [("KBT_TOPOLOGI", "KBT_TOPOLOGY"), ("KBT_SPLIT_NUMBER", "KBT_SPLIT_NUM"), ("KBT_OUTS", "KBT_OUT")]
    {
        let said = format!("kbt: the variable {wrong} is not known; the nearest is {meant}\n");
        assert_eq!(run(wrong), (Some(2), said));
    }
    let (code, said) = run("KBT_HELLO_WORLD");
    assert!(code != Some(2) && !said.contains("KBT_HELLO_WORLD"), "{code:?} {said}");
}

#[test]
fn the_embedded_kernels_are_listed_as_lines_and_as_json() {
    let list = |format: &str| {
        let ran =
            Command::new(env!("CARGO_BIN_EXE_kbt")).args(["kernel", "list", "--format", format]).output();
        String::from_utf8(ran.unwrap().stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&list("json")).unwrap();
    let embedded = kbt_kernels::cache::embedded();
    assert_eq!(json.as_array().unwrap().len(), embedded.len());
    let text = list("text");
    for (kernel, one) in embedded.iter().zip(json.as_array().unwrap()) {
        assert_eq!((&one["digest"], &one["name"]), (&Value::from(kernel.digest), &Value::from(kernel.name)));
        assert!(text.contains(&format!("{}  {}  {}  ", kernel.digest, kernel.name, kernel.arch)), "{text}");
    }
}
