//! `kbt/trace.cuh` compiled by nvcc: what each level leaves in the machine code. No GPU is needed.
//!
//! The compilers come from `KBT_CUDA`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test, which says aloud what it could not test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel with every call of the tracer, which is compiled with it, without it, or with calls that do nothing.
const KERNEL: &str = r#"
#include <stdint.h>
#ifdef WITH
#include <kbt/trace.cuh>
#define T(call) trace.call
#else
struct kbt_trace_buffer { uint64_t base; uint32_t words[4]; };
#define T(call)
#endif
template <class Tracer> __device__ __forceinline__ void role(float *out, int steps, const kbt_trace_buffer &buf) {
    __shared__ uint64_t barrier;
    __shared__ float tile[256];
#ifdef SHARED
    __shared__ kbt_trace_record ring[64];
    Tracer trace;
    trace.open_shared(buf, 1, threadIdx.x % 128 == 0, ring);
#elif defined(WITH)
    Tracer trace;
    trace.open(buf, 1, threadIdx.x % 128 == 0);
#endif
    uint32_t address = (uint32_t)__cvta_generic_to_shared(&barrier);
    float sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        T(wait_begin(3));
        asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra WAIT; }" ::"r"(address),
                     "r"(step & 1) : "memory");
        T(wait_end(3));
        T(begin(6));
        T(detail_begin(7));
        for (int i = 0; i < 8; ++i) sum = fmaf(sum, exp2f(tile[(threadIdx.x + i) & 255]), 1.0f);
        T(detail_end(7));
        T(end(6, step));
        T(instant(8));
        T(detail_instant(9));
        T(detail_arrive(4));
        T(arrive(4, step));
    }
    out[threadIdx.x] = sum;
    T(close());
}
extern "C" __global__ void kernel(float *out, int steps, const __grid_constant__ kbt_trace_buffer buf) {
#if defined(SHARED)
    role<kbt::SharedTrace<LEVEL>>(out, steps, buf);
#elif defined(TWICE)
    if (kbt::Trace<LEVEL>::here(buf))
        role<kbt::Trace<LEVEL>>(out, steps, buf);
    else
        role<kbt::Trace<KBT_TRACE_OFF>>(out, steps, buf);
#elif defined(WITH)
    role<kbt::Trace<LEVEL>>(out, steps, buf);
#else
    role<void>(out, steps, buf);
#endif
}
"#;

struct Nvcc {
    cuda: PathBuf,
    folder: tempfile::TempDir,
}

impl Nvcc {
    /// `None`, said aloud, where no compiler was named.
    fn find() -> Option<Self> {
        let Some(cuda) = std::env::var_os("KBT_CUDA") else {
            eprintln!("KBT_CUDA names no CUDA compilers: the device tracer is NOT tested");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kernel.cu"), KERNEL).unwrap();
        Some(Self { cuda: cuda.into(), folder })
    }

    /// The kernel's machine code.
    fn text(&self, defines: &[&str]) -> Vec<u8> {
        section(&self.compile("-cubin", defines), ".text.kernel")
    }

    /// The kernel's instructions, one a line.
    fn disassemble(&self, defines: &[&str]) -> Vec<String> {
        let cubin = self.folder.path().join("kernel.cubin");
        std::fs::write(&cubin, self.compile("-cubin", defines)).unwrap();
        let out = Command::new(self.cuda.join("bin/nvdisasm")).arg("-c").arg(&cubin).output().unwrap();
        assert!(out.status.success(), "nvdisasm");
        String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn compile(&self, to: &str, defines: &[&str]) -> Vec<u8> {
        let output = self.folder.path().join("kernel.out");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include");
        let status = Command::new(self.cuda.join("bin/nvcc"))
            .args(["-arch=sm_90a", to, "-Werror", "all-warnings", "-std=c++17", "-o"])
            .arg(&output)
            .args(defines)
            .arg("-I")
            .arg(include)
            .arg(self.folder.path().join("kernel.cu"))
            .status()
            .unwrap();
        assert!(status.success(), "nvcc on {defines:?}");
        std::fs::read(output).unwrap()
    }
}

/// A section of a 64-bit little-endian ELF file.
fn section(elf: &[u8], name: &str) -> Vec<u8> {
    let number = |at: usize, length: usize| {
        elf[at..at + length].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, size, count, names) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2), number(0x3e, 2));
    let header = |i: usize| table + i * size;
    let strings = number(header(names) + 0x18, 8);
    for i in 0..count {
        let text = &elf[strings + number(header(i), 4)..];
        if text.starts_with(name.as_bytes()) && text[name.len()] == 0 {
            let (offset, length) = (number(header(i) + 0x18, 8), number(header(i) + 0x20, 8));
            return elf[offset..offset + length].to_vec();
        }
    }
    panic!("no section {name}");
}

#[test]
fn level_off_is_the_machine_code_of_a_kernel_without_a_tracer() {
    let Some(nvcc) = Nvcc::find() else { return };
    let without = nvcc.text(&[]);
    assert_eq!(nvcc.text(&["-DWITH", "-DLEVEL=0"]), without);
    assert_eq!(nvcc.text(&["-DWITH", "-DLEVEL=0", "-DTWICE"]), without);
}

#[test]
fn a_cta_that_does_not_record_runs_a_role_without_records() {
    let Some(nvcc) = Nvcc::find() else { return };
    let count = |defines: &[&str], what: &str| {
        String::from_utf8(nvcc.compile("-ptx", defines)).unwrap().matches(what).count()
    };
    for level in ["-DLEVEL=1", "-DLEVEL=2", "-DLEVEL=3"] {
        let (once, twice) = (&["-DWITH", level][..], &["-DWITH", level, "-DTWICE"][..]);
        assert_eq!(count(once, "mbarrier.try_wait"), 1, "{level}");
        assert_eq!(count(twice, "mbarrier.try_wait"), 2, "{level}");
        assert_eq!(count(twice, "%clock;"), count(once, "%clock;"), "{level}");
    }
}

/// ptxas would predicate a short record, and every warp of the role would issue it whole; a branch that may diverge
/// would cost two instructions more at each.
#[test]
fn a_record_is_skipped_by_one_uniform_branch() {
    let Some(nvcc) = Nvcc::find() else { return };
    let lines = |defines: &[&str]| nvcc.disassemble(defines);
    let count = |lines: &[String], what: &str| lines.iter().filter(|line| line.contains(what)).count();
    let off = count(&lines(&["-DWITH", "-DLEVEL=0"]), "BSSY");
    for (level, more) in [("-DLEVEL=2", &[][..]), ("-DLEVEL=3", &[][..]), ("-DLEVEL=3", &["-DSHARED"])] {
        let lines = lines(&[&["-DWITH", level], more].concat());
        let clock_reads = lines.iter().filter(|line| line.contains("CS2R.32"));
        let predicated: Vec<&String> = clock_reads.filter(|line| line.contains('@')).collect();
        assert!(!more.is_empty() || predicated.is_empty(), "{level} {more:?}: {predicated:#?}");
        // close() diverges; no record does.
        assert!(count(&lines, "BSSY") <= off + 1, "{level} {more:?}");
    }
}

#[test]
fn each_level_records_its_own_calls() {
    let Some(nvcc) = Nvcc::find() else { return };
    let count = |level: u32, more: &[&str], what: &str| {
        let level = format!("-DLEVEL={level}");
        let ptx = nvcc.compile("-ptx", &[&["-DWITH", &level], more].concat());
        String::from_utf8(ptx).unwrap().matches(what).count()
    };
    // Six coarse calls and four of level detail; level barrier records nothing.
    for (level, records) in [(0, 0), (1, 0), (2, 6), (3, 10)] {
        assert_eq!(count(level, &[], "%clock;"), records, "level {level}");
        assert_eq!(count(level, &[], "st.global.cs.v2.b32"), records, "level {level}");
        assert_eq!(count(level, &["-DSHARED"], "st.shared.v2.b32"), records, "level {level}");
    }
}

/// A record is one 8-byte store, so that an array of them behind 12 bytes of other shared memory must be moved up.
#[test]
fn records_in_shared_memory_are_aligned_to_their_store() {
    let Some(nvcc) = Nvcc::find() else { return };
    std::fs::write(
        nvcc.folder.path().join("kernel.cu"),
        r"
#include <kbt/trace.cuh>
static_assert(sizeof(kbt_trace_record) == 8 && alignof(kbt_trace_record) == 8);
static_assert(sizeof(kbt_trace_ring) == 64);
__global__ void kernel(const __grid_constant__ kbt_trace_buffer buf, float *x) {
    __shared__ float a[3];
    __shared__ kbt_trace_record ring[64];
    kbt::SharedTrace<KBT_TRACE_COARSE> trace;
    trace.open_shared(buf, 0, threadIdx.x == 0, ring);
    a[threadIdx.x % 3] = x[threadIdx.x];
    __syncthreads();
    trace.begin(1);
    x[5] = a[1] + a[2];
    trace.end(1);
    trace.close();
}
",
    )
    .unwrap();
    let ptx = String::from_utf8(nvcc.compile("-ptx", &[])).unwrap();
    let ring = ptx.lines().find(|line| line.contains(".shared") && line.contains("ring")).unwrap();
    assert!(ring.contains(".align 8 "), "{ring}");
}

/// NVRTC has no host headers. A host compiler that is kept from them stands in for it: what the layout needs must be
/// there, from the caller where the caller supplies it.
#[test]
fn the_layout_needs_no_host_header_under_nvrtc() {
    let Some(nvcc) = Nvcc::find() else { return };
    let folder = nvcc.folder.path();
    let source = folder.join("layout.cpp");
    let checks = "#include <kbt/trace_format.h>\nstatic_assert(sizeof(kbt_trace_record) == 8 && sizeof(kbt_trace_ring) == \
                  64 && sizeof(uint64_t) == 8 && sizeof(uint8_t) == 1);\n";
    let supplied = folder.join("supplied");
    std::fs::create_dir(&supplied).unwrap();
    let types = "typedef unsigned char uint8_t;\ntypedef unsigned uint32_t;\ntypedef unsigned long uint64_t;\n#define MINE\n";
    std::fs::write(supplied.join("stdint.h"), types).unwrap();
    for (more, check) in
        [(&[][..], ""), (&["-isystem", "supplied"], "#ifndef MINE\n#error not the caller's\n#endif\n")]
    {
        std::fs::write(&source, format!("{checks}{check}")).unwrap();
        let output = Command::new("g++")
            .args(["-std=c++17", "-fsyntax-only", "-nostdinc", "-D__CUDACC_RTC__", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include"))
            .args(more)
            .arg(&source)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The layout puts the tag first and the clock after it.
#[test]
fn a_record_is_its_tag_and_then_the_clock() {
    use kbt_trace::{bindings as b, kbt::tag};
    let Some(nvcc) = Nvcc::find() else { return };
    assert_eq!(std::mem::offset_of!(b::kbt_trace_record, clock), 4);
    let shared = "__shared__ kbt_trace_record ring[64];\n";
    for (recorder, ring, open) in [
        ("Trace", "", "open(buf, 0, threadIdx.x == 0)"),
        ("SharedTrace", shared, "open_shared(buf, 0, threadIdx.x == 0, ring)"),
    ] {
        let source = format!(
            "#include <kbt/trace.cuh>\n__global__ void kernel(const __grid_constant__ kbt_trace_buffer buf) {{\n\
             {ring}kbt::{recorder}<KBT_TRACE_COARSE> trace;\n\
             trace.{open};\ntrace.begin(6);\ntrace.close();\n}}\n"
        );
        std::fs::write(nvcc.folder.path().join("kernel.cu"), source).unwrap();
        let ptx = String::from_utf8(nvcc.compile("-ptx", &[])).unwrap();
        let store = ptx.lines().find(|line| line.contains(".v2.b32 [")).unwrap();
        let (first, second) = store.split_once('{').and_then(|(_, pair)| pair.split_once(", ")).unwrap();
        let set = |register: &str, to: &str| {
            let words = |line: &str| {
                line.replace(',', " ").trim_end_matches(';').split_whitespace().skip(1).eq([register, to])
            };
            ptx.lines().any(words)
        };
        assert!(set(first, &tag(b::KBT_TRACE_BEGIN, 6, 0).to_string()), "{recorder}: {store}");
        assert!(set(second.trim_end_matches("};"), "%clock"), "{recorder}: {store}");
    }
}
