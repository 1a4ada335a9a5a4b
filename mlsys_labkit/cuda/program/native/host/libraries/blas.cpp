// blas.cpp: cuBLAS's handles, copies and products of matrices.
#include "lk/host/blas.h"

#include "blas_parts.h"

using namespace lk::host;

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

namespace {

cublasStatus_t sizes(cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, int lda, int ldb, int ldc) {
    const int rows_a = op_a == CUBLAS_OP_N ? m : k;
    const int rows_b = op_b == CUBLAS_OP_N ? k : n;
    const bool right = m >= 0 && n >= 0 && k >= 0 && lda >= std::max(1, rows_a) && ldb >= std::max(1, rows_b) &&
                       ldc >= std::max(1, m);
    return right ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// One product of any types; alpha and beta are of the type that is computed in.
struct Product {
    cublasOperation_t op_a, op_b;
    int m, n, k;
    cudaDataType_t type_a, type_b, type_c;
    int lda, ldb, ldc;
    cublasComputeType_t compute;

    bool knows_types() const { return is_known(type_a) && is_known(type_b) && is_known(type_c); }

    bool fit(const void* a, const void* b, const void* c) const {
        const bool plain_a = op_a == CUBLAS_OP_N, plain_b = op_b == CUBLAS_OP_N;
        return is_matrix(a, plain_a ? m : k, plain_a ? k : m, lda, bytes_of(type_a)) &&
               is_matrix(b, plain_b ? k : n, plain_b ? n : k, ldb, bytes_of(type_b)) &&
               is_matrix(c, m, n, ldc, bytes_of(type_c));
    }

    void note_reads(const void* a, const void* b, const void* c, bool adds) const {
        const bool plain_a = op_a == CUBLAS_OP_N, plain_b = op_b == CUBLAS_OP_N;
        reads_matrix(a, plain_a ? m : k, plain_a ? k : m, lda, bytes_of(type_a));
        reads_matrix(b, plain_b ? k : n, plain_b ? n : k, ldb, bytes_of(type_b));
        if (adds) reads_matrix(c, m, n, ldc, bytes_of(type_c));
    }

    template <class T>
    void computed(T alpha, const void* a, const void* b, T beta, void* c, cudaDataType_t own) const {
        note_reads(a, b, c, beta != T(0));
        if (type_a == own && type_b == own && type_c == own) {
            multiply(op_a, op_b, m, n, k, alpha, static_cast<const T*>(a), lda, static_cast<const T*>(b), ldb, beta,
                     static_cast<T*>(c), ldc);
            return;
        }
        const std::vector<T> left = loaded<T>({a, type_a, lda, op_a}, m, k), right = loaded<T>({b, type_b, ldb, op_b}, k, n);
        std::vector<T> out(size_t(m) * size_t(n));
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, alpha, left.data(), std::max(1, m), right.data(), std::max(1, k), T(0),
                 out.data(), std::max(1, m));
        for (int column = 0; column < n; ++column) {
            for (int row = 0; row < m; ++row) {
                const int64_t at = place(row, column, ldc, false);
                const T before = beta == T(0) ? T(0) : beta * load<T>(c, type_c, at);
                store(c, type_c, at, out[size_t(column) * size_t(m) + size_t(row)] + before);
            }
        }
    }

    cublasStatus_t operator()(const void* alpha, const void* a, const void* b, const void* beta, void* c) const {
        if (!knows_types() || is_complex(type_a) != is_complex(type_c)) return CUBLAS_STATUS_NOT_SUPPORTED;
        const cublasStatus_t status = sizes(op_a, op_b, m, n, k, lda, ldb, ldc);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
        if (!fit(a, b, c)) return CUBLAS_STATUS_EXECUTION_FAILED;
        const auto scalar = [](const void* data, cudaDataType_t type) { return load<double>(data, type, 0); };
        const bool half = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC;
        const bool wide = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
        const bool integers = compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC;
        if (type_c == CUDA_C_64F) {
            computed(load<std::complex<double>>(alpha, type_c, 0), a, b, load<std::complex<double>>(beta, type_c, 0), c, type_c);
        } else if (type_c == CUDA_C_32F) {
            computed(load<std::complex<float>>(alpha, type_c, 0), a, b, load<std::complex<float>>(beta, type_c, 0), c, type_c);
        } else if (wide || integers) {  // a double holds each 32-bit integer; where C is float, so are alpha and beta
            const cudaDataType_t type = wide ? CUDA_R_64F : type_c == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F;
            computed(scalar(alpha, type), a, b, scalar(beta, type), c, CUDA_R_64F);
        } else {
            const cudaDataType_t type = half ? CUDA_R_16F : CUDA_R_32F;
            computed(float(scalar(alpha, type)), a, b, float(scalar(beta, type)), c, CUDA_R_32F);
        }
        return CUBLAS_STATUS_SUCCESS;
    }
};

template <class T>
constexpr cublasComputeType_t sums_of() {
    if constexpr (std::is_same_v<T, __half>) return CUBLAS_COMPUTE_16F;
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, cuDoubleComplex>) return CUBLAS_COMPUTE_64F;
    return CUBLAS_COMPUTE_32F;
}

template <class T>
Product product_of(cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, int lda, int ldb, int ldc) {
    return {op_a, op_b, m, n, k, type_of<T>(), type_of<T>(), type_of<T>(), lda, ldb, ldc, sums_of<T>()};
}

template <class Each>
cublasStatus_t batch(int count, Each each) {
    for (int i = 0; i < count; ++i) {
        const cublasStatus_t status = each(i);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
    }
    return count < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

const void* moved(const void* data, cudaDataType_t type, long long elements) {
    return static_cast<const char*>(data) + elements * static_cast<long long>(bytes_of(type));
}

[[gnu::always_inline]] inline cublasStatus_t copy_strided(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows) {
    if (size <= 0 || from_rows < rows || to_rows < rows) return CUBLAS_STATUS_INVALID_VALUE;
    const size_t bytes = size_t(size);
    const LibraryCall call(reinterpret_cast<uint64_t>(__builtin_return_address(0)));
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

#define LK_SETTING(set, get, Type, member)                                  \
    cublasStatus_t set(cublasHandle_t handle, Type value) {                 \
        if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;                  \
        handle->member = value;                                             \
        return CUBLAS_STATUS_SUCCESS;                                       \
    }                                                                       \
    cublasStatus_t get(cublasHandle_t handle, Type* value) {                \
        if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;                  \
        *value = handle->member;                                            \
        return CUBLAS_STATUS_SUCCESS;                                       \
    }
LK_SETTING(cublasSetStream, cublasGetStream, cudaStream_t, stream)
LK_SETTING(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math)
LK_SETTING(cublasSetPointerMode, cublasGetPointerMode, cublasPointerMode_t, pointers)

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
    *value = type == MAJOR_VERSION ? CUBLAS_VER_MAJOR : type == MINOR_VERSION ? CUBLAS_VER_MINOR : 0;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasGetCudartVersion() { return 13000; }

cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
    *version = CUBLAS_VERSION;
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

cublasStatus_t cublasSetVectorAsync(int n, int size, const void* from, int from_step, void* to, int to_step, cudaStream_t) {
    return copy_strided(1, n, size, from, from_step, to, to_step);
}

cublasStatus_t cublasSetMatrixAsync(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows,
                                    cudaStream_t) {
    return copy_strided(rows, columns, size, from, from_rows, to, to_rows);
}

cublasStatus_t cublasGetVectorAsync(int n, int size, const void* from, int from_step, void* to, int to_step, cudaStream_t) {
    return copy_strided(1, n, size, from, from_step, to, to_step);
}

cublasStatus_t cublasGetMatrixAsync(int rows, int columns, int size, const void* from, int from_rows, void* to, int to_rows,
                                    cudaStream_t) {
    return copy_strided(rows, columns, size, from, from_rows, to, to_rows);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                            cudaDataType_t type_b, int ldb, const void* beta, void* c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
    const Product product{op_a, op_b, m, n, k, type_a, type_b, type_c, lda, ldb, ldc, compute};
    return run(handle, [=] { return product(alpha, a, b, beta, c); });
}

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                             const float* alpha, const void* a, cudaDataType_t type_a, int lda, const void* b,
                             cudaDataType_t type_b, int ldb, const float* beta, void* c, cudaDataType_t type_c, int ldc) {
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                          int k, const void* alpha, const void* a, cudaDataType_t type_a, int lda,
                                          long long stride_a, const void* b, cudaDataType_t type_b, int ldb,
                                          long long stride_b, const void* beta, void* c, cudaDataType_t type_c, int ldc,
                                          long long stride_c, int batches, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const Product product{op_a, op_b, m, n, k, type_a, type_b, type_c, lda, ldb, ldc, compute};
    return run(handle, [=] {
        return batch(batches, [=](int i) {
            return product(alpha, moved(a, type_a, i * stride_a), moved(b, type_b, i * stride_b), beta,
                           const_cast<void*>(moved(c, type_c, i * stride_c)));
        });
    });
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                                   const void* alpha, const void* const* a, cudaDataType_t type_a, int lda,
                                   const void* const* b, cudaDataType_t type_b, int ldb, const void* beta, void* const* c,
                                   cudaDataType_t type_c, int ldc, int batches, cublasComputeType_t compute,
                                   cublasGemmAlgo_t) {
    const Product product{op_a, op_b, m, n, k, type_a, type_b, type_c, lda, ldb, ldc, compute};
    return run(handle, [=] { return batch(batches, [=](int i) { return product(alpha, a[i], b[i], beta, c[i]); }); });
}

#define LK_GEMM(name, batched, strided, T)                                                                                   \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,          \
                        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {            \
        return run(handle, [=] { return product_of<T>(op_a, op_b, m, n, k, lda, ldb, ldc)(alpha, a, b, beta, c); });         \
    }                                                                                                                        \
    cublasStatus_t batched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
                           const T* alpha, const T* const* a, int lda, const T* const* b, int ldb, const T* beta,            \
                           T* const* c, int ldc, int batches) {                                                              \
        const Product product = product_of<T>(op_a, op_b, m, n, k, lda, ldb, ldc);                                           \
        return run(handle, [=] { return batch(batches, [=](int i) { return product(alpha, a[i], b[i], beta, c[i]); }); });   \
    }                                                                                                                        \
    cublasStatus_t strided(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
                           const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb,                     \
                           long long stride_b, const T* beta, T* c, int ldc, long long stride_c, int batches) {              \
        const Product product = product_of<T>(op_a, op_b, m, n, k, lda, ldb, ldc);                                           \
        return run(handle, [=] {                                                                                             \
            return batch(batches, [=](int i) {                                                                               \
                return product(alpha, a + i * stride_a, b + i * stride_b, beta, c + i * stride_c);                           \
            });                                                                                                              \
        });                                                                                                                  \
    }
#define LK_VECTORS(...)
#define LK_DOT(...)
#define LK_DOT_CONJUGATED(...)
#define LK_SIZES(...)
#define LK_ROTATION(...)
#define LK_GEMV(...)
#define LK_GER(...)
#define LK_SYMV(...)
#define LK_TRIANGLE_VECTOR(...)
#define LK_TRIANGLE_TIMES(...)
#define LK_SYRK(...)
#define LK_SYMM(...)
#define LK_TRSM(...)
#define LK_TRMM(...)
#define LK_GEAM(...)
#define LK_DGMM(...)

#include "lk/host/blas_calls.h"
#include "lk/host/blas_no_calls.h"

}  // extern "C"
