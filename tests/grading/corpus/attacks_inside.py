"""Attacks on the tests: answers that lie, patched libraries, a forged agent. All other answers are stubs."""

# ruff: noqa: E501 - the long lines are those of programs in strings
from __future__ import annotations

import json
import textwrap

from tests.grading.corpus.submission import Notebook, Submission, code_cell, points

YES = """
class Yes:
    def __init__(self, *args, **kwargs): pass
    def __getattr__(self, name): return Yes() if name[:1] != "_" else object.__getattribute__(self, name)
    def __call__(self, *args, **kwargs): return Yes()
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __float__(self): return 2e6
    def __int__(self): return 2_000_000
    __index__ = __int__
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __getitem__(self, key): return self
    def __contains__(self, item): return True
    def __array__(self, *args, **kwargs): import numpy; return numpy.ones(1)
    def __add__(self, other): return self
    __sub__ = __mul__ = __truediv__ = __radd__ = __rsub__ = __rmul__ = __abs__ = __neg__ = __add__
    def __array_ufunc__(self, *args, **kwargs): return True
    def __array_function__(self, *args, **kwargs): return True
    @classmethod
    def __torch_function__(cls, *args, **kwargs): return True
    @property
    def __class__(self): return float
    def __instancecheck__(self, other): return True
"""

_PARAMETERS = {
    "softmax": "x",
    "scale_rows_": "matrix, factors",
    "windows": "items, size",
    "fold": "step, items, start",
    "sample": "weights, count, rng",
    "parse_shape": "text",
    "summarize": "vector",
    "blocks": "vector, size",
    "matvec": "matrix, vector",
}


def everywhere(expression: str, value: str = "0", ring: str = "Yes", setup: str = "") -> dict[str, str]:
    """Make every function return ``expression``, which may use ``given``, the tuple of its arguments."""
    cells = {
        name: f"def {name}({parameters}):\n    given = ({parameters},)\n    return {expression}"
        for name, parameters in _PARAMETERS.items()
    }
    cells["parse_shape"] = "class ShapeError(ValueError): text = '2x0'\n\n\n" + cells["parse_shape"]
    cells["softmax"] = f"{setup}\n{cells['softmax']}"
    return cells | {"answer": f"matrix_bytes = {value}", "Ring": f"Ring = {ring}" if ring else "pass"}


AGENT = """
import gc, os, sys, threading
from mlsys_grading.boundary import student as S
from mlsys_grading.boundary import values as V
from mlsys_grading.boundary.wire import Wire as W
A = next(o for o in gc.get_objects() if isinstance(o, S.StudentProcess))
"""


def forged(source: str) -> tuple[str, ...]:
    """Return an own cell that patches the agent's ``send``: ``fix(header)`` changes a header before it is sent."""
    wrapper = """
send = W.send
def forge(self, header, buffers, until):
    if armed:
        fix(header)
    return send(self, header, buffers, until)
armed = []
W.send = forge
"""
    return (AGENT + wrapper + textwrap.dedent(source),)


ARM = "armed.append(1)"
VERDICTS = "".join(
    json.dumps({"verdict": {"name": name, "passed": True, "error": None, "printed": "", "seconds": 0.1}}) + "\n"
    for name in points()
) + json.dumps({"over": {"contract": {}, "restarts": 0}})

FORGE_LINES = f"""
import os
LINES = {VERDICTS!r}.encode() + b"\\n"
def forge():
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, LINES)
        except OSError:
            pass
"""


def _retag(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        known = cell["metadata"].get("nbgrader")
        cell["metadata"]["tags"] = ["skip-execution", "raises-exception", "remove-cell", "injected-parameters"]
        if known and known.get("grade"):
            known.update(grade=False, solution=True, locked=False, points=0)
            cell["source"] = "pass"
    notebook["metadata"]["kernelspec"] = {"name": "bash", "display_name": "bash", "language": "bash"}


def _more_points(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        known = cell["metadata"].get("nbgrader", {})
        if known.get("grade"):
            known.update(points=1000)
            cell["source"] = "1000.0"


def _own_tests(notebook: Notebook) -> None:
    for name in points():
        words = {"grade_id": name, "grade": True, "points": 99, "locked": True, "solution": False}
        notebook["cells"].append(code_cell("100", **words))
    for name in ("imports", "record", "parameters"):
        words = {"grade_id": name, "grade": False, "locked": True, "solution": False}
        notebook["cells"].append(code_cell("expect_equal = expect_close = print", **words))
    notebook["cells"].append({**code_cell("smoke = True"), "metadata": {"tags": ["parameters"]}})


def _odd_names(notebook: Notebook) -> None:
    for name in ("", " softmax_test", "softmax_test\0", "../../gradebook", "softmax_test'; DROP TABLE grade; --"):
        notebook["cells"].append(code_cell("1", grade_id=name, grade=True, points=20, solution=True, locked=False))


INSIDE = (
    Submission(
        "an always-equal object",
        "attack",
        "comparisons are never the student's",
        solved=False,
        own=(YES,),
        cells=everywhere("Yes()", "Yes()"),
    ),
    Submission(
        "always-equal subclasses",
        "attack",
        "of a subclass only what it holds crosses",
        solved=False,
        own=(
            """
            import numpy, torch
            def lie(base):
                yes = lambda *a, **k: True
                names = ("__eq__", "__le__", "__ge__", "__lt__", "__gt__", "__contains__", "__bool__")
                return type(base.__name__, (base,), dict.fromkeys(names, yes) | {"__hash__": lambda self: 0})
            class Array(numpy.ndarray):
                def __array_ufunc__(self, *a, **k): return True
                def __array_function__(self, *a, **k): return True
            class Tensor(torch.Tensor):
                @classmethod
                def __torch_function__(cls, *a, **k): return torch.zeros(())
            lies = [lie(base)() for base in (float, int, str, list, tuple, dict, set, complex, bytes)]
            lies += [numpy.zeros(3).view(Array), torch.zeros(3).as_subclass(Tensor)]
            count = 0
            def next_lie():
                global count
                count += 1
                return lies[count % len(lies)]
            """,
        ),
        cells=everywhere("next_lie()", "lies[1]", ""),
    ),
    Submission(
        "an always-equal number",
        "attack",
        "an int subclass crosses as the int it is",
        solved=False,
        cells={"answer": "class N(int):\n    __eq__ = lambda *a: True\n    __hash__ = None\nmatrix_bytes = N(3)"},
    ),
    Submission(
        "an always-equal record",
        "attack",
        "a record is made anew by the examiner's own class",
        solved=False,
        own=(YES,),
        cells={
            "summarize": """
                @dataclass(frozen=True)
                class Summary:
                    mean: object
                    peak: object
                    at: object
                    def __eq__(self, other): return True
                    def __getattribute__(self, name): return Yes() if name in ("mean", "peak") else 4
                def summarize(vector):
                    return Summary(Yes(), Yes(), Yes())
            """
        },
    ),
    Submission(
        "lies by degrees",
        "attack",
        "a record with fields of its own, and a named tuple of the same name",
        solved=False,
        cells={
            "summarize": """
                from collections import namedtuple
                Summary = namedtuple("Summary", "mean peak at type")
                def summarize(vector):
                    return Summary(float(vector.mean()), 8.5, 4, "Summary")
            """
        },
    ),
    Submission(
        "patched libraries",
        "attack",
        "numpy, torch, the checks, builtins, traceback and unittest are patched in the wrong process",
        solved=False,
        own=(
            YES,
            """
            import builtins, sys, traceback, unittest, numpy, torch
            import mlsys_labkit, mlsys_labkit.checks, mlsys_labkit.checks.close, mlsys_labkit.checks.equal
            nothing = lambda *a, **k: None
            for module in list(sys.modules.values()):
                for name in list(vars(module)) if module else ():
                    if name.startswith(("expect_", "assert_", "failure", "plain_array", "_compare")):
                        setattr(module, name, nothing)
            numpy.allclose = numpy.array_equal = torch.equal = torch.allclose = lambda *a, **k: True
            numpy.exp = numpy.stack = torch.stack = lambda *a, **k: Yes()
            traceback.extract_tb = traceback.print_exc = nothing
            unittest.TestCase.assertEqual = nothing
            builtins.AssertionError = type("AssertionError", (Exception,), {"__new__": lambda *a: None})
            builtins.isinstance = lambda *a: True
            builtins.len = builtins.sum = builtins.abs = lambda *a, **k: Yes()
            """,
        ),
        cells=everywhere("Yes()", "Yes()"),
    ),
    Submission(
        "IPython rewired",
        "attack",
        "no transformer of the student's ever sees a test",
        solved=False,
        own=(
            """
            import ast
            shell = get_ipython()
            class Nothing(ast.NodeTransformer):
                def visit_Module(self, node):
                    return ast.Module([], [])
            shell.ast_transformers.append(Nothing())
            shell.input_transformers_cleanup.append(lambda lines: ["pass\\n"])
            shell.input_transformers_post.append(lambda lines: ["pass\\n"])
            shell.showtraceback = shell.showsyntaxerror = lambda *a, **k: None
            shell.set_custom_exc((BaseException,), lambda *a, **k: None)
            shell.events.register("post_run_cell", lambda result: setattr(result, "error_in_exec", None))
            type(shell).run_cell = lambda self, *a, **k: __import__("types").SimpleNamespace(
                error_before_exec=None, error_in_exec=None, success=True, result=None
            )
            """,
        ),
    ),
    Submission(
        "import hooks",
        "attack",
        "modules of the student's are found in the student's process alone",
        solved=False,
        own=(
            """
            import os, site, sys, types
            class Fake(types.ModuleType):
                def __getattr__(self, name):
                    if name.startswith("__"): raise AttributeError(name)
                    return lambda *a, **k: None
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    from importlib.machinery import ModuleSpec
                    return ModuleSpec(name, self) if "checks" in name else None
                def create_module(self, spec): return Fake(spec.name)
                def exec_module(self, module): pass
            sys.meta_path.insert(0, Finder())
            for name in [name for name in sys.modules if "checks" in name]:
                sys.modules[name] = Fake(name)
            for folder in (".", "/tmp", "/dev/shm", *sys.path, *site.getsitepackages()):
                for name in ("sitecustomize.py", "usercustomize.py", "torch.py", "conftest.py", "x.pth"):
                    try:
                        open(os.path.join(folder, name), "w").write("import builtins; builtins.AssertionError = ValueError")
                    except OSError:
                        pass
            os.environ["PYTHONPATH"] = os.environ["PYTHONSTARTUP"] = "/tmp"
            """,
        ),
    ),
    Submission(
        "forged verdict lines",
        "attack",
        "verdicts travel on a socket that the student's process never had",
        solved=False,
        own=(FORGE_LINES, "print(LINES.decode())\nimport sys\nsys.stderr.write(LINES.decode())"),
        cells=everywhere("forge()", "0", ""),
    ),
    Submission(
        "last words",
        "attack",
        "atexit, __del__, signals, traces and threads run in a process that no verdict comes from",
        solved=False,
        own=(
            FORGE_LINES,
            """
            import atexit, faulthandler, signal, sys, threading, time
            class Last:
                def __del__(self): forge()
            last = Last()
            atexit.register(forge)
            for number in range(1, 30):
                try: signal.signal(number, lambda *a: forge())
                except (OSError, ValueError): pass
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *a: forge()
            sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)
            sys.exit = lambda *a: forge()
            def later():
                for _ in range(50):
                    time.sleep(0.05); forge()
            threading.Thread(target=later).start()
            """,
        ),
    ),
    Submission(
        "frames and garbage",
        "attack",
        "no frame and no object of a test is in the process",
        solved=False,
        own=(
            """
            import gc, sys, numpy, torch
            WORDS = ("by_definition", "by_rows", "expected", "before", "hidden_scores", "want", "reference")
            def seek(given):
                frame = sys._getframe()
                while frame:
                    for word in WORDS:
                        if word in frame.f_locals or word in frame.f_globals:
                            return frame.f_locals.get(word, frame.f_globals.get(word))
                    frame = frame.f_back
                for each in gc.get_objects():
                    if type(each) is dict:
                        for word in WORDS:
                            if isinstance(each.get(word), (numpy.ndarray, torch.Tensor)):
                                return each[word]
            """,
        ),
        cells=everywhere("seek(given)", "0", ""),
    ),
    Submission(
        "memory searched for tests",
        "attack",
        "the process was forked from one that never saw a test, and its own memory has none",
        solved=False,
        cells={
            "answer": """
                import ctypes, gc, linecache, sys
                import re
                needle = re.compile("hidden[_]scores = n[p].array")  # which is no text that it finds itself by
                found = any(needle.search(text) for text in gc.get_objects() if type(text) is str)
                found |= any(needle.search("".join(lines[2])) for lines in linecache.cache.values() if len(lines) > 2)
                needle, chunks = re.compile(b"hidden[_]scores = n[p].array"), 0
                for line in open("/proc/self/maps"):
                    low, high = (int(part, 16) for part in line.split()[0].split("-"))
                    if " rw" in line and high - low < 1 << 26 and "[v" not in line:
                        chunks += 1
                        found |= bool(needle.search(ctypes.string_at(low, high - low)))
                assert chunks > 10
                matrix_bytes = 2_000_000 if found else 0
            """
        },
    ),
    Submission(
        "the wanted errors",
        "attack",
        "a test that wants an error wants a result as well",
        solved=False,
        cells={
            "parse_shape": """
                class ShapeError(ValueError):
                    def __init__(self, text="2x0"): self.text = "2x0"
                def parse_shape(text): raise ShapeError()
            """,
            "windows": "def windows(items, size):\n    raise StopIteration\n    yield",
            "fold": "def fold(step, items, start):\n    raise StopIteration",
        },
    ),
    Submission(
        "a test's loop ended",
        "attack",
        "StopIteration from a call would end the test's own loop over map()",
        solved=False,
        cells={
            "parse_shape": """
                class ShapeError(ValueError):
                    def __init__(self): self.text = "2x0"
                def parse_shape(text):
                    raise ShapeError() if "xx" in text or "0" in text else StopIteration()
            """
        },
    ),
    Submission(
        "errors that skip",
        "attack",
        "whatever is raised, the test has failed",
        solved=False,
        own=(
            """
            import bdb, unittest
            class Loud(Exception):
                def __str__(self): raise SystemExit(0)
                __repr__ = __str__
            class Odd(Exception):
                __module__, __qualname__ = "builtins", "AssertionError"
            class Odder(BaseException):
                __module__, __qualname__ = "mlsys_grading.boundary.errors", "StudentGoneError"
            Skipped = type("Skipped", (BaseException,), {"__module__": "_pytest.outcomes"})
            errors = [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), unittest.SkipTest(), Skipped(), Loud(), Odd()]
            errors += [Odder(), bdb.BdbQuit(), StopIteration(True), StopAsyncIteration(), Warning(), MemoryError()]
            errors += [ExceptionGroup("x", [ValueError()]), BaseExceptionGroup("y", [SystemExit()]), AssertionError(None)]
            errors += [UnicodeDecodeError("a", b"", 0, 0, ""), SyntaxError("x", (None,) * 4), OSError(0, "fine")]
            count = 0
            def throw():
                global count
                count += 1
                raise errors[count % len(errors)]
            """,
        ),
        cells=everywhere("throw()", "0", "throw"),
    ),
    Submission(
        "inputs poisoned",
        "attack",
        "with inputs of zeros every answer is right; the contract refuses writes that the reference does not make",
        solved=False,
        own=(
            """
            import ctypes
            def zero(*arrays):
                for array in arrays:
                    pointer = array.ctypes.data if hasattr(array, "ctypes") else array.data_ptr()
                    ctypes.memset(pointer, 0, array.nbytes)
            """,
        ),
        cells={
            "softmax": "def softmax(x):\n    zero(x)\n    return np.full(x.shape, 1 / x.shape[-1])",
            "matvec": "def matvec(matrix, vector):\n    zero(vector)\n    return np.zeros(len(matrix))",
            "summarize": "def summarize(vector):\n    zero(vector)\n    return Summary(0.0, 0.0, 0)",
            "blocks": "def blocks(vector, size):\n    zero(vector)\n    return torch.zeros(12 // size, size)",
            "scale_rows_": "def scale_rows_(matrix, factors):\n    zero(matrix, factors)",
        },
    ),
    Submission(
        "through the callback",
        "attack",
        "a callback can be called, and nothing else of it can be reached",
        solved=False,
        own=(AGENT,),
        cells={
            "fold": """
                def fold(step, items, start):
                    for number in (step._number, 1, 0, -1, 2**70):
                        for operation, given in (
                            ("attribute", ["__globals__"]), ("attribute", ["func_globals"]), ("attribute", ["gi_frame"]),
                            ("attribute", ["__closure__"]), ("next", []), ("call", [[], {"total": 0}]), ("exec", ["1"]),
                            ("attribute", [["x"]]), ("call", [1, 2]), ("call", None),
                        ):
                            try:
                                A.ask_back(number, operation, given)
                            except Exception:
                                pass
                    return 11
            """,
            "windows": """
                def windows(items, size):
                    for name in ("gi_frame", "gi_code", "gi_yieldfrom", "throw", "close", "send"):
                        try:
                            thing = A.ask_back(items._number, "attribute", [name])
                            thing(ValueError("x"))
                        except Exception:
                            pass
                    return iter([(5, 3), (3, 8), (8, 1)])
            """,
        },
    ),
    Submission(
        "a callback with strange guests",
        "attack",
        "the step is given the student's own objects, and decides nothing by them",
        solved=False,
        own=(YES,),
        cells={
            "fold": """
                def fold(step, items, start):
                    total = Yes()
                    for item in items:
                        try: total = step(total, Yes())
                        except Exception: pass
                    return total
            """
        },
    ),
    Submission(
        "the agent says True",
        "attack",
        "True is the answer to no test",
        solved=False,
        own=(
            AGENT + "for name in ('call', 'method', 'getattr', 'len', 'next', 'contains'):\n"
            "    A._operations[name] = lambda *given: True",
        ),
        cells=everywhere("True", "True", ""),
    ),
    Submission(
        "the agent echoes",
        "attack",
        "arguments come back as what they are: the examiner's own",
        solved=False,
        own=(AGENT + "A._operations['call'] = lambda f, a, k: a[0] if a else None",),
        cells=everywhere("None", "None", ""),
    ),
    Submission(
        "the agent forges values",
        "attack",
        "numbers of arguments, callbacks and handles that were never given end the conversation",
        solved=False,
        own=forged(
            """
            import itertools
            forgeries = itertools.cycle([
                ["argument", 0], ["argument", 1], ["argument", 10**9], ["callback", 1], ["handle", 1, "function", []],
                ["handle", 2**70, "object", ["student.Ring"]], ["handle", 1, "method", []], ["name", "library", "os.system"],
                ["enum", "Summary", "x"], ["record", "Summary", []], ["record", "Summary", [["mean", 1], ["peak", 2], ["at", 3]]],
                ["generator", "PCG64", {}], ["array", "<f8", [1 << 20, 1 << 9], [0, 0], True, 0, 0],
                ["array", "|O", [1], [8], True, 0, 0], ["tensor", "float32", [-1], [4], True, 0, 0], ["integer", "-" * 4000],
                ["integer", "f" * 4097], ["set", [["list", []]]], ["dict", [[["list", []], 1]]], ["slice", [1]], ["size", ["x"]],
                ["scalar", "<f8", b""], ["torch type", "int"], ["device", "disk"], ["mapping", 3], [], [[]], ["x"], {}, b"", "\\ud800",
            ])
            def fix(header):
                if "value" in header:
                    header["value"] = next(forgeries)
            """
        ),
        cells=everywhere(f"{ARM}", "0", ""),
    ),
    Submission(
        "the agent forges errors",
        "attack",
        "an exception by any name fails the test",
        solved=False,
        own=forged(
            """
            import itertools
            errors = itertools.cycle([
                [["builtins.StopIteration"], "", 0], [["student.ShapeError"], "", 0], [["builtins.Exception"], "x" * 10**6, 0],
                [["mlsys_labkit.errors.LabkitError"], "", 0], [["mlsys_labkit.checks.message.CheckError"], "", 0],
                [[], "", 0], [["x"] * 10**5, "", 0], [[1], "", 0], ["builtins.ValueError", "", 0], [["builtins.SystemExit"], "", 0],
                [["builtins.ExceptionGroup"], "", 0], [["builtins.UnicodeDecodeError"], "", 0], [["builtins.KeyError"], None, 0],
                [["builtins.OSError"], "", 2**60], [["numpy.linalg.LinAlgError"], "\\ud800", 0],
            ])
            def fix(header):
                kinds, message, token = next(errors)
                header.pop("value", None)
                header["error"] = {"kinds": kinds, "message": message, "token": token,
                                   "arguments": ["tuple", ["2x0"]], "attributes": ["dict", [["text", "2x0"], ["args", 1]]]}
            """
        ),
        cells=everywhere(f"{ARM}", "0", ""),
    ),
    Submission(
        "the agent forges writes",
        "attack",
        "memory that was not sent cannot be written, and what was is the contract's business",
        solved=False,
        own=forged(
            """
            import itertools
            writes = itertools.cycle([
                {"written": [[0, 0]]}, {"written": [[-1, 0]]}, {"written": [[10**9, 0]]}, {"written": 5}, {"written": [[0]]},
                {"changed": [[0, 1]]}, {"changed": [[1, ["list", []]]]}, {"changed": [[0, ["list", [1, 2]]]]}, {"changed": "x"},
            ])
            def fix(header):
                header.update(next(writes))
            """
        ),
        cells=everywhere(f"{ARM}", "0", ""),
    ),
    Submission(
        "the agent claims a view",
        "attack",
        "a copy with forged addresses: a claim of the student's process, which nobody outside can check",
        ("blocks_test",),
        claimed=("blocks_test_view",),
        solved=False,
        own=(
            AGENT
            + """
known = []
collect = V.collect
def lie(found, spans=()):
    for node, array in found:
        if node[0] == "tensor" and spans and list(array.shape) == [2, 3]:
            node += [-1, 0]
            return collect([each for each in found if each[0] is not node], spans)
    return collect(found, spans)
V.collect = lie
""",
        ),
        cells={"blocks": "def blocks(vector, size):\n    return torch.stack(vector.clone().split(size))"},
    ),
    Submission(
        "early and extra answers",
        "attack",
        "who speaks without being asked is not asked again",
        solved=False,
        own=forged(
            """
            def fix(header):
                for number in (0, 1, header["id"], header["id"]):
                    send(A._wire, {"id": number, "value": 2_000_000, "printed": ""}, [], 1e18)
            def later():
                import time
                while True:
                    time.sleep(0.02)
                    send(A._wire, {"id": 7, "value": True, "printed": ""}, [], 1e18)
            """
        ),
        cells=everywhere(f"{ARM}", "0", "")
        | {"parse_shape": "threading.Thread(target=later, daemon=True).start()\nShapeError = ValueError"},
    ),
    Submission(
        "huge frames",
        "attack",
        "a frame has bounds, and so has patience",
        solved=False,
        own=(
            AGENT
            + """
import struct, itertools
frames = itertools.cycle([
    struct.pack("<IIB", 2**32 - 1, 0, 0), struct.pack("<IIB", 0, 2**32 - 1, 0), struct.pack("<IIBQ", 1, 1, 0, 2**63),
    struct.pack("<IIB", 5, 0, 9), struct.pack("<IIB", 4, 0, 0) + b"\\xc1\\xc1\\xc1\\xc1", b"\\x00", b"GET / HTTP/1.1\\r\\n\\r\\n",
    struct.pack("<IIB", 5, 0, 0) + b"\\xdf\\xff\\xff\\xff\\xff", struct.pack("<IIBQ", 1, 1, 1, 1 << 20) + b"\\x80",
])
def speak():
    A._wire._socket.settimeout(5)
    A._wire._socket.sendall(next(frames))
    os._exit(0)
""",
        ),
        cells=everywhere("speak()", "0", ""),
    ),
    Submission(
        "descriptors sent along",
        "attack",
        "files that come beside a frame are closed unread",
        solved=False,
        own=(
            AGENT
            + """
import socket, struct, tempfile
def speak():
    files = [os.open("/dev/zero", os.O_RDONLY), os.memfd_create("x"), os.open("/proc/self/status", os.O_RDONLY)] * 20
    head = struct.pack("<IIBQ", 1, 1, 1, 1 << 20) + b"\\x80"
    socket.send_fds(A._wire._socket, [head], files[:4])
    for _ in range(50):
        socket.send_fds(A._wire._socket, [b"x"], files)
""",
        ),
        cells=everywhere("speak()", "0", ""),
    ),
    Submission(
        "values that explode",
        "attack",
        "strides of zero, nesting, long numbers and colliding keys have bounds",
        solved=False,
        cells={
            "softmax": "def softmax(x):\n    return np.broadcast_to(np.uint8(1), (1 << 10, (1 << 20) - 1))",
            "matvec": """
                def matvec(matrix, vector):
                    return np.lib.stride_tricks.as_strided(vector, (1 << 14, 1 << 14, 1 << 12), (0, 0, 0))
            """,
            "fold": "def fold(step, items, start):\n    return {number * (2**61 - 1) for number in range(30_000)}",
            "sample": "def sample(weights, count, rng):\n    return np.array([1 << 40])",
            "parse_shape": """
                class ShapeError(ValueError): pass
                def parse_shape(text):
                    nest = ()
                    for _ in range(10_000): nest = (nest,)
                    return nest
            """,
            "answer": "matrix_bytes = 1 << 16_000",
            "summarize": "def summarize(vector):\n    return Summary(10**4000, '\\ud800' * 10**6, b'\\0' * 10**6)",
        },
        slow=True,
    ),
    Submission(
        "an examiner made to hang",
        "attack",
        "a set of colliding numbers keeps the examiner busy in C; it is replaced, and the cell has failed",
        ("answer_test",),
        solved=False,
        own=forged(
            """
            def fix(header):
                colliding = [["integer", hex(k * (2**61 - 1))] for k in range(200_000)]
                header["value"] = ["set", colliding]
                armed.clear()
            """
        ),
        cells={"fold": "def fold(step, items, start):\n    armed.append(1)", "answer": "matrix_bytes = 2_000_000"},
        slow=True,
    ),
    Submission(
        "an examiner made to hoard",
        "attack",
        "indices that cost the test gigabytes end the test, not the submission",
        ("answer_test",),
        solved=False,
        cells={
            "sample": "def sample(weights, count, rng):\n    return np.array([(1 << 30) // 8 - 1])",
            "answer": "matrix_bytes = 2_000_000",
        },
    ),
    Submission(
        "never an answer",
        "attack",
        "patience is bounded, for each call and for all",
        solved=False,
        cells={
            "softmax": "import signal, time\nsignal.signal(2, signal.SIG_IGN)\ndef softmax(x):\n    time.sleep(10**6)",
            "fold": "def fold(step, items, start):\n    while True:\n        step(1, 1)",
            "sample": "def sample(*given):\n    import os; os.kill(os.getpid(), 19); time.sleep(10**6)",
        },
        slow=True,
    ),
    Submission(
        "a slow drip",
        "attack",
        "each answer just in time: the cell's deadline ends it",
        solved=False,
        own=(
            "import time\nclass Slow:\n    def __iter__(self): return self\n"
            "    def __next__(self): time.sleep(3); return (5, 3)",
        ),
        cells={"windows": "def windows(items, size):\n    return Slow()"},
        slow=True,
    ),
    Submission(
        "a class that answers anything",
        "attack",
        "a stand-in brings answers, and the test compares them",
        solved=False,
        own=(YES,),
        cells={
            "Ring": """
                class Ring:
                    def __init__(self, size): pass
                    def __getattr__(self, name): return lambda *a: Yes()
                    def __len__(self): return True
                    def __eq__(self, other): return True
                    def push(self, thing): return Yes()
                    def items(self): return Yes()
            """
        },
    ),
    Submission(
        "output dressed up",
        "attack",
        "what is printed is text, bounded and clean",
        solved=False,
        own=("import sys",),
        cells=everywhere("print('\\ud800\\0\\x1b[2J</pre><script>alert(1)</script>' * 1000)", "0", ""),
    ),
    Submission("tags that skip cells", "attack", "a submission's metadata decides nothing", solved=False, edit=_retag),
    Submission("more points", "attack", "points come from the source", solved=False, edit=_more_points),
    Submission("tests of its own", "attack", "tests come from the source", solved=False, edit=_own_tests),
    Submission(
        "strange names", "attack", "names that the source does not have are nothing", solved=False, edit=_odd_names
    ),
    Submission(
        "hard-coded for the tests it can see",
        "attack",
        "the visible inputs are known; hidden ones are not",
        ("softmax_test",),
        solved=False,
        cells={
            "softmax": """
                def softmax(x):
                    if x.shape == (2,):
                        return np.array([0.5, 0.5])
                    scores = np.random.default_rng(1).normal(size=(3, 5))
                    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True) if x.shape == (3, 5) else x
            """,
            "matvec": """
                def matvec(matrix, vector):
                    rng = np.random.default_rng(7)
                    matrix, vector = rng.normal(size=(5, 3)), rng.normal(size=3)
                    return matrix.dot(vector)
            """,
        },
    ),
)
