// transfers.cpp: see transfers.h.
#include "transfers.h"

#include <cstring>

#include "context.h"
#include "heap.h"
#include "outcome.h"

namespace lk::host {

namespace {

// Whether [pointer, pointer + bytes) may be a copy's end on the device (or, not on_device, on the host).
bool fits(const void* pointer, size_t bytes, bool on_device) {
    uint64_t begin = 0;
    const Allocation* allocation = heap().find(pointer, &begin);
    if (!allocation) return true;  // host memory, or a variable of the program that a kernel sees too
    if (allocation->kind == Kind::device && !on_device) return false;
    if (allocation->kind == Kind::registered) return true;
    return reinterpret_cast<uint64_t>(pointer) + bytes <= begin + allocation->bytes;
}

bool is_device(const void* pointer) {
    const Allocation* allocation = heap().find(pointer, nullptr);
    return allocation && allocation->kind == Kind::device;
}

// A plain host pointer where the direction says device. Variables marked __device__ are found through their symbols only.
bool plainly_host(const void* pointer) { return !heap().find(pointer, nullptr) && !in_program(pointer); }

size_t reach(const Rows& rows, const Transfer& transfer) {
    return rows.slice_pitch * (transfer.depth - 1) + rows.pitch * (transfer.height - 1) + transfer.width;
}

// One end of a copy. Pointers count the position in bytes, arrays in elements.
bool read_end(const cudaArray_t array, const cudaPitchedPtr& pointer, const cudaPos& at, Rows& rows, size_t& element) {
    if ((array != nullptr) == (pointer.ptr != nullptr)) return false;
    if (array) {
        element = array->element_bytes;
        rows = {array->data, array->row_bytes(), array->slice_bytes()};
        rows.data += at.z * rows.slice_pitch + at.y * rows.pitch + at.x * element;
        return true;
    }
    rows = {static_cast<char*>(pointer.ptr), pointer.pitch, pointer.pitch * pointer.ysize};
    rows.data += at.z * rows.slice_pitch + at.y * rows.pitch + at.x;
    return true;
}

bool inside(const cudaArray_t array, const cudaPos& at, const cudaExtent& extent) {
    return !array || (at.x + extent.width <= array->width && at.y + extent.height <= array->rows() &&
                      at.z + extent.depth <= array->slices());
}

}  // namespace

bool in_program(const void* pointer) { return program().image().holds(reinterpret_cast<uint64_t>(pointer), 1); }

Transfer plain_transfer(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return plane_transfer(to, bytes, from, bytes, bytes, 1, kind);
}

Transfer plane_transfer(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                        cudaMemcpyKind kind) {
    Transfer transfer;
    transfer.to = {static_cast<char*>(to), to_pitch, to_pitch * height};
    transfer.from = {static_cast<char*>(const_cast<void*>(from)), from_pitch, from_pitch * height};
    transfer.width = width;
    transfer.height = height;
    transfer.kind = kind;
    return transfer;
}

cudaError_t read_parameters(const cudaMemcpy3DParms& parameters, Transfer& transfer) {
    size_t element = 1;
    transfer = {};
    if (!read_end(parameters.srcArray, parameters.srcPtr, parameters.srcPos, transfer.from, element)) return cudaErrorInvalidValue;
    if (!read_end(parameters.dstArray, parameters.dstPtr, parameters.dstPos, transfer.to, element)) return cudaErrorInvalidValue;
    if (!inside(parameters.srcArray, parameters.srcPos, parameters.extent)) return cudaErrorInvalidValue;
    if (!inside(parameters.dstArray, parameters.dstPos, parameters.extent)) return cudaErrorInvalidValue;
    transfer.width = parameters.extent.width * element;
    transfer.height = parameters.extent.height;
    transfer.depth = parameters.extent.depth;
    transfer.kind = parameters.kind;
    return cudaSuccess;
}

cudaError_t check(const Transfer& transfer) {
    if (transfer.empty()) return cudaSuccess;
    const cudaMemcpyKind kind = transfer.kind;
    const void* to = transfer.to.data;
    const void* from = transfer.from.data;
    if (transfer.height > 1 && (transfer.width > transfer.to.pitch || transfer.width > transfer.from.pitch)) {
        return cudaErrorInvalidPitchValue;
    }
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (!to || !from) return cudaErrorInvalidValue;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) {
        to_device = is_device(to);
        from_device = is_device(from);
    }
    if (to_device && plainly_host(to)) return cudaErrorInvalidValue;
    if (from_device && plainly_host(from)) return cudaErrorInvalidValue;
    const bool good = fits(to, reach(transfer.to, transfer), to_device) && fits(from, reach(transfer.from, transfer), from_device);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t carry_out(const Transfer& transfer) {
    const Opened open;
    for (size_t slice = 0; slice < transfer.depth; ++slice) {
        for (size_t row = 0; row < transfer.height; ++row) {
            memmove(transfer.to.data + slice * transfer.to.slice_pitch + row * transfer.to.pitch,
                    transfer.from.data + slice * transfer.from.slice_pitch + row * transfer.from.pitch, transfer.width);
        }
    }
    return cudaSuccess;
}

cudaError_t check(const Fill& fill) {
    if (fill.width == 0 || fill.height == 0) return cudaSuccess;
    if (!fill.data || plainly_host(fill.data)) return cudaErrorInvalidValue;
    const size_t width = fill.width * fill.element_bytes;
    if (fill.height > 1 && fill.pitch < width) return cudaErrorInvalidValue;
    return fits(fill.data, fill.pitch * (fill.height - 1) + width, true) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t carry_out(const Fill& fill) {
    const Opened open;
    for (size_t row = 0; row < fill.height; ++row) {
        char* first = fill.data + row * fill.pitch;
        if (fill.element_bytes == 1) {
            memset(first, static_cast<int>(fill.value), fill.width);
            continue;
        }
        for (size_t i = 0; i < fill.width; ++i) memcpy(first + i * fill.element_bytes, &fill.value, fill.element_bytes);
    }
    return cudaSuccess;
}

}  // namespace lk::host
