"""Ceilings of a device, and the roof they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlsys_labkit.device import Device
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import DeviceSpec

Origin = Literal["datasheet", "measured"]
LEVELS = ("dram", "l3", "l2", "l1", "shared")  # from the slowest to the fastest


@dataclass(frozen=True)
class Ceiling:
    """One limit: a peak in FLOP/s for a ``dtype``, or a bandwidth in B/s of a memory ``level``.

    ``ci_low`` and ``ci_high`` bound the median of a measured ceiling with 95 % confidence. ``source`` says where the
    number comes from: title, date and condition of a datasheet, or the kernel and size that were timed.
    """

    kind: Literal["compute", "memory"]
    label: str
    value: float
    dtype: str | None = None
    level: str | None = None
    origin: Origin = "datasheet"
    ci_low: float | None = None
    ci_high: float | None = None
    source: str = ""

    @property
    def unit(self) -> str:
        """ "FLOP/s" or "B/s"."""
        return "FLOP/s" if self.kind == "compute" else "B/s"

    def attainable(self, intensity: float) -> float:
        """Return the FLOP/s that this one limit allows at ``intensity`` (FLOP/B)."""
        return self.value if self.kind == "compute" else self.value * intensity


@dataclass(frozen=True)
class Roof:
    """The ceilings of one device; datasheet and measured ones side by side.

    Where both are known, questions are answered from the measured one unless ``origin`` says otherwise: it is what code
    can reach here.
    """

    device: Device
    ceilings: tuple[Ceiling, ...]

    @property
    def virtual(self) -> bool:
        """True when nothing of this was measured on the device: a model."""
        return self.device.virtual

    def dtypes(self) -> tuple[str, ...]:
        """Return the precisions with a compute ceiling, in the order of the ceilings."""
        return tuple(dict.fromkeys(c.dtype for c in self.ceilings if c.dtype))

    def levels(self) -> tuple[str, ...]:
        """Return the memory levels with a bandwidth, slowest first."""
        have = {c.level for c in self.ceilings if c.level}
        return tuple(level for level in LEVELS if level in have)

    def compute(self, dtype: str = "float32", origin: Origin | None = None) -> Ceiling:
        """Return the compute ceiling for ``dtype``. Raises LabkitError if there is none for this very precision."""
        return self._pick("compute", dtype, origin)

    def memory(self, level: str = "dram", origin: Origin | None = None) -> Ceiling:
        """Return the bandwidth ceiling of ``level``. Raises LabkitError if there is none."""
        return self._pick("memory", level, origin)

    def attainable(
        self, intensity: float, dtype: str = "float32", level: str = "dram", origin: Origin | None = None
    ) -> float:
        """Return the FLOP/s that code of this ``intensity`` (FLOP/B) can reach: the lower of the two limits.

        Example:
            >>> from mlsys_labkit.roofline import Roofline
            >>> Roofline.from_spec("a100-sxm-80gb").attainable(1.0, "float32") / 1e12
            2.039
        """
        return min(self.compute(dtype, origin).value, self.memory(level, origin).attainable(intensity))

    def ridge(self, dtype: str = "float32", level: str = "dram", origin: Origin | None = None) -> float:
        """Return the intensity in FLOP/B below which memory is the limit and above which arithmetic is."""
        return self.compute(dtype, origin).value / self.memory(level, origin).value

    def _pick(self, kind: str, name: str, origin: Origin | None) -> Ceiling:
        found = [
            c
            for c in self.ceilings
            if c.kind == kind and name in (c.dtype, c.level) and (origin is None or c.origin == origin)
        ]
        if not found:
            have = sorted({str(c.dtype or c.level) for c in self.ceilings if c.kind == kind})
            what = f"{origin} {kind}" if origin else kind
            raise LabkitError(
                f"{self.device.name} has no {what} ceiling for {name!r}; it has {', '.join(have) or 'none'}"
            )
        return max(found, key=lambda c: c.origin == "measured")


def datasheet_ceilings(spec: DeviceSpec) -> tuple[Ceiling, ...]:
    """Return the ceilings of a datasheet: dense peaks and bandwidths. Sparse peaks are left out."""
    socket = " (socket)" if spec.kind == "cpu" else ""
    compute = [
        Ceiling("compute", f"{dtype}{socket}", f.value, dtype=dtype, source=f"{f.source} ({f.date}): {f.condition}")
        for dtype, f in spec.peaks.items()
    ]
    memory = [
        Ceiling("memory", f"{level}{socket}", f.value, level=level, source=f"{f.source} ({f.date}): {f.condition}")
        for level, f in spec.bandwidths.items()
    ]
    return (*memory, *compute)
