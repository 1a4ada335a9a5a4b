// blas_xt.h: the products of cuBLASXt.
#pragma once

#include "lk/host/blas.h"

struct cublasXtContext;
typedef cublasXtContext* cublasXtHandle_t;

extern "C" {
cublasStatus_t cublasXtCreate(cublasXtHandle_t* handle);
cublasStatus_t cublasXtDestroy(cublasXtHandle_t handle);
cublasStatus_t cublasXtDeviceSelect(cublasXtHandle_t handle, int count, int devices[]);
cublasStatus_t cublasXtSetBlockDim(cublasXtHandle_t handle, int size);
#define LK_XT(name, T)                                                                                                        \
    cublasStatus_t name(cublasXtHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, size_t m, size_t n, size_t k, \
                        const T* alpha, const T* a, size_t lda, const T* b, size_t ldb, const T* beta, T* c, size_t ldc);
LK_XT(cublasXtSgemm, float)
LK_XT(cublasXtDgemm, double)
LK_XT(cublasXtCgemm, cuComplex)
LK_XT(cublasXtZgemm, cuDoubleComplex)
#undef LK_XT
}
