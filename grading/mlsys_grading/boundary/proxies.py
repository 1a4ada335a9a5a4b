"""Stand-ins, in the examiner, for what lives in the student's process.

None has ``==``, ``<``, a truth value, a hash by value, ``float()`` or ``__array__`` of the student's: with those the
student would decide the test's own comparisons. Other special methods exist only where the reference solution's class
defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Asking(Protocol):
    """A conversation with a student's process, as stand-ins use it."""

    classes: dict[str, type]

    def ask(self, operation: str, *given: Any) -> Any:
        """Call ``operation`` in the student's process, and return its answer."""


class Remote:
    """An object in the student's process, by handle."""

    _session: Asking
    _handle: int
    _path: str

    def __init__(self, session: Asking, handle: int, path: str) -> None:
        vars(self).update(_session=session, _handle=handle, _path=path)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"{self._path} has no {name} here")
        found = self._session.ask("getattr", self, name)
        return _BoundMethod(self, name) if isinstance(found, Method) else found

    def __setattr__(self, name: str, value: Any) -> None:
        self._session.ask("setattr", self, name, value)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self._path} is the student's object: test `is not None`, len() or an attribute, not its truth"
        )

    def __contains__(self, item: object) -> bool:
        raise TypeError(f"`in` {self._path}: compare whole values of a student's object, or ask one of its methods")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self._path} cannot be iterated here: the reference solution's class has no __iter__")

    def __deepcopy__(self, memo: object) -> Remote:
        return self

    def __repr__(self) -> str:
        return f"<the student's {self._path}>"


class Method(Remote):
    """The mark that an attribute is a method; a method of the object that was asked replaces it at once."""


class _BoundMethod:
    def __init__(self, owner: Remote, name: str) -> None:
        self._owner, self._name = owner, name
        self.__name__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        owner = self._owner
        return owner._session.ask("method", owner, self._name, list(arguments), keywords)


class _Function(Remote):
    """A function that student code returned."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._session.ask("call", self, list(arguments), keywords)


class _Iterator(Remote):
    """An iterator that student code returned. It has no attributes: student code could answer each as it likes."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the student's iterator has no {name} here")

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        return self._session.ask("next", self)[0]

    def send(self, value: Any) -> Any:
        return self._session.ask("method", self, "send", [value], {})

    def close(self) -> None:
        self._session.ask("method", self, "close", [], {})


def _typed(kind: type, operation: str) -> Callable[..., Any]:
    def ask(self: Remote, *given: Any) -> Any:
        answer = self._session.ask(operation, self, *given)
        if type(answer) is not kind:
            raise TypeError(f"{self._path}: expected {kind.__name__}, got {type(answer).__name__}")
        return answer

    return ask


def _iterate(self: Remote) -> Any:
    found = self._session.ask("iter", self)
    if not isinstance(found, _Iterator):
        raise TypeError(f"{self._path}: __iter__ gave {type(found).__name__}, expected an iterator")
    return found


_SPECIAL: dict[str, Callable[..., Any]] = {
    "__len__": _typed(int, "len"),
    "__contains__": _typed(bool, "contains"),
    "__str__": _typed(str, "str"),
    "__repr__": _typed(str, "repr"),
    "__getitem__": lambda self, key: self._session.ask("getitem", self, key),
    "__setitem__": lambda self, key, value: self._session.ask("setitem", self, key, value),
    "__delitem__": lambda self, key: self._session.ask("delitem", self, key),
    "__iter__": _iterate,
    "__next__": lambda self: self._session.ask("next", self)[0],
    "__enter__": lambda self: self._session.ask("enter", self),
    "__exit__": lambda self, *_: self._session.ask("exit", self) is True,
    "__call__": lambda self, *given, **keywords: self._session.ask("call", self, list(given), keywords),
}


class _StudentClass(type):
    """The class of the stand-ins of one student class: calling it makes an instance in the student's process."""

    _session: Asking

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        return cls._session.ask("call", cls, list(arguments), keywords)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{cls.__name__} has no {name} here")
        found = cls._session.ask("getattr", cls, name)
        if not isinstance(found, Method):
            return found
        return lambda *given, **keywords: cls._session.ask("method", cls, name, list(given), keywords)


def student_class(session: Asking, name: str, special: set[str]) -> type:
    """Make the stand-in of a student class, with those ``special`` methods that its reference defines."""
    body = {each: _SPECIAL[each] for each in sorted(special & set(_SPECIAL))}
    made = _StudentClass(name, (Remote,), body | {"__module__": "student"})
    type.__setattr__(made, "_session", session)
    session.classes[name] = made
    return made


def function(session: Asking, name: str, document: str | None) -> Callable[..., Any]:
    """Make the stand-in of a student function: a real function, with its name."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        return session.ask("call", call, list(arguments), keywords)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = document
    call.__labkit_student__ = name  # type: ignore[attr-defined]
    return call


def make(session: Asking, handle: int, kind: str, own: str) -> Remote:
    """Make the stand-in of an object that crossed by handle; ``own`` names its student class, if it has one."""
    if own:
        made: Remote = object.__new__(session.classes[own])
        Remote.__init__(made, session, handle, own)
        return made
    kinds: dict[str, type[Remote]] = {"function": _Function, "iterator": _Iterator}
    return kinds.get(kind, Remote)(session, handle, kind)


def class_path(value: object) -> str:
    """Return the name of a student class, if ``value`` is its stand-in, else ""."""
    return value.__name__ if isinstance(value, _StudentClass) else ""
