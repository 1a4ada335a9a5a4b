"""Bound on the connections that one person of the machine keeps to the Hub's own socket."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any
from weakref import WeakKeyDictionary

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

MOST_VISITS = 64  # a person's server needs a few


def limit_visitors() -> None:
    """Let each other user of this machine keep at most :data:`MOST_VISITS` connections to a server of this process.

    More are closed at once. Without a limit, one person could open as many as this process may have files.
    """
    serve, uids = HTTPServer.handle_stream, WeakKeyDictionary[IOStream, int]()

    def handle_stream(self: HTTPServer, stream: IOStream, address: Any) -> None:
        uid = _peer(stream.socket)
        if uid is not None and uid != os.geteuid():
            if sum(each == uid and not other.closed() for other, each in uids.items()) >= MOST_VISITS:
                stream.close()
                return
            uids[stream] = uid
        serve(self, stream, address)

    HTTPServer.handle_stream = handle_stream  # type: ignore[method-assign]


def _peer(link: socket.socket) -> int | None:
    """Return the user at the other end of a Unix socket, None for another kind. Reference: man 7 unix, SO_PEERCRED."""
    if link.family != socket.AF_UNIX:
        return None
    return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1])
