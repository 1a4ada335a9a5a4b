"""The records that a program's process writes (native/host/journal.h), as launches, findings and profiles."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.arguments.parameters import parameter_names
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.gcc.lines import LineTable, Location
from mlsys_labkit.cuda.kernel.simulator.decode import LaunchContext, NamedRange, RecordedLaunch, decode_profile
from mlsys_labkit.cuda.kernel.simulator.explain import decode_findings
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.program.build import CompiledProgram, ProgramSource
from mlsys_labkit.cuda.program.ordering import Places, ordering_finding
from mlsys_labkit.cuda.program.result import Launch
from mlsys_labkit.cuda.program.rewrite import find_kernels
from mlsys_labkit.cuda.program.unwritten import unwritten_finding
from mlsys_labkit.cuda.source.functions import device_functions

_ABOUT_MEMORY = {"ordering": ordering_finding, "unwritten": unwritten_finding}
_HOST = "host memory "  # marks an argument that points to it
_FREED = "freed memory "
_HOST_END = 0x200000000000  # of the addresses that host pointers are moved to (native/host/launch_api.cpp)


@dataclass(frozen=True)
class Story:
    """The contents of the records of one run."""

    launches: tuple[Launch, ...]
    findings: tuple[KernelFinding, ...]
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...]
    crash: str  # one line, empty when there was none


def read_story(path: Path, program: CompiledProgram) -> Story:
    """Read the file of records. A record that was cut off by the end of the process is left out."""
    lines = _ProgramLines(program)
    launches: list[Launch] = []
    findings: dict[tuple[Any, ...], KernelFinding] = {}
    profiles: list[Profile] = []
    notes: list[str] = []
    leaks: list[tuple[int, int]] = []  # place of the allocation in the program, bytes
    crash = ""
    image = 0
    for record, sections in _records(path):
        if record["record"] == "image":
            image = record["address"]
        elif record["record"] == "note":
            notes.append(record["text"])
        elif record["record"] == "leak":
            leaks.append((record["pc"] - 1 - image, record["bytes"]))
        elif record["record"] == "crash":
            crash = _crash(record, image, lines)
        elif record["record"] in _ABOUT_MEMORY:
            places = Places(lines.table, image, program.source.main.lines, program.source.name)
            _add(findings, [_ABOUT_MEMORY[record["record"]](record, places)])
        else:
            launch = _launch(record)
            launches.append(launch)
            recorded = _recorded(sections, launch.seconds)
            context = lines.context(launch, record["buffers"])
            _add(findings, map(lines.own, decode_findings(recorded, context) if recorded.findings else ()))
            if program.build is Build.INSTRUMENTED and recorded.totals and recorded.sites + recorded.steps:
                profiles.append(decode_profile(recorded, context))
    notes += _leaks(leaks, lines)
    return Story(tuple(launches), tuple(findings.values()), tuple(profiles), tuple(notes), crash)


def _add(findings: dict[tuple[Any, ...], KernelFinding], more: Iterable[KernelFinding]) -> None:
    for finding in more:
        key = (finding.kind, finding.line, finding.other_line, finding.source_line)
        seen = findings.get(key)
        findings[key] = replace(seen, count=seen.count + finding.count) if seen else finding


def _leaks(leaks: Sequence[tuple[int, int]], lines: _ProgramLines) -> Iterator[str]:
    places = lines.table.locate([place for place, _ in leaks])
    for place, nbytes in leaks:
        where = places[place]
        if where.line:  # the program's own call, and not a library's
            file = where.file or lines.source.name
            yield f"{nbytes:,} bytes of device memory, allocated in {file}, line {where.line}, are never freed"


def _records(path: Path) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        record = json.loads(data[at:end].decode("utf-8", "replace"))
        at = end + 1
        sections = []
        for length in record.get("sections", ()):
            sections.append(data[at : at + length])
            at += length
        if at > len(data):
            return
        yield record, sections


def _launch(record: Mapping[str, Any]) -> Launch:
    return Launch(
        kernel=record["name"],
        line=record["line"],
        file=record["file"],
        grid=tuple(record["grid"]),
        block=tuple(record["block"]),
        shared_bytes=record["shared_bytes"],
        error=record["error"],
        seconds=record["seconds"],
    )


def _recorded(sections: list[bytes], seconds: float) -> RecordedLaunch:
    findings, sites, steps, samples, totals = [*sections, *[b""] * 5][:5]
    return RecordedLaunch(findings, sites, steps, samples, totals, seconds)


def _crash(record: Mapping[str, Any], image: int, lines: _ProgramLines) -> str:
    name = signal.Signals(record["signal"]).name
    pc = record["pc"] - image
    place = lines.table.locate([pc])[pc] if image and pc > 0 else Location(0)
    where = f"{place.file or lines.source.name}:{place.line}: " if place.line else ""
    if kernel := _kernel_at(place, lines.source):
        return (
            f"{where}the host calls the kernel {kernel} as a function ({name}); "
            "launch it with <<<grid, block>>>: without, a GPU runs nothing"
        )
    if record["memory"]:
        return f"{where}host code follows a pointer to device memory ({name}); copy the data with cudaMemcpy first"
    what = {
        "SIGSEGV": "host code touches an address that is not the program's",
        "SIGFPE": "host code divides an integer by zero",
        "SIGABRT": "the program ended itself (abort, an assertion, an exception that nobody caught)",
    }
    return f"{where}{what.get(name, 'host code crashed')} ({name})"


def _less(text: str, first: int) -> str:
    """Return the text with line numbers behind ``first`` counted from there."""
    return re.sub(r"\d+", lambda one: str(int(one[0]) - first) if int(one[0]) > first else one[0], text)


def _kernel_at(place: Location, program: ProgramSource) -> str:
    """Return the kernel whose body holds the line; "" for none."""
    for name, source in program.files:
        if name == (place.file or program.name):
            for one in device_functions(source):
                first, last = (source.code[at].line for at in (one.opening, one.closing))
                if one.kind == "__global__" and first <= place.line <= last:
                    return one.name
    return ""


def _named(names: Sequence[str], buffers: Iterable[Sequence[int]]) -> list[NamedRange]:
    """Return buffers under their parameters' names. Host memory has no length: it reaches to the next host buffer."""
    named = []
    end_of_host = _HOST_END
    for number, begin, end, size, freed in sorted(buffers, key=lambda each: each[1], reverse=True):
        name = names[number] if number < len(names) and names[number] else f"argument {number + 1}"
        if begin == end:
            named.append(NamedRange(_HOST + name, begin, end_of_host, size))
            end_of_host = begin
        else:
            name = _FREED + name if freed else name
            named.append(NamedRange(name, begin, end, size))
    return named


class _ProgramLines:
    """The line table of a program, its headers numbered on behind its main file, so that a line is one number."""

    def __init__(self, program: CompiledProgram) -> None:
        self.source: ProgramSource = program.source
        self.path = program.path
        self.source_name = program.source.name
        self.table = LineTable(program.path, program.source.name)
        self._main_lines = at = len(program.source.main.lines)
        self._first: dict[str, int] = {}
        for name, header in program.source.files[1:]:
            self._first[name] = at
            at += len(header.lines)
        sources = [one for _, one in program.source.files]
        self.text = "\n".join(one.text for one in sources)
        self._names = find_kernels(sources).parameters

    def locate(self, addresses: Iterable[int]) -> dict[int, Location]:
        """Return places as LineTable.locate does, with lines of ``text``."""
        found = self.table.locate(addresses)
        return {address: self._moved(place) for address, place in found.items()}

    def _moved(self, place: Location) -> Location:
        if not place.file:
            return place
        first = self._first.get(place.file)
        if first is None:
            return Location(0, place.function)
        line = first + place.line
        return Location(line, place.function, source_line=line, source_function=place.function)

    def context(self, launch: Launch, buffers: Iterable[Sequence[int]]) -> LaunchContext:
        plain = launch.kernel.split("<")[0].split("::")[-1].strip("() ")
        names = parameter_names(self._names.get(plain, ""))
        return LaunchContext(
            kernel=launch.kernel,
            source=self.text,
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
            lines=self,
            arrays=_named(names, buffers),
        )

    def own(self, finding: KernelFinding) -> KernelFinding:
        """Return a finding with the line numbers of its own file."""
        if finding.array.startswith(_HOST):
            name = finding.array.removeprefix(_HOST)
            message = f"a kernel follows {name}, a pointer to host memory; pass it memory from cudaMalloc"
            finding = replace(finding, kind="illegal_address", message=message, array=name, offset=None)
        if finding.array.startswith(_FREED):
            name = finding.array.removeprefix(_FREED)
            message = f"a kernel uses {name}, memory that was freed before the launch"
            finding = replace(finding, kind="illegal_address", message=message, array=name)
        if finding.line <= self._main_lines:
            return finding
        name = max((name for name, first in self._first.items() if first < finding.line), key=self._first.__getitem__)
        first = self._first[name]
        other = finding.other_line - first if finding.other_line > first else finding.other_line
        words = re.sub(
            r"(?<=\bline )\d+|(?<=\blines )\d+(?: and \d+)?", lambda one: _less(one[0], first), finding.message
        )
        message = f"{words} (in {name})"
        return replace(finding, line=finding.line - first, other_line=other, message=message)
