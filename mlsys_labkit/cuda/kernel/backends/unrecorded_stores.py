"""A check that the counters are complete: changes of memory without a recorded store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.simulator.decode import NamedRange, RecordedLaunch, written_bytes


def unrecorded_stores(
    result: RecordedLaunch, before: Mapping[NamedRange, NDArray[Any]], after: Mapping[NamedRange, NDArray[Any]]
) -> list[KernelFinding]:
    """Return a finding for each array with bytes that changed although no recorded store wrote them.

    ``result`` is of a launch in mode "profile"; ``before`` and ``after`` hold the bytes of its arrays, uint8 of shape
    (nbytes,). Such a store comes from code that was compiled without instrumentation, so its counts cannot earn marks.

    Example:
        >>> from types import SimpleNamespace
        >>> from mlsys_labkit.cuda.kernel.simulator.decode import TOTALS
        >>> nothing_recorded = SimpleNamespace(totals=bytes(TOTALS.itemsize))
        >>> x = NamedRange("x", 0, 4)
        >>> old, new = np.zeros(4, np.uint8), np.array([0, 0, 7, 0], np.uint8)
        >>> [(each.array, each.offset) for each in unrecorded_stores(nothing_recorded, {x: old}, {x: new})]
        [('x', 2)]
    """
    recorded = {written.begin: written for written in written_bytes(result)}
    findings = []
    for array, old in before.items():
        changed = old != after[array]
        for written in recorded.values():
            begin, end = max(array.begin, written.begin), min(array.end, written.end)
            if begin < end:
                mask = written.mask[begin - written.begin : end - written.begin]
                changed[begin - array.begin : end - array.begin] &= ~mask
        if changed.any():
            offset = int(np.argmax(changed))
            findings.append(
                KernelFinding(
                    "unrecorded_store",
                    f"{int(changed.sum()):,} bytes of {array.name} changed, from byte {offset} on, by code that is not "
                    "counted; write the kernel in plain CUDA C++, without attributes or assembly",
                    array=array.name,
                    offset=offset,
                    count=int(changed.sum()),
                )
            )
    return findings
