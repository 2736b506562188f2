// Planted: device-memory bandwidth. A layer norm in bf16: a warp reads its row once, 16 bytes a lane, keeps it in
// registers for mean, variance and result, and writes it once.
#include <cuda_bf16.h>

#include "planted.cuh"

constexpr int kColumns = 1024;
constexpr int kThreads = 256;
constexpr int kPieces = kColumns / 8 / 32;  // of 8 elements, a lane

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// y = (x - mean(x)) / sqrt(var(x) + eps), one warp a row of 1024.
__global__ void __launch_bounds__(kThreads) layer_norm(const uint4* x, uint4* y) {
  const uint64_t row = (uint64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  const uint64_t at = row * (kColumns / 8) + threadIdx.x % 32;
  uint4 packed[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) packed[p] = x[at + p * 32];
  float2 v[4 * kPieces];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4 * kPieces; ++i) {
    v[i] = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(packed)[i]);
    sum += v[i].x + v[i].y;
  }
  const float mean = warp_sum(sum) / kColumns;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 4 * kPieces; ++i) {
    v[i].x -= mean;
    v[i].y -= mean;
    squares += v[i].x * v[i].x + v[i].y * v[i].y;
  }
  const float scale = rsqrtf(warp_sum(squares) / kColumns + 1e-5f);
#pragma unroll
  for (int i = 0; i < 4 * kPieces; ++i) {
    reinterpret_cast<__nv_bfloat162*>(packed)[i] = __floats2bfloat162_rn(v[i].x * scale, v[i].y * scale);
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) y[at + p * 32] = packed[p];
}

int main() {
  constexpr uint64_t kRows = 1u << 18;
  planted::Buffer<__nv_bfloat16> x(kRows * kColumns), y(kRows * kColumns);
  x.filled(2.0f, 0.5f);
  const auto call = [&] {
    layer_norm<<<planted::ctas(kRows * 32, kThreads), kThreads>>>(reinterpret_cast<const uint4*>(x.get()),
                                                                  reinterpret_cast<uint4*>(y.get()));
  };
  return planted::run(call, [&] {
    const auto input = [](uint64_t i) {
      return static_cast<double>(__bfloat162float(__float2bfloat16(planted::value_at(i) * 2.0f + 0.5f)));
    };
    for (uint64_t row : {uint64_t{0}, uint64_t{77777}, kRows - 1}) {
      double mean = 0.0, variance = 0.0;
      for (uint64_t c = 0; c < kColumns; ++c) mean += input(row * kColumns + c) / kColumns;
      for (uint64_t c = 0; c < kColumns; ++c) variance += std::pow(input(row * kColumns + c) - mean, 2.0) / kColumns;
      for (uint64_t c : {0u, 9u, 515u, 1023u}) {
        const double wanted = (input(row * kColumns + c) - mean) / std::sqrt(variance + 1e-5);
        planted::expect("y", __bfloat162float(y.at(row * kColumns + c)), wanted, 1e-2);
      }
    }
  });
}
