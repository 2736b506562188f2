//! Help comes without a build.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::process::Command;

#[test]
fn the_help_of_commands_of_other_programs_is_printed_without_cargo() {
    let all: [(&[&str], &str); 6] = [
        (&["compare", "--help"], "--format"),
        (&["export", "-h"], "--out"),
        (&["tune", "--help"], "--pv-mode <MODE>"),
        (&["tune", "--pv-mode", "fp4", "-h"], "--resume"),
        (&["record", "--help"], "import"),
        (&["record", "import", "--help"], "--into"),
    ];
    for (words, said) in all {
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
        let example = words == ["record", "--help"] || text.contains(&format!("  cargo xtask {}", words[0]));
        assert!(example || text.contains(&format!("Example: cargo xtask {}", words[0])), "{text}");
        assert!(!text.contains(&format!("kbt {}", words[0])), "{text}");
    }
}
