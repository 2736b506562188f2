// Kernels of many kinds, each from its formula: what a lift meets outside of attention. Values that follow from
// parameters alone stand beside values of rows, groups and elements.
constexpr unsigned kAll = 0xffffffffu;
constexpr int kEach = 8;

__device__ float warp_sum(float x) {
#pragma unroll
  for (int hop = 16; hop > 0; hop /= 2) x += __shfl_xor_sync(kAll, x, hop);
  return x;
}
__device__ float warp_max(float x) {
#pragma unroll
  for (int hop = 16; hop > 0; hop /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, hop));
  return x;
}
__device__ int index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ long long row() { return index() / 32 * 32LL * kEach + (threadIdx.x & 31); }

// An affine map whose factor and offset are worked out from parameters, one element a thread.
extern "C" __global__ void affine_of_parameters(const float* x, float* y, float mean, float scale, int n) {
  const int i = index();
  if (i >= n) return;
  y[i] = (x[i] - mean) * (scale * scale) + mean / scale;
}

// The same over four elements a thread.
extern "C" __global__ void affine_of_four(const float4* x, float4* y, float mean, float scale) {
  const float4 v = x[index()];
  const float k = scale * scale;
  y[index()] = make_float4((v.x - mean) * k, (v.y - mean) * k, (v.z - mean) * k, (v.w - mean) * k);
}

extern "C" __global__ void layer_norm(const float* x, const float* w, const float* b, float* y, float eps) {
  const long long at = row();
  float v[kEach], sum = 0.0f, squares = 0.0f;
  for (int i = 0; i < kEach; ++i) v[i] = x[at + 32 * i];
  for (int i = 0; i < kEach; ++i) sum += v[i];
  const float mean = warp_sum(sum) / (32 * kEach);
  for (int i = 0; i < kEach; ++i) squares += (v[i] - mean) * (v[i] - mean);
  const float inverse = rsqrtf(warp_sum(squares) / (32 * kEach) + eps);
  for (int i = 0; i < kEach; ++i) y[at + 32 * i] = (v[i] - mean) * inverse * w[at + 32 * i] + b[at + 32 * i];
}

extern "C" __global__ void rms_norm_rsqrt(const float* x, const float* w, float* y, float eps) {
  const long long at = row();
  float v[kEach], squares = 0.0f;
  for (int i = 0; i < kEach; ++i) v[i] = x[at + 32 * i];
  for (int i = 0; i < kEach; ++i) squares += v[i] * v[i];
  const float inverse = rsqrtf(warp_sum(squares) * (1.0f / (32 * kEach)) + eps);
  for (int i = 0; i < kEach; ++i) y[at + 32 * i] = v[i] * inverse * w[at + 32 * i];
}

extern "C" __global__ void softmax_scaled(const float* x, float* y, float scale, float temperature) {
  const long long at = row();
  float v[kEach], most = -INFINITY, sum = 0.0f;
  for (int i = 0; i < kEach; ++i) v[i] = x[at + 32 * i] * (scale / temperature);
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, v[i]);
  most = warp_max(most);
  for (int i = 0; i < kEach; ++i) sum += v[i] = __expf(v[i] - most);
  sum = warp_sum(sum);
  for (int i = 0; i < kEach; ++i) y[at + 32 * i] = v[i] / sum;
}

extern "C" __global__ void sigmoid(const float* x, float* y, float slope, float middle) {
  y[index()] = 1.0f / (1.0f + __expf(-slope * (x[index()] - middle)));
}

// With the exponential that is not approximate.
extern "C" __global__ void sigmoid_exact(const float* x, float* y) { y[index()] = 1.0f / (1.0f + expf(-x[index()])); }

extern "C" __global__ void softmax_exact(const float* x, float* y) {
  const long long at = row();
  float v[kEach], most = -INFINITY, sum = 0.0f;
  for (int i = 0; i < kEach; ++i) v[i] = x[at + 32 * i];
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, v[i]);
  most = warp_max(most);
  for (int i = 0; i < kEach; ++i) sum += v[i] = expf(v[i] - most);
  sum = warp_sum(sum);
  for (int i = 0; i < kEach; ++i) y[at + 32 * i] = v[i] / sum;
}

// Few values of unlike parts: no elements and groups, but a thread's.
extern "C" __global__ void complex_product(const float4* a, const float4* b, float4* c) {
  const float4 p = a[index()], q = b[index()];
  c[index()] = make_float4(p.x * q.x - p.y * q.y, p.x * q.y + p.y * q.x, p.z * q.z - p.w * q.w, p.z * q.w + p.w * q.z);
}

extern "C" __global__ void ada_grad(float* w, float* h, const float* g, float rate, float eps) {
  const int i = index();
  const float grad = g[i], sum = h[i] + grad * grad;
  h[i] = sum;
  w[i] -= rate * grad / sqrtf(sum + eps);
}

extern "C" __global__ void silu_gate(const float* x, const float* gate, float* y) {
  const float g = gate[index()];
  y[index()] = x[index()] * (g / (1.0f + __expf(-g)));
}

// Groups of 16, four lanes a group, four elements a lane; scale by a parameter.
extern "C" __global__ void quantise_groups(const float4* x, float4* y, float* scales, float range, float floor_) {
  const float4 v = x[index()];
  float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
  most = fmaxf(most, __shfl_xor_sync(kAll, most, 1));
  most = fmaxf(most, __shfl_xor_sync(kAll, most, 2));
  const float scale = fmaxf(most / range, floor_ * floor_);
  y[index()] = make_float4(v.x / scale, v.y / scale, v.z / scale, v.w / scale);
  scales[index()] = scale;
}

extern "C" __global__ void adam(float* w, float* m, float* v, const float* g, float rate, float beta1, float beta2,
                                float eps, float correction1, float correction2, float decay) {
  const int i = index();
  const float grad = g[i];
  const float first = beta1 * m[i] + (1.0f - beta1) * grad;
  const float second = beta2 * v[i] + (1.0f - beta2) * grad * grad;
  m[i] = first;
  v[i] = second;
  w[i] = w[i] - rate * (first / correction1 / (sqrtf(second / correction2) + eps) + decay * w[i]);
}

extern "C" __global__ void rope(const float2* x, float2* y, float base, float position) {
  const float2 v = x[index()];
  const float angle = position * exp2f(-base * static_cast<float>(threadIdx.x));
  const float s = __sinf(angle), c = __cosf(angle);
  y[index()] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}

extern "C" __global__ void cross_entropy(const float* logits, const float* at_label, float* loss, float smoothing) {
  const long long at = row();
  float v[kEach], most = -INFINITY, sum = 0.0f;
  for (int i = 0; i < kEach; ++i) v[i] = logits[at + 32 * i];
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, v[i]);
  most = warp_max(most);
  for (int i = 0; i < kEach; ++i) sum += __expf(v[i] - most);
  sum = warp_sum(sum);
  loss[index()] = (most + __logf(sum) - at_label[index() / 32]) * (1.0f - smoothing);
}

extern "C" __global__ void huber(const float* x, const float* t, float* y, float delta) {
  const float d = fabsf(x[index()] - t[index()]);
  y[index()] = d < delta ? 0.5f * d * d : delta * (d - 0.5f * delta);
}

extern "C" __global__ void leaky_relu(const float* x, float* y) {
  const float v = x[index()];
  y[index()] = v > 0.0f ? v : 0.01f * v;
}

extern "C" __global__ void hard_swish(const float* x, float* y) {
  const float v = x[index()];
  y[index()] = v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) / 6.0f;
}

extern "C" __global__ void gelu_tanh(const float* x, float* y) {
  const float v = x[index()];
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(0.7978845608f * (v + 0.044715f * v * v * v)));
  y[index()] = 0.5f * v * (1.0f + t);
}

extern "C" __global__ void unit_vectors(const float* x, const float* y, const float* z, float* ux, float* uy, float* uz) {
  const int i = index();
  const float length = sqrtf(x[i] * x[i] + y[i] * y[i] + z[i] * z[i]);
  ux[i] = x[i] / length;
  uy[i] = y[i] / length;
  uz[i] = z[i] / length;
}

// A step of online softmax as FlashAttention has it: four lanes a row, eight scores a lane; masked keys are -inf.
extern "C" __global__ void online_softmax(const float* s, float* p, float* state, float scale, int steps, int keys) {
  const float c = scale * 1.44269504f;
  float most = -INFINITY, sum = 0.0f;
  for (int step = 0; step < steps; ++step) {
    float v[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int key = (step * kEach + i) * 4 + (threadIdx.x & 3);
      v[i] = key < keys ? s[(step * kEach + i) * 128LL + index()] : -INFINITY;
    }
    float now = most;
#pragma unroll
    for (int i = 0; i < kEach; ++i) now = fmaxf(now, v[i]);
    now = fmaxf(now, __shfl_xor_sync(kAll, now, 1));
    now = fmaxf(now, __shfl_xor_sync(kAll, now, 2));
    const float bias = now == -INFINITY ? 0.0f : now * c;
    float part = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      v[i] = exp2f(v[i] * c - bias);
      part += v[i];
      p[(step * kEach + i) * 128LL + index()] = v[i];
    }
    sum = sum * exp2f(most * c - bias) + part;
    most = now;
  }
  state[2 * index()] = most;
  state[2 * index() + 1] = sum;
}
