"""Frames on a Unix socket: a msgpack header and raw buffers, bounded on both sides, large ones in shared memory.

A frame is ``u32 header length | u32 buffers | u8 shared | u64 length of each buffer | header | buffers``. Where they
are shared, the buffers follow each other, each at a multiple of 64 bytes, in a sealed memfd that travels beside the
frame: the receiver maps it privately, so only pages that it writes to are copied, and the sender cannot change them.
A process whose memory is measured and a rank may make no such file, and send all buffers through the socket. They get
none either: no tracer counts the mapping of one, and a file's number tells how many the machine has made.

Reference: https://github.com/msgpack/msgpack/blob/master/spec.md; man 2 memfd_create; man 2 fcntl (file sealing).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgpack  # type: ignore[import-untyped]

from mlsys_grading.boundary.errors import NotPlainError, ProtocolError, StudentGoneError, StudentSilentError

_HEAD = struct.Struct("<IIB")
_SHARED_FROM_BYTES = 256 << 10  # below, a copy through the socket is faster than a new mapping
_ALIGNMENT = 64
_LONGEST_SECONDS = 1e6  # above this, a socket's timeout overflows
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class FrameLimits:
    """Limits of one frame. ``buffer_bytes`` counts all its buffers together."""

    header_bytes: int = 8 << 20
    buffers: int = 1024
    buffer_bytes: int = 512 << 20


class Wire:
    """One end of a socket.

    Every call has a deadline ``until``, a value of ``time.monotonic()``. Raises StudentGoneError when the other end
    hung up, StudentSilentError past the deadline, ProtocolError for a frame that breaks the rules; after any of them
    the wire is of no further use. NotPlainError, before anything was sent, for what is too large to send. ``shares``:
    large buffers are sent in shared memory.

    Example:
        >>> near, far = (Wire(end) for end in socket.socketpair())
        >>> near.send({"call": "f"}, [b"1234"], time.monotonic() + 1)
        >>> header, buffers = far.receive(time.monotonic() + 1)
        >>> header, bytes(buffers[0])
        ({'call': 'f'}, b'1234')
    """

    def __init__(self, end: socket.socket, bounds: FrameLimits | None = None, *, shares: bool = True) -> None:
        self._socket, self.bounds, self._shares = end, bounds or FrameLimits(), shares

    def send(self, header: dict[str, Any], buffers: Sequence[bytes | memoryview], until: float) -> None:
        """Send one frame."""
        packed = msgpack.packb(header, unicode_errors="surrogatepass")
        lengths = [len(buffer) for buffer in buffers]
        total = sum(lengths)
        bounds = self.bounds
        if len(packed) > bounds.header_bytes or len(buffers) > bounds.buffers or total > bounds.buffer_bytes:
            raise NotPlainError(f"{len(packed) + total} bytes in {len(buffers)} arrays are too much for one call")
        descriptor = _share(buffers) if self._shares and total >= _SHARED_FROM_BYTES else None
        head = _HEAD.pack(len(packed), len(buffers), descriptor is not None)
        head += struct.pack(f"<{len(lengths)}Q", *lengths) + packed
        if descriptor is None and total < _SHARED_FROM_BYTES:
            self._send(b"".join([head, *buffers]), until)
            return
        if descriptor is None:
            for part in (head, *buffers):  # one by one: a copy of all would count as this process's memory
                self._send(part, until)
            return
        try:
            self._send(head, until, descriptor)
        finally:
            os.close(descriptor)

    def receive(self, until: float) -> tuple[dict[str, Any], list[memoryview]]:
        """Return the next frame: its header, and its buffers as writable memory that nothing else refers to."""
        head, descriptors = self._receive_head(until)
        try:
            length, count, shared = _HEAD.unpack(head)
            bounds = self.bounds
            if length > bounds.header_bytes or count > bounds.buffers or shared > 1 or len(descriptors) != shared:
                raise ProtocolError(f"a frame with {length} bytes of header, {count} buffers, {len(descriptors)} files")
            lengths = struct.unpack(f"<{count}Q", self._receive(8 * count, until))
            if sum(lengths) > bounds.buffer_bytes or (shared and sum(lengths) < _SHARED_FROM_BYTES):
                raise ProtocolError(f"a frame of {sum(lengths)} bytes")
            header = _unpack(self._receive(length, until))
            if shared:
                return header, _map(descriptors[0], lengths)
            return header, [memoryview(self._receive(size, until)) for size in lengths]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def ready(self, until: float = 0) -> bool:
        """Wait until there is something to receive, or the other side has closed; False when that takes too long."""
        seconds = min(max(0.0, until - time.monotonic()), _LONGEST_SECONDS)
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes | memoryview, until: float, descriptor: int | None = None) -> None:
        unread = "the other process does not read what it is sent"
        if descriptor is not None:
            with self._within(until, unread):
                data = data[socket.send_fds(self._socket, [data], [descriptor]) :]
        with self._within(until, unread):
            self._socket.sendall(data)

    def _receive_head(self, until: float) -> tuple[bytes, list[int]]:
        descriptors: list[int] = []
        data = b""
        while len(data) < _HEAD.size:
            with self._within(until, "no answer in time"):
                part, more, _, _ = socket.recv_fds(self._socket, _HEAD.size - len(data), 4)
            descriptors += more
            if not part:
                raise StudentGoneError("the other process has ended")
            data += part
        return data, descriptors

    def _receive(self, length: int, until: float) -> bytearray:
        data = bytearray(length)
        view, got = memoryview(data), 0
        while got < length:
            with self._within(until, "an answer that never ends"):
                part = self._socket.recv_into(view[got:], length - got)
            if not part:
                raise StudentGoneError("the other process has ended in the middle of an answer")
            got += part
        return data

    @contextmanager
    def _within(self, until: float, late: str) -> Iterator[None]:
        """Set the deadline of one call of the socket; raise StudentSilentError(late) past it."""
        try:
            self._socket.settimeout(min(max(0.001, until - time.monotonic()), _LONGEST_SECONDS))
            yield
        except TimeoutError:
            raise StudentSilentError(late) from None
        except OSError:
            raise StudentGoneError("the other process has ended") from None


def _offsets(lengths: Sequence[int]) -> list[int]:
    sizes = (-(-length // _ALIGNMENT) * _ALIGNMENT for length in lengths)
    return list(accumulate(sizes, initial=0))


def _share(buffers: Sequence[bytes | memoryview]) -> int | None:
    """Return a sealed file of the buffers; None in a process that may make none, since its memory is measured."""
    try:
        descriptor = os.memfd_create("labkit-values", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except PermissionError:
        return None
    offsets = _offsets([len(buffer) for buffer in buffers])
    try:
        os.ftruncate(descriptor, offsets[-1])
        for offset, buffer in zip(offsets, buffers, strict=False):
            done = 0
            while done < len(buffer):
                done += os.pwrite(descriptor, memoryview(buffer)[done:], offset + done)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _map(descriptor: int, lengths: Sequence[int]) -> list[memoryview]:
    offsets = _offsets(lengths)
    try:
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == _SEALS
    except OSError:
        sealed = False  # the descriptor is no memfd
    if not sealed or os.fstat(descriptor).st_size != offsets[-1]:
        raise ProtocolError("shared memory that can still change, or of another size than announced")
    memory = memoryview(mmap.mmap(descriptor, offsets[-1], mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
    return [memory[offset : offset + length] for offset, length in zip(offsets, lengths, strict=False)]


def _unpack(data: bytearray) -> dict[str, Any]:
    try:
        header = msgpack.unpackb(
            data, raw=False, strict_map_key=True, unicode_errors="surrogatepass", ext_hook=_refuse_extension
        )
    except ProtocolError:
        raise
    except Exception as error:
        raise ProtocolError(f"a header that is no msgpack: {type(error).__name__}") from None
    if type(header) is not dict:
        raise ProtocolError(f"a header that is no map but {type(header).__name__}")
    return header


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ProtocolError(f"msgpack extension {code}")
