// pools.h: memory pools of one's own. Each is the one pool that there is, which gives and takes as cudaMalloc does.
#pragma once

#include "lk/host/memory.h"

enum cudaMemAllocationType {
    cudaMemAllocationTypeInvalid = 0,
    cudaMemAllocationTypePinned = 1,
    cudaMemAllocationTypeManaged = 2,
};
enum cudaMemAllocationHandleType {
    cudaMemHandleTypeNone = 0,
    cudaMemHandleTypePosixFileDescriptor = 1,
    cudaMemHandleTypeWin32 = 2,
};
enum cudaMemAccessFlags {
    cudaMemAccessFlagsProtNone = 0,
    cudaMemAccessFlagsProtRead = 1,
    cudaMemAccessFlagsProtReadWrite = 3,
};

struct cudaMemPoolProps {
    cudaMemAllocationType allocType;
    cudaMemAllocationHandleType handleTypes;
    cudaMemLocation location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};

struct cudaMemAccessDesc {
    cudaMemLocation location;
    cudaMemAccessFlags flags;
};

inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    return properties ? cudaDeviceGetDefaultMemPool(pool, properties->location.id) : cudaErrorInvalidValue;
}

inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return pool ? cudaSuccess : cudaErrorInvalidValue; }

inline cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    return device != 0 ? cudaErrorInvalidDevice : pool ? cudaSuccess : cudaErrorInvalidValue;
}

inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (access[i].location.id != 0) return cudaErrorInvalidDevice;
    }
    return pool ? cudaSuccess : cudaErrorInvalidValue;
}

template <class T>
cudaError_t cudaMallocFromPoolAsync(T** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    return pool ? cudaMallocAsync(pointer, bytes, stream) : cudaErrorInvalidValue;
}

// What a pool holds: the memory that is in use. It keeps none in reserve, and its threshold is not asked for.
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    size_t free = 0, total = 0;
    const cudaError_t error = pool ? cudaMemGetInfo(&free, &total) : cudaErrorInvalidValue;
    if (error != cudaSuccess) return error;
    if (attribute < cudaMemPoolAttrReleaseThreshold) {
        *static_cast<int*>(value) = 1;
    } else {
        *static_cast<unsigned long long*>(value) = attribute == cudaMemPoolAttrReleaseThreshold ? 0 : total - free;
    }
    return cudaSuccess;
}
