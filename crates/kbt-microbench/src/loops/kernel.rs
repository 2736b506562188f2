//! The PTX of a kernel with one loop: parameters as the chain kernels have them (start values, results, clocks,
//! trips).

use crate::ptx::header;
use kbt_device::Arch;
use std::fmt::Write as _;

/// A loop before it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSource {
    /// The kernel's name.
    pub name: String,
    /// The family's name.
    pub family: &'static str,
    /// Threads a block at most; registers follow from it.
    pub max_threads: u32,
    /// 32-bit float registers `%f0..`: all are loaded before and used after the loop.
    pub floats: u32,
    /// 32-bit untyped registers `%b0..`, likewise.
    pub words: u32,
    /// 64-bit float registers `%d0..`, likewise.
    pub doubles: u32,
    /// Bytes of shared memory of the block; `%s`, `%s2` and `%s4` point into it by thread, 4, 8 and 16 bytes apart,
    /// so that an access of that width has no bank conflict.
    pub shared: u32,
    /// PTX of one trip.
    pub body: String,
}

/// The combined value at which a thread would leave early: any one value serves.
const MAGIC: u32 = 0x5eed_c10c;

/// A module of loops for a target.
#[must_use]
pub fn module(arch: Arch, loops: &[LoopSource]) -> String {
    let mut text = header(arch, None);
    for l in loops {
        l.write(&mut text);
    }
    text
}

impl LoopSource {
    fn write(&self, w: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            w,
            ".visible .entry {}(.param .u64 in, .param .u64 out, .param .u64 clocks, .param .u32 trips)\n.maxntid \
             {}, 1, 1\n{{\n  .reg .b32 %ktid, %kcta, %kfold, %kword, %ktrip, %klane, %ksm, %s, %s2, %s4;\n  .reg .b64 %kpin, \
             %kpout, %kpclk, %kstart, %kend, %kwide, %ksm64;\n  .reg .pred %kquit, %kmore, %kfirst;\n  .reg .f32 \
             %f<{}>;\n  .reg .b32 %b<{}>;\n  .reg .f64 %d<{}>;",
            self.name,
            self.max_threads,
            self.floats.max(1),
            self.words.max(1),
            self.doubles.max(1),
        );
        if self.shared > 0 {
            let _ = writeln!(w, "  .shared .align 16 .b8 slots_{}[{}];", self.name, self.shared);
        }
        let _ = writeln!(
            w,
            "  mov.u32 %ktid, %tid.x;\n  mov.u32 %kcta, %ctaid.x;\n  ld.param.u64 %kpin, [in];\n  ld.param.u64 \
             %kpout, [out];\n  ld.param.u64 %kpclk, [clocks];\n  ld.param.u32 %ktrip, [trips];\n  mov.u32 %kfold, 0;\n  \
             mad.wide.u32 %kpin, %ktid, 8, %kpin;"
        );
        let registers = self.registers();
        for (i, (kind, name)) in registers.iter().enumerate() {
            let at = i as u64 * u64::from(crate::ptx::MAX_THREADS) * 8;
            let _ = writeln!(w, "  ld.global.{kind} {name}, [%kpin+{at}];");
        }
        if self.shared > 0 {
            let _ = writeln!(
                w,
                "  mov.u32 %s, slots_{};\n  mad.lo.u32 %s2, %ktid, 8, %s;\n  mad.lo.u32 %s4, %ktid, 16, %s;\n  mad.lo.u32 \
                 %s, %ktid, 4, %s;",
                self.name
            );
        }
        self.fold(w, &registers);
        let _ = writeln!(
            w,
            "  setp.eq.u32 %kquit, %kfold, {MAGIC};\n  @%kquit bra DONE;\n  bar.sync 0;\n  mov.u64 %kstart, \
             %clock64;\nLOOP:\n  .pragma \"nounroll\";\n{}\n  add.u32 %ktrip, %ktrip, -1;\n  setp.ne.u32 %kmore, %ktrip, \
             0;\n  @%kmore bra LOOP;\n  mov.u32 %kfold, 0;",
            self.body
        );
        self.fold(w, &registers);
        let _ = writeln!(
            w,
            "  setp.eq.u32 %kquit, %kfold, {MAGIC};\n  @%kquit bra DONE;\n  mov.u64 %kend, %clock64;\n  mov.u32 \
             %kword, %ntid.x;\n  mad.lo.u32 %kword, %kcta, %kword, %ktid;\n  mad.wide.u32 %kwide, %kword, 4, %kpout;\n  \
             st.global.u32 [%kwide], %kfold;\n  and.b32 %klane, %ktid, 31;\n  setp.eq.u32 %kfirst, %klane, 0;\n  @!%kfirst \
             bra DONE;\n  shr.u32 %kword, %ktid, 5;\n  mad.lo.u32 %kword, %kcta, 32, %kword;\n  mad.wide.u32 %kwide, \
             %kword, 24, %kpclk;\n  mov.u32 %ksm, %smid;\n  cvt.u64.u32 %ksm64, %ksm;\n  st.global.u64 [%kwide], \
             %kstart;\n  st.global.u64 [%kwide+8], %kend;\n  st.global.u64 [%kwide+16], %ksm64;\nDONE:\n  ret;\n}}"
        );
    }

    fn registers(&self) -> Vec<(&'static str, String)> {
        let of = |kind, letter: char, n: u32| (0..n).map(move |i| (kind, format!("%{letter}{i}")));
        of("f32", 'f', self.floats)
            .chain(of("b32", 'b', self.words))
            .chain(of("f64", 'd', self.doubles))
            .collect()
    }

    fn fold(&self, w: &mut String, registers: &[(&'static str, String)]) {
        for (kind, name) in registers {
            let _ = match *kind {
                "f64" => writeln!(
                    w,
                    "  {{ .reg .b32 %lo, %hi; mov.b64 {{%lo, %hi}}, {name}; xor.b32 %kfold, %kfold, %lo; xor.b32 %kfold, \
                     %kfold, %hi; }}"
                ),
                "f32" => {
                    writeln!(w, "  mov.b32 %kword, {name};\n  xor.b32 %kfold, %kfold, %kword;")
                }
                _ => writeln!(w, "  xor.b32 %kfold, %kfold, {name};"),
            };
        }
    }
}
