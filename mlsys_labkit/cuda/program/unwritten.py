"""Findings about device memory that a copy or a library reads before anything wrote it (native/host/unwritten.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.program.ordering import Places, described_memory


def unwritten_finding(record: Mapping[str, Any], places: Places) -> KernelFinding:
    """Return what a record of a read of unwritten device memory says."""
    line, file = places.line(record)
    message = (
        f"{record['what']} reads {described_memory(record, places)}, which nothing has written: new device memory "
        "holds no zeros"
    )
    if file:
        message += f" (in {file})"
    return KernelFinding("uninitialized_global", message, line, places.text(line, file))
