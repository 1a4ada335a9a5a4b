// protocol.h: the memory that notebook and worker share to talk. One request is under way at a time.
//
// No member is padded. Mirrored in simulator/protocol.py, which compares the sizes below with its own when the worker starts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lk::protocol {

constexpr uint32_t kVersion = 1;
constexpr size_t kPayloadBytes = 64 << 10;   // a path, or the arguments of a launch (CUDA allows 32,764 bytes)
constexpr size_t kOutputBytes = 1 << 20;     // what a launch may print; the rest is counted
constexpr size_t kResultBytes = 256 << 20;   // sparse: only what is written takes memory
constexpr uint32_t kChanges = 4096;          // buffers that came or went since the last request
constexpr uint32_t kSections = 5;

// Written once by the worker when it is ready.
struct Hello {
    uint32_t version;
    uint32_t size_of_change;
    uint32_t size_of_request;
    uint32_t size_of_reply;
    uint32_t size_of_control;
    uint32_t size_of_records[kSections];  // of FindingRecord, SiteCount, StepCount, RequestSample, Totals
    uint64_t arena_address;               // 0: the addresses were taken
    uint64_t heap_bytes;                  // of the arena's file, behind the arena
    uint64_t reserved;                    // what follows stays aligned
};

struct Change {
    uint64_t offset;  // of the buffer's first byte from the arena's start
    uint64_t bytes;   // 0: the buffer that began there is gone
};

// A variable of the module that is loaded, and where in the arena its value is kept between launches.
struct KeptVariable {
    uint64_t address;  // in the file
    uint64_t bytes;
    uint64_t offset;
};

enum class Command : uint32_t { sync = 1, load, launch };

enum class Failure : uint32_t { none, refused, out_of_mappings };

struct Request {
    uint32_t command;
    uint32_t changes;  // applied before the command, in order
    uint32_t module;
    uint32_t kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t mode;  // 0 run, 1 check, 2 profile
    // launch: payload holds this many 4-byte offsets, then the packed arguments. load: this many KeptVariables end it.
    uint32_t arguments;
    uint32_t payload_bytes;
    uint32_t reserved[2];    // the payload stays aligned
    uint64_t sequence;       // counts requests: a cancellation names the one it means
    uint64_t seed;
    uint64_t sample_blocks;  // 0: every block
    double timeout_seconds;
};

// A part of the result area: findings, sites, steps, samples, totals of a launch; descriptors of a load.
struct Section {
    uint64_t offset;
    uint64_t bytes;
};

struct Reply {
    uint32_t failed;  // a Failure; error says more
    uint32_t module;
    uint64_t text_address;
    uint64_t text_bytes;
    double seconds;
    Section sections[kSections];
    char error[1024];
};

struct Output {
    std::atomic<uint64_t> bytes;    // of text that are there
    std::atomic<uint64_t> dropped;  // that found no room
    char text[kOutputBytes];
};

struct Control {
    Hello hello;
    Request request;
    Reply reply;
    Change changes[kChanges];
    alignas(16) unsigned char payload[kPayloadBytes];
    Output output;
    alignas(16) unsigned char results[kResultBytes];
};

}  // namespace lk::protocol
