"""Programs that keep their rank in what a process has once; each returns its rank, if that is its own."""

from __future__ import annotations

import enum
import functools
import os
import sys
import threading
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

RANK = -1
SEEN: list[int] = []
NESTED: dict[str, list[int]] = {"seen": []}
WEIGHT = torch.zeros(1)
MODEL: torch.nn.Linear
OPTIMIZER: torch.optim.SGD
LOCK = threading.Lock()
NOTHING = object()
GENERATOR = torch.Generator()
ITEMS = (number for number in range(100))
BOARD = np.zeros((4, 3), order="F")
VIEW = BOARD[::-1, 1]
CORNER = BOARD[2:, 1:].T


@functools.singledispatch
def described(_: object) -> int:
    return -1


class Color(enum.Enum):
    RED = 1


class Config:
    rank = -1
    seen: list[int] = []  # noqa: RUF012  (shared by all instances, which is the point)
    _instance: Config | None = None

    def __init__(self) -> None:
        self.own = -1

    @classmethod
    def get(cls) -> Config:
        if cls._instance is None:
            cls._instance = Config()
            cls._instance.own = dist.get_rank()
        return cls._instance

    @functools.cached_property
    def number(self) -> int:
        return dist.get_rank()

    def keep(self) -> int:
        self.own = dist.get_rank()
        dist.barrier()
        return self.own


CONFIG = Config()


def make_model() -> None:
    """Make the model and its optimizer, which import torch's compiler: only in the processes that use them."""
    global MODEL, OPTIMIZER
    MODEL = torch.nn.Linear(1, 1, bias=False)
    OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=1.0)


def rebound_global() -> int:
    global RANK
    RANK = dist.get_rank()
    dist.barrier()
    return RANK


def by_globals() -> int:
    globals()["RANK"] = dist.get_rank()
    dist.barrier()
    return RANK


def list_in_a_global() -> int:
    SEEN.append(dist.get_rank())
    dist.barrier()
    return sum(SEEN)


def nested_container() -> int:
    NESTED["seen"].append(dist.get_rank())
    dist.barrier()
    return sum(NESTED["seen"])


def tensor_in_a_global() -> float:
    WEIGHT.add_(dist.get_rank())
    dist.barrier()
    return WEIGHT.item()


def model_in_a_global() -> float:
    with torch.no_grad():
        MODEL.weight.fill_(0)
    dist.barrier()
    (-dist.get_rank() * MODEL(torch.ones(1))).backward()
    dist.barrier()
    OPTIMIZER.step()
    dist.barrier()
    return MODEL.weight.item()


def class_attribute() -> int:
    Config.rank = dist.get_rank()
    dist.barrier()
    return Config.rank


def list_of_a_class() -> int:
    Config.seen.append(dist.get_rank())
    dist.barrier()
    return sum(Config.seen)


def singleton() -> int:
    Config.get()
    dist.barrier()
    return Config.get().own


def object_in_a_global() -> int:
    CONFIG.own = dist.get_rank()
    dist.barrier()
    return CONFIG.own


def cached_property() -> int:
    first = CONFIG.number
    dist.barrier()
    return max(first, CONFIG.number)


@functools.lru_cache
def cached_rank() -> int:
    return dist.get_rank()


def cache_of_functools() -> int:
    dist.barrier()
    return cached_rank()


def default_argument(seen: list[int] = []) -> int:  # noqa: B006  (that is the case)
    seen.append(dist.get_rank())
    dist.barrier()
    return sum(seen)


def default_by_name(*, seen: list[int] = []) -> int:  # noqa: B006
    seen.append(dist.get_rank())
    dist.barrier()
    return sum(seen)


def memoized(fn: Callable[[], int]) -> Callable[[], int]:
    kept: dict[str, int] = {}

    @functools.wraps(fn)
    def wrapper() -> int:
        if "value" not in kept:
            kept["value"] = fn()
        return kept["value"]

    return wrapper


@memoized
def memoized_rank() -> int:
    return dist.get_rank()


def cache_in_a_closure() -> int:
    memoized_rank()
    dist.barrier()
    return memoized_rank()


def _counter() -> Callable[[int], int]:
    count = 0

    def add(number: int) -> int:
        nonlocal count
        count += number
        return count

    return add


ADD = _counter()


def nonlocal_variable() -> int:
    ADD(dist.get_rank())
    dist.barrier()
    return ADD(0)


def function_attribute() -> int:
    function_attribute.rank = dist.get_rank()  # type: ignore[attr-defined]
    dist.barrier()
    return function_attribute.rank  # type: ignore[attr-defined, no-any-return]


def environment() -> int:
    os.environ["MLSYS_TEST_RANK"] = str(dist.get_rank())
    dist.barrier()
    return int(os.environ["MLSYS_TEST_RANK"])


def command_line() -> int:
    sys.argv[1:] = [str(dist.get_rank())]
    dist.barrier()
    return int(sys.argv[1])


def default_dtype() -> int:
    torch.set_default_dtype((torch.float32, torch.float64, torch.float16)[dist.get_rank()])
    dist.barrier()
    return [torch.float32, torch.float64, torch.float16].index(torch.ones(1).dtype)


def lock_that_is_held() -> int:
    with LOCK:
        dist.barrier()
    return dist.get_rank()


def sentinel(value: object = NOTHING) -> int:
    return dist.get_rank() if value is NOTHING else -1


def enumeration() -> int:
    return dist.get_rank() if Color(1) is Color.RED else -1


def generator() -> int:
    GENERATOR.manual_seed(dist.get_rank())
    dist.barrier()
    drawn = torch.rand(1, generator=GENERATOR)
    return [torch.rand(1, generator=torch.Generator().manual_seed(seed)).item() for seed in range(3)].index(
        drawn.item()
    )


def view_of_an_array() -> int:
    VIEW[0] = dist.get_rank()
    dist.barrier()
    CORNER[0, 0] += 10
    return int(BOARD[3, 1]) + int(BOARD[2, 1]) - 10


def registered_for_a_type() -> int:
    rank = dist.get_rank()
    described.register(int, lambda _: rank)
    dist.barrier()
    return described(0) + described("") + 1


TABLE = (
    rebound_global, by_globals, list_in_a_global, nested_container, tensor_in_a_global, model_in_a_global,
    class_attribute, list_of_a_class, singleton, object_in_a_global, cached_property, cache_of_functools,
    default_argument, default_by_name, cache_in_a_closure, nonlocal_variable, function_attribute, environment,
    command_line, default_dtype, lock_that_is_held, sentinel, enumeration, generator, view_of_an_array,
    registered_for_a_type,
)  # fmt: skip
