// capture.cpp: see capture.h.
#include "capture.h"

#include <algorithm>

#include "context.h"

namespace lk::host {

thread_local Work* node_in_making = nullptr;

namespace {

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

std::vector<std::unique_ptr<Capture>>& captures() {
    static std::vector<std::unique_ptr<Capture>> live;
    return live;
}

void end(Capture* capture) {
    for (const auto& [stream, nodes] : capture->last) stream->capture = nullptr;
    const auto is_it = [capture](const std::unique_ptr<Capture>& one) { return one.get() == capture; };
    captures().erase(std::find_if(captures().begin(), captures().end(), is_it));
}

// Every stream that takes part has to be waited for by the one that began.
bool is_joined(const Capture& capture) {
    const std::vector<cudaGraphNode_t>& ends = capture.last.at(capture.origin);
    const auto is_followed = [&ends](cudaGraphNode_t node) {
        return std::any_of(ends.begin(), ends.end(), [node](cudaGraphNode_t one) { return comes_before(node, one); });
    };
    const auto are_followed = [&](const std::vector<cudaGraphNode_t>& nodes) {
        return std::all_of(nodes.begin(), nodes.end(), is_followed);
    };
    return are_followed(capture.left) &&
           std::all_of(capture.last.begin(), capture.last.end(), [&](const auto& one) { return are_followed(one.second); });
}

}  // namespace

bool is_capturing() { return !captures().empty(); }

bool capture_forbids() {
    if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
    const auto forbids = [](const std::unique_ptr<Capture>& one) {
        if (one->mode == cudaStreamCaptureModeRelaxed) return false;
        if (one->thread == std::this_thread::get_id()) return true;
        return one->mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
    };
    return std::any_of(captures().begin(), captures().end(), forbids);
}

bool capture_blocks_legacy() {
    for (const auto& capture : captures()) {
        for (const auto& [stream, nodes] : capture->last) {
            if (stream->blocking) return true;
        }
    }
    return false;
}

cudaError_t spoil_captures(cudaError_t error) {
    for (const auto& capture : captures()) capture->valid = false;
    return error;
}

cudaError_t spoil(Capture& capture, cudaError_t error) {
    capture.valid = false;
    return error;
}

bool is_live(const Capture* capture) {
    return std::any_of(captures().begin(), captures().end(), [capture](const auto& one) { return one.get() == capture; });
}

cudaGraphNode_t capture_work(CUstream_st& stream, Work work) {
    Capture& capture = *stream.capture;
    std::vector<cudaGraphNode_t>& last = capture.last[&stream];
    const cudaGraphNode_t node = add_node(*capture.graph, std::move(work), last);
    last = {node};
    return node;
}

cudaError_t join(CUstream_st& stream, Capture& capture, const std::vector<cudaGraphNode_t>& nodes) {
    if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
    if (is_legacy(&stream)) return spoil(capture, cudaErrorStreamCaptureImplicit);
    if (stream.capture && stream.capture != &capture) {
        spoil(*stream.capture, cudaErrorStreamCaptureMerge);
        return spoil(capture, cudaErrorStreamCaptureMerge);
    }
    stream.capture = &capture;
    std::vector<cudaGraphNode_t>& last = capture.last[&stream];
    for (const cudaGraphNode_t node : nodes) {
        if (std::find(last.begin(), last.end(), node) == last.end()) last.push_back(node);
    }
    return cudaSuccess;
}

void leave(CUstream_st& stream) {
    if (stream.capture->origin == &stream) return end(stream.capture);
    std::vector<cudaGraphNode_t>& nodes = stream.capture->last[&stream];
    std::vector<cudaGraphNode_t>& left = stream.capture->left;
    left.insert(left.end(), nodes.begin(), nodes.end());
    stream.capture->last.erase(&stream);
}

cudaError_t issue(cudaStream_t handle, Work work) {
    CUstream_st* stream = state_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
        if (!stream->capture->valid) return cudaErrorStreamCaptureInvalidated;
        capture_work(*stream, std::move(work));
        return cudaSuccess;
    }
    if (is_legacy(stream) && capture_blocks_legacy()) return spoil_captures(cudaErrorStreamCaptureImplicit);
    return run_work(*stream, work);
}

namespace {

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode, std::shared_ptr<CUgraph_st> graph,
                  const std::vector<cudaGraphNode_t>& before) {
    CUstream_st* stream = state_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (is_legacy(stream)) return cudaErrorStreamCaptureUnsupported;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
    if (stream->capture) return cudaErrorIllegalState;
    static unsigned long long numbers = 0;
    auto capture = std::make_unique<Capture>();
    capture->graph = std::move(graph);
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->last[stream] = before;
    capture->number = ++numbers;
    stream->capture = capture.get();
    captures().push_back(std::move(capture));
    return cudaSuccess;
}

}  // namespace

}  // namespace lk::host

using namespace lk::host;

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return api([=] { return begin(stream, mode, std::make_shared<CUgraph_st>(), {}); });
}

extern "C" cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* nodes,
                                                     const cudaGraphEdgeData*, size_t count, cudaStreamCaptureMode mode) {
    return api([=] {
        if (!is_graph(graph)) return cudaErrorInvalidValue;
        const std::shared_ptr<CUgraph_st> borrowed(graph, [](CUgraph_st*) {});
        return begin(stream, mode, borrowed, {nodes, nodes + (nodes ? count : 0)});
    });
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    return api([=] {
        CUstream_st* stream = state_of(handle);
        if (!stream) return cudaErrorInvalidResourceHandle;
        Capture* capture = stream->capture;
        if (!capture) return cudaErrorIllegalState;
        if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
        if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
            return cudaErrorStreamCaptureWrongThread;
        }
        const cudaError_t error = !capture->valid       ? cudaErrorStreamCaptureInvalidated
                                  : !is_joined(*capture) ? cudaErrorStreamCaptureUnjoined
                                                         : cudaSuccess;
        if (graph) *graph = error == cudaSuccess ? capture->graph.get() : nullptr;
        if (error == cudaSuccess && !is_graph(capture->graph.get())) own_graph(capture->graph);
        end(capture);
        return error;
    });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, size_t* count) {
    return api([=] {
        const CUstream_st* stream = state_of(handle);
        if (!stream) return cudaErrorInvalidResourceHandle;
        if (!status) return cudaErrorInvalidValue;
        if (is_legacy(stream) && capture_blocks_legacy()) return spoil_captures(cudaErrorStreamCaptureImplicit);
        const Capture* capture = stream->capture;
        *status = !capture         ? cudaStreamCaptureStatusNone
                  : capture->valid ? cudaStreamCaptureStatusActive
                                   : cudaStreamCaptureStatusInvalidated;
        if (!capture || !capture->valid) return cudaSuccess;
        const std::vector<cudaGraphNode_t>& last = capture->last.at(const_cast<CUstream_st*>(stream));
        if (id) *id = capture->number;
        if (graph) *graph = capture->graph.get();
        if (nodes) *nodes = last.data();
        if (count) *count = last.size();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
    if (edges) *edges = nullptr;
    return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, count);
}

extern "C" cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, static_cast<size_t*>(nullptr));
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* nodes, size_t count, unsigned int flags) {
    return api([=] {
        CUstream_st* stream = state_of(handle);
        if (!stream) return cudaErrorInvalidResourceHandle;
        if (!stream->capture) return cudaErrorIllegalState;
        std::vector<cudaGraphNode_t>& last = stream->capture->last[stream];
        if (flags == cudaStreamSetCaptureDependencies) last.clear();
        last.insert(last.end(), nodes, nodes + count);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return api([=] {
        if (!mode || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
        std::swap(*mode, mode_of_thread);
        return cudaSuccess;
    });
}
