"""The process that compiles one kernel: a request as JSON on stdin, an answer as JSON on stdout. See compiled.py.

It imports nothing of the kit, whose ``kernel[grid](...)`` does not compile. The compiler is asked the way a launch asks
it, by ``kernel.warmup``, on a machine whose driver has only the GPU's name: so types and specialisations of
arguments are Triton's own. Nothing of the student's runs here: of a kernel's source only ``def`` is executed, with its
defaults replaced by their values.

Beside Triton's public names it uses: driver.set_active, GPUTarget, compiler.errors, triton_key. Triton 3.6 to 3.9.
"""

from __future__ import annotations

import ast
import base64
import collections
import contextlib
import importlib
import io
import json
import linecache
import os
import sys
import tempfile
import types
from typing import Any

import triton
import triton.runtime.cache
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError

STAGES = ("ttir", "ttgir", "llir", "ptx")


class NoDriver:
    """The part of a GPU's driver that a launch needs, without a GPU."""

    def __init__(self, arch: int) -> None:
        self._target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


class NoTorch:
    """An importer that hides torch: Triton before 3.8 loads it, for seconds, to check the arguments' types."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("this process does without torch", name=name)


class ElementType(str):
    """The name of a tensor's type, with the size that a TensorDescriptor asks for."""

    @property
    def itemsize(self) -> int:
        known = getattr(triton.language, str(self), None)
        return int(known.primitive_bitwidth) // 8 if known else 1

    @property
    def is_floating_point(self) -> bool:
        return "float" in self


class Pointer:
    """A tensor without elements."""

    def __init__(self, dtype: str, address: int) -> None:
        self.dtype = ElementType(dtype)
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def _put(namespace: dict[str, Any], path: list[str], value: Any) -> None:
    """Give a name a value; that of something in another module, as helpers.f, in a module of its own."""
    name, *rest = path
    if not rest:
        namespace[name] = value
        return
    if not isinstance(namespace.get(name), types.ModuleType):
        namespace[name] = types.ModuleType(name)
    _put(vars(namespace[name]), rest, value)


class JittedFunctions:
    """The jitted functions of a request, defined as in their cells and files."""

    def __init__(self, source: dict[str, Any], jit_options: dict[str, Any]) -> None:
        self.files: dict[str, str] = {}  # name given to Python's compiler -> the student's cell or file
        self.first_lines: dict[str, tuple[str, int]] = {}
        self._pages: dict[str, list[str]] = {}
        self._jitted: dict[str, Any] = {}
        namespaces = []
        for function in source["functions"]:
            options = {"noinline": True} if function.get("noinline") else {}
            options |= jit_options if function["key"] == source["kernel"] else {}
            namespace, made = self._define(function)
            if function["constant"]:
                self._jitted[function["key"]] = triton.constexpr_function(made)
            else:
                self._jitted[function["key"]] = triton.jit(made, **options) if options else triton.jit(made)
            namespaces.append(namespace)
        for function, namespace in zip(source["functions"], namespaces, strict=True):
            # The compiler has its own meanings of min, max, ...; a global of that name would hide them.
            names = {name: meaning for name, meaning in function["names"].items() if meaning["kind"] != "python"}
            for name, meaning in names.items():
                _put(namespace, name.split("."), self.value(meaning))
        self.entry = self._jitted[source["kernel"]]

    def value(self, meaning: dict[str, Any]) -> Any:
        kind, value = meaning["kind"], meaning["value"]
        if kind == "module":
            return importlib.import_module(value)
        if kind == "language":
            return language(value)
        if kind == "function":
            return self._jitted[value]
        if kind == "record":
            return collections.namedtuple("Record", value)
        return triton.language.constexpr(plain(value))

    def place(self, text: str | None, line: int) -> tuple[str, int]:
        """Return cell and line of line ``line`` of a function's text, as Triton's errors count."""
        for first_text, (place, first) in self.first_lines.items():
            if text is not None and text.strip() == first_text.strip():
                return place, first + line - 1
        return "", 0

    def _define(self, function: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        text, defaults = bare(function)
        self.first_lines[text] = (function["place"], function["first_line"])
        file = self._file(function["place"], function["first_line"], text.splitlines(keepends=True))
        namespace: dict[str, Any] = {"__name__": "kernels", "lk_constexpr": triton.language.constexpr, **defaults}
        padded = "\n" * (function["first_line"] - 1) + text
        exec(compile(padded, file, "exec"), namespace)  # annotations stay text, as in this file
        made = namespace[function["name"]]
        made.__annotations__ = {one["name"]: one["annotation"] for one in function["parameters"] if one["annotation"]}
        return namespace, made

    def _file(self, place: str, first_line: int, lines: list[str]) -> str:
        """Return a name for ``place`` under which Python finds the lines; two files of one name get two names."""
        name, start = place, first_line - 1
        while True:
            page = self._pages.get(name, [])
            old = page[start : start + len(lines)]
            if all(text == "\n" for text in old):
                break
            name += "'"
        page = page + ["\n"] * (start + len(lines) - len(page))
        page[start : start + len(lines)] = lines
        linecache.cache[name] = (len(page), None, page, name)
        self._pages[name] = page
        self.files[name] = place
        return name


def bare(function: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Replace defaults and annotations by names without moving lines; return the source and the names' values.

    The compiler looks up the names in annotations, and a function does not tell their values.
    """
    node = ast.parse(function["text"]).body[0]
    assert isinstance(node, ast.FunctionDef)
    values = {}
    given = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
    owners = [one for one in function["parameters"] if one["default"] is not None]
    replaced: list[tuple[ast.expr, str]] = []
    for i, (expression, owner) in enumerate(zip(given, owners, strict=True)):
        meaning = owner["default"]
        values[f"lk_default_{i}"] = (
            language(meaning["value"]) if meaning["kind"] == "language" else plain(meaning["value"])
        )
        replaced.append((expression, f"lk_default_{i}"))
    constants = {one["name"] for one in function["parameters"] if one["constexpr"]}
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotated = [(one.annotation, one.arg in constants) for one in arguments if one.annotation]
    replaced += [(annotation, "lk_constexpr" if constant else "None") for annotation, constant in annotated]
    if node.returns:
        replaced.append((node.returns, "None"))
    lines = function["text"].encode().splitlines(keepends=True)  # as Python counts them: not at form feeds
    for expression, name in sorted(replaced, key=lambda one: (one[0].lineno, one[0].col_offset), reverse=True):
        first, last = expression.lineno - 1, (expression.end_lineno or expression.lineno) - 1
        head, tail = lines[first][: expression.col_offset], lines[last][expression.end_col_offset :]
        lines[first : last + 1] = [head + name.encode() + b"\n" * (last - first) + tail]
    return b"".join(lines).decode(), values


def language(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(plain(part) for part in value["tuple"]) if "tuple" in value else float(value["float"])
    return value


def argument(given: Any) -> Any:
    """Return an argument of the launch from the JSON of signature.py."""
    if not isinstance(given, dict):
        return given
    if "pointer" in given:
        return Pointer(given["pointer"], given["address"])
    if "language" in given:
        return language(given["language"])
    if "dtype" in given:
        return triton.language.dtype(given["dtype"])
    if "tuple" in given:
        return tuple(argument(part) for part in given["tuple"])
    from triton.tools.tensor_descriptor import TensorDescriptor

    base = argument(given["base"])
    return TensorDescriptor(base, given["shape"], given["strides"], given["block"], given["padding"])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    kernels = JittedFunctions(request["source"], request["jit"])
    triton.runtime.driver.set_active(NoDriver(request["arch"]))
    # Its cache lives as long as this process: no need to hash Triton's own half gigabyte for a key.
    triton.runtime.cache.triton_key = lambda: triton.__version__
    arguments = {name: argument(given) for name, given in request["arguments"].items()}
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            compiled = kernels.entry.warmup(grid=(1,), **{**request["options"], **arguments})
    except CompilationError as error:
        return refusal(kernels, error)
    except Exception as error:
        return {"broken": f"{type(error).__name__}: {error}", "version": triton.__version__}
    return {
        "name": compiled.metadata.name,
        "version": triton.__version__,
        "num_warps": compiled.metadata.num_warps,
        "shared_bytes": compiled.metadata.shared,
        "texts": {stage: compiled.asm[stage] for stage in STAGES},
        "cubin": base64.b64encode(compiled.asm["cubin"]).decode(),
        "said": said.getvalue(),
        "files": kernels.files,
    }


def refusal(kernels: JittedFunctions, error: Exception) -> dict[str, Any]:
    """Return the innermost line that Triton's compiler names, with the reason."""
    found: CompilationError | None = None
    cause: BaseException | None = error
    reason = ""
    while cause is not None:
        if isinstance(cause, CompilationError):
            found, reason = cause, cause.error_message or reason
        else:
            reason = reason or f"{type(cause).__name__}: {cause}"
        cause = cause.__cause__
    assert found is not None
    place, line = kernels.place(found.src, getattr(found.node, "lineno", 1))
    return {"refused": reason or type(found).__name__, "place": place, "line": line}


def main() -> None:
    sys.meta_path.insert(0, NoTorch)
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is no part of the answer
    with tempfile.TemporaryDirectory(prefix="labkit-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        json.dump(answer(json.load(sys.stdin)), reply)
    reply.close()


if __name__ == "__main__":
    main()
