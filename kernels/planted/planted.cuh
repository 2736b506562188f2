// The host side that the planted kernels share: buffers, a check of a few results, warm-up, and timed calls.
// Prints `kbt-device`, `kbt-driver` and one `kbt-time-us` line a timed call.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace planted {

constexpr int kWarmUp = 20;
constexpr int kTimed = 50;

inline void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// A value in [-1, 1) that depends on the index alone, on either side.
__host__ __device__ inline float value_at(uint64_t index) {
  uint32_t x = static_cast<uint32_t>(index) * 2654435761u + static_cast<uint32_t>(index >> 32);
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return static_cast<float>(x >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

template <typename T>
__global__ void fill(T* data, uint64_t count, float scale, float offset) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    data[i] = static_cast<T>(value_at(i) * scale + offset);
  }
}

// Device memory for the life of the program.
template <typename T>
class Buffer {
 public:
  explicit Buffer(uint64_t count) : count_(count) {
    require(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  // value_at(i) * scale + offset.
  Buffer& filled(float scale = 1.0f, float offset = 0.0f) {
    fill<T><<<1024, 256>>>(data_, count_, scale, offset);
    require(cudaGetLastError(), "fill");
    return *this;
  }
  T* get() const { return data_; }
  uint64_t count() const { return count_; }
  T at(uint64_t index) const {
    T host;
    require(cudaMemcpy(&host, data_ + index, sizeof(T), cudaMemcpyDeviceToHost), "read back");
    return host;
  }

 private:
  T* data_ = nullptr;
  uint64_t count_;
};

// A result that is wrong makes the program fail: the time of a wrong kernel is of no use.
inline void expect(const char* what, double got, double wanted, double tolerance) {
  if (std::fabs(got - wanted) <= tolerance * std::fmax(1.0, std::fabs(wanted))) return;
  std::fprintf(stderr, "%s is %.9g and should be %.9g\n", what, got, wanted);
  std::exit(1);
}

// Runs `call` once, then `check`, then warms up and times. A call may be any number of launches.
template <typename Call, typename Check>
int run(Call call, Check check) {
  call();
  require(cudaGetLastError(), "launch");
  require(cudaDeviceSynchronize(), "kernel");
  check();
  int device = 0, driver = 0;
  cudaDeviceProp properties;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  std::printf("kbt-device %s\n", properties.name);
  std::printf("kbt-driver CUDA %d.%d\n", driver / 1000, driver % 1000 / 10);
  for (int i = 0; i < kWarmUp; ++i) call();
  std::vector<cudaEvent_t> events(2 * kTimed);
  for (auto& event : events) require(cudaEventCreate(&event), "cudaEventCreate");
  for (int i = 0; i < kTimed; ++i) {
    require(cudaEventRecord(events[2 * i]), "cudaEventRecord");
    call();
    require(cudaEventRecord(events[2 * i + 1]), "cudaEventRecord");
  }
  require(cudaDeviceSynchronize(), "kernel");
  for (int i = 0; i < kTimed; ++i) {
    float ms = 0.0f;
    require(cudaEventElapsedTime(&ms, events[2 * i], events[2 * i + 1]), "cudaEventElapsedTime");
    std::printf("kbt-time-us %.3f\n", ms * 1e3);
  }
  return 0;
}

// For a call that is one launch of a shape's worth of CTAs.
inline unsigned ctas(uint64_t items, uint64_t per_cta) {
  return static_cast<unsigned>((items + per_cta - 1) / per_cta);
}

}  // namespace planted
