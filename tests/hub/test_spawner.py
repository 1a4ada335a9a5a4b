"""The moment at which a person's server ends: when the Hub is told, and when it must not be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub")

from mlsys_grading.hub import spawner as spawner_module
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


@pytest.mark.parametrize(("seconds", "most"), [(60.0, 2), (0.0, 7)], ids=["in turns", "a turn ends by itself"])
def test_servers_start_in_turns(monkeypatch: pytest.MonkeyPatch, seconds: float, most: int) -> None:
    """Start seven servers of which none answers before all that may begin have begun."""
    monkeypatch.setattr(spawner_module, "_turns", asyncio.Semaphore(2))
    monkeypatch.setattr(spawner_module, "_TURN_SECONDS", seconds)
    at_once: list[int] = []

    class Waiting(LabSpawner):
        profile = "cpu"
        begun = 0

        async def _start_now(self) -> str:
            Waiting.begun += 1
            for _ in range(50):
                await asyncio.sleep(0)
            at_once.append(Waiting.begun)
            Waiting.begun -= 1
            return "address"

    async def start_all() -> list[str]:
        spawners = [Waiting.__new__(Waiting) for _ in range(7)]
        starts = [asyncio.ensure_future(each.start()) for each in spawners]
        await asyncio.sleep(0)
        told = [event["message"] async for event in spawners[-1].progress()]
        assert told == ["Many servers are being started. Yours is in the queue."]
        return await asyncio.gather(*starts)

    assert run(start_all()) == ["address"] * 7
    assert max(at_once) == most
