"""``expect_work`` and ``expect_peak``: FLOPs, bytes and peak memory of code, compared with theory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlsys_labkit.checks.frames import own_frames
from mlsys_labkit.checks.message import CheckError, count, failure
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.checks.plain import plain_array, type_name

_TRACER_BYTES, _TRACER_BYTES_AN_EVENT = 64 * 1024, 4096
RESIDENT_SLACK_BYTES = 16 << 20
"""Pages of libraries that a call touches first, the tracer's own, and what an allocator keeps."""
_NEXT = {
    "flops": "count loop iterations times operations an iteration; a multiply and an add are two",
    "bytes_read": "count elements read times bytes an element, each operand once",
    "bytes_written": "count elements written times bytes an element",
    "bytes_moved": "bytes read plus bytes written",
    "messages": "count the sends of one rank, step by step",
    "message_bytes": "messages times the bytes in each",
}


def expect_work(
    work: object,
    *,
    flops: float | None = None,
    bytes_read: float | None = None,
    bytes_written: float | None = None,
    bytes_moved: float | None = None,
    messages: float | None = None,
    message_bytes: float | None = None,
    at_least_bytes: float | None = None,
    at_most_bytes: float | None = None,
    at_most_flops: float | None = None,
    rtol: float = 0.0,
    name: str = "work",
) -> None:
    """Check the counts of a ``Work``: FLOPs, bytes, messages; each exact up to ``rtol``, or within the bounds.

    ``at_least_bytes`` and ``at_most_bytes`` bound ``bytes_moved``; a count below the theoretical minimum is as wrong as
    one above the maximum. Raises CheckError that names the field, the ratio and what it usually means.

    Example:
        >>> from mlsys_labkit.work import Work
        >>> expect_work(Work(flops=2e6, bytes_read=8e3), flops=2e6, at_most_bytes=1e4)
    """
    from mlsys_labkit.work import Work

    if type(work) is not Work:
        raise failure(
            f"{name}: not a Work", expected="an lk.Work", actual=type_name(work), next_step="return lk.Work(...)"
        )
    read, written = _number(work.bytes_read, f"{name}.bytes_read"), _number(work.bytes_written, f"{name}.bytes_written")
    counted = {
        "flops": _number(work.flops, f"{name}.flops"),
        "bytes_read": read,
        "bytes_written": written,
        "bytes_moved": read + written,
        "messages": _number(work.messages, f"{name}.messages"),
        "message_bytes": _number(work.message_bytes, f"{name}.message_bytes"),
    }
    exact = {
        "flops": flops, "bytes_read": bytes_read, "bytes_written": bytes_written, "bytes_moved": bytes_moved,
        "messages": messages, "message_bytes": message_bytes,
    }  # fmt: skip
    for field, want in exact.items():
        if want is not None and not abs(counted[field] - want) <= rtol * abs(want):
            raise _off(f"{name}.{field}", field, counted[field], want, "" if rtol == 0 else f" ± {rtol:.2%}")
    bounds = (("bytes_moved", at_least_bytes, math.inf), ("bytes_moved", 0, at_most_bytes), ("flops", 0, at_most_flops))
    for field, low, high in bounds:
        if high is not None and not counted[field] <= high * (1 + rtol):
            raise _off(f"{name}.{field}: too many", field, counted[field], high, " at most")
        if low is not None and not counted[field] >= low * (1 - rtol):
            raise _off(f"{name}.{field}: fewer than theory allows", field, counted[field], low, " at least")
    note_pass(f"the counts of {name}" if name != "work" else "FLOPs and bytes")


def expect_peak(fn: Callable[..., Any], /, *args: Any, at_most_bytes: float, name: str = "", **kwargs: Any) -> Any:
    """Call ``fn``, check that it never held more than ``at_most_bytes`` of new memory, and return its result.

    Counted are torch tensors on any device, numpy arrays and Python objects that the call makes (its result counts, its
    arguments do not). numpy and Python are exact up to a few KB of Python's own: leave that much slack, and more on a
    first call that imports modules. Where tensors are traced, 64 KiB and 4 KiB an event are taken off Python's part,
    because the tracing itself uses them. A grader also measures from outside the process, with a tolerance of 16 MiB:
    in a graded test a wasteful answer should exceed the bound by at least 32 MiB. Raises CheckError, and whatever
    ``fn`` raises.

    Example:
        >>> import numpy as np
        >>> expect_peak(np.zeros, 1000, at_most_bytes=12_000).shape
        (1000,)
    """
    from mlsys_labkit.memory import call_traced

    __tracebackhide__ = True
    try:
        result, trace = call_traced(fn, *args, **kwargs)
    except Exception as error:  # the student's own
        raise error.with_traceback(own_frames(error))  # noqa: B904
    tensors = [index for index, tensor in enumerate(trace.tensors) if tensor.shape is not None]
    slack = _TRACER_BYTES + _TRACER_BYTES_AN_EVENT * len(trace.stream) if tensors else 0
    held = trace.python_peak_bytes - slack if tensors else trace.python_peak_bytes
    held = max(0, held) + trace.only(tensors).peak_new_bytes
    outside = max(0, (trace.resident_peak_bytes or 0) - RESIDENT_SLACK_BYTES)
    if max(held, outside) <= at_most_bytes:
        note_pass(f"{name or getattr(fn, '__name__', 'the call')} within {count(at_most_bytes)} B")
        return result
    if held <= at_most_bytes:
        held = outside
    largest = next((tensor for tensor in trace.peak_tensors if not tensor.before), None)
    if largest is None or trace.peak_new_bytes < held / 2:
        where = "most of it is in Python objects: a list, bytes"
    else:
        where = f"the largest of them: {largest}"
    raise failure(
        f"{name or getattr(fn, '__name__', 'the call')}: peak memory too high",
        expected=f"at most {count(at_most_bytes)} B of new memory",
        actual=f"{count(held)} B" + (f" ({held / at_most_bytes:.3g}x)" if at_most_bytes else ""),
        meaning=where,
        next_step="keep only what the next step needs: work in blocks, write in place, drop references",
    )


def _number(value: object, name: str) -> float:
    plain = plain_array(value, name)
    if plain.values.shape or plain.values.dtype.kind not in "iuf":
        raise failure(
            f"{name}: not one number", expected="an int or a float", actual=f"{plain.dtype} {plain.values.shape}"
        )
    return plain.values.item()  # type: ignore[no-any-return]


def _off(headline: str, field: str, came: float, want: float, qualifier: str) -> CheckError:
    ratio = came / want if want else math.inf
    meaning = f"{ratio:.4g}x"
    if field == "flops" and ratio in (0.5, 2):
        meaning += ": a multiply-add is two operations" if ratio == 0.5 else ": a multiply-add counted twice?"
    elif field.startswith("bytes") and ratio in (0.125, 0.25, 0.5, 2, 4, 8):
        meaning += ": the size of an element? float64 has 8 B, float32 4 B, bfloat16 and float16 2 B"
    return failure(
        headline,
        expected=f"{count(want)}{qualifier}",
        actual=count(came) if math.isfinite(came) else str(came),
        meaning=meaning,
        next_step=_NEXT[field],
    )
