"""expect_close against float64 oracles: honest rounding passes in every precision, planted errors never do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from mlsys_labkit.checks import CheckError, expect_close
from mlsys_labkit.checks.close import UNIT_ROUNDOFF, relative_tolerance

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


def message(*args, **kwargs) -> str:
    with pytest.raises(CheckError) as caught:
        expect_close(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_unit_roundoff_is_half_of_what_torch_reports(name):
    assert UNIT_ROUNDOFF[name] == torch.finfo(getattr(torch, name)).eps / 2


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(DTYPES)),
    m=st.integers(1, 9),
    n=st.integers(1, 9),
    k=st.integers(1, 700),
    positive=st.booleans(),
    exponent=st.integers(-3, 3),
    seed=st.integers(0, 2**31),
)
def test_expect_close_passes_a_correct_matmul_and_fails_planted_errors(name, m, n, k, positive, exponent, seed):
    dtype, generator = DTYPES[name], torch.Generator().manual_seed(seed)
    draw = torch.rand if positive else torch.randn
    a = (draw(m, k, generator=generator, dtype=torch.float64) * 2.0**exponent).to(dtype)
    b = draw(k, n, generator=generator, dtype=torch.float64).to(dtype)
    expected = a.double() @ b.double()
    actual = a @ b
    expect_close(actual, expected, k=k)
    expect_close(actual.double().tolist(), expected.tolist(), rtol=relative_tolerance(name, k))

    largest = int(expected.abs().argmax())
    error = 4 * relative_tolerance(name, k) * float(expected.abs().max())
    planted = actual.clone()
    planted.view(-1)[largest] += error
    message(planted, expected, k=k)
    planted.view(-1)[largest] = float("nan")
    assert "unexpected: 1 NaN, 0 Inf" in message(planted, expected, k=k)
    if k > 1 and name in ("float32", "float64"):
        message(a[:, :-1] @ b[:-1] if positive else 2 * actual, expected, k=k)  # the last term forgotten


@settings(max_examples=60, deadline=None)
@given(k=st.integers(2, 20_000), seed=st.integers(0, 2**31))
def test_a_plain_float32_sum_stays_in_the_bound(k, seed):
    x = np.random.default_rng(seed).random(k).astype(np.float32)
    running = np.cumsum(x, dtype=np.float32)[-1]  # recursive summation, the worst order in use
    expect_close(running, x.astype(np.float64).sum(), k=k)
    message(running * (1 + 4 * relative_tolerance("float32", k)), x.astype(np.float64).sum(), k=k)


@pytest.mark.parametrize(
    ("honest", "coarse", "words"), [("float64", "float32", "float32"), ("float32", "float16", "tf32 or float16")]
)
def test_a_lower_precision_on_the_way_is_named(honest, coarse, words):
    x = torch.randn(64, 64, dtype=DTYPES[honest], generator=torch.Generator().manual_seed(0))
    text = message(x.to(DTYPES[coarse]).to(DTYPES[honest]), x)
    assert text.startswith("result: rounding")
    assert f"a cast to {words}" in text


def test_expect_close_names_structured_errors():
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    rows = torch.arange(8.0)[:, None].expand(8, 8) * x
    for actual, words in [
        (x.T, "the transpose"),
        (2 * x, "every element is 2 times"),
        (-x, "every element is -1 times"),
        (x / 8**0.5, "every element is 0.353553 times"),
        (x + 1, "every element is +1 away"),
        (torch.zeros(8, 8), "every element is 0"),
        (torch.cat([x[:5], torch.zeros(3, 8)]), "right up to index 4 of axis 0, wrong from 5 on"),
        (torch.cat([x[:, :6], torch.zeros(8, 2)], 1), "right up to index 5 of axis 1"),
        (rows, "more than rounding"),
    ]:
        text = message(actual, x)
        assert text.startswith("result: wrong"), text
        assert words in text


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.5, "half of the expected value"),
        (2, "twice the expected value"),
        (-1, "minus the expected value"),
        (100, "100 times the expected value"),
        (0.25, "1/4 of the expected value"),
        (1000, "1000 times the expected value"),
        (1e-9, "1/1000³ of the expected value"),
        (2**20, "1024² times the expected value"),
        (2**-30, "1/1024³ of the expected value"),
        (2**30 / 1e9, "(1024/1000)³ times the expected value"),
        (1e9 / 2**30, "(1000/1024)³ times the expected value"),
        (3, "more than rounding"),
        (0.45, "more than rounding"),
    ],
)
def test_a_single_number_off_by_a_known_factor_says_so(factor, words):
    for expected in (3.35e12, -7.0, np.array([0.1])):
        assert words in message(np.multiply(factor, expected), expected)
    assert "half of the expected value" in message(41, 82)


def test_digits_lost_to_arithmetic_are_not_blamed_on_a_cast_alone():
    x = 1e4 + np.random.default_rng(2).standard_normal(1000)
    textbook = np.mean(x**2) - np.mean(x) ** 2  # all of it in float64; 1e8 against 1 leaves half of the digits
    text = message(textbook, np.var(x), rtol=1e-14)
    assert text.startswith("result: rounding")
    assert "subtracted or a matrix is squared" in text


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (np.ones((3, 2)), np.ones((2, 3)), "axes are reversed"),
        (np.ones(6), np.ones((2, 3)), "reshape"),
        (np.ones(3), np.ones((2, 3)), "an axis is missing"),
        (np.ones((2, 4)), np.ones((2, 3)), "print the shape"),
        (1.0, np.ones(1), "reshape"),
        ([[1, 2], [3]], np.ones((2, 2)), "ragged"),
        (10**30, 1.0, "beyond 64 bits"),
        (10**400, 1.0, "an integer of 1329 bits"),
        ([2**63, -1], [1.0, 1.0], "from -1 to 9223372036854775808"),
        (np.array(["a"]), np.ones(1), "an array of numbers"),
        (torch.ones(3, device="meta"), np.ones(3), "without plain values"),
        (torch.ones(3).to_sparse(), np.ones(3), "without plain values"),
        (None, 1.0, "forget its return"),
        ([0, 0, 1], [0.25, 0.5, 1.0], "integers came"),
        ([np.inf, 1.0], [1.0, 1.0], "0 NaN, 1 Inf"),
        ([1.0, 1.0], [np.nan, 1.0], "off by inf"),
        ([np.inf], [-np.inf], "off by inf"),
    ],
)
def test_expect_close_reports_shape_type_and_nan(actual, expected, words):
    assert words in message(actual, expected)


def test_dtype_is_checked_only_when_asked_for():
    expect_close(np.ones(3, np.float32), np.ones(3))
    expect_close(np.ones(3, np.float32), np.ones(3), dtype=np.float32)
    expect_close(torch.ones(3), np.ones(3), dtype="float32")
    expect_close(torch.ones(3, dtype=torch.bfloat16), np.ones(3), dtype=torch.bfloat16)
    assert "wrong dtype" in message(torch.ones(3), np.ones(3), dtype=torch.float64)
    assert "wrong dtype" in message([1, 2], [1, 2], dtype=float)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.data())
def test_integers_are_exact_beyond_2_to_the_53(values, data):
    expect_close(values, values)
    expect_close(np.array(values), np.array(values))
    at = data.draw(st.integers(0, len(values) - 1))
    other = list(values)
    other[at] += -1 if other[at] > 0 else 1
    message(other, values)


def test_expect_close_accepts_arrays_tensors_and_numbers_alike():
    for one in (1.5, np.float32(1.5), np.array(1.5), torch.tensor(1.5), torch.tensor(1.5, requires_grad=True)):
        expect_close(one, 1.5)
        message(one, 1.6)
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for many in (rows, tuple(map(tuple, rows)), np.array(rows), torch.tensor(rows), [torch.tensor(r) for r in rows]):
        expect_close(many, rows)
        message(many, [[1.0, 2.0], [3.0, 5.0]])
    expect_close(torch.nn.Parameter(torch.ones(2)), [1, 1])
    expect_close(np.ma.masked_array([1.0, 2.0], mask=[0, 1]), [1.0, 2.0])
    expect_close(torch.tensor([1 + 2j]).conj(), [1 - 2j])
    expect_close([], np.zeros(0))
    expect_close(np.zeros((0, 3)), np.zeros((0, 3)))
    expect_close([True, False], np.array([True, False]))
    message([True, False], np.array([True, True]))


def test_expect_close_uses_given_tolerances():
    expect_close([1.0, 100.0], [1.0, 101.0], rtol=0.01, atol=0)
    message([1.0, 100.0], [1.0, 101.1], rtol=0.01, atol=0)
    expect_close([1e-3, 5.0], [0.0, 5.0], atol=1e-3)
    message([1.1e-3, 5.0], [0.0, 5.0], atol=1e-3)
    message([0.0, 5.001], [0.0, 5.0], atol=1e-4)  # atol alone allows nothing relative
    expect_close(np.full(3, 1e-17), np.zeros(3))  # nothing but zeros expected: the scale is 1
    message(np.full(3, 1e-3), np.zeros(3))


def test_expected_nan_and_inf_must_stand_in_place():
    expected = np.array([np.nan, np.inf, -np.inf, 1.0])
    expect_close(expected.copy(), expected)
    message(expected[::-1].copy(), expected)


def test_float16_subnormals_are_not_held_to_a_relative_error():
    x = np.array([3.3e-7, 1.7e-7])
    expect_close(x.astype(np.float16), x)


@pytest.mark.parametrize("exact", [{"rtol": 0}, {"rtol": 0, "atol": 0}, {"rtol": 1e-6, "atol": 0}], ids=str)
def test_a_small_element_beside_large_ones_is_judged_by_its_own_size(exact: dict[str, float]) -> None:
    expected = np.array([3e-5, 7.0, 1e3, 2e4, 5e2])
    with pytest.raises(CheckError) as caught:
        expect_close(expected * [2, 1, 1, 1, 1], expected, **exact)
    assert "rounding" not in str(caught.value).replace("more than rounding", "")
    with pytest.raises(CheckError, match="rounding"):
        expect_close(expected * (1 + 1e-7), expected, **exact | {"rtol": 0})
    with pytest.raises(CheckError, match="rounding"):
        expect_close(np.array([1e-9, 1.0]), np.array([0.0, 1.0]), **exact)


def test_expect_close_names_a_known_slip() -> None:
    right = np.array([2.0, 4.0])
    slips = {"the divisor is n, and n - 1 is wanted": right / 2, "one number came": 3.0}
    expect_close(right, right, slips=slips)
    assert message(right / 2, right, slips=slips, name="spread") == "spread: the divisor is n, and n - 1 is wanted"
    assert message(3.0, right, slips=slips).endswith(": one number came")  # of another shape than the right result
    assert "the divisor" not in message(right * 3, right, slips=slips)
    assert message(right * 3, right, otherwise="centre first").endswith("\n  next      centre first")
    assert "centre first" not in message(right * np.nan, right, otherwise="centre first")
