"""Rooflines of an H100 and of a CPU, and the work of a matrix product."""

from __future__ import annotations

from mlsys_labkit.device import Device
from mlsys_labkit.roofline import Ceiling, Roofline
from mlsys_labkit.work import Work

H100 = Roofline.from_spec("h100-sxm")
PEAK, BANDWIDTH = 989.4e12, 3.35e12  # bfloat16 dense and HBM3 of the H100 SXM datasheet
CPU = Device(name="Some CPU", kind="cpu", cores=2.0)


def on_cpu(*extra: Ceiling) -> Roofline:
    return Roofline(
        CPU,
        (
            Ceiling("memory", "dram", 20e9, level="dram", origin="measured", ci_low=19e9, ci_high=21e9),
            Ceiling("memory", "l3", 60e9, level="l3", origin="measured", ci_low=59e9, ci_high=61e9),
            Ceiling("compute", "float32", 200e9, dtype="float32", origin="measured", ci_low=190e9, ci_high=210e9),
            *extra,
        ),
    )


def matmul(n: int = 4096, seconds: float | None = None, dtype: str = "bfloat16") -> Work:
    return Work(2 * n**3, 4 * n * n, 2 * n * n, seconds=seconds, dtype=dtype, name="matmul")
