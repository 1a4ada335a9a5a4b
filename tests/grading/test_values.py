"""Values that cross the boundary: equal on arrival, views stay views, and hostile input raises one kind of error."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from mlsys_grading.boundary.arrays import NUMPY_TYPES, TORCH_TYPES, overwrite, span_of
from mlsys_grading.boundary.errors import NotPlainError, ProtocolError
from mlsys_grading.boundary.values import Decoder, Encoder


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: list[int]


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    left: int
    right: str


RECORDS = {"Point": Point, "Colour": Colour, "Pair": Pair}


def crossed(value: Any, records: Any = RECORDS) -> Any:
    """Return ``value`` after encoding, msgpack and decoding."""
    encoder = Encoder(records)
    node = encoder.node(value)
    buffers = [memoryview(bytearray(part)) for part in encoder.collected().copies()]
    decoder = Decoder(buffers, records)
    made = decoder.value(msgpack.unpackb(msgpack.packb(node, unicode_errors="surrogatepass"), raw=False))
    assert [type(each) for each in decoder.objects] == [_plain_type(each) for each in encoder.objects]
    return made


def _plain_type(value: object) -> type:
    bases = (np.ndarray, torch.Tensor, list, dict, set)
    return next((base for base in bases if isinstance(value, base)), type(value))


atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
hashable = st.integers() | st.text() | st.tuples(st.integers(), st.text())
plain = st.recursive(
    atoms | st.complex_numbers(allow_nan=False) | st.builds(slice, st.none() | st.integers(-9, 9)),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(hashable, inner)
        | st.sets(hashable)
        | st.frozensets(hashable)
        | st.builds(Point, st.integers(), st.lists(st.integers()))
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_data_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    made = crossed(value)
    assert made == value
    assert type(made) is type(value)


def test_records_sizes_types_and_devices_come_back() -> None:
    for value in (
        Colour.RED,
        Pair(1, "a"),
        Point(3, [4]),
        range(2, 9, 3),
        ...,
        torch.Size([2, 3]),
        torch.bfloat16,
        np.dtype("float32"),
        torch.device("cpu"),
        bytearray(b"x"),
        2**200,
        -(2**70),
        math.inf,
    ):
        made = crossed(value)
        assert made == value
        assert type(made) is type(value)
    assert math.isnan(crossed(math.nan))


def test_a_subclass_crosses_as_what_it_holds() -> None:
    class Always(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    for value, expected in (
        (Always(3), 3),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.Counter("aa"), {"a": 2}),
        (type("Text", (str,), {})("hi"), "hi"),
    ):
        made = crossed(value)
        assert type(made) is type(expected)
        assert made == expected
    loud = np.ones(3).view(type("Loud", (np.ndarray,), {"__eq__": lambda self, other: True}))
    assert type(crossed(loud)) is np.ndarray
    assert type(crossed(torch.nn.Parameter(torch.ones(2)))) is torch.Tensor


@given(hnp.arrays(st.sampled_from(sorted(NUMPY_TYPES)).map(np.dtype), hnp.array_shapes(min_dims=0, min_side=0)))
def test_arrays_come_back_bit_for_bit(array: Any) -> None:
    made = crossed(array)
    assert (made.dtype, made.shape, made.tobytes()) == (array.dtype, array.shape, array.tobytes())
    if array.ndim == 0:
        scalar = crossed(array[()])
        assert (type(scalar), scalar.tobytes()) == (type(array[()]), array.tobytes())


@pytest.mark.parametrize("kind", TORCH_TYPES)
def test_tensors_of_every_type_come_back_with_their_layout(kind: str) -> None:
    base = torch.arange(24).to(TORCH_TYPES[kind]).reshape(2, 3, 4)
    for tensor in (base, base.transpose(0, 2), base[:, ::2], base[:, :1].expand(2, 5, 4), base[0, 0, 0], base[:0]):
        made = crossed(tensor)
        assert (made.dtype, made.shape) == (tensor.dtype, tensor.shape)
        assert made.numel() == 0 or made.stride() == tensor.stride()
        ours, theirs = (each.reshape(-1).view(torch.uint8) for each in (made, tensor))
        assert torch.equal(ours, theirs)


def test_negative_strides_and_read_only_arrays_come_back_as_they_are() -> None:
    array = np.arange(12.0).reshape(3, 4)[::-1, ::-2]
    array.flags.writeable = False
    made = crossed(array)
    assert made.strides == array.strides
    assert not made.flags.writeable
    np.testing.assert_array_equal(made, array)


def test_views_of_one_memory_are_views_of_one_memory_again() -> None:
    base = torch.arange(12.0)
    flat, square, tail, other = crossed([base, base.view(3, 4), base[5:], torch.arange(12.0)])
    square[1, 1] = 99  # element 5
    assert flat[5] == tail[0] == 99
    assert other[5] == 5
    array = np.arange(6)
    whole, reverse = crossed((array, array[::-1]))
    whole[0] = 7
    assert reverse[-1] == 7


def answer(arguments: list[Any], make: Any) -> tuple[Any, list[Any], Decoder]:
    """Make a call as the boundary does: encode ``arguments``, call ``make`` on the other side, decode its result."""
    asked = Encoder()
    node = asked.node(arguments)
    sent = asked.collected()
    there = [memoryview(bytearray(part)) for part in sent.copies()]
    arrived = Decoder(there)
    theirs = arrived.value(node)
    spans = [span_of(np.frombuffer(part, np.uint8)) for part in there]
    same = {id(each): number for number, each in enumerate(arrived.objects)}
    told = Encoder(known=spans, same=same)
    back = told.node(make(*theirs))
    buffers = [memoryview(bytearray(part)) for part in told.collected().copies()]
    decoder = Decoder(buffers, known=sent.spans, same=asked.objects)
    made = decoder.value(back)
    for span, new in zip(sent.spans, there, strict=True):
        overwrite(span, new)
    return made, buffers, decoder


@pytest.mark.parametrize("make", [torch.Tensor.t, lambda x: x[1:, ::2], lambda x: x.view(-1), lambda x: x.detach()])
def test_a_view_of_an_argument_comes_back_as_a_view_of_the_callers_own(make: Any) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    made, buffers, _ = answer([x], make)
    assert not buffers  # no bytes: values of a claimed view are the caller's
    assert made.data_ptr() == make(x).data_ptr()
    assert made.stride() == make(x).stride()
    made.zero_()
    assert (make(x) == 0).all()


def test_an_argument_handed_back_is_that_argument() -> None:
    x, y, words = torch.ones(2), np.ones(3), ["a"]
    assert all(a is b for a, b in zip(answer([x, y, words], lambda *a: list(a))[0], (x, y, words), strict=True))
    made, buffers, _ = answer([x], lambda x: x.clone())
    assert made is not x
    assert len(buffers) == 1
    made, buffers, _ = answer([y], lambda y: y[::-1])
    assert np.shares_memory(made, y)
    assert not buffers


def test_writing_to_an_argument_reaches_the_caller_and_nothing_between_its_elements() -> None:
    whole = np.arange(20.0)
    part, strided = whole[3:7], torch.arange(20.0)[::3]

    def change(a: Any, b: Any) -> None:
        a += 100
        b.neg_()

    answer([part, strided], change)
    assert whole.tolist() == [*range(3), *range(103, 107), *range(7, 20)]
    assert strided.tolist() == [-value for value in range(0, 20, 3)]
    assert strided.untyped_storage().nbytes() == 80
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    overwrite(span_of(fixed), memoryview(bytearray(24)))  # no error: the written values stay on that side


def test_value_without_plain_form_is_named_in_the_error() -> None:
    for value in (object(), len, torch.ones(2).to_sparse(), np.array(["a"])):
        with pytest.raises(NotPlainError, match="no plain data"):
            Encoder().node(value)
    with pytest.raises(NotPlainError, match="no plain data"):
        Encoder({"Point": int}).node(Point(1, []))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotPlainError, match="too deep"):
        Encoder().node([None, endless])
    with pytest.raises(NotPlainError, match="too large"):
        Encoder().node([[k] for k in range(500_000)])


ARRAY = ["array", "<f8", [2], [8], True, 0, 0]
HOSTILE: Sequence[Any] = [
    [],
    [3],
    ["nothing"],
    ["list"],
    ["list", 5],
    ["list", [[]]],
    ["dict", [[1]]],
    ["dict", [[["list", []], 1]]],
    ["set", [["list", []]]],
    ["range", ["a", 2, 1]],
    ["integer", "0" * 5000],
    ["integer", 5],
    ["atoms", [[1]]],
    ["atoms", "ab"],
    ["complex", "x", 1],
    ["scalar", "O", b"12345678"],
    ["scalar", "<f8", b"1"],
    ["size", [1.5]],
    ["numpy type", "O"],
    ["torch type", "storage"],
    ["device", "cuda:99"],
    ["argument", 0],
    ["argument", -1],
    ["record", "Point", [["x", 1]]],
    ["record", "Nobody", []],
    ["record", ["Point"], []],
    ["enum", "Point", "x"],
    ["enum", "Colour", "GREEN"],
    ["named", "Pair", [1]],
    ["named", "Point", [1, 2]],
    ["handle", 1, "obj", []],
    [*ARRAY[:5], 1, 0],
    [*ARRAY[:5], -1, 0],
    [*ARRAY[:6], 1],
    [*ARRAY[:6], -8],
    [*ARRAY[:4], 1, 0, 0],
    ["array", "O", [1], [8], True, 0, 0],
    ["array", "<f8", [3], [8], True, 0, 0],
    ["array", "<f8", [-1], [8]],
    ["array", "<f8", [1 << 40], [0], True, 0, 0],
    ["array", "<f8", [1] * 40, [0] * 40, True, 0, 0],
    ["array", "<f8", [2], [-8], True, 0, 8],
    ["array", "<f8", [2, 2], [8], True, 0, 0],
    ["array", "<f8", [2.0], [8]],
    ["tensor", "float64", [2], [-1], True, 0, 0],
    ["tensor", "float64", [1], [1], True, 0, 4],
    ["tensor", "object", [1], [1], True, 0, 0],
    ["tensor", "float32", [1], ["1"], True, 0, 0],
]


@pytest.mark.parametrize("node", HOSTILE, ids=str)
def test_a_hostile_node_is_refused(node: Any) -> None:
    with pytest.raises(ProtocolError):
        Decoder([memoryview(bytearray(16))], RECORDS).value(node)


def test_oversized_nodes_are_refused() -> None:
    deep: Any = None
    for _ in range(100):
        deep = ["list", [deep]]
    huge = ["list", [["array", "<f8", [1 << 26], [0], True, 0, 0]] * 3]  # 16 bytes that claim 1.5 GB
    for node in (deep, huge, ["list", [["list", []]] * 500_000], ["atoms", [0] * 500_000]):
        with pytest.raises(ProtocolError):
            Decoder([memoryview(bytearray(16))]).value(node)


def test_no_code_of_a_record_runs() -> None:
    @dataclasses.dataclass
    class Loud:
        x: int

        def __post_init__(self) -> None:
            raise AssertionError("ran")

    assert Decoder(records={"Loud": Loud}).value(["record", "Loud", [["x", 3]]]).x == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_mutated_messages_are_refused_or_plain(seed: int) -> None:
    """Random changes to a valid message: either a value or a ProtocolError, never another exception."""
    chance = random.Random(seed)
    encoder = Encoder(RECORDS)
    node = encoder.node(
        [Point(1, [2]), Colour.RED, Pair(1, "b"), {"k": torch.ones(2, 3), (1, 2): np.arange(5)[::2]}, {1, 2}, 2**80]
    )
    copies = encoder.collected().copies()
    for _ in range(100):
        changed = _mutated(msgpack.unpackb(msgpack.packb(node), raw=False), chance)
        try:
            Decoder([memoryview(bytearray(part)) for part in copies], RECORDS).value(changed)
        except ProtocolError:
            continue


def _mutated(node: Any, chance: random.Random) -> Any:
    if type(node) is list and node and chance.random() < 0.9:
        at = chance.randrange(len(node))
        node[at] = _mutated(node[at], chance)
        return node
    pool = [None, True, -1, 0, 1, 2**63 - 1, 0.5, "", "list", "<f8", "float32", b"", [], [[]], ["list", []], ARRAY[:]]
    return chance.choice(pool)
