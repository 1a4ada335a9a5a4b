"""One Hub for the tests of this folder that can share it: two people, two GPUs that exist only in a list, limits."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.hub.hub_process import SHARED, Hub, Person

PROFILE = """
[[profile]]
slug = "shared"
title = "Shared"
cpus = 1
memory_gib = 0.75
"""
# `labkit hub`, by which an ordinary user starts a Hub, checks the machine first and finds no GPU.
if os.geteuid() == 0:
    PROFILE += 'gpus = 1\ndevice = "gpu"\n'
# A driver with two devices, and no polls of servers: the Hub learns at once that a server has ended, or never.
CONFIG = """
import mlsys_grading.hub.devices as devices
from mlsys_grading.gpu.devices import DeviceUsage, GpuDevice
devices.visible_devices = lambda: [GpuDevice(f"GPU-{n}", "NVIDIA H100", n, 80 << 30) for n in range(2)]
devices.usage = lambda device: DeviceUsage((), 0)
c = get_config()
c.Spawner.poll_interval = 100_000
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show the end of each Hub's log beside the failure of a test that uses it."""
    report = yield
    if report.failed:
        hubs = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Hub)]
        report.sections += [(f"log of {each.folder.name}", each.log[-4000:]) for each in hubs]
    return report


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("hub")
    made = Hub(folder, students=("ada", "bob", "cleo"), more=PROFILE, config=CONFIG)
    with open(folder / "singleuser" / "jupyter_server_config.py", "a") as settings:
        settings.write("c.LabApp.expose_app_in_browser = True\n")
    with SHARED:
        yield SHARED.enter_context(made)


@pytest.fixture(scope="session")
def people(hub: Hub) -> tuple[Person, Person]:
    return hub.log_in("ada"), hub.log_in("bob")


@pytest.fixture
def ada(people: tuple[Person, Person]) -> Person:
    people[0].start_server()
    return people[0]


@pytest.fixture
def bob(people: tuple[Person, Person]) -> Person:
    people[1].start_server()
    return people[1]
