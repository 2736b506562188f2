// Number formats e2m1, e4m3, e5m2 and the arithmetic under them, for device and host.
//
// The same functions compile for the GPU, where they use the conversions that the target has, and as plain C++17,
// where they are integer and FP32 arithmetic with the same results: RNE, PTX's `.satfinite`, NaN as PTX converts it.
// The only functions whose bits differ between device and host are exp2() and rcp(), which are `.approx` on the GPU.
// What is done with the formats lives in quant.cuh.
#pragma once

#include <stdint.h>
#if !defined(__CUDA_ARCH__)
#include <math.h>
#include <string.h>
#endif

#if defined(__CUDACC__)
#define KBT_QUANT_FN __host__ __device__ __forceinline__
#else
#define KBT_QUANT_FN inline
#endif

// e4m3 and e5m2 conversions in hardware; FP4 conversions in hardware (they need an `a` or `f` target).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define KBT_QUANT_NATIVE_FP8 1
#else
#define KBT_QUANT_NATIVE_FP8 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && \
    (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__))
#define KBT_QUANT_NATIVE_FP4 1
#else
#define KBT_QUANT_NATIVE_FP4 0
#endif

namespace kbt {
namespace quant {

// ---- bits and arithmetic that no compiler contracts or reassociates ------------------------------------------

KBT_QUANT_FN uint32_t bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
#endif
}

KBT_QUANT_FN float from_bits(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
#endif
}

KBT_QUANT_FN float mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

KBT_QUANT_FN float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// Maximum and minimum that take the number where the other operand is a NaN of either kind, as FMNMX does.
KBT_QUANT_FN float max_num(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b || b != b ? a : b;
#endif
}

KBT_QUANT_FN float min_num(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fminf(a, b);
#else
  return a < b || b != b ? a : b;
#endif
}

// IEEE division, rounded to nearest even, whatever -prec-div says.
KBT_QUANT_FN float div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// 2^x. Device: ex2.approx.ftz.f32. Host: exp2f, with results below 2^-126 flushed to zero as .ftz does.
KBT_QUANT_FN float exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = ::exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
#endif
}

// 1/x. Device: rcp.approx.ftz.f32. Host: IEEE division.
KBT_QUANT_FN float rcp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// ---- e2m1: 0 .5 1 1.5 2 3 4 6, sign in bit 3, no NaN and no Inf ----------------------------------------------

// RNE onto the e2m1 grid for 0 <= x < 7: one FMNMX and two FFMA. NaN gives NaN.
// t * 2^22 is a multiple of the step that x has on the grid (0.5 below 2, 1 below 4, 2 below 8), and so large that
// t * 2^22 - x keeps no bit below that step: the subtraction rounds x, to even, and the second FMA brings it back.
// Subtracting x, not adding it, matters: a sum would cross a binade just below 2 and 4 and round to twice the step.
KBT_QUANT_FN float e2m1_round_below7(float x) {
  const float t = max_num(x, 1.5f);
#if defined(__CUDA_ARCH__)
  const float p = fmaf(t, 0x1p22f, -x);
  return fmaf(t, 0x1p22f, -p);
#else
  const float anchor = t * 0x1p22f;  // exact, so that a fused form has the same bits; hosts may lack FMA
  const float p = anchor - x;
  return anchor - p;
#endif
}

// RNE with satfinite for x >= 0: anything above 5 gives 6; NaN gives 6, as PTX's conversion does.
KBT_QUANT_FN float e2m1_round_nonneg(float x) { return e2m1_round_below7(min_num(x, 6.0f)); }

// RNE with satfinite for every f32; the sign of zero is kept, and NaN of either sign gives +6.
KBT_QUANT_FN float e2m1_round(float x) {
  const uint32_t u = bits(x);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t sign = magnitude > 0x7f800000u ? 0u : u & 0x80000000u;
  return from_bits(bits(e2m1_round_nonneg(from_bits(magnitude))) | sign);
}

// The code of a value that lies on the grid already (what the functions above return).
KBT_QUANT_FN uint8_t e2m1_code_of_grid(float r) {
  const uint32_t u = bits(r);
  const uint32_t magnitude = u & 0x7fffffffu;
  // From 1.0 on, exponent and first mantissa bit count up with the code; 0.5 and 0 are the two codes below.
  const uint32_t normal = (magnitude >> 22) - 252u;
  const uint32_t code = magnitude >= 0x3f800000u ? normal : (magnitude != 0u ? 1u : 0u);
  return (uint8_t)(code | (u >> 28 & 8u));
}

// Two codes in a byte: `hi` in the upper nibble, `lo` (the element with the lower index) in the lower one.
KBT_QUANT_FN uint8_t e2m1x2_encode(float hi, float lo) {
#if KBT_QUANT_NATIVE_FP4
  uint32_t d;
  asm("{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, %1, %2; cvt.u32.u8 %0, t; }" : "=r"(d) : "f"(hi), "f"(lo));
  return (uint8_t)d;
#else
  return (uint8_t)(e2m1_code_of_grid(e2m1_round(hi)) << 4 | e2m1_code_of_grid(e2m1_round(lo)));
#endif
}

KBT_QUANT_FN uint8_t e2m1_encode(float x) {
#if KBT_QUANT_NATIVE_FP4
  return e2m1x2_encode(0.0f, x);
#else
  return e2m1_code_of_grid(e2m1_round(x));
#endif
}

// The value of the code in the low four bits.
KBT_QUANT_FN float e2m1_decode(uint8_t code) {
  const uint32_t c = code & 7u;
  const uint32_t magnitude = c >= 2u ? (c + 252u) << 22 : (c != 0u ? 0x3f000000u : 0u);
  return from_bits(magnitude | (uint32_t)(code & 8u) << 28);
}

// ---- e4m3 and e5m2 -------------------------------------------------------------------------------------------

namespace detail {
// RNE, satfinite. M mantissa bits; exponent bias B; MAX the largest finite code; NaN is 0x7f.
template <int M, int B, uint32_t MAX>
KBT_QUANT_FN uint8_t fp8_encode(float x) {
  const uint32_t u = bits(x);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  uint32_t code;
  if (magnitude < (uint32_t)(128 - B) << 23) {
    // Subnormal in the target: adding a power of two whose last bit is the target's step rounds to that step.
    const float anchor = from_bits((uint32_t)(128 - B - M + 23) << 23);
    code = bits(add(from_bits(magnitude), anchor)) - bits(anchor);
  } else {
    const uint32_t odd = magnitude >> (23 - M) & 1u;
    code = ((magnitude + (1u << (22 - M)) - 1u + odd) >> (23 - M)) - ((uint32_t)(127 - B) << M);
    code = code < MAX ? code : MAX;
  }
  return (uint8_t)(code | (u >> 24 & 0x80u));
}

template <int M, int B>
KBT_QUANT_FN float fp8_decode(uint8_t code) {
  const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
  const uint32_t c = code & 0x7fu;
  // Placed as an f32 with the format's exponent, then scaled by the difference of the biases; subnormals come out
  // of the subtraction of the implicit one.
  float r;
  if (c < 1u << M) {
    r = from_bits((c << (23 - M)) | (uint32_t)(128 - B) << 23) - from_bits((uint32_t)(128 - B) << 23);
  } else {
    r = from_bits((c << (23 - M)) + ((uint32_t)(127 - B) << 23));
  }
  return from_bits(bits(r) | sign);
}
}  // namespace detail

// Two codes: `hi` in the upper byte, `lo` (the element with the lower index) in the lower one.
KBT_QUANT_FN uint16_t e4m3x2_encode(float hi, float lo) {
#if KBT_QUANT_NATIVE_FP8
  uint16_t d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
  return d;
#else
  return (uint16_t)(detail::fp8_encode<3, 7, 0x7eu>(hi) << 8 | detail::fp8_encode<3, 7, 0x7eu>(lo));
#endif
}

KBT_QUANT_FN uint16_t e5m2x2_encode(float hi, float lo) {
#if KBT_QUANT_NATIVE_FP8
  uint16_t d;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
  return d;
#else
  return (uint16_t)(detail::fp8_encode<2, 15, 0x7bu>(hi) << 8 | detail::fp8_encode<2, 15, 0x7bu>(lo));
#endif
}

// Four codes, element 0 in the lowest byte: the order in which a row of fp8 lies in memory.
KBT_QUANT_FN uint32_t e4m3x4_encode(float e0, float e1, float e2, float e3) {
  return (uint32_t)e4m3x2_encode(e1, e0) | (uint32_t)e4m3x2_encode(e3, e2) << 16;
}

KBT_QUANT_FN uint8_t e4m3_encode(float x) {
#if KBT_QUANT_NATIVE_FP8
  return (uint8_t)e4m3x2_encode(0.0f, x);
#else
  return detail::fp8_encode<3, 7, 0x7eu>(x);
#endif
}

KBT_QUANT_FN uint8_t e5m2_encode(float x) {
#if KBT_QUANT_NATIVE_FP8
  return (uint8_t)e5m2x2_encode(0.0f, x);
#else
  return detail::fp8_encode<2, 15, 0x7bu>(x);
#endif
}

namespace detail {
#if KBT_QUANT_NATIVE_FP8
KBT_QUANT_FN float half_bits_to_float(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
#endif
}  // namespace detail

// Codes 7f and ff are NaN.
KBT_QUANT_FN float e4m3_decode(uint8_t code) {
#if KBT_QUANT_NATIVE_FP8
  uint32_t h2;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h2) : "h"((uint16_t)code));
  return detail::half_bits_to_float((uint16_t)h2);
#else
  if ((code & 0x7fu) == 0x7fu) return from_bits(0x7fc00000u);
  return detail::fp8_decode<3, 7>(code);
#endif
}

// Codes 7c and fc are infinite, 7d..7f and fd..ff NaN.
KBT_QUANT_FN float e5m2_decode(uint8_t code) {
#if KBT_QUANT_NATIVE_FP8
  uint32_t h2;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(h2) : "h"((uint16_t)code));
  return detail::half_bits_to_float((uint16_t)h2);
#else
  const uint32_t c = code & 0x7fu;
  if (c > 0x7cu) return from_bits(0x7fc00000u);
  if (c == 0x7cu) return from_bits(0x7f800000u | (uint32_t)(code & 0x80u) << 24);
  return detail::fp8_decode<2, 15>(code);
#endif
}

// The nearest value of the format, saturated: decode(encode(x)).
KBT_QUANT_FN float e4m3_round(float x) {
#if KBT_QUANT_NATIVE_FP8
  uint32_t h2;  // unpacked whole: masking the code out of the pair would cost an instruction
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h2) : "h"(e4m3x2_encode(0.0f, x)));
  return detail::half_bits_to_float((uint16_t)h2);
#else
  return e4m3_decode(e4m3_encode(x));
#endif
}

KBT_QUANT_FN float e5m2_round(float x) {
#if KBT_QUANT_NATIVE_FP8
  uint32_t h2;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(h2) : "h"(e5m2x2_encode(0.0f, x)));
  return detail::half_bits_to_float((uint16_t)h2);
#else
  return e5m2_decode(e5m2_encode(x));
#endif
}

}  // namespace quant
}  // namespace kbt
