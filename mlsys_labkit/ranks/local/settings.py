"""Settings that torch, Python and the system keep once, which few programs change: each rank has its own.

A setting costs a look at each switch, so that only those are looked at whose setter the program's code names.
"""

from __future__ import annotations

import copyreg
import locale
import logging
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import FrameType
from typing import Any

import torch

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]  # how it is read, and set

_SDPA = ("flash", "mem_efficient", "math", "cudnn")
_MODULE: dict[str, Any] = vars(torch.nn.modules.module)
_GLOBAL_HOOKS = [
    held
    for variables in (_MODULE, vars(import_module("torch.optim.optimizer")))  # torch.optim hides it
    for name, held in variables.items()
    if name.startswith("_global_") and isinstance(held, dict)
]
_IS_FULL = "_global_is_full_backward_hook"  # None, False or True: the kind of backward hooks that are registered
_CUDNN = ("enabled", "benchmark", "deterministic")


def _sdpa() -> list[bool]:
    return [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in _SDPA]


def _set_sdpa(enabled: list[bool]) -> None:
    for name, each in zip(_SDPA, enabled, strict=True):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(each)


def _cudnn() -> list[bool]:
    return [getattr(torch._C, f"_get_cudnn_{name}")() for name in _CUDNN]


def _set_cudnn(flags: list[bool]) -> None:
    for name, each in zip(_CUDNN, flags, strict=True):
        getattr(torch._C, f"_set_cudnn_{name}")(each)


def _set_recursion_limit(limit: int) -> None:
    """Set Python's limit; leave a higher one while a waiting rank may be deeper than ``limit``: that ends the process.

    Calls of functions in C count, too, and have no frame.
    """
    if limit > sys.getrecursionlimit() or 4 * max(map(_depth, sys._current_frames().values())) < limit:
        sys.setrecursionlimit(limit)


def _depth(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def _hooks() -> Setting:
    read, write = _dicts(*_GLOBAL_HOOKS)

    def write_all(values: tuple[list[dict[Any, Any]], bool | None]) -> None:
        write(values[0])
        _MODULE[_IS_FULL] = values[1]

    return lambda: (read(), _MODULE[_IS_FULL]), write_all


def _dicts(*held: dict[Any, Any]) -> Setting:
    def write(values: list[dict[Any, Any]]) -> None:
        for one, own in zip(held, values, strict=True):
            one.clear()
            one.update(own)

    return lambda: [dict(one) for one in held], write


_THREADS = torch.get_num_threads, torch.set_num_threads
_ANOMALY = (
    lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    lambda both: torch.set_anomaly_enabled(*both),
)
_ATTENTION = _sdpa, _set_sdpa
_BY_SETTER: dict[str, Setting] = {
    "set_num_threads": _THREADS,
    "set_detect_anomaly": _ANOMALY,
    "detect_anomaly": _ANOMALY,
    "cudnn": (_cudnn, _set_cudnn),
    "mkldnn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "sdpa_kernel": _ATTENTION,
    **{f"enable_{name}_sdp": _ATTENTION for name in _SDPA},
    "setrecursionlimit": (sys.getrecursionlimit, _set_recursion_limit),
    "set_int_max_str_digits": (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    "setdefaulttimeout": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "setlocale": (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    "disable": (lambda: logging.root.manager.disable, logging.disable),
    "addLevelName": _dicts(logging._levelToName, logging._nameToLevel),
    "setLogRecordFactory": (logging.getLogRecordFactory, logging.setLogRecordFactory),
    "copyreg": _dicts(copyreg.dispatch_table),
}
if hasattr(time, "tzset"):  # not on Windows; the rank's TZ is in the environment by now
    _BY_SETTER["tzset"] = (lambda: (time.timezone, time.tzname), lambda _: time.tzset())
_SET_ALWAYS = ("set_num_threads",)  # new threads take the number that any thread has set last, and nobody can read


class ProcessSettings:
    """The settings whose setters are among ``names``.

    Example:
        >>> settings = ProcessSettings({"setrecursionlimit", "forward"})
        >>> list(settings.read()) == ["setrecursionlimit"]
        True
    """

    def __init__(self, names: Collection[str]) -> None:
        self._found = {name: _BY_SETTER[name] for name in _BY_SETTER if name in names}
        if any(name.startswith("register_") and name.endswith("_hook") for name in names):
            self._found["hooks of all modules"] = _hooks()

    def read(self) -> dict[str, Any]:
        return {name: read() for name, (read, _) in self._found.items()}

    def write(self, values: Mapping[str, Any]) -> None:
        for name, (read, write) in self._found.items():
            if name in _SET_ALWAYS or read() != values[name]:
                write(values[name])
