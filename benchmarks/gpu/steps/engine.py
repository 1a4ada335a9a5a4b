"""Step ``engine``: memory trace on CPU and CUDA, the serving engine on the GPU, one NCCL rank."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from benchmarks.gpu.cases import Case, torch_on_gpu


def cases() -> list[Case]:
    return [
        Case("memory/mlp", partial(compare_memory, "mlp"), 90),
        Case("memory/transformer layer", partial(compare_memory, "transformer layer"), 90),
        *(Case(f"paged decode/{dtype}", partial(check_decode, dtype), 90) for dtype in ("float32", "bfloat16")),
        Case("engine/texts as one by one", partial(race, "float32"), 200),
        Case("engine/bfloat16", partial(race, "bfloat16"), 200),
        Case("engine/texts as on the CPU", compare_texts, 200),
        Case("one NCCL rank", run_one_rank, 120, alone=True),
    ]


def compare_memory(name: str) -> dict[str, Any]:
    """Trace one step of training on both: the peak by category is equal for layers without fused kernels."""
    import mlsys_labkit as lk

    torch = torch_on_gpu()

    def traced(place: str) -> Any:
        torch.manual_seed(0)
        if name == "mlp":
            layers = torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128)
            model = torch.nn.Sequential(*layers).to(place)
        else:
            model = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True).to(place)
        x, optimizer = torch.randn(8, 64, 128, device=place), torch.optim.Adam(model.parameters(), foreach=False)

        def train() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        train()
        return lk.trace_memory(train)

    cpu, cuda = traced("cpu"), traced("cuda")
    same = cpu.peak_by_category == cuda.peak_by_category
    figures = {
        "cpu": dict(cpu.peak_by_category),
        "cuda": dict(cuda.peak_by_category),
        "allocator": dict(cuda.cuda or {}),
    }
    return {"ok": same if name == "mlp" else None, "same": same, **figures}


def check_decode(dtype: str) -> dict[str, Any]:
    """Check the decode kernel against attention in float64, for sequences of several lengths."""
    from mlsys_labkit.serving.decode_kernel import decode

    torch = torch_on_gpu()
    bound = {"float32": 1e-5, "bfloat16": 2e-2}[dtype]
    torch.manual_seed(0)
    page = torch.randn(64, 2 * 4, 16, 64, device="cuda").to(getattr(torch, dtype))
    tables, lengths = torch.randperm(64, device="cuda").view(4, 16), torch.tensor([1, 17, 100, 256], device="cuda")
    q = torch.randn(4, 8, 64, device="cuda").to(page.dtype)
    out, wrong = decode(q, page, tables, lengths, 2).view(4, 8, 64).double(), {}
    for at, length in enumerate(lengths.tolist()):
        own = page[tables[at]].double().transpose(0, 1).flatten(1, 2)[:, :length]
        k, v = (part.repeat_interleave(2, 0) for part in own.split(4))
        exact = torch.nn.functional.scaled_dot_product_attention(q[at, :, None].double(), k, v)[:, 0]
        wrong[str(length)] = float((out[at] - exact).norm() / exact.norm())
    return {"ok": max(wrong.values()) < bound, "relative_errors": wrong}


@cache
def benchmark() -> Any:
    """Return the benchmark of serving, which imports transformers."""
    import serving

    return serving


def race(dtype: str) -> dict[str, Any]:
    """Race the engine, one request at a time, and transformers on the GPU: tokens per second, and equal texts."""
    import time

    from mlsys_labkit import lm

    torch, bench = torch_on_gpu(), benchmark()
    bench.MODEL, _ = lm.load(dtype=getattr(torch, dtype), device="cuda")
    theirs = bench.Transformers()
    theirs.model.to("cuda", getattr(torch, dtype))
    requests = bench.alike()

    def by_transformers() -> Any:
        with torch.device("cuda"):  # the benchmark makes its prompts where torch makes tensors
            return theirs(requests)

    peers = {
        "engine": lambda: bench.by_engine(requests),
        "one by one": lambda: bench.one_by_one(requests),
        "transformers": by_transformers,
    }
    found = bench.race(requests, peers, 2, time.perf_counter)  # the second round has compiled kernels
    equal = found["engine"]["texts_equal_to_one_by_one"]
    rates = {f"{name}, tokens/s": figures["tokens_per_second"] for name, figures in found.items()}
    ok = equal == len(requests) if dtype == "float32" else None
    return {"ok": ok, "equal_texts": equal, "of": len(requests), **rates, "details": found}


def compare_texts() -> dict[str, Any]:
    """Compare the engine's greedy texts in float32 on the GPU with those on the CPU."""
    from mlsys_labkit import lm

    torch, bench, texts = torch_on_gpu(), benchmark(), {}
    for place in ("cpu", "cuda"):
        bench.MODEL, _ = lm.load(dtype=torch.float32, device=place)
        texts[place] = bench.by_engine(bench.alike())
    first = {
        name: next(
            (at for at, pair in enumerate(zip(texts["cpu"][name], text, strict=True)) if pair[0] != pair[1]), None
        )
        for name, text in texts["cuda"].items()
    }
    differ = {name: at for name, at in first.items() if at is not None}
    return {"ok": not differ, "same": len(first) - len(differ), "of": len(first), "first_other_token": differ}


def collectives() -> dict[str, Any]:
    """Call every collective that one rank can have, on its GPU: what runs on the rank."""
    import torch
    import torch.distributed as dist

    x = torch.arange(4.0, device="cuda")
    gathered, one, host = [torch.empty_like(x)], torch.empty_like(x), torch.ones(2)
    dist.all_reduce(x)
    dist.all_gather(gathered, x)
    dist.reduce_scatter_tensor(one, x)
    dist.all_gather_into_tensor(one, x)
    dist.all_to_all_single(one, x)
    dist.broadcast(x, 0)
    dist.barrier()
    dist.all_reduce(host)  # gloo, beside NCCL
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[0])
    model(x[None]).sum().backward()
    return {"sum": float(x.sum()), "gathered": float(gathered[0].sum()), "host": float(host.sum())}


def run_one_rank() -> dict[str, Any]:
    import mlsys_labkit as lk

    torch_on_gpu()
    run = lk.ranks.run(collectives, 1, "nccl", timeout_seconds=90.0)
    return {"ok": run.values[0] == {"sum": 6.0, "gathered": 6.0, "host": 2.0}, "values": run.values[0]}
