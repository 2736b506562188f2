//! The machine code that the steps study: the listing of one kernel, its PTX where there is one, and how both came to be.

use super::TargetTuner;
use super::found::Found;
use crate::StepFailure;
use kbt_device::Arch;
use kbt_sass::{Function, Listing};
use kbt_target::artifacts::{Artifact, ArtifactKind};
use kbt_toolchain::{Assembled, NvdisasmOptions, PtxasOptions, Tool, Toolchain};

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
    /// Why the listing may be another build's.
    pub(super) stale: Option<String>,
    /// Why the PTX may be another build's.
    pub(super) ptx_stale: Option<String>,
    /// What the reader must know of how it was chosen.
    pub(super) notes: Vec<String>,
}

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
        let code = self.choose(&found)?;
        self.code = Some(code.clone());
        Ok(code)
    }

    fn choose(&self, found: &Found) -> Result<Code, StepFailure> {
        let refused = |reason: String| {
            StepFailure::Refused {
            reason,
            needs: "PTX, a cubin or a listing: named under build.artifacts, or written to KBT_DUMP by the build or \
                    the run"
                .into(),
        }
        };
        if found.files.is_empty() {
            let because = found.because();
            return Err(refused(format!("no machine code of the target is there{because}")));
        }
        let pattern = self.target.kernel.as_deref().map(|k| kbt_sass::metrics::pattern("kernel", k));
        let pattern = pattern.transpose().map_err(crate::steps::fatal)?;
        let taken = |name: &str| pattern.as_ref().is_none_or(|p| p.is_match(name));
        let mut notes = Vec::new();
        // What runs comes before what could be assembled here.
        for kind in [ArtifactKind::Cubin, ArtifactKind::Sass, ArtifactKind::Ptx] {
            let mut best: Option<(usize, String, Candidate)> = None;
            let mut names = std::collections::BTreeSet::new();
            for artifact in found.of(kind) {
                let candidate = match self.listing(artifact) {
                    Ok(candidate) => candidate,
                    Err(problem) => {
                        notes.push(format!("{}: {problem}", artifact.path.display()));
                        continue;
                    }
                };
                for f in candidate.listing.functions.iter().filter(|f| taken(&f.name)) {
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
                if names.len() > 1 {
                    let all: Vec<String> = names.into_iter().collect();
                    notes.push(format!(
                        "{function} is studied, of {} kernels the one with the most instructions: {}; `kernel:` in the \
                         target file names another",
                        all.len(),
                        all.join(", ")
                    ));
                }
                let (ptx, ptx_stale) = ptx_of(found, &function);
                return Ok(Code {
                    listing: candidate.listing,
                    function,
                    built_by: candidate.built_by,
                    remarks: candidate.remarks,
                    ptx,
                    stale: candidate.stale,
                    ptx_stale,
                    notes,
                });
            }
        }
        let wanted =
            self.target.kernel.as_ref().map_or_else(String::new, |k| format!(" of a kernel like `{k}`"));
        let why = if notes.is_empty() { found.because() } else { format!("; {}", notes.join("; ")) };
        Err(refused(format!("no machine code{wanted} could be read{why}")))
    }

    /// The listing of a file for this device's own target.
    fn listing(&self, artifact: &Artifact) -> Result<Candidate, String> {
        let bytes = std::fs::read(&artifact.path).map_err(|e| e.to_string())?;
        let stale = artifact.stale.clone();
        let arch = self.arch();
        let tools = || {
            self.tools
                .as_ref()
                .ok_or("no CUDA tools: `cargo xtask setup`, or KBT_CUDA set to a toolkit's folder")
        };
        let candidate = match artifact.kind {
            ArtifactKind::Sass => {
                let listing = kbt_sass::parse(&bytes).map_err(|e| e.to_string())?;
                let built_by = listing.assembler.clone().unwrap_or_else(|| "the target's own build".into());
                Candidate { listing, built_by, remarks: Vec::new(), stale }
            }
            ArtifactKind::Cubin => {
                let assembler = kbt_sass::cubin_assembler(&bytes);
                let listing = disassemble(tools()?, &bytes, assembler.clone())?;
                let built_by = assembler.unwrap_or_else(|| "the target's own build".into());
                Candidate { listing, built_by, remarks: Vec::new(), stale }
            }
            ArtifactKind::Ptx => {
                let tools = tools()?;
                let options = PtxasOptions::default();
                let assembled = tools.ptxas(&bytes, arch, &options).map_err(|e| e.to_string())?;
                let built_by = format!("ptxas {} -O3, here", assembled.version);
                let listing = disassemble(tools, &assembled.cubin, Some(built_by.clone()))?;
                Candidate { listing, built_by, remarks: remarks(&assembled), stale }
            }
        };
        let of = candidate.listing.functions.iter().find_map(|f| f.arch);
        match of.filter(|of| !runs_on(*of, arch)) {
            Some(of) => Err(format!("it is {of} code, and the device is {arch}")),
            None => Ok(candidate),
        }
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

/// The PTX that holds a kernel, else the first that there is; with why it may be another build's.
fn ptx_of(found: &Found, function: &str) -> (Option<String>, Option<String>) {
    let texts: Vec<(String, Option<String>)> = found
        .of(ArtifactKind::Ptx)
        .filter_map(|a| {
            let bytes = std::fs::read(&a.path).ok()?;
            Some((String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned(), a.stale.clone()))
        })
        .collect();
    let holds = |text: &str| text.contains(&format!(".entry {function}"));
    let chosen = texts.iter().find(|(t, _)| holds(t)).or_else(|| texts.first());
    chosen.map_or((None, None), |(text, stale)| (Some(text.clone()), stale.clone()))
}
