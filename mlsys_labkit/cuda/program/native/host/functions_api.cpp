// functions_api.cpp: attributes of kernels and the occupancy calculator of compute capability 9.0.
#include "functions_api.h"

#include <algorithm>
#include <map>

#include "context.h"
#include "h100.h"
#include "lk/host/functions.h"

using namespace lk::host;

namespace {

constexpr size_t shared_granularity = 128;

std::map<const void*, size_t>& permissions() {
    static std::map<const void*, size_t> bytes_of_kernel;
    return bytes_of_kernel;
}

}  // namespace

namespace lk::host {

size_t allowed_dynamic_shared_bytes(const void* kernel) {
    size_t allowed = h100::shared_bytes_by_default;
    for (const auto& [each, bytes] : permissions()) {
        if (!kernel || each == kernel) allowed = std::max(allowed, bytes);
    }
    return allowed;
}

int resident_blocks(int threads, size_t shared_bytes) {
    const int warps = (threads + 31) / 32;
    const size_t rounded = (shared_bytes + shared_granularity - 1) / shared_granularity * shared_granularity;
    const size_t by_shared = h100::shared_bytes_of_multiprocessor / (rounded + h100::reserved_shared_bytes);
    return std::min({h100::warps_of_multiprocessor / warps, h100::blocks_of_multiprocessor, static_cast<int>(by_shared)});
}

}  // namespace lk::host

extern "C" cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    return api([=] {
        if (!kernel) return cudaErrorInvalidDeviceFunction;
        if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
            if (value < 0 || static_cast<size_t>(value) > h100::shared_bytes_of_block) return cudaErrorInvalidValue;
            permissions()[kernel] = static_cast<size_t>(value);
        }
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    return api([=] {
        if (!attributes || !kernel) return cudaErrorInvalidDeviceFunction;
        *attributes = {};
        attributes->maxThreadsPerBlock = h100::threads_of_block;
        attributes->numRegs = 32;
        attributes->ptxVersion = 90;
        attributes->binaryVersion = 90;
        attributes->maxDynamicSharedSizeBytes = static_cast<int>(allowed_dynamic_shared_bytes(kernel));
        attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaFuncSetCacheConfig(const void* kernel, cudaFuncCache) {
    return api([=] { return kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction; });
}

extern "C" cudaError_t cudaFuncSetSharedMemConfig(const void* kernel, cudaSharedMemConfig) {
    return api([=] { return kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction; });
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                                     size_t shared_bytes) {
    return api([=] {
        if (!blocks || threads <= 0) return cudaErrorInvalidValue;
        if (!kernel) return cudaErrorInvalidDeviceFunction;
        *blocks = threads > h100::threads_of_block ? 0 : resident_blocks(threads, shared_bytes);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                              int threads, size_t shared_bytes,
                                                                              unsigned int) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}
