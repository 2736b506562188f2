//! `cargo xtask setup`: the pinned CUDA compilers, from PyPI wheels into target/cuda, without root.
//!
//! A package counts as installed when its stamp, written last, names the pinned version and every file it lists is
//! there; the rest is downloaded with pip and unpacked, so a killed run goes on where it stopped. What was installed
//! is then run: nothing is taken on trust.

use crate::pins::{Pin, pins, second_pins};
use crate::process::{cuda_dir, second_cuda_dir, succeeds};
use anyhow::{Context, Result, bail, ensure};
use kbt_device::Arch;
use kbt_toolchain::{NvccOptions, NvdisasmOptions, Search, Tool, Toolchain};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const UNPACK: &str = include_str!("unpack.py");

/// Which toolkits are installed.
#[derive(clap::Args)]
pub(crate) struct SetupArgs {
    /// Also a second toolkit, into target/cuda-second, for the tests that compare two versions of each tool.
    #[arg(long)]
    second: bool,
}

pub(crate) fn setup(args: &SetupArgs) -> Result<ExitCode> {
    let (dir, pins) = (cuda_dir(), pins()?);
    install_all(&dir, &pins)?;
    let mut lines = verify(&dir)?;
    lines.push(format!("CUDA compilers are ready in {}", dir.display()));
    if args.second {
        let dir = second_cuda_dir();
        install_all(&dir, &second_pins()?)?;
        let tools = Search { kbt_cuda: Some((&dir).into()), ..Search::default() }.find()?;
        lines.extend(versions(&tools, &dir, &[Tool::Ptxas, Tool::Nvdisasm, Tool::Cuobjdump])?);
        lines.push(format!("a second toolkit is ready in {}", dir.display()));
    }
    for line in lines {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing of the packages.
fn install_all(dir: &Path, pins: &[Pin]) -> Result<()> {
    let missing: Vec<_> = pins.iter().filter(|pin| !is_installed(dir, pin)).collect();
    if !missing.is_empty() {
        let tags = platform_tags()?;
        let python = python(pins)?;
        for (index, pin) in missing.iter().enumerate() {
            eprintln!("setup: {} ({} of {})", pin.requirement(), index + 1, missing.len());
            install(dir, pin, python, &tags, pins)?;
        }
    }
    // Wheels of killed downloads.
    let _ = fs::remove_dir_all(dir.join(".wheels"));
    link_libraries(dir)
}

/// A whole program is linked too: nvcc looks for the runtime's libraries in lib64 of its toolkit, and the packages have
/// them in lib.
fn link_libraries(dir: &Path) -> Result<()> {
    for toolkit in [dir.to_owned(), dir.join("nvidia/cu13")] {
        let link = toolkit.join("lib64");
        if toolkit.join("lib").is_dir() && fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink("lib", &link).with_context(|| link.display().to_string())?;
        }
    }
    Ok(())
}

/// A line for each tool, which must lie in the folder.
fn versions(tools: &Toolchain, dir: &Path, which: &[Tool]) -> Result<Vec<String>> {
    let line = |tool: &Tool| {
        let path = tools.path(*tool)?;
        ensure!(path.starts_with(dir), "{} is not in {}", path.display(), dir.display());
        Ok(format!("{tool} {}", tools.version(*tool)?))
    };
    which.iter().map(line).collect()
}

fn stamp(dir: &Path, pin: &Pin) -> PathBuf {
    dir.join(".installed").join(&pin.name)
}

fn is_installed(dir: &Path, pin: &Pin) -> bool {
    let Ok(text) = fs::read_to_string(stamp(dir, pin)) else { return false };
    let mut lines = text.lines();
    lines.next() == Some(pin.requirement().as_str()) && lines.all(|file| dir.join(file).is_file())
}

/// The wheel platforms of this machine, newest first.
fn platform_tags() -> Result<Vec<String>> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    ensure!(
        os == "linux" && (arch == "x86_64" || arch == "aarch64"),
        "the pinned CUDA wheels are for Linux on x86_64 and aarch64, this is {os} on {arch}; kbt builds and runs \
         without them; with a CUDA 13 toolkit of your own, set KBT_CUDA to its folder"
    );
    let tags = ["manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"];
    Ok(tags.iter().map(|tag| format!("{tag}_{arch}")).collect())
}

/// A Python that has pip.
fn python(pins: &[Pin]) -> Result<&'static str> {
    let answers = |name: &str, args: &[&str]| succeeds(Command::new(name).args(args));
    let Some(python) =
        ["python3", "python"].into_iter().find(|name| answers(name, &["-c", "import zipfile"]))
    else {
        bail!(
            "no Python found (python3 or python on PATH); install it, for example `apt-get install python3-pip`, or {}",
            by_hand(pins)
        );
    };
    ensure!(
        answers(python, &["-m", "pip", "--version"]),
        "{python} has no pip; install it, for example `apt-get install python3-pip` or `{python} -m ensurepip`, or {}",
        by_hand(pins)
    );
    Ok(python)
}

/// What a person can do instead.
fn by_hand(pins: &[Pin]) -> String {
    let names: Vec<_> = pins.iter().map(Pin::requirement).collect();
    format!(
        "do it by hand: unzip the PyPI wheels of {} into {}, so that nvidia/cu13/bin/nvcc lies in it; or install \
         the CUDA 13.0 toolkit and set KBT_CUDA to its folder",
        names.join(", "),
        cuda_dir().display()
    )
}

/// Unpacks a package's wheel, downloading it unless it is there already and whole.
fn install(dir: &Path, pin: &Pin, python: &str, tags: &[String], pins: &[Pin]) -> Result<()> {
    let downloads = dir.join(".wheels");
    fs::create_dir_all(&downloads).with_context(|| downloads.display().to_string())?;
    if let Some(wheel) = wheel(&downloads, pin) {
        let unpacked = unpack(dir, pin, python, &wheel)?;
        fs::remove_file(&wheel).with_context(|| wheel.display().to_string())?;
        if unpacked {
            return Ok(());
        }
        // What a killed download left.
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]);
    pip.args(["--no-deps", "--only-binary=:all:", "--python-version", "3.12"]);
    pip.args(tags.iter().flat_map(|tag| ["--platform", tag]));
    pip.arg("--dest").arg(&downloads).arg(pin.requirement()).stdin(Stdio::null());
    let output = pip.output().with_context(|| format!("failed to start {python}"))?;
    ensure!(
        output.status.success(),
        "pip could not download {}: {}\nIs there a network and does it reach PyPI? Else put the wheel into {} and run \
         `cargo xtask setup` again, or {}",
        pin.requirement(),
        String::from_utf8_lossy(&output.stderr).trim(),
        downloads.display(),
        by_hand(pins)
    );
    let wheel = wheel(&downloads, pin).with_context(|| {
        format!("pip downloaded no wheel {}*.whl into {}", pin.wheel_prefix(), downloads.display())
    })?;
    let unpacked = unpack(dir, pin, python, &wheel)?;
    fs::remove_file(&wheel).with_context(|| wheel.display().to_string())?;
    ensure!(unpacked, "the wheel that pip downloaded for {} is not the pinned one", pin.requirement());
    Ok(())
}

/// Unpacks a wheel; false if its digest is not a pinned one.
fn unpack(dir: &Path, pin: &Pin, python: &str, wheel: &Path) -> Result<bool> {
    let mut command = Command::new(python);
    command.args(["-c", UNPACK]).arg(wheel).arg(dir).arg(stamp(dir, pin)).arg(pin.requirement());
    let output = command.args(&pin.digests).output().with_context(|| format!("failed to start {python}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(true),
        Some(3) => Ok(false),
        _ => bail!("failed to unpack {}: {}", wheel.display(), message.trim()),
    }
}

fn wheel(downloads: &Path, pin: &Pin) -> Option<PathBuf> {
    let is_wheel = |name: &str| name.starts_with(&pin.wheel_prefix()) && name.ends_with(".whl");
    let entries = fs::read_dir(downloads).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries.into_iter().find(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(is_wheel))
}

/// Runs each tool and compiles a kernel that needs the toolkit's headers; returns a line a tool.
fn verify(dir: &Path) -> Result<Vec<String>> {
    let search = Search { kbt_cuda: Some(dir.into()), path: std::env::var_os("PATH"), ..Search::default() };
    let tools = search.find()?;
    let mut lines = versions(&tools, dir, &[Tool::Nvcc, Tool::Ptxas, Tool::Nvdisasm, Tool::Cuobjdump])?;
    ensure!(
        succeeds(Command::new("g++").arg("--version")),
        "no g++ on PATH: nvcc needs a host C++ compiler; install one, for example `apt-get install g++` (the other \
         CUDA tools are installed and work without it)"
    );
    let source = dir.join(".verify.cu");
    fs::write(&source, "#include <cuda_fp16.h>\n__global__ void k(half *x) { *x = __hadd(*x, *x); }\n")
        .with_context(|| source.display().to_string())?;
    for arch in [Arch::SM_90A, Arch::SM_103A] {
        let made =
            tools.nvcc(&source, &NvccOptions::new(arch)).context("the installed nvcc does not work")?;
        let listing = tools.disassemble(&made.bytes, &NvdisasmOptions::default())?;
        ensure!(listing.contains("HADD2"), "nvdisasm lists no HADD2 for {arch} in what nvcc compiled");
        lines.push(format!("compiled and disassembled a kernel for {arch}"));
    }
    fs::remove_file(&source).with_context(|| source.display().to_string())?;
    Ok(lines)
}
