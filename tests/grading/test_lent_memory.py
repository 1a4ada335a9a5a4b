"""Memory that a test's iterator lends to student code, and overwrites later."""

from __future__ import annotations

import itertools
import socket
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mlsys_grading.boundary import lent_memory
from mlsys_grading.boundary.session import Session
from mlsys_grading.boundary.values import Encoder
from mlsys_grading.boundary.wire import FrameLimits, Wire
from mlsys_grading.counters.relay import Port
from mlsys_grading.fork_server.client import ForkServer
from tests.grading.student_session import student_session

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("sandbox"),
]


def test_a_buffer_that_an_iterator_overwrites_changes_for_the_student_too(
    fork_server: Callable[[Sequence[str]], ForkServer],
) -> None:
    """A stream through one buffer: kept views hold what came later, and copies what came then."""
    source = """
        def keep(chunks, copy):
            kept = [np.array(chunk) if copy else chunk for chunk in chunks()]
            return [each.tolist() for each in kept]

        def count(chunks):
            return sum(len(chunk) for chunk in chunks)
    """

    def chunks() -> Iterator[Any]:
        buffer = np.empty(4)
        for number in range(3):
            buffer[:] = number
            yield buffer[: 2 + number % 2]
        buffer[:] = 9

    space: dict[str, Any] = {"np": np}
    exec(textwrap.dedent(source), space)
    with fork_server([]) as server, student_session(server, source) as at:
        assert at.keep(chunks, True) == space["keep"](chunks, True) == [[0, 0], [1, 1, 1], [2, 2]]
        kept = at.keep(chunks, False)
        assert kept[-1] == space["keep"](chunks, False)[-1] == [9, 9]
        assert kept[:2] != [[0, 0], [1, 1, 1]]
        assert at.keep(chunks, True) == [[0, 0], [1, 1, 1], [2, 2]]
        many = [np.zeros(1) for _ in range(600)]
        assert at.count(itertools.islice(refill(many), 3)) == 3 * 600  # the changes alone are too many beside them


@contextmanager
def answers(callbacks: Sequence[Any], order: Sequence[int], bounds: FrameLimits) -> Iterator[list[Any]]:
    """Yield the frames that a student's process gets when it calls ``callbacks`` in ``order``."""
    ours, theirs = socket.socketpair()
    near, far = Wire(ours, bounds), Wire(theirs)
    got: list[Any] = []

    def take() -> None:
        until = time.monotonic() + 60
        asked, _ = far.receive(until)
        for place in order:
            target = callbacks[place]
            is_stream = isinstance(target, Iterator)
            given = Encoder({}, str).node([] if is_stream else [[], {}])
            question = {"callback": id(target), "operation": "next" if is_stream else "call", "given": given}
            far.send(question, [], until)
            got.append(far.receive(until))
        far.send({"id": asked["id"], "value": None}, [], until)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        Session(near).ask("call", *callbacks, seconds=60)
        thread.join()
        yield got
    finally:
        near.close()
        far.close()


def refill(buffers: Sequence[Any]) -> Iterator[Any]:
    """Yield the same arrays for ever, each time with another number in all of them."""
    for number in itertools.count():
        for each in buffers:
            each[:] = number
        yield [*buffers]


@pytest.mark.parametrize(
    "bounds", [FrameLimits(buffers=6), FrameLimits(buffer_bytes=6 * 8)], ids=["too many", "too large"]
)
def test_changes_that_do_not_fit_beside_the_answer_are_left_out(bounds: FrameLimits) -> None:
    with answers([refill([np.zeros(1) for _ in range(4)])], [0, 0], bounds) as got:
        (_, first), (header, second) = got
        assert [len(first), len(second), len(header["changed"])] == [4, 6, 2]
        assert [bytes(each) for each in second] == [np.ones(1).tobytes()] * 6


def test_an_answer_that_does_not_fit_is_an_error_of_the_callback() -> None:
    with answers([refill([np.zeros(1) for _ in range(4)])], [0], FrameLimits(buffers=3)) as got:
        assert [got[0][0]["error"][0], got[0][1]] == ["TypeError", []]


def test_memory_that_does_not_change_is_followed_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is compared a bounded number of times, and again when its own callback is called."""
    buffers = np.zeros((40, 1000))
    compared: list[int] = []
    compare = lent_memory._compare

    def count(low: int, held: bytes, size: int) -> int:
        compared.append(low)
        return int(compare(low, held, size))

    monkeypatch.setattr(lent_memory, "_compare", count)

    def constant(place: int) -> Iterator[Any]:
        yield buffers[place]
        buffers[place] = 5
        yield None

    with answers([constant(place) for place in range(40)], [*range(40), 0], FrameLimits()) as got:
        assert max(compared.count(low) for low in compared) <= 9
        assert [len(header["changed"]) for header, _ in got] == [0] * 40 + [1]
        assert [bytes(each) for each in got[-1][1]] == [np.full(1000, 5.0).tobytes()]


def test_a_port_of_ranks_lends_nothing() -> None:
    """A rank copies out of each answer, so a change to an earlier one would only double the traffic."""
    output = np.zeros(4)

    class OnePort(Port):
        def __call__(self, *_: Any) -> Any:
            output[:] += 1
            return output

    with answers([OnePort()], [0, 0], FrameLimits()) as got:
        assert [(header["changed"], [bytes(each) for each in buffers]) for header, buffers in got] == [
            ([], [np.full(4, value).tobytes()]) for value in (1.0, 2.0)
        ]
