"""Thread of the Hub that looks at servers again and again; what it looks for, a subclass says.

An error while it looks at one server leaves out this server until the next turn, and no other; the Hub logs it. A
thread that has ended all the same is replaced when the next server starts.
"""

from __future__ import annotations

import threading
import time
from typing import Generic, Protocol, TypeVar

from tornado.log import app_log

from mlsys_grading.processes import birth


class Watched(Protocol):
    """A server: its outermost process, and when that was born, because a pid alone may be another's by now."""

    @property
    def pid(self) -> int: ...
    @property
    def born(self) -> int: ...


_Server = TypeVar("_Server", bound=Watched)


class ServerWatcher(Generic[_Server]):
    """Watcher of servers, with a thread of its own that runs while there are any.

    A subclass has ``look_at``, and ``seconds``, the time between two looks.
    """

    def __init__(self) -> None:
        self._servers: dict[int, _Server] = {}
        self._failing: set[int] = set()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def remove(self, pid: int) -> None:
        """Stop watching the server ``pid``."""
        with self._lock:
            self._servers.pop(pid, None)
            self._failing.discard(pid)

    def look(self) -> None:
        """Look at each server once, and forget those that have ended."""
        with self._lock:
            servers = list(self._servers.values())
        for server in servers:
            try:
                if birth(server.pid) == server.born:
                    self.look_at(server)
                    self._failing.discard(server.pid)
                else:
                    self.remove(server.pid)
            except Exception:
                if server.pid not in self._failing:  # once, not in each turn
                    self._failing.add(server.pid)
                    app_log.exception("cannot enforce the limits of server %d", server.pid)

    def look_at(self, server: _Server) -> None:
        raise NotImplementedError

    def seconds(self) -> float:
        raise NotImplementedError

    def _watch(self, server: _Server) -> None:
        with self._lock:
            self._servers[server.pid] = server
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=f"labkit-{type(self).__name__}", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._servers:
                    self._thread = None
                    return
            self.look()
            time.sleep(self.seconds())
