// Planted: contended atomics. Every element updates one of a few counters in device memory at once. The thresholds of
// atomics were set on runs of it with other numbers of counters (`histogram BINS`) and on `histogram private BINS`,
// where each CTA counts in shared memory first.
#include "planted.cuh"

#include <cstring>

constexpr int kThreads = 256;
constexpr int kCtas = 1056;
constexpr uint32_t kElements = 1u << 24;
constexpr int kMostPrivate = 1024;

__device__ __host__ inline uint32_t bin(uint32_t value, uint32_t mask) { return (value >> 8) & mask; }

// counts[bin of x] += 1, for each x.
__global__ void __launch_bounds__(kThreads) counted(const uint4* data, uint32_t* counts, uint32_t vectors, uint32_t mask) {
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < vectors; i += gridDim.x * kThreads) {
    const uint4 x = data[i];
    atomicAdd(counts + bin(x.x, mask), 1u);
    atomicAdd(counts + bin(x.y, mask), 1u);
    atomicAdd(counts + bin(x.z, mask), 1u);
    atomicAdd(counts + bin(x.w, mask), 1u);
  }
}

// The same with counters of each CTA's own.
__global__ void __launch_bounds__(kThreads) counted_in_private(const uint4* data, uint32_t* counts, uint32_t vectors,
                                                               uint32_t mask) {
  __shared__ uint32_t own[kMostPrivate];
  for (uint32_t b = threadIdx.x; b <= mask; b += kThreads) own[b] = 0;
  __syncthreads();
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < vectors; i += gridDim.x * kThreads) {
    const uint4 x = data[i];
    atomicAdd(own + bin(x.x, mask), 1u);
    atomicAdd(own + bin(x.y, mask), 1u);
    atomicAdd(own + bin(x.z, mask), 1u);
    atomicAdd(own + bin(x.w, mask), 1u);
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b <= mask; b += kThreads) atomicAdd(counts + b, own[b]);
}

__global__ void random_words(uint32_t* data) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kElements; i += gridDim.x * blockDim.x) {
    uint32_t x = i * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    data[i] = x ^ (x >> 13);
  }
}

int main(int count, char** words) {
  const bool own = count > 1 && std::strcmp(words[1], "private") == 0;
  const char* said = count > (own ? 2 : 1) ? words[own ? 2 : 1] : "64";
  const uint32_t bins = static_cast<uint32_t>(std::strtoul(said, nullptr, 10));
  if (bins == 0 || bins > kElements || (bins & (bins - 1)) != 0 || (own && bins > kMostPrivate)) {
    std::fprintf(stderr, "histogram [private] [BINS]: a power of two up to %u, private up to %d\n", kElements,
                 kMostPrivate);
    return 2;
  }
  planted::Buffer<uint32_t> data(kElements), counts(bins);
  random_words<<<1024, 256>>>(data.get());
  planted::require(cudaMemset(counts.get(), 0, bins * sizeof(uint32_t)), "cudaMemset");
  const auto call = [&] {
    const auto vectors = reinterpret_cast<const uint4*>(data.get());
    if (own) {
      counted_in_private<<<kCtas, kThreads>>>(vectors, counts.get(), kElements / 4, bins - 1);
    } else {
      counted<<<kCtas, kThreads>>>(vectors, counts.get(), kElements / 4, bins - 1);
    }
  };
  return planted::run(call, [&] {
    std::vector<uint32_t> host(kElements), wanted(bins, 0);
    planted::require(cudaMemcpy(host.data(), data.get(), kElements * 4ull, cudaMemcpyDeviceToHost), "read back");
    for (uint32_t x : host) ++wanted[bin(x, bins - 1)];
    for (uint32_t b : {0u, bins / 2, bins - 1}) planted::expect("count", counts.at(b), wanted[b], 0.0);
  });
}
