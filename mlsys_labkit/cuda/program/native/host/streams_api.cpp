// streams_api.cpp: streams and events. Everything runs in the order it is issued, so a stream is only a name.
#include <chrono>
#include <set>

#include "context.h"
#include "lk/host/streams.h"
#include "journal.h"

using namespace lk::host;
using Clock = std::chrono::steady_clock;

struct CUstream_st {
    int priority;
};

struct CUevent_st {
    bool timed;
    bool recorded;
    Clock::time_point time;
};

namespace {

constexpr int greatest_priority = -5;

std::set<cudaStream_t>& streams() {
    static std::set<cudaStream_t> live;
    return live;
}

std::set<cudaEvent_t>& events() {
    static std::set<cudaEvent_t> live;
    return live;
}

bool known(cudaStream_t stream) {
    return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread || streams().count(stream);
}

cudaError_t with_stream(cudaStream_t stream) { return known(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; }

cudaError_t with_event(cudaEvent_t event) {
    return events().count(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

}  // namespace

// A kernel's streams order what it launches, and that runs in the order of the launches.
extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int priority) {
    if (in_kernel()) {
        *stream = cudaStreamLegacy;
        return cudaSuccess;
    }
    return api([=] {
        if (!stream) return cudaErrorInvalidValue;
        *stream = new CUstream_st{priority};
        streams().insert(*stream);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

extern "C" cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

extern "C" cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    return api([=] {
        if (!known(stream)) return cudaErrorInvalidResourceHandle;
        *priority = streams().count(stream) ? stream->priority : 0;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (in_kernel()) return cudaSuccess;
    return api([=] {
        if (streams().erase(stream) == 0) return cudaErrorInvalidResourceHandle;
        delete stream;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return api_after_wait([=] { return with_stream(stream); });
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return api_after_wait([=] { return with_stream(stream); });
}

extern "C" cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                             unsigned int) {
    const cudaError_t error = cudaStreamSynchronize(stream);
    if (error != cudaErrorInvalidResourceHandle) callback(stream, error, data);
    return error;
}

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    const cudaError_t error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) function(data);
    return error;
}

extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api([=] {
        if (least) *least = 0;
        if (greatest) *greatest = greatest_priority;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    return api([=] { return known(stream) ? with_event(event) : cudaErrorInvalidResourceHandle; });
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    return api([=] {
        if (!event) return cudaErrorInvalidValue;
        *event = new CUevent_st{(flags & cudaEventDisableTiming) == 0, false, {}};
        events().insert(*event);
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) { return cudaEventCreateWithFlags(event, flags); }

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return api([=] {
        if (events().erase(event) == 0) return cudaErrorInvalidResourceHandle;
        delete event;
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return api([=] {
        if (!known(stream) || with_event(event) != cudaSuccess) return cudaErrorInvalidResourceHandle;
        event->recorded = true;
        event->time = Clock::now();
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
    return cudaEventRecord(event, stream);
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return api_after_wait([=] { return with_event(event); });
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event) { return api_after_wait([=] { return with_event(event); }); }

extern "C" cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return api_after_wait([=] {
        if (!milliseconds) return cudaErrorInvalidValue;
        for (const cudaEvent_t event : {start, end}) {
            if (with_event(event) != cudaSuccess || !event->timed || !event->recorded) {
                return cudaErrorInvalidResourceHandle;
            }
        }
        journal().note_once("times of CUDA events are simulated, not a GPU's time");
        *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
        return cudaSuccess;
    });
}
