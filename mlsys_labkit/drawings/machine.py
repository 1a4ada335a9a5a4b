"""Drawings of one chip: a GPU, one of its multiprocessors, the memories that it reaches, and an FPGA."""

from __future__ import annotations

from mlsys_labkit import specs
from mlsys_labkit._base.units import si
from mlsys_labkit.cuda.time_model.gpus import modelled
from mlsys_labkit.drawings.clusters import DGX, rate
from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, column

_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3


def gpu_chip() -> Drawing:
    """Return an H100 from above: clusters of multiprocessors, L2, memory stacks and links.

    Source: NVIDIA, "NVIDIA H100 Tensor Core GPU Architecture", 2022.
    """
    h100 = specs.get("h100-sxm")
    sms, l2, stack = h100.sms, h100.facts["l2"].value / _MIB, h100.facts["memory"].value / 5 / _GIB
    chip = Box(70, 46, 500, 268, f"H100 SXM: {sms} multiprocessors in use", "plain", holds=True)
    clusters = [
        Box(86 + 120 * across, 76 + down * 168, 108, 52, "GPC\n16 or 18 SMs", "compute")
        for down in (0, 1)
        for across in range(4)
    ]
    cache = Box(86, 150, 468, 72, f"L2 cache, {l2:.0f} MB: shared by all multiprocessors", "memory")
    links = [
        Arrow([(140 + 120 * at, y1), (140 + 120 * at, y2)], heads="both")
        for at in range(4)
        for y1, y2 in ((128, 150), (222, 244))
    ]
    stacks = [
        *column(4, 60, 54, 240, [f"HBM\n{stack:.0f} GB"] * 3, "memory"),
        *column(582, 60, 54, 156, [f"HBM\n{stack:.0f} GB"] * 2, "memory"),
        Box(582, 230, 54, 70, "not\nin use", "absent"),
    ]
    outside: list[Part] = [
        Box(
            86,
            330,
            220,
            36,
            f"NVLink: {rate(DGX.intra)} each way",
            "link",
        ),
        Box(334, 330, 220, 36, f"PCIe 5: {rate(DGX.host)} each way", "link"),
        Arrow([(196, 314), (196, 330)], "link", "both"),
        Arrow([(444, 314), (444, 330)], "link", "both"),
    ]
    above = Label(320, 26, f"Five stacks of memory on the same package: {si(h100.bandwidth(), 'B/s')} together")
    return Drawing(
        "An H100 from above",
        "Eight graphics processing clusters (GPCs) of 16 or 18 multiprocessors stand around one L2 cache of "
        f"{l2:.0f} MB. Three stacks of "
        "HBM stand on the left and two on the right; a sixth place is not in use. Below the chip are NVLink "
        "and PCIe.",
        "Every byte from HBM passes through L2, which all multiprocessors share. The links leave the package below.",
        376,
        [chip, *clusters, cache, *links, *stacks, *outside, above],
    )


def streaming_multiprocessor() -> Drawing:
    """Return the inside of one multiprocessor of an H100.

    Source: NVIDIA, "NVIDIA H100 Tensor Core GPU Architecture", 2022.
    """
    shared = specs.get("h100-sxm").facts["shared_per_sm"].value / _KIB
    parts: list[Part] = [Box(8, 8, 624, 352, "One multiprocessor: up to 64 warps of 32 threads", holds=True)]
    for at in range(4):
        x = 20 + 152 * at
        parts += [
            Box(x, 38, 144, 210, f"quarter {at + 1}", holds=True),
            Box(x + 8, 64, 128, 40, "scheduler: one\nwarp a cycle", "control"),
            Box(x + 8, 110, 128, 40, "registers\n64 KiB", "memory"),
            Box(x + 8, 156, 128, 40, "32 FP32 lanes\n16 FP64, 16 INT32", "compute"),
            Box(x + 8, 202, 128, 38, "tensor core", "compute"),
        ]
    parts += [
        Arrow([(320, 248), (320, 268)], heads="both"),
        Box(
            20,
            268,
            600,
            40,
            f"shared memory and L1 cache: 256 KiB, at most {shared:.0f} KiB of it shared memory",
            "memory",
        ),
        Arrow([(320, 308), (320, 326)], heads="both"),
        Box(20, 326, 600, 26, "to L2", "link"),
    ]
    return Drawing(
        "One multiprocessor of an H100",
        "Four equal quarters stand side by side. Each has a scheduler that issues for one warp a cycle, 64 "
        "KiB of registers, 32 FP32 lanes "
        "and a tensor core. Below, all four share 256 KiB of shared memory and L1 cache, of which "
        f"{shared:.0f} KiB can be shared memory.",
        "Four schedulers pick four warps each cycle. The registers of all warps stay in place, so a switch "
        "costs nothing.",
        368,
        parts,
    )


def memory_hierarchy() -> Drawing:
    """Return the memories that an H100 reaches, by size, latency and bandwidth.

    Sources: the kit's datasheet of the H100, and the figures of its model of a kernel's time.
    """
    h100, model = specs.get("h100-sxm"), modelled("h100-sxm")
    registers = f"{h100.facts['sms'].value * 256 / 1024:.0f} MiB"
    rows = [
        ("registers", registers, "none", "feed the lanes"),
        ("shared memory, L1", registers, f"{model.shared_latency:.0f} cycles", si(h100.bandwidth("shared"), "B/s")),
        (
            "L2",
            f"{h100.facts['l2'].value / _MIB:.0f} MiB",
            f"{model.l2_latency:.0f} cycles",
            f"about {model.l2_bandwidth / 1e12:.0f} TB/s",
        ),
        (
            "HBM",
            f"{h100.facts['memory'].value / _GIB:.0f} GiB",
            f"{model.dram_latency:.0f} cycles",
            si(h100.bandwidth(), "B/s"),
        ),
        (
            "other GPUs (NVLink)",
            f"7 × {h100.facts['memory'].value / _GIB:.0f} GiB",
            "microseconds",
            f"{rate(DGX.intra)} each way",
        ),
        ("the host (PCIe)", "terabytes", "microseconds", f"{rate(DGX.host)} each way"),
    ]
    heads = ((100, "where"), (285, "holds"), (410, "answers after"), (556, "delivers"))
    parts: list[Part] = [Label(x, 22, head, bold=True) for x, head in heads]
    for at, (name, size, latency, bandwidth) in enumerate(rows):
        y, width = 36 + at * 50, 136 + 11 * at
        parts += [
            Box(100 - width / 2, y, width, 36, name, "memory" if at < 4 else "link"),
            Label(285, y + 23, size),
            Label(410, y + 23, latency),
            Label(556, y + 23, bandwidth),
        ]
        if at:
            parts.append(Arrow([(100, y - 14), (100, y)], heads="both"))
    spoken = " ".join(f"{name}: {size}, {latency}, {bandwidth}." for name, size, latency, bandwidth in rows)
    return Drawing(
        "Memories of an H100, from near to far",
        spoken,
        "Each step down holds more, answers later and delivers less per second. Sizes of registers and shared "
        "memory are sums over all multiprocessors.",
        334,
        parts,
    )


def fpga() -> Drawing:
    """Return a corner of an FPGA: columns of tables, memories and multipliers between wires, and one placed circuit.

    Source: Kuon, Tessier and Rose, "FPGA Architecture: Survey and Challenges", 2008, sections 1 and 2.
    """
    across, down, left, top, step, side = 7, 4, 24.0, 52.0, 54.0, 38.0
    kinds: tuple[tuple[str, Role], ...] = (
        ("table", "plain"),
        ("table", "plain"),
        ("mem", "memory"),
        ("table", "plain"),
        ("×, +", "compute"),
        ("table", "plain"),
        ("table", "plain"),
    )
    cells = [
        Box(left + step * x, top + step * y, side, side, kinds[x][0], kinds[x][1])
        for y in range(down)
        for x in range(across)
    ]
    edge, floor = left + step * across - 6, top + step * down - 6
    lanes_x = [left + step * x + side + 8 for x in range(across)]
    lanes_y = [top + step * y + side + 8 for y in range(down)]
    wires = [Arrow([(left - 8, y), (edge + 4, y)], heads="none") for y in lanes_y]
    wires += [Arrow([(x, top - 8), (x, floor + 4)], heads="none") for x in lanes_x]

    def cell(x: int, y: int) -> Box:
        return cells[y * across + x]

    first, multiply, last = cell(2, 1), cell(4, 2), cell(6, 1)
    down_to, up_to, bend = lanes_x[3], lanes_x[5], lanes_x[4]
    read = [first.bottom, (first.bottom[0], lanes_y[1]), (down_to, lanes_y[1]), (down_to, multiply.left[1])]
    written = [multiply.right, (bend, multiply.right[1]), (bend, lanes_y[0]), (up_to, lanes_y[0])]
    circuit = [
        Arrow([*read, multiply.left], "link"),
        Arrow([*written, (up_to, last.left[1]), last.left], "link"),
    ]
    said: tuple[tuple[str, Role, str], ...] = (
        ("table", "plain", "any function of a few bits"),
        ("mem", "memory", "a few KiB of memory"),
        ("×, +", "compute", "a multiplier that adds"),
    )
    x = edge + 28
    legend: list[Part] = [Label(left, 26, "a sheet of small parts and of wires", "start")]
    for at, (name, role, text) in enumerate(said):
        legend += [Box(x, 52 + 46 * at, side, 30, name, role), Label(x + 46, 72 + 46 * at, text, "start")]
    legend += [
        Arrow([(x, 206), (x + side, 206)], "link"),
        Label(x + 46, 210, "a placed circuit", "start"),
        Label(x, 246, "Where wires cross, a bit\nsays whether they join.", "start"),
    ]
    return Drawing(
        "A corner of an FPGA",
        "A grid of small parts: most columns hold tables, one holds memories and one multipliers. Wires run between "
        "all rows and columns. A circuit is drawn in green: from a memory along the wires to a multiplier, and from "
        "there to a table.",
        "The tables and the bits of the wires are the circuit: no instruction is fetched or decoded. Each result "
        "crosses wires whose length the tools decided.",
        floor + 14,
        [*cells, *wires, *circuit, *legend],
    )
