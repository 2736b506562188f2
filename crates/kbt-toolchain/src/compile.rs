//! PTX to cubin, CUDA C++ to cubin or PTX, cubin to listing.

use crate::{ResourceReport, Tool, ToolError, Toolchain};
use kbt_device::Arch;
use kbt_evidence::Provenance;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How ptxas is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtxasOptions {
    /// Optimisation level, 0 to 3.
    pub opt_level: u8,
    /// Ask for resource usage (`-v`); without it [`Assembled::resources`] knows no kernel.
    pub verbose: bool,
    /// Cap of registers a thread.
    pub maxrregcount: Option<u32>,
    /// Further arguments as they stand.
    pub extra: Vec<String>,
}

impl Default for PtxasOptions {
    fn default() -> Self {
        Self { opt_level: 3, verbose: true, maxrregcount: None, extra: Vec::new() }
    }
}

/// What ptxas made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The machine code, an ELF file.
    pub cubin: Vec<u8>,
    /// What ptxas said.
    pub log: String,
    /// Its version.
    pub version: String,
    /// What it said about registers, stack and spills, read from the log.
    pub resources: ResourceReport,
}

impl Assembled {
    /// How figures read from this are known.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        Provenance::mined(format!("ptxas {}", self.version))
    }
}

/// What nvcc is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NvccOutput {
    /// Machine code.
    #[default]
    Cubin,
    /// PTX.
    Ptx,
}

/// How nvcc is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvccOptions {
    /// The one target compiled for.
    pub arch: Arch,
    /// What to make.
    pub output: NvccOutput,
    /// Preprocessor definitions; an empty value defines the bare name.
    pub defines: BTreeMap<String, String>,
    /// Include folders.
    pub includes: Vec<PathBuf>,
    /// Optimisation level of ptxas, 0 to 3.
    pub opt_level: u8,
    /// The language standard.
    pub std: String,
    /// Cap of registers a thread.
    pub maxrregcount: Option<u32>,
    /// Source lines in the machine code (`-lineinfo`).
    pub line_info: bool,
    /// Further arguments as they stand.
    pub extra: Vec<String>,
}

impl NvccOptions {
    /// C++17 to a cubin at -O3.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            output: NvccOutput::Cubin,
            defines: BTreeMap::new(),
            includes: Vec::new(),
            opt_level: 3,
            std: "c++17".to_owned(),
            maxrregcount: None,
            line_info: false,
            extra: Vec::new(),
        }
    }

    /// Adds a definition.
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.defines.insert(name.into(), value.into());
        self
    }

    /// Adds an include folder.
    #[must_use]
    pub fn include(mut self, dir: impl Into<PathBuf>) -> Self {
        self.includes.push(dir.into());
        self
    }
}

/// What nvcc made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Cubin or PTX, as asked.
    pub bytes: Vec<u8>,
    /// What nvcc and the compilers under it said.
    pub log: String,
    /// nvcc's version.
    pub version: String,
    /// Registers, stack and spills, read from the log; no kernel where PTX was asked for.
    pub resources: ResourceReport,
}

impl Compiled {
    /// How figures read from this are known.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        Provenance::mined(format!("nvcc {}", self.version))
    }
}

/// What nvdisasm is asked for; the default is the plain listing of code sections (`-c`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NvdisasmOptions {
    /// Encoding words (`-hex`): control fields are read from them.
    pub hex: bool,
    /// Source lines (`-g`), where the cubin has them.
    pub line_info: bool,
    /// Live register columns (`-plr`).
    pub life_ranges: bool,
    /// Further arguments as they stand.
    pub extra: Vec<String>,
}

impl Toolchain {
    /// Assembles PTX. Trailing NULs, which ptxas refuses, are stripped.
    pub fn ptxas(&self, ptx: &[u8], arch: Arch, options: &PtxasOptions) -> Result<Assembled, ToolError> {
        let end = ptx.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
        let dir = scratch()?;
        write(&dir, "kernel.ptx", &ptx[..end])?;
        let mut args = vec![format!("-arch={arch}"), format!("-O{}", options.opt_level)];
        args.extend(options.verbose.then(|| "-v".to_owned()));
        args.extend(options.maxrregcount.map(|n| format!("-maxrregcount={n}")));
        args.extend(options.extra.iter().cloned());
        args.extend(["kernel.ptx", "-o", "kernel.cubin"].map(str::to_owned));
        let log = self.run(Tool::Ptxas, Some(dir.path()), &args)?.log();
        let cubin = made(Tool::Ptxas, &dir, "kernel.cubin")?;
        let resources = ResourceReport::parse(&log);
        Ok(Assembled { cubin, version: self.version(Tool::Ptxas)?, resources, log })
    }

    /// Compiles a CUDA C++ file for one target.
    pub fn nvcc(&self, source: &Path, options: &NvccOptions) -> Result<Compiled, ToolError> {
        let dir = scratch()?;
        let absolute = |p: &Path| {
            std::path::absolute(p).map_err(ToolError::io(format!("failed to resolve {}", p.display())))
        };
        let target = options.arch.to_string();
        let virtual_target = target.replacen("sm_", "compute_", 1);
        let (mode, code) = match options.output {
            NvccOutput::Cubin => ("-cubin", target),
            NvccOutput::Ptx => ("-ptx", virtual_target.clone()),
        };
        let mut args: Vec<std::ffi::OsString> =
            vec![mode.into(), format!("-gencode=arch={virtual_target},code={code}").into()];
        args.push(format!("-std={}", options.std).into());
        args.push(format!("-Xptxas=-v,-O{}", options.opt_level).into());
        args.extend(options.maxrregcount.map(|n| format!("-maxrregcount={n}").into()));
        args.extend(options.line_info.then(|| "-lineinfo".into()));
        for (name, value) in &options.defines {
            let define = if value.is_empty() { format!("-D{name}") } else { format!("-D{name}={value}") };
            args.push(define.into());
        }
        for include in &options.includes {
            args.extend(["-I".into(), absolute(include)?.into()]);
        }
        args.extend(options.extra.iter().map(Into::into));
        args.extend([absolute(source)?.into(), "-o".into(), "kernel.out".into()]);
        let log = self.run(Tool::Nvcc, Some(dir.path()), &args)?.log();
        let bytes = made(Tool::Nvcc, &dir, "kernel.out")?;
        let resources = ResourceReport::parse(&log);
        Ok(Compiled { bytes, version: self.version(Tool::Nvcc)?, resources, log })
    }

    /// Lists the machine code of a cubin.
    pub fn disassemble(&self, cubin: &[u8], options: &NvdisasmOptions) -> Result<String, ToolError> {
        let dir = scratch()?;
        write(&dir, "kernel.cubin", cubin)?;
        let mut args = vec!["-c".to_owned()];
        args.extend(options.hex.then(|| "-hex".to_owned()));
        args.extend(options.line_info.then(|| "-g".to_owned()));
        args.extend(options.life_ranges.then(|| "-plr".to_owned()));
        args.extend(options.extra.iter().cloned());
        args.push("kernel.cubin".to_owned());
        Ok(self.run(Tool::Nvdisasm, Some(dir.path()), &args)?.text())
    }
}

/// A folder that is removed with its content when dropped. Tools run inside it, so that their messages name
/// `kernel.ptx` and no path of this machine.
fn scratch() -> Result<TempDir, ToolError> {
    tempfile::Builder::new()
        .prefix("kbt-")
        .tempdir()
        .map_err(ToolError::io("failed to make a temporary folder"))
}

fn write(dir: &TempDir, name: &str, bytes: &[u8]) -> Result<(), ToolError> {
    let path = dir.path().join(name);
    fs::write(&path, bytes).map_err(ToolError::io(format!("failed to write {}", path.display())))
}

fn made(tool: Tool, dir: &TempDir, name: &str) -> Result<Vec<u8>, ToolError> {
    let bytes = fs::read(dir.path().join(name)).unwrap_or_default();
    if bytes.is_empty() {
        return Err(ToolError::Output { tool, message: "ended well but wrote no output".to_owned() });
    }
    Ok(bytes)
}
