// unwritten.h: reads of device memory that nothing has written, by copies and by calls of libraries (check only).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ordering.h"

namespace lk::host {

// Notes the first word of the bytes [begin, end) that is as cudaMalloc left it. One finding for each place that reads.
void note_unwritten(const Site& site, uint64_t begin, uint64_t end);

// Where the program calls the library that runs now: a function inside it is its own caller.
class LibraryCall {
public:
    explicit LibraryCall(uint64_t pc);
    ~LibraryCall();

private:
    uint64_t before_;
};

// What the library's call that runs now is about to read.
void library_reads(const void* data, size_t bytes);
// Rows of a matrix, each `pitch` bytes behind the one before it.
void library_reads(const void* data, size_t bytes, size_t rows, size_t pitch);

}  // namespace lk::host
