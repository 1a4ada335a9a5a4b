// blas_parts.h: what the parts of cuBLAS share.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "library.h"
#include "products.h"

namespace lk::host {

// cuComplex is a pair without operators; std::complex has its layout.
template <class T>
struct NumberOf {
    using Type = T;
};
template <>
struct NumberOf<cuComplex> {
    using Type = std::complex<float>;
};
template <>
struct NumberOf<cuDoubleComplex> {
    using Type = std::complex<double>;
};
template <class T>
using Number = typename NumberOf<T>::Type;

template <class T>
const Number<T>* as_number(const T* data) { return reinterpret_cast<const Number<T>*>(data); }
template <class T>
Number<T>* as_number(T* data) { return reinterpret_cast<Number<T>*>(data); }

template <class T>
T conjugated(T value, bool wanted = true) {
    if constexpr (std::is_floating_point_v<T>) {
        return value;
    } else {
        return wanted ? std::conj(value) : value;
    }
}

template <class T>
auto magnitude(T value) {  // of a complex number, as BLAS measures it
    if constexpr (std::is_floating_point_v<T>) {
        return std::abs(value);
    } else {
        return std::abs(value.real()) + std::abs(value.imag());
    }
}

template <class Body>
[[gnu::always_inline]] inline cublasStatus_t run(cublasHandle_t handle, Body body) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    return library_call(CUBLAS_STATUS_EXECUTION_FAILED,
                        "cuBLAS stands in with OpenBLAS and loops on the CPU: its results, not its speed", body);
}

// Vectors with a negative step begin at their end.
template <class T>
T* first_of(T* x, int n, int step) { return step < 0 ? x - int64_t(n - 1) * step : x; }

// What a call reads of a vector, and of a matrix in columns.
template <class T>
void reads_vector(const T* x, int n, int step) {
    if (n > 0) library_reads(x, sizeof(T), size_t(n), size_t(std::abs(step)) * sizeof(T));
}

inline void reads_matrix(const void* data, int rows, int columns, int ld, size_t bytes) {
    if (rows > 0 && columns > 0) library_reads(data, size_t(rows) * bytes, size_t(columns), size_t(ld) * bytes);
}

inline bool is_matrix(const void* data, int rows, int columns, int ld, size_t bytes) {
    return rows == 0 || columns == 0 || fits(data, (size_t(columns - 1) * size_t(ld) + size_t(rows)) * bytes);
}

template <class T>
constexpr cudaDataType_t type_of() {
    if constexpr (std::is_same_v<T, __half>) return CUDA_R_16F;
    if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
    if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
    if constexpr (std::is_same_v<T, cuComplex>) return CUDA_C_32F;
    return CUDA_C_64F;
}

}  // namespace lk::host
