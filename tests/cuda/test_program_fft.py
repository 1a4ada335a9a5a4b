"""cuFFT and cuRAND in whole programs, against numpy."""

from __future__ import annotations

import numpy as np

from mlsys_labkit.cuda import run_program
from tests.cuda.program_files import FILES

SOURCE = (
    f"#include <cufft.h>\n{FILES}"
    + """int main() {
  cufftHandle p;
  cufftComplex* x = load<cufftComplex>("x", 240);
  OK(cufftPlan1d(&p, 120, CUFFT_C2C, 2)); OK(cufftExecC2C(p, x, x, CUFFT_FORWARD)); save("two", x, 240);
  OK(cufftExecC2C(p, x, x, CUFFT_INVERSE)); save("back", x, 240); OK(cufftDestroy(p));
  OK(cufftPlan1d(&p, 97, CUFFT_C2C, 1)); OK(cufftExecC2C(p, x = load<cufftComplex>("x", 240), x, CUFFT_INVERSE));
  save("prime", x, 97);
  cufftDoubleComplex* z = load<cufftDoubleComplex>("z", 60);
  OK(cufftPlan3d(&p, 3, 4, 5, CUFFT_Z2Z)); OK(cufftExecZ2Z(p, z, z, CUFFT_FORWARD)); save("cube", z, 60);
  cufftReal* r = load<cufftReal>("r", 6 * 9); cufftComplex* h; cudaMalloc(&h, 6 * 5 * sizeof *h);
  OK(cufftPlan2d(&p, 6, 9, CUFFT_R2C)); OK(cufftExecR2C(p, r, h)); save("half", h, 30);
  OK(cufftPlan2d(&p, 6, 9, CUFFT_C2R)); OK(cufftExecC2R(p, h, r)); save("real", r, 54);
  cufftReal* padded = load<cufftReal>("padded", 3 * 10);  // in place: rows of 2 * (8 / 2 + 1)
  OK(cufftPlan1d(&p, 8, CUFFT_R2C, 3)); OK(cufftExecR2C(p, padded, (cufftComplex*)padded)); save("place", padded, 30);
  x = load<cufftComplex>("x", 240); int n[1] = {12};  // the columns of a matrix of 12 rows and 20 columns
  OK(cufftPlanMany(&p, 1, n, n, 20, 1, n, 20, 1, CUFFT_C2C, 20)); OK(cufftExecC2C(p, x, x, CUFFT_FORWARD));
  save("columns", x, 240);
  printf("%d ", cufftExecR2C(p, r, h)); printf("%d ", cufftPlan1d(&p, 0, CUFFT_C2C, 1));
  printf("%d", cufftExecC2C(99, x, x, CUFFT_FORWARD));
}
"""
)


def test_transforms_match_numpy(tmp_path) -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal(240) + 1j * random.standard_normal(240)).astype(np.complex64)
    z = random.standard_normal((3, 4, 5)) + 1j * random.standard_normal((3, 4, 5))
    r, padded = random.standard_normal((6, 9)).astype(np.float32), np.zeros((3, 10), np.float32)
    padded[:, :8] = random.standard_normal((3, 8))
    for name, array in (("x", x), ("z", z), ("r", r), ("padded", padded)):
        array.tofile(tmp_path / name)
    path = tmp_path / "program.cu"
    path.write_text(SOURCE)
    result = run_program(path, backend="simulator")
    assert result.stdout == "3 8 1", result.stderr  # a type of another plan, a size of 0, no such plan
    assert any("stands in" in note for note in result.notes)

    def saved(name: str, kind: type = np.complex64) -> np.ndarray:
        return np.fromfile(tmp_path / name, kind)

    wanted = {
        "two": np.fft.fft(x.reshape(2, 120)), "back": 120 * x, "prime": 97 * np.fft.ifft(x[:97]),
        "half": np.fft.rfft2(r), "place": np.fft.rfft(padded[:, :8]), "columns": np.fft.fft(x.reshape(12, 20), axis=0),
    }  # fmt: skip
    for name, want in wanted.items():
        np.testing.assert_allclose(saved(name), want.ravel(), rtol=1e-5, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(saved("cube", complex), np.fft.fftn(z).ravel(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(saved("real", np.float32), 54 * r.ravel(), rtol=1e-5, atol=1e-4)


def test_curand_knows_orderings_and_names_quasi_random_numbers_as_left_out() -> None:
    source = """#include <cstdio>
    #include <cmath>
    #include <vector>
    #include <curand.h>
    int main() { const int n = 20000; std::vector<double> h(n); curandGenerator_t g, q; double sum = 0;
      curandCreateGeneratorHost(&g, CURAND_RNG_PSEUDO_PHILOX4_32_10); curandSetPseudoRandomGeneratorSeed(g, 1);
      printf("%d %d ", curandSetGeneratorOrdering(g, CURAND_ORDERING_PSEUDO_LEGACY),
        curandGenerateLogNormalDouble(g, h.data(), n, 1.0, 0.5));
      for (double x : h) sum += std::log(x);
      printf("%.1f %d", sum / n, curandCreateGenerator(&q, CURAND_RNG_QUASI_SOBOL32)); }"""
    result = run_program(source, backend="simulator")
    assert result.stdout == "0 0 1.0 103"
    assert any("Sobol" in note for note in result.notes)
