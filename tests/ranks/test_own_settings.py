"""Settings of torch and Python on "local": they leave nothing for later threads, and end no rank that waits."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.ranks.run_helpers import local


def test_threads_after_a_run_have_the_number_from_before_it() -> None:
    """torch keeps a number for each thread, and for new threads the last that any has set."""

    def sets_one() -> None:
        torch.set_num_threads(1)
        dist.barrier()

    found: list[int] = []
    kept = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        local(sets_one, 2)
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(kept)
    assert found == [3]


def test_a_rank_may_wait_deeper_than_anothers_limit_of_recursion() -> None:
    """Python ends the process if a thread that is deeper than the limit goes on."""

    def descends(levels: int) -> int:
        if levels:
            return 1 + descends(levels - 1)
        dist.barrier()
        return 0

    def program() -> int:
        if dist.get_rank():
            dist.barrier()
            return 0
        sys.setrecursionlimit(10_000)
        return descends(3000)

    before = sys.getrecursionlimit()
    assert local(program, 2).values == [3000, 0]
    assert sys.getrecursionlimit() == before


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="PyTorch before 2.9")
def test_the_precision_of_one_backend_is_each_ranks_own() -> None:
    """torch refuses to say the precision of all backends where one has another."""
    products: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]

    def program() -> str:
        products.fp32_precision = ("bf16", "ieee", "tf32")[dist.get_rank()]
        dist.barrier()
        return str(products.fp32_precision)

    assert local(program, 3).values == ["bf16", "ieee", "tf32"]
    assert torch.get_float32_matmul_precision() == "highest"
