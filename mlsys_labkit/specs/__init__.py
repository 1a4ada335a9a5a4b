"""Datasheet figures of GPUs and CPUs, each with its source and condition (``hardware.toml``).

    spec = specs.get("h100-sxm")
    spec.peak("bfloat16")            # 989.4e12 FLOP/s: dense, FP32 accumulate
    spec.bandwidth()                 # 3.35e12 B/s
    specs.resolve("NVIDIA A10G")     # None: an unknown device is measured, never guessed

Reference: Williams, Waterman, Patterson, "Roofline" (CACM 2009), on what a ceiling may be.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from mlsys_labkit.errors import LabkitError

__all__ = ["DTYPES", "DeviceSpec", "Figure", "UnknownDeviceError", "UnknownDtypeError", "get", "keys", "resolve"]

DTYPES = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8")
"""Names of precisions everywhere in the kit. ``float8`` and ``float4`` stand for all encodings of that width."""

_SCALES = {"value": 1, "tera": 1e12, "giga": 1e9, "gib": 2**30, "mib": 2**20, "kib": 2**10}
_FACT_UNITS = {"sms": "SM", "clock": "Hz", "tdp": "W", "l2": "B", "l3": "B", "shared_per_sm": "B", "memory": "B"}


class UnknownDeviceError(LabkitError, KeyError):
    """The error for a key that no spec has."""

    __str__ = Exception.__str__  # KeyError would print the quotes of repr()


class UnknownDtypeError(LabkitError, KeyError):
    """The error for a dtype without a peak of the device; another precision is never used instead."""

    __str__ = Exception.__str__


@dataclass(frozen=True)
class Figure:
    """One number of a datasheet: ``value`` in SI ``unit``, with its source and the condition under which it holds.

    ``flop_per_clock`` is FLOP per clock and SM; ``clock_hz`` the clock it is rated at (None: the device's boost clock).
    ``secondary`` is empty for a primary source; otherwise it says why no primary source is named.
    """

    value: float
    unit: str
    source: str
    url: str
    date: str
    condition: str
    flop_per_clock: float | None = None
    clock_hz: float | None = None
    secondary: str = ""


@dataclass(frozen=True)
class DeviceSpec:
    """A device as its vendor describes it.

    ``peaks`` (FLOP/s, dense only) and ``bandwidths`` (B/s; "dram", "shared", "l3") make ceilings. ``sparse_peaks`` is
    kept for the record and never makes one. ``facts`` holds SMs, clock and sizes; the properties read it.
    ``document`` is where the vendor describes the device; each figure says where it was read, often a copy of that.
    """

    key: str
    name: str
    names: tuple[str, ...]
    vendor: str
    kind: str
    year: int
    document: str
    document_url: str
    compute_capability: str | None = None
    facts: Mapping[str, Figure] = field(default_factory=dict)
    peaks: Mapping[str, Figure] = field(default_factory=dict)
    sparse_peaks: Mapping[str, Figure] = field(default_factory=dict)
    bandwidths: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def sms(self) -> int:
        """Return the streaming multiprocessors; compute units on AMD, cores on a CPU."""
        return int(self.facts["sms"].value)

    @property
    def clock_hz(self) -> float:
        """Return the boost clock in Hz."""
        return self.facts["clock"].value

    @property
    def l2_bytes(self) -> int | None:
        """Return the bytes of L2 cache of the whole device, None when no figure is on record."""
        return self._bytes("l2")

    @property
    def l3_bytes(self) -> int | None:
        """Return the bytes of L3 or Infinity Cache of the whole device, None without one."""
        return self._bytes("l3")

    @property
    def shared_bytes_per_sm(self) -> int | None:
        """Return the largest shared memory (LDS) of an SM, None on a CPU."""
        return self._bytes("shared_per_sm")

    @property
    def memory_bytes(self) -> int | None:
        """Return the device memory in bytes, None for a CPU, whose memory is the machine's."""
        return self._bytes("memory")

    @property
    def tdp_watts(self) -> float | None:
        """Return the board or package power limit in W."""
        return self.facts["tdp"].value if "tdp" in self.facts else None

    def peak(self, dtype: str) -> float:
        """Return the dense peak in FLOP/s for ``dtype``.

        Example:
            >>> get("a100-sxm-80gb").peak("bfloat16") / 1e12
            312.0

        Raises:
            UnknownDtypeError: the device has no figure for this dtype.
        """
        if dtype not in self.peaks:
            have = ", ".join(self.peaks)
            raise UnknownDtypeError(f"{self.name} has no dense peak for {dtype!r}; it has {have}")
        return self.peaks[dtype].value

    def bandwidth(self, level: str = "dram") -> float:
        """Return the peak bandwidth in B/s of a memory level.

        Raises:
            LabkitError: no figure for this level.
        """
        if level not in self.bandwidths:
            raise LabkitError(f"{self.name} has no bandwidth for {level!r}; it has {', '.join(self.bandwidths)}")
        return self.bandwidths[level].value

    def _bytes(self, fact: str) -> int | None:
        return int(self.facts[fact].value) if fact in self.facts else None


def keys() -> tuple[str, ...]:
    """Return all spec keys, in the order of ``hardware.toml``.

    Example:
        >>> [key for key in keys() if key.startswith("h")]
        ['h100-sxm', 'h100-pcie', 'h200']
    """
    return tuple(_table())


def get(key: str) -> DeviceSpec:
    """Return the spec with this key.

    Example:
        >>> get("t4").sms
        40

    Raises:
        UnknownDeviceError: no such key; the message lists near matches.
    """
    table = _table()
    if key not in table:
        raise UnknownDeviceError(f"no device spec {key!r}; {_nearby(key)}")
    return table[key]


def resolve(device_name: str) -> str | None:
    """Return the spec key of a name that torch, nvidia-smi or /proc/cpuinfo print; None for an unknown device.

    Names match whole, but for case and spacing: a prefix match would take an A10G for an A10, a laptop chip for a
    desktop chip and a MIG slice for a whole GPU.

    Example:
        >>> resolve("NVIDIA H100 80GB HBM3"), resolve("NVIDIA A100-SXM4-80GB MIG 1g.10gb")
        ('h100-sxm', None)
    """
    return _names().get(_normal(device_name))


def _nearby(key: str) -> str:
    wanted = key.strip().lower()
    close = [known for known in keys() if wanted and (wanted in known or known in wanted)]
    close = close or difflib.get_close_matches(wanted, keys(), n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"known keys: {', '.join(keys())}"


def _normal(name: str) -> str:
    return re.sub(r"\s+", " ", name).strip().casefold()


@cache
def _names() -> dict[str, str]:
    return {_normal(name): spec.key for spec in _table().values() for name in spec.names}


@cache
def _table() -> dict[str, DeviceSpec]:
    raw = tomllib.loads(files(__package__).joinpath("hardware.toml").read_text(encoding="utf-8"))
    return {key: _spec(key, _inherited(entry, raw["devices"]), raw["sources"]) for key, entry in raw["devices"].items()}


def _inherited(entry: dict[str, Any], devices: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the rows of the entry named by ``like`` filled in where it has none of its own."""
    if "like" not in entry:
        return entry
    base = _inherited(devices[entry["like"]], devices)
    return {
        key: {**base.get(key, {}), **entry.get(key, {})}
        if isinstance(base.get(key), dict)
        else entry.get(key, base.get(key))
        for key in base.keys() | entry.keys()
        if key != "like"
    }


def _spec(key: str, entry: dict[str, Any], sources: dict[str, Any]) -> DeviceSpec:
    def figures(section: str, unit: str | None) -> Mapping[str, Figure]:
        rows = entry.get(section, {})
        return MappingProxyType(
            {name: _figure(row, unit or _FACT_UNITS[name], entry, sources) for name, row in rows.items()}
        )

    return DeviceSpec(
        key=key,
        name=entry["name"],
        names=tuple(entry["names"]),
        vendor=entry["vendor"],
        kind=entry["kind"],
        year=entry["year"],
        document=entry["document"]["title"],
        document_url=entry["document"]["url"],
        compute_capability=entry.get("compute_capability"),
        facts=figures("facts", None),
        peaks=figures("peaks", "FLOP/s"),
        sparse_peaks=figures("sparse_peaks", "FLOP/s"),
        bandwidths=figures("bandwidths", "B/s"),
    )


def _figure(row: dict[str, Any], unit: str, entry: dict[str, Any], sources: dict[str, Any]) -> Figure:
    source = sources[row.get("source", entry["source"])]
    (scale,) = _SCALES.keys() & row.keys()  # exactly one number per row
    return Figure(
        value=row[scale] * _SCALES[scale],
        unit=unit,
        source=source["title"],
        url=source["url"],
        date=source["date"],
        condition=row.get("condition", entry["condition"]),
        flop_per_clock=row.get("per_clock"),
        clock_hz=row["clock"] * 1e9 if "clock" in row else None,
        secondary=source.get("secondary", ""),
    )
