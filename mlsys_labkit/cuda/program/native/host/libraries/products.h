// products.h: products of column-major matrices, by numpy's OpenBLAS where it is found and the product is large, else by loops.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lk/host/blas.h"

namespace lk::host {

// A function of OpenBLAS by its name in BLAS or LAPACK; nullptr without numpy's library. Its integers have 64 bits.
void* openblas(const char* name);

template <class T>
void multiply(cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
              int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc);

// The type that elements of this type are computed in is double or complex; otherwise float.
bool is_complex(cudaDataType_t type);
bool is_known(cudaDataType_t type);
size_t bytes_of(cudaDataType_t type);

// A matrix in memory. op says how it is read.
struct View {
    const void* data;
    cudaDataType_t type;
    int64_t ld;
    cublasOperation_t op = CUBLAS_OP_N;
    bool by_rows = false;
};

// The matrix op(view) of this size as a column-major one of T.
template <class T>
std::vector<T> loaded(const View& view, int64_t rows, int64_t columns);

// Writes rounded to the nearest even.
template <class T>
void store(void* data, cudaDataType_t type, int64_t place, T value);
template <class T>
T load(const void* data, cudaDataType_t type, int64_t place);

inline int64_t place(int64_t row, int64_t column, int64_t ld, bool by_rows) {
    return by_rows ? row * ld + column : column * ld + row;
}

}  // namespace lk::host
