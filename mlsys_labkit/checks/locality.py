"""``expect_cache_misses``: the misses of a loop's accesses in a model cache."""

from __future__ import annotations

from mlsys_labkit.checks.counts import require_type
from mlsys_labkit.checks.message import count, failure
from mlsys_labkit.checks.passed import note_pass


def expect_cache_misses(
    trace: object, *, at_most: int, at_least: int = 0, line_bytes: int = 64, lines: int = 512, name: str = "the loops"
) -> None:
    """Check the misses of a recorded run in a model cache of ``lines`` lines of ``line_bytes`` (see ``cache_misses``).

    ``at_least`` is the theoretical minimum: fewer misses mean that the recorder was bypassed. Raises CheckError that
    says which array argument missed most.

    Example:
        >>> import numpy as np
        >>> from mlsys_labkit.access import trace_accesses
        >>> expect_cache_misses(trace_accesses(lambda a: [a[i] for i in range(32)], np.zeros(32)), at_most=4)

    Reference: R. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
    """
    from mlsys_labkit.access import AccessTrace, cache_misses

    traced = require_type(
        trace,
        AccessTrace,
        f"{name}: not a trace of accesses",
        expected="what lk.trace_accesses(function, arrays...) returns",
        next_step="pass the trace, not the function",
    )
    found = cache_misses(traced, line_bytes=line_bytes, lines=lines)
    shares = ", ".join(f"argument {number}: {count(misses)}" for number, misses in enumerate(found.per_array))
    if found.misses > at_most:
        worst = max(range(len(found.per_array)), key=found.per_array.__getitem__)
        raise failure(
            f"{name}: too many cache misses",
            expected=f"at most {count(at_most)} ({lines} lines of {line_bytes} B)",
            actual=f"{count(found.misses)}, {found.misses / at_most:.3g}x" if at_most else count(found.misses),
            meaning=f"by array: {shares}",
            next_step=f"which loop steps through argument {worst}, along its rows or down its columns, and how soon is "
            "a line needed again?",
        )
    if found.misses < at_least:
        raise failure(
            f"{name}: fewer cache misses than theory allows",
            expected=f"at least {count(at_least)}: every line of every array once",
            actual=f"{count(found.misses)} ({shares})",
            meaning="some accesses went past the recorder",
            next_step="read and write elements of the arrays that you were given",
        )
    note_pass(f"cache misses of {name}")
