"""Collector of the course's metrics in the Hub's process, which serves them with its own on ``/hub/metrics``.

JupyterHub answers there for a token with the scope ``read:metrics``. The collector runs in the Hub's event loop, so it
only counts rows and folders. Threads of their own measure what may block: sizes of homes, and a GPU's driver.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mlsys_grading.hub.backup import backups, time_of
from mlsys_grading.hub.devices import Devices
from mlsys_grading.hub.monitoring import counts
from mlsys_grading.hub.monitoring.starts import begin_at_zero
from mlsys_grading.hub.settings import HubSettings

HOMES_SECONDS, DEVICES_SECONDS = 600.0, 15.0

_T = TypeVar("_T")


class Refreshed(Generic[_T]):
    """The last answer of a question that a thread asks again and again; ``value`` is None before the first answer."""

    def __init__(self, ask: Callable[[], _T], seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self.value: _T | None = None
        self.time = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            with suppress(Exception):  # such as an error of the GPU's driver; the time tells how old the answer is
                self.value, self.time = self._ask(), time.time()
            time.sleep(self._seconds)


class CourseCollector(Collector):
    """Collector for a Hub with these settings; ``pending`` returns the number of servers that are being started."""

    def __init__(self, settings: HubSettings, pending: Callable[[], int]) -> None:
        self._settings, self._pending = settings, pending
        homes = settings.state / "homes"
        self._homes = Refreshed(lambda: counts.home_sizes(homes), HOMES_SECONDS)
        has_devices = any(each.device and each.spawner == "local" for each in settings.profiles)
        self._devices = Refreshed(Devices(settings.state).counts, DEVICES_SECONDS) if has_devices else None

    def describe(self) -> list[Metric]:
        """Return nothing: to register this collector must not run it."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each metric. One that cannot be had now, such as from a locked database, is left out of this answer."""
        for family in (self._people, self._course, self._disks, self._backups, self._homes_and_devices):
            try:
                yield from list(family())
            except (OSError, sqlite3.Error, ValueError):
                continue

    def _people(self) -> Iterator[Metric]:
        settings, state = self._settings, self._settings.state
        yield _gauge(
            "servers", "Running servers of people", {(k,): v for k, v in counts.servers(settings).items()}, "profile"
        )
        yield _gauge("kernels", "Running kernels of people", {(): counts.kernels(state / "homes")})
        waiting = {("server",): self._pending(), ("admission",): counts.waiting_for_admission(state)}
        yield _gauge("people_waiting", "People who wait for a server to start, or for an instructor", waiting, "for")

    def _course(self) -> Iterator[Metric]:
        found = counts.submissions(self._settings)
        values = {(lab, state): count for lab, states in found.items() for state, count in states.items()}
        yield _gauge("submissions", "Students with a submission in each state, by lab", values, "lab", "state")
        pages = {(): counts.feedback_released(self._settings)}
        yield _gauge("feedback_released", "Feedback pages that students can fetch", pages)

    def _disks(self) -> Iterator[Metric]:
        settings = self._settings
        free, size = {}, {}
        places = {"state": settings.state, "exchange": settings.exchange_folder, "backup": settings.backup_folder}
        for name, folder in places.items():
            if folder.is_dir():
                usage = shutil.disk_usage(folder)
                free[name,], size[name,] = usage.free, usage.total
        yield _gauge("disk_free_bytes", "Free bytes of the file system that holds the folder", free, "folder")
        yield _gauge("disk_size_bytes", "Size of the file system that holds the folder", size, "folder")

    def _backups(self) -> Iterator[Metric]:
        made = backups(self._settings.backup_folder)
        yield _gauge("backups", "Complete backups in backup.folder", {(): len(made)})
        # 0 without a backup: its age is then that of the epoch, and an alert on the age holds.
        newest = {(): time_of(made[-1]) if made else 0}
        yield _gauge("backup_timestamp_seconds", "Unix time of the newest backup; 0 if there is none", newest)
        size = sum(path.stat().st_size for path in made[-1].iterdir()) if made else 0
        yield _gauge("backup_bytes", "Size of the newest backup", {(): size})

    def _homes_and_devices(self) -> Iterator[Metric]:
        times: dict[Any, float] = {("homes",): self._homes.time}
        limit = self._settings.quota.home_gib * 2**30
        yield _gauge("home_limit_bytes", "Disk that a home may use; 0: no limit", {(): limit})
        if sizes := self._homes.value:
            yield _gauge("homes", "Homes of people", {(): sizes["count"]})
            yield _gauge("homes_bytes", "Disk that all homes use together", {(): sizes["sum"]})
            yield _gauge("home_largest_bytes", "Disk that the largest home uses", {(): sizes["largest"]})
            yield _gauge("home_median_bytes", "Disk that the median home uses", {(): sizes["median"]})
        if self._devices:
            times["devices",] = self._devices.time
            found = self._devices.value or {}
            values = {(kind, state): count for kind, states in found.items() for state, count in states.items()}
            yield _gauge("devices", "GPUs and MIG slices: held, starting, left, free", values, "device", "state")
        yield _gauge("measured_timestamp_seconds", "Unix time of the last measurement; 0: none yet", times, "of")


def configure_metrics(c: Any, settings: HubSettings, token: str) -> None:
    """Register the collector, and let the service ``prometheus`` read metrics with ``token``."""
    begin_at_zero([profile.slug for profile in settings.profiles if profile.spawner == "local"])
    REGISTRY.register(CourseCollector(settings, _pending))
    c.JupyterHub.services += [{"name": "prometheus", "api_token": token}]
    c.JupyterHub.load_roles += [{"name": "prometheus", "scopes": ["read:metrics"], "services": ["prometheus"]}]


def _pending() -> int:
    """Count the servers that this process, a Hub, is starting."""
    from jupyterhub.app import JupyterHub

    users = getattr(JupyterHub.instance(), "users", None) if JupyterHub.initialized() else None
    return int(users.count_active_users()["spawn_pending"]) if users else 0


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"mlsys_hub_{name}", text, labels=labels)
    for keys, value in values.items():
        family.add_metric(list(keys), value)
    return family
