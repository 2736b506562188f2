// Planted: L2 bandwidth. Every CTA reads the whole table, past L1; the table fits in L2.
#include "planted.cuh"

constexpr int kThreads = 512;
constexpr int kUnroll = 8;

// out[b] = sum over i of |table[i] - b / rows|. Each CTA starts elsewhere, so that they spread over the slices.
__global__ void __launch_bounds__(kThreads) distances(const float4* table, float* out, int count) {
  const float centre = static_cast<float>(blockIdx.x) / gridDim.x;
  int at = static_cast<int>(static_cast<int64_t>(blockIdx.x) * (count / kThreads) / gridDim.x) * kThreads +
           threadIdx.x;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int done = 0; done < count; done += kThreads * kUnroll) {
    float4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      v[u] = __ldcg(table + at);
      at += kThreads;
      at = at >= count ? at - count : at;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum.x += fabsf(v[u].x - centre);
      sum.y += fabsf(v[u].y - centre);
      sum.z += fabsf(v[u].z - centre);
      sum.w += fabsf(v[u].w - centre);
    }
  }
  float all = sum.x + sum.y + sum.z + sum.w;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) all += __shfl_xor_sync(~0u, all, offset);
  __shared__ float parts[kThreads / 32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = all;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) all += parts[w];
    out[blockIdx.x] = all;
  }
}

int main() {
  constexpr int kTable = 1 << 22, kRows = 528;
  planted::Buffer<float> table(kTable), out(kRows);
  table.filled();
  const auto call = [&] {
    distances<<<kRows, kThreads>>>(reinterpret_cast<const float4*>(table.get()), out.get(), kTable / 4);
  };
  return planted::run(call, [&] {
    for (int row : {0, 263, 527}) {
      const float centre = static_cast<float>(row) / kRows;
      double wanted = 0.0;
      for (int i = 0; i < kTable; ++i) wanted += std::fabs(planted::value_at(i) - centre);
      planted::expect("out", out.at(row), wanted, 1e-3);
    }
  });
}
