// functions_api.h: what a launch asks about a kernel's attributes.
#pragma once

#include <cstddef>

namespace lk::host {

// Dynamic shared memory that the kernel was allowed by cudaFuncSetAttribute, or the 48 KiB that need no permission.
size_t allowed_dynamic_shared_bytes(const void* kernel);
// Blocks of so many threads and so much shared memory that one multiprocessor holds at a time; registers are not known here.
int resident_blocks(int threads, size_t shared_bytes);

}  // namespace lk::host
