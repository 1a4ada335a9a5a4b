"""The examiner's side of a conversation with a student's process: sends requests, and checks every reply.

Whatever breaks the rules of the conversation ends it: the session is dead from then on, whatever the test cell does
with the error, and the cell has failed.
"""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.allowance import Allowance, Standing
from mlsys_grading.boundary.arrays import overwrite
from mlsys_grading.boundary.contract import WRITES, Contract
from mlsys_grading.boundary.errors import BoundaryError, ContractError, NotPlainError, ProtocolError
from mlsys_grading.boundary.lent_memory import LentMemory
from mlsys_grading.boundary.names import call_name, library_path, student_name
from mlsys_grading.boundary.seeds import noted_seeds
from mlsys_grading.boundary.student_exceptions import BUILT_IN, make_exception
from mlsys_grading.boundary.values import Decoder, Encoder, Node
from mlsys_grading.boundary.wire import FrameLimits, Wire
from mlsys_grading.boundary.written_arguments import ArgumentCopies, replace_content
from mlsys_labkit._base import probes

_CALLS = 200_000
_DEPTH = 40
_PRINTED = 20_000
_GRACE_SECONDS = 4.0
_SOON_SECONDS = 0.25  # most calls are over by then, and nobody has to be asked how they stand


class Session:
    """One conversation with one student's process.

    Args:
        wire: to the process; the session closes it when it dies.
        records: the examiner's own classes of dataclasses, enums and named tuples, by name; may grow.
        contract: what calls may do.
        call_seconds: how long one call may take.
        interrupt: sends the process a SIGINT; called once a call when it takes too long, before the session dies.
        standing: tells what the process waited for a processor, and used of one: waiting is not taken from its time.
        ended: called once, when the session dies.

    Attributes:
        dead: why nothing more can be asked, or None.
        broken: the contract that was broken since ``broken`` was last set to None.
        printed: what student code printed during calls.
        interrupted: whether the last call took too long, and was interrupted.
        ran: how many cells it has been asked to run, and has run; who asks counts.
        scribbles: whether writes to arguments that the contract does not allow are seen here all the same.
        scribbled: what the last of them was, since ``scribbled`` was last set to "".
    """

    def __init__(
        self,
        wire: Wire,
        records: dict[str, type] | None = None,
        contract: Contract | None = None,
        call_seconds: float = 10.0,
        interrupt: Callable[[], None] | None = None,
        standing: Standing | None = None,
        *,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.records: dict[str, type] = {} if records is None else records
        self.contract = contract or Contract()
        self.call_seconds = call_seconds
        self.classes: dict[str, type] = {}
        """The stand-ins of student classes, by name."""
        self.exceptions: dict[str, type[Exception]] = {}
        """The stand-ins of student exceptions, by name."""
        self.interrupt, self.standing, self._ended = interrupt, standing, ended
        self.interrupted, self.ran = False, 0
        self.dead: BoundaryError | None = None
        self.broken: ContractError | None = None
        self.printed = ""
        self.scribbles, self.scribbled = False, ""
        self.seeded: dict[str, int] = {}
        """The last seeds of the present ``seeding`` block, by function."""
        self.sent_bytes = 0
        """Of arrays that all questions together brought."""
        self._wire = wire
        self._callbacks: dict[int, object] = {}
        self._lent = LentMemory()
        self._raised: dict[int, BaseException] = {}
        self._proxies: dict[int, object] = {}
        self._seeds: list[tuple[str, int]] = []
        self._calls = self._depth = 0
        self._doing = ""

    def ask(self, operation: str, *given: Any, seconds: float | None = None) -> Any:
        """Request ``operation`` from the student's process, and return the answer.

        Raises what the student's code raised, or a BoundaryError.
        """
        if self.dead:
            raise type(self.dead)(f"the student's process can no longer be asked: {self.dead}")
        self._calls += 1
        if self._calls > _CALLS or self._depth > _DEPTH:
            self._die(ProtocolError("too many calls"))
        allowance = Allowance(seconds or self.call_seconds, self.standing)
        number, doing = secrets.randbits(60), self._doing
        encoder = Encoder(self.records, self._refer)
        question = {"id": number, "operation": operation, "given": encoder.node(list(given))}
        if self._seeds:
            question["seeds"], self._seeds = self._seeds, []
        sent = encoder.collected()
        self.sent_bytes += sum(span.high - span.low for span in sent.spans)
        self._doing = call_name(operation, given)
        self._depth += 1
        self.interrupted = False
        try:
            if self._depth == 1 and self._wire.ready():
                self._die(ProtocolError("it spoke without being asked, or has ended"))
            self._wire.send(question, sent.copies(), allowance.until)
            while True:
                if not self._hears(allowance) and self.interrupt:
                    self.interrupt()  # gently first: what the process has so far is kept
                    self.interrupted = True
                    allowance = Allowance(_GRACE_SECONDS, self.standing)
                    self._hears(allowance)
                header, buffers = self._wire.receive(allowance.until)
                if "callback" in header:
                    self._call_back(header, buffers, allowance.until)
                    continue
                if header.get("id") != number:
                    self._die(ProtocolError("an answer to a question that was not asked"))
                ends = operation == "next" or (operation == "method" and given[1] in ("send", "throw"))
                return self._accept(header, buffers, encoder, sent.spans, ends)
        except ContractError as error:
            self.broken = error
            raise
        except BoundaryError as error:
            self._die(error)
        finally:
            self._depth -= 1
            self._doing = doing
            if not self._depth:
                self._lent.clear()

    def _hears(self, allowance: Allowance) -> bool:
        """Wait for an answer; return False when its time is over."""
        if self._wire.ready(min(allowance.until, time.monotonic() + _SOON_SECONDS)):
            return True
        allowance.begin()
        while not self._wire.ready(allowance.until):
            if not allowance.extend():
                return False
        return True

    def end(self, why: BoundaryError) -> None:
        """End the conversation: no further request can be sent."""
        is_first = self.dead is None
        self.dead = self.dead or why
        self._wire.close()
        if is_first and self._ended:
            self._ended()

    def seed(self, seeds: Mapping[str, int]) -> None:
        """Pass these seeds to the student's process with the next call."""
        self._seeds += seeds.items()

    def probe(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Send a probe about student code to the student's process, for ``probes.asked_elsewhere``."""
        if not any(map(student_name, args)):
            return probes.NOT_MINE
        return self.ask("probe", name, list(args), kwargs)

    @contextmanager
    def seeding(self) -> Iterator[None]:
        """Set the seeds of the block in the student's process too, at the next call.

        Never the other way round: a student could make the random inputs of a test constant.
        """
        self.seeded.clear()

        def note(function: str, seed: int) -> None:
            self._seeds.append((function, seed))
            self.seeded[function] = seed

        with noted_seeds(note):
            yield

    def _die(self, why: BoundaryError) -> None:
        self.end(why)
        raise why

    def _accept(
        self, header: Mapping[str, Any], buffers: list[memoryview], encoder: Encoder, spans: Any, ends: bool
    ) -> Any:
        """Return the answer in a frame; ``ends`` is True where it may be the end of an iterator."""
        printed = header.get("printed", "")
        if type(printed) is not str:
            raise ProtocolError("printed text that is none")
        self.printed = (self.printed + printed)[:_PRINTED]
        written, changed = header.get("written", []), header.get("changed", [])
        kept = None if self._writes_stay(bool(written or changed)) else ArgumentCopies(encoder.objects, spans)
        result: Any = None
        raised: BaseException | None = None
        try:
            for which, buffer in written:
                overwrite(spans[_index(which, spans)], buffers[_index(buffer, buffers)])
            decoder = Decoder(buffers, self.records, self._resolve, spans, encoder.objects)
            if "error" in header:
                raised = self._error(header["error"], ends)
            else:
                result = decoder.value(header["value"])
            for which, node in changed:
                replace_content(encoder.objects[_index(which, encoder.objects)], decoder.value(node))
            if kept:
                result = copy.deepcopy(result)  # it may be an argument, or a view of one
        except NotPlainError:
            raise
        except (TypeError, ValueError, KeyError) as error:
            raise ProtocolError(f"a malformed answer: {type(error).__name__}") from None
        finally:
            if kept:
                kept.restore()
        if raised is not None:
            raise raised
        return result

    def _writes_stay(self, is_written: bool) -> bool:
        try:
            if is_written:
                self.contract.note(self._doing, WRITES)
        except ContractError as error:
            self.scribbled = str(error)
            return self.scribbles
        return True

    def _error(self, told: Any, ends: bool) -> BaseException:
        kinds, message, token = told["kinds"], told["message"], told["token"]
        if type(kinds) is not list or not all(type(each) is str for each in kinds) or type(message) is not str:
            raise ProtocolError("a malformed exception")
        if type(token) is int and token in self._raised:  # of our own callback, passing through
            return self._raised[token]
        if ends and "builtins.StopIteration" in kinds:  # from a call it would end a test's own loop over map()
            return StopIteration()
        return make_exception(told, self.exceptions, self.records)

    def _call_back(self, header: Mapping[str, Any], buffers: list[memoryview], until: float) -> None:
        number, operation = header["callback"], header.get("operation")
        self._calls += 1
        if type(number) is not int or number not in self._callbacks or self._calls > _CALLS:
            raise ProtocolError("a call of something that was not handed out")
        target: Any = self._callbacks[number]
        given = Decoder(buffers, self.records, self._resolve).value(header.get("given"))
        answer: dict[str, Any]
        encoder = Encoder(self.records, self._refer)
        copies: list[bytes] = []
        try:
            if operation == "call" and callable(target):
                arguments, keywords = given
                value: Any = target(*arguments, **keywords)
            elif operation == "next" and isinstance(target, Iterator):
                value = [each for each in [next(target, self)] if each is not self]
            elif operation == "attribute" and type(given[0]) is str and not given[0].startswith("_"):
                value = getattr(target, given[0])
            else:
                raise ProtocolError("a question that callbacks do not answer")
            answer = {"value": encoder.node(value)}
            lent = encoder.collected()
            copies = lent.copies()
            spans = () if getattr(type(target), "lends_nothing", False) else lent.spans
            self._add_changes(answer, copies, number)
            self._lent.note(number, spans, copies[: len(spans)])
        except Exception as error:
            answer, copies = self._failed(error), []
            self._add_changes(answer, copies, number)
            self._lent.note(number, (), [])
        try:
            self._wire.send(answer, copies, until)
        except NotPlainError as error:  # nothing was sent, and the student's code waits for an answer
            self._lent.note(number, (), [])
            self._wire.send(self._failed(error), [], until)

    def _failed(self, error: Exception) -> dict[str, Any]:
        """Return the answer of a callback that raised ``error``, or whose value cannot be sent."""
        token = secrets.randbits(60)
        self._raised[token] = error
        name = next(each.__name__ for each in type(error).__mro__ if each.__name__ in BUILT_IN)
        return {"error": [name, str(error), token]}

    def _add_changes(self, answer: dict[str, Any], copies: list[bytes], called: int) -> None:
        """Add to a callback's answer what has become of the memory that earlier answers lent, as far as it fits."""
        most = self._wire.bounds
        room = FrameLimits(buffers=most.buffers - len(copies), buffer_bytes=most.buffer_bytes - sum(map(len, copies)))
        changes = self._lent.changes(called, room)
        answer["changed"] = [[callback, at, len(copies) + place] for place, (callback, at, _) in enumerate(changes)]
        copies += [content for _, _, content in changes]

    def _refer(self, value: Any) -> Node:
        if isinstance(value, proxies.Remote):
            return ["handle", vars(value)["_handle"]]
        if path := student_name(value):
            return ["name", "student", path]
        if path := library_path(value):
            return ["name", "library", path]
        kind = "iterator" if isinstance(value, Iterator) else "function" if callable(value) else "object"
        if kind == "object" and type(value).__module__ != "__main__":
            raise NotPlainError(f"{type(value).__name__} is no plain data, and cannot cross between processes")
        self._callbacks[id(value)] = value
        return ["callback", id(value), kind]

    def _resolve(self, tag: str, parts: Any) -> object:
        if tag == "callback":
            (number,) = parts
            return self._callbacks[number]
        if tag != "handle":
            raise ProtocolError("a name from where none may come")
        number, kind, ancestry = parts
        if type(number) is not int or type(ancestry) is not list or not all(type(each) is str for each in ancestry):
            raise ProtocolError("a malformed handle")
        if kind == "method":
            return proxies.Method(self, number, kind)
        own = next((name for name in (each.removeprefix("student.") for each in ancestry) if name in self.classes), "")
        if own or kind != "iterator":  # an iterator gives plain values, one after another, and decides nothing else
            self.contract.note(self._doing, f"returns a live {own or kind}")
        if number not in self._proxies:
            self._proxies[number] = proxies.make(self, number, kind, own)
        return self._proxies[number]


def _index(number: Any, within: Any) -> int:
    if type(number) is not int or not 0 <= number < len(within):
        raise ProtocolError("a number of something that was not sent")
    return number
