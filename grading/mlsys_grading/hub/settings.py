"""Settings of a Hub, read from ``hub.toml``. Each mistake is one line: file, key, value, and the value expected."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from mlsys_grading.hub import sockets
from mlsys_grading.release import settings as release_settings
from mlsys_labkit.errors import LabkitError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_DEVICES = re.compile(r"(gpu|mig-\d+g\.\d+gb)?")
NAMED = "lower-case letters, digits and . _ - (at most 32)"


def _check(expected: str, holds: Callable[[Any], bool]) -> dict[str, Any]:
    """Build the metadata of a key: the values it accepts, in words and as a test."""
    return {"expected": expected, "holds": holds}


def _number(least: float) -> dict[str, Any]:
    return _check(f"a number from {least:g}", lambda value: type(value) in (int, float) and least <= value < 1e6)


def _whole(least: int, most: int) -> dict[str, Any]:
    return _check(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def _one_of(*names: str) -> dict[str, Any]:
    return _check("one of " + ", ".join(map(repr, names)), lambda value: type(value) is str and value in names)


def _is_text(value: Any) -> bool:
    return type(value) is str and value.isprintable()


def _is_name(value: Any) -> bool:
    return type(value) is str and bool(NAME.fullmatch(value))


_HOST = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|")

_TEXT = _check("a text", _is_text)
_FILLED = _check("a text that is not empty", lambda value: _is_text(value) and bool(value.strip()))
_PORT = _whole(1, 65535)
_BOOL = _check("true or false", lambda value: type(value) is bool)
_NAME = _check(NAMED, _is_name)
_NAMES = _check(f"a list of names in {NAMED}", lambda value: type(value) is list and all(map(_is_name, value)))
_HOST_NAME = _check(
    "a host name in lower case, such as 'hub.example.edu', or ''",
    lambda value: type(value) is str and bool(_HOST.fullmatch(value)),
)
_TEXTS = _check("a list of texts", lambda value: type(value) is list and all(map(_is_text, value)))
_DEVICE = _check(
    "'', 'gpu' or a MIG slice such as 'mig-1g.10gb'",
    lambda value: type(value) is str and bool(_DEVICES.fullmatch(value)),
)


@dataclass(frozen=True)
class HubTable:
    """Addresses of the Hub, and its state folder. Slurm jobs alone use ``hub_port``.

    ``host`` is the name that people open; ``labkit hub install`` gives it a certificate. With ``subdomains``, each
    server has a name of its own below it. ``address`` is that of the public ``port``, or the path of a Unix socket that
    takes the port's place. ``admins`` may start, stop and open every server. Instructors need none of that to teach and
    to grade.
    """

    host: str = field(default="", metadata=_HOST_NAME)
    subdomains: bool = field(default=False, metadata=_BOOL)
    address: str = field(default="127.0.0.1", metadata=_FILLED)
    port: int = field(default=8000, metadata=_PORT)
    hub_port: int = field(default=8081, metadata=_PORT)
    state: str = field(default="build/hub", metadata=_FILLED)
    admins: tuple[str, ...] = field(default=(), metadata=_NAMES)

    @property
    def socket(self) -> Path | None:
        """The public Unix socket, if there is one."""
        return Path(self.address) if self.address.startswith("/") else None

    @property
    def origin(self) -> str:
        """The address that people open. A name below localhost, for a trial, needs no certificate."""
        is_local = f".{self.host}".endswith(".localhost")
        return f"http://{self.host}:{self.port}" if is_local else f"https://{self.host}"

    @property
    def url(self) -> str:
        """The public address, as JupyterHub and its proxy write it."""
        return sockets.url(self.socket) if self.socket else f"http://{self.address}:{self.port}"


@dataclass(frozen=True)
class LoginTable:
    """The way in which people log in.

    Attributes:
        kind: "native", "pam", "shared-password" or "oauth".
        password_file: for "shared-password": one line with the students' password, one with the instructors'.
        provider: for "oauth": the authenticator, by its installed name, such as "github", or the path of a class.
        domain: for "oauth": where the site's names are addresses NAME@domain, NAME is the name here.
        oauth: for "oauth": settings of that authenticator. Its secret stays in the environment.
    """

    kind: str = field(default="native", metadata=_one_of("native", "pam", "shared-password", "oauth"))
    password_file: str = field(default="", metadata=_TEXT)
    provider: str = field(default="", metadata=_TEXT)
    domain: str = field(default="", metadata=_HOST_NAME)
    oauth: Mapping[str, Any] = field(
        default_factory=dict, metadata=_check("a table", lambda value: type(value) is dict)
    )


@dataclass(frozen=True)
class CourseTable:
    """The course. With no ``students``, everyone who may log in is one. Everyone gets a copy of ``labs``.

    With ``release``, every lab can be handed in from the first start; else after an instructor releases it.
    """

    id: str = field(default="mlsys", metadata=_NAME)
    instructors: tuple[str, ...] = field(default=("instructor",), metadata=_NAMES)
    students: tuple[str, ...] = field(default=(), metadata=_NAMES)
    labs: str = field(default="labs", metadata=_FILLED)
    release: bool = field(default=True, metadata=_BOOL)


@dataclass(frozen=True)
class ExchangeTable:
    """nbgrader's exchange. An empty ``folder`` stands for ``exchange`` in the state folder."""

    folder: str = field(default="", metadata=_TEXT)


@dataclass(frozen=True)
class IdleTable:
    """Time after which an unused server ends. A busy kernel is never idle, but ``max_hours`` ends it, too; 0: never."""

    minutes: float = field(default=60, metadata=_number(0))
    check_minutes: float = field(default=5, metadata=_number(0.01))
    max_hours: float = field(default=0, metadata=_number(0))


@dataclass(frozen=True)
class QuotaTable:
    """Limit of each person's files, in GiB; 0: none."""

    home_gib: float = field(default=0, metadata=_number(0))


@dataclass(frozen=True)
class BackupTable:
    """Backups: the folder in which ``labkit hub backup`` makes one folder each, and the number that it keeps; 0: all.

    An empty ``folder`` stands for the state folder's path with ``-backups`` at its end.
    """

    folder: str = field(default="", metadata=_TEXT)
    keep: int = field(default=14, metadata=_whole(0, 100_000))


@dataclass(frozen=True)
class ServerProfile:
    """A kind of server that people may choose. ``cpus`` and ``memory_gib`` of 0 set no limit.

    Attributes:
        spawner: "local" or "slurm".
        device: the device that a GPU profile leases: "gpu", or a MIG slice such as "mig-1g.10gb".
        partition, account, hours, options: of the Slurm job; ``options`` are further ``#SBATCH`` words.
    """

    slug: str = field(metadata=_NAME)
    title: str = field(metadata=_FILLED)
    spawner: str = field(default="local", metadata=_one_of("local", "slurm"))
    cpus: float = field(default=0, metadata=_number(0))
    memory_gib: float = field(default=0, metadata=_number(0))
    gpus: int = field(default=0, metadata=_whole(0, 1))
    device: str = field(default="", metadata=_DEVICE)
    partition: str = field(default="", metadata=_TEXT)
    account: str = field(default="", metadata=_TEXT)
    hours: float = field(default=4, metadata=_number(0.1))
    options: tuple[str, ...] = field(default=(), metadata=_TEXTS)


@dataclass(frozen=True)
class HubSettings:
    """The content of ``hub.toml``; ``file`` is its path.

    Example:
        >>> HubSettings(Path("/srv/mlsys/hub.toml")).state
        PosixPath('/srv/mlsys/build/hub')
    """

    file: Path
    hub: HubTable = HubTable()
    login: LoginTable = LoginTable()
    course: CourseTable = CourseTable()
    exchange: ExchangeTable = ExchangeTable()
    idle: IdleTable = IdleTable()
    quota: QuotaTable = QuotaTable()
    backup: BackupTable = BackupTable()
    profiles: tuple[ServerProfile, ...] = (ServerProfile("cpu", "CPU"),)

    @property
    def base(self) -> Path:
        """The folder at which paths in the file begin: the checkout that holds the file, else the file's folder."""
        folders = self.file.resolve().parents
        return next((folder for folder in folders if (folder / "solutions").is_dir()), folders[0])

    @property
    def singleuser(self) -> Path:
        """The folder beside the file with the configuration of every server."""
        return self.file.resolve().parent / "singleuser"

    @property
    def state(self) -> Path:
        """The folder of the database, the secrets and the homes: everything that a backup needs."""
        return (self.base / self.hub.state).resolve()

    @property
    def staff(self) -> frozenset[str]:
        """The names of instructors and admins: no one else can take them, and they admit people."""
        return frozenset({*self.course.instructors, *self.hub.admins})

    @property
    def grader(self) -> str:
        """The name of the course's own account, as which no one logs in."""
        return f"grader-{self.course.id}"

    @property
    def exchange_folder(self) -> Path:
        return self.base / self.exchange.folder if self.exchange.folder else self.state / "exchange"

    @property
    def backup_folder(self) -> Path:
        beside = self.state.with_name(f"{self.state.name}-backups")
        return (self.base / self.backup.folder).resolve() if self.backup.folder else beside

    @property
    def labs(self) -> Path:
        return self.base / self.course.labs

    @property
    def chapters(self) -> str:
        """The address of the chapters in the checkout's settings of a release; "" if there is none."""
        file = self.base / release_settings.FILE
        return release_settings.read_settings(file).chapters if file.is_file() else ""


def read_settings(path: Path) -> HubSettings:
    """Read ``path``. Raises LabkitError, one line, if the file is missing or wrong.

    Example:
        >>> read_settings(Path("binder/hub/hub.toml")).course.id  # doctest: +SKIP
        'mlsys'
    """
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabkitError(f"{path}: {error.strerror}; copy binder/hub/hub.toml and name it here") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabkitError(f"{path}: no TOML ({' '.join(str(error).split())})") from None
    try:
        return _settings(plain, path)
    except _WrongError as error:
        raise LabkitError(f"{path}: {error}") from None


class _WrongError(Exception):
    """A key with a wrong value: the key, the values expected, and the value found."""

    def __init__(self, key: str, expected: str, came: Any) -> None:
        named, shown = key if key.isprintable() else repr(key), repr(came)
        super().__init__(f"{named} is {shown if len(shown) <= 60 else shown[:57] + '...'}; expected {expected}")


_TABLES = {
    "hub": HubTable,
    "login": LoginTable,
    "course": CourseTable,
    "exchange": ExchangeTable,
    "idle": IdleTable,
    "quota": QuotaTable,
    "backup": BackupTable,
}


def _settings(plain: dict[str, Any], path: Path) -> HubSettings:
    known = [*_TABLES, "profile"]
    if unknown := [key for key in plain if key not in known]:
        raise _WrongError(unknown[0], f"only the tables {', '.join(known)}", plain[unknown[0]])
    tables: dict[str, Any] = {key: _table(kind, key, plain[key]) for key, kind in _TABLES.items() if key in plain}
    given = plain.get("profile", [])
    if type(given) is not list:
        raise _WrongError("profile", "tables that begin with [[profile]]", given)
    if given:
        tables["profiles"] = tuple(_table(ServerProfile, f"profile[{n}]", table) for n, table in enumerate(given))
    settings = HubSettings(path, **tables)
    _check_agreement(settings)
    return settings


def _table(kind: type, key: str, plain: Any) -> Any:
    """Build a dataclass of ``kind`` from a table of the file."""
    if type(plain) is not dict:
        raise _WrongError(key, "a table", plain)
    keys = {each.name: each for each in fields(kind)}
    for name, value in plain.items():
        if name not in keys:
            raise _WrongError(f"{key}.{name}", f"only the keys {', '.join(keys)}", value)
        if not keys[name].metadata["holds"](value):
            raise _WrongError(f"{key}.{name}", keys[name].metadata["expected"], value)
    for name, each in keys.items():
        if each.default is MISSING and each.default_factory is MISSING and name not in plain:
            raise _WrongError(f"{key}.{name}", each.metadata["expected"], None)
    return kind(**{name: tuple(value) if type(value) is list else value for name, value in plain.items()})


def _check_agreement(settings: HubSettings) -> None:
    """Raise _WrongError if settings contradict one another."""
    hub, login, course = settings.hub, settings.login, settings.course
    if hub.port == hub.hub_port:
        raise _WrongError("hub.port", "a port other than hub_port", hub.port)
    if hub.subdomains and not hub.host:
        raise _WrongError("hub.host", "a name, below which the servers get theirs", "")
    if not course.instructors:
        raise _WrongError("course.instructors", "at least one name", [])
    if both := settings.staff & set(course.students):
        raise _WrongError("course.students", "no name of an instructor or admin", min(both))
    if login.kind == "shared-password" and not login.password_file:
        raise _WrongError("login.password_file", "a file with the students' password and the instructors'", "")
    if login.kind == "oauth" and not login.provider:
        raise _WrongError("login.provider", "the name of an authenticator, such as 'github'", "")
    slugs = [profile.slug for profile in settings.profiles]
    if len(set(slugs)) < len(slugs):
        raise _WrongError("profile.slug", "a slug of its own for each profile", slugs)
    for n, profile in enumerate(settings.profiles):
        if bool(profile.device) != bool(profile.gpus) and profile.spawner == "local":
            raise _WrongError(f"profile[{n}].device", "a device where gpus = 1, and none elsewhere", profile.device)
