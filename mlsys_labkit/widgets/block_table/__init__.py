"""Block table: the physical blocks of a paged cache, filling and freeing from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from mlsys_labkit._base.units import plain
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.serving.records import EngineStep, Recording
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.block_table import model

MOST_STEPS = 400
MOST_BLOCKS = 1024
MOST_NUMBERS = 60_000
_HUES = 6
_TOLD = 12  # rows of the static table


def block_table(recording: Recording) -> Any:
    """Walk through a recorded run: the blocks of each request, and those shared, cached, or reserved and empty.

    Blocks that the run never touched are left out. Of more than 400 steps, every second, third, ... is shown, and the
    view says so. Raises LabkitError for a run without steps or blocks, or one that touched more than 1024 blocks.
    Reference: Kwon et al., "PagedAttention", SOSP 2023, sec. 4.

    Example:
        >>> from mlsys_labkit.serving import EngineStep, Request, Scheduled
        >>> part = (Scheduled("a", "prefill", 3, 0),)
        >>> step = EngineStep(0, 0.0, 0.1, part, block_tables={"a": (0,)}, held_tokens={"a": 3})
        >>> run = Recording((Request("a", (1, 2, 3)),), (step,), {"a": (7,)}, {"a": (0.1,)}, {}, 4, blocks=2)
        >>> block_table(run)
        <Block table>
    """
    if not isinstance(recording, Recording):
        raise LabkitError(f"expected the Recording of an engine's run, got {type(recording).__name__}")
    if not recording.steps:
        raise LabkitError("the run has no step to draw; record one that serves something")
    touched = sorted({block for step in recording.steps for blocks in _places(step) for block in blocks})
    if not touched or len(touched) > MOST_BLOCKS:
        advice = "record fewer or shorter requests"
        if not touched:  # a table is shown as a step leaves it
            advice = "let a request go on after its first step: max_new_tokens from 2 up"
        raise LabkitError(f"a block table shows 1 to {MOST_BLOCKS} blocks, the run touched {len(touched)}; {advice}")
    stride = -(-len(recording.steps) // MOST_STEPS)
    chunks = [recording.steps[at : at + stride] for at in range(0, len(recording.steps), stride)]
    names = list(dict.fromkeys(name for step in recording.steps for name in step.block_tables))
    owners = {name: number for number, name in enumerate(names)}
    steps = _changes(chunks, owners)
    size = sum(len(turned) + sum(map(len, changes)) for changes, turned in steps)
    if size > MOST_NUMBERS:
        raise LabkitError(
            f"the run's tables take {size} numbers, a page holds {MOST_NUMBERS}; record fewer or shorter requests"
        )
    used = [len({block for blocks in chunk[-1].block_tables.values() for block in blocks}) for chunk in chunks]
    fullest = max(range(len(used)), key=lambda at: (used[at], at))  # the last of them
    return KIND.show(
        size=recording.block_size,
        blocks=touched,
        total=recording.blocks,
        names=names,
        hues=_hues(recording.steps),
        steps=steps,
        seconds=[float(f"{chunk[-1].end_seconds:.6g}") for chunk in chunks],
        events=[_events(chunk) for chunk in chunks],
        stride=stride,
        clock=recording.clock,
        step=fullest,
        request=-1,
    )


def _hues(steps: Sequence[EngineStep]) -> list[int]:
    """Give each request a colour that no request running at its arrival has, as long as there are enough."""
    hues: dict[str, int] = {}
    for step in steps:
        taken = [hues[name] for name in step.block_tables if name in hues]
        for name in step.block_tables:
            if name not in hues:
                hues[name] = min(range(_HUES), key=lambda hue: (taken.count(hue), (hue - len(hues)) % _HUES))
                taken.append(hues[name])
    return list(hues.values())


def _places(step: EngineStep) -> list[Sequence[int]]:
    return [*step.block_tables.values(), step.turned_blocks]


def _changes(chunks: Sequence[Sequence[EngineStep]], owners: Mapping[str, int]) -> list[list[list[Any]]]:
    """Return each chunk of steps as its changes: a decode of one token is four numbers, however long the table."""
    tables: dict[str, tuple[int, tuple[int, ...]]] = {}
    rows: list[list[list[Any]]] = []
    for chunk in chunks:
        step, turned = chunk[-1], set[int]()
        for each in chunk:
            turned ^= set(each.turned_blocks)
        now = {name: (step.held_tokens.get(name, 0), blocks) for name, blocks in step.block_tables.items() if blocks}
        changes = [[owners[name], 0, 0] for name in tables if name not in now]
        for name, (held, blocks) in now.items():
            before = tables.get(name, (0, ()))
            if before != (held, blocks):
                kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before[1], blocks, strict=False)))
                changes.append([owners[name], held, kept, *blocks[kept:]])
        rows.append([changes, sorted(turned)])
        tables = now
    return rows


def _events(chunk: Sequence[EngineStep]) -> list[str]:
    """Describe the events of a step other than filling; a long list ends in a count."""
    told = [f"{each.request_id} preempted ({each.how})" for step in chunk for each in step.preempted]
    told += [f"{name} swapped back in" for step in chunk for name in step.resumed]
    told += [f"block {old} copied to {new} before a write" for step in chunk for old, new in step.copies]
    told += [
        f"{part.request_id} found {part.hit_tokens} tokens cached"
        for s in chunk
        for part in s.scheduled
        if part.hit_tokens
    ]
    told += [f"{name} ended" for step in chunk for name in step.finished]
    return told if len(told) <= 6 else [*told[:6], f"{len(told) - 6} more events"]


def _static(state: State) -> str:
    steps, size, total = state["steps"], state["size"], state["total"]
    last = len(steps) - 1
    chosen = sorted({round(last * part / (_TOLD - 1)) for part in range(_TOLD)} | {state["step"]})
    rows = []
    for at in chosen:
        now = model.tables(steps, at)
        used, shared, slots, empty = model.counts(model.pool(now, size), size)
        waste = f"{plain(100 * empty / slots)} %" if slots else "-"
        row = [used, shared, len(model.cached(steps, at)), total - used, waste]
        rows.append([at * state["stride"], len(now), *row])
    head = ["step", "requests", "blocks in use", "shared", "cached", "free", "slots unfilled"]
    held = [
        [state["names"][owner], tokens, " ".join(map(str, blocks))]
        for owner, tokens, blocks in model.tables(steps, state["step"])
    ]
    return (
        paragraph(f"{total} blocks of {size} tokens; free ones include those cached.")
        + table("The pool over time", head, rows)
        + table(f"Tables after step {state['step'] * state['stride']}", ["request", "tokens", "blocks"], held[:20])
    )


KIND = Kind("block_table", "Block table", _static)
