"""Drawings of who works when: a pipeline in two directions, and the phases of reinforcement learning."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role
from mlsys_labkit.ranks.simulation.clock import simulate
from mlsys_labkit.ranks.simulation.dual_pipe import UNITS, dual_pipe as slots_of_ranks, dual_pipe_programs
from mlsys_labkit.ranks.simulation.programs import Compute, Isend, Operation, Recv
from mlsys_labkit.ranks.simulation.schedules import pipeline_programs, schedule
from mlsys_labkit.ranks.trace.events import RunTrace
from mlsys_labkit.work.network_link import Link


def dual_pipe() -> Drawing:
    """Return the slots of eight ranks under DualPipe, with 20 micro-batches of which half go each way.

    Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, 2024, figure 5.
    """
    ranks, micro_batches = 8, 20
    slots = slots_of_ranks(ranks, micro_batches)
    trace = simulate(dual_pipe_programs(slots))
    left, top, pitch = 26.0, 52.0, 44.0
    total, work = float(trace.seconds or 0), micro_batches * (UNITS["F"] + UNITS["B"])
    unit = (638 - left) / total
    colours: dict[tuple[int, bool], Role] = {
        (0, True): "compute",
        (0, False): "memory",
        (1, True): "link",
        (1, False): "control",
    }
    parts: list[Part] = []
    for rank in range(ranks):
        y = top + pitch * rank
        parts.append(Label(4, y + 23, str(rank), "start", bold=True))
        for slot, event in zip(slots[rank], trace.of(rank, "compute"), strict=True):
            x = left + unit * float(event.start_seconds or 0)
            wide = unit * sum(UNITS[chunk.kind] for chunk in slot) - 1
            for row, chunk in enumerate(slot):
                role = colours[chunk.way, chunk.kind == "F"] if chunk.kind != "W" else "plain"
                high = 36 / len(slot)
                text = str(chunk.micro_batch) if wide > 2 * unit - 2 else ""
                parts.append(Box(x, y + high * row, wide, high, text, role))
    idle = {
        name: float(simulate(pipeline_programs(schedule(key, ranks, micro_batches))).seconds or 0) - work
        for name, key in (("1F1B", "1f1b"), ("zero bubble", "zero_bubble"))
    } | {"DualPipe": total - work}
    end = top + pitch * ranks
    parts += [
        Label(left, 18, "from rank 0 down: blue forward, orange backward", "start"),
        Label(left, 38, "from rank 7 up: green forward, purple backward", "start"),
        Label(left + unit * total, 18, "grey: gradients of weights", "end"),
        Label(left + unit * total, 38, "two in one slot: overlapped", "end"),
        Arrow([(left, end + 4), (left + unit * total, end + 4)]),
        Label(left, end + 24, f"{total:.0f} units, {work} of them work: forward 1, backward 2, a pair 3", "start"),
        Label(
            left,
            end + 44,
            "idle units of each rank: " + ", ".join(f"{units:.0f} with {name}" for name, units in idle.items()),
            "start",
        ),
    ]
    return Drawing(
        "DualPipe on eight ranks",
        "Ten micro-batches enter at rank 0 and go down, ten enter at rank 7 and go up. Each rank fills with "
        "forwards of both ways, then works on pairs of one forward and one backward, which belong to "
        "opposite ways, and ends with backwards and gradients of weights. "
        f"All of it takes {total:.0f} units, of which each rank works {work}.",
        "While one half of a pair waits for its all-to-all, the other half computes. Published for 8 ranks and 20 "
        "micro-batches; computed here from the published order.",
        end + 56,
        parts,
    )


# Times of one step on all GPUs, in units. A rollout keeps its GPUs busy for less time than its longest answer takes.
_ROLLOUT, _LONGEST, _TRAIN, _REWARD, _WEIGHTS = map(Fraction, ("3", "4", "2", "1", "0.5"))
_SHARE = Fraction(6, 10)  # of the GPUs generates where they are split; the rest trains in the same time


class RlPlacement(NamedTuple):
    """A placement: its name, its groups of machines, and the program of each."""

    name: str
    groups: tuple[str, ...]
    programs: list[list[Operation]]

    def trace(self) -> RunTrace:
        """Run it; new weights take a while from the trainer to the rollout."""
        return simulate(self.programs, lambda source, to: Link(_WEIGHTS) if (source, to) == (2, 0) else Link())


def placements() -> list[RlPlacement]:
    """Return three placements of the phases of a step, with a few steps of each."""
    rest = 1 - _SHARE
    together: list[Operation] = [
        Compute("rollout", _ROLLOUT),
        Compute("longest answer", _LONGEST - _ROLLOUT),
        Isend(1, 0),
        Recv(1),
        Compute("train", _TRAIN),
        Compute("weights", _WEIGHTS),
    ]
    check: list[Operation] = [Recv(0), Compute("reward", _REWARD)]
    generate: list[Operation] = [Compute("rollout", _ROLLOUT / _SHARE)]
    wait: list[Operation] = [Compute("longest answer", (_LONGEST - _ROLLOUT) / _SHARE)]
    train: list[Operation] = [Recv(1), Compute("train", _TRAIN / rest)]
    to_reward, to_trainer, to_rollout = Isend(1, 0), Isend(2, 0), Isend(0, 0)
    split = ("6 GPUs: rollout", "CPUs: reward", "4 GPUs: trainer")
    return [
        RlPlacement("colocated", ("10 GPUs: both", "CPUs: reward"), [4 * together, 4 * [*check, to_rollout]]),
        RlPlacement(
            "split, synchronous",
            split,
            [2 * [*generate, *wait, to_reward, Recv(2)], 2 * [*check, to_trainer], 2 * [*train, to_rollout]],
        ),
        RlPlacement("split, asynchronous", split, [5 * [*generate, to_reward], 5 * [*check, to_trainer], 5 * train]),
    ]


def rl_placements() -> Drawing:
    """Return who works and who waits in reinforcement learning: phases on one set of GPUs, on two, and overlapped.

    Sources: Sheng and others, "HybridFlow", arXiv 2409.19256, 2024; Fu and others, "AReaL", arXiv 2505.24298, 2025.
    """
    left, unit, high, pitch = 132.0, 16.2, 24.0, 29.0
    roles: dict[str, Role] = {"rollout": "memory", "reward": "control", "train": "compute", "weights": "link"}
    parts: list[Part] = []
    y, pace = 18.0, list[str]()
    for placement in placements():
        trace = placement.trace()
        trained = [float(event.end_seconds or 0) for event in trace if event.name == "train"]
        last = max(float(event.start_seconds or 0) for event in trace if event.name == "rollout")
        pace.append(f"{(trained[-1] - trained[0]) / (len(trained) - 1):.1f}")
        parts.append(Label(8, y, f"{placement.name}: a step every {pace[-1]} units", "start", bold=True))
        for rank, group in enumerate(placement.groups):
            top, free = y + 8 + pitch * rank, 0.0
            parts.append(Label(8, top + 17, group, "start"))
            for event in trace.of(rank, "compute"):
                if event.name not in roles:
                    continue
                start, end = float(event.start_seconds or 0), float(event.end_seconds or 0)
                if start > free and not group.startswith("CPU"):
                    parts.append(Box(left + unit * free, top, unit * (start - free) - 1, high, "", "absent"))
                text = ""
                if event.name == "train":
                    text = f"v{trained.index(end) + 1}"
                elif event.name == "rollout":
                    text = f"v{sum(moment + float(_WEIGHTS) <= start for moment in trained)}"
                parts.append(Box(left + unit * start, top, unit * (end - start) - 1, high, text, roles[event.name]))
                free = end
        if len(placement.groups) > 2:
            moves = ((left + unit * end, left + unit * (end + float(_WEIGHTS))) for end in trained if end < last)
            parts += [Arrow([(sent - 1, y + 8 + 2 * pitch), (came, y + 8 + high)], "link") for sent, came in moves]
        y += 32 + pitch * len(placement.groups)
    parts += [
        Label(
            8, y, "orange: rollout. purple: reward. blue: training. green: new weights. dashed: GPUs that wait", "start"
        ),
        Label(
            8,
            y + 20,
            "v1 in orange: answers of the weights after one step. v1 in blue: the training that makes them",
            "start",
        ),
    ]
    return Drawing(
        "Placements of rollout, reward and trainer",
        "Colocated: all GPUs generate, wait for the longest answer and for the reward, train and change "
        f"the layout of the weights, {pace[0]} units per step. Split and synchronous: the rollout's "
        f"GPUs wait while the trainer works and the trainer's while they generate, {pace[1]} units. "
        f"Split and asynchronous: after the start none waits, {pace[2]} units, and the trainer learns "
        "from answers that older weights wrote.",
        "Times are an example: on all GPUs a rollout works 3 units, its longest answer takes 4, training "
        "2. The actor is the model that is trained; the rollout runs a copy of it.",
        y + 32,
        parts,
    )
