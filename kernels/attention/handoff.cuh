// Topology 0: the softmax warpgroups hand P over through shared memory, in chunks behind two mbarriers: the first
// chunks at signal 1, the rest at signal 2. One warpgroup multiplies both halves of the tile by V.
#pragma once
#include "products.cuh"
#include "softmax.cuh"

namespace kbt::attention {

// Where this lane's row of an 8x8 matrix begins: `unit` counts 16-byte units along the row.
__device__ __forceinline__ uint32_t p_address(uint32_t base, int row, int unit) {
  return base + (unit / 8) * (64 * 128) + row * 128 + (((unit % 8) ^ (row % 8)) << 4);
}

// Converts and stores chunk c of P.
__device__ __forceinline__ void store_chunk(float (&s)[kScores], int chunk, uint32_t p_base,
                                            const float (&bias)[2], float scale_log2, RowState& state) {
  const int lane = threadIdx.x % 32;
  const int row = 16 * ((threadIdx.x / 32) % 4) + lane % 16;
  convert_groups<kChunkGroups>(s, chunk * kChunkGroups, bias, scale_log2, state);
#pragma unroll
  for (int g = 0; g < kChunkGroups; ++g) {
    const int group = chunk * kChunkGroups + g;
    uint32_t packed[4];
    pack_group(s, group, packed);
    if constexpr (kFp8Operands)
      store_matrix_x2(p_address(p_base, row, group), packed[0], packed[1]);
    else
      store_matrix_x4(p_address(p_base, row, 2 * group + lane / 16), packed[0], packed[1], packed[2],
                      packed[3]);
  }
}

// After every lane's stores are visible to WGMMA; the caller arrives.
template <class Tracer>
__device__ __forceinline__ void release_to_mma(uint32_t id, Tracer& trace) {
  fence_proxy_async();
  __syncwarp();
  trace.arrive(id);  // after the fence, which may wait for the record's store
}

struct SoftmaxRings {
  Ring<kStages> k;
  Ring<kPBuffers> p;
  uint32_t tile_parity = 0;
};

template <class Tracer>
__device__ __forceinline__ void softmax_tile(Shared& sm, const kbt_attention_params& p, int wg, const Tile& tile,
                                             SoftmaxRings& rings, Tracer& trace) {
  const Rows rows = rows_of(wg, tile.m);
  RowState state;
  traced_wait(trace, KBT_BARRIER_Q_FULL, sm.q_full, rings.tile_parity);
  for (int n = tile.steps - 1; n >= 0; --n) {
    float s[kScores];
    traced_wait(trace, KBT_BARRIER_K_FULL, sm.k_full[rings.k.slot], rings.k.parity);
    trace.detail_begin(KBT_EVENT_QK);
    pin(s);
    wgmma_fence();
    qk(s, sm, wg, rings.k.slot);
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    trace.detail_end(KBT_EVENT_QK);
    arrive_warp(sm.k_empty[rings.k.slot]);
    if (n == 0) arrive_warp(sm.q_empty);
    rings.k.advance();

    trace.detail_begin(KBT_EVENT_SOFTMAX);
    mask_if_needed(s, p, n, tile.m, rows.query);
    float alpha[2], bias[2];
    PartMax tile_max;
    part_max(s, tile_max, 0, kTileN / 8);
    update_reference(tile_max, state, p.scale_log2, alpha, bias);
    exp_first(s, bias, p.scale_log2);
    trace.detail_end(KBT_EVENT_SOFTMAX);

    const int slot = rings.p.slot;
    traced_wait(trace, KBT_BARRIER_P_EMPTY_0 + wg, sm.p_empty[wg][slot], rings.p.parity ^ 1);
    trace.begin(KBT_EVENT_P_CHUNKS);
    if (threadIdx.x % 4 == 0) {
      sm.alpha[wg][slot][rows.first % 64] = alpha[0];
      sm.alpha[wg][slot][rows.first % 64 + 8] = alpha[1];
    }
    const bool grew = __any_sync(0xffffffffu, alpha[0] != 1.0f || alpha[1] != 1.0f);
    if (threadIdx.x % 32 == 0) sm.grew[wg][slot][(threadIdx.x / 32) % 4] = grew;
    const uint32_t p_base = smem_address(sm.p[wg][slot]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      store_chunk(s, c, p_base, bias, p.scale_log2, state);
      if (c == kFirstChunks - 1) {
        release_to_mma(KBT_BARRIER_P_FIRST_0 + wg, trace);
        arrive_rows(sm.p_first[wg][slot]);
      }
    }
    release_to_mma(KBT_BARRIER_P_REST_0 + wg, trace);
    arrive_warp(sm.p_rest[wg][slot]);
    trace.end(KBT_EVENT_P_CHUNKS);
    rings.p.advance();
  }
  mbarrier_wait(smem_address(&sm.l_empty[wg]), rings.tile_parity ^ 1);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = finish_row(state, r, p, rows.query + 8 * r, tile);
    if (threadIdx.x % 4 == 0) sm.inverse_sum[wg][rows.first % 64 + 8 * r] = factor;
  }
  arrive_rows(sm.l_full[wg]);
  rings.tile_parity ^= 1;
}

__device__ __forceinline__ void rescale(float (&o)[kOutputs], float a0, float a1) {
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) o[i] *= (i & 2) ? a1 : a0;
}

struct PvRings {
  Ring<kStages> v;
  Ring<kPBuffers> p;
  uint32_t tile_parity = 0;
};

// One softmax warpgroup's half of a P.V step: rescale, multiply the first tiles, wait for the rest.
template <class Tracer>
__device__ __forceinline__ void pv_half(float (&o)[kOutputs], Shared& sm, int wg, const PvRings& rings, bool first,
                                        int row, Tracer& trace) {
  const int buffer = rings.p.slot;
  traced_wait(trace, KBT_BARRIER_P_FIRST_0 + wg, sm.p_first[wg][buffer], rings.p.parity);
  if (!first) {
    // Read by the lanes that arrive for it, then passed round. The branch must be one for all four warps.
    float a[2] = {};
    bool grew = false;
    if (threadIdx.x % 4 == 0) {
      a[0] = sm.alpha[wg][buffer][row];
      a[1] = sm.alpha[wg][buffer][row + 8];
      grew = *reinterpret_cast<const uint32_t*>(sm.grew[wg][buffer]) != 0;
    }
    // Most steps leave the maximum where it was: then nothing changes, exactly.
    if (__any_sync(0xffffffffu, grew)) {
      wgmma_wait<0>();  // ptxas lets no accumulator change while the other half's product runs
      rescale(o, quad_first(a[0]), quad_first(a[1]));
    }
  }
  pin(o);
  wgmma_fence();
  pv_shared<0, kFirstTiles>(o, sm, wg, buffer, rings.v.slot, first);
  traced_wait(trace, KBT_BARRIER_P_REST_0 + wg, sm.p_rest[wg][buffer], rings.p.parity);
  wgmma_fence();  // the wait above is a branch: a new pipeline stage for the compiler
  pv_shared<kFirstTiles, kMmaTiles>(o, sm, wg, buffer, rings.v.slot, first);
  wgmma_commit();
}

template <class Tracer>
__device__ __forceinline__ void pv_tile(Shared& sm, const kbt_attention_params& p, const Tile& tile, PvRings& rings,
                                        Tracer& trace) {
  const int row = rows_of(0, tile.m).first;
  float o0[kOutputs], o1[kOutputs];
  for (int j = 0; j < tile.steps; ++j) {
    traced_wait(trace, KBT_BARRIER_V_FULL, sm.v_full[rings.v.slot], rings.v.parity);
    trace.begin(KBT_EVENT_PV);
    pv_half(o0, sm, 0, rings, j == 0, row, trace);
    pv_half(o1, sm, 1, rings, j == 0, row, trace);
    wgmma_wait<1>();
    pin(o0);
    arrive_rows(sm.p_empty[0][rings.p.slot]);
    wgmma_wait<0>();
    pin(o1);
    trace.end(KBT_EVENT_PV);
    arrive_rows(sm.p_empty[1][rings.p.slot]);
    arrive_warp(sm.v_empty[rings.v.slot]);
    rings.v.advance();
    rings.p.advance();
  }
  trace.begin(KBT_EVENT_EPILOGUE);
#pragma unroll
  for (int wg = 0; wg < 2; ++wg) {
    traced_wait(trace, KBT_BARRIER_L_FULL_0 + wg, sm.l_full[wg], rings.tile_parity);
    float factor[2] = {};
    if (threadIdx.x % 4 == 0) {
      factor[0] = sm.inverse_sum[wg][row];
      factor[1] = sm.inverse_sum[wg][row + 8];
    }
    arrive_rows(sm.l_empty[wg]);
    factor[0] = quad_first(factor[0]);
    factor[1] = quad_first(factor[1]);
    write_rows(wg ? o1 : o0, factor, p, rows_of(wg, tile.m).query, tile);
  }
  trace.end(KBT_EVENT_EPILOGUE);
  rings.tile_parity ^= 1;
}

template <class Tracer>
__device__ void softmax_role(Shared& sm, const kbt_attention_params& p, int wg, Tracer& trace) {
  Ring<2> tiles;
  Tile tile;
  SoftmaxRings rings;
  while (next_tile(sm, p, tiles, tile)) softmax_tile(sm, p, wg, tile, rings, trace);
}

template <class Tracer>
__device__ void pv_role(Shared& sm, const kbt_attention_params& p, Tracer& trace) {
  Ring<2> tiles;
  Tile tile;
  PvRings rings;
  while (next_tile(sm, p, tiles, tile)) pv_tile(sm, p, tile, rings, trace);
}
}  // namespace kbt::attention
