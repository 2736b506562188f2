//! Help comes without a build.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::process::Command;

#[test]
fn the_help_of_commands_that_need_polars_is_printed_without_cargo() {
    for (words, said) in [(["compare", "--help"], "--format"), (["export", "-h"], "--out")] {
        let nowhere = tempfile::tempdir().unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(words)
            .env("PATH", nowhere.path())
            .env("CARGO", nowhere.path().join("cargo"))
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        let usage = format!("Usage: cargo xtask {}", words[0]);
        assert!(text.contains(&usage) && text.contains(said), "{text}");
        assert!(text.contains(&format!("Example: cargo xtask {}", words[0])), "{text}");
    }
}
