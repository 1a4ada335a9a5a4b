"""``labkit hub``: start the Hub of a settings file in the foreground, or end it and everything that it has started."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mlsys_grading.arguments import add_hub_settings, hub_settings_file
from mlsys_grading.hub.backup import add_parsers as add_backup_parsers
from mlsys_grading.hub.install.command import add_parser as add_install_parser
from mlsys_grading.hub.namespace import become_root_of_a_namespace
from mlsys_grading.lab import find_root
from mlsys_labkit.errors import LabkitError, require

if TYPE_CHECKING:
    from mlsys_grading.hub.settings import HubSettings

STOP_SECONDS = 20.0


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``hub`` to ``labkit``."""
    parser = verbs.add_parser(
        "hub",
        help="start a JupyterHub for the course on this machine",
        description="Start the JupyterHub that a settings file describes; see binder/hub/OPERATORS.md. Start it as "
        "root, or as a user to whom /etc/subuid lends ids. Ctrl-C ends the Hub alone: servers and the proxy go on, and "
        "the next start finds them. Exit code 2: the Hub could not start.",
    )
    add_hub_settings(parser)
    about = "end the Hub, its proxy and every server; exit code 1: none ran on this state folder, but others run here"
    parser.add_argument("--stop", action="store_true", help=about)
    parser.set_defaults(run=run)
    add_install_parser(verbs)
    add_backup_parsers(verbs)


def run(arguments: argparse.Namespace) -> int:
    for module in ("jupyterhub", "nativeauthenticator", "wrapspawner"):
        try:
            require(module, "hub")
        except LabkitError:
            line = f"{module} is not installed; say: make hub, or pip install 'mlsys-grading[hub]'"
            raise LabkitError(line) from None
    from mlsys_grading.hub.settings import read_settings

    settings = read_settings(hub_settings_file(arguments.settings))
    become_root_of_a_namespace(settings.state)
    if arguments.stop:
        return _stop(settings)
    from mlsys_grading.hub.checks import check_all
    from mlsys_labkit._frontends.doctor import report

    if broken := [finding for finding in check_all(settings) if finding.status == "broken"]:
        print(report(broken), file=sys.stderr)
        return 2
    _make_sources(settings.base)
    return _start(settings)


def _stop(settings: HubSettings) -> int:
    """End everything on the state folder. Exit code 1 if nothing ran on it, but another Hub runs on this machine."""
    from mlsys_grading.hub.running import at_work, other_hubs, stop

    was_at_work = bool(at_work(settings.state))
    print(f"labkit hub: ended {stop(settings.state, STOP_SECONDS)} of the state folder {settings.state}")
    others = other_hubs(settings.state)
    for line in others:
        print(f"Still running: {line}")
    return int(bool(others) and not was_at_work)


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
