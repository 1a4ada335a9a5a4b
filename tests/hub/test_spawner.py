"""The moment at which a person's server ends: when the Hub is told, and when it must not be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub")

from mlsys_grading.hub.spawner import LabSpawner
from tests.hub import run


@pytest.mark.parametrize(
    ("pid_now", "told"), [(7, True), (0, False), (8, False)], ids=["ended by itself", "stopped", "started again"]
)
def test_the_hub_is_told_of_a_server_that_it_has_not_stopped_itself(pid_now: int, told: bool) -> None:
    """A notice that comes after a stop would end the server that the person is starting by then."""
    polled: list[Any] = []

    class Outer:
        pending = "stop"

        async def poll_and_notify(self) -> None:
            polled.append(self.pending)

    spawner, outer = LabSpawner.__new__(LabSpawner), Outer()
    spawner.user, spawner.pid = SimpleNamespace(spawners={"": outer}), 7

    async def stopped_meanwhile() -> None:
        notice = asyncio.create_task(spawner._notify(7))
        await asyncio.sleep(0)
        assert not polled
        spawner.pid, outer.pending = pid_now, None
        await notice

    run(stopped_meanwhile())
    assert bool(polled) is told
