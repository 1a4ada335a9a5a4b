"""The builder that ``tl`` calls while a kernel is interpreted: one method per operation of Triton's IR.

bf16 is rounded to nearest even once after every operation, as the GPU's own instructions do (add.bf16, fma.rn.bf16);
fp8 has conversions only, so its arithmetic is refused, as the compiler refuses it. A multiply and an add are two
operations here, which the compiler may fuse; fp32 ``tl.dot`` is not rounded to tf32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.language.extra.cuda import convert_custom_float8_sm80

from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.interpret import gpu_arithmetic, libdevice
from mlsys_labkit.triton_trace.interpret.descriptor import DescriptorOperations
from mlsys_labkit.triton_trace.interpret.handles import dtype_of, handle_of, narrow_of, numbers_of, operand_of
from mlsys_labkit.triton_trace.interpret.narrow_floats import NARROW
from mlsys_labkit.triton_trace.interpret.overflow import follow as follow_overflow, overflow_of
from mlsys_labkit.triton_trace.interpret.private import (
    ATOMICS,
    DOT_PRECISIONS,
    PROPAGATE_NONE,
    ROUND_NEAREST,
    BuilderBase,
    Handle,
    Options,
    smallest_dot,
    storage_dtype,
)
from mlsys_labkit.triton_trace.interpret.ptx import inline
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun, Refused
from mlsys_labkit.triton_trace.interpret.scaled import scaled_numbers
from mlsys_labkit.triton_trace.interpret.undefined import follow as follow_undefined, loaded, require_defined
from mlsys_labkit.triton_trace.names import name_set
from mlsys_labkit.triton_trace.recorder import Kind

Array = NDArray[Any]
_MULTIPROCESSORS = 132  # of an H100, to which programs go in turn


def _mask(mask: Any, pointers: Any) -> NDArray[np.bool_] | None:
    return None if mask is None else np.broadcast_to(mask.data, pointers.data.shape)


def _binary(operation: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    def create(self: Any, lhs: Any, rhs: Any) -> Any:
        a, b = operand_of(lhs), operand_of(rhs)
        if a.dtype == np.bool_:  # one-bit integers: they wrap around
            return Handle((operation(a.view(np.uint8), b.view(np.uint8)) & 1).astype(np.bool_), lhs.dtype.scalar)
        return self.counted(handle_of(operation(a, b), lhs.dtype), lhs)

    return create


def _comparison(operation: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    return lambda self, lhs, rhs: self.counted(Handle(operation(operand_of(lhs), operand_of(rhs)), tl.int1), lhs)


def _unary(operation: Callable[[Array], Array]) -> Callable[..., Any]:
    return lambda self, argument: self.counted(handle_of(operation(operand_of(argument)), argument.dtype), argument)


def _of_floats(name: str, operation: Callable[[Array], Array]) -> Callable[..., Any]:
    """Return an operation that refuses integers. Triton's own check passes literals, and its compiler fails later."""
    create = _unary(operation)

    def checked(self: Any, argument: Any) -> Any:
        if argument.dtype.scalar.is_int():
            raise Refused(
                f"tl.{name} takes floats, and this is {argument.dtype.scalar.name}; "
                "write a literal with a point, as 2.0, and convert a block with .to(tl.float32)"
            )
        return create(self, argument)

    return checked


def _on_bits(operation: Callable[[Array, Array], Array], view: Callable[[Array], Array]) -> Callable[..., Any]:
    """Return an operation on integers that are read as signed or unsigned, whatever their type is."""

    def create(self: Any, lhs: Any, rhs: Any) -> Any:
        return Handle(operation(view(lhs.data), view(rhs.data)).view(lhs.data.dtype), lhs.dtype.scalar)

    return create


class Builder(DescriptorOperations, BuilderBase):  # type: ignore[misc]
    """The operations on blocks, carried out by numpy.

    Attributes:
        run: the launch that is being interpreted.
        grid_dim, grid_idx: its grid, and the program that runs now.
        warps: warps of a program.
    """

    grid_dim: tuple[int, int, int]
    grid_idx: tuple[int, int, int]
    # Triton's own methods that only move data, which are correct for every type and version.
    kept: ClassVar[frozenset[str]] = frozenset(
        f"create_{name}"
        for name in name_set("""
            get_program_id get_num_programs make_range reshape trans expand_dims broadcast cat join split splat unsplat
            gather barrier ptr_to_int bitcast addptr make_block_ptr advance
        """)
    )

    def __init__(self) -> None:
        super().__init__()
        # device_assert is checked; the overflow checks of a debug build are not, because no launch asks for them.
        self.options = Options(debug=True, sanitize_overflow=False, allowed_dot_input_precisions=DOT_PRECISIONS)
        self.codegen_fns = {"min_dot_size": smallest_dot(), "convert_custom_types": convert_custom_float8_sm80}
        self.run: InterpreterRun | None = None
        self.warps = 4

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            return _refusal(name).__get__(self)
        raise AttributeError(name)

    @property
    def running(self) -> InterpreterRun:
        """Return the launch that runs now."""
        assert self.run is not None
        return self.run

    def counted(self, result: Any, operand: Any, operations: int = 1) -> Any:
        """Count operations per element in the type of ``operand``, and return ``result``."""
        self.running.arithmetic(operand.dtype.scalar.name, operations * result.data.size)
        return result

    # Constants and types

    def get_bf16(self, value: float) -> Any:
        return handle_of(np.array([value], np.float64), tl.bfloat16)

    def get_all_ones_value(self, dtype: Any) -> Any:
        return Handle(np.invert(np.zeros(1, storage_dtype(dtype))), dtype.scalar)

    def get_fp8e4b15_ty(self) -> Any:
        return dtype_of("fp8e4b15")

    def get_fp8e4b8_ty(self) -> Any:
        return dtype_of("fp8e4b8")

    def get_fp8e5b16_ty(self) -> Any:
        return dtype_of("fp8e5b16")

    # Arithmetic

    create_fadd = create_add = _binary(np.add)
    create_fsub = create_sub = _binary(np.subtract)
    create_fmul = create_mul = _binary(np.multiply)
    create_fdiv = create_precise_divf = create_approx_divf = _binary(np.divide)
    create_frem = create_srem = create_urem = _binary(np.fmod)
    create_sdiv = create_udiv = _binary(gpu_arithmetic.divided)
    create_and, create_or, create_xor = _binary(np.bitwise_and), _binary(np.bitwise_or), _binary(np.bitwise_xor)
    create_shl = _binary(np.left_shift)
    create_minsi = create_minui = create_minnumf = _binary(np.fmin)
    create_maxsi = create_maxui = create_maxnumf = _binary(np.fmax)
    create_minimumf, create_maximumf = _binary(np.minimum), _binary(np.maximum)
    create_icmpSLT = create_icmpULT = create_fcmpOLT = _comparison(np.less)
    create_icmpSLE = create_icmpULE = create_fcmpOLE = _comparison(np.less_equal)
    create_icmpSGT = create_icmpUGT = create_fcmpOGT = _comparison(np.greater)
    create_icmpSGE = create_icmpUGE = create_fcmpOGE = _comparison(np.greater_equal)
    create_icmpEQ = create_fcmpOEQ = _comparison(np.equal)
    create_icmpNE = create_fcmpUNE = _comparison(np.not_equal)
    create_iabs = _unary(np.abs)
    create_floor, create_ceil = _of_floats("floor", np.floor), _of_floats("ceil", np.ceil)
    create_exp, create_exp2 = _of_floats("exp", np.exp), _of_floats("exp2", np.exp2)
    create_log, create_log2 = _of_floats("log", np.log), _of_floats("log2", np.log2)
    create_sin, create_cos = _of_floats("sin", np.sin), _of_floats("cos", np.cos)
    create_sqrt, create_precise_sqrt = _of_floats("sqrt", np.sqrt), _of_floats("sqrt_rn", np.sqrt)
    create_rsqrt = _of_floats("rsqrt", lambda x: 1 / np.sqrt(x.astype(np.float64)))
    create_erf = _of_floats("erf", gpu_arithmetic.erf)
    create_ashr = _on_bits(np.right_shift, gpu_arithmetic.signed)
    create_lshr = _on_bits(np.right_shift, gpu_arithmetic.unsigned)
    create_umulhi = _on_bits(gpu_arithmetic.high_half, gpu_arithmetic.unsigned)

    def create_fneg(self, argument: Any) -> Any:
        return Handle(gpu_arithmetic.negated(argument.data), argument.dtype.scalar)

    def create_fabs(self, argument: Any) -> Any:
        bits = gpu_arithmetic.unsigned(argument.data)
        magnitude = bits & bits.dtype.type((1 << (8 * bits.itemsize - 1)) - 1)
        return self.counted(Handle(magnitude.view(argument.data.dtype), argument.dtype.scalar), argument)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.counted(handle_of(gpu_arithmetic.fused(operand_of(x), operand_of(y), operand_of(z)), z.dtype), z, 2)

    def create_clampf(self, x: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        ignoring = propagate_nan == PROPAGATE_NONE
        at_least, at_most = (np.fmax, np.fmin) if ignoring else (np.maximum, np.minimum)
        clamped = at_most(at_least(operand_of(x), operand_of(low)), operand_of(high))
        return self.counted(handle_of(clamped, x.dtype), x, 2)

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, operands: Sequence[Any], result: Any, pure: bool
    ) -> Any:
        return self.create_libdevice(symbol, result, *operands)

    def create_libdevice(self, symbol: str, result: Any, *operands: Any) -> Any:
        numbers = libdevice.evaluate(symbol, [one.data for one in operands], storage_dtype(result.scalar))
        if numbers is None:
            raise Refused(f"the function {symbol} of another library is not interpreted")
        return self.counted(Handle(numbers, result.scalar), operands[0])

    def create_select(self, condition: Any, lhs: Any, rhs: Any) -> Any:
        return Handle(np.where(condition.data, lhs.data, rhs.data.view(lhs.data.dtype)), lhs.dtype.scalar)

    def create_dot(self, a: Any, b: Any, accumulator: Any, precision: Any, imprecise: Any) -> Any:
        m, k = a.data.shape[-2:]
        n = b.data.shape[-1]
        self.running.dot(math.prod(a.data.shape[:-2]) * m, n, k, a.dtype.scalar.name)
        x, y, total = numbers_of(a), numbers_of(b), numbers_of(accumulator)
        if x.dtype.kind in "iu":
            product = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)  # exact: below 2**53
        else:
            wide = np.float64 if x.dtype == np.float64 else np.float32
            product = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
        return handle_of(product + total, accumulator.dtype)

    def create_dot_scaled(self, *operands: Any) -> Any:
        a, a_scale, a_form, b, b_scale, b_form, _, a_packed, b_packed, accumulator = operands
        x = scaled_numbers(a, a_scale, a_form.name, a_packed, along=-1)
        y = scaled_numbers(b, b_scale, b_form.name, b_packed, along=-2)
        m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
        dtype = "fp8e4nv" if a.data.itemsize == 1 else a.dtype.scalar.name  # also of fp4
        self.running.dot(math.prod(x.shape[:-2]) * m, n, k, dtype)
        return handle_of(np.matmul(x, y) + numbers_of(accumulator), accumulator.dtype)

    def create_histogram(self, data: Any, bins: int, mask: Any) -> Any:
        numbers = data.data
        counted = (numbers >= 0) & (numbers < bins)
        outside = ~counted if mask is None else ~counted & mask.data
        if outside.any():
            self.running.misuse(
                "histogram_range",
                f"counts {int(numbers[outside][0])} in a tl.histogram of {bins} bins, whose values are 0 to {bins - 1} "
                f"({_total(outside)}a GPU counts it in any bin: mask it off)",
            )
        if mask is not None:
            counted &= mask.data
        return Handle(np.bincount(numbers[counted].astype(np.int64), minlength=bins).astype(np.int32), tl.int32)

    # Conversions

    def create_fp_ext(self, source: Any, target: Any) -> Any:
        if source.dtype.scalar.name == "fp64" and target.scalar.name.startswith("fp8"):
            raise Refused(f"no GPU converts fp64 to {target.scalar.name}; convert to tl.float32 first")
        return handle_of(numbers_of(source), target)

    create_fp_trunc = create_ui_to_fp = create_si_to_fp = create_fp_ext

    def create_fp_to_fp(self, source: Any, target: Any, rounding: Any) -> Any:
        if rounding is None or rounding == ROUND_NEAREST:
            return self.create_fp_ext(source, target)
        form, numbers = NARROW.get(target.scalar.name), numbers_of(source)
        if form:
            return Handle(form.encode(numbers, toward_zero=True), target.scalar)
        return Handle(gpu_arithmetic.toward_zero(numbers, storage_dtype(target.scalar)), target.scalar)

    def create_fp_to_si(self, source: Any, target: Any) -> Any:
        return Handle(gpu_arithmetic.whole(numbers_of(source), storage_dtype(target.scalar)), target.scalar)

    create_fp_to_ui = create_fp_to_si

    def create_int_cast(self, source: Any, target: Any, is_signed: bool) -> Any:
        return handle_of(source.data, target)

    # Memory

    def _check_offsets(self, pointers: Any, mask: Any) -> None:
        """Report an access whose offset overflowed a narrow integer on the way."""
        if (found := overflow_of(pointers)) is None:
            return
        lanes = found.lanes if mask is None else found.lanes & mask.data
        if lanes.any():
            wide = "tl.int64" if found.dtype == "int32" else "tl.int32 or tl.int64"
            self.running.misuse(
                "integer_overflow",
                f"uses an offset that overflowed {found.dtype} on the way: {found.exact:,} does not fit "
                f"({_total(lanes)}compute offsets in {wide})",
            )

    def _load(self, pointers: Any, mask: Any, other: Any, kind: Kind = "load") -> Any:
        self._check_offsets(pointers, mask)
        dtype = pointers.get_element_ty()
        form = NARROW.get(dtype.name)
        filler = storage_dtype(dtype).type(0) if other is None else other.data  # 0, as in NVIDIA's registers
        nan = None if form is None else form.nan
        values = self.running.load(pointers.data, _mask(mask, pointers), np.asarray(filler), nan, kind)
        return loaded(self.running, Handle(values, dtype), pointers, mask, other)

    def _store(self, pointers: Any, value: Any, mask: Any, kind: Kind = "store") -> None:
        self._check_offsets(pointers, mask)
        require_defined(self.running, "stores", mask, value, pointers)
        self.running.store(pointers.data, _mask(mask, pointers), value.data, kind)

    def create_load(self, pointers: Any, *policy: Any) -> Any:
        return self._load(pointers, None, None)

    def create_masked_load(self, pointers: Any, mask: Any, other: Any, *policy: Any) -> Any:
        return self._load(pointers, mask, other)

    def create_store(self, pointers: Any, value: Any, *policy: Any) -> None:
        self._store(pointers, value, None)

    def create_masked_store(self, pointers: Any, value: Any, mask: Any, *policy: Any) -> None:
        self._store(pointers, value, mask)

    def create_atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        self._check_offsets(pointers, mask)
        require_defined(self.running, "updates an element with", mask, value, pointers)
        on = _mask(mask, pointers)
        name, order = ATOMICS[operation], _order(sem, scope)
        old = self.running.atomic(name, pointers.data, on, value.data, None, narrow_of(value), order=order)
        return Handle(old, value.dtype.scalar)

    def create_atomic_cas(self, pointers: Any, compare: Any, value: Any, sem: Any, scope: Any) -> Any:
        require_defined(self.running, "updates an element with", None, value, compare, pointers)
        order = _order(sem, scope)
        old = self.running.atomic("cas", pointers.data, None, value.data, compare.data, None, order=order)
        return Handle(old, value.dtype.scalar)

    def create_atomic_load(self, pointers: Any, mask: Any, sem: Any, scope: Any) -> Any:
        return self._load(pointers, mask, None, "atomic")

    def create_atomic_store(self, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> None:
        self._store(pointers, value, mask, "atomic")

    def create_int_to_ptr(self, source: Any, target: Any) -> Any:
        return Handle(self.running.translated(gpu_arithmetic.unsigned(source.data).astype(np.uint64)), target.scalar)

    def create_inline_asm(
        self, text: str, constraints: str, operands: Sequence[Any], results: Sequence[Any], pure: bool, pack: int
    ) -> Any:
        (x, y, z), (columns, rows, _) = self.grid_idx, self.grid_dim
        special = {
            "%smid": (x + columns * (y + rows * z)) % _MULTIPROCESSORS,
            "%nsmid": _MULTIPROCESSORS,
            "%globaltimer": time.time_ns(),
        }
        return inline.evaluate(self.running, text, constraints, operands, results, pack=pack, special=special)

    # Help with debugging

    def create_print(self, prefix: str, in_hex: bool, values: Sequence[Any], is_signed: Any) -> None:
        where = f"({', '.join(map(str, self.grid_idx))}){prefix}"
        if not values:
            self.running.print(f"{where}\n")
        for value in values:
            numbers = numbers_of(value)
            shown = np.vectorize(lambda code: f"0x{code:x}")(gpu_arithmetic.unsigned(value.data)) if in_hex else numbers
            self.running.print(f"{where}{shown}\n")

    def create_assert(self, condition: Any, message: str) -> None:
        if not self.running.dry and not condition.data.all():
            raise TritonKernelError(f"tl.device_assert does not hold{f': {message}' if message else ''}")

    def create_assume(self, condition: Any) -> None:
        if not self.running.dry and not condition.data.all():
            raise TritonKernelError("tl.assume does not hold")


def _order(sem: Any, scope: Any) -> str:
    """Return how an atomic orders other accesses of its program, as RawAccess says it; none within one program."""
    names = {"ACQUIRE": "acquire", "RELEASE": "release", "RELAXED": "relaxed"}
    return "relaxed" if scope.name == "CTA" else names.get(sem.name, "acq_rel")


def _total(lanes: NDArray[np.bool_]) -> str:
    return f"{int(lanes.sum()):,} elements in all; " if lanes.sum() > 1 else ""


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise Refused(f"{name.removeprefix('create_').replace('_', ' ')} is not interpreted")

    return refuse


for _name in dir(BuilderBase):
    if (
        _name.startswith("create_")
        and getattr(Builder, _name) is getattr(BuilderBase, _name)
        and _name not in Builder.kept
    ):
        setattr(Builder, _name, _refusal(_name))
follow_overflow(Builder)
follow_undefined(Builder)
