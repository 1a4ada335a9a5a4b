"""Collective animator: the messages of each round, their cost, and a comparison of the algorithms."""

from __future__ import annotations

from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.collective_animator import model

MOST = 8
CLUSTERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def collective_animator(
    collective: str = "all_reduce",
    algorithm: str = "",
    ranks: int = 4,
    *,
    tensor_bytes: float = 1_000_000,
    latency_seconds: float = 5e-6,
    bytes_per_second: float = 50e9,
    cluster_ranks: int = 64,
) -> Any:
    """Step through a collective among 2 to 8 ranks, and estimate it on a cluster after the alpha-beta model.

    ``collective`` is "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce" or "all_to_all";
    ``algorithm`` one that ``ranks.pattern`` has for it, its first if empty. The tensor's size and the link are where
    the sliders begin. Raises LabkitError for names that are not there and numbers out of range.
    Reference: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.

    Example:
        >>> collective_animator("all_reduce", "tree", ranks=6)
        <Collective, step by step>
    """
    if collective not in model.COLLECTIVES:
        raise LabkitError(f"expected a collective of {', '.join(model.COLLECTIVES)}, got {collective!r}")
    algorithm = algorithm or model.ways(collective)[0]
    if algorithm not in model.ways(collective):
        raise LabkitError(f"{collective} goes by {', '.join(model.ways(collective))}, got {algorithm!r}")
    if not 2 <= ranks <= MOST or cluster_ranks not in CLUSTERS:
        raise LabkitError(f"expected 2 to {MOST} ranks and a cluster of {CLUSTERS}, got {ranks} and {cluster_ranks}")
    numbers = (tensor_bytes, latency_seconds, bytes_per_second)
    if not all(0 < number < float("inf") for number in numbers):
        raise LabkitError(f"expected positive bytes, latency and bandwidth, got {', '.join(map(str, numbers))}")
    return KIND.show(
        collective=collective,
        algorithm=algorithm,
        ranks=int(ranks),
        step=0,
        size=float(tensor_bytes),
        latency=float(latency_seconds),
        bandwidth=float(bytes_per_second),
        cluster=int(cluster_ranks),
    )


def _static(state: State) -> str:
    name, p, size = state["collective"], state["ranks"], state["size"]
    rows = []
    for way in model.ways(name):
        sent = model.traffic(name, way, p)
        most = max(parts for _, parts in sent)
        seconds = model.seconds(name, way, state["cluster"], size, state["latency"], state["bandwidth"])
        count = len(model.rounds(name, way, p))
        rows.append([way, count, max(messages for messages, _ in sent), si(most * size / p, "B"), si(seconds, "s")])
    link = f"{si(state['latency'], 's')} + bytes / {si(state['bandwidth'], 'B/s')} a message"
    words = f"A tensor of {si(size, 'B')}. Counts are for {p} ranks, times for {state['cluster']} on links of {link}."
    head = ["algorithm", "rounds", "most messages a rank sends", "most bytes a rank sends", "time by the formula"]
    return paragraph(words) + table(name.replace("_", "-"), head, rows)


KIND = Kind("collective_animator", "Collective, step by step", _static)
