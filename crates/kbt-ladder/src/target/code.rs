//! The machine code that the steps study: the listing of one kernel, its PTX where there is one, and how both came to be.

use super::TargetTuner;
use super::found::Found;
use crate::StepFailure;
use kbt_device::Arch;
use kbt_sass::{Function, Listing};
use kbt_target::artifacts::{Artifact, ArtifactKind};
use kbt_toolchain::{Assembled, NvdisasmOptions, PtxasOptions, Tool, Toolchain};
use std::path::PathBuf;

/// One kernel's machine code.
#[derive(Debug, Clone)]
pub(super) struct Code {
    /// The listing that holds it.
    pub(super) listing: Listing,
    /// The kernel's name.
    pub(super) function: String,
    /// The assembler and what it was told.
    pub(super) built_by: String,
    /// What the assembler remarked, where it was run here.
    pub(super) remarks: Vec<String>,
    /// The PTX with that kernel.
    pub(super) ptx: Option<String>,
    /// Where that PTX lies.
    pub(super) ptx_file: Option<PathBuf>,
    /// Why the listing may be another build's.
    pub(super) stale: Option<String>,
    /// Why the PTX may be another build's.
    pub(super) ptx_stale: Option<String>,
    /// What the reader must know of how it was chosen.
    pub(super) notes: Vec<String>,
    /// Why this kernel is the one.
    pub(super) chosen: String,
    /// Files that could not be read before it was found, and why.
    pub(super) broken: Vec<(PathBuf, String)>,
}

/// Why a file gives no listing.
enum Unread {
    /// It is for other devices, or there are no tools to read it with: nothing is wrong with it.
    NotHere(String),
    /// It cannot be read.
    Broken(String),
}

/// Why no kernel is studied.
pub(super) struct NoKernel {
    pub(super) reason: String,
    /// Whether it is for want of the CUDA tools.
    pub(super) no_tools: bool,
    /// Files that could not be read, and why.
    pub(super) broken: Vec<(PathBuf, String)>,
}

const NO_TOOLS: &str = "no CUDA tools: `cargo xtask setup`, or KBT_CUDA set to a toolkit's folder";

impl Code {
    /// The kernel.
    pub(super) fn kernel(&self) -> Option<&Function> {
        self.listing.function(&self.function)
    }
}

/// A listing that could be had from a file.
struct Candidate {
    listing: Listing,
    built_by: String,
    remarks: Vec<String>,
    stale: Option<String>,
}

impl TargetTuner<'_> {
    /// The machine code of the kernel under study; refused where there is none for this device.
    pub(super) fn code(&mut self) -> Result<Code, StepFailure> {
        if let Some(code) = &self.code {
            return Ok(code.clone());
        }
        let found = self.found()?;
        let code = self.choose(&found).map_err(|none| {
            StepFailure::Refused {
                reason: none.reason,
                needs: "PTX, a cubin or a listing: named under build.artifacts, or written to KBT_DUMP by the build or \
                        the run"
                    .into(),
            }
        })?;
        self.code = Some(code.clone());
        Ok(code)
    }

    /// The kernel that the steps study: the largest that `kernel:` takes, in what runs before what is assembled here.
    pub(super) fn choose(&self, found: &Found) -> Result<Code, NoKernel> {
        let because = found.because();
        let none = |reason: String| NoKernel { reason, no_tools: false, broken: Vec::new() };
        if found.files.is_empty() {
            return Err(none(format!("no machine code of the target is there{because}")));
        }
        let named = self.target.kernel.as_deref();
        let pattern = named.map(|k| kbt_sass::metrics::pattern("kernel", k)).transpose();
        let pattern = pattern.map_err(|e| none(e.to_string()))?;
        let taken = |name: &str| pattern.as_ref().is_none_or(|p| p.is_match(name));
        let (mut broken, mut others) = (Vec::new(), std::collections::BTreeSet::new());
        let mut no_tools = false;
        let mut notes = Vec::new();
        // What runs comes before what could be assembled here.
        for kind in [ArtifactKind::Cubin, ArtifactKind::Sass, ArtifactKind::Ptx] {
            let mut best: Option<(usize, String, Candidate)> = None;
            let mut names = std::collections::BTreeSet::new();
            for artifact in found.of(kind) {
                let candidate = match self.listing(artifact) {
                    Ok(candidate) => candidate,
                    Err(unread) => {
                        let (Unread::NotHere(problem) | Unread::Broken(problem)) = &unread;
                        notes.push(format!("{}: {problem}", artifact.path.display()));
                        no_tools |= problem == NO_TOOLS;
                        if let Unread::Broken(problem) = unread {
                            broken.push((artifact.path.clone(), problem));
                        }
                        continue;
                    }
                };
                for f in &candidate.listing.functions {
                    if !taken(&f.name) {
                        others.insert(f.name.clone());
                        continue;
                    }
                    names.insert(f.name.clone());
                    let larger = best.as_ref().is_none_or(|(n, ..)| f.instructions.len() > *n);
                    if larger {
                        let listing = Listing { functions: vec![f.clone()], ..candidate.listing.clone() };
                        let kept = Candidate {
                            listing,
                            built_by: candidate.built_by.clone(),
                            remarks: candidate.remarks.clone(),
                            stale: candidate.stale.clone(),
                        };
                        best = Some((f.instructions.len(), f.name.clone(), kept));
                    }
                }
            }
            if let Some((_, function, candidate)) = best {
                let all: Vec<String> = names.into_iter().collect();
                let chosen = match named {
                    None if all.len() == 1 => {
                        format!("{function} is studied, the only kernel of the machine code")
                    }
                    Some(named) if all.len() == 1 => {
                        format!("{function} is studied, which `kernel: {named}` names")
                    }
                    _ => format!(
                        "{function} is studied, of {} kernels{} the one with the most instructions: {}; `kernel:` in \
                         the target file names another",
                        all.len(),
                        named.map_or_else(String::new, |k| format!(" that `kernel: {k}` names")),
                        all.join(", ")
                    ),
                };
                notes.extend((all.len() > 1).then(|| chosen.clone()));
                let (ptx, of) = ptx_of(found, &function).unzip();
                return Ok(Code {
                    listing: candidate.listing,
                    function,
                    built_by: candidate.built_by,
                    remarks: candidate.remarks,
                    ptx,
                    stale: candidate.stale,
                    ptx_file: of.map(|a| a.path.clone()),
                    ptx_stale: of.and_then(|a| a.stale.clone()),
                    notes,
                    chosen,
                    broken,
                });
            }
        }
        let wanted = named.map_or_else(String::new, |k| format!(" of a kernel like `{k}`"));
        let there = (!others.is_empty()).then(|| {
            let all: Vec<String> = others.into_iter().collect();
            format!("the kernels there are {}", all.join(", "))
        });
        notes.extend(there);
        let why = if notes.is_empty() { because } else { format!("; {}", notes.join("; ")) };
        Err(NoKernel { reason: format!("no machine code{wanted} could be read{why}"), no_tools, broken })
    }

    /// The listing of a file for this device's own target.
    fn listing(&self, artifact: &Artifact) -> Result<Candidate, Unread> {
        let broken = |e: std::io::Error| Unread::Broken(e.to_string());
        let bytes = std::fs::read(&artifact.path).map_err(broken)?;
        let stale = artifact.stale.clone();
        let arch = self.arch();
        let tools = || self.tools.as_ref().ok_or_else(|| Unread::NotHere(NO_TOOLS.to_owned()));
        let candidate = match artifact.kind {
            ArtifactKind::Sass => {
                let listing = kbt_sass::parse(&bytes).map_err(|e| Unread::Broken(e.to_string()))?;
                let built_by = listing.assembler.clone().unwrap_or_else(|| "the target's own build".into());
                Candidate { listing, built_by, remarks: Vec::new(), stale }
            }
            ArtifactKind::Cubin => {
                let assembler = kbt_sass::cubin_assembler(&bytes);
                let listing = disassemble(tools()?, &bytes, assembler.clone())
                    .map_err(|e| Unread::Broken(e.trim().replace('\n', "; ")))?;
                let built_by = assembler.unwrap_or_else(|| "the target's own build".into());
                Candidate { listing, built_by, remarks: Vec::new(), stale }
            }
            ArtifactKind::Ptx => {
                let tools = tools()?;
                let options = PtxasOptions::default();
                let assembled = tools.ptxas(&bytes, arch, &options);
                let assembled = assembled.map_err(|e| unassembled(&bytes, arch, e.to_string()))?;
                let built_by = format!("ptxas {} -O3, here", assembled.version);
                let listing = disassemble(tools, &assembled.cubin, Some(built_by.clone()));
                let listing = listing.map_err(|e| Unread::Broken(e.trim().replace('\n', "; ")))?;
                Candidate { listing, built_by, remarks: remarks(&assembled), stale }
            }
        };
        let of = candidate.listing.functions.iter().find_map(|f| f.arch);
        match of.filter(|of| !runs_on(*of, arch)) {
            Some(of) => Err(Unread::NotHere(format!("it is {of} code, and the device is {arch}"))),
            None => Ok(candidate),
        }
    }
}

/// Why PTX does not assemble for a device: it may be for another one.
fn unassembled(ptx: &[u8], arch: Arch, problem: String) -> Unread {
    let module = kbt_ptx::parse(&String::from_utf8_lossy(ptx));
    let target = module.ok().and_then(|m| m.target.split(',').next()?.trim().parse::<Arch>().ok());
    match target.filter(|of| of.suffix.is_some() && *of != arch || of.sm > arch.sm) {
        Some(of) => Unread::NotHere(format!("it is PTX of {of}, and the device is {arch}")),
        None => Unread::Broken(problem.trim().replace('\n', "; ")),
    }
}

/// Whether code of one target is what a device of another would run: the same compute capability, or an older one of
/// the same generation that is not specific to its part.
fn runs_on(code: Arch, device: Arch) -> bool {
    code.sm == device.sm
        || (code.suffix != Some('a') && code.major() == device.major() && code.sm <= device.sm)
}

/// A listing of a cubin with its encoding.
pub(super) fn disassemble(
    tools: &Toolchain,
    cubin: &[u8],
    assembler: Option<String>,
) -> Result<Listing, String> {
    let options = NvdisasmOptions { hex: true, ..NvdisasmOptions::default() };
    let text = tools.disassemble(cubin, &options).map_err(|e| e.to_string())?;
    let mut listing = kbt_sass::parse(text.as_bytes()).map_err(|e| e.to_string())?;
    listing.assembler = assembler.or(listing.assembler);
    listing.disassembler = tools.version(Tool::Nvdisasm).ok().map(|v| format!("nvdisasm {v}"));
    Ok(listing)
}

/// What ptxas remarked, code first.
pub(super) fn remarks(assembled: &Assembled) -> Vec<String> {
    let messages = assembled.resources.messages.iter();
    messages.map(|m| m.code.as_ref().map_or_else(|| m.text.clone(), |c| format!("{c}: {}", m.text))).collect()
}

/// The PTX that holds a kernel, else the first that there is.
fn ptx_of<'f>(found: &'f Found, function: &str) -> Option<(String, &'f Artifact)> {
    let mut texts: Vec<(String, &Artifact)> = found
        .of(ArtifactKind::Ptx)
        .filter_map(|a| {
            let bytes = std::fs::read(&a.path).ok()?;
            Some((String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned(), a))
        })
        .collect();
    let entry = format!(".entry {function}");
    let chosen = texts.iter().position(|(text, _)| text.contains(&entry)).unwrap_or(0);
    (chosen < texts.len()).then(|| texts.swap_remove(chosen))
}
