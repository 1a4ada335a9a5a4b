"""Drawings of machines: a GPU, one of its multiprocessors, its memories, a node and a rack."""

from __future__ import annotations

from mlsys_labkit import specs
from mlsys_labkit._base.units import si
from mlsys_labkit.cuda.time_model.gpus import modelled
from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, column, row
from mlsys_labkit.planner.cluster import CLUSTERS
from mlsys_labkit.work.network_link import Link

_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3
_DGX = CLUSTERS["dgx-h100"]


def _rate(link: Link) -> str:
    return si(float(link.bytes_per_second), "B/s")


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
            f"NVLink: {_rate(_DGX.intra)} each way",
            "link",
        ),
        Box(334, 330, 220, 36, f"PCIe 5: {_rate(_DGX.host)} each way", "link"),
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
            f"{_rate(_DGX.intra)} each way",
        ),
        ("the host (PCIe)", "terabytes", "microseconds", f"{_rate(_DGX.host)} each way"),
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


def node() -> Drawing:
    """Return a server with eight H100s: switches inside, network cards to the outside.

    Source: NVIDIA, "NVIDIA DGX H100/H200 User Guide".
    """
    gpus = row(20, 150, 600, 48, [f"GPU {at}" for at in range(8)], "compute")
    switches = row(120, 40, 400, 40, ["NVSwitch"] * 4, "link", gap=14)
    cards = row(20, 252, 600, 40, ["NIC\n400G"] * 8, "link")
    parts: list[Part] = [*gpus, *switches, *cards]
    parts += [Arrow([gpu.top, switch.bottom], "link", "none") for gpu in gpus for switch in switches]
    parts += [Arrow([gpu.bottom, card.top], "plain", "both") for gpu, card in zip(gpus, cards, strict=True)]
    parts += [
        Label(320, 24, f"NVLink: each GPU {_rate(_DGX.intra)} each way to any other, at the same time"),
        Label(320, 229, "PCIe"),
        Label(320, 320, f"InfiniBand or Ethernet: {_rate(_DGX.inter)} each way for each GPU, to other nodes"),
    ]
    return Drawing(
        "A node of eight GPUs",
        "Eight GPUs in a row. Each is wired to all four NVSwitch chips above, and by PCIe to a network card "
        "of its own below.",
        f"Inside the node a GPU sends {_DGX.intra.bytes_per_second / _DGX.inter.bytes_per_second:.0f} times as fast "
        "as to another node.",
        332,
        parts,
    )


def rack() -> Drawing:
    """Return a GB200 NVL72: 72 GPUs in 18 trays, joined by nine trays of switches.

    Source: NVIDIA, "GB200 NVL72" product page and "DGX GB200 User Guide".
    """
    gpus, links = 72, 18
    both_ways = 2 * float(CLUSTERS["gb200-nvl72"].intra.bytes_per_second)
    memory = specs.get("gb200").facts["memory"].value / _GIB
    trays = [Box(20, 30 + 24 * at, 250, 20, "", "compute") for at in range(10)]
    switches = [Box(20, 280 + 24 * at, 250, 20, "", "link") for at in range(4)]
    one = Box(340, 30, 280, 150, "one of 18 compute trays", holds=True)
    inside = [
        *row(352, 58, 256, 34, ["Grace CPU"] * 2, "control"),
        *row(352, 104, 256, 50, [f"B200\n{memory:.0f} GB"] * 4, "compute"),
    ]
    switch = Box(340, 214, 280, 86, "one of 9 switch trays", holds=True)
    chips = row(352, 242, 256, 42, ["NVSwitch chip"] * 2, "link")
    parts: list[Part] = [
        *trays,
        *switches,
        Box(8, 8, 274, 376, "", "plain"),
        one,
        *inside,
        switch,
        *chips,
        Arrow([(270, 40), (340, 60)], heads="none", dashed=True),
        Arrow([(270, 290), (340, 240)], heads="none", dashed=True),
        Label(145, 22, "GB200 NVL72, one rack", bold=True),
        Label(340, 328, f"{gpus} GPUs, each {links} links of {si(both_ways / links, 'B/s')}:", "start"),
        Label(340, 345, f"{si(both_ways, 'B/s')} both ways, {si(gpus * both_ways, 'B/s')} in all", "start"),
        Label(340, 372, "any GPU reaches any other at full rate", "start"),
    ]
    return Drawing(
        "A rack that acts as one node",
        "A rack holds 18 compute trays, each with two Grace CPUs and four B200 GPUs, and nine trays of "
        "NVSwitch chips with two chips each. "
        "Every one of the 72 GPUs is wired to all 18 switch chips, by one link each.",
        "The border between fast links and slow ones lies at 72 GPUs instead of 8. Trays are drawn in part: "
        "10 of 18 and 4 of 9.",
        392,
        parts,
    )
