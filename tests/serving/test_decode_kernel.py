"""Tests of the Triton decode kernel under the tracer: its values, and that it reads each key and value once."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from mlsys_labkit.serving.decode_kernel import decode, paged_decode  # noqa: E402
from mlsys_labkit.triton_trace import trace  # noqa: E402
from mlsys_labkit.triton_trace.compile.compiled import compile_for  # noqa: E402
from tests.conftest import ROOT  # noqa: E402


def case(lengths: list[int], heads: int, kv_heads: int, width: int, block_size: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    blocks = sum(-(-length // block_size) for length in lengths) + 2
    order = torch.randperm(blocks, generator=generator).tolist()
    widest = -(-max(lengths) // block_size)
    own = [[order.pop() for _ in range(-(-length // block_size))] for length in lengths]
    tables = torch.tensor([[*table, *[10**9] * (widest - len(table))] for table in own])  # no block: never to be read
    page = torch.randn(blocks, 2 * kv_heads, block_size, width, generator=generator)
    queries = torch.randn(len(lengths), heads, width, generator=generator)
    return queries, page, tables, torch.tensor(lengths)


def by_hand(queries: torch.Tensor, page: torch.Tensor, tables: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Compute softmax attention of each sequence in float64, its slots looked up one by one."""
    kv_heads, block_size = page.shape[1] // 2, page.shape[2]
    rows = []
    for query, table, length in zip(queries.double(), tables.tolist(), lengths.tolist(), strict=True):
        slots = [(table[at // block_size], at % block_size) for at in range(length)]
        for head, q in enumerate(query):
            own = head // (len(query) // kv_heads)
            keys = torch.stack([page[block, own, slot] for block, slot in slots]).double()
            values = torch.stack([page[block, kv_heads + own, slot] for block, slot in slots]).double()
            rows.append((keys @ q / len(q) ** 0.5).softmax(0) @ values)
    return torch.stack(rows).view(len(queries), -1)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "block_size", "splits"),
    [(8, 4, 32, 16, 1), (4, 4, 16, 16, 2), (6, 2, 64, 8, 3), (32, 1, 16, 32, 1), (4, 2, 16, 128, 1), (4, 2, 16, 24, 2)],
)
def test_decode_kernel_equals_attention(heads: int, kv_heads: int, width: int, block_size: int, splits: int) -> None:
    inputs = case([1, 17, 64, 150], heads, kv_heads, width, block_size)
    actual = decode(*inputs, splits=splits)
    assert (actual - by_hand(*inputs)).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("tile", "splits", "block_size"), [*itertools.product((32, 64), (1, 2, 4), (16,)), (32, 2, 64), (32, 1, 24)]
)
def test_decode_kernel_in_16_bits_equals_attention(tile: int, splits: int, block_size: int) -> None:
    """Lengths around whole tiles: the kernel has one loop without masks and another for a split's last tile."""
    lengths = [1, 5, 31, 32, 33, 63, 64, 65, 200]
    queries, page, tables, seen = case(lengths, 8, 2, 32, block_size)
    for table, length in zip(tables.tolist(), lengths, strict=True):
        last = length - 1
        page[table[last // block_size], :, last % block_size + 1 :] = torch.nan  # slots that no token has filled
    inputs = queries.bfloat16(), page.bfloat16(), tables, seen
    actual = decode(*inputs, splits=splits, TILE=tile)
    assert actual.dtype == torch.bfloat16
    assert ((actual.double() - by_hand(*inputs)).norm(dim=1) / by_hand(*inputs).norm(dim=1)).max() < 1e-2


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("block_size", [16, 8])
def test_decode_kernel_reads_each_key_and_value_once(block_size: int, early: bool) -> None:
    lengths, heads, kv_heads, width = [1, 40, 129], 8, 2, 32
    queries, page, tables, seen = case(lengths, heads, kv_heads, width, block_size)
    mixed, sums = torch.empty(1, 3, heads, width), torch.empty(1, 3, heads)
    slots = -(-tables.shape[1] * block_size // 64) * 64
    found = trace(paged_decode)[(3, kv_heads, 1)](
        queries, page, tables, seen, mixed, sums, width**-0.5, tables.stride(0), slots,
        KV_HEADS=kv_heads, GROUP=4, ROWS=16, WIDTH=width, BLOCK_SIZE=block_size, TILE=64, EARLY=early,
    )  # fmt: skip
    theory = sum(lengths) * 2 * kv_heads * width * 4
    assert found.arrays["page"].loaded_bytes == theory
    assert found.arrays["page"].distinct_loaded_bytes == theory
    assert found.arrays["page"].stored_bytes == 0
    assert found.arrays["queries"].loaded_bytes == 3 * heads * width * 4
    assert found.arrays["mixed"].stored_bytes == 3 * heads * width * 4
    assert not [finding for finding in found.findings if finding.severity == "error"]


@pytest.mark.parametrize(("bits", "tile", "warps"), [(16, 32, 1), (16, 64, 2), (32, 32, 8)])
def test_decode_kernel_compiles_for_sm_90_and_fits_everywhere(bits: int, tile: int, warps: int) -> None:
    def of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    kind, whole, single = {16: torch.bfloat16, 32: torch.float32}[bits], torch.int64, torch.float32
    compiled = compile_for(
        paged_decode, "sm_90", of(kind, 32, 32, 128), of(kind, 9000, 16, 16, 128), of(whole, 32, 256), of(whole, 32),
        of(single, 4, 32, 32, 128), of(single, 4, 32, 32), 128**-0.5, 256, 1024, KV_HEADS=8, GROUP=4, ROWS=16,
        WIDTH=128, BLOCK_SIZE=16, TILE=tile, EARLY=bits == 16, num_warps=warps, num_stages=3,
    )  # fmt: skip
    assert compiled.spills < 100  # bytes for each thread, of 255 registers
    assert compiled.shared_bytes <= 99 * 1024  # compute capability 8.6 and 8.9: CUDA C++ Programming Guide


def test_runner_decodes_with_the_kernel() -> None:
    from mlsys_labkit import lm
    from mlsys_labkit.serving import Chunk, PagedCache, Runner

    torch.manual_seed(0)
    model = lm.LanguageModel(lm.Config(50, 32, 2, 4, 2, 16, 48, context=700)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    texts = [torch.randint(50, (n,)).tolist() for n in (5, 90, 600)]
    tables = [[0], [*range(10, 16)], [*range(20, 58)]]
    results = []
    for kernel in (False, True):
        runner = Runner(model, PagedCache(model.config, 60), kernel=kernel)
        pairs = list(zip(texts, tables, strict=True))
        runner.run([Chunk(text[:-1], 0, table, 0) for text, table in pairs])
        results.append(runner.run([Chunk(text[-1:], len(text) - 1, table, 1) for text, table in pairs]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_decode_benchmark_checks_results_before_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything except the timing, in a small shape."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("serving")
    monkeypatch.delitem(sys.modules, "serving")
    calls = []

    def no_clock(call: Callable[[], object], name: str, seconds: float) -> Any:
        call()
        calls.append(name)
        return SimpleNamespace(median=1.0)

    def copies(nbytes: int) -> dict[str, float]:
        return {"slow": nbytes / 1e9, "fast": 2 * nbytes / 1e9}  # in a second, read and written

    shape = (2, 4, 2, 16)
    figures = benchmark.decode_on_gpu("cpu", no_clock, 64, shape, [(32, 4, 2, 1), (64, 4, 2, 2)], copies)
    assert calls == ["decode", "decode"]
    kv_bytes = 2 * 64 * 2 * 2 * 16 * 2  # sequences, tokens, keys and values, heads, width, bytes
    assert figures["gb_per_s"] == kv_bytes / 1e9
    assert figures["percent_of_copy"] == 50  # a copy reads and writes as many bytes
    monkeypatch.setattr("mlsys_labkit.serving.decode_kernel.decode", lambda queries, *_, **__: queries.flatten(1))
    with pytest.raises(AssertionError, match="not close"):
        benchmark.decode_on_gpu("cpu", no_clock, 64, shape, [(32, 4, 2, 1)], copies)
