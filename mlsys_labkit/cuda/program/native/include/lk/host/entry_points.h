// entry_points.h: functions of the driver API that programs look up by name, since they do not link with -lcuda.
#pragma once

#include <cstring>

#include "lk/host/tensor_maps.h"

typedef CUresult (*PFN_cuTensorMapEncodeTiled_v12000)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                                      const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                                      CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef CUresult (*PFN_cuTensorMapReplaceAddress_v12000)(CUtensorMap*, void*);
typedef CUresult (*PFN_cuGetErrorString_v6000)(CUresult, const char**);
typedef CUresult (*PFN_cuGetErrorName_v6000)(CUresult, const char**);
typedef PFN_cuTensorMapEncodeTiled_v12000 PFN_cuTensorMapEncodeTiled;
typedef PFN_cuTensorMapReplaceAddress_v12000 PFN_cuTensorMapReplaceAddress;
typedef PFN_cuGetErrorString_v6000 PFN_cuGetErrorString;
typedef PFN_cuGetErrorName_v6000 PFN_cuGetErrorName;

typedef enum CUdriverProcAddressQueryResult_enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;
typedef CUresult (*PFN_cuGetProcAddress_v12000)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
typedef PFN_cuGetProcAddress_v12000 PFN_cuGetProcAddress;
enum { CU_GET_PROC_ADDRESS_DEFAULT = 0 };

inline CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult* result = nullptr) {
    (void)version, (void)flags;
    *function = nullptr;
    if (!strcmp(symbol, "cuTensorMapEncodeTiled")) *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
    if (!strcmp(symbol, "cuTensorMapReplaceAddress")) *function = reinterpret_cast<void*>(&cuTensorMapReplaceAddress);
    if (!strcmp(symbol, "cuGetErrorString")) *function = reinterpret_cast<void*>(&cuGetErrorString);
    if (!strcmp(symbol, "cuGetErrorName")) *function = reinterpret_cast<void*>(&cuGetErrorName);
    if (!strcmp(symbol, "cuInit")) *function = reinterpret_cast<void*>(&cuInit);
    if (!strcmp(symbol, "cuDriverGetVersion")) *function = reinterpret_cast<void*>(&cuDriverGetVersion);
    if (result) *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2,  // as CUDA spells it
};
constexpr unsigned long long cudaEnableDefault = 0;
constexpr unsigned long long cudaEnableLegacyStream = 1;
constexpr unsigned long long cudaEnablePerThreadDefaultStream = 2;

inline cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* result = nullptr) {
    CUdriverProcAddressQueryResult found;
    const CUresult error = cuGetProcAddress(symbol, function, int(version), flags, &found);
    if (result) *result = static_cast<cudaDriverEntryPointQueryResult>(found);
    return error == CUDA_SUCCESS || result ? cudaSuccess : cudaErrorSymbolNotFound;
}
inline cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                           cudaDriverEntryPointQueryResult* result = nullptr) {
    return cudaGetDriverEntryPointByVersion(symbol, function, 13000, flags, result);
}
