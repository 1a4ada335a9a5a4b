"""Every check passes what is right, fails what is wrong, and says why in words a student can act on."""

from __future__ import annotations

import enum
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
import torch

from mlsys_labkit import checks
from mlsys_labkit.checks import CheckError
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.work import Work
from tests.labkit.lying_values import LIARS, AlwaysEqual, LyingDict, LyingFloat, LyingScalar, LyingStr, LyingTensor


def message(check, *args, **kwargs) -> str:
    with pytest.raises(CheckError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: type(liar).__name__)
@pytest.mark.parametrize("check", [checks.expect_close, checks.expect_equal])
def test_checks_ignore_overridden_comparisons(check, liar):
    expected = np.ones(3) if check is checks.expect_close else [1.0, 1.0, 1.0]
    message(check, liar, expected)


@pytest.mark.parametrize(
    ("liar", "expected"),
    [
        (LyingFloat(2.0), 1.0),
        (LyingScalar(2.0), 1.0),
        (LyingStr("no"), "yes"),
        (AlwaysEqual(), "yes"),
        (AlwaysEqual(), None),
        (LyingDict(a=2), {"a": 1}),
        ({LyingStr("b"): 1}, {"a": 1}),
        ({"a": AlwaysEqual()}, {"a": 1}),
        ({AlwaysEqual()}, {1}),
        ({(AlwaysEqual(), 1): 1}, {(1, 1): 1}),
    ],
    ids=str,
)
def test_plain_values_that_lie_are_not_equal(liar, expected):
    message(checks.expect_equal, liar, expected)


def test_check_error_is_an_assertion_and_a_labkit_error():
    assert issubclass(CheckError, AssertionError)
    assert issubclass(CheckError, LabkitError)


# ---- expect_equal

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (3, 3),
        (np.int64(3), 3),
        (float("nan"), float("nan")),
        ((2, 3), (2, 3)),
        (torch.zeros(2, 3).shape, (2, 3)),
        (Point(1, 2), (1, 2)),
        ([1, [2, "x"], None], [1, [2, "x"], None]),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        ({1, 2}, {2, 1}),
        (Colour.RED, Colour.RED),
        (np.dtype("float32"), np.dtype("float32")),
        (torch.float32, torch.float32),
        (np.arange(3), np.arange(3)),
        (torch.arange(3), np.arange(3)),
        (b"ab", b"ab"),
    ],
    ids=str,
)
def test_equal_values_are_equal(actual, expected):
    checks.expect_equal(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (3.0, 3, "wrong type"),
        (True, 1, "wrong type"),
        ([1], (1,), "wrong type"),
        ([1, 2, 3], [1, 2], "1 too many"),
        ([1, 2], [1, 2, 3], "1 missing at the end"),
        ([1, [2, 4]], [1, [2, 3]], r"result\[1\]\[1\]: wrong value"),
        ({"a": 1}, {"b": 1}, "missing .'b'.; not expected .'a'."),
        ({1: "x"}, {True: "x"}, "wrong keys"),
        ({"a": [1]}, {"a": [2]}, r"result\['a'\]\[0\]"),
        ({1, 2}, {1, 3}, "wrong value"),
        ("ab", "ac", "'ac'"),
        (torch.float32, torch.float64, "cannot be compared"),
        (np.arange(3), np.arange(3.0), "wrong shape or dtype"),
        (np.array([1, 2, 4]), np.arange(1, 4), "1 of 3 elements differ"),
        (0.1 + 0.2, 0.3, "wrong value"),
        (2**70, 2**70 + 1, "wrong value"),
    ],
)
def test_unequal_values_lead_to_the_difference(actual, expected, words):
    with pytest.raises(CheckError, match=words):
        checks.expect_equal(actual, expected)


def test_a_list_that_contains_itself_ends():
    loop: list[object] = []
    loop.append(loop)
    assert "contain itself" in message(checks.expect_equal, loop, [loop])


# ---- expect_raises


def stub(*_):
    raise NotImplementedError


def test_numbers_of_a_short_tuple_are_shown_together():
    assert "expected  (96, 32, 8)\n  actual    (8, 12, 4)" in message(checks.expect_equal, (8, 12, 4), (96, 32, 8))


def test_expect_raises_shows_the_short_arguments():
    assert message(checks.expect_raises, ValueError, lambda a, b: 0, [1], (0, 2)).startswith(
        "<lambda>(..., (0, 2)): no"
    )


def test_expect_raises():
    assert checks.expect_raises((KeyError, ValueError), int, "x", match="invalid") is None
    assert "no exception" in message(checks.expect_raises, ValueError, int, "3")
    assert "another exception" in message(checks.expect_raises, KeyError, int, "x")
    assert "wrong words" in message(checks.expect_raises, ValueError, int, "x", match="three")


def test_an_exception_class_cannot_claim_to_be_another():
    class Meta(type):
        def __instancecheck__(cls, instance):
            return True

        def __subclasscheck__(cls, other):
            return True

    class Anything(Exception, metaclass=Meta):
        pass

    assert "another exception" in message(checks.expect_raises, Anything, int, "x")


def test_an_unsolved_stub_passes_through_every_check():
    for check in (
        lambda: checks.expect_raises(ValueError, stub),
        lambda: checks.expect_raises(Exception, stub),
        lambda: checks.expect_peak(stub, at_most_bytes=10),
    ):
        with pytest.raises(NotImplementedError) as caught:
            check()
        assert type(caught.value) is NotImplementedError
    checks.expect_raises(NotImplementedError, stub)


# ---- sharing


def test_expect_shares_memory_and_expect_copy():
    x, t = np.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
    for base in (x, t):
        for view in (base, base[::2], base.T, base[1:3, 2:], base.reshape(-1)):
            checks.expect_shares_memory(view, base)
            assert "view came" in message(checks.expect_copy, view, base)
        for copy in (base + 0, base[[0, 1]], base.T.reshape(-1), base[0:0]):
            checks.expect_copy(copy, base)
        assert "a copy came" in message(checks.expect_shares_memory, base + 0, base)
        checks.expect_shares_memory(base[0:0], base)


def test_interleaved_views_share_nothing():
    x = np.arange(10.0)
    checks.expect_copy(x[::2], x[1::2])
    t = torch.arange(10.0)
    checks.expect_copy(t[::2], t[1::2])
    checks.expect_shares_memory(t[1::3], t[::2])  # both hold element 4


def test_numpy_and_torch_may_share():
    x = np.arange(6.0)
    checks.expect_shares_memory(torch.from_numpy(x)[2:], x)
    checks.expect_copy(torch.tensor(x), x)
    weight = torch.nn.Parameter(torch.ones(3))
    checks.expect_shares_memory(weight.detach().numpy(), weight)


def test_sharing_refuses_what_is_not_an_array():
    assert "not an array" in message(checks.expect_shares_memory, [1, 2], np.ones(2))
    assert "not an array" in message(checks.expect_copy, torch.zeros(3).as_subclass(LyingTensor), torch.ones(3))


# ---- expect_work


def test_expect_work_passes_and_fails_by_field():
    work = Work(flops=2000, bytes_read=800, bytes_written=200, messages=3)
    checks.expect_work(work, flops=2000, bytes_read=800, bytes_written=200, bytes_moved=1000, messages=3)
    checks.expect_work(work, at_most_bytes=1000, at_least_bytes=1000, at_most_flops=2000)
    checks.expect_work(work, flops=2010, rtol=0.01)
    for wrong in ("flops", "bytes_read", "bytes_written", "bytes_moved", "messages", "message_bytes"):
        assert f"work.{wrong}" in message(checks.expect_work, work, **{wrong: 7})
    assert "too many" in message(checks.expect_work, work, at_most_bytes=999)
    assert "fewer than theory allows" in message(checks.expect_work, work, at_least_bytes=1001)
    assert "too many" in message(checks.expect_work, work, at_most_flops=1999)
    assert "a multiply-add is two" in message(checks.expect_work, work, flops=4000)
    assert "size of an element" in message(checks.expect_work, work, bytes_moved=2000)


def test_expect_work_wants_a_real_work_with_real_numbers():
    class Mine(Work):
        pass

    class Fraction(float):
        def __sub__(self, other):
            return 0.0

    assert "not a Work" in message(checks.expect_work, Mine(flops=1), flops=1)
    assert "not a Work" in message(checks.expect_work, {"flops": 1}, flops=1)
    work = Work(flops=1)
    object.__setattr__(work, "flops", Fraction(2.0))
    assert "work.flops" in message(checks.expect_work, work, flops=1)
    object.__setattr__(work, "flops", float("nan"))
    assert "work.flops" in message(checks.expect_work, work, flops=1)


# ---- the message as a whole


def test_the_message_of_a_wrong_value():
    actual = np.ones((4, 5), np.float32)
    actual[3, 2] = 1.5
    text = message(checks.expect_close, actual, np.ones((4, 5), np.float32), name="C", k=1)
    assert text.splitlines() == [
        "C: wrong; 1 of 20 elements off (5.00%)",
        "  expected  1 at [3, 2] ± 1.2e-06 (float32)",
        "  actual    1.5 at [3, 2], off by 0.5 (float32)",
        "  meaning   only element [3, 2] is wrong",
        "  next      what is different about it: a border, the edge of a block or tile, a tie, a zero?",
    ]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_formats_of_numpy_and_torch_get_the_same_tolerance(name):
    ones = [np.ones(3, dtype=getattr(ml_dtypes, name)), torch.ones(3).to(getattr(torch, name))]
    zeros = [np.zeros(3, dtype=getattr(ml_dtypes, name)), torch.zeros(3).to(getattr(torch, name))]
    for one in ones:
        checks.expect_close(one, np.ones(3), dtype=name)
    texts = [message(checks.expect_close, zero, np.ones(3)) for zero in zeros]
    assert texts[0] == texts[1]
    assert f"({name})" in texts[0]


def test_ipython_shows_the_readers_line_and_the_message_without_frames_of_the_kit(capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("from mlsys_labkit.checks import expect_close\nwrong = 1.0\nexpect_close(wrong, 2.0, name='half')")
    shown = capsys.readouterr().out
    assert "line 3:" in shown
    assert "expect_close(wrong, 2.0, name='half')" in shown
    assert "CheckError" in shown
    assert "expected  2" in shown
    assert "next" in shown
    assert "close.py" not in shown
    assert "raise failure" not in shown


def test_ipython_shows_where_the_students_own_exception_came_from(capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell(
        "from mlsys_labkit.checks import expect_raises\ndef f():\n    return {}['b']\nexpect_raises(ValueError, f)"
    )
    shown = capsys.readouterr().out
    assert "line 3:" in shown
    assert "return {}['b']" in shown
    assert shown.index("KeyError") < shown.index("CheckError")
    assert "raises.py" not in shown
