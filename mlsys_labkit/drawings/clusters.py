"""Drawings of what joins GPUs: a node, a rack, the network between nodes, and a unit of a large cluster."""

from __future__ import annotations

from dataclasses import replace

from mlsys_labkit import specs
from mlsys_labkit._base.units import si
from mlsys_labkit.drawings import svg
from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, row
from mlsys_labkit.planner.cluster import CLUSTERS
from mlsys_labkit.work.network_link import Link

DGX = CLUSTERS["dgx-h100"]
_GIB = 1024**3


def rate(link: Link) -> str:
    """Return the bandwidth of a link in one direction, with its unit."""
    return si(float(link.bytes_per_second), "B/s")


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
        Label(320, 24, f"NVLink: each GPU {rate(DGX.intra)} each way to any other, at the same time"),
        Label(320, 229, "PCIe"),
        Label(320, 320, f"InfiniBand or Ethernet: {rate(DGX.inter)} each way for each GPU, to other nodes"),
    ]
    return Drawing(
        "A node of eight GPUs",
        "Eight GPUs in a row. Each is wired to all four NVSwitch chips above, and by PCIe to a network card "
        "of its own below.",
        f"Inside the node a GPU sends {DGX.intra.bytes_per_second / DGX.inter.bytes_per_second:.0f} times as fast "
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


def rdma() -> Drawing:
    """Return the two ways of a tensor to another node: through both operating systems, and from card to card.

    Source: NVIDIA, "GPUDirect RDMA", CUDA documentation.
    """
    node = Box(12, 30, 260, 246, "", holds=True)
    host = Box(48, 60, 126, 38, "program's buffer", "memory")
    kernel = Box(48, 122, 126, 38, "system's buffer", "control")
    gpu = Box(48, 216, 126, 38, "GPU memory", "memory")
    card = Box(196, 122, 62, 56, "network\ncard", "link")
    slow = [
        Arrow([gpu.left, (30, gpu.left[1]), (30, host.left[1]), host.left], "control", dashed=True),
        Arrow([host.bottom, kernel.top], "control", dashed=True),
        Arrow([kernel.right, (card.x, kernel.right[1])], "control", dashed=True),
    ]
    fast = Arrow([gpu.right, (card.bottom[0], gpu.right[1]), card.bottom], "link")
    side: list[Part] = [node, host, kernel, gpu, card, *slow, fast]
    parts = [*side, *map(_mirrored, side)]
    parts += [
        Arrow([card.right, (svg.WIDTH - card.right[0], card.right[1])], "link"),
        Label(142, 22, "one node", bold=True),
        Label(svg.WIDTH - 142, 22, "another node", bold=True),
        Label(320, 140, rate(DGX.inter)),
        Label(320, 300, "dashed: three copies on each side, and both processors work", role="control"),
        Label(320, 320, "green: the cards read and write the GPUs' memories", role="link"),
    ]
    return Drawing(
        "A tensor to another node, with and without RDMA",
        "Two nodes, each with a GPU's memory, a program's buffer, the operating system's buffer and a network card. "
        "The dashed way copies from the GPU to the program's buffer, to the system's, to the card, and back up in the "
        "other node. The green way goes from the GPU's memory to the card, over the wire, and into the other GPU's "
        "memory.",
        "RDMA leaves out the operating systems; with GPUDirect it leaves out the memory of the hosts as well.",
        332,
        parts,
    )


def _mirrored(part: Part) -> Part:
    """Return a part on the other side of the drawing's middle; what went out of it comes in."""
    match part:
        case Box():
            return replace(part, x=svg.WIDTH - part.x - part.width)
        case Arrow():
            return replace(part, points=[(svg.WIDTH - x, y) for x, y in reversed(part.points)])
        case Label():
            return replace(part, x=svg.WIDTH - part.x)


def superpod() -> Drawing:
    """Return a unit of NVIDIA's H100 SuperPOD: 32 nodes, a leaf switch for each rail, and switches that join units.

    Source: NVIDIA, "DGX SuperPOD Reference Architecture featuring DGX H100 Systems", RA-11333-001, 2023.
    """
    nodes, gpus = 32, DGX.gpus_per_node
    spines = row(120, 36, 400, 30, ["spine switch"] * 4, "control", gap=14)
    leaves = row(20, 116, 600, 34, [f"leaf {at}" for at in range(gpus)], "link")
    shown = [(12.0, "node 1"), (220.0, "node 2"), (456.0, f"node {nodes}")]
    parts: list[Part] = [*spines, *leaves]
    parts += [Arrow([leaf.top, spine.bottom], heads="none") for leaf in leaves for spine in spines]
    for left, name in shown:
        parts.append(Box(left, 236, 172, 62, "", holds=True))
        each = row(left + 6, 244, 160, 28, [str(at) for at in range(gpus)], "compute", gap=3)
        parts += [*each, Label(left + 86, 291, name)]
        for at, (gpu, leaf) in enumerate(zip(each, leaves, strict=True)):
            rail = at in (0, gpus - 1)
            parts.append(Arrow([gpu.top, leaf.bottom], "link" if rail else "plain", "none", dashed=not rail))
    parts += [
        Label(320, 24, "to the other units"),
        Label(424, 272, "…"),
        Label(
            320, 324, f"{nodes} nodes × {gpus} GPUs = {nodes * gpus}; each GPU has a port of {rate(DGX.inter)} each way"
        ),
    ]
    return Drawing(
        "A unit of a SuperPOD",
        f"{nodes} nodes of {gpus} GPUs stand in a row, three of them drawn. GPU 0 of every node is wired to leaf "
        f"switch 0, GPU 1 to leaf switch 1, and so on: {gpus} rails. Above, every leaf switch is wired to all spine "
        "switches, which lead to the other units.",
        "Equal GPUs of two nodes are one switch apart: a rail (two of eight are solid). Other pairs need a spine, or a "
        "step over NVLink to the right rail first.",
        336,
        parts,
    )
