// driver.h: the driver API as far as it says what the device is, and copies memory. Modules, which are code that a GPU
// would compile, have no counterpart here.
//
// Codes of errors and attributes are those of the runtime, as in CUDA.
#pragma once

#include <cstddef>
#include <cstdio>

#include "lk/host/device.h"
#include "lk/host/errors.h"
#include "lk/host/memory.h"
#include "lk/host/streams.h"

#define __cuda_cuda_h__  // by which helper_cuda.h knows that there is a driver API
#define CUDAAPI

typedef int CUdevice;
typedef int CUdevice_v1;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUdeviceptr_v2;
typedef struct CUctx_st* CUcontext;
typedef CUstream_st* CUstream;
typedef CUevent_st* CUevent;
typedef cudaUUID_t CUuuid;
typedef unsigned long long CUtexObject;  // the runtime's texture and surface objects are the driver's
typedef unsigned long long CUsurfObject;

typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_FILE_NOT_FOUND = 301,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef enum CUdevice_attribute_enum {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14,
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT = 30,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT = 51,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED = 79,
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED = 80,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD = 84,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID = 85,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED = 86,
    CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
    CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED = 90,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE = 108,
    CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE = 109,
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
} CUdevice_attribute;

typedef enum CUctx_flags_enum {
    CU_CTX_SCHED_AUTO = 0,
    CU_CTX_SCHED_SPIN = 1,
    CU_CTX_SCHED_YIELD = 2,
    CU_CTX_SCHED_BLOCKING_SYNC = 4,
    CU_CTX_MAP_HOST = 8,
    CU_CTX_LMEM_RESIZE_TO_MAX = 16,
} CUctx_flags;

// The allocation that holds an address.
extern "C" cudaError_t lk_program_allocation(const void* pointer, unsigned long long* begin, size_t* bytes);

namespace lk {

inline CUresult driver_result(cudaError_t error) { return static_cast<CUresult>(error); }

inline CUresult driver_result_for(int device) { return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }

// There is one context: that of the one device.
inline CUresult the_context(CUcontext* context, CUdevice device = 0) {
    if (device == 0) *context = reinterpret_cast<CUcontext>(1);
    return driver_result_for(device);
}

inline const void* driver_pointer(CUdeviceptr pointer) { return reinterpret_cast<const void*>(pointer); }

inline CUresult driver_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return driver_result(cudaMemcpy(to, from, bytes, kind));
}

inline CUresult driver_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, CUstream stream) {
    return driver_result(cudaMemcpyAsync(to, from, bytes, kind, stream));
}

inline bool is_runtime_error(CUresult result) {
    const char* name = cudaGetErrorName(static_cast<cudaError_t>(result));
    return name[0] == 'c';
}

}  // namespace lk

// clang-format off
inline CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
inline CUresult cuDriverGetVersion(int* version) { return lk::driver_result(cudaDriverGetVersion(version)); }
inline CUresult cuGetErrorName(CUresult result, const char** name) {
    *name = lk::is_runtime_error(result) ? cudaGetErrorName(static_cast<cudaError_t>(result)) : nullptr;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
inline CUresult cuGetErrorString(CUresult result, const char** text) {
    *text = lk::is_runtime_error(result) ? cudaGetErrorString(static_cast<cudaError_t>(result)) : nullptr;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult cuDeviceGetCount(int* count) { return lk::driver_result(cudaGetDeviceCount(count)); }
inline CUresult cuDeviceGet(CUdevice* device, int ordinal) { *device = ordinal; return lk::driver_result_for(ordinal); }
inline CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    cudaDeviceProp gpu;
    const cudaError_t error = cudaGetDeviceProperties(&gpu, device);
    if (error == cudaSuccess) snprintf(name, size_t(length), "%s", gpu.name);
    return lk::driver_result(error);
}
inline CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { *uuid = {}; return lk::driver_result_for(device); }
inline CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
    size_t unused;
    return device == 0 ? lk::driver_result(cudaMemGetInfo(&unused, bytes)) : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return lk::driver_result(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}
inline CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    *major = 9, *minor = 0;
    return lk::driver_result_for(device);
}
inline CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
    return lk::driver_result(cudaDeviceGetPCIBusId(id, length, device));
}
inline CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
    return lk::driver_result(cudaDeviceCanAccessPeer(can_access, device, peer));
}

inline CUresult cuCtxCreate(CUcontext* context, unsigned int, CUdevice device) { return lk::the_context(context, device); }
inline CUresult cuCtxCreate(CUcontext* context, void*, unsigned int, CUdevice device) { return lk::the_context(context, device); }
inline CUresult cuCtxDestroy(CUcontext) { return CUDA_SUCCESS; }
inline CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
inline CUresult cuCtxPushCurrent(CUcontext) { return CUDA_SUCCESS; }
inline CUresult cuCtxPopCurrent(CUcontext* context) { return context ? lk::the_context(context) : CUDA_SUCCESS; }
inline CUresult cuCtxGetCurrent(CUcontext* context) { return lk::the_context(context); }
inline CUresult cuCtxGetDevice(CUdevice* device) { *device = 0; return CUDA_SUCCESS; }
inline CUresult cuCtxSynchronize() { return lk::driver_result(cudaDeviceSynchronize()); }
inline CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) { return lk::the_context(context, device); }
inline CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return lk::driver_result_for(device); }

inline CUresult cuMemGetInfo(size_t* free, size_t* total) { return lk::driver_result(cudaMemGetInfo(free, total)); }
inline CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
    void* made = nullptr;
    const cudaError_t error = cudaMalloc(&made, bytes);
    *pointer = reinterpret_cast<CUdeviceptr>(made);
    return lk::driver_result(error);
}
inline CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int flags) {
    void* made = nullptr;
    const cudaError_t error = cudaMallocManaged(&made, bytes, flags);
    *pointer = reinterpret_cast<CUdeviceptr>(made);
    return lk::driver_result(error);
}
inline CUresult cuMemAllocHost(void** pointer, size_t bytes) { return lk::driver_result(cudaMallocHost(pointer, bytes)); }
inline CUresult cuMemFree(CUdeviceptr pointer) { return lk::driver_result(cudaFree(const_cast<void*>(lk::driver_pointer(pointer)))); }
inline CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr pointer) {
    unsigned long long first = 0;
    size_t count = 0;
    const cudaError_t error = lk_program_allocation(lk::driver_pointer(pointer), &first, &count);
    if (begin) *begin = first;
    if (bytes) *bytes = count;
    return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
inline CUresult cuMemFreeHost(void* pointer) { return lk::driver_result(cudaFreeHost(pointer)); }
inline CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
    return lk::driver_copy(const_cast<void*>(lk::driver_pointer(to)), from, bytes, cudaMemcpyHostToDevice);
}
inline CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
    return lk::driver_copy(to, lk::driver_pointer(from), bytes, cudaMemcpyDeviceToHost);
}
inline CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return lk::driver_copy(const_cast<void*>(lk::driver_pointer(to)), lk::driver_pointer(from), bytes, cudaMemcpyDeviceToDevice);
}
inline CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return lk::driver_copy(const_cast<void*>(lk::driver_pointer(to)), from, bytes, cudaMemcpyHostToDevice, stream);
}
inline CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return lk::driver_copy(to, lk::driver_pointer(from), bytes, cudaMemcpyDeviceToHost, stream);
}
inline CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    return lk::driver_result(cudaMemset(const_cast<void*>(lk::driver_pointer(to)), value, count));
}

inline CUresult cuStreamCreate(CUstream* stream, unsigned int flags) { return lk::driver_result(cudaStreamCreateWithFlags(stream, flags)); }
inline CUresult cuStreamSynchronize(CUstream stream) { return lk::driver_result(cudaStreamSynchronize(stream)); }
inline CUresult cuStreamDestroy(CUstream stream) { return lk::driver_result(cudaStreamDestroy(stream)); }
// clang-format on

#include "lk/host/tensor_maps.h"
#include "lk/host/entry_points.h"
