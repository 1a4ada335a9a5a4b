#!/usr/bin/env python3
"""Script that copies the files of ``singleuser/`` into ``values.yaml``, for the chart; run it after a change to one.

They are the source for both Hubs: `make hub` reads the folder itself. The script needs only Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BEGIN, END = "    # >>> singleuser/, written by embed.py", "    # <<< singleuser/"
FILES = (
    "jupyter_server_config.py",
    "nbgrader_config.py",
    "labconfig/default_setting_overrides.json",
    "labconfig/page_config.json",
)  # course/ is in the course's image


def block(folder: Path) -> str:
    """Return the lines between the two marks, for ``singleuser.extraFiles``."""
    lines = [BEGIN]
    for name in FILES:
        lines += [f"    {name.replace('/', '-')}:", f"      mountPath: /etc/jupyter/{name}", "      stringData: |"]
        text = (folder / name).read_text(encoding="utf-8")
        lines += [f"        {line}".rstrip() for line in text.splitlines()]
    return "\n".join([*lines, END])


def embedded(values: str, folder: Path) -> str:
    """Return ``values`` with its block replaced by that of ``folder``."""
    before, _, rest = values.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"values.yaml has lost its marks: expected a line {BEGIN.strip()!r} and one {END.strip()!r}")
    return before + block(folder) + after


if __name__ == "__main__":
    path = HERE / "values.yaml"
    was = path.read_text(encoding="utf-8")
    now = embedded(was, HERE / "singleuser")
    path.write_text(now, encoding="utf-8")
    sys.stdout.write("values.yaml is unchanged\n" if now == was else "values.yaml: singleuser/ written\n")
