"""cuSPARSE in whole programs, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit.cuda import run_program
from tests.cuda.program_files import FILES

SOURCE = (
    f"#include <cusparse.h>\n{FILES}"
    + """int main(int, char** given) {
  const int m = 7, n = 5, k = 3, nnz = NNZ; cusparseHandle_t h; OK(cusparseCreate(&h)); float alpha = 2,
      beta = -1; size_t bytes;
  int *offsets = load<int>("offsets", m + 1), *columns = load<int>("columns", nnz), *rows = load<int>("rows", nnz);
  float *v = load<float>("values", nnz), *x = load<float>("x", n), *y = load<float>("y", m),
      *b = load<float>("b", m * k),
        *c = load<float>("c", n * k);
  cusparseSpMatDescr_t csr, coo; cusparseDnVecDescr_t vx, vy; cusparseDnMatDescr_t mb, mc; cusparseSpVecDescr_t sparse;
  OK(cusparseCreateCsr(&csr, m, n, nnz, offsets, columns, v, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                       CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  OK(cusparseCreateCoo(&coo, m, n, nnz, rows, columns, v, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  OK(cusparseCreateDnVec(&vx, n, x, CUDA_R_32F)); OK(cusparseCreateDnVec(&vy, m, y, CUDA_R_32F));
  OK(cusparseCreateDnMat(&mb, m, k, k, b, CUDA_R_32F, CUSPARSE_ORDER_ROW));
  OK(cusparseCreateDnMat(&mc, n, k, n, c, CUDA_R_32F, CUSPARSE_ORDER_COL));
  OK(cusparseSpMV_bufferSize(h, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, csr, vx, &beta, vy, CUDA_R_32F,
                             CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
  OK(cusparseSpMV(h, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, csr, vx, &beta, vy, CUDA_R_32F,
      CUSPARSE_SPMV_ALG_DEFAULT,
                  nullptr)); save("vector", y, m);
  OK(cusparseSpMM(h, CUSPARSE_OPERATION_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, coo, mb, &beta,
      mc, CUDA_R_32F,
                  CUSPARSE_SPMM_ALG_DEFAULT, nullptr)); save("matrix", c, n * k);
  OK(cusparseCreateSpVec(&sparse, m, 2, columns, v, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  OK(cusparseAxpby(h, &alpha, sparse, &beta, vy)); save("sum", y, m);
  printf("%d", cusparseSpMV(h, CUSPARSE_OPERATION_TRANSPOSE, &alpha, csr, vx, &beta, vy, CUDA_R_32F,
                            CUSPARSE_SPMV_ALG_DEFAULT, nullptr));
}
"""
)


def test_products_match_scipy(tmp_path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    random = np.random.default_rng(0)
    a = sparse.random(7, 5, density=0.4, random_state=1, dtype=np.float32, format="csr")
    a.sort_indices()
    x, y, b, c = (random.standard_normal(s).astype(np.float32) for s in [(5,), (7,), (7, 3), (5, 3)])
    parts = {"offsets": a.indptr, "columns": a.indices, "rows": a.tocoo().row, "values": a.data}
    for name, array in {**parts, "x": x, "y": y, "b": b, "c": c.T}.items():
        (np.ascontiguousarray(array) if array.dtype != np.int64 else array.astype(np.int32)).tofile(tmp_path / name)
    path = tmp_path / "program.cu"
    path.write_text(SOURCE.replace("NNZ", str(a.nnz)))
    assert run_program(path, backend="simulator").stdout == "3"  # a vector of the wrong length

    def saved(name: str) -> np.ndarray:
        return np.fromfile(tmp_path / name, np.float32)

    vector = 2 * (a @ x) - y
    np.testing.assert_allclose(saved("vector"), vector, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(saved("matrix").reshape(3, 5).T, 2 * (a.T @ b) - c, rtol=1e-5, atol=1e-6)
    total = -vector
    np.add.at(total, a.indices[:2], 2 * a.data[:2])
    np.testing.assert_allclose(saved("sum"), total, rtol=1e-5, atol=1e-6)
