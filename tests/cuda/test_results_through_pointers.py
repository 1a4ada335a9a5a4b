"""Mathematical functions that write a result to where a pointer points: the values, and that the stores are seen."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

from mlsys_labkit import cuda

THREADS = 64
X = np.random.default_rng(3).normal(0, 20, THREADS)


def quotient_bits(x: float) -> int:
    """Return remquo's quotient: the three lowest bits of the rounded quotient, with its sign."""
    quotient = round(x / 3)
    return int(math.copysign(abs(quotient) % 8, quotient))


# Name, type of what the pointer points to, call, and what the pointer gets.
CASES: list[tuple[str, str, str, Callable[[float], float]]] = [
    ("modff", "float", "modff(x, p)", lambda x: math.modf(x)[1]),
    ("modf", "double", "modf(double(x), p)", lambda x: math.modf(x)[1]),
    ("std::modf", "float", "std::modf(x, p)", lambda x: math.modf(x)[1]),
    ("frexpf", "int", "frexpf(x, p)", lambda x: math.frexp(x)[1]),
    ("frexp", "int", "frexp(double(x), p)", lambda x: math.frexp(x)[1]),
    ("std::frexp", "int", "std::frexp(x, p)", lambda x: math.frexp(x)[1]),
    ("remquof", "int", "remquof(x, 3.0f, p)", quotient_bits),
    ("remquo", "int", "remquo(double(x), 3.0, p)", quotient_bits),
    ("std::remquo", "int", "std::remquo(x, 3.0f, p)", quotient_bits),
    ("sincosf", "float", "sincosf(x, p, &other)", math.sin),
    ("sincosf, second", "float", "sincosf(x, &other, p)", math.cos),
    ("sincos", "double", "sincos(double(x), p, &wide)", math.sin),
    ("sincos of a float", "float", "sincos(x, &other, p)", math.cos),
    ("sincospif", "float", "sincospif(x, p, &other)", lambda x: math.sin(math.pi * math.fmod(x, 2))),
    ("sincospi", "double", "sincospi(double(x), &wide, p)", lambda x: math.cos(math.pi * math.fmod(x, 2))),
    ("__sincosf", "float", "__sincosf(x, p, &other)", math.sin),
]


LINES = 7  # of a kernel; the call is on the sixth


@functools.cache
def compiled() -> cuda.Kernels:
    source = "\n".join(
        f"""__global__ void f{at}(const float* xs, {kind}* out, int step) {{
    float x = xs[threadIdx.x];
    float other;
    double wide;
    {kind}* p = out + step * threadIdx.x;
    {call};
}}"""
        for at, (_, kind, call, _) in enumerate(CASES)
    )
    return cuda.compile_all(source, backend="simulator", graded=True)


@pytest.mark.parametrize("at", range(len(CASES)), ids=[case[0] for case in CASES])
def test_a_result_behind_a_pointer_is_a_store(at: int) -> None:
    _, kind, _, expected = CASES[at]
    kernel, line = compiled()[f"f{at}"], LINES * at + 6
    dtype = {"float": np.float32, "double": np.float64, "int": np.int32}[kind]
    x, out = X.astype(np.float32), np.zeros(THREADS, dtype)
    profile = kernel.profile[1, THREADS](x, out, 1)  # raises where memory changed without a recorded store
    np.testing.assert_allclose(out, [expected(float(each)) for each in x], atol=2e-5)
    assert profile.bytes_written == THREADS * out.itemsize
    assert kernel.check[1, THREADS](x, out, 1) == []
    (race,) = kernel.check[1, THREADS](x, out, 0)
    assert (race.kind, race.line) == ("global_race", line)
    outside = kernel.check[1, THREADS](x, out[: THREADS - 1].copy(), 1)
    assert [(each.kind, each.line, each.thread) for each in outside] == [("out_of_bounds", line, (THREADS - 1, 0, 0))]


def test_a_sine_and_a_cosine_are_two_functions() -> None:
    source = "__global__ void f(float* x) { float s, c; sincosf(x[0], &s, &c); x[0] = s; x[1] = c; }"
    profile = cuda.compile(source, backend="simulator").profile[1, 1](np.ones(2, np.float32))
    assert profile.flops == 2
