// Topology 1: P stays in the registers of the warpgroup that made it. P V of step n runs beside the softmax of step n + 1,
// MMA tile by MMA tile: a warp that has issued one product waits at the next until the tensor core has taken it, so
// what stands behind all of them would wait for all of them.
#pragma once
#include "products.cuh"
#include "softmax.cuh"

namespace kbt::attention {

constexpr int kRestTiles = kMmaTiles - kFirstTiles;
constexpr int kMmaScores = kMmaK / 2;  // of a thread, in one MMA tile
constexpr int kFirstGroups = kFirstTiles * kMmaK / 16;
// Products that run beside the maximum. An e4m3 tile of 192 keys has six: a fourth there measured 1 % faster.
constexpr int kMaxTiles = kMmaTiles == 6 ? 4 : 3;
// Groups whose exp2 and conversion are done when the last product is issued, and those of them that take the place of
// probabilities which the products that are over by then have read.
constexpr int kBesideGroups = kMmaTiles - kMaxTiles;
constexpr int kEarlyTiles = kMmaTiles - 2 < kFirstTiles ? kMmaTiles - 2 : kFirstTiles;
constexpr int kEarlyGroups = kBesideGroups < kEarlyTiles * kMmaK / 16 ? kBesideGroups : kEarlyTiles * kMmaK / 16;

// One warpgroup's probabilities between a step's softmax and its product: packed, and the rest still in f32.
struct Probabilities {
  uint32_t packed[4 * kMmaTiles];
  float rest[kRestTiles * kMmaScores];
};

__device__ __forceinline__ void keep_rest(const float (&s)[kScores], Probabilities& p) {
#pragma unroll
  for (int i = 0; i < kRestTiles * kMmaScores; ++i) p.rest[i] = s[kFirstTiles * kMmaScores + i];
}
// Groups [From, To) of those that are packed before the first product.
template <int From, int To>
__device__ __forceinline__ void pack_groups(const float (&s)[kScores], Probabilities& p) {
#pragma unroll
  for (int g = From; g < To; ++g) pack_group(s, g, p.packed + g * (kFp8Operands ? 2 : 4));
}
__device__ __forceinline__ void pack_rest(Probabilities& p) {
#pragma unroll
  for (int g = 0; g < kGroups - kFirstGroups; ++g)
    pack_group(p.rest, g, p.packed + (kFirstGroups + g) * (kFp8Operands ? 2 : 4));
}

struct FusedRings {
  Ring<kStages> k, v;
  uint32_t tile_parity = 0;
};

__device__ __forceinline__ void issue_qk(float (&s)[kScores], Shared& sm, int wg, const FusedRings& rings) {
  pin(s);
  wgmma_fence();
  qk(s, sm, wg, rings.k.slot);
  wgmma_commit();
}

// MMA tile t of P V.
__device__ __forceinline__ void issue_pv(float (&o)[kOutputs], Probabilities& pr, const Shared& sm, int slot, int t,
                                         bool first) {
  if (t == kFirstTiles) pack_rest(pr);
  pin(o);
  wgmma_fence();
  pv_registers(o, pr.packed, sm, slot, t, first);
  wgmma_commit();
}

// What stands between two products stays there.
__device__ __forceinline__ void hold(float (&s)[kScores]) {
  pin(s);
  scheduling_fence();
}

// One step's softmax and the product of the step before it. The maximum takes the first products' time, the
// exponentials that of the others and what is left of their own.
template <class Tracer>
__device__ __forceinline__ void softmax_beside_pv(float (&s)[kScores], float (&o)[kOutputs], Probabilities& pr,
                                                  RowState& state, Shared& sm, const kbt_attention_params& p, int n,
                                                  const Tile& tile, int query, FusedRings& rings, bool first,
                                                  float (&alpha)[2], Tracer& trace) {
  PartMax tile_max;
  float bias[2];
  const int slot = rings.v.slot;
  issue_pv(o, pr, sm, slot, 0, first);
  wgmma_wait<1>();
  pin(s);
  trace.detail_end(KBT_EVENT_QK);
  arrive_warp(sm.k_empty[rings.k.slot]);
  if (n == 0) arrive_warp(sm.q_empty);
  rings.k.advance();
  trace.begin(KBT_EVENT_SOFTMAX);
  mask_if_needed(s, p, n, tile.m, query);
  part_max(s, tile_max, 0, kTileN / 16);
  hold(s);
#pragma unroll
  for (int t = 1; t < kMaxTiles - 1; ++t) issue_pv(o, pr, sm, slot, t, first);
  part_max(s, tile_max, kTileN / 16, kTileN / 8);
  hold(s);
  issue_pv(o, pr, sm, slot, kMaxTiles - 1, first);
  update_reference(tile_max, state, p.scale_log2, alpha, bias);
  exp_first(s, bias, p.scale_log2);
#pragma unroll
  for (int t = kMaxTiles; t < kMmaTiles; ++t) {
    hold(s);
    issue_pv(o, pr, sm, slot, t, first);
    convert_groups<1>(s, t - kMaxTiles, bias, p.scale_log2, state);
  }
  hold(s);
  wgmma_wait<2>();
  pack_groups<0, kEarlyGroups>(s, pr);
  convert_groups<kGroups - kBesideGroups>(s, kBesideGroups, bias, p.scale_log2, state);
  trace.end(KBT_EVENT_SOFTMAX);
  hold(s);
}

__device__ __forceinline__ void rescale_output(float (&o)[kOutputs], const float (&alpha)[2]) {
  // Most steps leave the reference where it was: then nothing changes, exactly.
  if (__any_sync(0xffffffffu, alpha[0] != 1.0f || alpha[1] != 1.0f)) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= alpha[(i >> 1) & 1];
  }
}

template <class Tracer>
__device__ __forceinline__ void fused_tile(Shared& sm, const kbt_attention_params& p, int wg, const Tile& tile,
                                           FusedRings& rings, Tracer& trace) {
  const Rows rows = rows_of(wg, tile.m);
  RowState state;
  float s[kScores], o[kOutputs], alpha[2], bias[2];
  Probabilities pr;
  traced_wait(trace, KBT_BARRIER_Q_FULL, sm.q_full, rings.tile_parity);
  traced_wait(trace, KBT_BARRIER_K_FULL, sm.k_full[rings.k.slot], rings.k.parity);
  issue_qk(s, sm, wg, rings);
  wgmma_wait<0>();
  pin(s);
  arrive_warp(sm.k_empty[rings.k.slot]);
  if (tile.steps == 1) arrive_warp(sm.q_empty);
  rings.k.advance();
  trace.begin(KBT_EVENT_SOFTMAX);
  mask_if_needed(s, p, tile.steps - 1, tile.m, rows.query);
  PartMax tile_max;
  part_max(s, tile_max, 0, kTileN / 8);
  update_reference(tile_max, state, p.scale_log2, alpha, bias);
  exp_first(s, bias, p.scale_log2);
  convert_groups<kGroups>(s, 0, bias, p.scale_log2, state);
  trace.end(KBT_EVENT_SOFTMAX);
  pack_groups<0, kFirstGroups>(s, pr);
  keep_rest(s, pr);

  for (int n = tile.steps - 2; n >= 0; --n) {
    const bool first = n == tile.steps - 2;
    traced_wait(trace, KBT_BARRIER_K_FULL, sm.k_full[rings.k.slot], rings.k.parity);
    trace.detail_begin(KBT_EVENT_QK);
    issue_qk(s, sm, wg, rings);
    if (!first) rescale_output(o, alpha);
    traced_wait(trace, KBT_BARRIER_V_FULL, sm.v_full[rings.v.slot], rings.v.parity);
    softmax_beside_pv(s, o, pr, state, sm, p, n, tile, rows.query, rings, first, alpha, trace);
    trace.begin(KBT_EVENT_PV);
    wgmma_wait<0>();
    pin(o);
    trace.end(KBT_EVENT_PV);
    arrive_warp(sm.v_empty[rings.v.slot]);
    rings.v.advance();
    pack_groups<kEarlyGroups, kFirstGroups>(s, pr);
    keep_rest(s, pr);
  }
  traced_wait(trace, KBT_BARRIER_V_FULL, sm.v_full[rings.v.slot], rings.v.parity);
  trace.begin(KBT_EVENT_EPILOGUE);
  if (tile.steps > 1) rescale_output(o, alpha);
#pragma unroll
  for (int t = 0; t < kMmaTiles; ++t) issue_pv(o, pr, sm, rings.v.slot, t, tile.steps == 1);
  const float factor[2] = {finish_row(state, 0, p, rows.query, tile),
                           finish_row(state, 1, p, rows.query + 8, tile)};
  wgmma_wait<0>();
  pin(o);
  arrive_warp(sm.v_empty[rings.v.slot]);
  rings.v.advance();
  write_rows(o, factor, p, rows.query, tile);
  trace.end(KBT_EVENT_EPILOGUE);
  rings.tile_parity ^= 1;
}

template <class Tracer>
__device__ void fused_role(Shared& sm, const kbt_attention_params& p, int wg, Tracer& trace) {
  Ring<2> tiles;
  Tile tile;
  FusedRings rings;
  while (next_tile(sm, p, tiles, tile)) fused_tile(sm, p, wg, tile, rings, trace);
}
}  // namespace kbt::attention
