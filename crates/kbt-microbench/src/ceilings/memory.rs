//! Memory and launch kernels: HBM read, write and copy, L2 read, an empty launch, an mbarrier round trip.

use super::{Kernel, MEMORY_THREADS, TILE_BYTES};
use kbt_device::CeilingKind;
use std::fmt::Write as _;

/// 16-byte accesses of a thread a tile.
const PER_THREAD: u64 = TILE_BYTES / 16 / MEMORY_THREADS as u64;

pub(super) fn kernels() -> Vec<Kernel> {
    let tile = TILE_BYTES as f64;
    vec![
        Kernel {
            kind: CeilingKind::HbmRead,
            name: "hbm_read",
            ptx: streaming("hbm_read", true, false),
            expect: vec![("LDG.E.128*", PER_THREAD as usize)],
            per_cta: tile,
        },
        Kernel {
            kind: CeilingKind::HbmWrite,
            name: "hbm_write",
            ptx: streaming("hbm_write", false, true),
            expect: vec![("STG.E.128*", PER_THREAD as usize)],
            per_cta: tile,
        },
        Kernel {
            kind: CeilingKind::HbmCopy,
            name: "hbm_copy",
            ptx: streaming("hbm_copy", true, true),
            expect: vec![("LDG.E.128*", PER_THREAD as usize), ("STG.E.128*", PER_THREAD as usize)],
            // Read and written bytes both count.
            per_cta: 2.0 * tile,
        },
        Kernel {
            kind: CeilingKind::L2Read,
            name: "l2_read",
            ptx: l2_read(),
            expect: vec![("LDG.E.128*", PER_THREAD as usize)],
            per_cta: tile,
        },
        Kernel {
            kind: CeilingKind::LaunchLatency,
            name: "empty",
            ptx: ".visible .entry empty()\n{\n  ret;\n}\n".to_owned(),
            expect: vec![("EXIT", 1)],
            per_cta: 1.0,
        },
        Kernel {
            kind: CeilingKind::MbarrierRoundTrip,
            name: "mbarrier_round_trip",
            ptx: mbarrier(),
            expect: vec![("SYNCS.ARRIVE*", 1)],
            per_cta: 1.0,
        },
    ]
}

/// Each block moves one tile: all its loads are in flight before the first is used.
fn streaming(name: &str, read: bool, write: bool) -> String {
    let mut w = format!(
        ".visible .entry {name}(.param .u64 from, .param .u64 to)\n{{\n  .reg .b32 %i, %v<{}>, %f;\n  .reg .b64 \
         %src, %dst, %at;\n  .reg .pred %p;\n  ld.param.u64 %src, [from];\n  ld.param.u64 %dst, [to];\n  mov.u32 \
         %i, %ctaid.x;\n  mul.wide.u32 %at, %i, {TILE_BYTES};\n  add.u64 %src, %src, %at;\n  add.u64 %dst, %dst, \
         %at;\n  mov.u32 %i, %tid.x;\n  mul.wide.u32 %at, %i, 16;\n  add.u64 %src, %src, %at;\n  add.u64 %dst, \
         %dst, %at;\n",
        4 * PER_THREAD
    );
    let offset = |k: u64| k * u64::from(MEMORY_THREADS) * 16;
    let value = |k: u64| format!("{{%v{}, %v{}, %v{}, %v{}}}", 4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3);
    if !read {
        let _ = writeln!(
            w,
            "  mov.u32 %f, %ctaid.x;\n  mad.lo.u32 %f, %f, {MEMORY_THREADS}, %i;\n  mul.lo.u32 %f, %f, 0x85ebca6b;"
        );
    }
    for k in 0..PER_THREAD {
        if read {
            let _ = writeln!(w, "  ld.global.v4.u32 {}, [%src+{}];", value(k), offset(k));
        } else {
            // Words that differ in all their bits: data that is all alike is cheaper to move.
            for v in 4 * k..4 * k + 4 {
                let odd = (v * 0x1f12_3bb6) & 0xffff_ffff | 1;
                let _ = writeln!(w, "  mad.lo.u32 %v{v}, %f, {odd}, 0x9e3779b9;");
            }
        }
    }
    if write {
        for k in 0..PER_THREAD {
            let _ = writeln!(w, "  st.global.v4.u32 [%dst+{}], {};", offset(k), value(k));
        }
    } else {
        w.push_str(&fold_and_keep());
    }
    w.push_str("  ret;\n}\n");
    w
}

/// Uses every loaded word, and writes only for a value that practically never comes up.
fn fold_and_keep() -> String {
    let mut w = "  mov.u32 %f, 0;\n".to_owned();
    for v in 0..4 * PER_THREAD {
        let _ = writeln!(w, "  xor.b32 %f, %f, %v{v};");
    }
    w.push_str("  setp.eq.u32 %p, %f, 0x5eedc10c;\n  @%p st.global.u32 [%dst], %f;\n");
    w
}

/// Blocks walk over a buffer that L2 holds, tile after tile, past L1.
fn l2_read() -> String {
    let mut w = format!(
        ".visible .entry l2_read(.param .u64 from, .param .u64 to, .param .u32 tiles, .param .u32 passes)\n{{\n  \
         .reg .b32 %i, %t, %n, %g, %pass, %v<{}>, %f, %acc;\n  .reg .b64 %src, %dst, %at;\n  .reg .pred %p;\n  \
         ld.param.u64 %src, [from];\n  ld.param.u64 %dst, [to];\n  ld.param.u32 %n, [tiles];\n  ld.param.u32 \
         %pass, [passes];\n  mov.u32 %t, %ctaid.x;\n  mov.u32 %g, %nctaid.x;\n  mov.u32 %i, %tid.x;\n  mul.wide.u32 \
         %at, %i, 16;\n  add.u64 %src, %src, %at;\n  add.u32 %n, %n, -1;\n  mov.u32 %acc, 0;\n  .pragma \
         \"nounroll\";\nPASS:\n  and.b32 %i, %t, %n;\n  mul.wide.u32 %at, %i, {TILE_BYTES};\n  add.u64 %at, %at, \
         %src;\n",
        4 * PER_THREAD
    );
    for k in 0..PER_THREAD {
        let _ = writeln!(
            w,
            "  ld.relaxed.gpu.global.v4.u32 {{%v{}, %v{}, %v{}, %v{}}}, [%at+{}];",
            4 * k,
            4 * k + 1,
            4 * k + 2,
            4 * k + 3,
            k * u64::from(MEMORY_THREADS) * 16
        );
    }
    for v in 0..4 * PER_THREAD {
        let _ = writeln!(w, "  xor.b32 %acc, %acc, %v{v};");
    }
    w.push_str(
        "  add.u32 %t, %t, %g;\n  add.u32 %pass, %pass, -1;\n  setp.ne.u32 %p, %pass, 0;\n  @%p bra PASS;\n  \
         setp.eq.u32 %p, %acc, 0x5eedc10c;\n  @%p st.global.u32 [%dst], %acc;\n  ret;\n}\n",
    );
    w
}

/// One thread arrives on a barrier of its own and waits for the phase, again and again; cycles for all.
fn mbarrier() -> String {
    ".visible .entry mbarrier_round_trip(.param .u64 out, .param .u32 rounds)\n{\n  .shared .align 8 .b8 bar[8];\n  \
     .reg .b32 %b, %n;\n  .reg .b64 %state, %start, %end, %to;\n  .reg .pred %p;\n  ld.param.u64 %to, [out];\n  \
     ld.param.u32 %n, [rounds];\n  mov.u32 %b, bar;\n  mbarrier.init.shared.b64 [%b], 1;\n  mov.u64 %start, \
     %clock64;\n  .pragma \"nounroll\";\nROUND:\n  mbarrier.arrive.shared.b64 %state, [%b];\nWAIT:\n  \
     mbarrier.test_wait.shared.b64 %p, [%b], %state;\n  @!%p bra WAIT;\n  add.u32 %n, %n, -1;\n  setp.ne.u32 %p, \
     %n, 0;\n  @%p bra ROUND;\n  mov.u64 %end, %clock64;\n  sub.u64 %end, %end, %start;\n  st.global.u64 [%to], \
     %end;\n  ret;\n}\n"
        .to_owned()
}
