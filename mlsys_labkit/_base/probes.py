"""Questions about the process that code runs in: what it holds, counts, touches and sends.

A test may run in another process than the code it tests. Calls of a function are then passed on, and results come back;
but the calling process cannot count what happens inside the other one. Functions that count or inspect are probes: a
grader runs them in the process of the code. Without a grader they are ordinary functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
Ask = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]

NOT_MINE = object()
"""What an ``Ask`` returns for a question about code that is here."""

_known: dict[str, Callable[..., Any]] = {}
_witnesses: dict[str, str] = {}
_ask: Ask | None = None


def probe(function: Callable[P, R]) -> Callable[P, R]:
    """Make ``function`` a probe: another process can answer its calls.

    Arguments and result are plain data, or functions that stay in one process.

    Example:
        >>> @probe
        ... def called_twice(function):
        ...     return function() == function()
        >>> called_twice(lambda: 3)
        True
    """
    name = f"{function.__module__}.{function.__qualname__}"
    _known[name] = function

    @functools.wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        answered = _ask(name, args, kwargs) if _ask else NOT_MINE
        return function(*args, **kwargs) if answered is NOT_MINE else cast(R, answered)

    return ask


def witnessed(by: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a probe whose answer a grader can check outside the student's process. Stands above ``@probe``.

    Without a witness an answer is a claim: a student's process can forge it.

    Args:
        by: the process or the counter that confirms the answer, in words.

    Example:
        >>> @witnessed("a meter on the wall")
        ... @probe
        ... def watts(function):
        ...     return 100
        >>> witness_of(f"{watts.__module__}.watts")
        'a meter on the wall'
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        _witnesses[f"{function.__module__}.{function.__qualname__}"] = by
        return function

    return mark


def known() -> frozenset[str]:
    """Return the full names of all probes in the modules imported so far.

    Example:
        >>> @probe
        ... def weight(function):
        ...     return 3
        >>> f"{weight.__module__}.weight" in known()
        True
    """
    return frozenset(_known)


def witness_of(name: str) -> str:
    """Return the name of the process or counter that confirms the answers of the probe ``name``; empty: none does.

    Example:
        >>> witness_of("mlsys_labkit.work.count.count_work")
        ''
    """
    return _witnesses.get(name, "")


def answer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a question that was asked elsewhere. Raises KeyError for a name that is no probe.

    Example:
        >>> @probe
        ... def twice(x):
        ...     return 2 * x
        >>> answer(f"{twice.__module__}.twice", (4,), {})
        8
    """
    return _known[name](*args, **kwargs)


@contextmanager
def asked_elsewhere(ask: Ask) -> Iterator[None]:
    """Offer every question asked inside the block to ``ask(name, args, kwargs)`` first.

    Example:
        >>> @probe
        ... def double(x):
        ...     return 2 * x
        >>> with asked_elsewhere(lambda name, args, kwargs: NOT_MINE if args[0] < 10 else "too large"):
        ...     double(3), double(30)
        (6, 'too large')
    """
    global _ask
    before, _ask = _ask, ask
    try:
        yield
    finally:
        _ask = before
