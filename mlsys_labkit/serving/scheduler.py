"""The scheduler: which sequences take part in the next step, and which lose their blocks to make room.

Reference: Yu et al., "Orca", OSDI 2022 (iteration-level scheduling); Agrawal et al., "Sarathi-Serve", arXiv:2403.02310
(chunked prefill beside decodes); Kwon et al., "PagedAttention", arXiv:2309.06180, sec. 4.5 (recompute or swap).
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Literal

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.serving.blocks import Pool
from mlsys_labkit.serving.records import Phase, Preempted, Request, Scheduled, TokenLogprob
from mlsys_labkit.serving.tables import BlockTable


@dataclass(frozen=True)
class Limits:
    """Limits of one step.

    Args:
        running: sequences at a time.
        tokens: tokens per step, over all sequences. A decode always gets its own; prompts share the rest.
        guesses: tokens that may be guessed ahead for a decode and verified in one step; 0 without speculation.
        preemption: what happens to a sequence whose blocks are needed by an older one.
        host_blocks: blocks of host memory to swap to; when they are full, a sequence is recomputed instead.
        reuse_prefixes: whether full blocks are found again by their contents.

    Raises:
        LabkitError: the limits leave no room for a step.
    """

    running: int = 16
    tokens: int = 512
    guesses: int = 0
    preemption: Literal["recompute", "swap"] = "recompute"
    host_blocks: int = 1 << 30
    reuse_prefixes: bool = True

    def __post_init__(self) -> None:
        least = self.running * (1 + self.guesses)
        if self.running < 1 or self.guesses < 0 or self.tokens < least:
            raise LabkitError(
                f"a step of {self.tokens} tokens cannot hold {self.running} decodes of {1 + self.guesses} tokens; "
                f"allow at least {max(1, least)} tokens and 1 running sequence"
            )
        if self.preemption not in ("recompute", "swap"):
            raise LabkitError(f"preemption is {self.preemption!r}, expected 'recompute' or 'swap'")


class Status(Enum):
    """The place of a sequence between its request's arrival and its end."""

    ARRIVING = auto()  # its request's arrival time is still ahead
    WAITING = auto()  # in the queue, without blocks
    SWAPPED = auto()  # in the queue, its blocks copied to host memory
    RUNNING = auto()  # holds blocks
    ENDED = auto()


@dataclass(eq=False)
class Sequence:
    """One continuation in the engine: sample ``sample`` of a request.

    Attributes:
        order: place in the queue, earlier is smaller; a preempted sequence keeps it.
        tokens: the prompt and the tokens drawn so far.
        table: its blocks; ``table.held`` tokens have been through the model.
        host: contents of its blocks while it is swapped out; ``host_blocks`` of them with ``host_held`` tokens.
        drafted: tokens that have been through the draft model too, if there is one.
        forked: the other samples of its request exist already.
        prompt_logprobs: those of the prompt's tokens after the first, as far as they are computed.
    """

    request: Request
    sample: int
    order: tuple[float, int, int]
    tokens: list[int]
    table: BlockTable
    status: Status = Status.ARRIVING
    host: Any = None
    host_blocks: int = 0
    host_held: int = 0
    drafted: int = 0
    forked: bool = False
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.request.sample_ids[self.sample]

    @property
    def seed(self) -> int:
        return self.request.seed + self.sample

    @property
    def drawn(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Return how many tokens may still be drawn."""
        return self.request.max_new_tokens - self.drawn

    @property
    def uncomputed(self) -> int:
        """Return how many tokens have keys and values neither in blocks nor in host memory."""
        return len(self.tokens) - self.table.held - self.host_held

    @property
    def unscored(self) -> int:
        """Return how many of the prompt's tokens still lack the log-probability that the request asks for."""
        asked = len(self.request.prompt) - 1 if self.request.prompt_logprobs else 0
        return asked - len(self.prompt_logprobs)

    @property
    def phase(self) -> Phase:
        """Return "decode" when all but the newest, drawn token have been through the model, else "prefill"."""
        return "decode" if self.uncomputed == 1 and self.drawn else "prefill"

    @property
    def seats(self) -> int:
        """Return how many running sequences it counts for: places are kept for samples that are yet to be forked."""
        return 1 if self.forked or self.sample else self.request.samples


@dataclass(frozen=True)
class Part:
    """A sequence and its tokens that go through the model in this step; ``guesses`` more slots are reserved."""

    sequence: Sequence
    scheduled: Scheduled
    guesses: int = 0

    @property
    def end(self) -> int:
        """Return how many tokens of the sequence have been through the model after this step, without guesses."""
        return self.scheduled.cached_tokens + self.scheduled.tokens

    @property
    def draws(self) -> bool:
        """Return True if a token is drawn behind this part."""
        return self.end == len(self.sequence.tokens) and self.sequence.remaining > 0

    @property
    def scores(self) -> int:
        """Return how many tokens of the prompt get their log-probability from this part."""
        if not self.sequence.unscored:
            return 0
        scored = min(self.end, len(self.sequence.request.prompt) - 1)
        return max(0, scored - len(self.sequence.prompt_logprobs))  # recomputed tokens have theirs already


@dataclass
class StepPlan:
    """The work of one step, in this order: swap out, swap in, copy, run.

    Attributes:
        parts: the sequences that take part.
        swapped_out: sequences and the blocks to save; the blocks may be given to other sequences in the same step.
        swapped_in: sequences whose tables have new blocks to fill from the host.
        copies: (from, to) of shared blocks that are about to be written.
    """

    parts: list[Part] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    swapped_out: list[tuple[Sequence, list[int]]] = field(default_factory=list)
    swapped_in: list[Sequence] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


class Scheduler:
    """The queue and the running sequences, both in the order of arrival.

    Every sequence keeps its place in that order and takes blocks only from younger ones. The oldest sequence therefore
    always advances, and every waiting sequence becomes the oldest in the end: none starves.
    """

    def __init__(self, pool: Pool, block_size: int, limits: Limits) -> None:
        self.pool, self.block_size, self.limits = pool, block_size, limits
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._host_blocks = 0  # in use

    def enqueue(self, sequence: Sequence, status: Status = Status.WAITING) -> None:
        sequence.status = status
        insort(self.waiting, sequence, key=lambda each: each.order)

    def seat(self, sequence: Sequence) -> None:
        """Run a sequence, which has its blocks, from the next step on."""
        sequence.status = Status.RUNNING
        insort(self.running, sequence, key=lambda each: each.order)

    def remove(self, sequence: Sequence) -> None:
        """End a sequence and take back everything that it holds."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        elif sequence.status in (Status.WAITING, Status.SWAPPED):
            self.waiting.remove(sequence)
        sequence.status = Status.ENDED
        sequence.table.clear()
        sequence.host = None
        self._leave_host(sequence)

    def plan(self) -> StepPlan:
        """Choose the next step's parts and reserve their slots."""
        plan = StepPlan()
        left = self._continue_running(plan)
        if not plan.preempted:
            self._admit(plan, left)
        return plan

    def _continue_running(self, plan: StepPlan) -> int:
        """Schedule the running sequences, the oldest first, and return the tokens that are left of the step."""
        left, at = self.limits.tokens, 0
        while at < len(self.running):
            sequence = self.running[at]
            if sequence.phase == "decode":
                tokens = self._decode_tokens(sequence)
                if tokens > 1 and self._lacks_blocks(sequence, tokens):
                    tokens = 1  # no sequence is preempted for a guess
            else:  # the last one: an older unfinished prompt would have taken all tokens that are left
                assert at == len(self.running) - 1, "no sequence is admitted beside a prompt that fills the step"
                tokens = min(sequence.uncomputed, left)
            while sequence.status is Status.RUNNING and self._lacks_blocks(sequence, tokens):
                self._preempt(self.running[-1], plan)
            if sequence.status is not Status.RUNNING:
                break  # it was the youngest itself
            left -= self._schedule(sequence, tokens, plan)
            at += 1
        return left

    def _decode_tokens(self, sequence: Sequence) -> int:
        """Count the newest token and the guesses behind it. The last token of a text is drawn and never computed."""
        return 1 + min(self.limits.guesses, sequence.remaining - 1)

    def _lacks_blocks(self, sequence: Sequence, tokens: int) -> bool:
        return sequence.table.missing(sequence.table.held + tokens) > self.pool.free

    def _schedule(self, sequence: Sequence, tokens: int, plan: StepPlan, hits: int = 0) -> int:
        """Reserve slots for ``tokens``, put the sequence on the plan, and return ``tokens``."""
        table, phase = sequence.table, sequence.phase
        guesses = tokens - 1 if phase == "decode" else 0
        plan.copies += table.reserve(table.held + tokens)
        scheduled = Scheduled(sequence.name, phase, tokens - guesses, table.held, hits)
        plan.parts.append(Part(sequence, scheduled, guesses))
        return tokens

    def _preempt(self, sequence: Sequence, plan: StepPlan) -> None:
        """Take a running sequence's blocks and put it back into its place in the queue."""
        self.running.remove(sequence)
        table, blocks = sequence.table, sequence.table.blocks.copy()
        room = self._host_blocks + len(blocks) <= self.limits.host_blocks
        swap = self.limits.preemption == "swap" and room and table.held > 0
        if swap:
            plan.swapped_out.append((sequence, blocks))
            sequence.host_blocks, sequence.host_held = len(blocks), table.held
            self._host_blocks += len(blocks)
        plan.preempted.append(Preempted(sequence.name, "swap" if swap else "recompute"))
        table.clear()
        self.enqueue(sequence, Status.SWAPPED if swap else Status.WAITING)

    def _admit(self, plan: StepPlan, left: int) -> None:
        """Start or resume sequences in the queue's order until one of them has to wait."""
        seats = self.limits.running - sum(each.seats for each in self.running)
        while self.waiting and left > 0 and self.waiting[0].seats <= seats:
            head = self.waiting[0]
            tokens = (self._resume if head.status is Status.SWAPPED else self._begin)(head, plan, left)
            if not tokens:
                return
            self.waiting.pop(0)
            self.seat(head)
            seats -= head.seats
            left -= tokens

    def _begin(self, head: Sequence, plan: StepPlan, left: int) -> int:
        """Start a sequence if all its tokens fit beside the others, although it may take them in pieces."""
        # A prompt whose own log-probabilities are wanted has to go through the model.
        reuse = self.limits.reuse_prefixes and not head.unscored
        found = head.table.find_prefix(head.tokens) if reuse else []
        idle = sum(not self.pool.holders(block) for block in found)
        if -(-len(head.tokens) // self.block_size) - len(found) + idle > self.pool.free:
            return 0
        head.table.adopt(found, head.tokens)
        head.drafted = head.table.held
        return self._schedule(head, min(head.uncomputed, left), plan, hits=head.table.held)

    def _resume(self, head: Sequence, plan: StepPlan, left: int) -> int:
        """Bring a sequence back from the host, with room for its next tokens."""
        wanted = self._decode_tokens(head) if head.phase == "decode" else head.uncomputed
        tokens = min(wanted, left)
        if head.table.missing(head.host_held + tokens) > self.pool.free:
            return 0
        head.table.reserve(head.host_held)
        head.table.advance(head.host_held)
        plan.swapped_in.append(head)
        self._leave_host(head)
        return self._schedule(head, tokens, plan)

    def _leave_host(self, sequence: Sequence) -> None:
        """Give back a sequence's host blocks; the engine still reads ``host`` of one that is swapped in."""
        self._host_blocks -= sequence.host_blocks
        sequence.host_blocks = sequence.host_held = 0
