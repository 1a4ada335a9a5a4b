"""What is compiled: the student's source, the kernels to make callable, and all that the result depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.build.cache import digest
from mlsys_labkit.cuda.build.headers import included_first
from mlsys_labkit.cuda.source.rewrite import rewrite
from mlsys_labkit.cuda.source.shared import SYMBOL, dynamic_arrays
from mlsys_labkit.cuda.source.tokens import tokenize

__all__ = ["EXPORTS", "Unit", "included_files", "module_exports"]

EXPORTS = "<kernels>"  # the file name of the lines behind the source: line i makes kernel i callable
LARGEST_DYNAMIC_BYTES = 227 << 10  # of shared memory that a block may ask for on sm_90
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """One source and what to make of it.

    Attributes:
        source: the student's text.
        kernels: expressions that name kernels, such as ``("matmul<16>",)``.
        defines: macros for it, as ``-D`` would set them.
        name: the file name that errors and line tables use.
        folder: where ``#include "..."`` looks; None for nowhere.
        graded: whether the counters are marks.
    """

    source: str
    kernels: tuple[str, ...]
    defines: tuple[tuple[str, str], ...] = ()
    name: str = "kernel.cu"
    folder: Path | None = None
    graded: bool = False

    def identity(self) -> str:
        """Changes with anything that the compiled kernel depends on, headers, compiler and flags aside."""
        files = included_files(self.source, self.folder)
        contents = [part for path in files for part in (str(path), path.read_bytes())]
        options = [part for pair in self.defines for part in pair]
        return digest(self.source, "\n".join(self.kernels), "\n".join(options), self.name, str(self.graded), *contents)

    def text(self) -> str:
        """What g++ compiles, behind the precompiled headers."""
        beside = (
            path.read_text(encoding="utf-8", errors="replace") for path in included_files(self.source, self.folder)
        )
        before = included_first([self.source, *beside])
        before += [f"#define {name} {value}" for name, value in self.defines]
        behind = module_exports(self.kernels, dynamic_arrays(tokenize(self.source)))
        return "\n".join([*before, f'#line 1 "{self.name}"', rewrite(self.source), f'#line 1 "{EXPORTS}"', *behind, ""])


def module_exports(kernels: Sequence[str], dynamic: Sequence[str]) -> list[str]:
    """The lines behind a source: its kernels made callable, its dynamic shared arrays bound to the one there is."""
    exports = [f"LK_EXPORT({number}, {kernel})" for number, kernel in enumerate(kernels)]
    return [*exports, f"LK_EXPORT_MODULE({len(kernels)})", _dynamic_shared(dynamic)]


def _dynamic_shared(names: Sequence[str]) -> str:
    """The array, and the student's names for it: labels without a size, or they would look like static arrays.

    Written in assembly, since no declaration in C++ gives one array several names that work in templates, too.
    """
    size = LARGEST_DYNAMIC_BYTES if names else 16
    lines = [
        '.pushsection .tbss,"awT",%nobits',
        ".balign 128",
        *(line for name in (*names, SYMBOL) for line in (f".globl {name}", f".hidden {name}", f"{name}:")),
        f".type {SYMBOL},%object",
        f".size {SYMBOL},{size}",
        f".zero {size}",
        ".popsection",
    ]
    return f"asm({json.dumps(chr(10).join(lines))});"


def included_files(source: str, folder: Path | None) -> tuple[Path, ...]:
    """Files beside the source that it includes in quotes, and what they include."""
    found: dict[Path, None] = {}
    waiting = [(source, folder)]
    while waiting and folder is not None:
        text, beside = waiting.pop()
        for name in _INCLUDE.findall(text):
            for base in (beside, folder):
                path = (base / name).resolve() if base else None
                if path and path.is_file():
                    if path not in found:
                        found[path] = None
                        waiting.append((path.read_text(encoding="utf-8", errors="replace"), path.parent))
                    break
    return tuple(found)
