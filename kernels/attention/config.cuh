// Compile-time knobs of the attention kernel and what follows from them. Set with -D; see variant.rs.
#pragma once
#include <stdint.h>

#include "kbt/quant.cuh"

#ifndef KBT_PV_MODE
#define KBT_PV_MODE 0  // 0 bf16, 1 fp8, 2 fp4
#endif
#ifndef KBT_HEAD_DIM
#define KBT_HEAD_DIM 128  // 64 or 128
#endif
#ifndef KBT_QUANT_FORM
#define KBT_QUANT_FORM 2  // 0 linear with IEEE division, 1 linear with reciprocal, 2 log2, 3 log2 in one FMA
#endif
#ifndef KBT_SPLIT_NUM
#define KBT_SPLIT_NUM 1
#endif
#ifndef KBT_SPLIT_DEN
#define KBT_SPLIT_DEN 2
#endif
#ifndef KBT_CHUNKS
#define KBT_CHUNKS 4  // 2, 4 or 8 stores of P a tile
#endif
#ifndef KBT_TOPOLOGY
#define KBT_TOPOLOGY 0  // 0 P through shared memory, 1 P in registers
#endif
#ifndef KBT_SOURCE_ORDER
#define KBT_SOURCE_ORDER 0  // 0 chunk by chunk, 1 all exp2 first, 2 exp2 one chunk ahead
#endif
#ifndef KBT_EXP2_EIGHTHS
#define KBT_EXP2_EIGHTHS 0  // of the elements whose exp2 is a polynomial on the FMA pipe
#endif
#ifndef KBT_RESCALE_LOG2
#define KBT_RESCALE_LOG2 0  // growth of the row maximum, in powers of two, that is let pass without rescaling
#endif
#ifndef KBT_SOFTMAX_REGISTERS
#define KBT_SOFTMAX_REGISTERS 0  // 0: what the topology leaves them
#endif
#ifndef KBT_ROLLED
#define KBT_ROLLED 0  // 1: the conversion of P is a rolled loop, which puts the scores in local memory
#endif
#ifndef KBT_TRACE_LEVEL
#define KBT_TRACE_LEVEL 0  // 0 off, 1 barrier, 2 coarse, 3 detail
#endif
#ifndef KBT_TILE_N
#define KBT_TILE_N 128  // keys of a tile; with P in registers and head dimension 128 also 176 (bf16, fp4) or 192 (fp8)
#endif

namespace kbt::attention {

enum class Mode { kBf16, kFp8, kFp4 };
using quant::Form;

constexpr Mode kMode = static_cast<Mode>(KBT_PV_MODE);
constexpr Form kForm = static_cast<Form>(KBT_QUANT_FORM);
constexpr bool kRegisterP = KBT_TOPOLOGY == 1;
constexpr int kTraceLevel = KBT_TRACE_LEVEL;

constexpr int kHeadDim = KBT_HEAD_DIM;
static_assert(kHeadDim == 64 || kHeadDim == 128, "KBT_HEAD_DIM is 64 or 128");
// exp2 weighs more at head dimension 64, and its accumulators leave registers for a third softmax warpgroup, but for
// those of fp4's conversion.
constexpr int kSoftmaxWarpgroups = kRegisterP && kHeadDim == 64 && kMode != Mode::kFp4 ? 3 : 2;
constexpr int kTileM = 64 * kSoftmaxWarpgroups;
constexpr int kTileN = KBT_TILE_N;
static_assert(kTileN == 128 || (kRegisterP && kHeadDim == 128 && kTileN == (KBT_PV_MODE == 1 ? 192 : 176)),
              "no such tile");
constexpr int kStages = 2;   // of K, of V
constexpr int kPBuffers = 2;
constexpr int kScores = kTileN / 2;    // of a thread, in f32
constexpr int kOutputs = kHeadDim / 2;

constexpr int kWarpgroups = 1 + kSoftmaxWarpgroups + (kRegisterP ? 0 : 1);
constexpr int kThreads = kWarpgroups * 128;
// Registers a thread of each role: their sum over the warpgroups may not pass what the launch reserves.
// Two warpgroups that hold scores, output and probabilities leave the third 40; otherwise four share 512.
constexpr int kLoadRegisters = kWarpgroups == 3 ? 40 : 32;
constexpr int kPvRegisters = 160;
constexpr int kSoftmaxRegisters = KBT_SOFTMAX_REGISTERS ? KBT_SOFTMAX_REGISTERS : kWarpgroups == 3 ? 232 : 160;
static_assert(kLoadRegisters + kSoftmaxWarpgroups * kSoftmaxRegisters + (kRegisterP ? 0 : kPvRegisters) <=
                  65536 / kThreads / 8 * 8 * kWarpgroups,
              "more registers than the launch reserves");

constexpr bool kFp8Operands = kMode == Mode::kFp8;
// K extent of one P.V MMA, and how many make a tile.
constexpr int kMmaK = kFp8Operands ? 32 : 16;
constexpr int kMmaTiles = kTileN / kMmaK;
constexpr int kGroups = kTileN / 16;  // quantisation groups of a row
constexpr int kChunks = KBT_CHUNKS;
constexpr int kChunkGroups = kGroups / kChunks;
static_assert(kRegisterP || kChunks == 2 || kChunks == 4 || kChunks == 8, "KBT_CHUNKS is 2, 4 or 8");

// How many of k parts come before the first signal.
constexpr int first_part(int k) {
  const int f = k * KBT_SPLIT_NUM / KBT_SPLIT_DEN;
  return f < 1 ? 1 : f > k - 1 ? k - 1 : f;
}
constexpr int kFirstChunks = first_part(kChunks);
constexpr int kFirstTiles = first_part(kMmaTiles);
// The consumer may read no more after signal 1 than the producer has written before it.
static_assert(kRegisterP || kFirstChunks * kMmaTiles >= kFirstTiles * kChunks,
              "handoff contract: the first chunks do not cover the first MMA tiles");

// The log2 forms of fp4 take the group maximum before exp2: their exp2 is part of the conversion.
constexpr bool kLog2Form = kForm == Form::Log2 || kForm == Form::Log2Fused;
constexpr bool kExpInConversion = kMode == Mode::kFp4 && kLog2Form;
constexpr int kSourceOrder = kExpInConversion ? 0 : KBT_SOURCE_ORDER;
static_assert(KBT_EXP2_EIGHTHS == 0 || !kExpInConversion, "the log2 forms of fp4 have no polynomial exp2");

// What a probability above one, left by a skipped rescaling, takes off the format's range.
constexpr float kRescaleLog2 = KBT_RESCALE_LOG2;
// What a probability of one becomes in e4m3: 256 leaves the row sum exact to correct. Where rescaling may be skipped, as
// much of e4m3's 448 as the skipped growth leaves: each binade given up loses small probabilities. In the log2 forms the
// factor rides in the exp2 argument and output and row sum share it; in the linear forms it is a multiplication after exp2.
constexpr float power_of_two(int n) { return n <= 0 ? 1.0f : 2.0f * power_of_two(n - 1); }
constexpr float kFp8Range = KBT_RESCALE_LOG2 == 0 ? 256.0f : 448.0f / power_of_two(KBT_RESCALE_LOG2);
constexpr float kFp8Offset = KBT_RESCALE_LOG2 == 0 ? quant::kOffsetFp8 : 8.8073549f - kRescaleLog2;  // log2 448
constexpr bool kFp8Multiplies = kMode == Mode::kFp8 && !kLog2Form;
// Added to every exp2 argument: what a probability of one becomes, as a power of two.
constexpr float kExpOffset = kMode == Mode::kFp4                      ? quant::kOffsetFull - kRescaleLog2
                             : kMode == Mode::kFp8 && !kFp8Multiplies ? kFp8Offset
                                                                      : 0.0f;
static_assert(kMode != Mode::kFp8 || KBT_RESCALE_LOG2 <= 8, "offset and threshold pass log2 448");
static_assert(kMode != Mode::kFp4 || KBT_RESCALE_LOG2 <= 11, "offset and threshold pass log2 2688");
// What the accumulated P.V holds for one unit of the accumulated row sum.
constexpr float kOutputPerSum = kFp8Multiplies ? kFp8Range : 1.0f;
}  // namespace kbt::attention
