"""Compilation of all that the campaign launches, for GPUs from Turing to Blackwell, without a GPU.

Reference: NVIDIA, "CUDA GPUs", compute capabilities 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.cells import cuda_cells, lab_path
from benchmarks.gpu.steps import flash, smoke, speed
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.source.source import Source
from tests.conftest import ROOT
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC
from tests.cuda.test_corpus import CASES, FILES

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
LABS = ("lab03", "lab04", "lab09")
KERNELS = ("matmul", "softmax", "w4a16", "gelu", "flash", "split", "paged decode")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(tmp_path_factory.getbasetemp() / "every-architecture"))


# --- CUDA C++ --------------------------------------------------------------------------------------------------------


def one_unit_of_headers() -> str:
    """Return the headers that step ``smoke`` tries, in one source, because each compilation reads most of them."""
    sources = [source.replace("void k(", f"void k{at}(") for at, source in enumerate(smoke.HEADERS.values())]
    return "\n".join(sources)


@NEEDS_NVRTC
@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_headers_compile_for_the_oldest_and_the_newest(arch: str) -> None:
    assert nvrtc.compile(one_unit_of_headers(), "k0", arch).cubin.startswith(b"\x7fELF")


@NEEDS_NVRTC
@pytest.mark.soak
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_headers_kernels_and_labs_compile(arch: str) -> None:
    """Compile the headers, the corpus of the tests and the cells of the labs: two minutes for each architecture."""
    for source in smoke.HEADERS.values():
        nvrtc.compile(source, "k", arch)
    for name in (kernel.name for kernel in Source(smoke.SOURCE).kernels):
        nvrtc.compile(smoke.SOURCE, name, arch)
    for path in FILES:
        names = [name for file, name in CASES if file == path.stem]
        for name in [name for name in names if "<" in name] or names[:1]:  # each compiles the whole file
            nvrtc.compile(path.read_text(), name, arch)
    for lab in LABS:
        for line, source in cuda_cells(lab_path(lab)):
            words = [word for word in line.split()[1:] if not word.startswith("-")]
            for name in words or [kernel.name for kernel in Source(source).kernels if not kernel.is_template]:
                nvrtc.compile(source, name, arch)


# --- Triton ----------------------------------------------------------------------------------------------------------


@functools.cache
def benchmark() -> tuple[Any, Any]:
    """Return the benchmark of the Triton kernels and the kernels of the solutions. Skips without Triton."""
    pytest.importorskip("triton", reason="needs Triton, which has wheels for Linux; run: pip install triton")
    import sys

    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import triton_kernels as bench
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    folder = Path(tempfile.mkdtemp())
    kernels = {lab: [*names] for lab, names in (bench.KERNELS | flash.KERNELS).items()}
    for lab, names in speed.KERNELS.items():
        kernels[lab] = [*kernels.get(lab, []), *names]
    return bench, bench.load(folder, bench.source(kernels))


def launches(name: str) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Yield each configuration that the campaign compiles: the kernel, its arguments without memory, its options."""
    import torch

    bench, home = benchmark()

    def of(dtype: Any, *shape: int) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    half, single, whole = torch.float16, torch.float32, torch.int64
    if name == "matmul":
        a = of(half, 4096, 4096)
        for config in bench.MATMUL:
            yield home.matmul_grouped, (a, a, a, 4096, 4096, 4096), config
        for config in bench.PERSISTENT:
            yield home.matmul_persistent, (*bench.described(a, a, a, config), 4096, 4096, 4096), config
    elif name == "softmax":
        for dtype, config in itertools.product((single, half), bench.SOFTMAX):
            x = of(dtype, 8192, 4096)
            yield home.softmax, (x, x, 4096, 4096, 4096), {"BLOCK": 4096, **config}
    elif name == "w4a16":
        layer = of(torch.uint8, 8192, 4096), of(half, 8192, 64), of(half, 8192), of(single, 8192)
        for config in bench.W4A16:
            yield home.w4a16, (*layer, 8192), {"IN": 8192, "GROUP": 128, **config}
        for config in bench.WIDE:
            words = of(torch.int32, 8192, 1024)
            yield home.w4a16_wide, (words, *layer[1:], 8192), {"IN": 8192, "GROUP": 128, **config}
    elif name == "gelu":
        x = of(single, 8192, 8192)
        for config in speed.GELU:
            yield home.bias_gelu, (x, of(single, 8192), x, 8192, 8192), config
    elif name == "flash":
        q = of(half, 4096, 64)
        for config in flash.TILES:
            yield home.flash_causal, (q, q, q, q, of(single, 4096), 4096, 0.125), {"D": 64, **config}
    elif name == "split":
        q, k, m, o = of(half, 32, 128), of(half, 8, 4096, 128), of(single, 8, 32), of(single, 8, 32, 128)
        for keys, warps in {(split["BN"], split["num_warps"]) for split in flash.SPLITS}:
            options = {"D": 128, "BG": 16, "BN": keys, "num_warps": warps}
            yield home.decode_split, (q, k, k, m, m, o, 4096, 512, 0.088, 4), options
    else:
        from mlsys_labkit.serving.decode_kernel import paged_decode

        shapes = {"KV_HEADS": 8, "GROUP": 4, "ROWS": 16, "WIDTH": 128, "BLOCK_SIZE": 16}
        page = of(torch.bfloat16, 32, 32, 128), of(torch.bfloat16, 9000, 16, 16, 128), of(whole, 32, 256), of(whole, 32)
        out = of(single, 4, 32, 32, 128), of(single, 4, 32, 32), 128**-0.5, 256, 1024
        for tile, warps, stages in itertools.product((32, 64), (1, 2, 4), (2, 3)):  # serving.py's LAUNCHES
            launch = {"TILE": tile, "EARLY": True, "num_warps": warps, "num_stages": stages}
            yield paged_decode, (*page, *out), shapes | launch


@pytest.mark.soak
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_triton_configuration_compiles(name: str, arch: str) -> None:
    """Compile all configurations that a step may launch: seconds for each, and none is left to the GPU machine."""
    benchmark()
    from mlsys_labkit.triton_trace.compile.compiled import compile_for

    for kernel, arguments, options in launches(name):
        assert f".target {arch}" in compile_for(kernel, arch, *arguments, **options).ptx, (name, options)
