// Planted: bank conflicts. A 32 x 32 tile is transposed again and again through shared memory without padding:
// all 32 threads of a warp read one bank.
#include "planted.cuh"

constexpr int kSteps = 16;

// Sixteen steps of v <- transpose(v) / 2 + 1 within each tile.
__global__ void __launch_bounds__(1024) transposing_steps(const float* in, float* out, int columns) {
  __shared__ float tile[32][32];
  const int x = threadIdx.x, y = threadIdx.y;
  const uint64_t at = static_cast<uint64_t>(blockIdx.y * 32 + y) * columns + blockIdx.x * 32 + x;
  float v = in[at];
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    tile[y][x] = v;
    __syncthreads();
    v = 0.5f * tile[x][y] + 1.0f;
    __syncthreads();
  }
  out[at] = v;
}

int main() {
  constexpr int kRows = 4096, kColumns = 4096;
  planted::Buffer<float> in(uint64_t{kRows} * kColumns), out(uint64_t{kRows} * kColumns);
  in.filled();
  const auto call = [&] {
    transposing_steps<<<dim3(kColumns / 32, kRows / 32), dim3(32, 32)>>>(in.get(), out.get(), kColumns);
  };
  return planted::run(call, [&] {
    // An even number of transpositions leaves each value in its place.
    for (uint64_t i : {uint64_t{0}, uint64_t{5000001}, uint64_t{kRows} * kColumns - 1}) {
      const double halved = planted::value_at(i) / 65536.0 + 2.0 * (1.0 - 1.0 / 65536.0);
      planted::expect("out", out.at(i), halved, 1e-5);
    }
  });
}
