//! From a file of any kind to a listing: text as it is, cubins through nvdisasm, containers through cuobjdump,
//! PTX through ptxas and nvdisasm.

use crate::output::{Failure, open_input, tell};
use kbt_device::Arch;
use kbt_sass::{Function, InputKind, Listing, PtxLint};
use kbt_toolchain::{Assembled, NvdisasmOptions, PtxasOptions, Tool, Toolchain};
use std::cell::RefCell;
use std::io::{Cursor, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// Bytes that are enough to know by what a file is.
const HEAD: u64 = 64 * 1024;

/// How PTX is assembled.
#[derive(clap::Args, Clone)]
pub(super) struct InputArgs {
    /// For PTX: the target to assemble for, as in sm_103a; the one that its `.target` names where not given.
    #[arg(long, value_name = "ARCH")]
    pub(super) arch: Option<Arch>,
    /// For PTX: ptxas' optimisation level.
    #[arg(short = 'O', long = "opt-level", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(super) opt_level: u8,
}

/// A listing, and what is known of how it came to be.
pub(super) struct Loaded {
    /// Read once, as it comes: a listing may be larger than memory.
    listing: RefCell<Box<dyn Read>>,
    origin: String,
    assembler: Option<String>,
    disassembler: Option<String>,
    /// The PTX, where that was the input.
    ptx: Option<String>,
    remarks: Vec<String>,
}

/// Reads a file and turns it into a listing; `lines` asks for source lines.
pub(super) fn load(file: &Path, args: &InputArgs, lines: bool) -> Result<Loaded, Failure> {
    let (mut input, origin) = (open_input(file)?, file.display().to_string());
    let unreadable = |e: std::io::Error| Failure::input(format!("{}: {e}", file.display()));
    let mut bytes = Vec::new();
    input.by_ref().take(HEAD).read_to_end(&mut bytes).map_err(unreadable)?;
    let kind = kbt_sass::input_kind(&bytes);
    if matches!(kind, InputKind::Cubin | InputKind::Ptx) {
        input.read_to_end(&mut bytes).map_err(unreadable)?;
    }
    match kind {
        InputKind::Cubin => disassemble(&bytes, origin, lines),
        InputKind::Container => contained(file, origin),
        InputKind::Ptx => {
            let arch = target(&String::from_utf8_lossy(&bytes), args.arch, &origin)?;
            let options = PtxasOptions { opt_level: args.opt_level, ..PtxasOptions::default() };
            let assembled = Toolchain::find()?.ptxas(&bytes, arch, &options)?;
            let remarks = remarks(&assembled);
            let loaded = disassemble(&assembled.cubin, origin, lines)?;
            let built_by = format!("ptxas {} -O{}", assembled.version, args.opt_level);
            let ptx = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Loaded { assembler: Some(built_by), ptx: Some(ptx), remarks, ..loaded })
        }
        _ => Ok(Loaded::new(Cursor::new(bytes).chain(input), origin)),
    }
}

/// The target to assemble PTX for: the given one, else its own.
pub(super) fn target(ptx: &str, given: Option<Arch>, origin: &str) -> Result<Arch, Failure> {
    if let Some(arch) = given {
        return Ok(arch);
    }
    let own = kbt_ptx::parse(ptx).map_err(|e| Failure::input(format!("{origin}: {e}")))?.target;
    // Modes of textures and debugging may follow.
    let arch = own.split(',').next().unwrap_or_default().trim().parse().map_err(|_| {
        Failure::input(format!(
            "{origin}: its .target names no architecture (`{own}`); accepted: --arch, as in --arch sm_90a"
        ))
    })?;
    tell!("{origin}: assembled for {arch}, its own .target; --arch names another");
    Ok(arch)
}

/// What ptxas remarked, code first.
pub(super) fn remarks(assembled: &Assembled) -> Vec<String> {
    let messages = assembled.resources.messages.iter();
    messages.map(|m| m.code.as_ref().map_or_else(|| m.text.clone(), |c| format!("{c}: {}", m.text))).collect()
}

fn disassemble(cubin: &[u8], origin: String, lines: bool) -> Result<Loaded, Failure> {
    let tools = Toolchain::find()?;
    let options = NvdisasmOptions { hex: true, line_info: lines, ..NvdisasmOptions::default() };
    let listing = tools.disassemble(cubin, &options)?;
    Ok(Loaded {
        assembler: kbt_sass::cubin_assembler(cubin),
        disassembler: Some(format!("nvdisasm {}", tools.version(Tool::Nvdisasm)?)),
        ..Loaded::new(Cursor::new(listing), origin)
    })
}

fn contained(file: &Path, origin: String) -> Result<Loaded, Failure> {
    if file.as_os_str() == "-" {
        return Err(Failure::input("an executable, library or fatbin must be a file, not standard input"));
    }
    let tools = Toolchain::find()?;
    let listing = Piped::start(tools.command(Tool::Cuobjdump)?.arg("-sass").arg(file))?;
    Ok(Loaded {
        disassembler: Some(format!("cuobjdump {}", tools.version(Tool::Cuobjdump)?)),
        ..Loaded::new(listing, origin)
    })
}

/// A tool's listing while the tool prints it: that of a library has gigabytes. A tool that fails is an error at the
/// end of what it printed.
struct Piped {
    tool: Child,
    errors: Option<JoinHandle<String>>,
}

impl Piped {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tool = command.spawn()?;
        let errors = tool.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut said = Vec::new();
                // What it said before this broke off is still worth showing.
                let _ = stderr.read_to_end(&mut said);
                String::from_utf8_lossy(&said).trim().to_owned()
            })
        });
        Ok(Self { tool, errors })
    }
}

impl Read for Piped {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.tool.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(to))?;
        if read == 0
            && !to.is_empty()
            && let Some(errors) = self.errors.take()
        {
            let (status, said) = (self.tool.wait()?, errors.join().unwrap_or_default());
            if !status.success() {
                return Err(std::io::Error::other(format!("cuobjdump -sass ended with {status}: {said}")));
            }
        }
        Ok(read)
    }
}

impl Loaded {
    /// Whether the input was PTX.
    pub(super) fn is_ptx(&self) -> bool {
        self.ptx.is_some()
    }

    fn new(listing: impl Read + 'static, origin: String) -> Self {
        Self {
            listing: RefCell::new(Box::new(listing)),
            origin,
            assembler: None,
            disassembler: None,
            ptx: None,
            remarks: Vec::new(),
        }
    }

    /// Hands over the functions one by one, once; the listing returned has none in it.
    pub(super) fn each(&self, each: impl FnMut(Function)) -> Result<Listing, Failure> {
        let mut listing = kbt_sass::parse_stream(&mut *self.listing.borrow_mut(), each)
            .map_err(|e| Failure::input(format!("{}: {e}", self.origin)))?;
        listing.assembler = self.assembler.clone().or(listing.assembler);
        listing.disassembler = self.disassembler.clone().or(listing.disassembler);
        Ok(listing)
    }

    /// What PTX and ptxas' remarks show.
    pub(super) fn lint(&self) -> Result<PtxLint, Failure> {
        let Some(ptx) = &self.ptx else { return Ok(PtxLint::default()) };
        let module = kbt_ptx::parse(ptx).map_err(|e| Failure::input(format!("{}: {e}", self.origin)))?;
        let mut found = kbt_sass::lint_ptx(&module);
        let coded = |remark: &String| match remark.split_once(": ") {
            Some((code, text)) if code.starts_with('C') && !code.contains(' ') => {
                kbt_sass::lint_remark(Some(code), text)
            }
            _ => kbt_sass::lint_remark(None, remark),
        };
        found.findings.extend(self.remarks.iter().filter_map(coded));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_is_assembled_for_its_own_target_unless_another_is_given() {
        let of = |own: &str, given: Option<&str>| {
            let given = given.map(|text| text.parse().unwrap());
            target(&format!(".version 9.0\n.target {own}\n"), given, "k.ptx").map(|arch| arch.to_string())
        };
        for (own, given, expect) in [
            ("sm_90a", None, "sm_90a"),
            ("sm_100f, debug", None, "sm_100f"),
            ("sm_90", Some("sm_90a"), "sm_90a"),
            ("texmode_unified", Some("sm_90a"), "sm_90a"),
        ] {
            assert_eq!(of(own, given).ok().as_deref(), Some(expect), "{own}");
        }
        assert!(of("texmode_unified", None).is_err());
    }
}
