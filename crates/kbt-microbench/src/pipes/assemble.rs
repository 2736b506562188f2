//! Kernels of single instructions and of mixes: many of them a module, compiled, disassembled and checked.
//!
//! A mix is believed only where its timed window holds what its two instructions hold alone, times their counts.

use super::check::{Refusal, verify};
use super::mixes::{MixTime, Refused, Solo};
use super::plan::{CHAINS, ROUND};
use crate::prepare::{Prepared, PreparedPart, Verified, rejected};
use crate::ptx::{self, KernelPlan, Part};
use crate::rows::round;
use crate::spec::DataKind;
use kbt_device::Arch;
use kbt_toolchain::{NvdisasmOptions, PtxasOptions, Tool, ToolError, Toolchain};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Kernels (of both lengths) that go into one module.
const PER_MODULE: usize = 12;
/// How often a body that came out too long is halved.
const HALVINGS: u32 = 3;

/// What to build: one part alone, or two with their steps, and what each is known to compile to alone.
#[derive(Debug, Clone)]
pub struct Item {
    /// The parts.
    pub parts: Vec<PreparedPart>,
    /// For a mix: the machine code of an operation of each part, opcodes and how many.
    pub alone: Vec<BTreeMap<String, f64>>,
    /// For a mix: the cycles of an operation of each part alone.
    pub cycles: Vec<f64>,
    /// Whether the kernel has the instruction's own name, as the profiler's users look for it.
    plain_name: bool,
    /// How often the body was halved, because it came out too long.
    halved: u32,
}

/// A checked kernel; its module's machine code is shared with others.
#[derive(Debug, Clone)]
pub struct Built {
    /// The kernel, its `cubin` empty.
    pub prepared: Prepared,
    /// The module.
    pub cubin: Arc<Vec<u8>>,
    /// Cycles of a scheduler's register ports for one operation of the first part, and all that goes with it: at least
    /// and at most.
    pub register_port_cycles: [f64; 2],
}

/// Why nothing could be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A compiler tool is missing.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The folder of compiled modules cannot be used.
    #[error("{}: {source}", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Builds modules: the tools, the target, and a folder in which compiled modules are kept.
pub struct Assembler<'a> {
    /// The tools.
    tools: &'a Toolchain,
    arch: Arch,
    cache: Option<&'a Path>,
    versions: String,
}

impl Item {
    /// An instruction alone.
    #[must_use]
    pub fn solo(part: &PreparedPart) -> Self {
        Self {
            parts: vec![part.clone()],
            alone: Vec::new(),
            cycles: Vec::new(),
            plain_name: false,
            halved: 0,
        }
    }

    /// A mix: `counts` operations of each, whose codes and times alone are those of the solos.
    #[must_use]
    pub fn mix(parts: [&PreparedPart; 2], solos: [&Solo; 2], counts: [u32; 2]) -> Self {
        let part = |k: usize| PreparedPart { steps: counts[k] / parts[k].chain.ops, ..parts[k].clone() };
        let alone = solos.map(|s| s.opcodes.clone()).to_vec();
        let cycles = solos.map(|s| s.measured_cycles).to_vec();
        Self { parts: vec![part(0), part(1)], alone, cycles, plain_name: false, halved: 0 }
    }

    /// The kernel with the smaller body gets the name of the instruction and nothing else.
    #[must_use]
    pub fn named_as_is(self) -> Self {
        Self { plain_name: true, ..self }
    }

    /// The name, or the two with ` + `.
    #[must_use]
    pub fn title(&self) -> String {
        title(&self.parts)
    }

    /// Why the two cannot run in one kernel.
    fn clash(&self) -> Option<String> {
        let shared = |p: &PreparedPart| {
            let slots = |k: DataKind| matches!(k, DataKind::Shared(_) | DataKind::Matrix);
            slots(p.chain.x.kind) || p.chain.with.values().any(|d| slots(d.kind))
        };
        (self.parts.iter().filter(|p| shared(p)).count() > 1)
            .then(|| "both keep addresses in the same shared memory".to_owned())
    }

    /// Instructions of a round of all chains.
    fn round(&self) -> f64 {
        let of = |(k, p): (usize, &PreparedPart)| {
            let issued = self.alone.get(k).map_or(2.0, |a| a.values().sum());
            f64::from(p.steps * p.chain.ops) * issued
        };
        f64::from(CHAINS) * self.parts.iter().enumerate().map(of).sum::<f64>()
    }
}

impl<'a> Assembler<'a> {
    /// Asks for the tools' versions, by which kept modules are told apart.
    pub fn new(tools: &'a Toolchain, arch: Arch, cache: Option<&'a Path>) -> Result<Self, AssembleError> {
        if let Some(path) = cache {
            let error = |source| AssembleError::Cache { path: path.to_owned(), source };
            std::fs::create_dir_all(path).map_err(error)?;
        }
        let versions = format!("{} {}", tools.version(Tool::Ptxas)?, tools.version(Tool::Nvdisasm)?);
        Ok(Self { tools, arch, cache, versions })
    }

    /// The compile target.
    #[must_use]
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// Builds all items, on all cores, in their order. What cannot be built or believed is refused with its reason.
    pub fn build(&self, items: &[Item]) -> Result<Vec<Result<Built, Refused>>, AssembleError> {
        let chunks: Vec<&[Item]> = items.chunks(PER_MODULE).collect();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(chunks.len().max(1));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(chunk) = chunks.get(at) else { break };
                        let result = self.chunk(chunk);
                        if let Ok(mut done) = done.lock() {
                            done.push((at, result));
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_default();
        done.sort_by_key(|(at, _)| *at);
        let mut all = Vec::with_capacity(items.len());
        for (_, result) in done {
            all.extend(result?);
        }
        Ok(all)
    }

    /// One module; where ptxas refuses it, each item in a module of its own, so that the others go on.
    fn chunk(&self, items: &[Item]) -> Result<Vec<Result<Built, Refused>>, AssembleError> {
        match self.module(items) {
            Ok(built) => items.iter().zip(built).map(|(item, built)| self.settled(item, built)).collect(),
            Err(AssembleError::Tool(ToolError::Failed { .. })) if items.len() > 1 => {
                let mut all = Vec::new();
                for item in items {
                    all.extend(self.chunk(std::slice::from_ref(item))?);
                }
                Ok(all)
            }
            Err(AssembleError::Tool(error @ ToolError::Failed { .. })) => {
                let parts = items.first().map_or(&[][..], |i| &i.parts);
                let why = rejected(parts, &self.source(items).0, &error);
                Ok(items.iter().map(|i| Err(Refused { what: i.title(), why: why.clone() })).collect())
            }
            Err(other) => Err(other),
        }
    }

    /// What became of one item; with half the body where it was too long.
    fn settled(
        &self,
        item: &Item,
        built: Result<Built, Refusal>,
    ) -> Result<Result<Built, Refused>, AssembleError> {
        match built {
            Ok(built) => Ok(Ok(built)),
            Err(Refusal::TooLong(_)) if item.halved < HALVINGS => {
                let shorter = Item { halved: item.halved + 1, ..item.clone() };
                let again = self.module(std::slice::from_ref(&shorter))?.pop();
                match again {
                    Some(again) => self.settled(&shorter, again),
                    None => Ok(Err(Refused { what: item.title(), why: "no kernel was made".to_owned() })),
                }
            }
            Err(Refusal::TooLong(why) | Refusal::Other(why)) => Ok(Err(Refused { what: item.title(), why })),
        }
    }

    /// The PTX of a module, and the two kernels of each item.
    fn source(&self, items: &[Item]) -> (String, Vec<[KernelPlan; 2]>) {
        let number = |v: &&str| v.split('.').map(|n| n.parse().unwrap_or(0u32)).collect::<Vec<_>>();
        let wanted =
            items.iter().flat_map(|i| &i.parts).filter_map(|p| p.entry.ptx.as_deref()).max_by_key(number);
        let mut text = ptx::header(self.arch, wanted);
        let mut plans = Vec::with_capacity(items.len());
        for (k, item) in items.iter().enumerate() {
            let parts: Vec<Part<'_>> =
                item.parts.iter().map(|p| Part { chain: &p.chain, steps: p.steps }).collect();
            let round: u32 = parts.iter().map(|p| p.steps * p.chain.ops * CHAINS).sum();
            let most = item.parts.iter().map(|p| p.chain.unroll).min().unwrap_or(round);
            let rounds = match &item.parts[..] {
                [_] => most / round.max(1),
                _ => (ROUND / item.round()) as u32,
            };
            let rounds = (rounds >> item.halved).max(1);
            let mut pair = ptx::plans(&format!("k{k}_{}", item.title()), &parts, rounds * round, CHAINS);
            if item.plain_name {
                pair[0].name = ptx::identifier(&item.title());
            }
            for plan in &pair {
                text.push_str(&ptx::kernel(plan, &parts));
            }
            plans.push(pair);
        }
        (text, plans)
    }

    fn module(&self, items: &[Item]) -> Result<Vec<Result<Built, Refusal>>, AssembleError> {
        let (text, plans) = self.source(items);
        let (cubin, sass) = self.compiled(&text)?;
        let listing = kbt_sass::parse(&sass);
        let digest = blake3::hash(&cubin).to_hex()[..16].to_owned();
        let cubin = Arc::new(cubin);
        let check = |(item, plans): (&Item, [KernelPlan; 2])| {
            if let Some(why) = item.clash() {
                return Err(Refusal::Other(why));
            }
            let listing = listing.as_ref().map_err(|e| Refusal::Other(e.to_string()))?;
            let (verified, register_port_cycles) = verify(self.arch, listing, plans, item)?;
            let prepared = Prepared {
                parts: item.parts.clone(),
                form: if item.parts.len() == 1 { "solo".to_owned() } else { "mix".to_owned() },
                cubin: Vec::new(),
                digest: digest.clone(),
                verified: vec![verified],
                refused: Vec::new(),
            };
            Ok(Built { prepared, cubin: Arc::clone(&cubin), register_port_cycles })
        };
        Ok(items.iter().zip(plans).map(check).collect())
    }

    /// Machine code and listing of a module, from the folder of kept ones where it was made before.
    fn compiled(&self, text: &str) -> Result<(Vec<u8>, Vec<u8>), AssembleError> {
        // The listing has the encoding, for its scheduling fields: `hex` tells it from one without.
        let key = blake3::hash(format!("{} {} hex\n{text}", self.versions, self.arch).as_bytes()).to_hex();
        let files =
            self.cache.map(|dir| ["cubin", "sass"].map(|kind| dir.join(format!("{}.{kind}", &key[..32]))));
        if let Some([cubin, sass]) = &files
            && let (Ok(cubin), Ok(sass)) = (std::fs::read(cubin), std::fs::read(sass))
        {
            return Ok((cubin, sass));
        }
        let options = PtxasOptions { verbose: false, ..PtxasOptions::default() };
        let cubin = self.tools.ptxas(text.as_bytes(), self.arch, &options)?.cubin;
        let sass = self
            .tools
            .disassemble(&cubin, &NvdisasmOptions { hex: true, ..NvdisasmOptions::default() })?
            .into_bytes();
        if let Some([to_cubin, to_sass]) = &files {
            // The listing last, and each whole: a pair that is there is complete.
            for (path, bytes) in [(to_cubin, &cubin), (to_sass, &sass)] {
                let error = |source| AssembleError::Cache { path: path.clone(), source };
                let part = path.with_extension("part");
                std::fs::write(&part, bytes).map_err(error)?;
                std::fs::rename(&part, path).map_err(error)?;
            }
        }
        Ok((cubin, sass))
    }
}

impl Built {
    /// The instruction's name, or the two with ` + `.
    #[must_use]
    pub fn title(&self) -> String {
        title(&self.prepared.parts)
    }

    /// The kernels.
    #[must_use]
    pub fn verified(&self) -> &Verified {
        // One is made for each built kernel.
        &self.prepared.verified[0]
    }

    /// The solo that this kernel measures, its time left open.
    #[must_use]
    pub fn solo(&self, measured_cycles: f64) -> Solo {
        let code = &self.verified().code;
        Solo {
            instruction: self.title(),
            opcodes: code.per_op.iter().map(|p| (p.opcode.clone(), p.count)).collect(),
            targets: code.per_op.iter().filter(|p| p.target).map(|p| p.opcode.clone()).collect(),
            register_port_cycles: Some(self.register_port_cycles.map(|c| round(c, 1000.0))),
            measured_cycles,
        }
    }

    /// The mix that this kernel measures: `counts` operations of each, and the time of one of the first.
    #[must_use]
    pub fn mix(&self, of: [String; 2], counts: [u32; 2], operation_cycles: f64) -> MixTime {
        let first = f64::from(counts[0]);
        let register_port_cycles = Some(self.register_port_cycles.map(|c| round(c * first, 1000.0)));
        MixTime { of, counts, register_port_cycles, measured_cycles: operation_cycles * first }
    }
}

/// The names of entries, with ` + ` between them.
fn title(parts: &[PreparedPart]) -> String {
    parts.iter().map(|p| p.entry.name.as_str()).collect::<Vec<_>>().join(" + ")
}
