"""CUDA calls of a whole program on a machine without a GPU: they act on the CPU, and a line says so.

``torch.cuda.is_available()`` stays False, so that a program that can choose its device chooses the CPU by itself.
A stream does its work at once, and an event keeps the host's time. Graphs have no stand-in: torch's error names them.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode


@contextmanager
def cuda_on_cpu() -> Iterator[None]:
    """Let functions of ``torch.cuda`` and ``torch.accelerator`` act on the CPU of this process; does not nest."""
    if torch.cuda.is_available() or torch.cuda.current_device.__module__ == __name__:
        yield
        return
    with ExitStack() as stack:

        def replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
            stack.enter_context(patch.object(owner, name, function))

        for owner, answers in _STAND_INS.items():
            for name, answer in answers.items():
                if hasattr(owner, name):
                    replace(owner, name, _answering(answer))
        replace(DistributedDataParallel, "__init__", _plain_ddp(DistributedDataParallel.__init__))
        replace(torch.nn.Module, "to", _moved(torch.nn.Module.to))
        replace(device_mesh.DeviceMesh, "__init__", _mapped(device_mesh.DeviceMesh.__init__))
        mesh = _mapped(device_mesh.init_device_mesh)
        for owner in (device_mesh, torch.distributed):
            replace(owner, "init_device_mesh", mesh)
        replace(torch, "load", _loaded_on_cpu(torch.load))
        replace(torch.autocast, "__init__", _mapped(torch.autocast.__init__))
        replace(torch.Tensor, "record_stream", _answering(lambda: None))
        replace(torch.cuda, "Stream", _Stream)
        replace(torch.cuda, "Event", _Event)
        yield


class TensorsOnCpu(TorchFunctionMode):
    """A mode, for one thread, in which a device "cuda" that is given to a function of torch means "cpu"."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked, given = func, kwargs or {}
        new, named = [_on_cpu(value) for value in args], {name: _on_cpu(value) for name, value in given.items()}
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            func, new, named = torch.Tensor.to, [args[0], "cpu"], {}
        elif func is torch.Tensor.to and len(new) > 1 and type(new[1]) is int:
            new[1] = "cpu"
        if type(named.get("device")) is int:
            named["device"] = "cpu"
        changed = map(operator.is_not, (func, *new, *named.values()), (asked, *args, *given.values()))
        if not self._told and any(changed):
            self._tell()
        return func(*new, **named)

    def _tell(self) -> None:
        self._told = True
        if os.environ.get("RANK") == "0":
            print("labkit: no GPU here; what the program puts on CUDA is on the CPU")


def _on_cpu(value: Any) -> Any:
    if type(value) is torch.device:
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if type(value) is str and (value == "cuda" or value.startswith("cuda:")) else value


def _mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in kwargs.items()})

    return on_cpu


def _moved(to: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(to)
    def on_cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        return to(self, "cpu", *args[1:], **kwargs) if args and type(args[0]) is int else to(self, *args, **kwargs)

    return on_cpu


def _plain_ddp(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def without_devices(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **more: Any) -> None:
        original(self, module, **more)

    return without_devices


def _loaded_on_cpu(load: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(load)
    def on_cpu(file: Any, map_location: Any = None, **more: Any) -> Any:
        return load(file, map_location=map_location if callable(map_location) else "cpu", **more)

    return on_cpu


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _ranks_here() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class _Stream:
    """A stream whose work is done when the call returns."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = _Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Event:
    """An event of a stream that does its work at once: it keeps the host's time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._seconds: float | None = None

    def record(self, stream: Any = None) -> None:
        self._seconds = time.perf_counter()

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        """Return the milliseconds between this event and ``end``, on the host's clock."""
        if self._seconds is None or end._seconds is None:
            raise ValueError("both events must be recorded before their elapsed time is asked for")
        return (end._seconds - self._seconds) * 1e3


def _answering(answer: Callable[[], Any]) -> Callable[..., Any]:
    """Return a new function: torch's compiler wants one of its own for each name."""
    return lambda *_, **__: answer()


# In place of each function, what answers.
_STAND_INS: dict[Any, dict[str, Callable[[], Any]]] = {
    torch.cuda: {
        **dict.fromkeys(("set_device", "synchronize", "reset_peak_memory_stats"), lambda: None),
        "current_device": _local_rank,
        "device_count": _ranks_here,
        **dict.fromkeys(("current_stream", "default_stream"), _Stream),
        "get_device_name": lambda: "CPU",
        "is_bf16_supported": lambda: True,
        **dict.fromkeys(("device", "stream"), nullcontext),
    },
    torch.cuda.nvtx: {**dict.fromkeys(("range_push", "range_pop", "mark"), lambda: 0), "range": nullcontext},
    torch.cuda.profiler: {**dict.fromkeys(("start", "stop"), lambda: None), "profile": nullcontext},
    torch.accelerator: {
        **dict.fromkeys(("set_device_index", "set_device_idx", "synchronize"), lambda: None),
        **dict.fromkeys(("current_device_index", "current_device_idx"), _local_rank),
        "is_available": lambda: True,
        "device_count": _ranks_here,
        "current_accelerator": lambda: torch.device("cpu"),
    },
}
