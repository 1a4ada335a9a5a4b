// streams_api.cpp: streams and events. Everything runs in the order it is issued, so a stream is only a name.
#include <chrono>
#include <set>

#include "capture.h"
#include "context.h"
#include "journal.h"
#include "lk/host/streams.h"

using namespace lk::host;
using Clock = std::chrono::steady_clock;

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

bool known(cudaStream_t stream) { return state_of(stream) != nullptr; }

CUstream_st legacy_stream;
CUstream_st stream_of_thread;

cudaError_t wait_for(cudaStream_t handle) {
    return api([=] {
        CUstream_st* stream = state_of(handle);
        if (!stream) return cudaErrorInvalidResourceHandle;
        if (stream->capture) return spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
        if (is_legacy(stream) && capture_blocks_legacy()) return spoil_captures(cudaErrorStreamCaptureImplicit);
        ordering().host_waits_for(ordering().before(*stream));
        return context().synchronize();
    });
}

cudaError_t with_event(cudaEvent_t event) {
    return events().count(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t wait_for(cudaEvent_t event) {
    return api([=] {
        if (with_event(event) != cudaSuccess) return cudaErrorInvalidResourceHandle;
        if (event->capture) return is_live(event->capture) ? spoil(*event->capture, cudaErrorCapturedEvent) : cudaErrorCapturedEvent;
        ordering().host_waits_for(event->clock);
        return context().synchronize();
    });
}

cudaError_t record(cudaEvent_t event) {
    event->recorded = true;
    event->time = Clock::now();
    return cudaSuccess;
}

Work event_work(cudaGraphNodeType type, cudaEvent_t event) {
    Work work;
    work.type = type;
    work.run = [=] {
        if (with_event(event) != cudaSuccess) return cudaErrorInvalidResourceHandle;
        return type == cudaGraphNodeTypeEventRecord ? record(event) : cudaSuccess;
    };
    return work;
}

}  // namespace

CUstream_st* lk::host::state_of(cudaStream_t stream) {
    if (!stream || stream == cudaStreamLegacy) return &legacy_stream;
    if (stream == cudaStreamPerThread) return &stream_of_thread;
    return streams().count(stream) ? stream : nullptr;
}

bool lk::host::is_legacy(const CUstream_st* stream) { return stream == &legacy_stream; }

lk::host::Work lk::host::recording(cudaEvent_t event) { return event_work(cudaGraphNodeTypeEventRecord, event); }

lk::host::Work lk::host::waiting(cudaEvent_t event) { return event_work(cudaGraphNodeTypeWaitEvent, event); }

// A kernel's streams order what it launches, and that runs in the order of the launches.
extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
    if (in_kernel()) {
        *stream = cudaStreamLegacy;
        return cudaSuccess;
    }
    return api([=] {
        if (!stream) return cudaErrorInvalidValue;
        *stream = new CUstream_st{priority, (flags & cudaStreamNonBlocking) == 0};
        streams().insert(*stream);
        ordering().add_stream(**stream);
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
        *priority = state_of(stream)->priority;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (in_kernel()) return cudaSuccess;
    return api([=] {
        if (streams().erase(stream) == 0) return cudaErrorInvalidResourceHandle;
        if (stream->capture) leave(*stream);
        forget_stream(*stream);
        delete stream;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return wait_for(stream); }

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream) { return wait_for(stream); }

extern "C" cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                             unsigned int) {
    const cudaError_t error = cudaStreamSynchronize(stream);
    const InCallback inside;
    if (error != cudaErrorInvalidResourceHandle) callback(stream, error, data);
    return error;
}

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    return api([=] { return issue(stream, calling(function, data)); });
}

extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api([=] {
        if (least) *least = 0;
        if (greatest) *greatest = greatest_priority;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags) {
    const uint64_t pc = reinterpret_cast<uint64_t>(__builtin_return_address(0));
    return api([=] {
        CUstream_st* stream = state_of(handle);
        if (!stream || with_event(event) != cudaSuccess) return cudaErrorInvalidResourceHandle;
        if (flags == cudaEventWaitExternal) return issue(handle, waiting(event));
        if (event->capture) {
            if (!is_live(event->capture)) return cudaErrorCapturedEvent;
            return join(*stream, *event->capture, event->nodes);
        }
        if (!stream->capture && event->recorded) join(stream->clock, event->clock);
        if (!stream->capture && !event->recorded) stream->idle_wait = pc;
        // What it waits for is no part of the capture.
        return stream->capture && event->recorded ? spoil(*stream->capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    return api([=] {
        if (!event) return cudaErrorInvalidValue;
        *event = new CUevent_st;
        (*event)->timed = (flags & cudaEventDisableTiming) == 0;
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) { return cudaEventRecordWithFlags(event, handle); }

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned int flags) {
    return api([=] {
        CUstream_st* stream = state_of(handle);
        if (!stream || with_event(event) != cudaSuccess) return cudaErrorInvalidResourceHandle;
        event->capture = nullptr;
        event->clock = ordering().before(*stream);
        if (!stream->capture || flags == cudaEventRecordExternal) return issue(handle, recording(event));
        if (!stream->capture->valid) return cudaErrorStreamCaptureInvalidated;
        event->capture = stream->capture;
        event->nodes = stream->capture->last[stream];
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait_for(event); }

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event) { return wait_for(event); }

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
