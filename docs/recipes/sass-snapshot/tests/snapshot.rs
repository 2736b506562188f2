//! One snapshot a kernel, target and compiler version.
//!
//! A compiler may schedule as it likes, so each version of ptxas has its own snapshots. A version that has none
//! fails, and the failure names the command that takes it in, for review in the diff.

use kbt_device::Arch;
use sass_snapshot::{Kernel, build, summary, toolchain};
use std::path::Path;

/// The quantisation step alone compiles for every target; the attention kernel is Hopper's.
const QUANT_LINEAR: Kernel<'static> =
    Kernel { source: "quant_step/quant_step.cu", defines: &[("KBT_QUANT_FORM", "0")] };
const QUANT_LOG2: Kernel<'static> =
    Kernel { source: "quant_step/quant_step.cu", defines: &[("KBT_QUANT_FORM", "2")] };
const ATTENTION_BF16: Kernel<'static> =
    Kernel { source: "attention/attention.cu", defines: &[("KBT_PV_MODE", "0")] };
const ATTENTION_FP4: Kernel<'static> =
    Kernel { source: "attention/attention.cu", defines: &[("KBT_PV_MODE", "2"), ("KBT_QUANT_FORM", "2")] };

fn check(name: &str, kernel: Kernel<'_>, arch: Arch) {
    let tools = match toolchain() {
        Ok(tools) => tools,
        // Named and not there is a broken setup; not named at all is a machine with no compiler.
        Err(error) if std::env::var_os("KBT_CUDA").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIPPED {name} for {arch}: {error}");
            return;
        }
    };
    let built = build(&tools, kernel, arch).unwrap_or_else(|e| panic!("{name} for {arch}: {e}"));
    let suffix = format!("{arch}-ptxas-{}", built.ptxas);
    let file = format!("snapshots/snapshot__{name}@{suffix}.snap");
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(&file).exists();
    assert!(
        known || std::env::var("INSTA_UPDATE").is_ok_and(|v| v == "always"),
        "ptxas {} has no snapshot of {name} for {arch} (tests/{file}); compare it with another version's after\n    \
         INSTA_UPDATE=always cargo test",
        built.ptxas
    );
    insta::with_settings!({ snapshot_suffix => suffix, omit_expression => true }, {
        insta::assert_yaml_snapshot!(name, summary(&built.listing));
    });
}

#[test]
fn quant_linear() {
    for arch in [Arch::SM_90A, Arch::SM_100A, Arch::SM_103A] {
        check("quant_linear", QUANT_LINEAR, arch);
    }
}

#[test]
fn quant_log2() {
    for arch in [Arch::SM_90A, Arch::SM_100A, Arch::SM_103A] {
        check("quant_log2", QUANT_LOG2, arch);
    }
}

#[test]
fn attention() {
    check("attention_bf16", ATTENTION_BF16, Arch::SM_90A);
    check("attention_fp4", ATTENTION_FP4, Arch::SM_90A);
}
