// blas_vectors.cpp: cuBLAS's calls on vectors (level 1).
#include "blas_parts.h"

using namespace lk::host;

extern "C" {

#define LK_VECTORS(axpy, scal, copy, exchange, T)                                                                                \
    cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, const T* lk_x, int x_step, T* lk_y, int y_step) {      \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, n, x_step);                                                                                   \
            reads_vector(lk_y, n, y_step);                                                                                   \
            const auto* x = first_of(as_number(lk_x), n, x_step);                                                            \
            auto* y = first_of(as_number(lk_y), n, y_step);                                                                  \
            for (int64_t i = 0; i < n; ++i) y[i * y_step] += *as_number(alpha) * x[i * x_step];                              \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }                                                                                                                        \
    cublasStatus_t scal(cublasHandle_t handle, int n, const T* alpha, T* x, int x_step) {                                    \
        return run(handle, [=] {                                                                                             \
            reads_vector(x, n, x_step);                                                                                      \
            for (int64_t i = 0; i < n; ++i) as_number(x)[i * x_step] *= *as_number(alpha);                                   \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }                                                                                                                        \
    cublasStatus_t copy(cublasHandle_t handle, int n, const T* lk_x, int x_step, T* lk_y, int y_step) {                      \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, n, x_step);                                                                                   \
            const T* x = first_of(lk_x, n, x_step);                                                                          \
            T* y = first_of(lk_y, n, y_step);                                                                                \
            for (int64_t i = 0; i < n; ++i) y[i * y_step] = x[i * x_step];                                                   \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }                                                                                                                        \
    cublasStatus_t exchange(cublasHandle_t handle, int n, T* lk_x, int x_step, T* lk_y, int y_step) {                            \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, n, x_step);                                                                                   \
            reads_vector(lk_y, n, y_step);                                                                                   \
            T* x = first_of(lk_x, n, x_step);                                                                                \
            T* y = first_of(lk_y, n, y_step);                                                                                \
            for (int64_t i = 0; i < n; ++i) std::swap(y[i * y_step], x[i * x_step]);                                         \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_DOT_AS(name, T, conjugate)                                                                                        \
    cublasStatus_t name(cublasHandle_t handle, int n, const T* lk_x, int x_step, const T* lk_y, int y_step, T* result) {     \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, n, x_step);                                                                                   \
            reads_vector(lk_y, n, y_step);                                                                                   \
            const auto* x = first_of(as_number(lk_x), n, x_step);                                                            \
            const auto* y = first_of(as_number(lk_y), n, y_step);                                                            \
            Number<T> sum = 0;                                                                                               \
            for (int64_t i = 0; i < n; ++i) sum += conjugated(x[i * x_step], conjugate) * y[i * y_step];                     \
            *as_number(result) = sum;                                                                                        \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_DOT(name, T) LK_DOT_AS(name, T, false)
#define LK_DOT_CONJUGATED(name, T) LK_DOT_AS(name, T, true)
#define LK_EXTREME(name, T, order)                                                                                           \
    cublasStatus_t name(cublasHandle_t handle, int n, const T* lk_x, int x_step, int* result) {                              \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, n, x_step);                                                                                   \
            const auto* x = as_number(lk_x);                                                                                 \
            int64_t best = 0;                                                                                                \
            for (int64_t i = 1; i < n; ++i) {                                                                                \
                if (magnitude(x[i * x_step]) order magnitude(x[best * x_step])) best = i;                                    \
            }                                                                                                                \
            *result = n > 0 ? int(best) + 1 : 0; /* counted from 1, as in Fortran */                                         \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_SIZES(nrm2, asum, amax, amin, T, Real)                                                                            \
    cublasStatus_t nrm2(cublasHandle_t handle, int n, const T* x, int x_step, Real* result) {                                \
        return run(handle, [=] {                                                                                             \
            reads_vector(x, n, x_step);                                                                                      \
            double sum = 0;                                                                                                  \
            for (int64_t i = 0; i < n; ++i) sum += double(std::norm(as_number(x)[i * x_step]));                              \
            *result = Real(std::sqrt(sum));                                                                                  \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }                                                                                                                        \
    cublasStatus_t asum(cublasHandle_t handle, int n, const T* x, int x_step, Real* result) {                                \
        return run(handle, [=] {                                                                                             \
            reads_vector(x, n, x_step);                                                                                      \
            Real sum = 0;                                                                                                    \
            for (int64_t i = 0; i < n; ++i) sum += magnitude(as_number(x)[i * x_step]);                                      \
            *result = sum;                                                                                                   \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }                                                                                                                        \
    LK_EXTREME(amax, T, >)                                                                                                   \
    LK_EXTREME(amin, T, <)
#define LK_ROTATION(name, T)                                                                                                 \
    cublasStatus_t name(cublasHandle_t handle, int n, T* x, int x_step, T* y, int y_step, const T* cosine, const T* sine) {  \
        return run(handle, [=] {                                                                                             \
            for (int64_t i = 0; i < n; ++i) {                                                                                \
                const T before = x[i * x_step];                                                                              \
                x[i * x_step] = *cosine * before + *sine * y[i * y_step];                                                    \
                y[i * y_step] = *cosine * y[i * y_step] - *sine * before;                                                    \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_GEMM(...)
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
