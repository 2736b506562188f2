// Sums of the rows of a matrix, by the steps of a well-known public description (M. Harris, Optimizing Parallel Reduction
// in CUDA, NVIDIA 2007; the shuffles are J. Luitjens', Faster Parallel Reductions on Kepler, 2014), written anew:
// a thread first adds up many elements with several loads in flight, then the block adds its threads' sums.
//
// A CUDA C++ program as a kbt target. Its knobs are definitions (-D) of the compiler:
//   THREADS  threads a block; a block sums a row
//   LOADS    loads that a thread has in flight
//   VECTOR   floats a load: 1, 2 or 4
//   FINISH   how a block adds up: 0 a tree in shared memory, 1 shuffles in each warp and then across warps
#include <kbt/trace.cuh>

#include "../cuda/kbt_target.hpp"

#include <type_traits>

#ifndef THREADS
#define THREADS 256
#endif
#ifndef LOADS
#define LOADS 1
#endif
#ifndef VECTOR
#define VECTOR 1
#endif
#ifndef FINISH
#define FINISH 0
#endif
#ifndef TRACE_LEVEL
#define TRACE_LEVEL KBT_TRACE_OFF
#endif

constexpr size_t kRows = 4096, kColumns = 16384;
enum Event { kAccumulate, kFinish };

using Vector = std::conditional_t<VECTOR == 4, float4, std::conditional_t<VECTOR == 2, float2, float>>;

__device__ __forceinline__ float total(float v) { return v; }
__device__ __forceinline__ float total(float2 v) { return v.x + v.y; }
__device__ __forceinline__ float total(float4 v) { return (v.x + v.y) + (v.z + v.w); }

__device__ __forceinline__ float warp_sum(float sum) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
    return sum;
}

// The sum over the block, in thread 0.
__device__ __forceinline__ float block_sum(float sum) {
#if FINISH == 0
    __shared__ float partial[THREADS];
    partial[threadIdx.x] = sum;
    __syncthreads();
#pragma unroll
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    return partial[0];
#else
    __shared__ float partial[THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < THREADS / 32 ? partial[threadIdx.x] : 0.f) : 0.f;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_rows(const float *__restrict__ x, float *__restrict__ y, const __grid_constant__ kbt_trace_buffer buffer) {
    kbt::Trace<TRACE_LEVEL> trace;
    trace.open(buffer, 0, threadIdx.x == 0);
    const Vector *row = reinterpret_cast<const Vector *>(x + size_t(blockIdx.x) * kColumns);
    float sums[LOADS] = {};
    // Whole turns only: kColumns is a multiple of THREADS * LOADS * VECTOR.
    for (int at = threadIdx.x; at < int(kColumns / VECTOR); at += THREADS * LOADS) {
        trace.begin(kAccumulate);
        Vector values[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) values[i] = row[at + i * THREADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) sums[i] += total(values[i]);
        trace.end(kAccumulate);
    }
#pragma unroll
    for (int i = 1; i < LOADS; ++i) sums[0] += sums[i];
    trace.begin(kFinish);
    float sum = block_sum(sums[0]);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
    trace.end(kFinish);
    trace.close();
}

static_assert(kColumns % (THREADS * LOADS * VECTOR) == 0, "this setting leaves a part of a turn");

// Element `i` of input set `set`: uniform in [-0.5, 0.5), the same on any machine.
static float element(uint64_t i, uint64_t set) {
    uint64_t h = (i + (set + 1) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 31)) * 0x94d049bb133111ebu;
    return float(h >> 40) * 0x1p-24f - 0.5f;
}

static int reference(uint64_t set, const std::string &out) {
    std::vector<double> sums(kRows);
    for (size_t row = 0; row < kRows; ++row) {
        for (size_t column = 0; column < kColumns; ++column) sums[row] += element(row * kColumns + column, set);
    }
    kbt::save_tensor(out, "y", "F64", {kRows}, sums.data(), kRows * sizeof(double));
    return 0;
}

int main(int argc, char **argv) {
    const std::string set_text = kbt::environment("KBT_INPUT_SET", "0"), out = kbt::environment("KBT_OUT");
    const uint64_t set = std::stoull(set_text);
    if (argc > 1 && std::string(argv[1]) == "reference") return reference(set, out);
    const size_t bytes = kRows * kColumns * sizeof(float);
    float *x = nullptr, *y = nullptr;
    kbt::check(cudaMalloc(&x, bytes), "the input");
    kbt::check(cudaMalloc(&y, kRows * sizeof(float)), "the output");
    std::vector<float> values(kRows * kColumns);
    for (size_t i = 0; i < values.size(); ++i) values[i] = element(i, set);
    kbt::check(cudaMemcpy(x, values.data(), bytes, cudaMemcpyHostToDevice), "the input");

    const std::string trace_out = kbt::environment("KBT_TRACE_OUT");
    const bool traced = TRACE_LEVEL >= KBT_TRACE_COARSE && !trace_out.empty();
    kbt_trace_buffer buffer{};
    if (traced) buffer = kbt::trace_buffer(1, 256, kRows / 64, 64);
    auto launch = [&] { sum_rows<<<kRows, THREADS>>>(x, y, buffer); };
    launch();
    kbt::check(cudaDeviceSynchronize(), "sum_rows");
    if (!out.empty()) {
        std::vector<float> sums(kRows);
        kbt::check(cudaMemcpy(sums.data(), y, kRows * sizeof(float), cudaMemcpyDeviceToHost), "the output");
        kbt::save_tensor(out, "y", "F32", {kRows}, sums.data(), kRows * sizeof(float));
    }
    if (traced) {
        kbt::TraceNames names{
            {{"Block", KBT_TRACE_STEP_EVENT, kAccumulate, KBT_TRACE_WORK_LOAD | KBT_TRACE_WORK_MATH, 0}},
            {{"accumulate", KBT_TRACE_EVENT_PLAIN, 0}, {"finish", KBT_TRACE_EVENT_PLAIN, 0}},
            {},
            {},
        };
        kbt::write_trace(trace_out, buffer, TRACE_LEVEL, names, "sum_rows");
    }
    kbt::time_launches(launch);
    return 0;
}
