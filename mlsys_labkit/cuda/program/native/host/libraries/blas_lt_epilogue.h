// blas_lt_epilogue.h: what a product of cuBLASLt is described by, and what happens to its result.
#pragma once

#include <algorithm>
#include <cmath>

#include "lk/host/blas_lt.h"
#include "products.h"

namespace lk::host {

struct Description {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;
    int pointers = CUBLASLT_POINTER_MODE_HOST;
    int op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N, op_c = CUBLAS_OP_N;
    int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    int bias_type = -1, aux_type = -1;
    void* bias = nullptr;
    void* aux = nullptr;
    int64_t bias_stride = 0, aux_ld = 0, aux_stride = 0;
    const float* scale_a = nullptr;
    const float* scale_b = nullptr;
    const float* scale_c = nullptr;
    const float* scale_d = nullptr;
    float* largest = nullptr;
    bool unknown = false;  // an attribute was set that changes the result and is left out
};

struct Layout {
    cudaDataType_t type;
    int order;
    uint64_t rows, columns;
    int64_t ld;
    int batches = 1;
    int64_t stride = 0;
};

// The tanh form, as cuBLASLt computes it.
template <class T>
T gelu(T x) {
    return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
}

template <class T>
T gelu_slope(T x) {
    const T t = std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x));
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * T(0.7978845608028654) * (1 + 3 * T(0.044715) * x * x);
}

// What happens to one product: bias, activation, and what they keep for the backward pass or read from it.
template <class T>
class Epilogue {
public:
    Epilogue(const Description& it, const Layout& d, int64_t m, int64_t n, int batch) : it_(it), m_(m), n_(n) {
        bias_type_ = it.bias_type >= 0 ? cudaDataType_t(it.bias_type)
                     : bytes_of(d.type) == 1 ? CUDA_R_16BF : d.type;
        aux_type_ = it.aux_type >= 0 ? cudaDataType_t(it.aux_type) : d.type;
        bias_ = static_cast<char*>(it.bias) + batch * it.bias_stride * int64_t(bytes_of(bias_type_));
        relu_ = (it.epilogue & (2 | 8)) != 0;
        const int64_t bits = batch * it.aux_stride;
        aux_ = static_cast<char*>(it.aux) + (relu_ ? bits / 8 : bits * int64_t(bytes_of(aux_type_)));
    }

    T applied(T value, int64_t row, int64_t column) {
        const int kind = it_.epilogue;
        const int64_t at = column * it_.aux_ld + row;
        if (kind & 4) value += load<T>(bias_, bias_type_, row);
        if (kind & 2) {
            if (kind & 128) set_bit(at, value > 0);
            value = std::max(value, T(0));
        }
        if (kind & 32) {
            if (kind & 128) store(aux_, aux_type_, at, value);
            value = gelu(value);
        }
        if (kind & 8) value = bit(at) ? value : T(0);
        if (kind & 64) value *= gelu_slope(load<T>(aux_, aux_type_, at));
        return value;
    }

    // Sums of the result's rows, which are the bias's gradient.
    void finish(const std::vector<T>& result, const std::vector<T>& left, const std::vector<T>& right, int64_t k) {
        const auto sums = [&](int64_t count, int64_t terms, const std::vector<T>& of, int64_t step, int64_t stride) {
            for (int64_t i = 0; i < count; ++i) {
                T sum = 0;
                for (int64_t j = 0; j < terms; ++j) sum += of[size_t(i * step + j * stride)];
                store(bias_, bias_type_, i, sum);
            }
        };
        if (it_.epilogue & 16) sums(m_, n_, result, 1, m_);
        if (it_.epilogue & 256) sums(m_, k, left, 1, m_);
        if (it_.epilogue & 512) sums(n_, k, right, k, 1);
    }

private:
    bool bit(int64_t at) const { return (aux_[at / 8] >> (at % 8)) & 1; }
    void set_bit(int64_t at, bool on) {
        aux_[at / 8] = char(on ? aux_[at / 8] | (1 << (at % 8)) : aux_[at / 8] & ~(1 << (at % 8)));
    }

    const Description& it_;
    int64_t m_, n_;
    cudaDataType_t bias_type_, aux_type_;
    char* bias_;
    char* aux_;
    bool relu_;
};

}  // namespace lk::host
