// blas.h: the part of cuBLAS that courses use.
#pragma once

#define CUBLAS_API_H_  // as CUDA's own headers do, for programs that ask
#define CUBLAS_V2_H_

#include "lk/half.h"

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

typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
} cublasMath_t;

typedef enum { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;
typedef cudaDataType_t cudaDataType;
typedef enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    CUBLAS_COMPUTE_64F = 70,
} cublasComputeType_t;
typedef enum {
    CUBLAS_GEMM_DEFAULT = -1,
    CUBLAS_GEMM_DFALT = -1,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
    CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
} cublasGemmAlgo_t;

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

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                           const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
                           float* c, int ldc);
cublasStatus_t cublasDgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                           const double* alpha, const double* a, int lda, const double* b, int ldb, const double* beta,
                           double* c, int ldc);
cublasStatus_t cublasHgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                           const __half* alpha, const __half* a, int lda, const __half* b, int ldb, const __half* beta,
                           __half* c, int ldc);
// Sums in float, or in double where the result is; alpha and beta are of the type that it sums in.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                            cudaDataType_t type_b, int ldb, const void* beta, void* c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                         int n, int k, const float* alpha, const float* a, int lda, long long stride_a,
                                         const float* b, int ldb, long long stride_b, const float* beta, float* c,
                                         int ldc, long long stride_c, int batches);
cublasStatus_t cublasSgemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const float* alpha, const float* a,
                           int lda, const float* x, int x_step, const float* beta, float* y, int y_step);
cublasStatus_t cublasDgemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const double* alpha,
                           const double* a, int lda, const double* x, int x_step, const double* beta, double* y,
                           int y_step);
cublasStatus_t cublasSaxpy(cublasHandle_t handle, int n, const float* alpha, const float* x, int x_step, float* y,
                           int y_step);
cublasStatus_t cublasDaxpy(cublasHandle_t handle, int n, const double* alpha, const double* x, int x_step, double* y,
                           int y_step);
cublasStatus_t cublasSscal(cublasHandle_t handle, int n, const float* alpha, float* x, int x_step);
cublasStatus_t cublasDscal(cublasHandle_t handle, int n, const double* alpha, double* x, int x_step);
cublasStatus_t cublasScopy(cublasHandle_t handle, int n, const float* x, int x_step, float* y, int y_step);
cublasStatus_t cublasDcopy(cublasHandle_t handle, int n, const double* x, int x_step, double* y, int y_step);
cublasStatus_t cublasSdot(cublasHandle_t handle, int n, const float* x, int x_step, const float* y, int y_step,
                          float* result);
cublasStatus_t cublasDdot(cublasHandle_t handle, int n, const double* x, int x_step, const double* y, int y_step,
                          double* result);
cublasStatus_t cublasSnrm2(cublasHandle_t handle, int n, const float* x, int x_step, float* result);
cublasStatus_t cublasDnrm2(cublasHandle_t handle, int n, const double* x, int x_step, double* result);
cublasStatus_t cublasSasum(cublasHandle_t handle, int n, const float* x, int x_step, float* result);
cublasStatus_t cublasDasum(cublasHandle_t handle, int n, const double* x, int x_step, double* result);
cublasStatus_t cublasIsamax(cublasHandle_t handle, int n, const float* x, int x_step, int* result);
cublasStatus_t cublasIdamax(cublasHandle_t handle, int n, const double* x, int x_step, int* result);
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
