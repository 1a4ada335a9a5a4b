"""Drawings of the first chapters: the stack of a system, a product of matrix and vector, and a projection."""

from __future__ import annotations

from mlsys_labkit import specs
from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, column


def system_stack() -> Drawing:
    """Return the layers between a question and a chip, and what each of three professions sees."""
    layers: tuple[tuple[str, Role], ...] = (
        ("question and data", "plain"),
        ("model and training method", "control"),
        ("framework: tensors, gradients, many GPUs", "control"),
        ("compiler and kernels", "compute"),
        ("chip, memory, links", "memory"),
        ("power and money", "plain"),
    )
    boxes = column(190, 20, 290, 258, [name for name, _ in layers], gap=12)
    parts: list[Part] = [
        Box(b.x, b.y, b.width, b.height, b.text, role) for b, (_, role) in zip(boxes, layers, strict=True)
    ]
    parts += [
        Arrow([(160, 36), (160, 128)], "control", "both"),
        Label(90, 78, "algorithm"),
        Label(90, 95, "designer"),
        Arrow([(510, 78), (510, 218)], "compute", "both"),
        Label(572, 144, "model"),
        Label(572, 161, "developer"),
        Arrow([(160, 168), (160, 278)], "memory", "both"),
        Label(90, 218, "architect"),
    ]
    return Drawing(
        "The stack of a machine-learning system",
        "Six layers from top to bottom: question and data; model and training method; framework; compiler and "
        "kernels; chip, memory and links; power and money. The algorithm "
        "designer works on the upper three, the model developer on the middle three, the architect on the "
        "lower three.",
        "Each profession sees a part. The largest gains change several layers at once.",
        292,
        parts,
    )


def matrix_vector() -> Drawing:
    """Return two readings of y = A x: dot products with the rows, and a sum of the columns."""
    parts: list[Part] = []
    cell = 30
    for left, name in ((20, "rows: each number of y is a dot product"), (340, "columns: y is a weighted sum")):
        by_row = left == 20
        parts.append(Label(left, 20, name, "start", bold=True))
        for r in range(4):
            for c in range(3):
                on = r == 1 if by_row else c == 1
                parts.append(Box(left + cell * c, 40 + cell * r, cell - 4, cell - 4, "", "compute" if on else "plain"))
        for c in range(3):
            on = by_row or c == 1
            parts.append(Box(left + 130, 55 + cell * c, cell - 4, cell - 4, "", "memory" if on else "plain"))
        for r in range(4):
            on = r == 1 if by_row else True
            parts.append(Box(left + 208, 40 + cell * r, cell - 4, cell - 4, "", "link" if on else "plain"))
        parts += [
            Label(left + 42, 178, "A"),
            Label(left + 143, 178, "x"),
            Label(left + 182, 104, "=", bold=True),
            Label(left + 221, 178, "y"),
        ]
    parts += [
        Label(20, 206, "one row of A, all of x, one number of y", "start"),
        Label(340, 206, "one column of A, one number of x, all of y", "start"),
    ]
    return Drawing(
        "Two readings of a matrix times a vector",
        "On the left, a row of A and all of x give one number of y: a dot product. On the right, a column of "
        "A times one number of x is added to all of y: a weighted sum of columns.",
        "Both readings compute the same numbers. They fetch A in different orders, which is what a memory notices.",
        216,
        parts,
    )


def two_times() -> Drawing:
    """Return the times of arithmetic and of memory for three intensities on an H100."""
    h100 = specs.get("h100-sxm")
    ridge = h100.peak("bfloat16") / h100.bandwidth()
    parts: list[Part] = []
    for at, (name, intensity) in enumerate(
        (("matrix-vector", 1.0), ("at the corner", ridge), ("large product", 2 * ridge))
    ):
        y, scale = 34 + 78 * at, 190 if at else 380
        arithmetic = max(scale * intensity / ridge, 2.0)
        parts += [
            Label(16, y + 24, name, "start", bold=True),
            Label(16, y + 41, f"{intensity:,.0f} FLOP/B", "start"),
            Box(150, y, arithmetic, 24, "", "compute"),
            Box(150, y + 28, scale, 24, "", "memory"),
            Label(
                160 + arithmetic,
                y + 17,
                f"arithmetic: {intensity / ridge:.1%} of the time" if at == 0 else "arithmetic",
                "start",
            ),
            Label(160 + scale, y + 45, "memory", "start"),
        ]
    parts.append(Label(150, 276, "The longer bar is the time: both run at once. Bars of a row are to scale.", "start"))
    return Drawing(
        "Time of the arithmetic beside time of the memory",
        "Three programs on an H100 in BF16. A matrix-vector product does 1 FLOP per byte: memory takes all of "
        f"the time and arithmetic is busy for {1 / ridge:.1%} of it. At the corner, {ridge:.0f} FLOP "
        "per byte, both take equally long. A large product at twice that waits for arithmetic.",
        "A roofline is this picture for all intensities at once.",
        286,
        parts,
    )


def projection() -> Drawing:
    """Return a vector, its projection on a subspace, and the rest, at a right angle."""
    origin, tip, slope = (90.0, 222.0), (330.0, 50.0), -0.125
    along = ((tip[0] - origin[0]) + slope * (tip[1] - origin[1])) / (1 + slope**2)
    foot = (origin[0] + along, origin[1] + slope * along)
    corner = [(foot[0] - 15, foot[1] - 15 * slope), (foot[0] - 15 + 15 * slope, foot[1] - 15 - 15 * slope)]
    parts: list[Part] = [
        Arrow([(30, origin[1] - 60 * slope), (600, origin[1] + 510 * slope)], "control", "none"),
        Arrow([origin, tip], "compute"),
        Arrow([origin, foot], "memory"),
        Arrow([foot, tip], "link", dashed=True),
        Arrow([*corner, (foot[0] + 15 * slope, foot[1] - 15)], heads="none"),
        Label(212, 130, "x", role="compute", bold=True),
        Label(200, 236, "U Uᵀ x: the part in the subspace", "start", "memory"),
        Label(360, 110, "x − U Uᵀ x: the rest, at a right angle", "start", "link"),
        Label(600, 144, "subspace of U", "end", "control"),
        Label(320, 262, "‖x‖² = ‖part in the subspace‖² + ‖rest‖²"),
    ]
    return Drawing(
        "A vector and its projection",
        "A vector x starts on a line, the subspace. Its projection lies on the line, and the rest leads from "
        "the projection to the tip of x, at a right angle to the line.",
        "No other point of the subspace is nearer to x. The squares of the two parts add up to the square of "
        "the whole.",
        272,
        parts,
    )
