"""The input of one compilation: the student's source, the kernels to make callable, and the options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.cache import digest
from mlsys_labkit.cuda.kernel.gcc.headers import included_first
from mlsys_labkit.cuda.source.includes import included_files
from mlsys_labkit.cuda.source.rewrite import rewrite
from mlsys_labkit.cuda.source.shared import SYMBOL, dynamic_arrays
from mlsys_labkit.cuda.source.source import Source

EXPORTS = "<kernels>"  # the file name of the lines behind the source: line i makes kernel i callable
LARGEST_DYNAMIC_BYTES = 227 << 10  # of shared memory that a block may ask for on sm_90


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

    source: Source
    kernels: tuple[str, ...]
    defines: tuple[tuple[str, str], ...] = ()
    name: str = "kernel.cu"
    folder: Path | None = None
    graded: bool = False

    def identity(self) -> str:
        """Return a digest of everything that the compiled kernel depends on, headers, compiler and flags aside."""
        files = included_files(self.source.text, self.folder)
        contents = [part for path in files for part in (str(path), path.read_bytes())]
        options = [part for pair in self.defines for part in pair]
        names = "\n".join(self.kernels)
        return digest(self.source.text, names, "\n".join(options), self.name, str(self.graded), *contents)

    def text(self) -> str:
        """Return the text that g++ compiles, behind the precompiled headers."""
        paths = included_files(self.source.text, self.folder)
        beside = (Source(path.read_text(encoding="utf-8", errors="replace")) for path in paths)
        before = included_first([self.source, *beside])
        before += [f"#define {name} {value}" for name, value in self.defines]
        behind = module_exports(self.kernels, dynamic_arrays(self.source))
        return "\n".join([*before, f'#line 1 "{self.name}"', rewrite(self.source), f'#line 1 "{EXPORTS}"', *behind, ""])


def module_exports(kernels: Sequence[str], dynamic: Sequence[str]) -> list[str]:
    """Return the lines behind a source, which export its kernels and bind its dynamic shared arrays to the only one."""
    exports = [f"LK_EXPORT({number}, {kernel})" for number, kernel in enumerate(kernels)]
    return [*exports, f"LK_EXPORT_MODULE({len(kernels)})", _dynamic_shared(dynamic)]


def _dynamic_shared(names: Sequence[str]) -> str:
    """Return assembly with the dynamic shared array and all the student's names for it.

    The names are labels without a size: with one they would look like static arrays. It is assembly because no C++
    declaration gives one array several names that also work in templates.
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
