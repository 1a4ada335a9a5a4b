"""Comparison of the calls that the members of a collective make; it reports the first two that differ."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from mlsys_labkit.ranks.errors import MismatchError
from mlsys_labkit.ranks.local.post import Post
from mlsys_labkit.ranks.recording.arguments import ROOTED, Arguments
from mlsys_labkit.ranks.recording.recorder import Call
from mlsys_labkit.ranks.student_lines import at


def compare(earlier: Iterable[Post], member: Post) -> None:
    """Check that the calls of the members of a collective agree. Raises MismatchError that names two that differ."""
    mine, me = member.given, member.call
    for other in (member, *earlier):
        theirs, they = other.given, other.call
        heads = [_head(mine, me), _head(theirs, they)]
        tensors = [] if heads[0] != heads[1] else _counterparts(mine.name, member, other)
        bad = next(((x, y) for x, y in tensors if not _fit(mine.name, x, y)), None)
        if bad and other is member:
            raise MismatchError(
                f"rank {me.rank} calls {heads[0]} with {described(bad[0])} and {described(bad[1])}{at(me.line)}; "
                "what it gives itself must fit into what it gets"
            )
        if heads[0] == heads[1] and bad:
            heads = [f"{head} with {described(x)}" for head, x in zip(heads, bad, strict=True)]
        if heads[0] != heads[1] or bad:
            first, second = sorted(zip((me, they), heads, strict=True), key=lambda one: one[0].rank)
            raise MismatchError(
                f"rank {first[0].rank} calls {first[1]}{at(first[0].line)}, "
                f"but rank {second[0].rank} calls {second[1]}{at(second[0].line)}; "
                "all ranks of a group call the same collectives in the same order, with tensors that fit"
            )


def _head(given: Arguments, call: Call) -> str:
    root = f" with root {call.group[given.root]}" if given.name in ROOTED else ""
    operation = f"({given.operation})" if given.operation else ""
    several = len(given.exchanges(len(call.group))) if given.coalesced else 1
    return given.name + operation + root + (f" of {several} tensors" if several > 1 else "")


def _counterparts(name: str, mine: Post, theirs: Post) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return pairs of tensors of two members (or of one with itself) that must fit."""
    group = mine.call.group
    i, j, size = group.index(mine.call.rank), group.index(theirs.call.rank), len(group)
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for one, other in zip(mine.exchanges, theirs.exchanges, strict=True):
        for parts, names in ((one.gives, _GIVES_ALL), (one.gets, _GETS_ALL)):
            if name in names and len(parts) not in (size, 0):
                raise MismatchError(
                    f"rank {mine.call.rank} calls {name} with {len(parts)} tensors{at(mine.call.line)}; "
                    f"its group has {size} ranks, each needs one"
                )
        if name in _IN_PLACE:
            pairs.append((one.gives[0], other.gives[0]))
        elif name == "reduce_scatter":
            pairs += [*zip(one.gives, other.gives, strict=True), (one.gives[j], other.gets[0])]
            pairs.append((one.gets[0], other.gives[i]))
        elif name == "all_to_all":
            pairs += [(one.gives[j], other.gets[i]), (one.gets[j], other.gives[i])]
        elif name in ("all_gather", "gather"):
            pairs += [(one.gets[j], other.gives[0])] if one.gets else []
            pairs += [(one.gives[0], other.gets[i])] if other.gets else []
        elif name == "scatter":
            pairs += [(one.gives[j], other.gets[0])] if one.gives else []
            pairs += [(one.gets[0], other.gives[i])] if other.gives else []
    return pairs


_IN_PLACE = ("all_reduce", "reduce", "broadcast")
_GIVES_ALL = ("reduce_scatter", "all_to_all", "scatter")
_GETS_ALL = ("all_gather", "all_to_all", "gather")


def _fit(name: str, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether dtype and number of elements agree; for a reduction in place or a broadcast, also the shape."""
    alike = one.shape == other.shape if name in _IN_PLACE else one.numel() == other.numel()
    return one.dtype == other.dtype and alike


def described(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words: "(2, 3) of float32"."""
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
