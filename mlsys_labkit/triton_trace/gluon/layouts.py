"""Gluon's layouts as plain data, so that they travel to the worker, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from mlsys_labkit.triton_trace.gluon.vocabulary import GLUON, LAYOUTS

_BARRIER = "MBarrierLayout"


def layout_name(value: Any) -> dict[str, Any] | None:
    """Return a layout as a class's name and its fields, or None for what is no layout."""
    kind = type(value)
    if not kind.__module__.startswith(GLUON) or kind.__name__ not in {*LAYOUTS, _BARRIER}:
        return None
    fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return {"class": kind.__name__, "fields": {name: layout_name(one) or one for name, one in fields.items()}}


def layout_of(data: dict[str, Any]) -> Any:
    """Return the layout that ``layout_name`` described."""
    from triton.experimental.gluon.language import _layouts
    from triton.experimental.gluon.language.nvidia.ampere import mbarrier

    fields = {name: layout_of(one) if isinstance(one, dict) else one for name, one in data["fields"].items()}
    if data["class"] == _BARRIER:
        return mbarrier.MBarrierLayout(fields["cga_layout"])
    if data["class"] not in LAYOUTS:
        raise ValueError(f"{data['class']} is no layout")
    return getattr(_layouts, data["class"])(**fields)
