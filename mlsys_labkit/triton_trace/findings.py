"""What is wrong with a launch, or slow, read out of its log."""

from __future__ import annotations

from mlsys_labkit.triton_trace.finding import Finding
from mlsys_labkit.triton_trace.log import Log
from mlsys_labkit.triton_trace.source import KernelSource

__all__ = ["findings"]

_VERB = {"load": "reads", "store": "writes", "atomic": "updates"}


def findings(log: Log, source: KernelSource) -> tuple[Finding, ...]:
    """Errors first."""
    return (*_strays(log, source),)


def _strays(log: Log, source: KernelSource) -> list[Finding]:
    found = []
    for row in log.strays:
        site = log.sites[row["site"]]
        owners = log.owners(row["region"])
        text, element, name = "an address that belongs to no argument", None, ""
        if owners:
            near = min(owners, key=lambda one: abs(one.address - row["address"]))
            element, name = (row["address"] - near.address) // near.itemsize, near.name
            text = f"{name}[{element}]; {name} has {(near.stop - near.start) // near.itemsize:,} elements"
        more = f" ({row['count']:,} elements lie outside in all)" if row["count"] > 1 else ""
        found.append(
            Finding(
                "out_of_bounds",
                "error",
                f"program {tuple(row['program'])} {_VERB[site.kind]} {text}{more}",
                site.line,
                source.line_text(*site.line),
                tuple(row["program"]),
                array=name,
                element=element,
                count=row["count"],
            )
        )
    return found
