"""Tests that cells do the same in a real kernel and as graded: magics, input, display, threads, event loops.

The oracle is Jupyter itself: one notebook with all idioms, executed by nbclient as nbgrader does. The same cells go
through the graders' own door as a submission, and the tests of its source say what came of each. An idiom is a few
cells of which one binds ``outcome``; in ``kernel_calls.txt`` it defines ``f``, which a test calls.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client import AsyncKernelClient, AsyncKernelManager
from jupyter_client.channels import AsyncZMQSocketChannel
from nbclient import NotebookClient

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.time_limits import TimeLimits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]
FIXTURES = Path(__file__).parent / "fixtures"
MODULES = (
    "mlsys_grading.kernel.started",
    "numpy",
    "torch",
    "IPython",
    "mlsys_labkit",
    "mlsys_labkit.widgets",
    "plotly.graph_objects",
    "ipywidgets",
    "mlsys_grading.examine.examiner",
    "mlsys_grading.boundary.student",
)
KEEP = "outcomes[{name!r}] = globals().pop('outcome', 'not bound')"
CALL = """
try:
    got = call_{at}()
except BaseException as error:
    got = str(error)[:60]
"""


def idioms(name: str) -> dict[str, list[str]]:
    parts = re.split(r"^=== (.+)\n", (FIXTURES / name).read_text(), flags=re.MULTILINE)[1:]
    return {title: text.rstrip("\n").split("\n---\n") for title, text in zip(parts[::2], parts[1::2], strict=True)}


CELLS = idioms("kernel_cells.txt")
CALLS = {
    name: cells[0].replace("def f(", f"def call_{at}(")
    for at, (name, cells) in enumerate(idioms("kernel_calls.txt").items())
}


@dataclass
class Seen:
    """The result of each idiom: its outcome, and the names of the errors that its cells ended in."""

    outcomes: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)


def own_cells() -> list[tuple[str, str]]:
    """Return (name, source) of every cell of the first table; the cells that keep the outcome have no name."""
    cells = [("", "outcomes = {}")]
    for name, sources in CELLS.items():
        cells += [(name, source) for source in sources]
        cells.append(("", KEEP.format(name=name)))
    return cells


class Wakeful(AsyncZMQSocketChannel):
    """A channel that looks for a reply every second.

    nbclient answers an ``Output`` widget on the channel where it waits for the cell's reply. A reply that comes at that
    moment does not wake it. Reference: https://github.com/jupyter/nbclient/issues/312
    """

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        left = float("inf") if timeout is None else timeout
        while left > 1:
            with suppress(Empty):
                return await super().get_msg(1)
            left -= 1
        return await super().get_msg(left)


class WakefulClient(AsyncKernelClient):
    shell_channel_class = Wakeful


class WakefulManager(AsyncKernelManager):
    client_factory = WakefulClient


@pytest.fixture(scope="module")
def jupyter_kernel(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    cells = own_cells()
    for at, (name, source) in enumerate(CALLS.items()):
        cells += [("", source), ("", CALL.format(at=at) + f"outcomes[{name!r}] = got")]
    cells.append(("", "import json\nprint('TOLD' + json.dumps(outcomes, default=repr))"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for _, source in cells])
    folder = {"metadata": {"path": str(tmp_path_factory.mktemp("real"))}}
    NotebookClient(
        notebook,
        timeout=600,
        allow_errors=True,
        kernel_name="python3",
        resources=folder,
        kernel_manager_class=WakefulManager,
    ).execute()
    seen = Seen()
    for (name, _), cell in zip(cells, notebook.cells, strict=True):
        for output in cell.outputs:
            if name and (error := error_of(output)):
                seen.errors.setdefault(name, []).append(error)
    told = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    seen.outcomes = json.loads(told.partition("TOLD")[2])
    return seen


def error_of(output: Any) -> str:
    if output.output_type == "error":
        return str(output.ename)
    usage = output.get("name") == "stderr" and output.text.startswith("UsageError")  # shown without a traceback
    return "UsageError" if usage else ""


def code(source: str, **nbgrader: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {"nbgrader": nbgrader} if nbgrader else {}}


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with fork_server(MODULES) as made:
        yield made


def examine(server: ForkServer, source: list[Any], submission: list[Any]) -> Examined:
    examined = examine_submission(server, make_plan(source, submission), None, TimeLimits(20, 60, 300), Sandbox())
    assert not examined.trouble
    return examined


@pytest.fixture(scope="module")
def graded(server: ForkServer) -> Seen:
    cells = own_cells()
    told = code(
        "import json\ndef told(name): return json.dumps(outcomes[name], default=repr)", grade_id="told", solution=True
    )
    source, submission = [told], [*(code(each) for _, each in cells), told]
    source += [code(f"assert False, told({name!r})", grade_id=name, grade=True, points=1) for name in CELLS]
    for at, (name, text) in enumerate(CALLS.items()):
        solution = code(text, grade_id=f"solution {name}", solution=True)
        test = CALL.format(at=at) + "import json\nassert False, json.dumps(got)"
        source += [solution, code(test, grade_id=f"call {name}", grade=True, points=1)]
        submission.append(solution)
    examined = examine(server, source, submission)
    assert examined.restarts == 0
    seen = Seen()
    for verdict in examined.marks:
        said = verdict.error.removeprefix("AssertionError: ")
        try:
            seen.outcomes[verdict.name.removeprefix("call ")] = json.loads(said)
        except ValueError:
            seen.outcomes[verdict.name.removeprefix("call ")] = verdict.error
    for at, (name, _) in enumerate(cells):
        if name and f"cell {at}" in examined.failed_cells:
            seen.errors.setdefault(name, []).append(examined.failed_cells[f"cell {at}"].partition(":")[0])
    return seen


@pytest.mark.parametrize("name", CELLS)
def test_cells_have_the_same_outcome_as_in_a_kernel(jupyter_kernel: Seen, graded: Seen, name: str) -> None:
    assert graded.outcomes[name] == jupyter_kernel.outcomes[name]
    assert graded.errors.get(name, []) == jupyter_kernel.errors.get(name, [])


@pytest.mark.parametrize("name", CALLS)
def test_calls_have_the_same_outcome_as_in_a_kernel(jupyter_kernel: Seen, graded: Seen, name: str) -> None:
    assert graded.outcomes[name] == jupyter_kernel.outcomes[name]


def descriptors(pid: int) -> list[str]:
    return [os.readlink(each) for each in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda each: int(each.name))]


def test_the_server_has_one_thread_and_no_descriptor_but_its_own(server: ForkServer, graded: Seen) -> None:
    """A fork of two threads may hang, and open files would be open in every submission."""
    assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
    open_files = descriptors(server.pid)[3:]
    assert len(open_files) == 2  # to the grader, and to the guard; a submission has neither
    assert all(one.startswith("socket:") for one in open_files)


COUNTS = """
import os, re, subprocess, sys
import numpy as np, torch
def threads():
    a = torch.ones(1500, 1500, requires_grad=True)
    (a @ a).sum().backward()
    np.ones((1500, 1500)) @ np.ones((1500, 1500))
    return [torch.get_num_threads(), int(re.search("Threads:(.*)", open("/proc/self/status").read())[1])]
def threads_of_a_program():
    work = '''if True:
        import time, numpy as n
        a, before = n.ones((1500, 1500)), (time.process_time(), time.thread_time())
        a @ a
        print(round((time.process_time() - before[0]) / (time.thread_time() - before[1])))'''
    return int(subprocess.run([sys.executable, "-c", work], capture_output=True, text=True).stdout)
"""


def test_a_confined_process_computes_in_one_thread(server: ForkServer) -> None:
    """As many submissions as processors run at a time, so thread pools would compete."""
    solution = code(COUNTS, grade_id="counts", solution=True)
    here = (
        "import re, numpy as np\nnp.ones((999, 999)) @ np.ones((999, 999))\n"
        "mine = int(re.search('Threads:(.*)', open('/proc/self/status').read())[1])"
    )
    test = f"{here}\nassert (threads(), threads_of_a_program(), mine) == ([1, 1], 1, 1), (threads(), mine)"
    source = [solution, code(test, grade_id="test", grade=True, points=1)]
    (verdict,) = examine(server, source, source).marks
    assert verdict.passed, verdict.error


def test_exit_in_a_cell_loses_only_that_cell(server: ForkServer) -> None:
    """A real kernel would end here, and every mark would be lost."""
    solution = code("def f(): return 3\nquit()", grade_id="f", solution=True)
    source = [solution, code("assert f() == 3", grade_id="test", grade=True, points=1)]
    examined = examine(server, source, [code("exit"), code("quit()"), solution])
    assert examined.points == 1
    assert examined.restarts == 0


def test_changes_to_the_kernel_do_not_reach_the_examiner(server: ForkServer) -> None:
    """The examiner has another kernel, shell, session and event loop."""
    attack = textwrap.dedent("""
        import asyncio, builtins
        ip = get_ipython()
        type(ip.kernel).execute = type(ip.kernel).do_execute = type(ip).run_cell = lambda *a, **k: None
        ip.kernel.session.send = ip.kernel.set_parent = lambda *a, **k: None
        ip.events.register("post_run_cell", lambda result: setattr(result, "error_in_exec", None))
        ip.ast_transformers.append(type("No", (), {"visit": lambda self, node: type(node)([], [])})())
        asyncio.get_running_loop().call_soon(lambda: setattr(ip.user_ns, "x", 1))
    """)
    solution = code("def f(): return 3", grade_id="f", solution=True)
    wrong = code(f"def f(): return 4\n{attack}", grade_id="f", solution=True)
    source = [solution, code("assert f() == 3", grade_id="test", grade=True, points=1)]
    assert examine(server, source, [code(attack), wrong]).points == 0
    assert examine(server, source, source).points == 1
