// kept_arguments.cpp: see kept_arguments.h.
#include "kept_arguments.h"

#include <cstring>

namespace lk::host {

KeptArguments::KeptArguments(const Body& body, void** frame) {
    frame_.push_back(body.called_bytes ? keep(frame[0], body.called_bytes) : frame[0]);
    for (size_t i = 0; i < body.count; ++i) frame_.push_back(keep(frame[i + 1], body.parameters[i].bytes));
}

void* KeptArguments::keep(const void* from, size_t bytes) {
    std::vector<Unit>& room = kept_.emplace_back((bytes + sizeof(Unit) - 1) / sizeof(Unit));
    memcpy(room.data(), from, bytes);
    return room.data();
}

}  // namespace lk::host
