"""A step whose cases end in every way that a case can end."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from benchmarks.gpu.cases import Case, NotMeasured


def cases() -> list[Case]:
    return [
        Case("passes", process),
        Case("raises", raise_error),
        Case("dies", die),
        Case("prints", print_and_pass),
        Case("hangs", hang, 1.0),
        Case("lacks", lack),
        Case("alone", process, alone=True),
        Case("last", process),
    ]


def process() -> dict[str, Any]:
    return {"ok": True, "process": os.getpid()}


def raise_error() -> dict[str, Any]:
    raise RuntimeError("first line of the error\nsecond line")


def die() -> dict[str, Any]:
    os.write(2, b"the last words of the process\n")
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def print_and_pass() -> dict[str, Any]:
    print('{"ok": false}')  # a kernel that prints is no reply
    return {"ok": True}


def hang() -> dict[str, Any]:
    os.system("sleep 1000 & echo $! > $HANGING")  # a process that the case started
    time.sleep(1000)
    return {}


def lack() -> dict[str, Any]:
    raise NotMeasured("torch sees no GPU")
