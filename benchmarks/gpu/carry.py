"""Bytes that travel to a machine without a network: the working tree and the wheelhouse, against the limit of both.

Files are counted as a tar archive holds them: in blocks of 512 bytes, behind a header of one block.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

LIMIT = 64 << 20


@dataclass(frozen=True)
class Load:
    """Sizes in bytes. ``tree`` are the files that git tracks or would track, ``wheels`` those of the wheelhouse."""

    tree: int
    wheels: int
    count: int

    @property
    def fits(self) -> bool:
        return self.tree + self.wheels <= LIMIT

    def __str__(self) -> str:
        wheels = f"{self.count} wheels of {_mib(self.wheels)} MiB" if self.count else "no wheelhouse"
        said = f"{wheels} and a working tree of {_mib(self.tree)} MiB"
        return f"{said}: {_mib(self.tree + self.wheels)} of {_mib(LIMIT)} MiB"


def load(root: Path, wheelhouse: Path) -> Load:
    """Measure what a transfer of the checkout with its wheelhouse carries."""
    wheels = [_packed(path) for path in wheelhouse.glob("*.whl")]
    return Load(sum(map(_packed, _files(root))), sum(wheels), len(wheels))


def _packed(path: Path) -> int:
    return 512 + -(-path.stat().st_size // 512) * 512


def _files(root: Path) -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        said = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
        paths = {root / name for name in said.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):  # a copy of the tree without its history
        left_out = {".git", "build", "node_modules", ".venv"}
        paths = {path for path in root.rglob("*") if not left_out & set(path.relative_to(root).parts)}
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
