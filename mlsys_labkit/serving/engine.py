"""``Engine``: serves requests one step at a time and can record every step."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from torch import Tensor

from mlsys_labkit._base.limits import usable_cores
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.lm.model import LanguageModel
from mlsys_labkit.serving.blocks import BlockPool, Pool
from mlsys_labkit.serving.cache import Memory, PagedCache
from mlsys_labkit.serving.clock import EngineClock, RealClock, StepCost, VirtualClock
from mlsys_labkit.serving.errors import RequestError
from mlsys_labkit.serving.logprobs import score_prompts, token_logprobs
from mlsys_labkit.serving.recorder import EngineRecorder
from mlsys_labkit.serving.records import Output, Recording, Request, TokenLogprob
from mlsys_labkit.serving.runner import Chunk, ModelRunner, Runner
from mlsys_labkit.serving.scheduler import Limits, Part, Scheduler, Sequence, Status, StepPlan
from mlsys_labkit.serving.speculative import Draft, Guess, ModelDraft, chunk_of, drawn_rows, drawn_tokens
from mlsys_labkit.serving.tables import BlockTable
from mlsys_labkit.serving.threads import threads_at_most, threads_for


class Engine:
    """An engine that serves many requests from one model and one pool of blocks.

    Args:
        model: the language model; or give a ``runner``.
        blocks: blocks in the pool.
        block_size: tokens per block.
        limits: limits of a step, and what happens when blocks run out.
        cost: virtual seconds of a step; None runs on the real clock.
        draft: guesses tokens for speculative decoding.
        pool: another block pool, such as your own; it needs ``publish`` and ``find`` only with ``reuse_prefixes``.
        runner: another way to run a model over pages.
        threads: most CPU threads of a step; None: ``threads_for`` chooses by the model's size. Never more than torch
            is set to.
        record: keep every step for ``recording``.

    Example:
        >>> from mlsys_labkit import lm
        >>> model, tokenizer = lm.load()
        >>> engine = Engine(model, blocks=64, cost=StepCost(1e-3, 1e-5))
        >>> prompt = tuple(tokenizer.encode("for i in range"))
        >>> run = engine.run([Request("a", prompt, 8), Request("b", prompt, 8, arrival_seconds=0.5)])
        >>> list(run.tokens["b"]) == list(lm.generate(model, prompt, 8)), engine.pool.free
        (True, 64)

    Reference: Kwon et al., "PagedAttention", arXiv:2309.06180; Yu et al., "Orca", OSDI 2022.
    """

    def __init__(
        self,
        model: LanguageModel | None = None,
        *,
        blocks: int = 256,
        block_size: int = 16,
        limits: Limits | None = None,
        cost: StepCost | None = None,
        draft: Draft | None = None,
        pool: Pool | None = None,
        runner: ModelRunner | None = None,
        threads: int | None = None,
        record: bool = False,
    ) -> None:
        if block_size < 1:
            raise LabkitError(f"a block holds at least one token, got block_size={block_size}; 16 is usual")
        if threads is not None and threads < 1:
            raise LabkitError(
                f"a step takes at least one thread, got threads={threads}; leave it out to have some chosen"
            )
        self.pool: Pool = pool or BlockPool(blocks)
        if runner is None:
            if not isinstance(model, LanguageModel):
                raise LabkitError(
                    f"an engine needs a model or a runner, got {type(model).__name__}; model, tokenizer = lm.load()"
                )
            weight = model.lm_head.weight
            runner = Runner(model, PagedCache(model.config, self.pool.size, block_size, weight.dtype, weight.device))
            if weight.device.type == "cpu":
                threads = threads or threads_for(model.config.parameters, usable_cores())
        self.threads = threads
        self.runner, self.block_size, self.draft = runner, block_size, draft
        if limits and limits.guesses and not draft:
            raise LabkitError("limits allow guesses and no draft makes any; give a draft, such as NgramDraft(4)")
        self.limits = replace(limits or Limits(), guesses=draft.guesses if draft else 0)
        if cost and isinstance(draft, ModelDraft) and not draft.cost:
            raise LabkitError("on a virtual clock the draft model's passes cost time, too; give ModelDraft its cost")
        self._caches: list[Memory] = [runner.cache]
        if draft:
            self._caches += draft.prepare(runner.vocabulary, self.pool.size, block_size)
        self.clock: EngineClock = VirtualClock(cost) if cost else RealClock()
        self.scheduler = Scheduler(self.pool, block_size, self.limits)
        self._arriving: list[tuple[float, int, Sequence]] = []  # a heap, by time and then by order of add
        self._added = 0
        self._names: set[str] = set()
        self._recorder = self._new_recorder() if record else None

    @property
    def has_work(self) -> bool:
        """Return True while a request is unfinished."""
        return bool(self._arriving or self.scheduler.waiting or self.scheduler.running)

    def add(self, request: Request) -> None:
        """Accept a request; it takes part from its arrival on.

        Raises RequestError, and accepts nothing, when it can never be served or its id is taken.
        """
        self._check(request)
        self._names.update(request.sample_ids)
        # A request with an earlier arrival time must not overtake requests that are already queued.
        arrival = max(request.arrival_seconds, self.clock.now)
        table = BlockTable(self.pool, self.block_size)
        sequence = Sequence(request, 0, (arrival, self._added, 0), list(request.prompt), table)
        heapq.heappush(self._arriving, (arrival, self._added, sequence))
        self._added += 1
        if self._recorder:
            self._recorder.add(request)

    def _check(self, request: Request) -> None:
        if not isinstance(request, Request):
            raise RequestError(f"expected a Request, got {type(request).__name__}; make one by Request(id, prompt)")
        longest = len(request.prompt) + request.max_new_tokens
        slots = max(len(request.prompt), longest - 1)  # the last token is drawn and needs no slot
        held = self.pool.size * self.block_size
        name = f"request {request.id!r}"
        recorded = self._recorder.tokens if self._recorder else {}
        for used in request.sample_ids:
            if used in self._names or used in recorded:
                raise RequestError(f"{name}: the id {used!r} is taken; give each request an id of its own")
        if longest > self.runner.context:
            raise RequestError(
                f"{name}: {len(request.prompt)} tokens and {request.max_new_tokens} new ones exceed the model's "
                f"{self.runner.context} positions; shorten one"
            )
        if slots > held:
            raise RequestError(
                f"{name} needs {slots} slots and the cache has {held}; shorten it or give the engine more blocks"
            )
        if request.samples > self.limits.running:
            raise RequestError(
                f"{name} asks for {request.samples} samples and {self.limits.running} run at a time; ask for fewer"
            )
        if not 0 <= min(request.prompt) <= max(request.prompt) < self.runner.vocabulary:
            raise RequestError(
                f"{name}: a token of the prompt is outside 0 to {self.runner.vocabulary - 1}; "
                "encode it by the model's own tokenizer"
            )
        if strangers := [token for token, _ in request.logit_bias if token >= self.runner.vocabulary]:
            raise RequestError(
                f"{name}: logit_bias has the token {strangers[0]}, expected 0 to {self.runner.vocabulary - 1}"
            )

    def abort(self, request_id: str, reason: Literal["abort", "stop"] = "abort", *, sample: int | None = None) -> bool:
        """End a request, or one ``sample`` of it, and free its memory; return False when there is none.

        ``reason`` is kept in the recording: "stop" for a text that is complete, because it has reached a stop string
        for example. A single sample can be ended once its first token was drawn; before that, end the request.
        """
        mine = [
            each
            for each in self._sequences()
            if each.request.id == request_id and (sample is None or (each.sample == sample and each.seats == 1))
        ]
        for sequence in mine:
            self._end(sequence, reason)
        return bool(mine)

    def _sequences(self) -> list[Sequence]:
        return [*self.scheduler.running, *self.scheduler.waiting, *(entry[2] for entry in self._arriving)]

    def _end(self, sequence: Sequence, reason: str) -> None:
        if sequence.status is Status.ARRIVING:
            self._arriving = [entry for entry in self._arriving if entry[2] is not sequence]
            heapq.heapify(self._arriving)
        self.scheduler.remove(sequence)
        names = (sequence.name,) if sequence.seats == 1 else sequence.request.sample_ids
        self._names.difference_update(names)
        if self._recorder:
            for name in names:
                self._recorder.end(name, reason)

    def _end_all(self) -> None:
        for sequence in self._sequences():
            self._end(sequence, "abort")

    def step(self) -> list[Output]:
        """Run one pass of the model and return the tokens it gave.

        Without a request in the queue the step waits for the next arrival. A step that fails ends all requests and
        gives back their memory, because it may have moved blocks without their contents.
        """
        if not self.has_work:
            return []
        try:
            with threads_at_most(self.threads):
                return self._step()
        except BaseException:
            self._end_all()
            raise

    def _step(self) -> list[Output]:
        if not self.scheduler.waiting and not self.scheduler.running:
            self.clock.wait_until(self._arriving[0][0])
        while self._arriving and self._arriving[0][0] <= self.clock.now:
            self.scheduler.enqueue(heapq.heappop(self._arriving)[2])
        start = self.clock.now
        plan = self.scheduler.plan()
        assert plan.parts, "the oldest sequence always has a part"
        self._move(plan)
        guesses = self._guess(plan.parts)
        chunks = [chunk_of(part, guess) for part, guess in zip(plan.parts, guesses, strict=True)]
        logits = self.runner.run(chunks)
        scheduled = [
            replace(part.scheduled, tokens=len(chunk.tokens)) if guess.tokens else part.scheduled
            for part, chunk, guess in zip(plan.parts, chunks, guesses, strict=True)
        ]
        outputs = self._settle(plan.parts, guesses, chunks, logits)
        self.clock.spend(scheduled)
        if self._recorder:
            self._recorder.step(start, self.clock.now, plan, scheduled, outputs)
        return outputs

    def _move(self, plan: StepPlan) -> None:
        """Save, restore and copy blocks in this order, because a saved block may be given away in the same step."""
        for sequence, blocks in plan.swapped_out:
            sequence.host = [cache.swap_out(blocks) for cache in self._caches]
        for sequence in plan.swapped_in:
            held = sequence.table.blocks[: -(-sequence.table.held // self.block_size)]
            for cache, copy in zip(self._caches, sequence.host, strict=True):
                cache.swap_in(copy, held)
            sequence.host = None
        for cache in self._caches:
            cache.copy(plan.copies)

    def _guess(self, parts: list[Part]) -> list[Guess]:
        guesses = [Guess([]) for _ in parts]
        if self.draft:
            asked = [at for at, part in enumerate(parts) if part.guesses]
            found = self.draft.guess([parts[at] for at in asked])
            for at, guess in zip(asked, found, strict=True):
                guesses[at] = guess
        return guesses

    def _settle(self, parts: list[Part], guesses: list[Guess], chunks: list[Chunk], logits: Tensor) -> list[Output]:
        """Count what was computed, draw tokens, publish full blocks, and end finished sequences."""
        score_prompts(parts, chunks, logits)
        rows = drawn_rows(parts, guesses, chunks)
        drawn = drawn_tokens(parts, guesses, rows, logits)
        if self.draft:
            if prompts := [part for part in parts if part.scheduled.phase == "prefill"]:
                self.draft.follow(prompts)
            self.clock.wait_until(self.clock.now + self.draft.seconds())
        outputs: list[Output] = []
        for part, tokens, own_rows in zip(parts, drawn, rows, strict=True):
            sequence = part.sequence
            sequence.table.advance(len(tokens[0]) if part.guesses else part.scheduled.tokens)
            family = self._fork(sequence) if len(tokens) > 1 else [sequence]
            for one, own in zip(family, tokens, strict=True):
                outputs += self._extend(one, own, logits[own_rows.start : own_rows.stop])
        return outputs

    def _fork(self, sequence: Sequence) -> list[Sequence]:
        """Make the other samples of a request whose prompt is computed; from here on each has its own text."""
        sequence.forked = True
        family = [sequence]
        for sample in range(1, sequence.request.samples):
            order = (*sequence.order[:2], sample)
            prompt, table = sequence.tokens.copy(), sequence.table.fork()
            twin = Sequence(sequence.request, sample, order, prompt, table, drafted=sequence.drafted)
            twin.prompt_logprobs = sequence.prompt_logprobs
            self.scheduler.seat(twin)
            family.append(twin)
        return family

    def _extend(self, sequence: Sequence, tokens: list[int], logits: Tensor) -> list[Output]:
        """Add the tokens that were drawn from ``logits`` [token, vocabulary] to a text, up to its end."""
        request = sequence.request
        prompt = () if sequence.drawn else tuple(sequence.prompt_logprobs)
        outputs: list[Output] = []
        told: list[TokenLogprob | None] = [None] * len(tokens)
        if request.logprobs is not None:
            told = [*token_logprobs(logits, tokens, request.logprobs)]
        for token, logprob in zip(tokens, told, strict=True):
            sequence.tokens.append(token)
            reason = "stop" if token in request.stop else "length" if not sequence.remaining else ""
            outputs.append(Output(request.id, sequence.sample, token, bool(reason), reason, logprob, prompt))
            prompt = ()
            if reason:
                break
        if not request.max_new_tokens and not sequence.uncomputed:
            samples = range(request.samples)
            outputs = [Output(request.id, sample, None, True, "length", prompt=prompt) for sample in samples]
        known = self.draft.known(sequence) if self.draft else sequence.table.held
        if self.limits.reuse_prefixes:
            sequence.table.publish(sequence.tokens, min(known, len(sequence.tokens) - bool(tokens)))
        sequence.table.trim()
        if outputs and outputs[-1].finished:
            self._end(sequence, outputs[-1].reason)
        return outputs

    def run(self, requests: Iterable[Request]) -> Recording:
        """Serve requests from their arrivals to their ends, on a clock that starts at 0, and return the recording.

        Blocks that earlier runs left in the pool are found again. Raises RequestError, and serves none, when one of
        them can never be served; LabkitError when the engine already has requests.
        """
        if self.has_work:
            raise LabkitError("this engine has unfinished requests; step() until has_work is False, then run()")
        if isinstance(requests, Request):
            raise RequestError("run() takes a list of requests, got one; put it into [ ]")
        self.clock = self.clock.restarted()
        kept, self._recorder = self._recorder, self._new_recorder()
        try:
            for request in requests:
                self.add(request)
            self.finish()
            return self.recording
        finally:
            self._end_all()
            self._recorder = kept

    def finish(self) -> list[Output]:
        """Run steps until no request is left, and return all tokens."""
        outputs: list[Output] = []
        while self.has_work:
            outputs += self.step()
        return outputs

    @property
    def recording(self) -> Recording:
        """Return everything so far, of an engine with ``record``."""
        if not self._recorder:
            raise LabkitError("this engine keeps no record; make it with record=True, or use run()")
        return self._recorder.recording()

    def _new_recorder(self) -> EngineRecorder:
        return EngineRecorder(self.scheduler, self.runner.cache.block_bytes, self.clock.kind)
