"""The interface of :mod:`mlsys_grading.sandbox.confine` without any confinement, for machines that allow no sandbox."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import NoReturn

from mlsys_grading import processes
from mlsys_grading.sandbox.confine import FAILED, Oversee, only_descriptors


def keep_unconfined(work: Callable[[], None], keep: tuple[int, ...], oversee: Oversee) -> NoReturn:
    """Keep a process that runs ``work`` with all our rights: for a fork with nothing else to do.

    The keeper ends what is left of the tree when ``oversee`` returns, and itself with its parent. A process that means
    harm can escape: only a sandbox ends everything for certain.
    """
    code = FAILED
    try:
        processes.own_descendants()
        processes.end_with_parent()
        first = os.fork()
        if first == 0:
            _work(work, keep)
        for descriptor in keep:
            os.close(descriptor)
        status = oversee(first, None)
        processes.end_descendants()
        code = max(0, os.waitstatus_to_exitcode(status))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _work(work: Callable[[], None], keep: tuple[int, ...]) -> None:
    code = 1
    try:
        only_descriptors(keep)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
