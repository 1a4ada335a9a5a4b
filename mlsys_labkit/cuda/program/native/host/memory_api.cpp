// memory_api.cpp: cudaMalloc and its kin, cudaMemcpy and its kin.
#include "abi.h"
#include "capture.h"
#include "context.h"
#include "heap.h"
#include "lk/host/memory.h"
#include "transfers.h"
#include "work.h"

using namespace lk::host;

#define LK_CALLER reinterpret_cast<uint64_t>(__builtin_return_address(0))

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
        if (kind != Kind::device) ordering().note_shared_memory();
        return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
    });
}

cudaError_t release(void* pointer, bool pinned) {
    return api_after_wait([=] {
        ordering().host_waits_for_all();
        if (!pointer || heap().release(pointer, pinned)) return cudaSuccess;
        return cudaErrorInvalidValue;
    });
}

// A copy or fill that is wrong is refused at once, even where the stream captures.
template <class Task>
cudaError_t checked_issue(const Task& task, cudaStream_t stream, uint64_t pc, Work (*made)(const Task&, uint64_t)) {
    const cudaError_t error = check(task);
    return error == cudaSuccess ? issue(stream, made(task, pc)) : error;
}

template <class Task>
cudaError_t issue_and_wait(const Task& task, uint64_t pc, Work (*made)(const Task&, uint64_t)) {
    return api_after_wait(
        [&] {
            const cudaError_t error = checked_issue(task, nullptr, pc, made);
            ordering().host_waits_for(ordering().before(*state_of(nullptr)));
            return error;
        },
        cudaErrorStreamCaptureImplicit);
}

cudaError_t wait_for(const Transfer& transfer, uint64_t pc) { return issue_and_wait(transfer, pc, copying); }

cudaError_t wait_for(const Fill& fill, uint64_t pc) { return issue_and_wait(fill, pc, filling); }

cudaError_t copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, uint64_t pc) {
    return api([=] { return checked_issue(plain_transfer(to, from, bytes, kind), stream, pc, copying); });
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

// In a kernel cudaMalloc and cudaFree are malloc and free (CUDA C++ programming guide, "Device-side memory allocation").
extern "C" cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    if (in_kernel()) {
        *pointer = lk_malloc(bytes);
        return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    return allocate(pointer, bytes, Kind::device, __builtin_return_address(0));
}

// In a graph, memory is there from its capture on.
extern "C" cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
    CUstream_st* state = state_of(stream);
    if (!state || !state->capture) return allocate(pointer, bytes, Kind::device, __builtin_return_address(0));
    return api([=] {
        Work work;
        work.type = cudaGraphNodeTypeMemAlloc;
        *pointer = heap().allocate_for_graph(bytes);
        return *pointer ? issue(stream, work) : cudaErrorMemoryAllocation;
    });
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

extern "C" cudaError_t cudaFree(void* pointer) {
    if (!in_kernel()) return release(pointer, false);
    lk_free(pointer);
    return cudaSuccess;
}

extern "C" cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    CUstream_st* state = state_of(stream);
    if (!state || !state->capture) return release(pointer, false);
    return api([=] {
        Work work;
        work.type = cudaGraphNodeTypeMemFree;
        return issue(stream, work);
    });
}

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

extern "C" cudaError_t lk_program_allocation(const void* pointer, unsigned long long* begin, size_t* bytes) {
    uint64_t first = 0;
    const Allocation* allocation = heap().find(pointer, &first);
    if (!allocation) return cudaErrorInvalidValue;
    *begin = first;
    *bytes = allocation->bytes;
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    return api([=] {
        *free_bytes = heap().free_bytes();
        *total_bytes = heap().total_bytes();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return wait_for(plain_transfer(to, from, bytes, kind), LK_CALLER);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_async(to, from, bytes, kind, stream, LK_CALLER);
}

extern "C" cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width_bytes,
                                    size_t height, cudaMemcpyKind kind) {
    return wait_for(plane_transfer(to, to_pitch, from, from_pitch, width_bytes, height, kind), LK_CALLER);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width_bytes,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    const uint64_t pc = LK_CALLER;
    return api([=] {
        return checked_issue(plane_transfer(to, to_pitch, from, from_pitch, width_bytes, height, kind), stream, pc, copying);
    });
}

extern "C" cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    return wait_for(Fill{static_cast<char*>(pointer), bytes, static_cast<unsigned>(value), 1, bytes, 1}, LK_CALLER);
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
    const uint64_t pc = LK_CALLER;
    return api([=] {
        const Fill fill{static_cast<char*>(pointer), bytes, static_cast<unsigned>(value), 1, bytes, 1};
        return checked_issue(fill, stream, pc, filling);
    });
}

extern "C" cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width_bytes, size_t height) {
    return wait_for(Fill{static_cast<char*>(pointer), pitch, static_cast<unsigned>(value), 1, width_bytes, height}, LK_CALLER);
}

cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width_bytes, size_t height, cudaStream_t stream) {
    const uint64_t pc = LK_CALLER;
    return api([=] {
        const Fill fill{static_cast<char*>(pointer), pitch, static_cast<unsigned>(value), 1, width_bytes, height};
        return checked_issue(fill, stream, pc, filling);
    });
}

extern "C" cudaError_t lk_copy_to_symbol(const void* symbol, size_t symbol_bytes, const void* from, size_t bytes,
                                         size_t offset, cudaMemcpyKind, lk::Waits waits) {
    if (!from || offset > symbol_bytes || bytes > symbol_bytes - offset) return api([] { return cudaErrorInvalidValue; });
    void* to = static_cast<char*>(const_cast<void*>(symbol)) + offset;
    if (waits.waits) return wait_for(plain_transfer(to, from, bytes, cudaMemcpyDefault), LK_CALLER);
    return copy_async(to, from, bytes, cudaMemcpyDefault, waits.stream, LK_CALLER);
}

extern "C" cudaError_t lk_copy_from_symbol(void* to, const void* symbol, size_t symbol_bytes, size_t bytes,
                                           size_t offset, cudaMemcpyKind, lk::Waits waits) {
    if (!to || offset > symbol_bytes || bytes > symbol_bytes - offset) return api([] { return cudaErrorInvalidValue; });
    const void* from = static_cast<const char*>(symbol) + offset;
    if (waits.waits) return wait_for(plain_transfer(to, from, bytes, cudaMemcpyDefault), LK_CALLER);
    return copy_async(to, from, bytes, cudaMemcpyDefault, waits.stream, LK_CALLER);
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
