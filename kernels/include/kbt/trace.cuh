// The device side of kbt's in-kernel tracer: header-only, for any CUDA C++17 kernel.
//
// One elected thread of each warp role records begin, end, instant, wait and arrive into a ring of its own; the
// newest records stay. The level is a template argument: below it a call compiles to nothing, and at level off
// the machine code is that of a kernel without a tracer. Reading and analysing a trace is the host's work.
//
//     template <int Level> __global__ void kernel(const __grid_constant__ kbt_trace_buffer buf) {
//         kbt::Trace<Level> trace;
//         trace.open(buf, ROLE_SOFTMAX, threadIdx.x % 128 == 0);
//         for (int step = 0; step < steps; ++step) {
//             trace.wait_begin(S_FULL, step); mbarrier_wait(s_full); trace.wait_end(S_FULL, step);
//             trace.detail_begin(EXP2); /* ... */ trace.detail_end(EXP2);
//             trace.arrive(P_FULL, step); mbarrier_arrive(p_full);
//         }
//         trace.close();
//     }
//
// Every thread of the role calls with the same arguments, whatever `elected` says, and threads of a warp that call
// together are of one role. In the elected thread's warp a record costs a clock read, the slot's address and one
// 8-byte store; in every other warp one branch. Where few CTAs record, spare the rest even that: instantiate the
// roles twice, and run those of Trace<KBT_TRACE_OFF> where Trace<Level>::here(buf) is false.
//
// Pass the buffer as a `const __grid_constant__` parameter, and the ring's mask stays in constant memory. A record
// orders memory accesses around it; arithmetic on registers may still move across. A fence after a record may wait for
// its store: record an arrival between the fence and the arrive. Level barrier leaves `asm volatile("" ::: "memory")`
// at the calls that level coarse would record: it binds the compiler's front and middle end; ptxas does not see it.
#pragma once

#include "trace_format.h"

namespace kbt {

namespace trace_impl {

__device__ __forceinline__ uint64_t clock64() {
    uint64_t value;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(value)::"memory");
    return value;
}

__device__ __forceinline__ uint64_t global_ns() {
    uint64_t value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
    return value;
}

__device__ __forceinline__ uint32_t smid() {
    uint32_t value;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(value));
    return value;
}

__device__ __forceinline__ void scheduling_barrier() { asm volatile("" ::: "memory"); }

__device__ __forceinline__ uint32_t tag(uint32_t kind, uint32_t id, uint32_t step) {
    return kind << KBT_TRACE_KIND_SHIFT | id << KBT_TRACE_ID_SHIFT | (step & KBT_TRACE_STEP_MASK);
}

// Which of the calling threads record for `role`: those of a warp whose elected thread is among them. They all write
// the same eight bytes, which is one transaction; so no thread of the warp has to be told from another, and a branch
// around a record is uniform.
__device__ __forceinline__ bool beside_elected(uint32_t role, bool elected) {
    uint32_t active = __activemask();
    return (__ballot_sync(active, elected) & __match_any_sync(active, role)) != 0;
}

// State of a recorder. `records == 0`: this thread does not record. `ring` is the elected thread's alone.
//
// A record is skipped by a uniform branch, which needs no reconvergence point and costs one instruction. Left to itself
// ptxas predicates the shorter ones, and then every warp issues them whole.
struct GlobalRing {
    kbt_trace_ring *ring = nullptr;
    uint64_t records = 0; // device address of the ring's first record
    uint32_t mask = 0;
    uint32_t total = 0;

    __device__ __forceinline__ void put(uint32_t tag) {
        asm volatile("{\n .reg .pred p; .reg .b32 c, o; .reg .b64 a;\n setp.ne.b64 p, %3, 0;\n @!p bra.uni SKIP;\n"
                     " and.b32 o, %0, %2;\n mad.wide.u32 a, o, %4, %3;\n add.u32 %0, %0, 1;\n"
                     " mov.u32 c, %%clock;\n st.global.cs.v2.b32 [a], {%1, c};\nSKIP:\n}"
                     : "+r"(total)
                     : "r"(tag), "r"(mask), "l"(records), "n"(sizeof(kbt_trace_record))
                     : "memory");
    }
    __device__ __forceinline__ void flush() {}
};

// The same with the ring in shared memory, copied out at close(). `shared_records` is 8-byte aligned, as an array of
// kbt_trace_record is.
struct SharedRing {
    kbt_trace_ring *ring = nullptr;
    uint64_t records = 0;
    uint32_t mask = 0;
    uint32_t total = 0;
    uint32_t shared_records = 0;

    __device__ __forceinline__ void put(uint32_t tag) {
        asm volatile("{\n .reg .pred p; .reg .b32 c, o;\n setp.ne.b64 p, %4, 0;\n @!p bra.uni SKIP;\n"
                     " and.b32 o, %0, %2;\n mad.lo.u32 o, o, %5, %3;\n add.u32 %0, %0, 1;\n"
                     " mov.u32 c, %%clock;\n st.shared.v2.b32 [o], {%1, c};\nSKIP:\n}"
                     : "+r"(total)
                     : "r"(tag), "r"(mask), "r"(shared_records), "l"(records), "n"(sizeof(kbt_trace_record))
                     : "memory");
    }
    __device__ __forceinline__ void flush() {
        uint32_t held = total <= mask ? total : mask + 1;
        for (uint32_t i = 0; i < held; ++i) {
            uint64_t record;
            asm volatile("ld.shared.b64 %0, [%1];"
                         : "=l"(record)
                         : "r"(shared_records + i * uint32_t(sizeof(kbt_trace_record)))
                         : "memory");
            reinterpret_cast<uint64_t *>(records)[i] = record;
        }
    }
};

struct Nothing {};

template <bool Records, class Ring> struct Select { using type = Ring; };
template <class Ring> struct Select<false, Ring> { using type = Nothing; };

} // namespace trace_impl

// A recorder of one thread. `Ring`: trace_impl::GlobalRing, or SharedRing for SharedTrace below.
template <int Level, class Ring = trace_impl::GlobalRing> struct Trace {
    static_assert(Level >= KBT_TRACE_OFF && Level <= KBT_TRACE_DETAIL, "trace level: off 0 to detail 3");
    static constexpr bool records = Level >= KBT_TRACE_COARSE;

    // Whether this CTA is one of those that record; the same for all its threads.
    static __device__ __forceinline__ bool here(const kbt_trace_buffer &buf) {
        if constexpr (Level == KBT_TRACE_OFF) return false;
        uint32_t slot = cta() / buf.cta_stride;
        return buf.base != 0 && slot * buf.cta_stride == cta() && slot < buf.cta_limit;
    }

    // Starts recording for `role` in this CTA. Nothing is recorded where no caller of the warp is `elected`, where
    // this CTA is not among those that record, or where `role` has no ring. At most one thread of a role is elected.
    __device__ __forceinline__ void open(const kbt_trace_buffer &buf, uint32_t role, bool elected) {
        if constexpr (records) {
            state_.mask = buf.ring_mask;
            if (!here(buf) || role >= buf.roles || !trace_impl::beside_elected(role, elected)) return;
            uint64_t index = uint64_t(cta() / buf.cta_stride) * buf.roles + role;
            uint64_t rings = uint64_t(buf.cta_limit) * buf.roles;
            uint64_t ring_bytes = (uint64_t(buf.ring_mask) + 1) * sizeof(kbt_trace_record);
            state_.records = buf.base + rings * sizeof(kbt_trace_ring) + index * ring_bytes;
            if (!elected) return;
            kbt_trace_ring *ring = reinterpret_cast<kbt_trace_ring *>(buf.base) + index;
            ring->cta = cta();
            ring->smid = trace_impl::smid();
            ring->role = role;
            ring->opened = KBT_TRACE_RING_OPEN;
            ring->open_global_ns = trace_impl::global_ns();
            ring->open_clock = trace_impl::clock64();
            state_.ring = ring;
        }
    }

    // For SharedTrace: as open(), with this role's own `ring_mask + 1` records of shared memory. Memory that is cut out
    // of a larger array, as of `extern __shared__`, must start at a multiple of 8 bytes.
    __device__ __forceinline__ void open_shared(const kbt_trace_buffer &buf, uint32_t role, bool elected,
                                                kbt_trace_record *shared_records) {
        if constexpr (records) {
            state_.shared_records = uint32_t(__cvta_generic_to_shared(shared_records));
            open(buf, role, elected);
        }
    }

    // Ends recording. A role that never calls it leaves a ring whose drop count is not known.
    __device__ __forceinline__ void close() {
        if constexpr (records) {
            if (state_.ring != nullptr) {
                uint64_t clock = trace_impl::clock64();
                state_.flush();
                kbt_trace_ring *ring = state_.ring;
                ring->close_clock = clock;
                ring->close_global_ns = trace_impl::global_ns();
                ring->total = state_.total;
                ring->closed = KBT_TRACE_RING_CLOSED;
            }
            state_.records = 0;
        }
    }

    // `step` is optional: the role's step modulo 2^16; where it is left out the tag is a constant.
    __device__ __forceinline__ void begin(uint32_t event, uint32_t step = 0) {
        record<KBT_TRACE_COARSE>(KBT_TRACE_BEGIN, event, step);
    }
    __device__ __forceinline__ void end(uint32_t event, uint32_t step = 0) {
        record<KBT_TRACE_COARSE>(KBT_TRACE_END, event, step);
    }
    __device__ __forceinline__ void instant(uint32_t event, uint32_t step = 0) {
        record<KBT_TRACE_COARSE>(KBT_TRACE_INSTANT, event, step);
    }
    // Around a wait on `barrier`, as close to it as can be.
    __device__ __forceinline__ void wait_begin(uint32_t barrier, uint32_t step = 0) {
        record<KBT_TRACE_COARSE>(KBT_TRACE_WAIT_BEGIN, barrier, step);
    }
    __device__ __forceinline__ void wait_end(uint32_t barrier, uint32_t step = 0) {
        record<KBT_TRACE_COARSE>(KBT_TRACE_WAIT_END, barrier, step);
    }
    // Just before the role arrives on `barrier`, or issues the transaction that will complete it.
    __device__ __forceinline__ void arrive(uint32_t barrier, uint32_t step = 0) {
        record<KBT_TRACE_COARSE>(KBT_TRACE_ARRIVE, barrier, step);
    }

    // The same from level detail up.
    __device__ __forceinline__ void detail_begin(uint32_t event, uint32_t step = 0) {
        record<KBT_TRACE_DETAIL>(KBT_TRACE_BEGIN, event, step);
    }
    __device__ __forceinline__ void detail_end(uint32_t event, uint32_t step = 0) {
        record<KBT_TRACE_DETAIL>(KBT_TRACE_END, event, step);
    }
    __device__ __forceinline__ void detail_instant(uint32_t event, uint32_t step = 0) {
        record<KBT_TRACE_DETAIL>(KBT_TRACE_INSTANT, event, step);
    }
    __device__ __forceinline__ void detail_arrive(uint32_t barrier, uint32_t step = 0) {
        record<KBT_TRACE_DETAIL>(KBT_TRACE_ARRIVE, barrier, step);
    }

    // Any kind at any level from `Min` up, for a caller that chooses both itself.
    template <int Min> __device__ __forceinline__ void record(uint32_t kind, uint32_t id, uint32_t step) {
        if constexpr (records && Level >= Min) {
            state_.put(trace_impl::tag(kind, id, step));
        } else if constexpr (Level == KBT_TRACE_BARRIER && Min <= KBT_TRACE_COARSE) {
            trace_impl::scheduling_barrier();
        }
    }

  private:
    static __device__ __forceinline__ uint32_t cta() {
        return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    }

    typename trace_impl::Select<records, Ring>::type state_;
};

// A recorder whose ring is in shared memory until close(): use open_shared().
template <int Level> using SharedTrace = Trace<Level, trace_impl::SharedRing>;

} // namespace kbt
