"""``expect_close``: comparison of numbers up to the rounding that their precision allows."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.comparison import ArrayComparison
from mlsys_labkit.checks.diagnose import diagnose
from mlsys_labkit.checks.message import CheckError, failure
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.checks.plain import PlainArray, plain_array
from mlsys_labkit.checks.triton import fault_behind

CONFIDENCE = 8.0  # lambda of Higham and Mary: the bound fails with probability 2 k exp(-lambda^2 / 2), here k * 3e-14
DEFAULT_K = 1024

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
_COMPONENT = {"complex64": "float32", "complex128": "float64"}
# Below the smallest normal number the spacing is absolute. Ordinary values reach it in the narrow formats only.
_SMALLEST_SUBNORMAL = {"float16": 2.0**-24, "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16}


def relative_tolerance(dtype: str, k: int = DEFAULT_K) -> float:
    """Return 2 u + lambda * sqrt(k) * u_sum, a bound on the relative error of a sum of k terms.

    The first term is the rounding of an operand and of the result, the second that of k additions to a running sum.

    u is the unit round-off of ``dtype``; u_sum is the same, except that formats of 16 and fewer bits are taken to sum
    in float32, as tensor cores and PyTorch's kernels do. Integers and bools: 0.

    Example:
        >>> relative_tolerance("float32", k=256) == (2 + 8 * 16) * 2**-24
        True
    """
    u = UNIT_ROUNDOFF.get(_COMPONENT.get(dtype, dtype), 0.0)
    return 2 * u + CONFIDENCE * math.sqrt(k) * min(u, UNIT_ROUNDOFF["float32"])


def expect_close(
    actual: object,
    expected: object,
    *,
    dtype: object = None,
    rtol: float | None = None,
    atol: float | None = None,
    k: int | None = None,
    slips: Mapping[str, object] | None = None,
    otherwise: str = "",
    name: str = "result",
) -> None:
    """Check that ``actual`` has the shape of ``expected`` and its values up to rounding.

    ``actual`` and ``expected`` are numbers, nested lists, numpy arrays or torch tensors of any device. ``dtype`` (name,
    numpy or torch dtype), if given, must be the dtype of ``actual``. ``k`` is the length of the longest sum behind an
    element (default 1024).

    Element i may be off by ``atol + rtol * |expected_i|``. By default ``rtol = relative_tolerance(dtype, k)`` with the
    coarser dtype of the two, and ``atol = rtol * rms(expected)``; ``atol`` alone means ``rtol = 0``. The sqrt(k) is the
    probabilistic bound on a sum of k terms. It holds relative to the sum of magnitudes, hence to the result where the
    terms have one sign; for terms of mean zero, whose sum is sqrt(k) smaller than its magnitudes, the sharper bound for
    random data makes the same figure hold relative to the rms. An ill-conditioned computation (a solve, a difference
    of nearly equal numbers) deserves its own ``rtol``. Integers and bools must be equal, NaN and infinities must stand
    where they are expected.

    ``slips`` are the results of likely mistakes, by what went wrong: if ``actual`` is one of them, the error says so.
    ``otherwise`` is the next step for any other wrong result of the right shape, in place of the general one.

    Raises CheckError, whose headline is the slip, or says "rounding" (just beyond tolerance, or what a lower precision
    would give) or "wrong".

    Example:
        >>> expect_close(np.float32(0.1) + np.float32(0.2), 0.3)

    Reference: N. Higham and T. Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput.
    41(5), 2019, Theorem 3.1; Sharper probabilistic backward error analysis for basic linear algebra kernels with random
    data, SIAM J. Sci. Comput. 42(5), 2020.
    """
    try:
        _compare(actual, expected, dtype, (rtol, atol, k), otherwise, name)
    except CheckError:
        for slip, result in (slips or {}).items():
            try:
                _compare(actual, result, None, (rtol, atol, k), "", name)
            except CheckError:
                continue
            raise failure(f"{name}: {slip}") from None
        raise
    note_pass(name)


def _compare(
    actual: object,
    expected: object,
    dtype: object,
    tolerance: tuple[float | None, float | None, int | None],
    otherwise: str,
    name: str,
) -> None:
    rtol, atol, k = tolerance
    came, want = plain_array(actual, name), plain_array(expected, f"expected {name}")
    _check_shape(came, want, name)
    _check_dtype(came, dtype, name)
    a, e = came.values, want.values
    format_ = max((_COMPONENT.get(p.dtype, p.dtype) for p in (came, want)), key=lambda f: UNIT_ROUNDOFF.get(f, 0.0))
    length = DEFAULT_K if k is None else max(1, k)
    relative = rtol if rtol is not None else 0.0 if atol is not None else relative_tolerance(format_, length)
    scale = _rms(e)
    if atol is None:
        atol = relative * scale + (_SMALLEST_SUBNORMAL.get(format_, 0.0) if relative else 0.0)
    difference = _difference(a, e)
    allowed = atol + relative * np.where(np.isfinite(e), _magnitude(e), 0.0)
    if a.dtype.kind in "biu" and e.dtype.kind in "biu" and not allowed.any():
        off = np.asarray(a != e)  # exact: float64 would merge neighbours above 2^53
    else:
        off = np.asarray(~(difference <= allowed))
    if not off.any():
        return
    comparison = ArrayComparison(a, e, difference, np.asarray(allowed), off, scale if atol else 0.0, format_)
    worst = comparison.worst
    at = f" at [{', '.join(map(str, worst))}]" if worst else ""
    diagnosis = fault_behind(actual) or diagnose(comparison, lambda coarser: relative_tolerance(coarser, length))
    told = otherwise and np.isfinite(difference).all()
    share = f"; {int(off.sum())} of {off.size} elements off ({off.mean():.2%})" if worst else ""
    raise failure(
        f"{name}: {diagnosis.verdict}{share}",
        expected=f"{_show(e[worst])}{at} ± {float(allowed[worst]):.2g} ({want.dtype})",
        actual=f"{_show(a[worst])}{at}, off by {float(difference[worst]):.3g} ({came.dtype}){comparison.nonfinite}",
        meaning="" if told else diagnosis.meaning,
        next_step=otherwise if told else diagnosis.next_step,
    )


def _check_shape(came: PlainArray, want: PlainArray, name: str) -> None:
    a, e = came.values.shape, want.values.shape
    if a == e:
        return
    if a == e[::-1]:
        step = "axes are reversed: transpose, or swap the loops over rows and columns"
    elif math.prod(a) == math.prod(e):
        step = "the element count is right: reshape, or drop or add the axes of length 1"
    elif len(a) < len(e):
        step = "an axis is missing: was it summed away (keepdims?) or indexed?"
    else:
        step = "print the shape after each step and find the first that surprises you"
    raise failure(f"{name}: wrong shape", expected=str(e), actual=str(a), next_step=step)


def _check_dtype(came: PlainArray, dtype: object, name: str) -> None:
    if dtype is None:
        return
    want = np.dtype(dtype).name if isinstance(dtype, (type, np.dtype)) else str(dtype).removeprefix("torch.")
    if came.dtype != want:
        raise failure(
            f"{name}: wrong dtype",
            expected=want,
            actual=came.dtype,
            next_step=f"allocate the result as {want}, or convert it with .astype (numpy) or .to (torch)",
        )


def _magnitude(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    return np.abs(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))


def _rms(values: npt.NDArray[np.generic]) -> float:
    magnitude = _magnitude(values)
    magnitude = magnitude[np.isfinite(magnitude)]
    largest = float(magnitude.max(initial=0.0))
    # Scaled, because squares of large finite numbers overflow. Nothing but zeros expected: the scale is 1.
    return largest * float(np.sqrt(np.mean((magnitude / largest) ** 2))) if largest else 1.0


def _difference(came: npt.NDArray[np.generic], want: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Return |came - want|: 0 for a NaN or infinity that was expected, infinite for one that was not."""
    wide = np.complex128 if "c" in came.dtype.kind + want.dtype.kind else np.float64
    a, e = came.astype(wide), want.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == e) | (np.isnan(a) & np.isnan(e))
        return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(e), np.abs(a - e), np.inf))


def _show(value: np.generic) -> str:
    return str(value.item()) if value.dtype.kind in "biu" else f"{value.item():.9g}"
