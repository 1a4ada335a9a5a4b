"""Counters of a launch: requests, sectors, wavefronts and FLOPs, in total and per source line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.work import Work

Space = Literal["global", "shared", "local", "constant"]
Op = Literal["load", "store", "atomic"]
SECTOR_BYTES = 32
# In the order of native/runtime/records.h.
COUNTS = ("requests", "lanes", "sectors", "wavefronts", "ideal_sectors", "ideal_wavefronts")


@dataclass(frozen=True)
class LineCount:
    """One kind of access on one source line, added up over all warps.

    A line without accesses has one entry too, with ``space`` and ``op`` empty, so that ``executed`` is known of it.

    Attributes:
        line: from 1; 0 for code that is not the student's.
        function: as the source calls it, such as "matmul<16>".
        space: "global", "shared", "local" (a local array with an index known only at run time) or "constant" (a
            ``__constant__`` variable); op: "load", "store" or "atomic"; bytes_per_lane: 1, 2, 4, 8 or 16.
        requests: warp-wide memory instructions. lanes: active lanes, summed over requests.
        sectors: distinct 32-byte sectors of global or local memory; ideal_sectors: as many as the distinct bytes would
            fill.
        wavefronts: passes over the banks of shared memory; ideal_wavefronts: one for each group of lanes that is
            served together. Of a global atomic: the most lanes on one address. Of constant memory: distinct addresses,
            which its cache serves one after the other.
        worst: most sectors (global, local) or wavefronts (shared, constant) in one request.
        executed: lanes that passed the line, summed over the basic block of it that ran most.
        file: the header that ``line`` is in, where no line of the source is known to lead there, as for a kernel that a
            header defines; else empty. What an inlined helper of a header accesses counts on the line that calls it.
    """

    line: int
    function: str
    space: str
    op: str
    bytes_per_lane: int
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    ideal_sectors: int
    ideal_wavefronts: int
    worst: int
    executed: int
    file: str = ""


@dataclass(frozen=True)
class RequestSample:
    """One request as it happened: where each lane of the warp went.

    Attributes:
        block: index (x, y, z); warp: number in the block.
        lanes: 32 byte offsets from the start of ``array``, None where the lane was inactive.
        array: the argument or ``__shared__`` array; empty where it is not known.
    """

    line: int
    space: str
    op: str
    bytes_per_lane: int
    block: tuple[int, int, int]
    warp: int
    lanes: tuple[int | None, ...]
    array: str


@dataclass(frozen=True)
class Counters:
    """Counters of one launch; ``Profile`` adds how they are shown and documents every field."""

    kernel: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    lines: tuple[LineCount, ...]
    samples: tuple[RequestSample, ...] = ()
    barriers: int = 0
    warp_barriers: int = 0
    bulk_copies: int = 0
    bulk_bytes_in_flight: int = 0
    steps: int = 0
    active_lanes: int = 0
    blocks_run: int = 0
    blocks_total: int = 0
    flops: int = 0
    instructions: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    gpu: str = ""
    gpu_seconds: float | None = None

    label = "source-level model"

    def total(self, space: str, op: str | None, name: str) -> int:
        """Return a count summed over all lines; ``op`` None for loads, stores and atomics together.

        Raises LabkitError for a ``name`` that is no count of LineCount.

        Example:
            >>> line = LineCount(3, "add", "global", "load", 4, 2, 64, 8, 0, 8, 0, 4, 64)
            >>> Counters("add", "", (2, 1, 1), (32, 1, 1), 0, (line,)).total("global", "load", "sectors")
            8
        """
        if name not in COUNTS:
            raise LabkitError(f"there is no count {name!r}; expected one of {', '.join(COUNTS)}")
        return sum(getattr(each, name) for each in self.lines if each.space == space and op in (None, each.op))

    def line(self, number: int) -> tuple[LineCount, ...]:
        """Return the counts of one source line: an entry for each kind of access."""
        return tuple(each for each in self.lines if each.line == number and each.requests and not each.file)

    @property
    def global_load_requests(self) -> int:
        """Warp-wide loads from global memory."""
        return self.total("global", "load", "requests")

    @property
    def global_load_sectors(self) -> int:
        """32-byte sectors that loads from global memory asked for."""
        return self.total("global", "load", "sectors")

    @property
    def sectors_per_load_request(self) -> float:
        """4 for a warp that reads 32 neighbouring floats, 32 for one that reads a column; 0 without loads."""
        return _ratio(self.global_load_sectors, self.global_load_requests)

    @property
    def global_store_requests(self) -> int:
        """Warp-wide stores to global memory."""
        return self.total("global", "store", "requests")

    @property
    def global_store_sectors(self) -> int:
        """32-byte sectors that stores to global memory touched."""
        return self.total("global", "store", "sectors")

    @property
    def sectors_per_store_request(self) -> float:
        """As ``sectors_per_load_request``, of stores."""
        return _ratio(self.global_store_sectors, self.global_store_requests)

    @property
    def global_atomic_requests(self) -> int:
        """Warp-wide atomics on global memory."""
        return self.total("global", "atomic", "requests")

    @property
    def global_atomic_sectors(self) -> int:
        """32-byte sectors that atomics on global memory touched."""
        return self.total("global", "atomic", "sectors")

    @property
    def sectors_per_atomic_request(self) -> float:
        """As ``sectors_per_load_request``, of atomics."""
        return _ratio(self.global_atomic_sectors, self.global_atomic_requests)

    @property
    def shared_load_requests(self) -> int:
        """Warp-wide loads from shared memory."""
        return self.total("shared", "load", "requests")

    @property
    def shared_load_wavefronts(self) -> int:
        """Passes over the banks that loads from shared memory took."""
        return self.total("shared", "load", "wavefronts")

    @property
    def shared_store_requests(self) -> int:
        """Warp-wide stores to shared memory."""
        return self.total("shared", "store", "requests")

    @property
    def shared_store_wavefronts(self) -> int:
        """Passes over the banks that stores to shared memory took."""
        return self.total("shared", "store", "wavefronts")

    @property
    def local_load_requests(self) -> int:
        """Warp-wide loads from local arrays whose index is known only at run time: registers have no addresses."""
        return self.total("local", "load", "requests")

    @property
    def local_load_sectors(self) -> int:
        """32-byte sectors of local memory that loads asked for: 4 if all lanes use the same index, else up to 32."""
        return self.total("local", "load", "sectors")

    @property
    def local_store_requests(self) -> int:
        """As ``local_load_requests``, of stores."""
        return self.total("local", "store", "requests")

    @property
    def local_store_sectors(self) -> int:
        """As ``local_load_sectors``, of stores."""
        return self.total("local", "store", "sectors")

    @property
    def constant_load_requests(self) -> int:
        """Warp-wide loads from ``__constant__`` variables."""
        return self.total("constant", "load", "requests")

    @property
    def constant_load_wavefronts(self) -> int:
        """Passes over the constant cache: one for each distinct address of a request."""
        return self.total("constant", "load", "wavefronts")

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond the least that its requests need."""
        return self.total("shared", None, "wavefronts") - self.total("shared", None, "ideal_wavefronts")

    @property
    def worst_bank_conflict(self) -> int:
        """Most wavefronts that one group of lanes needed: 1 without conflicts, at worst 32; 0 without shared memory."""
        return max((each.worst for each in self.lines if each.space == "shared"), default=0)

    @property
    def simt_efficiency(self) -> float:
        """Active lanes of the 32, averaged over the basic blocks that warps executed: 1 without divergence."""
        return _ratio(self.active_lanes, 32 * self.steps)

    @property
    def sampled(self) -> bool:
        """True where only a part of the grid's blocks was run."""
        return self.blocks_run < self.blocks_total

    @property
    def work(self) -> Work:
        """FLOPs, and the bytes of the sectors that were asked for: what the load-store units move, caches or not.

        A sampled profile is scaled to the whole grid, and says so: how is "model".
        """
        scale = self.blocks_total / self.blocks_run if self.sampled and self.blocks_run else 1
        atomics = self.global_atomic_sectors
        kinds = {"float32": "float32", "float64": "float64", "float16": "float16", "tensor": "float16"}
        dtype = kinds[max(kinds, key=lambda kind: self.instructions.get(kind, 0))]
        return Work(
            flops=scale * self.flops,
            bytes_read=scale * SECTOR_BYTES * (self.global_load_sectors + atomics),
            bytes_written=scale * SECTOR_BYTES * (self.global_store_sectors + atomics),
            dtype=dtype,
            name=f"{self.kernel} ({self.label}, no caches)",
            how=dict.fromkeys(("flops", "bytes_read", "bytes_written"), "model" if self.sampled else "simulated"),
        )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
