"""Arrays and tensors as bytes: overlapping ones share a buffer, so that what were views of each other are so again.

An array crosses as (buffer, offset, shape, strides). A result that lies inside an argument's memory names that
argument's buffer instead of bringing bytes; the receiver then makes the view on **its own** memory, so that the values
of a claimed view are always the receiver's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from mlsys_grading.boundary.errors import NotPlainError, ProtocolError
from mlsys_grading.boundary.wire import FrameLimits

NUMPY_TYPES = frozenset(np.dtype(code).str for code in "?bBhHiIlLqQefdFD")
_NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
_NAMES += ["complex64", "complex128", "float8_e4m3fn", "float8_e5m2"]
TORCH_TYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}

Array = np.ndarray[Any, Any] | torch.Tensor


@dataclass
class Span:
    """Addresses [low, high) of this process, and the arrays that lie there."""

    low: int
    high: int
    owners: list[Array] = field(default_factory=list)

    def bytes(self) -> memoryview:
        """Return the memory itself, not a copy."""
        return memoryview((ctypes.c_char * (self.high - self.low)).from_address(self.low)).cast("B")


@dataclass(frozen=True)
class Collected:
    """The memory of all arrays of one message: a span a buffer, in the order of the buffers."""

    spans: tuple[Span, ...]

    def copies(self) -> list[bytes]:
        """Copy the memory. Raises NotPlainError, before anything is copied, for more than a frame may hold."""
        return [bytes(memory) for memory in self.memory()]

    def memory(self) -> list[memoryview]:
        """Return the memory itself, to be sent at once. Raises NotPlainError for more than a frame may hold."""
        total = sum(span.high - span.low for span in self.spans)
        if total > FrameLimits.buffer_bytes:
            raise NotPlainError(f"{total} bytes of arrays are too much for one call")
        return [span.bytes() for span in self.spans]


@dataclass(frozen=True)
class ReceivedBuffer:
    """A received buffer; all tensors in it share one storage, as all arrays in it share one base."""

    data: memoryview

    @cached_property
    def tensor(self) -> torch.Tensor:
        return torch.frombuffer(self.data, dtype=torch.uint8)


def span_of(array: Array) -> Span:
    """Return the addresses that an array's elements touch."""
    if isinstance(array, torch.Tensor):
        low, item = array.data_ptr(), array.element_size()
        steps = ((size - 1) * stride for size, stride in zip(array.shape, array.stride(), strict=True))
        return Span(low, low + (sum(steps) + 1) * item if array.numel() else low, [array])
    if not array.size:
        low = int(array.__array_interface__["data"][0])
        return Span(low, low, [array])
    return Span(*np.lib.array_utils.byte_bounds(array), [array])


def collect(found: Sequence[tuple[list[Any], Array]], known: Sequence[Span] = ()) -> Collected:
    """Give every array of a message its place, and append ``[buffer, offset]`` to its node.

    Arrays whose memory overlaps get one buffer. One that lies inside a ``known`` span, of an argument, gets the number
    -1 - k of that span, and brings no bytes.
    """
    left = []
    for node, array in found:
        span = span_of(array)
        home = next((k for k, each in enumerate(known) if each.low <= span.low < span.high <= each.high), None)
        if home is None:
            left.append((span, node))
        else:
            node += [-1 - home, span.low - known[home].low]
    spans: list[Span] = []
    for span, node in sorted(left, key=lambda pair: (pair[0].low, pair[0].high)):
        if spans and span.low < spans[-1].high:
            spans[-1].high = max(spans[-1].high, span.high)
            spans[-1].owners += span.owners
        else:
            spans.append(span)
        node += [len(spans) - 1, span.low - spans[-1].low]
    return Collected(tuple(spans))


def rebuild(
    node: Sequence[Any], memories: Sequence[ReceivedBuffer], known: Sequence[Span], budget: int
) -> tuple[Array, int]:
    """Return the array that a node ``[tag, dtype, shape, strides, writeable, buffer, offset]`` describes, and its size.

    ``offset`` is that of the lowest address; strides are in bytes for an array, in elements for a tensor. ``budget`` is
    how many bytes it may claim to have: with strides of zero a small buffer looks huge. Raises ProtocolError for
    anything that does not fit.
    """
    tag, kind, shape, strides, writeable, buffer, offset = node
    is_tensor = tag == "tensor"
    if kind not in (TORCH_TYPES if is_tensor else NUMPY_TYPES) or type(writeable) is not bool:
        raise ProtocolError("an array of no known type")
    item = TORCH_TYPES[kind].itemsize if is_tensor else np.dtype(kind).itemsize
    shape, strides = whole_numbers(shape), whole_numbers(strides)
    if len(shape) != len(strides) or len(shape) > 32 or min(shape, default=0) < 0:
        raise ProtocolError("an array of an impossible shape")
    if is_tensor and min(strides, default=0) < 0:
        raise ProtocolError("a tensor with a negative stride")
    steps = [stride * item if is_tensor else stride for stride in strides]
    size = math.prod(shape) * item
    if size > budget and not (type(buffer) is int and buffer < 0):  # a view of our memory allocates nothing
        raise ProtocolError(f"an array that claims {size} bytes")
    if not size:
        if is_tensor:
            return torch.empty(shape, dtype=TORCH_TYPES[kind]), 0
        return np.empty(shape, np.dtype(kind)), 0
    below, reach = _extent(shape, steps, item)
    inside, offset = whole_numbers([buffer, offset])
    if not -len(known) <= inside < len(memories):
        raise ProtocolError("an array in a buffer that was not sent")
    length = len(memories[inside].data) if inside >= 0 else known[-1 - inside].high - known[-1 - inside].low
    if offset < 0 or offset + reach > length:
        raise ProtocolError("an array that reaches out of its buffer")
    claimed = size if inside >= 0 else 0
    if is_tensor:
        tensor = _tensor(TORCH_TYPES[kind], shape, strides, inside, offset, memories=memories, known=known)
        return tensor, claimed
    base: Any = memories[inside].data if inside >= 0 else _memory_of(known[-1 - inside])
    array = np.ndarray(shape, np.dtype(kind), base, offset + below, strides)
    array.flags.writeable = writeable
    return array, claimed


def _extent(shape: Sequence[int], steps: Sequence[int], item: int) -> tuple[int, int]:
    """Return how many bytes lie below an array's first element, and how many from its lowest byte to its highest."""
    pairs = list(zip(shape, steps, strict=True))
    below = sum((count - 1) * -step for count, step in pairs if step < 0)
    return below, sum((count - 1) * abs(step) for count, step in pairs) + item


def _tensor(
    kind: torch.dtype,
    shape: list[int],
    strides: list[int],
    buffer: int,
    offset: int,
    *,
    memories: Sequence[ReceivedBuffer],
    known: Sequence[Span],
) -> torch.Tensor:
    if buffer >= 0:
        storage, start = memories[buffer].tensor.untyped_storage(), offset
    else:
        span = known[-1 - buffer]
        own = next((each for each in span.owners if isinstance(each, torch.Tensor)), None)
        if own is None:
            own = torch.frombuffer(_memory_of(span), dtype=torch.uint8)
        storage, start = own.untyped_storage(), span.low + offset - own.untyped_storage().data_ptr()
    if start % kind.itemsize:
        raise ProtocolError("a tensor between two elements")
    return torch.empty(0, dtype=kind).set_(storage, start // kind.itemsize, shape, strides)


def _memory_of(span: Span) -> Any:
    memory: Any = (ctypes.c_char * (span.high - span.low)).from_address(span.low)
    memory.owners = span.owners  # keeps the memory alive as long as a view of it lives
    return memory


def overwrite(span: Span, new: memoryview) -> None:
    """Write ``new`` over the elements of a span's writeable arrays: an argument that was changed in place.

    Bytes between the elements of a strided array are another's, and stay.
    """
    if len(new) != span.high - span.low:
        raise ProtocolError("an argument's memory came back with another size")
    source = ctypes.addressof(ctypes.c_char.from_buffer(new))
    for owner in span.owners:
        if isinstance(owner, np.ndarray) and not owner.flags.writeable:
            continue
        low = span_of(owner).low
        _elements(owner, low)[...] = _elements(owner, source + low - span.low)


def _elements(like: Array, address: int) -> np.ndarray[Any, Any]:
    """Return a view of the memory at ``address``: opaque items in the layout of ``like``."""
    if isinstance(like, torch.Tensor):
        item = like.element_size()
        shape, steps = tuple(like.shape), [stride * item for stride in like.stride()]
    else:
        item, shape, steps = like.itemsize, like.shape, list(like.strides)
    below, reach = _extent(shape, steps, item)
    memory: Any = (ctypes.c_char * (reach if all(shape) else 1)).from_address(address)
    return np.ndarray(shape, f"V{item}", memory, below, steps)


def whole_numbers(values: Any) -> list[int]:
    """Return ``values`` if they are a list of whole numbers, else raise ProtocolError."""
    if type(values) is not list or not all(type(value) is int for value in values):
        raise ProtocolError("not a list of whole numbers")
    return values
