// stream_state.h: what is behind a stream and an event.
#pragma once

#include <chrono>
#include <vector>

#include "lk/host/graphs.h"
#include "ordering.h"

namespace lk::host {
struct Capture;
}

struct CUstream_st {
    int priority = 0;
    bool blocking = true;  // waits for the legacy stream, and the legacy stream for it
    lk::host::Capture* capture = nullptr;
    unsigned number = 0;  // in the ordering
    lk::host::StreamClock clock;
    uint64_t idle_wait = 0;  // where it waited for an event that was not recorded yet
};

struct CUevent_st {
    bool timed = true;
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
    lk::host::Capture* capture = nullptr;  // it was recorded in last; dangling once that has ended: compare it only
    std::vector<CUgraphNode_st*> nodes;     // that came before it there
    lk::host::StreamClock clock;            // of its stream when it was recorded
};

namespace lk::host {

// nullptr where the handle is no stream. The legacy stream has a state, too.
CUstream_st* state_of(cudaStream_t stream);
bool is_legacy(const CUstream_st* stream);

}  // namespace lk::host
