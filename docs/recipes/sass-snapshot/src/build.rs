//! From a CUDA source to a listing, with the compilers found: `KBT_CUDA`, `CUDA_HOME`, `PATH`, `/usr/local/cuda`,
//! or what `cargo xtask setup` unpacked.

use kbt_device::Arch;
use kbt_sass::Listing;
use kbt_toolchain::{
    NotFound, NvccOptions, NvccOutput, NvdisasmOptions, PtxasOptions, Search, Tool, Toolchain,
};
use std::error::Error;
use std::path::{Path, PathBuf};

/// A kernel as it is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    /// The source, from the root of the sources.
    pub source: &'a str,
    /// Preprocessor definitions.
    pub defines: &'a [(&'a str, &'a str)],
}

/// Machine code with the version of the assembler that made it.
#[derive(Debug)]
pub struct Built {
    /// The machine code.
    pub listing: Listing,
    /// ptxas' version: `13.0.88`.
    pub ptxas: String,
}

/// Where the sources are: this repository's own kernels. Yours are elsewhere.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../kernels")
}

/// The compilers, wherever they are.
pub fn toolchain() -> Result<Toolchain, NotFound> {
    Search::from_env().with_root(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")).find()
}

/// Compiles a kernel for a target and lists its machine code.
pub fn build(tools: &Toolchain, kernel: Kernel<'_>, arch: Arch) -> Result<Built, Box<dyn Error>> {
    let defines = kernel.defines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options = NvccOptions {
        output: NvccOutput::Ptx,
        defines: defines.collect(),
        includes: vec![sources().join("include")],
        ..NvccOptions::new(arch)
    };
    let ptx = tools.nvcc(&sources().join(kernel.source), &options)?;
    let assembled = tools.ptxas(&ptx.bytes, arch, &PtxasOptions::default())?;
    let text =
        tools.disassemble(&assembled.cubin, &NvdisasmOptions { hex: true, ..NvdisasmOptions::default() })?;
    Ok(Built { listing: kbt_sass::parse(text.as_bytes())?, ptxas: tools.version(Tool::Ptxas)?.to_string() })
}
