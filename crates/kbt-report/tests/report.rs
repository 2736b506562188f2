//! A made-up run directory through the whole crate.

mod support;

use std::path::PathBuf;

/// Kept in the build folder, so that the page can be looked at.
fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kbt-report").join(name)
}

#[test]
fn a_full_run_gives_both_files() {
    let dir = folder("20261130T130509Z-fp4");
    support::full(&dir);
    let written = kbt_report::write(&dir).unwrap();
    let html = std::fs::read_to_string(&written.html).unwrap();
    assert!(html.len() < 2_000_000, "{}", html.len());
    println!("{}", written.html.display());
}
