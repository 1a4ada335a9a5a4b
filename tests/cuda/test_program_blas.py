"""cuBLAS, cuBLASLt and cuBLASXt in whole programs, against numpy, SciPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit.cuda import run_program

BYTES = """#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cublas_v2.h>
template <class T> struct Array {
  T* d; size_t n;
  Array(const char* name, size_t n) : n(n) {
    std::vector<T> h(n);
    FILE* f = fopen(name, "rb");
    if (f) { fread(h.data(), sizeof(T), n, f); fclose(f); }
    cudaMalloc(&d, n * sizeof(T));
    cudaMemcpy(d, h.data(), n * sizeof(T), cudaMemcpyHostToDevice);
  }
  void save(const char* name) {
    std::vector<T> h(n);
    cudaMemcpy(h.data(), d, n * sizeof(T), cudaMemcpyDeviceToHost);
    FILE* f = fopen(name, "wb"); fwrite(h.data(), sizeof(T), n, f); fclose(f);
  }
};
#define OK(call) do { int lk = int(call); if (lk) { printf("line %d: %d", __LINE__, lk); exit(1); } } while (0)
"""


def run(source: str, folder, **files) -> str:
    for name, array in files.items():
        np.asfortranarray(array).ravel(order="K").tofile(folder / name)
    path = folder / "program.cu"
    path.write_text(BYTES + source)
    result = run_program(path, backend="simulator")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def matrix(folder, name: str, shape: tuple[int, ...], kind=np.float32) -> np.ndarray:
    return np.fromfile(folder / name, kind).reshape(shape, order="F")


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_cublas_header_brings_half_and_bfloat16() -> None:
    source = """#include <cublas_v2.h>
    #include <cstdio>
    int main() { half h = __float2half(1.5f); nv_bfloat16 b = __ushort_as_bfloat16(0x4020);
      printf("%g %g %d", (float)h, (float)b, int(cudaErrorApiFailureBase)); }"""
    assert run_program(source, backend="simulator").stdout == "1.5 2.5 10000"


def test_gemm_of_every_type_matches_numpy(tmp_path) -> None:
    m, n, k = 33, 29, 71  # odd, and above the size from which OpenBLAS computes
    a, b, c = draw(k, m), draw(k, n, seed=1), draw(m, n, seed=2)
    run(
        """int main() {
      const int m = 33, n = 29, k = 71; cublasHandle_t h; OK(cublasCreate(&h));
      Array<float> a("a", k * m), b("b", k * n), s("c", m * n), t("c", m * n); float al = 2, be = -1, zero = 0;
      OK(cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &al, a.d, k, b.d, k, &be, s.d, m)); s.save("single");
      Array<double> ad("ad", k * m), bd("bd", k * n), d("cd", m * n); double ald = 2, bed = -1;
      OK(cublasDgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &ald, ad.d, k, bd.d, k, &bed, d.d, m)); d.save("double");
      Array<half> ah("ah", k * m), bh("bh", k * n), ch("ch", m * n); half alh = 2, beh = -1;
      OK(cublasHgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &alh, ah.d, k, bh.d, k, &beh, ch.d, m)); ch.save("half");
      OK(cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &al, ah.d, CUDA_R_16F, k, bh.d, CUDA_R_16F, k, &be, t.d,
                      CUDA_R_32F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)); t.save("mixed");
      Array<cuComplex> z("az", k * m), w("bz", k * n), v("none", m * n); cuComplex one = {0, 1}, none = {0, 0};
      OK(cublasCgemm(h, CUBLAS_OP_C, CUBLAS_OP_N, m, n, k, &one, z.d, k, w.d, k, &none, v.d, m)); v.save("complex");
      Array<signed char> i("ai", k * m), j("bi", k * n); Array<int> o("none", m * n); int ai = 3, bi = 0;
      OK(cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &ai, i.d, CUDA_R_8I, k, j.d, CUDA_R_8I, k, &bi, o.d,
                      CUDA_R_32I, m, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT)); o.save("integers");
    }""",
        tmp_path,
        a=a, b=b, c=c, ad=a.astype(float), bd=b.astype(float), cd=c.astype(float),
        ah=a.astype(np.float16), bh=b.astype(np.float16), ch=c.astype(np.float16),
        az=a + 1j * a[::-1], bz=b - 2j * b, ai=(a * 40).astype(np.int8), bi=(b * 40).astype(np.int8),
    )  # fmt: skip
    exact = 2 * a.T.astype(float) @ b - c
    ah, bh = a.astype(np.float16).astype(float), b.astype(np.float16).astype(float)
    np.testing.assert_allclose(matrix(tmp_path, "single", (m, n)), exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(matrix(tmp_path, "double", (m, n), float), exact, rtol=1e-12, atol=1e-12)
    half = 2 * ah.T @ bh - c.astype(np.float16)
    np.testing.assert_allclose(matrix(tmp_path, "half", (m, n), np.float16), half, rtol=2e-3, atol=2e-2)
    np.testing.assert_allclose(matrix(tmp_path, "mixed", (m, n)), 2 * ah.T @ bh - c, rtol=1e-4, atol=1e-4)
    z = 1j * (a + 1j * a[::-1]).conj().T @ (b - 2j * b)
    np.testing.assert_allclose(matrix(tmp_path, "complex", (m, n), np.complex64), z, rtol=1e-4, atol=2e-4)
    whole = 3 * (a * 40).astype(np.int8).astype(int).T @ (b * 40).astype(np.int8).astype(int)
    np.testing.assert_array_equal(matrix(tmp_path, "integers", (m, n), np.int32), whole)


def test_strided_batches_of_bfloat16_match_torch(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.randn(3, 8, 5).bfloat16(), torch.randn(3, 5, 7).bfloat16()
    a.view(torch.uint16).numpy().tofile(tmp_path / "a")
    b.view(torch.uint16).numpy().tofile(tmp_path / "b")
    run(
        """int main() {  // row-major C = A B is column-major C^T = B^T A^T
      cublasHandle_t h; OK(cublasCreate(&h)); Array<nv_bfloat16> a("a", 120), b("b", 105), c("none", 168);
      float one = 1, zero = 0;
      OK(cublasGemmStridedBatchedEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 7, 8, 5, &one, b.d, CUDA_R_16BF, 7, 35, a.d,
         CUDA_R_16BF, 5, 40, &zero, c.d, CUDA_R_16BF, 7, 56, 3, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)); c.save("c");
    }""",
        tmp_path,
    )
    got = torch.from_numpy(np.fromfile(tmp_path / "c", np.uint16)).view(torch.bfloat16).reshape(3, 8, 7)
    torch.testing.assert_close(got, a @ b)


def test_triangular_and_symmetric_calls_match_scipy(tmp_path) -> None:
    linalg = pytest.importorskip("scipy.linalg")
    n, m = 6, 4
    a, b, x = draw(n, n) + 4 * np.eye(n, dtype=np.float32), draw(n, m, seed=1), draw(n, seed=2)
    said = run(
        """int main() {
      const int n = 6, m = 4; cublasHandle_t h; OK(cublasCreate(&h)); float one = 1, two = 2, zero = 0, result; int at;
      Array<float> a("a", n * n), b("b", n * m), r("r", n * m), x("x", n), y("x", n), z("x", n), c("none", n * n),
          g("a", n * n), k("none", n * m), w("none", m * n);
      OK(cublasStrsm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T, CUBLAS_DIAG_NON_UNIT, n, m, &two, a.d, n,
                     b.d, n)); b.save("left");
      OK(cublasStrsm(h, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n,
          &one, a.d, n,
                     r.d, m)); r.save("right");
      OK(cublasSsyrk(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, n, n, &one, a.d, n, &zero, c.d, n)); c.save("squared");
      OK(cublasStrsv(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, n, a.d, n, x.d, 1)); x.save("solved");
      OK(cublasSger(h, n, n, &two, y.d, 1, z.d, 1, g.d, n)); g.save("outer");
      OK(cublasSgeam(h, CUBLAS_OP_T, CUBLAS_OP_N, n, n, &one, a.d, n, &zero, c.d, n, c.d, n)); c.save("transposed");
      OK(cublasSgemv(h, CUBLAS_OP_T, n, n, &one, a.d, n, y.d, 1, &zero, z.d, 1)); z.save("times");
      OK(cublasSnrm2(h, n, y.d, 1, &result)); OK(cublasIsamin(h, n, y.d, 1, &at)); printf("%.6f %d", result, at);
    }""",
        tmp_path,
        a=a, b=b, r=b.T, x=x,
    )  # fmt: skip
    lower, upper = np.tril(a), np.triu(a)
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(matrix(tmp_path, "left", (n, m)), linalg.solve_triangular(lower.T, 2 * b), **close)
    np.testing.assert_allclose(matrix(tmp_path, "right", (m, n)), b.T @ np.linalg.inv(upper), **close)
    np.testing.assert_allclose(np.triu(matrix(tmp_path, "squared", (n, n))), np.triu(a.T @ a), **close)
    assert not np.tril(matrix(tmp_path, "squared", (n, n)), -1).any()
    unit = linalg.solve_triangular(a, x, unit_diagonal=True)
    np.testing.assert_allclose(matrix(tmp_path, "solved", (n,)), unit, **close)
    np.testing.assert_allclose(matrix(tmp_path, "outer", (n, n)), a + 2 * np.outer(x, x), **close)
    np.testing.assert_array_equal(matrix(tmp_path, "transposed", (n, n)), a.T)
    np.testing.assert_allclose(matrix(tmp_path, "times", (n,)), a.T @ x, **close)
    norm, at = said.split()
    assert float(norm) == pytest.approx(np.linalg.norm(x), rel=1e-5)
    assert int(at) == np.abs(x).argmin() + 1


def test_a_product_larger_than_its_array_is_left_out_with_a_note(tmp_path) -> None:
    source = """int main() { cublasHandle_t h; OK(cublasCreate(&h)); Array<float> a("none", 16); float one = 1;
      printf("%d", int(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a.d, 8, a.d, 8, &one, a.d, 8))); }"""
    path = tmp_path / "program.cu"
    path.write_text(BYTES + source)
    result = run_program(path, backend="simulator")
    assert result.stdout == "13"
    assert any("too small" in note for note in result.notes)


LT = """#include <cublasLt.h>
cublasLtHandle_t lt;
template <class T> void product(int epilogue, int m, int n, int k, T* a, bool ta, T* b, T* d, T* bias, T* aux,
    int aux_ld) {
  cublasLtMatmulDesc_t desc; cublasLtMatrixLayout_t la, lb, ld; cublasLtMatmulPreference_t pref;
  cublasOperation_t op = ta ? CUBLAS_OP_T : CUBLAS_OP_N; cublasLtEpilogue_t e = cublasLtEpilogue_t(epilogue);
  cudaDataType type = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF; int64_t ldx = aux_ld;
  OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op));
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
  if (bias) OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  if (aux) OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
  if (aux) OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ldx, sizeof ldx));
  OK(cublasLtMatrixLayoutCreate(&la, type, ta ? k : m, ta ? m : k, ta ? k : m));
  OK(cublasLtMatrixLayoutCreate(&lb, type, k, n, k)); OK(cublasLtMatrixLayoutCreate(&ld, type, m, n, m));
  OK(cublasLtMatmulPreferenceCreate(&pref)); cublasLtMatmulHeuristicResult_t best; int found = 0;
      float one = 1, zero = 0;
  OK(cublasLtMatmulAlgoGetHeuristic(lt, desc, la, lb, ld, ld, pref, 1, &best, &found)); OK(found != 1);
  OK(cublasLtMatmul(lt, desc, &one, a, la, b, lb, &zero, d, ld, d, ld, &best.algo, nullptr, 0, 0));
}
"""


def test_lt_epilogues_match_torch(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    m, n, k = 128, 9, 33
    a, b, bias, grad = (torch.from_numpy(draw(*s, seed=i)) for i, s in enumerate([(m, k), (k, n), (m,), (m, n)]))
    run(
        LT
        + """int main() { OK(cublasLtCreate(&lt)); const int m = 128, n = 9, k = 33;
      Array<float> a("a", k * m), b("b", k * n), bias("bias", m), d("none", m * n), x("none", m * n), g("none",
          m), eye("eye", m * m),
          grad("grad", m * n); Array<nv_bfloat16> h("h", k * m), hb("hb", k * n), hd("none", m * n), no("none", 1);
      product(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, m, n, k, a.d, true, b.d, d.d, bias.d, x.d, m); d.save("gelu");
          x.save("before");
      product(CUBLASLT_EPILOGUE_DGELU_BGRAD, m, n, m, eye.d, false, grad.d, d.d, g.d, x.d, m); d.save("dgelu");
          g.save("bgrad");
      product(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, m, n, k, a.d, true, b.d, d.d, bias.d, x.d, m); d.save("relu");
      product(CUBLASLT_EPILOGUE_DRELU, m, n, m, eye.d, false, grad.d, d.d, g.d, x.d, m); d.save("drelu");
      product(CUBLASLT_EPILOGUE_BGRADB, m, n, k, a.d, true, b.d, d.d, g.d, x.d, m); g.save("bgradb");
      product(CUBLASLT_EPILOGUE_DEFAULT, m, n, k, h.d, true, hb.d, hd.d, no.d, no.d, m); hd.save("brain");
    }""",
        tmp_path,
        a=a.T.numpy(), b=b.numpy(), bias=bias.numpy(), eye=np.eye(m, dtype=np.float32), grad=grad.numpy(),
        h=a.T.bfloat16().view(torch.uint16).numpy(), hb=b.bfloat16().view(torch.uint16).numpy(),
    )  # fmt: skip

    def saved(name: str, *shape: int):
        return torch.from_numpy(matrix(tmp_path, name, shape).copy())

    close = {"rtol": 1e-4, "atol": 1e-4}
    before = (a @ b + bias[:, None]).requires_grad_()
    torch.testing.assert_close(saved("before", m, n), before.detach(), **close)
    for name, activation in (
        ("gelu", lambda x: functional.gelu(x, approximate="tanh")),
        ("relu", functional.relu),
    ):
        value = activation(before)
        torch.testing.assert_close(saved(name, m, n), value.detach(), **close)
        (slope,) = torch.autograd.grad(value, before, grad)
        torch.testing.assert_close(saved(f"d{name}", m, n), slope, **close)
        if name == "gelu":
            torch.testing.assert_close(saved("bgrad", m), slope.sum(1), **close)
    torch.testing.assert_close(saved("bgradb", m)[:n], b.sum(0), **close)
    got = torch.from_numpy(matrix(tmp_path, "brain", (m, n), np.uint16).copy()).view(torch.bfloat16)
    torch.testing.assert_close(got, a.bfloat16() @ b.bfloat16())


def test_lt_refuses_sizes_that_do_not_fit_and_xt_multiplies_host_matrices(tmp_path) -> None:
    said = run(
        """#include <cublasLt.h>
    #include <cublasXt.h>
    int main() { cublasLtHandle_t lt; cublasLtCreate(&lt); cublasLtMatmulDesc_t d; cublasLtMatrixLayout_t a, b;
      cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F); cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 4, 3, 4);
      cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 4, 4, 4); int found; cublasLtMatmulHeuristicResult_t best;
      printf("%d ", int(cublasLtMatmulAlgoGetHeuristic(lt, d, a, a, b, b, nullptr, 1, &best, &found)));
      cublasXtHandle_t xt; int device = 0; OK(cublasXtCreate(&xt)); OK(cublasXtDeviceSelect(xt, 1, &device));
      double x[4] = {1, 2, 3, 4}, y[4], one = 1, zero = 0;
      OK(cublasXtDgemm(xt, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &one, x, 2, x, 2, &zero, y, 2));
      printf("%g %g %g %g", y[0], y[1], y[2], y[3]); }""",
        tmp_path,
    )
    assert said == "7 10 14 14 20"
