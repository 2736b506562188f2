// Planted: device-memory bandwidth. Three streams, coalesced, 16 bytes a thread, nothing to reuse.
#include "planted.cuh"

__global__ void triad(const float4* x, const float4* y, float4* out, float a, uint64_t count) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float4 u = x[i], v = y[i];
  out[i] = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
}

int main() {
  constexpr uint64_t kElements = 1ull << 26;
  planted::Buffer<float> x(kElements), y(kElements), out(kElements);
  x.filled();
  y.filled(2.0f);
  const auto call = [&] {
    triad<<<planted::ctas(kElements / 4, 256), 256>>>(
        reinterpret_cast<const float4*>(x.get()), reinterpret_cast<const float4*>(y.get()),
        reinterpret_cast<float4*>(out.get()), 3.0f, kElements / 4);
  };
  return planted::run(call, [&] {
    for (uint64_t i : {uint64_t{0}, uint64_t{12345677}, kElements - 1}) {
      planted::expect("out", out.at(i), 5.0 * planted::value_at(i), 1e-5);
    }
  });
}
