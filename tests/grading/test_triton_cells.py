"""Tests of the reading of Triton cells: values from text, names, and texts that try to run in the examiner."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from mlsys_grading.examine.triton_cells import TritonCells
from mlsys_grading.examine.written_values import NotWrittenError, value_of
from mlsys_labkit.triton_trace import RefusedSourceError
from mlsys_labkit.triton_trace.names import WithheldName
from mlsys_labkit.triton_trace.source import KernelSource

KERNEL = "@triton.jit\ndef kernel(x, B: tl.constexpr = 4):\n    tl.store(x, used(x))\n"
NAMES = {"math": math, "np": torch, "triton": triton, "tl": tl, "three": tl.constexpr(3), "x": torch.ones(2, 5)}

VALUES = {
    "2**10 - 1": 1023,
    "-(7 // 2) % 4": 1,
    "1 / math.sqrt(4)": 0.5,
    "float('-inf')": -math.inf,
    "math.log2(math.e) > 1 and not None": True,
    "three * 2": 6,
    "[a * b for a in (1, 2) for b in range(3) if b]": [1, 2, 2, 4],
    "{k: v for k, v in zip('ab', (1, 2))}['b']": 2,
    "max(1, *[5, 6]) if len('abc') == 3 else 0": 6,
    "triton.next_power_of_2(100) + triton.cdiv(7, 2)": 132,
    "sum(x for x in sorted([3, 1, 2])[1:])": 5,
    "x.shape[1] * x.element_size() + x.stride(0)": 25,
    "[*enumerate((8, 9))][1]": (1, 9),
}

ATTACKS = (
    "open('/tmp/escaped', 'w')",
    "__import__('os').system('touch /tmp/escaped')",
    "().__class__.__base__.__subclasses__()",
    "math.__loader__",
    "tl.core.__builtins__['open']('/tmp/escaped', 'w')",
    "triton.runtime.driver.active",
    "x.data_ptr()",
    "x.fill_(7)",
    "x.__setitem__(0, 7)",
    "x + 1",
    "x[0]",
    "(lambda: 1)()",
    "print(3)",
    "10**10**10",
    "1 << 10**9",
    "'a' * 10**9",
    "[0] * 10**9",
    "[[0] * 1000 for i in range(10**6)]",
    "list(range(10**9))",
    "[1 for a in range(1000) for b in range(1000) for c in range(1000)]",
    "round(1, -10**9)",
    "pow(10, 10**9)",
    "'%1000000000d' % 3",
    "f'{x}'",
    "(y := 3)",
    "triton.Config({}, pre_hook=print)",
    "1 / 0",
    "x if x else 1",
    "float(sum(x))",
    "max([x])",
    "len(math.prod([[0], 1000]))",
)


@pytest.mark.parametrize("text", VALUES)
def test_values_are_those_of_python(text: str) -> None:
    assert value_of(ast.parse(text, mode="eval").body, NAMES) == VALUES[text]


@pytest.mark.parametrize("text", ATTACKS)
def test_values_of_attacks_are_refused(text: str) -> None:
    with pytest.raises(NotWrittenError):
        value_of(ast.parse(text, mode="eval").body, NAMES)


@pytest.mark.parametrize("text", ATTACKS)
def test_no_place_of_a_cell_runs_an_attack(text: str) -> None:
    locked: dict[str, Any] = {"triton": triton, "tl": tl, "x": torch.ones(2, 5), "math": math}
    cells = TritonCells(locked)
    decorators = f"@({text})\n@triton.autotune([triton.Config({{}}, {text})], key=[{text}])\n"
    header = f"def used(y: ({text}) = ({text}), *, z: '{text.replace(chr(39), '')}' = ({text})) -> ({text}):\n"
    cells.read("cell 1", f"value = ({text})\nclass C({text}): pass\n{decorators}@triton.jit\n{header}    return y\n")
    cells.read("cell 2", f"@triton.heuristics({{'B': lambda a: ({text})}})\n{KERNEL}".replace("used(x)", "value"))
    kernel = cells.kernel("kernel")
    with pytest.raises(RefusedSourceError):
        kernel.values["B"]({"x": torch.ones(2)})
    assert isinstance(cells.globals["value"], (WithheldName, int))
    assert locked.keys() == {"triton", "tl", "x", "math"}
    assert locked["x"].tolist() == torch.ones(2, 5).tolist()


def test_cells_leave_the_tests_names_alone() -> None:
    locked: dict[str, Any] = {"triton": triton, "tl": tl, "clean": print}
    cells = TritonCells(locked)
    cells.read(
        "cell 1", "import types\ntl = types.SimpleNamespace()\nclean = 3\n@triton.jit\ndef triton(x):\n    return x"
    )
    cells.read("cell 2", "@triton.jit\ndef kernel(x):\n    tl.store(x, 1)\n")
    assert locked == {"triton": triton, "tl": tl, "clean": print}
    assert isinstance(cells.kernel("kernel"), WithheldName)  # triton is a kernel there, in the notebook too
    assert cells.globals["tl"] is tl


def test_latest_cell_gives_a_name_its_meaning() -> None:
    cells = TritonCells({"triton": triton, "tl": tl})
    helper = "@triton.jit\ndef used(x):\n    return {}\n"
    cells.read("cell 1", helper.format(1))
    cells.read("cell 2", KERNEL)
    for value, place in ((2, "cell 3"), (3, "cell 4")):
        cells.read(place, helper.format(value))
        texts = {one.name: one.text for one in KernelSource.of(cells.kernel("kernel")).functions}
        assert f"return {value}" in texts["used"]
    cells.read_locked(["used"])
    assert KernelSource.of(cells.kernel("kernel")).entry.names["used"].value == "used is not defined"


def test_lines_of_a_cell_are_those_of_the_student() -> None:
    cells = TritonCells({"triton": triton, "tl": tl})
    cells.read("cell softmax", f"%matplotlib inline\n# a comment\n\n{KERNEL}")
    source = KernelSource.of(cells.kernel("kernel"))
    assert (source.entry.place, source.entry.first_line) == ("cell softmax", 5)
    assert source.line_text("cell softmax", 6) == "tl.store(x, used(x))"
    assert [one.default and one.default.value for one in source.entry.parameters] == [None, 4]


# Texts that no Triton takes, or that are deep: they must not end the examiner.
TEXTS = (
    "@triton.jit(do_not_specialize=3)\ndef kernel(x): pass",
    "@triton.jit\ndef kernel(x):\n    nonlocal zz",
    "@triton.jit\ndef \\\nkernel(x): pass",
    "a = " + "-" * 20_000 + "1",
    "a = x" + ".T" * 900,
    "a = x" + ".T" * 5_000,
    "if a: pass\n" + "elif a: pass\n" * 2_000,
    "@triton.heuristics({'N': x" + ".T" * 900 + "})\n@triton.jit\ndef kernel(x): pass",
    "@triton.jit\ndef kernel(x: x" + ".T" * 900 + "): nonlocal zz",
    "@x" + ".T" * 900 + "\n@triton.jit\ndef kernel(x): nonlocal zz",
)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_no_text_of_a_cell_raises(text: str) -> None:
    cells = TritonCells(NAMES)
    cells.read("cell 1", text)
    assert not hasattr(cells.kernel("kernel"), "fn")


def test_lists_are_bounded_by_all_that_they_hold() -> None:
    lines = [f"{name}0 = [1]" for name in "ab"]
    lines += [f"{name}{i} = [{name}{i - 1}, {name}{i - 1}]" for i in range(1, 19) for name in "ab"]
    cells = TritonCells(NAMES)
    cells.read("cell 1", "\n".join([*lines, "c = a18 == b18"]))
    assert isinstance(cells.globals["c"], WithheldName)
