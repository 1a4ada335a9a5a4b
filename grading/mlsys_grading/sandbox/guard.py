"""A guard of the sandboxes of one fork server: it ends each whose keeper is gone.

A keeper ends with the grader, and its sandbox with it, because the sandbox's first process asked the kernel for that
(PR_SET_PDEATHSIG). A process can take the request back, and loses it when one of its threads executes a program. The
guard depends on nothing inside: it holds a handle of each sandbox's first process and one end of a pipe whose other end
only the keeper has. It is forked before the server's imports, has nothing to do while all is well, and ends when the
server and all keepers have.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from typing import NoReturn

_post: socket.socket | None = None


def start() -> None:
    """Fork the guard of this process and of all that it will fork."""
    global _post
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        near.close()
        _stand(far)
    far.close()
    _post = near


def watch(pid: int) -> None:
    """Have the guard end ``pid`` when this process ends, however that happens; without a guard, do nothing."""
    if _post is None:
        return
    handle = os.pidfd_open(pid)
    theirs, _ = os.pipe()  # the other end stays open for as long as this process lives
    with contextlib.suppress(OSError):  # the guard is gone
        socket.send_fds(_post, [b"."], [handle, theirs])
    os.close(handle)
    os.close(theirs)


def _stand(post: socket.socket) -> NoReturn:
    try:
        os.setsid()  # what ends the group of the server shall not end its guard
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, post.fileno())
        os.closerange(post.fileno() + 1, 1 << 16)
        _guard(post)
    finally:
        os._exit(0)


def _guard(post: socket.socket) -> None:
    handles: dict[int, int] = {}
    poll = select.poll()
    poll.register(post, select.POLLIN)
    is_open = True
    while is_open or handles:
        for descriptor, _ in poll.poll():
            if descriptor == post.fileno():
                data, given, _, _ = socket.recv_fds(post, 1, 2)
                if not data:
                    poll.unregister(post)
                    is_open = False
                elif len(given) == 2:
                    handles[given[1]] = given[0]
                    poll.register(given[1], 0)  # a pipe that nobody writes to tells of its other end's end
                continue
            with contextlib.suppress(OSError):  # it has ended before its keeper
                signal.pidfd_send_signal(handles[descriptor], signal.SIGKILL)
            poll.unregister(descriptor)
            os.close(handles.pop(descriptor))
            os.close(descriptor)
