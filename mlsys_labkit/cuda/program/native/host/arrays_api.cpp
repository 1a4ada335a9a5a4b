// arrays_api.cpp: CUDA arrays, and the copies that know them.
#include <set>

#include "context.h"
#include "heap.h"
#include "transfers.h"
#include "work.h"

using namespace lk::host;

namespace {

std::set<cudaArray_t>& arrays() {
    static std::set<cudaArray_t> live;
    return live;
}

bool known(const lk::Array* array) { return arrays().count(const_cast<cudaArray_t>(array)) != 0; }

size_t bytes_of(const cudaChannelFormatDesc& format) {
    return static_cast<size_t>(format.x + format.y + format.z + format.w) / 8;
}

cudaError_t copy(const cudaMemcpy3DParms& parameters, cudaStream_t stream) {
    if (parameters.srcArray && !known(parameters.srcArray)) return cudaErrorInvalidValue;
    if (parameters.dstArray && !known(parameters.dstArray)) return cudaErrorInvalidValue;
    Work work;
    const cudaError_t error = copying(parameters, work);
    return error == cudaSuccess ? issue(stream, std::move(work)) : error;
}

// A rectangle of a CUDA array, beginning at x bytes of row y.
struct Part {
    const lk::Array* array;
    size_t x;
    size_t y;

    bool holds(size_t width, size_t height) const {
        return known(array) && x + width <= array->row_bytes() && y + height <= array->rows();
    }
    char* data() const { return array->data + y * array->row_bytes() + x; }
    size_t pitch() const { return array->row_bytes(); }
};

cudaError_t copy_in(const Part& to, const void* from, size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                    cudaStream_t stream) {
    if (!to.holds(width, height)) return cudaErrorInvalidValue;
    const Transfer transfer = plane_transfer(to.data(), to.pitch(), from, pitch, width, height, kind);
    const cudaError_t error = check(transfer);
    return error == cudaSuccess ? issue(stream, copying(transfer)) : error;
}

cudaError_t copy_out(void* to, size_t pitch, const Part& from, size_t width, size_t height, cudaMemcpyKind kind,
                     cudaStream_t stream) {
    if (!from.holds(width, height)) return cudaErrorInvalidValue;
    const Transfer transfer = plane_transfer(to, pitch, from.data(), from.pitch(), width, height, kind);
    const cudaError_t error = check(transfer);
    return error == cudaSuccess ? issue(stream, copying(transfer)) : error;
}

}  // namespace

extern "C" cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format, cudaExtent extent,
                                         unsigned int flags) {
    return api_after_wait([=] {
        if (!array || !format || extent.width == 0 || bytes_of(*format) == 0) return cudaErrorInvalidValue;
        if ((flags & cudaArrayCubemap) && (extent.width != extent.height || extent.depth % 6 != 0)) return cudaErrorInvalidValue;
        lk::Array made{*format, extent.width, extent.height, extent.depth, flags, bytes_of(*format), nullptr};
        made.data = static_cast<char*>(heap().allocate(made.slice_bytes() * made.slices(), Kind::device));
        if (!made.data) return cudaErrorMemoryAllocation;
        *array = new lk::Array(made);
        arrays().insert(*array);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, size_t width, size_t height,
                                       unsigned int flags) {
    return cudaMalloc3DArray(array, format, {width, height, 0}, flags);
}

extern "C" cudaError_t cudaFreeArray(cudaArray_t array) {
    return api_after_wait([=] {
        if (!array) return cudaSuccess;
        if (arrays().erase(array) == 0) return cudaErrorInvalidValue;
        heap().release(array->data, false);
        delete array;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned int* flags,
                                        cudaArray_t array) {
    return api([=] {
        if (!known(array)) return cudaErrorInvalidValue;
        if (format) *format = array->format;
        if (extent) *extent = {array->width, array->height, array->depth};
        if (flags) *flags = array->flags;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
    return api_after_wait([=] { return parameters ? copy(*parameters, nullptr) : cudaErrorInvalidValue; },
                          cudaErrorStreamCaptureImplicit);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
    return api([=] { return parameters ? copy(*parameters, stream) : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x_bytes, size_t y, const void* from, size_t pitch,
                                           size_t width_bytes, size_t height, cudaMemcpyKind kind) {
    return api_after_wait([=] { return copy_in({to, x_bytes, y}, from, pitch, width_bytes, height, kind, nullptr); },
                          cudaErrorStreamCaptureImplicit);
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x_bytes, size_t y, const void* from, size_t pitch,
                                     size_t width_bytes, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return api([=] { return copy_in({to, x_bytes, y}, from, pitch, width_bytes, height, kind, stream); });
}

extern "C" cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x_bytes, size_t y,
                                             size_t width_bytes, size_t height, cudaMemcpyKind kind) {
    return api_after_wait([=] { return copy_out(to, pitch, {from, x_bytes, y}, width_bytes, height, kind, nullptr); },
                          cudaErrorStreamCaptureImplicit);
}

cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x_bytes, size_t y,
                                       size_t width_bytes, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return api([=] { return copy_out(to, pitch, {from, x_bytes, y}, width_bytes, height, kind, stream); });
}

extern "C" cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x_bytes, size_t to_y, cudaArray_const_t from,
                                                size_t from_x_bytes, size_t from_y, size_t width_bytes, size_t height,
                                                cudaMemcpyKind kind) {
    return api_after_wait([=] {
        const Part source{from, from_x_bytes, from_y};
        if (!source.holds(width_bytes, height)) return cudaErrorInvalidValue;
        return copy_in({to, to_x_bytes, to_y}, source.data(), source.pitch(), width_bytes, height, kind, nullptr);
    });
}

// Rows follow each other without gaps, so that a copy may run over their ends.
extern "C" cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x_bytes, size_t y, const void* from, size_t bytes,
                                         cudaMemcpyKind kind) {
    return api_after_wait([=] {
        if (!known(to) || y * to->row_bytes() + x_bytes + bytes > to->slice_bytes()) return cudaErrorInvalidValue;
        const Transfer transfer = plain_transfer(to->data + y * to->row_bytes() + x_bytes, from, bytes, kind);
        const cudaError_t error = check(transfer);
        return error == cudaSuccess ? issue(nullptr, copying(transfer)) : error;
    });
}

extern "C" cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x_bytes, size_t y, size_t bytes,
                                           cudaMemcpyKind kind) {
    return api_after_wait([=] {
        if (!known(from) || y * from->row_bytes() + x_bytes + bytes > from->slice_bytes()) return cudaErrorInvalidValue;
        const Transfer transfer = plain_transfer(to, from->data + y * from->row_bytes() + x_bytes, bytes, kind);
        const cudaError_t error = check(transfer);
        return error == cudaSuccess ? issue(nullptr, copying(transfer)) : error;
    });
}
