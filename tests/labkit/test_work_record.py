"""Work: arithmetic on it, what it refuses, and how evidence is combined."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.work import Work, WorkError

amounts = st.integers(0, 10**15)
works = st.builds(
    Work,
    flops=amounts,
    bytes_read=amounts,
    bytes_written=amounts,
    messages=st.integers(0, 10**6),
    message_bytes=amounts,
    dtype=st.sampled_from(["float32", "bfloat16"]),
)


def test_intensity_of_matmul_is_n_over_6_in_float32():
    n = 512
    work = Work(flops=2 * n**3, bytes_read=2 * n * n * 4, bytes_written=n * n * 4)
    assert work.intensity == pytest.approx(n / 6)


def test_intensity_without_bytes_is_infinite_and_without_anything_is_an_error():
    assert Work(flops=1).intensity == math.inf
    with pytest.raises(WorkError, match="no FLOPs and no bytes"):
        _ = Work().intensity


def test_rates_are_none_until_timed():
    work = Work(flops=100, bytes_read=30, bytes_written=20)
    assert work.flops_per_second is None
    assert work.bytes_per_second is None
    timed = work.with_seconds(0.5)
    assert (timed.flops_per_second, timed.bytes_per_second) == (200, 100)
    assert timed.how["seconds"] == "measured"
    assert work.seconds is None
    with pytest.raises(WorkError, match="0 s"):
        _ = work.with_seconds(0).flops_per_second


@pytest.mark.parametrize("quantity", ["flops", "bytes_read", "bytes_written", "messages", "message_bytes", "seconds"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "many", [1]])
def test_impossible_quantities_are_refused_by_name(quantity, value):
    with pytest.raises(WorkError, match=quantity) as caught:
        Work(**{quantity: value})
    assert isinstance(caught.value, LabkitError)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused():
    with pytest.raises(WorkError, match=r"'fp16'.*float16"):
        Work(dtype="fp16")
    with pytest.raises(WorkError, match="'guessed'"):
        Work(how={"flops": "guessed"})
    with pytest.raises(WorkError, match="'flop'"):
        Work(how={"flop": "counted"})


def test_a_work_cannot_be_changed_through_its_provenance():
    how = {"flops": "counted"}
    work = Work(flops=1, how=how)
    how["flops"] = "model"
    assert work.how["flops"] == "counted"
    with pytest.raises(TypeError):
        work.how["flops"] = "model"  # type: ignore[index]


@given(works, works, works)
def test_addition_is_associative_commutative_and_keeps_every_quantity(a, b, c):
    left, right = (a + b) + c, a + (b + c)
    for quantity in ("flops", "bytes_read", "bytes_written", "messages", "message_bytes"):
        total = getattr(a, quantity) + getattr(b, quantity) + getattr(c, quantity)
        assert getattr(left, quantity) == getattr(right, quantity) == getattr(sum([c, a, b]), quantity) == total


def test_a_sum_has_the_weakest_evidence_and_unknown_origin_spreads():
    counted = Work(flops=4, bytes_read=4, how={"flops": "counted", "bytes_read": "counted"})
    modelled = Work(flops=4, bytes_read=4, how={"flops": "model"})
    total = counted + modelled
    assert total.how == {"flops": "model"}
    assert (counted + Work(flops=0, bytes_read=1, how={"bytes_read": "counted"})).how["flops"] == "counted"


def test_seconds_of_a_sum_are_known_only_when_both_are():
    timed = Work(flops=1).with_seconds(2)
    assert (timed + timed).seconds == 4
    assert (timed + Work(flops=1)).seconds is None
    assert "seconds" not in (timed + Work(flops=1)).how


def test_dtype_of_a_sum_is_where_most_flops_are():
    matmul, bias = Work(flops=1000, dtype="bfloat16"), Work(flops=10, dtype="float32")
    assert (matmul + bias).dtype == (bias + matmul).dtype == "bfloat16"


def test_pickle_copy_hash_and_equality():
    work = Work(flops=3, name="x", how={"flops": "formula"}).with_seconds(1)
    assert pickle.loads(pickle.dumps(work)) == work == copy.deepcopy(work)
    assert hash(work) == hash(copy.copy(work))
    assert work != Work(flops=3)


def test_str_is_one_line_with_si_units():
    text = str(Work(flops=2_048, bytes_read=8_192, bytes_written=4, name="dot").with_seconds(1.5e-6))
    assert text == "dot: 2.05 kFLOP (float32), 8.19 kB read, 4 B written, 0.25 FLOP/B, 1.5 µs"
    assert "1 MFLOP" in str(Work(flops=999_999.9))
