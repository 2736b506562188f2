// y = a x + b: nothing here could be cheaper.
extern "C" __global__ void affine(const float* __restrict__ x, float* __restrict__ y, float a, float b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + b;
}
