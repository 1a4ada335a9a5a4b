"""Drawings of what compilers and number formats do to a program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, column, row


def compiler_levels() -> Drawing:
    """Return the representations between a PyTorch function and machine code."""
    texts = [
        ("Python function", "what to compute"),
        ("graph of operators (FX, HLO, StableHLO)", "shapes, types; fuse, choose layouts"),
        ("loops and tiles (Inductor, Linalg, Triton IR)", "order of work, tile sizes, memories"),
        ("GPU program (TritonGPU, NVVM, LLVM IR)", "warps, barriers, registers"),
        ("PTX", "virtual instructions, no registers yet"),
        ("machine code (SASS)", "what the GPU runs"),
    ]
    boxes = column(20, 14, 330, 300, [name for name, _ in texts], "compute", gap=22)
    parts: list[Part] = [*boxes]
    parts += [Arrow([first.bottom, second.top]) for first, second in pairwise(boxes)]
    parts += [Label(370, box.left[1] + 5, said, "start") for box, (_, said) in zip(boxes, texts, strict=True)]
    return Drawing(
        "From a Python function to machine code",
        " Then ".join(f"{name}: {said}." for name, said in texts),
        "Each level decides what the level above left open, and can no longer see what that level knew.",
        328,
        parts,
    )


def fusion() -> Drawing:
    """Return the traffic of a chain of three operators, unfused and fused."""
    parts: list[Part] = []
    for y, name in ((40, "unfused: 6 passes over memory"), (190, "fused: 2 passes")):
        parts.append(Label(20, y - 14, name, "start", bold=True))
        parts.append(Box(20, y + 66, 600, 30, "HBM", "memory"))
    for at, name in enumerate(("bias", "GELU", "scale")):
        box = Box(60 + 190 * at, 40, 120, 36, name, "compute")
        parts += [box, Arrow([(box.x + 30, 106), (box.x + 30, 76)]), Arrow([(box.x + 90, 76), (box.x + 90, 106)])]
    boxes = row(150, 190, 340, 36, ["bias", "GELU", "scale"], "compute", gap=40)
    parts += [*boxes, Arrow([boxes[0].right, boxes[1].left]), Arrow([boxes[1].right, boxes[2].left])]
    parts += [Arrow([(boxes[0].top[0], 256), boxes[0].bottom]), Arrow([boxes[2].bottom, (boxes[2].top[0], 256)])]
    parts.append(Label(320, 248, "between them: registers"))
    return Drawing(
        "Three operators, unfused and fused",
        "Unfused, each of bias, GELU and scale reads its input from memory and writes its result: three reads "
        "and three writes. Fused, the data are read once and written once.",
        "The arithmetic is the same. For operators bound by memory, a third of the traffic is a third of the time.",
        298,
        parts,
    )


def block_scaled() -> Drawing:
    """Return a block of an MXFP4 and of an NVFP4 tensor.

    Sources: Open Compute Project, "Microscaling Formats (MX) Specification", 2023; NVIDIA, "Introducing NVFP4", 2025.
    """
    parts: list[Part] = []
    for y, name, count, scale, bits in (
        (36, "MXFP4", 32, "one of 8 bits, a power of two", 4.25),
        (146, "NVFP4", 16, "one of 8 bits in FP8 (E4M3), and one in FP32 for the whole tensor", 4.5),
    ):
        parts.append(Label(20, y - 12, f"{name}: {bits} bits for each number", "start", bold=True))
        parts += row(20, y, 15 * count + 4, 26, [""] * count, "compute", gap=2)
        parts.append(Box(40 + 15 * count, y, 30, 26, "8", "control"))
        parts.append(
            Label(
                20,
                y + 48,
                f"{count} numbers of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and negatives\nscale: {scale}",
                "start",
            )
        )
    return Drawing(
        "Numbers of 4 bits that share a scale",
        "MXFP4: 32 numbers of 4 bits share a scale of 8 bits that is a power of two, together 4.25 bits per "
        "number. NVFP4: 16 numbers of 4 bits share a scale in FP8, together 4.5 bits "
        "per number, and the whole tensor has one scale in FP32.",
        "A smaller block follows the data more closely, and a scale with a fraction wastes less of the range.",
        224,
        parts,
    )


def rotation() -> Drawing:
    """Return sixteen features with one outlier, before and after a Hadamard rotation, with the step of int4.

    Source: Ashkboos and others, "QuaRot", arXiv 2404.00456, 2024.
    """
    before = [1.0, -2.0, 0.5, 1.5, -1.0, 60.0, 2.0, -0.5, 1.0, -1.5, 0.0, 2.5, -2.0, 1.0, -0.5, 1.5]
    after = _rotated(before)
    parts: list[Part] = []
    for left, name, values in ((20, "before", before), (340, "rotated", after)):
        largest = max(map(abs, values))
        parts.append(
            Label(left, 20, f"{name}: largest {largest:.0f}, step of int4 {largest / 7:.1f}", "start", bold=True)
        )
        for at, value in enumerate(values):
            height = max(1.5 * abs(value), 2)
            parts.append(
                Box(
                    left + 17 * at,
                    126 - height if value > 0 else 128,
                    13,
                    height,
                    "",
                    "compute" if abs(value) < 50 else "memory",
                )
            )
        parts.append(Arrow([(left, 127), (left + 270, 127)], heads="none"))
    parts += [
        Label(20, 176, "15 features vanish in one step", "start"),
        Label(340, 176, "all features use several steps", "start"),
    ]
    return Drawing(
        "Sixteen features before and after a rotation",
        "Before: fifteen features between minus 2 and 2.5 and one outlier of 60, so a shared scale of four "
        "bits has steps of 8.6. After a Hadamard rotation all features lie within "
        f"{max(map(abs, after)):.0f}, and the "
        f"step is {max(map(abs, after)) / 7:.1f}.",
        "The rotation changes no length and no product: (X R)(Rᵀ W) = X W.",
        186,
        parts,
    )


def _rotated(values: list[float]) -> list[float]:
    """Return the fast Walsh-Hadamard transform of ``values``, scaled to keep the length."""
    size, turned = len(values), list(values)
    step = 1
    while step < size:
        for start in range(0, size, 2 * step):
            for at in range(start, start + step):
                turned[at], turned[at + step] = turned[at] + turned[at + step], turned[at] - turned[at + step]
        step *= 2
    return [value / size**0.5 for value in turned]


def who_decides() -> Drawing:
    """Return what eight kernel languages decide for the programmer in a softmax, and what they leave to him."""
    heads = ("tile size", "layout", "shared memory", "barriers", "masks")
    table = (
        ("Helion", "ccccc"),
        ("cuTile", "ycccc"),
        ("Triton", "ycccy"),
        ("TileLang", "ycycy"),
        ("Gluon", "yyyyy"),
        ("ThunderKittens", "yyyyy"),
        ("CuTe DSL", "yyyyy"),
        ("Mojo", "yyyyy"),
    )
    parts: list[Part] = [Label(184 + 96 * at, 18, head) for at, head in enumerate(heads)]
    for at, (name, kinds) in enumerate(table):
        y = 28 + 28 * at
        parts.append(Label(16, y + 17, name, "start", bold=True))
        for box, kind in zip(row(136, y, 480, 24, [""] * 5, gap=6), kinds, strict=True):
            parts.append(replace(box, role="compute" if kind == "c" else "memory"))
    parts.append(Label(136, 272, "blue: the compiler or its library decides. orange: you do", "start"))
    return Drawing(
        "Who decides in eight kernel languages",
        "Helion's compiler decides all five of tile size, layout, shared memory, barriers and masks. cuTile "
        "leaves the tile size, Triton also the masks, and TileLang also the place in shared memory. "
        "Gluon, ThunderKittens, CuTe DSL and Mojo leave all five to the programmer, except in reductions of "
        "their libraries.",
        "Higher rows are shorter to write. Lower rows can say what an asynchronous pipeline needs.",
        282,
        parts,
    )


def thread_layout() -> Drawing:
    """Return how a blocked layout spreads 1,024 columns over registers, lanes and warps.

    Source: the Triton project, documentation of TritonGPU's ``#ttg.blocked`` encoding.
    """
    columns = row(16, 34, 608, 26, [str(at) for at in range(16)], "memory", gap=4)
    lanes = row(16, 100, 608, 30, [f"lane {at}" for at in (0, 1, 2, 3)] + ["…", "lane 31"], "control")
    warps = row(16, 172, 608, 30, [f"warp {at}" for at in range(4)] * 2, "compute")
    parts: list[Part] = [*columns, *lanes, *warps]
    parts += [
        Label(
            16,
            22,
            "columns 0 to 15: four in a row belong to one lane, and load with one instruction",
            "start",
            bold=True,
        ),
        Label(624, 90, "128 columns: 32 lanes of a warp", "end", bold=True),
        Label(16, 162, "1,024 columns: four warps, twice", "start", bold=True),
        *[Arrow([columns[4 * at + 2].bottom, lanes[at].top], heads="none") for at in range(2)],
        Label(16, 226, "each lane holds 2 × 4 = 8 numbers of the row in registers", "start"),
    ]
    return Drawing(
        "A row of 1,024 columns in a blocked layout",
        "Four neighbouring columns belong to one lane. The 32 lanes of a warp hold 128 columns, four warps "
        "hold 512, and the pattern repeats once for 1,024. Each lane holds eight numbers.",
        "sizePerThread = 4, threadsPerWarp = 32, warpsPerCTA = 4. Triton chooses such a layout; in Gluon you write it.",
        236,
        parts,
    )


def softmax_graph() -> Drawing:
    """Return the five operators of a softmax as a graph, with what each reads and writes."""
    top, side = 60, 44
    x, shifted, powers, result = row(16, top, 608, side, ["x", "x − max", "exp", "÷ sum"], "compute", gap=92)
    x = replace(x, role="memory")
    largest = Box(shifted.x - 66, 156, 90, 40, "max of a row", "control")
    total = Box(result.x - 66, 156, 90, 40, "sum of a row", "control")
    parts: list[Part] = [x, shifted, powers, result, largest, total]
    parts += [Arrow([a.right, b.left]) for a, b in pairwise([x, shifted, powers, result])]
    parts += [
        Arrow([x.bottom, (x.bottom[0], 176), largest.left]),
        Arrow([(largest.right[0], 176), (shifted.bottom[0], 176), shifted.bottom]),
        Arrow([powers.bottom, (powers.bottom[0], 176), total.left]),
        Arrow([(total.right[0], 176), (result.bottom[0], 176), result.bottom]),
        Label(16, 30, "five operators, each a kernel: reads of 5 tables, writes of 3", "start", bold=True),
        Label(16, 226, "8 passes over the table where 2 would do: x in, the result out", "start"),
    ]
    return Drawing(
        "A softmax as a graph of five operators",
        "x goes to the maximum of each row and to a subtraction; its result goes to exp; that goes to the "
        "sum of each row and to a division. As five kernels they read a whole table five times and write "
        "one three "
        "times.",
        "The two reductions give one number per row. Everything else is a table as large as x.",
        236,
        parts,
    )
