"""Checksums of a wheelhouse, in the format of sha256sum, so that a copy that is not whole is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write_manifest(wheelhouse: Path) -> None:
    """Write the checksum of each wheel to SHA256SUMS beside the wheels."""
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(wheelhouse.glob("*.whl"))]
    (wheelhouse / NAME).write_text("".join(lines))


def read_manifest(wheelhouse: Path) -> list[Path]:
    """Return the wheels of a whole wheelhouse. Raises ValueError in one line for a copy that is not whole."""
    again = "copy the whole folder again, or run: make wheelhouse"
    try:
        lines = (wheelhouse / NAME).read_text().splitlines()
    except OSError:
        raise ValueError(f"{wheelhouse} has no {NAME}, so it is not whole; {again}") from None
    sums = dict(reversed(line.split("  ", 1)) for line in lines if "  " in line)
    if not sums or len(sums) != len(lines):
        raise ValueError(f"{wheelhouse / NAME} is no list of checksums; {again}")
    there = {path.name: path for path in wheelhouse.glob("*.whl")}
    absent = sorted(sums.keys() - there.keys())
    if absent:
        raise ValueError(
            f"{wheelhouse} is not whole: {len(absent)} of {len(sums)} wheels are absent, {absent[0]} first; {again}"
        )
    if more := sorted(there.keys() - sums.keys()):
        raise ValueError(f"{wheelhouse} holds {more[0]}, which is not in {NAME}; {again}")
    for name, sha256 in sums.items():
        if _sha256(there[name]) != sha256:
            raise ValueError(f"{wheelhouse} is not whole: {name} is damaged; {again}")
    return [there[name] for name in sorted(sums)]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
