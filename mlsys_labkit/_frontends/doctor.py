"""``labkit doctor``: what works on this machine, what does not, and how to mend it.

Other distributions examine more by the entry-point group ``mlsys_labkit.doctors``: a function from the option's
argument to findings. ``--hub`` is mlsys-grading's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from mlsys_labkit.errors import LabkitError

GROUP = "mlsys_labkit.doctors"
COMPILER = "c++ compiler"
READY = {"": "Ready: every lab can be worked through here.", "hub": "Ready: the Hub can start here."}
Status = Literal["ok", "absent", "broken"]
MARKS = {"ok": "✓", "absent": "·", "broken": "✗"}


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. ``absent``: a feature cannot be used here; ``broken``: the labs do not run."""

    name: str
    status: Status
    detail: str
    mend: str = ""


def examine() -> list[CheckResult]:
    """Run all checks of this machine. A check that raises an exception becomes a finding."""
    findings: list[CheckResult] = []
    for look in (_python, _packages, _machine, _gpu, _compiler, _kernel, _disk):
        try:
            findings += look()
        except Exception as error:
            findings.append(CheckResult(look.__name__.strip("_"), "broken", f"{type(error).__name__}: {error}"))
    return findings


def _required(name: str, good: bool, detail: str, mend: str) -> CheckResult:
    """Return the finding about something without which the labs do not run."""
    return CheckResult(name, "ok", detail) if good else CheckResult(name, "broken", detail, mend)


def _python() -> Iterator[CheckResult]:
    where = f"{platform.python_version()} at {sys.executable}"
    yield _required("python", sys.version_info >= (3, 11), where, "install 3.11+")


# distribution, what needs it, extra, True if the labs cannot run without it
PACKAGES = (
    ("numpy", "everything", "", True),
    ("torch", "labs 00, 01, 05 and up", "torch", True),
    ("ipywidgets", "widgets in JupyterLab", "widgets", True),
    ("anywidget", "widgets in JupyterLab", "widgets", True),
    ("plotly", "figures", "widgets", True),
    ("jupyterlab", "opening the labs", "labs", True),
    ("triton", "Triton kernels", "gpu", False),
    ("nvidia-ml-py", "GPU clocks and limits", "gpu", False),
    ("mlsys-grading", "labkit build, run and prove", "grading", False),
)


def _packages() -> Iterator[CheckResult]:
    for name, needed_for, extra, needed in PACKAGES:
        try:
            yield CheckResult(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            mend = f"pip install 'mlsys-labkit[{extra}]'" if extra else f"pip install {name}"
            yield CheckResult(name, "broken" if needed else "absent", f"not installed; needed for {needed_for}", mend)


def _machine() -> Iterator[CheckResult]:
    from mlsys_labkit._base.limits import memory_free_bytes, usable_cores

    cores, free = usable_cores(), memory_free_bytes()
    share = f"{cores:g} of {os.cpu_count()}"
    yield CheckResult("cores", "ok", f"{share} usable by this process (affinity and cgroup quota)")
    if free is None:
        yield CheckResult("memory", "absent", "free memory cannot be read here", "pip install psutil to see it")
        return
    mend = "the labs want 2 GiB: close other kernels, or choose a larger server"
    yield _required("memory", free >= 2 * 2**30, f"{free / 2**30:.1f} GiB free for this process", mend)


def _gpu() -> Iterator[CheckResult]:
    from mlsys_labkit.device import detect

    device = detect()
    if device.virtual:
        yield CheckResult("device", "ok", device.label, "unset LABKIT_DEVICE to see the real machine")
    elif device.kind == "cuda":
        yield CheckResult("device", "ok", device.label)
    else:
        mend = "nothing to mend: every mark can be earned here"
        yield CheckResult("device", "absent", f"no GPU; the labs run on {device.label}", mend)


def _compiler() -> Iterator[CheckResult]:
    from mlsys_labkit.cuda.errors import CudaError
    from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain

    try:
        found = find_toolchain()
    except CudaError as error:
        what, _, mend = str(error).partition("; ")
        yield CheckResult(COMPILER, "absent", what, mend)
    else:
        yield CheckResult(COMPILER, "ok", f"{' '.join(found.command)} {found.version}")


def _kernel() -> Iterator[CheckResult]:
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ModuleNotFoundError:
        return
    install = f"{sys.executable} -m ipykernel install --sys-prefix"
    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        yield CheckResult("kernel python3", "broken", "not registered", install)
        return
    command = spec.argv[0]  # Jupyter reads a bare "python" as the interpreter that it runs in itself
    interpreter = sys.executable if command.startswith("python") else command
    same = Path(interpreter).absolute() == Path(sys.executable).absolute()
    yield _required("kernel python3", same, interpreter, f"it runs another Python: {install}")


def _disk() -> Iterator[CheckResult]:
    for name, place in (("this folder", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(place).free
        if not os.access(place, os.W_OK):
            yield CheckResult(name, "broken", f"{place} is read-only", "copy the labs to a folder that you can write")
        elif free < 2**30:
            yield CheckResult(
                name, "broken", f"{free / 2**20:.0f} MiB left in {place}", "free 1 GiB, or work elsewhere"
            )
        else:
            yield CheckResult(name, "ok", f"{free / 2**30:.0f} GiB left in {place}")


def examine_more(what: str, argument: str) -> list[CheckResult]:
    """Run the checks of another distribution. Raises LabkitError where none is installed that checks ``what``."""
    try:
        (point,) = metadata.entry_points(group=GROUP, name=what)
        look = point.load()
    except (ValueError, ImportError) as error:
        missing = error.name if isinstance(error, ImportError) else "mlsys-grading"
        raise LabkitError(
            f"doctor --{what}: {missing} is not installed; run: pip install 'mlsys-grading[{what}]'"
        ) from None
    return list(look(argument))


def report(findings: list[CheckResult], ready: str = READY[""]) -> str:
    """Format the findings as text: a line for each, and below it what to do."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{MARKS[finding.status]} {finding.name:<{width}}  {finding.detail}")
        if finding.mend:
            lines.append(f"  {'':<{width}}  → {finding.mend}")
    broken = sum(finding.status == "broken" for finding in findings)
    if any(finding.name == COMPILER and finding.status != "ok" for finding in findings):
        ready = "Ready, except for the labs with CUDA kernels (03, 04, 09 and 10): they need the compiler."
    lines += ["", f"{broken} to mend: follow the arrows." if broken else ready]
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    what = "" if arguments.hub is None else "hub"
    findings = examine_more(what, arguments.hub) if what else examine()
    healthy = not any(finding.status == "broken" for finding in findings)
    if arguments.json:
        print(json.dumps({"ready": healthy, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print(report(findings, READY[what]))
    return 0 if healthy else 1


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``doctor`` to the ``labkit`` command."""
    parser = verbs.add_parser("doctor", help="list what works on this machine, what does not, and how to correct it")
    parser.add_argument(
        "--hub",
        nargs="?",
        const="",
        metavar="SETTINGS",
        help="check what a JupyterHub with these settings needs; default: binder/hub/hub.toml of the checkout",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)
