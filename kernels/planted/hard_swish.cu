// Planted: redundant traffic. Scale and shift, then hard swish: each a launch of its own with an fp32 tensor between
// them in device memory, twice as wide as input and output and far larger than L2. Every launch is coalesced.
#include <cuda_bf16.h>

#include "planted.cuh"

constexpr int kThreads = 256;
constexpr int kPieces = 4;  // of 4 elements, a thread

enum Operation { kScaleAndShift, kHardSwish };

__device__ __forceinline__ float applied(Operation operation, float x, float scale, float shift) {
  if (operation == kScaleAndShift) return x * scale + shift;
  return x * __saturatef(x * (1.0f / 6.0f) + 0.5f);
}

// One operation from one tensor to another; either may be bf16 or fp32.
__global__ void __launch_bounds__(kThreads) pointwise(Operation operation, const void* in, bool in_bf16, void* out,
                                                      bool out_bf16, float scale, float shift) {
  const uint64_t first = uint64_t{blockIdx.x} * kThreads * kPieces + threadIdx.x;
  float4 v[kPieces];
  if (in_bf16) {
    uint2 packed[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) packed[p] = static_cast<const uint2*>(in)[first + p * kThreads];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      v[p] = make_float4(__uint_as_float(packed[p].x << 16), __uint_as_float(packed[p].x & 0xffff0000u),
                         __uint_as_float(packed[p].y << 16), __uint_as_float(packed[p].y & 0xffff0000u));
    }
  } else {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) v[p] = static_cast<const float4*>(in)[first + p * kThreads];
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    v[p] = make_float4(applied(operation, v[p].x, scale, shift), applied(operation, v[p].y, scale, shift),
                       applied(operation, v[p].z, scale, shift), applied(operation, v[p].w, scale, shift));
  }
  if (out_bf16) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const __nv_bfloat162 low = __floats2bfloat162_rn(v[p].x, v[p].y), high = __floats2bfloat162_rn(v[p].z, v[p].w);
      static_cast<uint2*>(out)[first + p * kThreads] =
          make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
    }
  } else {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) static_cast<float4*>(out)[first + p * kThreads] = v[p];
  }
}

int main() {
  constexpr uint64_t kElements = 1u << 26;
  constexpr float kScale = 3.0f, kShift = 0.5f;
  planted::Buffer<__nv_bfloat16> x(kElements), y(kElements);
  planted::Buffer<float> between(kElements);
  x.filled();
  const auto call = [&] {
    constexpr unsigned kCtas = kElements / (4 * kPieces * kThreads);
    pointwise<<<kCtas, kThreads>>>(kScaleAndShift, x.get(), true, between.get(), false, kScale, kShift);
    pointwise<<<kCtas, kThreads>>>(kHardSwish, between.get(), false, y.get(), true, 0.0f, 0.0f);
  };
  return planted::run(call, [&] {
    for (uint64_t i : {uint64_t{0}, uint64_t{3}, uint64_t{12345677}, kElements - 1}) {
      const double t = __bfloat162float(__float2bfloat16(planted::value_at(i))) * double{kScale} + kShift;
      const double wanted = t * std::fmin(std::fmax(t + 3.0, 0.0), 6.0) / 6.0;
      planted::expect("y", __bfloat162float(y.at(i)), wanted, 1e-2);
    }
  });
}
