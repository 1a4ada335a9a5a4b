"""Programs that keep their rank in a library, past its attributes; each returns its own rank, and undoes its change."""

from __future__ import annotations

import builtins
import copyreg
import enum
import importlib
import json
import locale
import logging
import os
import pickle
import socket
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def _after(change: Callable[[int], Any], found: Callable[[], Any], undo: Callable[[], Any] = lambda: None) -> Any:
    change(dist.get_rank())
    dist.barrier()
    result = found()
    dist.barrier()
    undo()
    return result


def variables_of_a_library() -> int:
    def change(rank: int) -> None:
        vars(json)["own_first"] = rank
        vars(json).update(own_second=rank)
        vars(builtins)["own_third"] = rank

    def found() -> int:
        ranks = {json.own_first, json.own_second, own_third}  # type: ignore[attr-defined,name-defined]  # noqa: F821
        return int(ranks.pop()) if len(ranks) == 1 else -1

    return int(_after(change, found, lambda: vars(json).pop("own_first")))


def library_that_a_function_imports() -> int:
    import wave

    wave.Wave_read.own_rank = dist.get_rank()  # type: ignore[attr-defined]
    dist.barrier()
    return int(wave.Wave_read.own_rank)  # type: ignore[attr-defined]


def module_that_a_function_imports_from_a_package() -> int:
    from email import contentmanager  # is loaded by nothing else here

    contentmanager.own_rank = dist.get_rank()  # type: ignore[attr-defined]
    dist.barrier()
    return int(contentmanager.own_rank)  # type: ignore[attr-defined]


def class_that_a_function_imports() -> int:
    from plistlib import FMT_XML, UID

    UID.own_rank = dist.get_rank()  # type: ignore[attr-defined]
    dist.barrier()
    return int(UID.own_rank) if FMT_XML else -1  # type: ignore[attr-defined]


def library_that_is_imported_by_its_name() -> int:
    module: Any = importlib.import_module("quopri")
    module.own_rank = dist.get_rank()
    dist.barrier()
    return int(module.own_rank)


def class_of_what_a_library_returns() -> int:
    logger: Any = logging.getLogger("programs_that_change_libraries")

    def change(rank: int) -> None:
        type(logger).own_rank = rank

    return int(_after(change, lambda: logger.own_rank))


def object_of_a_library() -> int:
    encoder: Any = json._default_encoder  # type: ignore[attr-defined]
    return int(_after(lambda rank: setattr(encoder, "indent", rank), lambda: encoder.indent, lambda: _reset(encoder)))


def _reset(encoder: Any) -> None:
    encoder.indent = None


MODULES: Any = nn.modules.module  # not named in the function: a program with sys and modules may mean any global


def items_of_a_library() -> int:
    escapes: Any = json.encoder.ESCAPE_DCT
    ordered: Any = MODULES._global_forward_pre_hooks

    def change(rank: int) -> None:
        escapes["own rank"] = ordered["own rank"] = rank
        sys.meta_path.append(types.SimpleNamespace(rank=rank, find_spec=lambda *_: None))

    def found() -> int:
        finders = [each.rank for each in sys.meta_path if isinstance(each, types.SimpleNamespace)]
        return int(escapes["own rank"]) if finders == [escapes["own rank"]] == [ordered["own rank"]] else -1

    return int(
        _after(change, found, lambda: [one.pop("own rank") for one in (escapes, ordered)] + [sys.meta_path.pop()])
    )


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Colour.RED.seen = [0]  # type: ignore[attr-defined]


def member_of_an_enumeration() -> int:
    member: Any = Colour.RED

    def change(rank: int) -> None:
        member.rank = rank
        member.seen.append(rank)

    return int(_after(change, lambda: member.rank if sum(member.seen) == member.rank else -1))


def module_in_the_place_of_pythons() -> int:
    def change(rank: int) -> None:
        module: Any = types.ModuleType("cmd")
        module.rank = rank
        sys.modules["cmd"] = module

    return int(_after(change, lambda: importlib.import_module("cmd").rank, lambda: sys.modules.pop("cmd")))


def hooks_of_all_modules() -> int:
    calls: list[int] = []
    torchs: Any = nn.modules.module
    handles = [torchs.register_module_forward_hook(lambda *_: calls.append(dist.get_rank()))]
    dist.barrier()
    if dist.get_rank() == 1:  # torch refuses both kinds in one process
        handles.append(torchs.register_module_full_backward_hook(lambda *_: None))
    else:
        handles.append(torchs.register_module_backward_hook(lambda *_: None))
    dist.barrier()
    nn.ReLU()(torch.zeros(1))
    dist.barrier()
    for handle in handles:
        handle.remove()
    return calls[0] if len(calls) == 1 else -1


class Reduced:
    pass


def how_a_class_is_pickled() -> int:
    def change(rank: int) -> None:
        copyreg.pickle(Reduced, lambda _: (int, (rank,)))  # type: ignore[arg-type]

    return int(_after(change, lambda: pickle.loads(pickle.dumps(Reduced()))))


def settings_of_torch() -> int:
    first = dist.get_rank() == 0
    before = torch.get_num_threads()
    torch.set_num_threads(1 + first)
    torch.autograd.set_detect_anomaly(first)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = first
    torch.backends.mkldnn.set_flags(first)  # type: ignore[attr-defined]
    torch.backends.cuda.enable_flash_sdp(first)
    dist.barrier()
    found = {
        torch.get_num_threads() == 2, torch.is_anomaly_enabled(), torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic, torch.backends.mkldnn.enabled, torch.backends.cuda.flash_sdp_enabled(),
    }  # fmt: skip
    dist.barrier()
    torch.set_num_threads(before)
    torch.autograd.set_detect_anomaly(False)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.backends.mkldnn.set_flags(True)  # type: ignore[attr-defined]
    torch.backends.cuda.enable_flash_sdp(True)
    return dist.get_rank() if found == {first} else -1


def settings_of_python() -> int:
    rank, before = dist.get_rank(), sys.getrecursionlimit()
    kept = sys.get_int_max_str_digits(), locale.setlocale(locale.LC_ALL), os.environ.get("TZ")
    sys.setrecursionlimit(5000 + rank)
    sys.set_int_max_str_digits(5000 + rank)
    socket.setdefaulttimeout(5000 + rank)
    locale.setlocale(locale.LC_CTYPE, ("C", "C.UTF-8", "C")[rank])
    os.environ["TZ"] = f"UTC+{rank}"
    time.tzset()
    dist.barrier()
    found = {sys.getrecursionlimit() - 5000, sys.get_int_max_str_digits() - 5000, time.timezone // 3600}
    found.add(int(socket.getdefaulttimeout() or 0) - 5000)
    same = locale.setlocale(locale.LC_CTYPE) == ("C", "C.UTF-8", "C")[rank]
    dist.barrier()
    sys.setrecursionlimit(before)
    sys.set_int_max_str_digits(kept[0])
    socket.setdefaulttimeout(None)
    locale.setlocale(locale.LC_ALL, kept[1])
    os.environ.pop("TZ") if kept[2] is None else os.environ.update(TZ=kept[2])
    time.tzset()
    return rank if found == {rank} and same else -1


def settings_of_logging() -> int:
    rank, factory = dist.get_rank(), logging.getLogRecordFactory()
    logging.addLevelName(77, f"LEVEL {rank}")
    logging.disable(rank)
    logging.setLogRecordFactory(lambda *_: rank)  # type: ignore[arg-type,return-value]
    dist.barrier()
    found: set[Any] = {logging.getLogRecordFactory()(), logging.root.manager.disable}
    found.add(int(logging.getLevelName(77).split()[1]))
    dist.barrier()
    logging.setLogRecordFactory(factory)
    logging.disable(0)
    return rank if found == {rank} else -1


CHANGING: tuple[Callable[[], Any], ...] = (
    variables_of_a_library, library_that_a_function_imports, module_that_a_function_imports_from_a_package,
    class_that_a_function_imports, library_that_is_imported_by_its_name, class_of_what_a_library_returns,
    object_of_a_library, items_of_a_library,
    member_of_an_enumeration, module_in_the_place_of_pythons, hooks_of_all_modules, how_a_class_is_pickled,
    settings_of_torch, settings_of_python, settings_of_logging,
)  # fmt: skip
