"""Unix sockets through which the parts of a Hub reach one another.

A port may be taken by any person of the machine as soon as its owner ends, and with it the owner's visitors. A name in
a folder that only the Hub's user may change cannot be taken. All people may connect to ``hub``, the API that their
servers report to. Only the Hub's user may enter ``own``, with the sockets of the proxy's API, of the course's service,
and of each person's server.

Reference: man 7 unix; https://jupyterhub.readthedocs.io/en/stable/reference/config-reference.html (hub_bind_url).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mlsys_labkit.errors import LabkitError

HANDED_DOWN = 3  # the file descriptor of the first socket that a program is started with: man 3 sd_listen_fds


@dataclass(frozen=True)
class Sockets:
    """Sockets of one Hub, in ``folder``. Its name is short, and in lower case, as JupyterHub's addresses have to be.

    Example:
        >>> Sockets(Path("/run/mlsys-hub-0123456789ab")).server(20001)
        PosixPath('/run/mlsys-hub-0123456789ab/own/20001')
    """

    folder: Path

    @staticmethod
    def of(state: Path) -> Sockets:
        """Return the sockets of the Hub whose state folder is ``state``."""
        name = hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:12]
        return Sockets(Path("/run" if os.access("/run", os.W_OK) else "/tmp", f"mlsys-hub-{name}"))

    @property
    def hub(self) -> Path:
        return self.folder / "hub"

    @property
    def proxy(self) -> Path:
        return self.folder / "own" / "proxy"

    def server(self, uid: int) -> Path:
        """Return the socket of the server that runs as ``uid``."""
        return self.folder / "own" / str(uid)

    def prepare(self) -> None:
        """Make both folders. Raises LabkitError if somebody else has made one of that name."""
        for folder, mode in ((self.folder, 0o755), (self.folder / "own", 0o700)):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                raise LabkitError(f"{folder} belongs to somebody else; the Hub's sockets go there: remove it")
            folder.chmod(mode)


def url(path: Path) -> str:
    """Return the address of a socket, as JupyterHub and its proxy write it.

    Example:
        >>> url(Path("/run/hub"))
        'http+unix://%2Frun%2Fhub'
    """
    return f"http+unix://{quote(str(path), safe='')}"


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``. Who listened there before is out of reach from now on."""
    made = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made.bind(str(path))
    made.listen()
    # JupyterHub gives every server a port, 80 for a socket, and its proxy reads that as the end of the name.
    link = path.with_name(f"{path.name}:80")
    if not link.is_symlink():
        link.symlink_to(path.name)
    return made


def hand_down(listening: socket.socket) -> None:
    """Hand ``listening`` to the program that this process is about to become. Reference: man 3 sd_listen_fds."""
    os.dup2(listening.fileno(), HANDED_DOWN)
    os.set_inheritable(HANDED_DOWN, True)  # dup2 leaves it as it is if the two are the same
    os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}


def handed_down() -> socket.socket:
    """Return the socket that this process was started with. Raises LabkitError if it was started without one."""
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()) or os.environ.pop("LISTEN_FDS", "") != "1":
        raise LabkitError("this program serves the socket that the Hub opens for it; the Hub starts it")
    taken = socket.socket(fileno=HANDED_DOWN)
    taken.set_inheritable(False)
    taken.setblocking(False)
    return taken
