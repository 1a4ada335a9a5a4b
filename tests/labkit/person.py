"""A person at a notebook: a real kernel, and requests to run cells as JupyterLab or a program sends them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
from jupyter_client.manager import KernelManager

from tests.conftest import ROOT

DEADLINE_SECONDS = 300
LAB = "lab00_your_machine"


def handed_out(lab: str = LAB) -> dict[str, Any]:
    """Return the student's notebook as JSON."""
    return dict(json.loads((ROOT / "labs" / lab / f"{lab}.ipynb").read_text("utf-8")))


def cells_of(lab: str = LAB) -> dict[str, str]:
    """Return the text of the student's cells, by id."""
    return {cell["id"]: "".join(cell["source"]) for cell in handed_out(lab)["cells"]}


def solved(lab: str = LAB) -> dict[str, str]:
    """Return the text of the author's cells by grade_id: right answers, and tests with their hidden part."""
    notebook = jupytext.read(ROOT / "solutions" / lab / f"{lab}.py")
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in notebook.cells if "nbgrader" in cell.metadata}


@dataclass(frozen=True)
class Answer:
    """The reply to a cell: its output as text, ``stderr``, the bundle it ended in, and its error's name."""

    text: str
    stderr: str
    data: Mapping[str, Any]
    error: str


class Person:
    """A kernel and its front end. ``sends_ids`` and ``can_type`` describe the front end."""

    def __init__(self, manager: KernelManager, *, sends_ids: bool = True, can_type: bool = True) -> None:
        self.manager, self.sends_ids, self.can_type = manager, sends_ids, can_type
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(DEADLINE_SECONDS)

    def run(self, source: str, cell: str = "") -> Answer:
        """Run ``source``; ``cell`` is its id in the notebook."""
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}}
        message = self.client.session.msg(
            "execute_request", {**content, "allow_stdin": self.can_type, "stop_on_error": False}
        )
        if self.sends_ids and cell:
            message["metadata"]["cellId"] = cell
        self.client.shell_channel.send(message)
        text, stderr, error, data = "", "", "", {}
        while True:
            told = self.client.get_iopub_msg(timeout=DEADLINE_SECONDS)
            if told["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            kind, said = told["msg_type"], told["content"]
            if kind == "stream":
                text, stderr = (
                    (text + said["text"], stderr) if said["name"] == "stdout" else (text, stderr + said["text"])
                )
            elif kind in ("execute_result", "display_data"):
                data = said["data"]
            elif kind == "error":
                error = said["ename"]
            elif kind == "status" and said["execution_state"] == "idle":
                return Answer(text, stderr, data, error)

    def states(self) -> dict[str, str]:
        """Return task -> state, as the panel's Python has it."""
        said = self.run("import json; print(json.dumps({t.task.name: t.state for t in lk.progress().now.tasks}))")
        assert not said.error, said
        return dict(json.loads(said.text))

    def panel(self) -> str:
        """Return the text of ``lk.progress()``."""
        return str(self.run("lk.progress()").data["text/plain"])

    def restart(self) -> None:
        self.manager.restart_kernel(now=True)
        self.client.wait_for_ready(DEADLINE_SECONDS)


@contextmanager
def at(
    notebook: Path | None, home: Path, *, sends_ids: bool = True, can_type: bool = True, **environment: str
) -> Iterator[Person]:
    """Start a kernel whose front end names ``notebook`` as the one that runs; with None it names no notebook."""
    own = {"HOME": str(home), "IPYTHONDIR": str(home / ".ipython"), "PYTHONPATH": str(ROOT)}
    own |= {"JPY_SESSION_NAME": str(notebook)} if notebook else {}
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("JPY_SESSION_NAME", "XDG_DATA_HOME", "LABKIT_RELEASE")
    }
    home.mkdir(parents=True, exist_ok=True)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**inherited, **own, **environment}, cwd=str(home))
    try:
        yield Person(manager, sends_ids=sends_ids, can_type=can_type)
    finally:
        manager.shutdown_kernel(now=True)


def kept(home: Path) -> list[Path]:
    """Return the files of the progress folder in ``home``."""
    return sorted((home / ".local/share/mlsys-labkit").rglob("*.*"))
