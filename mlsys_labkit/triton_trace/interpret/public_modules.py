"""The public modules of Triton as a kernel sees them, and Python's functions that look at types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import cuda as cuda_functions
from triton.language.extra.cuda import libdevice

from mlsys_labkit.triton_trace import rules
from mlsys_labkit.triton_trace.interpret.blocks import plain
from mlsys_labkit.triton_trace.interpret.run import Refused
from mlsys_labkit.triton_trace.libdevice_names import LIBDEVICE


def public_modules(semantic: Any) -> dict[str, Any]:
    def public(module: Any, names: Iterable[str]) -> SimpleNamespace:
        return PublicModule("tl", {name: getattr(module, name) for name in names if hasattr(module, name)})

    mathematics = public(tl.math, rules.MATH)
    language = public(tl, rules.LANGUAGE)
    language.math = mathematics
    language.random = language
    for name in rules.KINDS:
        setattr(language, name, PublicKind(getattr(tl, name)))
    language.tuple = _Tuple(tl.tuple)
    language.constexpr_type = _ConstantType(tl.core.constexpr_type)
    language.constexpr = plain
    extra = _extra_modules(semantic)
    language.extra = extra["triton.language.extra"]
    top = SimpleNamespace(
        language=language, cdiv=_for_constants(triton.cdiv), next_power_of_2=_for_constants(triton.next_power_of_2)
    )
    return {"triton": top, "triton.language": language, "triton.language.math": mathematics, **extra}


class PublicModule(SimpleNamespace):
    """Public names of a module; it refuses the others by name."""

    def __init__(self, name: str, members: dict[str, Any]) -> None:
        super().__init__(**members)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in rules.KNOWN:
            raise AttributeError(name)
        raise Refused(f"{self._name}.{name} is not interpreted")


class PublicKind:
    """A class of Triton's, for isinstance only: a kernel must not make a block of anything that it likes."""

    def __init__(self, kind: type) -> None:
        self.kinds = (kind, tuple) if kind is tl.tuple else (kind,)


class _Tuple(PublicKind):
    """``tl.tuple``, which a kernel may also make."""

    def __call__(self, values: Any) -> Any:
        return tl.tuple(list(values))


class _ConstantType(PublicKind):
    """``tl.constexpr_type``, which a kernel may also make."""

    def __call__(self, value: Any) -> Any:
        return tl.core.constexpr_type(plain(value))


class Absent:
    """A stand-in for a name that is not interpreted."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise Refused(self._reason)

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise Refused(self._reason)


def _extra_modules(semantic: Any) -> dict[str, Any]:
    """Return ``tl.extra`` for NVIDIA: libdevice, waiting for an earlier launch, numbers of threads, two registers."""

    def bound(function: Any) -> Callable[..., Any]:
        return lambda *operands: function(*operands, _semantic=semantic)

    functions = {name: bound(one) for name, one in vars(libdevice).items() if name in LIBDEVICE}
    library = PublicModule("tl.extra.libdevice", functions)
    registers = {name: bound(getattr(cuda_functions, name)) for name in ("smid", "globaltimer")}
    threads = {"num_warps": lambda: semantic.builder.warps, "num_threads": lambda: 32 * semantic.builder.warps}
    waiting = dict.fromkeys(rules.DEPENDENT_LAUNCH, lambda: None)
    cuda = PublicModule("tl.extra.cuda", {"libdevice": library, **waiting, **threads, **registers})
    extra = PublicModule("tl.extra", {"libdevice": library, "cuda": cuda})
    place = "triton.language.extra"
    return {place: extra, f"{place}.cuda": cuda, f"{place}.libdevice": library, f"{place}.cuda.libdevice": library}


def is_instance(value: Any, kind: Any) -> bool:
    """Return whether ``value`` is of a kind; constants of compile time are plain values here."""
    if kind is plain:
        return not isinstance(value, tl.tensor)
    if isinstance(kind, tuple):
        return any(is_instance(value, one) for one in kind)
    return isinstance(value, kind.kinds if isinstance(kind, PublicKind) else kind)


_NOTHING = object()


def attribute_of(value: Any, name: str, default: Any = _NOTHING) -> Any:
    """Return a public attribute of a module or a block, as a kernel may write it after a point."""
    if not isinstance(name, str) or name not in rules.ATTRIBUTES:
        if default is not _NOTHING:
            return default
        raise Refused(f"getattr: {name} is no attribute that a kernel may use")
    return getattr(value, name) if default is _NOTHING else getattr(value, name, default)


def _for_constants(function: Any) -> Callable[..., Any]:
    def checked(*values: Any) -> Any:
        if any(isinstance(value, tl.tensor) for value in values):
            raise Refused(f"triton.{function.__name__} takes constants in a kernel; for others there is tl.cdiv")
        return function(*map(plain, values))

    return checked
