"""The builder of Gluon: Triton's operations on blocks, and those on shared memory, barriers and tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl

from mlsys_labkit.triton_trace.gluon.barriers import BarrierOperations, number_of
from mlsys_labkit.triton_trace.gluon.encoding import SharedEncoding
from mlsys_labkit.triton_trace.gluon.inference import inference
from mlsys_labkit.triton_trace.gluon.operations import Operation, SharedOperations
from mlsys_labkit.triton_trace.gluon.partitions import Partitions
from mlsys_labkit.triton_trace.gluon.shared import SharedView, allocated
from mlsys_labkit.triton_trace.gluon.unfinished import finished, require_finished, unfinished
from mlsys_labkit.triton_trace.interpret.builder import Builder
from mlsys_labkit.triton_trace.interpret.descriptor import Descriptor
from mlsys_labkit.triton_trace.interpret.handles import handle_of
from mlsys_labkit.triton_trace.interpret.private import Handle
from mlsys_labkit.triton_trace.interpret.run import Refused

_COMMIT = "async_copy.wait_group comes first"
_ARRIVAL = "mbarrier.wait comes first"
_READ = "tma.store_wait comes first"
_PRODUCT = "warpgroup_mma_wait comes first"


class GluonBuilder(Builder):
    """The operations of Gluon, carried out by numpy; a program begins with ``begin``."""

    shared: SharedOperations
    barriers: BarrierOperations
    partitions: Partitions

    def __init__(self) -> None:
        super().__init__()
        self.options = SimpleNamespace(**vars(self.options), num_ctas=1, enable_iisan=False)

    def begin(self) -> None:
        self.partitions = Partitions(self.warps)
        self.shared = SharedOperations(self.running, self.partitions)
        self.barriers = BarrierOperations(self.running, self.shared)

    def end(self) -> None:
        self.shared.end()

    # Types and layouts

    def get_distributed_ty(self, element: Any, shape: Any, layout: Any) -> Any:
        return tl.block_type(element, shape)

    def get_shared_mem_desc_ty(self, element: Any, shape: Any, encoding: Any, allocated_shape: Any) -> Any:
        return element, tuple(shape), encoding

    def get_tensor_descriptor_layout_type(self, block: Any, is_signed: bool, encoding: Any) -> Any:
        return list(block.shape)

    def _encoding(self, rank: int, attribute: Any) -> SharedEncoding:
        return SharedEncoding(inference(4), rank, attribute)

    def get_nvmma_shared_layout(self, *layout: Any) -> SharedEncoding:
        return self._encoding(layout[-1], self._theirs.get_nvmma_shared_layout(*layout))

    def get_swizzled_shared_layout(self, *layout: Any) -> SharedEncoding:
        return self._encoding(len(layout[3]), self._theirs.get_swizzled_shared_layout(*layout))

    def get_shared_linear_layout(self, bases: Any, blocks: Any, alignment: int) -> SharedEncoding:
        return self._encoding(len(bases[0]), self._theirs.get_shared_linear_layout(bases, blocks, alignment))

    def get_padded_shared_layout(self, intervals: Any, paddings: Any, bases: Any, cga: Any, shape: Any) -> Any:
        pairs = tuple(zip(intervals, paddings, strict=True))
        return SharedEncoding(inference(4), len(shape), None, bases, pairs)

    @property
    def _theirs(self) -> Any:
        return inference(4).builder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_") and name.endswith("_layout"):
            return getattr(self._theirs, name)
        return super().__getattr__(name)

    def create_convert_layout(self, kind: Any, value: Any) -> Any:
        return Handle(value.data, value.dtype.scalar)

    def create_set_auto_layout(self, layout: Any, value: Any) -> Any:
        return Handle(value.data, value.dtype.scalar)

    def create_broadcast(self, value: Any, shape: Any) -> Any:
        return super().create_broadcast(value, getattr(shape, "shape", shape))

    # Shared memory

    def create_local_alloc(self, kind: Any, value: Any = None) -> SharedView:
        element, shape, encoding = kind
        made = allocated(shape, element, encoding, self.running.line())
        self.shared.capacity.add(made.allocation)
        if value is not None:
            self.create_local_store(made, value)
        return made

    def create_local_dealloc(self, view: SharedView) -> None:
        """Do nothing: memory lives as long as the program."""

    def create_local_load(self, kind: Any, view: SharedView) -> Any:
        return view.read() if self.running.dry else self.shared.read(view)

    def create_local_store(self, view: SharedView, value: Any) -> None:
        if not self.running.dry:
            self.shared.write(view, value.data)

    def create_local_gather(self, kind: Any, view: SharedView, indices: Any, axis: int) -> Any:
        places = np.take_along_axis(view.places, indices.data.astype(np.int64), axis)
        return self.create_local_load(kind, view.moved(places))

    def create_local_scatter(self, view: SharedView, values: Any, indices: Any, axis: int) -> None:
        places = np.take_along_axis(view.places, indices.data.astype(np.int64), axis)
        self.create_local_store(view.moved(places), values)

    def create_memdesc_index(self, kind: Any, view: SharedView, index: Any) -> SharedView:
        return view.at(0) if self.running.dry else view.index(number_of(index))

    def create_memdesc_subslice(self, kind: Any, view: SharedView, offsets: Any) -> SharedView:
        pairs = zip(offsets, kind[1], view.shape, strict=True)
        if any(start < 0 or start + length > whole for start, length, whole in pairs):
            raise Refused(f"a slice of {list(kind[1])} from {list(offsets)} leaves its block of {list(view.shape)}")
        return view.at(tuple(slice(start, start + n) for start, n in zip(offsets, kind[1], strict=True)))

    def create_memdesc_trans(self, view: SharedView, order: Any) -> SharedView:
        return self._rearranged("memdesc_trans", view, view.places.transpose(order), order)

    def create_memdesc_reshape(self, view: SharedView, shape: Any) -> SharedView:
        return self._rearranged("memdesc_reshape", view, view.places.reshape(shape), shape)

    def _rearranged(self, operation: str, view: SharedView, places: Any, parameter: Any) -> SharedView:
        attribute, bits = view.encoding.attribute, 8 * view.itemsize
        if attribute is None:
            raise Refused("a view with a padded layout is neither permuted nor reshaped")
        layout = inference(4).memory_result(operation, attribute, view.shape, bits, parameter)
        return SharedView(view.allocation, places, view.dtype, layout._to_ir(self), layout)

    def create_memdesc_reinterpret(self, kind: Any, view: SharedView) -> SharedView:
        element, shape, encoding = kind
        return view.reinterpreted(shape, element, encoding)

    def get_gluon_layout_from_memdesc(self, view: SharedView) -> Any:
        return view.layout

    # Copies of Ampere

    def create_async_copy_global_to_local(self, view: SharedView, pointers: Any, mask: Any, *rest: Any) -> None:
        on = mask if type(mask) is Handle else None
        zero = handle_of(np.zeros(1, np.float32), pointers.get_element_ty())
        values = self._load(pointers, on, zero if on else None).data
        if self.running.dry:
            return
        operation = Operation(self.running.line(), _COMMIT, lambda: view.write(values), committed=False)
        self.shared.write_later(view, "async copy", operation, generic=True)
        self.shared.mine.uncommitted.append(operation)

    def create_async_commit_group(self) -> None:
        if not self.running.dry:
            self.shared.commit()

    def create_async_wait_group(self, outstanding: int) -> None:
        if not self.running.dry:
            self.shared.wait_groups(outstanding)

    def create_async_copy_mbarrier_arrive(self, view: SharedView, increment: bool) -> None:
        if self.running.dry:
            return
        copies = self.shared.take_copies(_ARRIVAL)
        threads = 32 * self.partitions.warps  # each executes cp.async.mbarrier.arrive, which Triton does not predicate

        def land() -> None:
            for one in copies:  # the partition that runs may be another: only who waits learns of them, from ``seen``
                one.land()

        arrival = Operation(self.running.line(), _ARRIVAL, land, arrivals=threads)
        self.barriers.signal(view, arrival)
        arrival.seen |= {one.number: 1 for one in copies}
        if increment:
            self.barriers.of(view).pending += threads

    # Barriers and fences

    def create_mbarrier_init(self, view: SharedView, count: int) -> None:
        if not self.running.dry:
            self.barriers.init(view, count)

    def create_mbarrier_inval(self, view: SharedView) -> None:
        if not self.running.dry:
            self.barriers.invalidate(view)

    def create_mbarrier_expect(self, view: SharedView, size: int, predicate: Any) -> None:
        if not self.running.dry and number_of(predicate):
            self.barriers.expect(view, size)

    def create_mbarrier_arrive(self, view: SharedView, count: int, predicate: Any) -> None:
        if not self.running.dry and number_of(predicate):
            self.barriers.arrive(view, count)

    def create_mbarrier_wait(self, view: SharedView, phase: Any, predicate: Any, kept: Any) -> None:
        if not self.running.dry and number_of(predicate):
            self.barriers.wait(view, number_of(phase) & 1)

    def create_fence_async_shared(self, cluster: bool) -> None:
        if not self.running.dry:
            self.shared.fence()

    # Copies of the tensor memory accelerator

    def create_make_tensor_descriptor(self, *parts: Any) -> Any:  # in another order than Triton's own
        block, base, shape, strides, padding = parts
        return Descriptor(base, shape, strides, block, padding)

    def create_async_tma_copy_global_to_local(
        self,
        descriptor: Descriptor,
        offsets: Any,
        barrier: SharedView,
        view: SharedView,
        predicate: Any,
        multicast: bool = False,
    ) -> None:
        if not number_of(predicate) or self.running.dry:
            return
        pointers, mask = descriptor.pointers(offsets)
        values = descriptor.converted(self._load(pointers, mask, descriptor.filling())).data.reshape(view.shape)
        operation = Operation(self.running.line(), _ARRIVAL, lambda: view.write(values), size=values.nbytes)
        self.barriers.signal(barrier, operation)
        self.shared.write_later(view, "TMA load", operation)

    def create_async_tma_copy_local_to_global(self, descriptor: Descriptor, offsets: Any, view: SharedView) -> None:
        if self.running.dry:
            return
        operation = Operation(self.running.line(), _READ, lambda: None)
        value = self.shared.read_later(view, "TMA store", operation)
        pointers, mask = descriptor.pointers(offsets)
        self._store(pointers, Handle(value.data.reshape(pointers.data.shape), value.dtype), mask)
        self.shared.mine.stores.append(operation)

    def create_async_tma_store_wait(self, outstanding: int) -> None:
        if not self.running.dry:
            self.shared.wait_stores(outstanding)

    # Tensor cores of Hopper

    def create_warpgroup_mma(self, a: Any, b: SharedView, acc: Any, use_acc: Any, *rest: Any) -> Any:
        _, _, is_async = rest
        if self.running.dry:
            return acc
        operation = Operation(self.running.line(), _PRODUCT, lambda: None)
        x, y = (self.shared.read_later(v, "WGMMA", operation) if isinstance(v, SharedView) else v for v in (a, b))
        start = Handle(acc.data if number_of(use_acc) else np.zeros_like(acc.data), acc.dtype.scalar)
        made = self.create_dot(x, y, start, None, None)
        self.shared.mine.products.append(operation)
        if not is_async:
            self.shared.wait_products(0)
            return made
        return unfinished(made, operation)

    def create_warpgroup_mma_wait(self, values: Any, outstanding: int) -> Any:
        if not self.running.dry:
            self.shared.wait_products(outstanding)
        under_way = self.shared.mine.products
        return [finished(one, under_way) if isinstance(one, Handle) else one for one in values]


_MAY_BE_UNFINISHED = ("create_warpgroup_mma", "create_warpgroup_mma_wait")


def _checked(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that reports an operand which tensor cores are still computing."""

    def checked(self: Any, *operands: Any) -> Any:
        for one in operands:
            if type(one) is Handle:
                require_finished(self.running, one)
        return create(self, *operands)

    return checked


for _name in dir(GluonBuilder):
    if _name.startswith("create_") and _name not in _MAY_BE_UNFINISHED:
        setattr(GluonBuilder, _name, _checked(getattr(GluonBuilder, _name)))
