// The load role: one thread that hands out the tiles and fills the rings of Q, K and V by TMA.
#pragma once
#include "shared.cuh"

namespace kbt::attention {

// Every CTA takes its last number before it counts itself done, so the last to be done may reset both.
__device__ __forceinline__ void count_done(uint32_t* counters) {
  if (atomicAdd(&counters[1], 1u) == gridDim.x - 1) {
    counters[0] = 0;
    counters[1] = 0;
  }
}

__device__ __forceinline__ void load_q(Shared& sm, const TensorMap& q, const Tile& tile) {
  const uint32_t bar = smem_address(&sm.q_full);
  mbarrier_expect_tx(bar, kQBytes);
  for (int wg = 0; wg < kSoftmaxWarpgroups; ++wg)
    for (int block = 0; block < kColumnBlocks; ++block)
      tma_load_4d(smem_address(sm.q) + (kColumnBlocks * wg + block) * kQBlock, q, bar, 64 * block,
                  tile.m * kTileM + 64 * wg, tile.head, tile.batch);
}

__device__ __forceinline__ void load_k(Shared& sm, const TensorMap& k, int slot, int n, int head, int batch) {
  const uint32_t bar = smem_address(&sm.k_full[slot]);
  mbarrier_expect_tx(bar, kKBytes);
  for (int block = 0; block < kColumnBlocks; ++block)
    tma_load_4d(smem_address(sm.k[slot]) + block * kKBlock, k, bar, 64 * block, n * kTileN, head, batch);
}

__device__ __forceinline__ void load_v(Shared& sm, const TensorMap& v, int slot, int n, int head, int batch) {
  const uint32_t bar = smem_address(&sm.v_full[slot]);
  mbarrier_expect_tx(bar, kVBytes);
  for (int block = 0; block < kVBlocks; ++block) {
    const uint32_t to = smem_address(sm.v[slot]) + block * kVBlock;
    if constexpr (kFp8Operands)
      tma_load_4d(to, v, bar, n * kTileN + 128 * block, 0, head, batch);
    else
      tma_load_4d(to, v, bar, 64 * block, n * kTileN, head, batch);
  }
}

template <class Tracer>
__device__ void load_role(Shared& sm, const TensorMap& q, const TensorMap& k, const TensorMap& v,
                          const kbt_attention_params& p, Tracer& trace) {
  prefetch_tensor_map(q);
  prefetch_tensor_map(k);
  prefetch_tensor_map(v);
  auto* counters = reinterpret_cast<uint32_t*>(p.counters);
  Ring<kStages> ring;
  Ring<2> tiles;
  uint32_t q_parity = 1;
  int index = blockIdx.x;
  while (true) {
    mbarrier_wait(smem_address(&sm.tile_empty[tiles.slot]), tiles.parity ^ 1);
    sm.tile[tiles.slot] = index;
    mbarrier_arrive(smem_address(&sm.tile_full[tiles.slot]));
    tiles.advance();
    if (index >= all_tiles(p)) break;
    const Tile tile = tile_at(p, index);
    const int kv_head = tile.head / p.heads_per_kv;
    // Asked for now, needed after the loads.
    index = gridDim.x + (counters ? static_cast<int>(atomicAdd(counters, 1u)) : index);
    for (int n = tile.steps - 1; n >= 0; --n) {
      traced_wait(trace, KBT_BARRIER_K_EMPTY, sm.k_empty[ring.slot], ring.parity ^ 1);
      load_k(sm, k, ring.slot, n, kv_head, tile.batch);
      if (n == tile.steps - 1) {
        traced_wait(trace, KBT_BARRIER_Q_EMPTY, sm.q_empty, q_parity);
        q_parity ^= 1;
        load_q(sm, q, tile);
      }
      traced_wait(trace, KBT_BARRIER_V_EMPTY, sm.v_empty[ring.slot], ring.parity ^ 1);
      load_v(sm, v, ring.slot, n, kv_head, tile.batch);
      ring.advance();
    }
  }
  if (counters) count_done(counters);
}
}  // namespace kbt::attention
