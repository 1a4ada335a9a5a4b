// fft.h: the part of cuFFT that programs use: plans in one, two and three dimensions, of many transforms too.
#pragma once

#include "cuComplex.h"

#include "lk/host/data_types.h"
#include "lk/host/memory.h"
#include "lk/host/streams.h"

typedef enum cufftResult_t {
    CUFFT_SUCCESS = 0x0,
    CUFFT_INVALID_PLAN = 0x1,
    CUFFT_ALLOC_FAILED = 0x2,
    CUFFT_INVALID_TYPE = 0x3,
    CUFFT_INVALID_VALUE = 0x4,
    CUFFT_INTERNAL_ERROR = 0x5,
    CUFFT_EXEC_FAILED = 0x6,
    CUFFT_SETUP_FAILED = 0x7,
    CUFFT_INVALID_SIZE = 0x8,
    CUFFT_UNALIGNED_DATA = 0x9,
    CUFFT_INCOMPLETE_PARAMETER_LIST = 0xA,  // this and two more until CUDA 12: a program's names of errors list them
    CUFFT_INVALID_DEVICE = 0xB,
    CUFFT_PARSE_ERROR = 0xC,
    CUFFT_NO_WORKSPACE = 0xD,
    CUFFT_NOT_IMPLEMENTED = 0xE,
    CUFFT_LICENSE_ERROR = 0xF,
    CUFFT_NOT_SUPPORTED = 0x10,
} cufftResult;

typedef enum cufftType_t {
    CUFFT_R2C = 0x2a,
    CUFFT_C2R = 0x2c,
    CUFFT_C2C = 0x29,
    CUFFT_D2Z = 0x6a,
    CUFFT_Z2D = 0x6c,
    CUFFT_Z2Z = 0x69,
} cufftType;

#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1
#define CUFFT_VERSION 12000

typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
typedef int cufftHandle;

extern "C" {
cufftResult cufftPlan1d(cufftHandle* plan, int size, cufftType type, int batch);
cufftResult cufftPlan2d(cufftHandle* plan, int rows, int columns, cufftType type);
cufftResult cufftPlan3d(cufftHandle* plan, int depth, int rows, int columns, cufftType type);
// In a row of length n[rank - 1] elements are stride apart, transforms distance apart; without embeddings all lie close.
cufftResult cufftPlanMany(cufftHandle* plan, int rank, int* n, int* embed_in, int stride_in, int distance_in, int* embed_out,
                          int stride_out, int distance_out, cufftType type, int batch);
cufftResult cufftCreate(cufftHandle* plan);
cufftResult cufftMakePlan1d(cufftHandle plan, int size, cufftType type, int batch, size_t* bytes);
cufftResult cufftMakePlan2d(cufftHandle plan, int rows, int columns, cufftType type, size_t* bytes);
cufftResult cufftMakePlan3d(cufftHandle plan, int depth, int rows, int columns, cufftType type, size_t* bytes);
cufftResult cufftMakePlanMany(cufftHandle plan, int rank, int* n, int* embed_in, int stride_in, int distance_in,
                              int* embed_out, int stride_out, int distance_out, cufftType type, int batch, size_t* bytes);
cufftResult cufftDestroy(cufftHandle plan);
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream);
cufftResult cufftSetAutoAllocation(cufftHandle plan, int automatic);
cufftResult cufftSetWorkArea(cufftHandle plan, void* area);
cufftResult cufftGetSize(cufftHandle plan, size_t* bytes);
cufftResult cufftEstimate1d(int size, cufftType type, int batch, size_t* bytes);
cufftResult cufftEstimate2d(int rows, int columns, cufftType type, size_t* bytes);
cufftResult cufftGetVersion(int* version);
cufftResult cufftGetProperty(libraryPropertyType type, int* value);
cufftResult cufftExecC2C(cufftHandle plan, cufftComplex* in, cufftComplex* out, int direction);
cufftResult cufftExecZ2Z(cufftHandle plan, cufftDoubleComplex* in, cufftDoubleComplex* out, int direction);
cufftResult cufftExecR2C(cufftHandle plan, cufftReal* in, cufftComplex* out);
cufftResult cufftExecD2Z(cufftHandle plan, cufftDoubleReal* in, cufftDoubleComplex* out);
cufftResult cufftExecC2R(cufftHandle plan, cufftComplex* in, cufftReal* out);
cufftResult cufftExecZ2D(cufftHandle plan, cufftDoubleComplex* in, cufftDoubleReal* out);
}
