// Hopper's asynchronous machinery as thin inline PTX: mbarriers, named barriers, TMA, setmaxnreg, conversions.
// One function an instruction; no policy lives here. Matrix products are in wgmma.cuh.
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

// Named barriers of the CTA: `threads` counts those that wait and those that only arrive.
__device__ __forceinline__ void named_barrier_wait(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
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

// ---- registers and small arithmetic ----------------------------------------------------------------------

template <int Registers>
__device__ __forceinline__ void register_budget_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void register_budget_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// ptxas moves arithmetic across products, waits and compiler barriers as it likes, but not across this trigger of a
// performance monitor event, which has no other effect where no profiler listens.
__device__ __forceinline__ void scheduling_fence() { asm volatile("pmevent 15;" ::: "memory"); }

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
// 2^x on the FMA and integer pipes: x = n + f with |f| <= 1/2, 2^f by the cubic of least relative error (7.5e-5), n added to the exponent. Below -126 the result is 2^-126; x is at most 127.
__device__ __forceinline__ float exp2_polynomial(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: its sum with x has n in the low bits, its own bits shift out
  x = fmaxf(x, -126.0f);
  const float rounded = x + kRound;
  const float f = x - (rounded - kRound);
  const float p = fmaf(fmaf(fmaf(0.055171669f, f, 0.24261113f), f, 0.69326097f), f, 0.99992806f);
  return __uint_as_float((__float_as_uint(rounded) << 23) + __float_as_uint(p));
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
