// helper_cuda.h: error macros and device selection as the CUDA samples use them.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "helper_string.h"

namespace lk {

inline const char* error_name(cudaError_t error) { return cudaGetErrorName(error); }

template <class Status>
const char* error_name(Status) { return "library error"; }

template <class Status>
void require_success(Status status, const char* call, const char* file, int line) {
    if (static_cast<int>(status) == 0) return;
    std::fprintf(stderr, "CUDA error at %s:%d code=%d(%s) \"%s\" \n", file, line, static_cast<int>(status),
                 error_name(status), call);
    std::exit(EXIT_FAILURE);
}

inline void require_no_last_error(const char* message, const char* file, int line) {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s(%i) : getLastCudaError() CUDA error : %s : (%d) %s.\n", file, line, message,
                 static_cast<int>(error), cudaGetErrorString(error));
    std::exit(EXIT_FAILURE);
}

}  // namespace lk

#define checkCudaErrors(val) lk::require_success((val), #val, __FILE__, __LINE__)
#define getLastCudaError(msg) lk::require_no_last_error(msg, __FILE__, __LINE__)

#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif

inline const char* _cudaGetErrorEnum(cudaError_t error) { return cudaGetErrorName(error); }

// CUDA cores of a multiprocessor, of the generations that courses name.
inline int _ConvertSMVer2Cores(int major, int minor) {
    if (major == 6) return minor == 0 ? 64 : 128;
    if (major == 7) return 64;
    if (major == 8) return minor == 0 ? 64 : 128;
    return 128;
}

inline const char* _ConvertSMVer2ArchName(int major, int) {
    return major == 9 ? "Hopper" : major == 8 ? "Ampere" : major == 7 ? "Volta" : "Graphics Device";
}

inline int gpuGetMaxGflopsDeviceId() { return 0; }

inline int findCudaDevice(int count, const char** arguments) {
    int device = 0;
    if (checkCmdLineFlag(count, arguments, "device")) device = getCmdLineArgumentInt(count, arguments, "device=");
    checkCudaErrors(cudaSetDevice(device));
    cudaDeviceProp properties;
    checkCudaErrors(cudaGetDeviceProperties(&properties, device));
    std::printf("GPU Device %d: \"%s\" with compute capability %d.%d\n\n", device, properties.name, properties.major,
                properties.minor);
    return device;
}

inline int gpuDeviceInit(int device) {
    checkCudaErrors(cudaSetDevice(device));
    return device;
}

inline bool checkCudaCapabilities(int major, int minor) {
    cudaDeviceProp properties;
    checkCudaErrors(cudaGetDeviceProperties(&properties, 0));
    return properties.major > major || (properties.major == major && properties.minor >= minor);
}
