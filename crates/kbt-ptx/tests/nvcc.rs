//! The reader on what nvcc writes for our own kernels.

use std::path::Path;
use std::process::Command;

#[test]
fn ptx_of_nvcc_is_read_without_a_problem_and_every_instruction_is_found() {
    let Some(cuda) = std::env::var_os("KBT_CUDA") else {
        eprintln!("SKIPPED: KBT_CUDA is not set, so no PTX of nvcc was read");
        return;
    };
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sass/kernels");
    let dir = tempfile::tempdir().unwrap();
    for (kernel, flags) in [
        ("forms", &["-arch=sm_75", "-lineinfo"][..]),
        ("forms", &["-arch=sm_103a", "-G"]),
        ("roles", &["-arch=sm_90a"]),
    ] {
        let out = dir.path().join("kernel.ptx");
        let nvcc = Path::new(&cuda).join("bin/nvcc");
        let source = kernels.join(format!("{kernel}.cu"));
        let status = Command::new(nvcc).args(flags).arg("-ptx").arg("-o").arg(&out).arg(source).status();
        assert!(status.unwrap().success());
        let text = std::fs::read_to_string(&out).unwrap();
        let module = kbt_ptx::parse(&text).unwrap();
        assert_eq!(module.problems, [], "{kernel} {flags:?}");
        let entries = text.lines().filter(|l| l.contains(".entry ")).count();
        assert_eq!(module.entries().count(), entries, "{kernel} {flags:?}");
        // A line that ends in a semicolon and begins with no directive ends an instruction; inline assembly has
        // more than one on a line, and a prototype's semicolon stands alone.
        let ends = |l: &&str| l.ends_with(';') && *l != ";" && !l.starts_with(['.', '/']);
        let lines = text.lines().map(str::trim).filter(ends).count();
        let found = module.functions.iter().flat_map(kbt_ptx::Function::instructions).count();
        assert!((lines..lines + 10).contains(&found), "{kernel} {flags:?}: {found} of {lines}");
    }
}
