// Planted: register spills. 96 running sums a thread under a bound that leaves 64 registers.
#include "planted.cuh"

constexpr int kFilters = 96;
constexpr int kSteps = 64;

__host__ __device__ constexpr float decay(int filter) { return 1.0f - 1.0f / (filter + 2.0f); }

// A bank of first-order recursive filters over each channel's samples: out[c] = sum over filters of the last state.
__global__ void __launch_bounds__(256, 4) filter_bank(const float* samples, float* out, int channels) {
  const int channel = blockIdx.x * blockDim.x + threadIdx.x;
  float state[kFilters];
#pragma unroll
  for (int f = 0; f < kFilters; ++f) state[f] = 0.0f;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const float sample = samples[static_cast<uint64_t>(step) * channels + channel];
#pragma unroll
    for (int f = 0; f < kFilters; ++f) state[f] = state[f] * decay(f) + sample;
  }
  float sum = 0.0f;
#pragma unroll
  for (int f = 0; f < kFilters; ++f) sum += state[f];
  out[channel] = sum;
}

int main() {
  constexpr int kChannels = 1 << 17;
  planted::Buffer<float> samples(uint64_t{kChannels} * kSteps), out(kChannels);
  samples.filled();
  const auto call = [&] { filter_bank<<<kChannels / 256, 256>>>(samples.get(), out.get(), kChannels); };
  return planted::run(call, [&] {
    for (int channel : {0, 4711, kChannels - 1}) {
      double sum = 0.0;
      for (int f = 0; f < kFilters; ++f) {
        double state = 0.0;
        for (int step = 0; step < kSteps; ++step) {
          state = state * decay(f) + planted::value_at(static_cast<uint64_t>(step) * kChannels + channel);
        }
        sum += state;
      }
      planted::expect("out", out.at(channel), sum, 1e-3);
    }
  });
}
