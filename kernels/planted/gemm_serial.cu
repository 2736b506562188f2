// Planted: no overlap. A large WGMMA product with one buffer: all threads load a slice of A and B through their
// registers, all wait, all multiply, all wait again; at the end all store. The 128 x 256 tile fills the register
// file, so no second CTA hides any of it.
#include <cuda_bf16.h>

#include "../include/kbt/sm90.cuh"
#include "../include/kbt/wgmma.cuh"
#include "planted.cuh"

namespace {

constexpr int kTileM = 128, kTileN = 256, kTileK = 64, kThreads = 256;
constexpr int kRowBytes = kTileK * 2, kChunks = kRowBytes / 16;
constexpr int kGroup = 16;

// Rows of 128 bytes, in the 128-byte swizzle that the matrix descriptor names.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

template <int Rows>
__device__ __forceinline__ void load_slice(uint4 (&to)[Rows * kChunks / kThreads], const __nv_bfloat16* from,
                                           int pitch) {
#pragma unroll
  for (int i = 0; i < Rows * kChunks / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x, row = at / kChunks, chunk = at % kChunks;
    to[i] = *reinterpret_cast<const uint4*>(from + static_cast<uint64_t>(row) * pitch + chunk * 8);
  }
}

template <int Rows>
__device__ __forceinline__ void store_slice(unsigned char* to, const uint4 (&from)[Rows * kChunks / kThreads]) {
#pragma unroll
  for (int i = 0; i < Rows * kChunks / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x;
    *reinterpret_cast<uint4*>(to + swizzled(at / kChunks, at % kChunks)) = from[i];
  }
}

}  // namespace

// C[m][n] = sum over k of A[m][k] B[n][k]; bf16 in, f32 sums and output.
__global__ void __launch_bounds__(kThreads, 1)
    gemm_serial(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  extern __shared__ unsigned char raw[];
  unsigned char* tile_a = raw + (-kbt::smem_address(raw) & 1023u);
  unsigned char* tile_b = tile_a + kTileM * kRowBytes;
  // Tiles in groups of rows, so that a wave of CTAs shares its slices in L2.
  const int across = n / kTileN, group = blockIdx.x / (kGroup * across), within = blockIdx.x % (kGroup * across);
  const int row = (group * kGroup + within % kGroup) * kTileM, column = (within / kGroup) * kTileN;
  const int warpgroup = threadIdx.x / 128;
  float left[64], right[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) left[i] = right[i] = 0.0f;
  for (int at = 0; at < k; at += kTileK) {
    uint4 slice_a[kTileM * kChunks / kThreads], slice_b[kTileN * kChunks / kThreads];
    load_slice<kTileM>(slice_a, a + static_cast<uint64_t>(row) * k + at, k);
    load_slice<kTileN>(slice_b, b + static_cast<uint64_t>(column) * k + at, k);
    store_slice<kTileM>(tile_a, slice_a);
    store_slice<kTileN>(tile_b, slice_b);
    kbt::fence_proxy_async();
    __syncthreads();
    const uint32_t from_a = kbt::smem_address(tile_a) + warpgroup * 64 * kRowBytes;
    const uint32_t from_b = kbt::smem_address(tile_b);
    kbt::pin(left);
    kbt::pin(right);
    kbt::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step) {
      const uint64_t of_a = kbt::matrix_descriptor(from_a + step * 32, 0, 8 * kRowBytes);
      const uint64_t of_b = kbt::matrix_descriptor(from_b + step * 32, 0, 8 * kRowBytes);
      const uint64_t of_b2 = kbt::matrix_descriptor(from_b + 128 * kRowBytes + step * 32, 0, 8 * kRowBytes);
      kbt::wgmma_bf16_ss<0>(left, of_a, of_b, 1);
      kbt::wgmma_bf16_ss<0>(right, of_a, of_b2, 1);
    }
    kbt::wgmma_commit();
    kbt::wgmma_wait<0>();
    kbt::pin(left);
    kbt::pin(right);
    __syncthreads();
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  float* to = c + static_cast<uint64_t>(row + warpgroup * 64 + warp * 16 + lane / 4) * n + column + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    *reinterpret_cast<float2*>(to + 8 * j) = make_float2(left[4 * j], left[4 * j + 1]);
    *reinterpret_cast<float2*>(to + 8 * n + 8 * j) = make_float2(left[4 * j + 2], left[4 * j + 3]);
    *reinterpret_cast<float2*>(to + 128 + 8 * j) = make_float2(right[4 * j], right[4 * j + 1]);
    *reinterpret_cast<float2*>(to + 8 * n + 128 + 8 * j) = make_float2(right[4 * j + 2], right[4 * j + 3]);
  }
}

int main() {
  constexpr int kM = 8192, kN = 8192, kK = 4096;
  constexpr int kShared = (kTileM + kTileN) * kRowBytes + 1024;
  planted::Buffer<__nv_bfloat16> a(uint64_t{kM} * kK), b(uint64_t{kN} * kK);
  planted::Buffer<float> c(uint64_t{kM} * kN);
  a.filled();
  b.filled(0.5f, 0.25f);
  planted::require(
      cudaFuncSetAttribute(gemm_serial, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
      "cudaFuncSetAttribute");
  const auto call = [&] {
    gemm_serial<<<kM / kTileM * (kN / kTileN), kThreads, kShared>>>(a.get(), b.get(), c.get(), kM, kN, kK);
  };
  return planted::run(call, [&] {
    const auto rounded = [](float x) { return static_cast<double>(__bfloat162float(__float2bfloat16(x))); };
    for (uint64_t row : {0u, 70u, 4099u, 8191u}) {
      for (uint64_t column : {0u, 9u, 200u, 8191u}) {
        double sum = 0.0;
        for (uint64_t i = 0; i < kK; ++i) {
          sum += rounded(planted::value_at(row * kK + i)) *
                 rounded(planted::value_at(column * kK + i) * 0.5f + 0.25f);
        }
        planted::expect("c", c.at(row * kN + column), sum, 2e-2);
      }
    }
  });
}
