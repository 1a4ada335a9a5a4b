"""Gluon's type rules, which are Triton's own, over the interpreter's builder: only layouts are inferred elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.experimental.gluon.language as gl
from triton.experimental.gluon.language._semantic import GluonSemantic
from triton.language.semantic import TritonSemantic

from mlsys_labkit.triton_trace.gluon.inference import inference
from mlsys_labkit.triton_trace.gluon.partitions import Partitions
from mlsys_labkit.triton_trace.interpret.run import Refused


class GluonRules(GluonSemantic):  # type: ignore[misc]
    """Triton's rules for Gluon. Operands of two layouts are refused there, by the names of both.

    Attributes:
        partitions: the partitions that run now.
    """

    partitions: Partitions

    @property
    def layouts(self) -> Any:
        """Return the inference for the partition that runs now."""
        return inference(self.partitions.warps)

    def _after(self, operation: str, operand: Any, made: Any, *parameters: Any) -> Any:
        layout = self.layouts.result(operation, operand.type.layout, operand.type.shape, *parameters)
        return self.laid_out(made, layout)

    def laid_out(self, value: Any, layout: Any) -> Any:
        """Return a block with a layout; a scalar has none."""
        if not value.type.is_block():
            return value
        return gl.tensor(value.handle, gl.distributed_type(value.type.scalar, list(value.type.shape), layout))

    def splat(self, value: Any, shape: Any, layout: Any = None) -> Any:
        made = super().splat(value, shape, gl.AutoLayout() if layout is None else layout)
        if made.type.is_block():
            self.layouts.require_warps(made.type.layout, made.type.shape)
        return made

    def arange(self, start: int, end: int, layout: Any = None) -> Any:
        made = super().arange(start, end, layout)
        self.layouts.require_warps(made.type.layout, made.type.shape)
        return made

    def expand_dims(self, input: Any, axis: int) -> Any:
        layout = getattr(input.type, "layout", None)
        if not isinstance(layout, (gl.SliceLayout, gl.AutoLayout, gl.CoalescedLayout)):
            raise ValueError(f"expected expand_dims input to have a SliceLayout, but got: {layout}")
        axis += len(input.shape) + 1 if axis < 0 else 0
        if isinstance(layout, gl.SliceLayout) and layout.dim != axis:
            raise ValueError(f"expected expand_dims input layout to be sliced in axis {axis} but got {layout.dim}")
        return self._after("expand_dims", input, TritonSemantic.expand_dims(self, input, axis), axis)

    def reshape(self, input: Any, dst_shape: Any, can_reorder: bool = False) -> Any:
        if can_reorder:
            raise ValueError("can_reorder is not supported in gluon")
        return self._after("reshape", input, TritonSemantic.reshape(self, input, dst_shape, False), dst_shape, False)

    def permute(self, input: Any, dims: Any) -> Any:
        return self._after("trans", input, TritonSemantic.permute(self, input, dims), list(dims))

    def join(self, a: Any, b: Any) -> Any:
        a, b = self.broadcast_impl_value(a, b)
        return self._after("join", a, TritonSemantic.join(self, a, b))

    def split(self, a: Any) -> Any:
        return tuple(self._after("split", a, one) for one in TritonSemantic.split(self, a))

    def convert_layout(self, value: Any, layout: Any, assert_trivial: bool = False) -> Any:
        made = super().convert_layout(value, layout)
        self.layouts.require_warps(layout, made.type.shape)
        return made

    def to_linear_layout(self, layout: Any, shape: Any) -> Any:
        return self.layouts.linear(layout, shape)

    def laid_out_like(self, input: Any, made: Any) -> Any:
        """Return blocks with the layout of the first of ``input``."""
        layout = (input[0] if isinstance(input, (tuple, gl.tuple)) else input).type.layout
        return self._each_laid_out(made, layout)

    def _each_laid_out(self, made: Any, layout: Any) -> Any:
        if isinstance(made, tuple):
            return tuple(self.laid_out(one, layout) for one in made)
        return self.laid_out(made, layout)

    def reduced(self, input: Any, made: Any, axis: Any) -> Any:
        """Return results of a reduction along ``axis`` with their layouts."""
        first = input[0] if isinstance(input, (tuple, gl.tuple)) else input
        if not hasattr(first.type, "layout"):
            return made
        layout = first.type.layout
        if axis is not None and len(first.type.shape) > 1:
            layout = self.layouts.result("reduce", layout, first.type.shape, axis % len(first.type.shape))
        return self._each_laid_out(made, layout)

    def fp4_to_fp(self, src: Any, elem_type: Any, axis: int) -> Any:
        raise Refused("fp4_to_fp is not interpreted")

    def num_ctas(self) -> int:
        return 1

    def num_warps(self, generator: Any = None) -> int:
        return self.partitions.warps

    def warp_specialize(
        self, functions_and_args: Sequence[Any], worker_num_warps: Any, worker_num_regs: Any, generator: Any = None
    ) -> Any:
        bodies = [lambda call=call, args=args: call(*args) for call, args in functions_and_args]
        if len(bodies) - 1 != len(worker_num_warps):
            raise ValueError(
                f"warp specialize got {len(bodies) - 1} partitions but {len(worker_num_warps)} warp counts"
            )
        return self.partitions.run(bodies, worker_num_warps)
