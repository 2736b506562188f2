//! Child processes: cargo with the workspace's environment, exit codes handed on.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where `cargo xtask setup` installs.
pub(crate) fn cuda_dir() -> PathBuf {
    root().join("target/cuda")
}

/// Where `cargo xtask setup --second` installs.
pub(crate) fn second_cuda_dir() -> PathBuf {
    root().join("target/cuda-second")
}

/// cargo with `KBT_CUDA` set: the caller's, made absolute because tests run in their package's folder, else
/// target/cuda if there is one. The crate that embeds the kernels is rebuilt when `KBT_CUDA` changes, so every
/// command here sets it alike.
pub(crate) fn cargo<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    let given = std::env::var_os("KBT_CUDA").filter(|value| !value.is_empty());
    let has_nvcc = |dir: &str| cuda_dir().join(dir).join("nvcc").is_file();
    if let Some(dir) = given.and_then(|value| std::path::absolute(value).ok()) {
        command.env("KBT_CUDA", dir);
    } else if has_nvcc("bin") || has_nvcc("nvidia/cu13/bin") {
        command.env("KBT_CUDA", cuda_dir());
    } else {
        command.env_remove("KBT_CUDA");
    }
    // Only tests look at it.
    if std::env::var_os("KBT_CUDA_MORE").is_none() && second_cuda_dir().join("bin/ptxas").is_file() {
        command.env("KBT_CUDA_MORE", second_cuda_dir());
    }
    command
}

/// Runs a command to its end.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("failed to start {}", command.get_program().display()))
}

/// Whether a command starts and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The exit code to end with for a child's; a child that a signal ended gives 128 plus its number.
pub(crate) fn code(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    #[cfg(not(unix))]
    let by_signal = None;
    let code = status.code().or(by_signal).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

/// Becomes the command, so that a signal to this process reaches it; returns only on failure, or where a process
/// cannot become another.
pub(crate) fn become_command(mut command: Command) -> Result<ExitCode> {
    #[cfg(unix)]
    {
        let error = std::os::unix::process::CommandExt::exec(&mut command);
        Err(error).with_context(|| format!("failed to start {}", command.get_program().display()))
    }
    #[cfg(not(unix))]
    Ok(code(status(&mut command)?))
}
