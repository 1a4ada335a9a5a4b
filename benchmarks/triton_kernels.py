"""Benchmark of the Triton kernels of labs 05 and 06, from their solutions, against the limits of the GPU.

    python benchmarks/triton_kernels.py

    matmul    4096³ in FP16, matmul_persistent against torch.matmul (cuBLAS): at least 95 % of its speed
    softmax   [8192, 4096] against the fastest copy: at least 90 % of its bandwidth, in FP32 and in FP16
    w4a16     8192 x 8192 at batch 1, groups of 128, w4a16_wide against torch's FP16 product: at least 2.5 times as fast

Each kernel's result is checked before it is timed. The best of a few configurations is chosen in short runs, then timed
again, right after its peer. The copies are those of ``copy_rates``. Prints a table and writes
results/triton_kernels.json; the exit status is the number of bars missed. Without an NVIDIA GPU it says so, writes
nothing, and that is no failure.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from record import write_result

import mlsys_labkit as lk

SOLUTIONS = Path(__file__).parent.parent / "solutions"
KERNELS = {
    "lab05_triton": ("softmax", "matmul_tile", "tile_of", "matmul_grouped", "matmul_persistent"),
    "lab06_quantization": ("w4a16", "bits_as_float", "w4a16_wide"),
}
Config = dict[str, int]
Call = Callable[[], object]
Clock = Callable[[Call, str, float], Any]  # what to time, its name, seconds to spend -> a Timing
Copies = Callable[[int], dict[str, float]]  # bytes of an array -> GB/s of each kind of copy, as copy_rates returns them

MATMUL: list[Config] = [
    {"BM": bm, "BN": bn, "BK": 64, "GROUP": 8, "num_stages": stages, "num_warps": warps}
    for bm, bn, warps in ((128, 128, 4), (128, 128, 8), (128, 256, 8), (256, 128, 8), (64, 256, 4))
    for stages in (3, 4)
]
# A stage of 128 x 256 takes 48 KiB and the tile to be stored 64 KiB: three stages fit into an H100's 227 KiB.
PERSISTENT: list[Config] = [
    {"BM": 128, "BN": bn, "BK": 64, "GROUP": group, "num_stages": stages, "num_warps": 8}
    for bn, group, stages in ((256, 8, 3), (256, 16, 3), (128, 8, 4))
]
SOFTMAX: list[Config] = [{"num_warps": warps} for warps in (4, 8, 16)]
W4A16: list[Config] = [{"ROWS": rows, "num_warps": warps} for rows in (4, 8, 16, 32) for warps in (1, 2, 4)]
WIDE: list[Config] = [
    {"ROWS": rows, "WORDS": words, "AHEAD": ahead, "num_warps": warps}
    for rows, words, warps in ((8, 128, 1), (8, 256, 2), (8, 256, 4), (8, 512, 4), (4, 256, 2), (4, 128, 1))
    for ahead in (1, 3)
]


def source(kernels: Mapping[str, Sequence[str]] = KERNELS) -> str:
    """Return kernels of the solutions, by lab, and nothing else of the labs, as the text of one module."""
    parts = ["import triton", "import triton.language as tl"]
    for lab, names in kernels.items():
        text = (SOLUTIONS / lab / f"{lab}.py").read_text(encoding="utf-8")
        cells = re.split(r"^# %%.*$", text, flags=re.MULTILINE)
        for name in names:
            cell = next(cell for cell in cells if f"\ndef {name}(" in cell)
            definition = next(each for each in ast.parse(cell).body if getattr(each, "name", "") == name)
            first = definition.decorator_list[0].lineno  # type: ignore[attr-defined]
            parts.append("\n".join(cell.splitlines()[first - 1 : definition.end_lineno]))
    return "\n\n\n".join(parts) + "\n"


def load(folder: Path, text: str) -> Any:
    """Import ``text`` as a file in ``folder``, because Triton reads a kernel's source from a file."""
    path = folder / "solution_kernels.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_gpu(call: Call, name: str, seconds: float) -> Any:
    """Time ``call`` as a CUDA graph, without Python's launch time, which would dominate a kernel of microseconds."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()  # compiled and its workspaces allocated before the capture
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return lk.bench(graph.replay, name=name, seconds=seconds, device="cuda")


def launched(call: Call, name: str, seconds: float) -> Any:
    """Time ``call`` as Python launches it, without a graph."""
    return lk.bench(call, name=name, seconds=seconds, device="cuda")


def copy_rates(
    nbytes: int,
    place: str = "cuda",
    clocks: Mapping[str, Clock] = MappingProxyType({"in a graph": on_gpu, "launched": launched}),
    sizes: Sequence[int] = (2**28, 2**30),
) -> dict[str, float]:
    """Return the GB/s, read and written, of copies of ``nbytes`` and of ``sizes``, by kind of launch and size.

    The fastest is the peer, because no one kind always is: an H100 copied 1 GiB at 2,446 GB/s in a graph, 256 MiB at
    3,061, and 4 GiB launched from Python at 3,029.
    """
    rates = {}
    for size in sorted({nbytes, *sizes}):
        source, target = (torch.zeros(size, dtype=torch.uint8, device=place) for _ in range(2))
        for kind, clock in clocks.items():
            name = f"copy of {size / 2**20:,.4g} MiB, {kind}"
            rates[name] = 2 * size / clock(partial(target.copy_, source), name, 0.2).median / 1e9
    return rates


def figures(timing: Any) -> dict[str, Any]:
    return {
        "median_s": timing.median,
        "ci_low_s": timing.ci_low,
        "ci_high_s": timing.ci_high,
        "verdict": timing.verdict,
    }


def best_of(
    configs: Iterable[Config], launch: Callable[[Config], object], check: Call, clock: Clock
) -> tuple[Config, dict[str, Any]]:
    """Return the fastest configuration, and the seconds of each; None for one that does not fit on this GPU."""
    from triton.runtime.errors import OutOfResources

    seconds: dict[str, float | None] = {}
    best, least = {}, math.inf
    for config in configs:
        name = " ".join(f"{key}={value}" for key, value in config.items())
        try:
            launch(config)
        except OutOfResources:
            seconds[name] = None
            continue
        check()
        seconds[name] = found = clock(lambda chosen=config: launch(chosen), name, 0.3).median
        if found < least:
            best, least = config, found
    if not best:
        raise SystemExit("no configuration fits on this GPU; add a smaller one to the lists at the top")
    return best, seconds


def judged(
    name: str, configs: Iterable[Config], launch: Callable[[Config], object], check: Call, peer: Call, clock: Clock
) -> dict[str, Any]:
    """Time the best configuration and its peer, one right after the other."""
    best, seconds = best_of(configs, launch, check, clock)
    of_peer = clock(peer, f"{name}, peer", 1.0)
    of_kernel = clock(lambda: launch(best), name, 1.0)
    return {"best": best, "kernel": figures(of_kernel), "peer": figures(of_peer), "configurations_s": seconds}


def against_copies(
    name: str,
    configs: Iterable[Config],
    launch: Callable[[Config], object],
    check: Call,
    nbytes: int,
    *,
    clock: Clock = on_gpu,
    copies: Copies = copy_rates,
) -> dict[str, Any]:
    """Time the best configuration of a kernel that reads and writes ``nbytes`` each, right after copies."""
    best, seconds = best_of(configs, launch, check, clock)
    rates = copies(nbytes)
    of_kernel = clock(lambda: launch(best), name, 1.0)
    moved, copied = 2 * nbytes / of_kernel.median / 1e9, max(rates.values())
    speeds = {"gb_per_s": moved, "copy_gb_per_s": copied, "percent_of_copy": 100 * moved / copied, "copies": rates}
    return {"best": best, "kernel": figures(of_kernel), "configurations_s": seconds, **speeds}


def ratio(result: dict[str, Any]) -> float:
    return float(result["peer"]["median_s"] / result["kernel"]["median_s"])


def matmul(home: Any, clock: Clock, place: str = "cuda", n: int = 4096) -> dict[str, Any]:
    """Compare ``matmul_persistent`` with cuBLAS, and ``matmul_grouped`` under the key ``grouped``."""
    torch.manual_seed(0)
    a, b = (torch.randn(n, n, device=place).half() for _ in range(2))
    c = torch.full((n, n), math.nan, device=place, dtype=torch.float16)
    product = torch.empty_like(c)
    expected = a.float() @ b.float()  # torch's default keeps FP32 products in FP32
    programs = torch.cuda.get_device_properties(place).multi_processor_count if place == "cuda" else 4

    def grouped(config: Config) -> None:
        grid = (math.ceil(n / config["BM"]) * math.ceil(n / config["BN"]),)
        home.matmul_grouped[grid](a, b, c, n, n, n, **config)

    def persistent(config: Config) -> None:
        home.matmul_persistent[(programs,)](*described(a, b, c, config), n, n, n, **config)

    def check() -> None:
        torch.testing.assert_close(c.float(), expected, rtol=2**-10, atol=1e-2)  # rounded once to FP16
        c.fill_(math.nan)

    def compared(name: str, configs: Iterable[Config], launch: Callable[[Config], object]) -> dict[str, Any]:
        found = judged(name, configs, launch, check, lambda: torch.matmul(a, b, out=product), clock)
        return found | {"tflops": 2 * n**3 / found["kernel"]["median_s"] / 1e12, "percent_of_peer": 100 * ratio(found)}

    result = compared("matmul_persistent", PERSISTENT, persistent)
    return result | {"grouped": compared("matmul_grouped", MATMUL, grouped)}


def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: Config) -> list[Any]:
    """Return descriptors of a, b and c for the tiles of a configuration of ``matmul_persistent``."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    blocks = ("BM", "BK"), ("BK", "BN"), ("BM", "BN")
    arrays = zip((a, b, c), blocks, strict=True)
    return [TensorDescriptor.from_tensor(array, [config[side] for side in block]) for array, block in arrays]


def softmax(
    home: Any,
    clock: Clock,
    dtype: torch.dtype,
    place: str = "cuda",
    shape: tuple[int, int] = (8192, 4096),
    copies: Copies = copy_rates,
) -> dict[str, Any]:
    """Measure softmax against copies."""
    torch.manual_seed(0)
    (rows, columns), block = shape, 1 << (shape[1] - 1).bit_length()
    x = torch.randn(rows, columns, device=place).to(dtype)
    out = torch.full_like(x, math.nan)
    # Small probabilities are subnormal in FP16: steps of 2^-24, and half of one is lost in rounding.
    rtol, atol = (1e-5, 0.0) if dtype == torch.float32 else (2**-10, 2**-24)

    def launch(config: Config) -> None:
        home.softmax[(rows,)](x, out, columns, columns, columns, BLOCK=block, **config)

    def check() -> None:
        torch.testing.assert_close(out.double(), x.double().softmax(1), rtol=rtol, atol=atol)
        out.fill_(math.nan)

    return against_copies("softmax", SOFTMAX, launch, check, x.nbytes, clock=clock, copies=copies)


def w4a16(
    home: Any, clock: Clock, place: str = "cuda", out: int = 8192, inner: int = 8192, group: int = 128
) -> dict[str, Any]:
    """Compare ``w4a16_wide`` with torch's FP16 product, and lab 06's graded ``w4a16`` under the key ``narrow``."""
    torch.manual_seed(0)
    packed = torch.randint(0, 256, (out, inner // 2), dtype=torch.uint8, device=place)
    scales = torch.rand(out, inner // group, device=place).half()
    x, y = torch.randn(inner, device=place).half(), torch.full((out,), math.nan, device=place)
    nibbles = torch.stack((packed % 16, packed // 16), dim=2).view(out, inner).to(torch.int8)
    codes = torch.where(nibbles > 7, nibbles - 16, nibbles).view(out, inner // group, group)
    dense = (codes * scales[:, :, None]).view(out, inner)  # the same layer, as torch's product takes it
    pieces = zip(codes.split(512), scales.split(512), strict=True)  # the whole of it in FP64 would not fit everywhere
    expected = torch.cat([(c.double() * s.double()[:, :, None]).flatten(1) @ x.double() for c, s in pieces])
    del nibbles, codes

    def narrow(config: Config) -> None:
        home.w4a16[(math.ceil(out / config["ROWS"]),)](packed, scales, x, y, out, IN=inner, GROUP=group, **config)

    def wide(config: Config) -> None:
        words, grid = packed.view(torch.int32), (math.ceil(out / config["ROWS"]),)
        home.w4a16_wide[grid](words, scales, x, y, out, IN=inner, GROUP=group, **config)

    def check() -> None:
        torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-2)
        y.fill_(math.nan)

    def compared(name: str, configs: Iterable[Config], launch: Callable[[Config], object]) -> dict[str, Any]:
        found = judged(name, configs, launch, check, lambda: dense @ x, clock)
        return found | {"times_as_fast": ratio(found)}

    return compared("w4a16_wide", WIDE, wide) | {"narrow": compared("w4a16", W4A16, narrow)}


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if torch.version.cuda is None or not torch.cuda.is_available():
        print("not measured: no NVIDIA GPU here")
        return 0
    print(torch.cuda.get_device_name())
    with tempfile.TemporaryDirectory() as folder:
        home = load(Path(folder), source())
        result = {
            "matmul": matmul(home, on_gpu),
            "softmax, fp32": softmax(home, on_gpu, torch.float32),
            "softmax, fp16": softmax(home, on_gpu, torch.float16),
            "w4a16": w4a16(home, on_gpu),
        }
    missed = 0
    for name, figure, bar, unit in (
        ("matmul", "percent_of_peer", 95, "% of cuBLAS"),
        ("softmax, fp32", "percent_of_copy", 90, "% of a copy's bandwidth"),
        ("softmax, fp16", "percent_of_copy", 90, "% of a copy's bandwidth"),
        ("w4a16", "times_as_fast", 2.5, "times as fast as FP16"),
    ):
        one = result[name]
        missed += one[figure] < bar
        kernel = one["kernel"]
        spread = f"{1e6 * kernel['median_s']:.1f} µs [{1e6 * kernel['ci_low_s']:.1f}, {1e6 * kernel['ci_high_s']:.1f}]"
        print(f"{name:14s} {one[figure]:6.1f} {unit:24s} bar {bar:4.3g}   {spread}", end=", ")
        peer = f"{1e6 * one['peer']['median_s']:.1f} µs" if "peer" in one else f"{one['copy_gb_per_s']:,.0f} GB/s"
        print(f"peer {peer}, {one['best']}")
    grouped = result["matmul"]["grouped"]
    print(f"matmul_grouped {grouped['percent_of_peer']:6.1f} % of cuBLAS, which has no bar, {grouped['best']}")
    narrow = result["w4a16"]["narrow"]
    print(f"lab 06's w4a16 {narrow['times_as_fast']:6.1f} times as fast as FP16, which has no bar, {narrow['best']}")
    write_result("triton_kernels", result)
    return missed


if __name__ == "__main__":
    sys.exit(main())
