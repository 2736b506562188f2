// Two partial results of attention into one, from the formula: (a 2^(m1 - m) + b 2^(m2 - m)) / (2^(m1 - m) + 2^(m2 - m)) with
// m the greater of both maxima; and a softmax with a sink, whose term is in the sum alone.
extern "C" __global__ void merge(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ maxima,
                                 float* __restrict__ out) {
  constexpr int kEach = 8;
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const float m1 = maxima[2 * at], m2 = maxima[2 * at + 1];
  const float m = fmaxf(m1, m2);
  const float e1 = exp2f(m1 - m), e2 = exp2f(m2 - m);
#pragma unroll
  for (int i = 0; i < kEach; ++i) out[at * kEach + i] = (a[at * kEach + i] * e1 + b[at * kEach + i] * e2) / (e1 + e2);
}

extern "C" __global__ void sink(const float* __restrict__ x, const float* __restrict__ sinks, float scale,
                                float* __restrict__ out) {
  constexpr int kEach = 8;
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const float s = sinks[at];
  float v[kEach], m = s;
#pragma unroll
  for (int i = 0; i < kEach; ++i) m = fmaxf(m, v[i] = x[at * kEach + i]);
  float sum = __expf((s - m) * scale);
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += v[i] = __expf((v[i] - m) * scale);
#pragma unroll
  for (int i = 0; i < kEach; ++i) out[at * kEach + i] = v[i] / sum;
}

// The sums of both parts come with them: what the divisor is, nobody knows.
extern "C" __global__ void weighted(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ stats,
                                    float* __restrict__ out) {
  constexpr int kEach = 8;
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const float m1 = stats[4 * at], m2 = stats[4 * at + 1], l1 = stats[4 * at + 2], l2 = stats[4 * at + 3];
  const float m = fmaxf(m1, m2);
  const float e1 = exp2f(m1 - m), e2 = exp2f(m2 - m);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    out[at * kEach + i] = (a[at * kEach + i] * e1 + b[at * kEach + i] * e2) / (l1 * e1 + l2 * e2);
  }
}
