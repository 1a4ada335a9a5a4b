"""Roofline explorer: move a piece of work under the roofs of one machine or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.roofline import model

NOT_MEASURED = "Datasheet peaks are a model, not measured."


def roofline(
    devices: Sequence[Any] | None = None,
    works: Sequence[Any] = (),
    device: Any = None,
    *,
    dtype: str = "float32",
    level: str = "dram",
) -> Any:
    """Explore arithmetic intensity (FLOP/B) under the roofs of ``devices``, with ``works`` marked.

    A device is a datasheet key ("h100-sxm"), a ``Device`` or ``DeviceSpec``, or a ``Roofline`` (its measured and its
    datasheet ceilings become two machines to compare). By default every machine with a datasheet is on offer, and
    ``device`` is the one shown first. ``works`` are ``Work`` records; one with seconds is drawn where it was measured.
    The movable point starts at the last of them, or else at 1 FLOP/B.
    Raises LabkitError when no machine is left, or a device has neither a datasheet nor ceilings.
    Reference: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.

    Example:
        >>> roofline(["h100-sxm", "a100-sxm-80gb"], dtype="bfloat16")
        <Roofline explorer>
    """
    if devices is None:
        from mlsys_labkit import specs

        devices = list(specs.keys())
    asked = [device, *devices] if device is not None else list(devices)
    machines: list[State] = []
    for one in asked:
        machines += [machine for machine in _machines(one) if machine not in machines]
    if not machines:
        raise LabkitError("expected at least one device, got none; try roofline(['h100-sxm'])")
    _check_known("dtype", dtype, "peaks", machines)
    _check_known("level", level, "bandwidths", machines)
    chosen = next((i for i, machine in enumerate(machines) if device is None and machine["key"] == "h100-sxm"), 0)
    if devices and device is None and len(asked) <= 2:
        chosen = 0  # two machines named are two machines to compare, in the order given
    marked = [_work(work) for work in works if work.bytes_moved > 0 and work.flops > 0]
    return KIND.show(
        machines=machines,
        works=marked,
        first=chosen,
        second=1 if len(asked) <= 2 and len(machines) > 1 and chosen == 0 else -1,
        dtype=dtype,
        level=level,
        mode="free",
        flops=marked[-1]["flops"] if marked else 1e9,
        bytes=marked[-1]["bytes"] if marked else 1e9,
        m=1024,
        n=1024,
        k=1024,
    )


def _machines(one: Any) -> list[State]:
    if isinstance(one, str):
        from mlsys_labkit import specs

        one = specs.get(one)
    if hasattr(one, "ceilings"):
        return _from_ceilings(one)
    spec = getattr(one, "spec", one)
    if spec is None or not hasattr(spec, "peaks"):
        raise LabkitError(
            f"{one!r} has no datasheet; measure it and pass the result: roofline([lk.Roofline.measure()])"
        )
    peaks = {dtype: float(figure.value) for dtype, figure in spec.peaks.items() if dtype in model.ITEM_BYTES}
    levels = {level: float(figure.value) for level, figure in spec.bandwidths.items()}
    return [{"key": spec.key, "name": spec.name, "origin": "datasheet", "peaks": peaks, "bandwidths": levels}]


def _from_ceilings(roofline: Any) -> list[State]:
    name = str(getattr(roofline.device, "name", roofline.device))
    machines = []
    for origin in ("measured", "datasheet"):
        found = [ceiling for ceiling in roofline.ceilings if ceiling.origin == origin]
        peaks = {ceiling.dtype: float(ceiling.value) for ceiling in found if ceiling.kind == "compute"}
        levels = {ceiling.level: float(ceiling.value) for ceiling in found if ceiling.kind != "compute"}
        if peaks and levels:
            machines.append({"key": "", "name": name, "origin": origin, "peaks": peaks, "bandwidths": levels})
    return machines


def _work(work: Any) -> State:
    return {
        "name": work.name or "work",
        "flops": float(work.flops),
        "bytes": float(work.bytes_moved),
        "achieved": float(work.flops / work.seconds) if work.seconds else None,
    }


def _check_known(what: str, name: str, field: str, machines: Sequence[State]) -> None:
    known = sorted({key for machine in machines for key in machine[field]})
    if name not in known:
        raise LabkitError(f"{what} {name!r} is stated by none of these machines; choose one of {', '.join(known)}")


def _static(state: State) -> str:
    intensity = state["flops"] / state["bytes"]
    rows = []
    for machine in state["machines"]:
        peak, bandwidth = machine["peaks"].get(state["dtype"]), machine["bandwidths"].get(state["level"])
        if not peak or not bandwidth:
            continue
        limits = (intensity, peak, bandwidth)
        name, ridge = f"{machine['name']} ({machine['origin']})", f"{model.ridge(peak, bandwidth):.3g} FLOP/B"
        here = f"{model.bound(*limits)} bound, at most {si(model.attainable(*limits), 'FLOP/s')}"
        rows.append([name, si(peak, "FLOP/s"), si(bandwidth, "B/s"), ridge, here])
    title = f"{state['dtype']} over {state['level']}; work of {intensity:.3g} FLOP/B"
    head = ["machine", "peak", "bandwidth", "ridge", "this work"]
    return table(title, head, rows) + paragraph(NOT_MEASURED)


KIND = Kind("roofline", "Roofline explorer", _static)
