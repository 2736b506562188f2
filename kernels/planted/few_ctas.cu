// Planted: too few CTAs. One CTA a row, and 16 rows.
#include "planted.cuh"

constexpr int kThreads = 1024;

// y = x / sqrt(mean(x^2) + eps), one CTA a row.
__global__ void __launch_bounds__(kThreads) rms_norm(const float4* x, float4* y, int columns) {
  const float4* row = x + static_cast<uint64_t>(blockIdx.x) * columns;
  float4* to = y + static_cast<uint64_t>(blockIdx.x) * columns;
  float sum = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    const float4 v = row[i];
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  __shared__ float parts[kThreads / 32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int w = 0; w < kThreads / 32; ++w) sum += parts[w];
  const float scale = rsqrtf(sum / (4.0f * columns) + 1e-6f);
#pragma unroll 4
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    const float4 v = row[i];
    to[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
  }
}

int main() {
  constexpr int kRows = 16, kColumns = 1 << 19;
  planted::Buffer<float> x(uint64_t{kRows} * kColumns), y(uint64_t{kRows} * kColumns);
  x.filled();
  const auto call = [&] {
    rms_norm<<<kRows, kThreads>>>(reinterpret_cast<const float4*>(x.get()),
                                  reinterpret_cast<float4*>(y.get()), kColumns / 4);
  };
  return planted::run(call, [&] {
    for (uint64_t row : {0u, 15u}) {
      double squares = 0.0;
      for (uint64_t c = 0; c < kColumns; ++c) {
        squares += std::pow(planted::value_at(row * kColumns + c), 2.0);
      }
      const double wanted = planted::value_at(row * kColumns + 99) / std::sqrt(squares / kColumns + 1e-6);
      planted::expect("y", y.at(row * kColumns + 99), wanted, 1e-4);
    }
  });
}
