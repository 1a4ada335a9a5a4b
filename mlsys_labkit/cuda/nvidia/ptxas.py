"""The report of NVIDIA's assembler on each kernel, and its machine code disassembled."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.nvidia.libraries import find_nvdisasm

_ENTRY = re.compile(r"Compiling entry function '(?P<symbol>[^']+)' for '(?P<arch>\w+)'")
_PROPERTIES = re.compile(r"Function properties for (?P<symbol>\S+)")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_BARRIERS = re.compile(r"used (?P<barriers>\d+) barriers")
_SHARED = re.compile(r"(?P<shared>\d+) bytes smem")
_USER_CONSTANTS = ".nv.constant3"  # bank 3: what the source declares __constant__


@dataclass(frozen=True)
class Usage:
    """Registers and stack bytes per thread, static shared memory in bytes and barriers per block, of one kernel.

    Spills are bytes of all the instructions that store registers to the stack, or load them back, each counted once.
    """

    registers: int
    barriers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def read_report(log: str) -> dict[str, Usage]:
    """Return usage by symbol, from the output of ``ptxas -v``, in its order.

    Reference: NVIDIA, CUDA Compiler Driver NVCC, "Printing Code Generation Statistics".
    """
    found: dict[str, Usage] = {}
    entry = function = ""
    spills: dict[str, re.Match[str]] = {}
    for line in log.splitlines():
        if header := _ENTRY.search(line):
            entry = header["symbol"]
        elif properties := _PROPERTIES.search(line):
            function = properties["symbol"]
        elif numbers := _SPILLS.search(line):
            spills[function] = numbers
        elif (used := _USED.search(line)) and entry:
            stack, stores, loads = (int(text) for text in spills[entry].groups()) if entry in spills else (0, 0, 0)
            barriers, shared = _BARRIERS.search(line), _SHARED.search(line)
            found[entry] = Usage(
                registers=int(used["registers"]),
                barriers=int(barriers["barriers"]) if barriers else 0,
                shared_bytes=int(shared["shared"]) if shared else 0,
                stack_bytes=stack,
                spill_store_bytes=stores,
                spill_load_bytes=loads,
            )
            entry = ""
    return found


def constant_bytes(cubin: bytes) -> int:
    """Return the bytes of constant memory that the source declares: the size of bank 3 in the module."""
    return sum(size for name, size in _sections(cubin) if name == _USER_CONSTANTS)


def disassemble(cubin: bytes, symbol: str, *, lines: bool = False) -> str:
    """Return SASS, the GPU's own instructions, of one kernel; with ``lines``, the source line stands before each part.

    Raises MissingExtraError without NVIDIA's disassembler, CudaError when it fails.
    """
    tool = find_nvdisasm()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--print-code", *["--print-line-info"] * lines, file.name]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            raise CudaError(f"{Path(tool).name} does not read this kernel: {said.strip().splitlines()[-1]}") from None
    listing = re.search(
        rf"^\.text\.{re.escape(symbol)}:\n.*?(?=^\s*\.section|\Z)", ran.stdout, re.MULTILINE | re.DOTALL
    )
    if not listing:
        raise CudaError(f"nvdisasm shows no code of {symbol}")
    code = [re.sub(r"\s+/\*[0-9a-fx]+\*/\s*$", "", line).rstrip() for line in listing[0].splitlines()]
    return "\n".join(line for line in code if line.strip())


def _sections(elf: bytes) -> Iterator[tuple[str, int]]:
    """Yield name and size of every section of a 64-bit little-endian ELF file."""
    (offset,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, offset + size * index) for index in range(count)]
    text = headers[names][4]
    for header in headers:
        start = text + header[0]
        yield elf[start : elf.index(b"\0", start)].decode(), header[5]
