// memory_api.cpp: cudaMalloc and its kin, cudaMemcpy and its kin.
#include <cstring>

#include "context.h"
#include "heap.h"
#include "lk/host/memory.h"
#include "outcome.h"

using namespace lk::host;

namespace {

constexpr size_t pitch_alignment = 512;

cudaError_t allocate(void** pointer, size_t bytes, Kind kind, const void* caller = nullptr) {
    return api_after_wait([=] {
        if (!pointer) return cudaErrorInvalidValue;
        if (bytes == 0) {
            *pointer = nullptr;
            return cudaSuccess;
        }
        *pointer = heap().allocate(bytes, kind, reinterpret_cast<uint64_t>(caller));
        return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
    });
}

cudaError_t release(void* pointer, bool pinned) {
    return api_after_wait([=] {
        if (!pointer || heap().release(pointer, pinned)) return cudaSuccess;
        return cudaErrorInvalidValue;
    });
}

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

bool in_program(const void* pointer) { return program().image().holds(reinterpret_cast<uint64_t>(pointer), 1); }

// A plain host pointer where the direction says device. Variables marked __device__ are found through their symbols only.
bool plainly_host(const void* pointer) { return !heap().find(pointer, nullptr) && !in_program(pointer); }

cudaError_t check_copy(void* to, const void* from, size_t to_bytes, size_t from_bytes, cudaMemcpyKind kind) {
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
    const bool good = fits(to, to_bytes, to_device) && fits(from, from_bytes, from_device);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return cudaSuccess;
    const cudaError_t error = check_copy(to, from, bytes, bytes, kind);
    if (error != cudaSuccess) return error;
    const Opened open;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                      cudaMemcpyKind kind) {
    if (width == 0 || height == 0) return cudaSuccess;
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    const size_t to_bytes = to_pitch * (height - 1) + width;
    const size_t from_bytes = from_pitch * (height - 1) + width;
    const cudaError_t error = check_copy(to, from, to_bytes, from_bytes, kind);
    if (error != cudaSuccess) return error;
    const Opened open;
    for (size_t row = 0; row < height; ++row) {
        memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
    return cudaSuccess;
}

cudaError_t fill(void* pointer, int value, size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (!pointer || plainly_host(pointer) || !fits(pointer, bytes, true)) return cudaErrorInvalidValue;
    const Opened open;
    memset(pointer, value, bytes);
    return cudaSuccess;
}

// Hints are for managed memory, or for a variable marked __managed__.
cudaError_t accept_hint(const void* pointer) {
    return api([=] {
        const Allocation* allocation = heap().find(pointer, nullptr);
        const bool managed = allocation ? allocation->kind == Kind::managed : in_program(pointer);
        return managed ? cudaSuccess : cudaErrorInvalidValue;
    });
}

cudaError_t the_only_pool(cudaMemPool_t* pool, int device) {
    return api([=] {
        if (device != 0) return cudaErrorInvalidDevice;
        *pool = reinterpret_cast<cudaMemPool_t>(1);
        return cudaSuccess;
    });
}

}  // namespace

extern "C" cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    return allocate(pointer, bytes, Kind::device, __builtin_return_address(0));
}

extern "C" cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
    return allocate(pointer, bytes, Kind::device, __builtin_return_address(0));
}

extern "C" cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return allocate(pointer, bytes, Kind::pinned); }

extern "C" cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
    return allocate(pointer, bytes, Kind::pinned);
}

extern "C" cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int) {
    if (bytes == 0) return api([] { return cudaErrorInvalidValue; });
    return allocate(pointer, bytes, Kind::managed);
}

extern "C" cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width_bytes, size_t height) {
    if (!pitch) return api([] { return cudaErrorInvalidValue; });
    *pitch = (width_bytes + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
    return allocate(pointer, *pitch * height, Kind::device);
}

extern "C" cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width, extent.height * extent.depth);
}

extern "C" cudaError_t cudaFree(void* pointer) { return release(pointer, false); }

extern "C" cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return release(pointer, false); }

extern "C" cudaError_t cudaFreeHost(void* pointer) { return release(pointer, true); }

extern "C" cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int) {
    return api([=] {
        if (!pointer || bytes == 0) return cudaErrorInvalidValue;
        return heap().enlist(pointer, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
    });
}

extern "C" cudaError_t cudaHostUnregister(void* pointer) {
    return api([=] { return heap().delist(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered; });
}

extern "C" cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int) {
    return api([=] {
        const Allocation* allocation = heap().find(host, nullptr);
        if (!allocation || allocation->kind == Kind::device) return cudaErrorInvalidValue;
        *device = host;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return api([=] {
        *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(pointer)};
        const Allocation* allocation = heap().find(pointer, nullptr);
        if (!allocation) return cudaSuccess;
        attributes->device = 0;
        attributes->devicePointer = const_cast<void*>(pointer);
        if (allocation->kind == Kind::device) {
            attributes->type = cudaMemoryTypeDevice;
            attributes->hostPointer = nullptr;
        } else {
            attributes->type = allocation->kind == Kind::managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost;
        }
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    return api([=] {
        *free_bytes = heap().free_bytes();
        *total_bytes = heap().total_bytes();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return api_after_wait([=] { return copy(to, from, bytes, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return api([=] { return copy(to, from, bytes, kind); });
}

extern "C" cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width_bytes,
                                    size_t height, cudaMemcpyKind kind) {
    return api_after_wait([=] { return copy_rows(to, to_pitch, from, from_pitch, width_bytes, height, kind); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width_bytes,
                              size_t height, cudaMemcpyKind kind, cudaStream_t) {
    return api([=] { return copy_rows(to, to_pitch, from, from_pitch, width_bytes, height, kind); });
}

extern "C" cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    return api_after_wait([=] { return fill(pointer, value, bytes); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t) {
    return api([=] { return fill(pointer, value, bytes); });
}

extern "C" cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width_bytes, size_t height) {
    return api_after_wait([=] {
        for (size_t row = 0; row < height; ++row) {
            const cudaError_t error = fill(static_cast<char*>(pointer) + row * pitch, value, width_bytes);
            if (error != cudaSuccess) return error;
        }
        return cudaSuccess;
    });
}

extern "C" cudaError_t lk_copy_to_symbol(const void* symbol, size_t symbol_bytes, const void* from, size_t bytes,
                                         size_t offset, cudaMemcpyKind) {
    return api_after_wait([=] {
        if (!from || offset > symbol_bytes || bytes > symbol_bytes - offset) return cudaErrorInvalidValue;
        const Opened open;
        memmove(static_cast<char*>(const_cast<void*>(symbol)) + offset, from, bytes);
        return cudaSuccess;
    });
}

extern "C" cudaError_t lk_copy_from_symbol(void* to, const void* symbol, size_t symbol_bytes, size_t bytes,
                                           size_t offset, cudaMemcpyKind) {
    return api_after_wait([=] {
        if (!to || offset > symbol_bytes || bytes > symbol_bytes - offset) return cudaErrorInvalidValue;
        const Opened open;
        memmove(to, static_cast<const char*>(symbol) + offset, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t, int, cudaStream_t) { return accept_hint(pointer); }

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t, cudaMemLocation, unsigned int, cudaStream_t) {
    return accept_hint(pointer);
}

cudaError_t cudaMemAdvise(const void* pointer, size_t, cudaMemoryAdvise, int) { return accept_hint(pointer); }

cudaError_t cudaMemAdvise(const void* pointer, size_t, cudaMemoryAdvise, cudaMemLocation) {
    return accept_hint(pointer);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned int) {
    return api([] { return cudaSuccess; });
}

extern "C" cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    return the_only_pool(pool, device);
}

extern "C" cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return the_only_pool(pool, device); }

extern "C" cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
    return api([] { return cudaSuccess; });
}

extern "C" cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return api([] { return cudaSuccess; }); }

// There is one device: a copy between two is refused, as cudaSetDevice(1) is.
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
    if (to_device != 0 || from_device != 0) return api([] { return cudaErrorInvalidDevice; });
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
    if (to_device != 0 || from_device != 0) return api([] { return cudaErrorInvalidDevice; });
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
