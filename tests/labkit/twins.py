"""A runner of the same calls in a widget's Python model and in its JavaScript twin, which compares the answers."""

from __future__ import annotations

import base64
import json
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Call = tuple[str, str, list[Any]]  # room, name in JavaScript, arguments

RUN = """async (job) => {
  const rooms = {};
  for (const [name, source] of Object.entries(job.sources)) rooms[name] = await import(source);
  const ask = ([room, name, given]) => {
    try { return rooms[room][name](...given); } catch (e) { return { error: e.message }; }
  };
  return job.calls.map(ask);
}"""


def job(sources: Mapping[str, Path], calls: Sequence[Call]) -> dict[str, Any]:
    """Return the arguments of ``RUN``: the models as data URLs, the calls as plain JSON."""
    encoded = {name: base64.b64encode(path.read_bytes()).decode() for name, path in sources.items()}
    return {
        "sources": {name: f"data:text/javascript;base64,{text}" for name, text in encoded.items()},
        "calls": [[room, name, plain(arguments)] for room, name, arguments in calls],
    }


def in_node(sources: Mapping[str, Path], calls: Sequence[Call]) -> list[Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the JavaScript models; install the package nodejs")
    read = "const job = JSON.parse(require('fs').readFileSync(0));"
    code = f"{read} ({RUN})(job).then(answers => console.log(JSON.stringify(answers)))"
    given = json.dumps(job(sources, calls))
    done = subprocess.run([node, "-e", code], input=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def in_python(modules: Mapping[str, Any], call: Call) -> Any:
    """Return the answer of the Python twin; a ValueError becomes its text, as an Error of JavaScript does."""
    room, name, arguments = call
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    try:
        return plain(getattr(modules[room], snake)(*arguments))
    except ValueError as error:
        return {"error": str(error)}


def compare(modules: Mapping[str, Any], calls: Sequence[Call], answers: Sequence[Any]) -> None:
    assert len(answers) == len(calls)
    for call, answer in zip(calls, answers, strict=True):
        expected = in_python(modules, call)
        assert same(answer, expected), f"{call}: Python says {expected}, JavaScript {answer}"


def plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, bool | str | None) or isinstance(b, bool | str | None):
        return bool(a == b) and type(a) is type(b)
    if isinstance(a, dict | list) or isinstance(b, dict | list):
        return False
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
