// Planted: no matrix instructions. A large bf16 product on FFMA alone, and a good one of its kind: 128 x 128 tiles,
// 8 x 8 sums a thread, two buffers, coalesced loads, no bank conflicts.
#include <cuda_bf16.h>

#include "planted.cuh"

constexpr int kTile = 128, kSlice = 16, kThreads = 256;
constexpr int kLoads = kTile * kSlice / 4 / kThreads;

// Four bf16 to four f32.
__device__ __forceinline__ float4 widened(uint2 v) {
  return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
                     __uint_as_float(v.y & 0xffff0000u));
}

// c[m][n] = sum over k of a[k][m] b[k][n]; bf16 in, f32 sums and output.
__global__ void __launch_bounds__(kThreads, 2)
    weight_gradient(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) float tile_a[2][kSlice][kTile];
  __shared__ __align__(16) float tile_b[2][kSlice][kTile];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int load_k = threadIdx.x / 32, load_at = threadIdx.x % 32 * 4;
  const int mine_m = threadIdx.x / 16 * 4, mine_n = threadIdx.x % 16 * 4;
  uint2 next_a[kLoads], next_b[kLoads];
  const auto load = [&](int from) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint64_t at = from + load_k + i * (kThreads / 32);
      next_a[i] = *reinterpret_cast<const uint2*>(a + at * m + row + load_at);
      next_b[i] = *reinterpret_cast<const uint2*>(b + at * n + column + load_at);
    }
  };
  const auto store = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = load_k + i * (kThreads / 32);
      *reinterpret_cast<float4*>(&tile_a[buffer][at][load_at]) = widened(next_a[i]);
      *reinterpret_cast<float4*>(&tile_b[buffer][at][load_at]) = widened(next_b[i]);
    }
  };
  float sum[8][8];
#pragma unroll
  for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] = 0.0f;
  load(0);
  store(0);
  __syncthreads();
  int buffer = 0;
#pragma unroll 1
  for (int at = 0; at < k; at += kSlice) {
    const bool more = at + kSlice < k;
    if (more) load(at + kSlice);
#pragma unroll
    for (int s = 0; s < kSlice; ++s) {
      float of_a[8], of_b[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float4*>(of_a + 4 * half) =
            *reinterpret_cast<const float4*>(&tile_a[buffer][s][mine_m + 64 * half]);
        *reinterpret_cast<float4*>(of_b + 4 * half) =
            *reinterpret_cast<const float4*>(&tile_b[buffer][s][mine_n + 64 * half]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += of_a[i] * of_b[j];
      }
    }
    buffer ^= 1;
    if (more) store(buffer);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float* to = c + static_cast<uint64_t>(row + mine_m + i % 4 + i / 4 * 64) * n + column + mine_n;
    *reinterpret_cast<float4*>(to) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    *reinterpret_cast<float4*>(to + 64) = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
  }
}

int main() {
  constexpr int kM = 4096, kN = 4096, kK = 4096;
  planted::Buffer<__nv_bfloat16> a(uint64_t{kK} * kM), b(uint64_t{kK} * kN);
  planted::Buffer<float> c(uint64_t{kM} * kN);
  a.filled();
  b.filled(0.5f, 0.25f);
  const auto call = [&] {
    weight_gradient<<<dim3(kN / kTile, kM / kTile), kThreads>>>(a.get(), b.get(), c.get(), kM, kN, kK);
  };
  return planted::run(call, [&] {
    const auto rounded = [](float x) { return static_cast<double>(__bfloat162float(__float2bfloat16(x))); };
    for (uint64_t row : {0u, 70u, 2055u, 4095u}) {
      for (uint64_t column : {0u, 9u, 200u, 4095u}) {
        double sum = 0.0;
        for (uint64_t i = 0; i < kK; ++i) {
          sum += rounded(planted::value_at(i * kM + row)) *
                 rounded(planted::value_at(i * kN + column) * 0.5f + 0.25f);
        }
        planted::expect("c", c.at(row * kN + column), sum, 1e-3);
      }
    }
  });
}
