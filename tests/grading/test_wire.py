"""Frames: they arrive whole, within bounds and on time, or not at all, whatever the other side sends."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator

import msgpack
import pytest
from hypothesis import given, settings, strategies as st

from mlsys_grading.boundary.errors import NotPlainError, ProtocolError, StudentGoneError, StudentSilentError
from mlsys_grading.boundary.wire import FrameLimits, Wire

SOON = 0.2


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def in_time(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


@given(st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1)), st.lists(st.binary(max_size=200)))
def test_frame_arrives_as_sent(header: dict[str, int], buffers: list[bytes]) -> None:
    near, far = (Wire(end) for end in socket.socketpair())
    near.send(header, buffers, in_time())
    got, arrived = far.receive(in_time())
    assert (got, [bytes(buffer) for buffer in arrived]) == (header, buffers)
    assert all(not buffer.readonly for buffer in arrived)
    near.close(), far.close()


def test_large_buffers_are_mapped_and_are_the_receivers_own(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = (Wire(end) for end in ends)
    sent = [os.urandom(300_001), b"", os.urandom(77)]
    before = len(os.listdir("/proc/self/fd"))
    near.send({"twice": True}, sent, in_time())  # there is no reader yet: 300 kB would not fit into the socket
    near.send({"twice": True}, sent, in_time())
    first, second = far.receive(in_time())[1], far.receive(in_time())[1]
    first[0][:4] = b"mine"
    assert bytes(first[0]) == b"mine" + sent[0][4:]
    assert [bytes(each) for each in second] == sent
    del first, second
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_frame_beyond_the_bounds_is_never_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    wire = Wire(ends[0], FrameLimits(header_bytes=100, buffers=2, buffer_bytes=1000))
    for header, buffers in (({"x": "y" * 200}, []), ({}, [b"", b"", b""]), ({}, [bytes(1001)])):
        with pytest.raises(NotPlainError, match="too much"):
            wire.send(header, buffers, in_time())
    assert not Wire(ends[1]).ready()


HEAD = struct.Struct("<IIB")
EMPTY = msgpack.packb({})


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (HEAD.pack(9 << 20, 0, 0), "header"),
        (HEAD.pack(1, 5000, 0), "5000 buffers"),
        (HEAD.pack(1, 1, 0) + struct.pack("<Q", 1 << 60), "1152921504606846976 bytes"),
        (HEAD.pack(len(EMPTY), 0, 1) + EMPTY, "0 files"),
        (HEAD.pack(len(EMPTY), 0, 7) + EMPTY, "frame"),
        (HEAD.pack(1, 0, 0) + b"\xc1", "no msgpack"),
        (HEAD.pack(2, 0, 0) + b"\x01\x02", "no msgpack"),
        (HEAD.pack(1, 0, 0) + b"\x05", "no map but int"),
        (HEAD.pack(4, 0, 0) + b"\x81\x01\xd4\x05", "no msgpack"),
        (HEAD.pack(5, 0, 0) + msgpack.packb({"": msgpack.ExtType(5, b"x")}), "extension 5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_frame_that_breaks_the_rules_is_refused(
    ends: tuple[socket.socket, socket.socket], frame: bytes, says: str
) -> None:
    ends[0].sendall(frame)
    with pytest.raises(ProtocolError, match=says):
        Wire(ends[1]).receive(in_time())


@pytest.mark.parametrize("error", [PermissionError, AssertionError], ids=["refused", "not asked for"])
def test_a_process_that_may_make_no_files_sends_everything_itself(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "memfd_create", refuse)
    large = bytes(range(256)) * 8192
    wire = Wire(ends[0], shares=error is PermissionError)
    sender = threading.Thread(target=wire.send, args=({"x": 1}, [large, b"abc"], in_time()))
    sender.start()
    header, buffers = Wire(ends[1]).receive(in_time())
    sender.join()
    assert (header, [bytes(each) for each in buffers]) == ({"x": 1}, [large, b"abc"])


def test_no_error_of_the_boundary_is_an_ordinary_exception() -> None:
    assert not any(issubclass(kind, Exception) for kind in (ProtocolError, StudentGoneError, StudentSilentError))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_only_raise_boundary_errors(data: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        wire = Wire(far, FrameLimits(header_bytes=1 << 16, buffer_bytes=1 << 16))
        with pytest.raises((ProtocolError, StudentGoneError)):
            all(wire.receive(in_time()) for _ in range(len(data) + 1))


def shared_frame(descriptor: int, length: int, end: socket.socket) -> None:
    head = HEAD.pack(len(EMPTY), 1, 1) + struct.pack("<Q", length) + EMPTY
    socket.send_fds(end, [head], [descriptor])


def test_shared_memory_that_can_still_change_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    size = 1 << 20
    unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, size)
    partly = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(partly, size)
    mapped = mmap.mmap(partly, size)  # a writable mapping: the seal against writing cannot be set
    fcntl.fcntl(partly, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        for descriptor, length in ((unsealed, size), (partly, size), (file.fileno(), size)):
            before = len(os.listdir("/proc/self/fd"))
            shared_frame(descriptor, length, ends[0])
            with pytest.raises(ProtocolError, match="can still change"):
                Wire(ends[1]).receive(in_time())
            assert len(os.listdir("/proc/self/fd")) == before
    mapped.close(), os.close(unsealed), os.close(partly)


def test_shared_memory_of_another_size_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    sealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(sealed, 1 << 19)
    fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, 15)
    shared_frame(sealed, 1 << 20, ends[0])
    with pytest.raises(ProtocolError, match="another size"):
        Wire(ends[1]).receive(in_time())
    os.close(sealed)


def test_receive_raises_silent_or_gone_error(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    with pytest.raises(StudentSilentError, match="in time"):
        Wire(far).receive(in_time(SOON))
    near.sendall(HEAD.pack(100, 0, 0) + b"half")
    with pytest.raises(StudentSilentError, match="never ends"):
        Wire(far).receive(in_time(SOON))
    near.close()
    assert Wire(far).ready()
    with pytest.raises(StudentGoneError):
        Wire(far).receive(in_time())
    with pytest.raises(StudentGoneError):
        Wire(far).send({}, [], in_time())


def test_drip_feeding_does_not_move_the_deadline(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    stop = threading.Event()

    def drip() -> None:
        near.sendall(HEAD.pack(10_000, 0, 0))
        while not stop.wait(0.02):
            near.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(StudentSilentError):
        Wire(far).receive(in_time(SOON))
    stop.set()
    thread.join()


def test_blocked_send_raises_student_silent(ends: tuple[socket.socket, socket.socket]) -> None:
    wire = Wire(ends[0])
    with pytest.raises(StudentSilentError, match="does not read"):
        wire.send({"x": "y" * 5_000_000}, [], in_time(SOON))
