// sparse.cpp: cuSPARSE's products by loops, in double precision or complex.
#include "lk/host/sparse.h"

#include <functional>

#include "library.h"
#include "products.h"

using namespace lk::host;

struct cusparseContext {};
struct cusparseMatDescr {
    cusparseMatrixType_t type = CUSPARSE_MATRIX_TYPE_GENERAL;
    cusparseIndexBase_t base = CUSPARSE_INDEX_BASE_ZERO;
};
struct cusparseSpMatDescr {
    long rows, columns, count;
    const void* offsets;  // of rows, for CSR
    const void* row_indices;  // of elements, for COO
    const void* indices;
    const void* values;
    cusparseIndexType_t offset_type, index_type;
    cusparseIndexBase_t base;
    cudaDataType type;
};
struct cusparseDnVecDescr {
    long count;
    void* values;
    cudaDataType type;
};
struct cusparseDnMatDescr {
    long rows, columns, ld;
    void* values;
    cudaDataType type;
    bool by_rows;
};
struct cusparseSpVecDescr {
    long size, count;
    const void* indices;
    const void* values;
    cusparseIndexType_t index_type;
    cusparseIndexBase_t base;
    cudaDataType type;
};

namespace {

using Complex = std::complex<double>;

long index_at(const void* data, cusparseIndexType_t type, long place) {
    return type == CUSPARSE_INDEX_64I ? static_cast<const long*>(data)[place] : static_cast<const int*>(data)[place];
}

bool known(std::initializer_list<cudaDataType> types) {
    for (const cudaDataType type : types) {
        if (!is_known(type)) return false;
    }
    return true;
}

template <class Body>
[[gnu::always_inline]] inline cusparseStatus_t run(cusparseHandle_t handle, Body body) {
    if (!handle) return CUSPARSE_STATUS_NOT_INITIALIZED;
    return library_call(CUSPARSE_STATUS_EXECUTION_FAILED,
                        "cuSPARSE stands in with loops on the CPU: its results, not its speed", body);
}

// Calls the function with row, column and value of each element. False where an index lies outside of the matrix.
bool each(const cusparseSpMatDescr& a, cusparseOperation_t op, const std::function<void(long, long, Complex)>& function) {
    const auto element = [&](long row, long i) {
        const long column = index_at(a.indices, a.index_type, i) - a.base;
        if (row < 0 || row >= a.rows || column < 0 || column >= a.columns) return false;
        const Complex value = load<Complex>(a.values, a.type, i);
        if (op == CUSPARSE_OPERATION_NON_TRANSPOSE) {
            function(row, column, value);
        } else {
            function(column, row, op == CUSPARSE_OPERATION_TRANSPOSE ? value : std::conj(value));
        }
        return true;
    };
    if (a.row_indices) {
        for (long i = 0; i < a.count; ++i) {
            if (!element(index_at(a.row_indices, a.index_type, i) - a.base, i)) return false;
        }
        return true;
    }
    for (long row = 0; row < a.rows; ++row) {
        const long end = index_at(a.offsets, a.offset_type, row + 1) - a.base;
        for (long i = index_at(a.offsets, a.offset_type, row) - a.base; i < end; ++i) {
            if (i < 0 || i >= a.count || !element(row, i)) return false;
        }
    }
    return true;
}

cusparseStatus_t finished(bool right) {
    if (!right) journal().note_once("a sparse matrix has an index outside of its shape");
    return right ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_EXECUTION_FAILED;
}

cusparseStatus_t sized(size_t* bytes) {
    *bytes = 0;
    return CUSPARSE_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
    *handle = new cusparseContext;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateMatDescr(cusparseMatDescr_t* made) {
    *made = new cusparseMatDescr;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetMatType(cusparseMatDescr_t description, cusparseMatrixType_t type) {
    description->type = type;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseMatrixType_t cusparseGetMatType(const cusparseMatDescr_t description) { return description->type; }

cusparseStatus_t cusparseSetMatIndexBase(cusparseMatDescr_t description, cusparseIndexBase_t base) {
    description->base = base;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseIndexBase_t cusparseGetMatIndexBase(const cusparseMatDescr_t description) { return description->base; }

// No routine here reads these two.
cusparseStatus_t cusparseSetMatFillMode(cusparseMatDescr_t, cusparseFillMode_t) { return CUSPARSE_STATUS_SUCCESS; }

cusparseStatus_t cusparseSetMatDiagType(cusparseMatDescr_t, cusparseDiagType_t) { return CUSPARSE_STATUS_SUCCESS; }

#define LK_DESTROY(name, Type)                 \
    cusparseStatus_t name(Type one) {          \
        delete one;                            \
        return CUSPARSE_STATUS_SUCCESS;        \
    }
LK_DESTROY(cusparseDestroy, cusparseHandle_t)
LK_DESTROY(cusparseDestroyMatDescr, cusparseMatDescr_t)
LK_DESTROY(cusparseDestroySpMat, cusparseConstSpMatDescr_t)
LK_DESTROY(cusparseDestroyDnVec, cusparseConstDnVecDescr_t)
LK_DESTROY(cusparseDestroyDnMat, cusparseConstDnMatDescr_t)
LK_DESTROY(cusparseDestroySpVec, cusparseConstSpVecDescr_t)

cusparseStatus_t cusparseSetStream(cusparseHandle_t, cudaStream_t) { return CUSPARSE_STATUS_SUCCESS; }
cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t, cusparsePointerMode_t) { return CUSPARSE_STATUS_SUCCESS; }

const char* cusparseGetErrorName(cusparseStatus_t status) {
    switch (status) {
        case CUSPARSE_STATUS_SUCCESS: return "CUSPARSE_STATUS_SUCCESS";
        case CUSPARSE_STATUS_NOT_INITIALIZED: return "CUSPARSE_STATUS_NOT_INITIALIZED";
        case CUSPARSE_STATUS_INVALID_VALUE: return "CUSPARSE_STATUS_INVALID_VALUE";
        case CUSPARSE_STATUS_EXECUTION_FAILED: return "CUSPARSE_STATUS_EXECUTION_FAILED";
        case CUSPARSE_STATUS_NOT_SUPPORTED: return "CUSPARSE_STATUS_NOT_SUPPORTED";
        default: return "unrecognized error code";
    }
}

const char* cusparseGetErrorString(cusparseStatus_t status) { return cusparseGetErrorName(status); }

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* made, long rows, long columns, long count, void* offsets,
                                   void* indices, void* values, cusparseIndexType_t offset_type,
                                   cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
    if (rows < 0 || columns < 0 || count < 0) return CUSPARSE_STATUS_INVALID_VALUE;
    if (!known({type}) || offset_type == CUSPARSE_INDEX_16U || index_type == CUSPARSE_INDEX_16U) return CUSPARSE_STATUS_NOT_SUPPORTED;
    *made = new cusparseSpMatDescr{rows, columns, count, offsets, nullptr, indices, values, offset_type, index_type, base, type};
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t* made, long rows, long columns, long count, void* row_indices,
                                   void* indices, void* values, cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                   cudaDataType type) {
    if (!row_indices && count > 0) return CUSPARSE_STATUS_INVALID_VALUE;
    const cusparseStatus_t status =
        cusparseCreateCsr(made, rows, columns, count, nullptr, indices, values, index_type, index_type, base, type);
    if (status == CUSPARSE_STATUS_SUCCESS) (*made)->row_indices = row_indices;
    return status;
}

cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t* made, long count, void* values, cudaDataType type) {
    *made = new cusparseDnVecDescr{count, values, type};
    return known({type}) ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_NOT_SUPPORTED;
}

cusparseStatus_t cusparseDnVecSetValues(cusparseDnVecDescr_t vector, void* values) {
    vector->values = values;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* made, long rows, long columns, long ld, void* values,
                                     cudaDataType type, cusparseOrder_t order) {
    if (ld < (order == CUSPARSE_ORDER_ROW ? columns : rows)) return CUSPARSE_STATUS_INVALID_VALUE;
    *made = new cusparseDnMatDescr{rows, columns, ld, values, type, order == CUSPARSE_ORDER_ROW};
    return known({type}) ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_NOT_SUPPORTED;
}

cusparseStatus_t cusparseCreateSpVec(cusparseSpVecDescr_t* made, long size, long count, void* indices, void* values,
                                     cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
    *made = new cusparseSpVecDescr{size, count, indices, values, index_type, base, type};
    return known({type}) ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_NOT_SUPPORTED;
}

cusparseStatus_t cusparseSpMV_bufferSize(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t,
                                         cusparseConstDnVecDescr_t, const void*, cusparseDnVecDescr_t, cudaDataType,
                                         cusparseSpMVAlg_t, size_t* bytes) {
    return sized(bytes);
}

cusparseStatus_t cusparseSpMV_preprocess(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t,
                                         cusparseConstDnVecDescr_t, const void*, cusparseDnVecDescr_t, cudaDataType,
                                         cusparseSpMVAlg_t, void*) {
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t op, const void* alpha,
                              cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, const void* beta,
                              cusparseDnVecDescr_t y, cudaDataType compute, cusparseSpMVAlg_t, void*) {
    const bool plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE;
    if (x->count != (plain ? a->columns : a->rows) || y->count != (plain ? a->rows : a->columns)) return CUSPARSE_STATUS_INVALID_VALUE;
    if (!known({compute})) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return run(handle, [=] {
        library_reads(x->values, size_t(x->count) * bytes_of(x->type));
        std::vector<Complex> sums(size_t(y->count));
        const bool right = each(*a, op, [&](long row, long column, Complex value) {
            sums[size_t(row)] += value * load<Complex>(x->values, x->type, column);
        });
        const Complex scale = load<Complex>(alpha, compute, 0), old = load<Complex>(beta, compute, 0);
        for (long i = 0; i < y->count && right; ++i) {
            const Complex before = old == 0.0 ? 0.0 : old * load<Complex>(y->values, y->type, i);
            store(y->values, y->type, i, scale * sums[size_t(i)] + before);
        }
        return finished(right);
    });
}

cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                         cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t, const void*,
                                         cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t, size_t* bytes) {
    return sized(bytes);
}

cusparseStatus_t cusparseSpMM(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                              const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b, const void* beta,
                              cusparseDnMatDescr_t c, cudaDataType compute, cusparseSpMMAlg_t, void*) {
    const bool plain_a = op_a == CUSPARSE_OPERATION_NON_TRANSPOSE, plain_b = op_b == CUSPARSE_OPERATION_NON_TRANSPOSE;
    const long rows = plain_a ? a->rows : a->columns, inner = plain_a ? a->columns : a->rows;
    if (c->rows != rows || (plain_b ? b->rows : b->columns) != inner || (plain_b ? b->columns : b->rows) != c->columns) {
        return CUSPARSE_STATUS_INVALID_VALUE;
    }
    if (!known({compute})) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return run(handle, [=] {
        std::vector<Complex> sums(size_t(c->rows * c->columns));
        const bool right = each(*a, op_a, [&](long row, long k, Complex value) {
            for (long column = 0; column < c->columns; ++column) {
                const int64_t at = place(plain_b ? k : column, plain_b ? column : k, b->ld, b->by_rows);
                const Complex other = load<Complex>(b->values, b->type, at);
                sums[size_t(row * c->columns + column)] +=
                    value * (op_b == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE ? std::conj(other) : other);
            }
        });
        const Complex scale = load<Complex>(alpha, compute, 0), old = load<Complex>(beta, compute, 0);
        for (long i = 0; i < c->rows * c->columns && right; ++i) {
            const int64_t at = place(i / c->columns, i % c->columns, c->ld, c->by_rows);
            const Complex before = old == 0.0 ? 0.0 : old * load<Complex>(c->values, c->type, at);
            store(c->values, c->type, at, scale * sums[size_t(i)] + before);
        }
        return finished(right);
    });
}

cusparseStatus_t cusparseAxpby(cusparseHandle_t handle, const void* alpha, cusparseConstSpVecDescr_t x, const void* beta,
                               cusparseDnVecDescr_t y) {
    return run(handle, [=] {
        const Complex scale = load<Complex>(alpha, y->type, 0), old = load<Complex>(beta, y->type, 0);
        for (long i = 0; i < y->count; ++i) store(y->values, y->type, i, old * load<Complex>(y->values, y->type, i));
        for (long i = 0; i < x->count; ++i) {
            const long at = index_at(x->indices, x->index_type, i) - x->base;
            if (at < 0 || at >= y->count) return finished(false);
            store(y->values, y->type, at, load<Complex>(y->values, y->type, at) + scale * load<Complex>(x->values, x->type, i));
        }
        return CUSPARSE_STATUS_SUCCESS;
    });
}

}  // extern "C"
