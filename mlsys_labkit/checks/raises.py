"""``expect_raises``: bad input must be refused, with the right exception and words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mlsys_labkit.checks.message import failure
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.checks.plain import type_name


def expect_raises(
    exception: type[BaseException] | tuple[type[BaseException], ...],
    fn: Callable[..., Any],
    /,
    *args: Any,
    match: str | None = None,
    **kwargs: Any,
) -> None:
    """Call ``fn(*args, **kwargs)`` and check that it raises ``exception``, its text matching the regex ``match``.

    Returns nothing, so that a test cell may end in it: a cell's last value is shown. Raises CheckError if nothing or
    something else was raised; NotImplementedError (unless expected), SystemExit and KeyboardInterrupt pass through.

    Example:
        >>> expect_raises(ValueError, int, "x", match="invalid literal")
    """
    kinds = exception if isinstance(exception, tuple) else (exception,)
    wanted = " or ".join(kind.__name__ for kind in kinds)
    name = call_name(fn, args)
    __tracebackhide__ = True
    try:
        result = fn(*args, **kwargs)
    except kinds as error:
        # A stub's NotImplementedError is also a RuntimeError and an Exception. It must not pass when one of these is
        # expected.
        if isinstance(error, NotImplementedError) and not any(issubclass(kind, NotImplementedError) for kind in kinds):
            raise
        if match is not None and not re.search(match, str(error)):
            raise failure(
                f"{name}: the right exception with the wrong words",
                expected=f"{wanted} with a text that matches {match!r}",
                actual=f"{type_name(error)}: {error}",
                next_step="say what was wrong with the input, with the value that came",
            ) from error
        note_pass(f"{name} refuses bad input")
        return
    except NotImplementedError:
        raise
    except Exception as error:
        raise failure(
            f"{name}: another exception",
            expected=wanted,
            actual=f"{type_name(error)}: {error}",
            next_step="check the input before the line that failed, and raise the expected exception",
        ) from error
    raise failure(
        f"{name}: no exception",
        expected=wanted,
        actual="None was returned" if result is None else f"{article(type_name(result))} was returned",
        meaning="bad input was taken for good",
        next_step=f"check the input first and raise {wanted}",
    )


def call_name(fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """Return the function's name with its arguments: short plain ones as they are, "..." for others.

    If all are long, or no plain values, the name stands alone.

    Example:
        >>> call_name(abs, (-1,)), call_name(sum, ([1, 2], 3)), call_name(sum, ([1, 2],))
        ('abs(-1)', 'sum(..., 3)', 'sum')
    """
    name = str(getattr(fn, "__name__", "the call"))
    shown = [repr(each) if _is_plain(each) and len(repr(each)) <= 20 else "..." for each in args]
    return f"{name}({', '.join(shown)})" if {*shown} - {"..."} else name


def _is_plain(value: object) -> bool:
    return type(value) in (int, float, str) or (type(value) is tuple and all(map(_is_plain, value)))


def article(noun: str) -> str:
    """Put "a" or "an" before a noun."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
