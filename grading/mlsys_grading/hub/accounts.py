"""People of the Hub and their uids, on one machine and on Kubernetes.

On one machine, a file in passwd(5) format in the state folder lists them. The course's service sees it as
``/etc/passwd``. It is appended to and never replaced, so that the running service also sees people who come later:
nbgrader asks for the owner of a submission by name. A person's server sees the machine's own accounts, that person and
the course, and nobody else.

Pods on Kubernetes have no passwd file in common: :func:`uid_of` computes the uid from the name. The Hub starts each
server as this uid, and the course finds out by it who handed in a folder of the exchange. A Hub that has lost its
database computes the same uids again. ``binder/hub/values.yaml`` repeats the formula, because the chart's Hub has none
of our packages, and refuses a name whose uid is another's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.files import write_atomic
from mlsys_grading.hub.settings import NAME
from mlsys_labkit.errors import LabkitError

# systemd's table of uids leaves 1 879 048 192 to 2 147 352 575 to nobody: https://systemd.io/UIDS-GIDS
_FIRST, _LAST = 1_900_000_000, 2_000_000_000
# A user namespace has as many uids as /etc/subuid lends, from 1 on; 65 534 is nobody.
_FIRST_LENT, _LAST_LENT = 20_000, 65_533
_OF_THE_MACHINE = 1000  # uids below belong to the system; it goes on to have root and nobody


def uid_of(name: str) -> int:
    """Compute the uid of the Hub's user ``name`` on Kubernetes, which allows uids below 2^31.

    Example:
        >>> uid_of("ada")
        252790398
    """
    return 100_000 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 2_000_000_000


def belongs_to_the_machine(name: str) -> bool:
    """Return whether the system itself has an account of this name, such as root, so that no person can have it."""
    return name in {line.split(":")[0] for line in _system_lines("/etc/passwd")}


@dataclass(frozen=True)
class Person:
    """A user of the Hub; ``uid`` is also the number of a group that has only them in it."""

    name: str
    uid: int
    home: Path

    def variables(self) -> dict[str, str]:
        """Return the environment that a login sets."""
        return {"USER": self.name, "LOGNAME": self.name, "HOME": str(self.home), "SHELL": "/bin/bash"}


@dataclass(frozen=True)
class Accounts:
    """The people of the Hub with this state folder.

    Example:
        >>> Accounts(Path("build/hub")).person("ada").uid  # doctest: +SKIP
        1900000000
    """

    state: Path

    def person(self, name: str) -> Person:
        """Return the person called ``name``; the first call gives them a uid and a home that only they can enter.

        Raises LabkitError if the name is malformed or an account of the machine, and if no uid is left.
        """
        if not NAME.fullmatch(name):
            raise LabkitError(f"{name!r} is no name here; expected lower-case letters, digits and . _ - (at most 32)")
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.state / "passwd.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = next((person for person in self.people() if person.name == name), None)
            person = known or self._add(name)
        _make_home(person)
        return person

    def people(self) -> tuple[Person, ...]:
        """Return all people, in the order in which they came."""
        rows = (line.split(":") for line in _lines(self.state / "passwd"))
        homes = self.state / "homes"
        return tuple(Person(row[0], int(row[2]), Path(row[5])) for row in rows if Path(row[5]).parent == homes)

    def seen_by(self, *names: str) -> tuple[Path, Path]:
        """Return a passwd(5) and a group(5) file with the machine's own accounts and the people called ``names``."""
        seen = []
        for kind in ("passwd", "group"):
            path = self.state / "seen" / f"{names[0]}.{kind}"
            path.parent.mkdir(exist_ok=True, mode=0o700)
            rows = _system_lines(str(self.state / kind))
            rows += [row for row in _lines(self.state / kind) if row.split(":")[0] in names and row not in rows]
            write_atomic(path, "".join(row + "\n" for row in rows))
            path.chmod(0o644)
            seen.append(path)
        return seen[0], seen[1]

    def _add(self, name: str) -> Person:
        passwd, group = self.state / "passwd", self.state / "group"
        if not passwd.exists():
            _append(passwd, *_system_lines("/etc/passwd"))
            _append(group, *_system_lines("/etc/group"))
        if name in {line.split(":")[0] for line in _lines(passwd)}:
            raise LabkitError(f"{name!r} is the name of one of this machine's own accounts; take another")
        first, last = _uids()
        uid = max((person.uid + 1 for person in self.people()), default=first)
        if uid > last:
            raise LabkitError(f"no uid is left for {name!r}: {first} to {last} are taken; lend more in /etc/subuid")
        home = self.state / "homes" / name
        _append(group, f"{name}:x:{uid}:")
        _append(passwd, f"{name}:x:{uid}:{uid}::{home}:/bin/bash")
        return Person(name, uid, home)


def _uids() -> tuple[int, int]:
    """Return the first and the last uid for people: without root, those of the user namespace."""
    rows = [tuple(map(int, row.split())) for row in Path("/proc/self/uid_map").read_text().splitlines()]
    if any(inside <= _FIRST and inside + count >= _LAST for inside, _, count in rows):
        return _FIRST, _LAST
    return _FIRST_LENT, min(_LAST_LENT, max(inside + count for inside, _, count in rows) - 1)


def _system_lines(path: str) -> list[str]:
    """Return the lines of the system's own accounts in a passwd(5) or group(5) file."""
    rows = [row for row in Path(path).read_text().splitlines() if re.match(r"[^:#+-]+:[^:]*:\d+:", row)]
    return [row for row in rows if int(row.split(":")[2]) < _OF_THE_MACHINE or row.startswith(("nobody:", "nogroup:"))]


def _lines(path: Path) -> list[str]:
    """Return the whole lines of a file. A line that a crash has cut short has no end and is left out."""
    text = path.read_text() if path.exists() else ""
    return [line[:-1] for line in text.splitlines(keepends=True) if line.endswith("\n") and ":" in line]


def _append(path: Path, *lines: str) -> None:
    """Append whole lines, in place of a line that a crash has cut short."""
    with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644), "r+b", buffering=0) as file:
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write("".join(line + "\n" for line in lines).encode())
        os.fsync(file)


def _make_home(person: Person) -> None:
    person.home.parent.mkdir(exist_ok=True, mode=0o711)
    person.home.mkdir(exist_ok=True, mode=0o700)
    if person.home.stat().st_uid != person.uid:
        os.chown(person.home, person.uid, person.uid)
        person.home.chmod(0o700)
