// Shared memory of a CTA, its barriers, and the tile that a CTA works on. No arithmetic lives here.
#pragma once
#include "config.cuh"
#include "kbt/attention.h"
#include "kbt/sm90.cuh"
#include "kbt/trace.cuh"

namespace kbt::attention {

constexpr int kKBlock = kTileN * 128;  // bytes of one 128-byte column block of K, of V in bf16
constexpr int kQBlock = 64 * 128;      // the same of one softmax warpgroup's rows of Q
constexpr int kColumnBlocks = kHeadDim / 64;
constexpr int kQBytes = kTileM * kHeadDim * 2;
constexpr int kKBytes = kTileN * kHeadDim * 2;
// e4m3: blocks of 128 keys, head dimension rows of 128 bytes each.
constexpr int kVBlocks = kFp8Operands ? (kTileN + 127) / 128 : kColumnBlocks;
constexpr int kVBlock = kFp8Operands ? kHeadDim * 128 : kKBlock;
constexpr int kVBytes = kVBlocks * kVBlock;
constexpr int kPBytes = 64 * kTileN * (kFp8Operands ? 1 : 2);  // of one softmax warpgroup

// Lanes of a warpgroup that speak for their rows, one a quad. Each arrives for itself on the barriers that order the
// values of rows: an arrival of one lane behind __syncwarp would do, but compute-sanitizer does not follow it.
constexpr int kRowLanes = 32;

struct Shared {
  alignas(1024) uint8_t q[kQBytes];
  alignas(1024) uint8_t k[kStages][kKBytes];
  alignas(1024) uint8_t v[kStages][kVBytes];
  alignas(1024) uint8_t p[kRegisterP ? 1 : 2][kRegisterP ? 1 : kPBuffers][kRegisterP ? 16 : kPBytes];
  float alpha[2][kPBuffers][64];
  alignas(4) uint8_t grew[2][kPBuffers][4];  // by warp: whether any of its rows has an alpha other than one
  float inverse_sum[2][64];
  uint64_t q_full, q_empty;
  uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  uint64_t p_first[2][kPBuffers], p_rest[2][kPBuffers], p_empty[2][kPBuffers];
  uint64_t l_full[2], l_empty[2];
  uint64_t tile_full[2], tile_empty[2];
  int tile[2];
};

__device__ __forceinline__ void init_barriers(Shared& sm) {
  const auto init = [](uint64_t& bar, uint32_t arrivals) { mbarrier_init(smem_address(&bar), arrivals); };
  constexpr int kSoftmaxWarps = 4 * kSoftmaxWarpgroups;
  init(sm.q_full, 1);
  init(sm.q_empty, kSoftmaxWarps);
  for (int i = 0; i < kStages; ++i) {
    init(sm.k_full[i], 1);
    init(sm.v_full[i], 1);
    init(sm.k_empty[i], kSoftmaxWarps);
    init(sm.v_empty[i], kRegisterP ? kSoftmaxWarps : 4);  // every warp that multiplies P
  }
  for (int wg = 0; wg < 2; ++wg) {
    for (int i = 0; i < kPBuffers; ++i) {
      init(sm.p_first[wg][i], kRowLanes);
      init(sm.p_rest[wg][i], 4);
      init(sm.p_empty[wg][i], kRowLanes);
    }
    init(sm.l_full[wg], kRowLanes);
    init(sm.l_empty[wg], kRowLanes);
    init(sm.tile_full[wg], 1);
    init(sm.tile_empty[wg], 4 * (kWarpgroups - 1));
  }
  fence_barrier_init();
}

// Position in a ring of `Depth` slots and the parity of the current pass over it.
template <int Depth>
struct Ring {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == Depth) {
      slot = 0;
      parity ^= 1;
    }
  }
};

template <class Tracer>
__device__ __forceinline__ void traced_wait(Tracer& trace, uint32_t id, const uint64_t& bar,
                                            uint32_t parity) {
  trace.wait_begin(id);
  mbarrier_wait(smem_address(&bar), parity);
  trace.wait_end(id);
}

// Once a warp, when all its lanes are through.
__device__ __forceinline__ void arrive_warp(const uint64_t& bar) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(smem_address(&bar));
}

// Once a quad: of the lanes that read or write the values of rows.
__device__ __forceinline__ void arrive_rows(const uint64_t& bar) {
  if (threadIdx.x % 4 == 0) mbarrier_arrive(smem_address(&bar));
}

// ---- tiles -----------------------------------------------------------------------------------------------

// One tile of queries of one head.
struct Tile {
  int m, head, batch;
  int steps;  // tiles of keys
};

__device__ __forceinline__ int m_tiles(const kbt_attention_params& p) { return (p.seqlen + kTileM - 1) / kTileM; }

__device__ __forceinline__ int all_tiles(const kbt_attention_params& p) {
  return m_tiles(p) * p.heads * p.batch;
}

// Full attention goes through a head's tiles in turn. Causal attention begins with the longest, so that the last to end
// are short, through as many heads at a time as the L2 cache holds.
__device__ __forceinline__ Tile tile_at(const kbt_attention_params& p, int index) {
  const int rows = m_tiles(p);
  Tile t;
  int head;
  if (p.causal) {
    const int section = index / (p.heads_at_a_time * rows);
    const int first = section * p.heads_at_a_time;
    const int heads = min(p.heads_at_a_time, p.heads * p.batch - first);
    const int rest = index - first * rows;
    t.m = rows - 1 - rest / heads;
    head = first + rest % heads;
  } else {
    t.m = index % rows;
    head = index / rows;
  }
  t.head = head % p.heads;
  t.batch = head / p.heads;
  const int keys = p.causal ? min(p.seqlen, (t.m + 1) * kTileM) : p.seqlen;
  t.steps = (keys + kTileN - 1) / kTileN;
  return t;
}

// The consumers' side of the tile ring; false after the last tile.
__device__ __forceinline__ bool next_tile(Shared& sm, const kbt_attention_params& p, Ring<2>& ring, Tile& tile) {
  mbarrier_wait(smem_address(&sm.tile_full[ring.slot]), ring.parity);
  // Read by the lane that arrives for it.
  int index = 0;
  if (threadIdx.x % 32 == 0) index = sm.tile[ring.slot];
  arrive_warp(sm.tile_empty[ring.slot]);
  index = __shfl_sync(0xffffffffu, index, 0);
  ring.advance();
  if (index >= all_tiles(p)) return false;
  tile = tile_at(p, index);
  return true;
}
}  // namespace kbt::attention
