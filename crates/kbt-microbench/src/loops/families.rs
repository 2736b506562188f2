//! The families of generated loops, as data: which operations, how many, over how many registers.
//!
//! In a template `$F`, `$B` and `$D` are one register of their file that the operation updates in place (so nothing is
//! dead), `$f`, `$b`, `$d` any register; `$F4` four accumulators, `$b2` and `$b4` matrix fragments, `$o` an offset
//! into shared memory.

/// A family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name, the first part of its loops' names.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Written after the model's constants were frozen, and timed once.
    pub held_out: bool,
    /// Shared memory and matrix instructions: accesses of other warps matter, errors are larger.
    pub memory: bool,
    /// How its loops are made.
    pub recipe: Recipe,
}

/// How the loops of a family are made.
#[derive(Debug, Clone, Copy)]
pub enum Recipe {
    /// One operation, once a trip for each of 1, 2, 4 and 8 registers, repeated.
    Chains(&'static [&'static [&'static str]]),
    /// Random operations on random registers.
    Random {
        /// Groups of operations.
        ops: &'static [&'static [&'static str]],
        /// How many loops.
        loops: u32,
        /// Operations a trip, least and most.
        length: [u32; 2],
        /// Registers of each file, least and most.
        registers: [u32; 2],
    },
    /// Each two of the operations, sixteen of both in turn over eight registers.
    Pairs(&'static [&'static str]),
    /// One operation over eight registers, so many times a trip.
    Lengths(&'static str, &'static [u32]),
    /// Kernels of `kernels/loops`, compiled from CUDA C++.
    Compiled,
}

const FP32: &[&str] = &[
    "fma.rn.f32 $F, $F, $f, $f;",
    "add.rn.f32 $F, $F, $f;",
    "mul.rn.f32 $F, $F, $f;",
    "max.f32 $F, $F, $f;",
    "fma.rn.f32 $F, $f, $f, $F;",
];
const SELECT: &[&str] = &[
    "{ .reg .pred %p; setp.lt.f32 %p, $f, $F; selp.f32 $F, $F, $f, %p; }",
    "{ .reg .pred %p; setp.lt.s32 %p, $b, $B; selp.b32 $B, $B, $b, %p; }",
];
const INTEGER: &[&str] = &[
    "add.s32 $B, $B, $b;",
    "lop3.b32 $B, $B, $b, $b, 0x6a;",
    "shf.l.wrap.b32 $B, $B, $b, 7;",
    "prmt.b32 $B, $B, $b, 0x2143;",
    "mad.lo.s32 $B, $B, $b, $b;",
    "min.s32 $B, $B, $b;",
    "mul.hi.u32 $B, $B, $b;",
    "dp4a.s32.s32 $B, $b, $b, $B;",
];
const HALF: &[&str] = &[
    "fma.rn.f16x2 $B, $B, $b, $b;",
    "fma.rn.bf16x2 $B, $B, $b, $b;",
    "add.rn.f16x2 $B, $B, $b;",
    "mul.rn.f16x2 $B, $B, $b;",
    "max.f16x2 $B, $B, $b;",
];
const PACK: &[&str] = &[
    "{ .reg .f32 %t; mov.b32 %t, $B; cvt.rn.bf16x2.f32 $B, %t, $f; }",
    "{ .reg .f32 %t; mov.b32 %t, $B; cvt.rn.f16x2.f32 $B, $f, %t; }",
    "{ .reg .f32 %t; .reg .b16 %lo, %hi; mov.b32 %t, $B; cvt.rn.satfinite.e4m3x2.f32 %lo, %t, $f; \
     cvt.rn.satfinite.e4m3x2.f32 %hi, $f, $f; mov.b32 $B, {%lo, %hi}; }",
    "{ .reg .b32 %t; cvt.rn.bf16x2.f32 %t, $f, $f; xor.b32 $B, $B, %t; }",
];
const UNPACK: &[&str] = &[
    "{ .reg .b16 %lo, %hi; .reg .b32 %t; mov.b32 {%lo, %hi}, $B; cvt.rn.f16x2.e4m3x2 %t, %lo; xor.b32 $B, $B, %t; }",
    "{ .reg .b16 %lo, %hi; .reg .f32 %t; mov.b32 {%lo, %hi}, $b; cvt.f32.f16 %t, %lo; add.rn.f32 $F, $F, %t; }",
    "{ .reg .b16 %lo, %hi; .reg .f32 %t; mov.b32 {%lo, %hi}, $b; cvt.f32.bf16 %t, %hi; mul.rn.f32 $F, $F, %t; }",
    "{ .reg .f32 %t; cvt.rn.f32.s32 %t, $b; add.rn.f32 $F, $F, %t; }",
    "{ .reg .f32 %t; cvt.rn.f32.u32 %t, $b; fma.rn.f32 $F, %t, $f, $F; }",
];
const SLOW_CONVERT: &[&str] = &[
    "{ .reg .b32 %t; cvt.rzi.s32.f32 %t, $f; xor.b32 $B, $B, %t; }",
    "cvt.rmi.f32.f32 $F, $F;",
    "popc.b32 $B, $B;",
    "brev.b32 $B, $B;",
];
const XU: &[&str] = &[
    "ex2.approx.ftz.f32 $F, $F;",
    "lg2.approx.ftz.f32 $F, $F;",
    "rcp.approx.ftz.f32 $F, $F;",
    "rsqrt.approx.ftz.f32 $F, $F;",
    "tanh.approx.f32 $F, $F;",
];
const EX2: &[&str] = &["ex2.approx.ftz.f32 $F, $F;"];
const FP64: &[&str] = &["fma.rn.f64 $D, $D, $d, $d;", "add.rn.f64 $D, $D, $d;"];
const WARP: &[&str] = &[
    "{ .reg .b32 %t; shfl.sync.bfly.b32 %t, $b, 2, 31, -1; xor.b32 $B, $B, %t; }",
    "{ .reg .b32 %t; shfl.sync.down.b32 %t, $B, 4, 31, -1; add.s32 $B, $b, %t; }",
    "{ .reg .pred %p; .reg .b32 %t; setp.lt.s32 %p, $b, $b; vote.sync.ballot.b32 %t, %p, -1; xor.b32 $B, $B, %t; }",
];
const LOADS: &[&str] = &[
    "{ .reg .f32 %t; ld.volatile.shared.f32 %t, [%s+$o]; add.rn.f32 $F, $F, %t; }",
    "{ .reg .f32 %t<2>; ld.volatile.shared.v2.f32 {%t0, %t1}, [%s2+$o]; add.rn.f32 $F, $F, %t0; fma.rn.f32 $F, $F, $f, \
     %t1; }",
    "{ .reg .f32 %t<4>; ld.volatile.shared.v4.f32 {%t0, %t1, %t2, %t3}, [%s4+$o]; add.rn.f32 $F, $F, %t0; fma.rn.f32 \
     $F, $F, %t1, %t2; add.rn.f32 $F, $F, %t3; }",
];
const STORES: &[&str] = &[
    "st.volatile.shared.f32 [%s+$o], $f;",
    "st.volatile.shared.v2.f32 [%s2+$o], {$f, $f};",
    "st.volatile.shared.v4.f32 [%s4+$o], {$f, $f, $f, $f};",
];
const MATRIX: &[&str] = &[
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 $F4, $b4, $b2, $F4;",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 $F4, $b4, $b2, $F4;",
];
const MATRIX_SMALL: &[&str] = &["mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 $F4, $b2, $b1, $F4;"];

const PAIRED: &[&str] = &[
    "fma.rn.f32 $F, $F, $f, $f;",
    "add.rn.f32 $F, $F, $f;",
    "max.f32 $F, $F, $f;",
    "lop3.b32 $B, $B, $b, $b, 0x6a;",
    "shf.l.wrap.b32 $B, $B, $b, 7;",
    "prmt.b32 $B, $B, $b, 0x2143;",
    "add.s32 $B, $B, $b;",
    "mad.lo.s32 $B, $B, $b, $b;",
    "mul.hi.u32 $B, $B, $b;",
    "dp4a.s32.s32 $B, $b, $b, $B;",
    "min.s32 $B, $B, $b;",
    "fma.rn.f16x2 $B, $B, $b, $b;",
    "max.f16x2 $B, $B, $b;",
    "{ .reg .f32 %t; mov.b32 %t, $B; cvt.rn.bf16x2.f32 $B, %t, $f; }",
    "{ .reg .f32 %t; cvt.rn.f32.s32 %t, $b; add.rn.f32 $F, $F, %t; }",
    "{ .reg .b16 %lo, %hi; .reg .f32 %t; mov.b32 {%lo, %hi}, $b; cvt.f32.f16 %t, %lo; add.rn.f32 $F, $F, %t; }",
    "{ .reg .pred %p; setp.lt.f32 %p, $f, $F; selp.f32 $F, $F, $f, %p; }",
    "ex2.approx.ftz.f32 $F, $F;",
    "rcp.approx.ftz.f32 $F, $F;",
    "popc.b32 $B, $B;",
    "fma.rn.f64 $D, $D, $d, $d;",
    "{ .reg .b32 %t; shfl.sync.bfly.b32 %t, $b, 2, 31, -1; xor.b32 $B, $B, %t; }",
    "{ .reg .f32 %t; ld.volatile.shared.f32 %t, [%s+$o]; add.rn.f32 $F, $F, %t; }",
];

const FFMA: &[&str] =
    &["fma.rn.f32 $F, $f, $f, $F;", "fma.rn.f32 $F, $F, $f, $f;", "fma.rn.f32 $F, $f, $F, $f;"];
const FADD: &[&str] = &["add.rn.f32 $F, $F, $f;", "add.rn.f32 $F, $f, $F;"];
const FMUL: &[&str] = &["mul.rn.f32 $F, $F, $f;"];
const LOGIC: &[&str] = &["lop3.b32 $B, $B, $b, $b, 0x6a;", "prmt.b32 $B, $B, $b, 0x2143;"];
const MULTIPLY: &[&str] = &["mad.lo.s32 $B, $B, $b, $b;", "dp4a.s32.s32 $B, $b, $b, $B;"];
const HIGH: &[&str] = &["mul.hi.u32 $B, $B, $b;"];
const FMA_HALF: &[&str] =
    &["fma.rn.f16x2 $B, $B, $b, $b;", "add.rn.f16x2 $B, $B, $b;", "mul.rn.f16x2 $B, $b, $b;"];

/// Random operations of the families below; what they are made of was chosen before they were timed.
const ANY_ARITHMETIC: &[&[&str]] = &[FP32, INTEGER, SELECT, HALF, UNPACK];
const ANY_CONVERSION: &[&[&str]] = &[PACK, UNPACK, SLOW_CONVERT, XU, HALF, FP32];
const ANY_SHARED: &[&[&str]] = &[LOADS, STORES, WARP, HALF, EX2];
const ANY_MATRIX: &[&[&str]] = &[MATRIX, MATRIX_SMALL, FP32, HALF, WARP, PACK];

/// All families.
pub const FAMILIES: &[Family] = &[
    seen(
        "chain",
        "one arithmetic operation in 1 to 8 chains",
        Recipe::Chains(&[FP32, SELECT, INTEGER, HALF, FP64]),
    ),
    seen(
        "chaincvt",
        "one conversion or transcendental in 1 to 8 chains",
        Recipe::Chains(&[PACK, UNPACK, SLOW_CONVERT, XU]),
    ),
    seen("arith", "floating-point and integer arithmetic", random(&[FP32, INTEGER, SELECT], 36)),
    seen("convert", "arithmetic with conversions", random(&[FP32, PACK, UNPACK, INTEGER], 28)),
    seen("exp", "arithmetic with the exponential", random(&[FP32, EX2, FP32, PACK], 28)),
    seen(
        "xu",
        "everything that the XU does, with arithmetic",
        random(&[XU, SLOW_CONVERT, FP32, INTEGER], 28),
    ),
    seen("half", "packed half precision with fp32 and conversions", random(&[HALF, FP32, PACK, UNPACK], 28)),
    seen("double", "fp64 with fp32", random(&[FP64, FP32], 8)),
    seen("softmax", "softmax rows from CUDA C++, bf16 and e4m3", Recipe::Compiled),
    seen("quant", "NVFP4 quantisation of P from CUDA C++, all forms", Recipe::Compiled),
    seen("bodies", "GELU, normalisation, dequantisation, hashing, rotary embedding", Recipe::Compiled),
    seen("pair", "two operations in turn", Recipe::Pairs(PAIRED)),
    seen(
        "length",
        "FFMA over eight registers, bodies of many lengths",
        Recipe::Lengths("fma.rn.f32 $F, $F, $f, $f;", LENGTHS),
    ),
    seen("ffma", "FFMA alone, random operands", random(&[FFMA], 20)),
    seen("fadd", "FADD alone, random operands", random(&[FADD], 12)),
    seen("fp32", "fp32 adds, products and FMAs, random operands", random(&[FFMA, FADD, FMUL], 24)),
    seen("logic", "fp32 with logic, random operands", random(&[FFMA, FADD, LOGIC], 16)),
    seen("multiply", "fp32 with integer products", random(&[FFMA, FADD, MULTIPLY, MULTIPLY], 16)),
    seen("high", "fp32 and logic with high products", random(&[FFMA, FADD, LOGIC, HIGH], 16)),
    seen("fmahalf", "fp32 with packed half precision", random(&[FFMA, FADD, FMA_HALF, FMA_HALF], 16)),
    seen("light", "fp32 with few exponentials", random(&[FFMA, FADD, FADD, FFMA, FADD, EX2], 16)),
    memory(seen(
        "chainmem",
        "one shared-memory, warp or matrix operation in 1 to 8 chains",
        Recipe::Chains(&[WARP, LOADS, MATRIX]),
    )),
    memory(seen(
        "shared",
        "shared-memory loads and stores with arithmetic",
        random(&[LOADS, STORES, FP32], 24),
    )),
    memory(seen(
        "warp",
        "shuffles and votes with arithmetic and loads",
        random(&[WARP, FP32, INTEGER, LOADS], 24),
    )),
    memory(seen("mma", "matrix products with softmax arithmetic", random(&[MATRIX, FP32, EX2, PACK], 20))),
    memory(seen(
        "mmashared",
        "matrix products with shared-memory traffic",
        random(&[MATRIX, MATRIX_SMALL, LOADS, STORES, INTEGER], 20),
    )),
    held_out(seen(
        "unseen",
        "SwiGLU, layer normalisation, random numbers, int4, softcap and others from CUDA C++",
        Recipe::Compiled,
    )),
    held_out(seen("otherarith", "arithmetic of all kinds", random(ANY_ARITHMETIC, 40))),
    held_out(seen("otherconv", "conversions and transcendentals of all kinds", random(ANY_CONVERSION, 40))),
    memory(held_out(seen(
        "othershared",
        "shared memory, shuffles, half precision, exponentials",
        random(ANY_SHARED, 30),
    ))),
    memory(held_out(seen(
        "othermma",
        "matrix products of two shapes with all kinds of work",
        random(ANY_MATRIX, 30),
    ))),
];

const LENGTHS: &[u32] =
    &[2, 4, 8, 12, 16, 24, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512, 768, 1024, 1536];

const fn seen(name: &'static str, about: &'static str, recipe: Recipe) -> Family {
    Family { name, about, held_out: false, memory: false, recipe }
}

const fn held_out(family: Family) -> Family {
    Family { held_out: true, ..family }
}

const fn memory(family: Family) -> Family {
    Family { memory: true, ..family }
}

const fn random(ops: &'static [&'static [&'static str]], loops: u32) -> Recipe {
    Recipe::Random { ops, loops, length: [6, 120], registers: [4, 20] }
}
