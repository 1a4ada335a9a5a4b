// blas_lt.cpp: cuBLASLt's products with an epilogue. Descriptors are read as the structures below.
#include "lk/host/blas_lt.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "blas_lt_epilogue.h"
#include "blas_parts.h"

using namespace lk::host;

struct cublasLtContext {};

namespace {

struct Change {
    int scale, pointers, op_a, op_b;
};

static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t) && sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

Description& seen(cublasLtMatmulDesc_t opaque) { return *reinterpret_cast<Description*>(opaque->data); }
Layout& seen(cublasLtMatrixLayout_t opaque) { return *reinterpret_cast<Layout*>(opaque->data); }
Change& seen(cublasLtMatrixTransformDesc_t opaque) { return *reinterpret_cast<Change*>(opaque->data); }

template <class Body>
[[gnu::always_inline]] inline cublasStatus_t run(Body body) {
    return library_call(CUBLAS_STATUS_EXECUTION_FAILED,
                        "cuBLASLt stands in with OpenBLAS and loops on the CPU: its results, not its speed", body);
}

struct Field {
    void* data;
    size_t bytes;
};

template <class T>
Field field(T& member) { return {&member, sizeof member}; }

Field field_of(Description& it, int attribute) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return field(it.compute);
        case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return field(it.scale);
        case CUBLASLT_MATMUL_DESC_POINTER_MODE: return field(it.pointers);
        case CUBLASLT_MATMUL_DESC_TRANSA: return field(it.op_a);
        case CUBLASLT_MATMUL_DESC_TRANSB: return field(it.op_b);
        case CUBLASLT_MATMUL_DESC_TRANSC: return field(it.op_c);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return field(it.epilogue);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return field(it.bias);
        case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return field(it.bias_stride);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return field(it.aux);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return field(it.aux_ld);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return field(it.aux_stride);
        case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return field(it.scale_a);
        case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return field(it.scale_b);
        case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER: return field(it.scale_c);
        case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER: return field(it.scale_d);
        case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER: return field(it.largest);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return field(it.aux_type);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return field(it.bias_type);
        default: return {nullptr, 0};
    }
}

Field field_of(Layout& it, int attribute) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE: return field(it.type);
        case CUBLASLT_MATRIX_LAYOUT_ORDER: return field(it.order);
        case CUBLASLT_MATRIX_LAYOUT_ROWS: return field(it.rows);
        case CUBLASLT_MATRIX_LAYOUT_COLS: return field(it.columns);
        case CUBLASLT_MATRIX_LAYOUT_LD: return field(it.ld);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return field(it.batches);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return field(it.stride);
        default: return {nullptr, 0};
    }
}

cublasStatus_t set(Field field, const void* value, size_t bytes) {
    if (!field.data || !value || bytes != field.bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field.data, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

int64_t at(const Layout& it, int64_t row, int64_t column, int64_t ld) { return place(row, column, ld, it.order == CUBLASLT_ORDER_ROW); }

View view(const Layout& it, const void* data, int op, int batch) {
    const char* moved = static_cast<const char*>(data) + batch * it.stride * int64_t(bytes_of(it.type));
    return {moved, it.type, it.ld, cublasOperation_t(op), it.order == CUBLASLT_ORDER_ROW};
}

bool fits(const Layout& it, const void* data) {
    const bool by_rows = it.order == CUBLASLT_ORDER_ROW;
    const int64_t lines = int64_t(by_rows ? it.rows : it.columns), line = int64_t(by_rows ? it.columns : it.rows);
    const int64_t last = (it.batches - 1) * it.stride + (lines - 1) * it.ld + line;
    return last <= 0 || lk::host::fits(data, size_t(last) * bytes_of(it.type));
}

void note_reads(const Layout& it, const void* data) {
    const bool by_rows = it.order == CUBLASLT_ORDER_ROW;
    const size_t lines = by_rows ? it.rows : it.columns, line = by_rows ? it.columns : it.rows, bytes = bytes_of(it.type);
    for (int64_t batch = 0; batch < it.batches; ++batch) {
        const char* first = static_cast<const char*>(data) + batch * it.stride * int64_t(bytes);
        library_reads(first, line * bytes, lines, size_t(it.ld) * bytes);
    }
}

cublasStatus_t check(const Description& it, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    for (const Layout* one : {&a, &b, &c, &d}) {
        if (!is_known(one->type) || is_complex(one->type) || one->order > CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
        const uint64_t line = one->order == CUBLASLT_ORDER_ROW ? one->columns : one->rows;
        if (one->ld < int64_t(line)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (it.unknown || it.op_c != CUBLAS_OP_N || it.pointers > CUBLASLT_POINTER_MODE_DEVICE) return CUBLAS_STATUS_NOT_SUPPORTED;
    const uint64_t m = it.op_a == CUBLAS_OP_N ? a.rows : a.columns, n = it.op_b == CUBLAS_OP_N ? b.columns : b.rows;
    const uint64_t k = it.op_a == CUBLAS_OP_N ? a.columns : a.rows, other = it.op_b == CUBLAS_OP_N ? b.rows : b.columns;
    const bool right = k == other && d.rows == m && d.columns == n && c.rows == m && c.columns == n;
    const bool batches = a.batches == d.batches && b.batches == d.batches && c.batches == d.batches;
    return right && batches ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

template <class T>
void product(const Description& it, T alpha, const void* a, const Layout& layout_a, const void* b, const Layout& layout_b, T beta,
             const void* c, const Layout& layout_c, void* d, const Layout& layout_d) {
    const int64_t m = int64_t(layout_d.rows), n = int64_t(layout_d.columns);
    const int64_t k = int64_t(it.op_a == CUBLAS_OP_N ? layout_a.columns : layout_a.rows);
    const auto factor = [](const float* scale) { return scale ? T(*scale) : T(1); };
    alpha *= factor(it.scale_a) * factor(it.scale_b);
    beta *= factor(it.scale_c);
    T largest = 0;
    for (int batch = 0; batch < layout_d.batches; ++batch) {
        const std::vector<T> left = loaded<T>(view(layout_a, a, it.op_a, batch), m, k);
        const std::vector<T> right = loaded<T>(view(layout_b, b, it.op_b, batch), k, n);
        std::vector<T> out(size_t(m) * size_t(n));
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, alpha, left.data(), std::max<int64_t>(1, m), right.data(),
                 std::max<int64_t>(1, k), T(0), out.data(), std::max<int64_t>(1, m));
        Epilogue<T> epilogue(it, layout_d, m, n, batch);
        const View before = view(layout_c, c, CUBLAS_OP_N, batch);
        void* const after = const_cast<void*>(view(layout_d, d, CUBLAS_OP_N, batch).data);
        for (int64_t column = 0; column < n; ++column) {
            for (int64_t row = 0; row < m; ++row) {
                T& value = out[size_t(column * m + row)];
                if (beta != T(0)) value += beta * load<T>(before.data, before.type, at(layout_c, row, column, layout_c.ld));
                value = epilogue.applied(value, row, column);
                largest = std::max(largest, std::abs(value));
                store(after, layout_d.type, at(layout_d, row, column, layout_d.ld), value * factor(it.scale_d));
            }
        }
        epilogue.finish(out, left, right, k);
    }
    if (it.largest) *it.largest = float(largest);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t made, cublasComputeType_t compute, cudaDataType_t scale) {
    Description* const it = new (made->data) Description;
    it->compute = compute;
    it->scale = scale;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
    *made = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit(*made, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
    delete descriptor;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    if (!descriptor || !value) return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET || attribute == CUBLASLT_MATMUL_DESC_FAST_ACCUM) {
        return CUBLAS_STATUS_SUCCESS;
    }
    const Field found = field_of(seen(descriptor), attribute);
    if (found.data) return set(found, value, bytes);
    seen(descriptor).unknown = true;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
                                              void* value, size_t bytes, size_t* written) {
    const Field found = field_of(seen(descriptor), attribute);
    if (written) *written = found.bytes;
    if (bytes == 0 && written) return CUBLAS_STATUS_SUCCESS;
    if (!found.data || bytes < found.bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, found.data, found.bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t made, cudaDataType type, unsigned long rows,
                                        unsigned long columns, long ld) {
    new (made->data) Layout{type, CUBLASLT_ORDER_COL, rows, columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, unsigned long rows,
                                          unsigned long columns, long ld) {
    *made = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit(*made, type, rows, columns, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
    return set(field_of(seen(layout), attribute), value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
    *made = new cublasLtMatmulPreferenceOpaque_t;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    *found = 0;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = check(seen(descriptor), seen(a), seen(b), seen(c), seen(d));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    results[0] = {};
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const Description& it = seen(descriptor);
    const Layout &of_a = seen(layout_a), &of_b = seen(layout_b), &of_c = seen(layout_c), &of_d = seen(layout_d);
    const cublasStatus_t status = check(it, of_a, of_b, of_c, of_d);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const bool wants_bias = it.epilogue & (4 | 16 | 256 | 512), wants_aux = it.epilogue & 128;
    if ((wants_bias && !it.bias) || (wants_aux && !it.aux)) return CUBLAS_STATUS_INVALID_VALUE;
    return run([&] {
        if (!fits(of_a, a) || !fits(of_b, b) || !fits(of_d, d)) return CUBLAS_STATUS_EXECUTION_FAILED;
        const double first = load<double>(alpha, it.scale, 0), second = load<double>(beta, it.scale, 0);
        if (second != 0 && !fits(of_c, c)) return CUBLAS_STATUS_EXECUTION_FAILED;
        note_reads(of_a, a);
        note_reads(of_b, b);
        if (second != 0) note_reads(of_c, c);
        if (it.compute == CUBLAS_COMPUTE_64F || it.compute == CUBLAS_COMPUTE_32I) {
            product(it, first, a, of_a, b, of_b, second, c, of_c, d, of_d);
        } else {
            product(it, float(first), a, of_a, b, of_b, float(second), c, of_c, d, of_d);
        }
        return CUBLAS_STATUS_SUCCESS;
    });
}

cublasStatus_t cublasLtMatrixTransformDescCreate(cublasLtMatrixTransformDesc_t* made, cudaDataType scale) {
    *made = new cublasLtMatrixTransformDescOpaque_t;
    seen(*made) = {scale, CUBLASLT_POINTER_MODE_HOST, CUBLAS_OP_N, CUBLAS_OP_N};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixTransformDescDestroy(cublasLtMatrixTransformDesc_t descriptor) {
    delete descriptor;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixTransformDescSetAttribute(cublasLtMatrixTransformDesc_t descriptor,
                                                       cublasLtMatrixTransformDescAttributes_t attribute,
                                                       const void* value, size_t bytes) {
    Change& it = seen(descriptor);
    int* const members[] = {&it.scale, &it.pointers, &it.op_a, &it.op_b};
    return set(field(*members[attribute]), value, bytes);
}

cublasStatus_t cublasLtMatrixTransform(cublasLtHandle_t, cublasLtMatrixTransformDesc_t descriptor, const void* alpha,
                                       const void* a, cublasLtMatrixLayout_t layout_a, const void* beta, const void* b,
                                       cublasLtMatrixLayout_t layout_b, void* c, cublasLtMatrixLayout_t layout_c, cudaStream_t) {
    const Change& it = seen(descriptor);
    const Layout& out = seen(layout_c);
    if (seen(layout_a).order > CUBLASLT_ORDER_ROW || out.order > CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
    return run([&] {
        const double first = load<double>(alpha, cudaDataType_t(it.scale), 0);
        const double second = b ? load<double>(beta, cudaDataType_t(it.scale), 0) : 0;
        const int64_t rows = int64_t(out.rows), columns = int64_t(out.columns);
        const auto left = loaded<double>(view(seen(layout_a), a, it.op_a, 0), rows, columns);
        std::vector<double> right(left.size());
        if (second != 0) right = loaded<double>(view(seen(layout_b), b, it.op_b, 0), rows, columns);
        for (int64_t i = 0; i < rows * columns; ++i) {
            store(c, out.type, at(out, i % rows, i / rows, out.ld), first * left[size_t(i)] + second * right[size_t(i)]);
        }
        return CUBLAS_STATUS_SUCCESS;
    });
}

}  // extern "C"
