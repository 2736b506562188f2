//! The attention kernel's machine code, as it is embedded: no spills, no local memory, no serialised WGMMA.
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
        linted += 1;
    }
    assert!(linted >= 7, "{linted} kernels");
}
