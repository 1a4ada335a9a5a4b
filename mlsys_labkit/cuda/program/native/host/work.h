// work.h: one piece of work for a stream: done at once, or kept in a graph while the stream captures.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kept_arguments.h"
#include "lk/host/graphs.h"
#include "ordering.h"
#include "transfers.h"

namespace lk::host {

// A launch that can be repeated.
struct KernelCall {
    std::string label;
    const void* kernel = nullptr;
    Configuration configuration{};
    void** frame = nullptr;
    std::optional<KeptArguments> kept;

    // Takes the arguments over, so that they outlive the caller's.
    void keep(const Body& body) { frame = kept.emplace(body, frame).frame(); }
};

struct Work {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    std::function<cudaError_t()> run;  // under the context's lock
    Site site;
    std::vector<Span> spans;

    // What a node's parameters are asked for, by its type.
    std::shared_ptr<KernelCall> kernel;
    cudaMemcpy3DParms copy{};
    cudaMemsetParams fill{};
    cudaHostNodeParams host{};
    std::shared_ptr<CUgraph_st> child;
};

// An error where the stream is none, or may not take work now.
cudaError_t issue(cudaStream_t stream, Work work);

// pc: where the program asked for it.
Work copying(const Transfer& transfer, uint64_t pc = 0);
Work filling(const Fill& fill, uint64_t pc = 0);
Work calling(cudaHostFn_t function, void* data);
Work recording(cudaEvent_t event);
Work waiting(cudaEvent_t event);

// The same, from a node's parameters; an error where they make no sense.
cudaError_t copying(const cudaMemcpy3DParms& parameters, Work& work);
cudaError_t filling(const cudaMemsetParams& parameters, Work& work);

// The launch of the kernel at an address, not done: what a graph's node does.
cudaError_t launching(const cudaKernelNodeParams& parameters, const GraphKernel& how, Work& work);

// Runs work that is not captured, for the stream.
cudaError_t run_work(CUstream_st& stream, const Work& work);

}  // namespace lk::host
