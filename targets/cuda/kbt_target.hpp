// The host side of a CUDA C++ program that is a kbt target: what it prints, the outputs that it saves, the trace that it
// writes. Header only, C++17, and optional: printing `kbt-time-us N` is all that a target must do.
#pragma once

#include <cuda_runtime.h>
#include <kbt/trace_format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace kbt {

// Exit code 3: this setting, or this machine, is refused; the last line of standard error says why.
[[noreturn]] inline void refuse(const std::string &why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(3);
}

inline void check(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    std::string text = std::string(what) + ": " + cudaGetErrorString(status);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) refuse(text);
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(1);
}

// A variable of the environment; `otherwise` where it is not set.
inline std::string environment(const char *name, const char *otherwise = "") {
    const char *value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

// The device in its own words, its driver, and its SM clock at this moment: call it while launches still run.
inline void describe_device() {
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    std::printf("kbt-device %s\n", device.name);
    FILE *told = popen("nvidia-smi --query-gpu=driver_version,clocks.sm --format=csv,noheader,nounits 2>/dev/null", "r");
    if (told == nullptr) return;
    char driver[64] = {};
    double mhz = 0;
    if (std::fscanf(told, "%63[^,], %lf", driver, &mhz) == 2) {
        std::printf("kbt-driver %s\nkbt-clock-mhz %g\n", driver, mhz);
    }
    pclose(told);
}

// Times of launches, after a warm-up, one line each.
template <class Launch> void time_launches(Launch launch, int warmup = 20, int launches = 30) {
    std::vector<cudaEvent_t> events(2 * launches);
    for (cudaEvent_t &event : events) check(cudaEventCreate(&event), "cudaEventCreate");
    for (int i = 0; i < warmup; ++i) launch();
    for (int i = 0; i < launches; ++i) {
        check(cudaEventRecord(events[2 * i]), "cudaEventRecord");
        launch();
        check(cudaEventRecord(events[2 * i + 1]), "cudaEventRecord");
    }
    describe_device();
    check(cudaDeviceSynchronize(), "the launches");
    for (int i = 0; i < launches; ++i) {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, events[2 * i], events[2 * i + 1]), "cudaEventElapsedTime");
        std::printf("kbt-time-us %.3f\n", 1e3 * ms);
    }
}

inline void write_file(const std::string &path, const std::string &bytes) {
    FILE *file = std::fopen(path.c_str(), "wb");
    bool whole = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    if (file != nullptr) whole = std::fclose(file) == 0 && whole;
    if (whole) return;
    std::perror(path.c_str());
    std::exit(1);
}

// A safetensors file with one tensor. `dtype` is its name there: F32, F64, BF16.
inline void save_tensor(const std::string &path, const std::string &name, const std::string &dtype,
                        const std::vector<size_t> &shape, const void *data, size_t bytes) {
    std::string extents;
    for (size_t extent : shape) extents += (extents.empty() ? "" : ",") + std::to_string(extent);
    std::string header = "{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + extents +
                         "],\"data_offsets\":[0," + std::to_string(bytes) + "]}}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    uint64_t length = header.size();
    std::string file(reinterpret_cast<const char *>(&length), sizeof length);
    write_file(path, file + header + std::string(static_cast<const char *>(data), bytes));
}

// What a trace's numbers stand for. Indices into these are the ids that the kernel records.
struct TraceNames {
    std::vector<kbt_trace_role> roles;
    std::vector<kbt_trace_event> events;
    std::vector<kbt_trace_barrier> barriers;
    std::vector<kbt_trace_edge> edges;
};

// A device buffer for a trace, zeroed.
inline kbt_trace_buffer trace_buffer(uint32_t roles, uint32_t capacity, uint32_t cta_stride, uint32_t cta_limit) {
    size_t each = sizeof(kbt_trace_ring) + capacity * sizeof(kbt_trace_record);
    void *base = nullptr;
    check(cudaMalloc(&base, each * roles * cta_limit), "the trace's buffer");
    check(cudaMemset(base, 0, each * roles * cta_limit), "the trace's buffer");
    return {reinterpret_cast<uint64_t>(base), roles, capacity - 1, cta_stride, cta_limit};
}

// Writes the .kbttrace file from the device buffer after one launch. Rings that were never opened are left out.
inline void write_trace(const std::string &path, const kbt_trace_buffer &buffer, uint32_t level, const TraceNames &names,
                        const std::string &kernel) {
    const uint32_t capacity = buffer.ring_mask + 1, count = buffer.roles * buffer.cta_limit;
    std::vector<kbt_trace_ring> rings(count);
    std::vector<kbt_trace_record> records(size_t(count) * capacity);
    const char *base = reinterpret_cast<const char *>(buffer.base);
    check(cudaMemcpy(rings.data(), base, count * sizeof rings[0], cudaMemcpyDeviceToHost), "the trace's rings");
    check(cudaMemcpy(records.data(), base + count * sizeof rings[0], records.size() * sizeof records[0],
                     cudaMemcpyDeviceToHost),
          "the trace's records");
    std::string heads, bodies;
    kbt_trace_file_header header{};
    for (uint32_t i = 0; i < count; ++i) {
        kbt_trace_ring ring = rings[i];
        if (ring.opened != KBT_TRACE_RING_OPEN) continue;
        kbt_trace_record *first = &records[size_t(i) * capacity];
        uint32_t kept = std::min(ring.total, capacity);
        if (ring.total > capacity) std::rotate(first, first + ring.total % capacity, first + capacity);
        ring.kept = kept;
        heads.append(reinterpret_cast<const char *>(&ring), sizeof ring);
        bodies.append(reinterpret_cast<const char *>(first), kept * sizeof *first);
        header.rings += 1;
        header.records += kept;
    }
    std::string meta = "kernel: " + kernel + "\n";
    std::memcpy(header.magic, KBT_TRACE_FILE_MAGIC, sizeof header.magic);
    header.version = KBT_TRACE_FILE_VERSION;
    header.header_bytes = sizeof header;
    header.level = level;
    header.roles = uint32_t(names.roles.size());
    header.events = uint32_t(names.events.size());
    header.barriers = uint32_t(names.barriers.size());
    header.edges = uint32_t(names.edges.size());
    header.ring_capacity = capacity;
    header.meta_bytes = meta.size();
    meta.resize((meta.size() + 7) / 8 * 8);
    auto bytes = [](const auto &all) {
        return std::string(reinterpret_cast<const char *>(all.data()), all.size() * sizeof all[0]);
    };
    std::string file(reinterpret_cast<const char *>(&header), sizeof header);
    file += bytes(names.roles) + bytes(names.events) + bytes(names.barriers) + bytes(names.edges);
    write_file(path, file + meta + heads + bodies);
}

} // namespace kbt
