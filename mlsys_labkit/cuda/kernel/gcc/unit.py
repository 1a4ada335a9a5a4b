"""The input of one compilation: the student's source, the kernels to make callable, and the options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mlsys_labkit.cuda.cache import digest
from mlsys_labkit.cuda.kernel.gcc.flags import INCLUDES
from mlsys_labkit.cuda.kernel.gcc.headers import included_first
from mlsys_labkit.cuda.program.rewrite import find_kernels, rewrite as rewrite_launches
from mlsys_labkit.cuda.source.clusters import cluster_dimensions, exported_clusters
from mlsys_labkit.cuda.source.includes import included_files, redirected
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
        headers: the headers beside the source, by their path from ``folder``, with their host code left out.
        hosted: whether the source keeps its host code; its launches are compiled, and the linker drops them.
    """

    source: Source
    kernels: tuple[str, ...]
    defines: tuple[tuple[str, str], ...] = ()
    name: str = "kernel.cu"
    folder: Path | None = None
    graded: bool = False
    headers: tuple[tuple[str, Source], ...] = ()
    hosted: bool = False

    def identity(self) -> str:
        """Return a digest of everything that the compiled kernel depends on, headers, compiler and flags aside."""
        files = () if self.headers else included_files(self.source.text, self.folder)
        contents = [part for path in files for part in (str(path), path.read_bytes())]
        contents += [part for name, header in self.headers for part in (name, header.text)]
        options = [part for pair in self.defines for part in pair]
        names = "\n".join(self.kernels)
        marks = f"{self.graded} {self.hosted}"
        return digest(self.source.text, names, "\n".join(options), self.name, marks, *contents)

    def files(self) -> dict[str, str]:
        """Return the files that g++ reads behind the precompiled headers, by name: ``unit.cpp`` and its headers."""
        paths = () if self.headers else included_files(self.source.text, self.folder)
        beside = [Source(path.read_text(encoding="utf-8", errors="replace")) for path in paths]
        sources = [self.source, *(header for _, header in self.headers)]
        before = included_first([*sources, *beside])
        before += [f"#define {name} {value}" for name, value in self.defines]
        dynamic = dict.fromkeys(name for one in sources for name in dynamic_arrays(one))
        behind = module_exports(self.kernels, tuple(dynamic), cluster_dimensions(sources))
        names = {name: f"header{number}.h" for number, (name, _) in enumerate(self.headers)}
        main, *headers = self._rewritten(sources, names)
        lines = [*before, f'#line 1 "{self.name}"', main, f'#line 1 "{EXPORTS}"', *behind, ""]
        own = {names[name]: f'#line 1 "{name}"\n{text}\n' for name, text in zip(names, headers, strict=True)}
        return {"unit.cpp": "\n".join(lines)} | own

    def _rewritten(self, sources: Sequence[Source], names: Mapping[str, str]) -> Iterator[str]:
        kernels = find_kernels(sources) if self.hosted else None
        for source, name in zip(sources, (self.name, *names), strict=True):
            launched = rewrite_launches(source, kernels) if kernels else source
            beside = Path(name).parent if name in names else Path()
            yield redirected(rewrite(launched), beside, names, INCLUDES if self.hosted else ())


def module_exports(
    kernels: Sequence[str], dynamic: Sequence[str], clusters: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the lines behind a source, which export its kernels and bind its dynamic shared arrays to the only one."""
    exports = [f"LK_EXPORT({number}, {kernel})" for number, kernel in enumerate(kernels)]
    exports += exported_clusters(kernels, clusters)
    return [*exports, f"LK_EXPORT_MODULE({len(kernels)})", _dynamic_shared(dynamic)]


def _dynamic_shared(names: Sequence[str]) -> str:
    """Return assembly with the dynamic shared array and all the student's names for it.

    The names are labels without a size: with one they would look like static arrays. It is assembly because no C++
    declaration gives one array several names that also work in templates. A block's shared memory begins at a multiple
    of 1,024 bytes on a GPU, and kernels count on it: a swizzle repeats after as many.
    """
    size = LARGEST_DYNAMIC_BYTES if names else 16
    lines = [
        '.pushsection .tbss,"awT",%nobits',
        ".balign 1024",
        *(line for name in (*names, SYMBOL) for line in (f".globl {name}", f".hidden {name}", f"{name}:")),
        f".type {SYMBOL},%object",
        f".size {SYMBOL},{size}",
        f".zero {size}",
        ".popsection",
    ]
    return f"asm({json.dumps(chr(10).join(lines))});"
