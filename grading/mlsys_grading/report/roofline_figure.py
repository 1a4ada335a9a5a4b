"""This machine's roofline for the report."""

from __future__ import annotations


def draw(measure: bool, smoke: bool) -> tuple[str | None, str]:
    """An SVG element and its caption; without one the caption says why."""
    if not measure:
        return None, "The roofline was not measured in this run."
    from mlsys_labkit.roofline import Roofline

    from mlsys_labkit.device import detect

    device = detect()
    roofline = Roofline.of(device)
    return roofline.svg(), device.label
