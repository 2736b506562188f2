/* Parameters of the attention forward kernel: one layout for host and device, read by Rust through bindgen. */
#ifndef KBT_ATTENTION_H
#define KBT_ATTENTION_H
#include <stdint.h>

/* Tile extents: queries, keys, head dimension. */
#define KBT_ATTENTION_TILE_M 128
#define KBT_ATTENTION_TILE_N 128
#define KBT_ATTENTION_HEAD_DIM 128

/* Roles of the trace, in the order of their warpgroups. */
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

struct kbt_attention_params {
  /* Output, bf16, [batch][heads][seqlen][128] with these strides in elements. */
  uint64_t o;
  int64_t o_stride_batch;
  int64_t o_stride_head;
  int64_t o_stride_row;
  /* Natural-log sum of exponentials of each row, f32, [batch][heads][seqlen]; 0 to leave it out. */
  uint64_t lse;
  /* One factor a (batch, head) that turns V's codes into values, f32; 0 for none. */
  uint64_t v_scale;
  int32_t heads;
  int32_t seqlen;
  int32_t causal;
  /* Softmax scale times log2(e). */
  float scale_log2;
};
#endif
