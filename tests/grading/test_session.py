"""Calls into a confined student's process through a real session: data that cross, data that are refused, and ends."""

from __future__ import annotations

import dataclasses
import enum
import os
import random
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.contract import Contract
from mlsys_grading.boundary.errors import (
    BoundaryError,
    ContractError,
    NotPlainError,
    ProtocolError,
    StudentGoneError,
    StudentSilentError,
)
from mlsys_grading.boundary.session import Session
from mlsys_grading.boundary.wire import Wire
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.sandbox.confine import refusal
from tests.grading.student_session import Course, student_session

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with ForkServer(["numpy", "torch", "mlsys_labkit", "mlsys_grading.boundary.student"]) as made:
        yield made


@pytest.fixture
def student(server: ForkServer) -> Callable[..., AbstractContextManager[Course]]:
    return partial(student_session, server)


def test_arrays_records_and_nested_data_cross_both_ways(student: Any) -> None:
    with student("def echo(*a, **k): return [*a, k]") as at:
        x, y = torch.arange(6.0).view(2, 3), np.arange(4)
        got = at.echo(x, y, {"a": (1, 2.5, None)}, key="word")
    assert got[0] is x
    assert got[1] is y
    assert got[2:] == [{"a": (1, 2.5, None)}, {"key": "word"}]


def test_stand_in_calls_the_students_function(student: Any) -> None:
    with student("import os\ndef whoami(): return os.getpid(), os.getuid(), os.getcwd()") as at:
        assert at.whoami() == (1, 1000, "/sandbox")


@dataclasses.dataclass(frozen=True)
class Split:
    left: np.ndarray[Any, Any]
    right: int


class Kind(enum.Enum):
    ROW = 1


class Two(NamedTuple):
    a: int
    b: int


def test_records_of_locked_cells_are_the_examiners_own_classes(student: Any) -> None:
    source = """
    @dataclasses.dataclass(frozen=True)
    class Split:
        left: object
        right: int
        def __eq__(self, other): return True
    class Kind(enum.Enum):
        ROW = 1
    from typing import NamedTuple
    class Two(NamedTuple):
        a: int
        b: int
    def split(x, kind): return Split(x[:2], 3), Kind.ROW, Two(1, 2), kind is Kind.ROW
    """
    with student(source, {"Split": Split, "Kind": Kind, "Two": Two}) as at:
        made, kind, two, same = at.split(np.arange(4), Kind.ROW)
    assert type(made) is Split
    assert made.left.tolist() == [0, 1]
    assert (kind, two, type(two), same) == (Kind.ROW, Two(1, 2), Two, True)


def test_an_object_is_used_through_its_methods_and_attributes(student: Any) -> None:
    source = """
    class Pool:
        made = 0
        def __init__(self, size): self.free, self.log = list(range(size)), {}
        def take(self): return self.free.pop()
        def __len__(self): return len(self.free)
        def __contains__(self, x): return x in self.free
        def __getitem__(self, k): return self.free[k]
        @classmethod
        def of(cls, n): return cls(n)
    def twice(pool): return pool.take(), pool.take()
    """
    with student(source) as at:
        Pool = at.class_("Pool", "__len__", "__contains__", "__getitem__")
        pool = Pool(4)
        assert isinstance(pool, Pool)
        assert (pool.take(), len(pool), pool.free, 0 in pool, pool[1]) == (3, 3, [0, 1, 2], True, 1)
        assert at.twice(pool) == (2, 1)
        pool.free = [9]
        assert pool.take() == 9
        assert Pool.made == 0
        assert isinstance(Pool.of(2), Pool)
        with pytest.raises(IndexError, match="pop from empty list"):
            pool.take()
        assert not hasattr(pool, "nothing")


def test_comparison_does_not_call_the_students_object(student: Any) -> None:
    source = """
    class Yes:
        def __eq__(self, other): return True
        def __bool__(self): return True
        def __lt__(self, other): return True
        def __contains__(self, item): return True
        def __float__(self): return 1.0
        def __array__(self, *a, **k): return np.ones(3)
        def __iter__(self): return iter([1])
        def __len__(self): return 3
    def answer(): return Yes()
    """
    with student(source) as at:
        yes = at.answer()
        assert yes != 3
        assert yes != [1]
        for use in (bool, float, len, list, lambda v: v < 3, lambda v: 3 in v, lambda v: v + 1):
            with pytest.raises(TypeError):
                use(yes)
        with pytest.raises(AssertionError):
            np.testing.assert_array_equal(yes, np.ones(3))


def test_callbacks_iterators_and_generators(student: Any) -> None:
    source = """
    def fold(f, items):
        total = 0
        for item in items: total = f(total, item)
        return total
    def count(n):
        for i in range(n): yield i
    def adder(k): return lambda x: x + k
    def draw(rng): return rng.standard_normal(3)
    """
    with student(source) as at:
        seen = []

        def add(a: int, b: int) -> int:
            seen.append(b)
            return a + b

        assert at.fold(add, iter([1, 2, 3])) == 6
        assert seen == [1, 2, 3]
        assert list(at.count(3)) == [0, 1, 2]
        assert at.adder(5)(2) == 7
        assert at.fold(at.adder(1), []) == 0
        expected = np.random.default_rng(4).standard_normal(3)
        assert at.draw(np.random.default_rng(4)).tolist() == expected.tolist()
        with pytest.raises(ZeroDivisionError) as caught:
            at.fold(lambda a, b: 1 // 0, [1])
        assert caught.traceback[-1].frame.code.name == "<lambda>"  # the test's own error, not a copy


def test_functions_of_libraries_are_named_not_sent(student: Any) -> None:
    with student("def apply(f, x): return f(x), f is torch.relu") as at:
        value, same = at.apply(torch.relu, torch.tensor([-1.0, 2.0]))
    assert value.tolist() == [0, 2]
    assert same


def test_seeds_cross_only_to_the_student(student: Any) -> None:
    source = """
    import random
    def spoil(): torch.manual_seed(1); np.random.seed(1)
    def draw(): return torch.rand(2).tolist(), np.random.rand(), random.random()
    """
    with student(source) as at, at.session.seeding():
        torch.manual_seed(7)
        mine = torch.rand(2)
        torch.manual_seed(7)
        at.spoil()
        assert torch.equal(torch.rand(2), mine)
        torch.manual_seed(3), np.random.seed(3), random.seed(3)  # noqa: NPY002 - what tests of old call
        theirs = at.draw()
        assert theirs == (torch.rand(2).tolist(), np.random.rand(), random.random())  # noqa: NPY002
    assert torch.manual_seed.__module__ == "torch.random"


def test_exceptions_keep_their_kind_and_message(student: Any) -> None:
    source = """
    class Full(ValueError):
        def __init__(self, size): super().__init__(f"full at {size}"); self.size = size
    def fail(kind):
        if kind == "own": raise Full(3)
        if kind == "exit": raise SystemExit(0)
        if kind == "skip": raise __import__("unittest").SkipTest("no")
        if kind == "loud": raise type("E", (Exception,), {"__str__": lambda self: 1 / 0})()
        raise getattr(__import__("builtins"), kind)("because")
    """
    with student(source) as at:
        for kind in (ValueError, KeyError, NotImplementedError, MemoryError):
            with pytest.raises(kind, match="because"):
                at.fail(kind.__name__)
        with pytest.raises(ValueError, match="full at 3"):
            at.fail("own")
        at.session.exceptions["Full"] = full = type("Full", (ValueError,), {})
        with pytest.raises(full) as caught:
            at.fail("own")
        assert caught.value.size == 3
        for kind in ("exit", "skip", "loud"):
            with pytest.raises(Exception) as caught:
                at.fail(kind)
            assert type(caught.value) in (Exception, RuntimeError)  # no SystemExit, no SkipTest, no code of theirs
        for kind in ("KeyboardInterrupt", "GeneratorExit"):
            with pytest.raises(RuntimeError, match="because"):
                at.fail(kind)


def test_writing_in_place_is_seen_and_follows_the_contract(student: Any) -> None:
    source = """
    def scale(x, log):
        x *= 2
        log.append("scaled")
    def peek(x): x[0] = 5; return x.sum()
    """
    learning = Contract()
    with student(source, contract=learning) as at:
        x, log = np.arange(4.0), ["begun"]
        at.scale(x, log)
        assert (x.tolist(), log) == ([0, 2, 4, 6], ["begun", "scaled"])
    assert learning.to_plain() == {"call scale": ["writes to its arguments"]}
    with student(source, contract=Contract.from_plain(learning.to_plain())) as at:
        at.scale(np.ones(2), [])
        x = np.ones(2)
        assert at.peek(x) == 6  # as if it had worked on a copy ...
        assert (x.tolist(), "peek: writes to its arguments" in at.session.scribbled) == ([1, 1], True)
        at.session.scribbles = True  # ... unless the examiner wants to see what was written
        assert at.peek(x) == 6
        assert x.tolist() == [5, 1]


def test_changed_argument_comes_back_changed(student: Any) -> None:
    source = """
    def half(x, log):
        x /= 2
        log[0].append("halved")
        return x[1:], x, log
    """
    with student(source, contract=Contract.from_plain({})) as at:
        x, log = np.ones(3), [["begun"]]
        tail, whole, told = at.half(x, log)
    assert (tail.tolist(), whole.tolist(), told) == ([0.5, 0.5], [0.5] * 3, [["begun", "halved"]])
    assert (x.tolist(), log) == ([1, 1, 1], [["begun"]])


def test_changes_before_a_failure_are_seen(student: Any) -> None:
    with student("def f(x, log):\n    x[0] = 5\n    log.append(1)\n    raise ValueError") as at:
        x, log = np.zeros(1), []
        with pytest.raises(ValueError):
            at.f(x, log)
        assert (x[0], log) == (5, [1])


def test_iterators_queues_and_views_of_dicts_need_no_contract(student: Any) -> None:
    source = """
    from collections import deque
    def squares(n): return (i * i for i in range(n))
    def queue(): return deque([1, 2], maxlen=3)
    def views(): return {1: "a"}.keys(), {1: "a"}.values(), {1: "a"}.items()
    """
    with student(source, contract=Contract.from_plain({})) as at:
        assert list(at.squares(3)) == [0, 1, 4]
        assert (at.queue(), at.queue().maxlen) == (deque([1, 2]), 3)
        keys, values, items = at.views()
    assert (keys, list(values), items) == ({1: "a"}.keys(), ["a"], {1: "a"}.items())


def test_a_live_object_needs_the_contract_too(student: Any) -> None:
    source = "class A:\n    pass\ndef make(): return A()\ndef number(): return A()"
    with student(source, contract=Contract.from_plain({"call make": ["returns a live A"]})) as at:
        at.class_("A")
        at.make()
        with pytest.raises(ContractError, match="returns a live A"):
            at.number()


ENDINGS = {
    "import os\ndef f(): os._exit(0)": StudentGoneError,
    "import ctypes\ndef f(): ctypes.string_at(0)": StudentGoneError,
    "import os, signal\ndef f(): os.kill(0, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL); os._exit(1)": (
        StudentGoneError
    ),
    "def f():\n    while True: pass": StudentSilentError,
    "import time, signal\ndef f():\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    time.sleep(60)": (
        StudentSilentError
    ),
    "def f(): return [0] * 10**6": NotPlainError,
    "def f(): return torch.zeros(1 << 28)": NotPlainError,
    "def f(n=0): return f(n + 1)": RecursionError,
}


@pytest.mark.parametrize("source", ENDINGS)
def test_process_that_dies_hangs_or_floods_ends_the_session(student: Any, source: str) -> None:
    with student(source) as at:
        kind = ENDINGS[source]
        at.session.call_seconds = 1.5 if kind is StudentSilentError else 120
        with pytest.raises(TypeError if kind is NotPlainError else kind):
            at.f()
        if issubclass(kind, BoundaryError):
            with pytest.raises(kind, match="no longer be asked"):
                at.f()


def test_a_grader_in_the_background_interrupts_as_well() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what ends in &
    try:
        server = ForkServer(["numpy", "torch", "mlsys_grading.boundary.student"])
    finally:
        signal.signal(signal.SIGINT, before)
    ours, theirs = socket.socketpair()
    job = {"cells": [(1, "cell", "def f():\n    while True: pass")], "records": []}
    with server, server.fork(ForkRequest("mlsys_grading.boundary.student:serve", job), [theirs]) as forked:
        session = Session(Wire(ours), interrupt=lambda: os.kill(forked.pid, signal.SIGINT))
        assert session.ask("run", 1) == ["cell", None]
        session.call_seconds = 1
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            proxies.function(session, "f", None)()


FORGERIES = {  # the agent itself in the student's hands
    "an unsolicited message": "A._wire.send({'id': 1, 'value': True, 'printed': ''}, [], 1e18)",
    "another id": "send = W.send\nW.send = lambda self, h, b, u: send(self, h | {'id': 5}, b, u)",
    "no value": "send = W.send\nW.send = lambda self, h, b, u: send(self, {'id': h['id'], 'printed': ''}, b, u)",
    "a handle that is none": (
        "send = W.send\nW.send = lambda self, h, b, u: send(self, h | {'value': ['handle', 'x', 'object', []]}, b, u)"
    ),
    "a callback never given": "def f(): return A.ask_back(12345, 'call', [[], {}])",
    "other memory": "send = W.send\nW.send = lambda s, h, b, u: send(s, h | {'written': [[3, 0]]}, b, u)",
    "changes of nothing": "send = W.send\nW.send = lambda s, h, b, u: send(s, h | {'changed': [[7, 1]]}, b, u)",
    "printed numbers": "send = W.send\nW.send = lambda s, h, b, u: send(s, h | {'printed': 5}, b, u)",
    "a file": "send = W.send\nimport socket, os\ndef f(): socket.send_fds(A._wire._socket, [b'x' * 9], [0]); return 1",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_answer_ends_the_session(student: Any, name: str) -> None:
    source = """
    import gc
    from mlsys_grading.boundary import student as S
    from mlsys_grading.boundary.wire import Wire as W
    A = next(o for o in gc.get_objects() if isinstance(o, S.StudentProcess))
    def arm(): exec(FORGE, globals())
    def f(): return True
    """
    with student(source + f"\n    FORGE = {FORGERIES[name]!r}") as at:
        with suppress(BoundaryError, RuntimeError):
            at.arm()
            assert at.f() is not True
        with pytest.raises((ProtocolError, StudentGoneError)):
            at.f()


def test_what_calls_print_is_kept_and_bounded(student: Any) -> None:
    with student("def f(n): print('x' * n)") as at:
        at.f(3)
        at.f(10**6)
        assert at.session.printed.startswith("xxx\nxxx")
        assert len(at.session.printed) < 50_000
