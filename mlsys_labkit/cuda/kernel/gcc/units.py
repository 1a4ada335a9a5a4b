"""The kit's own C++, compiled in few translation units.

g++ spends more on the standard headers than on most files, so several files make one unit. Names in their unnamed
namespaces must therefore differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlsys_labkit._base import limits
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain


def compile_units(
    sources: Path, units: Mapping[str, Sequence[str]], flags: Sequence[str], folder: Path, toolchain: Toolchain
) -> dict[str, Path]:
    """Compile the C++ files of ``sources`` beside each other and return the object file of each unit.

    ``units`` has the stems of each unit's files. One unit has none: it gets every file that no other has.
    Raises CompilerFailed for a source that g++ refuses, CudaError when the machine fails.
    """
    unit_of = {stem: unit for unit, stems in units.items() for stem in stems}
    rest = next(unit for unit, stems in units.items() if not stems)
    texts = dict.fromkeys(units, "")
    for file in sorted(sources.glob("*.cpp")):
        texts[unit_of.get(file.stem, rest)] += f'#include "{file.name}"\n'
    objects = {unit: folder / f"{unit}.o" for unit in units}

    def compile_unit(unit: str) -> None:
        text = folder / f"{unit}.cpp"
        text.write_text(texts[unit], encoding="utf-8")
        compiler.run(toolchain, [*flags, "-iquote", sources, "-c", text, "-o", objects[unit]], folder)
        text.unlink()

    with compiler.threads(max(1, int(limits.usable_cores()))) as pool:
        for compiled in [pool.submit(compile_unit, unit) for unit in units]:
            compiler.result(compiled)
    return objects
