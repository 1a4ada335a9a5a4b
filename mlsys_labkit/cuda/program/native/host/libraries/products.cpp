// products.cpp: see products.h.
#include "products.h"

#include <cmath>
#include <cstdlib>
#include <string>
#include <type_traits>

#include <dlfcn.h>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"

namespace lk::host {

namespace {

constexpr int64_t small = 1 << 16;  // multiplications: fewer do not pay for loading OpenBLAS

void* library() {
    static void* const opened = [] {
        const char* path = getenv("LK_OPENBLAS");
        return path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    }();
    return opened;
}

template <class T>
constexpr const char* gemm_name() {
    if constexpr (std::is_same_v<T, float>) return "cblas_sgemm";
    if constexpr (std::is_same_v<T, double>) return "cblas_dgemm";
    if constexpr (std::is_same_v<T, std::complex<float>>) return "cblas_cgemm";
    return "cblas_zgemm";
}

template <class T>
T conjugated(T value) {
    if constexpr (std::is_floating_point_v<T>) {
        return value;
    } else {
        return std::conj(value);
    }
}

template <class T>
T element(const T* matrix, int64_t ld, cublasOperation_t op, int64_t row, int64_t column) {
    if (op == CUBLAS_OP_N) return matrix[column * ld + row];
    const T value = matrix[row * ld + column];
    return op == CUBLAS_OP_C ? conjugated(value) : value;
}

}  // namespace

void* openblas(const char* name) {
    if (!library()) return nullptr;
    const std::string text = name;
    const bool c = text.rfind("cblas_", 0) == 0;  // numpy 2 has another prefix than numpy 1; only Fortran's names end in _
    for (const char* prefix : {"scipy_", ""}) {
        if (void* found = dlsym(library(), (prefix + text + (c ? "64_" : "_64_")).c_str())) return found;
    }
    return nullptr;
}

template <class T>
void multiply(cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
              int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
    if (m * n * k > small) {
        if (void* const found = openblas(gemm_name<T>())) {
            constexpr int by_columns = 102;
            const auto code = [](cublasOperation_t op) { return op == CUBLAS_OP_N ? 111 : op == CUBLAS_OP_T ? 112 : 113; };
            if constexpr (std::is_floating_point_v<T>) {
                reinterpret_cast<void (*)(int, int, int, int64_t, int64_t, int64_t, T, const T*, int64_t, const T*, int64_t, T,
                                          T*, int64_t)>(found)(by_columns, code(op_a), code(op_b), m, n, k, alpha, a, lda, b,
                                                               ldb, beta, c, ldc);
            } else {
                reinterpret_cast<void (*)(int, int, int, int64_t, int64_t, int64_t, const T*, const T*, int64_t, const T*,
                                          int64_t, const T*, T*, int64_t)>(found)(
                    by_columns, code(op_a), code(op_b), m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
            }
            return;
        }
    }
    for (int64_t column = 0; column < n; ++column) {
        for (int64_t row = 0; row < m; ++row) {
            T sum = 0;
            for (int64_t i = 0; i < k; ++i) sum += element(a, lda, op_a, row, i) * element(b, ldb, op_b, i, column);
            T& result = c[column * ldc + row];
            result = beta == T(0) ? alpha * sum : alpha * sum + beta * result;
        }
    }
}

bool is_complex(cudaDataType_t type) { return type == CUDA_C_32F || type == CUDA_C_64F; }

size_t bytes_of(cudaDataType_t type) {
    switch (type) {
        case CUDA_R_8I:
        case CUDA_R_8U:
        case CUDA_R_8F_E4M3:
        case CUDA_R_8F_E5M2: return 1;
        case CUDA_R_16F:
        case CUDA_R_16BF: return 2;
        case CUDA_R_32F:
        case CUDA_R_32I: return 4;
        case CUDA_R_64F:
        case CUDA_C_32F: return 8;
        case CUDA_C_64F: return 16;
        default: return 0;
    }
}

bool is_known(cudaDataType_t type) { return bytes_of(type) != 0; }

template <class T>
T load(const void* data, cudaDataType_t type, int64_t place) {
    switch (type) {
        case CUDA_R_8I: return T(static_cast<const signed char*>(data)[place]);
        case CUDA_R_8U: return T(static_cast<const unsigned char*>(data)[place]);
        case CUDA_R_8F_E4M3: return T(float(static_cast<const __nv_fp8_e4m3*>(data)[place]));
        case CUDA_R_8F_E5M2: return T(float(static_cast<const __nv_fp8_e5m2*>(data)[place]));
        case CUDA_R_16F: return T(float(static_cast<const __half*>(data)[place]));
        case CUDA_R_16BF: return T(float(static_cast<const __nv_bfloat16*>(data)[place]));
        case CUDA_R_32F: return T(static_cast<const float*>(data)[place]);
        case CUDA_R_32I: return T(static_cast<const int*>(data)[place]);
        case CUDA_R_64F: return T(static_cast<const double*>(data)[place]);
        case CUDA_C_32F:
            if constexpr (!std::is_floating_point_v<T>) return T(static_cast<const std::complex<float>*>(data)[place]);
            break;
        case CUDA_C_64F:
            if constexpr (!std::is_floating_point_v<T>) return T(static_cast<const std::complex<double>*>(data)[place]);
            break;
        default: break;
    }
    return T(0);
}

template <class T>
void store(void* data, cudaDataType_t type, int64_t place, T value) {
    if constexpr (!std::is_floating_point_v<T>) {
        if (type == CUDA_C_32F) {
            static_cast<std::complex<float>*>(data)[place] = std::complex<float>(value);
        } else if (type == CUDA_C_64F) {
            static_cast<std::complex<double>*>(data)[place] = value;
        } else {
            store(data, type, place, value.real());
        }
    } else {
        switch (type) {
            case CUDA_R_8I: {
                const T rounded = std::nearbyint(value);
                static_cast<signed char*>(data)[place] = static_cast<signed char>(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
                break;
            }
            case CUDA_R_8F_E4M3: static_cast<__nv_fp8_e4m3*>(data)[place] = __nv_fp8_e4m3(value); break;
            case CUDA_R_8F_E5M2: static_cast<__nv_fp8_e5m2*>(data)[place] = __nv_fp8_e5m2(value); break;
            case CUDA_R_16F: static_cast<__half*>(data)[place] = __half(value); break;
            case CUDA_R_16BF: static_cast<__nv_bfloat16*>(data)[place] = __nv_bfloat16(value); break;
            case CUDA_R_32F: static_cast<float*>(data)[place] = float(value); break;
            case CUDA_R_32I: static_cast<int*>(data)[place] = int(std::llround(value)); break;
            case CUDA_R_64F: static_cast<double*>(data)[place] = value; break;
            default: break;
        }
    }
}

template <class T>
std::vector<T> loaded(const View& view, int64_t rows, int64_t columns) {
    std::vector<T> all(size_t(rows) * size_t(columns));
    for (int64_t column = 0; column < columns; ++column) {
        for (int64_t row = 0; row < rows; ++row) {
            const bool plain = view.op == CUBLAS_OP_N;
            const int64_t at = place(plain ? row : column, plain ? column : row, view.ld, view.by_rows);
            const T value = load<T>(view.data, view.type, at);
            all[size_t(column * rows + row)] = view.op == CUBLAS_OP_C ? conjugated(value) : value;
        }
    }
    return all;
}

#define LK_FOR(T)                                                                                                            \
    template void multiply(cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t, T, const T*, int64_t, const T*,  \
                           int64_t, T, T*, int64_t);                                                                         \
    template std::vector<T> loaded(const View&, int64_t, int64_t);                                                           \
    template T load(const void*, cudaDataType_t, int64_t);                                                                   \
    template void store(void*, cudaDataType_t, int64_t, T);

LK_FOR(float)
LK_FOR(double)
LK_FOR(std::complex<float>)
LK_FOR(std::complex<double>)

}  // namespace lk::host
