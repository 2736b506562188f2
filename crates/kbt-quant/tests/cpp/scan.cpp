// Prints a conversion over all 2^32 f32 inputs as runs of equal codes: first input and code in hex, one run a line.
#include <kbt/quant.cuh>

#include <stdio.h>
#include <string.h>
#include <thread>
#include <vector>

#ifdef WITH_CUDA_HEADERS
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#endif

struct Run {
  uint32_t start;
  uint32_t code;
};

template <class F>
static void part(F f, uint64_t begin, uint64_t end, std::vector<Run>* runs) {
  // By blocks, so that the compiler can vectorise the conversion; `begin` and `end` are multiples of a block.
  enum { BLOCK = 4096 };
  static thread_local uint8_t codes[BLOCK];
  uint32_t last = 0x10000;
  for (uint64_t first = begin; first < end; first += BLOCK) {
    uint8_t differ = 0;
    for (uint32_t i = 0; i < BLOCK; ++i) codes[i] = f(kbt::quant::from_bits((uint32_t)first + i));
    for (uint32_t i = 0; i < BLOCK; ++i) differ |= codes[i] ^ codes[0];
    if (!differ && codes[0] == last) continue;
    for (uint32_t i = 0; i < BLOCK; ++i) {
      if (codes[i] != last) runs->push_back(Run{(uint32_t)first + i, codes[i]});
      last = codes[i];
    }
  }
}

template <class F>
static int scan(F f, uint64_t end = 0x100000000ull) {
  std::vector<Run> first, second;
  const uint64_t middle = end / 2;
  std::thread thread([&] { part(f, 0, middle, &first); });
  part(f, middle, end, &second);
  thread.join();
  if (!first.empty() && !second.empty() && second.front().code == first.back().code) second.erase(second.begin());
  first.insert(first.end(), second.begin(), second.end());
  for (const Run& run : first) printf("%08x %02x\n", run.start, run.code);
  return 0;
}

int main(int argc, char** argv) {
  namespace q = kbt::quant;
  const char* name = argc == 2 ? argv[1] : "";
  if (!strcmp(name, "kbt-e2m1")) return scan([](float x) { return q::e2m1_encode(x); });
  if (!strcmp(name, "kbt-e4m3")) return scan([](float x) { return q::e4m3_encode(x); });
  if (!strcmp(name, "kbt-e5m2")) return scan([](float x) { return q::e5m2_encode(x); });
  if (!strcmp(name, "kbt-e2m1-below7"))
    return scan([](float x) { return q::e2m1_code_of_grid(q::e2m1_round_below7(x)); }, 0x40e00000);
#ifdef WITH_CUDA_HEADERS
  if (!strcmp(name, "nvidia-e2m1"))
    return scan([](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
  if (!strcmp(name, "nvidia-e4m3"))
    return scan([](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); });
  if (!strcmp(name, "nvidia-e5m2"))
    return scan([](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); });
#endif
  fprintf(stderr, "no conversion `%s`\n", name);
  return 2;
}
