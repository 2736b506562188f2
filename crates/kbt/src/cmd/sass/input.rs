//! From a file of any kind to a listing: text as it is, cubins through nvdisasm, containers through cuobjdump,
//! PTX through ptxas and nvdisasm.

use crate::output::{Failure, read_input};
use kbt_device::Arch;
use kbt_sass::{Finding, Function, InputKind, LintRule, Listing};
use kbt_toolchain::{Assembled, NvdisasmOptions, PtxasOptions, Tool, Toolchain};
use std::path::Path;

/// How PTX is assembled.
#[derive(clap::Args, Clone)]
pub(super) struct InputArgs {
    /// For PTX: the target to assemble for, as in sm_103a.
    #[arg(long, value_name = "ARCH")]
    pub(super) arch: Option<Arch>,
    /// For PTX: ptxas' optimisation level.
    #[arg(short = 'O', long = "opt-level", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(super) opt_level: u8,
}

/// A listing's bytes, and what is known of how they came to be.
pub(super) struct Loaded {
    bytes: Vec<u8>,
    origin: String,
    assembler: Option<String>,
    disassembler: Option<String>,
    /// The PTX, where that was the input.
    ptx: Option<String>,
    remarks: Vec<String>,
}

/// Reads a file and turns it into a listing; `lines` asks for source lines.
pub(super) fn load(file: &Path, args: &InputArgs, lines: bool) -> Result<Loaded, Failure> {
    let bytes = read_input(file)?;
    let origin = file.display().to_string();
    match kbt_sass::input_kind(&bytes) {
        InputKind::Cubin => disassemble(&bytes, origin, lines),
        InputKind::Container => contained(file, origin),
        InputKind::Ptx => {
            let Some(arch) = args.arch else {
                return Err(Failure::input(format!("{origin}: PTX needs --arch, for example --arch sm_90a")));
            };
            let options = PtxasOptions { opt_level: args.opt_level, ..PtxasOptions::default() };
            let assembled = Toolchain::find()?.ptxas(&bytes, arch, &options)?;
            let remarks = remarks(&assembled);
            let loaded = disassemble(&assembled.cubin, origin, lines)?;
            let built_by = format!("ptxas {} -O{}", assembled.version, args.opt_level);
            let ptx = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Loaded { assembler: Some(built_by), ptx: Some(ptx), remarks, ..loaded })
        }
        _ => {
            Ok(Loaded { bytes, origin, assembler: None, disassembler: None, ptx: None, remarks: Vec::new() })
        }
    }
}

/// What ptxas remarked, code first.
pub(super) fn remarks(assembled: &Assembled) -> Vec<String> {
    let messages = assembled.resources.messages.iter();
    messages.map(|m| m.code.as_ref().map_or_else(|| m.text.clone(), |c| format!("{c}: {}", m.text))).collect()
}

fn disassemble(cubin: &[u8], origin: String, lines: bool) -> Result<Loaded, Failure> {
    let tools = Toolchain::find()?;
    let options = NvdisasmOptions { hex: true, line_info: lines, ..NvdisasmOptions::default() };
    Ok(Loaded {
        bytes: tools.disassemble(cubin, &options)?.into_bytes(),
        origin,
        assembler: kbt_sass::cubin_assembler(cubin),
        disassembler: Some(format!("nvdisasm {}", tools.version(Tool::Nvdisasm)?)),
        ptx: None,
        remarks: Vec::new(),
    })
}

fn contained(file: &Path, origin: String) -> Result<Loaded, Failure> {
    if file.as_os_str() == "-" {
        return Err(Failure::input("an executable, library or fatbin must be a file, not standard input"));
    }
    let tools = Toolchain::find()?;
    let output = tools.run(Tool::Cuobjdump, None, [std::ffi::OsStr::new("-sass"), file.as_os_str()])?;
    Ok(Loaded {
        bytes: output.stdout,
        origin,
        assembler: None,
        disassembler: Some(format!("cuobjdump {}", tools.version(Tool::Cuobjdump)?)),
        ptx: None,
        remarks: Vec::new(),
    })
}

impl Loaded {
    /// Hands over the functions one by one; the listing returned has none in it.
    pub(super) fn each(&self, each: impl FnMut(Function)) -> Result<Listing, Failure> {
        let mut listing = kbt_sass::parse_each(&self.bytes, each)
            .map_err(|e| Failure::input(format!("{}: {e}", self.origin)))?;
        listing.assembler = self.assembler.clone().or(listing.assembler);
        listing.disassembler = self.disassembler.clone().or(listing.disassembler);
        Ok(listing)
    }

    /// What PTX and ptxas' remarks show.
    pub(super) fn lint(&self) -> Result<Vec<Finding>, Failure> {
        let Some(ptx) = &self.ptx else { return Ok(Vec::new()) };
        let module = kbt_ptx::parse(ptx).map_err(|e| Failure::input(format!("{}: {e}", self.origin)))?;
        let mut findings = kbt_sass::lint_ptx(&module);
        let serialised = self.remarks.iter().filter(|r| r.contains("wgmma") && r.contains("serialized"));
        findings.extend(serialised.map(|remark| Finding {
            rule: LintRule::WgmmaSerialised,
            place: "ptxas".to_owned(),
            source: None,
            message: remark.clone(),
        }));
        Ok(findings)
    }
}
