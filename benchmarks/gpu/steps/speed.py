"""Step ``speed``: kernels of the labs and of the engine against libraries and measured copies."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import Case, torch_on_gpu, warm_seconds
from benchmarks.gpu.steps import flash

# name: (lab, grid and block for a size)
LADDER: dict[str, tuple[str, Callable[[int], tuple[Any, Any]]]] = {
    "matmul_naive": ("lab03", lambda n: ((n, n // 32), (1, 32))),
    "matmul_coalesced": ("lab03", lambda n: ((n // 32, n // 8), 256)),
    "matmul_tiled": ("lab04", lambda n: ((n // 16, n // 16), (16, 16))),
    "matmul_registers": ("lab04", lambda n: ((n // 64, n // 64), (16, 16))),
    "matmul_pipelined": ("lab04", lambda n: ((n // 256, n // 128), 256)),  # n: a multiple of 256
}
BARS = {("matmul_pipelined", 4096): 90.0}  # percent of cuBLAS
KERNELS = {"lab05_triton": ("bias_gelu",)}
# With whole rows, programs that run at the same time work on neighbouring memory: the grid's first dimension is rows.
GELU = [
    {"ROWS": rows, "COLUMNS": columns, "num_warps": warps}
    for rows, columns, both in ((1, 1024, (4, 8)), (4, 256, (4, 8)), (4, 1024, (4, 8)), (1, 8192, (8, 16)))
    for warps in both
]


def cases() -> list[Case]:
    ladder = [Case(f"ladder/{size}/{name}", partial(climb, name, size), 90) for size in (2048, 4096) for name in LADDER]
    # With 8,192 rows (64 or 128 MiB) a part of what is written stays in the 50 MB of L2; 65,536 rows show the DRAM.
    rows = {"8192 rows": 8192, "65,536 rows": 65536}
    softmax = [
        Case(f"softmax/{dtype}, {label}", partial(compare_softmax, dtype, count), 90)
        for dtype in ("float32", "float16")
        for label, count in rows.items()
    ]
    attention = [Case(f"flash/{n:,}", partial(flash.compare_with_sdpa, n), 120) for n in (1024, 4096, 16384)]
    return [
        Case("copy", copy),
        Case("matmul", compare_matmul, 120),
        Case("matmul/ragged", check_ragged_matmul, 60),
        *softmax,
        Case("gelu", compare_gelu, 90),
        Case("w4a16", compare_w4a16, 120),
        Case("paged decode", compare_decode, 240),
        *attention,
        Case("flash/decode, split", flash.compare_decode_with_copy, 120),
        *ladder,
        Case("roofline", measure_roofline, 60),
    ]


@cache
def triton_kernels() -> tuple[Any, Any]:
    """Return the benchmark of the Triton kernels, and a module with the kernels of the solutions."""
    import triton_kernels as bench

    folder = tempfile.mkdtemp(prefix="labkit-gpu-")
    return bench, bench.load(Path(folder), bench.source(bench.KERNELS | flash.KERNELS | _more(bench.KERNELS)))


def _more(known: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {lab: (*known.get(lab, ()), *names) for lab, names in KERNELS.items()}


def copy() -> dict[str, Any]:
    """Measure copies of 4 GiB and of the sizes with which the kernels are compared."""
    torch_on_gpu()
    from triton_kernels import copy_rates

    rates = copy_rates(2**32)
    return {"gb_per_s": max(rates.values()), "copies": rates}


def _judged(found: dict[str, Any], figure: str, bar: float) -> dict[str, Any]:
    return {"ok": found[figure] >= bar, figure: found[figure], "bar": bar, "details": found}


def compare_matmul() -> dict[str, Any]:
    """Compare Triton's product of 4096 x 4096 in FP16 with cuBLAS: 95 % of its speed."""
    torch_on_gpu()
    bench, home = triton_kernels()
    return _judged(bench.matmul(home, bench.on_gpu), "percent_of_peer", 95)


def check_ragged_matmul(m: int = 1000, n: int = 1048, k: int = 520, place: str = "cuda") -> dict[str, Any]:
    """Check the persistent product where no tile divides a side: the bounds of the descriptors replace the masks."""
    if place == "cuda":
        torch_on_gpu()
    import torch

    bench, home = triton_kernels()
    torch.manual_seed(0)
    a, b = torch.randn(m, k, device=place).half(), torch.randn(k, n, device=place).half()
    whole = torch.full((m + 8, n + 8), math.nan, device=place, dtype=torch.float16)
    c, config = whole[:m, :n], bench.PERSISTENT[0]
    home.matmul_persistent[(4,)](*bench.described(a, b, c, config), m, n, k, **config)
    off = float((c.double() - a.double() @ b.double()).abs().max())
    kept = bool(whole[m:].isnan().all() and whole[:, n:].isnan().all())
    return {"ok": off < 0.1 and kept, "off_by": off, "nothing_written_outside": kept}


def compare_softmax(dtype: str, rows: int) -> dict[str, Any]:
    """Compare softmax with a copy: 90 % of its bandwidth."""
    torch = torch_on_gpu()
    bench, home = triton_kernels()
    found = bench.softmax(home, bench.on_gpu, getattr(torch, dtype), shape=(rows, 4096))
    return _judged(found, "percent_of_copy", 90)


def compare_gelu(rows: int = 8192, columns: int = 8192) -> dict[str, Any]:
    """Compare bias + GELU with a copy: 90 % of its bandwidth."""
    torch = torch_on_gpu()
    bench, home = triton_kernels()
    x, bias = torch.randn(rows, columns, device="cuda"), torch.randn(columns, device="cuda")
    out = torch.empty_like(x)

    def launch(config: dict[str, int]) -> None:
        grid = (math.ceil(rows / config["ROWS"]), math.ceil(columns / config["COLUMNS"]))
        home.bias_gelu[grid](x, bias, out, rows, columns, **config)

    def check() -> None:
        expected = torch.nn.functional.gelu((x[:64] + bias).double())
        torch.testing.assert_close(out[:64].double(), expected, rtol=1e-5, atol=1e-6)
        out.fill_(math.nan)

    found = bench.against_copies("gelu", GELU, launch, check, x.nbytes)
    return _judged(found, "percent_of_copy", 90)


def compare_w4a16() -> dict[str, Any]:
    """Compare the product with weights of 4 bits with FP16: 2.5 times as fast."""
    torch_on_gpu()
    bench, home = triton_kernels()
    return _judged(bench.w4a16(home, bench.on_gpu), "times_as_fast", 2.5)


def compare_decode() -> dict[str, Any]:
    """Compare paged decode with a copy: 85 % of its bandwidth."""
    torch_on_gpu()
    from serving import decode_on_gpu  # imports transformers, which takes seconds

    return _judged(decode_on_gpu(), "percent_of_copy", 85)


def climb(name: str, size: int) -> dict[str, Any]:
    """Check one rung of lab 04's ladder and compare it with cuBLAS in FP32, timed right before: 90 % for the last."""
    from benchmarks.gpu.cells import lab_kernels

    torch = torch_on_gpu()
    lab, shape = LADDER[name]
    torch.manual_seed(0)
    A, B, C = (torch.randn(size, size, device="cuda") for _ in range(3))
    exact = A.double() @ B.double()
    flops = 2 * size**3
    library = flops / warm_seconds(lambda: torch.matmul(A, B)) / 1e12
    launch = lab_kernels(lab, only=name)[name][shape(size)]
    C.fill_(math.nan)
    launch(A, B, C, size, size, size)
    wrong = float((C - exact).norm() / exact.norm())
    own = flops / warm_seconds(lambda: launch(A, B, C, size, size, size)) / 1e12
    figures = {"tflops": own, "cublas_tflops": library, "percent_of_cublas": 100 * own / library}
    bar = BARS.get((name, size), 0.0)
    return {"ok": wrong < 1e-5 and figures["percent_of_cublas"] >= bar, "relative_error": wrong, **figures, "bar": bar}


def measure_roofline() -> dict[str, Any]:
    import mlsys_labkit as lk

    torch_on_gpu()
    roofline = lk.Roofline.measure(seconds=8.0, refresh=True)
    return {f"{each.origin} {each.label}": each.value for each in roofline.ceilings}
