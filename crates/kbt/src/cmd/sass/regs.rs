//! `kbt sass regs`: the compiler behind the sweep.

use super::input::{remarks, target};
use crate::output::{Failure, Format, Outcome, print, read_input};
use kbt_device::Arch;
use kbt_sass::regs::{Build, Compiler, RegsOutcome, Sweep, study};
use kbt_toolchain::{NvdisasmOptions, PtxasOptions, Tool, Toolchain};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(super) struct RegsArgs {
    /// A PTX file; `-` is standard input.
    file: PathBuf,
    /// The target to assemble for; the one that the PTX's `.target` names where not given.
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Caps of registers a thread to try.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', conflicts_with = "setmaxnreg",
          value_parser = clap::value_parser!(u32).range(16..=255))]
    maxnreg: Vec<u32>,
    /// A setmaxnreg budget and the values to try in its place: 232=200,216,240 (multiples of 8, 24 to 256).
    #[arg(long, value_name = "OLD=N,N,...")]
    setmaxnreg: Option<String>,
    /// Sweep the budgets of all roles together, as they fit the register file. The default where the PTX has
    /// setmaxnreg; else a range of caps is.
    #[arg(long, conflicts_with_all = ["setmaxnreg", "maxnreg"])]
    roles: bool,
    /// Warpgroups that run each setmaxnreg, in the order of the PTX: 1,1,2. Worked out where not given.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', conflicts_with_all = ["setmaxnreg", "maxnreg"])]
    warpgroups: Option<Vec<u32>>,
    /// How many settings of the roles to try, the nearest to the kernel's own.
    #[arg(long, value_name = "N", default_value_t = 24)]
    settings: usize,
    /// Whose rates predict the cycles of each setting: recorded:NAME, model:ARCH, the name of an embedded profile, or a
    /// profile file. Without it spills alone are compared.
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// ptxas' optimisation level.
    #[arg(short = 'O', long = "opt-level", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(0..=3))]
    opt_level: u8,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: RegsArgs) -> Outcome {
    let bytes = read_input(&args.file)?;
    let ptx = String::from_utf8_lossy(&bytes);
    let (most, warpgroups) = (args.settings, args.warpgroups);
    let what = match args.setmaxnreg.as_deref() {
        Some(text) => budgets(text)?,
        None if !args.maxnreg.is_empty() => Sweep::Cap(args.maxnreg),
        None if args.roles => Sweep::Roles { most, warpgroups },
        None => Sweep::Auto { most, warpgroups },
    };
    let options = PtxasOptions { opt_level: args.opt_level, ..PtxasOptions::default() };
    let compiler = Ptxas { tools: Toolchain::find()?, options };
    let profile = args.device.as_deref().map(crate::cmd::microbench::load).transpose()?;
    let arch = target(&ptx, args.arch, &args.file.display().to_string())?;
    let outcome = study(&ptx, arch, &what, profile.as_ref(), &compiler)
        .map_err(|e| Failure::input(format!("{}: {e}", args.file.display())))?;
    print(args.format, &outcome, RegsOutcome::render_text)
}

/// `232=200,216,240`.
fn budgets(text: &str) -> Result<Sweep, Failure> {
    let legal = |n: &u32| n.is_multiple_of(8) && (24..=256).contains(n);
    let number = |t: &str| t.trim().parse::<u32>().ok().filter(legal);
    let parsed = text.split_once('=').and_then(|(old, new)| {
        Some(Sweep::Budget(number(old)?, new.split(',').map(number).collect::<Option<Vec<_>>>()?))
    });
    parsed.ok_or_else(|| {
        Failure::input(format!(
            "--setmaxnreg `{text}`: expected OLD=N,N,... in multiples of 8 from 24 to 256"
        ))
    })
}

struct Ptxas {
    tools: Toolchain,
    options: PtxasOptions,
}

impl Compiler for Ptxas {
    fn assemble(&self, ptx: &str, arch: Arch) -> Result<Build, String> {
        let assembled = self.tools.ptxas(ptx.as_bytes(), arch, &self.options).map_err(|e| e.to_string())?;
        let hex = NvdisasmOptions { hex: true, ..NvdisasmOptions::default() };
        let text = self.tools.disassemble(&assembled.cubin, &hex).map_err(|e| e.to_string())?;
        let mut listing = kbt_sass::parse(text.as_bytes()).map_err(|e| e.to_string())?;
        listing.assembler = Some(format!("ptxas {} -O{}", assembled.version, self.options.opt_level));
        listing.disassembler = self.tools.version(Tool::Nvdisasm).ok().map(|v| format!("nvdisasm {v}"));
        let registers =
            assembled.resources.functions.iter().filter_map(|f| Some((f.function.clone(), f.registers?)));
        Ok(Build { listing, registers: registers.collect(), remarks: remarks(&assembled) })
    }
}
