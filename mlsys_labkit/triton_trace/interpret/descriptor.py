"""Descriptors of a block in a strided array, for ``tl.make_tensor_descriptor`` and ``tl.make_block_ptr``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl

from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.interpret.handles import handle_of, narrow_of
from mlsys_labkit.triton_trace.interpret.private import PAD_NAN, Handle
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun
from mlsys_labkit.triton_trace.interpret.undefined import require_defined


class Descriptor:
    """A block anywhere in a strided array, from ``tl.make_tensor_descriptor`` or ``tl.make_block_ptr``.

    Attributes:
        rounds_to_tf32: a copy of its float32 elements rounds them, as the host's descriptor asks for.
    """

    rounds_to_tf32 = False

    def __init__(
        self, base: Any, shape: Any, strides: Any, block: Any, padding: Any, checked: Sequence[int] | None = None
    ) -> None:
        self.base, self.shape, self.strides, self.block, self.padding = base, shape, strides, block, padding
        self.checked = range(len(block)) if checked is None else checked
        if checked is None:
            self._require_tma()

    def _require_tma(self) -> None:
        size = self._itemsize()
        if int(self.base.data.reshape(-1)[0]) % 16:
            raise TritonKernelError("a tensor descriptor's base must be a multiple of 16 bytes")
        strides = [int(stride.data.reshape(-1)[0]) for stride in self.strides]
        if strides[-1] != 1:
            raise TritonKernelError(f"a tensor descriptor's last stride must be 1, got {strides[-1]}")
        if any(stride * size % 16 for stride in strides[:-1]):
            raise TritonKernelError(
                f"a tensor descriptor's strides must be multiples of 16 bytes, got {strides} elements"
            )

    def _itemsize(self) -> int:
        return int(max(1, self.base.get_element_ty().primitive_bitwidth // 8))

    def pointers(self, offsets: Sequence[Any]) -> tuple[Any, Any]:
        addresses = np.full(self.block, self.base.data.reshape(-1)[0], np.uint64)
        mask = np.ones(self.block, np.bool_)
        for axis, (offset, length, stride) in enumerate(zip(offsets, self.shape, self.strides, strict=True)):
            place = [-1 if i == axis else 1 for i in range(len(self.block))]
            index = (offset.data.astype(np.int64).reshape(-1)[0] + np.arange(self.block[axis])).reshape(place)
            addresses = addresses + (index * stride.data.astype(np.int64) * self._itemsize()).astype(np.uint64)
            if axis in self.checked:
                mask = mask & (index >= 0) & (index < length.data)
        return Handle(addresses, self.base.dtype.scalar), Handle(mask, tl.int1)

    def rows(self, rows: Any, column: Any) -> tuple[Any, Any]:
        """Return pointers to chosen rows of a matrix, and which of them lie inside it."""
        row = rows.data.astype(np.int64).reshape(-1, 1)
        at = column.data.astype(np.int64).reshape(-1)[0] + np.arange(self.block[-1])[None, :]
        size, steps = self._itemsize(), [stride.data.astype(np.int64).reshape(-1)[0] for stride in self.strides]
        addresses = self.base.data.reshape(-1)[0] + ((row * steps[0] + at * steps[1]) * size).astype(np.uint64)
        height, width = (length.data.reshape(-1)[0] for length in self.shape)
        inside = (row >= 0) & (row < height) & (at >= 0) & (at < width)
        return Handle(addresses, self.base.dtype.scalar), Handle(inside, tl.int1)

    def converted(self, block: Any) -> Any:
        """Return a block that was loaded as TMA delivers it. Reference: CU_TENSOR_MAP_DATA_TYPE_TFLOAT32."""
        if self.rounds_to_tf32:
            bits = block.data.view(np.uint32)
            to_nearest_even = bits + (bits >> 13 & 1) + 0xFFF & 0xFFFFE000
            block.data = np.where(np.isfinite(block.data), to_nearest_even, bits).astype(np.uint32).view(np.float32)
        return block

    def filling(self) -> Any:
        dtype = self.base.get_element_ty()
        return handle_of(np.array([np.nan if self.padding == PAD_NAN else 0.0], np.float32), dtype)


class DescriptorOperations:
    """The operations of a builder on descriptors and block pointers."""

    @property
    def running(self) -> InterpreterRun:
        """Return the launch that runs now."""
        raise NotImplementedError

    _load: Callable[..., Any]
    _store: Callable[..., None]

    def create_make_tensor_descriptor(
        self, base: Any, shape: Any, strides: Any, block: Any, is_signed: bool, padding: Any = None
    ) -> Any:
        return Descriptor(base, shape, strides, block, padding)

    def create_descriptor_load(self, descriptor: Descriptor, offsets: Any, *policy: Any) -> Any:
        pointers, mask = descriptor.pointers(offsets)
        return descriptor.converted(self._load(pointers, mask, descriptor.filling()))

    def create_descriptor_gather(self, descriptor: Descriptor, rows: Any, column: Any, kind: Any) -> Any:
        pointers, mask = descriptor.rows(rows, column)
        return descriptor.converted(self._load(pointers, mask, descriptor.filling()))

    def create_descriptor_scatter(self, descriptor: Descriptor, value: Any, rows: Any, column: Any) -> None:
        pointers, mask = descriptor.rows(rows, column)
        self._store(pointers, value, mask)

    def create_descriptor_reduce(self, kind: Any, descriptor: Descriptor, value: Any, offsets: Any) -> None:
        pointers, mask = descriptor.pointers(offsets)
        unsigned = "u" if kind.name.lower() in ("min", "max") and value.dtype.scalar.is_int_unsigned() else ""
        require_defined(self.running, "updates an element with", mask, value, pointers)
        name = unsigned + kind.name.lower()
        self.running.atomic(name, pointers.data, mask.data, value.data, None, narrow_of(value))

    def create_descriptor_store(self, descriptor: Descriptor, value: Any, offsets: Any) -> None:
        pointers, mask = descriptor.pointers(offsets)
        self._store(pointers, value, mask)

    def create_tensor_pointer_load(self, pointer: Any, checked: Any, padding: Any, *policy: Any) -> Any:
        block = Descriptor(pointer.base, pointer.shape, pointer.strides, pointer.block_shape, padding, checked)
        pointers, mask = block.pointers(pointer.offsets)
        return self._load(pointers, mask, block.filling())  # 0 without padding, as in NVIDIA's registers

    def create_tensor_pointer_store(self, pointer: Any, value: Any, checked: Any, *policy: Any) -> None:
        block = Descriptor(pointer.base, pointer.shape, pointer.strides, pointer.block_shape, None, checked)
        pointers, mask = block.pointers(pointer.offsets)
        self._store(pointers, value, mask)
