//! The commands that build something and run it: tune, record, export, compare, test, dist, bindings.

use crate::process::{become_command, cargo, code, root, status, succeeds};
use anyhow::{Context, Result};
use clap::Args;
use kbt_toolchain::{Search, Tool};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Builds a binary, its progress on standard error, and becomes it. The dev profile: a fresh clone must end with a
/// report within minutes of two cores, and what computes heavily is optimised there too.
pub(crate) fn run(package: &str, command: &str, args: &[OsString]) -> Result<ExitCode> {
    let built = status(cargo(["build", "--package", package, "--bin", package]).current_dir(root()))?;
    if !built.success() {
        return Ok(code(built));
    }
    let mut child = cargo(["run", "--quiet", "--package", package, "--bin", package, "--", command]);
    child.args(args);
    become_command(child)
}

/// Which tests are run.
#[derive(Default, Args)]
pub(crate) struct TestArgs {
    /// Only this package, without its documentation examples; may be repeated.
    #[arg(short, long)]
    package: Vec<String>,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// The whole suite, documentation examples included; polars (kbt-frame) is part of it.
pub(crate) fn test(args: &TestArgs) -> Result<ExitCode> {
    let packages = if args.package.is_empty() {
        vec!["--workspace".to_owned()]
    } else {
        args.package.iter().map(|name| format!("--package={name}")).collect()
    };
    let runner: &[&str] = if succeeds(&mut cargo(["nextest", "--version"])) {
        &["nextest", "run", "--no-fail-fast", "--no-tests=pass"]
    } else {
        &["test", "--lib", "--bins", "--tests", "--no-fail-fast"]
    };
    let mut result = status(cargo(runner).args(&packages).args(&args.filter).current_dir(root()))?;
    if args.package.is_empty() && args.filter.is_none() {
        let examples = status(cargo(["test", "--quiet", "--doc", "--workspace"]).current_dir(root()))?;
        result = if result.success() { examples } else { result };
    }
    Ok(code(result))
}

/// Regenerates or checks the bindings.
pub(crate) fn bindings(check: bool) -> Result<ExitCode> {
    let mut child = cargo(["run", "--quiet", "--package", "kbt-bindings", "--"]);
    child.args(check.then_some("--check")).current_dir(root());
    Ok(code(status(&mut child)?))
}

/// What goes into target/dist.
#[derive(Args)]
pub(crate) struct DistArgs {
    /// Build kbt-frame too (polars: minutes), for `export` and `compare` on that machine.
    #[arg(long)]
    with_frame: bool,
}

/// Builds the stripped binary with its kernels. Without nvcc there would be none in it, so that is an error here.
pub(crate) fn dist(args: &DistArgs) -> Result<ExitCode> {
    Search::from_env()
        .with_root(root())
        .find()?
        .path(Tool::Nvcc)
        .context("kbt would be built without its kernels")?;
    let packages = if args.with_frame { &["kbt", "kbt-frame"][..] } else { &["kbt"] };
    let to = root().join("target/dist");
    for package in packages {
        let build = ["build", "--profile", "dist", "--package", package, "--bin", package];
        let built = status(cargo(build).current_dir(root()))?;
        if !built.success() {
            return Ok(code(built));
        }
        // cargo's own folder of the profile, which is target/dist unless the target folder lies elsewhere.
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let name = format!("{package}{}", std::env::consts::EXE_SUFFIX);
        let (from, to) = (root().join(target).join("dist").join(&name), to.join(&name));
        if from != to {
            std::fs::create_dir_all(to.parent().unwrap_or(&to))?;
            std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
        let bytes = std::fs::metadata(&to).with_context(|| to.display().to_string())?.len();
        println!("{}: {:.1} MB", to.display(), bytes as f64 / 1e6);
    }
    Ok(ExitCode::SUCCESS)
}
