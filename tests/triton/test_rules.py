"""Tests of the rules for a kernel's source: ways of escape, each tried in a file under @triton.jit."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit.triton_trace import rules
from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonTraceError
from mlsys_labkit.triton_trace.launch import launcher
from mlsys_labkit.triton_trace.source import KernelSource

_numbers = itertools.count()
HEAD = """\
import builtins, math, os, sys
import numpy as np
import triton
import triton.language as tl
from triton.language import core, semantic

LIMIT = tl.constexpr(3)
class Thing:
    value = 3
thing = Thing()

"""

ESCAPES = {
    "builtins of a module": "tl.core.__builtins__",
    "module behind tl": "tl.core",
    "sys behind tl": "tl.semantic.sys",
    "class of a constant": "().__class__",
    "subclasses": "().__class__.__base__.__subclasses__()",
    "globals of a function": "tl.load.__globals__",
    "code of a function": "tl.sum.fn",
    "handle of a block": "tl.arange(0, 8).handle.data",
    "handle's memory": "x.handle.data.ctypes",
    "import": "import os",
    "import by name": "__import__('os')",
    "from import": "from os import system",
    "open": "open('/etc/passwd')",
    "eval": "eval('1')",
    "getattr": "getattr(tl, 'core')",
    "globals": "globals()",
    "builtins name": "__builtins__",
    "numpy": "np.load('x')",
    "module of triton": "core.builtins",
    "semantic": "semantic.TritonSemantic",
    "object of the host": "thing.value",
    "format of attributes": "'{0.__class__}'.format(x)",
    "f-string": "f'{x.__class__}'",
    "f-string in a message": "tl.static_print(f'{x.handle}')",
    "walrus": "(y := x)",
    "lambda": "(lambda: 1)()",
    "comprehension with a condition": "[i for i in (1, 2) if i > 1]",
    "variable of a comprehension outside of it": "[1 for open in (1, 2)]\n    open('/etc/passwd')",
    "builtin in a comprehension": "[open(i) for i in (1, 2)]",
    "private variable of a comprehension": "[1 for __import__ in (1, 2)]",
    "a module's method in a branch that a constant chooses": "if LIMIT:\n        tl.__setattr__('store', tl.load)",
    "a module's members in such a branch": "y = tl.__dict__ if LIMIT else 1",
    "builtin in such a branch": "y = ().__class__ if LIMIT else 1",
    "comprehension of two loops": "[i for i in (1, 2) for j in (3, 4)]",
    "hasattr": "hasattr(x, 'handle')",
    "generator": "sum(i for i in (1, 2))",
    "dictionary of keywords": "tl.load(**{'pointer': x})",
    "star": "tl.load(*[x])",
    "star of a call": "tl.load(*tl.arange(0, 8))",
    "function of another module": "os.system('true')",
    "private name of another module": "math.__loader__",
    "module in another module": "os.path.sys.modules",
    "member of numpy": "np.linalg.linalg.sys",
    "semantic by keyword": "tl.load(x, _semantic=None)",
    "builder's tensor": "tl.tensor(x, tl.int32)",
    "a def": "def f():\n        return 1",
    "a class": "class A:\n        pass",
    "try": "try:\n        y = 1\n    except Exception:\n        y = 2",
    "with": "with x:\n        pass",
    "global": "global y\n    y = 1",
    "delete": "del x",
    "raise": "raise ValueError(1)",
    "yield": "yield 1",
    "set an attribute": "x.shape = 3",
    "decorated names": "_lk_truth = 3",
    "helper of the rewriter": "_lk_to_tensor(3)",
    "two underscores": "__x = 3",
    "loop over anything": "for y in 'abc':\n        pass",
    "break": "while True:\n        break",
    "bytes": "b'abc'",
    "unicode look-alike": "ｏｐｅｎ('x')",
}


def kernel_of(folder: Path, body: str) -> Any:
    """Return a kernel, in its own file, whose body is ``body``."""
    file = folder / f"escape_{next(_numbers)}.py"
    file.write_text(f"{HEAD}@triton.jit\ndef kernel(x, out):\n    {body}\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize("name", ESCAPES)
def test_rules_refuse_escapes_by_line(name: str, tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, ESCAPES[name])
    with pytest.raises(RefusedSourceError, match=r"^escape_\d+\.py line 1[2345]: ") as caught:
        kernel[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["builtins of a module", "class of a constant", "import", "open", "handle of a block"])
def test_worker_checks_rules_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "check_rules", lambda source: None)
    kernel = kernel_of(tmp_path, ESCAPES[name])
    with pytest.raises(RefusedSourceError, match=r"line 1\d: "):
        kernel[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


def test_namespace_of_a_kernel_has_no_builtins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source with forged names that pass the rules must find only public names of tl."""
    kernel = kernel_of(tmp_path, "core.load(x)")
    data = KernelSource.of(kernel).to_json()
    data["functions"][0]["names"]["core"] = {"kind": "module", "value": "triton.language.core"}
    forged = KernelSource.from_json(data)
    with pytest.raises(RefusedSourceError, match=r"triton\.language\.core is not interpreted"):
        rules.check_rules(forged)
    monkeypatch.setattr(launcher, "check_rules", lambda source: None)
    monkeypatch.setattr(launcher.KernelSource, "of", lambda kernel: forged)
    with pytest.raises(TritonTraceError, match=r"triton\.language\.core is not interpreted"):
        kernel[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


ALLOWED = {
    "subscripts": "y = tl.arange(0, 8)[:, None] + tl.arange(0, 4)[None, :]",
    "shape and type": "y = tl.zeros((4,), x.dtype.element_ty) + tl.arange(0, 8).shape[0]",
    "is None": "y = 1 if x is None else 2",
    "constexpr in the body": "y: tl.constexpr = LIMIT + 1\n    z = tl.full((4,), y, tl.float32)",
    "infinity": "y = tl.full((4,), float('-inf'), tl.float32)",
    "early return": "if tl.program_id(0) == 0:\n        return",
    "nested loops": "for i in range(2):\n        for j in tl.range(i, 4):\n            tl.store(out + j, i)",
    "methods": "y = tl.arange(0, 8).to(tl.float32).sum().to(tl.int32)",
    "a message": "tl.static_assert(LIMIT == 3, f'limit is {LIMIT}')",
    "tuples": "a, b = 1, 2\n    tl.store(out, a + b)",
    "a comprehension": "a, b = [i + 1 for i in (1, 2)]\n    tl.store(out, a + b)",
    "a docstring": "'''What it does.'''\n    tl.store(out, 1)",
    "hints": "i = tl.max_contiguous(tl.multiple_of(tl.arange(0, 8), 8), 8)",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_rules_allow_what_triton_compiles(name: str, tmp_path: Path) -> None:
    kernel_of(tmp_path, ALLOWED[name])[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


def test_rules_check_helper_functions(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        f"{HEAD}@triton.jit\ndef helper(x):\n    return x.handle\n\n@triton.jit\ndef kernel(x, out):\n    helper(x)\n"
    )
    spec = importlib.util.spec_from_file_location("two", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(RefusedSourceError, match=r"two\.py line 14: \.handle is no attribute"):
        module.kernel[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


REASONS = {
    "y = 1\n    z = y @ y": r"line 15: a kernel has no MatMult; use tl\.dot",
    "y = math": r"line 14: math is the module math; .*: name what you need of it, as math\.pi",
    "y = math.exp(1.0)": r"line 14: math\.exp is a builtin_function_or_method; a kernel cannot use it",
    "y = os.path": r"line 14: os\.path is the module posixpath; a kernel can only use triton and tl",
}


@pytest.mark.parametrize("body", REASONS)
def test_refusal_names_line_and_remedy(body: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedSourceError, match=REASONS[body]):
        kernel_of(tmp_path, body)[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


def test_compiler_calls_nothing_but_triton(tmp_path: Path) -> None:
    compiled = importlib.import_module("mlsys_labkit.triton_trace.compile.compiled")
    file = tmp_path / "opened"
    kernel = kernel_of(tmp_path, f"tl.core.builtins.open({str(file)!r}, 'w')")
    with pytest.raises(RefusedSourceError):
        compiled.compile_for(kernel, "sm_90", np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert not file.exists()


def test_default_behind_form_feed_is_not_run(tmp_path: Path) -> None:
    process = importlib.import_module("mlsys_labkit.triton_trace.compile.process")
    text = f"def kernel(x,  # \x0c{'p' * 99}\n    n=print(1)):\n    pass\n"
    default = {"kind": "constant", "value": None}
    parameters = [{"name": "x", "default": None, "constexpr": False}]
    parameters.append({"name": "n", "default": default, "constexpr": False})
    assert "print" not in process.bare({"text": text, "parameters": parameters})[0]


@pytest.mark.parametrize("body", ["tl.cdiv[(7,)](4, 2)"])
def test_kernel_launches_no_kernel(body: str, tmp_path: Path) -> None:
    with pytest.raises(TritonTraceError, match="launches no kernel"):
        kernel_of(tmp_path, body)[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


def test_helpers_of_rewriter_cannot_be_replaced(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, "y = 1\n    if LIMIT:\n        z = _lk_carried")
    with pytest.raises(RefusedSourceError, match="_lk_carried"):
        kernel[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))


def test_a_long_error_is_cut_off(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, "tl.static_assert(False, 'a' * 1_000_000)")
    with pytest.raises(TritonTraceError) as raised:
        kernel[1,](np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert len(str(raised.value)) < 10_000
