"""``labkit hub install``: write units of systemd, settings of a TLS server and a rotation of logs, or remove them."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlsys_grading.arguments import add_hub_settings, hub_settings_file
from mlsys_grading.files import named
from mlsys_grading.hub.install.sealed import FileChange, changes
from mlsys_grading.hub.install.units import backup_units, caddy_unit, hub_unit, quoted, written_folders
from mlsys_grading.hub.install.web_servers import caddyfile, nginx_file
from mlsys_grading.hub.settings import NAME, HubSettings, read_settings
from mlsys_labkit.errors import LabkitError

_LOGROTATE = """\
{logs}/*.log {{
    daily
    maxsize 50M
    rotate 7
    compress
    missingok
    notifempty
    copytruncate
    su root root
}}
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``hub install`` to ``labkit``."""
    parser = verbs.add_parser(
        "hub install",
        help="write systemd units, TLS settings and log rotation for a Hub",
        description="Write, on Debian or Ubuntu: a unit for the Hub, a timer for its backup, the settings of a TLS "
        "server for hub.host, and a rotation of the logs. A second run changes nothing. Exit code 2: a file was edited "
        "by hand or is not ours; then nothing was written.",
    )
    add_hub_settings(parser)
    parser.add_argument("--name", default="mlsys-hub", help="name of the units; a second Hub needs another name")
    parser.add_argument("--tls", choices=("caddy", "nginx", "none"), default="caddy", help="default: caddy")
    parser.add_argument("--dry-run", action="store_true", help="show each file's changes; write nothing")
    parser.add_argument("--remove", action="store_true", help="stop the units, and remove what this verb wrote")
    parser.add_argument("--root", type=Path, default=Path("/"), help="write below this folder, such as an image's root")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    name, root = arguments.name, arguments.root.resolve()
    if not NAME.fullmatch(name):
        raise LabkitError(f"--name {name}: expected lower-case letters, digits and . _ - (at most 32)")
    wanted: dict[str, str] = {}
    folders: list[Path] = []
    if not arguments.remove:
        settings = read_settings(hub_settings_file(arguments.settings))
        wanted, folders = files(name, settings, arguments.tls), written_folders(settings)
    to_make = changes({root / path: text for path, text in wanted.items()}, [root / path for path in paths(name)])
    if arguments.dry_run:
        for change in to_make:
            print(change.diff(), end="")
    else:
        _make_folders(folders, root)
        _make(to_make, name, root)
    kind = "would change" if arguments.dry_run else "changed"
    print(f"labkit hub install: {len(to_make)} files {kind}, {len(wanted)} are wanted")
    if wanted and not arguments.dry_run and root == Path("/"):
        _print_next_steps(name, arguments.tls)
    return 0


def paths(name: str) -> list[str]:
    """Return every file, relative to ``/``, that an installation of that name may have, with any server for TLS."""
    units = [
        f"etc/systemd/system/{name}{end}" for end in (".service", "-backup.service", "-backup.timer", "-tls.service")
    ]
    return [*units, f"etc/{name}/Caddyfile", f"etc/nginx/conf.d/{name}.conf", f"etc/logrotate.d/{name}"]


def files(name: str, settings: HubSettings, tls: str) -> dict[str, str]:
    """Return path -> text of the files to install. Raises LabkitError if TLS has no host name."""
    hub, backup, timer, tls_unit, caddy, nginx, logrotate = paths(name)
    if tls != "none" and not settings.hub.host:
        line = f"hub.host is empty in {settings.file}: name the host that people open, or install with --tls none"
        raise LabkitError(line)
    if tls != "none" and not settings.hub.socket:
        raise LabkitError(
            f"hub.address in {settings.file} is a port, which others on this machine can take while the Hub is down: "
            f'write address = "/run/{name}.sock", or install with --tls none'
        )
    unit, at = backup_units(name, settings)
    found = {hub: hub_unit(name, settings), backup: unit, timer: at}
    found[logrotate] = _LOGROTATE.format(logs=quoted(settings.state / "logs"))
    if tls == "caddy":
        found[tls_unit] = caddy_unit(name, shutil.which("caddy") or "/usr/bin/caddy")
        found[caddy] = caddyfile(settings.hub)
    if tls == "nginx":
        found[nginx] = nginx_file(name, settings.hub)
    return found


def _make_folders(folders: Sequence[Path], root: Path) -> None:
    """Make the folders that the units write to, without which they cannot start. ``--remove`` leaves them."""
    for folder in (root / folder.relative_to("/") for folder in folders):
        if not folder.is_dir():
            with named(folder):
                folder.mkdir(parents=True, mode=0o755 if folder.name == "build" else 0o700)
            print(f"made {folder}")


def _make(to_make: Sequence[FileChange], name: str, root: Path) -> None:
    if not to_make:
        return
    is_live = root == Path("/") and Path("/run/systemd/system").is_dir()
    gone = [
        change.path.name for change in to_make if change.after is None and change.path.suffix in (".service", ".timer")
    ]
    if is_live and gone:
        subprocess.run(["systemctl", "disable", "--now", *gone], check=False)
    for change in to_make:
        change.make()
        print(f"{'wrote' if change.after is not None else 'removed'} {change.path}")
    with suppress(OSError):  # it holds a file that we did not write, or was never made
        (root / "etc" / name).rmdir()
    if is_live:
        subprocess.run(["systemctl", "daemon-reload"], check=True)


def _print_next_steps(name: str, tls: str) -> None:
    units = [f"{name}.service", f"{name}-backup.timer", *([f"{name}-tls.service"] if tls == "caddy" else [])]
    print(f"Start them now and at each boot:  systemctl enable --now {' '.join(units)}")
    if tls == "nginx":
        print("Have nginx read its file:         nginx -t && systemctl reload nginx")
