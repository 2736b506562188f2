//! Tensor-core kernels for sm_90a: WGMMA m64n256 on operands in shared memory, two warpgroups a block, for each type
//! it multiplies.

use super::Kernel;
use kbt_device::CeilingKind;
use std::fmt::Write as _;

/// WGMMAs between two commits.
const BATCH: usize = 16;
/// Shared memory of the operands: two A tiles of 64 rows and one B tile of 256, 128 bytes a row.
pub const OPERAND_BYTES: u32 = (2 * 64 + 256) * 128;

/// One type that WGMMA multiplies.
struct Type {
    kind: CeilingKind,
    name: &'static str,
    /// Shape and types of the instruction; k fills 32 bytes of a row.
    ptx: &'static str,
    /// What follows the scale of the accumulator: signs and transpositions, where the type has them.
    tail: &'static str,
    /// Its mnemonic.
    sass: &'static str,
    /// Bytes of an element.
    bytes: u32,
}

const TYPES: [Type; 6] = [
    Type {
        kind: CeilingKind::TensorBf16,
        name: "wgmma_bf16",
        ptx: "m64n256k16.f32.bf16.bf16",
        tail: ", 1, 1, 0, 0",
        sass: "HGMMA.64x256x16.F32.BF16",
        bytes: 2,
    },
    Type {
        kind: CeilingKind::TensorF16,
        name: "wgmma_f16",
        ptx: "m64n256k16.f32.f16.f16",
        tail: ", 1, 1, 0, 0",
        sass: "HGMMA.64x256x16.F32",
        bytes: 2,
    },
    Type {
        kind: CeilingKind::TensorTf32,
        name: "wgmma_tf32",
        ptx: "m64n256k8.f32.tf32.tf32",
        tail: ", 1, 1",
        sass: "HGMMA.64x256x8.F32.TF32",
        bytes: 4,
    },
    Type {
        kind: CeilingKind::TensorFp8,
        name: "wgmma_fp8",
        ptx: "m64n256k32.f32.e4m3.e4m3",
        tail: ", 1, 1",
        sass: "QGMMA.64x256x32.F32.E4M3.E4M3",
        bytes: 1,
    },
    Type {
        kind: CeilingKind::TensorE5m2,
        name: "wgmma_e5m2",
        ptx: "m64n256k32.f32.e5m2.e5m2",
        tail: ", 1, 1",
        sass: "QGMMA.64x256x32.F32.E5M2.E5M2",
        bytes: 1,
    },
    Type {
        kind: CeilingKind::TensorInt8,
        name: "wgmma_s8",
        ptx: "m64n256k32.s32.s8.s8",
        tail: "",
        sass: "IGMMA.64x256x32.S8.S8",
        bytes: 1,
    },
];

/// Whether a ceiling is one of the tensor core's.
#[must_use]
pub fn is_tensor(kind: CeilingKind) -> bool {
    TYPES.iter().any(|t| t.kind == kind)
}

pub(super) fn kernels() -> Vec<Kernel> {
    let kernel = |t: &Type| Kernel {
        kind: t.kind,
        name: t.name,
        ptx: wgmma(t),
        expect: vec![(t.sass, BATCH)],
        // Two warpgroups, BATCH products of m64 n256 and k, a multiply-add counted as two.
        per_cta: 2.0 * BATCH as f64 * 2.0 * 64.0 * 256.0 * f64::from(32 / t.bytes),
    };
    TYPES.iter().map(kernel).collect()
}

/// Parameters: operands (`OPERAND_BYTES` of global memory), a place to keep results alive, passes.
fn wgmma(t: &Type) -> String {
    let Type { name, ptx, tail, .. } = t;
    let mut w = format!(
        ".visible .entry {name}(.param .u64 from, .param .u64 to, .param .u32 passes)\n.maxntid 256, 1, 1\n{{\n  \
         .shared .align 1024 .b8 operands_{name}[{OPERAND_BYTES}];\n  .reg .b32 %i, %s, %n, %group, %v<4>;\n  .reg \
         .b64 %src, %dst, %at, %a, %b, %da, %db;\n  .reg .pred %p, %acc;\n  .reg .b32 %d<128>, %sum;\n  ld.param.u64 \
         %src, [from];\n  ld.param.u64 %dst, [to];\n  ld.param.u32 %n, [passes];\n  mov.u32 %i, %tid.x;\n  shr.u32 \
         %group, %i, 7;\n  mov.u32 %s, operands_{name};\n  mad.wide.u32 %src, %i, 16, %src;\n  mad.lo.u32 %s, %i, 16, \
         %s;\n"
    );
    for k in 0..OPERAND_BYTES / (256 * 16) {
        let at = k * 256 * 16;
        let _ = writeln!(
            w,
            "  ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%src+{at}];\n  st.shared.v4.u32 [%s+{at}], {{%v0, %v1, \
             %v2, %v3}};"
        );
    }
    for i in 0..128 {
        let _ = writeln!(w, "  mov.b32 %d{i}, 0;");
    }
    // A descriptor: address / 16, stride of 8 rows 1024 / 16 at bit 32, swizzle of 128 bytes at bit 62.
    let _ = writeln!(
        w,
        "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  setp.ne.u32 %acc, %n, 0;\n  mov.u32 %s, \
         operands_{name};\n  mad.lo.u32 %i, %group, {}, %s;\n  cvt.u64.u32 %a, %i;\n  shr.u64 %a, %a, 4;\n  or.b64 \
         %a, %a, 0x4000004000010000;\n  add.u32 %s, %s, {};\n  cvt.u64.u32 %b, %s;\n  shr.u64 %b, %b, 4;\n  or.b64 \
         %b, %b, 0x4000004000010000;\n  .pragma \"nounroll\";\nPASS:\n  wgmma.fence.sync.aligned;",
        64 * 128,
        2 * 64 * 128
    );
    let accumulators = (0..128).map(|i| format!("%d{i}")).collect::<Vec<_>>().join(", ");
    for k in 0..BATCH {
        // The four k-steps of a 128-byte row, 32 bytes apart.
        let step = 2 * (k % 4);
        let _ = writeln!(
            w,
            "  add.u64 %da, %a, {step};\n  add.u64 %db, %b, {step};\n  wgmma.mma_async.sync.aligned.{ptx} \
             {{{accumulators}}}, %da, %db, %acc{tail};"
        );
    }
    w.push_str(
        "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n  add.u32 %n, %n, -1;\n  setp.ne.u32 \
         %p, %n, 0;\n  @%p bra PASS;\n  mov.b32 %sum, 0;\n",
    );
    for i in 0..128 {
        let _ = writeln!(w, "  xor.b32 %sum, %sum, %d{i};");
    }
    w.push_str("  setp.eq.u32 %p, %sum, 0x5eedc10c;\n  @%p st.global.u32 [%dst], %sum;\n  ret;\n}\n");
    w
}

/// Random operands, `OPERAND_BYTES` of them: values of both signs, none NaN, the floating-point ones between 2^-6 and 2
/// in size; 8-bit integers take all values. Zeros, or values that are all alike, would draw less power and read faster.
#[must_use]
pub fn random_operands(kind: CeilingKind) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    // Sign, one of seven exponents up to that of 1, random mantissa.
    let mut float = |exponent_bits: u32, mantissa_bits: u32| {
        let random = next();
        let mantissa = random & ((1 << mantissa_bits) - 1);
        let exponent = (1 << (exponent_bits - 1)) - 1 - (random >> 24) % 7;
        (random >> 30 & 1) << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa
    };
    let mut bytes = Vec::with_capacity(OPERAND_BYTES as usize);
    while bytes.len() < OPERAND_BYTES as usize {
        match kind {
            CeilingKind::TensorTf32 => bytes.extend_from_slice(&(float(8, 23) as u32).to_le_bytes()),
            CeilingKind::TensorBf16 => bytes.extend_from_slice(&(float(8, 7) as u16).to_le_bytes()),
            CeilingKind::TensorF16 => bytes.extend_from_slice(&(float(5, 10) as u16).to_le_bytes()),
            CeilingKind::TensorFp8 => bytes.push(float(4, 3) as u8),
            CeilingKind::TensorE5m2 => bytes.push(float(5, 2) as u8),
            _ => bytes.push(float(8, 23) as u8),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_finite_of_both_signs_and_not_alike() {
        let two = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        let bf16: Vec<f32> = random_operands(CeilingKind::TensorBf16)
            .chunks(2)
            .map(|b| f32::from_bits(u32::from(two(b)) << 16))
            .collect();
        let tf32: Vec<f32> = random_operands(CeilingKind::TensorTf32)
            .chunks(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        assert_eq!((bf16.len() * 2, tf32.len() * 4), (OPERAND_BYTES as usize, OPERAND_BYTES as usize));
        for values in [&bf16, &tf32] {
            assert!(values.iter().all(|v| (1.0 / 64.0..2.0).contains(&v.abs())));
            let positive = values.iter().filter(|v| **v > 0.0).count() as f64 / values.len() as f64;
            assert!((positive - 0.5).abs() < 0.03, "{positive}");
        }
        // Exponents of 1 and below, and none of the codes of NaN, infinity or zero.
        let fp8 = random_operands(CeilingKind::TensorFp8);
        assert!(fp8.iter().all(|b| (1..=7).contains(&(b >> 3 & 0xf))));
        let e5m2 = random_operands(CeilingKind::TensorE5m2);
        assert!(e5m2.iter().all(|b| (9..=15).contains(&(b >> 2 & 0x1f))));
        let f16 = random_operands(CeilingKind::TensorF16);
        assert!(f16.chunks(2).all(|b| (9..=15).contains(&(two(b) >> 10 & 0x1f))));
        for bytes in [fp8, e5m2, random_operands(CeilingKind::TensorInt8)] {
            let kinds: std::collections::BTreeSet<u8> = bytes.iter().copied().collect();
            assert!(kinds.len() > 50 && kinds.iter().any(|b| b & 0x80 != 0), "{}", kinds.len());
        }
    }

    #[test]
    fn a_multiply_add_counts_as_two_and_k_fills_32_bytes() {
        let work: Vec<f64> = kernels().iter().map(|k| k.per_cta / 2.0 / BATCH as f64).collect();
        assert_eq!(work, [16, 16, 8, 32, 32, 32].map(|k| 2.0 * 64.0 * 256.0 * f64::from(k)));
        assert!(is_tensor(CeilingKind::TensorInt8) && !is_tensor(CeilingKind::HbmRead));
    }
}
