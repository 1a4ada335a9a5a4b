// kept_arguments.h: the arguments of a launch that runs later, copied byte by byte, as CUDA does.
#pragma once

#include <cstddef>
#include <vector>

#include "lk/qualifiers.h"
#include "lk/vectors.h"

#include "lk/host/launch.h"

namespace lk::host {

class KeptArguments {
public:
    KeptArguments(const Body& body, void** frame);
    KeptArguments(const KeptArguments&) = delete;
    KeptArguments(KeptArguments&&) = default;

    void** frame() { return frame_.data(); }

private:
    // Of the strictest alignment that a parameter has.
    struct alignas(64) Unit {
        char bytes[64];
    };

    void* keep(const void* from, size_t bytes);

    std::vector<std::vector<Unit>> kept_;
    std::vector<void*> frame_;
};

}  // namespace lk::host
