"""Programs that set attributes of classes, functions and modules of libraries; each returns its own rank."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Dropout as Dropped


def method_of_a_class() -> int:
    rank = dist.get_rank()
    nn.Linear.forward = lambda self, x: x + rank  # type: ignore[method-assign]
    dist.barrier()
    return int(nn.Linear(1, 1)(torch.zeros(1)).item())


def method_that_wraps_the_one_before() -> int:
    before = torch.optim.SGD.step

    @functools.wraps(before)
    def step(self: Any, *given: Any) -> Any:
        calls.append(1)
        return before(self, *given)

    calls: list[int] = []
    torch.optim.SGD.step = step  # type: ignore[method-assign]
    dist.barrier()
    torch.optim.SGD([nn.Parameter(torch.zeros(1))]).step()
    dist.barrier()
    return dist.get_rank() if calls == [1] else -1  # wrapped twice, or another rank's


def new_attribute_of_a_class() -> Any:
    nn.Module.own_rank = dist.get_rank()
    dist.barrier()
    return nn.ReLU().own_rank


def classes_in_a_loop() -> Any:
    for kind in (nn.GELU, nn.SiLU):
        kind.own_rank = dist.get_rank()  # type: ignore[attr-defined]
    dist.barrier()
    return nn.SiLU.own_rank


def class_as_an_argument() -> Any:
    def keep(kind: Any) -> None:
        kind.own_rank = dist.get_rank()

    keep(json.JSONEncoder)
    dist.barrier()
    return json.JSONEncoder.own_rank  # type: ignore[attr-defined]


def class_under_another_name() -> Any:
    setattr(Dropped, "own_rank", dist.get_rank())  # noqa: B010
    dist.barrier()
    return nn.Dropout.own_rank


def class_of_an_object() -> Any:
    layer = nn.Tanh()
    type(layer).own_rank = dist.get_rank()
    dist.barrier()
    return layer.own_rank


def tensor_on_a_class() -> int:
    nn.Mish.weights = torch.full((2,), dist.get_rank())  # type: ignore[attr-defined]
    dist.barrier()
    return int(nn.Mish.weights[0])  # type: ignore[attr-defined]


def class_that_the_program_never_names() -> Any:
    layer = nn.TransformerEncoderLayer(2, 1)
    type(layer.norm1).own_rank = dist.get_rank()
    dist.barrier()
    return layer.norm1.own_rank


def attribute_of_a_function() -> Any:
    nn.init.zeros_.own_rank = dist.get_rank()  # type: ignore[attr-defined]
    dist.barrier()
    return nn.init.zeros_.own_rank  # type: ignore[attr-defined]


def function_of_a_module() -> int:
    rank = dist.get_rank()
    nn.init.ones_ = lambda x: x + rank  # type: ignore[assignment]
    dist.barrier()
    return int(nn.init.ones_(torch.zeros(1)).item())


def attribute_that_is_removed() -> int:
    if dist.get_rank() == 1:
        del nn.Identity.forward
    dist.barrier()
    has = "forward" in vars(nn.Identity)
    return dist.get_rank() if has == (dist.get_rank() != 1) else -1


def patch_for_a_while() -> int:
    rank = dist.get_rank()
    with mock.patch.object(nn.Sigmoid, "forward", lambda self, x: x + rank):
        dist.barrier()
        found = nn.Sigmoid()(torch.zeros(1))
        dist.barrier()
    with mock.patch("torch.nn.Softplus.forward", lambda self, x: x + rank):
        dist.barrier()
        return rank if found.item() == nn.Softplus()(torch.zeros(1)).item() == rank else -1


PATCHING: tuple[Callable[[], Any], ...] = (
    method_of_a_class, method_that_wraps_the_one_before, new_attribute_of_a_class, classes_in_a_loop,
    class_as_an_argument, class_under_another_name, class_of_an_object, class_that_the_program_never_names,
    tensor_on_a_class, attribute_of_a_function, function_of_a_module, attribute_that_is_removed, patch_for_a_while,
)  # fmt: skip
PATCHED = (
    nn.Linear, torch.optim.SGD, nn.Module, nn.GELU, nn.SiLU, json.JSONEncoder, nn.Dropout, nn.Tanh, nn.init.zeros_,
    nn.init, nn.Identity, nn.Sigmoid, nn.Softplus, nn.Mish, nn.LayerNorm,
)  # fmt: skip


@contextmanager
def libraries_as_they_were() -> Iterator[None]:
    """Undo what the programs of this file leave: a process of its own would end with it."""
    before = [dict(vars(one)) for one in PATCHED]
    try:
        yield
    finally:
        for one, values in zip(PATCHED, before, strict=True):
            for name in [*vars(one)]:
                if name not in values:
                    delattr(one, name)
            for name, value in values.items():
                if vars(one).get(name) is not value:
                    setattr(one, name, value)
