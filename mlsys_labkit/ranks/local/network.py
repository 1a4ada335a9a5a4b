"""The local backend's network: messages that meet, collectives that gather their members, and the copies they make.

It is the strictest network that torch.distributed allows, so that a program that is correct here is correct on every
backend:

- A send waits for its receive (a rendezvous, as for large messages everywhere).
- A buffer to receive in holds nothing useful before ``wait``: NaN or the lowest integer, from the call on.
- What was handed to isend is read at the first of the two ends' waits, no earlier.
- A collective reads its inputs when the first member waits with all members there, and writes at each member's wait.
  If a rank changes an input of its asynchronous collective before its wait, a finding names both (InputWatch).

Reductions add in the order of ranks, ((x0 + x1) + x2) + ..., each step rounded to the tensors' own dtype; gloo and
NCCL add in orders of their own, so their last bits differ. AVG divides the sum, integers towards zero.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mlsys_labkit.ranks.errors import MismatchError
from mlsys_labkit.ranks.local.agreement import compare, described
from mlsys_labkit.ranks.local.post import Post
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.arguments import Arguments, Exchange
from mlsys_labkit.ranks.recording.recorder import Call
from mlsys_labkit.ranks.student_lines import at
from mlsys_labkit.ranks.trace.deadlock import Waiting


class PendingMessage(Post):
    """A send or a receive; ``other`` is the other end when they have met."""

    other: PendingMessage | None = None
    staged: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        exchange = self.exchanges[0]
        return (exchange.gives or exchange.gets)[0]

    @property
    def ready(self) -> bool:
        return self.other is not None

    def complete(self) -> None:
        assert self.other is not None
        self.done = True
        if self.call.kind == "send":
            if not self.other.done:  # from now on the sender may change it
                self.staged = self.tensor.detach().clone()
        else:
            sent = self.other.staged if self.other.staged is not None else self.other.tensor
            self.tensor.detach().copy_(sent.detach().reshape(self.tensor.shape))
            self.other.staged = None
        if self.other.done:
            self.other.other = None  # a circle would keep both tensors alive, and in ``run.memory``
            self.other = None

    def waiting(self) -> Waiting:
        anyone = tuple(rank for rank in self.call.group if rank != self.call.rank)
        return self._waiting(() if self.other else self.call.peers or anyone, any_of=not self.call.peers)


@dataclass(eq=False)
class PendingCollective:
    """One collective of a group: its members' parts, and the results once they are computed."""

    group: tuple[int, ...]
    parts: dict[int, Member] = field(default_factory=dict)
    results: dict[int, list[list[torch.Tensor | None]]] | None = None

    def compute(self) -> dict[int, list[list[torch.Tensor | None]]]:
        """Return what each member receives: [exchange][part]."""
        if self.results is None:
            members = [self.parts[rank] for rank in self.group]
            columns = zip(*(member.exchanges for member in members), strict=True)
            per_exchange = [_exchanged(members[0].given, list(column)) for column in columns]
            self.results = {rank: [one[index] for one in per_exchange] for index, rank in enumerate(self.group)}
            self.parts = {}  # so that the tensors of a member that goes on are not kept for those still to come
        return self.results


class Member(Post):
    """One rank's part of a collective."""

    collective: PendingCollective

    @property
    def ready(self) -> bool:
        return self.collective.results is not None or len(self.collective.parts) == len(self.collective.group)

    def complete(self) -> None:
        self.done = True
        results = self.collective.compute().pop(self.call.rank)
        for exchange, parts in zip(self.exchanges, results, strict=True):
            for target, source in zip(exchange.gets, parts, strict=True):
                if source is not None:
                    target.detach().copy_(source.reshape(target.shape))

    def waiting(self) -> Waiting:
        return self._waiting(tuple(rank for rank in self.collective.group if rank not in self.collective.parts))


class Network:
    """The network of a local run, on which posts are matched."""

    def __init__(self) -> None:
        self._sends: dict[tuple[str, int], deque[PendingMessage]] = defaultdict(deque)  # (group, destination), in order
        self._receives: dict[tuple[str, int], deque[PendingMessage]] = defaultdict(deque)
        self._collectives: dict[str, PendingCollective] = {}

    def post(self, call: Call, given: Arguments) -> Post:
        """Add a rank's call, matched with the other end if that has called. Raises MismatchError if they do not fit."""
        exchanges = given.exchanges(len(call.group))
        if call.kind == "collective":
            return self._join(Member(call, given, exchanges))
        message = PendingMessage(call, given, exchanges)
        here, there = (self._sends, self._receives) if call.kind == "send" else (self._receives, self._sends)
        destination = call.peers[0] if call.kind == "send" else call.rank
        candidates = there[call.group_name, destination]
        for other in candidates:
            send, receive = (message, other) if call.kind == "send" else (other, message)
            if send.call.tag == receive.call.tag and receive.call.peers in ((), (send.call.rank,)):
                candidates.remove(other)
                self._meet(send, receive)
                return message
        here[call.group_name, destination].append(message)
        return message

    def _meet(self, send: PendingMessage, receive: PendingMessage) -> None:
        if send.tensor.numel() != receive.tensor.numel() or send.tensor.dtype != receive.tensor.dtype:
            raise MismatchError(
                f"rank {send.call.rank} sends {described(send.tensor)}{at(send.call.line)}, "
                f"but rank {receive.call.rank} receives {described(receive.tensor)}{at(receive.call.line)}; "
                "make both the same"
            )
        receive.call.peers, receive.call.key = (send.call.rank,), send.call.key
        send.other, receive.other = receive, send

    def _join(self, member: Member) -> Member:
        call = member.call
        collective = self._collectives.setdefault(call.key, PendingCollective(call.group))
        compare(collective.parts.values(), member)
        member.collective = collective
        collective.parts[call.rank] = member
        if member.ready:
            del self._collectives[call.key]
        return member


def _wrong(dtype: torch.dtype) -> float:
    """Return NaN, True, or the integer that is farthest from 0."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    if dtype == torch.bool:
        return True
    limits = torch.iinfo(dtype)
    return limits.min or limits.max


def poison(given: Arguments, exchanges: Sequence[Exchange]) -> None:
    """Fill buffers with wrong values until a wait for them, except where an input shares their memory."""
    inputs = {one.untyped_storage().data_ptr() for one in given.inputs}
    for exchange in exchanges:
        for buffer in exchange.gets:
            if buffer.untyped_storage().data_ptr() in inputs:
                continue
            buffer.detach().fill_(_wrong(buffer.dtype))


def _exchanged(given: Arguments, all_: list[Exchange]) -> list[list[torch.Tensor | None]]:
    """Return what each member of the group receives from the inputs of all; None: its buffer stays as it is."""
    size = len(all_)
    match given.name:
        case "all_reduce" | "reduce":
            total = _reduced(given.reduction, [one.gives[0] for one in all_])
            return [[total if given.name == "all_reduce" or rank == given.root else None] for rank in range(size)]
        case "broadcast":
            return [[None if rank == given.root else _copy(all_[given.root].gives[0])] for rank in range(size)]
        case "all_gather":
            whole: list[torch.Tensor | None] = [_copy(one.gives[0]) for one in all_]
            return [whole for _ in range(size)]
        case "gather":
            return [[_copy(one.gives[0]) for one in all_] if rank == given.root else [] for rank in range(size)]
        case "scatter":
            return [[_copy(all_[given.root].gives[rank])] for rank in range(size)]
        case "reduce_scatter":
            return [[_reduced(given.reduction, [one.gives[rank] for one in all_])] for rank in range(size)]
        case "all_to_all":
            return [[_copy(one.gives[rank]) for one in all_] for rank in range(size)]
    return [[] for _ in range(size)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _reduced(operation: Any, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    name = torch_private.op_name(operation)
    combine: Any = {
        "sum": torch.Tensor.add_,
        "avg": torch.Tensor.add_,
        "premul_sum": torch.Tensor.add_,
        "product": torch.Tensor.mul_,
        "band": torch.Tensor.bitwise_and_,
        "bor": torch.Tensor.bitwise_or_,
        "bxor": torch.Tensor.bitwise_xor_,
        "min": lambda total, one: torch.minimum(total, one, out=total),
        "max": lambda total, one: torch.maximum(total, one, out=total),
    }[name]
    if name == "premul_sum":
        tensors = [one * torch_private.premultiplier(operation) for one in tensors]
    total = _copy(tensors[0])
    for one in tensors[1:]:
        combine(total, one.detach().reshape(total.shape))
    if name == "avg":
        rounding = None if total.is_floating_point() or total.is_complex() else "trunc"
        total.div_(len(tensors), rounding_mode=rounding)
    return total
