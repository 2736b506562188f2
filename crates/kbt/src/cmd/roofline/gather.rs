//! `kbt roofline gather`: runs a target for its times, under the profiler and through the disassembler, and writes
//! what they say as a fact sheet. What becomes of it is kbt-roofline's work.

use super::{ceilings_profile, name, text, write_sheet};
use crate::output::{Failure, Outcome};
use kbt_gpu::Gpu;
use kbt_roofline::{CONDITIONS, FactSheet, Gathered, Import, MachineCode, ProfilerRequest, import};
use kbt_sass::{InputKind, Listing};
use kbt_target::artifacts::{self, ArtifactKind, Snapshot};
use kbt_target::{Launch, LaunchRequest, Launcher, ProcessLauncher, Status, Target};
use kbt_toolchain::{NvdisasmOptions, Tool, Toolchain};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(super) struct Args {
    /// A target file; its `facts.sheet` declares operator, shape, dtypes and dataflow.
    target: PathBuf,
    /// Where to write the sheet; standard output where absent.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Whose ceilings go into the sheet, where they are the same device's: as for triage.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Processes that are timed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The kernel to profile and to look for in the machine code; `profiler.kernel` of the sheet where absent.
    #[arg(long)]
    kernel: Option<String>,
    /// Launches of it that are profiled.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    profiled: u32,
    /// Keep the profiler's table here.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Do not profile.
    #[arg(long)]
    no_profiler: bool,
    /// Do not build; what is there is run.
    #[arg(long)]
    no_build: bool,
    /// Overwrite the sheet.
    #[arg(long)]
    force: bool,
    /// How to print the sheet on standard output.
    #[arg(long, value_enum, default_value_t)]
    format: crate::output::Format,
}

/// A profiled process replays each launch many times.
const PROFILER_PATIENCE: f64 = 10.0;
/// Tries with fewer metrics before giving up.
const TRIES: usize = 6;

pub(super) fn run(args: &Args) -> Outcome {
    let target = Target::find(&args.target)?;
    let declared = declared(&target)?;
    let scratch = Scratch::new()?;
    let dump = scratch.0.join("dump");
    std::fs::create_dir_all(&dump).map_err(|e| Failure::input(format!("{}: {e}", dump.display())))?;
    let before = Snapshot::of(&target);
    let launcher = ProcessLauncher::new(&target);
    if let (false, Some(built)) = (args.no_build, launcher.build(Some(&dump))) {
        ended_well(&built, &target, "build")?;
    }
    let mut launches = Vec::new();
    for run in 0..args.runs {
        crate::output::tell!("kbt: {}: run {} of {}", target.name, run + 1, args.runs);
        let request = LaunchRequest {
            dump: (run == 0).then(|| dump.clone()),
            ..LaunchRequest::timed(target.default_setting())
        };
        let launch = launcher.launch(&request);
        ended_well(&launch, &target, "run")?;
        launches.push(launch);
    }
    let tools = Toolchain::find().ok();
    let kernel = args.kernel.clone().or_else(|| declared.profiler.as_ref().and_then(|p| p.kernel.clone()));
    let profile = match (&tools, args.no_profiler) {
        (_, true) => None,
        (Some(tools), false) if tools.has(Tool::Ncu) => {
            profile(args, &target, tools, kernel.as_deref(), &scratch.0)?
        }
        _ => {
            crate::output::tell!("kbt: ncu was not found: the sheet will hold no counters");
            None
        }
    };
    let named = kernel.or_else(|| profile.as_ref().map(|(p, _)| base_name(&p.kernel).to_owned()));
    let machine_code = match &tools {
        Some(tools) => machine_code(&target, tools, &dump, &before, named.as_deref())?,
        None => None,
    };
    if machine_code.is_none() {
        crate::output::tell!(
            "kbt: no machine code of the kernel was found: the sheet will not say what it holds"
        );
    }
    let info = Gpu::open(0).ok().map(|gpu| gpu.info().clone());
    let said = |of: fn(&Launch) -> Option<String>| launches.iter().find_map(of);
    let gathered = Gathered {
        command: format!("kbt roofline gather {}", args.target.display()),
        device: said(|l| l.report.device.clone()).or(info.as_ref().map(|i| i.name.clone())),
        driver: info.as_ref().map(kbt_gpu::DeviceInfo::driver).or(said(|l| l.report.driver.clone())),
        date: kbt_target::today(),
        launches_us: launches.iter().flat_map(|l| l.report.times_us.iter().copied()).collect(),
        processes: launches.len(),
        profile,
        machine_code,
        sm_count: info.as_ref().map(|i| f64::from(i.sm_count)),
        l2_bytes: info.as_ref().map(|i| i.l2_bytes as f64),
        ceilings: ceilings_profile(&args.device)?.map(|p| (p.device.unwrap_or(p.name), p.ceilings)),
    };
    let sheet = gathered.into_sheet(declared);
    write_sheet(&sheet, || Ok(sheet.to_yaml()?), args.out.as_deref(), args.force, args.format)
}

/// The sheet that the target file names, or what it says inline.
fn declared(target: &Target) -> Result<FactSheet, Failure> {
    let mut sheet = match &target.facts.sheet {
        Some(path) => {
            let path = target.path(path);
            FactSheet::from_yaml(&text(&path)?, &name(&path))?
        }
        None => {
            let mut sheet = FactSheet::default();
            if let Some(formula) = &target.facts.formula {
                sheet.operator.get_or_insert_default().formula = Some(formula.clone());
            }
            sheet
        }
    };
    sheet.name.get_or_insert_with(|| target.name.clone());
    Ok(sheet)
}

/// A folder for what the tools and the program leave, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("kbt-gather-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is there has been read; a leftover does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ended_well(launch: &Launch, target: &Target, what: &str) -> Result<(), Failure> {
    let said = launch.stderr_tail.trim();
    match &launch.status {
        Status::Ok => Ok(()),
        Status::Refused { reason } => Err(Failure::Refused(format!("{}: {what}: {reason}", target.name))),
        status => Err(Failure::input(format!(
            "{}: the {what} of the target: {status}{}{said}",
            target.name,
            if said.is_empty() { "" } else { ": " }
        ))),
    }
}

/// Runs the target's process under ncu, with fewer metrics each time it refuses some. `None` where it counted
/// nothing; then its complaint is printed.
fn profile(
    args: &Args,
    target: &Target,
    tools: &Toolchain,
    kernel: Option<&str>,
    scratch: &Path,
) -> Result<Option<(Import, String)>, Failure> {
    let ncu = tools.path(Tool::Ncu)?.display().to_string();
    let log = scratch.join("ncu.csv");
    let mut request = Some(ProfilerRequest::all());
    let mut said = String::new();
    for _ in 0..TRIES {
        let Some(asked) = request else { break };
        let mut profiled = target.clone();
        let arguments = asked.arguments(kernel, args.profiled, &log.display().to_string());
        profiled.run.command =
            std::iter::once(ncu.clone()).chain(arguments).chain(program(target)?).collect();
        profiled.run.env.insert("LC_ALL".into(), "C".into());
        profiled.limits.run_s *= PROFILER_PATIENCE;
        crate::output::tell!("kbt: {}: under ncu", target.name);
        // A log of the last try must not be taken for this one's; its absence is the usual case.
        let _ = std::fs::remove_file(&log);
        let launch = ProcessLauncher::new(&profiled)
            .launch(&LaunchRequest { setting: target.default_setting(), ..LaunchRequest::default() });
        let table = std::fs::read(&log).unwrap_or_default();
        if let Ok(found) = import(&table, &name(args.csv.as_deref().unwrap_or(&log)), kernel)
            && found.launches > 0
        {
            if let Some(csv) = &args.csv {
                std::fs::write(csv, &table).map_err(|e| Failure::input(format!("{}: {e}", csv.display())))?;
            }
            // That clocks and caches are left alone is what was asked for.
            let asked = |p: &&String| {
                !["uncontrolled GPU caches", "unmodified GPU clocks"].iter().any(|n| p.contains(n))
            };
            for problem in found.problems.iter().filter(asked) {
                crate::output::tell!("kbt: ncu: {problem}");
            }
            for other in &found.left_out {
                crate::output::tell!("kbt: ncu: left out, of another size than the launches read: {other}");
            }
            return Ok(Some((found, format!("ncu {} {CONDITIONS}", tools.version(Tool::Ncu)?))));
        }
        let complaint = String::from_utf8_lossy(&table).into_owned();
        said = format!("{}\n{complaint}{}\n{}", launch.status, launch.stdout_tail, launch.stderr_tail);
        request = asked.after(&said);
    }
    crate::output::tell!(
        "kbt: ncu counted nothing, so the sheet will hold no counters; it said: {}",
        said.trim()
    );
    Ok(None)
}

/// The target's own command, as ncu can start it.
fn program(target: &Target) -> Result<Vec<String>, Failure> {
    let launcher = ProcessLauncher::new(target);
    let request = LaunchRequest { setting: target.default_setting(), ..LaunchRequest::default() };
    let mut command = launcher.command(&request);
    if let Some(first) = command.first_mut().filter(|first| *first == "kbt") {
        *first = std::env::current_exe()?.display().to_string();
    }
    Ok(command)
}

/// `k` of `void ns::k<float>(float *)`.
fn base_name(kernel: &str) -> &str {
    let head = kernel.split(['(', '<']).next().unwrap_or(kernel).trim();
    head.rsplit(['>', ':', ' ']).next().unwrap_or(head)
}

/// The facts of the kernel's machine code: from what the build left or a run dumped, else from the program itself.
fn machine_code(
    target: &Target,
    tools: &Toolchain,
    dump: &Path,
    before: &Snapshot,
    kernel: Option<&str>,
) -> Result<Option<MachineCode>, Failure> {
    let mut files: Vec<PathBuf> = artifacts::find(target, &[dump], before)
        .into_iter()
        .filter(|a| a.kind != ArtifactKind::Ptx)
        .map(|a| a.path)
        .collect();
    let folder = target.path(target.run.directory.as_deref().unwrap_or(Path::new("")));
    let own = target.run.command.first().filter(|c| c.contains('/')).map(|c| folder.join(c));
    files.extend(own.filter(|path| path.is_file()));
    for file in files {
        let listing = listing(&file, tools)?;
        let Some(listing) = listing else { continue };
        let mut functions = listing.functions.iter().filter(|f| {
            // Names are mangled in the listing: the length stands before the name.
            kernel.is_none_or(|k| f.name == k || f.name.contains(&format!("{}{k}", k.len())))
        });
        let (Some(function), None) = (functions.next(), functions.next()) else { continue };
        let counted = kbt_sass::measure(&listing, kbt_sass::MeasureOptions::default());
        let Some(section) = counted.functions.iter().find(|s| s.name == function.name) else { continue };
        let local = &section.local_memory;
        let spilled = local.spill_store_bytes.max(local.spill_load_bytes)
            + local.shared_spill_store_bytes.max(local.shared_spill_load_bytes);
        let opcodes = function.instructions.iter().map(kbt_sass::Instruction::opcode);
        let roles = !section.regions.is_empty();
        let found =
            MachineCode::of(function.name.as_str(), opcodes, spilled, roles, counted.provenance.clone());
        return Ok(Some(found));
    }
    Ok(None)
}

/// The listing of a file with machine code; none where the file holds no such thing.
fn listing(file: &Path, tools: &Toolchain) -> Result<Option<Listing>, Failure> {
    let bytes = std::fs::read(file).map_err(|e| Failure::input(format!("{}: {e}", file.display())))?;
    let (text, by) = match kbt_sass::input_kind(&bytes) {
        InputKind::Cubin => {
            let options = NvdisasmOptions { hex: true, ..NvdisasmOptions::default() };
            (tools.disassemble(&bytes, &options)?.into(), Some(Tool::Nvdisasm))
        }
        InputKind::Container => {
            let path = file.as_os_str();
            let printed = tools.run(Tool::Cuobjdump, None, [std::ffi::OsStr::new("-sass"), path]);
            let Ok(printed) = printed else { return Ok(None) };
            (printed.stdout, Some(Tool::Cuobjdump))
        }
        InputKind::Ptx => return Ok(None),
        _ => (bytes.clone(), None),
    };
    let Ok(mut listing) = kbt_sass::parse(&text) else { return Ok(None) };
    listing.assembler = kbt_sass::cubin_assembler(&bytes).or(listing.assembler);
    if let Some(tool) = by {
        listing.disassembler = Some(format!("{tool} {}", tools.version(tool)?));
    }
    Ok(Some(listing))
}

#[cfg(test)]
mod tests {
    use super::base_name;

    #[test]
    fn a_kernel_is_known_by_its_own_name() {
        for (full, base) in [
            ("triad(const float4 *, float)", "triad"),
            ("void planted::fill<float>(float *, unsigned long)", "fill"),
            ("gemm", "gemm"),
        ] {
            assert_eq!(base_name(full), base);
        }
    }
}
