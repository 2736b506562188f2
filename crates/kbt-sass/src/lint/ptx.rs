//! Lints of PTX, for what the machine code does not show any more.

use super::{Finding, LintRule};
use crate::ptx::{Cover, Handoff, Traffic, Unfenced, handoffs, unfenced};
use kbt_ptx::{Function, Module};

/// What the PTX of a listing shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PtxLint {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// The two-barrier handoffs.
    pub handoffs: Vec<Handoff>,
    /// What could not be decided.
    pub notes: Vec<String>,
}

/// Looks at every function of a module.
///
/// A store counts as handed over by the arrivals and waits that can meet, by the addresses of their barriers.
/// Not seen: called functions, addresses loaded from memory, flags that threads poll, other CTAs of a cluster,
/// and overwriting what the async proxy still reads. A fence under a predicate is trusted.
#[must_use]
pub fn lint_ptx(module: &Module) -> PtxLint {
    let unread = |p: &kbt_ptx::Problem| format!("PTX not understood, {p}");
    let mut all = PtxLint { notes: module.problems.iter().map(unread).collect(), ..PtxLint::default() };
    for function in &module.functions {
        look(module, function, &mut all);
    }
    all
}

fn look(module: &Module, function: &Function, all: &mut PtxLint) {
    let traffic = Traffic::new(module, function);
    for found in unfenced(&traffic) {
        if found.is_certain {
            all.findings.push(missing_fence(function, &found));
        } else {
            all.notes.push(unproven(function, &found));
        }
    }
    for handoff in handoffs(&traffic) {
        if handoff.cover == Some(Cover::Short) {
            let message = format!("{handoff}");
            let mut finding = Finding::new(LintRule::HandoffShort, &function.name, message);
            finding.source = Some(handoff.arrivals[0].clone());
            all.findings.push(finding);
        }
        all.handoffs.push(handoff);
    }
}

fn missing_fence(function: &Function, found: &Unfenced) -> Finding {
    let mut finding = Finding::new(
        LintRule::MissingProxyFence,
        &function.name,
        format!("{}, and no fence.proxy.async on the way", way(found)),
    );
    finding.source = found.store_lines.first().map(|l| format!("line {l}"));
    finding
}

fn unproven(function: &Function, found: &Unfenced) -> String {
    format!(
        "{}: {}; whether it reads them could not be told, because an address was not followed to its variable",
        function.name,
        way(found)
    )
}

/// Who stores, who hands over, who reads.
fn way(found: &Unfenced) -> String {
    let lines: Vec<_> = found.store_lines.iter().take(4).map(ToString::to_string).collect();
    let more = if found.store_lines.len() > 4 { ", …" } else { "" };
    let count = found.store_lines.len();
    let stores = format!(
        "{count} {} to shared memory (`{}`, line {}{more})",
        if count == 1 { "store" } else { "stores" },
        found.store,
        lines.join(", ")
    );
    let (line, reader) = &found.reader;
    let handed = match (&found.handed_over, found.wait_line) {
        (Some((arrive, _)), Some(wait)) => {
            format!(", handed over at line {arrive} and taken at line {wait},")
        }
        _ => String::new(),
    };
    format!("{stores}{handed} reach `{reader}` at line {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_at(body: &str) -> PtxLint {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.shared .align 1024 .b8 s[65536];\n.visible .entry k()\n.maxntid 256, 1, \
             1\n{{\n{body}\n}}\n"
        );
        let module = kbt_ptx::parse(&text).unwrap();
        assert_eq!(module.problems, []);
        lint_ptx(&module)
    }

    fn check(body: &str, lines: &[&str]) {
        let found = look_at(body);
        let sources: Vec<_> = found.findings.iter().map(|f| f.source.as_deref().unwrap()).collect();
        assert_eq!(sources, lines, "{body}\n{found:?}");
    }

    /// A matrix product of 8 KB at `s` and 2 KB at `s + 32768`, in a warp of its own.
    const MMA: &str = "mov.u32 %r90, s;\nshr.u32 %r91, %r90, 4;\ncvt.u64.u32 %rd91, %r91;\nor.b64 %rd1, %rd91, \
                       4611686293305294848;\nadd.s64 %rd2, %rd1, 2048;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.\
                       bf16.bf16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;";
    const STORE: &str = "st.shared.b32 [s+64], %r2;";
    const FENCE: &str = "fence.proxy.async.shared::cta;";

    #[test]
    fn a_thread_that_reads_its_own_stores_must_fence() {
        check(&format!("{STORE}\n{FENCE}\n{MMA}"), &[]);
        check(&format!("{STORE}\n{STORE}\n{MMA}"), &["line 7"]);
        check(&format!("{FENCE}\n{STORE}\n{MMA}"), &["line 8"]);
        check(&format!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [s], {{%r2}};\n{MMA}"), &["line 7"]);
        check(&format!("cp.async.cg.shared.global [s], [%rd9], 16;\n{MMA}"), &["line 7"]);
        // Elsewhere in shared memory, and not in shared memory.
        check(&format!("st.shared.b32 [s+16384], %r2;\n{MMA}"), &[]);
        check(&format!("st.global.b32 [%rd9], %r2;\n{MMA}"), &[]);
        // On one of two ways.
        check(&format!("{STORE}\n@%p1 bra $L;\n{FENCE}\n$L:\n{MMA}"), &["line 7"]);
        check(
            &format!("{STORE}\ncp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], 128;"),
            &["line 7"],
        );
        check(&format!("{STORE}\ncp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], 64;"), &[]);
    }

    #[test]
    fn a_store_is_followed_from_warp_to_warp_through_the_barrier_that_hands_it_over() {
        let kernel = |producer: &str, consumer: &str| {
            format!(
                "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 128;\n@%p1 bra $P;\n{consumer}\n{MMA}\nret;\n$P:\n\
                 {STORE}\n{producer}\nret;"
            )
        };
        let arrive = "mbarrier.arrive.shared::cta.b64 _, [s+60000];";
        let wait = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [s+60000], 0;";
        let other = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [s+60008], 0;";
        check(&kernel(&format!("{FENCE}\n{arrive}"), wait), &[]);
        check(&kernel(&format!("{arrive}\n{FENCE}"), wait), &["line 19"]);
        check(&kernel(arrive, wait), &["line 19"]);
        // The reader may fence as well: the order goes through its wait.
        check(&kernel(arrive, &format!("{wait}\n{FENCE}")), &[]);
        check(&kernel(arrive, other), &[]);
        check(&kernel(arrive, &format!("{other}\n{wait}")), &["line 20"]);
        check(&kernel("bar.sync 1, 256;", "bar.sync 1, 256;"), &["line 19"]);
        check(&kernel("bar.arrive 2, 256;", "bar.sync 1, 256;"), &[]);
        // A third role passes it on.
        let relay = format!("{wait}\nmbarrier.arrive.shared::cta.b64 _, [s+60008];\n{other}");
        check(&kernel(arrive, &relay), &["line 21"]);
    }

    #[test]
    fn a_later_phase_of_a_barrier_hands_nothing_to_an_earlier_one() {
        check(&format!("bar.sync 0;\n{MMA}\n{STORE}\nbar.sync 0;\nret;"), &[]);
        // In a loop it does.
        check(&format!("$L:\nbar.sync 0;\n{MMA}\n{STORE}\n@%p1 bra $L;\nret;"), &["line 15"]);
    }

    #[test]
    fn an_address_that_was_not_followed_is_a_note() {
        let body = format!("ld.global.u32 %r5, [%rd9];\nst.shared.b32 [%r5], %r2;\n{MMA}");
        let found = look_at(&body);
        assert_eq!(found.findings, []);
        assert!(found.notes[0].contains("line 8") && found.notes[0].contains("not followed"), "{found:?}");
    }
}
