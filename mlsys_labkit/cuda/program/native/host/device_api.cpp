// device_api.cpp: the one virtual GPU: an H100 (sm_90) by its limits, and a simulator by its name.
#include <cstdio>
#include <cstring>

#include "context.h"
#include "h100.h"
#include "heap.h"
#include "ordering.h"
#include "lk/host/device.h"

using namespace lk::host;

namespace {

cudaDeviceProp virtual_h100() {
    cudaDeviceProp gpu{};
    snprintf(gpu.name, sizeof gpu.name, "Virtual H100 (simulated on a CPU by mlsys-labkit)");
    gpu.totalGlobalMem = heap().total_bytes();
    gpu.sharedMemPerBlock = h100::shared_bytes_by_default;
    gpu.sharedMemPerBlockOptin = h100::shared_bytes_of_block;
    gpu.sharedMemPerMultiprocessor = h100::shared_bytes_of_multiprocessor;
    gpu.reservedSharedMemPerBlock = h100::reserved_shared_bytes;
    gpu.regsPerBlock = 65536;
    gpu.regsPerMultiprocessor = 65536;
    gpu.warpSize = 32;
    gpu.memPitch = 2147483647;
    gpu.maxThreadsPerBlock = h100::threads_of_block;
    gpu.maxThreadsPerMultiProcessor = 32 * h100::warps_of_multiprocessor;
    gpu.maxBlocksPerMultiProcessor = h100::blocks_of_multiprocessor;
    const int threads_of_dimension[3] = {1024, 1024, 64};
    const int blocks_of_dimension[3] = {2147483647, 65535, 65535};
    memcpy(gpu.maxThreadsDim, threads_of_dimension, sizeof gpu.maxThreadsDim);
    memcpy(gpu.maxGridSize, blocks_of_dimension, sizeof gpu.maxGridSize);
    gpu.clockRate = 1980000;
    gpu.memoryClockRate = 2619000;
    gpu.memoryBusWidth = 5120;
    gpu.l2CacheSize = 50 * h100::kib * h100::kib;
    gpu.totalConstMem = 64 * h100::kib;
    gpu.major = 9;
    gpu.minor = 0;
    gpu.textureAlignment = 512;
    gpu.texturePitchAlignment = h100::texture_pitch_alignment;
    gpu.surfaceAlignment = 512;
    gpu.multiProcessorCount = h100::multiprocessors;
    gpu.asyncEngineCount = 3;
    gpu.deviceOverlap = 1;
    gpu.canMapHostMemory = 1;
    gpu.concurrentKernels = 1;
    gpu.ECCEnabled = 1;
    gpu.pciBusID = 1;
    gpu.unifiedAddressing = 1;
    gpu.streamPrioritiesSupported = 1;
    gpu.globalL1CacheSupported = 1;
    gpu.localL1CacheSupported = 1;
    gpu.managedMemory = 1;
    gpu.concurrentManagedAccess = 1;
    gpu.singleToDoublePrecisionPerfRatio = 2;
    gpu.computePreemptionSupported = 1;
    gpu.cooperativeLaunch = 1;
    gpu.hostRegisterSupported = 1;
    gpu.memoryPoolsSupported = 1;
    return gpu;
}

int attribute_of(const cudaDeviceProp& gpu, cudaDeviceAttr attribute) {
    switch (attribute) {
#define LK_ATTRIBUTE(name, number, member) \
    case name: return static_cast<int>(gpu.member);
#include "lk/cuda_attributes.h"
#undef LK_ATTRIBUTE
    }
    return 0;
}

size_t limits[8] = {1024, 1 << 20, 8 << 20, 2, 2048, 64};

cudaError_t only_device_0(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

}  // namespace

extern "C" cudaError_t cudaGetDeviceCount(int* count) {
    return api([=] {
        *count = 1;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGetDevice(int* device) {
    return api([=] {
        *device = 0;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaSetDevice(int device) { return api([=] { return only_device_0(device); }); }

extern "C" cudaError_t cudaSetDeviceFlags(unsigned int) { return api([] { return cudaSuccess; }); }

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return api([=] {
        if (!properties) return cudaErrorInvalidValue;
        if (device != 0) return cudaErrorInvalidDevice;
        *properties = virtual_h100();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }

extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return api([=] {
        if (device != 0) return cudaErrorInvalidDevice;
        *value = attribute_of(virtual_h100(), attribute);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    return api([=] {
        if (device != 0) return cudaErrorInvalidDevice;
        snprintf(id, static_cast<size_t>(length), "0000:01:00.0");
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceSynchronize() {
    return api_after_wait([] {
        ordering().host_waits_for_all();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceReset() {
    Context& state = context();
    const std::lock_guard<std::recursive_mutex> held(state.lock);
    state.synchronize();
    heap().clear();
    ordering().forget();
    state.reset();
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    return api([=] {
        if (limit < 0 || limit > cudaLimitMaxL2FetchGranularity) return cudaErrorUnsupportedLimit;
        limits[limit] = value;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    return api([=] {
        if (limit < 0 || limit > cudaLimitMaxL2FetchGranularity) return cudaErrorUnsupportedLimit;
        *value = limits[limit];
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return api([] { return cudaSuccess; }); }

extern "C" cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* preference) {
    return api([=] {
        *preference = cudaFuncCachePreferNone;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return api([] { return cudaSuccess; }); }

extern "C" cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
    return api([=] {
        *config = cudaSharedMemBankSizeFourByte;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    return api([=] {
        *can_access = 0;
        return device == 0 && peer == 0 ? cudaSuccess : cudaErrorInvalidDevice;
    });
}

extern "C" cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) {
    return api([] { return cudaErrorInvalidDevice; });  // of one device and itself, as CUDA says
}

extern "C" cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) {
    return api([] { return cudaErrorInvalidDevice; });
}

extern "C" cudaError_t cudaDeviceDisablePeerAccess(int) { return api([] { return cudaErrorPeerAccessNotEnabled; }); }

extern "C" cudaError_t cudaDriverGetVersion(int* version) {
    return api([=] {
        *version = 13000;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

extern "C" cudaError_t cudaProfilerStart() { return api([] { return cudaSuccess; }); }

extern "C" cudaError_t cudaProfilerStop() { return api([] { return cudaSuccess; }); }
