// RMSNorm from its formula: y_i = w_i x_i / sqrt(mean x_j^2 + eps). One warp a row, eight elements a lane.
extern "C" __global__ void rmsnorm(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y,
                                   float eps) {
  constexpr int kEach = 8;
  const int lane = threadIdx.x & 31;
  const long long row = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const float* in = x + row * 32 * kEach;
  float* out = y + row * 32 * kEach;
  float v[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) v[i] = in[i * 32 + lane];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += v[i] * v[i];
#pragma unroll
  for (int hop = 16; hop > 0; hop /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, hop);
  const float rms = sqrtf(sum / (32 * kEach) + eps);
#pragma unroll
  for (int i = 0; i < kEach; ++i) out[i * 32 + lane] = v[i] / rms * w[i * 32 + lane];
}
