"""Occupancy: the blocks of a kernel that fit on one streaming multiprocessor (SM), and the resource that binds."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from mlsys_labkit.cuda.errors import CudaError, CudaLaunchError

WARP_THREADS = 32


@dataclass(frozen=True)
class SmLimits:
    """The resources of one SM of an architecture, and their units of allocation (``limits.toml`` names the sources).

    Attributes:
        register_unit: the registers of a warp are rounded up to it.
        warp_unit: parts of the register file, each of which holds whole warps: resident warps come in multiples of it.
        shared_per_block: what a kernel may opt in to, bytes; without opting in it is 48 KiB.
        shared_unit: shared memory of a block is rounded up to it, bytes.
        shared_reserved: what the driver takes of every block's shared memory, bytes.
        barriers_per_sm: hardware barriers of the resident blocks together; 0 where they are no limit.
    """

    name: str
    warps_per_sm: int
    blocks_per_sm: int
    threads_per_block: int
    registers_per_sm: int
    registers_per_block: int
    registers_per_thread: int
    register_unit: int
    warp_unit: int
    shared_per_sm: int
    shared_per_block: int
    shared_unit: int
    shared_reserved: int
    barriers_per_sm: int = 0


@dataclass(frozen=True)
class Occupancy:
    """The resident blocks and warps of one SM.

    Attributes:
        arch: such as ``"sm_90"``.
        blocks_per_sm: blocks that are resident at a time; 0 when such a block cannot be launched at all.
        warps: warps that are resident at a time. warps_per_sm: the most that any kernel gets.
        blocks_allowed: blocks that each resource alone would allow, of those that limit at all: "warps", "blocks",
            "registers", "shared memory", "barriers".
    """

    arch: str
    blocks_per_sm: int
    warps: int
    warps_per_sm: int
    blocks_allowed: Mapping[str, int]

    @property
    def limits(self) -> tuple[str, ...]:
        """Every resource that allows no further block."""
        return tuple(name for name, blocks in self.blocks_allowed.items() if blocks == self.blocks_per_sm)

    @property
    def limit(self) -> str:
        """The resource that allows no further block; the first of ``limits`` when there are several."""
        return self.limits[0]

    @property
    def fraction(self) -> float:
        """Resident warps over the most possible, 0 to 1."""
        return self.warps / self.warps_per_sm

    def __str__(self) -> str:
        names = " and ".join(self.limits)
        allow = "allow" if len(self.limits) > 1 or names.endswith("s") else "allows"
        if not self.blocks_per_sm:
            return f"no block fits on an SM of {self.arch}: {names} {allow} none"
        blocks = "1 block" if self.blocks_per_sm == 1 else f"{self.blocks_per_sm} blocks"
        share = f"{self.warps} of {self.warps_per_sm} warps ({self.fraction:.0%})"
        return f"{blocks}, {share.replace('%', ' %')} an SM on {self.arch}: {names} {allow} no more"


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int = 0, *, barriers: int = 1) -> Occupancy:
    """Return resident blocks and warps of a kernel on one SM of ``arch``, and the resource that binds.

    Args:
        arch: "sm_70" to "sm_121"; "sm_90a" is taken as "sm_90".
        threads: threads per block.
        registers: 32-bit registers per thread.
        shared_bytes: shared memory per block, static and dynamic, without what the driver reserves.
        barriers: barriers per block, 1 for a kernel that has ``__syncthreads()`` alone.

    Raises:
        CudaError: an architecture that is not on record.
        CudaLaunchError: fewer than one thread, or a negative amount.

    Example:
        >>> print(occupancy("sm_90", 1024, registers=40))
        1 block, 32 of 64 warps (50 %) an SM on sm_90: registers allow no more

    Reference: NVIDIA, CUDA Occupancy Calculator (``cuda_occupancy.h``), whose answers these are.
    """
    limits = limits_of(arch)
    if threads < 1 or min(registers, shared_bytes, barriers) < 0:
        raise CudaLaunchError(
            f"a block of {threads} threads, {registers} registers a thread, {shared_bytes} bytes of shared memory and "
            f"{barriers} barriers; expected at least 1 thread, and no negative amount"
        )
    warps = math.ceil(threads / WARP_THREADS)
    allowed = {
        "warps": limits.warps_per_sm // warps if threads <= limits.threads_per_block else 0,
        "blocks": limits.blocks_per_sm,
    }
    if registers:
        allowed["registers"] = _by_registers(limits, warps, registers)
    shared = _round_up(shared_bytes + limits.shared_reserved, limits.shared_unit)
    if shared:
        fits = shared <= limits.shared_per_block + limits.shared_reserved
        allowed["shared memory"] = limits.shared_per_sm // shared if fits else 0
    if barriers and limits.barriers_per_sm:
        allowed["barriers"] = limits.barriers_per_sm // barriers
    blocks = min(allowed.values())
    return Occupancy(_plain(arch), blocks, blocks * warps, limits.warps_per_sm, allowed)


def limits_of(arch: str) -> SmLimits:
    """Return the limits of an architecture, by its name with or without the suffix of its special features.

    Example:
        >>> limits_of("sm_90a").shared_per_block // 1024
        227

    Raises:
        CudaError: it is not on record; the message lists those that are.
    """
    if _plain(arch) not in LIMITS:
        raise CudaError(f"no architecture {arch!r} on record; expected one of {', '.join(LIMITS)}")
    return LIMITS[_plain(arch)]


def _by_registers(limits: SmLimits, warps: int, registers: int) -> int:
    if registers > limits.registers_per_thread:
        return 0
    # The registers of a warp are in one partition of the register file, so each partition holds whole warps.
    per_warp = _round_up(registers * WARP_THREADS, limits.register_unit)
    return limits.registers_per_sm // limits.warp_unit // per_warp * limits.warp_unit // warps


def _round_up(amount: int, unit: int) -> int:
    return math.ceil(amount / unit) * unit


def _plain(arch: str) -> str:
    return re.sub(r"(?<=\d)[af]$", "", arch)


def _load() -> Mapping[str, SmLimits]:
    table = tomllib.loads(files(__package__).joinpath("limits.toml").read_text(encoding="utf-8"))
    common = {name: value for name, value in table["common"].items() if name != "source"}
    return MappingProxyType({arch: _limits(common | row) for arch, row in table["architectures"].items()})


def _limits(row: dict[str, int | str | list[str]]) -> SmLimits:
    def number(name: str) -> int:
        return int(str(row.get(name, 0)))

    plain = {name: number(name) for name in SmLimits.__dataclass_fields__ if name in row and name != "name"}
    shared = {name: 1024 * number(name.replace("_per", "_kib_per")) for name in ("shared_per_sm", "shared_per_block")}
    return SmLimits(name=str(row["name"]), **plain, **shared)


LIMITS: Mapping[str, SmLimits] = _load()
"""Every architecture on record, oldest first: ``LIMITS["sm_90"].warps_per_sm``."""
