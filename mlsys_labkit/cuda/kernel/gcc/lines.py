"""The student's line of an address in kernel.so: the innermost frame of an inlined call that the student wrote."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc.flags import NATIVE

_FRAME = re.compile(r"^(?P<file>.*):(?P<line>\d+|\?)(?: \(discriminator \d+\))?$")
_KIT = tuple(map(os.fspath, NATIVE))
_SYSTEM = ("/usr/include/", "/usr/lib/", "/usr/local/include/")
_AT_ONCE = 2000  # addresses on one command line


@dataclass(frozen=True)
class Location:
    """A place in the student's text.

    Attributes:
        line: from 1; 0 when the place is none of the student's.
        function: as the student calls it, such as ``"matmul<16>"``.
        file: of an included file its path, empty for the source itself.
        source_line, source_function: of the innermost frame in the source itself, which calls the included file; 0 and
            empty where there is none.
    """

    line: int
    function: str = ""
    file: str = ""
    source_line: int = 0
    source_function: str = ""


class LineTable:
    """The line table of one kernel.so. Reference: binutils' addr2line."""

    def __init__(self, path: Path, source_name: str) -> None:
        self.path = path
        self.source_name = source_name
        self._known: dict[int, Location] = {}

    def locate(self, addresses: Iterable[int]) -> dict[int, Location]:
        """Return the source location of the instruction that contains each address (of the file, not of memory).

        A return address points behind its call: subtract 1 before you pass it.
        """
        wanted = list(dict.fromkeys(addresses))
        unknown = [address for address in wanted if address not in self._known]
        for begin in range(0, len(unknown), _AT_ONCE):
            self._known.update(self._ask(unknown[begin : begin + _AT_ONCE]))
        return {address: self._known[address] for address in wanted}

    def _ask(self, addresses: list[int]) -> Iterator[tuple[int, Location]]:
        command = ["addr2line", "-aifC", "-e", os.fspath(self.path), *map(hex, addresses)]
        try:
            said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            raise CudaError("addr2line is not there or fails; it comes with g++: sudo apt install binutils") from None
        frames: list[list[tuple[str, str]]] = []
        lines = iter(said.splitlines())
        for line in lines:
            if line.startswith("0x"):
                frames.append([])
            else:
                frames[-1].append((line, next(lines, "")))
        for address, nest in zip(addresses, frames, strict=True):
            yield address, self._innermost(nest)

    def _innermost(self, nest: list[tuple[str, str]]) -> Location:
        included: Location | None = None
        for function, place in nest:
            found = _FRAME.match(place)
            if not found or found["line"] in ("?", "0"):
                continue
            file = os.path.normpath(found["file"])
            if file == self.source_name:
                own = int(found["line"]), _plain(function)
                if included:
                    return replace(included, source_line=own[0], source_function=own[1])
                return Location(*own, source_line=own[0], source_function=own[1])
            is_kits = file.startswith((*_KIT, *_SYSTEM, "<", "?"))
            if included is None and not is_kits and Path(file).suffix:
                included = Location(int(found["line"]), _plain(function), file)
        return included or Location(0, _plain(nest[-1][0]) if nest else "")


def _plain(function: str) -> str:
    """Return ``void scale<float, 4>(float*, int)`` as ``scale<float, 4>``."""
    text, depth = "", 0
    for character in function:
        if character == "(" and depth == 0 and text and not text.endswith("operator"):
            break
        depth += {"<": 1, ">": -1}.get(character, 0)
        text = "" if character == " " and depth == 0 else text + character
    return text
