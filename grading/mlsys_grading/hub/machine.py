"""Checks of the machine under a Hub: user ids, control groups, a sandbox, a clock, matching programs."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mlsys_grading.hub.limits import enforcement
from mlsys_grading.hub.settings import HubSettings
from mlsys_grading.sandbox.confine import refusal
from mlsys_labkit._frontends.doctor import CheckResult, Status

_IDS = 65_536
_TIME_ERROR = 5  # adjtimex(2): nothing keeps the clock right
_TIMEX_BYTES = 512  # struct timex is smaller; all zeros only asks
_SHM_BYTES = 1 << 30
_EXTENSIONS = ("@jupyter/nbgrader", "@jupyter-widgets/jupyterlab-manager")


def finding(name: str, problem: str, mend: str, well: str = "", status: Status = "broken") -> CheckResult:
    """Build a finding: ``problem`` and how to mend it, or ``well`` if there is no problem."""
    return CheckResult(name, status, problem, mend) if problem else CheckResult(name, "ok", well)


def user_ids(settings: HubSettings | None = None) -> Iterator[CheckResult]:
    if os.geteuid() == 0:
        lent = sum(int(row.split()[2]) for row in Path("/proc/self/uid_map").read_text().splitlines())
        counted = f"{lent} to give to people"
        yield finding("user ids", "" if lent >= _IDS else counted, f"lend {_IDS} in /etc/subuid", counted)
        return
    name = pwd.getpwuid(os.getuid()).pw_name
    problem, mend = _no_lent_ids(name)
    yield finding("user ids", problem, mend, f"lent to {name} by /etc/subuid")


def _no_lent_ids(name: str) -> tuple[str, str]:
    """Return the reason why ``name`` has no user ids to give to people, and how to mend it; "" if they are there."""
    for file in ("/etc/subuid", "/etc/subgid"):
        if lent_by(Path(file), name) < _IDS:
            mend = f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}; or start as root"
            return f"{file} lends {name} none: people need one each", mend
    for program in ("newuidmap", "newgidmap", "unshare"):
        if not shutil.which(program):
            mend = "apt install uidmap util-linux (or your system's shadow-utils), or start as root"
            return f"there is no {program}", mend
    command = ["unshare", "--user", "--map-root-user", "--map-auto", "--setgroups", "allow", "true"]
    made = subprocess.run(command, capture_output=True, text=True)
    lines = made.stderr.strip().splitlines() or ["no user namespace can be made"]
    mend = "allow user namespaces (sysctl user.max_user_namespaces), or start as root"
    return lines[-1] if made.returncode else "", mend


def lent_by(file: Path, name: str) -> int:
    """Count the ids that a file like subuid(5) lends to ``name``."""
    try:
        rows = [line.strip().split(":") for line in file.read_text().splitlines() if line.count(":") == 2]
    except OSError:
        return 0
    return sum(int(count) for owner, _, count in rows if owner in (name, str(os.getuid())) and count.isdigit())


def limits(settings: HubSettings) -> Iterator[CheckResult]:
    if any(each.spawner == "local" and (each.memory_gib or each.cpus) for each in settings.profiles):
        found = enforcement()
        missing = not set(found.folders) >= {"memory", "cpu"}
        problem = f"{found}: no control group is ours to divide ({found.why_not})" if missing else ""
        mend = "nothing has to be mended; for exact limits: systemd-run --scope -p Delegate=yes make hub"
        yield finding("limits", problem, mend, str(found), "absent")


def sandbox(settings: HubSettings) -> Iterator[CheckResult]:
    problem = f"grading runs without one: {why}" if (why := refusal()) else ""
    mend = "allow user and mount namespaces, or grade elsewhere"
    yield finding("sandbox", problem, mend, "submissions are graded in one", "absent")


def clock(settings: HubSettings) -> Iterator[CheckResult]:
    newest = max(Path(file).stat().st_mtime for file in (__file__, sys.executable))
    if (now := time.time()) < newest - 86_400:
        problem = f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(now))} is before this program was installed"
        yield finding("clock", problem, "set the clock: deadlines, cookies and tokens go by it")
        return
    wrong = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) == _TIME_ERROR
    mend = "deadlines go by it: install chrony or systemd-timesyncd"
    yield finding("clock", "nothing keeps it right" if wrong else "", mend, "kept right by a time service", "absent")


def shared_memory(settings: HubSettings, folder: Path = Path("/dev/shm")) -> Iterator[CheckResult]:
    if not folder.is_dir():
        yield finding("/dev/shm", "there is none", "mount -t tmpfs tmpfs /dev/shm")
        return
    size = shutil.disk_usage(folder).total
    mend = "mount -o remount,size=4G /dev/shm, or docker run --shm-size=4g: data loaders and NCCL use it"
    problem = f"{size >> 20} MiB" if size < _SHM_BYTES else ""
    yield finding("/dev/shm", problem, mend, f"{size / 2**30:.0f} GiB", "absent")


def extensions(settings: HubSettings) -> Iterator[CheckResult]:
    """Check both sides of each extension: JupyterLab's folders and the server's configuration."""
    from jupyter_core.paths import jupyter_path
    from jupyter_server.extension.config import ExtensionConfigManager

    known = [Path(place, "labextensions") for place in jupyter_path()]
    for name in _EXTENSIONS:
        found = any((place / name / "package.json").is_file() for place in known)
        mend = "pip install --force-reinstall nbgrader jupyterlab-widgets"
        yield finding(name, "" if found else "not installed in JupyterLab", mend, "in JupyterLab")
    paths = [str(settings.singleuser), *_configured()]
    enabled = ExtensionConfigManager(read_config_path=paths).get_jpserver_extensions()  # type: ignore[no-untyped-call]
    is_on = enabled.get("nbgrader.server_extensions.validate_assignment", enabled.get("nbgrader"))
    mend = "jupyter server extension enable --sys-prefix nbgrader"
    yield finding("nbgrader", "" if is_on else "its server extension is off", mend, "its server extension is on")


def _configured() -> list[str]:
    from jupyter_core.paths import jupyter_config_path

    return [os.path.join(place, "jupyter_server_config.d") for place in jupyter_config_path()] + jupyter_config_path()


def versions(settings: HubSettings) -> Iterator[CheckResult]:
    """Check that the Hub and the servers have the same major version of JupyterHub."""
    import jupyterhub

    here = Path(sys.executable).parent
    program = shutil.which("jupyterhub-singleuser", path=f"{here}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        problem = f"there is no jupyterhub-singleuser in {here} or on PATH"
        yield finding("jupyterhub", problem, "pip install 'mlsys-grading[hub]'")
        return
    ours = jupyterhub.__version__
    servers = ours if _is_of_this_environment(Path(program)) else _version(program)
    same = servers.partition(".")[0] == ours.partition(".")[0]
    detail = f"{ours} here, {servers} in servers ({program})"
    yield finding("jupyterhub", "" if same else detail, f"install jupyterhub {ours} there", detail)


def _is_of_this_environment(script: Path) -> bool:
    """Compare the interpreter in the script's first line with ours: to ask the program itself takes seconds."""
    with open(script, "rb") as file:
        interpreter = file.readline(4096).removeprefix(b"#!").split()[:1]
    return bool(interpreter) and Path(os.fsdecode(interpreter[0])).parent == Path(sys.executable).parent


def _version(program: str) -> str:
    words = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split()
    return words[-1] if words else "no version"


CHECKS = (user_ids, limits, sandbox, clock, shared_memory, extensions, versions)
