// functions.h: attributes of kernels and the occupancy calculator.
#pragma once

#include <cstddef>

#include "lk/host/device.h"
#include "lk/host/errors.h"

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeClusterDimMustBeSet = 10,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};

enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100,
};

constexpr unsigned int cudaOccupancyDefault = 0;
constexpr unsigned int cudaOccupancyDisableCachingOverride = 1;

extern "C" {
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncSetCacheConfig(const void* kernel, cudaFuncCache preference);
cudaError_t cudaFuncSetSharedMemConfig(const void* kernel, cudaSharedMemConfig config);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t shared_bytes, unsigned int flags);
}

namespace lk {

// A kernel's address, whatever the type of the pointer.
template <class K>
const void* address_of(K* kernel) { return reinterpret_cast<const void*>(kernel); }

}  // namespace lk

template <class K>
cudaError_t cudaFuncSetAttribute(K* kernel, cudaFuncAttribute attribute, int value) {
    return ::cudaFuncSetAttribute(lk::address_of(kernel), attribute, value);
}

template <class K>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, K* kernel) {
    return ::cudaFuncGetAttributes(attributes, lk::address_of(kernel));
}

template <class K>
cudaError_t cudaFuncSetCacheConfig(K* kernel, cudaFuncCache preference) {
    return ::cudaFuncSetCacheConfig(lk::address_of(kernel), preference);
}

template <class K>
cudaError_t cudaFuncSetSharedMemConfig(K* kernel, cudaSharedMemConfig config) {
    return ::cudaFuncSetSharedMemConfig(lk::address_of(kernel), config);
}

template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, K* kernel, int threads, size_t shared_bytes) {
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, lk::address_of(kernel), threads, shared_bytes);
}

template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, K* kernel, int threads,
                                                                   size_t shared_bytes, unsigned int) {
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, lk::address_of(kernel), threads, shared_bytes);
}

// The block size that keeps most threads resident, and the smallest grid that fills the device with it.
template <class K, class SharedBytes>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, K* kernel,
                                                           SharedBytes shared_bytes_of_block, int limit = 0) {
    constexpr int most_threads = 1024;
    const int largest = limit > 0 && limit < most_threads ? limit : most_threads;
    int best_threads = 0;
    int best_block = 0;
    int best_blocks = 0;
    for (int size = largest; size > 0; size = (size - 1) / 32 * 32) {
        int blocks = 0;
        const cudaError_t error =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, size, shared_bytes_of_block(size));
        if (error != cudaSuccess) return error;
        if (blocks * size > best_threads) {
            best_threads = blocks * size;
            best_block = size;
            best_blocks = blocks;
        }
    }
    int multiprocessors = 0;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    *block = best_block;
    *grid = best_blocks * multiprocessors;
    return cudaSuccess;
}

template <class K>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, K* kernel, size_t shared_bytes = 0,
                                               int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
        grid, block, kernel, [shared_bytes](int) { return shared_bytes; }, limit);
}
