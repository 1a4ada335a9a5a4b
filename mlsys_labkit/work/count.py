"""The public interface of the counters: ``count_work(fn, ...)`` and ``with counting_work() as counter:``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mlsys_labkit._base.probes import probe
from mlsys_labkit.work.numpy_counter import CountedArray, counted_creation, wrap
from mlsys_labkit.work.record import Work, WorkError
from mlsys_labkit.work.tally import Tally, replaced


class counting_work:
    """Context manager that counts the FLOPs and bytes of the torch and numpy code inside.

    torch is counted by itself, forward and backward, on any device and on fake tensors. numpy is counted on arrays
    that went through ``.wrap(array)`` and on arrays that the code makes by ``np.zeros``, ``np.array`` and the like.
    What counts as a FLOP and as a byte is written in ``mlsys_labkit.work.conventions``: eager, unfused traffic, so an
    upper bound of what a fused kernel or a warm cache moves.

    Not seen: arithmetic on Python numbers, code inside C extensions and compiled functions, other processes.

    Raises:
        WorkError: on reading ``.work`` before the end, or when the code meets a dtype or layout without a rule.

    Warns:
        UncountedWarning: an operation has no FLOP rule; its bytes are counted and ``how`` leaves "flops" out.

    Example:
        >>> x = np.ones(1000, dtype=np.float32)
        >>> with counting_work() as counter:
        ...     y = counter.wrap(x) * 2
        >>> int(counter.work.flops), int(counter.work.bytes_read), int(counter.work.bytes_written)
        (1000, 4000, 4000)

    Reference: PyTorch documentation, ``torch.utils.flop_counter``; NumPy enhancement proposals 13 and 18.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._tally = Tally()
        self._stack = contextlib.ExitStack()
        self._work: Work | None = None

    def __enter__(self) -> counting_work:
        self._had_torch = "torch" in sys.modules
        self._stack.enter_context(counted_creation(self._tally))
        if self._had_torch:
            from mlsys_labkit.work.torch_counter import TorchCounter

            self._stack.enter_context(TorchCounter(self._tally))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None and not self._had_torch and "torch" in sys.modules:
            raise WorkError("torch was first imported inside the counted code and not counted; import it before")
        self._tally.close()
        self._work = self._tally.work(self._name)

    def wrap(self, array: Any) -> CountedArray:
        """Return a view of ``array`` (same memory) whose numpy operations are counted."""
        return wrap(array, self._tally)

    @property
    def work(self) -> Work:
        """The work counted; available when the block has ended."""
        if self._work is None:
            raise WorkError("the count has not ended; read .work after the with block")
        return self._work


@probe
def count_work(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Work:
    """Run ``fn(*args, **kwargs)`` once, discard its result, and return the work it did.

    numpy arrays among the arguments (also inside lists, tuples and dicts) are counted; they share memory with yours, so
    an in-place function changes them. See ``counting_work`` for what is counted and what is not.

    Args:
        fn: torch or numpy code.

    Raises:
        WorkError: ``fn`` is not callable, or it meets a dtype or layout without a rule. Errors of ``fn`` pass through.

    Example:
        >>> a, b = np.ones((4, 5)), np.ones((5, 6))
        >>> work = count_work(np.matmul, a, b)
        >>> int(work.flops), int(work.bytes_read), int(work.bytes_written), work.dtype
        (240, 400, 192, 'float64')

    Reference: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    __tracebackhide__ = True  # an error of fn shows the student's frames, not this one
    if not callable(fn):
        raise WorkError(
            f"count_work expects a function and its arguments, got {type(fn).__name__}; pass fn, not fn(...)"
        )
    with counting_work(getattr(fn, "__name__", type(fn).__name__)) as counter:
        fn(*replaced(args, np.ndarray, counter.wrap), **replaced(kwargs, np.ndarray, counter.wrap))
    return counter.work
