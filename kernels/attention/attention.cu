// Attention forward for sm_90a, FlashAttention-4-shaped: one TMA warp, softmax warpgroups, and (topology 0) a
// P.V warpgroup that P is handed to through shared memory, in chunks behind two mbarriers: the first chunks at
// signal 1, the rest at signal 2. Topology 1 keeps P in registers and the softmax warpgroups multiply it.
//
//   Q, K  bf16 [batch][heads][seqlen][128]          V  bf16 the same; fp8: e4m3 [batch][heads][128][padded],
//   keys permuted within groups of 16 so that P needs no shuffle (position 4t+i holds key 2t + (i&1) + 8(i>>1)).
#include "config.cuh"
#include "kbt/attention.h"
#include "kbt/sm90.cuh"
#include "kbt/trace.cuh"
#include "softmax.cuh"

namespace kbt::attention {

constexpr int kSlab = 64 * 128;               // bytes of 64 rows of one 128-byte swizzled column block
constexpr int kQBytes = kTileM * kHeadDim * 2;
constexpr int kKBytes = kTileN * kHeadDim * 2;
constexpr int kVBytes = kTileN * kHeadDim * (kFp8Operands ? 1 : 2);
constexpr int kPBytes = 64 * kTileN * (kFp8Operands ? 1 : 2);  // of one softmax warpgroup

constexpr int kWarpgroups = kRegisterP ? 3 : 4;
constexpr int kThreads = kWarpgroups * 128;

struct Shared {
  alignas(1024) uint8_t q[kQBytes];
  alignas(1024) uint8_t k[kStages][kKBytes];
  alignas(1024) uint8_t v[kStages][kVBytes];
  alignas(1024) uint8_t p[kRegisterP ? 1 : 2][kRegisterP ? 1 : kPBuffers][kRegisterP ? 16 : kPBytes];
  float alpha[2][kPBuffers][64];
  float inverse_sum[2][64];
  uint64_t q_full;
  uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  uint64_t p_first[2][kPBuffers], p_rest[2][kPBuffers], p_empty[2][kPBuffers];
  uint64_t l_full[2];
};

using Tracer = Trace<kTraceLevel>;

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

__device__ __forceinline__ void traced_wait(Tracer& trace, uint32_t id, const uint64_t& bar,
                                            uint32_t parity) {
  trace.wait_begin(id);
  mbarrier_wait(smem_address(&bar), parity);
  trace.wait_end(id);
}

__device__ __forceinline__ int tile_count(const kbt_attention_params& p, int m_tile) {
  const int keys = p.causal ? min(p.seqlen, (m_tile + 1) * kTileM) : p.seqlen;
  return (keys + kTileN - 1) / kTileN;
}

// ---- loads -----------------------------------------------------------------------------------------------

__device__ void load_role(Shared& sm, const TensorMap& q, const TensorMap& k, const TensorMap& v,
                          const kbt_attention_params& p, int m_tile, int head, int batch, Tracer& trace) {
  prefetch_tensor_map(q);
  prefetch_tensor_map(k);
  prefetch_tensor_map(v);
  const uint32_t q_full = smem_address(&sm.q_full);
  mbarrier_expect_tx(q_full, kQBytes);
  for (int half = 0; half < 2; ++half)
    for (int block = 0; block < 2; ++block)
      tma_load_4d(smem_address(sm.q) + (2 * half + block) * kSlab, q, q_full, 64 * block,
                  m_tile * kTileM + 64 * half, head, batch);

  Ring<kStages> ring;
  for (int n = tile_count(p, m_tile) - 1; n >= 0; --n) {
    traced_wait(trace, KBT_BARRIER_K_EMPTY, sm.k_empty[ring.slot], ring.parity ^ 1);
    const uint32_t k_full = smem_address(&sm.k_full[ring.slot]);
    mbarrier_expect_tx(k_full, kKBytes);
    for (int block = 0; block < 2; ++block)
      tma_load_4d(smem_address(sm.k[ring.slot]) + block * 2 * kSlab, k, k_full, 64 * block, n * kTileN,
                  head, batch);
    traced_wait(trace, KBT_BARRIER_V_EMPTY, sm.v_empty[ring.slot], ring.parity ^ 1);
    const uint32_t v_full = smem_address(&sm.v_full[ring.slot]);
    mbarrier_expect_tx(v_full, kVBytes);
    if constexpr (kFp8Operands) {
      tma_load_4d(smem_address(sm.v[ring.slot]), v, v_full, n * kTileN, 0, head, batch);
    } else {
      for (int block = 0; block < 2; ++block)
        tma_load_4d(smem_address(sm.v[ring.slot]) + block * 2 * kSlab, v, v_full, 64 * block, n * kTileN,
                    head, batch);
    }
    ring.advance();
  }
}

// ---- matrix products -------------------------------------------------------------------------------------

// S[64x128] = Q K^T for one warpgroup's 64 rows.
__device__ __forceinline__ void qk(float (&s)[64], const Shared& sm, int wg, int slot) {
  const uint64_t a = matrix_descriptor(smem_address(sm.q) + wg * 2 * kSlab, 0, 1024);
  const uint64_t b = matrix_descriptor(smem_address(sm.k[slot]), 0, 1024);
#pragma unroll
  for (int t = 0; t < kHeadDim / 16; ++t) {
    const int a_offset = (t / 4) * kSlab + (t % 4) * 32;
    const int b_offset = (t / 4) * 2 * kSlab + (t % 4) * 32;
    wgmma_bf16_ss<0>(s, a + (a_offset >> 4), b + (b_offset >> 4), t > 0);
  }
}

// Descriptor of V's K extent t: K-major rows of 128 keys for fp8, MN-major 16-row steps otherwise.
__device__ __forceinline__ uint64_t v_descriptor(const Shared& sm, int slot, int t) {
  const uint32_t base = smem_address(sm.v[slot]);
  if constexpr (kFp8Operands) return matrix_descriptor(base, 0, 1024) + ((t * 32) >> 4);
  return matrix_descriptor(base, 2 * kSlab, 1024) + ((t * 16 * 128) >> 4);
}

// O += P V for the MMA tiles [From, To), P in shared memory.
template <int From, int To>
__device__ __forceinline__ void pv_shared(float (&o)[64], const Shared& sm, int wg, int buffer, int slot,
                                          bool first) {
  const uint64_t a = matrix_descriptor(smem_address(sm.p[wg][buffer]), 0, 1024);
#pragma unroll
  for (int t = From; t < To; ++t) {
    const int bytes = t * 32;  // 16 bf16 or 32 e4m3
    const int a_offset = (bytes / 128) * kSlab + bytes % 128;
    const int accumulate = !(first && t == 0);
    if constexpr (kFp8Operands)
      wgmma_e4m3_ss(o, a + (a_offset >> 4), v_descriptor(sm, slot, t), accumulate);
    else
      wgmma_bf16_ss<1>(o, a + (a_offset >> 4), v_descriptor(sm, slot, t), accumulate);
  }
}

// The same with P as packed registers: 4 a MMA tile.
template <int From, int To>
__device__ __forceinline__ void pv_registers(float (&o)[64], const uint32_t (&p)[4 * kMmaTiles],
                                             const Shared& sm, int slot, bool first) {
#pragma unroll
  for (int t = From; t < To; ++t) {
    const int accumulate = !(first && t == 0);
    if constexpr (kFp8Operands)
      wgmma_e4m3_rs(o, p[4 * t], p[4 * t + 1], p[4 * t + 2], p[4 * t + 3], v_descriptor(sm, slot, t),
                    accumulate);
    else
      wgmma_bf16_rs<1>(o, p[4 * t], p[4 * t + 1], p[4 * t + 2], p[4 * t + 3], v_descriptor(sm, slot, t),
                       accumulate);
  }
}

// ---- softmax ---------------------------------------------------------------------------------------------

constexpr bool kRawScores = kMode == Mode::kFp4 && kForm == Form::Log2Fused;

// Turns the scores of one 16-column group (two column groups of the accumulator) into packed P:
// bf16: {row r cols 0-7, row r+8 cols 0-7, row r cols 8-15, row r+8 cols 8-15}; e4m3: {row r, row r+8}.
__device__ __forceinline__ void convert_group(float (&s)[64], int group, const float (&bias)[2],
                                              float scale_log2, RowState& state, uint32_t (&packed)[4]) {
  float x[2][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float v = s[8 * group + 4 * (i / 2) + 2 * r + i % 2];
      x[r][i] = kExpFirst || kRawScores ? v : fmaf(v, scale_log2, bias[r]);
    }
    group_values(x[r], quant::Row{scale_log2, bias[r]}, state.sum[r]);
  }
  if constexpr (kFp8Operands) {
    packed[0] = pack_e4m3(x[0][3], x[0][2], x[0][1], x[0][0]);
    packed[1] = pack_e4m3(x[1][3], x[1][2], x[1][1], x[1][0]);
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      packed[2 * h] = pack_bf16(x[0][2 * h + 1], x[0][2 * h]);
      packed[2 * h + 1] = pack_bf16(x[1][2 * h + 1], x[1][2 * h]);
    }
  }
}

__device__ __forceinline__ void exp_all(float (&s)[64], const float (&bias)[2], float scale_log2) {
  if constexpr (kExpFirst) {
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = exp2_approx(fmaf(s[i], scale_log2, bias[(i >> 1) & 1]));
  }
}

// Where this lane's row of an 8x8 matrix begins: `unit` counts 16-byte units along the row.
__device__ __forceinline__ uint32_t p_address(uint32_t base, int row, int unit) {
  return base + (unit / 8) * kSlab + row * 128 + (((unit % 8) ^ (row % 8)) << 4);
}

// Stores chunk c of P, 16-column group by group.
__device__ __forceinline__ void store_chunk(float (&s)[64], int chunk, uint32_t p_base,
                                            const float (&bias)[2], float scale_log2, RowState& state) {
  const int lane = threadIdx.x % 32;
  const int row = 16 * ((threadIdx.x / 32) % 4) + lane % 16;
#pragma unroll
  for (int g = 0; g < kChunkColumns / 16; ++g) {
    const int group = chunk * (kChunkColumns / 16) + g;
    uint32_t packed[4];
    convert_group(s, group, bias, scale_log2, state, packed);
    if constexpr (kFp8Operands)
      store_matrix_x2(p_address(p_base, row, group), packed[0], packed[1]);
    else
      store_matrix_x4(p_address(p_base, row, 2 * group + lane / 16), packed[0], packed[1], packed[2],
                      packed[3]);
  }
}

// Arrives once a warp, after every lane's stores are visible to WGMMA.
__device__ __forceinline__ void release_to_mma(const uint64_t& bar, uint32_t id, Tracer& trace) {
  trace.arrive(id);
  fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(smem_address(&bar));
}

// Reading shared memory through WGMMA ended: frees the slot, once a warp.
__device__ __forceinline__ void release_slot(const uint64_t& bar) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(smem_address(&bar));
}

struct Rows {
  int first;  // this thread's first row within the CTA's tile
  int query;  // the same within the sequence
};
__device__ __forceinline__ Rows rows_of(int wg, int m_tile) {
  const int first = 64 * wg + 16 * ((threadIdx.x / 32) % 4) + (threadIdx.x % 32) / 4;
  return {first, m_tile * kTileM + first};
}

__device__ __forceinline__ void mask_if_needed(float (&s)[64], const kbt_attention_params& p, int n,
                                               int m_tile, int query) {
  const int first_key = n * kTileN;
  const bool edge = first_key + kTileN > p.seqlen || (p.causal && first_key + kTileN > m_tile * kTileM);
  if (edge) mask_scores(s, first_key, p.seqlen, p.causal != 0, query);
}

// Row sums to the factor of the epilogue, and the log-sum-exp where it is asked for.
__device__ __forceinline__ float finish_row(const RowState& state, int r, const kbt_attention_params& p,
                                            int query, int head, int batch) {
  const float sum = quad_sum(state.sum[r]);
  if (p.lse && threadIdx.x % 4 == 0 && query < p.seqlen) {
    float* lse = reinterpret_cast<float*>(p.lse);
    const float log2_sum = state.max[r] * p.scale_log2 + log2_approx(sum) - kExpOffset;
    lse[(static_cast<int64_t>(batch) * p.heads + head) * p.seqlen + query] =
        sum > 0.0f ? log2_sum * 0.69314718055994531f : -INFINITY;
  }
  const float scale =
      p.v_scale ? reinterpret_cast<const float*>(p.v_scale)[batch * p.heads + head] : 1.0f;
  return sum > 0.0f ? scale / (sum * kOutputPerSum) : 0.0f;
}

__device__ __forceinline__ void write_rows(const float (&o)[64], const float (&factor)[2],
                                           const kbt_attention_params& p, int query, int head, int batch) {
  auto* out = reinterpret_cast<uint16_t*>(p.o) + batch * p.o_stride_batch + head * p.o_stride_head;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (query + 8 * r >= p.seqlen) continue;
    auto* row = reinterpret_cast<uint32_t*>(out + (query + 8 * r) * p.o_stride_row);
#pragma unroll
    for (int g = 0; g < 16; ++g)
      row[4 * g + threadIdx.x % 4] =
          pack_bf16(o[4 * g + 2 * r + 1] * factor[r], o[4 * g + 2 * r] * factor[r]);
  }
}

// ---- topology 0: P through shared memory -----------------------------------------------------------------

__device__ void softmax_role(Shared& sm, const kbt_attention_params& p, int wg, int m_tile, int head,
                             int batch, Tracer& trace) {
  const Rows rows = rows_of(wg, m_tile);
  RowState state;
  Ring<kStages> kv;
  Ring<kPBuffers> ring;
  traced_wait(trace, KBT_BARRIER_Q_FULL, sm.q_full, 0);
  for (int n = tile_count(p, m_tile) - 1; n >= 0; --n) {
    float s[64];
    traced_wait(trace, KBT_BARRIER_K_FULL, sm.k_full[kv.slot], kv.parity);
    trace.detail_begin(KBT_EVENT_QK);
    pin(s);
    wgmma_fence();
    qk(s, sm, wg, kv.slot);
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    trace.detail_end(KBT_EVENT_QK);
    release_slot(sm.k_empty[kv.slot]);
    kv.advance();

    trace.detail_begin(KBT_EVENT_SOFTMAX);
    mask_if_needed(s, p, n, m_tile, rows.query);
    float alpha[2], bias[2];
    update_max(s, state, p.scale_log2, alpha, bias);
    exp_all(s, bias, p.scale_log2);
    trace.detail_end(KBT_EVENT_SOFTMAX);

    traced_wait(trace, KBT_BARRIER_P_EMPTY_0 + wg, sm.p_empty[wg][ring.slot], ring.parity ^ 1);
    trace.begin(KBT_EVENT_P_CHUNKS);
    if (threadIdx.x % 4 == 0) {
      sm.alpha[wg][ring.slot][rows.first % 64] = alpha[0];
      sm.alpha[wg][ring.slot][rows.first % 64 + 8] = alpha[1];
    }
    const uint32_t p_base = smem_address(sm.p[wg][ring.slot]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      store_chunk(s, c, p_base, bias, p.scale_log2, state);
      if (c == kFirstChunks - 1) release_to_mma(sm.p_first[wg][ring.slot], KBT_BARRIER_P_FIRST_0 + wg, trace);
    }
    release_to_mma(sm.p_rest[wg][ring.slot], KBT_BARRIER_P_REST_0 + wg, trace);
    trace.end(KBT_EVENT_P_CHUNKS);
    ring.advance();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = finish_row(state, r, p, rows.query + 8 * r, head, batch);
    if (threadIdx.x % 4 == 0) sm.inverse_sum[wg][rows.first % 64 + 8 * r] = factor;
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(smem_address(&sm.l_full[wg]));
}

__device__ __forceinline__ void rescale(float (&o)[64], float a0, float a1) {
#pragma unroll
  for (int i = 0; i < 64; ++i) o[i] *= (i & 2) ? a1 : a0;
}

// One softmax warpgroup's half of a P.V step: rescale, multiply the first tiles, wait for the rest.
__device__ __forceinline__ void pv_half(float (&o)[64], Shared& sm, int wg, int buffer, uint32_t parity,
                                        int slot, bool first, int row, Tracer& trace) {
  traced_wait(trace, KBT_BARRIER_P_FIRST_0 + wg, sm.p_first[wg][buffer], parity);
  if (!first) {
    const float a0 = sm.alpha[wg][buffer][row], a1 = sm.alpha[wg][buffer][row + 8];
    // Most steps leave the maximum where it was: then nothing changes, exactly.
    if (__any_sync(0xffffffffu, a0 != 1.0f || a1 != 1.0f)) rescale(o, a0, a1);
  }
  pin(o);
  wgmma_fence();
  pv_shared<0, kFirstTiles>(o, sm, wg, buffer, slot, first);
  traced_wait(trace, KBT_BARRIER_P_REST_0 + wg, sm.p_rest[wg][buffer], parity);
  wgmma_fence();  // the wait above is a branch: a new pipeline stage for the compiler
  pv_shared<kFirstTiles, kMmaTiles>(o, sm, wg, buffer, slot, first);
  wgmma_commit();
}

__device__ void pv_role(Shared& sm, const kbt_attention_params& p, int m_tile, int head, int batch,
                        Tracer& trace) {
  const int row = rows_of(0, m_tile).first;
  float o0[64], o1[64];
  Ring<kStages> kv;
  Ring<kPBuffers> ring;
  const int tiles = tile_count(p, m_tile);
  for (int j = 0; j < tiles; ++j) {
    traced_wait(trace, KBT_BARRIER_V_FULL, sm.v_full[kv.slot], kv.parity);
    trace.begin(KBT_EVENT_PV);
    pv_half(o0, sm, 0, ring.slot, ring.parity, kv.slot, j == 0, row, trace);
    pv_half(o1, sm, 1, ring.slot, ring.parity, kv.slot, j == 0, row, trace);
    wgmma_wait<1>();
    pin(o0);
    release_slot(sm.p_empty[0][ring.slot]);
    wgmma_wait<0>();
    pin(o1);
    trace.end(KBT_EVENT_PV);
    release_slot(sm.p_empty[1][ring.slot]);
    release_slot(sm.v_empty[kv.slot]);
    kv.advance();
    ring.advance();
  }
  trace.begin(KBT_EVENT_EPILOGUE);
#pragma unroll
  for (int wg = 0; wg < 2; ++wg) {
    traced_wait(trace, KBT_BARRIER_L_FULL_0 + wg, sm.l_full[wg], 0);
    const float factor[2] = {sm.inverse_sum[wg][row], sm.inverse_sum[wg][row + 8]};
    write_rows(wg ? o1 : o0, factor, p, rows_of(wg, m_tile).query, head, batch);
  }
  trace.end(KBT_EVENT_EPILOGUE);
}

// ---- topology 1: P in registers --------------------------------------------------------------------------

__device__ void fused_role(Shared& sm, const kbt_attention_params& p, int wg, int m_tile, int head,
                           int batch, Tracer& trace) {
  constexpr int kGroupsPerTile = kMmaK / 16;
  const Rows rows = rows_of(wg, m_tile);
  RowState state;
  Ring<kStages> kv;
  float o[64];
  const int tiles = tile_count(p, m_tile);
  traced_wait(trace, KBT_BARRIER_Q_FULL, sm.q_full, 0);
  for (int n = tiles - 1; n >= 0; --n) {
    const bool first = n == tiles - 1;
    float s[64];
    traced_wait(trace, KBT_BARRIER_K_FULL, sm.k_full[kv.slot], kv.parity);
    trace.detail_begin(KBT_EVENT_QK);
    pin(s);
    wgmma_fence();
    qk(s, sm, wg, kv.slot);
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    trace.detail_end(KBT_EVENT_QK);
    release_slot(sm.k_empty[kv.slot]);

    trace.begin(KBT_EVENT_SOFTMAX);
    mask_if_needed(s, p, n, m_tile, rows.query);
    float alpha[2], bias[2];
    update_max(s, state, p.scale_log2, alpha, bias);
    exp_all(s, bias, p.scale_log2);
    if (!first && __any_sync(0xffffffffu, alpha[0] != 1.0f || alpha[1] != 1.0f))
      rescale(o, alpha[0], alpha[1]);
    uint32_t packed[4 * kMmaTiles];
    const auto convert = [&](int t) {
#pragma unroll
      for (int g = 0; g < kGroupsPerTile; ++g) {
        uint32_t words[4];
        convert_group(s, t * kGroupsPerTile + g, bias, p.scale_log2, state, words);
        if constexpr (kFp8Operands) {
          packed[4 * t + 2 * g] = words[0];
          packed[4 * t + 2 * g + 1] = words[1];
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) packed[4 * t + i] = words[i];
        }
      }
    };
#pragma unroll
    for (int t = 0; t < kFirstTiles; ++t) convert(t);
    trace.end(KBT_EVENT_SOFTMAX);
    traced_wait(trace, KBT_BARRIER_V_FULL, sm.v_full[kv.slot], kv.parity);
    trace.begin(KBT_EVENT_PV);
    pin(o);
    wgmma_fence();
    pv_registers<0, kFirstTiles>(o, packed, sm, kv.slot, first);
#pragma unroll
    for (int t = kFirstTiles; t < kMmaTiles; ++t) convert(t);
    wgmma_fence();
    pv_registers<kFirstTiles, kMmaTiles>(o, packed, sm, kv.slot, first);
    wgmma_commit();
    wgmma_wait<0>();
    pin(o);
    trace.end(KBT_EVENT_PV);
    release_slot(sm.v_empty[kv.slot]);
    kv.advance();
  }
  trace.begin(KBT_EVENT_EPILOGUE);
  const float factor[2] = {finish_row(state, 0, p, rows.query, head, batch),
                           finish_row(state, 1, p, rows.query + 8, head, batch)};
  write_rows(o, factor, p, rows.query, head, batch);
  trace.end(KBT_EVENT_EPILOGUE);
}

// ---- the kernel ------------------------------------------------------------------------------------------

__device__ __forceinline__ void init_barriers(Shared& sm) {
  const auto init = [](uint64_t& bar, uint32_t arrivals) { mbarrier_init(smem_address(&bar), arrivals); };
  init(sm.q_full, 1);
  for (int i = 0; i < kStages; ++i) {
    init(sm.k_full[i], 1);
    init(sm.v_full[i], 1);
    init(sm.k_empty[i], 8);                   // every warp of both softmax warpgroups
    init(sm.v_empty[i], kRegisterP ? 8 : 4);  // every warp that multiplies P
  }
  for (int wg = 0; wg < 2; ++wg) {
    for (int i = 0; i < kPBuffers; ++i) {
      init(sm.p_first[wg][i], 4);
      init(sm.p_rest[wg][i], 4);
      init(sm.p_empty[wg][i], 4);
    }
    init(sm.l_full[wg], 4);
  }
  fence_barrier_init();
}

}  // namespace kbt::attention

extern "C" __global__ void __launch_bounds__(kbt::attention::kThreads, 1)
    attention_forward(const __grid_constant__ kbt::TensorMap q, const __grid_constant__ kbt::TensorMap k,
                      const __grid_constant__ kbt::TensorMap v,
                      const __grid_constant__ kbt_attention_params params,
                      const __grid_constant__ kbt_trace_buffer trace_buffer) {
  using namespace kbt;
  using namespace kbt::attention;
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& sm = *reinterpret_cast<Shared*>(shared_bytes);

  // Longest rows first, so that a causal grid has no long tail.
  const int m_tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = blockIdx.y, batch = blockIdx.z;
  // Warp-uniform by construction; the shuffle lets the compiler know it.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);

  if (threadIdx.x == 0) init_barriers(sm);
  __syncthreads();

  Tracer trace;
  trace.open(trace_buffer, warpgroup, threadIdx.x % 128 == 0);
  if (warpgroup == 0) {
    register_budget_down<24>();
    if (threadIdx.x == 0) load_role(sm, q, k, v, params, m_tile, head, batch, trace);
  } else if (!kRegisterP && warpgroup == 3) {
    register_budget_up<168>();
    pv_role(sm, params, m_tile, head, batch, trace);
  } else {
    register_budget_up<kRegisterP ? 240 : 160>();
    if constexpr (kRegisterP)
      fused_role(sm, params, warpgroup - 1, m_tile, head, batch, trace);
    else
      softmax_role(sm, params, warpgroup - 1, m_tile, head, batch, trace);
  }
  trace.close();
}
