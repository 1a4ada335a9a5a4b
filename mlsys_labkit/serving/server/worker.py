"""The thread of the engine: requests come in by a queue, tokens go back to the event loop in batches."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from mlsys_labkit.serving.engine import Engine
from mlsys_labkit.serving.errors import RequestError
from mlsys_labkit.serving.records import Output, Request

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RefusedRequest:
    """A refusal that a listener gets instead of a token; ``status`` is the HTTP status."""

    status: int
    message: str


_STOPPING = RefusedRequest(503, "the server is stopping; ask again later")
Ending = Literal["abort", "stop"]
Listener = Callable[[Output | RefusedRequest], None]


@dataclass(frozen=True)
class Counts:
    """State and counters of the engine after its last step. Counters only grow."""

    running: int = 0
    waiting: int = 0
    blocks: int = 0
    free_blocks: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    ended: dict[str, int] = field(default_factory=dict)


class EngineThread:
    """A thread that runs an engine for listeners on an event loop. All methods are called from the loop's thread.

    A listener gets each token of its request once, or one ``RefusedRequest``. A slow listener delays no other: only its
    own request's tokens wait for it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._listeners: dict[str, tuple[Request, Listener]] = {}  # touched by the engine's thread alone
        self._left: dict[str, int] = {}  # request -> samples that have not ended
        self._steps = self._prompt_tokens = self._output_tokens = 0
        self._ended: Counter[str] = Counter()
        self._stopping = False
        self._count()
        self._thread = threading.Thread(target=self._run, name="labkit engine", daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        """Return the seconds on the engine's clock, for a request's arrival."""
        return self._engine.clock.now

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, request: Request, listener: Listener) -> None:
        """Add a request to the engine; ``listener`` is called on the event loop."""
        if self._stopping:
            listener(_STOPPING)
        else:
            self._commands.put(lambda: self._add(request, listener))

    def end(self, request_id: str, reason: Ending, sample: int | None = None) -> None:
        """End a request, or a sample of it, without a listener; its blocks are freed before the next step.

        Nothing happens if it has ended already.
        """
        self._commands.put(lambda: self._end(request_id, reason, sample))

    async def stop(self) -> None:
        """End the thread after its current step; the remaining listeners are refused."""
        self._stopping = True
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while self._obey():
                try:
                    outputs = self._engine.step()
                except Exception as error:  # the engine has ended all requests and holds no memory, so it can go on
                    _log.exception("the engine failed")
                    self._refuse_all(RefusedRequest(500, f"the engine failed: {type(error).__name__}: {error}"))
                else:
                    self._hand_out(outputs)
                self._count()
        finally:
            self._refuse_all(_STOPPING)

    def _obey(self) -> bool:
        """Run the commands since the last step, and wait for one while there is no work. Return False to end."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_work)
            except queue.Empty:
                return True
            if command is None:
                for request_id in list(self._listeners):
                    self._engine.abort(request_id)
                return False
            command()
            self._count()

    def _add(self, request: Request, listener: Listener) -> None:
        try:
            self._engine.add(request)
        except RequestError as error:
            self._tell([(listener, RefusedRequest(400, str(error)))])
            return
        self._listeners[request.id] = (request, listener)
        self._left[request.id] = request.samples
        self._prompt_tokens += len(request.prompt)

    def _end(self, request_id: str, reason: Ending, sample: int | None) -> None:
        if request_id in self._listeners and self._engine.abort(request_id, reason, sample=sample):
            self._forget(request_id, reason, self._left[request_id] if sample is None else 1)

    def _forget(self, request_id: str, reason: str, samples: int) -> None:
        self._ended[reason] += samples
        self._left[request_id] -= samples
        if not self._left[request_id]:
            del self._left[request_id], self._listeners[request_id]

    def _hand_out(self, outputs: list[Output]) -> None:
        self._steps += 1
        self._output_tokens += sum(output.token is not None for output in outputs)
        heard: list[tuple[Listener, Output | RefusedRequest]] = []
        for output in outputs:
            heard.append((self._listeners[output.request_id][1], output))
            if output.finished:
                self._forget(output.request_id, output.reason, 1)
        self._tell(heard)

    def _refuse_all(self, refused: RefusedRequest) -> None:
        self._ended["abort"] += sum(self._left.values())
        listeners = [listener for _, listener in self._listeners.values()]
        self._listeners.clear()
        self._left.clear()
        self._tell([(listener, refused) for listener in listeners])

    def _tell(self, heard: list[tuple[Listener, Output | RefusedRequest]]) -> None:
        def call() -> None:
            for listener, what in heard:
                listener(what)

        if heard and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _count(self) -> None:
        scheduler, pool = self._engine.scheduler, self._engine.pool
        running = len(scheduler.running)
        self.counts = Counts(
            running=running,
            waiting=max(0, sum(self._left.values()) - running),
            blocks=pool.size,
            free_blocks=pool.free,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            ended=dict(self._ended),
        )
