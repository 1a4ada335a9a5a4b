"""Programs for the virtual clock: operations of a rank, and links between ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mlsys_labkit.work.network_link import Link, Number


@dataclass(frozen=True, slots=True)
class Compute:
    """``seconds`` of computing, called ``name``."""

    name: str
    seconds: Number


@dataclass(frozen=True, slots=True)
class Send:
    """A send to rank ``to`` that returns when the message has arrived."""

    to: int
    bytes: int
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Recv:
    """A receive of the next message of this tag from rank ``source`` that returns when it has arrived."""

    source: int
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Isend:
    """A send that does not wait; ``Wait(handle)`` returns when the message has arrived."""

    to: int
    bytes: int
    tag: int = 0
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Irecv:
    """A receive that does not wait; the message is there after ``Wait(handle)``."""

    source: int
    tag: int = 0
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for the asynchronous calls with this handle; without one, for all that have not been waited for."""

    handle: str = ""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of ``group`` (empty: all ranks); ``bytes`` as ``Event`` has them, ``algorithm`` of ``pattern``.

    Members call a group's collectives in the same order; those of different tags, as on communicators of their own.
    """

    name: str
    bytes: int
    group: tuple[int, ...] = ()
    algorithm: str = ""
    asynchronous: bool = False
    handle: str = ""
    tag: int = 0


Operation = Compute | Send | Recv | Isend | Irecv | Wait | Collective


Links = Link | Mapping[tuple[int, int], Link] | Callable[[int, int], Link]
FREE = Link()  # messages cost nothing


def node_links(ranks_per_node: int, inside: Link, between: Link) -> Callable[[int, int], Link]:
    """Return the links of a cluster: ``inside`` a node (NVLink, say), ``between`` nodes (InfiniBand).

    Example:
        >>> links = node_links(8, Link(2e-6, 450e9), Link(5e-6, 50e9))
        >>> links(0, 7) == links(8, 15), links(7, 8).bytes_per_second
        (True, 50000000000.0)
    """
    return lambda source, to: inside if source // ranks_per_node == to // ranks_per_node else between
