"""Tensors that a rank writes to while an asynchronous collective is under way: named, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from mlsys_labkit import ranks
from mlsys_labkit.checks import run_ranks
from mlsys_labkit.checks.message import CheckError
from tests.ranks.run_helpers import local

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # torch 2.13 has new names for old ones


def divided_too_early() -> None:
    x = torch.ones(4)
    request = dist.all_reduce(x, async_op=True)
    x /= 2
    request.wait()


def gathered_and_changed() -> None:
    x, whole = torch.ones(2), [torch.empty(2) for _ in range(2)]
    request = dist.all_gather(whole, x, async_op=True)
    x.add_(1)
    request.wait()


def a_part_is_changed() -> None:
    flat = torch.ones(6)
    request = dist.all_reduce(flat[:3], async_op=True)
    flat[1] = 5
    request.wait()


def a_view_is_changed() -> None:
    x = torch.ones(6)
    request = dist.all_reduce(x, async_op=True)
    x.view(2, 3)[0].zero_()
    request.wait()


def one_tensor_twice() -> None:
    x = torch.ones(3)
    for request in [dist.all_reduce(x, async_op=True) for _ in range(2)]:
        request.wait()


CHANGED: list[tuple[Callable[[], None], str]] = [
    (divided_too_early, "all_reduce"),
    (gathered_and_changed, "all_gather"),
    (a_part_is_changed, "all_reduce"),
    (a_view_is_changed, "all_reduce"),
    (one_tensor_twice, "all_reduce"),
]


def read_meanwhile() -> float:
    x = torch.ones(3)
    request = dist.all_reduce(x, async_op=True)
    total = float(x.sum()) + float((x + 1)[0]) + float(x.clone().mul_(3)[0])
    request.wait()
    x /= 2
    return total


def buckets_of_one_tensor() -> None:
    flat = torch.arange(6.0)
    first, second = (dist.all_reduce(part, async_op=True) for part in (flat[:2], flat[2:4]))
    flat[4:] = 7
    first.wait()  # writes to the tensor that the second belongs to
    flat[:2] /= 2
    second.wait()
    flat[2:4] /= 2


def gathered_in_place() -> None:
    whole = torch.zeros(4)
    mine = whole[2 * dist.get_rank() :][:2]
    mine += 1
    dist.all_gather_into_tensor(whole, mine, async_op=True).wait()


def other_tensors_change() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    gradient = torch.autograd.grad(x.square().sum(), x)[0]
    request = dist.all_reduce(gradient, async_op=True)
    y.mul_(2)
    with torch.no_grad():
        x -= 1
    while not request.is_completed():
        y.add_(1)
    request.wait()
    gradient /= 2


def in_inference_mode() -> None:
    with torch.inference_mode():
        dist.all_reduce(torch.ones(3), async_op=True).wait()


def dtypes_and_shapes() -> None:
    for dtype in (torch.bool, torch.bfloat16, torch.complex64, torch.int64):
        grid = torch.ones(3, 4).to(dtype)
        for part in (grid[0, 0], grid[:0], grid[1:, :2].contiguous(), grid[1]):
            dist.broadcast(part, 0, async_op=True).wait()
    x = torch.ones(2)
    dist.all_reduce(x)
    x += 1


UNCHANGED = [
    read_meanwhile,
    buckets_of_one_tensor,
    gathered_in_place,
    other_tensors_change,
    in_inference_mode,
    dtypes_and_shapes,
]


@pytest.mark.parametrize(("fn", "collective"), CHANGED, ids=lambda one: getattr(one, "__name__", one))
def test_a_tensor_that_is_changed_before_the_wait_is_named_on_every_rank(
    fn: Callable[[], None], collective: str
) -> None:
    found = local(fn, 2).trace.findings
    starts = [f"rank {rank} changes a tensor of its asynchronous {collective} before the wait (" for rank in (0, 1)]
    assert [sentence.startswith(start) for sentence, start in zip(sorted(set(found)), starts, strict=True)] == [
        True
    ] * 2
    assert all("test_changed_buffers.py:" in sentence and "after wait()" in sentence for sentence in found)


@pytest.mark.parametrize("fn", UNCHANGED, ids=lambda fn: fn.__name__)
def test_reads_and_writes_elsewhere_are_not_reported(fn: Callable[[], None]) -> None:
    assert local(fn, 2).trace.findings == ()


def test_a_check_names_the_collective_and_the_rank() -> None:
    with pytest.raises(CheckError, match=r"rank 0 changes a tensor of its asynchronous all_reduce before the wait"):
        run_ranks(divided_too_early, 2)


def test_gloo_names_whole_tensors_and_reports_no_correct_program() -> None:
    def all_of_them() -> None:
        for fn in UNCHANGED:
            fn()

    run = ranks.run(all_of_them, 2, "gloo", quiet=True)
    assert run.trace.findings == ()
    found = ranks.run(divided_too_early, 2, "gloo", quiet=True).trace.findings
    assert [sentence.split(" before")[0] for sentence in found] == [
        f"rank {rank} changes a tensor of its asynchronous all_reduce" for rank in (0, 1)
    ]
