"""Views of the machine in which servers of the Hub run.

No import of JupyterHub: the course's pod loads this module and has another version of JupyterHub.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mlsys_grading
import mlsys_labkit
from mlsys_grading.hub.accounts import Accounts, Person
from mlsys_grading.hub.enter import Entry
from mlsys_grading.hub.settings import HubSettings
from mlsys_grading.hub.sockets import Sockets


def entering(*command: str) -> list[str]:
    """Return the command line that runs ``command`` as a person, given an :class:`Entry` on its standard input."""
    return [sys.executable, "-I", "-m", "mlsys_grading.hub.enter", *command]


def server_command(*arguments: str) -> list[str]:
    """Return the command line of a server of the Hub, given an :class:`Entry` on its standard input."""
    # -P: a file "socket.py" in the person's home is none of the server's modules.
    return entering(sys.executable, "-P", "-m", "mlsys_grading.hub.singleuser", *arguments)


def entry_for(settings: HubSettings, person: Person) -> Entry:
    """Describe the view of ``person``: the machine, their home, the exchange; of the checkout, the kit and the labs.

    The server of the person gets its own socket.
    """
    private = settings.state / "tmp" / person.name
    private.parent.mkdir(exist_ok=True, mode=0o700)
    private.mkdir(exist_ok=True)
    os.chown(private, person.uid, person.uid)
    private.chmod(0o700)
    kit = [Path(package.__file__).parent for package in (mlsys_labkit, mlsys_grading) if package.__file__]
    python = [Path(sys.prefix), Path(sys.base_prefix)]
    sockets = Sockets.of(settings.state)
    shown = [*python, *kit, settings.singleuser, settings.labs, person.home, settings.exchange_folder, sockets.folder]
    checkout = Path(mlsys_grading.__file__).parents[2]  # if this package is in one: it holds the solutions
    hidden = [settings.base, settings.state, *([checkout] if (checkout / "solutions").is_dir() else [])]
    passwd, group = Accounts(settings.state).seen_by(person.name, settings.grader)
    placed = {"/etc/passwd": passwd, "/etc/group": group, "/tmp": private}
    return Entry(
        uid=person.uid,
        gid=person.uid,
        cwd=str(person.home),
        hidden=tuple(map(str, hidden)),
        shown=tuple(str(path) for path in shown if path.exists()),
        placed=tuple((str(source), target) for target, source in placed.items()),
        handed_out=((str(settings.labs), str(person.home / settings.course.id)),) if settings.labs.is_dir() else (),
        chapters=settings.chapters,
        socket=str(sockets.server(person.uid)),
    )
