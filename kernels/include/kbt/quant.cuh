// The quantisation of P (the softmax numerator) to NVFP4, for device and host; C++17, also without CUDA.
//
// No kernel, no shared memory and no shuffle lives here: a group's maximum is passed in. Formats and their conversions
// are in quant_formats.cuh.
#pragma once

#include "quant_formats.cuh"

namespace kbt {
namespace quant {

// ---- the quantisation of P for one group -----------------------------------------------------------------------

// How the group's scale is found and applied. In every form the elements are divided by the scale as FP32 has it;
// only the product code * scale uses the scale rounded to e4m3. So Linear, Log2 and Log2Fused give the same codes but
// for elements within the error of exp2 of a rounding boundary.
enum class Form : int {
  Linear = 0,     // x: p = exp2(arg).   scale = p_max / 6, both divisions IEEE.
  LinearRcp = 1,  // x: p = exp2(arg).   scale = p_max * (1/6); one approximate reciprocal a group, then multiplies.
  Log2 = 2,       // x: arg.             b = max(arg_max, clamp) - log2 6; scale = exp2(b); element exp2(arg - b).
  Log2Fused = 3,  // x: the raw score s. arg = c * s + bias is never formed for an element: exp2(c * s + (bias - b)).
};

// Offsets to add to every exp2 argument of a row (through the row's bias; costs nothing). They only use more of the
// scale's range; output and row sum both carry the factor 2^offset, so it cancels. A row maximum that may be stale by
// t (a rescale threshold) must satisfy offset + t <= log2(2688).
constexpr float kOffsetNone = 0.0f;            // scale in (0, 1/6]
constexpr float kOffsetUnit = 2.5849625f;      // log2 6: scale in (0, 1]
constexpr float kOffsetFull = 11.3923174f;     // log2 2688: scale in (0, 448], the whole e4m3 range
// For fp8 P (no group scale): p = exp2(arg + 8), at most 256.
constexpr float kOffsetFp8 = 8.0f;

// The least group maximum that Log2 and Log2Fused take at face value. A fully masked group has arg_max = -inf, and
// -inf - (-inf) would be NaN; with the clamp its elements are exp2(-inf) = 0 and its scale underflows to 0.
constexpr float kClamp = -100.0f;
constexpr float kLog2Of6 = 2.5849625f;

// Per-row constants of Log2Fused: arg = c * s + bias, where bias = offset - c * row_max (0 in place of row_max where a
// whole row is masked). c must be positive, or the greatest s would not be the greatest argument. Other forms ignore it.
struct Row {
  float c;
  float bias;
};

// What a group's elements need. `t` is the divisor (Linear), the reciprocal (LinearRcp), b (Log2), bias - b (Log2Fused).
struct GroupScale {
  float t;
  float unrounded;  // FP32 scale
  float rounded;    // the e4m3 value that dequantises
};

// `group_max` is the maximum of x over the whole group (all lanes that share it).
template <Form F>
KBT_QUANT_FN GroupScale group_scale(float group_max, Row row = Row{1.0f, 0.0f}) {
  GroupScale g;
  if constexpr (F == Form::Linear || F == Form::LinearRcp) {
    g.unrounded = F == Form::Linear ? div(group_max, 6.0f) : mul(group_max, 1.0f / 6.0f);
    // A fully masked group has scale 0: dividing by 2^-126 instead gives code 0, not 0/0. No other group with a scale
    // that e4m3 can hold is touched.
    const float divisor = max_num(g.unrounded, 0x1p-126f);
    g.t = F == Form::Linear ? divisor : rcp(divisor);
  } else {
    // Log2Fused takes log2 6 off the row's bias, once a row, so that b costs a group one FMA and the clamp.
    const float b = F == Form::Log2Fused
                        ? max_num(fmaf(row.c, group_max, add(row.bias, -kLog2Of6)), kClamp - kLog2Of6)
                        : add(max_num(group_max, kClamp), -kLog2Of6);
    g.unrounded = exp2(b);
    g.t = F == Form::Log2Fused ? add(row.bias, -b) : b;
  }
  g.rounded = e4m3_round(g.unrounded);
  return g;
}

// One element in units of the scale, unquantised: in [0, 6] up to the error of division or exp2, always below 7.
template <Form F>
KBT_QUANT_FN float scaled(float x, const GroupScale& g, Row row = Row{1.0f, 0.0f}) {
  if constexpr (F == Form::Linear) return div(x, g.t);
  if constexpr (F == Form::LinearRcp) return mul(x, g.t);
  if constexpr (F == Form::Log2) return exp2(add(x, -g.t));
  return exp2(fmaf(row.c, x, g.t));
}

// What a group adds to the row sum: row_sum += weight * psum, through accumulate(). The sum is over unquantised p with
// the unrounded scale, over this thread's elements only; reduce over the lanes of the row at the end.
struct GroupSum {
  float weight;  // 1 for the linear forms
  float psum;
};

template <Form F>
KBT_QUANT_FN float accumulate(float row_sum, GroupSum s) {
  if constexpr (F == Form::Linear || F == Form::LinearRcp) return add(row_sum, s.psum);
  return fmaf(s.weight, s.psum, row_sum);
}

// Quantises this thread's N elements of a group in place: x[i] becomes code * scale, exact in bf16 (six significant
// bits, between 2^-10 and 2688). The sum runs over i upwards.
template <Form F, int N>
KBT_QUANT_FN GroupSum quantize_p(float (&x)[N], const GroupScale& g, Row row = Row{1.0f, 0.0f}) {
  constexpr bool linear = F == Form::Linear || F == Form::LinearRcp;
  float psum = 0.0f;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < N; ++i) {
    const float v = scaled<F>(x[i], g, row);
    const float term = linear ? x[i] : v;
    psum = i == 0 ? term : add(psum, term);
    x[i] = mul(e2m1_round_below7(v), g.rounded);
  }
  return GroupSum{linear ? 1.0f : g.unrounded, psum};
}

// The same, keeping codes: two a byte (N even), the lower index in the low nibble. The scale's code is
// e4m3_encode(g.unrounded).
template <Form F, int N>
KBT_QUANT_FN GroupSum quantize_p_codes(const float (&x)[N], uint8_t (&codes)[N / 2], const GroupScale& g,
                                       Row row = Row{1.0f, 0.0f}) {
  static_assert(N % 2 == 0, "two codes share a byte");
  constexpr bool linear = F == Form::Linear || F == Form::LinearRcp;
  float psum = 0.0f;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < N; i += 2) {
    const float lo = scaled<F>(x[i], g, row);
    const float hi = scaled<F>(x[i + 1], g, row);
    psum = i == 0 ? (linear ? x[0] : lo) : add(psum, linear ? x[i] : lo);
    psum = add(psum, linear ? x[i + 1] : hi);
#if KBT_QUANT_NATIVE_FP4
    codes[i / 2] = e2m1x2_encode(hi, lo);
#else
    codes[i / 2] = (uint8_t)(e2m1_code_of_grid(e2m1_round_below7(hi)) << 4 | e2m1_code_of_grid(e2m1_round_below7(lo)));
#endif
  }
  return GroupSum{linear ? 1.0f : g.unrounded, psum};
}

// ---- group maximum ---------------------------------------------------------------------------------------------

// The maximum of this thread's elements; the kernel takes it on over the lanes of the group.
template <int N>
KBT_QUANT_FN float local_max(const float (&x)[N]) {
  float m = x[0];
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 1; i < N; ++i) m = max_num(m, x[i]);
  return m;
}

}  // namespace quant
}  // namespace kbt
