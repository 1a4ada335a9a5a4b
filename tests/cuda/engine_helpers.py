"""Zeros for a kernel's results, and the kinds of its findings."""

from __future__ import annotations

import numpy as np


def ints(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


def kinds(findings: object) -> set[str]:
    assert isinstance(findings, (list, tuple))
    return {finding.kind for finding in findings}
