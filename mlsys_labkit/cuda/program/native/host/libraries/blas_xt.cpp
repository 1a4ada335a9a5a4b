// blas_xt.cpp: cuBLASXt, whose matrices may lie anywhere, on the one virtual GPU.
#include "lk/host/blas_xt.h"

#include "blas_parts.h"

using namespace lk::host;

struct cublasXtContext {};

namespace {

template <class T>
cublasStatus_t product(cublasXtHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, size_t m, size_t n, size_t k,
                       const T* alpha, const T* a, size_t lda, const T* b, size_t ldb, const T* beta, T* c, size_t ldc) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
    return library_call(CUBLAS_STATUS_EXECUTION_FAILED,
                        "cuBLASXt stands in with OpenBLAS and loops on the CPU: its results, not its speed", [=] {
                            multiply(op_a, op_b, int64_t(m), int64_t(n), int64_t(k), *as_number(alpha), as_number(a),
                                     int64_t(lda), as_number(b), int64_t(ldb), *as_number(beta), as_number(c), int64_t(ldc));
                            return CUBLAS_STATUS_SUCCESS;
                        });
}

}  // namespace

extern "C" {

cublasStatus_t cublasXtCreate(cublasXtHandle_t* handle) {
    *handle = new cublasXtContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtDestroy(cublasXtHandle_t handle) {
    delete handle;
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasXtDeviceSelect(cublasXtHandle_t, int count, int devices[]) {
    return count == 1 && devices[0] == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasXtSetBlockDim(cublasXtHandle_t, int size) {
    return size > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

#define LK_XT(name, T)                                                                                                        \
    cublasStatus_t name(cublasXtHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, size_t m, size_t n, size_t k, \
                        const T* alpha, const T* a, size_t lda, const T* b, size_t ldb, const T* beta, T* c, size_t ldc) {    \
        return product(handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                     \
    }
LK_XT(cublasXtSgemm, float)
LK_XT(cublasXtDgemm, double)
LK_XT(cublasXtCgemm, cuComplex)
LK_XT(cublasXtZgemm, cuDoubleComplex)

}  // extern "C"
