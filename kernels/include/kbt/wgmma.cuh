// Hopper's warpgroup matrix product as thin inline PTX: fences, groups and the shapes that kernels here use.
// One function an instruction, overloaded on the accumulator's size; no policy lives here.
#pragma once
#include <stdint.h>

namespace kbt {

// Shared-memory matrix descriptor with 128-byte swizzle.
// K-major operands: `stride` is the distance of 8-row groups, `leading` is unused.
// MN-major operands: `leading` is the distance of 64-element blocks along MN, `stride` of 8-row groups along K.
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address, uint32_t leading,
                                                      uint32_t stride) {
  return (uint64_t{1} << 62) | (uint64_t{(stride >> 4) & 0x3fff} << 32) |
         (uint64_t{(leading >> 4) & 0x3fff} << 16) | uint64_t{(address & 0x3ffff) >> 4};
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving accesses to accumulators across a wait: WGMMA writes them behind its back.
__device__ __forceinline__ void pin(float& d) { asm volatile("" : "+f"(d)::"memory"); }
template <int N>
__device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) pin(d[i]);
}

#define KBT_ACC8(d, i)                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),       \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KBT_ACC32(d, i) KBT_ACC8(d, i), KBT_ACC8(d, i + 8), KBT_ACC8(d, i + 16), KBT_ACC8(d, i + 24)

#define KBT_N64_ACC(d) KBT_ACC32(d, 0)
#define KBT_N64_TEXT \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KBT_N128_ACC(d) KBT_ACC32(d, 0), KBT_ACC32(d, 32)
#define KBT_N128_TEXT \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KBT_N176_ACC(d) KBT_ACC32(d, 0), KBT_ACC32(d, 32), KBT_ACC8(d, 64), KBT_ACC8(d, 72), KBT_ACC8(d, 80)
#define KBT_N176_TEXT \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87"
#define KBT_N192_ACC(d) KBT_ACC32(d, 0), KBT_ACC32(d, 32), KBT_ACC32(d, 64)
#define KBT_N192_TEXT \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// The four products D[64xN] (+)= A B of one N, A of 16 bf16 or 32 e4m3 columns in shared memory (ss) or registers (rs).
// B of bf16 is MN-major if TransposeB; e4m3 is K-major. I0 to I6 are the operands behind the accumulators.
#define KBT_WGMMA(N, REGS, I0, I1, I2, I3, I4, I5, I6)                                                \
  template <int TransposeB>                                                                           \
  __device__ __forceinline__ void wgmma_bf16_ss(float (&d)[REGS], uint64_t a, uint64_t b,             \
                                                int accumulate) {                                     \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " I2                                             \
                 ", 0;\n wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" KBT_N##N##_TEXT   \
                 "}, " I0 ", " I1 ", p, 1, 1, 0, " I3 ";\n}\n"                                        \
                 : KBT_N##N##_ACC(d)                                                                  \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeB));                                 \
  }                                                                                                   \
  template <int TransposeB>                                                                           \
  __device__ __forceinline__ void wgmma_bf16_rs(float (&d)[REGS], uint32_t a0, uint32_t a1,           \
                                                uint32_t a2, uint32_t a3, uint64_t b,                 \
                                                int accumulate) {                                     \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " I5                                             \
                 ", 0;\n wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" KBT_N##N##_TEXT   \
                 "}, {" I0 ", " I1 ", " I2 ", " I3 "}, " I4 ", p, 1, 1, " I6 ";\n}\n"                 \
                 : KBT_N##N##_ACC(d)                                                                  \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate), "n"(TransposeB));     \
  }                                                                                                   \
  __device__ __forceinline__ void wgmma_e4m3_ss(float (&d)[REGS], uint64_t a, uint64_t b,             \
                                                int accumulate) {                                     \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " I2                                             \
                 ", 0;\n wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" KBT_N##N##_TEXT   \
                 "}, " I0 ", " I1 ", p, 1, 1;\n}\n"                                                   \
                 : KBT_N##N##_ACC(d)                                                                  \
                 : "l"(a), "l"(b), "r"(accumulate));                                                  \
  }                                                                                                   \
  __device__ __forceinline__ void wgmma_e4m3_rs(float (&d)[REGS], uint32_t a0, uint32_t a1,           \
                                                uint32_t a2, uint32_t a3, uint64_t b,                 \
                                                int accumulate) {                                     \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " I5                                             \
                 ", 0;\n wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" KBT_N##N##_TEXT   \
                 "}, {" I0 ", " I1 ", " I2 ", " I3 "}, " I4 ", p, 1, 1;\n}\n"                         \
                 : KBT_N##N##_ACC(d)                                                                  \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));                      \
  }

KBT_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
KBT_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
KBT_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
KBT_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")

}  // namespace kbt
