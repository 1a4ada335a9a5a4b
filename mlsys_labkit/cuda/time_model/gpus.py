"""Figures of the GPUs for which a kernel's time can be estimated, and the errors found on published times."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mlsys_labkit import specs
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.specs import DeviceSpec


@dataclass(frozen=True)
class ModelledGpu:
    """One GPU, with the figures that datasheets do not print; ``gpus.toml`` describes each and names its source.

    Attributes:
        arch: such as "sm_90".
        float32_lanes: FP32 operations (an FMA is one) per clock and SM.
    """

    spec: DeviceSpec
    arch: str
    float32_lanes: float
    issue_per_clock: float
    integer_lanes: float
    math_function_lanes: float
    float64_lanes: float
    load_store_lanes: float
    tag_base: float
    tag_each: float
    shared_latency: float
    barrier: float
    l1_latency: float
    l2_latency: float
    dram_latency: float
    l2_bytes_per_clock: float
    dram_share: float

    @property
    def dram_bandwidth(self) -> float:
        """Bytes per second that a streaming kernel reaches."""
        return self.dram_share * self.spec.bandwidth()

    @property
    def l2_bandwidth(self) -> float:
        """Bytes per second from the L2 cache to all SMs together."""
        return self.l2_bytes_per_clock * self.spec.sms * self.spec.clock_hz


@dataclass(frozen=True)
class PublishedErrors:
    """Errors of the model on published kernels that had no part in fitting its constant.

    Attributes:
        kernels, gpus: how many were compared.
        median_error, largest_error: 0.06 is 6 % of the published time.
        lowest_ratio, highest_ratio: least and most of the estimated time over the published one.
    """

    kernels: int
    gpus: int
    median_error: float
    largest_error: float
    lowest_ratio: float
    highest_ratio: float


def modelled(key: str) -> ModelledGpu:
    """Return the figures of a GPU by its key in ``specs``, such as "h100-sxm".

    Raises:
        CudaError: no model of this GPU; the message lists those with one.

    Example:
        >>> modelled("a100-sxm-80gb").arch
        'sm_80'
    """
    if key not in known():
        raise CudaError(f"there is no model of a GPU {key!r}; choose one of {', '.join(known())}")
    return _modelled(key)


def known() -> tuple[str, ...]:
    """Return the keys of all GPUs with a model."""
    names = specs.keys()
    return tuple(key for key in names if _arch(specs.get(key)) in _table()["architectures"])


def fitted_overlap() -> float:
    """Return the fitted constant: the exponent by which the parts of the time inside an SM add up.

    1 would be no overlap, infinity a perfect one.
    """
    return float(_table()["calibration"]["overlap"])


def published_errors(compiled: bool) -> PublishedErrors:
    """Return the errors that were found with NVIDIA's compiler, or without it."""
    return PublishedErrors(**_table()["calibration"]["compiled" if compiled else "counted"])


@cache
def _modelled(key: str) -> ModelledGpu:
    spec = specs.get(key)
    figures = {**_table()["common"], **_table()["architectures"][_arch(spec)]}
    flop_per_clock = spec.peaks["float32"].flop_per_clock or 0
    numbers = {name: float(value) for name, value in figures.items() if name != "source"}
    return ModelledGpu(spec=spec, arch=_arch(spec), float32_lanes=flop_per_clock / 2, **numbers)


def _arch(spec: DeviceSpec) -> str:
    return f"sm_{spec.compute_capability.replace('.', '')}" if spec.compute_capability else ""


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8"))
