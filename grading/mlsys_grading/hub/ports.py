"""Ports of this machine: one that stays free until a server has started on it, and the users who listen to a port."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 10_000
_LISTENS = "0A"


def unused_port() -> int:
    """Return a port of 127.0.0.1 that no process listens to, below the range from which the kernel hands out ports.

    A port of that range is often taken by the time a server, which needs seconds to start, listens to it.
    Reference: Linux, Documentation/networking/ip-sysctl.rst, ip_local_port_range.
    """
    handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:  # 0: the kernel's choice, where there is nothing below its range
        port = random.SystemRandom().randrange(_FIRST, handed_out) if handed_out > _FIRST else 0
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(trial.getsockname()[1])


def listeners(port: int) -> set[int]:
    """Return the user ids of the processes that listen to ``port``, at any address of this machine.

    Reference: Linux, Documentation/networking/proc_net_tcp.rst.
    """
    found = set()
    for table in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")):
        for row in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, _, _, _, uid, *_ = row.split()
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                found.add(int(uid))
    return found
