"""Findings about streams: work, and host code, that touches the same bytes without a wait (native/host/ordering.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.gcc.lines import LineTable

_BEFORE = "call cudaStreamSynchronize or cudaDeviceSynchronize before"
_EVENT = "record an event behind the first and let the second's stream wait for it, or synchronise between them"


@dataclass(frozen=True)
class Places:
    """The source lines behind addresses of a program's code.

    Attributes:
        table: of the program.
        image: the address where it was loaded.
        lines: of the main file.
        main: its name.
    """

    table: LineTable
    image: int
    lines: Sequence[str]
    main: str

    def line(self, site: Mapping[str, Any]) -> tuple[int, str]:
        """Return the line of a site, and its file where that is not the main one; 0 where it is not known."""
        if site["line"]:
            file = site["file"].rsplit("/", 1)[-1]
            return site["line"], "" if file == self.main.rsplit("/", 1)[-1] else file
        address = site["pc"] - 1 - self.image
        place = self.table.locate([address])[address] if site["pc"] else None
        return (place.line, place.file) if place else (0, "")

    def text(self, line: int, file: str) -> str:
        """Return a line of the main file."""
        return self.lines[line - 1] if not file and 0 < line <= len(self.lines) else ""


def ordering_finding(record: Mapping[str, Any], places: Places) -> KernelFinding:
    """Return what a record of two accesses that nothing orders says."""
    site, other = record["site"], record["other"]
    line, file = places.line(site)
    other_line, other_file = places.line(other)
    verb, other_verb = ("writes" if one["writes"] else "reads" for one in (site, other))
    what = described_memory(record, places)
    there = f"{other['what']} of line {other_line}" + (f" of {other_file}" if other_file else "")
    if record["kind"] == "host_race":
        message = (
            f"the host {verb} {what}, which {there} may still be {other_verb[:-1].removesuffix('e')}ing: {_BEFORE}"
        )
        if record["memory"] == "pageable":
            message += "; CUDA does not promise that a copy to pageable memory is over when its call returns"
    else:
        message = f"{site['what']} {verb} {what}, which {there}, in another stream, {other_verb}"
        message += f": nothing orders them; {_EVENT}"
        if record["idle_wait"]:
            idle, _ = places.line({"line": 0, "pc": record["idle_wait"]})
            message += f". The wait in line {idle} did nothing: its event had not been recorded"
    if file:
        message += f" (in {file})"
    text, other_text = places.text(line, file), places.text(other_line, other_file)
    return KernelFinding(record["kind"], message, line, text, other_line=other_line, other_source_line=other_text)


def described_memory(record: Mapping[str, Any], places: Places) -> str:
    """Return the byte of memory that a record is about, with the line of its allocation."""
    if record.get("memory") == "pageable":
        return "pageable memory"
    where = f"byte {record['offset']} of {record.get('memory', 'device')} memory"
    line, file = places.line({"line": 0, "pc": record["allocated"]}) if record["allocated"] else (0, "")
    return f"{where} (allocated in line {line}{f' of {file}' if file else ''})" if line else where
