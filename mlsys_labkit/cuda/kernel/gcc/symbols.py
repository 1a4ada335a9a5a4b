"""The symbol table of kernel.so: its ``__shared__`` arrays and its undefined symbols."""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.source.shared import SYMBOL

_SYMBOL_TABLE = 2
_THREAD_LOCAL = 6
_WRITE = 1
_VARIABLES = re.compile(r"\.(?:data|bss|lk_constant)(?:\..*)?(?<!\.rel\.ro)")
_STARTS = re.compile(r"completed(?:\.\d+)?|__dso_handle")  # of the C library's part of every module


@dataclass(frozen=True)
class Symbol:
    """One entry of an ELF symbol table. The ``value`` of a thread-local one is its offset in their segment."""

    name: str
    value: int
    nbytes: int
    is_defined: bool
    is_thread_local: bool
    section: str = ""
    is_writable: bool = False


@dataclass(frozen=True)
class SharedArray:
    """A static ``__shared__`` variable: its ``offset`` and size in bytes, and the function that it is declared in."""

    name: str
    function: str  # empty at file scope
    offset: int
    nbytes: int


def read_symbols(path: Path) -> tuple[Symbol, ...]:
    """Return the whole symbol table of a 64-bit little-endian ELF file. Reference: the System V ABI, chapter 4."""
    data = path.read_bytes()
    (table_offset,) = struct.unpack_from("<Q", data, 40)
    entry_bytes, count, naming = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table_offset + index * entry_bytes) for index in range(count)]
    titles = [_text(data, sections[naming][4] + each[0]) for each in sections]
    found = []
    for _, kind, _, _, offset, size, link, _, _, each in sections:
        if kind == _SYMBOL_TABLE:
            names = sections[link][4]
            for at in range(offset, offset + size, each):
                name, info, _, section, value, nbytes = struct.unpack_from("<IBBHQQ", data, at)
                title, flags = (titles[section], sections[section][2]) if section < count else ("", 0)
                is_local, is_writable = info & 15 == _THREAD_LOCAL, bool(flags & _WRITE)
                text = _text(data, names + name)
                found.append(Symbol(text, value, nbytes, section != 0, is_local, title, is_writable))
    return tuple(found)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")


def device_variables(path: Path) -> tuple[Symbol, ...]:
    """Return the variables of a module that stay from launch to launch: ``__device__`` and ``__constant__`` ones."""
    own = [
        symbol
        for symbol in read_symbols(path)
        if symbol.is_writable
        and _VARIABLES.fullmatch(symbol.section)
        and symbol.nbytes
        and not _STARTS.fullmatch(symbol.name)
    ]
    times = Counter(symbol.name for symbol in own)
    return tuple(symbol for symbol in own if times[symbol.name] == 1)


def shared_arrays(path: Path) -> tuple[SharedArray, ...]:
    """Return the static ``__shared__`` variables of a module, by offset; the dynamic array is not among them."""
    symbols = [
        symbol
        for symbol in read_symbols(path)
        if symbol.is_thread_local and symbol.is_defined and symbol.nbytes and symbol.name != SYMBOL
    ]
    names = demangle(symbol.name for symbol in symbols)
    arrays = [
        SharedArray(*_split(name), symbol.value, symbol.nbytes) for name, symbol in zip(names, symbols, strict=True)
    ]
    return tuple(sorted(arrays, key=lambda array: array.offset))


def demangle(names: Iterable[str]) -> Iterator[str]:
    """Return C++ names as their author wrote them."""
    wanted = list(names)
    if not wanted:
        return iter(())
    said = subprocess.run(["c++filt"], input="\n".join(wanted), capture_output=True, text=True, check=True).stdout
    return iter(said.splitlines())


def is_called(function: str, kernel: str) -> bool:
    """Return whether a demangled function is the one that the source calls ``kernel``.

    Example:
        >>> is_called("void q::scale<4, float>(float*)", "q::scale<4>")
        True
    """
    plain = function.split("(", 1)[0].split("<", 1)[0].split(" ")[-1]
    return plain == kernel.split("<", 1)[0].replace(" ", "")


def _split(name: str) -> tuple[str, str]:
    """Return name and function of ``matmul(float*, int)::tile``."""
    name = re.sub(r" ?\[clone [^\]]*\]$|\.\d+$", "", name)
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += {")": 1, ">": 1, "(": -1, "<": -1}.get(name[at], 0)
        if depth == 0 and name[at - 1 : at + 1] == "::":
            owner = name[: at - 1]
            return name[at + 1 :], owner if "(" in owner else ""
    return name, ""
