"""Clock of a Jupyter server or a JupyterHub that goes on evenly when the machine's clock is set.

When a virtual machine is resumed, or first reaches a time server, its clock can move by days. Moved forward, each
kernel that is idle at this moment looks as if no one had used it for days, and would be ended with its memory. Moved
back, all that tornado repeats would wait for the old time: for days, no one would notice that a kernel or the proxy has
ended.

For the configuration of a server::

    steady_clock.keep_activity()
    steady_clock.keep_timers()
"""

from __future__ import annotations

import importlib
import time
from datetime import UTC, datetime, timedelta

from tornado.ioloop import IOLoop

# The modules that record when a kernel, a terminal or the server was last used, and compare it with the time.
_ACTIVITY = (
    "jupyter_server.base.handlers",
    "jupyter_server.serverapp",
    "jupyter_server.services.kernels.kernelmanager",
    "jupyter_server_terminals.handlers",
    "jupyter_server_terminals.terminalmanager",
)


def keep_timers() -> None:
    """Make tornado's loops of this process count time since the start of the machine, as asyncio's loops do.

    Reference: https://www.tornadoweb.org/en/stable/ioloop.html#tornado.ioloop.IOLoop.time
    """
    IOLoop.time = lambda self: time.monotonic()  # type: ignore[method-assign]


def keep_activity() -> None:
    """Make this Jupyter server measure idleness from its own start, whatever the machine's clock says since."""
    start, began = datetime.now(UTC), time.monotonic()

    def utcnow() -> datetime:
        return start + timedelta(seconds=time.monotonic() - began)

    for name in _ACTIVITY:
        vars(importlib.import_module(name))["utcnow"] = utcnow
