"""Attention of lab 09 on the GPU: ``flash_causal`` against PyTorch's own kernel, and split decode against a copy."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.gpu.cases import torch_on_gpu, warm_seconds

KERNELS = {"lab09_flash_attention": ("flash_causal", "decode_split")}
TILES = [
    {"BM": rows, "BN": keys, "num_warps": warps, "num_stages": stages}
    for rows, keys, warps in ((64, 32, 4), (64, 64, 4), (128, 64, 8), (128, 128, 8))
    for stages in (2, 3)
]
SPLITS = [
    {"BN": keys, "num_warps": warps, "chunks": chunks} for keys, warps in ((64, 4), (128, 8)) for chunks in (8, 32)
]


def compare_with_sdpa(n: int, width: int = 64) -> dict[str, Any]:
    """Time the best tiles of ``flash_causal`` for one head against scaled_dot_product_attention. It has no bar."""
    from benchmarks.gpu.steps.speed import triton_kernels

    torch = torch_on_gpu()
    bench, home = triton_kernels()
    torch.manual_seed(0)
    q, k, v = (torch.randn(n, width, device="cuda").half() for _ in range(3))
    out, lse = torch.full_like(q, math.nan), torch.empty(n, device="cuda")

    def sdpa() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            *(each[None, None] for each in (q, k, v)), is_causal=True
        )

    def launch(tiles: dict[str, int]) -> None:
        grid = (math.ceil(n / tiles["BM"]),)
        home.flash_causal[grid](q, k, v, out, lse, n, width**-0.5, D=width, **tiles)

    def check() -> None:
        torch.testing.assert_close(out, sdpa()[0, 0], rtol=1e-2, atol=1e-2)
        out.fill_(math.nan)

    found = bench.judged("flash_causal", TILES, launch, check, sdpa, bench.on_gpu)
    return {"ok": True, "percent_of_sdpa": 100 * bench.ratio(found), "details": found}


def compare_decode_with_copy(n: int = 131_072, kv_heads: int = 8, group: int = 4, width: int = 128) -> dict[str, Any]:
    """Time the best splits of ``decode_split``, in bytes of keys and values per second, against a copy."""
    from benchmarks.gpu.steps.speed import triton_kernels

    torch = torch_on_gpu()
    bench, home = triton_kernels()
    torch.manual_seed(0)
    q = torch.randn(kv_heads * group, width, device="cuda").half()
    k, v = (torch.randn(kv_heads, n, width, device="cuda").half() for _ in range(2))
    copies = bench.copy_rates(k.nbytes)
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.float().view(kv_heads, group, width), k.float(), v.float()
    ).view(-1, width)
    rates = {}
    for split in SPLITS:
        chunks, heads = split["chunks"], len(q)
        m, l, o = (torch.empty(chunks, heads, *more, device="cuda") for more in ((), (), (width,)))  # noqa: E741

        def launch(split: dict[str, int] = split, m: Any = m, l: Any = l, o: Any = o) -> None:  # noqa: E741
            home.decode_split[(kv_heads, split["chunks"])](
                q, k, v, m, l, o, n, math.ceil(n / split["chunks"]), width**-0.5, group,
                D=width, BG=16, BN=split["BN"], num_warps=split["num_warps"],
            )  # fmt: skip

        launch()
        weights = torch.exp(m - m.amax(0))
        joined = (weights[..., None] * o).sum(0) / (weights * l).sum(0)[:, None]
        torch.testing.assert_close(joined, exact, rtol=2e-2, atol=2e-2)
        rates[str(split)] = 2 * k.nbytes / warm_seconds(launch) / 1e9
    best = max(rates.values())
    percent = 100 * best / max(copies.values())
    return {"ok": True, "gb_per_s": best, "percent_of_copy": percent, "copies": copies, "configurations": rates}
