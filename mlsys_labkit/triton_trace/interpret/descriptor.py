"""Descriptors of a block in a strided array, for ``tl.make_tensor_descriptor`` and ``tl.make_block_ptr``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl

from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.interpret.handles import handle_of
from mlsys_labkit.triton_trace.interpret.private import PAD_NAN, Handle


class Descriptor:
    """A block anywhere in a strided array, from ``tl.make_tensor_descriptor`` or ``tl.make_block_ptr``."""

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

    def filling(self) -> Any:
        dtype = self.base.get_element_ty()
        return handle_of(np.array([np.nan if self.padding == PAD_NAN else 0.0], np.float32), dtype)
