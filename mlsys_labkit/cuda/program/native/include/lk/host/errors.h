// errors.h: the error codes of the CUDA runtime, and the calls that read them.
#pragma once

enum cudaError {
#define LK_ERROR(name, code, text) name = code,
#include "lk/cuda_errors.h"
#undef LK_ERROR
};
typedef enum cudaError cudaError_t;

extern "C" {
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
}
