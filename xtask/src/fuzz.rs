//! The fuzz targets of every crate that has some (`crates/*/fuzz`), for a few seconds each.
//!
//! cargo-fuzz lays these packages out and gives the flags; nothing of it is needed to run one. A longer run:
//! `KBT_FUZZ_SECONDS=600 cargo xtask ci --only fuzz`.

use crate::process::{cargo, root, status};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What libFuzzer needs of the compiler: counters at every edge, and a hook at every comparison.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Seconds a target, where `KBT_FUZZ_SECONDS` does not say.
const SECONDS: u32 = 5;
/// Seconds that one input may take.
const TIMEOUT: &str = "-timeout=10";

pub(crate) fn fuzz() -> Result<()> {
    let seconds = match std::env::var("KBT_FUZZ_SECONDS") {
        Ok(text) => {
            text.parse().with_context(|| format!("KBT_FUZZ_SECONDS=`{text}` is no number of seconds"))?
        }
        Err(_) => SECONDS,
    };
    let (host, built) = (host()?, root().join("target/fuzz"));
    let packages = packages()?;
    ensure!(!packages.is_empty(), "no crates/*/fuzz with a Cargo.toml");
    let mut failed = Vec::new();
    for package in packages {
        let status = status(
            cargo(["build", "--quiet", "--release", "--target", &host, "--manifest-path"])
                .arg(package.join("Cargo.toml"))
                .env("RUSTFLAGS", RUSTFLAGS)
                // Part of the stable compiler, but for the flag that turns the hooks on.
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_DIR", &built),
        )?;
        ensure!(status.success(), "{} does not build", package.display());
        let owner = package.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        for target in targets(&package)? {
            let program = built.join(&host).join("release").join(&target);
            if !run(&program, &package, &format!("{owner}-{target}"), &target, seconds)? {
                failed.push(format!("{owner} {target}"));
            }
        }
    }
    if !failed.is_empty() {
        bail!("findings in {}; the inputs are in {}", failed.join(", "), built.join("artifacts").display());
    }
    Ok(())
}

/// Runs one target; false where it found something.
fn run(program: &Path, package: &Path, label: &str, target: &str, seconds: u32) -> Result<bool> {
    let folder = |name: &str| -> Result<PathBuf> {
        let folder = root().join("target/fuzz").join(name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    };
    // New inputs go into the first folder; the committed ones are only read.
    let (grown, artifacts) = (folder(&format!("corpus/{label}"))?, folder("artifacts")?);
    let mut command = Command::new(program);
    command.args([TIMEOUT, "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/{label}-", artifacts.display()));
    command.arg(&grown).arg(package.join("corpus").join(target));
    eprintln!("fuzz {label}: {seconds} s");
    Ok(status(&mut command)?.success())
}

/// The fuzz packages, by crate.
fn packages() -> Result<Vec<PathBuf>> {
    let crates = root().join("crates");
    let entries = fs::read_dir(&crates).with_context(|| crates.display().to_string())?;
    let entries = entries.collect::<std::io::Result<Vec<_>>>()?;
    let mut packages: Vec<_> = entries.into_iter().map(|entry| entry.path().join("fuzz")).collect();
    packages.retain(|package| package.join("Cargo.toml").is_file());
    packages.sort();
    Ok(packages)
}

/// A package's targets: a file each in `fuzz_targets/`, under whose name the manifest has it.
fn targets(package: &Path) -> Result<Vec<String>> {
    let folder = package.join("fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let files = entries.map(|entry| entry.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>()?;
    let sources = files.iter().filter(|file| file.extension() == Some(OsStr::new("rs")));
    let mut names: Vec<_> =
        sources.filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    ensure!(!names.is_empty(), "{} has no targets", folder.display());
    Ok(names)
}

/// The triple that rustc builds for by itself. Named, so that build scripts and macros are built without the hooks.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("failed to start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}
