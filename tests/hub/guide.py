"""The operators' guide, and the commands in it that tests execute."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "binder/hub/OPERATORS.md").read_text(encoding="utf-8")
TESTED = dict(re.findall(r"<!-- tested: (\S+) -->\n```sh\n(.*?)```", GUIDE, re.DOTALL))


def run(name: str, cwd: Path = ROOT, shell: str = "sh", **environment: object) -> str:
    """Run the guide's commands of that name, each of which has to succeed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told = {"PATH": path} | {key: str(value) for key, value in environment.items()}
    done = subprocess.run(
        [shell, "-eu", "-c", TESTED[name]],
        env={**os.environ, **told}, cwd=cwd, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
