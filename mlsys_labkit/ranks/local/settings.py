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
from typing import Any

import torch

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]  # how it is read, and set

_SDPA = ("flash", "mem_efficient", "math", "cudnn")
_GLOBAL_HOOKS = [
    held
    for module in (torch.nn.modules.module, import_module("torch.optim.optimizer"))  # torch.optim hides it
    for name, held in vars(module).items()
    if name.startswith("_global_") and isinstance(held, dict)
]


def _sdpa() -> list[bool]:
    return [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in _SDPA]


def _set_sdpa(enabled: list[bool]) -> None:
    for name, each in zip(_SDPA, enabled, strict=True):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(each)


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
    "benchmark": (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),
    "mkldnn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "sdpa_kernel": _ATTENTION,
    **{f"enable_{name}_sdp": _ATTENTION for name in _SDPA},
    "setrecursionlimit": (sys.getrecursionlimit, sys.setrecursionlimit),
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
            self._found["hooks of all modules"] = _dicts(*_GLOBAL_HOOKS)

    def read(self) -> dict[str, Any]:
        return {name: read() for name, (read, _) in self._found.items()}

    def write(self, values: Mapping[str, Any]) -> None:
        for name, (read, write) in self._found.items():
            if read() != values[name]:
                write(values[name])
