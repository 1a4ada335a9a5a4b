"""Plain data as a tree of msgpack's own types, and back. Nothing on the wire names code that is to be run.

``None``, booleans, whole numbers of 64 bits, floats, text and bytes stand for themselves; everything else is a list
that begins with a tag. Records (dataclasses, named tuples, enums) are looked up by name in a table that the *receiver*
owns, and made without running their ``__init__``. The caller that makes an ``Encoder`` or a ``Decoder`` handles
references to live objects.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from mlsys_grading.boundary.arrays import (
    NUMPY_TYPES,
    TORCH_TYPES,
    Collected,
    ReceivedBuffer,
    Span,
    collect,
    rebuild,
    whole_numbers,
)
from mlsys_grading.boundary.errors import BoundaryError, NotPlainError, ProtocolError

DEPTH = 60
NODES = 400_000
ARRAY_BYTES = 1 << 30
_INTEGER_DIGITS = 4096
_ATOMS = frozenset((type(None), bool, int, float, str, bytes))
_BASES: tuple[type, ...] = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
_CHANGING = (list, dict, set)
_VIEWS: dict[type, str] = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_DEVICES = ("cpu", "cuda", "cuda:0", "meta")
REFERENCES = ("handle", "callback", "name")
"""Tags that only ``refer`` makes and only ``resolve`` reads."""

Node = Any
Refer = Callable[[object], Node]
Resolve = Callable[[str, Sequence[Any]], object]


class Encoder:
    """An encoder of the values of one message into nodes and buffers.

    Args:
        records: the classes of dataclasses, enums and named tuples that may cross, by name.
        refer: makes a node of what is no plain data, or raises NotPlainError.
        known: memory of the arguments that the message answers; arrays inside it are named, not sent.
        same: id of a mutable argument -> its number; the object itself is named, not sent.
        live: classes whose objects are referred to, also where they extend a list, a dict or a set.
    """

    def __init__(
        self,
        records: Mapping[str, type] | None = None,
        refer: Refer | None = None,
        known: Sequence[Span] = (),
        same: Mapping[int, int] | None = None,
        live: tuple[type, ...] = (),
    ) -> None:
        self.records, self.known, self.same, self._live = records or {}, known, same or {}, live
        self.objects: list[object] = []
        """The mutable objects of the message, in the order in which a Decoder makes them."""
        self._refer = refer or _refuse
        self._arrays: list[tuple[list[Any], Any]] = []
        self._nodes = 0

    def node(self, value: Any, depth: int = 0) -> Node:
        """Return the node of one value. Raises NotPlainError if it is too deep, too large, or no plain data."""
        kind = type(value)
        self._count(1, depth)
        if kind in _ATOMS and kind is not int:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else ["integer", hex(value)]
        if id(value) in self.same:
            return ["argument", self.same[id(value)]]
        if node := self._collection(value, kind, depth) or self._array(value) or self._described(value, kind, depth):
            return node
        if name := self._record_name(kind):
            return self._record(value, kind, name, depth)
        for base in _BASES:  # OrderedDict, Counter, IntEnum, a subclass of str: their content, without their methods
            if isinstance(value, base) and not dataclasses.is_dataclass(value):
                if base in _CHANGING and isinstance(value, self._live):
                    break
                return self.node(base(value), depth)
        return self._refer(value)

    def collected(self) -> Collected:
        """Give every array its place in a buffer; called once, after the last ``node``."""
        return collect(self._arrays, self.known)

    def _count(self, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if depth > DEPTH or self._nodes > NODES:
            raise NotPlainError("a value too deep or too large to cross between processes")

    def _collection(self, value: Any, kind: type, depth: int) -> Node:
        if kind in (list, set, dict, bytearray, deque):
            self.objects.append(value)
        if kind is list and _ATOMS.issuperset(map(type, value)) and _small(value):
            self._count(len(value), depth)
            return ["atoms", value.copy()]
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__, [self.node(each, depth + 1) for each in value]]
        if kind is deque:
            return ["deque", [self.node(each, depth + 1) for each in value], value.maxlen]
        if kind in _VIEWS:
            return [_VIEWS[kind], [self.node(each, depth + 1) for each in value]]
        if kind is MappingProxyType:
            return ["mapping", self.node(dict(value), depth + 1)]
        if kind is dict:
            return ["dict", [[self.node(key, depth + 1), self.node(each, depth + 1)] for key, each in value.items()]]
        if kind in (slice, range):
            return [kind.__name__, [self.node(each, depth + 1) for each in (value.start, value.stop, value.step)]]
        return None

    def _array(self, value: object) -> Node:
        plain: Any
        if isinstance(value, np.ndarray) and value.dtype.str in NUMPY_TYPES:
            plain = value.view(np.ndarray)
            tag, kind, steps, writeable = "array", plain.dtype.str, plain.strides, plain.flags.writeable
        elif isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu":
            plain = value.detach().resolve_conj().resolve_neg()
            tag, kind, steps, writeable = "tensor", str(plain.dtype).removeprefix("torch."), plain.stride(), True
            if kind not in TORCH_TYPES:
                return None
        else:
            return None
        self.objects.append(value)
        node = [tag, kind, list(map(int, plain.shape)), list(map(int, steps)), bool(writeable)]
        self._arrays.append((node, plain))
        return node

    def _described(self, value: Any, kind: type, depth: int) -> Node:
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is bytearray:
            return ["bytearray", bytes(value)]
        if isinstance(value, np.generic) and value.dtype.str in NUMPY_TYPES:
            return ["scalar", value.dtype.str, value.tobytes()]
        if kind is np.random.Generator:
            self.objects.append(value)
            name, state = type(value.bit_generator).__name__, self.node(value.bit_generator.state, depth + 1)
            # This draw lets the two sides continue from different states, the same ones in every run.
            value.integers(2**62)
            return ["generator", name, state]
        if isinstance(value, np.dtype):
            return ["numpy type", value.str]
        if kind is torch.dtype:
            return ["torch type", str(value).removeprefix("torch.")]
        if kind is torch.device:
            return ["device", str(value)]
        if kind is torch.Size:
            return ["size", list(map(int, value))]
        return ["..."] if value is Ellipsis else None

    def _record_name(self, kind: type) -> str:
        """Return the name by which both sides find a record's class: a locked cell's, or the kit's own by its path."""
        if self.records.get(kind.__name__) is kind:
            return kind.__name__
        path = f"{kind.__module__}.{kind.__qualname__}"
        return path if kit_record(path) is kind else ""

    def _record(self, value: Any, kind: type, name: str, depth: int) -> Node:
        if isinstance(value, enum.Enum):
            return ["enum", name, value.name]
        if dataclasses.is_dataclass(value):
            self.objects.append(value)
            fields = [each.name for each in dataclasses.fields(value)]
            return ["record", name, [[field, self.node(getattr(value, field), depth + 1)] for field in fields]]
        if isinstance(value, tuple):
            return ["named", name, [self.node(each, depth + 1) for each in value]]
        return self._refer(value)


class Decoder:
    """A decoder of nodes and buffers into values. Nothing is trusted: any irregularity raises ProtocolError.

    Args:
        buffers: of the frame.
        records: as the Encoder's, but the receiver's own classes.
        resolve: gives the object of a node whose tag is in ``REFERENCES``.
        known: memory of the arguments that the message answers.
        same: those arguments, by number.
        generators: whether random generators may arrive: only at the student's end, or a student could choose the
            random inputs of a test.
    """

    def __init__(
        self,
        buffers: Sequence[memoryview] = (),
        records: Mapping[str, type] | None = None,
        resolve: Resolve | None = None,
        known: Sequence[Span] = (),
        same: Sequence[object] = (),
        generators: bool = False,
    ) -> None:
        self.generators = generators
        self.memories = [ReceivedBuffer(buffer) for buffer in buffers]
        self.records, self.known, self.same, self.resolve = records or {}, known, same, resolve
        self.objects: list[object] = []
        self._nodes, self._bytes = 0, 0

    def value(self, node: Node, depth: int = 0) -> Any:
        """Return the value of one node."""
        self._count(1, depth)
        if type(node) in _ATOMS:
            return node
        if type(node) is not list or not node or type(node[0]) is not str:
            raise ProtocolError("a value without a tag")
        make = _MAKERS.get(node[0])
        try:
            if make:
                return make(self, depth, *node[1:])
            if node[0] in ("array", "tensor"):
                return self._array(node)
            if node[0] in REFERENCES and self.resolve:
                return self.resolve(node[0], node[1:])
        except (BoundaryError, NotPlainError, NameError):
            raise
        except RecursionError:
            raise ProtocolError("a value too deep") from None
        except Exception as error:  # a wrong number of parts, a wrong type, a key that has no hash ...
            raise ProtocolError(f"a malformed {node[0][:12]}: {type(error).__name__}") from None
        raise ProtocolError(f"a value with the tag {node[0][:12]!r}")

    def _count(self, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if depth > DEPTH or self._nodes > NODES:
            raise ProtocolError("a value too deep or too large")

    def _new(self, value: Any) -> Any:
        self.objects.append(value)
        return value

    def _values(self, depth: int, nodes: Any) -> list[Any]:
        if type(nodes) is not list:
            raise ProtocolError("not a list")
        return [self.value(each, depth + 1) for each in nodes]

    def _array(self, node: Node) -> Any:
        array, size = rebuild(node, self.memories, self.known, ARRAY_BYTES - self._bytes)
        self._bytes += size
        return self._new(array)

    def _atoms(self, depth: int, values: Any) -> list[Any]:
        self._count(len(values), depth)
        if type(values) is not list or not _ATOMS.issuperset(map(type, values)):
            raise ProtocolError("atoms that are none")
        self._new(values)
        return values

    def _filled(self, made: Any, depth: int, nodes: Any) -> Any:
        """Fill a container that has its number already: the Encoder numbers it before its content, too."""
        self.objects.append(made)
        (made.update if type(made) is set else made.extend)(self._values(depth, nodes))
        return made

    def _dict(self, depth: int, pairs: Any) -> dict[Any, Any]:
        made = self._new({})
        for key, value in pairs:
            made[self.value(key, depth + 1)] = self.value(value, depth + 1)
        return made  # type: ignore[no-any-return]

    def _scalar(self, depth: int, kind: Any, data: Any) -> Any:
        if kind not in NUMPY_TYPES:
            raise ProtocolError("a scalar of no known type")
        return np.frombuffer(data, np.dtype(kind), 1)[0]

    def _numpy_type(self, depth: int, kind: Any) -> Any:
        if kind not in NUMPY_TYPES:
            raise ProtocolError("a type that is not known")
        return np.dtype(kind)

    def _integer(self, depth: int, digits: Any) -> int:
        if type(digits) is not str or len(digits) > _INTEGER_DIGITS:
            raise ProtocolError("a number with too many digits")
        return int(digits, 16)

    def _device(self, depth: int, name: Any) -> torch.device:
        if name not in _DEVICES:
            raise ProtocolError("a device that is not known")
        return torch.device(name)

    def _argument(self, depth: int, number: Any) -> Any:
        (number,) = whole_numbers([number])
        if not 0 <= number < len(self.same):
            raise ProtocolError("an unknown argument")
        return self.same[number]

    def _generator(self, depth: int, name: Any, state: Any) -> np.random.Generator:
        if not self.generators or name not in _GENERATORS:
            raise ProtocolError("a random generator from where none may come")
        place = len(self.objects)
        self.objects.append(None)
        made = np.random.Generator(getattr(np.random, name)())
        made.bit_generator.state = self.value(state, depth + 1)
        self.objects[place] = made
        return made

    def _enum(self, depth: int, name: Any, member: Any) -> Any:
        return self._class(name, enum.Enum).__members__[member]

    def _named(self, depth: int, name: Any, nodes: Any) -> Any:
        return self._class(name, tuple)._make(self._values(depth, nodes))

    def _record(self, depth: int, name: Any, pairs: Any) -> Any:
        kind = self._class(name, object)
        if [field for field, _ in pairs] != [field.name for field in dataclasses.fields(kind)]:
            raise ProtocolError(f"a {name} with other fields")
        made = self._new(kind.__new__(kind))
        for field, node in pairs:
            object.__setattr__(made, field, self.value(node, depth + 1))
        return made

    def _class(self, name: Any, base: type) -> Any:
        kind = self.records.get(name) or kit_record(name) if type(name) is str else None
        if kind is None or not issubclass(kind, base):
            raise ProtocolError("a record that is not known here")
        return kind


_MAKERS: dict[str, Callable[..., Any]] = {
    "atoms": Decoder._atoms,
    "list": lambda self, depth, nodes: self._filled([], depth, nodes),
    "tuple": lambda self, depth, nodes: tuple(self._values(depth, nodes)),
    "set": lambda self, depth, nodes: self._filled(set(), depth, nodes),
    "frozenset": lambda self, depth, nodes: frozenset(self._values(depth, nodes)),
    "dict": Decoder._dict,
    "deque": lambda self, depth, nodes, most: self._filled(deque(maxlen=most), depth, nodes),
    "keys": lambda self, depth, nodes: dict.fromkeys(self._values(depth, nodes)).keys(),
    "values": lambda self, depth, nodes: dict(enumerate(self._values(depth, nodes))).values(),
    "items": lambda self, depth, nodes: dict(self._values(depth, nodes)).items(),
    "mapping": lambda self, depth, node: MappingProxyType(self.value(node, depth + 1)),
    "slice": lambda self, depth, nodes: slice(*self._values(depth, nodes)),
    "range": lambda self, depth, nodes: range(*self._values(depth, nodes)),
    "integer": Decoder._integer,
    "complex": lambda self, depth, real, imaginary: complex(float(real), float(imaginary)),
    "bytearray": lambda self, depth, data: self._new(bytearray(memoryview(data))),
    "scalar": Decoder._scalar,
    "numpy type": Decoder._numpy_type,
    "torch type": lambda self, depth, kind: TORCH_TYPES[kind],
    "device": Decoder._device,
    "size": lambda self, depth, sizes: torch.Size(whole_numbers(sizes)),
    "...": lambda self, depth: Ellipsis,
    "argument": Decoder._argument,
    "generator": Decoder._generator,
    "enum": Decoder._enum,
    "named": Decoder._named,
    "record": Decoder._record,
}


def kit_record(path: str) -> type | None:
    """Return the class of one of the kit's own records by its dotted path, if its module is imported already."""
    module, _, name = path.rpartition(".")
    if not module.startswith("mlsys_labkit.") or module not in sys.modules:
        return None
    kind = vars(sys.modules[module]).get(name)
    if not isinstance(kind, type) or kind.__module__ != module:
        return None
    return kind if dataclasses.is_dataclass(kind) or issubclass(kind, (enum.Enum, tuple)) else None


def _small(values: list[Any]) -> bool:
    return all(type(value) is not int or -(2**63) <= value < 2**63 for value in values)


def _refuse(value: object) -> Node:
    kind = type(value)
    raise NotPlainError(f"{kind.__module__}.{kind.__qualname__} is no plain data, and cannot cross between processes")
