// image.h: the student's program, a shared object that the runner loads.
#pragma once

#include <cstdint>

namespace lk::host {

struct Image {
    uint64_t begin = 0;  // load address
    uint64_t end = 0;    // past its last segment
};

// Where the object that holds this address lies.
Image find_image(const void* address);
// The program's own, set once it is loaded.
Image& program_image();

}  // namespace lk::host
