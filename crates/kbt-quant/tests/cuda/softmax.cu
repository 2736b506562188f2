// Row softmax, from its formula: y_i = exp(x_i - max x) / sum exp(x_j - max x). One warp a row, eight elements a lane.
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y) {
  constexpr int kEach = 8;
  const int lane = threadIdx.x & 31;
  const long long row = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const float* in = x + row * 32 * kEach;
  float* out = y + row * 32 * kEach;
  float v[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) v[i] = in[i * 32 + lane];
  float m = v[0];
#pragma unroll
  for (int i = 1; i < kEach; ++i) m = fmaxf(m, v[i]);
#pragma unroll
  for (int hop = 16; hop > 0; hop /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, hop));
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    v[i] = __expf(v[i] - m);
    sum += v[i];
  }
#pragma unroll
  for (int hop = 16; hop > 0; hop /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, hop);
#pragma unroll
  for (int i = 0; i < kEach; ++i) out[i * 32 + lane] = v[i] / sum;
}
