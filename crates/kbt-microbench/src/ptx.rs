//! The PTX of a chain kernel: independent chains a thread, each feeding its output back, in a loop between two
//! reads of the SM's clock.
//!
//! What the kernel guards against, and how:
//! - folding: start values come from memory by thread, so nothing is constant or uniform;
//! - hoisting: each step needs the one before, and the loop is not unrolled further (`nounroll`);
//! - loads within the window: all start values are combined, and a branch on the combination stands before the
//!   first clock read, so they have arrived;
//! - a second clock read that is early: the final states are combined, and a branch on the combination stands
//!   before it; a thread for which the (practically impossible) value comes up leaves without writing;
//! - stores within the window: none is written before the second clock read.

use crate::spec::{Chain, DataKind, DataType};
use kbt_device::Arch;
use std::fmt::Write as _;

/// Most threads of a block that a kernel is launched with.
pub const MAX_THREADS: u32 = 1024;

/// The largest count of arrivals that an mbarrier can expect.
const MOST_ARRIVALS: u32 = (1 << 20) - 1;

/// A matrix descriptor but for its address: no swizzling, 8x16-byte core matrices 128 bytes apart along K and
/// 256 bytes apart along M or N, both in units of 16 bytes.
const DESCRIPTOR: u64 = (128 >> 4) << 16 | (256 >> 4) << 32;

/// The combined value at which a thread would leave early: any one value serves.
const MAGIC: u32 = 0x5eed_c10c;

/// One kernel of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPlan {
    /// Its name in the module.
    pub name: String,
    /// Independent chains a thread, of each part.
    pub chains: u32,
    /// How often the body repeats the steps of all chains.
    pub rounds: u32,
    /// Target instructions of each part in the loop's body.
    pub ops: Vec<u32>,
}

/// One part of a kernel's body: a chain form, and how many of its steps go between steps of the others.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The form.
    pub chain: &'a Chain,
    /// Steps a round, for each of its chains.
    pub steps: u32,
}

/// The header of a module for a compile target: the oldest PTX version that serves.
#[must_use]
pub fn header(arch: Arch, wanted: Option<&str>) -> String {
    let (major, minor) = wanted.and_then(crate::spec::version).unwrap_or((0, 0)).max(oldest_ptx(arch));
    format!(".version {major}.{minor}\n.target {arch}\n.address_size 64\n")
}

/// The PTX version that introduced a compile target, and at least 7.8.
const fn oldest_ptx(arch: Arch) -> (u32, u32) {
    match (arch.sm, arch.suffix) {
        (_, Some('f')) => (8, 8),
        (90, _) => (8, 0),
        (100 | 101, _) => (8, 6),
        (120, _) => (8, 7),
        (103 | 121, _) => (8, 8),
        (110, _) => (9, 0),
        (sm, _) if sm > 90 => (9, 0),
        _ => (7, 8),
    }
}

/// The two kernels, of U and of 2U operations, for a number of chains a thread and part.
#[must_use]
pub fn plans(name: &str, parts: &[Part<'_>], unroll: u32, chains: u32) -> [KernelPlan; 2] {
    let round: u32 = parts.iter().map(|p| p.steps * p.chain.ops * chains).sum();
    let rounds = (unroll / round.max(1)).max(1);
    [1, 2].map(|factor| KernelPlan {
        name: format!("{}_c{chains}_u{factor}", identifier(name)),
        chains,
        rounds: rounds * factor,
        ops: parts.iter().map(|p| p.steps * p.chain.ops * chains * rounds * factor).collect(),
    })
}

/// A name as PTX identifiers may be.
#[must_use]
pub fn identifier(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The order of the start values in memory: one 8-byte word a thread for each register, registers outermost.
#[must_use]
pub fn inputs(parts: &[Part<'_>], chains: u32) -> Vec<DataType> {
    let mut all = Vec::new();
    for part in parts {
        for _ in 0..chains {
            all.extend(std::iter::repeat_n(part.chain.x, part.chain.x.count as usize));
        }
        for data in part.chain.with.values() {
            all.extend(std::iter::repeat_n(*data, (data.count * part.chain.rotate) as usize));
        }
    }
    all
}

/// One kernel. Parameters: start values, results (one u32 a thread), clocks (start, end and SM for each
/// warp), trips.
#[must_use]
pub fn kernel(plan: &KernelPlan, parts: &[Part<'_>]) -> String {
    let mut text = String::new();
    let w = &mut text;
    // Writing to a String cannot fail.
    let _ = writeln!(
        w,
        ".visible .entry {}(.param .u64 in, .param .u64 out, .param .u64 clocks, .param .u32 trips)\n\
         .maxntid {MAX_THREADS}, 1, 1\n{{",
        plan.name
    );
    let _ = writeln!(
        w,
        "  .reg .b32 %ktid, %kcta, %kfold, %kword, %ktrip, %klane, %ksm, %kslot;\n  .reg .b64 %kpin, %kpout, %kpclk, \
         %kstart, %kend, %kwide, %ksm64;\n  .reg .pred %kquit, %kmore, %kfirst;\n  .shared .align 16 .b8 \
         slots[{}];",
        MAX_THREADS * 16
    );
    declare(w, parts, plan.chains);
    let _ = writeln!(
        w,
        "  mov.u32 %ktid, %tid.x;\n  mov.u32 %kcta, %ctaid.x;\n  ld.param.u64 %kpin, [in];\n  ld.param.u64 \
         %kpout, [out];\n  ld.param.u64 %kpclk, [clocks];\n  ld.param.u32 %ktrip, [trips];\n  mov.u32 %kfold, 0;\n  \
         mad.wide.u32 %kpin, %ktid, 8, %kpin;"
    );
    if inputs(parts, plan.chains).iter().any(|d| d.kind == DataKind::Descriptor) {
        random_slots(w);
    }
    load(w, parts, plan.chains);
    let _ = writeln!(
        w,
        "  setp.eq.u32 %kquit, %kfold, {MAGIC};\n  @%kquit bra DONE;\n  bar.sync 0;\n  mov.u64 %kstart, \
         %clock64;\nLOOP:\n  .pragma \"nounroll\";"
    );
    body(w, plan, parts);
    let _ = writeln!(
        w,
        "  add.u32 %ktrip, %ktrip, -1;\n  setp.ne.u32 %kmore, %ktrip, 0;\n  @%kmore bra LOOP;\n  mov.u32 %kfold, 0;"
    );
    for (p, part) in parts.iter().enumerate() {
        for c in 0..plan.chains {
            for i in 0..part.chain.x.count {
                fold(w, &register(p, "x", c, i), &part.chain.x);
            }
        }
    }
    let _ = writeln!(
        w,
        "  setp.eq.u32 %kquit, %kfold, {MAGIC};\n  @%kquit bra DONE;\n  mov.u64 %kend, %clock64;\n  mov.u32 \
         %kword, %ntid.x;\n  mad.lo.u32 %kword, %kcta, %kword, %ktid;\n  mad.wide.u32 %kwide, %kword, 4, %kpout;\n  \
         st.global.u32 [%kwide], %kfold;\n  and.b32 %klane, %ktid, 31;\n  setp.eq.u32 %kfirst, %klane, 0;\n  @!%kfirst \
         bra DONE;\n  shr.u32 %kword, %ktid, 5;\n  mad.lo.u32 %kword, %kcta, 32, %kword;\n  mad.wide.u32 %kwide, \
         %kword, 24, %kpclk;\n  mov.u32 %ksm, %smid;\n  cvt.u64.u32 %ksm64, %ksm;\n  st.global.u64 [%kwide], \
         %kstart;\n  st.global.u64 [%kwide+8], %kend;\n  st.global.u64 [%kwide+16], %ksm64;\nDONE:\n  ret;\n}}"
    );
    text
}

/// The register of value `name` of part `p`, copy `c`, index `i`.
fn register(p: usize, name: &str, c: u32, i: u32) -> String {
    format!("%p{p}{name}_{c}_{i}")
}

fn declare(w: &mut String, parts: &[Part<'_>], chains: u32) {
    for (p, part) in parts.iter().enumerate() {
        let mut registers = |kind: &str, name: &str, copies: u32, count: u32| {
            for c in 0..copies {
                for i in 0..count {
                    let _ = writeln!(w, "  .reg .{kind} {};", register(p, name, c, i));
                }
            }
        };
        registers(part.chain.x.register(), "x", chains, part.chain.x.count);
        for (name, data) in &part.chain.with {
            registers(data.register(), name, part.chain.rotate, data.count);
        }
        for (name, kind) in &part.chain.temp {
            let (kind, count) = crate::spec::split_count(kind);
            registers(kind, name, chains, count.unwrap_or(1));
        }
    }
}

fn load(w: &mut String, parts: &[Part<'_>], chains: u32) {
    let mut index = 0u64;
    for (p, part) in parts.iter().enumerate() {
        for c in 0..chains {
            load_value(w, p, "x", c, &part.chain.x, &mut index);
        }
        for (name, data) in &part.chain.with {
            for c in 0..part.chain.rotate {
                load_value(w, p, name, c, data, &mut index);
            }
        }
    }
}

fn load_value(w: &mut String, p: usize, name: &str, copy: u32, data: &DataType, index: &mut u64) {
    for i in 0..data.count {
        let r = register(p, name, copy, i);
        let at = *index * u64::from(MAX_THREADS) * 8;
        *index += 1;
        let _ = match data.kind {
            DataKind::Shared(bytes) => {
                let _ = writeln!(w, "  mov.u32 {r}, slots;\n  mad.lo.u32 {r}, %ktid, {bytes}, {r};");
                for word in 0..bytes / 4 {
                    let _ = writeln!(w, "  st.shared.u32 [{r}+{}], {r};", word * 4);
                }
                Ok(())
            }
            DataKind::Matrix => {
                let _ = writeln!(
                    w,
                    "  mov.u32 {r}, slots;\n  mad.lo.u32 {r}, %ktid, 16, {r};\n  and.b32 %klane, %ktid, 31;\n  \
                     and.b32 %kslot, %ktid, -32;"
                );
                for word in 0..4 {
                    let _ = writeln!(
                        w,
                        "  mad.lo.u32 %kword, %klane, 4, {word};\n  and.b32 %kword, %kword, 31;\n  add.u32 %kword, \
                         %kword, %kslot;\n  mov.u32 %ksm, slots;\n  mad.lo.u32 %kword, %kword, 16, %ksm;\n  \
                         st.shared.u32 [{r}+{}], %kword;",
                        word * 4
                    );
                }
                Ok(())
            }
            DataKind::Pred => {
                writeln!(w, "  ld.global.u32 %kword, [%kpin+{at}];\n  setp.ne.u32 {r}, %kword, 0;")
            }
            DataKind::Mbarrier => writeln!(
                w,
                "  mov.u32 {r}, slots;\n  mad.lo.u32 {r}, %ktid, 8, {r};\n  mbarrier.init.shared.b64 [{r}], {};",
                MOST_ARRIVALS
            ),
            DataKind::Descriptor => writeln!(
                w,
                "  mov.u32 %kword, slots;\n  and.b32 %kword, %kword, 0x3ffff;\n  shr.u32 %kword, %kword, 4;\n  \
                 cvt.u64.u32 {r}, %kword;\n  or.b64 {r}, {r}, {DESCRIPTOR:#x};"
            ),
            _ => writeln!(w, "  ld.global.{} {r}, [%kpin+{at}];", data.register()),
        };
        fold(w, &r, data);
    }
}

/// Fills the slots with random bits for matrix instructions. The top bit of each exponent is 0, in bytes and in
/// halves, so that all values are finite and small.
fn random_slots(w: &mut String) {
    let _ = writeln!(
        w,
        "  mov.u32 %kslot, slots;\n  mad.lo.u32 %kslot, %ktid, 16, %kslot;\n  mov.u32 %kword, %ktid;"
    );
    for word in 0..4 {
        let _ = writeln!(
            w,
            "  mad.lo.u32 %kword, %kword, 0x915f77f5, 0x6d2b79f5;\n  shr.u32 %klane, %kword, 15;\n  xor.b32 %kword, \
             %kword, %klane;\n  and.b32 %klane, %kword, 0xbfbfbfbf;\n  st.shared.u32 [%kslot+{}], %klane;",
            word * 4
        );
    }
    let _ = writeln!(w, "  fence.proxy.async;");
}

/// Combines a register into `%kfold`.
fn fold(w: &mut String, register: &str, data: &DataType) {
    let _ = match data.register() {
        "b64" => writeln!(
            w,
            "  {{ .reg .b32 %klo, %khi; mov.b64 {{%klo, %khi}}, {register}; xor.b32 %kfold, %kfold, %klo; xor.b32 \
             %kfold, %kfold, %khi; }}"
        ),
        "b16" => writeln!(w, "  cvt.u32.u16 %kword, {register};\n  xor.b32 %kfold, %kfold, %kword;"),
        "pred" => writeln!(w, "  selp.u32 %kword, 1, 0, {register};\n  xor.b32 %kfold, %kfold, %kword;"),
        _ => writeln!(w, "  xor.b32 %kfold, %kfold, {register};"),
    };
}

/// The loop's body: rounds, in each of which every chain takes its steps in turn with the others.
fn body(w: &mut String, plan: &KernelPlan, parts: &[Part<'_>]) {
    for r in 0..plan.rounds {
        let most = parts.iter().map(|p| p.steps).max().unwrap_or(1);
        for s in 0..most {
            for c in 0..plan.chains {
                for (p, part) in parts.iter().enumerate().filter(|(_, part)| s < part.steps) {
                    let turn = (r * part.steps + s + c) % part.chain.rotate;
                    let _ = writeln!(w, "  {}", step(p, part.chain, c, turn));
                }
            }
        }
    }
}

/// One step's text with its registers filled in. Names that the chain does not declare stay as they are:
/// they are PTX's own, `%laneid` for one.
fn step(p: usize, chain: &Chain, c: u32, turn: u32) -> String {
    let mut out = String::new();
    let mut rest = chain.step.trim();
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let name = &rest[..rest.find(|ch: char| !ch.is_ascii_lowercase()).unwrap_or(rest.len())];
        let copy = match name {
            "x" => Some(c),
            _ if chain.with.contains_key(name) => Some(turn),
            _ if chain.temp.contains_key(name) => Some(c),
            _ => None,
        };
        match copy {
            Some(copy) => {
                rest = &rest[name.len()..];
                let digits = rest.find(|ch: char| !ch.is_ascii_digit()).unwrap_or(rest.len());
                let index = rest[..digits].parse().unwrap_or(0);
                rest = &rest[digits..];
                out.push_str(&register(p, name, copy, index));
            }
            None => out.push('%'),
        }
    }
    out.push_str(rest);
    out.replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Entry, Spec};

    fn entry(chain: &str) -> Entry {
        let text = format!("instructions:\n  - name: t\n    target: [T]\n    chains: {{f: {chain}}}\n");
        Spec::from_yaml(&text, "test").unwrap().instructions.remove(0)
    }

    #[test]
    fn a_step_names_its_own_registers_and_leaves_others() {
        let e = entry(
            "{x: 'b32*2', with: {a: b32}, temp: {t: b16}, rotate: 2, step: 'op %t, %x0, %x1, %a, %laneid;'}",
        );
        let text = step(0, &e.chains["f"], 3, 1);
        assert_eq!(text, "op %p0t_3_0, %p0x_3_0, %p0x_3_1, %p0a_1_0, %laneid;");
    }

    #[test]
    fn the_larger_body_holds_twice_the_operations() {
        let e = entry("{x: b32, with: {a: b32}, ops: 2, step: 'op %x, %x, %a;'}");
        let parts = [Part { chain: &e.chains["f"], steps: 1 }];
        for chains in [1, 8] {
            let [small, large] = plans("a f", &parts, 128, chains);
            assert_eq!((&small.name, small.ops[0]), (&format!("a_f_c{chains}_u1"), 128));
            let count = |plan| kernel(plan, &parts).matches("op %p0").count() as u32;
            assert_eq!(count(&small) * 2, small.ops[0], "two instructions a step");
            assert_eq!(count(&large), 2 * count(&small));
        }
    }

    #[test]
    fn inputs_are_in_the_order_of_the_loads() {
        let e = entry("{x: 'f32*2', with: {a: b32, b: f64}, rotate: 3, step: 'op %x0, %x1, %a, %b;'}");
        let parts = [Part { chain: &e.chains["f"], steps: 1 }];
        let kinds: Vec<_> = inputs(&parts, 2).iter().map(|d| d.register()).collect();
        assert_eq!(kinds, ["b32", "b32", "b32", "b32", "b32", "b32", "b32", "b64", "b64", "b64"]);
    }

    #[test]
    fn the_header_takes_the_newer_of_what_target_and_entry_need() {
        assert!(header(Arch::SM_90A, None).starts_with(".version 8.0\n.target sm_90a\n"));
        assert!(header(Arch::SM_90A, Some("8.6")).starts_with(".version 8.6\n"));
        assert!(header(Arch::SM_103A, Some("8.6")).starts_with(".version 8.8\n"));
    }
}
