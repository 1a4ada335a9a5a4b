"""Arithmetic of the roofline in FLOP/s, B/s, FLOP/B and seconds; the twin of ``model.js``.

Reference: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

ITEM_BYTES = {
    "float64": 8.0,
    "float32": 4.0,
    "tf32": 4.0,  # stored as float32; only the multiplier reads 19 of the 32 bits
    "bfloat16": 2.0,
    "float16": 2.0,
    "float8": 1.0,
    "int8": 1.0,
    "float4": 0.5,
}


def ridge(peak: float, bandwidth: float) -> float:
    """Return the intensity (FLOP/B) from which on the peak, and not the bandwidth, is the limit."""
    return peak / bandwidth


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """Return the most FLOP/s that code of this intensity can reach.

    Example:
        >>> attainable(0.25, peak=67e12, bandwidth=3.35e12)
        837500000000.0
    """
    return min(intensity * bandwidth, peak)


def bound(intensity: float, peak: float, bandwidth: float) -> str:
    """Return "memory" below the ridge and "compute" from the ridge on."""
    return "memory" if intensity < ridge(peak, bandwidth) else "compute"


def least_seconds(flops: float, moved: float, peak: float, bandwidth: float) -> float:
    """Return the least time of a run, in which arithmetic and traffic overlap completely."""
    return max(flops / peak, moved / bandwidth)


def matmul(m: int, n: int, k: int, item_bytes: float) -> tuple[float, float]:
    """Return FLOPs and least bytes of (m,k)·(k,n): each matrix crosses the memory bus once."""
    return 2.0 * m * n * k, item_bytes * (m * k + k * n + m * n)
