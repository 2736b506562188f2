// The softmax side of the attention kernel: online maximum, exp2, quantisation of P, packing.
// What P becomes is decided here; where it goes (shared memory or registers) is the caller's matter.
//
// Accumulator layout of m64nN (f32): column group g of 8 columns lives in s[4g .. 4g+3];
// s[4g], s[4g+1] are row r = 16 warp + lane / 4, columns 8g + 2 (lane % 4) and the next; s[4g+2], s[4g+3] the
// same columns of row r + 8. A row is spread over the four lanes of a quad. "Group" below is a quantisation group: 16
// columns, 8 scores of a thread.
#pragma once
#include "shared.cuh"

namespace kbt::attention {

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// What the quad's first lane has.
__device__ __forceinline__ float quad_first(float x) {
  return __shfl_sync(0xffffffffu, x, threadIdx.x % 32 & ~3u);
}

// Running state of a thread's two rows.
struct RowState {
  float max[2] = {-INFINITY, -INFINITY};  // what exp2 is taken relative to, in units of the raw scores
  float sum[2] = {0.0f, 0.0f};            // this lane's part, times 2^kExpOffset
};

// A thread's first row within its tile and within the sequence.
struct Rows {
  int first;
  int query;
};
__device__ __forceinline__ Rows rows_of(int wg, int m_tile) {
  const int first = 64 * wg + 16 * ((threadIdx.x / 32) % 4) + (threadIdx.x % 32) / 4;
  return {first, m_tile * kTileM + first};
}

// Masks keys beyond the sequence and, if causal, beyond the query.
__device__ __forceinline__ void mask_if_needed(float (&s)[kScores], const kbt_attention_params& p, int n,
                                               int m_tile, int query0) {
  const int first_key = n * kTileN;
  if (first_key + kTileN <= p.seqlen && !(p.causal && first_key + kTileN > m_tile * kTileM)) return;
  const int lane_key = first_key + 2 * (threadIdx.x % 4);
  const int last[2] = {p.causal ? min(p.seqlen - 1, query0) : p.seqlen - 1,
                       p.causal ? min(p.seqlen - 1, query0 + 8) : p.seqlen - 1};
#pragma unroll
  for (int i = 0; i < kScores; ++i)
    s[i] = lane_key + 8 * (i / 4) + (i & 1) <= last[(i >> 1) & 1] ? s[i] : -INFINITY;
}

// Maxima of a tile's scores, four chains a row: one would take the latency of a maximum for every other column.
struct PartMax {
  float part[2][4];
};

// Takes columns [8 from, 8 to) into the maxima; the first call has from = 0.
__device__ __forceinline__ void part_max(const float (&s)[kScores], PartMax& m, int from, int to) {
#pragma unroll
  for (int g = from; g < to; ++g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float pair = fmaxf(s[4 * g + 2 * r], s[4 * g + 2 * r + 1]);
      m.part[r][g % 4] = g < 4 ? pair : fmaxf(m.part[r][g % 4], pair);
    }
  }
}

// Takes the tile's row maxima into the running reference. Returns in `bias` what the exp2 argument
// fma(s, scale_log2, bias) adds, and in `alpha` the factor that rescales what came before.
__device__ __forceinline__ void update_reference(const PartMax& tile, RowState& state, float scale_log2,
                                                 float (&alpha)[2], float (&bias)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto& part = tile.part[r];
    float m = quad_max(fmaxf(fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3])), state.max[r]));
    // A small growth keeps the old reference: probabilities up to 2^threshold instead of a rescaling. The first
    // maximum always passes, and a row with no visible key compares NaN and keeps minus infinity.
    if constexpr (KBT_RESCALE_LOG2 > 0)
      m = (m - state.max[r]) * scale_log2 > kRescaleLog2 ? m : state.max[r];
    // A row with no visible key yet: any finite reference keeps exp2(-inf) = 0 without inf - inf.
    const float safe = m == -INFINITY ? 0.0f : m;
    alpha[r] = exp2_approx((state.max[r] - safe) * scale_log2);
    bias[r] = kExpOffset - safe * scale_log2;
    state.max[r] = m;
    state.sum[r] *= alpha[r];
  }
}

// Whether element e of a thread's group takes the polynomial: eighths, spread evenly over two groups.
__host__ __device__ constexpr bool polynomial(int group, int e) {
  return ((group % 2 * 4 + e) * KBT_EXP2_EIGHTHS) % 8 < KBT_EXP2_EIGHTHS;
}

// A thread's four scores of one row of a group.
__device__ __forceinline__ float& score(float (&s)[kScores], int group, int r, int i) {
  return s[8 * group + 4 * (i / 2) + 2 * r + i % 2];
}

// Scores to probabilities, in place; nothing where the conversion takes the exp2.
__device__ __forceinline__ void exp_group(float (&s)[kScores], int group, const float (&bias)[2],
                                          float scale_log2) {
  if constexpr (!kExpInConversion) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = fmaf(score(s, group, r, i), scale_log2, bias[r]);
        score(s, group, r, i) = polynomial(group, i) ? exp2_polynomial(x) : exp2_approx(x);
      }
  }
}

// Probabilities to the values that the MMA takes, in place, as the mode asks; adds to the row sums.
__device__ __forceinline__ void quantise_group(float (&s)[kScores], int group, const float (&bias)[2],
                                               float scale_log2, RowState& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = score(s, group, r, i);
      if constexpr (kMode == Mode::kFp4 && kForm == Form::Log2) x[i] = fmaf(x[i], scale_log2, bias[r]);
    }
    if constexpr (kMode == Mode::kFp4) {
      const quant::Row row{scale_log2, bias[r]};
      const auto scale = quant::group_scale<kForm>(quad_max(quant::local_max(x)), row);
      state.sum[r] = quant::accumulate<kForm>(state.sum[r], quant::quantize_p<kForm>(x, scale, row));
    } else {
      state.sum[r] += (x[0] + x[1]) + (x[2] + x[3]);
      if constexpr (kFp8Multiplies) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] *= kFp8Range;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) score(s, group, r, i) = x[i];
  }
}

// Groups [first, first + Count) in the source order that is chosen; whoever takes all exp2 first calls exp_first before.
template <int Count>
__device__ __forceinline__ void convert_groups(float (&s)[kScores], int first, const float (&bias)[2],
                                               float scale_log2, RowState& state) {
  if constexpr (kSourceOrder == 2) {
    if (first == 0) exp_group(s, 0, bias, scale_log2);
  }
#if KBT_ROLLED
#pragma unroll 1
#else
#pragma unroll
#endif
  for (int g = 0; g < Count; ++g) {
    if constexpr (kSourceOrder == 0) exp_group(s, first + g, bias, scale_log2);
    if constexpr (kSourceOrder == 2) {
      if (first + g + 1 < kGroups) exp_group(s, first + g + 1, bias, scale_log2);
    }
    quantise_group(s, first + g, bias, scale_log2, state);
  }
}

__device__ __forceinline__ void exp_first(float (&s)[kScores], const float (&bias)[2], float scale_log2) {
  if constexpr (kSourceOrder == 1) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) exp_group(s, g, bias, scale_log2);
  }
}

// A group's eight values as packed P. bf16: {row r cols 0-7, row r+8 cols 0-7, row r cols 8-15, row r+8 cols 8-15};
// e4m3: {row r, row r+8}.
template <int N>
__device__ __forceinline__ void pack_group(const float (&x)[N], int group, uint32_t* packed) {
  const float* v = x + 8 * group;
  if constexpr (kFp8Operands) {
    packed[0] = pack_e4m3(v[5], v[4], v[1], v[0]);
    packed[1] = pack_e4m3(v[7], v[6], v[3], v[2]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = pack_bf16(v[2 * i + 1], v[2 * i]);
  }
}

// ---- epilogue --------------------------------------------------------------------------------------------

// Row sums to the factor of the epilogue, and the log-sum-exp where it is asked for.
__device__ __forceinline__ float finish_row(const RowState& state, int r, const kbt_attention_params& p,
                                            int query, const Tile& tile) {
  const float sum = quad_sum(state.sum[r]);
  if (p.lse && threadIdx.x % 4 == 0 && query < p.seqlen) {
    float* lse = reinterpret_cast<float*>(p.lse);
    const float log2_sum = state.max[r] * p.scale_log2 + log2_approx(sum) - kExpOffset;
    lse[(static_cast<int64_t>(tile.batch) * p.heads + tile.head) * p.seqlen + query] =
        sum > 0.0f ? log2_sum * 0.69314718055994531f : -INFINITY;
  }
  const int kv = (tile.batch * p.heads + tile.head) / p.heads_per_kv;
  const float scale = p.v_scale ? reinterpret_cast<const float*>(p.v_scale)[kv] : 1.0f;
  return sum > 0.0f ? scale / (sum * kOutputPerSum) : 0.0f;
}

// Transposes four words a lane over the four lanes of a quad: lane t ends with word t of each.
__device__ __forceinline__ uint4 quad_transpose(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? w0 : w1, 1);
  const uint32_t b = __shfl_xor_sync(0xffffffffu, odd ? w2 : w3, 1);
  if (odd) w0 = a, w2 = b;
  else w1 = a, w3 = b;
  const uint32_t c = __shfl_xor_sync(0xffffffffu, high ? w0 : w2, 2);
  const uint32_t d = __shfl_xor_sync(0xffffffffu, high ? w1 : w3, 2);
  return high ? make_uint4(c, d, w2, w3) : make_uint4(w0, w1, c, d);
}

// Writes a thread's two rows, 16 bytes at a time.
__device__ __forceinline__ void write_rows(const float (&o)[kOutputs], const float (&factor)[2],
                                           const kbt_attention_params& p, int query, const Tile& tile) {
  auto* out = reinterpret_cast<uint16_t*>(p.o) + tile.batch * p.o_stride_batch + tile.head * p.o_stride_head;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto word = [&](int g) {
      return pack_bf16(o[4 * g + 2 * r + 1] * factor[r], o[4 * g + 2 * r] * factor[r]);
    };
    uint16_t* row = out + (query + 8 * r) * p.o_stride_row + 8 * (threadIdx.x % 4);
#pragma unroll
    for (int g = 0; g < kHeadDim / 8; g += 4) {
      const uint4 words = quad_transpose(word(g), word(g + 1), word(g + 2), word(g + 3));
      if (query + 8 * r < p.seqlen) *reinterpret_cast<uint4*>(row + 8 * g) = words;
    }
  }
}
}  // namespace kbt::attention
