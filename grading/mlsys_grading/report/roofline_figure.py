"""This machine's roofline for the report."""

from __future__ import annotations

SECONDS = 2.0
SMOKE_SECONDS = 0.4


def draw(measure: bool, smoke: bool) -> tuple[str | None, str]:
    """Return an SVG element and its caption, or None and a caption that says why there is no figure."""
    if not measure:
        return None, "The roofline was not measured in this run."
    from mlsys_labkit.device import detect
    from mlsys_labkit.errors import LabkitError
    from mlsys_labkit.roofline import Roofline

    device = detect()
    try:
        roofline = Roofline.of(device, seconds=SMOKE_SECONDS if smoke else SECONDS)
        caption = f"{device.label}. Solid: measured on this machine. Dashed: from its datasheet, if on record."
        return roofline.svg(), caption
    except LabkitError as error:
        return None, f"No roofline: {error}"
