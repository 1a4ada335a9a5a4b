// unwritten.cpp: see unwritten.h.
#include "unwritten.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "context.h"
#include "heap.h"
#include "journal.h"
#include "settings.h"
#include "unset_memory.h"

namespace lk::host {

namespace {

constexpr size_t most_rows = 4096;

uint64_t library_pc = 0;

}  // namespace

void note_unwritten(const Site& site, uint64_t begin, uint64_t end) {
    static std::set<std::pair<uint64_t, uint64_t>> noted;
    if (settings().mode != Mode::check) return;
    uint64_t first = 0;
    const Allocation* held = heap().find(reinterpret_cast<const void*>(begin), &first);
    if (!held || held->kind != Kind::device) return;
    end = std::min(end, first + held->bytes);
    const Opened open;
    for (uint64_t word = (begin + 3) & ~uint64_t{3}; word + 4 <= end; word += 4) {
        if (!is_unset(word, 4)) continue;
        const uint64_t pc = library_pc ? library_pc : site.pc;  // a library may call cudaMemcpy
        if (!noted.insert({pc, held->place}).second) return;
        journal().write("{\"record\": \"unwritten\", \"what\": " + quoted(site.what) + ", \"file\": " + quoted(site.file) +
                        ", \"line\": " + std::to_string(site.line) + ", \"pc\": " + std::to_string(pc) +
                        ", \"allocated\": " + std::to_string(held->place) + ", \"offset\": " + std::to_string(word - first) + "}");
        return;
    }
}

LibraryCall::LibraryCall(uint64_t pc) : before_(library_pc) {
    if (library_pc == 0) library_pc = pc;
}

LibraryCall::~LibraryCall() { library_pc = before_; }

void library_reads(const void* data, size_t bytes) {
    const uint64_t begin = reinterpret_cast<uint64_t>(data);
    note_unwritten({"the library's call", "", 0, library_pc}, begin, begin + bytes);
}

void library_reads(const void* data, size_t bytes, size_t rows, size_t pitch) {
    for (size_t row = 0; row < std::min(rows, most_rows); ++row) library_reads(static_cast<const char*>(data) + row * pitch, bytes);
}

}  // namespace lk::host

// For stand-ins of libraries whose code is in the program itself.
extern "C" void lk_library_reads(const void* data, size_t bytes) {
    if (lk::host::in_kernel()) return;
    const std::lock_guard<std::recursive_mutex> held(lk::host::context().lock);
    const uint64_t begin = reinterpret_cast<uint64_t>(data);
    lk::host::note_unwritten({"the library's call", "", 0, reinterpret_cast<uint64_t>(__builtin_return_address(0))}, begin, begin + bytes);
}
