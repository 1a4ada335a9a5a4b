"""The recorder of an engine: collects its steps and tokens and makes a ``Recording`` of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from mlsys_labkit.serving.records import EngineStep, Output, Recording, Request, Scheduled
from mlsys_labkit.serving.scheduler import Scheduler, StepPlan


class EngineRecorder:
    """The requests, steps and tokens of a run, as they come."""

    def __init__(self, scheduler: Scheduler, block_bytes: int, clock: Literal["real", "virtual"]) -> None:
        self._scheduler, self._block_bytes, self._clock = scheduler, block_bytes, clock
        self.requests: list[Request] = []
        self.steps: list[EngineStep] = []
        self.tokens: dict[str, list[int]] = {}
        self.seconds: dict[str, list[float]] = {}
        self.reasons: dict[str, str] = {}
        self._cached: set[int] = set()

    def add(self, request: Request) -> None:
        self.requests.append(request)
        for name in request.sample_ids:
            self.tokens[name], self.seconds[name] = [], []

    def end(self, name: str, reason: str) -> None:
        self.reasons[name] = reason

    def step(
        self, start: float, now: float, plan: StepPlan, scheduled: Iterable[Scheduled], outputs: Iterable[Output]
    ) -> None:
        running = self._scheduler.running
        cached = set(getattr(self._scheduler.pool, "cached", ()))
        finished = []
        for output in outputs:
            name = f"{output.request_id}#{output.sample}" if output.sample else output.request_id
            if output.token is not None:
                self.tokens[name].append(output.token)
                self.seconds[name].append(now)
            if output.finished:
                finished.append(name)
        self.steps.append(
            EngineStep(
                index=len(self.steps),
                start_seconds=start,
                end_seconds=now,
                scheduled=tuple(scheduled),
                preempted=tuple(plan.preempted),
                resumed=tuple(sequence.name for sequence in plan.swapped_in),
                finished=tuple(finished),
                waiting=tuple(sequence.name for sequence in self._scheduler.waiting),
                # A pool of the user's may number its blocks with numpy's integers, which are no JSON.
                copies=tuple((int(source), int(target)) for source, target in plan.copies),
                block_tables={sequence.name: tuple(map(int, sequence.table.blocks)) for sequence in running},
                held_tokens={sequence.name: sequence.table.held for sequence in running},
                turned_blocks=tuple(sorted(self._cached ^ cached)),
            )
        )
        self._cached = cached

    def recording(self) -> Recording:
        return Recording(
            requests=tuple(sorted(self.requests, key=lambda request: request.arrival_seconds)),
            steps=tuple(self.steps),
            tokens={name: tuple(tokens) for name, tokens in self.tokens.items()},
            token_seconds={name: tuple(seconds) for name, seconds in self.seconds.items()},
            reasons=self.reasons,
            block_size=self._scheduler.block_size,
            blocks=self._scheduler.pool.size,
            block_bytes=self._block_bytes,
            clock=self._clock,
        )
