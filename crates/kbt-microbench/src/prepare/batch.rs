//! Streams that are only read, never timed: many short kernels in one module, so that a whole spec costs a few
//! calls of the compiler.

use super::{
    Prepared, PreparedPart, digest, disassemble, jobs, newest_ptx, on_all_cores, parts, rejected, verify,
};
use crate::ptx::{self, KernelPlan};
use crate::spec::Spec;
use crate::verify::Window;
use kbt_device::Arch;
use kbt_toolchain::{PtxasOptions, Tool, ToolError, Toolchain};

/// Operations in the smaller body: enough for a stall count to repeat, and for ptxas not to unroll the loop again.
const UNROLL: u32 = 32;
/// Forms in one module: a form that the compiler rejects is found by halving its module.
const FORMS: usize = 48;

/// One form's kernels.
struct Stream {
    form: String,
    parts: Vec<PreparedPart>,
    plans: Vec<[KernelPlan; 2]>,
}

/// As [`super::prepare`], for instructions alone, with short bodies and without the machine code.
pub fn prepare_streams(
    spec: &Spec,
    arch: Arch,
    tools: &Toolchain,
    chains: &[u32],
    only: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Vec<Prepared>, ToolError> {
    tools.path(Tool::Ptxas)?;
    tools.path(Tool::Nvdisasm)?;
    let streams: Vec<Stream> = jobs(spec, arch, only)
        .into_iter()
        .filter(|(_, parts)| parts.len() == 1)
        .enumerate()
        .map(|(at, (form, parts))| stream(at, form, parts, chains))
        .collect();
    // One module has one PTX version, and what it is may change the code: streams go with their like.
    let mut modules: Vec<Vec<(usize, &Stream)>> = Vec::new();
    for (at, stream) in streams.iter().enumerate() {
        let fits = |m: &&mut Vec<(usize, &Stream)>| {
            m.len() < FORMS && newest_ptx(&m[0].1.parts) == newest_ptx(&stream.parts)
        };
        match modules.iter_mut().find(fits) {
            Some(module) => module.push((at, stream)),
            None => modules.push(vec![(at, stream)]),
        }
    }
    let mut all: Vec<(usize, Prepared)> =
        on_all_cores(&modules, |module| assemble(module, arch, tools)).into_iter().flatten().collect();
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, prepared)| prepared).collect())
}

fn stream(at: usize, form: String, prepared: Vec<PreparedPart>, chains: &[u32]) -> Stream {
    // ptxas unrolls short bodies of memory instructions once more.
    let short = |p: &PreparedPart| if p.entry.memory { p.chain.unroll } else { UNROLL.max(8 * p.chain.ops) };
    let unroll = prepared.iter().map(|p| p.chain.unroll.min(short(p))).min();
    let name = format!("s{at}_{form}");
    let plans =
        chains.iter().map(|&c| ptx::plans(&name, &parts(&prepared), unroll.unwrap_or(UNROLL), c)).collect();
    Stream { form, parts: prepared, plans }
}

/// One module; where the compiler rejects it, its halves, so that only the form at fault is lost.
fn assemble(module: &[(usize, &Stream)], arch: Arch, tools: &Toolchain) -> Vec<(usize, Prepared)> {
    let Some((_, first)) = module.first() else { return Vec::new() };
    let mut text = ptx::header(arch, newest_ptx(&first.parts));
    for (_, stream) in module {
        for plan in stream.plans.iter().flatten() {
            text.push_str(&ptx::kernel(plan, &parts(&stream.parts)));
        }
    }
    let refused = |why: String| {
        let each = |(at, stream): &(usize, &Stream)| {
            let mut prepared = Prepared::nothing_yet(&stream.form, &stream.parts);
            prepared.refused.push((None, why.clone()));
            (*at, prepared)
        };
        module.iter().map(each).collect()
    };
    let assembled = match tools.ptxas(text.as_bytes(), arch, &PtxasOptions::default()) {
        Ok(assembled) => assembled,
        Err(error) if module.len() == 1 => return refused(rejected(&first.parts, &text, &error)),
        Err(_) => {
            let (a, b) = module.split_at(module.len() / 2);
            return [assemble(a, arch, tools), assemble(b, arch, tools)].concat();
        }
    };
    let listing = match disassemble(tools, &assembled.cubin) {
        Ok(listing) => listing,
        Err(why) => return refused(why),
    };
    let digest = digest(&assembled.cubin);
    let each = |(at, stream): &(usize, &Stream)| {
        let mut prepared = Prepared::nothing_yet(&stream.form, &stream.parts);
        prepared.digest.clone_from(&digest);
        for plans in &stream.plans {
            match verify(&listing, plans.clone(), &stream.parts, Window::of_any_length) {
                Ok(verified) => prepared.verified.push(verified),
                Err(why) => prepared.refused.push((Some(plans[0].chains), why.to_string())),
            }
        }
        prepared.keep_one_lowering();
        (*at, prepared)
    };
    module.iter().map(each).collect()
}
