"""Messages between the notebook, the host and the ranks: whole ones, and values that carry code and tensors."""

from __future__ import annotations

import contextlib
import io
import multiprocessing.connection as connections
import os
import pickle
import secrets
import shutil
import socket
import stat
import sys
import tempfile
import threading
import time
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

from mlsys_labkit.errors import RanksError, require
from mlsys_labkit.ranks import by_value

KEY = "LABKIT_RANKS_KEY"  # the environment variable with a meeting's key, for the processes that may connect

Message = tuple[Any, ...]  # its name first
_PREFIX, _SOCKET = "labkit-ranks-", "notebook"
_YOUNG = 600  # seconds
_ROOM_BYTES = 16 << 20  # enough for what the ranks of a run print, and for their calls
_LONGEST_ADDRESS = 100  # of a Unix socket: 104 bytes on macOS, 108 on Linux


class Channel:
    """One end of a connection. Any thread may send; one receives.

    Receiving raises EOFError when the other end has ended.

    Attributes:
        torn: a message was interrupted half way, so that the rest makes no sense any more.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.torn = False

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def send(self, *message: Any) -> None:
        """Send a message. Raises OSError when the other end has gone."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        with self._sending:
            torn, self.torn = self.torn, True
            self._connection.send_bytes(data)
            self.torn = torn

    def receive(self) -> Message:
        """Wait for the next message. Raises EOFError when there will be none."""
        try:
            torn, self.torn = self.torn, True
            data = self._connection.recv_bytes()
            self.torn = torn
        except OSError:  # a peer that was killed resets the connection
            raise EOFError from None
        message: Message = pickle.loads(data)
        return message

    def waiting(self) -> bool:
        """Return whether ``receive`` would return at once, with a message or because the other end has gone."""
        try:
            return bool(self._connection.poll())
        except OSError:
            return True

    def close(self) -> None:
        self._connection.close()


class Meeting:
    """The notebook's address for the host and the ranks: a Unix socket in a private folder, on Windows a named pipe.

    Attributes:
        folder: private to this user; also holds the ranks' stores and output. Removed by ``close``.
    """

    def __init__(self) -> None:
        base = _base()
        _remove_abandoned(base)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._closed = False
        self.key = secrets.token_bytes(32)
        windows = sys.platform == "win32"
        address = None if windows else os.fspath(self.folder / _SOCKET)
        # The backlog holds all ranks at once, because a Unix socket with a full backlog refuses connections.
        self._listener = connections.Listener(
            address, "AF_PIPE" if windows else "AF_UNIX", backlog=1024, authkey=self.key
        )
        self.address: str = os.fspath(self._listener.address)

    def accept(self) -> Channel | None:
        """Wait for the next process to connect; return None once the meeting is closed."""
        while not self._closed:
            try:
                return Channel(self._listener.accept())
            except (EOFError, AuthenticationError, ConnectionError):
                continue  # the process died while connecting, or did not have the key
            except OSError:
                break
        return None

    def close(self) -> None:
        """Close the socket and remove its folder."""
        self._closed = True
        with contextlib.suppress(OSError):  # a thread that waits in ``accept`` does not notice that a socket is closed
            connections.Client(self.address).close()
        with contextlib.suppress(OSError):  # the temporary folder has been cleaned up
            self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def disown(self) -> None:
        """Close the socket in a forked child and leave the rest to the parent."""
        self._listener.close()  # it removes the file only in the process that made it


def _base() -> str:
    """Return the temporary folder, or another folder of Linux if its name is too long or its disk full."""
    ours = tempfile.gettempdir()
    for base in (ours, "/tmp", "/dev/shm") if os.name == "posix" else ():
        with contextlib.suppress(OSError):
            roomy = shutil.disk_usage(base).free >= _ROOM_BYTES and os.access(base, os.W_OK)
            if roomy and len(os.fsencode(base)) <= _LONGEST_ADDRESS - 40:
                return base
    return ours


def _remove_abandoned(base: str) -> None:
    """Remove folders of this user whose notebook and host were both killed, so that no process listens there."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
        return
    for folder in Path(base).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
            found = folder.lstat()
            # A younger one may be about to listen.
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG:
                continue
            caller.settimeout(1)
            try:
                caller.connect(os.fspath(folder / _SOCKET))
            except (ConnectionRefusedError, FileNotFoundError):
                shutil.rmtree(folder, ignore_errors=True)


def connect(address: str, key: bytes) -> Channel:
    """Connect to a meeting. Raises OSError when the notebook is gone."""
    return Channel(connections.Client(address, authkey=key))


def pack(value: Any, what: str, *parts: Any) -> bytes:
    """Pickle ``value``: functions of a notebook by value, tensors as fast as memory copies.

    Raises RanksError if a part of it cannot be pickled. The message is ``what`` ("rank 0 is given") and the type of the
    first of ``parts`` that cannot be pickled, or of ``value``.
    """
    try:
        return _packed(value)
    except Exception as error:
        culprit = next((part for part in parts if not _travels(part)), value)
        kind = type(culprit)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RanksError(
            f"{what} a {name}, which cannot go from one process to another ({reason[0]}); "
            "expected tensors, numbers, text, containers and functions: take such a value apart first"
        ) from error


def _packed(value: Any) -> bytes:
    torch = require("torch", "torch")
    file = io.BytesIO()
    # torch's own format keeps views of one storage views of one storage, and takes CUDA tensors to the CPU.
    torch.save(value, file, pickle_module=by_value)
    return file.getvalue()


def _travels(value: Any) -> bool:
    try:
        _packed(value)
    except Exception:
        return False
    return True


def unpack(data: bytes) -> Any:
    """Return what ``pack`` was given, with all tensors on the CPU."""
    torch = require("torch", "torch")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
