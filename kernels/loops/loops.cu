// Loops of real kernels, each alone between two clock reads: softmax rows, the NVFP4 quantisation of P, and the
// arithmetic of other common kernels. They are what a static model of machine code is tested against; nothing else
// uses them. Parameters as in the chain kernels of kbt-microbench: start values (one 8-byte word a thread and index,
// 1024 threads apart), results, clocks (start, end, SM of each warp), trips.
#include <stdint.h>

#include "kbt/quant.cuh"

namespace {

constexpr uint32_t kMagic = 0x5eedc10cu;

__device__ __forceinline__ float load(const uint64_t* in, int i) {
  return __uint_as_float(static_cast<uint32_t>(in[i * 1024 + threadIdx.x]));
}

template <int N>
__device__ __forceinline__ uint32_t fold(const float (&x)[N], uint32_t seed) {
  uint32_t all = seed;
#pragma unroll
  for (int i = 0; i < N; ++i) all ^= __float_as_uint(x[i]);
  return all;
}

// Runs `step` `trips` times between two clock reads. State: N floats and W words.
template <int N, int W, class Step>
__device__ __forceinline__ void timed(const uint64_t* in, uint32_t* out, uint64_t* clocks, uint32_t trips, Step step) {
  float x[N];
  uint32_t w[W];
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = load(in, i);
#pragma unroll
  for (int i = 0; i < W; ++i) w[i] = __float_as_uint(load(in, N + i));
  float constants[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) constants[i] = load(in, N + W + i);
  uint32_t seed = fold(constants, 0);
#pragma unroll
  for (int i = 0; i < W; ++i) seed ^= w[i];
  if (fold(x, seed) == kMagic) return;
  __syncthreads();
  uint64_t start, end;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(start)::"memory");
#pragma unroll 1
  for (uint32_t t = 0; t < trips; ++t) step(x, w, constants);
  seed = 0;
#pragma unroll
  for (int i = 0; i < W; ++i) seed ^= w[i];
  const uint32_t all = fold(x, seed);
  if (all == kMagic) return;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
  out[blockIdx.x * blockDim.x + threadIdx.x] = all;
  if (threadIdx.x % 32 != 0) return;
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  uint64_t* to = clocks + (blockIdx.x * 32 + threadIdx.x / 32) * 3;
  to[0] = start;
  to[1] = end;
  to[2] = sm;
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bf16x2(float lo, float hi) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
  return y;
}
__device__ __forceinline__ uint32_t e4m3x4(float a, float b, float c, float d) {
  uint32_t y;
  asm("{ .reg .b16 lo, hi; cvt.rn.satfinite.e4m3x2.f32 lo, %2, %1; cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3; mov.b32 %0, "
      "{lo, hi}; }"
      : "=r"(y)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return y;
}
// Cody and Waite, then a polynomial of degree 3 on [0, 1); for arguments above -126.
__device__ __forceinline__ float ex2_poly(float x) {
  const float shifted = x + 12582912.0f;
  const float f = x - (shifted - 12582912.0f);
  const float p = fmaf(fmaf(fmaf(0.0551716f, f, 0.2426111f), f, 0.6931609f), f, 1.0f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

enum Pack { kNone, kBf16, kE4m3 };

// One row's share of N scores. Every kPoly-th exponential is a polynomial (0: none).
template <int N, Pack P, int kPoly, bool kTwoRows>
struct Softmax {
  __device__ __forceinline__ void operator()(float (&x)[N + 4], uint32_t (&w)[N / 2], const float (&c)[4]) const {
    constexpr int kRows = kTwoRows ? 2 : 1, kRow = N / kRows;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float& max_row = x[N + 2 * r];
      float& sum_row = x[N + 2 * r + 1];
      float m = max_row;
#pragma unroll
      for (int i = 0; i < kRow; ++i) m = fmaxf(m, x[r * kRow + i]);
      const float rescale = ex2((max_row - m) * c[0]);
      max_row = m;
      const float bias = m * c[0];
      float sum = sum_row * rescale;
      float p[kRow];
#pragma unroll
      for (int i = 0; i < kRow; ++i) {
        const float argument = fmaf(x[r * kRow + i], c[0], -bias);
        p[i] = kPoly != 0 && i % (kPoly == 0 ? 1 : kPoly) == 0 ? ex2_poly(argument) : ex2(argument);
        sum += p[i];
      }
      sum_row = sum;
#pragma unroll
      for (int i = 0; i < kRow; ++i) {
        if (P == kBf16 && i % 2 == 0) w[(r * kRow + i) / 2] ^= bf16x2(p[i], p[i + 1]);
        if (P == kE4m3 && i % 4 == 0) w[(r * kRow + i) / 4] ^= e4m3x4(p[i], p[i + 1], p[i + 2], p[i + 3]);
        // The next scores: as an accumulator's would be, they depend on what came before.
        x[r * kRow + i] = fmaf(x[r * kRow + i], c[1], c[2]);
      }
      if (P == kNone) {
#pragma unroll
        for (int i = 0; i < kRow; ++i) x[r * kRow + i] += p[i];
      }
    }
  }
};

template <kbt::quant::Form F, int N, bool kCodes>
struct Quantise {
  __device__ __forceinline__ void operator()(float (&x)[N + 1], uint32_t (&w)[N / 4], const float (&c)[4]) const {
    using namespace kbt::quant;
    const Row row{c[0], c[1]};
#pragma unroll
    for (int g = 0; g < N / 16; ++g) {
      float v[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float argument = fmaf(row.c, x[g * 16 + i], row.bias);
        v[i] = F == Form::Log2Fused ? x[g * 16 + i] : F == Form::Log2 ? argument : kbt::quant::exp2(argument);
      }
      const GroupScale scale = group_scale<F>(local_max(v), row);
      if (kCodes) {
        uint8_t codes[8];
        x[N] = accumulate<F>(x[N], quantize_p_codes<F>(v, codes, scale, row));
#pragma unroll
        for (int i = 0; i < 8; ++i) w[g * 4 + i / 4] ^= static_cast<uint32_t>(codes[i]) << (8 * (i % 4));
        w[g * 4 + 2] ^= e4m3_encode(scale.unrounded);
      } else {
        x[N] = accumulate<F>(x[N], quantize_p<F>(v, scale, row));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          w[g * 4 + i] ^= bf16x2(v[4 * i], v[4 * i + 1]);
          w[g * 4 + i] ^= bf16x2(v[4 * i + 2], v[4 * i + 3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) x[g * 16 + i] = fmaf(x[g * 16 + i], c[2], c[3]);
    }
  }
};

template <int N>
struct Gelu {
  bool tanh_form;
  __device__ __forceinline__ void operator()(float (&x)[N], uint32_t (&)[1], const float (&c)[4]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float inner = 0.7978845608f * fmaf(0.044715f * x[i] * x[i], x[i], x[i]);
      float t;
      if (tanh_form) {
        asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(inner));
      } else {
        t = 1.0f - __fdividef(2.0f, ex2(2.885390082f * inner) + 1.0f);
      }
      x[i] = fmaf(0.5f * x[i] * (1.0f + t), c[0], c[1]);
    }
  }
};

// Root mean square of N elements, normalised and rounded to bf16.
template <int N>
struct RmsNorm {
  __device__ __forceinline__ void operator()(float (&x)[N], uint32_t (&w)[N / 2], const float (&c)[4]) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum = fmaf(x[i], x[i], sum);
    const float scale = rsqrtf(sum * (1.0f / N) + 1e-5f);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      w[i / 2] ^= bf16x2(x[i] * scale * c[0], x[i + 1] * scale * c[1]);
      x[i] = x[i] * scale + c[2];
      x[i + 1] = x[i + 1] * scale + c[3];
    }
  }
};

// e4m3 weights to bf16 with a scale: four codes a word.
template <int W>
struct Dequantise {
  __device__ __forceinline__ void operator()(float (&x)[4], uint32_t (&w)[W], const float (&c)[4]) const {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      uint32_t lo, hi;
      asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b; }"
          : "=r"(lo), "=r"(hi)
          : "r"(w[i]));
      float f[4];
      asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }" : "=f"(f[0]), "=f"(f[1]) : "r"(lo));
      asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }" : "=f"(f[2]), "=f"(f[3]) : "r"(hi));
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = fmaf(f[k], c[k], x[k]);
      w[i] ^= bf16x2(f[0] * c[0], f[1] * c[1]) + bf16x2(f[2] * c[2], f[3] * c[3]);
    }
  }
};

// The finaliser of a 32-bit hash, W independent ones.
template <int W>
struct Hash {
  __device__ __forceinline__ void operator()(float (&)[1], uint32_t (&w)[W], const float (&)[4]) const {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      uint32_t h = w[i];
      h ^= h >> 16;
      h *= 0x7feb352du;
      h ^= h >> 15;
      h *= 0x846ca68bu;
      h ^= h >> 16;
      w[i] = h + (w[(i + 1) % W] & 0xffu);
    }
  }
};

// Rotary embedding of N pairs, the angles by complex multiplication.
template <int N>
struct Rotary {
  __device__ __forceinline__ void operator()(float (&x)[2 * N + 2], uint32_t (&w)[N], const float (&c)[4]) const {
    float& cosine = x[2 * N];
    float& sine = x[2 * N + 1];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = fmaf(a, cosine, -b * sine);
      x[2 * i + 1] = fmaf(a, sine, b * cosine);
      w[i] ^= bf16x2(x[2 * i], x[2 * i + 1]);
      const float next = fmaf(cosine, c[0], -sine * c[1]);
      sine = fmaf(cosine, c[1], sine * c[0]);
      cosine = next;
    }
  }
};

// An online mean and variance, as layer normalisation's first pass keeps them.
template <int N>
struct Welford {
  __device__ __forceinline__ void operator()(float (&x)[3 * N], uint32_t (&)[1], const float (&c)[4]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float& mean = x[3 * i];
      float& m2 = x[3 * i + 1];
      float& count = x[3 * i + 2];
      const float value = fmaf(mean, c[0], c[1]);
      count += 1.0f;
      const float delta = value - mean;
      mean += __fdividef(delta, count);
      m2 = fmaf(delta, value - mean, m2);
    }
  }
};

// ---- written after the model's constants were frozen, and timed once ------------------------------------------------

// SwiGLU: x * sigmoid(x) * gate.
template <int N>
struct SwiGlu {
  __device__ __forceinline__ void operator()(float (&x)[2 * N], uint32_t (&w)[N / 2], const float (&c)[4]) const {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      y[i] = __fdividef(x[i], 1.0f + ex2(-1.442695041f * x[i])) * x[N + i];
      x[i] = fmaf(x[i], c[0], c[1]);
      x[N + i] = fmaf(x[N + i], c[2], c[3]);
    }
#pragma unroll
    for (int i = 0; i < N; i += 2) w[i / 2] ^= bf16x2(y[i], y[i + 1]);
  }
};

// Layer normalisation of N elements, mean and variance in two passes, then scale and shift.
template <int N>
struct LayerNorm {
  __device__ __forceinline__ void operator()(float (&x)[N], uint32_t (&w)[N / 2], const float (&c)[4]) const {
    float mean = 0.0f, variance = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) mean += x[i];
    mean *= 1.0f / N;
#pragma unroll
    for (int i = 0; i < N; ++i) variance = fmaf(x[i] - mean, x[i] - mean, variance);
    const float scale = rsqrtf(fmaf(variance, 1.0f / N, 1e-5f));
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = fmaf((x[i] - mean) * scale, c[i % 2], c[2 + i % 2]);
#pragma unroll
    for (int i = 0; i < N; i += 2) w[i / 2] += bf16x2(x[i], x[i + 1]);
  }
};

// A counter-based random number generator: rounds of wide products and exclusive or.
template <int W>
struct Philox {
  __device__ __forceinline__ void operator()(float (&)[1], uint32_t (&w)[4 * W], const float (&)[4]) const {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      uint32_t* v = &w[4 * k];
#pragma unroll
      for (int round = 0; round < 3; ++round) {
        const uint64_t a = static_cast<uint64_t>(v[0]) * 0xd2511f53u, b = static_cast<uint64_t>(v[2]) * 0xcd9e8d57u;
        const uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ v[1] ^ (0x9e3779b9u * (round + 1));
        const uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ v[3] ^ (0xbb67ae85u * (round + 1));
        v[1] = static_cast<uint32_t>(b);
        v[3] = static_cast<uint32_t>(a);
        v[0] = n0;
        v[2] = n2;
      }
    }
  }
};

// Four-bit weights to half precision by logic and one packed fused multiply-add, then multiplied in.
template <int W>
struct Int4 {
  __device__ __forceinline__ void operator()(float (&x)[2], uint32_t (&w)[2 * W], const float (&c)[4]) const {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      uint32_t part[4], sum = w[W + i];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        part[k] = ((w[i] >> (4 * k)) & 0x000f000fu) | 0x64006400u;
        asm("{ .reg .b32 t; sub.rn.f16x2 t, %1, %2; fma.rn.f16x2 %0, t, %3, %0; }"
            : "+r"(sum)
            : "r"(part[k]), "r"(0x64086408u), "r"(__float_as_uint(c[k % 2])));
      }
      w[W + i] = sum;
      w[i] = w[i] * 5u + part[3];
    }
    x[0] = fmaf(x[0], c[2], c[3]);
  }
};

// Scores capped by tanh, then the softmax of a row with its sum in two halves.
template <int N>
struct Softcap {
  __device__ __forceinline__ void operator()(float (&x)[N + 2], uint32_t (&w)[N / 4], const float (&c)[4]) const {
    float s[N], m = x[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      asm("tanh.approx.f32 %0, %1;" : "=f"(s[i]) : "f"(x[i] * c[0]));
      m = fmaxf(m, s[i]);
    }
    const float bias = m * c[1];
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      s[i] = ex2(fmaf(s[i], c[1], -bias));
      s[i + 1] = ex2(fmaf(s[i + 1], c[1], -bias));
      even += s[i];
      odd += s[i + 1];
    }
    x[N + 1] = fmaf(x[N + 1], ex2((x[N] - m) * c[1]), even + odd);
    x[N] = m;
#pragma unroll
    for (int i = 0; i < N; i += 4) w[i / 4] ^= e4m3x4(s[i], s[i + 1], s[i + 2], s[i + 3]);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = fmaf(x[i], c[2], c[3]);
  }
};

// A token's activations to e4m3 with one scale: greatest magnitude, reciprocal, conversion.
template <int N>
struct Token8 {
  __device__ __forceinline__ void operator()(float (&x)[N + 1], uint32_t (&w)[N / 4], const float (&c)[4]) const {
    float most = 1e-8f;
#pragma unroll
    for (int i = 0; i < N; ++i) most = fmaxf(most, fabsf(x[i]));
    const float scale = __fdividef(448.0f, most);
#pragma unroll
    for (int i = 0; i < N; i += 4)
      w[i / 4] ^= e4m3x4(x[i] * scale, x[i + 1] * scale, x[i + 2] * scale, x[i + 3] * scale);
    x[N] += most;
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = fmaf(x[i], c[0], c[1]);
  }
};

// Two running log-sum-exps merged, as split attention does it.
template <int N>
struct Merge {
  __device__ __forceinline__ void operator()(float (&x)[2 * N + 2], uint32_t (&)[1], const float (&c)[4]) const {
    float& a = x[2 * N];
    float& b = x[2 * N + 1];
    const float m = fmaxf(a, b);
    const float wa = ex2(a - m), wb = ex2(b - m);
    float total;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(total) : "f"(wa + wb));
    const float r = __fdividef(1.0f, wa + wb);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float both = (x[i] * wa + x[N + i] * wb) * r;
      x[N + i] = fmaf(x[N + i], c[0], c[1]);
      x[i] = both;
    }
    a = m + total;
    b = fmaf(b, c[2], c[3]);
  }
};

}  // namespace

#define KBT_LOOP(name, threads, n, w, ...)                                                                            \
  extern "C" __global__ void __launch_bounds__(threads)                                                               \
      name(const uint64_t* in, uint32_t* out, uint64_t* clocks, uint32_t trips) {                                     \
    timed<n, w>(in, out, clocks, trips, __VA_ARGS__);                                                                 \
  }

#define KBT_SOFTMAX(n, threads)                                                                   \
  KBT_LOOP(softmax_none_##n, threads, n + 4, n / 2, Softmax<n, kNone, 0, false>{})                \
  KBT_LOOP(softmax_bf16_##n, threads, n + 4, n / 2, Softmax<n, kBf16, 0, false>{})                \
  KBT_LOOP(softmax_bf16_rows_##n, threads, n + 4, n / 2, Softmax<n, kBf16, 0, true>{})            \
  KBT_LOOP(softmax_bf16_poly2_##n, threads, n + 4, n / 2, Softmax<n, kBf16, 2, true>{})           \
  KBT_LOOP(softmax_e4m3_##n, threads, n + 4, n / 2, Softmax<n, kE4m3, 0, false>{})                \
  KBT_LOOP(softmax_e4m3_poly4_##n, threads, n + 4, n / 2, Softmax<n, kE4m3, 4, true>{})

KBT_SOFTMAX(8, 1024)
KBT_SOFTMAX(16, 1024)
KBT_SOFTMAX(32, 512)
KBT_SOFTMAX(64, 256)

#define KBT_QUANT(form, label, n, threads)                                                                   \
  KBT_LOOP(quant_##label##_##n, threads, n + 1, n / 4, Quantise<kbt::quant::Form::form, n, false>{})         \
  KBT_LOOP(quant_##label##_codes_##n, threads, n + 1, n / 4, Quantise<kbt::quant::Form::form, n, true>{})

#define KBT_QUANTS(n, threads)                  \
  KBT_QUANT(LinearRcp, rcp, n, threads)         \
  KBT_QUANT(Log2, log2, n, threads)             \
  KBT_QUANT(Log2Fused, log2_fused, n, threads)

KBT_QUANTS(16, 512)
KBT_QUANTS(32, 512)
KBT_QUANTS(64, 256)

KBT_LOOP(bodies_gelu_ex2_8, 1024, 8, 1, Gelu<8>{false})
KBT_LOOP(bodies_gelu_tanh_8, 1024, 8, 1, Gelu<8>{true})
KBT_LOOP(bodies_gelu_ex2_16, 1024, 16, 1, Gelu<16>{false})
KBT_LOOP(bodies_gelu_tanh_16, 1024, 16, 1, Gelu<16>{true})
KBT_LOOP(bodies_rmsnorm_8, 1024, 8, 4, RmsNorm<8>{})
KBT_LOOP(bodies_rmsnorm_16, 1024, 16, 8, RmsNorm<16>{})
KBT_LOOP(bodies_rmsnorm_32, 512, 32, 16, RmsNorm<32>{})
KBT_LOOP(bodies_dequant_4, 1024, 4, 4, Dequantise<4>{})
KBT_LOOP(bodies_dequant_12, 1024, 4, 12, Dequantise<12>{})
KBT_LOOP(bodies_hash_2, 1024, 1, 2, Hash<2>{})
KBT_LOOP(bodies_hash_6, 1024, 1, 6, Hash<6>{})
KBT_LOOP(bodies_hash_16, 1024, 1, 16, Hash<16>{})
KBT_LOOP(bodies_rotary_4, 1024, 10, 4, Rotary<4>{})
KBT_LOOP(bodies_rotary_12, 1024, 26, 12, Rotary<12>{})
KBT_LOOP(bodies_welford_2, 1024, 6, 1, Welford<2>{})
KBT_LOOP(bodies_welford_8, 1024, 24, 1, Welford<8>{})

KBT_LOOP(unseen_swiglu_4, 1024, 8, 2, SwiGlu<4>{})
KBT_LOOP(unseen_swiglu_8, 1024, 16, 4, SwiGlu<8>{})
KBT_LOOP(unseen_swiglu_16, 512, 32, 8, SwiGlu<16>{})
KBT_LOOP(unseen_layernorm_8, 1024, 8, 4, LayerNorm<8>{})
KBT_LOOP(unseen_layernorm_16, 1024, 16, 8, LayerNorm<16>{})
KBT_LOOP(unseen_layernorm_32, 512, 32, 16, LayerNorm<32>{})
KBT_LOOP(unseen_philox_1, 1024, 1, 4, Philox<1>{})
KBT_LOOP(unseen_philox_3, 1024, 1, 12, Philox<3>{})
KBT_LOOP(unseen_int4_2, 1024, 2, 4, Int4<2>{})
KBT_LOOP(unseen_int4_8, 1024, 2, 16, Int4<8>{})
KBT_LOOP(unseen_softcap_8, 1024, 10, 2, Softcap<8>{})
KBT_LOOP(unseen_softcap_16, 1024, 18, 4, Softcap<16>{})
KBT_LOOP(unseen_softcap_32, 512, 34, 8, Softcap<32>{})
KBT_LOOP(unseen_token8_8, 1024, 9, 2, Token8<8>{})
KBT_LOOP(unseen_token8_16, 1024, 17, 4, Token8<16>{})
KBT_LOOP(unseen_token8_32, 512, 33, 8, Token8<32>{})
KBT_LOOP(unseen_merge_4, 1024, 10, 1, Merge<4>{})
KBT_LOOP(unseen_merge_12, 1024, 26, 1, Merge<12>{})
