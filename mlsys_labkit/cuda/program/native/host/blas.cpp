// blas.cpp: cuBLAS's results from plain loops on the CPU. Scalars may lie on the host or on the device, as pointer modes allow.
#include "lk/host/blas.h"

#include <cmath>
#include <cstring>

#include "context.h"
#include "heap.h"
#include "journal.h"

using namespace lk::host;

struct cublasContext {};

namespace {

template <class Body>
cublasStatus_t run(cublasHandle_t handle, Body body) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const std::lock_guard<std::recursive_mutex> held(context().lock);
    if (context().synchronize() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    journal().note_once("cuBLAS stands in with plain loops on the CPU: its results, not its speed");
    const Opened open;
    return body();
}

template <class T>
T element(const T* matrix, int rows, cublasOperation_t op, int row, int column) {
    const int i = op == CUBLAS_OP_N ? row : column;
    const int j = op == CUBLAS_OP_N ? column : row;
    return matrix[size_t(j) * size_t(rows) + size_t(i)];
}

template <class T>
cublasStatus_t gemm(cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, T alpha, const T* a, int lda,
                    const T* b, int ldb, T beta, T* c, int ldc) {
    const int rows_a = op_a == CUBLAS_OP_N ? m : k;
    const int rows_b = op_b == CUBLAS_OP_N ? k : n;
    if (m < 0 || n < 0 || k < 0 || lda < rows_a || ldb < rows_b || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
    for (int column = 0; column < n; ++column) {
        for (int row = 0; row < m; ++row) {
            T sum = 0;
            for (int i = 0; i < k; ++i) sum += element(a, lda, op_a, row, i) * element(b, ldb, op_b, i, column);
            T& result = c[size_t(column) * size_t(ldc) + size_t(row)];
            result = beta == T(0) ? alpha * sum : alpha * sum + beta * result;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

// An element of a matrix of half or single precision, as float.
class Elements {
public:
    Elements(const void* data, cudaDataType_t type, int rows, cublasOperation_t op)
        : data_(data), type_(type), rows_(rows), op_(op) {}

    float at(int row, int column) const {
        if (type_ == CUDA_R_16F) return static_cast<float>(element(static_cast<const __half*>(data_), rows_, op_, row, column));
        return element(static_cast<const float*>(data_), rows_, op_, row, column);
    }

private:
    const void* data_;
    cudaDataType_t type_;
    int rows_;
    cublasOperation_t op_;
};

void store(void* data, cudaDataType_t type, size_t place, float value) {
    if (type == CUDA_R_16F) {
        static_cast<__half*>(data)[place] = __half(value);
    } else {
        static_cast<float*>(data)[place] = value;
    }
}

cublasStatus_t mixed_gemm(const Elements& a, const Elements& b, int m, int n, int k, float alpha, float beta, void* c,
                          cudaDataType_t type_c, int ldc) {
    const Elements old(c, type_c, ldc, CUBLAS_OP_N);
    for (int column = 0; column < n; ++column) {
        for (int row = 0; row < m; ++row) {
            float sum = 0;
            for (int i = 0; i < k; ++i) sum += a.at(row, i) * b.at(i, column);
            const float before = beta == 0 ? 0 : beta * old.at(row, column);
            store(c, type_c, size_t(column) * size_t(ldc) + size_t(row), alpha * sum + before);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t gemv(cublasOperation_t op, int m, int n, T alpha, const T* a, int lda, const T* x, int x_step, T beta, T* y,
                    int y_step) {
    if (m < 0 || n < 0 || lda < m || x_step == 0 || y_step == 0) return CUBLAS_STATUS_INVALID_VALUE;
    const int rows = op == CUBLAS_OP_N ? m : n;
    const int columns = op == CUBLAS_OP_N ? n : m;
    for (int row = 0; row < rows; ++row) {
        T sum = 0;
        for (int column = 0; column < columns; ++column) sum += element(a, lda, op, row, column) * x[column * x_step];
        T& result = y[row * y_step];
        result = beta == T(0) ? alpha * sum : alpha * sum + beta * result;
    }
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t axpy(int n, T alpha, const T* x, int x_step, T* y, int y_step) {
    for (int i = 0; i < n; ++i) y[i * y_step] += alpha * x[i * x_step];
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t scale(int n, T alpha, T* x, int x_step) {
    for (int i = 0; i < n; ++i) x[i * x_step] *= alpha;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t copy(int n, const T* x, int x_step, T* y, int y_step) {
    for (int i = 0; i < n; ++i) y[i * y_step] = x[i * x_step];
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t dot(int n, const T* x, int x_step, const T* y, int y_step, T* result) {
    T sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i * x_step] * y[i * y_step];
    *result = sum;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t norm(int n, const T* x, int x_step, T* result) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += double(x[i * x_step]) * double(x[i * x_step]);
    *result = static_cast<T>(std::sqrt(sum));
    return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t absolute_sum(int n, const T* x, int x_step, T* result) {
    T sum = 0;
    for (int i = 0; i < n; ++i) sum += std::abs(x[i * x_step]);
    *result = sum;
    return CUBLAS_STATUS_SUCCESS;
}

// Counted from 1, as in Fortran.
template <class T>
cublasStatus_t largest(int n, const T* x, int x_step, int* result) {
    int best = 0;
    for (int i = 1; i < n; ++i) {
        if (std::abs(x[i * x_step]) > std::abs(x[best * x_step])) best = i;
    }
    *result = n > 0 ? best + 1 : 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t copy_strided(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows) {
    if (size <= 0 || from_rows < rows || to_rows < rows) return CUBLAS_STATUS_INVALID_VALUE;
    const size_t bytes = size_t(size);
    const cudaError_t error = cudaMemcpy2D(to, size_t(to_rows) * bytes, from, size_t(from_rows) * bytes,
                                           size_t(rows) * bytes, size_t(columns), cudaMemcpyDefault);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    delete handle;
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
    *version = 130000;
    return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "unknown status";
}

const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasSetVector(int n, int size, const void* from, int from_step, void* to, int to_step) {
    return copy_strided(1, n, size, from, from_step, to, to_step);
}

cublasStatus_t cublasGetVector(int n, int size, const void* from, int from_step, void* to, int to_step) {
    return copy_strided(1, n, size, from, from_step, to, to_step);
}

cublasStatus_t cublasSetMatrix(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows) {
    return copy_strided(rows, columns, size, from, from_rows, to, to_rows);
}

cublasStatus_t cublasGetMatrix(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows) {
    return copy_strided(rows, columns, size, from, from_rows, to, to_rows);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                           const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
                           float* c, int ldc) {
    return run(handle, [=] { return gemm(op_a, op_b, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc); });
}

cublasStatus_t cublasDgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                           const double* alpha, const double* a, int lda, const double* b, int ldb, const double* beta,
                           double* c, int ldc) {
    return run(handle, [=] { return gemm(op_a, op_b, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc); });
}

cublasStatus_t cublasHgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                           const __half* alpha, const __half* a, int lda, const __half* b, int ldb, const __half* beta,
                           __half* c, int ldc) {
    return run(handle, [=] {
        return mixed_gemm({a, CUDA_R_16F, lda, op_a}, {b, CUDA_R_16F, ldb, op_b}, m, n, k, static_cast<float>(*alpha),
                          static_cast<float>(*beta), c, CUDA_R_16F, ldc);
    });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                            cudaDataType_t type_b, int ldb, const void* beta, void* c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
    if (compute == CUBLAS_COMPUTE_64F) {
        return cublasDgemm(handle, op_a, op_b, m, n, k, static_cast<const double*>(alpha), static_cast<const double*>(a),
                           lda, static_cast<const double*>(b), ldb, static_cast<const double*>(beta),
                           static_cast<double*>(c), ldc);
    }
    for (const cudaDataType_t type : {type_a, type_b, type_c}) {
        if (type != CUDA_R_16F && type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const bool in_half = compute == CUBLAS_COMPUTE_16F;
    return run(handle, [=] {
        const auto scalar = [in_half](const void* value) {
            return in_half ? static_cast<float>(*static_cast<const __half*>(value)) : *static_cast<const float*>(value);
        };
        return mixed_gemm({a, type_a, lda, op_a}, {b, type_b, ldb, op_b}, m, n, k, scalar(alpha), scalar(beta), c, type_c,
                          ldc);
    });
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                         int n, int k, const float* alpha, const float* a, int lda, long long stride_a,
                                         const float* b, int ldb, long long stride_b, const float* beta, float* c,
                                         int ldc, long long stride_c, int batches) {
    return run(handle, [=] {
        for (int i = 0; i < batches; ++i) {
            const cublasStatus_t status = gemm(op_a, op_b, m, n, k, *alpha, a + i * stride_a, lda, b + i * stride_b, ldb,
                                               *beta, c + i * stride_c, ldc);
            if (status != CUBLAS_STATUS_SUCCESS) return status;
        }
        return CUBLAS_STATUS_SUCCESS;
    });
}

#define LK_VECTOR_CALLS(letter, lower, T)                                                                                \
    cublasStatus_t cublas##letter##gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha,       \
                                        const T* a, int lda, const T* x, int x_step, const T* beta, T* y, int y_step) {  \
        return run(handle, [=] { return gemv(op, m, n, *alpha, a, lda, x, x_step, *beta, y, y_step); });                 \
    }                                                                                                                    \
    cublasStatus_t cublas##letter##axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int x_step, T* y,      \
                                        int y_step) {                                                                    \
        return run(handle, [=] { return axpy(n, *alpha, x, x_step, y, y_step); });                                       \
    }                                                                                                                    \
    cublasStatus_t cublas##letter##scal(cublasHandle_t handle, int n, const T* alpha, T* x, int x_step) {                \
        return run(handle, [=] { return scale(n, *alpha, x, x_step); });                                                 \
    }                                                                                                                    \
    cublasStatus_t cublas##letter##copy(cublasHandle_t handle, int n, const T* x, int x_step, T* y, int y_step) {        \
        return run(handle, [=] { return copy(n, x, x_step, y, y_step); });                                               \
    }                                                                                                                    \
    cublasStatus_t cublas##letter##dot(cublasHandle_t handle, int n, const T* x, int x_step, const T* y, int y_step,     \
                                       T* result) {                                                                      \
        return run(handle, [=] { return dot(n, x, x_step, y, y_step, result); });                                        \
    }                                                                                                                    \
    cublasStatus_t cublas##letter##nrm2(cublasHandle_t handle, int n, const T* x, int x_step, T* result) {               \
        return run(handle, [=] { return norm(n, x, x_step, result); });                                                  \
    }                                                                                                                    \
    cublasStatus_t cublas##letter##asum(cublasHandle_t handle, int n, const T* x, int x_step, T* result) {               \
        return run(handle, [=] { return absolute_sum(n, x, x_step, result); });                                          \
    }                                                                                                                    \
    cublasStatus_t cublasI##lower##amax(cublasHandle_t handle, int n, const T* x, int x_step, int* result) {            \
        return run(handle, [=] { return largest(n, x, x_step, result); });                                               \
    }

LK_VECTOR_CALLS(S, s, float)
LK_VECTOR_CALLS(D, d, double)

}  // extern "C"
