// Planted: launch overhead. A chain of 128 elementwise kernels over a tensor that is far too small for them.
#include "planted.cuh"

__global__ void scale_and_shift(const float* in, float* out, float scale, float shift, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * scale + shift;
}

int main() {
  constexpr int kElements = 1 << 16, kKernels = 128;
  planted::Buffer<float> x(kElements), a(kElements), b(kElements);
  x.filled();
  const auto call = [&] {
    const float* from = x.get();
    for (int k = 0; k < kKernels; ++k) {
      float* to = k % 2 == 0 ? a.get() : b.get();
      scale_and_shift<<<planted::ctas(kElements, 256), 256>>>(from, to, 0.5f, 1.0f, kElements);
      from = to;
    }
  };
  return planted::run(call, [&] {
    // Halved 128 times, only the fixed point of v <- v / 2 + 1 is left.
    for (uint64_t i : {0, 4711, kElements - 1}) planted::expect("out", b.at(i), 2.0, 1e-6);
  });
}
