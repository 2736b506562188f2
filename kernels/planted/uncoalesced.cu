// Planted: uncoalesced reads. Neighbouring threads of this transposition read neighbouring rows, so each of a
// warp's 32 loads touches a sector of its own.
#include "planted.cuh"

__global__ void transpose(const float* in, float* out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y;
  out[static_cast<uint64_t>(column) * rows + row] = in[static_cast<uint64_t>(row) * columns + column];
}

int main() {
  constexpr int kRows = 8192, kColumns = 8192;
  planted::Buffer<float> in(uint64_t{kRows} * kColumns), out(uint64_t{kRows} * kColumns);
  in.filled();
  const auto call = [&] {
    transpose<<<dim3(kRows / 256, kColumns), 256>>>(in.get(), out.get(), kRows, kColumns);
  };
  return planted::run(call, [&] {
    for (uint64_t row : {0u, 77u, 8191u}) {
      for (uint64_t column : {0u, 4096u, 8190u}) {
        planted::expect("out", out.at(column * kRows + row), planted::value_at(row * kColumns + column), 0.0);
      }
    }
  });
}
