"""Pipeline schedules: in which order each stage computes its forwards and backwards, and as programs for the clock.

A schedule is two queues per stage and two numbers: the order of its forwards, the order of its backwards, how many
forwards run ahead of the first backward, and by how many backwards the weight gradients lag (zero bubble). All the
schedules here are rows of the table ``SCHEDULES``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.simulation.programs import Compute, Irecv, Isend, Operation, Recv, Wait
from mlsys_labkit.work.network_link import Number


class PipelineStep(NamedTuple):
    """One piece of work of a stage on one micro-batch.

    ``kind`` is "F" (forward), "B" (backward), or where the backward is split, "B" (gradient of the input) and "W"
    (gradient of the weights). ``chunk`` counts the model chunks of an interleaved stage.
    """

    kind: str
    micro_batch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}" + (f".{self.chunk}" if self.chunk else "")


@dataclass(frozen=True)
class Schedule:
    """The steps of each stage, in order. ``chunks``: model chunks per stage, v. Stage s holds layers s, s + p, ..."""

    name: str
    stages: int
    micro_batches: int
    chunks: int
    steps: tuple[tuple[PipelineStep, ...], ...]

    def live(self, stage: int) -> tuple[int, ...]:
        """Count the forward activations that a stage holds after each of its steps, in micro-batches of one chunk."""
        held, counts = 0, []
        last = "W" if any(step.kind == "W" for step in self.steps[stage]) else "B"
        for step in self.steps[stage]:
            held += (step.kind == "F") - (step.kind == last)
            counts.append(held)
        return tuple(counts)

    def peak(self, stage: int) -> int:
        """Return the most activations that a stage holds at a time, in micro-batches of one chunk."""
        return max(self.live(stage))

    def __str__(self) -> str:
        return "\n".join(f"stage {at}: {' '.join(map(str, steps))}" for at, steps in enumerate(self.steps))


def schedule(name: str, stages: int, micro_batches: int, *, chunks: int = 1) -> Schedule:
    """Return the steps of a schedule: "gpipe", "1f1b", "interleaved" (``chunks`` per stage) or "zero_bubble".

    Raises RanksError for another name, fewer than one stage, micro-batch or chunk, chunks without interleaving, and
    an interleaved schedule whose micro-batches are not a multiple of its stages.

    Example:
        >>> print(schedule("1f1b", stages=2, micro_batches=3))
        stage 0: F0 F1 B0 F2 B1 B2
        stage 1: F0 B0 F1 B1 F2 B2

    Reference: Huang et al., "GPipe", 2019; Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
    Clusters Using Megatron-LM", 2021 (1F1B, interleaved); Qi et al., "Zero Bubble Pipeline Parallelism", 2023 (ZB-H1).
    """
    _check_sizes(name, stages, micro_batches, chunks)
    row = SCHEDULES[name]
    forwards = [PipelineStep("F", batch, chunk) for batch, chunk in _in_turns(stages, micro_batches, chunks)]
    backwards = [
        PipelineStep("B", batch, chunks - 1 - chunk) for batch, chunk in _in_turns(stages, micro_batches, chunks)
    ]
    steps = (
        _woven(forwards, backwards, row.ahead(stage, stages, micro_batches, chunks), row.lag(stage, stages))
        for stage in range(stages)
    )
    return Schedule(name, stages, micro_batches, chunks, tuple(map(tuple, steps)))


def _check_sizes(name: str, stages: int, micro_batches: int, chunks: int) -> None:
    if name not in SCHEDULES:
        raise RanksError(f"expected a schedule of {', '.join(SCHEDULES)}, got {name!r}")
    if min(stages, micro_batches, chunks) < 1:
        raise RanksError(f"expected 1 or more, got {stages} stages, {micro_batches} micro-batches, {chunks} chunks")
    if chunks > 1 and name != "interleaved":
        raise RanksError(f"{name} has one chunk a stage, got {chunks}; interleaved takes more")
    if name == "interleaved" and chunks > 1 and micro_batches % stages:
        raise RanksError(f"interleaved needs a multiple of {stages} micro-batches, got {micro_batches}")


def _in_turns(p: int, m: int, v: int) -> list[tuple[int, int]]:
    """Return (micro-batch, chunk) in the order of a stage: p micro-batches through a chunk, then through the next."""
    group = p if v > 1 else m
    return sorted(((i, c) for i in range(m) for c in range(v)), key=lambda one: (one[0] // group, one[1], one[0]))


def _woven(
    forwards: Sequence[PipelineStep], backwards: Sequence[PipelineStep], ahead: int, lag: int | None
) -> Iterable[PipelineStep]:
    """Yield steps: a backward after the forward ``ahead`` of it, a weight gradient ``lag`` after its backward."""
    places = [((at, 0), step) for at, step in enumerate(forwards)]
    places += [((at + ahead, 1), step) for at, step in enumerate(backwards)]
    if lag is not None:
        places += [((at + ahead + lag, 2), step._replace(kind="W")) for at, step in enumerate(backwards)]
    return (step for _, step in sorted(places, key=lambda placed: placed[0]))


class _Row(NamedTuple):
    ahead: Callable[[int, int, int, int], int]  # of stage, p, m, v: forwards before the first backward, less one
    lag: Callable[[int, int], int | None]  # of stage, p: backwards before the first weight gradient, less one
    bubble_slots: Callable[[Fraction, Fraction, Fraction, int], Fraction]  # of forward, backward, weight, v


SCHEDULES: Mapping[str, _Row] = {
    "gpipe": _Row(lambda s, p, m, v: m - 1, lambda s, p: None, lambda f, b, w, v: f + b),
    "1f1b": _Row(lambda s, p, m, v: min(m, p - s) - 1, lambda s, p: None, lambda f, b, w, v: f + b),
    "interleaved": _Row(
        lambda s, p, m, v: min(m * v - 1, 2 * (p - 1 - s) + (v - 1) * p if v > 1 else p - 1 - s),
        lambda s, p: None,
        lambda f, b, w, v: (f + b) / v,
    ),
    "zero_bubble": _Row(lambda s, p, m, v: min(m, p - s) - 1, lambda s, p: s, lambda f, b, w, v: f + b - w),
}


def bubble(
    name: str,
    stages: int,
    micro_batches: int,
    *,
    chunks: int = 1,
    forward_seconds: Number = 1,
    backward_seconds: Number = 2,
    weight_seconds: Number | None = None,
) -> Fraction:
    """Compute the bubble fraction by formula: idle time over all time, with messages that take no time. Exact.

    The idle time of a stage is (p - 1) times a slot: F + B; (F + B)/v interleaved; F + B - 2W with a split backward,
    where the whole backward B has the weights' part W (half of it if not given; it holds for W <= F and m >= p).

    Raises RanksError as ``schedule`` does, and for times that are negative or all 0.

    Example:
        >>> bubble("1f1b", stages=4, micro_batches=8), bubble("interleaved", stages=4, micro_batches=8, chunks=2)
        (Fraction(3, 11), Fraction(3, 19))

    Reference: as ``schedule``. Narayanan et al. divide by the ideal time instead: (p - 1)/m.
    """
    _check_sizes(name, stages, micro_batches, chunks)
    forward, backward = Fraction(forward_seconds), Fraction(backward_seconds)
    if forward < 0 or backward < 0 or not forward + backward:
        raise RanksError(
            f"expected times of 0 or more that are not both 0, got {forward_seconds} and {backward_seconds}"
        )
    weight = backward / 2 if weight_seconds is None else Fraction(weight_seconds)
    split = name == "zero_bubble"
    slot = SCHEDULES[name].bubble_slots(forward, backward - weight if split else backward, weight, chunks)
    idle = (stages - 1) * slot
    return idle / (micro_batches * (forward + backward) + idle)


def pipeline_programs(
    steps: Schedule | Sequence[Sequence[PipelineStep | str]],
    *,
    forward_seconds: Number = 1,
    backward_seconds: Number = 2,
    weight_seconds: Number | None = None,
    message_bytes: int = 0,
    prefetch: bool = True,
) -> list[list[Operation]]:
    """Build programs for ``simulate``: each stage's steps, and the messages between stages.

    ``steps`` is a Schedule, or for each stage its own list of ``PipelineStep`` or text such as "F0" and "B0" ("F0.1" is
    chunk 1). Times are of one micro-batch on a whole stage; its chunks share them. A message has ``message_bytes``
    either way, and is sent without waiting. With ``prefetch`` a stage offers its buffers at once, so that messages
    arrive while it computes; without, it receives when it needs the message.

    Raises RanksError where a stage lacks a step, has one twice, or a backward before its forward.

    Example:
        >>> from mlsys_labkit.ranks import bubble_fraction, simulate
        >>> trace = simulate(pipeline_programs([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]]))
        >>> trace.seconds, bubble_fraction(trace)
        (9, Fraction(1, 3))

    Reference: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, section 2.2.
    """
    rows = [[_step(step) for step in row] for row in (steps.steps if isinstance(steps, Schedule) else steps)]
    _check(rows)
    p, v = len(rows), 1 + max(step.chunk for row in rows for step in row)
    m = 1 + max(step.micro_batch for row in rows for step in row)
    split = any(step.kind == "W" for row in rows for step in row)
    weight = Fraction(backward_seconds) / 2 if weight_seconds is None else weight_seconds
    times = {"F": forward_seconds, "B": backward_seconds - weight if split else backward_seconds, "W": weight}
    seconds = {kind: time if v == 1 else Fraction(time) / v for kind, time in times.items()}

    def other_end(step: PipelineStep, rank: int, way: int) -> tuple[int, PipelineStep] | None:
        """Return the rank and step that ``step`` receives from (way -1) or sends to (way +1); None if there is none."""
        place = step.chunk * p + rank + way * _WAY[step.kind]  # all chunks of all stages in a row
        if step.kind == "W" or not 0 <= place < p * v or place % p == rank:
            return None
        return place % p, step._replace(chunk=place // p)

    def tag(step: PipelineStep) -> int:
        return ((step.chunk * m) + step.micro_batch) * 2 + (step.kind == "B")

    def stage(rank: int) -> Iterable[Operation]:
        sources = {step: end[0] for step in rows[rank] if (end := other_end(step, rank, -1))}
        if prefetch:
            yield from (Irecv(source, tag(step), str(step)) for step, source in sources.items())
        for step in rows[rank]:
            if step in sources:
                yield Wait(str(step)) if prefetch else Recv(sources[step], tag(step))
            yield Compute(str(step), seconds[step.kind])
            if onward := other_end(step, rank, +1):
                yield Isend(onward[0], message_bytes, tag(onward[1]), "out")
        yield Wait()

    return [list(stage(rank)) for rank in range(p)]


_WAY = {"F": 1, "B": -1, "W": 0}
_TEXT = re.compile(r"([FBW])(\d+)(?:\.(\d+))?")


def _step(given: PipelineStep | str) -> PipelineStep:
    if isinstance(given, PipelineStep):
        return given
    found = _TEXT.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise RanksError(f'expected a step such as "F0", "B3" or "W1.2", got {given!r}')
    return PipelineStep(found[1], int(found[2]), int(found[3] or 0))


def _check(rows: Sequence[Sequence[PipelineStep]]) -> None:
    everything = {(step.micro_batch, step.chunk) for row in rows for step in row}
    if not everything:
        raise RanksError(f"expected at least one step on each stage, got {len(rows)} stages without any")
    kinds = [kind for kind in "FBW" if any(step.kind == kind for row in rows for step in row)]
    for stage, row in enumerate(rows):
        counts, at = Counter(row), {step: place for place, step in enumerate(row)}
        for batch, chunk in sorted(everything):
            steps = [PipelineStep(kind, batch, chunk) for kind in kinds]
            for step in steps:
                if counts[step] != 1:
                    raise RanksError(f"stage {stage} has {step} {counts[step]} times; expected once")
            if sorted(steps, key=at.__getitem__) != steps:
                raise RanksError(f"stage {stage} has its steps {', '.join(map(str, steps))} in another order")
