/* Layout of the in-kernel trace: the device buffer that kbt/trace.cuh writes, and the .kbttrace file.
 *
 * Plain C, no include but <stdint.h>: the device code includes it, and Rust reads it through bindgen. Every
 * field is little-endian and naturally aligned; no struct has hidden padding. Names of roles, events and
 * barriers are known to the host alone and live in the file only.
 *
 * NVRTC brings no <stdint.h>: it takes one that its caller supplies, and else the types are named here as libcu++
 * names them.
 */
#ifndef KBT_TRACE_FORMAT_H
#define KBT_TRACE_FORMAT_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#elif __has_include(<stdint.h>)
#include <stdint.h>
#else
typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#endif

/* Levels, chosen when the kernel is compiled. */
#define KBT_TRACE_OFF 0     /* nothing: the same machine code as without a tracer */
#define KBT_TRACE_BARRIER 1 /* at each coarse call only a compiler scheduling barrier: nothing is recorded */
#define KBT_TRACE_COARSE 2  /* waits, arrivals and the few events that bound a step */
#define KBT_TRACE_DETAIL 3  /* also the events inside a step; it changes what the compiler may interleave */

/* A record's tag: kind in bits 31..28, event or barrier id in bits 27..16, step modulo 2^16 in bits 15..0.
 * No kind is 0, so a tag of 0 is a slot that was never written. */
#define KBT_TRACE_KIND_SHIFT 28
#define KBT_TRACE_ID_SHIFT 16
#define KBT_TRACE_ID_MASK 0xfff
#define KBT_TRACE_STEP_MASK 0xffff

#define KBT_TRACE_BEGIN 1      /* id: event */
#define KBT_TRACE_END 2        /* id: event */
#define KBT_TRACE_INSTANT 3    /* id: event */
#define KBT_TRACE_WAIT_BEGIN 4 /* id: barrier; the role starts to wait on it */
#define KBT_TRACE_WAIT_END 5   /* id: barrier; the wait is over */
#define KBT_TRACE_ARRIVE 6     /* id: barrier; the role is about to arrive on it */

/* One record. The device writes it with one 8-byte store, so that an array of them in shared memory, which C++ declares,
 * must start at a multiple of 8. */
#ifdef __cplusplus
typedef struct alignas(8) kbt_trace_record {
#else
typedef struct kbt_trace_record {
#endif
    uint32_t tag;
    uint32_t clock; /* low 32 bits of the SM's cycle counter (%clock) */
} kbt_trace_record;

#define KBT_TRACE_RING_OPEN 0x4b425452   /* ring header: open() ran */
#define KBT_TRACE_RING_CLOSED 0x444e4552 /* ring header: close() ran */

/* One ring: the records of one role of one CTA. */
typedef struct kbt_trace_ring {
    uint32_t opened; /* KBT_TRACE_RING_OPEN, else this ring was never opened */
    uint32_t closed; /* KBT_TRACE_RING_CLOSED, else the role ended without close() and `total` is void */
    uint32_t cta;    /* linear index: x + gridDim.x * (y + gridDim.y * z) */
    uint32_t smid;   /* %smid at open() */
    uint32_t role;   /* index into the file's roles */
    uint32_t total;  /* records written in all; those beyond the capacity overwrote the oldest */
    uint32_t kept;   /* in a file: records that it holds of this ring; 0 in device memory */
    uint32_t reserved;
    uint64_t open_clock;     /* %clock64 at open() */
    uint64_t close_clock;    /* %clock64 at close() */
    uint64_t open_global_ns; /* %globaltimer at open() */
    uint64_t close_global_ns;
} kbt_trace_ring;

/* What a kernel is given, by value. The memory at `base` is zeroed before the launch and holds
 *   kbt_trace_ring   rings[cta_limit][roles];
 *   kbt_trace_record records[cta_limit][roles][ring_mask + 1];
 * CTA number b records if b % cta_stride == 0 and b / cta_stride < cta_limit. */
typedef struct kbt_trace_buffer {
    uint64_t base;       /* device address, 16-byte aligned; 0: nothing is recorded */
    uint32_t roles;      /* rings per CTA */
    uint32_t ring_mask;  /* capacity of a ring, a power of two, minus one */
    uint32_t cta_stride; /* at least 1 */
    uint32_t cta_limit;  /* CTAs that record */
} kbt_trace_buffer;

/* The file: header, roles, events, barriers, edges, `meta_bytes` of text padded to a multiple of 8, rings,
 * then the records of ring 0, ring 1, and so on, each ring's `kept` records from the oldest to the newest. */
#define KBT_TRACE_FILE_MAGIC "KBTTRACE"
#define KBT_TRACE_FILE_VERSION 1
#define KBT_TRACE_NAME_BYTES 40

typedef struct kbt_trace_file_header {
    uint8_t magic[8];      /* KBT_TRACE_FILE_MAGIC without its NUL */
    uint32_t version;      /* KBT_TRACE_FILE_VERSION */
    uint32_t header_bytes; /* size of this struct */
    uint32_t level;        /* KBT_TRACE_COARSE or KBT_TRACE_DETAIL */
    uint32_t sm_clock_khz; /* 0: not known */
    uint32_t roles;
    uint32_t events;
    uint32_t barriers;
    uint32_t edges;
    uint32_t rings;
    uint32_t ring_capacity; /* of the device buffer */
    uint64_t records;       /* sum of `kept` over the rings */
    uint64_t meta_bytes;    /* UTF-8 lines `key: value`: device, driver, date, command, kernel */
} kbt_trace_file_header;

#define KBT_TRACE_STEP_NONE 0  /* the role has no steps */
#define KBT_TRACE_STEP_WAIT 1  /* a step starts at each WAIT_BEGIN on barrier `step_id` */
#define KBT_TRACE_STEP_EVENT 2 /* a step starts at each BEGIN of event `step_id` */

/* What a role's work is, a sum of these; 0: not stated. */
#define KBT_TRACE_WORK_LOAD 1   /* it moves data between global and shared memory */
#define KBT_TRACE_WORK_TENSOR 2 /* it issues MMAs */
#define KBT_TRACE_WORK_MATH 4   /* it computes on the other pipes: exp2, max, conversions */

/* A role: a group of warps that does one job. */
typedef struct kbt_trace_role {
    uint8_t name[KBT_TRACE_NAME_BYTES]; /* UTF-8, padded with NUL */
    uint32_t step_kind;
    uint32_t step_id;
    uint32_t work; /* sum of KBT_TRACE_WORK_... */
    uint32_t reserved;
} kbt_trace_role;

/* What an event is to the handoff model; most are nothing to it. */
#define KBT_TRACE_EVENT_PLAIN 0
#define KBT_TRACE_EVENT_CHUNK_WRITE 1 /* the producer writes one chunk of the handed-over tile */
#define KBT_TRACE_EVENT_TILE 2        /* the consumer's MMA on one tile of it */

/* An event that roles begin and end. */
typedef struct kbt_trace_event {
    uint8_t name[KBT_TRACE_NAME_BYTES];
    uint32_t purpose; /* KBT_TRACE_EVENT_... */
    uint32_t reserved;
} kbt_trace_event;

/* What a barrier is to the handoff model; most are nothing to it. */
#define KBT_TRACE_BARRIER_PLAIN 0
#define KBT_TRACE_BARRIER_FIRST 1 /* the first fraction of the handed-over tile is ready */
#define KBT_TRACE_BARRIER_REST 2  /* the rest of it is ready */
#define KBT_TRACE_BARRIER_FREE 3  /* its buffer may be written again */

/* A barrier that roles wait on. */
typedef struct kbt_trace_barrier {
    uint8_t name[KBT_TRACE_NAME_BYTES];
    uint32_t purpose; /* KBT_TRACE_BARRIER_... */
    uint32_t reserved;
} kbt_trace_barrier;

#define KBT_TRACE_ROLE_HARDWARE 0xffffffff /* `arriving` where no warp arrives: a TMA transaction or an MMA */

/* One way that a barrier is released: `arriving` arrives, `waiting` waits. */
typedef struct kbt_trace_edge {
    uint32_t barrier;
    uint32_t arriving; /* role; KBT_TRACE_ROLE_HARDWARE */
    uint32_t waiting;  /* role */
    uint32_t issuer;   /* role that issued the transaction where `arriving` is the hardware, else = arriving */
} kbt_trace_edge;

#endif
