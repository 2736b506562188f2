//! From the corpus to machine code: assembled, disassembled, each kernel's loop found. No GPU is needed.

use super::{LoopSource, corpus, module};
use crate::prepare::on_all_cores;
use kbt_device::Arch;
use kbt_sass::{Function, Graph, LoopKind};
use kbt_toolchain::{NvdisasmOptions, PtxasOptions, Tool, ToolError, Toolchain};

/// Kernels of one module.
const BATCH: usize = 24;

/// One loop with its machine code.
#[derive(Debug, Clone)]
pub struct PreparedLoop {
    /// The kernel's name.
    pub name: String,
    /// The family's name.
    pub family: String,
    /// Threads a block at most.
    pub max_threads: u32,
    /// Registers a thread.
    pub registers: u32,
    /// The digest of its instructions' encodings, 16 hex digits.
    pub digest: String,
    /// The kernel.
    pub function: Function,
    /// The loop's instructions in the kernel, in order.
    pub body: std::ops::Range<usize>,
}

/// A module and its loops.
#[derive(Debug, Clone)]
pub struct LoopModule {
    /// The machine code.
    pub cubin: Vec<u8>,
    /// Its loops.
    pub loops: Vec<PreparedLoop>,
    /// Kernels that are not one straight loop between the clock reads, and why.
    pub refused: Vec<(String, String)>,
}

/// A module compiled elsewhere (from CUDA C++), with what its compiler said.
pub struct CompiledLoops<'a> {
    /// The machine code.
    pub cubin: &'a [u8],
    /// The PTX it was assembled from: it says how many threads a block may have.
    pub ptx: &'a [u8],
}

/// The generated families for `arch` that `only` takes, and `compiled` loops beside them; on all cores.
pub fn prepare(
    arch: Arch,
    tools: &Toolchain,
    only: &dyn Fn(&str) -> bool,
    compiled: &[CompiledLoops<'_>],
) -> Result<Vec<LoopModule>, ToolError> {
    // Asked once here, so that a missing tool is one error.
    tools.path(Tool::Ptxas)?;
    tools.path(Tool::Nvdisasm)?;
    let corpus: Vec<LoopSource> = corpus().into_iter().filter(|l| only(l.family)).collect();
    let jobs: Vec<&[LoopSource]> = corpus.chunks(BATCH).collect();
    let made = on_all_cores(&jobs, |job| assemble(arch, tools, job));
    let mut modules = made.into_iter().collect::<Result<Vec<_>, _>>()?;
    for c in compiled {
        let entries = entries(&String::from_utf8_lossy(c.ptx));
        let text = tools.disassemble(c.cubin, &NvdisasmOptions { hex: true, ..Default::default() })?;
        modules.push(find_loops(c.cubin.to_vec(), &text, &entries, |name| {
            name.split('_').next().unwrap_or(name).to_owned()
        }));
    }
    Ok(modules)
}

fn assemble(arch: Arch, tools: &Toolchain, loops: &[LoopSource]) -> Result<LoopModule, ToolError> {
    let assembled = tools.ptxas(module(arch, loops).as_bytes(), arch, &PtxasOptions::default())?;
    let text = tools.disassemble(&assembled.cubin, &NvdisasmOptions { hex: true, ..Default::default() })?;
    let entries: Vec<(String, u32)> = loops.iter().map(|l| (l.name.clone(), l.max_threads)).collect();
    let family =
        |name: &str| loops.iter().find(|l| l.name == name).map_or_else(String::new, |l| l.family.to_owned());
    Ok(find_loops(assembled.cubin, &text, &entries, family))
}

/// The kernels of a PTX module and the threads a block of each may have.
fn entries(ptx: &str) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    for line in ptx.lines() {
        if let Some(rest) = line.trim().strip_prefix(".visible .entry ") {
            all.push((rest.trim_end_matches('(').to_owned(), 1024));
        } else if let Some(rest) = line.trim().strip_prefix(".maxntid ")
            && let Some(last) = all.last_mut()
            && let Some(n) = rest.split(',').next().and_then(|n| n.trim().parse().ok())
        {
            last.1 = n;
        }
    }
    all
}

fn find_loops(
    cubin: Vec<u8>,
    text: &str,
    entries: &[(String, u32)],
    family: impl Fn(&str) -> String,
) -> LoopModule {
    let mut module = LoopModule { cubin, loops: Vec::new(), refused: Vec::new() };
    let listing = match kbt_sass::parse(text.as_bytes()) {
        Ok(listing) => listing,
        Err(e) => {
            module.refused.extend(entries.iter().map(|(name, _)| (name.clone(), e.to_string())));
            return module;
        }
    };
    for (name, max_threads) in entries {
        let Some(function) = listing.functions.iter().find(|f| f.name == *name) else {
            module.refused.push((name.clone(), "the machine code lacks it".to_owned()));
            continue;
        };
        match body(function) {
            Ok(body) => module.loops.push(PreparedLoop {
                family: family(name),
                name: name.clone(),
                max_threads: *max_threads,
                registers: registers(function),
                digest: digest(function),
                function: function.clone(),
                body,
            }),
            Err(why) => module.refused.push((name.clone(), why)),
        }
    }
    module
}

/// The one user loop, which must be straight: one block, from its head to the branch back.
fn body(function: &Function) -> Result<std::ops::Range<usize>, String> {
    let graph = Graph::new(function);
    let loops = graph.loops(function);
    let user: Vec<_> = loops.iter().filter(|l| l.kind == LoopKind::User).collect();
    match user[..] {
        [] => Err("ptxas left no loop".to_owned()),
        [one] if one.blocks.len() == 1 => Ok(graph.blocks[one.header].instructions.clone()),
        [one] => Err(format!("the loop has {} blocks; a straight one is needed", one.blocks.len())),
        _ => Err(format!("{} loops; one was written", user.len())),
    }
}

/// The highest register that the code names, plus one.
fn registers(function: &Function) -> u32 {
    let mut highest = 0;
    for insn in &function.instructions {
        for word in insn.operands().split(|c: char| !c.is_ascii_alphanumeric()) {
            if let Some(n) = word.strip_prefix('R').and_then(|n| n.parse::<u32>().ok()) {
                highest = highest.max(n + 1);
            }
        }
    }
    highest
}

fn digest(function: &Function) -> String {
    let mut hasher = blake3::Hasher::new();
    for insn in &function.instructions {
        hasher.update(&insn.encoding.unwrap_or_default().to_le_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
