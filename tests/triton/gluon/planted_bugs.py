"""Gluon kernels with a planted bug each, which ``BUG=False`` takes out; the line of the finding ends in ``# @``."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ROW = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
TILE = gl.constexpr(gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))
FLAT = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
MMA = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))


@gluon.jit
def copy_without_wait(x, out, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    memory = gl.allocate_shared_memory(gl.float32, [128], FLAT)
    async_copy.async_copy_global_to_shared(memory, x + i)
    async_copy.commit_group()
    if not BUG:
        async_copy.wait_group(0)
    gl.store(out + i, memory.load(ROW))  # @


@gluon.jit
def copy_waits_for_the_group_before(x, out, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    memory = gl.allocate_shared_memory(gl.float32, [2, 128], FLAT)
    for k in gl.static_range(2):
        async_copy.async_copy_global_to_shared(memory.index(k), x + k * 128 + i)
        async_copy.commit_group()
    async_copy.wait_group(1 if BUG else 0)
    gl.store(out + i, memory.index(0).load(ROW) + memory.index(1).load(ROW))  # @


@gluon.jit
def copy_without_commit(x, out, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    memory = gl.allocate_shared_memory(gl.float32, [128], FLAT)
    async_copy.async_copy_global_to_shared(memory, x + i)  # @
    if not BUG:
        async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + i, memory.load(ROW))


@gluon.jit
def copy_into_a_buffer_that_is_filled(x, out, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    memory = gl.allocate_shared_memory(gl.float32, [2, 128], FLAT)
    async_copy.async_copy_global_to_shared(memory.index(0), x + i)
    async_copy.commit_group()
    async_copy.async_copy_global_to_shared(memory.index(0 if BUG else 1), x + 128 + i)  # @
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + i, memory.index(0).load(ROW))


@gluon.jit
def memory_that_nothing_wrote(x, out, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    memory = gl.allocate_shared_memory(gl.float32, [2, 128], FLAT)
    memory.index(0).store(gl.load(x + i))
    gl.store(out + i, memory.index(1 if BUG else 0).load(ROW))  # @


@gluon.jit
def load_without_wait(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [0, 0], bar, memory)
    if not BUG:
        mbarrier.wait(bar, 0)
    row = memory.load(TILE)  # @
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, TILE)), gl.sum(row.to(gl.float32), 1))
    mbarrier.wait(bar, 0)


@gluon.jit
def wait_for_the_wrong_phase(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [0, 0], bar, memory)
    mbarrier.wait(bar, 1 if BUG else 0)  # @
    row = memory.load(TILE)
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, TILE)), gl.sum(row.to(gl.float32), 1))


@gluon.jit
def arrive_in_place_of_expect(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    if BUG:
        mbarrier.arrive(bar, count=1)
    else:
        mbarrier.expect(bar, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [0, 0], bar, memory)  # @
    mbarrier.wait(bar, 0)
    row = memory.load(TILE)
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, TILE)), gl.sum(row.to(gl.float32), 1))


@gluon.jit
def expect_half_of_the_bytes(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes // 2 if BUG else x.block_type.nbytes)  # @
    tma.async_copy_global_to_shared(x, [0, 0], bar, memory)
    mbarrier.wait(bar, 0)
    row = memory.load(TILE)
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, TILE)), gl.sum(row.to(gl.float32), 1))


@gluon.jit
def store_without_fence(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    memory.store(gl.full([64, 64], 1, x.dtype, TILE))
    if not BUG:
        fence_async_shared()
    tma.async_copy_shared_to_global(x, [0, 0], memory)  # @
    tma.store_wait(0)


@gluon.jit
def store_over_a_buffer_that_is_read(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    for k in gl.static_range(2):
        memory.store(gl.full([64, 64], k, x.dtype, TILE))  # @
        fence_async_shared()
        tma.async_copy_shared_to_global(x, [0, 0], memory)
        if not BUG:
            tma.store_wait(0)
    tma.store_wait(0)


@gluon.jit
def end_without_store_wait(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    memory.store(gl.full([64, 64], 1, x.dtype, TILE))
    fence_async_shared()
    tma.async_copy_shared_to_global(x, [0, 0], memory)  # @
    if not BUG:
        tma.store_wait(0)


@gluon.jit
def product_used_too_early(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    memory.store(gl.full([64, 64], 1, x.dtype, TILE))
    fence_async_shared()
    total = warpgroup_mma(memory, memory, gl.zeros([64, 64], gl.float32, MMA), is_async=True)
    total = warpgroup_mma(memory, memory, total, is_async=True)  # products into one accumulator follow one another
    total = warpgroup_mma_wait(1 if BUG else 0, deps=[total])
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, MMA)), gl.sum(total, 1))  # @
    warpgroup_mma_wait(0, deps=[total])


@gluon.jit
def operand_overwritten_during_a_product(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    memory.store(gl.full([64, 64], 1, x.dtype, TILE))
    fence_async_shared()
    total = warpgroup_mma(memory, memory, gl.zeros([64, 64], gl.float32, MMA), is_async=True)
    total = warpgroup_mma_wait(1 if BUG else 0, deps=[total])
    memory.store(gl.full([64, 64], 2, x.dtype, TILE))  # @
    total = warpgroup_mma_wait(0, deps=[total])
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, MMA)), gl.sum(total, 1))


@gluon.jit
def barrier_twice_initialised(x, out, BUG: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    if not BUG:
        mbarrier.invalidate(bar)
    mbarrier.init(bar, count=1)  # @


@gluon.jit
def copies_arrive_once_for_each_thread(x, out, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    memory = gl.allocate_shared_memory(gl.float32, [128], FLAT)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1 if BUG else 128)
    async_copy.async_copy_global_to_shared(memory, x + i)
    async_copy.mbarrier_arrive(bar, increment_count=False)  # @
    mbarrier.wait(bar, 0)
    gl.store(out + i, memory.load(ROW))


@gluon.jit
def _producer(memory, full, BUG: gl.constexpr):
    memory.store(gl.full([32], 7, gl.float32, gl.BlockedLayout([1], [32], [1], [0])))
    mbarrier.arrive(full, count=1)


@gluon.jit
def _consumer(memory, full, out, BUG: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    other = mbarrier.allocate_mbarrier()
    mbarrier.init(other, count=1)
    if not BUG:
        mbarrier.wait(full, 0)
    gl.store(out + gl.arange(0, 32, layout), memory.load(layout))


@gluon.jit
def partitions_without_barrier(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [32], FLAT)
    memory.store(gl.full([32], 1, gl.float32, ROW))
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    gl.warp_specialize([(_consumer, (memory, full, out, BUG)), (_producer, (memory, full, BUG))], [1], [24])


@gluon.jit
def _waits_for_a_copy(full):
    mbarrier.wait(full, 0)


@gluon.jit
def _answers(asked, answered):
    mbarrier.wait(asked, 0)
    mbarrier.arrive(answered, count=1)


@gluon.jit
def _reads_its_copy(x, out, memory, full, asked, answered, BUG: gl.constexpr):
    i = gl.arange(0, 128, ROW)
    async_copy.async_copy_global_to_shared(memory, x + i)
    async_copy.mbarrier_arrive(full, increment_count=False)
    mbarrier.arrive(asked, count=1)
    mbarrier.wait(answered, 0)
    if not BUG:
        mbarrier.wait(full, 0)
    gl.store(out + i, memory.load(ROW))


@gluon.jit
def copy_that_another_partition_waits_for(x, out, BUG: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [128], FLAT)
    full = mbarrier.allocate_mbarrier()
    asked = mbarrier.allocate_mbarrier()
    answered = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=128)
    mbarrier.init(asked, count=1)
    mbarrier.init(answered, count=1)
    gl.warp_specialize(
        [
            (_waits_for_a_copy, (full,)),
            (_answers, (asked, answered)),
            (_reads_its_copy, (x, out, memory, full, asked, answered, BUG)),
        ],
        [1, 4],
        [24, 24],
    )


# kernel -> (kind of its finding, whether x is a descriptor)
PLANTED = {
    copy_without_wait: ("missing_wait", False),
    copy_waits_for_the_group_before: ("missing_wait", False),
    copy_without_commit: ("missing_commit", False),
    copy_into_a_buffer_that_is_filled: ("buffer_reuse", False),
    memory_that_nothing_wrote: ("unwritten_shared", False),
    load_without_wait: ("missing_wait", True),
    wait_for_the_wrong_phase: ("wrong_phase", True),
    arrive_in_place_of_expect: ("missing_expect", True),
    expect_half_of_the_bytes: ("wrong_byte_count", True),
    store_without_fence: ("missing_fence", True),
    store_over_a_buffer_that_is_read: ("buffer_reuse", True),
    end_without_store_wait: ("missing_wait", True),
    product_used_too_early: ("missing_wait", True),
    operand_overwritten_during_a_product: ("buffer_reuse", True),
    barrier_twice_initialised: ("barrier_reuse", False),
    copies_arrive_once_for_each_thread: ("too_many_arrivals", False),
}
