"""A cluster: devices by their datasheet, and the links between them, each with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from mlsys_labkit import specs
from mlsys_labkit.planner.errors import PlanError
from mlsys_labkit.work.network_link import Link


class Fabric(NamedTuple):
    """A kind of link: bytes per second in one direction for one GPU, and where the figures stand."""

    link: Link
    source: str


# Latency of one step of a ring with the protocol for large messages, as NCCL's own cost model has it.
_NCCL = "latency: NVIDIA/nccl, src/graph/tuning.cc, hwLat, ring, Simple"
FABRICS = {
    "nvlink3": Fabric(Link(3.4e-6, 300e9), f"NVIDIA A100 datasheet: NVLink 600 GB/s, both directions; {_NCCL}"),
    "nvlink4": Fabric(Link(3.4e-6, 450e9), f"NVIDIA H100 datasheet: NVLink 900 GB/s, both directions; {_NCCL}"),
    "nvlink5": Fabric(Link(3.4e-6, 900e9), f"NVIDIA HGX B200 datasheet: NVLink 1.8 TB/s, both directions; {_NCCL}"),
    "nvlink4-h800": Fabric(
        Link(3.4e-6, 200e9),
        f"DeepSeek-AI, arXiv:2505.09343, sec. 4.1: NVLink of H800, 400 GB/s, both directions; {_NCCL}",
    ),
    "pcie4-x16": Fabric(Link(5.7e-6, 31.5e9), f"PCI Express 4.0: 16 GT/s x 16 lanes, 128b/130b; {_NCCL}"),
    "pcie5-x16": Fabric(Link(5.7e-6, 63.0e9), f"PCI Express 5.0: 32 GT/s x 16 lanes, 128b/130b; {_NCCL}"),
    "hdr-200g": Fabric(Link(9.6e-6, 25e9), f"NVIDIA DGX A100 datasheet: a 200 Gb/s HDR InfiniBand port a GPU; {_NCCL}"),
    "xdr-800g": Fabric(Link(9.6e-6, 100e9), f"NVIDIA GB300 NVL72: an 800 Gb/s ConnectX-8 port a GPU; {_NCCL}"),
    "ndr-400g": Fabric(Link(9.6e-6, 50e9), f"NVIDIA DGX H100 datasheet: a 400 Gb/s NDR InfiniBand port a GPU; {_NCCL}"),
}
"""Name -> ``Fabric``."""


@dataclass(frozen=True)
class Cluster:
    """``gpus`` GPUs of one kind, ``gpus_per_node`` in a node.

    Args:
        device: key of ``mlsys_labkit.specs``, whose datasheet gives FLOP/s, bandwidth and memory.
        memory_gib, memory_bytes_per_second: a GPU's memory where it is sold with another than its datasheet's.
        intra, inter: the link of a GPU inside a node and to other nodes, one direction.
        host: the link of a GPU to its node's memory.
        watts: a limit of a GPU's power other than its datasheet's. Products run at that limit, and the clock then
            follows about the square root of the power.
        host_bytes_per_second: a GPU's share of its host's memory bandwidth, for an optimizer kept there.

    Raises PlanError for a size that cannot be or a device without memory on record.

    Example:
        >>> cluster = Cluster.named("dgx-h100", gpus=1024)
        >>> cluster.nodes, cluster.inter.bytes_per_second
        (128, 50000000000.0)
    """

    gpus: int
    gpus_per_node: int = 8
    device: str = "h100-sxm"
    intra: Link = FABRICS["nvlink4"].link
    inter: Link = FABRICS["ndr-400g"].link
    host: Link = FABRICS["pcie5-x16"].link
    watts: float | None = None
    memory_gib: float | None = None
    memory_bytes_per_second: float | None = None
    host_bytes_per_second: float = 2 * 307.2e9 / 8  # two Xeon 8480C, 8 x DDR5-4800 each, for 8 GPUs

    def __post_init__(self) -> None:
        for name in ("gpus", "gpus_per_node"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise PlanError(f"{name} must be a whole number from 1 up, got {getattr(self, name)!r}")
        for name in ("watts", "memory_gib", "memory_bytes_per_second", "host_bytes_per_second"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise PlanError(f"{name} must be above 0, got {getattr(self, name)!r}")
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            raise PlanError(f"{self.gpus} GPUs do not fill nodes of {self.gpus_per_node}; give whole nodes")
        if specs.get(self.device).memory_bytes is None:
            raise PlanError(f"{self.device} has no memory of its own on record; choose a GPU of mlsys_labkit.specs")

    @classmethod
    def named(cls, name: str, gpus: int) -> Cluster:
        """Return a cluster of ``gpus`` GPUs of a kind in ``planner.CLUSTERS``. Raises PlanError for other names.

        Of racks of 72 GPUs that they do not fill, jobs use 64, so that powers of two fit.

        Example:
            >>> Cluster.named("gb200-nvl72", gpus=256).nodes
            4
        """
        if name not in CLUSTERS:
            raise PlanError(f"no cluster {name!r}; there are {', '.join(CLUSTERS)}")
        cluster = CLUSTERS[name]
        if gpus > cluster.gpus_per_node and gpus % cluster.gpus_per_node and cluster.gpus_per_node > 64:
            return replace(cluster, gpus=gpus, gpus_per_node=64)  # eight of a rack's 72 GPUs stay idle
        return replace(cluster, gpus=gpus)

    @property
    def nodes(self) -> int:
        return math.ceil(self.gpus / self.gpus_per_node)

    @property
    def memory_bytes(self) -> int:
        """Memory of one GPU."""
        return round(self.memory_gib * 2**30) if self.memory_gib else specs.get(self.device).memory_bytes or 0

    def peak(self, dtype: str) -> float:
        """Return the dense peak of one GPU in FLOP/s."""
        return specs.get(self.device).peak(dtype)

    @property
    def clock_factor(self) -> float:
        """The clock under ``watts`` over that under the datasheet's power."""
        return math.sqrt(self.watts / specs.get(self.device).facts["tdp"].value) if self.watts else 1.0

    @property
    def bandwidth(self) -> float:
        """Bytes per second between one GPU and its memory."""
        return self.memory_bytes_per_second or specs.get(self.device).bandwidth()

    def link(self, stride: int, size: int) -> Link:
        """Return the link to the next rank in the ring of a group of ``size`` ranks that are ``stride`` apart.

        A group that spans several nodes shares the ports of a node with the other groups: with ``k`` members in a node,
        it gets the bandwidth of ``k`` ports, but no more than the link inside the node.

        Example:
            >>> cluster = Cluster(gpus=64)
            >>> [cluster.link(stride, 8).bytes_per_second / 1e9 for stride in (1, 4, 8)]
            [450.0, 100.0, 50.0]
        """
        if stride * size <= self.gpus_per_node:
            return self.intra
        inside = max(1, min(size, self.gpus_per_node // stride))
        rate = self.inter.bytes_per_second * inside
        return replace(self.inter, bytes_per_second=min(self.intra.bytes_per_second, rate) if inside > 1 else rate)


CLUSTERS = {
    "dgx-a100": Cluster(
        8,
        device="a100-sxm-80gb",
        intra=FABRICS["nvlink3"].link,
        inter=FABRICS["hdr-200g"].link,
        host=FABRICS["pcie4-x16"].link,
        host_bytes_per_second=2 * 204.8e9 / 8,  # two EPYC 7742, 8 x DDR4-3200 each
    ),
    "dgx-h100": Cluster(8),
    "dgx-h200": Cluster(8, device="h200"),
    "dgx-b200": Cluster(8, device="b200", intra=FABRICS["nvlink5"].link),
    "h800": Cluster(8, intra=FABRICS["nvlink4-h800"].link),
    "gb200-nvl72": Cluster(72, 72, device="gb200", intra=FABRICS["nvlink5"].link),
    "gb300-nvl72": Cluster(
        72,
        72,
        device="gb200",
        intra=FABRICS["nvlink5"].link,
        inter=FABRICS["xdr-800g"].link,
        watts=1400,
        memory_gib=278,  # 20 TB a rack: nvidia.com/en-us/data-center/gb300-nvl72; the chip's dense rates are GB200's
    ),
}
"""Name -> ``Cluster`` of one node."""
