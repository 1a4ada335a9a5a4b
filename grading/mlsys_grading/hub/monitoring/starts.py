"""Histogram of starts of servers, by profile and outcome."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import Histogram

from mlsys_grading.gpu.devices import DeviceError

_OUTCOMES = ("started", "no_device", "refused", "failed")
_STARTS = Histogram(
    "mlsys_hub_server_start_seconds",
    "Time from a request for a server on this machine until its process listens, or until the request has failed",
    ["profile", "outcome"],
    buckets=(0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600),
)

_Start = Callable[[Any], Awaitable[str]]


def measured(start: _Start) -> _Start:
    """Wrap a spawner's ``start`` so that the histogram counts each call.

    The outcome "no_device" is a request for a GPU when none was free; "refused", another that had a reason for the
    person; "failed", an error of the machine.
    """

    @functools.wraps(start)
    async def timed(spawner: Any) -> str:
        began, outcome = time.perf_counter(), "failed"
        try:
            address = await start(spawner)
            outcome = "started"
            return address
        except BaseException as error:
            if isinstance(error.__context__, DeviceError):
                outcome = "no_device"
            elif getattr(error, "reason", "") == "refused":
                outcome = "refused"
            raise
        finally:
            _STARTS.labels(spawner.profile, outcome).observe(time.perf_counter() - began)

    return timed


def begin_at_zero(profiles: list[str]) -> None:
    """Export every profile and outcome from the start: a rate needs a value before the first event."""
    for profile in profiles:
        for outcome in _OUTCOMES:
            _STARTS.labels(profile, outcome)
