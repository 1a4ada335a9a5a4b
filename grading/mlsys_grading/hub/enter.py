"""Program that turns a process of the Hub into a person's: new namespaces, another user, then the command.

``python -m mlsys_grading.hub.enter COMMAND...`` reads an :class:`Entry` as JSON from standard input up to its end, so
that the Hub may first put it into a cgroup. There are three processes: this one, which the Hub signals; the first of a
new pid namespace, which reaps orphans; and the command. When one of them ends, all of them end: no kernel survives its
server. The first two keep the Hub's user, so that a person can neither signal nor trace them.
Reference: man 7 pid_namespaces, mount_namespaces, user_namespaces; man 2 pivot_root.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from mlsys_grading.hub import sockets
from mlsys_grading.hub.lab_copies import copy_lab
from mlsys_grading.sandbox import kernel

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_END_SECONDS = 30


@dataclass(frozen=True)
class Entry:
    """User and view of the machine for a command.

    Attributes:
        uid, gid: of the person.
        cwd: the folder to start in.
        hidden: folders that look empty from inside, except for paths in ``shown``.
        shown: paths that stay where they are, also below a hidden folder.
        placed: pairs (source, target): ``target`` shows ``source``.
        handed_out: pairs (folder, target): each folder in ``folder`` is copied into ``target``, unless it is there.
        chapters: the address of the chapters, for the links in what is handed out; "": they are served nowhere.
        closed: device files that cannot be opened.
        socket: path of the Unix socket that the command gets as its file descriptor 3; "": none.
        most_seconds: after which the command is ended; 0: never.
    """

    uid: int
    gid: int
    cwd: str
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    placed: tuple[tuple[str, str], ...] = ()
    handed_out: tuple[tuple[str, str], ...] = ()
    chapters: str = ""
    closed: tuple[str, ...] = ()
    socket: str = ""
    most_seconds: int = 0

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(text: bytes) -> Entry:
        return Entry(**json.loads(text))


def unreachable(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the outermost folder above each of ``paths`` that others may not enter, such as a person's home."""
    found: dict[str, None] = {}
    for path in paths:
        for folder in [*reversed(Path(path).parents), Path(path)]:
            if folder.is_dir() and not folder.stat().st_mode & 1:
                found[str(folder)] = None
                break
    return tuple(found)


def main() -> NoReturn:
    told = sys.stdin.buffer.read()
    if not told:
        sys.exit("the Hub ended before it said what to start; start the server again")
    entry = Entry.from_json(told)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    command = sys.argv[1:]
    listening = sockets.listen(Path(entry.socket)) if entry.socket else None  # the person may not enter its folder
    kernel.unshare(kernel.NEW_MOUNT | kernel.NEW_PID | kernel.NEW_IPC)
    _watch(lambda: _first(entry, listening, command), listening, entry.most_seconds)


def _first(entry: Entry, listening: socket.socket | None, command: list[str]) -> NoReturn:
    """Run as process 1 of the pid namespace."""
    _arrange(entry)
    _watch(lambda: _become(entry, listening, command), listening)


def _become(entry: Entry, listening: socket.socket | None, command: list[str]) -> NoReturn:
    os.setgroups([])
    os.setresgid(entry.gid, entry.gid, entry.gid)
    os.setresuid(entry.uid, entry.uid, entry.uid)
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    os.umask(0o022)
    os.chdir(entry.cwd)
    for folder, where in entry.handed_out:
        hand_out(Path(folder), Path(where), entry.chapters)
    if listening:
        sockets.hand_down(listening)
    os.execvp(command[0], command)


def _watch(child: Callable[[], Any], listening: socket.socket | None, most_seconds: int = 0) -> NoReturn:
    """Fork ``child``, pass signals on to it, reap every process that ends, and exit with the child's status.

    The child alone keeps ``listening``: after its end nobody is to wait for an answer. After ``most_seconds`` it is
    ended, by force if it does not end itself.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    alive, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(held)
            kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
            if select.select([alive], [], [], 0)[0]:
                os._exit(1)  # the parent died before prctl took effect
            os.close(alive)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            child()
        except BaseException as error:
            print(f"the server cannot start: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    if listening:
        listening.close()
    for number in _FORWARDED:
        signal.signal(number, lambda got, _frame: _pass_on(pid, got))
    signal.signal(signal.SIGALRM, lambda *_: _end(pid))
    signal.alarm(most_seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    while True:
        gone, status = os.wait()
        if gone == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _pass_on(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end(pid: int) -> None:
    _pass_on(pid, signal.SIGTERM)
    signal.signal(signal.SIGALRM, lambda *_: _pass_on(pid, signal.SIGKILL))
    signal.alarm(_END_SECONDS)


def _arrange(entry: Entry) -> None:
    """Arrange this mount namespace as the person sees the machine."""
    kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    quiet = kernel.NO_SUID | kernel.NO_DEV
    kernel.mount("proc", "/proc", "proc", quiet | kernel.NO_EXEC)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", quiet, "mode=1777")
    for device in entry.closed:
        kernel.mount("/dev/null", device, flags=kernel.BIND)
    # Held open, because a path no longer leads there once its parent is covered.
    shown = {path: os.open(path, os.O_PATH) for path in dict.fromkeys(entry.shown)}
    placed = {target: os.open(source, os.O_PATH) for source, target in entry.placed}
    covered = dict.fromkeys(sorted({*entry.hidden, *unreachable(entry.shown)}))
    for path, held in placed.items():
        _bind(held, path, entry.uid)
    for path in covered:
        if path not in placed and os.path.isdir(path):
            kernel.mount("tmpfs", path, "tmpfs", quiet, "size=1m,mode=755")
    for path, held in sorted(shown.items()):  # a folder before the paths inside it
        if not _is_there(path, held):
            _bind(held, path, entry.uid)
    for held in (*shown.values(), *placed.values()):
        os.close(held)


def _is_there(path: str, held: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(held))
    except OSError:
        return False


def _bind(held: int, target: str, uid: int) -> None:
    """Mount ``held`` at ``target``. Raise PermissionError for a link of the person: it would lead root anywhere."""
    source = f"/proc/self/fd/{held}"
    for path in (target, *map(str, Path(target).parents)):
        if os.path.islink(path) and os.lstat(path).st_uid == uid:
            raise PermissionError(f"{path} is a link in the way of {target}; remove it")
    if not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(source):
            os.mkdir(target)
        else:
            Path(target).touch()
    kernel.mount(source, target, flags=kernel.BIND | kernel.RECURSIVE)


def hand_out(folder: Path, where: Path, chapters: str = "") -> None:
    """Copy each lab in ``folder`` to ``where``, except those whose name is taken there: they are the person's."""
    for source in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))):
        target = where / source.name
        if os.path.lexists(target):
            continue
        part = where / f".{source.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        copy_lab(source, part, chapters)
        os.rename(part, target)


if __name__ == "__main__":
    main()
