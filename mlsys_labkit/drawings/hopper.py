"""Drawings of what fast kernels on Hopper rely on: the 128-byte swizzle, roles of warps, and the mbarrier."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role
from mlsys_labkit.ranks.simulation.clock import simulate
from mlsys_labkit.ranks.simulation.programs import Compute, Isend, Operation, Recv
from mlsys_labkit.ranks.trace.events import RunTrace


def swizzle_128(address: int) -> int:
    """Return where the byte at ``address`` of a tile with rows of 128 bytes lies: its chunk is XORed with its row.

    Example:
        >>> [swizzle_128(128 * row + 32) % 128 // 16 for row in range(8)]
        [2, 3, 0, 1, 6, 7, 4, 5]

    Reference: NVIDIA, "CUDA Driver API", CU_TENSOR_MAP_SWIZZLE_128B; "PTX ISA", Swizzling modes.
    """
    return address ^ (address >> 7 & 7) << 4


def swizzle() -> Drawing:
    """Return where eight rows of eight chunks of 16 bytes lie, without and with the 128-byte swizzle.

    Source: NVIDIA, "Parallel Thread Execution ISA", Swizzling modes.
    """
    rows, chunks, shown, cell = 8, 8, 2, 29.0
    parts: list[Part] = []
    for left, name in ((64.0, "chunk c at place c"), (376.0, "chunk c at place c XOR row")):
        where = swizzle_128 if "XOR" in name else int
        hit = [where(128 * at + 16 * shown) % 128 // 16 for at in range(rows)]
        parts.append(Label(left + cell * chunks / 2, 18, name, bold=True))
        parts += [Label(left + cell * place + cell / 2 - 1, 42, str(place)) for place in range(chunks)]
        for at in range(rows):
            for chunk in range(chunks):
                place = where(128 * at + 16 * chunk) % 128 // 16
                role: Role = "memory" if chunk == shown else "plain"
                parts.append(Box(left + cell * place, 50 + cell * at, cell - 3, cell - 3, str(chunk), role))
        passes = max(map(hit.count, hit))
        said = f"chunk {shown} of 8 rows: {passes} pass{'es' if passes > 1 else ''}"
        parts.append(Label(left + cell * chunks / 2, 306, said))
    parts += [Label(12, 68 + cell * at, f"row {at}", "start") for at in range(rows)]
    row_bits, chunk_bits = (
        Box(82, 330, 150, 34, "bits 9 to 7: row", "control"),
        Box(280, 330, 170, 34, "bits 6 to 4: chunk", "memory"),
    )
    parts += [
        row_bits,
        chunk_bits,
        Box(456, 330, 160, 34, "bits 3 to 0: byte"),
        Label(12, 42, "place", "start"),
        Label(12, 352, "address", "start"),
        Label(255, 340, "XOR"),
        Arrow([row_bits.right, chunk_bits.left], "control"),
    ]
    return Drawing(
        "The 128-byte swizzle",
        "Two layouts of eight rows with eight chunks of 16 bytes. Without a swizzle chunk 2 of every row "
        "lies at place 2, so that all eight lie in the same four banks. With it, chunk c of row r lies at "
        "place c XOR r, and chunk 2 of the eight rows lies at places "
        f"{', '.join(str(swizzle_128(128 * at + 32) % 128 // 16) for at in range(rows))}. In the address, "
        "bits 7 to 9 are XORed into bits 4 to 6.",
        "A place is four banks of 4 bytes. With the swizzle each row and each column has every chunk "
        "once, without padding.",
        376,
        parts,
    )


class WarpPlan(NamedTuple):
    """Times of a product whose warps have roles, in units: one copy, one step of the product, one epilogue."""

    stages: int = 3
    steps: int = 4  # of the depth, for each tile
    tiles: int = 3
    copy: int = 3
    product: int = 5
    epilogue: int = 12

    def trace(self) -> RunTrace:
        """Run the producer (rank 0) and two consumers that take turns (ranks 1 and 2).

        Messages are arrivals: "full" from the producer, "empty" from a consumer, and the turn between the consumers.
        """
        producer: list[Operation] = []
        consumers: tuple[list[Operation], list[Operation]] = [], []
        total = self.tiles * self.steps
        for k in range(total):
            tile, step = divmod(k, self.steps)
            mine, me = consumers[tile % 2], 1 + tile % 2
            if k >= self.stages:
                producer.append(Recv(1 + (k - self.stages) // self.steps % 2))
            producer += [Compute(f"copy {k}", self.copy), Isend(me, 0)]
            if step == 0 and tile:
                mine.append(Recv(3 - me))
            mine += [Recv(0), Compute(f"product {k}", self.product)]
            if k < total - self.stages:
                mine.append(Isend(0, 0))
            if step == self.steps - 1:
                mine += [Isend(3 - me, 0)] if tile < self.tiles - 1 else []
                mine.append(Compute(f"epilogue {tile}", self.epilogue))
        return simulate([producer, *consumers])


def warp_roles() -> Drawing:
    """Return a producer and two consumers over time, with the barriers between them.

    Source: NVIDIA, CUTLASS, "Efficient GEMM in CUDA", Warp Specialization, and its ping-pong kernel.
    """
    plan = WarpPlan()
    trace = plan.trace()
    left, top, pitch, high = 104.0, 12.0, 74.0, 34.0
    unit = (632 - left) / float(trace.seconds or 1)
    roles: dict[str, Role] = {"copy": "memory", "product": "compute", "epilogue": "control"}
    parts: list[Part] = []
    boxes: dict[str, Box] = {}
    groups = ((1, "consumer 0", "multiplies"), (0, "producer", "starts copies"), (2, "consumer 1", "multiplies"))
    for at, (rank, name, below) in enumerate(groups):
        y, free = top + pitch * at, 0.0
        parts += [Label(8, y + 14, name, "start", bold=True), Label(8, y + 31, below, "start")]
        for event in trace.of(rank, "compute"):
            kind, number = event.name.split()
            start, end = float(event.start_seconds or 0), float(event.end_seconds or 0)
            text = "epilogue" if kind == "epilogue" else str(int(number) % plan.stages)
            boxes[event.name] = Box(left + unit * start, y, unit * (end - start) - 1.5, high, text, roles[kind])
            if start > free:
                parts.append(Box(left + unit * free, y, unit * (start - free) - 1.5, high, "", "absent"))
            free = end
    parts += boxes.values()
    for k in range(plan.tiles * plan.steps):
        copy, product = boxes[f"copy {k}"], boxes[f"product {k}"]
        above = product.y < copy.y
        near, far = (copy.top[1], product.bottom[1]) if above else (copy.bottom[1], product.top[1])
        parts.append(Arrow([(copy.x + copy.width, near), (product.x + 4, far)], "link"))
        if later := boxes.get(f"copy {k + plan.stages}"):
            parts.append(Arrow([(product.x + product.width, far), (later.x + 4, near)], "control", dashed=True))
    end = top + pitch * 3 - 14
    said = (
        "numbers: the stage of shared memory. orange: copy. blue: product. dashed boxes: wait",
        "green arrows: barrier full, the copy has landed. dashed arrows: barrier empty, may overwrite",
        "the product of one consumer runs during the epilogue of the other one",
    )
    parts += [Label(8, end + 20 * at, line, "start") for at, line in enumerate(said)]
    return Drawing(
        "Roles of warps in a product",
        "A producer copies tiles into three stages of shared memory and waits when all are in use. "
        "Consumer 0 multiplies the four steps of a tile, then stores its results in an epilogue. During "
        "that epilogue consumer 1 multiplies the next tile, and they take turns. A full barrier leads "
        "from each copy to its product, an empty barrier from each product to the copy that takes its "
        "stage.",
        "Times are an example. From the first full stage to the last product the tensor cores always work.",
        end + 52,
        parts,
    )


class Mbarrier(NamedTuple):
    """The fields of an mbarrier: ``arrivals`` and ``transactions`` (bytes) that its phase waits for, and its parity.

    Each phase begins with ``expected`` arrivals.

    Reference: NVIDIA, "Parallel Thread Execution ISA", Parallel Synchronization and Communication: mbarrier.
    """

    expected: int
    arrivals: int
    transactions: int = 0
    parity: int = 0

    def arrive_expect(self, size: int) -> Mbarrier:
        """Return it after one arrival that expects ``size`` bytes."""
        return self._replace(arrivals=self.arrivals - 1, transactions=self.transactions + size)._next()

    def landed(self, size: int) -> Mbarrier:
        """Return it after ``size`` bytes have been written."""
        return self._replace(transactions=self.transactions - size)._next()

    def passes(self, parity: int) -> bool:
        """Tell whether a wait for the phase of this parity returns."""
        return self.parity != parity

    def _next(self) -> Mbarrier:
        if self.arrivals or self.transactions:
            return self
        return self._replace(arrivals=self.expected, parity=1 - self.parity)


def mbarrier_phases() -> Drawing:
    """Return two phases of an mbarrier that waits for two arrivals and for the bytes that each expects.

    Source: NVIDIA, "Parallel Thread Execution ISA", Phase of the mbarrier object; Tracking asynchronous operations.
    """
    size, kib = 16 * 1024, 1024
    events = (
        ("A arrives, expects 16 KiB", True),
        ("16 KiB of A land", False),
        ("B arrives, expects 16 KiB", True),
        ("16 KiB of B land: next phase", False),
        ("A arrives, expects 16 KiB", True),
        ("B arrives, expects 16 KiB", True),
        ("16 KiB land", False),
        ("16 KiB land: next phase", False),
    )
    states = [Mbarrier(2, 2)]
    for _, arrives in events:
        states.append(states[-1].arrive_expect(size) if arrives else states[-1].landed(size))
    left, wide, high, low = 140.0, 55.0, 26.0, 184.0
    rows: tuple[tuple[str, Callable[[Mbarrier], tuple[str, Role]]], ...] = (
        ("arrivals missing", lambda now: (str(now.arrivals), "control" if now.arrivals else "plain")),
        ("KiB missing", lambda now: (str(now.transactions // kib), "memory" if now.transactions else "plain")),
        ("parity of the phase", lambda now: (str(now.parity), "compute" if now.parity else "plain")),
        ("wait for parity 0", lambda now: ("passes", "link") if now.passes(0) else ("waits", "absent")),
        ("wait for parity 1", lambda now: ("passes", "link") if now.passes(1) else ("waits", "absent")),
    )
    parts: list[Part] = []
    for row, (name, cell) in enumerate(rows):
        y, first = 34 + 30.0 * row, 0
        parts.append(Label(8, y + 17, name, "start"))
        for (text, role), run in groupby(map(cell, states)):
            count = len(list(run))
            parts.append(Box(left + wide * first, y, wide * count - 3, high, text, role))
            first += count
    for at, (said, _) in enumerate(events):
        x = left + wide * (at + 1) - 1.5
        parts += [Label(x, 20, str(at + 1), bold=True), Arrow([(x, 24), (x, 34)], heads="none")]
        parts.append(Label(8 + 320 * (at // 4), low + 22 + 20 * (at % 4), f"{at + 1}: {said}", "start"))
    return Drawing(
        "Phases of an mbarrier",
        "An mbarrier waits for two arrivals. Each arrival also expects 16 KiB of a bulk copy. In the "
        "first phase the copy of A lands before B arrives: no bytes are missing, but an arrival is, and "
        "the phase goes on. It ends when the copy of B lands; the parity turns from 0 to 1 and two "
        "arrivals are missing again. In the second phase both arrive first, and the phase ends with the "
        "last bytes.",
        "A phase ends when neither arrivals nor bytes are missing. A wait names a parity and passes while "
        "the present phase has the other one.",
        low + 92,
        parts,
    )


def matrix_operands() -> Drawing:
    """Return where three generations of tensor cores take operands from, and where they keep the sums.

    Source: NVIDIA, "PTX ISA": mma.sync, wgmma.mma_async and tcgen05.mma.
    """
    generations = (
        ("mma.sync", "Ampere:", "a warp starts it", "registers"),
        ("wgmma", "Hopper:", "a warpgroup starts it", "registers"),
        ("tcgen05.mma", "Blackwell 10.x:", "one thread starts it", "tensor memory"),
    )
    width, high, half = 200.0, 60.0, 88.0
    parts: list[Part] = []
    for at, (name, machine, started, of_sums) in enumerate(generations):
        x = 8 + at * 212
        parts += [
            Label(x, 20, name, "start", bold=True),
            Label(x, 38, machine, "start"),
            Label(x, 56, started, "start"),
        ]
        core, near = Box(x, 72, width, 40, "tensor core", "compute"), Box(x, 150, width, high, of_sums, "memory", True)
        far = Box(x, 248, width, high, "shared memory", "memory", True)
        source = near if name == "mma.sync" else far
        operands = Box(x + 8, source.y + 26, half, 26, "A, B", "link")
        sums = Box(x + 104, near.y + 26, half, 26, "sums", "control")
        parts += [core, near, far, operands, sums]
        parts += [Arrow([(x + 24, operands.y), (x + 24, 112)], "link")]
        parts += [Arrow([(x + 176, 112), (x + 176, sums.y)], "control", heads="both")]
    return Drawing(
        "Where tensor cores find operands and sums",
        "With mma.sync the registers of a warp hold both operands and the sums. With wgmma both operands lie in shared "
        "memory, and the sums in the registers of a warpgroup. With tcgen05.mma the operands lie in shared memory and "
        "the sums in tensor memory, and one thread starts the product.",
        "With wgmma and tcgen05.mma, A may also lie where the sums are.",
        318,
        parts,
    )
