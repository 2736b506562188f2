// The quantisation step of P alone, as a Blackwell softmax warp does it: one thread holds a row of 128 scores, so
// a group of 16 needs no shuffle, and codes leave as packed e2m1 with e4m3 scales. Compiled for sm_90a, sm_100a and
// sm_103a so that its machine code can be studied where no such GPU is at hand; nothing launches it.
#include "kbt/quant.cuh"

#ifndef KBT_QUANT_FORM
#define KBT_QUANT_FORM 2
#endif

extern "C" __global__ void __launch_bounds__(128)
    quant_step(const float* __restrict__ scores, const float* __restrict__ bias, float scale_log2,
               uint2* __restrict__ codes, uint2* __restrict__ scales, float* __restrict__ row_sum) {
  using namespace kbt::quant;
  constexpr Form kForm = static_cast<Form>(KBT_QUANT_FORM);
  constexpr int kColumns = 128, kGroup = 16, kGroups = kColumns / kGroup;
  const int row = blockIdx.x * blockDim.x + threadIdx.x;

  float s[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) s[i] = scores[static_cast<long long>(i) * gridDim.x * blockDim.x + row];
  const Row row_constants{scale_log2, bias[row]};

  float sum = 0.0f;
  uint8_t scale_codes[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    float x[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float v = s[g * kGroup + i];
      const float argument = fmaf(row_constants.c, v, row_constants.bias);
      x[i] = kForm == Form::Log2Fused ? v : kForm == Form::Log2 ? argument : kbt::quant::exp2(argument);
    }
    const GroupScale scale = group_scale<kForm>(local_max(x), row_constants);
    uint8_t packed[kGroup / 2];
    sum = accumulate<kForm>(sum, quantize_p_codes<kForm>(x, packed, scale, row_constants));
    scale_codes[g] = e4m3_encode(scale.unrounded);
    uint2 word{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word.x |= static_cast<uint32_t>(packed[i]) << (8 * i);
      word.y |= static_cast<uint32_t>(packed[4 + i]) << (8 * i);
    }
    codes[static_cast<long long>(g) * gridDim.x * blockDim.x + row] = word;
  }
  uint2 word{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    word.x |= static_cast<uint32_t>(scale_codes[i]) << (8 * i);
    word.y |= static_cast<uint32_t>(scale_codes[4 + i]) << (8 * i);
  }
  scales[row] = word;
  row_sum[row] = sum;
}
