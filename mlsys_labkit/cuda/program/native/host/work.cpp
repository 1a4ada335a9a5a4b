// work.cpp: see work.h.
#include "work.h"

#include "capture.h"
#include "context.h"
#include "outcome.h"
#include "settings.h"
#include "unwritten.h"

namespace lk::host {

namespace {

constexpr size_t most_rows = 4096;  // that are compared with what others touch

void add_rows(std::vector<Span>& spans, const Rows& rows, const Transfer& size, bool writes) {
    if (settings().mode != Mode::check || size.height * size.depth > most_rows) return;
    for (size_t slice = 0; slice < size.depth; ++slice) {
        for (size_t row = 0; row < size.height; ++row) {
            const uint64_t begin = reinterpret_cast<uint64_t>(rows.data) + slice * rows.slice_pitch + row * rows.pitch;
            spans.push_back({begin, begin + size.width, writes});
        }
    }
}

}  // namespace

cudaError_t run_work(CUstream_st& stream, const Work& work) {
    if (work.child) return run_graph(*work.child, stream);
    for (const Span& span : work.spans) {
        if (!span.writes) note_unwritten(work.site, span.begin, span.end);
    }
    const cudaError_t error = work.run ? work.run() : cudaSuccess;
    if (error == cudaSuccess) ordering().add(stream, work.site, {work.spans, take_kernel_footprint()});
    return error;
}

Work copying(const Transfer& transfer, uint64_t pc) {
    Work work;
    work.site = {"the copy", "", 0, pc};
    add_rows(work.spans, transfer.to, transfer, true);
    add_rows(work.spans, transfer.from, transfer, false);
    work.type = cudaGraphNodeTypeMemcpy;
    work.run = [transfer] { return transfer.empty() ? cudaSuccess : carry_out(transfer); };
    work.copy.srcPtr = {transfer.from.data, transfer.from.pitch, transfer.width, transfer.height};
    work.copy.dstPtr = {transfer.to.data, transfer.to.pitch, transfer.width, transfer.height};
    work.copy.extent = {transfer.width, transfer.height, transfer.depth};
    work.copy.kind = transfer.kind;
    return work;
}

cudaError_t copying(const cudaMemcpy3DParms& parameters, Work& work) {
    Transfer transfer;
    cudaError_t error = read_parameters(parameters, transfer);
    if (error == cudaSuccess) error = check(transfer);
    if (error != cudaSuccess) return error;
    work = copying(transfer);
    work.copy = parameters;
    return cudaSuccess;
}

Work filling(const Fill& fill, uint64_t pc) {
    Work work;
    work.site = {"the fill", "", 0, pc};
    const Transfer rows{{}, {}, fill.width * fill.element_bytes, fill.height};
    add_rows(work.spans, {fill.data, fill.pitch, 0}, rows, true);
    work.type = cudaGraphNodeTypeMemset;
    work.run = [fill] { return carry_out(fill); };
    work.fill = {fill.data, fill.pitch, fill.value, fill.element_bytes, fill.width, fill.height};
    return work;
}

cudaError_t filling(const cudaMemsetParams& parameters, Work& work) {
    const unsigned int size = parameters.elementSize;
    if (size != 1 && size != 2 && size != 4) return cudaErrorInvalidValue;
    const Fill fill{static_cast<char*>(parameters.dst), parameters.pitch, parameters.value, size, parameters.width, parameters.height};
    const cudaError_t error = check(fill);
    if (error != cudaSuccess) return error;
    work = filling(fill);
    work.fill = parameters;
    return cudaSuccess;
}

Work calling(cudaHostFn_t function, void* data) {
    Work work;
    work.type = cudaGraphNodeTypeHost;
    work.run = [=] {
        const cudaError_t error = context().synchronize();
        if (error == cudaSuccess) {
            const InCallback inside;
            function(data);
        }
        return error;
    };
    work.host = {function, data};
    return work;
}

cudaError_t launching(const cudaKernelNodeParams& parameters, const GraphKernel& how, Work& work) {
    if (!parameters.func) return cudaErrorInvalidDeviceFunction;
    if (!parameters.kernelParams || parameters.extra) return cudaErrorInvalidValue;
    const Configuration configuration = {parameters.gridDim, parameters.blockDim, parameters.sharedMemBytes, nullptr, false,
                                         how.file, how.line};
    node_in_making = &work;
    const cudaError_t error = how.launch(parameters.func, configuration, parameters.kernelParams);
    node_in_making = nullptr;
    return error;
}

}  // namespace lk::host
