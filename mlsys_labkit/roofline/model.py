"""Ceilings and the roof they make. Drawing lives in ``svg`` and ``figure``, measuring in ``measure``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mlsys_labkit import device as device_room
from mlsys_labkit.device import Device
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import DeviceSpec

if TYPE_CHECKING:
    from mlsys_labkit.roofline.place import Placement
    from mlsys_labkit.work import Work

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
        """FLOP/s that this one limit allows at ``intensity`` (FLOP/B)."""
        return self.value if self.kind == "compute" else self.value * intensity


@dataclass(frozen=True)
class Roofline:
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

    @classmethod
    def from_spec(cls, key: str | DeviceSpec) -> Roofline:
        """The datasheet roofline of a device that need not be here.

        Example:
            >>> round(Roofline.from_spec("h100-sxm").ridge("bfloat16"))
            295

        Raises:
            UnknownDeviceError: no spec has this key.
        """
        device = device_room.virtual(key)
        assert device.spec is not None
        return cls(device, datasheet_ceilings(device.spec))

    @classmethod
    def measure(
        cls, seconds: float = 2.0, *, device: Device | None = None, refresh: bool = False, smoke: bool = False
    ) -> Roofline:
        """The roofline of this machine, beside its datasheet if it has one. Takes about ``seconds``, once.

        Results are kept in the user's cache directory for each device; ``refresh`` measures again. ``smoke`` spends a
        fifth of the time, for CI. Raises LabkitError on a virtual device, or on a GPU that torch cannot use.
        """
        from mlsys_labkit.roofline.measure import measured_ceilings

        device = device or device_room.detect()
        if device.virtual:
            raise LabkitError(
                f"{device.label} cannot be measured; unset {device_room.VARIABLE}, or take Roofline.from_spec()"
            )
        sheet = datasheet_ceilings(device.spec) if device.spec else ()
        return cls(device, (*sheet, *measured_ceilings(device, seconds / 5 if smoke else seconds, refresh=refresh)))

    @classmethod
    def of(cls, device: Device | None = None, seconds: float = 2.0) -> Roofline:
        """The right roofline for ``device`` (default: the detected one): a model if it is virtual, else measured."""
        device = device or device_room.detect()
        if device.virtual and device.spec:
            return cls(device, datasheet_ceilings(device.spec))
        return cls.measure(seconds, device=device)

    def dtypes(self) -> tuple[str, ...]:
        """Precisions with a compute ceiling, in the order of the ceilings."""
        return tuple(dict.fromkeys(c.dtype for c in self.ceilings if c.dtype))

    def levels(self) -> tuple[str, ...]:
        """Memory levels with a bandwidth, slowest first."""
        have = {c.level for c in self.ceilings if c.level}
        return tuple(level for level in LEVELS if level in have)

    def compute(self, dtype: str = "float32", origin: Origin | None = None) -> Ceiling:
        """The compute ceiling for ``dtype``. Raises LabkitError without one: no precision stands in for another."""
        return self._pick("compute", dtype, origin)

    def memory(self, level: str = "dram", origin: Origin | None = None) -> Ceiling:
        """The bandwidth ceiling of ``level``. Raises LabkitError without one."""
        return self._pick("memory", level, origin)

    def attainable(
        self, intensity: float, dtype: str = "float32", level: str = "dram", origin: Origin | None = None
    ) -> float:
        """FLOP/s that code of this ``intensity`` (FLOP/B) can reach: the lower of the two limits.

        Example:
            >>> Roofline.from_spec("a100-sxm-80gb").attainable(1.0, "float32") / 1e12
            2.039
        """
        return min(
            self.compute(dtype, origin).value,
            self.memory(level, origin).attainable(intensity),
        )

    def ridge(self, dtype: str = "float32", level: str = "dram", origin: Origin | None = None) -> float:
        """The intensity in FLOP/B where memory stops being the limit and arithmetic starts."""
        return self.compute(dtype, origin).value / self.memory(level, origin).value

    def place(self, work: Work, level: str = "dram") -> Placement:
        """Where ``work`` stands under this roof, in a sentence (see Placement)."""
        from mlsys_labkit.roofline.place import place

        return place(self, work, level)

    def svg(self, works: Iterable[Work] = (), **options: Any) -> str:
        """The chart as inline SVG (options: see ``roofline.svg.draw``)."""
        from mlsys_labkit.roofline.svg import draw

        return draw(self, tuple(works), **options)

    def plotly(self, works: Iterable[Work] = (), **options: Any) -> Any:
        """The chart as a plotly ``go.Figure`` (options: see ``roofline.figure.figure``). Needs the extra "widgets"."""
        from mlsys_labkit.roofline.figure import figure

        return figure(self, tuple(works), **options)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg()  # inline, unlike image/svg+xml, so that the notebook's theme reaches it

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
    """Ceilings of a datasheet: dense peaks and bandwidths. Sparse peaks make none."""
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
