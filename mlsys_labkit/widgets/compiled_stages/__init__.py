"""Compiled stages: the lines of a Triton kernel beside the code that each stage of the compiler makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.compiled_stages import model

if TYPE_CHECKING:
    from mlsys_labkit.triton_trace.compile.compiled import Compiled
    from mlsys_labkit.triton_trace.recorder import Line

BUDGET = 10_000  # characters per stage: a saved notebook holds them twice
WIDEST = 160  # characters per line: an instruction of tensor cores in LLVM IR names hundreds of registers
NAMES = {"ttir": "TTIR", "ttgir": "TTGIR", "llir": "LLVM IR", "ptx": "PTX"}
_MLIR = (r' ?loc\((?:#loc\w*|unknown|"[^"]*"\(#loc\w*\))\)', r"^#loc.*")
_NOISE = {
    "ttir": _MLIR,
    "ttgir": _MLIR,
    "llir": (r", !dbg !\d+", r"^(?:;|!|source_filename|attributes|target|declare).*"),
    "ptx": (r"^\s*//.*", r"^\s*\.(?:loc|file|section|b8|b32|b64)\b.*", r"\s*//.*$"),
}


def compiled_stages(compiled: Compiled, *, line: int | None = None, show: str = "all") -> Any:
    """Show a kernel's source and the four stages of ``compile_for``, with one source line highlighted in each.

    Long runs of one line's instructions are cut, so that a saved notebook stays small; the counts are of all of them.

    Args:
        line: the line that is chosen first, as the cell or file numbers it; by default the first that all stages have.
        show: "all", "TTIR", "TTGIR", "LLVM IR" or "PTX".

    Raises LabkitError for anything but what compile_for returns, a line that the kernel does not have, another stage.

    Example:
        >>> import triton, triton.language as tl
        >>> from mlsys_labkit.triton_trace import compile_for
        >>> @triton.jit
        ... def double(x, BLOCK: tl.constexpr):
        ...     i = tl.arange(0, BLOCK)
        ...     tl.store(x + i, 2 * tl.load(x + i))
        >>> compiled_stages(compile_for(double, "sm_90", signature={"x": "*fp32:16"}, BLOCK=512))
        <From source to PTX>

    Reference: Triton, "Triton IR and its dialects" (MLIR dialects of the documentation).
    """
    from mlsys_labkit.triton_trace.compile.compiled import Compiled

    if not isinstance(compiled, Compiled):
        raise LabkitError(f"expected what compile_for(...) returns, got {type(compiled).__name__}; compile the kernel")
    if show not in ("all", *NAMES.values()):
        raise LabkitError(f"show is one of all, {', '.join(NAMES.values())}; got {show!r}")
    code, index = _code(compiled)
    stages = [_stage(compiled, key, index) for key in NAMES]
    first = next((i for i in range(len(code)) if all(model.amount(one["runs"], i) for one in stages)), 0)
    numbers = [number for number, _ in code]
    if line is not None and line not in numbers:
        raise LabkitError(f"line {line} is not in the kernel, whose lines are {numbers[0]} to {max(numbers)}")
    return KIND.show(
        title=f"{compiled.kernel} for {compiled.target}",
        note=f"{compiled}; {compiled.occupancy}. Compiled by Triton {compiled.triton_version}, not run.",
        code=code,
        stages=stages,
        line=first if line is None else numbers.index(line),
        show=show,
    )


def _code(compiled: Compiled) -> tuple[list[list[Any]], dict[Line, int]]:
    """Return ``[number, text]`` of every line, the kernel's first, and where each line stands in the list."""
    from mlsys_labkit.triton_trace.recorder import Line

    rows: list[list[Any]] = []
    index: dict[Line, int] = {}
    entry = compiled.source.entry
    for function in (entry, *(one for one in compiled.source.functions if one.key != entry.key)):
        for number, text in enumerate(function.text.expandtabs(4).rstrip().splitlines(), function.first_line):
            index.setdefault(Line(function.place, number), len(rows))
            rows.append([number, text])
    return rows, index


def _stage(compiled: Compiled, key: str, index: Mapping[Line, int]) -> State:
    sources: dict[int, list[int]] = {}
    for line, numbers in compiled.lines[key].items():  # type: ignore[index]
        for number in numbers:
            if line in index:
                sources.setdefault(number, []).append(index[line])
    text = getattr(compiled, key)
    if key == "ptx":
        text = text.partition("\t.section")[0]  # debug information from there on
    rows = []
    for number, written in enumerate(text.expandtabs(4).splitlines(), 1):
        for noise in _NOISE[key]:
            written = re.sub(noise, "", written)
        if written.strip():
            written = written.rstrip()
            rows.append(
                (sorted(sources.get(number, ())), written if len(written) <= WIDEST else written[:WIDEST] + "…")
            )
    runs = [[list(where), [text for _, text in group], 0] for where, group in groupby(rows, key=lambda row: row[0])]
    return {"name": NAMES[key], "total": len(rows), "runs": model.folded(runs, BUDGET)}


def _static(state: State) -> str:
    stages = state["stages"]
    rows = [
        [f"{number}: {text.strip()}", *(model.amount(stage["runs"], i) for stage in stages)]
        for i, (number, text) in enumerate(state["code"])
        if text.strip()
    ]
    head = ["line", *(stage["name"] for stage in stages)]
    caption = f"Lines that the compiler makes of each source line: {state['title']}"
    return table(caption, head, rows) + paragraph(state["note"])


KIND = Kind("compiled_stages", "From source to PTX", _static)
