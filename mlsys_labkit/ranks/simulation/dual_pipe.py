"""DualPipe: a pipeline that micro-batches enter at both ends, so that forwards and backwards of two ways overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.simulation.programs import Compute, Isend, Operation, Recv, Wait


class PipelineChunk(NamedTuple):
    """One micro-batch's work on one rank.

    ``kind`` is "F" (forward), "B" (backward), or the two halves of a backward: "I" (gradient of the inputs) and "W"
    (gradient of the weights). ``way`` 0 enters at rank 0, ``way`` 1 at the last rank.
    """

    kind: Literal["F", "B", "I", "W"]
    way: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}.{self.way}"


Slot = tuple[PipelineChunk, ...]  # one chunk, or a forward and a backward that overlap
UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}  # the time of a chunk; a pair takes the sum


def dual_pipe(ranks: int, micro_batches: int) -> tuple[tuple[Slot, ...], ...]:
    """Return the slots of each rank in order; half of the micro-batches go each way.

    Raises RanksError for an odd number of either, or fewer micro-batches than twice the ranks.

    Example:
        >>> [" ".join("&".join(map(str, slot)) for slot in slots[:4]) for slots in dual_pipe(4, 8)][:2]
        ['F0.0 F1.0 F2.0 F0.1', 'F0.0 F0.1 F1.0 F1.1']

    Reference: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, 2024, section 3.2.1, and the repository
    deepseek-ai/DualPipe, whose eight phases these are.
    """
    if ranks < 2 or ranks % 2 or micro_batches % 2 or micro_batches < 2 * ranks:
        raise RanksError(
            f"expected an even number of ranks and of at least twice as many micro-batches, got {ranks} and "
            f"{micro_batches}"
        )
    return tuple(tuple(_slots(rank, ranks, micro_batches // 2)) for rank in range(ranks))


def _slots(rank: int, ranks: int, each: int) -> Iterable[Slot]:
    """Yield the slots of a rank. In the text of a phase, ``n`` is the way from the near end and ``f`` the other."""
    depth = min(rank, ranks - 1 - rank)  # ranks to the near end
    rest = ranks // 2 - 1 - depth  # ranks to the middle
    # Apart, the first forward and backward of a middle rank let their neighbours start earlier.
    first = "Fn&Bf Ff&Bn" if rest else "Fn Bf Ff&Bn"
    drain = "Bf Bn " * (depth + 1)
    cut = 3 * (depth + 1)  # half of the drain's backwards, in letters
    phases = [
        "Fn " * (2 * rest),
        "Fn Ff " * (depth + 1),
        "If W Ff " * rest,
        first,
        " Fn&Bf Ff&Bn" * (each - ranks + depth) + " ",
        "Bf Ff&Bn " * rest,
        drain[:cut] + drain[cut:].replace("B", "I"),
        "W In " * rest,
        "W " * (depth + 1),
    ]
    near = int(rank >= ranks // 2)
    count = {(kind, way): 0 for kind in "FB" for way in (0, 1)}
    owed: deque[tuple[int, int]] = deque()  # ways and micro-batches whose weights' gradients are to be computed

    def chunk(text: str) -> PipelineChunk:
        if text == "W":
            return PipelineChunk("W", *owed.popleft())
        way = near if text[1] == "n" else 1 - near
        key = ("F" if text[0] == "F" else "B", way)
        made = PipelineChunk(text[0], way, count[key])  # type: ignore[arg-type]
        count[key] += 1
        if made.kind == "I":
            owed.append((way, made.micro_batch))
        return made

    for slot in "".join(phases).split():
        yield tuple(chunk(text) for text in slot.split("&"))


def dual_pipe_programs(slots: tuple[tuple[Slot, ...], ...]) -> list[list[Operation]]:
    """Build programs for ``simulate``: each rank's slots as ``Compute``, and messages that take no time."""
    last = len(slots) - 1

    def towards(chunk: PipelineChunk, rank: int, step: int) -> int | None:
        """Return the rank before (step -1) or after (+1) ``rank`` on the chunk's way; None beyond the end."""
        if chunk.kind == "W":
            return None
        forward = (chunk.kind == "F") == (chunk.way == 0)
        other = rank + (step if forward else -step)
        return other if 0 <= other <= last else None

    def tag(chunk: PipelineChunk) -> int:
        return 4 * chunk.micro_batch + 2 * chunk.way + (chunk.kind != "F")

    def program(rank: int) -> Iterable[Operation]:
        for slot in slots[rank]:
            yield from (Recv(source, tag(chunk)) for chunk in slot if (source := towards(chunk, rank, -1)) is not None)
            yield Compute("&".join(map(str, slot)), sum(UNITS[chunk.kind] for chunk in slot))
            yield from (
                Isend(to, 0, tag(chunk), "out") for chunk in slot if (to := towards(chunk, rank, 1)) is not None
            )
        yield Wait()

    return [list(program(rank)) for rank in range(last + 1)]
