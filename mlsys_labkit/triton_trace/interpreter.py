"""One launch, interpreted. The only file that touches private names of Triton: 3.6 to 3.9.

From Triton come the language and its type rules (``triton.language``, TritonSemantic) and the handles of its
interpreter; arithmetic, memory, control flow and the loop over programs are the kit's own, the same on every version.
What Triton's builder could do and this one does not do itself is refused, so that no wrong number gets through.
"""

from __future__ import annotations

import inspect
import math
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from types import FrameType, FunctionType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as theirs

from mlsys_labkit.triton_trace import rules
from mlsys_labkit.triton_trace.atomics import atomic
from mlsys_labkit.triton_trace.errors import KernelError
from mlsys_labkit.triton_trace.memory import Memory
from mlsys_labkit.triton_trace.narrow import NARROW, Narrow, fused_multiply_add
from mlsys_labkit.triton_trace.recorder import Argument, Kind, Launch, Line, Program, Recorder
from mlsys_labkit.triton_trace.rewrite import compiled
from mlsys_labkit.triton_trace.source import Function, KernelSource, constant

__all__ = ["Interpreter"]

Array = NDArray[Any]
Handle = theirs.TensorHandle
_FOREIGN_FORMATS = {
    "fp8e4b15": "it is no IEEE-like format",
    "fp8e4b8": "only AMD has it",
    "fp8e5b16": "only AMD has it",
}


class Refused(Exception):
    """Something that the interpreter cannot do rightly."""


def _narrow(handle: Any) -> Narrow | None:
    return NARROW.get(handle.dtype.scalar.name)


def _numbers(handle: Any) -> Array:
    """What a handle holds, in a type that numpy can calculate in."""
    form = _narrow(handle)
    return form.decode(handle.data) if form else handle.data


def _handle(numbers: Array, dtype: Any) -> Any:
    """Numbers as ``dtype``, rounded once."""
    form = NARROW.get(dtype.scalar.name)
    if form:
        return Handle(form.encode(numbers), dtype.scalar)
    return Handle(np.asarray(numbers).astype(theirs._get_np_dtype(dtype.scalar), copy=False), dtype.scalar)


def _binary(operation: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    def create(self: Any, lhs: Any, rhs: Any) -> Any:
        a, b = _numbers(lhs), _numbers(rhs)
        if a.dtype == np.bool_:  # one-bit integers: they wrap around
            return Handle((operation(a.view(np.uint8), b.view(np.uint8)) & 1).astype(np.bool_), lhs.dtype.scalar)
        return _handle(operation(a, b), lhs.dtype)

    return create


def _comparison(operation: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    return lambda self, lhs, rhs: Handle(operation(_numbers(lhs), _numbers(rhs)), tl.int1)


def _unary(operation: Callable[[Array], Array]) -> Callable[..., Any]:
    return lambda self, argument: _handle(operation(_numbers(argument)), argument.dtype)


def _divided(a: Array, b: Array) -> Array:
    """Toward zero, as C and PTX do."""
    return (a - np.fmod(a, b)) // b


def _shifted_left(a: Array, b: Array) -> Array:
    return np.left_shift(a, b.astype(a.dtype))


def _signed(data: Array) -> Array:
    return data.view(np.dtype(f"i{data.itemsize}"))


def _unsigned(data: Array) -> Array:
    return data.view(np.dtype(f"u{data.itemsize}"))


def _high_half(a: Array, b: Array) -> Array:
    """The upper half of the product of unsigned numbers."""
    if a.itemsize < 8:
        wide = np.dtype(f"u{2 * a.itemsize}")
        return ((a.astype(wide) * b.astype(wide)) >> wide.type(8 * a.itemsize)).astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & low)
    return a_high * b_high + (middle >> half) + (other >> half)


def _fused(x: Array, y: Array, z: Array) -> Array:
    if z.dtype != np.float64:
        return fused_multiply_add(x, y, z)
    return np.vectorize(_fused_double, otypes=[np.float64])(x, y, z)


def _fused_double(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return float(exact) if exact else x * y + z


_erf = np.vectorize(math.erf, otypes=[np.float64])


class _Options(theirs.InterpreterOptions):  # type: ignore[misc]
    """Asserts on the device are checked; the overflow checks of a debug build, which nobody asked for, are not."""


class Builder(theirs.InterpreterBuilder):  # type: ignore[misc]
    """What ``tl`` calls, one method for each operation of Triton's IR."""

    kept: ClassVar[frozenset[str]] = frozenset(
        f"create_{name}"
        for name in (
            *("get_program_id", "get_num_programs", "make_range", "reshape", "trans", "expand_dims", "broadcast"),
            *("cat", "join", "split", "splat", "unsplat", "gather", "barrier", "int_to_ptr", "ptr_to_int", "bitcast"),
            *("addptr", "make_block_ptr", "advance"),
        )
    )

    def __init__(self) -> None:
        super().__init__()
        self.options = _Options(debug=True, sanitize_overflow=False)
        self.codegen_fns = {"min_dot_size": _smallest_dot()}
        self.run: Run | None = None

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("create_") and name not in Builder.__dict__ and name not in Builder.kept:
            raise Refused(f"{name.removeprefix('create_')} is not interpreted")
        return super().__getattribute__(name)

    @property
    def _run(self) -> Run:
        assert self.run is not None
        return self.run

    # Constants and types

    def get_bf16(self, value: float) -> Any:
        return _handle(np.array([value], np.float64), tl.bfloat16)

    def _foreign(self, name: str) -> Any:
        raise Refused(f"{name} is not interpreted: {_FOREIGN_FORMATS[name]}; use tl.float8e4nv or tl.float8e5")

    def get_fp8e4b15_ty(self) -> Any:
        return self._foreign("fp8e4b15")

    def get_fp8e4b8_ty(self) -> Any:
        return self._foreign("fp8e4b8")

    def get_fp8e5b16_ty(self) -> Any:
        return self._foreign("fp8e5b16")

    # Arithmetic

    create_fadd = create_add = _binary(np.add)
    create_fsub = create_sub = _binary(np.subtract)
    create_fmul = create_mul = _binary(np.multiply)
    create_fdiv = create_precise_divf = create_approx_divf = _binary(np.divide)
    create_frem = create_srem = create_urem = _binary(np.fmod)
    create_sdiv = create_udiv = _binary(_divided)
    create_and, create_or, create_xor = _binary(np.bitwise_and), _binary(np.bitwise_or), _binary(np.bitwise_xor)
    create_shl = _binary(_shifted_left)
    create_minsi = create_minui = create_minnumf = _binary(np.fmin)
    create_maxsi = create_maxui = create_maxnumf = _binary(np.fmax)
    create_minimumf, create_maximumf = _binary(np.minimum), _binary(np.maximum)
    create_icmpSLT = create_icmpULT = create_fcmpOLT = _comparison(np.less)
    create_icmpSLE = create_icmpULE = create_fcmpOLE = _comparison(np.less_equal)
    create_icmpSGT = create_icmpUGT = create_fcmpOGT = _comparison(np.greater)
    create_icmpSGE = create_icmpUGE = create_fcmpOGE = _comparison(np.greater_equal)
    create_icmpEQ = create_fcmpOEQ = _comparison(np.equal)
    create_icmpNE = create_fcmpUNE = _comparison(np.not_equal)
    create_fneg = _unary(np.negative)
    create_fabs = create_iabs = _unary(np.abs)
    create_floor, create_ceil = _unary(np.floor), _unary(np.ceil)
    create_exp, create_exp2, create_log, create_log2 = _unary(np.exp), _unary(np.exp2), _unary(np.log), _unary(np.log2)
    create_sin, create_cos = _unary(np.sin), _unary(np.cos)
    create_sqrt = create_precise_sqrt = _unary(np.sqrt)
    create_rsqrt = _unary(lambda x: 1 / np.sqrt(x.astype(np.float64)))
    create_erf = _unary(_erf)

    def create_ashr(self, lhs: Any, rhs: Any) -> Any:
        data = np.right_shift(_signed(lhs.data), _signed(rhs.data))
        return Handle(data.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_lshr(self, lhs: Any, rhs: Any) -> Any:
        data = np.right_shift(_unsigned(lhs.data), _unsigned(rhs.data))
        return Handle(data.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_umulhi(self, lhs: Any, rhs: Any) -> Any:
        data = _high_half(*np.broadcast_arrays(_unsigned(lhs.data), _unsigned(rhs.data)))
        return Handle(data.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        return _handle(_fused(_numbers(x), _numbers(y), _numbers(z)), z.dtype)

    def create_clampf(self, x: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        ignoring = propagate_nan == ir.PROPAGATE_NAN.NONE
        at_least, at_most = (np.fmax, np.fmin) if ignoring else (np.maximum, np.minimum)
        return _handle(at_most(at_least(_numbers(x), _numbers(low)), _numbers(high)), x.dtype)

    def create_select(self, condition: Any, lhs: Any, rhs: Any) -> Any:
        return Handle(np.where(condition.data, lhs.data, rhs.data), rhs.dtype.scalar)

    def create_dot(self, a: Any, b: Any, accumulator: Any, precision: Any, imprecise: Any) -> Any:
        m, k = a.data.shape[-2:]
        n = b.data.shape[-1]
        self._run.dot(math.prod(a.data.shape[:-2]) * m, n, k, a.dtype.scalar.name)
        x, y, total = _numbers(a), _numbers(b), _numbers(accumulator)
        if x.dtype.kind in "iu":
            product = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)  # exact: below 2**53
        else:
            wide = np.float64 if x.dtype == np.float64 else np.float32
            product = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
        return _handle(product + total, accumulator.dtype)

    def create_histogram(self, data: Any, bins: int, mask: Any) -> Any:
        numbers = data.data
        counted = (numbers >= 0) & (numbers < bins)
        if mask is not None:
            counted &= mask.data
        return Handle(np.bincount(numbers[counted].astype(np.int64), minlength=bins).astype(np.int32), tl.int32)

    # Conversions

    def _converted(self, source: Any, target: Any) -> Any:
        return _handle(_numbers(source), target)

    def create_fp_ext(self, source: Any, target: Any) -> Any:
        return self._converted(source, target)

    create_fp_trunc = create_ui_to_fp = create_si_to_fp = create_fp_ext

    def create_fp_to_fp(self, source: Any, target: Any, rounding: Any) -> Any:
        if rounding is None or rounding == ir.ROUNDING_MODE.RTNE:
            return self._converted(source, target)
        form, numbers = NARROW.get(target.scalar.name), _numbers(source)
        if form:
            return Handle(form.encode(numbers, toward_zero=True), target.scalar)
        nearest = numbers.astype(theirs._get_np_dtype(target.scalar))
        with np.errstate(all="ignore"):
            beyond = np.abs(nearest.astype(np.float64)) > np.abs(numbers.astype(np.float64))
            lower = np.nextafter(nearest, np.zeros_like(nearest))
        return Handle(np.where(beyond, lower, nearest), target.scalar)

    def create_fp_to_si(self, source: Any, target: Any) -> Any:
        return Handle(_whole(_numbers(source), theirs._get_np_dtype(target.scalar)), target.scalar)

    create_fp_to_ui = create_fp_to_si

    def create_int_cast(self, source: Any, target: Any, is_signed: bool) -> Any:
        return _handle(source.data, target)

    # Memory

    def create_load(self, pointers: Any, *policy: Any) -> Any:
        return self._run.load(pointers, None, None)

    def create_masked_load(self, pointers: Any, mask: Any, other: Any, *policy: Any) -> Any:
        return self._run.load(pointers, mask, other)

    def create_store(self, pointers: Any, value: Any, *policy: Any) -> None:
        self._run.store(pointers, value, None)

    def create_masked_store(self, pointers: Any, value: Any, mask: Any, *policy: Any) -> None:
        self._run.store(pointers, value, mask)

    def create_atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        return self._run.atomic(_NAMES[operation], pointers, value, mask, None)

    def create_atomic_cas(self, pointers: Any, compare: Any, value: Any, sem: Any, scope: Any) -> Any:
        return self._run.atomic("cas", pointers, value, None, compare)

    def create_atomic_load(self, pointers: Any, mask: Any, sem: Any, scope: Any) -> Any:
        return self._run.load(pointers, mask, None, "atomic")

    def create_atomic_store(self, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> None:
        self._run.store(pointers, value, mask, "atomic")

    def create_make_tensor_descriptor(
        self, base: Any, shape: Any, strides: Any, block: Any, is_signed: bool, padding: Any = None
    ) -> Any:
        return _Descriptor(base, shape, strides, block, padding)

    def create_descriptor_load(self, descriptor: _Descriptor, offsets: Any, *policy: Any) -> Any:
        pointers, mask = descriptor.pointers(offsets)
        return self._run.load(pointers, mask, descriptor.filling())

    def create_descriptor_store(self, descriptor: _Descriptor, value: Any, offsets: Any) -> None:
        pointers, mask = descriptor.pointers(offsets)
        self._run.store(pointers, value, mask)

    def create_tensor_pointer_load(self, pointer: Any, checked: Any, padding: Any, *policy: Any) -> Any:
        block = _Descriptor(pointer.base, pointer.shape, pointer.strides, pointer.block_shape, padding, checked)
        pointers, mask = block.pointers(pointer.offsets)
        return self._run.load(pointers, mask, None if padding is None else block.filling())

    def create_tensor_pointer_store(self, pointer: Any, value: Any, checked: Any, *policy: Any) -> None:
        block = _Descriptor(pointer.base, pointer.shape, pointer.strides, pointer.block_shape, None, checked)
        pointers, mask = block.pointers(pointer.offsets)
        self._run.store(pointers, value, mask)

    # Help with debugging

    def create_print(self, prefix: str, in_hex: bool, values: Sequence[Any], is_signed: Any) -> None:
        where = f"({', '.join(map(str, self.grid_idx))}){prefix}"
        if not values:
            self._run.print(f"{where}\n")
        for value in values:
            numbers = _numbers(value)
            shown = np.vectorize(lambda code: f"0x{code:x}")(_unsigned(value.data)) if in_hex else numbers
            self._run.print(f"{where}{shown}\n")

    def create_assert(self, condition: Any, message: str) -> None:
        if not condition.data.all():
            raise KernelError(f"tl.device_assert does not hold{f': {message}' if message else ''}")

    def create_assume(self, condition: Any) -> None:
        if not condition.data.all():
            raise KernelError("tl.assume does not hold")


_NAMES = {
    ir.ATOMIC_OP.ADD: "add",
    ir.ATOMIC_OP.FADD: "add",
    ir.ATOMIC_OP.MIN: "min",
    ir.ATOMIC_OP.UMIN: "umin",
    ir.ATOMIC_OP.MAX: "max",
    ir.ATOMIC_OP.UMAX: "umax",
    ir.ATOMIC_OP.AND: "and",
    ir.ATOMIC_OP.OR: "or",
    ir.ATOMIC_OP.XOR: "xor",
    ir.ATOMIC_OP.XCHG: "xchg",
}


def _whole(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """Toward zero; what does not fit becomes the nearest that does, and NaN becomes 0, as PTX's cvt.rzi has it."""
    limits = np.iinfo(dtype)
    wide = np.trunc(np.nan_to_num(numbers.astype(np.float64), posinf=np.inf, neginf=-np.inf))
    low, high = wide < limits.min, wide >= 2.0 ** (limits.bits - (limits.min < 0))
    whole = np.where(low | high, 0, wide).astype(dtype)
    return np.where(low, dtype.type(limits.min), np.where(high, dtype.type(limits.max), whole))


def _smallest_dot() -> Callable[..., Any]:
    """The least m, n, k of ``tl.dot`` on a Hopper GPU, as its compiler has it."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import min_dot_size

    rule: Callable[..., Any] = min_dot_size(GPUTarget("cuda", 90, 32))
    return rule


class _Descriptor:
    """What ``tl.make_tensor_descriptor`` or ``tl.make_block_ptr`` made: a block anywhere in a strided array."""

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
            raise KernelError("a tensor descriptor's base must be a multiple of 16 bytes")
        strides = [int(stride.data.reshape(-1)[0]) for stride in self.strides]
        if strides[-1] != 1:
            raise KernelError(f"a tensor descriptor's last stride must be 1, got {strides[-1]}")
        if any(stride * size % 16 for stride in strides[:-1]):
            raise KernelError(f"a tensor descriptor's strides must be multiples of 16 bytes, got {strides} elements")

    def _itemsize(self) -> int:
        return max(1, self.base.get_element_ty().primitive_bitwidth // 8)

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
        return _handle(np.array([np.nan if self.padding == ir.PADDING_OPTION.PAD_NAN else 0.0], np.float32), dtype)


class Run:
    """One launch under way: where its accesses go."""

    def __init__(self, source: KernelSource, memory: Memory, recorder: Recorder | None) -> None:
        self.source = source
        self.memory = memory
        self.recorder = recorder
        self.arguments: tuple[Argument, ...] = ()
        self.places: dict[str, str] = {}  # file names given to Python's compiler -> the student's cell
        self.program: Program = (0, 0, 0)
        self.print: Callable[[str], None] = sys.stdout.write

    def line(self, frame: FrameType | None = None) -> Line:
        """The line of the student's that is being interpreted."""
        at: FrameType | None = frame or sys._getframe(1)
        while at is not None and at.f_code.co_filename not in self.places:
            at = at.f_back
        return Line(self.places[at.f_code.co_filename], at.f_lineno) if at else Line("", 0)

    def load(self, pointers: Any, mask: Any, other: Any, kind: Kind = "load") -> Any:
        dtype = pointers.get_element_ty()
        form = NARROW.get(dtype.name)
        addresses, on = pointers.data, None if mask is None else np.broadcast_to(mask.data, pointers.data.shape)
        filler = theirs._get_np_dtype(dtype).type(0) if other is None else other.data
        outside = self._access(kind, addresses, on, filler.dtype.itemsize, None)
        poison = None if form is None else form.nan
        return Handle(self.memory.load(addresses, on, np.asarray(filler), outside, poison), dtype)

    def store(self, pointers: Any, value: Any, mask: Any, kind: Kind = "store") -> None:
        addresses, on = pointers.data, None if mask is None else np.broadcast_to(mask.data, pointers.data.shape)
        outside = self._access(kind, addresses, on, value.data.dtype.itemsize, value.data)
        self._require_writable(addresses, on, outside)
        self.memory.store(addresses, on, value.data, outside)

    def atomic(self, name: str, pointers: Any, value: Any, mask: Any, compare: Any) -> Any:
        addresses = pointers.data
        on = None if mask is None else np.broadcast_to(mask.data, addresses.shape)
        outside = self._access("atomic", addresses, on, value.data.dtype.itemsize, value.data)
        self._require_writable(addresses, on, outside)
        old = atomic(
            self.memory,
            name,
            addresses,
            on,
            outside,
            value.data,
            None if compare is None else compare.data,
            _narrow(value),
        )
        return Handle(old, value.dtype.scalar)

    def dot(self, m: int, n: int, k: int, dtype: str) -> None:
        if self.recorder:
            self.recorder.dot(self.line(), self.program, m, n, k, dtype)

    def _access(
        self, kind: Kind, addresses: NDArray[np.uint64], mask: Array | None, itemsize: int, value: Array | None
    ) -> NDArray[np.bool_] | None:
        if itemsize > 1:
            crooked = (addresses & np.uint64(itemsize - 1)) != 0
            if crooked.any() and (mask is None or (crooked & mask).any()):
                raise KernelError(f"a {kind} of {itemsize} bytes at an address that is no multiple of {itemsize}")
        outside = self.memory.outside(addresses, mask, itemsize)
        if self.recorder:
            self.recorder.access(kind, self.line(), self.program, addresses, mask, itemsize, value, outside)
        elif outside is not None:
            raise KernelError(self._stray(kind, int(addresses[outside].reshape(-1)[0]), int(outside.sum())))
        return outside

    def _require_writable(self, addresses: NDArray[np.uint64], mask: Array | None, outside: Array | None) -> None:
        for region in self.memory.regions:
            if not region.writable:
                touched = (addresses >= np.uint64(region.start)) & (addresses < np.uint64(region.stop))
                if (touched if mask is None else touched & mask).any():
                    names = [one.name for one in self.arguments if region.start <= one.start < region.stop]
                    raise KernelError(f"it stores to {names[0] if names else 'an array'}, which is read-only")

    def _stray(self, kind: Kind, address: int, count: int) -> str:
        region = self.memory.region_of(address)
        owners = [one for one in self.arguments if region and region.start <= one.start < region.stop]
        verb = {"load": "reads", "store": "writes", "atomic": "updates"}[kind]
        if not owners:
            return f"it {verb} {count:,} elements at an address that belongs to no argument"
        near = min(owners, key=lambda one: abs(one.address - address))
        element = (address - near.address) // near.itemsize
        length = (near.stop - near.start) // near.itemsize
        more = f", and {count - 1:,} more outside" if count > 1 else ""
        return f"it {verb} {near.name}[{element}], and {near.name} has {length:,} elements{more}; give it a mask"


class Interpreter:
    """Runs launches, one after the other, in a process that does nothing else: it changes ``triton.language``."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.semantic = TritonSemantic(self.builder)
        theirs.interpreter_builder = self.builder
        theirs.interpreter_semantic = self.semantic
        theirs._patch_lang(FunctionType(_nothing.__code__, {"tl": tl, "core": tl.core}))
        self._helpers = self._python_as_triton()
        self._change_language()
        self._modules = self._public_modules()

    def launch(
        self,
        source: KernelSource,
        grid: Program,
        arguments: dict[str, Any],
        memory: Memory,
        *,
        arrays: Sequence[Argument] = (),
        recorder: Recorder | None = None,
        order: Sequence[int] | None = None,
        print: Callable[[str], None] = sys.stdout.write,
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Run every program. ``arguments`` holds pointers as {"pointer": type, "address": n}, scalars as
        {"scalar": type, "value": v}, descriptors, and constants as they are.

        Raises RefusedSourceError before anything runs, KernelError with the student's line afterwards.
        """
        rules.check_rules(source)
        run = self.builder.run = Run(source, memory, recorder)
        run.arguments = tuple(arrays)
        run.print = print
        self.builder.grid_dim = grid
        if recorder:
            recorder.begin(Launch(source.entry.name, grid, tuple(arrays)))
        self.builder.grid_idx = (0, 0, 0)
        with np.errstate(all="ignore"):
            try:
                kernel = self._functions(source, run)[source.kernel]
                values = {name: self._argument(value) for name, value in arguments.items()}
                count = grid[0] * grid[1] * grid[2]
                for done, index in enumerate(range(count) if order is None else order):
                    x, rest = index % grid[0], index // grid[0]
                    run.program = self.builder.grid_idx = (int(x), int(rest % grid[1]), int(rest // grid[1]))
                    progress(done)
                    kernel(**values)
            except Exception as error:
                raise _explained(error, run) from error
            finally:
                self.builder.run = None

    def _argument(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "tuple" in value:
            return tl.tuple([self._argument(part) for part in value["tuple"]])
        if "float" in value:
            return float(value["float"])
        if "language" in value:
            return self._resolve(value["language"])
        if "pointer" in value:
            pointer = tl.pointer_type(_dtype(value["pointer"]))
            return tl.tensor(Handle(np.array([value["address"]], np.uint64), pointer), pointer)
        if "scalar" in value:
            dtype = _dtype(value["scalar"])
            return tl.tensor(_handle(np.array([value["value"]]), dtype), dtype)
        shape, strides = value["shape"], value["strides"]
        return self.semantic.make_tensor_descriptor(
            base=self._argument(value["base"]),
            shape=[self.semantic.to_tensor(one) for one in shape],
            strides=[*(self.semantic.to_tensor(one) for one in strides[:-1]), tl.constexpr(strides[-1])],
            block_shape=[tl.constexpr(one) for one in value["block"]],
            padding_option=value["padding"],
        )

    def _functions(self, source: KernelSource, run: Run) -> dict[str, Any]:
        """Every jitted function, in a namespace that holds what its names stand for and nothing else."""
        made: dict[str, Any] = {}
        spaces: dict[str, dict[str, Any]] = {}
        for index, function in enumerate(source.functions):
            file = f"<kernel {index}>"
            run.places[file] = function.place
            space: dict[str, Any] = {"__builtins__": {}, **self._helpers}
            exec(compiled(function.text, file, function.first_line), space)  # type: ignore[arg-type]
            made[function.key] = space[function.name]
            made[function.key].__defaults__, made[function.key].__kwdefaults__ = self._defaults(function)
            spaces[function.key] = space
        for function in source.functions:
            space = spaces[function.key]
            for name, meaning in function.names.items():
                space[name] = made[meaning.value] if meaning.kind == "function" else self._meaning(meaning)
        return made

    def _defaults(self, function: Function) -> tuple[tuple[Any, ...] | None, dict[str, Any] | None]:
        plain = [self._meaning(one.default) for one in function.parameters if one.default and not one.keyword_only]
        named = {
            one.name: self._meaning(one.default) for one in function.parameters if one.default and one.keyword_only
        }
        return tuple(plain) or None, named or None

    def _meaning(self, name: Any) -> Any:
        if name.kind == "constant":
            return constant(name.value)
        if name.kind == "python":
            return self._helpers[name.value]
        return self._resolve(name.value)

    def _resolve(self, path: str) -> Any:
        if path in self._modules:
            return self._modules[path]
        module, _, name = path.rpartition(".")
        try:
            return getattr(self._modules[module], name)
        except (KeyError, AttributeError):
            raise Refused(f"this Triton ({triton.__version__}) has no {path}") from None

    def _public_modules(self) -> dict[str, Any]:
        def chosen(module: Any, names: Sequence[str]) -> SimpleNamespace:
            return SimpleNamespace(**{name: getattr(module, name) for name in names if hasattr(module, name)})

        language, math_module = chosen(tl, sorted(rules.LANGUAGE)), chosen(tl.math, sorted(rules.MATH))
        language.math = math_module
        language.constexpr = self._helpers["_lk_constexpr"]
        top = chosen(triton, sorted(rules.TOP))
        top.language = language
        return {"triton": top, "triton.language": language, "triton.language.math": math_module}

    def _python_as_triton(self) -> dict[str, Any]:
        def to_tensor(value: Any) -> Any:
            return self.semantic.to_tensor(value, False)

        def both(*operands: Callable[[], Any]) -> Any:
            return _joined(operands, "logical_and", False)

        def either(*operands: Callable[[], Any]) -> Any:
            return _joined(operands, "logical_or", True)

        def negated(value: Any) -> Any:
            return value.__not__() if isinstance(value, tl.tensor) else not value

        def asserted(condition: Any, message: str) -> None:
            if isinstance(condition, tl.tensor):
                tl.device_assert(condition, message)
            elif not condition:
                raise KernelError(f"assert does not hold{f': {message}' if message else ''}")

        def counted(*bounds: Any, **hints: Any) -> Iterator[Any]:
            names = ("arg1", "arg2", "step")
            given = [*bounds, *(hints[name] for name in names[len(bounds) :] if hints.get(name) is not None)]
            tensors = [self.semantic.to_tensor(one) for one in given]
            dtype = tl.int64 if any(one.dtype.int_bitwidth == 64 for one in tensors) else tl.int32
            for index in range(*(int(one.handle.data.reshape(-1)[0]) for one in tensors)):
                yield self.semantic.scalar_constant(index, dtype)

        def least(a: Any, b: Any, **options: Any) -> Any:
            return tl.minimum(a, b, **options) if isinstance(a, tl.tensor) or isinstance(b, tl.tensor) else min(a, b)

        def most(a: Any, b: Any, **options: Any) -> Any:
            return tl.maximum(a, b, **options) if isinstance(a, tl.tensor) or isinstance(b, tl.tensor) else max(a, b)

        return {
            "_lk_to_tensor": to_tensor,
            "_lk_and": both,
            "_lk_or": either,
            "_lk_not": negated,
            "_lk_assert": asserted,
            "_lk_constexpr": lambda value: value.value if isinstance(value, tl.constexpr) else value,
            "range": counted,
            "min": least,
            "max": most,
            "len": len,
            "int": int,
            "float": float,
            "print": lambda *values, **options: tl.device_print(*values, **options),
        }

    def _change_language(self) -> None:
        counted = self._helpers["range"]
        for module in (tl, tl.core):
            module.range = counted
            module.static_range = _static_range
            module.static_assert = _static_assert
            module.static_print = lambda *values, **options: self.builder._run.print(" ".join(map(str, values)) + "\n")
            module.reduce = _reduce
            module.associative_scan = _scan
        tl.tensor.__bool__ = _truth
        theirs.InterpretedFunction.__call__ = lambda function, *args, **kwargs: self._library(function.fn)(
            *args, **kwargs
        )

    @cache  # noqa: B019  (there is one interpreter in its process, and it lives as long)
    def _library(self, function: FunctionType) -> Any:
        """A function of Triton's own that is written in Triton."""
        lines, first = inspect.getsourcelines(function)
        start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
        text = textwrap.dedent("".join(lines[start:]))
        space = {**function.__globals__, **self._helpers}
        for name in ("min", "max"):
            space[name] = function.__globals__.get(name, self._helpers[name])
        for name in ("len", "int", "float", "print"):
            space.pop(name, None)
        exec(compiled(text, inspect.getfile(function), first + start, keep_defaults=True), space)  # type: ignore[arg-type]
        return space[function.__name__]


def _nothing() -> None:
    pass


def _joined(operands: Sequence[Callable[[], Any]], method: str, decisive: bool) -> Any:
    tensors, last = [], None
    for operand in operands:
        last = operand()
        if isinstance(last, tl.tensor):
            tensors.append(last)
        elif bool(last) is decisive:
            return last
    result = tensors[0] if tensors else last
    for tensor in tensors[1:]:
        result = getattr(result, method)(tensor)
    return result


def _truth(tensor: Any) -> bool:
    if tensor.handle.data.size != 1:
        raise Refused(f"a block of shape {_shape(tensor)} is not one condition; use tl.where, or reduce it first")
    return bool(tensor.handle.data.reshape(-1)[0])


def _shape(tensor: Any) -> list[int]:
    return [int(n) for n in tensor.handle.data.shape]


def _static_range(start: Any, stop: Any = None, step: Any = None, **options: Any) -> range:
    plain = [one.value if isinstance(one, tl.constexpr) else one for one in (start, stop, step) if one is not None]
    if any(isinstance(one, tl.tensor) for one in plain):
        raise Refused("tl.static_range takes constants (tl.constexpr); use range or tl.range for numbers of run time")
    return range(*plain)


def _static_assert(condition: Any, message: str = "") -> None:
    if not condition:
        raise KernelError(f"tl.static_assert does not hold{f': {message}' if message else ''}")


def _part(tensor: Any, data: Array) -> Any:
    dtype = tensor.type.scalar
    return tl.tensor(Handle(data, dtype), tl.block_type(dtype, list(data.shape)) if data.ndim else dtype)


def _run_combine(combine: Any, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    result = combine(*left, *right)
    return list(result) if isinstance(result, (tuple, tl.tuple)) else [result]


def _reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **options: Any) -> Any:
    """Neighbours are combined, then the results, as a tree of warps would; the function is run on whole blocks."""
    several = isinstance(input, (tuple, tl.tuple))
    blocks = list(input) if several else [input]
    axis = axis.value if isinstance(axis, tl.constexpr) else axis
    keep_dims = keep_dims.value if isinstance(keep_dims, tl.constexpr) else keep_dims
    rank = len(_shape(blocks[0]))
    if axis is not None and not -rank <= axis < rank:
        raise Refused(f"axis {axis} is out of bounds for a block of shape {_shape(blocks[0])}")
    arrays = [
        block.handle.data.reshape(-1) if axis is None else np.moveaxis(block.handle.data, axis, 0) for block in blocks
    ]
    while arrays[0].shape[0] > 1:
        left = [_part(block, array[0::2]) for block, array in zip(blocks, arrays, strict=True)]
        right = [_part(block, array[1::2]) for block, array in zip(blocks, arrays, strict=True)]
        arrays = [one.handle.data for one in _run_combine(combine_fn, left, right)]
    results = []
    for block, array in zip(blocks, arrays, strict=True):
        data = array[0]
        if keep_dims:
            data = np.reshape(data, [1] * rank) if axis is None else np.expand_dims(data, axis)
        scalar = not np.ndim(data)
        results.append(_part(block, np.asarray(data)) if not scalar else _scalar(block, data))
    return tuple(results) if several else results[0]


def _scalar(tensor: Any, value: Any) -> Any:
    return tl.tensor(Handle(np.array([value], tensor.handle.data.dtype), tensor.type.scalar), tensor.type.scalar)


def _scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **options: Any) -> Any:
    """Hillis and Steele: after step d each element has combined the 2 d before it."""
    several = isinstance(input, (tuple, tl.tuple))
    blocks = list(input) if several else [input]
    axis = axis.value if isinstance(axis, tl.constexpr) else axis
    reverse = reverse.value if isinstance(reverse, tl.constexpr) else reverse
    turned = [np.moveaxis(block.handle.data, axis, 0) for block in blocks]
    arrays = [np.array(array[::-1] if reverse else array) for array in turned]
    distance = 1
    while distance < arrays[0].shape[0]:
        left = [_part(block, array[:-distance]) for block, array in zip(blocks, arrays, strict=True)]
        right = [_part(block, array[distance:]) for block, array in zip(blocks, arrays, strict=True)]
        combined = _run_combine(combine_fn, left, right)
        arrays = [
            np.concatenate([array[:distance], one.handle.data]) for array, one in zip(arrays, combined, strict=True)
        ]
        distance *= 2
    results = [
        _part(block, np.ascontiguousarray(np.moveaxis(array[::-1] if reverse else array, 0, axis)))
        for block, array in zip(blocks, arrays, strict=True)
    ]
    return tuple(results) if several else results[0]


def _dtype(name: str) -> Any:
    if name in _FOREIGN_FORMATS:
        raise Refused(f"{name} is not interpreted: {_FOREIGN_FORMATS[name]}; use tl.float8e4nv or tl.float8e5")
    return tl.str_to_ty(name, None)


def _explained(error: Exception, run: Run) -> Exception:
    """One line: where in the student's code, what, and in which program."""
    line = Line("", 0)
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename in run.places:
            line = Line(run.places[frame.f_code.co_filename], number)
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, (KernelError, Refused, AssertionError, ValueError, TypeError, NotImplementedError)):
        text = f"{type(error).__name__}: {text}" if type(error).__module__ == "builtins" else text
    where = f"{line}: " if line.number else ""
    shown = run.source.line_text(*line) if line.number else ""
    code = f"  [{shown}]" if shown else ""
    return KernelError(f"{where}{text}, in program {run.program}{code}", line.place, line.number, run.program)
