// blas.h: the part of cuBLAS that courses use.
#pragma once

#define CUBLAS_API_H_  // as CUDA's own headers do, for programs that ask
#define CUBLAS_V2_H_

#include "cuComplex.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

#include "lk/host/data_types.h"
#include "lk/host/memory.h"
#include "lk/host/streams.h"

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16,
} cublasStatus_t;

typedef cudaDataType cublasDataType_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
} cublasMath_t;

typedef enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
} cublasComputeType_t;
typedef enum {
    CUBLAS_GEMM_DEFAULT = -1,
    CUBLAS_GEMM_DFALT = -1,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
    CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
} cublasGemmAlgo_t;

typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1, CUBLAS_FILL_MODE_FULL = 2 } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;

#define CUBLAS_VERSION 130000
#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0

struct cublasContext;
typedef cublasContext* cublasHandle_t;

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);
cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version);
const char* cublasGetStatusString(cublasStatus_t status);
const char* cublasGetStatusName(cublasStatus_t status);

cublasStatus_t cublasSetVector(int n, int size, const void* from, int from_step, void* to, int to_step);
cublasStatus_t cublasGetVector(int n, int size, const void* from, int from_step, void* to, int to_step);
cublasStatus_t cublasSetMatrix(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows);
cublasStatus_t cublasGetMatrix(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows);

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream);
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode);
cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value);
size_t cublasGetCudartVersion();
cublasStatus_t cublasSetVectorAsync(int n, int size, const void* from, int from_step, void* to, int to_step, cudaStream_t);
cublasStatus_t cublasGetVectorAsync(int n, int size, const void* from, int from_step, void* to, int to_step, cudaStream_t);
cublasStatus_t cublasSetMatrixAsync(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows,
                                    cudaStream_t);
cublasStatus_t cublasGetMatrixAsync(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows,
                                    cudaStream_t);

// Types and names of calls that exist for several precisions; blas.cpp defines them with the same lists.
#define LK_GEMM(name, batched, strided, T)                                                                                   \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,          \
                        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc);             \
    cublasStatus_t batched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
                           const T* alpha, const T* const* a, int lda, const T* const* b, int ldb, const T* beta,            \
                           T* const* c, int ldc, int batches);                                                               \
    cublasStatus_t strided(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
                           const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb,                     \
                           long long stride_b, const T* beta, T* c, int ldc, long long stride_c, int batches);
#define LK_VECTORS(axpy, scal, copy, swap, T)                                                                                \
    cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int x_step, T* y, int y_step);             \
    cublasStatus_t scal(cublasHandle_t handle, int n, const T* alpha, T* x, int x_step);                                     \
    cublasStatus_t copy(cublasHandle_t handle, int n, const T* x, int x_step, T* y, int y_step);                             \
    cublasStatus_t swap(cublasHandle_t handle, int n, T* x, int x_step, T* y, int y_step);
#define LK_DOT(name, T)                                                                                                      \
    cublasStatus_t name(cublasHandle_t handle, int n, const T* x, int x_step, const T* y, int y_step, T* result);
#define LK_DOT_CONJUGATED(name, T) LK_DOT(name, T)
#define LK_SIZES(nrm2, asum, amax, amin, T, Real)                                                                            \
    cublasStatus_t nrm2(cublasHandle_t handle, int n, const T* x, int x_step, Real* result);                                 \
    cublasStatus_t asum(cublasHandle_t handle, int n, const T* x, int x_step, Real* result);                                 \
    cublasStatus_t amax(cublasHandle_t handle, int n, const T* x, int x_step, int* result);                                  \
    cublasStatus_t amin(cublasHandle_t handle, int n, const T* x, int x_step, int* result);
#define LK_ROTATION(name, T)                                                                                                 \
    cublasStatus_t name(cublasHandle_t handle, int n, T* x, int x_step, T* y, int y_step, const T* cosine, const T* sine);
#define LK_GEMV(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha, const T* a, int lda,      \
                        const T* x, int x_step, const T* beta, T* y, int y_step);
#define LK_GER(name, T)                                                                                                      \
    cublasStatus_t name(cublasHandle_t handle, int m, int n, const T* alpha, const T* x, int x_step, const T* y, int y_step, \
                        T* a, int lda);
#define LK_SYMV(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, int n, const T* alpha, const T* a, int lda,            \
                        const T* x, int x_step, const T* beta, T* y, int y_step);
#define LK_TRIANGLE_VECTOR(name, T)                                                                                          \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diagonal,       \
                        int n, const T* a, int lda, T* x, int x_step);
#define LK_TRIANGLE_TIMES(name, T) LK_TRIANGLE_VECTOR(name, T)
#define LK_SYRK(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k, const T* alpha,    \
                        const T* a, int lda, const T* beta, T* c, int ldc);
#define LK_SYMM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, int m, int n, const T* alpha,   \
                        const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc);
#define LK_TRSM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op,           \
                        cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb);
#define LK_TRMM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op,           \
                        cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, const T* b, int ldb,   \
                        T* c, int ldc);
#define LK_GEAM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,                 \
                        const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc);
#define LK_DGMM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T* a, int lda, const T* x,         \
                        int x_step, T* c, int ldc);
#include "lk/host/blas_calls.h"
#include "lk/host/blas_no_calls.h"

// Sums in float, for all types but double and complex; alpha and beta are of the type that the caller asks to sum in.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                            cudaDataType_t type_b, int ldb, const void* beta, void* c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                          int k, const void* alpha, const void* a, cudaDataType_t type_a, int lda,
                                          long long stride_a, const void* b, cudaDataType_t type_b, int ldb,
                                          long long stride_b, const void* beta, void* c, cudaDataType_t type_c, int ldc,
                                          long long stride_c, int batches, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                                   const void* alpha, const void* const* a, cudaDataType_t type_a, int lda,
                                   const void* const* b, cudaDataType_t type_b, int ldb, const void* beta, void* const* c,
                                   cudaDataType_t type_c, int ldc, int batches, cublasComputeType_t compute,
                                   cublasGemmAlgo_t algorithm);
cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                             const float* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                             cudaDataType_t type_b, int ldb, const float* beta, void* c, cudaDataType_t type_c, int ldc);
}

// As before CUDA 11, where the type to sum in was named like the types of matrices.
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                   int k, const void* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                                   cudaDataType_t type_b, int ldb, const void* beta, void* c, cudaDataType_t type_c,
                                   int ldc, cudaDataType_t compute, cublasGemmAlgo_t algorithm) {
    const cublasComputeType_t sums = compute == CUDA_R_64F   ? CUBLAS_COMPUTE_64F
                                     : compute == CUDA_R_16F ? CUBLAS_COMPUTE_16F
                                                             : CUBLAS_COMPUTE_32F;
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, sums,
                        algorithm);
}
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                                 int n, int k, const void* alpha, const void* a, cudaDataType_t type_a,
                                                 int lda, long long stride_a, const void* b, cudaDataType_t type_b, int ldb,
                                                 long long stride_b, const void* beta, void* c, cudaDataType_t type_c,
                                                 int ldc, long long stride_c, int batches, cudaDataType_t compute,
                                                 cublasGemmAlgo_t algorithm) {
    const cublasComputeType_t sums = compute == CUDA_R_64F   ? CUBLAS_COMPUTE_64F
                                     : compute == CUDA_R_16F ? CUBLAS_COMPUTE_16F
                                                             : CUBLAS_COMPUTE_32F;
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, stride_a, b, type_b, ldb, stride_b,
                                      beta, c, type_c, ldc, stride_c, batches, sums, algorithm);
}

// The names behind cublas_v2.h's own macros.
#define cublasCreate_v2 cublasCreate
#define cublasDestroy_v2 cublasDestroy
#define cublasSetStream_v2 cublasSetStream
#define cublasSgemm_v2 cublasSgemm
#define cublasDgemm_v2 cublasDgemm
#define cublasSgemv_v2 cublasSgemv
#define cublasDgemv_v2 cublasDgemv
#define cublasSdot_v2 cublasSdot
#define cublasDdot_v2 cublasDdot
#define cublasSaxpy_v2 cublasSaxpy
#define cublasDaxpy_v2 cublasDaxpy
#define cublasSscal_v2 cublasSscal
#define cublasDscal_v2 cublasDscal
#define cublasSnrm2_v2 cublasSnrm2
#define cublasDnrm2_v2 cublasDnrm2
