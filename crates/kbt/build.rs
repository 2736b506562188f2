//! Tells the program which commit it was built from, so that a run can say what measured it.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = Path::new("../../.git");
    for name in ["HEAD", "index"] {
        if git.join(name).exists() {
            println!("cargo::rerun-if-changed={}", git.join(name).display());
        }
    }
    let commit = output(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown commit".to_owned());
    let dirty = output(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    println!("cargo::rustc-env=KBT_COMMIT={commit}{}", if dirty { "+changes" } else { "" });
}

fn output(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
