//! Tensor-core kernels for sm_90a: WGMMA m64n256 on operands in shared memory, two warpgroups a block.

use super::Kernel;
use kbt_device::CeilingKind;
use std::fmt::Write as _;

/// WGMMAs between two commits.
const BATCH: usize = 16;
/// Shared memory of the operands: two A tiles of 64 rows and one B tile of 256, 128 bytes a row.
pub const OPERAND_BYTES: u32 = (2 * 64 + 256) * 128;

pub(super) fn kernels() -> Vec<Kernel> {
    // Two warpgroups, BATCH products of m64 n256 and k, an FMA counted as two.
    let flop = |k: f64| 2.0 * BATCH as f64 * 2.0 * 64.0 * 256.0 * k;
    vec![
        Kernel {
            kind: CeilingKind::TensorBf16,
            name: "wgmma_bf16",
            ptx: wgmma("wgmma_bf16", "m64n256k16.f32.bf16.bf16", ", 0, 0"),
            expect: vec![("HGMMA.64x256x16.F32.BF16", BATCH)],
            per_cta: flop(16.0),
        },
        Kernel {
            kind: CeilingKind::TensorFp8,
            name: "wgmma_fp8",
            ptx: wgmma("wgmma_fp8", "m64n256k32.f32.e4m3.e4m3", ""),
            expect: vec![("QGMMA.64x256x32.F32.E4M3.E4M3", BATCH)],
            per_cta: flop(32.0),
        },
    ]
}

/// Parameters: operands (`OPERAND_BYTES` of global memory), a place to keep results alive, passes.
fn wgmma(name: &str, shape: &str, transpose: &str) -> String {
    let mut w = format!(
        ".visible .entry {name}(.param .u64 from, .param .u64 to, .param .u32 passes)\n.maxntid 256, 1, 1\n{{\n  \
         .shared .align 1024 .b8 operands_{name}[{OPERAND_BYTES}];\n  .reg .b32 %i, %s, %n, %group, %v<4>;\n  .reg \
         .b64 %src, %dst, %at, %a, %b, %da, %db;\n  .reg .pred %p, %acc;\n  .reg .f32 %d<128>, %sum;\n  ld.param.u64 \
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
        let _ = writeln!(w, "  mov.f32 %d{i}, 0f00000000;");
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
            "  add.u64 %da, %a, {step};\n  add.u64 %db, %b, {step};\n  wgmma.mma_async.sync.aligned.{shape} \
             {{{accumulators}}}, %da, %db, %acc, 1, 1{transpose};"
        );
    }
    w.push_str(
        "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n  add.u32 %n, %n, -1;\n  setp.ne.u32 \
         %p, %n, 0;\n  @%p bra PASS;\n  mov.f32 %sum, 0f00000000;\n",
    );
    for i in 0..128 {
        let _ = writeln!(w, "  add.f32 %sum, %sum, %d{i};");
    }
    w.push_str("  setp.eq.f32 %p, %sum, 0f5EEDC10C;\n  @%p st.global.f32 [%dst], %sum;\n  ret;\n}\n");
    w
}

/// Random operands, `OPERAND_BYTES` of them: bf16 or e4m3 values of both signs, none NaN, none large.
#[must_use]
pub fn random_operands(kind: CeilingKind) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut bytes = Vec::with_capacity(OPERAND_BYTES as usize);
    while bytes.len() < OPERAND_BYTES as usize {
        let random = next();
        if kind == CeilingKind::TensorFp8 {
            // Sign, exponent 2^-6 to 2^0, random mantissa.
            bytes.push(((random & 0x87) | (1 + (random >> 8) % 7) << 3) as u8);
        } else {
            let value = (random as f64 / f64::from(1u32 << 31) * 2.0 - 1.0) as f32;
            bytes.extend_from_slice(&((value.to_bits() >> 16) as u16).to_le_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_finite_of_both_signs_and_not_alike() {
        let bf16 = random_operands(CeilingKind::TensorBf16);
        assert_eq!(bf16.len(), OPERAND_BYTES as usize);
        let values: Vec<f32> = bf16
            .chunks(2)
            .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
            .collect();
        assert!(values.iter().all(|v| v.abs() <= 1.0));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
        let fp8 = random_operands(CeilingKind::TensorFp8);
        assert!(fp8.iter().all(|b| b & 0x7f != 0x7f && b & 0x78 != 0));
        assert!(fp8.iter().any(|b| b & 0x80 != 0) && fp8.iter().any(|b| b & 0x80 == 0));
    }
}
