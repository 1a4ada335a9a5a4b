"""Floating-point instructions of each basic block of kernel.so, read from its machine code.

The instrumented build calls ``__sanitizer_cov_trace_pc`` at the start of every basic block, and a profile says with how
many lanes each of them ran: the product is the kernel's FLOPs. The code is that for the CPU, compiled without vector
units and FMA, so that ``a * b + c`` is two instructions and two FLOPs, as an FMA is on a GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mlsys_labkit.cuda.errors import CudaError

_TRACE = "__sanitizer_cov_trace_pc"
_PLACE = re.compile(r"^(?P<file>\S.*):(?P<line>\d+)(?: \(discriminator \d+\))?$")
_INSTRUCTION = re.compile(r"^\s+(?P<address>[0-9a-f]+):\s+(?P<name>\S+)\s*(?P<operands>.*)$")
_FUNCTION = re.compile(r"^[0-9a-f]+ <.*>:$")
_CALLED = re.compile(r"<(?P<name>[^@>+]+)")
# x86-64: addss, mulsd, sqrtss, maxsd, vaddss, vfmadd231ss and their packed forms.
_X86 = re.compile(r"^v?(?P<op>add|sub|mul|div|sqrt|min|max|fn?m(?:add|sub)\d{3})(?P<form>[sp])(?P<type>[sd])$")
_AARCH64 = re.compile(r"^f(?P<op>n?m(?:add|sub)|ml[as]|add|n?mul|sub|div|sqrt|abd|(?:min|max)(?:nm)?)$")
_MATH = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 exp10 expm1 fdim fma fmax fmin fmod "  # noqa: SIM905
    "hypot j0 j1 jn ldexp lgamma log log10 log1p log2 pow remainder rsqrt sin sincos sinh sqrt tan tanh tgamma y0 "
    "y1 yn".split()
)
_TWO = frozenset({"fma", "sincos"})
# A warp's matrix product (lk/wmma/multiply.h): the template's first argument is the FLOPs of a lane.
_TENSOR = re.compile(r"tensor_core_multiplyILi(?P<flops>\d+)E")


# The kit's own arithmetic on 16-bit numbers is done in wider ones, and its float functions in double.
_FILES = {
    "half.h": "float16",
    "bfloat16.h": "float16",
    "number16.h": "float16",
    "convert16.h": "",
    "floats.h": "float32",
}


@dataclass(frozen=True)
class BlockCode:
    """One basic block: FLOPs of a lane that runs it once, by kind, and the source lines it has code of.

    The kinds are "float16" (bfloat16 too), "float32", "float64", "tensor" and "math function"; the last count one each,
    fma two.
    """

    flops: Mapping[str, int]
    lines: frozenset[int]


class _Instruction(NamedTuple):
    address: int
    name: str
    operands: str
    file: str
    line: int


@lru_cache(maxsize=32)
def basic_blocks(path: Path, source_name: str) -> Mapping[int, BlockCode]:
    """Return the code of every traced basic block of a module, by the address behind its call of the hook.

    ``source_name`` is what the line table calls the student's source. Code that is not traced, such as a
    branch inside one expression that the compiler made, belongs to the block before it. Functions that are not traced
    at all, such as the kit's own behind an atomic, belong to none.

    Raises CudaError when objdump is not there. Reference: binutils' objdump; Intel SDM vol. 2; Arm ARM, C7.
    """
    runs: list[list[_Instruction]] = []
    for function in _functions(path):
        traced = False
        for each in function:
            if _TRACE in each.operands:
                runs.append([])
                traced = True
            elif traced:
                runs[-1].append(each)
    return {run[0].address: _block(run, source_name) for run in runs if run}


def _block(instructions: Sequence[_Instruction], source_name: str) -> BlockCode:
    flops = Counter[str]()
    for each in instructions:
        flops.update(_flops(each))
    return BlockCode(flops, frozenset(each.line for each in instructions if each.line and each.file == source_name))


def _functions(path: Path) -> Iterator[list[_Instruction]]:
    command = ["objdump", "-d", "-l", "--no-show-raw-insn", os.fspath(path)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise CudaError("objdump is not there or fails; it comes with g++: sudo apt install binutils") from None
    file, line = "", 0
    function: list[_Instruction] = []
    for text in said.splitlines():
        if found := _INSTRUCTION.match(text):
            function.append(_Instruction(int(found["address"], 16), found["name"], found["operands"], file, line))
        elif _FUNCTION.match(text):
            yield function
            function = []
        elif place := _PLACE.match(text):
            file, line = os.path.normpath(place["file"]), int(place["line"])
    yield function


def _flops(instruction: _Instruction) -> dict[str, int]:
    name, operands = instruction.name, instruction.operands
    if name.startswith(("call", "bl", "jmp", "b")) and (called := _CALLED.search(operands)):
        full = called["name"].removeprefix("lk_")  # lk/libc.h
        if tensor := _TENSOR.search(full):
            return {"tensor": int(tensor["flops"])}
        function = full if full in _MATH else full.removesuffix("f")
        return {"math function": 2 if function in _TWO else 1} if function in _MATH else {}
    found: list[tuple[str, int]] = []
    operations = 1
    if x86 := _X86.match(name):
        operations = 2 if x86["op"].startswith("f") else 1
        found = [("float32" if x86["type"] == "s" else "float64", _lanes_x86(x86["form"], x86["type"], operands))]
    elif arm := _AARCH64.match(name):
        operations = 2 if "ml" in arm["op"] or "madd" in arm["op"] or "msub" in arm["op"] else 1
        found = list(_lanes_aarch64(operands))
    named = [(_FILES.get(os.path.basename(instruction.file), kind), lanes) for kind, lanes in found]
    return {kind: operations * lanes for kind, lanes in named if kind}


def _lanes_x86(form: str, element: str, operands: str) -> int:
    if form == "s":
        return 1
    vector_bytes = 64 if "%zmm" in operands else 32 if "%ymm" in operands else 16
    return vector_bytes // (4 if element == "s" else 8)


def _lanes_aarch64(operands: str) -> Iterator[tuple[str, int]]:
    """Yield type and lanes of the first register: s0, d0, v0.4s; half precision (h0, v0.8h) counts as float32."""
    register = operands.split(",", 1)[0].strip()
    if vector := re.fullmatch(r"v\d+\.(\d+)([hsd])", register):
        yield ("float64" if vector[2] == "d" else "float32"), int(vector[1])
    elif register[:1] in ("s", "h", "d"):
        yield ("float64" if register[0] == "d" else "float32"), 1
