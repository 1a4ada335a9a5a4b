"""Code that counts on the lanes of a warp being in step: one reads what another one wrote, and nothing orders them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlsys_labkit.cuda.source.kernels import kernel_headers
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import closing_brackets

_WARP = 32
_SHARED = re.compile(r"\b__shared__\b[^;()]*?\b(\w+)\s*\[")
_THREAD = re.compile(r"\b(?:int|unsigned|size_t|auto|uint)\s+(\w+)\s*=\s*threadIdx\.x\s*[;,]")
_ORDERS = re.compile(r"sync|shfl|fence|barrier|wait|atomic|volatile|ballot|goto|return|else|\bif\b|\bwhile\b|\bdo\b")
_FOR = re.compile(r"\bfor\s*\(\s*(?:int|unsigned)\s+(\w+)\s*=\s*(\d+)\s*;[^;{}]*;[^;{}]*?\)(?=\s*[\w{])")


@dataclass(frozen=True)
class WarpStep:
    """A read of a shared array that some lane of the warp wrote before, without a ``__syncwarp()`` between.

    Attributes:
        kernel, array: names.
        line: of the read. written: line of the write.
    """

    kernel: str
    array: str
    line: int
    written: int


def warp_steps(source: Source) -> list[WarpStep]:
    """Return the first such read of each kernel, where the text alone shows it; ``check`` finds all that run.

    Only plain branches such as ``if (t < 32)`` are read, and indices that are ``t``, ``t + 8`` or a number.

    Example:
        >>> text = "__global__ void k(float* a) { __shared__ float s[64]; int t = threadIdx.x;"
        >>> text += " s[t] = a[t]; __syncthreads();\\n if (t < 32) { s[t] += s[t + 32]; s[t] += s[t + 16]; } }"
        >>> [(one.kernel, one.array, one.line) for one in warp_steps(Source(text))]
        [('k', 's', 2)]

    Reference: CUDA C++ programming guide, "Independent Thread Scheduling".
    """
    found = []
    code = source.code
    closing = closing_brackets(code)
    for _, name, opening in kernel_headers(code, closing):
        behind = closing[opening] + 1
        if behind >= len(code) or code[behind].text != "{":
            continue
        begin, end = code[behind].end, code[closing[behind]].start
        step = next(_steps(source, code[name].text, begin, end), None)
        if step:
            found.append(step)
    return found


def _steps(source: Source, kernel: str, begin: int, end: int) -> Iterator[WarpStep]:
    body = source.masked[begin:end]
    arrays = {name for name in _SHARED.findall(body) if "volatile" not in body}
    threads = {r"threadIdx\s*\.\s*x", *_THREAD.findall(body)}
    for thread in sorted(threads) if arrays else ():
        for branch in re.finditer(rf"\bif\s*\(\s*{thread}\s*<\s*(\d+)\s*\)", body):
            lanes = int(branch[1])
            if not 1 < lanes <= _WARP:
                continue
            first, last = _statement(body, branch.end())
            parts = [(first, last, "")]
            only = re.match(rf"\s*if\s*\(\s*(?:!\s*{thread}\b|{thread}\s*==\s*(\d+))\s*\)", body[last:])
            if only:
                parts.append((*_statement(body, last + only.end()), only[1] or "0"))
            step = _read_of_others(body, parts, arrays, thread, lanes)
            if step:
                array, read, written = step
                lines = (source.masked.count("\n", 0, begin + place) + 1 for place in (read, written))
                yield WarpStep(kernel, array, *lines)


def _statement(body: str, at: int) -> tuple[int, int]:
    """Return begin and end of the statement or block at ``at``."""
    at += len(body[at:]) - len(body[at:].lstrip())
    if body[at : at + 1] != "{":
        end = body.find(";", at)
        return at, len(body) if end < 0 else end + 1
    depth = 0
    for place in range(at, len(body)):
        depth += {"{": 1, "}": -1}.get(body[place], 0)
        if depth == 0:
            return at, place + 1
    return at, len(body)


def _read_of_others(
    body: str, parts: list[tuple[int, int, str]], arrays: set[str], thread: str, lanes: int
) -> tuple[str, int, int] | None:
    """Return the array and the places of the read and the write."""
    written: dict[str, int] = {}  # elements of their own that the lanes have written
    for begin, end, only in parts:
        text = body[begin:end]
        loops = {name: int(start) for name, start in _FOR.findall(text)}
        text = _FOR.sub(lambda loop: " " * len(loop[0]), text)
        for _ in range(2 if loops and not only else 1):
            for piece in re.finditer(r"[^;]+", text):
                if _ORDERS.search(piece[0]):
                    written.clear()
                    continue
                accesses = [
                    (one[1], one[2].strip(), one[3], begin + piece.start() + one.start())
                    for one in re.finditer(r"\b(\w+)\s*\[([^\[\]]*)\]\s*([-+*/|&^]?=(?!=))?", piece[0])
                    if one[1] in arrays
                ]
                for array, index, _, place in accesses:
                    if array in written and _is_anothers(index, thread, lanes, only, loops):
                        return array, place, written[array]
                own = (one for one in accesses if one[2] and not only and re.fullmatch(thread, one[1]))
                written |= {array: place for array, _, _, place in own}
    return None


def _is_anothers(index: str, thread: str, lanes: int, only: str, loops: dict[str, int]) -> bool:
    if index.isdecimal():
        return int(index) < lanes and index != only
    distance = re.fullmatch(rf"{thread}\s*[+^]\s*(\w+)", index)
    if not distance or only:
        return False
    step = int(distance[1]) if distance[1].isdecimal() else loops.get(distance[1], lanes)
    return 0 < step < lanes
