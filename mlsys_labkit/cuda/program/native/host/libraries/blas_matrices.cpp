// blas_matrices.cpp: cuBLAS's calls on matrices and vectors, and on triangular and symmetric matrices (levels 2 and 3).
#include "blas_parts.h"

using namespace lk::host;

namespace {

// The full matrix that a triangle, or the half of a symmetric matrix, stands for.
template <class T>
std::vector<T> full(cublasFillMode_t fill, cublasOperation_t op, const T* a, int lda, int n, bool symmetric, bool unit) {
    std::vector<T> all(size_t(n) * size_t(n));
    for (int column = 0; column < n; ++column) {
        for (int row = 0; row < n; ++row) {
            const bool stored = fill == CUBLAS_FILL_MODE_LOWER ? row >= column : row <= column;
            T value = stored ? a[int64_t(column) * lda + row] : symmetric ? a[int64_t(row) * lda + column] : T(0);
            if (unit && row == column) value = T(1);
            const bool plain = op == CUBLAS_OP_N;
            all[plain ? size_t(column) * size_t(n) + size_t(row) : size_t(row) * size_t(n) + size_t(column)] =
                conjugated(value, op == CUBLAS_OP_C);
        }
    }
    return all;
}

// Solves op(A) x = b for each of the columns in place; A is a full n x n matrix of which a triangle is not zero.
template <class T>
void solve(const std::vector<T>& a, bool lower, int n, T* x, int64_t step) {
    for (int i = 0; i < n; ++i) {
        const int row = lower ? i : n - 1 - i;
        T sum = x[row * step];
        for (int other = lower ? 0 : row + 1; other < (lower ? row : n); ++other) {
            sum -= a[size_t(other) * size_t(n) + size_t(row)] * x[other * step];
        }
        x[row * step] = sum / a[size_t(row) * size_t(n) + size_t(row)];
    }
}

bool stays_lower(cublasFillMode_t fill, cublasOperation_t op) { return (fill == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N); }

}  // namespace

extern "C" {

#define LK_GEMV(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha, const T* a, int lda,      \
                        const T* lk_x, int x_step, const T* beta, T* lk_y, int y_step) {                                     \
        if (m < 0 || n < 0 || lda < std::max(1, m) || x_step == 0 || y_step == 0) return CUBLAS_STATUS_INVALID_VALUE;        \
        return run(handle, [=] {                                                                                             \
            if (!is_matrix(a, m, n, lda, sizeof(T))) return CUBLAS_STATUS_EXECUTION_FAILED;                                  \
            const bool plain = op == CUBLAS_OP_N;                                                                            \
            const int rows = plain ? m : n, columns = plain ? n : m;                                                         \
            const auto* x = first_of(as_number(lk_x), columns, x_step);                                                      \
            auto* y = first_of(as_number(lk_y), rows, y_step);                                                               \
            reads_matrix(a, m, n, lda, sizeof(T));                                                                           \
            reads_vector(lk_x, columns, x_step);                                                                             \
            if (*as_number(beta) != Number<T>(0)) reads_vector(lk_y, rows, y_step);                                          \
            for (int64_t row = 0; row < rows; ++row) {                                                                       \
                Number<T> sum = 0;                                                                                           \
                for (int64_t i = 0; i < columns; ++i) {                                                                      \
                    const auto value = as_number(a)[plain ? i * lda + row : row * lda + i];                                  \
                    sum += conjugated(value, op == CUBLAS_OP_C) * x[i * x_step];                                             \
                }                                                                                                            \
                const Number<T> scale = *as_number(beta);                                                                    \
                auto& result = y[row * y_step];                                                                              \
                result = *as_number(alpha) * sum + (scale == Number<T>(0) ? Number<T>(0) : scale * result);                  \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_GER(name, T)                                                                                                      \
    cublasStatus_t name(cublasHandle_t handle, int m, int n, const T* alpha, const T* lk_x, int x_step, const T* lk_y,       \
                        int y_step, T* a, int lda) {                                                                         \
        return run(handle, [=] {                                                                                             \
            if (!is_matrix(a, m, n, lda, sizeof(T))) return CUBLAS_STATUS_EXECUTION_FAILED;                                  \
            reads_vector(lk_x, m, x_step);                                                                                   \
            reads_vector(lk_y, n, y_step);                                                                                   \
            reads_matrix(a, m, n, lda, sizeof(T));                                                                           \
            const auto* x = first_of(as_number(lk_x), m, x_step);                                                            \
            const auto* y = first_of(as_number(lk_y), n, y_step);                                                            \
            for (int64_t column = 0; column < n; ++column) {                                                                 \
                const Number<T> factor = *as_number(alpha) * y[column * y_step];                                             \
                for (int64_t row = 0; row < m; ++row) as_number(a)[column * lda + row] += factor * x[row * x_step];          \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_SYMV(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, int n, const T* alpha, const T* a, int lda,            \
                        const T* x, int x_step, const T* beta, T* y, int y_step) {                                           \
        return run(handle, [=] {                                                                                             \
            reads_vector(x, n, x_step);                                                                                      \
            if (*beta != T(0)) reads_vector(y, n, y_step);                                                                   \
            const std::vector<T> all = full(fill, CUBLAS_OP_N, a, lda, n, true, false);                                      \
            for (int64_t row = 0; row < n; ++row) {                                                                          \
                T sum = 0;                                                                                                   \
                for (int64_t i = 0; i < n; ++i) sum += all[size_t(i * n + row)] * x[i * x_step];                             \
                y[row * y_step] = *alpha * sum + (*beta == T(0) ? T(0) : *beta * y[row * y_step]);                           \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_TRIANGLE_VECTOR(name, T)                                                                                          \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diagonal,       \
                        int n, const T* a, int lda, T* x, int x_step) {                                                      \
        return run(handle, [=] {                                                                                             \
            reads_vector(x, n, x_step);                                                                                      \
            const auto all = full(fill, op, as_number(a), lda, n, false, diagonal == CUBLAS_DIAG_UNIT);                      \
            solve(all, stays_lower(fill, op), n, as_number(x), x_step);                                                      \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_TRIANGLE_TIMES(name, T)                                                                                           \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diagonal,       \
                        int n, const T* a, int lda, T* lk_x, int x_step) {                                                   \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, n, x_step);                                                                                   \
            const auto all = full(fill, op, as_number(a), lda, n, false, diagonal == CUBLAS_DIAG_UNIT);                      \
            auto* x = as_number(lk_x);                                                                                       \
            std::vector<Number<T>> sums(static_cast<size_t>(n));                                                             \
            for (int64_t row = 0; row < n; ++row) {                                                                          \
                for (int64_t i = 0; i < n; ++i) sums[size_t(row)] += all[size_t(i * n + row)] * x[i * x_step];               \
            }                                                                                                                \
            for (int64_t row = 0; row < n; ++row) x[row * x_step] = sums[size_t(row)];                                       \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_SYRK(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k, const T* alpha,    \
                        const T* a, int lda, const T* beta, T* lk_c, int ldc) {                                              \
        return run(handle, [=] {                                                                                             \
            const bool plain = op == CUBLAS_OP_N;                                                                            \
            reads_matrix(a, plain ? n : k, plain ? k : n, lda, sizeof(T));                                                   \
            std::vector<Number<T>> all(size_t(n) * size_t(n));                                                               \
            multiply(op, plain ? CUBLAS_OP_T : CUBLAS_OP_N, n, n, k, *as_number(alpha), as_number(a), lda, as_number(a),     \
                     lda, Number<T>(0), all.data(), std::max(1, n));                                                         \
            auto* c = as_number(lk_c);                                                                                       \
            for (int64_t column = 0; column < n; ++column) {                                                                 \
                for (int64_t row = 0; row < n; ++row) {                                                                      \
                    if (fill == CUBLAS_FILL_MODE_LOWER ? row < column : row > column) continue;                              \
                    auto& result = c[column * ldc + row];                                                                    \
                    const Number<T> scale = *as_number(beta);                                                                \
                    result = all[size_t(column * n + row)] + (scale == Number<T>(0) ? scale : scale * result);               \
                }                                                                                                            \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
// The product of a full square matrix, from the left or the right, with b.
#define LK_SIDED(side, square, size, b, ldb, beta, c, ldc)                                                                   \
    if (side == CUBLAS_SIDE_LEFT) {                                                                                          \
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, m, n, size, *as_number(alpha), square, size, b, ldb, beta, c, ldc);               \
    } else {                                                                                                                 \
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, m, n, size, *as_number(alpha), b, ldb, square, size, beta, c, ldc);               \
    }
#define LK_SYMM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, int m, int n, const T* alpha,   \
                        const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {                            \
        return run(handle, [=] {                                                                                             \
            reads_matrix(b, m, n, ldb, sizeof(T));                                                                           \
            if (*as_number(beta) != Number<T>(0)) reads_matrix(c, m, n, ldc, sizeof(T));                                     \
            const int size = side == CUBLAS_SIDE_LEFT ? m : n;                                                               \
            const auto all = full(fill, CUBLAS_OP_N, as_number(a), lda, size, true, false);                                  \
            LK_SIDED(side, all.data(), size, as_number(b), ldb, *as_number(beta), as_number(c), ldc)                         \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_TRMM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op,           \
                        cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, const T* b, int ldb,   \
                        T* c, int ldc) {                                                                                     \
        return run(handle, [=] {                                                                                             \
            reads_matrix(b, m, n, ldb, sizeof(T));                                                                           \
            const int size = side == CUBLAS_SIDE_LEFT ? m : n;                                                               \
            const auto all = full(fill, op, as_number(a), lda, size, false, diagonal == CUBLAS_DIAG_UNIT);                   \
            const auto before = loaded<Number<T>>({b, type_of<T>(), ldb}, m, n); /* c may be b */                            \
            LK_SIDED(side, all.data(), size, before.data(), std::max(1, m), Number<T>(0), as_number(c), ldc)                 \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_TRSM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op,           \
                        cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, T* lk_b, int ldb) {    \
        return run(handle, [=] {                                                                                             \
            reads_matrix(lk_b, m, n, ldb, sizeof(T));                                                                        \
            const bool left = side == CUBLAS_SIDE_LEFT;                                                                      \
            const int size = left ? m : n, others = left ? n : m;                                                            \
            auto* b = as_number(lk_b);                                                                                       \
            for (int64_t column = 0; column < n; ++column) {                                                                 \
                for (int64_t row = 0; row < m; ++row) b[column * ldb + row] *= *as_number(alpha);                            \
            }                                                                                                                \
            auto all = full(fill, op, as_number(a), lda, size, false, diagonal == CUBLAS_DIAG_UNIT);                         \
            if (!left) { /* X A = B is A^T X^T = B^T */                                                                      \
                const auto before = all;                                                                                     \
                for (int i = 0; i < size * size; ++i) all[size_t(i % size * size + i / size)] = before[size_t(i)];           \
            }                                                                                                                \
            const bool lower = stays_lower(fill, op) == left;                                                                \
            for (int64_t i = 0; i < others; ++i) solve(all, lower, size, left ? b + i * ldb : b + i, left ? 1 : ldb);        \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_GEAM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,                 \
                        const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {            \
        return run(handle, [=] {                                                                                             \
            const Number<T> first = *as_number(alpha), second = *as_number(beta), zero(0);                                   \
            if (first != zero) reads_matrix(a, op_a == CUBLAS_OP_N ? m : n, op_a == CUBLAS_OP_N ? n : m, lda, sizeof(T));    \
            if (second != zero) reads_matrix(b, op_b == CUBLAS_OP_N ? m : n, op_b == CUBLAS_OP_N ? n : m, ldb, sizeof(T));   \
            std::vector<Number<T>> left, right; /* not read where its factor is 0 */                                         \
            if (first != zero) left = loaded<Number<T>>({a, type_of<T>(), lda, op_a}, m, n);                                 \
            if (second != zero) right = loaded<Number<T>>({b, type_of<T>(), ldb, op_b}, m, n);                               \
            for (int64_t i = 0; i < int64_t(m) * n; ++i) {                                                                   \
                as_number(c)[i / m * ldc + i % m] = (left.empty() ? zero : first * left[size_t(i)]) +                        \
                                                    (right.empty() ? zero : second * right[size_t(i)]);                      \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_DGMM(name, T)                                                                                                     \
    cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T* a, int lda, const T* lk_x,      \
                        int x_step, T* c, int ldc) {                                                                         \
        return run(handle, [=] {                                                                                             \
            reads_vector(lk_x, side == CUBLAS_SIDE_LEFT ? m : n, x_step);                                                    \
            reads_matrix(a, m, n, lda, sizeof(T));                                                                           \
            const auto* x = first_of(as_number(lk_x), side == CUBLAS_SIDE_LEFT ? m : n, x_step);                             \
            for (int64_t column = 0; column < n; ++column) {                                                                 \
                for (int64_t row = 0; row < m; ++row) {                                                                      \
                    const auto factor = x[(side == CUBLAS_SIDE_LEFT ? row : column) * x_step];                               \
                    as_number(c)[column * ldc + row] = as_number(a)[column * lda + row] * factor;                            \
                }                                                                                                            \
            }                                                                                                                \
            return CUBLAS_STATUS_SUCCESS;                                                                                    \
        });                                                                                                                  \
    }
#define LK_GEMM(...)
#define LK_VECTORS(...)
#define LK_DOT(...)
#define LK_DOT_CONJUGATED(...)
#define LK_SIZES(...)
#define LK_ROTATION(...)

#include "lk/host/blas_calls.h"
#include "lk/host/blas_no_calls.h"

}  // extern "C"
