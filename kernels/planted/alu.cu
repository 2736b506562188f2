// Planted: the ALU pipe. Dropout whose counter-based random numbers take 24 rounds of rotate, xor and compare.
#include "planted.cuh"

constexpr int kRounds = 24;

__host__ __device__ inline uint32_t rotate(uint32_t x, int by) {
#ifdef __CUDA_ARCH__
  return __funnelshift_l(x, x, by);
#else
  return (x << by) | (x >> (32 - by));
#endif
}

// Rounds of rotations and three-input logic: all of it integer work.
__host__ __device__ inline uint32_t mixed(uint32_t a) {
  uint32_t b = 0x9e3779b9u, c = ~a;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    a = (a & b) ^ rotate(c, 7);
    b = (b | c) ^ rotate(a, 13);
    c = (c & ~a) ^ rotate(b, 22);
  }
  return a ^ b ^ c;
}

__device__ __forceinline__ float dropped(float x, uint32_t index) {
  return mixed(index) < 0x80000000u ? 2.0f * x : 0.0f;
}

__global__ void dropout(const float4* x, float4* out, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float4 v = x[i];
  out[i] = make_float4(dropped(v.x, 4 * i), dropped(v.y, 4 * i + 1), dropped(v.z, 4 * i + 2),
                       dropped(v.w, 4 * i + 3));
}

int main() {
  constexpr uint32_t kElements = 1u << 25;
  planted::Buffer<float> x(kElements), out(kElements);
  x.filled();
  const auto call = [&] {
    dropout<<<planted::ctas(kElements / 4, 256), 256>>>(reinterpret_cast<const float4*>(x.get()),
                                                        reinterpret_cast<float4*>(out.get()), kElements / 4);
  };
  return planted::run(call, [&] {
    for (uint32_t i : {0u, 1u, 2u, 3u, 1234567u, kElements - 1}) {
      const double wanted = mixed(i) < 0x80000000u ? 2.0 * planted::value_at(i) : 0.0;
      planted::expect("out", out.at(i), wanted, 0.0);
    }
  });
}
