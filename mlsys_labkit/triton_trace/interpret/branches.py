"""Branches of an ``if`` on a run-time value: Triton compiles both, and both must give a name one type and shape.

A launch takes one of the branches, and perhaps the same one in every program. So each ``if`` is first tried: both
branches run on copies of the variables, without memory. Types do not depend on values, so zeros serve for what the
branches load, and one turn of each loop is enough. rewrite.py writes each branch as a function ``_lk_then_N`` or
``_lk_else_N`` for that, whose variables are the globals of the copy.

Reference: Triton, ``CodeGenerator.visit_If`` and ``visit_IfExp``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.gluon.objects import Aggregate
from mlsys_labkit.triton_trace.interpret.blocks import shape_of
from mlsys_labkit.triton_trace.interpret.builder import Builder
from mlsys_labkit.triton_trace.interpret.carried import (
    COMPILER,
    CONSTANTS,
    as_block,
    dtype_word,
    kind_of,
    require_kept,
    scope_of,
    words,
)
from mlsys_labkit.triton_trace.interpret.run import CompilerRefusal, InterpreterRun

_ONE = "labkit one"
_NOTHING = object()
Scope = dict[str, Any]
Names = tuple[str, ...]


def mark_one(argument: Any) -> Any:
    """Mark an argument of value 1, which Triton's compiler takes for a constant: an ``if`` on it has one branch."""
    argument.handle.attr[_ONE] = True
    return argument


def unmarked(value: Any) -> Any:
    """Return a value as an assignment stores it: a number of run time, even if it is 1."""
    if isinstance(value, tl.tensor) and is_one(value):
        return tl.tensor(type(value.handle)(value.handle.data, value.handle.dtype), value.type)
    return value


def is_one(value: Any) -> bool:
    return _ONE in getattr(value.handle, "attr", ())  # the handle of a block pointer has none


class _Trial(InterpreterRun):
    """A run without memory and without a record, for a branch that is tried."""

    traced = False

    def __init__(self, print: Callable[[str], object]) -> None:
        self.print = print
        self.dry = True
        self.turning: set[str] = set()

    def load(self, addresses: Any, mask: Any, other: NDArray[Any], nan: int | None, kind: Any = "load") -> Any:
        return np.array(np.broadcast_to(other, addresses.shape))

    def store(self, *access: Any) -> None:
        pass

    def atomic(self, name: str, addresses: Any, mask: Any, value: NDArray[Any], *rest: Any, **more: Any) -> Any:
        return np.zeros(addresses.shape, value.dtype)

    def translated(self, addresses: Any) -> Any:
        return addresses

    def dot(self, *shape: Any) -> None:
        pass

    def arithmetic(self, *operations: Any) -> None:
        pass

    def misuse(self, *finding: Any, **more: Any) -> None:
        pass


class Branches:
    """The branches of one launch; ``choose`` and its like are called where a kernel has an ``if``."""

    def __init__(self, builder: Builder, to_tensor: Callable[[Any], Any], truth: Callable[[Any], bool]) -> None:
        self._builder = builder
        self._to_tensor = to_tensor
        self._truth = truth
        self._tried: dict[Any, tuple[CodeType, frozenset[str]]] = {}  # the code is kept, so its id stays its own

    def begin(self) -> None:
        """Forget the kernels of the launch before."""
        self._tried.clear()

    @property
    def trying(self) -> bool:
        """Return whether a branch is tried now."""
        return isinstance(self._builder.run, _Trial)

    def choose(
        self, number: int, condition: Any, changed: Names, used: Names, tested: Names, returns: bool
    ) -> tuple[bool | None, frozenset[str]]:
        """Return whether to take the first branch, and the variables that have no value after the ``if``.

        Args:
            number: of the ``if`` in its function.
            changed: names that the branches assign. used: all names in them. tested: those of the condition.
            returns: the ``if`` is in a loop and has a ``return``.

        Raises CompilerRefusal if the branches differ. While a branch is tried, it runs both branches of an ``if`` in it
        and returns None: none is to be taken.
        """
        truth = self._truth(condition)
        frame = sys._getframe(1)
        scope = scope_of(frame)
        if not isinstance(condition, tl.tensor) or self._constant(scope, tested):
            return truth, frozenset()
        if returns:
            raise CompilerRefusal(f"a return in a loop; {COMPILER}: put the condition into while, or the rest under if")
        then, other = (frame.f_globals.get(f"_lk_{branch}_{number}") for branch in ("then", "else"))
        if scope is frame.f_globals and self.trying:
            merged, gone = self._merged({**scope}, then, other, changed)
            for name in gone:
                scope.pop(name, None)
            scope.update(merged)
            return None, frozenset()
        assert then is not None
        key = id(then.__code__), *(_key(scope.get(name)) for name in used)
        if key not in self._tried:
            _, gone = self._merged({**frame.f_globals, **scope}, then, other, changed)
            self._tried[key] = then.__code__, gone
        return truth, self._tried[key][1]

    def select(self, condition: Any, then: Callable[[], Any], other: Callable[[], Any], tested: Names) -> Any:
        """Return the value of ``then() if condition else other()``. Raises CompilerRefusal if the two differ."""
        taken, left = (then, other) if self._truth(condition) else (other, then)
        if not isinstance(condition, tl.tensor) or self._constant(scope_of(sys._getframe(1)), tested):
            return taken()
        value, second = self._to_tensor(taken()), _NOTHING
        with self._trial():
            second = self._to_tensor(left())
        if second is not _NOTHING and kind_of(value) != kind_of(second):
            first, last = (value, second) if taken is then else (second, value)
            raise CompilerRefusal(
                f"this expression is {words(first)} before its if and {words(last)} after its else; {COMPILER}: "
                f"{_advice(first, last)}"
            )
        return value

    def returned(self, kinds: list[Any], value: Any) -> Any:
        """Return the result of a function. Raises CompilerRefusal unless all its results have one type."""
        if not kinds:
            kinds.append(value)
        else:
            first, last = (one if one is None else self._as_tensor(one) for one in (kinds[0], value))
            if kind_of(first) != kind_of(last):
                raise CompilerRefusal(
                    f"this return is {words(last)} and another one is {words(first)}; {COMPILER}: "
                    f"{_advice(first, last)}"
                )
        return value

    def _as_tensor(self, value: Any) -> Any:
        if isinstance(value, (tuple, tl.tuple)):
            return tuple(self._as_tensor(one) for one in value)
        return self._to_tensor(value) if isinstance(value, CONSTANTS) else value

    def turn(self, loop: str, condition: Any) -> bool:
        """Return whether a ``while`` loop goes on; while a branch is tried, it has one turn."""
        truth, run = self._truth(condition), self._builder.run
        if not isinstance(run, _Trial):
            return truth
        run.turning ^= {loop}
        return loop in run.turning

    def _constant(self, scope: Scope, tested: Names) -> bool:
        """Return whether a condition is one of constants and arguments that are 1, which the compiler knows."""
        values = [scope[name] for name in tested if name in scope]
        tensors = [value for value in values if isinstance(value, tl.tensor)]
        return bool(tensors) and all(map(is_one, tensors))

    @contextmanager
    def _trial(self) -> Iterator[None]:
        """Run what is inside without memory; what fails there for another reason than its types is no finding."""
        run = self._builder.run
        assert run is not None
        self._builder.run = run if isinstance(run, _Trial) else _Trial(lambda text: None)
        try:
            yield
        except CompilerRefusal:
            raise
        except Exception:
            if isinstance(run, _Trial):
                raise
        finally:
            self._builder.run = run

    def _merged(self, scope: Scope, then: Any, other: Any, changed: Names) -> tuple[Scope, frozenset[str]]:
        """Try both branches on copies of ``scope``; return the variables after them, and those without a value."""
        merged: Scope = {}
        gone: frozenset[str] = frozenset()
        with self._trial():
            after = [{**scope}, {**scope}]
            for branch, variables in zip((then, other), after, strict=True):
                if branch is not None:
                    FunctionType(branch.__code__, variables)()
            merged, gone = _joined(scope, after[0], after[1], changed)
        return merged, gone


def _joined(before: Scope, then: Scope, other: Scope, changed: Names) -> tuple[Scope, frozenset[str]]:
    """Join the variables after both branches as Triton's compiler does. Raises CompilerRefusal if they differ."""
    merged, gone = {}, set()
    for name in changed:
        first, one, two = (scope.get(name, _NOTHING) for scope in (before, then, other))
        if one is first and two is first:
            continue
        if isinstance(first, (tl.tensor, tl.core.tensor_descriptor_base, tuple, tl.tuple, Aggregate, *CONSTANTS)):
            if not _same(one, two):
                _require_kept(name, first, one, "first")
                _require_kept(name, first, two, "second")
        elif (
            one is first
            or two is first
            or any(value is _NOTHING or isinstance(value, CONSTANTS) for value in (one, two))
        ):
            gone.add(name)  # a tl.constexpr of a branch is known in the branch only
            continue
        _require_equal(name, one, two)
        merged[name] = one
    return merged, frozenset(gone)


def _same(one: Any, two: Any) -> bool:
    """Return whether two values are one to the compiler, which then asks nothing of their type."""
    if isinstance(one, tl.tensor) and isinstance(two, tl.tensor):
        return one.handle is two.handle
    return one is two


def _require_kept(name: str, first: Any, now: Any, branch: str) -> None:
    """Check that a branch keeps the type of a variable that has a value before the ``if``."""
    part = "branch of an if on a value of run time" if isinstance(first, CONSTANTS) else "branch"
    require_kept(name, first, now, place="if", part=part, after=f"its {branch} branch")


def _require_equal(name: str, one: Any, two: Any) -> None:
    """Check that both branches give a variable one type."""
    if kind_of(one) != kind_of(two):
        raise CompilerRefusal(
            f"{name} is {words(one)} in the first branch of the if and {words(two)} in the second; {COMPILER}: "
            f"{_advice(one, two)}"
        )


def _advice(one: Any, two: Any) -> str:
    if not isinstance(one, tl.tensor) or not isinstance(two, tl.tensor):
        return "give it one type in both"
    if shape_of(one) == shape_of(two):
        wide = max((one, two), key=lambda value: (value.dtype.is_floating(), value.dtype.primitive_bitwidth))
        return f"convert one of them, as .to({dtype_word(wide)}) does"
    block = one if len(shape_of(one)) >= len(shape_of(two)) else two
    return f"give it one shape in both, {as_block(block)}"


def _key(value: Any) -> Any:
    """Return what the types in a branch depend on: types of blocks, and values of constants."""
    if isinstance(value, tl.tensor):
        return value.type.name, is_one(value)
    if isinstance(value, (tuple, tl.tuple)):
        return tuple(_key(one) for one in value)
    if isinstance(value, Aggregate):
        return tuple(_key(one) for one in value.values)
    return (type(value), value) if value is None or isinstance(value, CONSTANTS) else id(value)
