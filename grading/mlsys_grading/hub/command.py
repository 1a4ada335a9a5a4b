"""``labkit hub``: start the Hub of a settings file in the foreground, or end it and everything that it has started."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mlsys_grading.lab import find_root
from mlsys_labkit.errors import LabkitError, require

if TYPE_CHECKING:
    from mlsys_grading.hub.settings import HubSettings

STOP_SECONDS = 20.0


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``hub`` to ``labkit``."""
    parser = verbs.add_parser(
        "hub",
        help="a JupyterHub for the course on this machine",
        description="Start the JupyterHub that a settings file describes; see binder/hub/OPERATORS.md. Start it as "
        "root, or as a user to whom /etc/subuid lends ids. Ctrl-C ends the Hub alone: servers and the proxy go on, and "
        "the next start finds them. Exit code 2: the Hub could not start.",
    )
    parser.add_argument(
        "settings", nargs="?", type=Path, metavar="FILE", help="default: binder/hub/hub.toml of the checkout"
    )
    parser.add_argument("--stop", action="store_true", help="end the Hub, its proxy and every server")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    for module in ("jupyterhub", "nativeauthenticator", "wrapspawner"):
        try:
            require(module, "hub")
        except LabkitError:
            line = f"{module} is not installed; say: make hub, or pip install 'mlsys-grading[hub]'"
            raise LabkitError(line) from None
    from mlsys_grading.hub.settings import read_settings

    path = (arguments.settings or find_root(None) / "binder" / "hub" / "hub.toml").resolve()
    settings = read_settings(path)
    _become_root_of_a_namespace(settings.state)
    if arguments.stop:
        from mlsys_grading.hub.running import stop

        print(f"labkit hub: ended {stop(settings.state, STOP_SECONDS)}")
        return 0
    from mlsys_grading.hub.checks import check_all
    from mlsys_labkit._frontends.doctor import report

    if broken := [finding for finding in check_all(settings) if finding.status == "broken"]:
        print(report(broken), file=sys.stderr)
        return 2
    _make_sources(settings.base)
    return _start(settings)


def _make_sources(root: Path) -> None:
    """Make the sources of labs that ``build/source`` lacks, as ``labkit build`` does: the course copies them."""
    from mlsys_grading.build.outputs import outputs, write
    from mlsys_grading.lab import lab_names, read_labs

    names = lab_names(root) if (root / "solutions").is_dir() else []
    missing = [name for name in names if not (root / "build/source" / name / f"{name}.ipynb").is_file()]
    for lab in read_labs(root, missing) if missing else ():
        made = {name: content for name, content in outputs(lab).items() if name.startswith("build/source/")}
        print(f"The course gets {lab.name}: {len(write(root, made))} files in build/source", flush=True)


def _start(settings: HubSettings) -> NoReturn:
    config = settings.file.parent / "jupyterhub_config.py"
    if not config.exists():
        try:
            config = find_root(None) / "binder" / "hub" / "jupyterhub_config.py"
        except LabkitError:
            line = f"there is no jupyterhub_config.py beside {settings.file}; copy binder/hub there"
            raise LabkitError(line) from None
    first = f" (instructors' first passwords: {settings.state / 'first-passwords'})"
    address = settings.hub.socket or settings.hub.url
    print(f"The Hub is at {address}{first if settings.login.kind == 'native' else ''}", flush=True)
    print("Ctrl-C ends the Hub alone; servers go on. To end all of it: labkit hub --stop", flush=True)
    os.environ["MLSYS_HUB_SETTINGS"] = str(settings.file)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub", "-f", str(config)])


def _become_root_of_a_namespace(state: Path) -> None:
    """Run this program again as root of a user namespace, unless it is root: the namespace of the proxy, if that lives.

    In the same namespace a restarted Hub may signal the servers that it finds.
    Reference: man 7 user_namespaces; man 5 subuid.
    """
    if os.geteuid() == 0:
        return
    from mlsys_grading.hub.machine import user_ids
    from mlsys_grading.hub.proxy import running

    program, words = "unshare", ["--user", "--map-root-user", "--map-auto", "--setgroups", "allow"]
    if kept := running(state / "proxy.pid"):
        program, words = "nsenter", ["--user", f"--target={kept.pid}"]
    found = shutil.which(program)
    if found is None or (program == "unshare" and not shutil.which("newuidmap")):
        missing = program if found is None else "newuidmap"
        line = f"each person is a user id, for which an ordinary user needs {missing}; apt install uidmap util-linux"
        raise LabkitError(line)
    for finding in () if kept else user_ids():
        if finding.status == "broken":
            raise LabkitError(f"{finding.detail}; {finding.mend}")
    os.execv(found, [program, *words, sys.executable, *sys.argv])
