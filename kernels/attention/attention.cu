// Attention forward for sm_90a, FlashAttention-4-shaped: one TMA warp, softmax warpgroups, and (topology 0) a
// P.V warpgroup that P is handed to through shared memory. Topology 1 keeps P in registers and the softmax
// warpgroups multiply it. Persistent: the grid is as large as the GPU, and a CTA takes tiles until there is none.
//
//   Q, K  bf16, head dimension innermost, other strides as the tensor maps have them
//   V     bf16 the same; fp8: e4m3 [batch][heads][head dim][padded keys], transposed beforehand,
//         keys permuted within groups of 16 so that P needs no shuffle (position 4t+i holds key 2t + (i&1) + 8(i>>1)).
#include "config.cuh"
#include "fused.cuh"
#include "handoff.cuh"
#include "load.cuh"

extern "C" __constant__ kbt_attention_config attention_config = {
    kbt::attention::kThreads, sizeof(kbt::attention::Shared),
    kbt::attention::kHeadDim, kbt::attention::kTileM,
    kbt::attention::kTileN,   64,
    kbt::attention::kFp8Operands ? 128 : 64, kbt::attention::kWarpgroups};

// A macro, since ptxas gives the same text other registers and another schedule once it was a function.
#define KBT_RUN_ROLES(trace)                                     \
  if (warpgroup == 0) {                                          \
    register_budget_down<kLoadRegisters>();                      \
    if (threadIdx.x == 0) load_role(sm, q, k, v, params, trace); \
  } else if (!kRegisterP && warpgroup == 3) {                    \
    register_budget_up<kPvRegisters>();                          \
    pv_role(sm, params, trace);                                  \
  } else {                                                       \
    register_budget_up<kSoftmaxRegisters>();                     \
    if constexpr (kRegisterP)                                    \
      fused_role(sm, params, warpgroup - 1, trace);              \
    else                                                         \
      softmax_role(sm, params, warpgroup - 1, trace);            \
  }

extern "C" __global__ void __launch_bounds__(kbt::attention::kThreads, 1)
    attention_forward(const __grid_constant__ kbt::TensorMap q, const __grid_constant__ kbt::TensorMap k,
                      const __grid_constant__ kbt::TensorMap v,
                      const __grid_constant__ kbt_attention_params params,
                      const __grid_constant__ kbt_trace_buffer trace_buffer) {
  using namespace kbt;
  using namespace kbt::attention;
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& sm = *reinterpret_cast<Shared*>(shared_bytes);

  // Warp-uniform by construction; the shuffle lets the compiler know it.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);

  if (threadIdx.x == 0) init_barriers(sm);
  __syncthreads();

  if constexpr (kTraceLevel != KBT_TRACE_OFF && !kRegisterP) {
    // A CTA that does not record runs the code of level off: branches around records would cost all of them. With P in
    // registers ptxas does not find registers for two copies.
    if (!Trace<kTraceLevel>::here(trace_buffer)) {
      Trace<KBT_TRACE_OFF> none;
      KBT_RUN_ROLES(none)
      return;
    }
  }
  Trace<kTraceLevel> trace;
  trace.open(trace_buffer, warpgroup, threadIdx.x % 128 == 0);
  KBT_RUN_ROLES(trace)
  trace.close();
}
