// The softmax side of the attention kernel: online maximum, exp2, quantisation of P, packing.
// What P becomes is decided here; where it goes (shared memory or registers) is the caller's matter.
//
// Accumulator layout of m64n128 (f32): column group g of 8 columns lives in s[4g .. 4g+3];
// s[4g], s[4g+1] are row r = 16 warp + lane / 4, columns 8g + 2 (lane % 4) and the next; s[4g+2], s[4g+3] the
// same columns of row r + 8. A row is spread over the four lanes of a quad.
#pragma once
#include "config.cuh"
#include "kbt/sm90.cuh"

namespace kbt::attention {

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Running state of a thread's two rows.
struct RowState {
  float max[2] = {-INFINITY, -INFINITY};  // in units of the raw scores
  float sum[2] = {0.0f, 0.0f};            // this lane's part, times 2^kExpOffset
};

// Masks keys beyond the sequence and, if causal, beyond the query.
__device__ __forceinline__ void mask_scores(float (&s)[64], int first_key, int seqlen, bool causal,
                                            int query0) {
  const int lane_column = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int key = first_key + 8 * (i / 4) + lane_column + (i & 1);
    const int query = query0 + ((i & 2) ? 8 : 0);
    const int limit = causal ? min(seqlen - 1, query) : seqlen - 1;
    s[i] = key <= limit ? s[i] : -INFINITY;
  }
}

// Takes the tile's row maxima into the running maxima. Returns in `bias` what the exp2 argument
// fma(s, scale_log2, bias) adds, and in `alpha` the factor that rescales what came before.
__device__ __forceinline__ void update_max(const float (&s)[64], RowState& state, float scale_log2,
                                           float (&alpha)[2], float (&bias)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float m = state.max[r];
#pragma unroll
    for (int g = 0; g < 16; ++g) m = fmaxf(m, fmaxf(s[4 * g + 2 * r], s[4 * g + 2 * r + 1]));
    m = quad_max(m);
    // A row with no visible key yet: any finite reference keeps exp2(-inf) = 0 without inf - inf.
    const float safe = m == -INFINITY ? 0.0f : m;
    alpha[r] = exp2_approx((state.max[r] - safe) * scale_log2);
    bias[r] = kExpOffset - safe * scale_log2;
    state.max[r] = m;
    state.sum[r] *= alpha[r];
  }
}

// The four values of one 16-column group of one row: what the exp2 argument or exp2 itself was in (raw scores for
// Log2Fused), values for the MMA out, quantised as the mode asks; adds to the row sum.
__device__ __forceinline__ void group_values(float (&x)[4], quant::Row row, float& sum) {
  constexpr bool exp_here = !kExpFirst && !(kMode == Mode::kFp4 && kLog2Form);
  if constexpr (exp_here) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = exp2_approx(x[i]);
  }
  if constexpr (kMode == Mode::kFp4) {
    const float top = quad_max(quant::local_max(x));
    const auto scale = quant::group_scale<kForm>(top, row);
    sum = quant::accumulate<kForm>(sum, quant::quantize_p<kForm>(x, scale, row));
  } else {
    sum += (x[0] + x[1]) + (x[2] + x[3]);
    if constexpr (kFp8Multiplies) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] *= kFp8Range;
    }
  }
}

}  // namespace kbt::attention
