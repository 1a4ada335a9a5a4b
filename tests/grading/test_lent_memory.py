"""Memory that a test's iterator lends to student code, and overwrites later."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

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
