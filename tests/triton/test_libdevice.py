"""Tests of ``libdevice`` in kernels: every function of Triton's list, against scipy, Python's ``math`` or fractions."""

from __future__ import annotations

import importlib.util
import inspect
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_functions
from triton.language.extra.libdevice import tanh as hyperbolic

from mlsys_labkit.triton_trace import trace
from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.interpret.libdevice import evaluate
from mlsys_labkit.triton_trace.libdevice_names import LIBDEVICE

NAN = float("nan")
POSITIVE = np.float64([1e-3, 0.04, 0.3, 0.5, 0.77, 0.999, 1, 1.5, 2, 2.5, 3.7, 5, 9, 20.25, 41, 96])
SIGNED = np.concatenate([-POSITIVE, POSITIVE])
UNIT = np.float64([1e-9, 1e-3, 0.02, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 0.99, 0.9999, 0.25, 0.75, 0.1, 0.3, 0.7])


def unary() -> dict[str, tuple[np.ndarray[Any, Any], Any]]:
    """Return an input and an oracle for each function of one float."""
    import mpmath
    from scipy import special

    small = SIGNED[np.abs(SIGNED) < 21]
    small = np.concatenate([small, small[: 32 - small.size]])
    return {
        **{name: (SIGNED, getattr(np, name)) for name in ["floor", "ceil", "trunc", "rint", "cbrt", "sin"]},
        **{name: (SIGNED, getattr(np, name)) for name in ["cos", "tan", "tanh", "signbit", "isnan"]},
        **{name: (small, getattr(np, name)) for name in ["sinh", "cosh", "exp", "exp2", "expm1"]},
        **{name: (POSITIVE, getattr(np, name)) for name in ["sqrt", "log", "log2", "log10", "log1p"]},
        "abs": (SIGNED, np.abs),
        "asin": (UNIT, np.arcsin),
        "acos": (UNIT, np.arccos),
        "atan": (SIGNED, np.arctan),
        "asinh": (SIGNED, np.arcsinh),
        "acosh": (1 + POSITIVE, np.arccosh),
        "atanh": (UNIT, np.arctanh),
        "exp10": (small, special.exp10),
        "rsqrt": (POSITIVE, lambda x: x**-0.5),
        "rcbrt": (SIGNED, lambda x: 1 / np.cbrt(x)),
        "sinpi": (small, np.vectorize(lambda x: float(mpmath.sinpi(x)))),
        "cospi": (small, np.vectorize(lambda x: float(mpmath.cospi(x)))),
        "erf": (SIGNED, special.erf),
        "erfc": (small, special.erfc),
        "erfcx": (np.concatenate([-POSITIVE[:12], POSITIVE, POSITIVE[:4]]), special.erfcx),
        "erfinv": (np.concatenate([-UNIT, UNIT]), special.erfinv),
        "erfcinv": (np.concatenate([UNIT, 2 - UNIT]), special.erfcinv),
        "normcdf": (SIGNED[np.abs(SIGNED) < 37][:16], special.ndtr),
        "normcdfinv": (UNIT, special.ndtri),
        "tgamma": (POSITIVE, special.gamma),
        "lgamma": (SIGNED + 0.125, special.gammaln),
        "j0": (SIGNED, special.j0),
        "j1": (SIGNED, special.j1),
        "y0": (POSITIVE, special.y0),
        "y1": (POSITIVE, special.y1),
        "cyl_bessel_i0": (SIGNED, special.i0),
        "cyl_bessel_i1": (SIGNED, special.i1),
        "nearbyint": (SIGNED, np.rint),
        "round": (SIGNED, lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)),
        "llrint": (SIGNED, np.rint),
        "llround": (SIGNED, lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)),
        "logb": (SIGNED, lambda x: np.frexp(x)[1] - 1),
        "ilogb": (SIGNED, lambda x: np.frexp(x)[1] - 1),
        "isfinited": (SIGNED, np.isfinite),
        "rcp64h": (POSITIVE, lambda x: ((1 / x).view(np.uint64) >> 32 << 32).view(np.float64)),
    }


def several() -> dict[str, tuple[tuple[Any, ...], Any]]:
    """Return operands and an oracle for each function of several numbers, or of integers."""
    from scipy import special

    rng = np.random.default_rng(0)
    a, b, c, d = (rng.normal(size=16) * 5 for _ in range(4))
    i, j, k = (rng.integers(-(2**31), 2**31, 16, dtype=np.int32) for _ in range(3))
    few = np.arange(16, dtype=np.int32) - 5
    wide = i.astype(object) * j.astype(object)
    signed_24 = [[(int(n) & 0xFFFFFF) - (int(n) << 1 & 0x1000000) for n in each] for each in (i, j)]
    product = [(x * y + 2**31) % 2**32 - 2**31 for x, y in zip(*signed_24, strict=True)]
    return {
        "atan2": ((a, b), np.arctan2),
        "copysign": ((a, b), np.copysign),
        "nextafter": ((a, b), np.nextafter),
        "fdim": ((a, b), lambda a, b: np.maximum(a - b, 0)),
        "fmod": ((a, b), np.fmod),
        "remainder": ((a, b), np.vectorize(math.remainder)),
        "hypot": ((a, b), np.hypot),
        "rhypot": ((a, b), lambda a, b: 1 / np.hypot(a, b)),
        "norm3d": ((a, b, c), lambda *parts: np.linalg.norm(parts, axis=0)),
        "rnorm3d": ((a, b, c), lambda *parts: 1 / np.linalg.norm(parts, axis=0)),
        "norm4d": ((a, b, c, d), lambda *parts: np.linalg.norm(parts, axis=0)),
        "rnorm4d": ((a, b, c, d), lambda *parts: 1 / np.linalg.norm(parts, axis=0)),
        "pow": ((np.abs(a), b), np.power),
        "fma": (
            (a, b, c),
            lambda a, b, c: [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=False)],
        ),
        "ldexp": ((a, few), np.ldexp),
        "scalbn": ((a, few), np.ldexp),
        "jn": ((few, np.abs(a)), special.jn),
        "yn": ((few, np.abs(a)), special.yn),
        "clz": ((i,), lambda i: [32 - (int(n) & 0xFFFFFFFF).bit_length() for n in i]),
        "popc": ((i,), lambda i: [(int(n) & 0xFFFFFFFF).bit_count() for n in i]),
        "ffs": ((i,), lambda i: [(int(n) & -int(n)).bit_length() for n in i]),
        "brev": ((i,), lambda i: np.int64([int(f"{int(n) & 0xFFFFFFFF:032b}"[::-1], 2) for n in i]).astype(np.int32)),
        "mulhi": ((i, j), lambda i, j: [int(n) >> 32 for n in wide]),
        "mul24": ((i, j), lambda i, j: product),
        "sad": (
            (few, few[::-1].copy(), np.arange(16, dtype=np.uint32)),
            lambda a, b, c: np.abs(a - b) + c.astype(np.int64),
        ),
        "hadd": ((i, j), lambda i, j: (i.astype(np.int64) + j) >> 1),
        "rhadd": ((i, j), lambda i, j: (i.astype(np.int64) + j + 1) >> 1),
        "byte_perm": ((i, j, k), lambda i, j, k: [permuted(*each) for each in zip(i, j, k, strict=True)]),
        "hiloint2double": ((i, j), lambda i, j: np.stack([j, i], 1).copy().view(np.float64)[:, 0]),
        "double2loint": ((a,), lambda a: a.view(np.int32)[::2]),
        "double2hiint": ((a,), lambda a: a.view(np.int32)[1::2]),
        "double_as_longlong": ((a,), lambda a: a.view(np.int64)),
        "longlong_as_double": ((a.view(np.int64),), lambda i: i.view(np.float64)),
        "float_as_int": ((a.astype(np.float32),), lambda a: a.view(np.int32)),
        "float_as_uint": ((a.astype(np.float32),), lambda a: a.view(np.int32)),  # as Triton declares it
        "int_as_float": ((i & 0x3FFFFFFF,), lambda i: i.view(np.float32)),
        "uint_as_float": (((i & 0x3FFFFFFF).view(np.uint32),), lambda i: i.view(np.float32)),
        "saturatef": ((a.astype(np.float32),), lambda a: np.clip(a, 0, 1)),
        "finitef": ((a.astype(np.float32),), np.isfinite),
        "isinf": ((np.float64([np.inf, -np.inf, NAN, *a[3:]]),), np.isinf),
        "fast_dividef": ((a.astype(np.float32), b.astype(np.float32)), np.divide),
        "fast_powf": ((np.abs(a).astype(np.float32), b.astype(np.float32)), np.power),
        **{
            f"fast_{n}f": ((np.abs(b).astype(np.float32),), getattr(np, n))
            for n in ["sin", "cos", "tan", "log", "log2", "log10"]
        },
        "fast_expf": ((b.astype(np.float32),), np.exp),
        "fast_exp10f": ((b.astype(np.float32),), special.exp10),
    }


def permuted(x: int, y: int, selector: int) -> int:
    data = np.array([x, y], np.int32).view(np.uint8)
    return int(np.uint8([data[int(selector) >> 4 * n & 7] for n in range(4)]).view(np.int32)[0])


def called(folder: Path, cases: dict[str, tuple[tuple[Any, ...], Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the results of a kernel that calls every function of ``cases``."""
    lines, arguments, results = [], [], {}
    for name, (operands, _) in cases.items():
        n = operands[0].size
        loads = ", ".join(f"tl.load(a{len(arguments) + at} + tl.arange(0, {n}))" for at in range(len(operands)))
        lines.append(f"    tl.store(o_{name} + tl.arange(0, {n}), libdevice.{name}({loads}))")
        arguments += operands
        results[f"o_{name}"] = np.zeros(n, np.int64 if operands[0].dtype.kind in "iu" else np.float64)
    outputs = {"double2loint", "double2hiint", "double_as_longlong", "float_as_int", "float_as_uint"}
    results |= {f"o_{name}": np.zeros(16, np.int64) for name in outputs & cases.keys()}
    results |= {f"o_{name}": np.zeros(16) for name in ("ldexp", "scalbn", "jn", "yn") if name in cases}
    results |= {f"o_{name}": np.zeros(16) for name in cases if name.endswith(("as_double", "as_float"))}
    results |= {"o_hiloint2double": np.zeros(16)} if "hiloint2double" in cases else {}
    names = [*(f"a{at}" for at in range(len(arguments))), *results]
    head = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n@triton.jit\n"
    (folder / "calls.py").write_text(f"{head}def calls({', '.join(names)}):\n" + "\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("calls", folder / "calls.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.calls[1,](*arguments, **results)
    return {name.removeprefix("o_"): values for name, values in results.items()}


def test_functions_of_one_number_equal_scipy(tmp_path: Path) -> None:
    cases = {name: ((x,), oracle) for name, (x, oracle) in unary().items()}
    cases = {name: ((x[:16],), oracle) for name, ((x,), oracle) in cases.items()}
    for name, values in called(tmp_path, cases).items():
        (x,), oracle = cases[name]
        np.testing.assert_allclose(values, oracle(x), rtol=1e-11, atol=1e-14, err_msg=name)


def test_functions_of_several_numbers_equal_their_definitions(tmp_path: Path) -> None:
    cases = several()
    for name, values in called(tmp_path, cases).items():
        operands, oracle = cases[name]
        wanted = np.asarray(oracle(*operands)).astype(values.dtype)
        np.testing.assert_allclose(values, wanted, rtol=1e-6 if "f" in name else 1e-11, atol=1e-13, err_msg=name)


def test_lists_of_this_file_have_every_function() -> None:
    modes = {name for name in LIBDEVICE if name.endswith(("_rn", "_rz", "_rd", "_ru"))}
    assert unary().keys() | several().keys() | modes == LIBDEVICE
    listed = {name for name, one in vars(libdevice).items() if inspect.isfunction(one)}
    assert listed & vars(cuda_functions).keys() <= LIBDEVICE


MODES = {"rn": round, "rz": int, "rd": math.floor, "ru": math.ceil}


@pytest.mark.parametrize("mode", ["rz", "rd", "ru"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_directed_rounding_gives_a_neighbour_of_the_exact_result(mode: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(size=200).astype(dtype) for _ in range(3))
    exact = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
    }
    prefix = "f" if dtype is np.float32 else "d"
    for name, operation in exact.items():
        found = evaluate(f"__nv_{prefix}{name}_{mode}", [a, b], np.dtype(dtype))
        assert found is not None
        for x, y, z in zip(a, b, found, strict=True):
            check_direction(operation(Fraction(float(x)), Fraction(float(y))), z, mode)
    found = evaluate(f"__nv_fma{'f' * (prefix == 'f')}_{mode}", [a, b, c], np.dtype(dtype))
    assert found is not None
    for x, y, w, z in zip(a, b, c, found, strict=True):
        check_direction(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(w)), z, mode)
    found = evaluate(f"__nv_{prefix}sqrt_{mode}", [np.abs(a)], np.dtype(dtype))
    assert found is not None
    for x, z in zip(np.abs(a), found, strict=True):
        towards = np.inf if mode == "ru" else -np.inf
        inside = Fraction(float(z)) ** 2 - Fraction(float(x))
        assert inside >= 0 if mode == "ru" else inside <= 0
        other = Fraction(float(np.nextafter(z, -dtype(towards)))) ** 2 - Fraction(float(x))
        assert inside == 0 or (other < 0 if mode == "ru" else other > 0)


def check_direction(exact: Fraction, found: Any, mode: str) -> None:
    up = mode == "ru" or (mode == "rz" and exact < 0)
    assert Fraction(float(found)) >= exact if up else Fraction(float(found)) <= exact
    nearer = np.nextafter(found, found.dtype.type(-np.inf if up else np.inf))
    assert found == exact or (Fraction(float(nearer)) < exact if up else Fraction(float(nearer)) > exact)


@pytest.mark.parametrize("mode", MODES)
def test_conversions_round_as_their_names_say(mode: str) -> None:
    x = np.float64([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30, 7.25])
    wanted = [min(max(MODES[mode](float(v)), -(2**31)), 2**31 - 1) for v in x]
    found = evaluate(f"__nv_double2int_{mode}", [x], np.dtype(np.int32))
    assert found is not None
    assert found.tolist() == wanted
    whole = np.int64([2**53 + 1, -(2**53) - 1, 2**62 + 3, 16777217, 5])
    found = evaluate(f"__nv_ll2float_{mode}", [whole], np.dtype(np.float32))
    assert found is not None
    if mode == "rn":
        assert found.tolist() == whole.astype(np.float32).tolist()
    else:
        for number, single in zip(whole, found, strict=True):
            check_direction(Fraction(int(number)), single, mode)


@triton.jit
def by_every_name(x, out, n: tl.constexpr, fast: tl.constexpr):
    i = tl.arange(0, n)
    v = tl.load(x + i)
    if fast:
        v = tl.extra.cuda.convert_custom_float8_sm80(v, tl.float32)
    v = hyperbolic(v) + libdevice.tanh(v) + cuda_functions.tanh(v)
    tl.extra.cuda.gdc_wait()
    tl.store(out + i, v + tl.extra.libdevice.tanh(v) + tl.extra.cuda.libdevice.tanh(v))


def test_a_function_has_one_meaning_under_all_its_names() -> None:
    x, out = np.linspace(-2, 2, 8, dtype=np.float32), np.zeros(8, np.float32)
    traced = trace(by_every_name)[1,](x, out, n=8, fast=False)
    once = 3 * np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(out, once + 2 * np.tanh(once), rtol=1e-6)
    assert traced.findings == ()
    assert traced.work.flops >= 5 * 8


def test_an_uninterpreted_name_is_refused_in_a_branch_that_is_taken() -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(
        TritonKernelError, match=r"line \d+: tl.extra.cuda.convert_custom_float8_sm80 is not interpreted"
    ):
        by_every_name[1,](x, out, n=8, fast=True)


@triton.jit
def as_unsigned(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x + i) // 2)


def test_reinterpreted_tensor_is_read_in_its_new_type() -> None:
    import torch

    x, out = torch.tensor([-2, 6], dtype=torch.int32), torch.zeros(2, dtype=torch.int64)
    as_unsigned[1,](triton.reinterpret(x, tl.uint32), out, n=2)
    assert out.tolist() == [2**31 - 1, 3]
