// Forms of the quantisation of P that other kernels ship, for device and host, beside kbt's own in quant.cuh.
//
// Two-level, as SageAttention3 has it: the group's maximum is taken of the scores and its scale is one exp2, but each
// element becomes p first and is then divided by the scale. Fixed offset, as FP8 kernels have it: no scale for a group,
// P moved up by a power of two in exp2's argument.
#pragma once

#include "quant.cuh"

namespace kbt {
namespace quant {

// 2^-126 is the least scale that exp2 does not flush: a fully masked group has it and divides zeros by it, and its e4m3
// code is 0.
constexpr float kLeastExponent = -126.0f;

// The scale of a group of raw scores; `group_max` is the greatest of them over all lanes that share the group, and
// arg = c * s + bias as for Log2Fused.
KBT_QUANT_FN GroupScale two_level_scale(float group_max, Row row) {
  GroupScale g;
  g.unrounded = exp2(max_num(fmaf(row.c, group_max, add(row.bias, -kLog2Of6)), kLeastExponent));
  g.t = g.unrounded;
  g.rounded = e4m3_round(g.unrounded);
  return g;
}

namespace detail {
// One element: p, and p in units of the scale.
struct Divided {
  float p;
  float scaled;
};

KBT_QUANT_FN Divided two_level_element(float score, const GroupScale& g, Row row) {
  Divided d;
  d.p = exp2(fmaf(row.c, score, row.bias));
  d.scaled = div(d.p, g.t);
  return d;
}
}  // namespace detail

// This thread's N scores of a group, in place: s[i] becomes code * scale. The sum runs over p, i upwards.
template <int N>
KBT_QUANT_FN GroupSum two_level(float (&s)[N], const GroupScale& g, Row row) {
  float psum = 0.0f;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < N; ++i) {
    const detail::Divided d = detail::two_level_element(s[i], g, row);
    psum = i == 0 ? d.p : add(psum, d.p);
    s[i] = mul(e2m1_round_below7(d.scaled), g.rounded);
  }
  return GroupSum{1.0f, psum};
}

// The same, keeping codes: two a byte (N even), the lower index in the low nibble.
template <int N>
KBT_QUANT_FN GroupSum two_level_codes(const float (&s)[N], uint8_t (&codes)[N / 2], const GroupScale& g, Row row) {
  static_assert(N % 2 == 0, "two codes share a byte");
  float psum = 0.0f;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < N; i += 2) {
    const detail::Divided lo = detail::two_level_element(s[i], g, row);
    const detail::Divided hi = detail::two_level_element(s[i + 1], g, row);
    psum = i == 0 ? lo.p : add(psum, lo.p);
    psum = add(psum, hi.p);
    codes[i / 2] = e2m1x2_encode(hi.scaled, lo.scaled);
  }
  return GroupSum{1.0f, psum};
}

// P in e4m3 with the offset in the row's bias (kOffsetFp8 - c * row_max): this thread's N scores become codes, and the sum
// of their p, i upwards, is returned. A row maximum that may be stale by t must satisfy offset + t <= log2(448).
template <int N>
KBT_QUANT_FN float fixed_offset_codes(const float (&s)[N], uint8_t (&codes)[N], Row row) {
  static_assert(N % 2 == 0, "conversions take pairs");
  float psum = 0.0f;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < N; i += 2) {
    const float lo = exp2(fmaf(row.c, s[i], row.bias));
    const float hi = exp2(fmaf(row.c, s[i + 1], row.bias));
    psum = add(i == 0 ? lo : add(psum, lo), hi);
    const uint16_t pair = e4m3x2_encode(hi, lo);
    codes[i] = (uint8_t)(pair & 0xff);
    codes[i + 1] = (uint8_t)(pair >> 8);
  }
  return psum;
}

}  // namespace quant
}  // namespace kbt
