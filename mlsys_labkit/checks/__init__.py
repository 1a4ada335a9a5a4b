"""Checks for test cells: each returns None or raises ``CheckError`` with expected, actual, meaning, next step.

    from mlsys_labkit import checks

    checks.expect_close(student_matmul(a, b), a.double() @ b.double(), k=a.shape[1], name="C")
    checks.expect_clean(matmul, (grid, block, (a, b, c, n)))
    checks.expect_work(work, flops=2 * m * n * k, at_most_bytes=4 * (m * k + k * n + m * n))

Two rules hold for all of them. No comparison, conversion or repr of a student's class is ever run: values are read as
exact Python, numpy and torch types, anything else is refused by name. And a ``NotImplementedError`` of an unsolved
stub passes through unchanged, so that an unsolved task fails for the right reason.
"""

from __future__ import annotations

from mlsys_labkit.checks.close import expect_close
from mlsys_labkit.checks.cost import expect_peak, expect_work
from mlsys_labkit.checks.counts import ImpossibleCountError
from mlsys_labkit.checks.cuda import expect_clean, expect_counters, graded_kernel
from mlsys_labkit.checks.equal import expect_equal
from mlsys_labkit.checks.locality import expect_cache_misses
from mlsys_labkit.checks.message import CheckError
from mlsys_labkit.checks.raises import expect_raises
from mlsys_labkit.checks.ranks import expect_messages, run_ranks
from mlsys_labkit.checks.sharing import expect_copy, expect_shares_memory
from mlsys_labkit.checks.triton import expect_no_findings, expect_traffic

__all__ = [
    "CheckError",
    "ImpossibleCountError",
    "expect_cache_misses",
    "expect_clean",
    "expect_close",
    "expect_copy",
    "expect_counters",
    "expect_equal",
    "expect_messages",
    "expect_no_findings",
    "expect_peak",
    "expect_raises",
    "expect_shares_memory",
    "expect_traffic",
    "expect_work",
    "graded_kernel",
    "run_ranks",
]
