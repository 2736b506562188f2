// Planted: the last wave. One CTA fills an SM with its 128 x 256 tile, and the product has 136 tiles: on 132 SMs, four
// of them run a second time while the others wait.
#include "planted.cuh"

constexpr int kTileM = 128, kTileN = 256, kSlice = 16, kThreads = 512;

// c[m][n] = min over k of a[k][m] + b[k][n].
__global__ void __launch_bounds__(kThreads, 1) min_plus(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) float tile_a[2][kSlice][kTileM];
  __shared__ __align__(16) float tile_b[2][kSlice][kTileN];
  const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
  const int a_k = threadIdx.x / 32, a_at = threadIdx.x % 32 * 4;
  const int b_k = threadIdx.x / 64, b_at = threadIdx.x % 64 * 4;
  const int mine_m = threadIdx.x / 32 * 4, mine_n = threadIdx.x % 32 * 4;
  float4 next_a, next_b[2];
  const auto load = [&](int from) {
    next_a = *reinterpret_cast<const float4*>(a + static_cast<uint64_t>(from + a_k) * m + row + a_at);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      next_b[i] =
          *reinterpret_cast<const float4*>(b + static_cast<uint64_t>(from + b_k + 8 * i) * n + column + b_at);
    }
  };
  const auto store = [&](int buffer) {
    *reinterpret_cast<float4*>(&tile_a[buffer][a_k][a_at]) = next_a;
#pragma unroll
    for (int i = 0; i < 2; ++i) *reinterpret_cast<float4*>(&tile_b[buffer][b_k + 8 * i][b_at]) = next_b[i];
  };
  float least[8][8];
#pragma unroll
  for (int i = 0; i < 64; ++i) least[i / 8][i % 8] = INFINITY;
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
            *reinterpret_cast<const float4*>(&tile_b[buffer][s][mine_n + 128 * half]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) least[i][j] = fminf(least[i][j], of_a[i] + of_b[j]);
      }
    }
    buffer ^= 1;
    if (more) store(buffer);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float* to = c + static_cast<uint64_t>(row + mine_m + i % 4 + i / 4 * 64) * n + column + mine_n;
    *reinterpret_cast<float4*>(to) = make_float4(least[i][0], least[i][1], least[i][2], least[i][3]);
    *reinterpret_cast<float4*>(to + 128) = make_float4(least[i][4], least[i][5], least[i][6], least[i][7]);
  }
}

int main() {
  constexpr int kM = 1024, kN = 4352, kK = 2048;
  planted::Buffer<float> a(uint64_t{kK} * kM), b(uint64_t{kK} * kN), c(uint64_t{kM} * kN);
  a.filled();
  b.filled(0.5f, 0.25f);
  const auto call = [&] {
    min_plus<<<dim3(kN / kTileN, kM / kTileM), kThreads>>>(a.get(), b.get(), c.get(), kM, kN, kK);
  };
  return planted::run(call, [&] {
    for (uint64_t row : {0u, 70u, 517u, 1023u}) {
      for (uint64_t column : {0u, 9u, 200u, 4351u}) {
        double least = INFINITY;
        for (uint64_t i = 0; i < kK; ++i) {
          const double sum = planted::value_at(i * kM + row) + planted::value_at(i * kN + column) * 0.5 + 0.25;
          least = std::fmin(least, sum);
        }
        planted::expect("c", c.at(row * kN + column), least, 1e-5);
      }
    }
  });
}
