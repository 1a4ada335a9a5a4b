"""Memory of each lab on Binder: JupyterLab with the lab's solution running in it.

    python benchmarks/lab_memory.py                # all labs; writes results/lab_memory.json,
                                                   # README.md's column and binder/lab_memory.toml
    python benchmarks/lab_memory.py --lab lab03    # one lab; writes nothing

Each lab runs by itself under the bounds of a Binder, 2 GiB and two cores, started by ``binder/start``, its caches
empty: JupyterLab's server, the kernel, whatever the kernel starts (compilers, ranks, interpreters), and what plays the
student. Counted is what such a service counts, the working set: the group's memory less the file cache that the system
would drop, and libraries even where somebody else had them in memory already. A lab that needs more is killed, and
fails. Where nobody may make control groups, nothing is killed, and the proportional set sizes (PSS) of all processes
are added up; the result says which.

Bar: every lab that a Binder offers, in 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from record import write_result

from mlsys_grading.hub.limits import ServerLimits, confine, enforcement, release
from mlsys_grading.lab import Lab, find_root, read_labs
from mlsys_grading.processes import tree_memory_bytes
from mlsys_labkit._base.limits import group_folder, memory_free_bytes, memory_limit_bytes

BINDER = ServerLimits(memory_bytes=2 << 30, cores=2)
COLUMN = "memory, at most"
_EVERY_SECONDS = 0.02
_EVERY_TREE_SECONDS = 0.5  # adding up a tree's PSS takes the kernel a walk over each of its pages
_PATIENCE_SECONDS = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", default="lab", help="only labs whose name starts like this; writes no result")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments.inside)
    root = find_root()
    measured = {lab.name: measure(root, lab) for lab in read_labs(root) if lab.name.startswith(arguments.lab)}
    result = {
        "limit_bytes": BINDER.memory_bytes,
        "cores": BINDER.cores,
        "bounded": str(enforcement()),
        "labs": measured,
    }
    if arguments.lab == "lab":
        write_result("lab_memory", result)
        readme = root / "README.md"
        readme.write_text(with_memory(readme.read_text("utf-8"), peaks(result)), "utf-8")
        (root / "binder/lab_memory.toml").write_text(offers(result), "utf-8")
    return 0 if all(fits(lab) for lab in measured.values()) else 1


def measure(root: Path, lab: Lab) -> dict[str, Any]:
    """Measure one lab, with the memory limit set before its first process starts."""
    import jupytext
    import nbformat

    with tempfile.TemporaryDirectory(prefix="lab-memory-") as name:
        folder = Path(name)
        nbformat.write(jupytext.read(lab.path, fmt="py:percent"), folder / f"{lab.name}.ipynb")
        command = [root / "binder/start", sys.executable, __file__, "--inside", folder / f"{lab.name}.ipynb"]
        held = ["sh", "-c", 'read -r _; exec "$@"', "sh", *map(str, command)]
        with subprocess.Popen(held, cwd=folder, env=_environment(folder), stdin=subprocess.PIPE) as process:
            confine(process.pid, BINDER)
            try:
                process.communicate(b"\n", timeout=_PATIENCE_SECONDS)
            finally:
                process.kill()
                release(process.pid)
        said = folder / "result.json"
        found: dict[str, Any] = json.loads(said.read_text()) if said.exists() else {"error": "killed"}
    print(f"{lab.name:<24} {_in_words(found)}", flush=True)
    return found


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a new user: no caches, and this environment's programs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / ".cache")}


def inside(notebook: Path) -> int:
    """Start the server under the bounds, run the notebook, and keep the largest amount of memory seen meanwhile."""
    import nbformat
    from nbclient import NotebookClient

    with Sampler() as sampler, _server(notebook.parent):
        server = sampler.peak
        started, error = time.perf_counter(), ""
        try:
            NotebookClient(nbformat.read(notebook, as_version=4), timeout=_PATIENCE_SECONDS).execute()
        except Exception as problem:  # any failure is this lab's result
            error = [type(problem).__name__, *filter(None, str(problem).split("\n"))][-1]
        seconds = time.perf_counter() - started
    found = {"peak_bytes": sampler.peak, "server_bytes": server, "seconds": round(seconds, 1), "error": error}
    (notebook.parent / "result.json").write_text(json.dumps(found))
    return 0


class _server:
    """A JupyterLab server, started as Binder starts it; entering waits until the server has written its address."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runtime = folder, folder / "runtime"

    def __enter__(self) -> None:
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--allow-root"]
        environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(self.runtime)}
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, stderr=subprocess.DEVNULL)
        until = time.monotonic() + _PATIENCE_SECONDS
        while not list(self.runtime.glob("jpserver-*.json")):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("JupyterLab did not start; try: jupyter lab --no-browser")
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


class Sampler(threading.Thread):
    """A thread that samples the memory of this process's control group, or of its process tree if it has no group."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._over = 0, threading.Event()
        bounded = memory_limit_bytes() == BINDER.memory_bytes
        self._group = (group_folder("memory") or group_folder(None)) if bounded else None

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_EVERY_SECONDS if self._group else _EVERY_TREE_SECONDS):
            self.peak = max(self.peak, _held(self._group) if self._group else tree_memory_bytes(os.getpid()))


def _held(group: Path) -> int:
    """Return the working set, or anonymous memory plus the libraries of the largest process, if that is more.

    Libraries are charged to whoever read them first, and here that may have been somebody outside.
    """
    working_set = BINDER.memory_bytes - (memory_free_bytes() or 0)
    anonymous = re.search(r"^(?:total_rss|anon) (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
    mapped = max(map(_mapped_bytes, (group / "cgroup.procs").read_text().split()), default=0)
    return max(working_set, int(anonymous[1] if anonymous else 0) + mapped)


def _mapped_bytes(pid: str) -> int:
    try:
        found = re.search(r"^RssFile:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:  # it has ended
        return 0
    return int(found[1]) * 1024 if found else 0


def fits(found: Mapping[str, Any]) -> bool:
    return not found["error"] and found["peak_bytes"] <= BINDER.memory_bytes


def peaks(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of README.md's memory column for each lab: its peak, or "over 2 GiB"."""
    return {
        name: f"{found['peak_bytes'] / 1e9:.1f} GB" if fits(found) else "over 2 GiB"
        for name, found in result["labs"].items()
    }


def offers(result: Mapping[str, Any]) -> str:
    """Return ``binder/lab_memory.toml``, from which `labkit release` decides which labs open on Binder.

    A lab that failed is left out.
    """
    lines = [f"{name} = {found['peak_bytes'] / 2**20:.0f}" for name, found in result["labs"].items() if fits(found)]
    return "\n".join(["# Peak memory of each lab in MiB; benchmarks/lab_memory.py wrote this.", *lines, ""])


def with_memory(readme: str, peaks: Mapping[str, str]) -> str:
    """Return ``readme`` with the memory column in its table of labs; the column is added if there is none."""

    def cells(line: str) -> list[str]:
        return line.strip().strip("|").split("|")

    lines, place = readme.split("\n"), 0
    for number, line in enumerate(lines):
        if line.startswith("| lab |"):
            heads = [cell.strip() for cell in cells(line)]
            place = heads.index(COLUMN) if COLUMN in heads else len(heads)
            lines[number : number + 2] = (_with(cells(line), place, COLUMN), _with(cells(lines[number + 1]), place, ""))
        if place and (found := re.match(r"\| \[.*?\]\(labs/(lab\d\d_\w+)/", line)):
            lines[number] = _with(cells(line), place, peaks[found[1]])
    return "\n".join(lines)


def _with(cells: list[str], place: int, value: str) -> str:
    cells[place : place + 1] = [f" {value} " if value else "---"]
    return f"|{'|'.join(cells)}|"


def _in_words(found: Mapping[str, Any]) -> str:
    if "peak_bytes" not in found:
        return "killed: it needs more than 2 GiB"
    peak, server = (f"{found[name] / 2**20:5.0f} MiB" for name in ("peak_bytes", "server_bytes"))
    trouble = f"; {found['error']}" if found["error"] else ""
    return f"peak {peak}, the server before it {server}; {found['seconds']:.0f} s{trouble}"


if __name__ == "__main__":
    sys.exit(main())
