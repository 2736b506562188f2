//! Lints of PTX, for what the machine code does not show any more.

use crate::lint::{Finding, LintRule};
use kbt_ptx::{Function, Instruction, Module, Statement};

/// Looks at every kernel of a module.
#[must_use]
pub fn lint_ptx(module: &Module) -> Vec<Finding> {
    module.functions.iter().flat_map(missing_proxy_fence).collect()
}

/// Generic-proxy stores to shared memory that a thread hands over (it arrives on an mbarrier, or issues the
/// reader itself) without `fence.proxy.async` since the store, in a kernel whose async proxy reads shared
/// memory.
///
/// The order looked at is the text's. Which addresses the readers use is not followed, so a store that no async
/// reader ever sees is reported too.
fn missing_proxy_fence(function: &Function) -> Vec<Finding> {
    if !function.instructions().any(reads_through_async_proxy) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut pending: Option<&Instruction> = None;
    for statement in &function.body {
        let Statement::Instruction(insn) = statement else { continue };
        if is_proxy_fence(insn) {
            pending = None;
        } else if is_generic_shared_store(insn) {
            pending.get_or_insert(insn);
        } else if let Some(store) = pending
            && (hands_over(insn) || reads_through_async_proxy(insn))
        {
            found.push(Finding {
                rule: LintRule::MissingProxyFence,
                place: function.name.clone(),
                source: Some(format!("line {}", store.line)),
                message: format!(
                    "`{}` is handed over at line {} (`{}`) with no fence.proxy.async between; if the async proxy \
                     (wgmma, tcgen05, bulk copies) reads it, it may read old data",
                    store.opcode, insn.line, insn.opcode
                ),
            });
            pending = None;
        }
    }
    found
}

fn is_proxy_fence(insn: &Instruction) -> bool {
    insn.base() == "fence" && insn.has("proxy") && insn.modifiers().any(|m| m.starts_with("async"))
}

/// Stores with the generic proxy; bulk copies and `st.async` are the async proxy's own.
fn is_generic_shared_store(insn: &Instruction) -> bool {
    let shared = insn.modifiers().any(|m| m == "shared" || m.starts_with("shared::"));
    shared && (insn.base() == "stmatrix" || (insn.base() == "st" && !insn.has("async") && !insn.has("bulk")))
}

fn hands_over(insn: &Instruction) -> bool {
    insn.base() == "mbarrier" && (insn.has("arrive") || insn.has("arrive_drop"))
}

/// Matrix instructions that read shared memory by descriptor, and bulk copies out of it.
fn reads_through_async_proxy(insn: &Instruction) -> bool {
    match insn.base() {
        "wgmma" => insn.has("mma_async"),
        "tcgen05" => insn.has("mma") || insn.has("cp"),
        "cp" => {
            let from_shared = insn.modifiers().skip_while(|m| *m != "bulk").any(|m| m == "global");
            insn.has("bulk") && from_shared && insn.modifiers().position(|m| m == "global") < shared_at(insn)
        }
        _ => false,
    }
}

/// Where the modifiers name shared memory: behind `global` it is the source.
fn shared_at(insn: &Instruction) -> Option<usize> {
    insn.modifiers().position(|m| m.starts_with("shared"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, lines: &[&str]) {
        let text = format!(".version 9.0\n.target sm_90a\n.visible .entry k()\n{{\n{body}\n}}\n");
        let found = lint_ptx(&kbt_ptx::parse(&text).unwrap());
        let sources: Vec<_> = found.iter().map(|f| f.source.as_deref().unwrap()).collect();
        assert_eq!(sources, lines, "{found:?}");
    }

    const MMA: &str =
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;";

    #[test]
    fn a_store_is_fenced_before_it_is_handed_over_or_reported() {
        let store = "st.shared.b32 [%r1], %r2;";
        let fence = "fence.proxy.async.shared::cta;";
        let arrive = "mbarrier.arrive.shared::cta.b64 _, [%r3];";
        check(&format!("{store}\n{fence}\n{arrive}\n{MMA}"), &[]);
        check(&format!("{store}\n{store}\n{arrive}\n{MMA}"), &["line 5"]);
        check(&format!("{store}\n{arrive}"), &[]);
        check(&format!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {{%r2}};\n{MMA}"), &["line 5"]);
        check(
            &format!("{store}\ncp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;"),
            &["line 5"],
        );
        check(
            &format!(
                "{store}\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r3];"
            ),
            &[],
        );
    }
}
