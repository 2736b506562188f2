//! From spec entries to checked machine code: PTX, ptxas, nvdisasm, verification. No GPU is needed.

use crate::ptx::{self, KernelPlan, Part};
use crate::spec::{Chain, Entry, Mix, Spec};
use crate::verify::{FormCode, Meant, Window, WindowError, check_pair};
use kbt_device::Arch;
use kbt_sass::{Function, Listing};
use kbt_toolchain::{NvdisasmOptions, PtxasOptions, Tool, ToolError, Toolchain};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

mod batch;
mod rejected;
mod unverified;

pub use batch::prepare_streams;
pub(crate) use rejected::rejected;
pub use unverified::{as_unverified, prepare_unverified};

/// Numbers of independent chains a thread that are swept.
pub const CHAINS: [u32; 4] = [1, 2, 4, 8];

/// Chains a thread of each part of a mix.
const MIX_CHAINS: u32 = 4;

/// Assembled, disassembled and checked code of one chain form, or of one mix.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The entries: one, or the two of a mix.
    pub parts: Vec<PreparedPart>,
    /// The form's name; for a mix `mix`.
    pub form: String,
    /// The machine code of the module; empty where ptxas refused, and of streams that are only read.
    pub cubin: Vec<u8>,
    /// The digest of the machine code.
    pub digest: String,
    /// The kernels whose window is as meant, by number of chains.
    pub verified: Vec<Verified>,
    /// What was refused, and why: the number of chains, or everything.
    pub refused: Vec<(Option<u32>, String)>,
}

/// An entry's form as part of a kernel.
#[derive(Debug, Clone)]
pub struct PreparedPart {
    /// The entry.
    pub entry: Entry,
    /// The form.
    pub chain: Chain,
    /// Steps a round.
    pub steps: u32,
}

/// Two kernels with U and 2U operations that were verified against each other.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Chains a thread.
    pub chains: u32,
    /// The two kernels.
    pub plans: [KernelPlan; 2],
    /// What one operation is.
    pub code: FormCode,
    /// The window of the larger body.
    pub window: Window,
}

impl Prepared {
    fn nothing_yet(form: &str, parts: &[PreparedPart]) -> Self {
        Self {
            parts: parts.to_vec(),
            form: form.to_owned(),
            cubin: Vec::new(),
            digest: String::new(),
            verified: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// `name (form)`, or the two names of a mix.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.parts[..] {
            [one] => format!("{} ({})", one.entry.name, self.form),
            parts => parts.iter().map(|p| p.entry.name.as_str()).collect::<Vec<_>>().join(" + "),
        }
    }

    /// The verified kernels with so many chains.
    #[must_use]
    pub fn with_chains(&self, chains: u32) -> Option<&Verified> {
        self.verified.iter().find(|v| v.chains == chains)
    }

    /// The verified kernels with the most chains.
    #[must_use]
    pub fn widest(&self) -> Option<&Verified> {
        self.verified.iter().max_by_key(|v| v.chains)
    }

    /// Leaves the kernels that lower as the widest does. With another number of chains ptxas may choose other
    /// instructions, and what is swept and compared must be one thing.
    fn keep_one_lowering(&mut self) {
        let Some(widest) = self.widest().cloned() else { return };
        let compound = self.parts.iter().any(|p| p.entry.compound);
        let alike = |v: &Verified| {
            if compound { v.code.is_like(&widest.code) } else { v.code.opcode() == widest.code.opcode() }
        };
        let (kept, others) = std::mem::take(&mut self.verified).into_iter().partition(alike);
        self.verified = kept;
        let name = |v: &Verified| if compound { v.code.text() } else { v.code.opcode().unwrap_or_default() };
        for v in others {
            let what = if compound { "lowering" } else { "instruction" };
            let (here, there, most) = (name(&v), name(&widest), widest.chains);
            let why = format!("it is {here} here and {there} with {most} chains: another {what}");
            self.refused.push((Some(v.chains), why));
        }
    }

    /// Why nothing can be measured, where nothing can.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if !self.verified.is_empty() {
            return None;
        }
        Some(self.refused.first().map_or_else(|| "no kernel was made".to_owned(), |(_, why)| why.clone()))
    }

    /// The start values that the kernels with so many chains read, in order.
    #[must_use]
    pub fn inputs(&self, chains: u32) -> Vec<crate::spec::DataType> {
        ptx::inputs(&parts(&self.parts), chains)
    }
}

fn parts(prepared: &[PreparedPart]) -> Vec<Part<'_>> {
    prepared.iter().map(|p| Part { chain: &p.chain, steps: p.steps }).collect()
}

/// All forms of the spec's entries that are for `arch` and whose name `only` accepts, and its mixes (by their
/// two names with `+`); assembled for each number of `chains` and checked, on all cores.
pub fn prepare(
    spec: &Spec,
    arch: Arch,
    tools: &Toolchain,
    chains: &[u32],
    only: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Vec<Prepared>, ToolError> {
    // Asked once here, so that a missing tool is one error and not one refusal a row.
    tools.path(Tool::Ptxas)?;
    tools.path(Tool::Nvdisasm)?;
    assembles(tools, arch)?;
    let jobs = jobs(spec, arch, only);
    Ok(on_all_cores(&jobs, |(form, prepared)| assemble(form, prepared, arch, tools, chains)))
}

/// An error where ptxas does not assemble for a target at all: said once, and not once a row.
pub fn assembles(tools: &Toolchain, arch: Arch) -> Result<(), ToolError> {
    let empty = format!("{}.visible .entry nothing()\n{{\n  ret;\n}}\n", ptx::header(arch, None));
    tools.ptxas(empty.as_bytes(), arch, &PtxasOptions::default()).map(|_| ())
}

/// The results in the order of the jobs, whatever thread was first.
pub(crate) fn on_all_cores<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(jobs.len())));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let result = work(job);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut all = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// What is to be assembled: form name and parts.
fn jobs(spec: &Spec, arch: Arch, only: &(dyn Fn(&str) -> bool + Sync)) -> Vec<(String, Vec<PreparedPart>)> {
    let mut jobs = Vec::new();
    for entry in spec.instructions.iter().filter(|e| e.is_for(arch) && only(&e.name)) {
        for (form, chain) in &entry.chains {
            let part = PreparedPart { entry: entry.clone(), chain: chain.clone(), steps: 1 };
            jobs.push((form.clone(), vec![part]));
        }
    }
    for mix in spec.mixes.iter().filter(|mix| only(&mix.of.join("+"))) {
        if let Some(parts) = mix_parts(spec, arch, mix) {
            jobs.push(("mix".to_owned(), parts));
        }
    }
    jobs
}

/// The parts of a mix; `None` where the target lacks one of the instructions.
fn mix_parts(spec: &Spec, arch: Arch, mix: &Mix) -> Option<Vec<PreparedPart>> {
    mix.of
        .iter()
        .zip(mix.ratio)
        .map(|(name, steps)| {
            let entry = spec.instructions.iter().find(|e| e.name == *name && e.is_for(arch))?;
            // The form with the fewest other instructions is written first in alphabetical order: `clean`.
            let chain = entry.chains.get("clean").or_else(|| entry.chains.values().next())?;
            Some(PreparedPart {
                entry: entry.clone(),
                chain: chain.clone(),
                steps: steps.div_ceil(chain.ops),
            })
        })
        .collect()
}

/// One form through the compiler, with shorter bodies where they come out too long.
fn assemble(
    form: &str,
    prepared: &[PreparedPart],
    arch: Arch,
    tools: &Toolchain,
    chains: &[u32],
) -> Prepared {
    let chains = if prepared.len() == 1 { chains } else { &[MIX_CHAINS] };
    let shortest = prepared.iter().map(|p| 8 * p.chain.ops).max().unwrap_or(8);
    let mut unroll = prepared.iter().map(|p| p.chain.unroll).min().unwrap_or(shortest);
    loop {
        let (result, too_long) = assemble_with(form, prepared, arch, tools, (unroll, chains));
        if !too_long || unroll / 2 < shortest {
            return result;
        }
        unroll /= 2;
    }
}

/// One module: its PTX through ptxas, its code through nvdisasm, its windows through the check. Also says
/// whether a shorter body is worth a try.
fn assemble_with(
    form: &str,
    prepared: &[PreparedPart],
    arch: Arch,
    tools: &Toolchain,
    (unroll, chains): (u32, &[u32]),
) -> (Prepared, bool) {
    let mut result = Prepared::nothing_yet(form, prepared);
    let parts = parts(prepared);
    let plans: Vec<[KernelPlan; 2]> = chains.iter().map(|&c| ptx::plans(form, &parts, unroll, c)).collect();
    let text = module_text(arch, prepared, &parts, &plans);
    let listing = match tools.ptxas(text.as_bytes(), arch, &PtxasOptions::default()) {
        Ok(assembled) => {
            result.digest = digest(&assembled.cubin);
            result.cubin = assembled.cubin;
            disassemble(tools, &result.cubin)
        }
        Err(error) => Err(rejected(prepared, &text, &error)),
    };
    let listing = match listing {
        Ok(listing) => listing,
        Err(why) => {
            result.refused.push((None, why));
            return (result, false);
        }
    };
    let mut too_long = false;
    for plans in plans {
        let chains = plans[0].chains;
        match verify(&listing, plans, prepared, Window::find) {
            Ok(verified) => result.verified.push(verified),
            Err(why) => {
                too_long |= matches!(why, WindowError::TooLong(_));
                result.refused.push((Some(chains), why.to_string()));
            }
        }
    }
    result.keep_one_lowering();
    (result, too_long)
}

/// The first digits of a cubin's digest.
fn digest(cubin: &[u8]) -> String {
    blake3::hash(cubin).to_hex()[..16].to_owned()
}

fn module_text(
    arch: Arch,
    prepared: &[PreparedPart],
    parts: &[Part<'_>],
    plans: &[[KernelPlan; 2]],
) -> String {
    let mut text = ptx::header(arch, newest_ptx(prepared));
    for plan in plans.iter().flatten() {
        text.push_str(&ptx::kernel(plan, parts));
    }
    text
}

/// The newest PTX version that one of the entries asks for.
fn newest_ptx(prepared: &[PreparedPart]) -> Option<&str> {
    let number = |v: &&str| v.split('.').map(|n| n.parse().unwrap_or(0u32)).collect::<Vec<_>>();
    prepared.iter().filter_map(|p| p.entry.ptx.as_deref()).max_by_key(number)
}

fn disassemble(tools: &Toolchain, cubin: &[u8]) -> Result<Listing, String> {
    let text = tools
        .disassemble(cubin, &NvdisasmOptions { hex: true, ..Default::default() })
        .map_err(|e| first_lines(&e.to_string()))?;
    kbt_sass::parse(text.as_bytes()).map_err(|e| e.to_string())
}

fn verify(
    listing: &Listing,
    plans: [KernelPlan; 2],
    prepared: &[PreparedPart],
    find: fn(&Function) -> Result<Window, WindowError>,
) -> Result<Verified, WindowError> {
    let window = |plan: &KernelPlan| {
        let function =
            listing.function(&plan.name).ok_or_else(|| WindowError::NoKernel(plan.name.clone()))?;
        find(function)
    };
    let (small, large) = (window(&plans[0])?, window(&plans[1])?);
    let meant: Vec<Meant<'_>> = prepared
        .iter()
        .enumerate()
        .map(|(i, part)| Meant {
            entry: &part.entry,
            ops: [i64::from(plans[0].ops[i]), i64::from(plans[1].ops[i])],
            back: &part.chain.back,
        })
        .collect();
    let code = check_pair(&small, &large, &meant)?;
    Ok(Verified { chains: plans[0].chains, plans, code, window: large })
}

/// A compiler's message as one line of moderate length.
fn first_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    lines.join("; ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::verify::{Counts, PerOp};
    use std::collections::BTreeMap;

    #[test]
    fn kernels_of_a_compound_operation_that_lower_otherwise_than_the_widest_are_refused() {
        let mut p = prepared("bfi", "NOTHING", &[("PRMT", 2.0), ("SHF.L.U32", 1.0)]);
        p.parts[0].entry.compound = true;
        // The scheduler's choice of opcode for one work is no other lowering; fewer moves are.
        p.verified[1].code.per_op[0].count = 1.81;
        p.verified[2].code.per_op[1].opcode = "IMAD.SHL.U32".into();
        p.keep_one_lowering();
        assert_eq!(p.verified.iter().map(|v| v.chains).collect::<Vec<_>>(), [1, 4, 8]);
        let why = "it is 1.81 PRMT, 1 SHF.L.U32 here and 2 PRMT, 1 SHF.L.U32 with 8 chains: another lowering";
        assert_eq!(p.refused, [(Some(2), why.to_owned())]);
    }

    /// A verified form as the compiler might have made it, for tests of what comes after.
    pub(crate) fn prepared(name: &str, target: &str, per_op: &[(&str, f64)]) -> Prepared {
        let text = format!(
            "instructions:\n  - name: {name}\n    target: ['{target}*']\n    chains: {{clean: {{x: b32, step: 'op %x;'}}}}\n"
        );
        let entry = Spec::from_yaml(&text, "test").unwrap().instructions.remove(0);
        let chain = entry.chains["clean"].clone();
        let per_op: Vec<PerOp> = per_op
            .iter()
            .map(|(opcode, count)| PerOp {
                opcode: (*opcode).to_owned(),
                pipe: kbt_sass::pipe_of_opcode(Some(Arch::SM_90A), opcode).pipe,
                count: *count,
                target: entry.is_target(opcode),
            })
            .collect();
        let part = Part { chain: &chain, steps: 1 };
        let verified = CHAINS
            .iter()
            .map(|&chains| Verified {
                chains,
                plans: ptx::plans("clean", &[part], 128, chains),
                code: FormCode { per_op: per_op.clone(), back: Vec::new(), ops: 128, length: 259 },
                window: Window {
                    body: Counts::new(),
                    edge: Counts::new(),
                    pipes: BTreeMap::new(),
                    length: 131,
                    instructions: Vec::new(),
                },
            })
            .collect();
        Prepared {
            parts: vec![PreparedPart { entry, chain: chain.clone(), steps: 1 }],
            form: "clean".into(),
            cubin: Vec::new(),
            digest: "0".into(),
            verified,
            refused: Vec::new(),
        }
    }
}
