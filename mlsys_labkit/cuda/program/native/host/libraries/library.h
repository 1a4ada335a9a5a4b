// library.h: the shape of a library's call: it waits for the device, says once that it is a stand-in, and opens device memory.
// No graph can keep it.
#pragma once

#include <cstdint>

#include "capture.h"
#include "context.h"
#include "heap.h"
#include "journal.h"
#include "unwritten.h"

namespace lk::host {

// Inlined, so that the return address is the program's: the library's functions call this one, by their own helpers.
template <class Status, class Body>
[[gnu::always_inline]] inline Status library_call(Status failed, const char* note, Body body) {
    const std::lock_guard<std::recursive_mutex> held(context().lock);
    if (is_capturing()) {  // its stream is not known here, and it runs at once
        spoil_captures(cudaErrorStreamCaptureUnsupported);
        journal().note_once("a call of a library cannot be captured in a CUDA graph here, and was left out");
        return failed;
    }
    if (context().synchronize() != cudaSuccess) return failed;
    journal().note_once(note);
    const LibraryCall call(reinterpret_cast<uint64_t>(__builtin_return_address(0)));
    const Opened open;
    return body();
}

// False where the bytes from this address on do not all lie in the allocation that it is in.
inline bool fits(const void* address, size_t bytes) {
    uint64_t begin = 0;
    const Allocation* allocation = heap().find(address, &begin);
    if (!allocation || reinterpret_cast<uint64_t>(address) + bytes <= begin + allocation->bytes) return true;
    journal().note_once("a call of a library was given an array that is too small for its sizes, and was left out");
    return false;
}

}  // namespace lk::host
