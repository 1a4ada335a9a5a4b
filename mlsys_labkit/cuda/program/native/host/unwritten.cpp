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

// The first word of [begin, end) that is as cudaMalloc left it; 0 for none. Such a word beside one that is set, in the same eight
// bytes, may be padding of a struct whose members were set one by one: it counts only as the one such word of many.
uint64_t first_unset(uint64_t begin, uint64_t end) {
    constexpr uint64_t few = 64;  // bytes, which may be one struct
    const uint64_t first = (begin + 3) & ~uint64_t{3};
    uint64_t lone = 0, lone_words = 0;
    for (uint64_t word = first; word + 4 <= end; word += 4) {
        if (!is_unset(word, 4)) continue;
        const uint64_t beside = word ^ 4;
        if (beside < first || beside + 4 > end || is_unset(beside, 4)) return word;
        if (lone_words++ == 0) lone = word;
    }
    return lone_words == 1 && end - begin > few ? lone : 0;
}

}  // namespace

void note_unwritten(const Site& site, uint64_t begin, uint64_t end) {
    static std::set<std::pair<uint64_t, uint64_t>> noted;
    if (settings().mode != Mode::check) return;
    uint64_t first = 0;
    const Allocation* held = heap().find(reinterpret_cast<const void*>(begin), &first);
    if (!held || held->kind != Kind::device) return;
    end = std::min(end, first + held->bytes);
    const Opened open;
    const uint64_t word = first_unset(begin, end);
    if (!word) return;
    const uint64_t pc = library_pc ? library_pc : site.pc;  // a library may call cudaMemcpy
    if (!noted.insert({pc, held->place}).second) return;
    journal().write("{\"record\": \"unwritten\", \"what\": " + quoted(site.what) + ", \"file\": " + quoted(site.file) +
                    ", \"line\": " + std::to_string(site.line) + ", \"pc\": " + std::to_string(pc) +
                    ", \"allocated\": " + std::to_string(held->place) + ", \"offset\": " + std::to_string(word - first) + "}");
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
