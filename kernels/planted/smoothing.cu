// Planted: bank conflicts. Each thread filters its own segment of 32 samples in shared memory, and a segment is as
// long as there are banks: whatever the step, all 32 threads of a warp are at one bank.
#include "planted.cuh"

constexpr int kSegment = 32;
constexpr int kThreads = 256;
constexpr float kWeight = 0.25f;

// Exponential smoothing forwards and then backwards, s += (x - s) / 4 from s = 0, of each segment of 32 samples.
__global__ void __launch_bounds__(kThreads) smoothing(const float4* in, float4* out) {
  __shared__ __align__(16) float samples[kThreads * kSegment];
  float4* vectors = reinterpret_cast<float4*>(samples) + threadIdx.x;
  const uint64_t first = uint64_t{blockIdx.x} * (kThreads * kSegment / 4) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kSegment / 4; ++i) vectors[i * kThreads] = in[first + i * kThreads];
  __syncthreads();
  float* mine = samples + threadIdx.x * kSegment;
  float state = 0.0f;
#pragma unroll 1
  for (int t = 0; t < kSegment; ++t) {
    state += kWeight * (mine[t] - state);
    mine[t] = state;
  }
  state = 0.0f;
#pragma unroll 1
  for (int t = kSegment - 1; t >= 0; --t) {
    state += kWeight * (mine[t] - state);
    mine[t] = state;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSegment / 4; ++i) out[first + i * kThreads] = vectors[i * kThreads];
}

int main() {
  constexpr uint64_t kElements = 1u << 27;
  planted::Buffer<float> in(kElements), out(kElements);
  in.filled();
  const auto call = [&] {
    smoothing<<<planted::ctas(kElements, kThreads * kSegment), kThreads>>>(
        reinterpret_cast<const float4*>(in.get()), reinterpret_cast<float4*>(out.get()));
  };
  return planted::run(call, [&] {
    for (uint64_t segment : {uint64_t{0}, uint64_t{333333}, kElements / kSegment - 1}) {
      double wanted[kSegment], state = 0.0;
      for (int t = 0; t < kSegment; ++t) {
        state += kWeight * (planted::value_at(segment * kSegment + t) - state);
        wanted[t] = state;
      }
      state = 0.0;
      for (int t = kSegment - 1; t >= 0; --t) {
        state += kWeight * (wanted[t] - state);
        wanted[t] = state;
      }
      for (int t : {0, 13, 31}) planted::expect("out", out.at(segment * kSegment + t), wanted[t], 1e-5);
    }
  });
}
