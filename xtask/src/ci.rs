//! `cargo xtask ci`: everything that CI checks, in the order in which a mistake shows soonest.

use crate::fuzz::fuzz;
use crate::process::{cargo, root, status, succeeds};
use crate::tool::{TestArgs, bindings, test};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kbt_device::Arch;
use kbt_toolchain::{NvccOptions, NvccOutput, PtxasOptions, Search, Tool, Toolchain};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Which checks are run.
#[derive(Args)]
pub(crate) struct CiArgs {
    /// Only this check; may be repeated.
    #[arg(long, value_parser = CHECKS.map(|(name, _)| name))]
    only: Vec<String>,
}

type Check = fn() -> Result<()>;

const CHECKS: [(&str, Check); 10] = [
    ("fmt", fmt),
    ("bindings", bindings_check),
    ("kernels", kernels),
    ("clippy", clippy),
    ("doc", doc),
    ("alone", alone),
    ("recipe", recipe),
    ("deny", deny),
    ("test", tests),
    ("fuzz", fuzz),
];

/// The crates that must build by themselves with no GPU, no CUDA and no command line.
const ALONE: [&str; 8] = [
    "kbt-evidence",
    "kbt-device",
    "kbt-ptx",
    "kbt-tensor",
    "kbt-sass",
    "kbt-quant",
    "kbt-validate",
    "kbt-roofline",
];

/// Runs the checks, each to its end, and says at the end which failed.
pub(crate) fn ci(args: &CiArgs) -> Result<ExitCode> {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("==> {name}");
        let start = Instant::now();
        let result = check();
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(()) => eprintln!("==> {name} passed in {seconds} s"),
            Err(error) => {
                eprintln!("==> {name} FAILED in {seconds} s: {error:#}");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn must(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    ensure!(status.success(), "{} ended with {status}", command.get_program().display());
    Ok(())
}

fn cargo_check(args: &[&str]) -> Result<()> {
    must(cargo(args).current_dir(root()))
}

fn fmt() -> Result<()> {
    cargo_check(&["fmt", "--all", "--", "--check", "--files-with-diff"])
}

fn bindings_check() -> Result<()> {
    ensure!(bindings(true)? == ExitCode::SUCCESS, "committed bindings differ from the headers");
    Ok(())
}

fn clippy() -> Result<()> {
    cargo_check(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn doc() -> Result<()> {
    must(cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").current_dir(root()))
}

/// Each crate with its own features only: a workspace build unifies features and hides a missing one.
fn alone() -> Result<()> {
    ALONE.iter().try_for_each(|package| cargo_check(&["check", "--quiet", "--package", package]))
}

/// The project outside the workspace that depends on kbt-sass alone.
fn recipe() -> Result<()> {
    let dir = root().join("docs/recipes/sass-snapshot");
    must(cargo(["test", "--quiet"]).env("CARGO_TARGET_DIR", root().join("target/recipe")).current_dir(dir))
}

fn tests() -> Result<()> {
    ensure!(test(&TestArgs::default())? == ExitCode::SUCCESS, "tests failed");
    Ok(())
}

/// Bans, licences and sources need no database; advisories need one on this machine already.
fn deny() -> Result<()> {
    if !succeeds(&mut cargo(["deny", "--version"])) {
        eprintln!(
            "cargo-deny is not installed: bans and licences are checked by xtask/tests/architecture.rs only"
        );
        return Ok(());
    }
    cargo_check(&["deny", "--workspace", "check", "bans", "licenses", "sources"])?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    if home.is_some_and(|home| home.join("advisory-dbs").is_dir()) {
        return cargo_check(&["deny", "--workspace", "check", "--disable-fetch", "advisories"]);
    }
    eprintln!("cargo-deny has no advisory database here: advisories are checked by the hosted workflow only");
    Ok(())
}

/// Compiles every CUDA source for sm_90a, and the quantisation step for the targets that have its instructions too.
fn kernels() -> Result<()> {
    let (root, folder) = (root(), root().join("kernels"));
    let tools = Search::from_env().with_root(root).find()?;
    tools.path(Tool::Nvcc)?;
    let mut sources = Vec::new();
    collect(&folder, &mut sources)?;
    let mut failed = 0;
    for source in &sources {
        let quant_step = source.parent().is_some_and(|parent| parent.ends_with("quant_step"));
        let targets: &[Arch] =
            if quant_step { &[Arch::SM_90A, Arch::SM_100A, Arch::SM_103A] } else { &[Arch::SM_90A] };
        for arch in targets {
            match compile(&tools, &folder, source, *arch) {
                Ok(line) => eprintln!("{line}"),
                Err(error) => {
                    eprintln!("{}: {error}", source.display());
                    failed += 1;
                }
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} sources do not compile for a target", sources.len());
    }
    Ok(())
}

/// The .cu files of `folder`, sorted; the crate's own sources and tests are no kernels.
fn collect(folder: &Path, to: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("src") && !path.ends_with("tests") {
            collect(&path, to)?;
        } else if path.extension().is_some_and(|e| e == "cu") {
            to.push(path);
        }
    }
    Ok(())
}

/// Compiles one source as the crate's build script does; returns a line with what it takes.
fn compile(tools: &Toolchain, folder: &Path, source: &Path, arch: Arch) -> Result<String> {
    let options = NvccOptions { output: NvccOutput::Ptx, ..NvccOptions::new(arch) };
    let ptx = tools.nvcc(source, &options.include(folder.join("include")))?;
    let made = tools.ptxas(&ptx.bytes, arch, &PtxasOptions::default())?;
    let functions = made.resources.functions.iter();
    let most = functions.clone().filter_map(|f| f.registers).max().unwrap_or(0);
    let spills: u64 = functions.clone().map(|f| f.spill_store_bytes + f.spill_load_bytes).sum();
    let name = source.strip_prefix(folder).unwrap_or(source).display();
    Ok(format!("{name} {arch}: {} functions, {most} registers, {spills} bytes of spills", functions.count()))
}
