//! Input that a check must not pass over: half a listing, and sizes that nobody can have meant.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::path::Path;
use std::process::Command;

fn kbt(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_kbt")).current_dir(dir).args(args).output().unwrap();
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn no_check_passes_on_half_a_listing() {
    let dir = tempfile::tempdir().unwrap();
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sass/listings/roles.sm_90a.sass");
    let text = std::fs::read(whole).unwrap();
    std::fs::write(dir.path().join("half.sass"), &text[..5000]).unwrap();
    for args in [
        &["sass", "lint", "half.sass"][..],
        &["sass", "gate", "half.sass", "--baseline", "b.json", "--write"],
    ] {
        let (code, err) = kbt(dir.path(), args);
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains("half.sass") && err.contains("truncated"), "{err}");
    }
    assert!(!dir.path().join("b.json").exists(), "no baseline of half a kernel");
    assert_ne!(kbt(dir.path(), &["sass", "lint", whole]).0, Some(2), "the whole listing is read");
}

#[test]
fn a_probe_that_no_memory_holds_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let size = ["--keys", "100000000", "--dim", "100000", "--heads", "1000"];
    let (code, err) =
        kbt(dir.path(), &[&["validate", "probe", "v-one", "--out", "p.st"][..], &size].concat());
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("2^28 elements"), "{err}");
}

#[test]
fn a_reader_of_standard_error_that_is_gone_changes_no_exit_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_kbt"))
        .args(["sass", "metrics", "no-such-listing.sass"])
        .stderr(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
}
