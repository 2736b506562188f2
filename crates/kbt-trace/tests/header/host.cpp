// What the tracer's C++ does around its records, with the device's intrinsics stood in for. The PTX of a record is not
// run: `asm` statements are nothing here, and a value that one would load is 0.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define __device__
#define __forceinline__ inline
struct Index { uint32_t x, y, z; };
static Index blockIdx{0, 0, 0}, gridDim{4, 3, 2};
static uint32_t __activemask() { return 1; }
static uint32_t __ballot_sync(uint32_t, bool elected) { return elected; }
static uint32_t __match_any_sync(uint32_t, uint32_t) { return 1; }
static uint64_t __cvta_generic_to_shared(const void *) { return 0; }
#define asm
#define volatile(...) ((void)0)
#include <kbt/trace.cuh>

static int failed = 0;
static void check(bool holds, const char *what, uint32_t n) {
    if (!holds) { printf("%s: %u\n", what, n); failed = 1; }
}
using Coarse = kbt::Trace<KBT_TRACE_COARSE>;

int main() {
    // Every third CTA records, 4 of them, in a grid of 24.
    kbt_trace_buffer buf{};
    buf.base = 8; buf.roles = 2; buf.ring_mask = 7; buf.cta_stride = 3; buf.cta_limit = 4;
    for (uint32_t cta = 0; cta < 24; ++cta) {
        blockIdx = {cta % 4, cta / 4 % 3, cta / 12};
        check(Coarse::here(buf) == (cta % 3 == 0 && cta < 12), "here", cta);
        check(!kbt::Trace<KBT_TRACE_OFF>::here(buf), "here at level off", cta);
    }
    // The tag's fields.
    uint32_t tag = kbt::trace_impl::tag(KBT_TRACE_ARRIVE, 0xabc, 0x12345);
    check(tag == (uint32_t(KBT_TRACE_ARRIVE) << 28 | 0xabc0000u | 0x2345u), "tag", tag);
    // A ring in shared memory is copied out whole, and no record beyond it is touched.
    const uint32_t totals[] = {0, 1, 7, 8, 9, 100};
    for (uint32_t total : totals) {
        uint64_t out[10];
        memset(out, 0xee, sizeof out);
        kbt::trace_impl::SharedRing ring;
        ring.records = reinterpret_cast<uint64_t>(out); ring.mask = 7; ring.total = total;
        ring.flush();
        uint32_t held = total < 8 ? total : 8;
        for (uint32_t i = 0; i < 10; ++i) check((out[i] != 0xeeeeeeeeeeeeeeeeull) == (i < held), "flush", total * 100 + i);
    }
    // open() and close() write the ring of this CTA and role alone; the records begin behind all rings.
    alignas(16) static uint8_t memory[8 * 64 + 8 * 8 * 8];
    buf.base = reinterpret_cast<uint64_t>(memory);
    kbt_trace_ring *rings = reinterpret_cast<kbt_trace_ring *>(memory);
    for (uint32_t cta = 0; cta < 24; ++cta) {
        blockIdx = {cta % 4, cta / 4 % 3, cta / 12};
        for (uint32_t role = 0; role < 3; ++role) {
            Coarse trace;
            trace.open(buf, role, true);
            trace.close();
        }
    }
    for (uint32_t i = 0; i < 8; ++i) {
        check(rings[i].cta == i / 2 * 3 && rings[i].role == i % 2, "place of ring", i);
        check(rings[i].opened == KBT_TRACE_RING_OPEN && rings[i].closed == KBT_TRACE_RING_CLOSED, "marks of ring", i);
    }
    for (uint32_t i = 8 * 64; i < sizeof memory; ++i) check(memory[i] == 0, "a record that nobody wrote", i);
    return failed;
}
