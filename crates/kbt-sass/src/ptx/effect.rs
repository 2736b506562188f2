//! What an instruction does to shared memory and to those who wait for it: generic stores, reads by the async
//! proxy, fences between the two, arrivals and waits.

use super::code::{Code, Op};
use super::eval::Values;
use super::range::Range;
use super::value::{Base, Value};
use std::collections::HashMap;

/// Bytes of shared memory behind every address that a range holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    /// What the addresses are counted from; `None` where the address could not be followed.
    pub(crate) base: Option<Base>,
    pub(crate) at: Range,
    pub(crate) bytes: i64,
}

/// How two regions meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meet {
    /// They share no byte.
    Apart,
    /// Their addresses are known well enough, and they share bytes.
    Together,
    /// One address could not be followed far enough to tell.
    Unknown,
}

impl Region {
    pub(crate) fn new(value: Value, bytes: i64) -> Self {
        match value {
            Value::Address(base, at) | Value::Matrix(base, at, _) => Self { base: Some(base), at, bytes },
            _ => Self { base: None, at: Range::ALL, bytes },
        }
    }

    pub(crate) fn meets(&self, other: &Self) -> Meet {
        match (self.base, other.base) {
            (Some(Base::Variable(a)), Some(Base::Variable(b))) if a != b => Meet::Apart,
            (Some(a), Some(b)) if a == b => {
                if self.at.is_all() || other.at.is_all() {
                    Meet::Unknown
                } else if self.at.overlaps(self.bytes, other.at, other.bytes) {
                    Meet::Together
                } else {
                    Meet::Apart
                }
            }
            _ => Meet::Unknown,
        }
    }
}

/// Who an arrival and a wait have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// An mbarrier at this address.
    Mbarrier(Region),
    /// A CTA barrier with one of these numbers.
    Named(Range),
    /// The cluster's barrier.
    Cluster,
    /// The lanes that meet at this one instruction.
    Warp(usize),
}

impl Channel {
    /// Whether an arrival at the one can end a wait at the other.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mbarrier(a), Self::Mbarrier(b)) => a.meets(b) != Meet::Apart,
            (Self::Named(a), Self::Named(b)) => a.overlaps(1, *b, 1),
            (Self::Cluster, Self::Cluster) => true,
            (Self::Warp(a), Self::Warp(b)) => a == b,
            _ => false,
        }
    }
}

/// What one instruction does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Writes shared memory through the generic proxy.
    Store(Region),
    /// Writes tensor memory, which matrix instructions read without a proxy fence.
    TensorStore,
    /// Reads shared memory through the async proxy.
    AsyncRead(Vec<Region>),
    /// A matrix instruction that reads its first operand from tensor memory (and others from shared memory).
    TensorRead(Vec<Region>),
    /// Orders generic accesses before those of the async proxy.
    ProxyFence,
    /// Tells whoever waits.
    Arrive(Channel),
    /// Waits for others.
    Wait(Channel),
    /// Both.
    Sync(Channel),
    /// Calls a function, which is not followed.
    Call,
}

/// The effects of a function's instructions, by index.
pub(crate) fn effects<'c>(code: &'c Code<'_>, variables: HashMap<&'c str, Base>) -> Vec<(usize, Effect)> {
    let values = Values::new(code, variables);
    let of = |(i, op)| Some((i, effect(i, op, &values)?));
    code.ops.iter().enumerate().filter_map(of).collect()
}

fn effect(index: usize, op: &Op<'_>, values: &Values<'_, '_>) -> Option<Effect> {
    let insn = op.insn;
    let is_shared = insn.modifiers().any(|m| m == "shared" || m.starts_with("shared::"));
    let address = |nth: usize| insn.operands.iter().filter(|o| o.starts_with('[')).nth(nth);
    let region = |operand: Option<&String>, bytes| {
        Region::new(operand.map_or(Value::Any, |o| values.operand(op, o)), bytes)
    };
    let mbarrier = || Channel::Mbarrier(region(address(0), 8));
    let named = || match insn.operands.first().map(|o| values.operand(op, o)) {
        Some(Value::Number(n)) => Channel::Named(n),
        _ => Channel::Named(Range::ALL),
    };
    Some(match insn.base() {
        // `st.async` and `red.async` complete on an mbarrier of their own and are not looked at.
        "st" | "red" | "atom" if !insn.has("async") && !insn.has("bulk") => {
            let to = region(address(0), access_bytes(insn));
            // A generic address that does not come from shared memory is global or local.
            if !is_shared && (to.base.is_none() || insn.has("global") || insn.has("local")) {
                return None;
            }
            Effect::Store(to)
        }
        "stmatrix" => Effect::Store(region(address(0), 16)),
        "cp" if insn.has("bulk") => return bulk_copy(op, values),
        "cp" if insn.has("mbarrier") => Effect::Arrive(mbarrier()),
        // Non-bulk asynchronous copies into shared memory write through the generic proxy.
        "cp" if insn.has("async") && insn.has("shared") || insn.opcode.contains("async.c") && is_shared => {
            Effect::Store(region(address(0), 16))
        }
        "wgmma" if insn.has("mma_async") => matrix(op, values, 64),
        "tcgen05" if insn.has("mma") => matrix(op, values, 128),
        "tcgen05" if insn.has("cp") => {
            Effect::AsyncRead(vec![descriptor(op, insn.operands.get(1)?, 128, None, values)])
        }
        "tcgen05" if insn.has("st") => Effect::TensorStore,
        "fence" if insn.has("proxy") && insn.modifiers().any(|m| m.starts_with("async")) => {
            Effect::ProxyFence
        }
        "mbarrier" if insn.has("arrive") || insn.has("arrive_drop") => Effect::Arrive(mbarrier()),
        "mbarrier" if insn.has("try_wait") || insn.has("test_wait") => Effect::Wait(mbarrier()),
        "bar" | "barrier" if insn.has("warp") => Effect::Sync(Channel::Warp(index)),
        "barrier" if insn.has("cluster") && insn.has("arrive") => Effect::Arrive(Channel::Cluster),
        "barrier" if insn.has("cluster") => Effect::Wait(Channel::Cluster),
        "bar" | "barrier" if insn.has("arrive") => Effect::Arrive(named()),
        "bar" | "barrier" => Effect::Sync(named()),
        "call" => Effect::Call,
        _ => return None,
    })
}

/// Bulk copies out of shared memory: to global memory, or to another CTA.
fn bulk_copy(op: &Op<'_>, values: &Values<'_, '_>) -> Option<Effect> {
    let place = |name: &str| op.insn.modifiers().position(|m| m.starts_with(name));
    let (global, shared) = (place("global"), place("shared"));
    let from_shared = match (global, shared) {
        (Some(g), Some(s)) => g < s,
        (None, Some(first)) => op.insn.modifiers().skip(first + 1).any(|m| m.starts_with("shared")),
        _ => false,
    };
    if !from_shared || op.insn.has("prefetch") {
        return None;
    }
    let source = op.insn.operands.iter().filter(|o| o.starts_with('[')).nth(1)?;
    // Plain bulk copies state their size; a tensor copy's box is in its tensor map, so its size is unknown.
    let size = op.insn.operands.iter().skip(2).find_map(|o| values.operand(op, o).as_constant());
    let bytes = size.filter(|_| !op.insn.has("tensor")).map_or(TENSOR_BOX, |n| n.clamp(1, WINDOW));
    Some(Effect::AsyncRead(vec![Region::new(values.operand(op, source), bytes)]))
}

/// What a copy of unknown size is taken to read: no more than the shared memory a box of one 128-byte swizzle
/// atom of 8 rows has, so that what is beyond is not blamed.
const TENSOR_BOX: i64 = 1024;
/// All of shared memory, and more.
const WINDOW: i64 = 1 << 20;

fn matrix(op: &Op<'_>, values: &Values<'_, '_>, rows: i64) -> Effect {
    let n = op
        .insn
        .modifiers()
        .find_map(|m| m.strip_prefix('m')?.split_once('n')?.1.split('k').next()?.parse().ok());
    let n = n.unwrap_or(256_i64).clamp(8, 512);
    let (a, b) = (op.insn.operands.get(1), op.insn.operands.get(2));
    let from_tensor_memory = op.insn.base() == "tcgen05" && a.is_some_and(|a| a.starts_with('['));
    let mut read = Vec::new();
    if let Some(a) = a.filter(|a| !a.starts_with('{') && !a.starts_with('[')) {
        read.push(descriptor(op, a, rows, transposed(op, 0), values));
    }
    if let Some(b) = b {
        read.push(descriptor(op, b, n, transposed(op, 1), values));
    }
    if from_tensor_memory { Effect::TensorRead(read) } else { Effect::AsyncRead(read) }
}

/// Whether the first (0) or second (1) operand of a wgmma lies with its rows next to each other, from the immediates
/// behind the scales; types of 8 bits have none, and none of tcgen05 is in the instruction.
fn transposed(op: &Op<'_>, which: usize) -> Option<bool> {
    let insn = op.insn;
    // A sparse product has operands of its own between.
    if insn.base() != "wgmma" || insn.has("sp") {
        return None;
    }
    if !insn.modifiers().any(|m| matches!(m, "f16" | "bf16")) || insn.modifiers().any(|m| m.starts_with("e"))
    {
        return Some(false);
    }
    // An operand in registers has no such immediate.
    let first_in_registers = insn.operands.get(1)?.starts_with('{');
    let at = 6 + which.checked_sub(usize::from(first_in_registers))?;
    match insn.operands.get(at)?.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// What a matrix descriptor covers: 8-row groups at the stride, and blocks of 64 elements at the leading
/// distance; the larger of the two majors where it is not known which it is.
fn descriptor(
    op: &Op<'_>,
    operand: &str,
    rows: i64,
    transposed: Option<bool>,
    values: &Values<'_, '_>,
) -> Region {
    let value = values.operand(op, operand);
    let Value::Matrix(_, at, fields) = value else { return Region::new(value, rows * 128) };
    let field = |shift: u32| i64::from((fields >> shift) as u16 & 0x3fff) * 16;
    let (leading, stride) = (field(16), field(32));
    let k_major = (rows / 8 - 1) * stride + 1024;
    let mn_major = (rows / 64 - 1).max(0) * leading + stride + 1024;
    // The blocks are those of the 128-byte swizzle.
    let bytes = match transposed.filter(|_| fields >> 62 == 1) {
        _ if stride == 0 => rows * 128,
        Some(true) => mn_major,
        Some(false) => k_major,
        None => k_major.max(mn_major),
    };
    // A swizzled operand's columns are anywhere in their 128-byte rows.
    let inside = if at.step() % 128 == 0 { at.lo.rem_euclid(128) } else { 0 };
    let mut region = Region::new(value, bytes);
    region.at = region.at.add(Range::constant(-inside));
    region
}

/// Bytes that one thread stores.
fn access_bytes(insn: &kbt_ptx::Instruction) -> i64 {
    let width = insn.modifiers().filter_map(|m| m.get(1..)?.parse::<i64>().ok()).last().unwrap_or(32);
    let vector = insn.modifiers().find_map(|m| m.strip_prefix('v')?.parse::<i64>().ok()).unwrap_or(1);
    (width / 8).clamp(1, 32) * vector.clamp(1, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The effects of a body over one shared array, as text.
    fn check(body: &str, test: impl Fn(Vec<Effect>)) {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.visible .entry k()\n.maxntid 512, 1, 1\n{{\n{body}\nret;\n}}\n"
        );
        let module = kbt_ptx::parse(&text).unwrap();
        let code = Code::new(&module.functions[0]);
        let variables = HashMap::from([("s", Base::Variable(0)), ("t", Base::Variable(1))]);
        test(effects(&code, variables).into_iter().map(|(_, e)| e).collect());
    }

    fn at(lo: i64, hi: i64, step: i64, bytes: i64) -> Region {
        Region { base: Some(Base::Variable(0)), at: Range::new(lo, hi, step), bytes }
    }

    #[test]
    fn addresses_are_followed_through_threads_and_ring_slots() {
        let slot = "mov.u32 %r1, 0;\n$L:\nshl.b32 %r2, %r1, 3;\nmov.u32 %r3, s;\nadd.s32 %r4, %r3, %r2;\n\
                    mbarrier.arrive.shared::cta.b64 _, [%r4+64];\nadd.s32 %r5, %r1, 1;\nsetp.eq.s32 %p1, %r5, 4;\n\
                    selp.b32 %r1, 0, %r5, %p1;\n@%p2 bra $L;";
        check(slot, |found| assert_eq!(found, [Effect::Arrive(Channel::Mbarrier(at(64, 88, 8, 8)))]));
        let thread = "mov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 7;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $E;\n\
                      setp.eq.s32 %p2, %r2, 3;\n@%p2 bra $E;\nadd.s32 %r3, %r2, -1;\nshl.b32 %r4, %r3, 10;\n\
                      mov.u32 %r5, s;\nadd.s32 %r6, %r5, %r4;\nst.shared.v4.b32 [%r6], {%r7, %r7, %r7, %r7};\n$E:";
        check(thread, |found| assert_eq!(found, [Effect::Store(at(0, 1024, 1024, 16))]));
    }

    #[test]
    fn descriptors_give_what_a_matrix_instruction_reads() {
        // 64 rows in 8-row groups 1024 bytes apart; the second operand 128 rows.
        let body = "mov.u32 %r1, s;\nadd.s32 %r2, %r1, 8192;\nand.b32 %r3, %r2, 261120;\nshr.u32 %r4, %r3, 4;\n\
                    cvt.u64.u32 %rd1, %r4;\nor.b64 %rd2, %rd1, 4611686293305294850;\nadd.s64 %rd3, %rd2, 512;\n\
                    wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd2, %rd3, 1, 1, 1, 0, 0;";
        check(body, |found| {
            assert_eq!(found, [Effect::AsyncRead(vec![at(8192, 8192, 0, 8192), at(16384, 16384, 0, 16384)])]);
        });
    }

    #[test]
    fn a_transposed_operand_covers_16_rows_of_each_block_of_64_elements() {
        // Blocks 16384 bytes apart, 8-row groups 1024; the first operand in registers.
        for (n, bytes) in [(64, 2048), (128, 16384 + 2048)] {
            let body = format!(
                "mov.u32 %r1, s;\nand.b32 %r3, %r1, 261120;\nshr.u32 %r4, %r3, 4;\ncvt.u64.u32 %rd1, %r4;\n\
                 or.b64 %rd2, %rd1, {};\nwgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{%f1}}, \
                 {{%r5, %r6, %r7, %r8}}, %rd2, %p1, 1, 1, 1;",
                (1_u64 << 62) | (64 << 32) | (1024 << 16)
            );
            check(&body, |found| assert_eq!(found, [Effect::AsyncRead(vec![at(0, 0, 0, bytes)])]));
        }
    }

    #[test]
    fn copies_out_of_shared_memory_read_it_and_others_do_not() {
        let out = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [t], 64;";
        let region = Region { base: Some(Base::Variable(1)), at: Range::constant(0), bytes: 64 };
        check(out, |found| assert_eq!(found, [Effect::AsyncRead(vec![region])]));
        check(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd1], 64, [%r3];\n\
             st.global.b32 [%rd1], %r1;\nst.b32 [%rd1], %r1;\nld.shared.b32 %r1, [s];",
            |found| assert_eq!(found, []),
        );
    }

    #[test]
    fn regions_of_one_base_are_told_apart_and_others_are_not_known() {
        let other = Region { base: Some(Base::Rounded(3)), ..at(0, 0, 0, 8) };
        let lost = Region { base: None, at: Range::ALL, bytes: 8 };
        let second = Region { base: Some(Base::Variable(1)), ..at(0, 0, 0, 8) };
        assert_eq!(at(0, 24, 8, 8).meets(&at(32, 32, 0, 8)), Meet::Apart);
        assert_eq!(at(0, 24, 8, 8).meets(&at(24, 24, 0, 8)), Meet::Together);
        assert_eq!(at(0, 0, 0, 8).meets(&second), Meet::Apart);
        assert_eq!(at(0, 0, 0, 8).meets(&other), Meet::Unknown);
        assert_eq!(at(0, 0, 0, 8).meets(&lost), Meet::Unknown);
    }
}
