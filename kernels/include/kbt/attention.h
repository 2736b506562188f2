/* Parameters of the attention forward kernel: one layout for host and device, read by Rust through bindgen. */
#ifndef KBT_ATTENTION_H
#define KBT_ATTENTION_H
#include <stdint.h>

/* Roles of the trace, in the order of their warpgroups. The last is a third softmax warpgroup where P stays in
 * registers. */
#define KBT_ROLE_LOAD 0
#define KBT_ROLE_SOFTMAX0 1
#define KBT_ROLE_SOFTMAX1 2
#define KBT_ROLE_PV 3

/* Spans of the trace. */
#define KBT_EVENT_LOAD 0
#define KBT_EVENT_QK 1
#define KBT_EVENT_SOFTMAX 2
#define KBT_EVENT_P_CHUNKS 3
#define KBT_EVENT_RESCALE 4
#define KBT_EVENT_PV 5
#define KBT_EVENT_EPILOGUE 6

/* Barriers of the trace; those with a suffix exist once a softmax warpgroup. */
#define KBT_BARRIER_Q_FULL 0
#define KBT_BARRIER_K_FULL 1
#define KBT_BARRIER_K_EMPTY 2
#define KBT_BARRIER_V_FULL 3
#define KBT_BARRIER_V_EMPTY 4
#define KBT_BARRIER_P_FIRST_0 5
#define KBT_BARRIER_P_FIRST_1 6
#define KBT_BARRIER_P_REST_0 7
#define KBT_BARRIER_P_REST_1 8
#define KBT_BARRIER_P_EMPTY_0 9
#define KBT_BARRIER_P_EMPTY_1 10
#define KBT_BARRIER_L_FULL_0 11
#define KBT_BARRIER_L_FULL_1 12
#define KBT_BARRIER_Q_EMPTY 13

struct kbt_attention_params {
  /* Output, bf16, [batch][heads][seqlen][head dim] with these strides in elements, multiples of 8. */
  uint64_t o;
  int64_t o_stride_batch;
  int64_t o_stride_head;
  int64_t o_stride_row;
  /* Natural-log sum of exponentials of each row, f32, [batch][heads][seqlen]; 0 to leave it out. */
  uint64_t lse;
  /* One factor a (batch, key head) that turns V's codes into values, f32; 0 for none. */
  uint64_t v_scale;
  /* Two u32, zero before the first launch: the next tile, and the CTAs that are done. The kernel leaves them zero.
   * 0: every CTA takes the tiles that are its own index plus a multiple of the grid. */
  uint64_t counters;
  int32_t batch;
  int32_t heads;
  /* Query heads that share one head of K and V. */
  int32_t heads_per_kv;
  int32_t seqlen;
  int32_t causal;
  /* Heads whose K and V stay in the L2 cache together; the tiles of a causal launch go through so many at a time. */
  int32_t heads_at_a_time;
  /* Softmax scale times log2(e). */
  float scale_log2;
};

/* What a variant of the kernel was compiled as: the constant `attention_config` of its machine code. */
struct kbt_attention_config {
  uint32_t threads;
  uint32_t shared_bytes;
  uint32_t head_dim;
  uint32_t tile_m;
  uint32_t tile_n;
  /* Rows of a box of Q, and columns (bf16) or keys (e4m3) of a box of V. */
  uint32_t q_box_rows;
  uint32_t v_box;
  uint32_t roles;
};
#endif
