// The matrix products: S = Q K^T, and O += P V with P in shared memory or registers.
#pragma once
#include "kbt/wgmma.cuh"
#include "shared.cuh"

namespace kbt::attention {

// MMA tile t of S[64 x tile] = Q K^T for one warpgroup's 64 rows.
__device__ __forceinline__ void qk_tile(float (&s)[kScores], const Shared& sm, int wg, int slot, int t) {
  const uint64_t a = matrix_descriptor(smem_address(sm.q) + wg * kColumnBlocks * kQBlock, 0, 1024);
  const uint64_t b = matrix_descriptor(smem_address(sm.k[slot]), 0, 1024);
  const int a_offset = (t / 4) * kQBlock + (t % 4) * 32;
  const int b_offset = (t / 4) * kKBlock + (t % 4) * 32;
  wgmma_bf16_ss<0>(s, a + (a_offset >> 4), b + (b_offset >> 4), t > 0);
}

__device__ __forceinline__ void qk(float (&s)[kScores], const Shared& sm, int wg, int slot) {
#pragma unroll
  for (int t = 0; t < kHeadDim / 16; ++t) qk_tile(s, sm, wg, slot, t);
}

// Descriptor of V's K extent t: K-major rows of 128 keys for fp8, MN-major 16-row steps otherwise.
__device__ __forceinline__ uint64_t v_descriptor(const Shared& sm, int slot, int t) {
  const uint32_t base = smem_address(sm.v[slot]);
  if constexpr (kFp8Operands)
    return matrix_descriptor(base, 0, 1024) + (((t / 4) * kVBlock + (t % 4) * 32) >> 4);
  return matrix_descriptor(base, kVBlock, 1024) + ((t * 16 * 128) >> 4);
}

// O += P V for the MMA tiles [From, To), P in shared memory.
template <int From, int To>
__device__ __forceinline__ void pv_shared(float (&o)[kOutputs], const Shared& sm, int wg, int buffer, int slot,
                                          bool first) {
  const uint64_t a = matrix_descriptor(smem_address(sm.p[wg][buffer]), 0, 1024);
#pragma unroll
  for (int t = From; t < To; ++t) {
    const int bytes = t * 32;  // 16 bf16 or 32 e4m3
    const int a_offset = (bytes / 128) * (64 * 128) + bytes % 128;
    const int accumulate = !(first && t == 0);
    if constexpr (kFp8Operands)
      wgmma_e4m3_ss(o, a + (a_offset >> 4), v_descriptor(sm, slot, t), accumulate);
    else
      wgmma_bf16_ss<1>(o, a + (a_offset >> 4), v_descriptor(sm, slot, t), accumulate);
  }
}

// The same for MMA tile t alone, P as packed registers: 4 an MMA tile.
__device__ __forceinline__ void pv_registers(float (&o)[kOutputs], const uint32_t (&p)[4 * kMmaTiles],
                                             const Shared& sm, int slot, int t, bool first) {
  const int accumulate = !(first && t == 0);
  if constexpr (kFp8Operands)
    wgmma_e4m3_rs(o, p[4 * t], p[4 * t + 1], p[4 * t + 2], p[4 * t + 3], v_descriptor(sm, slot, t), accumulate);
  else
    wgmma_bf16_rs<1>(o, p[4 * t], p[4 * t + 1], p[4 * t + 2], p[4 * t + 3], v_descriptor(sm, slot, t),
                     accumulate);
}
}  // namespace kbt::attention
