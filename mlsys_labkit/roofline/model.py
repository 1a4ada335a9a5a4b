"""The public ``Roofline``: a roof with methods to make, query and draw it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlsys_labkit import device as device_room
from mlsys_labkit.device import Device
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.roofline.figure import figure
from mlsys_labkit.roofline.measure import measured_ceilings
from mlsys_labkit.roofline.place import Placement, place
from mlsys_labkit.roofline.roof import Roof, datasheet_ceilings
from mlsys_labkit.roofline.svg import draw
from mlsys_labkit.specs import DeviceSpec
from mlsys_labkit.work import Work


class Roofline(Roof):
    """The roof of one device, from its datasheet, from measurements, or from both."""

    @classmethod
    def from_spec(cls, key: str | DeviceSpec) -> Roofline:
        """Return the datasheet roofline of a device, which need not be in this machine.

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
        """Measure the roofline of this machine and add its datasheet ceilings. Takes about ``seconds``, once.

        Results are kept in the user's cache directory for each device; ``refresh`` measures again. ``smoke`` spends a
        fifth of the time, for CI. Raises LabkitError on a virtual device, or on a GPU that torch cannot use.
        """
        device = device or device_room.detect()
        if device.virtual:
            raise LabkitError(
                f"{device.label} cannot be measured; unset {device_room.VARIABLE}, or take Roofline.from_spec()"
            )
        sheet = datasheet_ceilings(device.spec) if device.spec else ()
        return cls(device, (*sheet, *measured_ceilings(device, seconds / 5 if smoke else seconds, refresh=refresh)))

    @classmethod
    def of(cls, device: Device | None = None, seconds: float = 2.0) -> Roofline:
        """Return the roofline of ``device`` (default: the detected one): a model if it is virtual, else measured."""
        device = device or device_room.detect()
        if device.virtual and device.spec:
            return cls(device, datasheet_ceilings(device.spec))
        return cls.measure(seconds, device=device)

    def place(self, work: Work, level: str = "dram") -> Placement:
        """Place ``work`` under this roof: its bound, its share of the roof, and a sentence (see Placement)."""
        return place(self, work, level)

    def svg(self, works: Iterable[Work] = (), **options: Any) -> str:
        """Return the chart as inline SVG (options: see ``roofline.svg.draw``)."""
        return draw(self, tuple(works), **options)

    def plotly(self, works: Iterable[Work] = (), **options: Any) -> Any:
        """Return the chart as a plotly ``go.Figure`` (options: ``roofline.figure.figure``). Needs extra "widgets"."""
        return figure(self, tuple(works), **options)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg()  # inline, unlike image/svg+xml, so that the notebook's theme reaches it
