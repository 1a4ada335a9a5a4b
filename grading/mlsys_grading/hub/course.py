"""The course on the Hub: its folder, its exchange folder, and the service in which its instructors grade.

The course has a uid of its own, as which no one logs in. This uid owns ``gradebook.db``, the submissions and the hidden
tests. Instructors reach them through the service, a Jupyter server under that uid. Students reach only the exchange.

Reference: https://nbgrader.readthedocs.io/en/stable/configuration/jupyterhub_config.html
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlsys_grading.files import named, write_atomic
from mlsys_grading.hub.accounts import Accounts
from mlsys_grading.hub.entries import entry_for, server_command
from mlsys_grading.hub.lab_copies import copy_lab
from mlsys_grading.hub.settings import HubSettings
from mlsys_grading.hub.sockets import Sockets, url
from mlsys_labkit.errors import LabkitError

# Modes of folders in the exchange, of which nbgrader checks the last nine bits. The sticky bit keeps students from
# renaming folders of others. No student can list what others handed in, and names end in 72 random bits.
_MODES = {"": 0o1777, "{}": 0o755, "{}/outbound": 0o755, "{}/inbound": 0o3733, "{}/feedback": 0o711}

_START_SECONDS = 600  # JupyterHub ends when a service needs longer than this; 30 s are too few for a busy machine

_CONFIG = '''"""Settings of nbgrader for this course, such as late penalties. `labkit grade` reads them, too."""

c = get_config()  # noqa: F821 - traitlets provides it

c.CourseDirectory.course_id = {!r}
'''


@dataclass(frozen=True)
class Course:
    """A course: its folders, and the rights of its people.

    Attributes:
        name: nbgrader's ``course_id``; the service has the same name.
        folder: the course folder, with ``source/``, ``submitted/`` and ``gradebook.db``.
        exchange: nbgrader's exchange folder.
        instructors: the Hub's users who may grade; at least one.
        students: the Hub's users who may fetch and hand in; empty: everyone who may log in.

    Example:
        >>> course = Course("mlsys", Path("course"), Path("exchange"), ("grace",), ("ada", "bob"))
        >>> course.groups()["nbgrader-mlsys"]
        {'users': ['ada', 'bob']}
    """

    name: str
    folder: Path
    exchange: Path
    instructors: tuple[str, ...]
    students: tuple[str, ...] = ()

    def prepare(self, uid: int, gid: int, sources: Path, released: Path | None = None, chapters: str = "") -> None:
        """Make both folders, owned by ``uid``, and copy labs that the course lacks. Files that are there stay.

        ``sources`` has the output of ``labkit build``, ``LAB/LAB.ipynb``; ``released`` has the students' versions, and
        puts them into the exchange. Their links lead to the chapters at the address ``chapters``.

        Raises OSError that names the file or folder.
        """
        with named(self.exchange):
            self.exchange.mkdir(parents=True, exist_ok=True)
            self.exchange.chmod(_MODES[""])  # mkdir's own mode would lose bits to the umask
        with named(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        exchange = {(self.exchange, name.format(self.name)): mode for name, mode in _MODES.items() if name}
        course = {(self.folder, name): 0o700 for name in ("", "source", "submitted")}
        for (root, below), mode in (exchange | course).items():
            with _folder(root, below, uid, gid, mode):
                pass
        for lab in sorted(sources.glob("*/*.ipynb")):
            name = lab.parent.name
            _copy(lab.parent, self.folder, "source", (uid, gid), chapters)
            if released and (released / name).is_dir():
                _copy(released / name, self.folder, "release", (uid, gid), chapters)  # formgrader looks there
                _copy(released / name, self.exchange, f"{self.name}/outbound", (uid, gid), chapters)
        with contextlib.suppress(FileExistsError), open(self.folder / "nbgrader_config.py", "x") as config:
            os.fchown(config.fileno(), uid, gid)
            config.write(_CONFIG.format(self.name))

    def groups(self) -> dict[str, dict[str, list[str]]]:
        """Return ``JupyterHub.load_groups``, with the names that nbgrader expects."""
        return {
            f"nbgrader-{self.name}": {"users": list(self.students)},
            f"formgrade-{self.name}": {"users": list(self.instructors)},
        }

    def roles(self) -> list[dict[str, Any]]:
        """Return ``JupyterHub.load_roles``, with the fewest scopes that work.

        Instructors open the service, and no student's server. The service reads the groups of the first instructor,
        because nbgrader needs a user with groups, and may put students into this course. A server reads the groups of
        its own person.

        Reference: https://jupyterhub.readthedocs.io/en/stable/rbac/scopes.html
        """
        group, teachers = f"group=nbgrader-{self.name}", f"formgrade-{self.name}"
        course = [f"read:users:groups!user={self.instructors[0]}", f"list:groups!{group}", f"groups!{group}"]
        return [
            {"name": teachers, "groups": [teachers], "scopes": [f"access:services!service={self.name}"]},
            {"name": f"course-{self.name}", "services": [self.name], "scopes": course},
            {"name": "server", "scopes": ["users:activity!user", "access:servers!server", "read:users:groups!user"]},
        ]

    def environment(self) -> dict[str, str]:
        """Return variables for people's servers and for the service, which ``singleuser/nbgrader_config.py`` reads."""
        return {"MLSYS_HUB_COURSE": self.name, "MLSYS_HUB_EXCHANGE": str(self.exchange)}

    def service(
        self, command: Sequence[str], config_path: Sequence[Path], environment: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return an entry of ``JupyterHub.services``; its ``url`` is a placeholder for the socket of the course's uid.

        Args:
            command: changes to the course's uid and starts the server.
            config_path: folders for ``JUPYTER_CONFIG_PATH``; the first has precedence.
            environment: further variables, such as HOME.
        """
        return {
            "name": self.name,
            "url": "http://127.0.0.1",
            "command": list(command),
            "cwd": str(self.folder),
            "environment": {
                "JUPYTERHUB_DEFAULT_URL": "/lab?formgrader=true",
                "JUPYTERHUB_ACTIVITY_URL": "",  # only a person's server has activity to report
                "JUPYTERHUB_USER": self.instructors[0],  # nbgrader fails without one, and a service has none
                "JUPYTER_CONFIG_PATH": os.pathsep.join(map(str, config_path)),
                **self.environment(),
                **environment,
            },
            "timeout": _START_SECONDS,
            "oauth_no_confirm": True,
            "oauth_client_allowed_scopes": [f"access:services!service={self.name}"],
        }

    def enrol(self) -> Callable[[Any], None]:
        """Return a ``Spawner.pre_spawn_hook`` that makes people students, unless the settings list the students."""

        def join(spawner: Any) -> None:
            from jupyterhub import orm

            group, groups = orm.Group.find(spawner.db, f"nbgrader-{self.name}"), spawner.user.orm_user.groups
            if not (self.students or spawner.user.name in self.instructors or group in groups):
                groups.append(group)
                spawner.db.commit()

        return join


def configure_course(c: Any, settings: HubSettings) -> None:
    """Prepare the course of ``settings`` and write it into traitlets' config object ``c``.

    Raises LabkitError, one line, if a folder cannot be made.
    """
    table, state = settings.course, settings.state.resolve()
    exchange = settings.exchange_folder.resolve()
    course = Course(table.id, state / "course", exchange, table.instructors, table.students)
    grader = Accounts(state).person(settings.grader)
    try:
        released = settings.labs if table.release else None
        course.prepare(grader.uid, grader.uid, settings.base / "build" / "source", released, settings.chapters)
    except OSError as error:
        raise LabkitError(
            f"{error.filename}: {error.strerror}; the course and its exchange need it: mend it, or name other folders "
            f"as hub.state and exchange.folder in {settings.file}"
        ) from None
    entry = entry_for(settings, grader)
    everyone = [(str(state / name), f"/etc/{name}") for name in ("passwd", "group")]  # nbgrader asks who handed in
    placed = (*(pair for pair in entry.placed if pair[1] == "/tmp"), *everyone)
    shown = (*entry.shown, str(course.folder))
    entry = replace(entry, cwd=str(course.folder), shown=shown, placed=placed, handed_out=())
    write_atomic(state / "course.entry", entry.to_json())
    more = grader.variables() | {"JUPYTER_RUNTIME_DIR": "/tmp/jupyter-runtime"}
    if c.JupyterHub.hub_bind_url == (hub := url(Sockets.of(state).hub)):  # JupyterHub would send it to a port
        more |= {"JUPYTERHUB_API_URL": f"{hub}/hub/api"}
    # The command opens its own standard input, and ends with the Hub even if that is killed.
    server = server_command("--KernelManager.transport=ipc")
    command = ["sh", "-c", 'exec setpriv --pdeathsig TERM "$@" < "$0"', str(state / "course.entry"), *server]
    config_path = [settings.singleuser / "course", settings.singleuser]
    c.JupyterHub.services = [course.service(command, config_path, more)]
    c.KeptProxy.service_sockets = {course.name: str(Sockets.of(state).server(grader.uid))}
    _forget_others(state / "jupyterhub.sqlite", course, settings.hub.admins)
    c.JupyterHub.load_groups = course.groups()
    c.JupyterHub.load_roles = course.roles()
    c.Authenticator.blocked_users = {grader.name}
    c.Spawner.environment |= course.environment()
    c.Spawner.pre_spawn_hook = course.enrol()


@contextlib.contextmanager
def _folder(root: Path, below: str, uid: int, gid: int, mode: int) -> Iterator[Path]:
    """Make ``root/below``, give it to ``uid``, and yield a path to it that stays valid if ``uid`` renames it.

    ``uid`` owns the parts of ``below`` and could replace one with a link to any folder. Raises OSError for a link,
    because a Hub that runs as root would give that folder away.
    """
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with named(root / below):
            for part in Path(below).parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=at)
                parent, at = at, os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(parent)
            os.fchown(at, uid, gid)
            os.fchmod(at, mode)  # after fchown, which removes the setgid bit
        yield Path(f"/proc/self/fd/{at}")
    finally:
        os.close(at)


def _copy(lab: Path, root: Path, below: str, owner: tuple[int, int], chapters: str) -> None:
    """Copy ``lab`` into ``root/below`` for its owner, readable by everybody, unless its name is taken there."""
    mode = _MODES["{}/outbound"]
    uid, gid = owner
    with _folder(root, below, uid, gid, mode) as parent:
        if os.path.lexists(parent / lab.name):
            return
        with tempfile.TemporaryDirectory(dir=parent) as made:  # of this process alone, until everything has its owner
            own = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                part = Path(f"/proc/self/fd/{own}", lab.name)
                copy_lab(lab, part, chapters)
                for path in (*part.rglob("*"), part):
                    path.chmod(mode if path.is_dir() else 0o644)
                    os.chown(path, uid, gid)
                part.rename(parent / lab.name)
            finally:
                os.close(own)


def _forget_others(database: Path, course: Course, admins: Sequence[str]) -> None:
    """Remove rights of people whom the settings no longer name: JupyterHub only ever adds to groups and admins."""
    if not database.exists():
        return
    leaves = "name NOT IN (SELECT value FROM json_each(?))"
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as link, link:
        link.execute(f"UPDATE users SET admin = 0 WHERE {leaves}", [json.dumps(admins)])
        for name, group in course.groups().items():
            if group["users"]:  # without a list of students, people join by themselves
                link.execute(
                    "DELETE FROM user_group_map WHERE group_id IN (SELECT id FROM groups WHERE name = ?)"
                    f" AND user_id IN (SELECT id FROM users WHERE {leaves})",
                    [name, json.dumps(group["users"])],
                )
