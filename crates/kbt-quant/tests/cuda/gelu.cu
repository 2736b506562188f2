// GELU from its tanh formula, x / 2 (1 + tanh u) = x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
extern "C" __global__ void gelu(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  const float u = 0.7978845608f * (v + 0.044715f * v * v * v);
  const float e = __expf(-2.0f * u);
  y[i] = v / (1.0f + e);
}
