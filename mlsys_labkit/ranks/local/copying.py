"""Deep copies of a program's values, as a process of its own would hold them.

``copy.deepcopy`` leaves parts of the original in its copy: the objects of weak references, the owners of built-in
methods, what ``__new__`` returns again. Here these are copied, too, and what cannot be copied is left out alone, not
with everything around it.
"""

from __future__ import annotations

import collections
import copy
import copyreg
import functools
import gc
import io
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch

from mlsys_labkit.errors import RanksError

_NEVER_COPIED = (ModuleType, FunctionType, type)
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque, types.MethodType, functools.partial)
_MOST_TRIES = 1000  # one for each part that cannot be copied
_DEEPEST = 100  # copies inside copies; a RecursionError after fewer is a class's own
_WEAKLY_HELD = "weakly held"  # in the memo: copies that a weak reference points to


class SharedIterator(Iterator[Any]):
    """A stand-in for an iterator that all ranks would share; it raises RanksError when a rank asks for an item."""

    def __init__(self, name: str, kind: type) -> None:
        self.why = (
            f"{name!r} is one {kind.__name__} for all ranks, so that each would get only some of its items; "
            "make it on the ranks, inside the function"
        )

    def __next__(self) -> NoReturn:
        raise RanksError(self.why)


class Copier:
    """A copier of a rank's values: an object that is met twice is copied once.

    Args:
        classes: of the program.
        caches: functions with a ``functools`` cache; a rank begins with an empty one.
        of_thread: the class and the attributes of each ``threading.local``, by its id, on the notebook's thread.
        is_library: whether a class belongs to a library, whose objects are copied whole or not at all.
    """

    def __init__(
        self,
        classes: Iterable[type],
        caches: Iterable[Any],
        of_thread: dict[int, tuple[type, dict[str, Any]]],
        is_library: Callable[[type], bool],
    ) -> None:
        self.classes, self.of_thread, self.is_library = classes, of_thread, is_library
        self.memo: dict[Any, Any] = {
            id(one): functools.lru_cache(**one.cache_parameters())(one.__wrapped__) for one in caches
        }
        for one in (random._inst, np.random.mtrand._rand, *_streams()):  # the process's
            self.memo[id(one)] = one
        self.memo[_WEAKLY_HELD] = {}

    def copied(self, name: str, value: Any) -> Any:
        """Return a deep copy of ``value``; parts that cannot be copied are the original's."""
        memo, size = self.memo, len(self.memo)
        for _ in range(_MOST_TRIES):
            try:
                return copy.deepcopy(value, memo)
            except Exception as error:
                if isinstance(error, MemoryError) or _copies_under_way(error) > _DEEPEST:
                    why = f"{name!r} is too large or too deeply nested to be copied for each rank"
                    raise RanksError(why) from error
                part = self._culprit(value, error)
            while len(memo) > size:  # half of a copy
                memo.popitem()
            memo[id(part)] = SharedIterator(name, type(part)) if isinstance(part, Iterator) else part
            size += 1
            memo[_WEAKLY_HELD][id(part)] = part
        raise RanksError(f"{name!r} cannot be copied for each rank; make it on the ranks")

    def _culprit(self, value: Any, error: Exception) -> Any:
        """Return the outermost object of a library on the way to the part that cannot be copied, or that part."""
        step, found = error.__traceback__, value
        while step is not None:
            if step.tb_frame.f_code is copy.deepcopy.__code__:
                found = step.tb_frame.f_locals["x"]
                if self.is_library(type(found)) and not isinstance(found, _CONTAINERS):
                    return found
            step = step.tb_next
        return found

    def weakly_held(self) -> list[Any]:
        """Return the copies that nothing but a weak reference holds: their originals are held by what is no copy."""
        held: dict[int, Any] = self.memo[_WEAKLY_HELD]
        return [held[key] for key in held if sys.getrefcount(held[key]) <= 3]

    @contextmanager
    def ready(self) -> Iterator[Copier]:
        """Let ``copy.deepcopy`` copy as this module says."""
        reducers: dict[type, Any] = {**dict.fromkeys(_ATOMS, _name), **_LOCKS}  # a string means: the object itself
        copiers: dict[type, Any] = {**_COPIERS}
        for one in self.classes:
            if _is_plain(one):
                copiers[one] = _object
            elif isinstance(vars(one).get("__deepcopy__"), FunctionType):
                copiers[one] = _own_deepcopy
        copiers |= {kind: self._thread_local for kind, _ in self.of_thread.values()}
        with ExitStack() as stack:
            stack.enter_context(patch.dict(copyreg.dispatch_table, reducers))
            stack.enter_context(patch.dict(copy._deepcopy_dispatch, copiers))  # type: ignore[attr-defined]
            yield self

    def _thread_local(self, one: threading.local, memo: dict[Any, Any]) -> threading.local:
        new = type(one).__new__(type(one))
        memo[id(one)] = new
        vars(new).update(copy.deepcopy(self.of_thread[id(one)][1] if id(one) in self.of_thread else {}, memo))
        return new


def _copies_under_way(error: Exception) -> int:
    step, count = error.__traceback__, 0
    while step is not None:
        count += step.tb_frame.f_code is copy.deepcopy.__code__
        step = step.tb_next
    return count


def _streams() -> list[Any]:
    return [one for one in (sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__) if one is not None]


def _name(one: Any) -> str:
    return str(type(one).__name__)


_LOCKS: dict[type, Any] = {
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    type(threading.RLock()): lambda _: (threading.RLock, ()),
}
_ATOMS = (ModuleType, object, io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.FileIO)


def _object(one: Any, memo: dict[Any, Any]) -> Any:
    """Copy an object of the program without what its class does when it is made, looked into, or copied.

    ``__new__`` may return one object for all, ``__getattr__`` may fail in an object without attributes, and several
    objects may have one ``__dict__``.
    """
    make, given, state, *items = one.__reduce_ex__(4)
    if make is copyreg.__newobj__ and _base(type(one)) is object:  # type: ignore[attr-defined]
        make, given = object.__new__, given[:1]
    new = copy._reconstruct(one, memo, make, given, None, *items)  # type: ignore[attr-defined]
    state = copy.deepcopy(state, memo)
    if hasattr(type(one), "__setstate__"):
        new.__setstate__(state)
        return new
    attributes, in_slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes is None and hasattr(type(one), "__dict__"):
        attributes = copy.deepcopy(getattr(one, "__dict__", None), memo)  # empty, but perhaps of many objects
    if attributes is not None:
        object.__setattr__(new, "__dict__", attributes)
    for name, value in (in_slots or {}).items():
        object.__setattr__(new, name, value)
    return new


def _base(kind: type) -> type:
    """Return the built-in class, or the library's in C, that makes the objects of ``kind``."""
    return next(
        each for each in kind.__mro__ if "__new__" in vars(each) and not isinstance(vars(each)["__new__"], staticmethod)
    )


def _is_plain(kind: type) -> bool:
    """Return whether objects of ``kind`` are reduced as Python does it, and have no copying of their own."""
    own = "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__"
    changed = (each for each in kind.__mro__ if each is not object and any(name in vars(each) for name in own))
    return kind is not type and not issubclass(kind, (type, BaseException)) and next(changed, None) is None


def _own_deepcopy(one: Any, memo: dict[Any, Any]) -> Any:
    new = one.__deepcopy__(memo)
    return _object(one, memo) if new is one else new


def _proxy(one: types.MappingProxyType[Any, Any], memo: dict[Any, Any]) -> Any:
    (held,) = gc.get_referents(one)
    return one if "__weakref__" in one else types.MappingProxyType(copy.deepcopy(held, memo))  # of a class


def _builtin_method(one: BuiltinFunctionType, memo: dict[Any, Any]) -> Any:
    owner = one.__self__
    if owner is None or isinstance(owner, (ModuleType, type)):
        return one
    return getattr(copy.deepcopy(owner, memo), one.__name__)


def _weakly(one: Any, memo: dict[Any, Any]) -> Any:
    new = copy.deepcopy(one, memo)
    memo[_WEAKLY_HELD][id(new)] = new
    return new


def _reference(one: Any, memo: dict[Any, Any]) -> Any:
    return one if one() is None else type(one)(_weakly(one(), memo))


def _weak_set(one: Any, memo: dict[Any, Any]) -> Any:
    return weakref.WeakSet([_weakly(each, memo) for each in list(one)])


def _weak_keys(one: Any, memo: dict[Any, Any]) -> Any:
    return weakref.WeakKeyDictionary((_weakly(key, memo), copy.deepcopy(one[key], memo)) for key in list(one))


def _weak_values(one: Any, memo: dict[Any, Any]) -> Any:
    return weakref.WeakValueDictionary((copy.deepcopy(key, memo), _weakly(one[key], memo)) for key in list(one))


def _wrapping(one: Any, memo: dict[Any, Any]) -> Any:
    """Copy a static method, a class method or a property, if what it calls is a copy."""
    if type(one) is property:
        parts: list[Any] = [copy.deepcopy(each, memo) for each in (one.fget, one.fset, one.fdel)]
        same = all(new is old for new, old in zip(parts, (one.fget, one.fset, one.fdel), strict=True))
        return one if same else property(parts[0], parts[1], parts[2], one.__doc__)
    new = copy.deepcopy(one.__func__, memo)
    return one if new is one.__func__ else type(one)(new)


def _array(one: np.ndarray[Any, Any], memo: dict[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array; views of one array stay views of one."""
    whole = one
    while type(whole.base) is np.ndarray:
        whole = whole.base
    if whole is one or one.dtype.hasobject or not (whole.flags.c_contiguous or whole.flags.f_contiguous):
        return one.__deepcopy__(memo)
    items = copy.deepcopy(whole, memo).ravel("K")
    offset = one.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    new: np.ndarray[Any, Any] = np.ndarray(one.shape, one.dtype, items, offset, one.strides)
    new.flags.writeable = one.flags.writeable
    return new


def _tensor(one: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    return _with_hooks(one, one.__deepcopy__(memo), memo)  # type: ignore[no-untyped-call]


def _parameter(one: torch.nn.Parameter, memo: dict[Any, Any]) -> torch.Tensor:
    """Copy a parameter with its attributes; views of one storage stay views of one."""
    new = torch.nn.Parameter(copy.deepcopy(one.data, memo), one.requires_grad)
    memo[id(one)] = new
    vars(new).update(copy.deepcopy(vars(one), memo))
    return _with_hooks(one, new, memo)


def _with_hooks(one: torch.Tensor, new: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(one, name, None)
        if hooks:
            setattr(new, name, copy.deepcopy(hooks, memo))
    return new


_COPIERS: dict[type, Any] = {
    **dict.fromkeys((staticmethod, classmethod, property), _wrapping),
    **dict.fromkeys((weakref.ref, weakref.WeakMethod), _reference),
    **dict.fromkeys(_NEVER_COPIED, lambda one, _: one),
    BuiltinFunctionType: _builtin_method,
    types.MappingProxyType: _proxy,
    weakref.WeakSet: _weak_set,
    weakref.WeakKeyDictionary: _weak_keys,
    weakref.WeakValueDictionary: _weak_values,
    np.ndarray: _array,
    torch.Tensor: _tensor,
    torch.nn.Parameter: _parameter,
}
