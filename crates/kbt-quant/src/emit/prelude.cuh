// Arithmetic of generated steps, for device and host, C++17. On the device exp2, log2, rcp, sqrt, rsqrt and tanh are the
// approximate instructions; on the host they are correctly rounded, with results of exp2 and rcp and operands of roots
// below 2^-126 flushed to zero. All else has the same bits on both. Nothing is contracted or reassociated; compile host code with -ffp-contract=off.
#ifndef KBT_STEP_PRELUDE
#define KBT_STEP_PRELUDE
#include <stdint.h>
#if !defined(__CUDA_ARCH__)
#include <math.h>
#include <string.h>
#endif

#if defined(__CUDACC__)
#define KBT_STEP_FN __host__ __device__ __forceinline__
#define KBT_STEP_UNROLL _Pragma("unroll")
#else
#define KBT_STEP_FN inline
#define KBT_STEP_UNROLL
#endif

namespace kbt_step {

KBT_STEP_FN uint32_t bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
#endif
}
KBT_STEP_FN float from_bits(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
#endif
}
KBT_STEP_FN float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
KBT_STEP_FN float mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
KBT_STEP_FN float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return ::fmaf(a, b, c);
#endif
}
KBT_STEP_FN float div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
// The greater; a number rather than a NaN.
KBT_STEP_FN float max(float a, float b) {
#if defined(__CUDA_ARCH__)
  return ::fmaxf(a, b);
#else
  return a > b || b != b ? a : b;
#endif
}
KBT_STEP_FN float abs(float x) { return ::fabsf(x); }
KBT_STEP_FN float flushed(float x) {
  return (bits(x) & 0x7f800000u) != 0u ? x : from_bits(bits(x) & 0x80000000u);
}
KBT_STEP_FN float exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return flushed((float)::exp2((double)x));
#endif
}
KBT_STEP_FN float log2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return (float)::log2((double)x);
#endif
}
KBT_STEP_FN float rcp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return flushed(1.0f / x);
#endif
}
KBT_STEP_FN float sqrt(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return ::sqrtf(flushed(x));
#endif
}
KBT_STEP_FN float sqrt_rn(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return ::sqrtf(x);
#endif
}
KBT_STEP_FN float rsqrt(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / ::sqrtf(flushed(x));
#endif
}
KBT_STEP_FN float tanh(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return (float)::tanh((double)x);
#endif
}

// ---- comparisons, 1 or 0, and a choice by them ------------------------------------------------------------------

KBT_STEP_FN float lt(float a, float b) { return a < b ? 1.0f : 0.0f; }
KBT_STEP_FN float le(float a, float b) { return a <= b ? 1.0f : 0.0f; }
KBT_STEP_FN float eq(float a, float b) { return a == b ? 1.0f : 0.0f; }
KBT_STEP_FN float select(float by, float a, float b) { return by != 0.0f ? a : b; }

// ---- conversions: to a format and back, as cvt rounds --------------------------------------------------------

// Nearest even onto a grid of M mantissa bits and the least exponent E, for 0 <= x <= 2^20.
template <int M, int E>
KBT_STEP_FN float on_grid(float x) {
  const int field = (int)(bits(x) >> 23) - 127;
  const int exponent = field > E ? field : E;
  // A power of two whose last bit is the grid's step at x.
  const float anchor = from_bits((uint32_t)(exponent - M + 23 + 127) << 23);
  return add(add(x, anchor), -anchor);
}
KBT_STEP_FN bool is_nan(uint32_t magnitude) { return magnitude > 0x7f800000u; }

// Saturating formats. `max` is the greatest value; `nan` what a NaN of either sign becomes.
template <int M, int E>
KBT_STEP_FN float saturating(float x, float max, float nan) {
  const uint32_t magnitude = bits(x) & 0x7fffffffu;
  if (is_nan(magnitude)) return nan;
  const float limit = max + max;
  const float a = from_bits(magnitude) < limit ? from_bits(magnitude) : limit;
  const float r = on_grid<M, E>(a);
  return from_bits(bits(r < max ? r : max) | (bits(x) & 0x80000000u));
}
KBT_STEP_FN float cvt_e2m1(float x) { return saturating<1, 0>(x, 6.0f, 6.0f); }
KBT_STEP_FN float cvt_e2m3(float x) { return saturating<3, 0>(x, 7.5f, 7.5f); }
KBT_STEP_FN float cvt_e3m2(float x) { return saturating<2, -2>(x, 28.0f, 28.0f); }
KBT_STEP_FN float cvt_e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t code;
  uint32_t two;
  float y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(x));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(code));
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((uint16_t)two));
  return y;
#else
  return saturating<3, -6>(x, 448.0f, from_bits(0x7fc00000u));
#endif
}
KBT_STEP_FN float cvt_e5m2(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t code;
  uint32_t two;
  float y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(x));
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(two) : "h"(code));
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((uint16_t)two));
  return y;
#else
  return saturating<2, -14>(x, 57344.0f, from_bits(0x7fc00000u));
#endif
}
// e2m1 for 0 <= x < 7: a maximum and two multiply-adds.
KBT_STEP_FN float cvt_e2m1_below7(float x) {
  const float t = mul(max(x, 1.5f), 4194304.0f);  // exact
#if defined(__CUDA_ARCH__)
  const float top = max(x, 1.5f);
  const float p = fma(top, 4194304.0f, -x);
  return fma(top, 4194304.0f, -p);
#else
  return add(t, -add(t, -x));
#endif
}
// The exponent alone, towards zero; the sign is dropped.
KBT_STEP_FN float cvt_ue8m0(float x) {
  const uint32_t magnitude = bits(x) & 0x7fffffffu;
  if (is_nan(magnitude)) return from_bits(0x7fc00000u);
  if (magnitude >= 0x7f800000u) return from_bits(0x7f000000u);
  const uint32_t power = magnitude & 0x7f800000u;
  return from_bits(power != 0u ? power : 0x00400000u);
}
KBT_STEP_FN float cvt_bf16(float x) {
  const uint32_t u = bits(x);
  if (is_nan(u & 0x7fffffffu)) return from_bits(0x7fff0000u);
  return from_bits((u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u);
}
KBT_STEP_FN float cvt_f16(float x) {
  const uint32_t magnitude = bits(x) & 0x7fffffffu;
  const uint32_t sign = bits(x) & 0x80000000u;
  if (is_nan(magnitude)) return from_bits(0x7fffe000u);
  const float a = from_bits(magnitude) < 131072.0f ? from_bits(magnitude) : 131072.0f;
  const float r = on_grid<10, -14>(a);
  return from_bits((r < 65520.0f ? bits(r) : 0x7f800000u) | sign);
}

// ---- lanes that share a row ---------------------------------------------------------------------------------

// A row in one thread.
struct OneLane {
  KBT_STEP_FN float max(float x) const { return x; }
  KBT_STEP_FN float sum(float x) const { return x; }
};
#if defined(__CUDACC__)
// A row in N neighbouring lanes of a warp, all of them active.
template <int N>
struct Butterfly {
  __device__ __forceinline__ float max(float x) const {
    KBT_STEP_UNROLL
    for (int hop = N / 2; hop > 0; hop /= 2) x = ::fmaxf(x, __shfl_xor_sync(0xffffffffu, x, hop));
    return x;
  }
  __device__ __forceinline__ float sum(float x) const {
    KBT_STEP_UNROLL
    for (int hop = N / 2; hop > 0; hop /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, hop));
    return x;
  }
};
#endif

}  // namespace kbt_step
#endif  // KBT_STEP_PRELUDE
