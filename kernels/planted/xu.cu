// Planted: the XU pipe. 64 exp2 an element and little else.
#include "planted.cuh"

constexpr int kTerms = 64;

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float series(float x) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 1; k <= kTerms; ++k) sum += exp2_approx(x * (k / 16.0f));
  return sum;
}

// out[i] = sum over k of 2^(x[i] k / 16).
__global__ void exponential_series(const float4* x, float4* out, uint64_t count) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float4 v = x[i];
  out[i] = make_float4(series(v.x), series(v.y), series(v.z), series(v.w));
}

int main() {
  constexpr uint64_t kElements = 1ull << 24;
  planted::Buffer<float> x(kElements), out(kElements);
  x.filled();
  const auto call = [&] {
    exponential_series<<<planted::ctas(kElements / 4, 256), 256>>>(
        reinterpret_cast<const float4*>(x.get()), reinterpret_cast<float4*>(out.get()), kElements / 4);
  };
  return planted::run(call, [&] {
    for (uint64_t i : {uint64_t{0}, uint64_t{999}, kElements - 1}) {
      double wanted = 0.0;
      for (int k = 1; k <= kTerms; ++k) wanted += std::exp2(planted::value_at(i) * k / 16.0);
      planted::expect("out", out.at(i), wanted, 1e-4);
    }
  });
}
