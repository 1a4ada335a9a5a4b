#pragma once
#include "lk/host/runtime.h"
#include "nvToolsExt.h"

inline void nvtxNameCudaDeviceA(int, const char*) {}

inline void nvtxNameCudaStreamA(cudaStream_t, const char*) {}

inline void nvtxNameCudaEventA(cudaEvent_t, const char*) {}
