"""Tests of Gluon's values, and of what is refused, as its compiler refuses it. Errors name the line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from triton.experimental.gluon import language as gl

from mlsys_labkit.triton_trace import RefusedSourceError, TritonKernelError, trace
from tests.triton.gluon import kernels
from tests.triton.gluon.planted_bugs import partitions_without_barrier


def test_layouts_leave_the_values_alone() -> None:
    x = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    expected = np.where(np.arange(16)[:, None] < 15, x, -1).T
    for layout in (
        gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]),
        gl.BlockedLayout([2, 1], [8, 4], [1, 4], [0, 1]),
        gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8]),
    ):
        out = np.zeros((32, 16), np.float32)
        kernels.transposed[1,](x, out, 32, 16, layout)
        assert np.array_equal(out, expected), layout


def test_views_of_shared_memory_reach_the_elements_that_they_name() -> None:
    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    out = np.zeros((16, 16), np.float32)
    kernels.views[1,](x, out)
    assert np.array_equal(out[:8], x[:, 8:].T)
    assert np.array_equal(out[8:], x[:8])


def test_partitions_take_turns_at_barriers() -> None:
    out = np.zeros(32, np.int32)
    assert [one for one in trace(kernels.pipeline)[1,](out, 7, False).findings if one.severity == "error"] == []
    assert set(out) == {sum(k << (6 - k) for k in range(7))}


def test_partitions_without_a_barrier_race() -> None:
    (found,) = (
        one
        for one in trace(partitions_without_barrier)[1,](np.zeros(1), np.zeros(32, np.float32), BUG=True).findings
        if one.kind == "shared_race"
    )
    assert found.source_line.startswith(("memory.store", "gl.store"))
    clean = trace(partitions_without_barrier)[1,](np.zeros(1), np.zeros(32, np.float32), BUG=False)
    assert [str(one) for one in clean.findings if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("kernel", "arguments", "told"),
    [
        (
            kernels.two_layouts,
            2,
            r"Layout mismatch in broadcast: BlockedLayout\(size_per_thread=\[1.* vs BlockedLayout\(size_per_thread=\[2",
        ),
        (kernels.wrong_slice, 2, "expected expand_dims input layout to be sliced in axis 1 but got 0"),
        (kernels.eight_warps, 2, "for 8 warps, and 4 run here"),
        (kernels.waits_for_nothing, 0, r"deadlock: it waits forever, for phase 0 .* waits for 1 of 2 arrivals"),
        (kernels.not_initialised, 0, "is not initialised: mbarrier.init comes first"),
        (kernels.allocates_too_much, 2, r"\D262,144 bytes of shared memory are more than the 232,448"),
        (kernels.needs_too_much_at_once, 2, "131,072 bytes .* line \\d+ make 262,144 that are needed at once"),
    ],
)
def test_what_cannot_run_is_refused_in_its_line(kernel: Any, arguments: int, told: str) -> None:
    with pytest.raises(TritonKernelError, match=told) as refused:
        kernel[1,](*(np.zeros(512, np.float32) for _ in range(arguments)))
    assert refused.value.line > 0


def test_bytes_of_shared_memory_are_free_after_their_last_use() -> None:
    x = np.arange(1, 257, dtype=np.float32)
    out = np.zeros(256, np.float32)
    kernels.allocates_in_each_turn[1,](x, out, 3)
    assert np.array_equal(out[:128], x[:128])


def test_a_deadlock_of_partitions_names_every_wait() -> None:
    with pytest.raises(TritonKernelError, match="every partition waits") as refused:
        kernels.pipeline[1,](np.zeros(32, np.int32), 7, True)
    assert len(re.findall(r"partition \d in kernels.py line \d+", str(refused.value))) == 2
    out = np.zeros(32, np.int32)
    kernels.pipeline[1,](out, 2, True)  # both buffers are free at first
    assert set(out) == {1}


def test_each_thread_of_a_partition_arrives_for_its_copies() -> None:
    x = np.arange(128, dtype=np.float32)
    for warps, count, increments in ((4, 128, False), (2, 64, False), (4, 1, True), (2, 3, True)):
        out = np.zeros(128, np.float32)
        found = trace(kernels.copies_arrive_in_a_partition)[1,](x, out, warps, count, increments).findings
        assert [str(one) for one in found if one.severity == "error"] == []
        assert np.array_equal(out, x), (warps, count, increments)
    with pytest.raises(TritonKernelError, match="waits for 64 of 128 arrivals"):
        kernels.copies_arrive_in_a_partition[1,](x, x, 2, 128, False)


def test_blackwell_is_refused_by_name() -> None:
    from tests.triton.gluon.blackwell_kernel import tensor_memory

    with pytest.raises(RefusedSourceError, match="need a Blackwell GPU"):
        tensor_memory[1,]()
