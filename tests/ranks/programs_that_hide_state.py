"""Programs that keep their rank where a copy or a search misses it easily; each returns its rank, if it is its own."""

from __future__ import annotations

import builtins
import collections
import contextvars
import functools
import gc
import io
import itertools
import logging
import os
import random
import sys
import tempfile
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from contextlib import redirect_stdout
from random import randint
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

FIRST, SECOND, THIRD, FOURTH = [0], [0], [0], [0]
KEEP = FIRST.append


def _sum_after(keep: Callable[[int], Any], read: Callable[[], Any]) -> Any:
    keep(dist.get_rank())
    dist.barrier()
    return read()


class Singletons(type):
    made: dict[type, Any] = {}  # noqa: RUF012

    def __call__(cls, *args: Any) -> Any:
        if cls not in cls.made:
            cls.made[cls] = super().__call__(*args)
        return cls.made[cls]


class OfAMetaclass(metaclass=Singletons):
    def __init__(self) -> None:
        self.rank = dist.get_rank()


def singleton_of_a_metaclass() -> int:
    OfAMetaclass()
    dist.barrier()
    return int(OfAMetaclass().rank)


class ByNew:
    made: ByNew | None = None
    rank = -1

    def __new__(cls) -> ByNew:
        cls.made = cls.made or super().__new__(cls)
        return cls.made


BY_NEW = ByNew()


def singleton_of_new() -> int:
    return int(_sum_after(lambda rank: setattr(BY_NEW, "rank", rank), lambda: ByNew().rank))


class Borg:
    state: dict[str, Any] = {}  # noqa: RUF012
    rank = -1

    def __init__(self) -> None:
        self.__dict__ = self.state


BORG = Borg()


def one_dict_of_many_objects() -> int:
    return int(_sum_after(lambda rank: setattr(BORG, "rank", rank), lambda: Borg().rank))


class ByItem(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


BY_ITEM = ByItem(seen=[])


def dict_with_attributes() -> int:
    return int(_sum_after(lambda rank: BY_ITEM.seen.append(rank), lambda: sum(BY_ITEM.seen)))


class CopiesItself:
    rank = -1

    def __deepcopy__(self, memo: Any) -> CopiesItself:
        return self


COPIES_ITSELF = CopiesItself()


def object_that_is_its_own_copy() -> int:
    return int(_sum_after(lambda rank: setattr(COPIES_ITSELF, "rank", rank), lambda: COPIES_ITSELF.rank))


class Cached:
    @staticmethod
    @functools.cache
    def static() -> int:
        return dist.get_rank()

    @classmethod
    @functools.cache
    def of_class(cls) -> int:
        return dist.get_rank()


@torch.no_grad()
@functools.cache
def _decorated() -> int:
    return dist.get_rank()


def caches_under_decorators() -> int:
    dist.barrier()
    ranks = {Cached.static(), Cached.of_class(), _decorated()}
    return ranks.pop() if len(ranks) == 1 else -1


class Node:
    every: weakref.WeakSet[Node] = weakref.WeakSet()  # noqa: RUF012

    def __init__(self, parent: Node | None = None) -> None:
        self.rank, self.parent = 0, weakref.ref(parent) if parent else lambda: None
        Node.every.add(self)


ROOT = Node()
LEAF = Node(ROOT)


def weak_parent() -> int:
    return int(_sum_after(lambda rank: setattr(LEAF.parent(), "rank", rank), lambda: ROOT.rank))


def weak_set() -> int:
    for node in Node.every:
        node.rank = dist.get_rank()
    dist.barrier()
    return sum(node.rank for node in Node.every) // 2


BY_KEY: weakref.WeakKeyDictionary[Node, list[int]] = weakref.WeakKeyDictionary({ROOT: []})


def weak_keys() -> int:
    return int(_sum_after(lambda rank: BY_KEY[ROOT].append(rank), lambda: sum(BY_KEY[ROOT])))


def _adder() -> Callable[[int], int]:
    seen: list[int] = []

    def add(number: int) -> int:
        seen.append(number)
        return sum(seen)

    return add


class InSlots:
    __slots__ = ("add",)

    def __init__(self) -> None:
        self.add = _adder()


IN_SLOTS, IN_DEQUE, AS_KEY = InSlots(), collections.deque([_adder()]), {_adder(): 0}
BY_DEFAULT: dict[str, list[int]] = collections.defaultdict(lambda seen=[]: seen)  # type: ignore[misc]


def functions_in_containers() -> int:
    ranks = set()
    for add in (IN_SLOTS.add, IN_DEQUE[0], *AS_KEY):
        ranks.add(_sum_after(add, lambda: add(0)))  # noqa: B023
    ranks.add(_sum_after(BY_DEFAULT["one"].append, lambda: sum(BY_DEFAULT["two"])))
    return int(ranks.pop()) if len(ranks) == 1 else -1


def method_of_a_list() -> int:
    return int(_sum_after(KEEP, lambda: sum(FIRST)))


PROXY = types.MappingProxyType({"seen": [0]})


def mapping_proxy() -> int:
    return int(_sum_after(PROXY["seen"].append, lambda: sum(PROXY["seen"])))


class ByName:
    first: list[int] = []  # noqa: RUF012
    second: list[int] = []  # noqa: RUF012


def names_in_strings() -> int:
    for name in ("first", "sec" + "ond"):
        getattr(ByName, name).append(dist.get_rank())
    globals()["SECOND"].append(dist.get_rank())
    exec("THIRD.append(dist.get_rank())", globals())
    getattr(sys.modules[__name__], "FOURTH").append(dist.get_rank())  # noqa: B009
    dist.barrier()
    ranks = {sum(seen) for seen in (getattr(ByName, "first"), ByName.second, SECOND, THIRD, FOURTH)}  # noqa: B009
    return ranks.pop() if len(ranks) == 1 else -1


class Uncopyable:
    def __init__(self) -> None:
        self.items, self.graph = (number for number in range(9)), [torch.ones(1, requires_grad=True) * 2]
        self.rank = 0


UNCOPYABLE = Uncopyable()


def object_that_holds_a_generator() -> int:
    return int(_sum_after(lambda rank: setattr(UNCOPYABLE, "rank", UNCOPYABLE.rank + rank), lambda: UNCOPYABLE.rank))


OF_THREAD, VARIABLE = threading.local(), contextvars.ContextVar("VARIABLE", default=0)
OF_THREAD.base = 5
VARIABLE.set(7)


def state_of_the_thread() -> int:
    OF_THREAD.base += dist.get_rank()
    dist.barrier()
    return int(OF_THREAD.base) - 5 if VARIABLE.get() == 7 else -1


CONDITION, COUNT = threading.Condition(), itertools.count()


def condition() -> int:
    with CONDITION:
        CONDITION.notify_all()
    dist.barrier()
    return dist.get_rank() if next(COUNT) == 0 else -1


FLAT = torch.zeros(2)
VIEW = torch.nn.Parameter(FLAT[1:])
VIEW.kind = "view"  # type: ignore[attr-defined]
HOOKED = torch.ones(1, requires_grad=True)
HOOKED.register_hook(lambda grad: grad * 10)  # type: ignore[no-untyped-call]


def parameter_of_a_flat_tensor() -> int:
    FLAT.fill_(dist.get_rank())
    HOOKED.sum().backward()  # type: ignore[no-untyped-call]
    kept = getattr(VIEW, "kind", None) == "view" and HOOKED.grad is not None and HOOKED.grad.item() == 10
    return int(VIEW.item()) if kept else -1


def seed_of_an_imported_name() -> int:
    random.seed(dist.get_rank())
    dist.barrier()
    return [random.Random(seed).randint(0, 10**6) for seed in range(3)].index(randint(0, 10**6))


def streams() -> int:
    shown = io.StringIO()
    with redirect_stdout(shown):
        dist.barrier()
        print(dist.get_rank())
        dist.barrier()
    return int(shown.getvalue())


def exchanged_functions() -> int:
    calls: list[int] = []
    all_reduce = dist.all_reduce
    for module, name in ((builtins, "print"), (F, "relu")):
        setattr(module, name, lambda *_: dist.get_rank())
    dist.all_reduce = lambda *args: [*map(calls.append, [1]), all_reduce(*args)]
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    ranks = {print(), F.relu(torch.ones(1)), dist.get_rank() * len(calls)}
    return int(ranks.pop()) if len(ranks) == 1 else -1  # type: ignore[arg-type]


def loggers() -> int:
    logger, shown = logging.getLogger("programs_that_hide_state"), io.StringIO()
    logger.setLevel(10 + dist.get_rank())
    logger.addHandler(logging.StreamHandler(shown))
    dist.barrier()
    logger.error("once")
    dist.barrier()
    return logger.level - 10 if shown.getvalue() == "once\n" else -1


def settings() -> int:
    first = dist.get_rank() == 0
    (gc.disable if first else gc.enable)()
    torch.use_deterministic_algorithms(first)
    torch.set_float32_matmul_precision("high" if first else "highest")
    torch.set_printoptions(precision=2 if first else 4)  # type: ignore[no-untyped-call]
    warnings.simplefilter("error" if first else "ignore")
    dist.barrier()
    found = {
        not gc.isenabled(), torch.are_deterministic_algorithms_enabled(), warnings.filters[0][0] == "error",
        torch.get_float32_matmul_precision() == "high", "0.33]" in str(torch.tensor([1 / 3])),
    }  # fmt: skip
    return dist.get_rank() if found == {first} else -1


def folder_that_is_gone() -> int:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    dist.barrier()
    os.chdir(before)
    return dist.get_rank()


HIDDEN = (
    singleton_of_a_metaclass, singleton_of_new, one_dict_of_many_objects, dict_with_attributes,
    object_that_is_its_own_copy, caches_under_decorators, weak_parent, weak_set, weak_keys, functions_in_containers,
    method_of_a_list, mapping_proxy, names_in_strings, object_that_holds_a_generator, state_of_the_thread, condition,
    parameter_of_a_flat_tensor, seed_of_an_imported_name, streams, exchanged_functions, loggers, settings,
    folder_that_is_gone,
)  # fmt: skip
