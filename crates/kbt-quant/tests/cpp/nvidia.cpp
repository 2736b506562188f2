// NVIDIA's host conversions. Arguments: format, rounding (rn, rz, rm, rp), `sat` or `nosat`. Standard input: pairs of f32
// bit patterns in hex, the upper element first. Printed for each pair: the code of either, and both packed (0 for the
// 16-bit formats).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <string>

static float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

template <class T>
static uint32_t code_of(T value) {
  uint16_t code;
  static_assert(sizeof code == sizeof value, "a 16-bit number");
  memcpy(&code, &value, sizeof code);
  return code;
}

// One = code of one value, two = packed codes of {x = lower, y = upper}.
template <class One, class Two>
static int run(One one, Two two) {
  uint32_t hi, lo;
  while (scanf("%x %x", &hi, &lo) == 2) {
    const float2 pair = {from_bits(lo), from_bits(hi)};
    printf("%x %x %x\n", (unsigned)one(pair.y), (unsigned)one(pair.x), (unsigned)two(pair));
  }
  return 0;
}

template <class One>
static int run(One one) {
  return run(one, [](float2) { return 0; });
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string format = argv[1], rounding = argv[2];
  const __nv_saturation_t sat = !strcmp(argv[3], "sat") ? __NV_SATFINITE : __NV_NOSAT;
  if (format == "e2m1")
    return run([](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); },
               [](float2 x) { return __nv_cvt_float2_to_fp4x2(x, __NV_E2M1, cudaRoundNearest); });
  if (format == "e2m3" || format == "e3m2") {
    const __nv_fp6_interpretation_t kind = format == "e2m3" ? __NV_E2M3 : __NV_E3M2;
    return run([=](float x) { return __nv_cvt_float_to_fp6(x, kind, cudaRoundNearest); },
               [=](float2 x) { return __nv_cvt_float2_to_fp6x2(x, kind, cudaRoundNearest); });
  }
  if (format == "e4m3" || format == "e5m2") {
    const __nv_fp8_interpretation_t kind = format == "e4m3" ? __NV_E4M3 : __NV_E5M2;
    return run([=](float x) { return __nv_cvt_float_to_fp8(x, sat, kind); },
               [=](float2 x) { return __nv_cvt_float2_to_fp8x2(x, sat, kind); });
  }
  if (format == "ue8m0") {
    const cudaRoundMode mode = rounding == "rp" ? cudaRoundPosInf : cudaRoundZero;
    return run([=](float x) { return __nv_cvt_float_to_e8m0(x, sat, mode); },
               [=](float2 x) { return __nv_cvt_float2_to_e8m0x2(x, sat, mode); });
  }
  if (format == "f16") {
    if (rounding == "rn") return run([](float x) { return code_of(__float2half_rn(x)); });
    if (rounding == "rz") return run([](float x) { return code_of(__float2half_rz(x)); });
    if (rounding == "rm") return run([](float x) { return code_of(__float2half_rd(x)); });
    if (rounding == "rp") return run([](float x) { return code_of(__float2half_ru(x)); });
  }
  if (format == "bf16") {
    if (rounding == "rn") return run([](float x) { return code_of(__float2bfloat16_rn(x)); });
    if (rounding == "rz") return run([](float x) { return code_of(__float2bfloat16_rz(x)); });
    if (rounding == "rm") return run([](float x) { return code_of(__float2bfloat16_rd(x)); });
    if (rounding == "rp") return run([](float x) { return code_of(__float2bfloat16_ru(x)); });
  }
  fprintf(stderr, "no conversion `%s %s`\n", argv[1], argv[2]);
  return 2;
}
