// Hopper's asynchronous machinery as thin inline PTX: mbarriers, TMA, WGMMA, setmaxnreg.
// One function an instruction; no policy lives here.
#pragma once
#include <stdint.h>

namespace kbt {

// A CUtensorMap, opaque: encoded on the host, passed by value as __grid_constant__.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

__device__ __forceinline__ uint32_t smem_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile(
      "{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(elected));
  return elected != 0;
}

// ---- mbarriers -------------------------------------------------------------------------------------------

__device__ __forceinline__ void mbarrier_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the asynchronous proxy.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void mbarrier_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
  while (!mbarrier_try_wait(bar, parity)) {
  }
}

// Shared memory written by ordinary stores becomes visible to WGMMA and TMA. Every writing thread runs it
// before it arrives on the barrier that its reader waits for.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- TMA -------------------------------------------------------------------------------------------------

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}

// Loads a box of a rank-4 tensor; out-of-range elements arrive as zero and count as bytes.
__device__ __forceinline__ void tma_load_4d(uint32_t dst, const TensorMap& map, uint32_t bar, int c0,
                                            int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// ---- WGMMA -----------------------------------------------------------------------------------------------

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
template <int N>
__device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define KBT_ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KBT_ACC16(d, i) KBT_ACC4(d, i), KBT_ACC4(d, i + 4), KBT_ACC4(d, i + 8), KBT_ACC4(d, i + 12)
#define KBT_ACC64(d) KBT_ACC16(d, 0), KBT_ACC16(d, 16), KBT_ACC16(d, 32), KBT_ACC16(d, 48)
#define KBT_ACC64_TEXT                                                                        \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "          \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "          \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// D[64x128] (+)= A[64x16] B[16x128], bf16 operands in shared memory, B MN-major if TransposeB.
template <int TransposeB>
__device__ __forceinline__ void wgmma_bf16_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " KBT_ACC64_TEXT
      ", %64, %65, p, 1, 1, 0, %67;\n}\n"
      : KBT_ACC64(d)
      : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeB));
}

// The same with A in registers.
template <int TransposeB>
__device__ __forceinline__ void wgmma_bf16_rs(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2,
                                              uint32_t a3, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " KBT_ACC64_TEXT
      ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
      : KBT_ACC64(d)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate), "n"(TransposeB));
}

// D[64x128] (+)= A[64x32] B[32x128], e4m3 operands, both K-major.
__device__ __forceinline__ void wgmma_e4m3_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " KBT_ACC64_TEXT
      ", %64, %65, p, 1, 1;\n}\n"
      : KBT_ACC64(d)
      : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void wgmma_e4m3_rs(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2,
                                              uint32_t a3, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " KBT_ACC64_TEXT
      ", {%64, %65, %66, %67}, %68, p, 1, 1;\n}\n"
      : KBT_ACC64(d)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));
}

// ---- registers and small arithmetic ----------------------------------------------------------------------

template <int Registers>
__device__ __forceinline__ void register_budget_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void register_budget_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Not volatile: the scheduler may move it, as it would a compiler-generated instruction.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// {high, low} as bf16.
__device__ __forceinline__ uint32_t pack_bf16(float high, float low) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// Four e4m3 codes, element 0 in the lowest byte.
__device__ __forceinline__ uint32_t pack_e4m3(float x3, float x2, float x1, float x0) {
  uint32_t d;
  asm("{\n .reg .b16 l, h;\n cvt.rn.satfinite.e4m3x2.f32 l, %3, %4;\n"
      " cvt.rn.satfinite.e4m3x2.f32 h, %1, %2;\n mov.b32 %0, {l, h};\n}\n"
      : "=r"(d)
      : "f"(x3), "f"(x2), "f"(x1), "f"(x0));
  return d;
}

__device__ __forceinline__ void store_matrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                                uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_matrix_x2(uint32_t address, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b)
               : "memory");
}

}  // namespace kbt
