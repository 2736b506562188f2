//! Running a tool: the child process, its streams, its version.

use crate::{ToolError, Toolchain};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// One of NVIDIA's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The CUDA C++ compiler driver. It needs a host C++ compiler too.
    Nvcc,
    /// The PTX assembler.
    Ptxas,
    /// The disassembler of cubins.
    Nvdisasm,
    /// The lister of fatbins.
    Cuobjdump,
    /// Nsight Compute's command line.
    Ncu,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 5] = [Self::Nvcc, Self::Ptxas, Self::Nvdisasm, Self::Cuobjdump, Self::Ncu];

    /// The name of its file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvcc => "nvcc",
            Self::Ptxas => "ptxas",
            Self::Nvdisasm => "nvdisasm",
            Self::Cuobjdump => "cuobjdump",
            Self::Ncu => "ncu",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a tool printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

impl ToolOutput {
    /// Standard output as text, invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Both streams, what standard error has first.
    #[must_use]
    pub fn log(&self) -> String {
        let (err, out) = (self.stderr.trim_end(), self.text());
        let out = out.trim_end();
        let between = if err.is_empty() || out.is_empty() { "" } else { "\n" };
        format!("{err}{between}{out}")
    }
}

impl Toolchain {
    /// A command that would start the tool, with the other tools' folders ahead in its `PATH` (nvcc and cuobjdump
    /// call them) and no standard input.
    pub fn command(&self, tool: Tool) -> Result<Command, ToolError> {
        let mut command = Command::new(self.path(tool)?);
        let beside = Tool::ALL.iter().filter_map(|t| self.path(*t).ok()?.parent().map(Path::to_path_buf));
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let mut dirs: Vec<_> = Vec::new();
        for dir in beside.chain(std::env::split_paths(&inherited)) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        if let Ok(path) = std::env::join_paths(dirs) {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a tool in `dir` and returns what it printed; a non-zero exit is an error that carries its message.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        tool: Tool,
        dir: Option<&Path>,
        args: impl IntoIterator<Item = A>,
    ) -> Result<ToolOutput, ToolError> {
        let output = self.start(tool, dir, args)?;
        let printed = ToolOutput {
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        if output.status.success() {
            return Ok(printed);
        }
        Err(ToolError::Failed {
            tool,
            version: self.version(tool).unwrap_or_else(|_| "(unknown version)".to_owned()),
            status: output.status.to_string(),
            log: printed.log(),
        })
    }

    /// A tool's version, for example `13.0.88`.
    pub fn version(&self, tool: Tool) -> Result<String, ToolError> {
        let known = self.versions.lock().ok().and_then(|v| v.get(&tool).cloned());
        if let Some(version) = known {
            return Ok(version);
        }
        let output = self.start(tool, None, ["--version"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = parse_version(&text).ok_or_else(|| ToolError::Output {
            tool,
            message: format!("`--version` names no version: {}", text.trim()),
        })?;
        if let Ok(mut versions) = self.versions.lock() {
            versions.insert(tool, version.clone());
        }
        Ok(version)
    }

    fn start<A: AsRef<OsStr>>(
        &self,
        tool: Tool,
        dir: Option<&Path>,
        args: impl IntoIterator<Item = A>,
    ) -> Result<std::process::Output, ToolError> {
        let mut command = self.command(tool)?;
        command.args(args);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let path = self.path(tool)?;
        command.output().map_err(|source| ToolError::Start { tool, path: path.to_path_buf(), source })
    }
}

/// `V13.0.88` of the compiler tools, or `Version 2025.3.1.0` of ncu.
fn parse_version(text: &str) -> Option<String> {
    let numeric = |word: &str| {
        let version = word.trim_end_matches(',');
        let valid = version.split('.').count() > 1
            && version.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        valid.then(|| version.to_owned())
    };
    let words = || text.split_whitespace();
    words().find_map(|word| numeric(word.strip_prefix('V')?)).or_else(|| {
        words().zip(words().skip(1)).find(|(word, _)| *word == "Version").and_then(|(_, v)| numeric(v))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_tools_print() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(parse_version(text).as_deref(), expect);
        check(
            "ptxas: NVIDIA (R) Ptx\nCuda compilation tools, release 13.0, V13.0.88\nBuild x",
            Some("13.0.88"),
        );
        check(
            "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 3)",
            Some("2025.3.1.0"),
        );
        check("Visual thing, V.", None);
        check("", None);
    }
}
