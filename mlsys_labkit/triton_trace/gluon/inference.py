"""Layouts of results, and the maps that layouts are, as Triton's own compiler infers them."""

from __future__ import annotations

import functools
from typing import Any

import triton.experimental.gluon.language as gl
from triton._C.libtriton import gluon_ir, ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend

from mlsys_labkit.triton_trace.interpret.run import Refused

_FREE = (gl.AutoLayout, gl.CoalescedLayout)  # the compiler chooses them later


class LayoutInference:
    """A module of Triton's IR for ``warps`` warps, in which operations on no value show the layout of their result."""

    def __init__(self, warps: int) -> None:
        self._context = ir.context()
        ir.load_dialects(self._context)
        CUDABackend(GPUTarget("cuda", 90, 32)).load_dialects(self._context)
        self.builder = builder = gluon_ir.GluonOpBuilder(self._context)
        self._module = builder.create_module()
        for name, number in (("num-warps", warps), ("num-ctas", 1), ("threads-per-warp", 32)):
            self._module.set_attr(f"ttg.{name}", builder.get_int32_attr(number))
        self._module.set_attr("ttg.target", builder.get_string_attr("cuda:90"))
        kind = builder.get_function_ty([], [])
        function = builder.get_or_insert_function(self._module, "layouts", kind, "public", False)
        self._module.push_back(function)
        builder.set_insertion_point_to_start(function.add_entry_block())
        self._known: dict[Any, Any] = {}
        self._warps = warps

    def result(self, operation: str, layout: Any, shape: tuple[int, ...], *parameters: Any) -> Any:
        """Return the layout of the first result of ``create_<operation>`` on one tensor, or on two alike for join."""
        if isinstance(layout, _FREE):
            return layout
        key = operation, layout, tuple(shape), str(parameters)
        if key not in self._known:
            builder = self.builder
            kind = builder.get_distributed_ty(builder.get_int32_ty(), list(shape), layout._to_ir(builder))
            value = builder.create_poison(kind)
            if operation == "reduce":
                made = builder.create_reduce([value], *parameters).get_result(0)
            elif operation == "join":
                made = builder.create_join(value, value)
            else:
                made = getattr(builder, f"create_{operation}")(value, *parameters)
            made = made[0] if isinstance(made, (tuple, list)) else made
            self._known[key] = builder.get_gluon_layout_from_tensor(made)
        return self._known[key]

    def memory_result(self, operation: str, attribute: Any, shape: tuple[int, ...], bits: int, parameter: Any) -> Any:
        """Return the layout of shared memory after ``create_<operation>`` of a view."""
        key = operation, str(attribute), shape, bits, str(parameter)
        if key not in self._known:
            builder = self.builder
            element = getattr(builder, f"get_int{bits}_ty")()
            view = builder.create_local_alloc(
                builder.get_shared_mem_desc_ty(element, list(shape), attribute, list(shape))
            )
            made = getattr(builder, f"create_{operation}")(view, list(parameter))
            self._known[key] = builder.get_gluon_layout_from_memdesc(made)
        return self._known[key]

    def linear(self, layout: Any, shape: tuple[int, ...]) -> Any:
        """Return a layout of registers or of shared memory as a linear map. Raises Refused where it is none."""
        if isinstance(layout, (gl.DistributedLinearLayout, gl.SharedLinearLayout)):
            return layout
        if isinstance(layout, (*_FREE, gl.PaddedSharedLayout)):
            raise Refused(f"{type(layout).__name__} is no linear layout")
        return self.builder.to_linear_layout(layout._to_ir(self.builder), list(shape))

    def require_warps(self, layout: Any, shape: tuple[int, ...]) -> None:
        """Raise Refused if a layout is for another number of warps than the kernel has."""
        key = "warps", layout, tuple(shape)
        if isinstance(layout, _FREE) or key in self._known:
            return
        warps = 1 << len(self.linear(layout, shape).warp_bases)
        if warps != self._warps:
            raise Refused(
                f"{layout} is for {warps} warps, and {self._warps} run here: give the launch num_warps={warps}"
            )
        self._known[key] = True


@functools.cache
def inference(warps: int) -> LayoutInference:
    """Return the layouts of a kernel, or of a partition, of so many warps."""
    return LayoutInference(warps)
