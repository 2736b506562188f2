//! `kbt/trace.cuh` compiled as host C++, with the device's intrinsics stood in for: which CTAs record, where their rings
//! lie, what is copied out. The PTX of a record does not run there; `device.rs` reads it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test, which says aloud what it could not test"
)]

use std::path::Path;
use std::process::Command;

#[test]
fn the_tracer_keeps_to_its_rings() {
    if Command::new("g++").arg("--version").output().is_err() {
        eprintln!("there is no g++: the header of the device tracer is NOT tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("host.cpp"), folder.path().join("host"));
    std::fs::write(&source, include_str!("header/host.cpp")).unwrap();
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-w", "-ftrivial-auto-var-init=zero", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include"))
        .arg("-o")
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
