"""The report's front page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mlsys_grading.report.clock import clock
from mlsys_grading.report.result import NotebookResult, RunResult
from mlsys_grading.report.templates import TEMPLATES, script, stylesheet


def render(run: RunResult, roofline: str | None, roofline_caption: str) -> str:
    """Return the page, which loads no other file. ``roofline`` is an SVG element, or None with a reason as caption."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    rows = [_row(notebook, run) for notebook in run.notebooks]
    return environment.get_template("index.html.j2").render(
        run=run,
        css=Markup(stylesheet("index.css")),  # our own file, no user's text
        js=Markup(script()),
        headline=headline(run),
        passed=run.count("passed"),
        total=len(run.notebooks),
        started=datetime.fromisoformat(run.started).strftime("%-d %B %Y, %H:%M %Z"),
        machine_line=_machine_line(run.machine),
        facts=_facts(run),
        rows=rows,
        failures=[row for row in rows if row["failure"]],
        machine=_machine_rows(run),
        versions=list(run.versions.items()),
        roofline=roofline,
        roofline_caption=roofline_caption,
    )


def headline(run: RunResult) -> str:
    """Return the headline, for example ``All 3 labs pass`` or ``2 of 3 labs pass``."""
    total, passed = len(run.notebooks), run.count("passed")
    if passed == total:
        return "The lab passes" if total == 1 else f"All {total} labs pass"
    return f"{passed} of {total} lab{'s' * (total != 1)} pass{'es' * (passed == 1)}"


def _facts(run: RunResult) -> list[tuple[str, str, str, str]]:
    fresh = [notebook for notebook in run.notebooks if not notebook.resumed]
    serial = sum(notebook.seconds for notebook in fresh)
    peak = max(run.notebooks, key=lambda notebook: notebook.peak_bytes or 0, default=None)
    cells = sum(len(notebook.cells) for notebook in run.notebooks)
    value, unit = (clock(run.seconds), "min") if run.seconds >= 100 else (f"{run.seconds:.1f}", "s")
    facts = [
        ("Wall time", value, unit, f"for {serial:.1f} s of notebooks"),
        ("At once", str(run.jobs), "kernels", _threads(run)),
        ("Code cells", f"{cells}", "run", "smoke sizes" if run.smoke else "full sizes"),
    ]
    if peak is not None and peak.peak_bytes:
        facts.append(("Peak memory", f"{peak.peak_bytes / 1e6:,.0f}", "MB", f"largest lab: {peak.name}"))
    return facts


def _row(notebook: NotebookResult, run: RunResult) -> dict[str, Any]:
    whole = run.seconds or 1.0
    ran = notebook.seconds > 0 and not notebook.resumed
    return {
        "name": notebook.name,
        "title": notebook.title,
        "page": notebook.page,
        "status": notebook.status,
        "resumed": notebook.resumed,
        "cells_done": len(notebook.cells),
        "cells_total": notebook.cells_total,
        "seconds": f"{notebook.seconds:.1f} s" if notebook.seconds else "–",
        "left": f"{100 * notebook.begun_seconds / whole:.2f}",
        "width": f"{100 * min(notebook.seconds, whole) / whole:.2f}" if ran else "",
        "peak": f"{notebook.peak_bytes / 1e6:,.0f} MB" if notebook.peak_bytes else "not measured",
        "slowest": notebook.slowest if notebook.page else None,
        "failure": notebook.failure,
    }


def _machine_line(machine: Mapping[str, Any]) -> str:
    return f"{machine['processor']} · {machine['usable_cores']:g} cores · {_gib(machine['memory_limit_bytes'])}"


def _machine_rows(run: RunResult) -> list[tuple[str, str]]:
    machine = run.machine
    return [
        ("Processor", machine["processor"]),
        ("Cores this run may use", f"{machine['usable_cores']:g}"),
        ("Memory this run may use", _gib(machine["memory_limit_bytes"])),
        ("System", machine["system"]),
        ("Load before the run", f"{machine['load_1min']:g}"),
        ("Kernels at once", f"{run.jobs}, {_threads(run)}"),
        ("Parameters", f"smoke = {run.smoke}, seed = {run.seed}"),
    ]


def _threads(run: RunResult) -> str:
    return f"{run.threads_per_kernel} thread{'s' * (run.threads_per_kernel > 1)} each"


def _gib(size: int | None) -> str:
    return f"{size / 2**30:.1f} GiB" if size else "not known"
