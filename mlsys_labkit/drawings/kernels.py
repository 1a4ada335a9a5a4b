"""Drawings of kernels at work: the grid, a warp's request, banks, tiles, tensor cores, copies and streams."""

from __future__ import annotations

from collections.abc import Callable

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, row


def grid() -> Drawing:
    """Return a grid, one of its blocks, one of its warps, and where each runs.

    Source: NVIDIA, "CUDA C++ Programming Guide", Thread Hierarchy.
    """
    blocks = [
        Box(16 + 44 * (at % 4), 52 + 44 * (at // 4), 38, 38, f"{at % 4},{at // 4}", "compute") for at in range(12)
    ]
    warps = [Box(236, 54 + 34 * at, 168, 28, f"warp {at}: {32 * at} to {32 * at + 31}", "compute") for at in range(4)]
    lanes = [Box(446 + 22 * (at % 8), 54 + 22 * (at // 8), 18, 18, "", "compute") for at in range(32)]
    parts: list[Part] = [
        Box(6, 22, 188, 168, "grid: 4 × 3 blocks", holds=True),
        *blocks,
        Box(226, 22, 188, 168, "block: 128 threads", holds=True),
        *warps,
        Box(436, 22, 194, 130, "warp: 32 lanes", holds=True),
        *lanes,
        Arrow([(104, 71), (226, 60)], dashed=True),
        Arrow([(404, 68), (436, 62)], dashed=True),
        Label(100, 216, "runs on the whole GPU,"),
        Label(100, 233, "blocks in any order"),
        Label(320, 216, "stays on one SM,"),
        Label(320, 233, "shares memory and barriers"),
        Label(533, 216, "issues one instruction"),
        Label(533, 233, "for all its lanes"),
    ]
    return Drawing(
        "A grid, a block and a warp",
        "A grid of four by three blocks. One block of 128 threads holds four warps. A warp has 32 lanes. The "
        "grid runs on the whole GPU, a block stays "
        "on one multiprocessor, and a warp issues one instruction for all its lanes.",
        "You choose the grid and the block. The hardware cuts each block into warps of 32 threads.",
        246,
        parts,
    )


def warp_request() -> Drawing:
    """Return how a warp's load becomes sectors: neighbours, and a stride of eight.

    Source: NVIDIA, "CUDA C++ Best Practices Guide", Coalesced Access to Global Memory.
    """
    parts: list[Part] = []
    for at, (y, stride, text) in enumerate(
        (
            (30, 1, "lane i loads x[i]: 128 bytes wanted, 4 sectors of 32 bytes fetched"),
            (190, 8, "lane i loads x[8 i]: 128 bytes wanted, 32 sectors fetched, 1,024 bytes"),
        )
    ):
        parts += [Label(20, y, text, "start", bold=True)]
        lanes = row(20, y + 14, 600, 22, [f"{lane}" for lane in range(16)], "compute", gap=4)
        count = 4 if stride == 1 else 32
        sectors = row(20, y + 78, 600, 24, [""] * count, "memory", gap=3)
        parts += [*lanes, *sectors]
        for lane, box in enumerate(lanes):
            sector = sectors[lane * stride // 8]
            offset = sector.width * ((lane * stride % 8) + 0.5) / 8
            parts.append(Arrow([box.bottom, (sector.x + offset, sector.y)], "plain"))
        parts.append(
            Label(
                20,
                y + 120,
                "16 of the 32 lanes are drawn" if at == 0 else "each sector brings 8 numbers, and 1 of them is used",
                "start",
            )
        )
    return Drawing(
        "From the lanes of a warp to sectors of memory",
        "Above, 32 neighbouring lanes load 32 neighbouring numbers of four bytes: four sectors of 32 bytes "
        "serve them all. "
        "Below, each lane loads from an address 32 bytes further than the last: every lane needs a sector of "
        "its own, 32 in all.",
        "The hardware fetches whole sectors. A stride of eight numbers fetches eight times the bytes.",
        322,
        parts,
    )


def banks() -> Drawing:
    """Return a column read from shared memory without padding, with padding, and with a swizzle.

    Source: NVIDIA, "CUDA C++ Programming Guide", Shared Memory.
    """
    size, parts = 8, list[Part]()
    cases: tuple[tuple[str, Callable[[int, int], int]], ...] = (
        ("32 wide: one bank", lambda r, c: c),
        ("33 wide: padded", lambda r, c: (r + c) % size),
        ("column XOR row", lambda r, c: r ^ c),
    )
    for at, (name, place) in enumerate(cases):
        left = 24 + 208 * at
        parts.append(Label(left + 92, 20, name, bold=True))
        for r in range(size):
            for c in range(size):
                role: Role = "memory" if c == 2 else "plain"
                parts.append(Box(left + 23 * place(r, c), 56 + 23 * r, 20, 20, f"{c}" if c == 2 else "", role))
        parts += [Label(left + 23 * bank + 10, 48, f"{bank}") for bank in range(size)]
    parts += [
        Label(116, 262, "8 lanes, 1 bank: 8 passes"),
        Label(324, 262, "8 lanes, 8 banks: 1 pass"),
        Label(532, 262, "8 lanes, 8 banks: 1 pass"),
    ]
    return Drawing(
        "Where column 2 of a tile lies in the banks of shared memory",
        "Three layouts of a tile, drawn with 8 banks instead of 32. With rows as wide as the banks, all "
        "elements of column 2 lie in bank 2, so a warp "
        "that reads the column needs eight passes. With rows one element wider, or with the column number "
        "XORed with the row number, each element "
        "lies in another bank: one pass.",
        "Drawn with 8 banks; the hardware has 32. The swizzle needs no extra memory, the padding needs one "
        "element per row.",
        272,
        parts,
    )


def tiled_product() -> Drawing:
    """Return the tiles that one block reads for its piece of C = A B."""
    parts: list[Part] = []
    cell = 26
    strips: tuple[tuple[str, int, int, Callable[[int, int], bool]], ...] = (
        ("A", 60, 196, lambda r, c: r == 2),
        ("B", 300, 26, lambda r, c: c == 3),
        ("C", 300, 196, lambda r, c: r == 2 and c == 3),
    )
    for name, left, top, marks in strips:
        for r in range(5):
            for c in range(5 if name != "A" else 6):
                on = marks(r, c)
                role: Role = "plain" if not on else "compute" if name == "C" else "memory"
                parts.append(Box(left + cell * c, top + cell * r, cell - 3, cell - 3, "", role))
        parts.append(Label(left - 16, top + 16, name, bold=True))
    parts += [
        Arrow([(218, 262), (370, 262)], "memory"),
        Arrow([(388, 158), (388, 246)], "memory"),
        Label(460, 76, "a strip of B: tiles of T × T,", "start"),
        Label(460, 93, "loaded one at a time", "start"),
        Label(460, 252, "the block's piece of C stays", "start"),
        Label(460, 269, "in registers until the end", "start"),
        Label(60, 346, "a strip of A, tile after tile", "start"),
        Label(60, 70, "each step: load two tiles,", "start"),
        Label(60, 87, "wait, use each number T times,", "start"),
        Label(60, 104, "wait, go on", "start"),
    ]
    return Drawing(
        "Tiles that one block reads",
        "To compute one piece of C, a block walks along a strip of A and down a strip of B, one tile of each "
        "at a time. The piece of C stays in registers.",
        "Both strips together are 2 N T numbers for T² results, so the traffic per result falls as the tile's "
        "side grows.",
        356,
        parts,
    )


def tensor_core_tile() -> Drawing:
    """Return the operands of ``mma.m16n8k16`` and the elements that one lane holds.

    Source: NVIDIA, "Parallel Thread Execution ISA", Matrix Fragments for mma.m16n8k16.
    """
    cell, parts = 15, list[Part]()

    def matrix(left: float, top: float, size: tuple[int, int], held: set[tuple[int, int]], name: str) -> None:
        for r in range(size[0]):
            for c in range(size[1]):
                role: Role = "compute" if (r, c) in held else "plain"
                parts.append(Box(left + cell * c, top + cell * r, cell - 2, cell - 2, "", role))
        parts.append(Label(left + cell * size[1] / 2, top - 8, name, bold=True))

    group, within = divmod(5, 4)  # the lane of the picture
    rows, pairs = (group, group + 8), (2 * within, 2 * within + 1)
    a = {(r, c + k) for r in rows for c in pairs for k in (0, 8)}
    b = {(k + step, group) for k in pairs for step in (0, 8)}
    c = {(r, pair) for r in rows for pair in pairs}
    matrix(20, 40, (16, 16), a, "A: 16 × 16, FP16")
    matrix(290, 40, (16, 8), b, "B: 16 × 8, FP16")
    matrix(440, 40, (16, 8), c, "C, D: 16 × 8, FP32")
    parts += [
        Label(264, 164, "×", bold=True),
        Label(424, 164, "+", bold=True),
        Label(20, 306, "Lane 5 holds 8 numbers of A in four registers, 4 of B in two, and 4 sums in four.", "start"),
        Label(20, 323, "One instruction of the warp: 16 × 8 × 16 = 2,048 multiply-adds, 64 for each lane.", "start"),
    ]
    return Drawing(
        "Operands of one tensor-core instruction",
        "A is 16 by 16, B is 16 by 8, C and D are 16 by 8. The elements that lane 5 holds are marked: rows 1 "
        "and 9 with columns 2, 3, 10 and 11 of A; "
        "rows 2, 3, 10 and 11 of column 1 of B; rows 1 and 9, columns 2 and 3 of C.",
        "mma.m16n8k16. The 32 lanes hold the matrices together; no lane sees a whole row.",
        332,
        parts,
    )


def copy_pipeline() -> Drawing:
    """Return copies that run ahead of the arithmetic, with three buffers."""
    parts: list[Part] = [Label(16, 54, "copy", "start", bold=True), Label(16, 106, "use", "start", bold=True)]
    for tile in range(6):
        filling = tile < 3  # all buffers are free at the start
        start, width = (76 + 60 * tile, 56.0) if filling else (266 + 90 * (tile - 3), 86.0)
        parts.append(Box(start, 34, width, 32, f"tile {tile}", "memory"))
        if tile < 5:
            parts.append(Box(176 + 90 * tile, 86, 86, 32, f"tile {tile}", "compute"))
            parts.append(Arrow([(start + width / 2, 66), (186 + 90 * tile, 86)], "link"))
    parts += [
        Label(
            76,
            150,
            "Tile 3 takes the buffer of tile 0 as soon as tile 0 has been used.",
            "start",
        ),
        Arrow([(262, 118), (280, 66)], "control", dashed=True),
        Label(76, 172, "Full lines: the data have arrived. Dashed: the buffer may be overwritten.", "start"),
        Arrow([(76, 190), (630, 190)]),
        Label(604, 208, "time"),
    ]
    return Drawing(
        "A pipeline of copies with three buffers",
        "Copies of tiles 0, 1 and 2 start at once into three buffers. The arithmetic on tile 0 starts when "
        "its copy has arrived. When it is done, its buffer is free and "
        "the copy of tile 3 starts. From then on a copy and a computation run at the same time.",
        "While the arithmetic works on one tile, two more are on their way. Each buffer needs two signals: "
        "full and empty.",
        216,
        parts,
    )


def streams() -> Drawing:
    """Return copies and kernels in one stream, and in three."""
    parts: list[Part] = []
    colours: tuple[tuple[str, Role], ...] = (("in", "memory"), ("kernel", "compute"), ("out", "memory"))
    parts.append(Label(16, 20, "one stream: 9 steps", "start", bold=True))
    for at in range(9):
        name, role = colours[at % 3]
        parts.append(Box(16 + 67 * at, 30, 63, 30, f"{name} {at // 3}", role))
    parts.append(Label(16, 92, "three streams: 5 steps", "start", bold=True))
    for stream in range(3):
        for step, (name, role) in enumerate(colours):
            parts.append(Box(16 + 67 * (stream + step), 102 + 36 * stream, 63, 30, f"{name} {stream}", role))
        parts.append(Label(372, 122 + 36 * stream, f"stream {stream}", "start"))
    parts += [Arrow([(16, 222), (630, 222)]), Label(604, 240, "time")]
    return Drawing(
        "Copies and kernels in one stream and in three",
        "In one stream, copy in, kernel and copy out of three pieces follow one another: nine steps. In three "
        "streams the copy in of one piece runs beside the kernel of the "
        "piece before it and the copy out of the one before that: five steps.",
        "Work in one stream is ordered. Work in different streams may overlap if nothing orders it: two copy "
        "engines and the SMs work at the same time.",
        248,
        parts,
    )


def waves() -> Drawing:
    """Return a butterfly reduction on 64 lanes that was written for 32.

    Source: AMD, "HIP programming guide", warp size.
    """
    parts: list[Part] = []
    for y, name, groups in (
        (34, "64 lanes, hops of 16, 8, 4, 2, 1: two maxima, of 32 lanes each", 2),
        (128, "64 lanes, hops of 32, 16, 8, 4, 2, 1: one maximum of all", 1),
    ):
        parts.append(Label(16, y - 12, name, "start", bold=True))
        for lane in range(64):
            role: Role = "compute" if lane < 64 // groups else "memory"
            parts.append(Box(16 + 9.5 * lane, y, 8, 22, "", role))
        hop = 32 // groups
        for start in (0, 64 - 2 * hop) if groups == 2 else (0,):
            left, right = 20 + 9.5 * start, 20 + 9.5 * (start + hop)
            parts.append(Arrow([(left, y + 24), (left, y + 42), (right, y + 42), (right, y + 24)], heads="both"))
    return Drawing(
        "A reduction on 64 lanes that was written for 32",
        "Above, 64 lanes exchange with hops from 16 down to 1: lanes 0 to 31 hold one sum and lanes 32 to "
        "63 another. Below, the first hop is 32, and all 64 lanes hold one maximum.",
        "Write the first hop as half of warpSize, which is 64 on CDNA and 32 on gfx1250 and on NVIDIA's GPUs.",
        180,
        parts,
    )
