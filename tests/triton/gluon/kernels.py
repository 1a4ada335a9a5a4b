"""Gluon kernels for the tests of values, refusals and deadlocks."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.core import _aggregate as aggregate

FLAT = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
BLOCKED = gl.constexpr(gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))


@gluon.jit
def transposed(x, out, columns: gl.constexpr, rows: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, rows, gl.SliceLayout(1, layout))
    j = gl.arange(0, columns, gl.SliceLayout(0, layout))
    value = gl.load(x + i[:, None] * columns + j[None, :], mask=(i < rows - 1)[:, None], other=-1.0)
    turned = value.permute(1, 0)
    back = gl.convert_layout(turned, layout)
    k = gl.arange(0, columns, gl.SliceLayout(1, layout))
    m = gl.arange(0, rows, gl.SliceLayout(0, layout))
    gl.store(out + k[:, None] * rows + m[None, :], back)


@gluon.jit
def two_layouts(x, out):
    a = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    b = gl.arange(0, 128, gl.BlockedLayout([2], [32], [4], [0]))
    gl.store(out + a, gl.load(x + (a + b)))


@gluon.jit
def wrong_slice(x, out):
    a = gl.arange(0, 64, gl.SliceLayout(0, BLOCKED))
    gl.store(out + a, gl.load(x + a[:, None]))


@gluon.jit
def eight_warps(x, out):
    i = gl.arange(0, 256, gl.BlockedLayout([1], [32], [8], [0]))
    gl.store(out + i, gl.load(x + i))


@gluon.jit
def views(x, out):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, 16, gl.SliceLayout(0, layout))[None, :]
    value = gl.load(x + i * 16 + j)
    tile = gl.allocate_shared_memory(gl.float32, [2, 16, 16], gl.NVMMASharedLayout(32, 32, 2))
    tile.index(1).store(value)
    part = tile.index(1).slice(8, 8, dim=1).permute((1, 0))  # the right half, turned: 8 x 16
    m = gl.arange(0, 8, gl.SliceLayout(1, layout))[:, None]
    gl.store(out + m * 16 + j, part.load(layout))
    bits = tile.index(1)._reinterpret(gl.int32, [16, 16], gl.NVMMASharedLayout(32, 32, 2))
    gl.store(out + 128 + m * 16 + j, bits.slice(0, 8, dim=0).load(layout).to(gl.float32, bitcast=True))


@aggregate
class Counter:
    index: gl.tensor
    phase: gl.tensor
    count: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, index, phase, count):
        self.index = index
        self.phase = phase
        self.count = gl.constexpr(count)

    @gluon.jit
    def next(self):
        more = self.index + 1
        over = more == self.count
        return Counter(gl.where(over, 0, more), gl.where(over, self.phase ^ 1, self.phase), self.count)


@gluon.jit
def producer(memory, empty, full, steps: gl.constexpr):
    state = Counter(gl.to_tensor(0), gl.to_tensor(1), memory.shape[0])
    for k in range(steps):
        mbarrier.wait(empty.index(state.index), state.phase)
        memory.index(state.index).store(gl.full([32], 0, gl.int32, gl.BlockedLayout([1], [32], [1], [0])) + k)
        mbarrier.arrive(full.index(state.index), count=1)
        state = state.next()


@gluon.jit
def consumer(memory, empty, full, out, steps: gl.constexpr, LEAVES_OUT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    total = gl.zeros([32], gl.int32, layout)
    state = Counter(gl.to_tensor(0), gl.to_tensor(0), memory.shape[0])
    for _ in range(steps):
        mbarrier.wait(full.index(state.index), state.phase)
        total = total * 2 + memory.index(state.index).load(layout)
        if not LEAVES_OUT:
            mbarrier.arrive(empty.index(state.index), count=1)
        state = state.next()
    gl.store(out + gl.arange(0, 32, layout), total)


@gluon.jit
def pipeline(out, steps: gl.constexpr, LEAVES_OUT: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.int32, [2, 32], FLAT)
    empty = mbarrier.allocate_mbarrier(batch=2)
    full = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(full.index(i), count=1)
    gl.warp_specialize(
        [(consumer, (memory, empty, full, out, steps, LEAVES_OUT)), (producer, (memory, empty, full, steps))], [1], [24]
    )


@gluon.jit
def waits_for_nothing():
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=2)
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 0)


@gluon.jit
def not_initialised():
    mbarrier.wait(mbarrier.allocate_mbarrier(), 0)


@gluon.jit
def copies_arrive(x, out, memory, bar, warps: gl.constexpr, count: gl.constexpr, INCREMENTS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [warps], [0])
    i = gl.arange(0, 128, layout)
    mbarrier.init(bar, count=count)
    async_copy.async_copy_global_to_shared(memory, x + i)
    async_copy.mbarrier_arrive(bar, increment_count=INCREMENTS)
    if INCREMENTS:
        mbarrier.arrive(bar, count=count)
    mbarrier.wait(bar, 0)
    gl.store(out + i, memory.load(layout))


@gluon.jit
def _nothing():
    pass


@gluon.jit
def copies_arrive_in_a_partition(x, out, warps: gl.constexpr, count: gl.constexpr, INCREMENTS: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [128], FLAT)
    bar = mbarrier.allocate_mbarrier()
    gl.warp_specialize(
        [(_nothing, ()), (copies_arrive, (x, out, memory, bar, warps, count, INCREMENTS))], [warps], [24]
    )


@gluon.jit
def allocates_too_much(x, out):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    value = gl.load(x + gl.arange(0, 128, layout))
    first = gl.allocate_shared_memory(gl.float32, [128], FLAT)
    first.store(value)
    memory = gl.allocate_shared_memory(gl.float32, [512, 128], FLAT)
    memory.index(0).store(value)
    gl.store(out + gl.arange(0, 128, layout), memory.index(0).load(layout) + first.load(layout))


@gluon.jit
def needs_too_much_at_once(x, out):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.arange(0, 128, layout)
    first = gl.allocate_shared_memory(gl.float32, [256, 128], FLAT)
    second = gl.allocate_shared_memory(gl.float32, [256, 128], FLAT)
    second.index(0).store(gl.load(x + i))
    gl.store(out + i, second.index(0).load(layout))
    first.index(0).store(gl.load(x + i))
    gl.store(out + i, first.index(0).load(layout))


@gluon.jit
def allocates_in_each_turn(x, out, turns):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.arange(0, 128, layout)
    gl.allocate_shared_memory(gl.float32, [256, 128], FLAT)
    whole = gl.allocate_shared_memory(gl.float32, [128, 128], FLAT)
    for _ in range(turns):
        memory = gl.allocate_shared_memory(gl.float32, [256, 128], FLAT)
        memory.index(0).store(gl.load(x + i))
        whole.index(0).store(memory.index(0).load(layout))
        gl.store(out + i, whole.index(0).load(layout))
