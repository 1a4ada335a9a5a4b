"""Correct kernels with bulk copies, mbarriers and clusters, and edits that plant one bug in each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("hopper")
INCLUDES = """#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
"""

RING = (_FOLDER / "ring.cu").read_text()
STORE = (_FOLDER / "store.cu").read_text()
CLUSTER = (_FOLDER / "reduce.cu").read_text()
MULTICAST = (_FOLDER / "multicast.cu").read_text()
PTX = (_FOLDER / "exchange.cu").read_text()


class Planted(NamedTuple):
    """One bug: what is replaced in a correct kernel, and the finding that names it."""

    kernel: str
    old: str
    new: str
    kind: str
    marker: str  # on the line of the finding
    words: str  # in its message


BUGS = {
    "the consumers do not wait": Planted(
        RING, "while (!ptx::mbarrier_try_wait_parity(&full[stage], parity)) {}  // wait full", "",
        "unfinished_copy", "// read", "has not waited for the phase",
    ),
    "the consumers wait for the other parity": Planted(
        RING, "&full[stage], parity)", "&full[stage], parity ^ 1)", "unfinished_copy", "// read", "the other parity",
    ),
    "the consumers never turn the parity": Planted(
        RING, "&full[stage], parity)", "&full[stage], 0)", "stuck_barrier", "// wait empty", "check its parity",
    ),
    "the producer does not wait": Planted(
        RING, "while (!ptx::mbarrier_try_wait_parity(&empty[stage], parity ^ 1)) {}  // wait empty", "",
        "surplus_arrival", "ptx::mbarrier_arrive_expect_tx", "arrives more often",
    ),
    "one lane releases for its warp": Planted(
        RING.replace("&empty[i], consumers)", "&empty[i], consumers / 32)"),
        "ptx::mbarrier_arrive(&empty[stage]);  // release",
        "if (t % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);  // release", "early_overwrite",
        "ptx::cp_async_bulk(", "accesses at line",
    ),
    "the consumers release before they read": Planted(
        RING, "            sum += s[stage][t] + s[stage][t + consumers];  // read\n"
        "            ptx::mbarrier_arrive(&empty[stage]);  // release",
        "            ptx::mbarrier_arrive(&empty[stage]);  // release\n"
        "            sum += s[stage][t] + s[stage][t + consumers];  // read",
        "early_overwrite", "ptx::cp_async_bulk(", "",
    ),
    "too many bytes are expected": Planted(
        RING, "&full[stage], sizeof s[0]);", "&full[stage], sizeof s[0] + 16);",
        "stuck_barrier", "// wait full", "16 of 528 expected bytes have not been copied",
    ),
    "too few bytes are expected": Planted(
        RING, "&full[stage], sizeof s[0]);", "&full[stage], sizeof s[0] / 2);",
        "byte_count", "ptx::cp_async_bulk(", "256 bytes more",
    ),
    "too many arrivals are wanted": Planted(
        RING, "&empty[i], consumers)", "&empty[i], consumers + 1)",
        "stuck_barrier", "// wait empty", "1 of 65 arrivals are missing",
    ),
    "a barrier is not initialised": Planted(
        RING, "ptx::mbarrier_init(&full[i], 1);  // init full", "", "unset_barrier",
        "ptx::mbarrier_arrive_expect_tx", "full",
    ),
    "nothing orders a barrier's first use after its init": Planted(
        RING, "    __syncthreads();\n", "", "unset_barrier", "// wait full", "nothing orders the two",
    ),
    "no thread makes the barrier visible to the copy": Planted(
        STORE, "ptx::fence_proxy_async(ptx::space_shared);  // fence init", "",
        "missing_proxy_fence", "// load", "which thread (0, 0, 0) initialises",
    ),
    "no thread makes its data visible to the copy": Planted(
        STORE, "ptx::fence_proxy_async(ptx::space_shared);  // fence data", "",
        "missing_proxy_fence", "// store", "without fence.proxy.async",
    ),
    "the store starts before others have written": Planted(
        STORE, "        __syncthreads();\n        if (threadIdx.x == 0) {\n            ptx::cp",
        "        if (threadIdx.x == 0) {\n            ptx::cp", "source_in_use", "// change", "a barrier has to follow",
    ),
    "the source of a store is reused": Planted(
        STORE, "ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // wait group", "",
        "source_in_use", "// load", "may still read",
    ),
    "the bulk group is not committed": Planted(
        STORE, "ptx::cp_async_bulk_commit_group();  // commit", "", "source_in_use", "// load", "not committed",
    ),
    "the copy has an odd size": Planted(
        STORE, "(sizeof s), bar);  // load", "(sizeof s - 4), bar);  // load", "misaligned_copy", "// load",
        "1020 bytes",
    ),
    "the copy starts at an odd address": Planted(
        STORE, "(s, data + 256 * i,", "(s, data + 256 * i + 1,", "misaligned_copy", "// load", "4 bytes behind",
    ),
    "one thread alone waits": Planted(
        STORE, "bar.wait(std::move(token));  // wait", "if (threadIdx.x == 0) bar.wait(std::move(token));  // wait",
        "unfinished_copy", "// change", "by thread (0, 0, 0)",
    ),
    "the block ends before its copy": Planted(
        STORE, "bar.wait(std::move(token));  // wait", "return;", "abandoned_copy", "// load", "no thread waits",
    ),
    "a block reads before its peers have begun": Planted(
        CLUSTER, "cluster.sync();  // begun", "__syncthreads();", "cluster_peer", "// remote write",
        "before the first cluster.sync()",
    ),
    "the sum is read too early": Planted(
        CLUSTER, "cluster.sync();  // written", "", "shared_race", "// remote write", "",
    ),
    "a block ends while another writes to it": Planted(
        CLUSTER, "    cluster.sync();  // begun",
        "    cluster.sync();  // begun\n    if (cluster.block_rank() == 0) return;",
        "cluster_peer", "// remote write", "which has ended",
    ),
    "a rank that is not there": Planted(
        CLUSTER, "map_shared_rank(parts, 0)", "map_shared_rank(parts, 4)", "cluster_peer", "// remote write", "rank 4",
    ),
    "a multicast copy is expected by one block alone": Planted(
        MULTICAST, "        ptx::mbarrier_arrive_expect_tx(",
        "        if (cluster.block_rank() == 0) ptx::mbarrier_arrive_expect_tx(",
        "stuck_barrier", "// wait", "",
    ),
}  # fmt: skip
