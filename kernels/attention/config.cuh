// Compile-time knobs of the attention kernel and what follows from them. Set with -D; see variant.rs.
#pragma once
#include <stdint.h>

#include "kbt/quant.cuh"

#ifndef KBT_PV_MODE
#define KBT_PV_MODE 0  // 0 bf16, 1 fp8, 2 fp4
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
#define KBT_SOURCE_ORDER 0  // 0 chunk by chunk, 1 all exp2 first
#endif
#ifndef KBT_TRACE_LEVEL
#define KBT_TRACE_LEVEL 0  // 0 off, 1 barrier, 2 coarse, 3 detail
#endif

namespace kbt::attention {

enum class Mode { kBf16, kFp8, kFp4 };
using quant::Form;

constexpr Mode kMode = static_cast<Mode>(KBT_PV_MODE);
constexpr Form kForm = static_cast<Form>(KBT_QUANT_FORM);
constexpr bool kRegisterP = KBT_TOPOLOGY == 1;
constexpr int kTraceLevel = KBT_TRACE_LEVEL;

constexpr int kTileM = 128;
constexpr int kTileN = 128;
constexpr int kHeadDim = 128;
constexpr int kStages = 2;   // of K, of V
constexpr int kPBuffers = 2;

constexpr bool kFp8Operands = kMode == Mode::kFp8;
// K extent of one P.V MMA, and how many make a tile.
constexpr int kMmaK = kFp8Operands ? 32 : 16;
constexpr int kMmaTiles = kTileN / kMmaK;
constexpr int kChunks = KBT_CHUNKS;
constexpr int kChunkColumns = kTileN / kChunks;
static_assert(kChunks == 2 || kChunks == 4 || kChunks == 8, "KBT_CHUNKS is 2, 4 or 8");

// How many of k parts come before the first signal.
constexpr int first_part(int k) {
  const int f = k * KBT_SPLIT_NUM / KBT_SPLIT_DEN;
  return f < 1 ? 1 : f > k - 1 ? k - 1 : f;
}
constexpr int kFirstChunks = first_part(kChunks);
constexpr int kFirstTiles = first_part(kMmaTiles);
// The consumer may read no more after signal 1 than the producer has written before it.
static_assert(kFirstChunks * kMmaTiles >= kFirstTiles * kChunks,
              "handoff contract: the first chunks do not cover the first MMA tiles");

// The log2 forms of fp4 take the group maximum before exp2, so they cannot take all exp2 first.
constexpr bool kLog2Form = kForm == Form::Log2 || kForm == Form::Log2Fused;
constexpr bool kExpFirst = KBT_SOURCE_ORDER == 1 && !(kMode == Mode::kFp4 && kLog2Form);

// e4m3 reaches 448; 256 = 2^8 leaves the row sum exact to correct. In the log2 forms the factor rides in the exp2
// argument and output and row sum share it; in the linear forms it is a multiplication after exp2.
constexpr float kFp8Range = 256.0f;
constexpr bool kFp8Multiplies = kMode == Mode::kFp8 && !kLog2Form;
// Added to every exp2 argument: what a probability of one becomes, as a power of two.
constexpr float kExpOffset = kMode == Mode::kFp4                       ? quant::kOffsetFull
                             : kMode == Mode::kFp8 && !kFp8Multiplies ? quant::kOffsetFp8
                                                                      : 0.0f;
// What the accumulated P.V holds for one unit of the accumulated row sum.
constexpr float kOutputPerSum = kFp8Multiplies ? kFp8Range : 1.0f;
}  // namespace kbt::attention
