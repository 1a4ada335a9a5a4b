// capture.h: streams that capture: their work becomes nodes of a graph.
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "graph.h"
#include "stream_state.h"

namespace lk::host {

struct Capture {
    std::shared_ptr<CUgraph_st> graph;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    CUstream_st* origin = nullptr;
    std::map<CUstream_st*, std::vector<cudaGraphNode_t>> last;  // of each stream that takes part: what its next work depends on
    std::vector<cudaGraphNode_t> left;  // the last of streams that were destroyed
    bool valid = true;
    unsigned long long number = 0;
};

// Whether any stream captures.
bool is_capturing();
// Whether some capture forbids the calling thread what is no stream's work: cudaMalloc, cudaDeviceSynchronize.
bool capture_forbids();
// Whether a stream captures that would wait for the legacy stream.
bool capture_blocks_legacy();
// Work in these streams can no longer be captured; returns the error.
cudaError_t spoil_captures(cudaError_t error);
cudaError_t spoil(Capture& capture, cudaError_t error);
bool is_live(const Capture* capture);
// Adds a node behind what the stream has captured so far.
cudaGraphNode_t capture_work(CUstream_st& stream, Work work);
// The stream takes part from now on, and its next work waits for the nodes too.
cudaError_t join(CUstream_st& stream, Capture& capture, const std::vector<cudaGraphNode_t>& nodes);
// The stream is about to end.
void leave(CUstream_st& stream);
// Where the next captured launch of this thread goes instead: the node that is being made by hand.
extern thread_local Work* node_in_making;

}  // namespace lk::host
