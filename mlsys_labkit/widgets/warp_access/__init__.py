"""Warp access map: the sectors of global memory or banks of shared memory that the lanes of a warp touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlsys_labkit._base.units import plain
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.warp_access import model

if TYPE_CHECKING:
    from mlsys_labkit.cuda.profile import Profile

SIZES = (1, 2, 4, 8, 16)
SPACES = ("global", "shared")
MOST_SAMPLES = 256
LARGEST_STRIDE, LAST_REQUEST = 64, 31
RECORDED = "recorded"
# key -> (label, index of an element for each lane in request i, bytes per element, space, k)
PRESETS: dict[str, tuple[str, str, int, str, int]] = {
    "coalesced": ("coalesced", "lane + 32 * i", 4, "global", 1),
    "shifted": ("coalesced, shifted by k", "lane + k", 4, "global", 1),
    "strided": ("strided by k", "lane * k", 4, "global", 2),
    "aos": ("one field of an array of structs of k floats", "lane * k + i", 4, "global", 4),
    "float4": ("float4", "lane + 32 * i", 16, "global", 1),
    "broadcast": ("broadcast", "i", 4, "global", 1),
    "row": ("row of a 32 x 32 tile", "i * 32 + lane", 4, "shared", 1),
    "column": ("column of a 32 x 32 tile", "lane * 32 + i", 4, "shared", 1),
    "padded": ("column of a padded 32 x 33 tile", "lane * 33 + i", 4, "shared", 1),
    "swizzled": ("column of a swizzled 32 x 32 tile", "lane * 32 + (lane ^ i)", 4, "shared", 1),
}


def warp_access(
    profile: Profile | None = None,
    line: int | None = None,
    *,
    pattern: str = "",
    formula: str = "",
    k: int | None = None,
    bytes_per_lane: int | None = None,
    space: str = "",
) -> Any:
    """Step through a warp's requests: 32 lanes over 32-byte sectors (global) or over 32 banks (shared).

    With a ``profile``, the requests it recorded, those of ``line`` first. Always, patterns to compare with: ``pattern``
    is one of ``PRESETS`` ("coalesced", "strided", "column", ...), ``formula`` any C expression over ``lane``, ``i``
    (the number of the request) and ``k`` that gives the element each lane touches, ``bytes_per_lane`` its size.
    Raises LabkitError for anything but a profile, a line without recorded requests, or a value outside these bounds.
    Reference: NVIDIA, "CUDA C++ Programming Guide", sections on device memory accesses and shared memory.

    Example:
        >>> warp_access(pattern="strided", k=8)
        <Warp access map>
        >>> warp_access(formula="(lane % 16) * 33 + lane / 16", space="shared")
        <Warp access map>
    """
    sites, samples, site = _recorded(profile, line)
    pattern = pattern or (RECORDED if sites and not formula else "coalesced")
    if pattern not in PRESETS and not (pattern == RECORDED and sites):
        known = ", ".join([*([RECORDED] if sites else []), *PRESETS])
        raise LabkitError(f"pattern {pattern!r} is not known; choose one of {known}, or pass a formula")
    _, text, size, where, stride = PRESETS.get(pattern, PRESETS["coalesced"])
    text, where = formula or text, space or where
    size = size if bytes_per_lane is None else bytes_per_lane
    stride = stride if k is None else int(k)
    if size not in SIZES or where not in SPACES or not 0 <= stride <= LARGEST_STRIDE:
        raise LabkitError(
            f"expected bytes_per_lane in {SIZES}, space in {SPACES} and k from 0 to {LARGEST_STRIDE}, "
            f"got {size}, {where!r} and {stride}"
        )
    try:
        model.places(text, {"i": 0, "k": stride})
    except ValueError as error:
        raise LabkitError(f"formula {text!r}: {error}; write a C expression such as lane * k + i") from None
    return KIND.show(
        presets=[[key, *values] for key, values in PRESETS.items()],
        sites=sites,
        samples=samples,
        pattern=pattern,
        formula=text,
        size=size,
        space=where,
        k=stride,
        site=site,
        request=0,
        lane=0,
    )


def _recorded(profile: Any, line: int | None) -> tuple[list[State], list[list[Any]], int]:
    """Return a profile's sites, its samples ``[site, block and warp in words, lanes]``, and the site of ``line``."""
    if profile is None:
        if line is not None:
            raise LabkitError(f"line {line} of which kernel? pass the profile too: warp_access(profile, line={line})")
        return [], [], 0
    from mlsys_labkit.cuda.profile import Profile

    if not isinstance(profile, Profile):
        raise LabkitError(
            f"expected what kernel.profile[grid, block](...) returns, got {type(profile).__name__}; pass the profile"
        )
    kept = sorted(profile.samples, key=lambda sample: sample.line)
    if not kept:
        raise LabkitError("this profile recorded no request; profile a kernel that reads or writes memory")
    sites: dict[tuple[int, str, str, int, str], int] = {}
    samples = []
    for sample in kept:
        key = (sample.line, sample.space, sample.op, sample.bytes_per_lane, sample.array)
        site = sites.setdefault(key, len(sites))
        samples.append([site, f"block {sample.block}, warp {sample.warp}", list(sample.lanes)])
    lines = sorted({key[0] for key in sites})
    if line is not None and line not in lines:
        raise LabkitError(f"no request was recorded on line {line}; lines with requests: {', '.join(map(str, lines))}")
    first = next(site for key, site in sites.items() if line in (None, key[0]))
    fields = ("line", "space", "op", "size", "array")
    # Samples of the chosen line come first, so that they are kept when the number is limited.
    ordered = sorted(samples, key=lambda sample: sample[0] != first)
    return [dict(zip(fields, key, strict=True)) for key in sites], ordered[:MOST_SAMPLES], first


def _request(state: State) -> tuple[str, list[int | None], int, str, str]:
    """Return the name, lanes, bytes per lane, space and operation of the request that is shown."""
    if state["pattern"] == RECORDED:
        site = state["sites"][state["site"]]
        mine = [sample for sample in state["samples"] if sample[0] == state["site"]]
        _, where, lanes = mine[min(state["request"], len(mine) - 1)]
        name = f"Line {site['line']}, {site['op']} of {site['array'] or 'memory'}, {where}"
        return name, lanes, site["size"], site["space"], site["op"]
    spots = model.places(state["formula"], {"i": state["request"], "k": state["k"]})
    name = f"Element {state['formula']} of each lane (i = {state['request']}, k = {state['k']})"
    return name, [spot * state["size"] for spot in spots], state["size"], state["space"], "load"


def _static(state: State) -> str:
    name, lanes, size, space, op = _request(state)
    if space == "global":
        found = model.sectors(lanes, size)
        facts = (
            f"{len(found)} sectors of 32 B, at best {model.ideal_sectors(lanes, size)}: "
            f"{plain(100 * model.efficiency(lanes, size))} % of the bytes fetched were asked for."
        )
    else:
        waves = model.wavefronts(lanes, size, op == "atomic", op == "load")
        facts = f"{sum(waves)} wavefronts, at best {sum(wave > 0 for wave in waves)}."
    rows = [
        [f"lane {lane}", at, at // model.SECTOR_BYTES, at // model.WORD_BYTES % model.BANKS]
        if at is not None
        else [f"lane {lane}", "inactive", "", ""]
        for lane, at in enumerate(lanes)
    ]
    head = ["lane", "byte offset", "sector", "bank"]
    return paragraph(f"{name}, {size} B a lane: {facts}") + table("Where each lane points", head, rows)


KIND = Kind("warp_access", "Warp access map", _static)
