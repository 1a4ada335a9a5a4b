"""Accidents of honest students: each loses the marks of what it broke, and no others."""

from __future__ import annotations

import copy
import json

from tests.grading.corpus.submission import Notebook, Submission, code_cell, points

SOFTMAX = ("softmax_test", "softmax_test_large")
RING = ("ring_test", "ring_test_full")


def _named(notebook: Notebook, name: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == name)


def _without(*names: str):
    def edit(notebook: Notebook) -> None:
        for name in names:
            notebook["cells"].remove(_named(notebook, name))

    return edit


def _paste_again(notebook: Notebook) -> None:
    """Insert an older, wrong answer above the right one; both keep the metadata, as copy and paste leaves it."""
    cell = copy.deepcopy(_named(notebook, "softmax"))
    cell["source"] = "def softmax(x):\n    return x"
    notebook["cells"].insert(notebook["cells"].index(_named(notebook, "softmax")), cell)


def _paste_tests(notebook: Notebook) -> None:
    notebook["cells"] += copy.deepcopy([cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]][-6:])


def _own_after(name: str, *sources: str):
    def edit(notebook: Notebook) -> None:
        at = notebook["cells"].index(_named(notebook, name)) + 1
        notebook["cells"][at:at] = [code_cell(source) for source in sources]

    return edit


def _to_markdown(notebook: Notebook) -> None:
    cell = _named(notebook, "fold")
    cell["cell_type"] = "markdown"
    del cell["outputs"], cell["execution_count"]


def _shuffle(notebook: Notebook) -> None:
    notebook["cells"].reverse()


def _edit_tests(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("locked"):
            cell["source"] = "print('just looking')\n" + cell["source"] + "\n1 / 0"


def _old_format(data: bytes) -> bytes:
    cells = json.loads(data)["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            cell["input"] = cell.pop("source").splitlines(keepends=True)
    return json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}).encode()


def _images(notebook: Notebook) -> None:
    image = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * (8 << 20)}}
    _named(notebook, "softmax")["outputs"] = [image] * 3


def _odd_cells(notebook: Notebook) -> None:
    notebook["cells"][:0] = [5, {}, {"cell_type": "code"}, {"cell_type": "code", "source": 7, "metadata": [1]}]
    notebook["cells"] += [{"cell_type": "code", "source": "1", "metadata": {"nbgrader": 3, "tags": 8}}]
    notebook["cells"] += [{"cell_type": "code", "source": "1", "metadata": {"nbgrader": {"grade_id": ["a"]}}}]


FORKS = """
    import os
    for _ in range(10_000):
        try:
            os.fork()
        except OSError:
            pass
"""

ACCIDENTS = (
    Submission("no tests left", "accident", "tests come from the source", edit=_without(*points())),
    Submission(
        "an answer deleted", "accident", "what is not there earns nothing", (*SOFTMAX,), edit=_without("softmax")
    ),
    Submission("helpers deleted", "accident", "locked cells come from the source", edit=_without("imports", "record")),
    Submission("an older copy above", "accident", "of two cells of one name the last counts", edit=_paste_again),
    Submission("cells pasted twice", "accident", "the same answers again change nothing", edit=_paste_tests),
    Submission("cells in reverse", "accident", "the source says in what order cells run", edit=_shuffle),
    Submission("tests edited", "accident", "tests and helpers come from the source", edit=_edit_tests),
    Submission("an answer in Markdown", "accident", "text is no answer", ("fold_test",), edit=_to_markdown),
    Submission(
        "a function renamed",
        "accident",
        "nobody can find softMax",
        (*SOFTMAX,),
        cells={"softmax": "def softMax(x):\n    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)"},
    ),
    Submission(
        "a method renamed",
        "accident",
        "Ring.push is missing, its other methods are of no use without it",
        RING,
        cells={"Ring": "class Ring:\n    def __init__(self, size): pass\n    def add(self, thing): return None"},
    ),
    Submission(
        "cut off",
        "accident",
        "half a file is no notebook",
        tuple(points()),
        raw=lambda data: data[:5000],
        apart="no JSON",
    ),
    Submission(
        "an empty file", "accident", "nothing earns nothing", tuple(points()), raw=lambda data: b"", apart="no JSON"
    ),
    Submission(
        "a Python file",
        "accident",
        "no notebook",
        tuple(points()),
        raw=lambda data: b"def softmax(x): pass",
        apart="no JSON",
    ),
    Submission(
        "brackets for ever", "accident", "no notebook", tuple(points()), raw=lambda data: b"[" * 10**6, apart="no JSON"
    ),
    Submission(
        "not UTF-8",
        "accident",
        "no notebook",
        tuple(points()),
        raw=lambda data: b"\xff\xfe" + data,
        apart="not UTF-8 at byte 0",
    ),
    Submission("a byte-order mark", "accident", "some editors write one", raw=lambda data: b"\xef\xbb\xbf" + data),
    Submission("format 3", "accident", "an old front end saved it", raw=_old_format),
    Submission("odd cells", "accident", "what is odd about other cells costs no answer", edit=_odd_cells),
    Submission("25 MB of pictures", "accident", "outputs are not read", edit=_images),
    Submission(
        "NaN in the file",
        "accident",
        "NaN is no JSON, but Python writes it",
        edit=lambda notebook: notebook["metadata"].update(mean=float("nan")),
    ),
    Submission(
        "NaN in the answers",
        "accident",
        "NaN is not the right value",
        ("softmax_test", "softmax_test_large", "summarize_test", "matvec_test", "answer_test"),
        cells={
            "softmax": "def softmax(x):\n    return x * np.nan",
            "summarize": "def summarize(vector):\n    return Summary(float('nan'), 8.5, 4)",
            "matvec": "def matvec(matrix, vector):\n    return np.full(len(matrix), np.nan)",
            "answer": "matrix_bytes = float('nan')",
        },
    ),
    Submission(
        "a syntax error",
        "accident",
        "a cell that does not parse defines nothing",
        ("matvec_test",),
        cells={"matvec": "def matvec(matrix, vector)\n    return matrix @ vector"},
    ),
    Submission(
        "null bytes",
        "accident",
        "a cell that does not parse defines nothing",
        ("matvec_test",),
        cells={"matvec": "def matvec(matrix, vector):\0\n    return matrix @ vector"},
    ),
    Submission(
        "half a character",
        "accident",
        "a lone surrogate cannot be compiled; the cells around it can",
        ("matvec_test",),
        cells={"matvec": "def matvec(matrix, vector):\n    return matrix @ vector  # \ud83d"},
    ),
    Submission(
        "100 MB of output",
        "accident",
        "output is cut, answers count",
        own=(
            "for _ in range(1000): print('x' * 100_000)",
            "import os\nfor _ in range(1000): os.write(1, b'x' * 100_000)",
        ),
        cells={
            "matvec": """
                def matvec(matrix, vector):
                    for _ in range(1000):
                        print("x" * 100_000)
                    return matrix @ vector
            """
        },
        slow=True,
    ),
    Submission(
        "500 MB on stderr",
        "accident",
        "the scratch space is full, the answers are right",
        own=("import os\nfor _ in range(5000): os.write(2, b'x' * 100_000)",),
        slow=True,
    ),
    Submission(
        "a full disk",
        "accident",
        "own files fill all the space there is; answers need none",
        own=("number = 0\nwhile True:\n    open(f'/tmp/{(number := number + 1)}', 'wb').write(bytes(64 << 20))",),
        slow=True,
    ),
    Submission(
        "12 GiB at once",
        "accident",
        "the call that wants 12 GiB fails, nothing else",
        ("matvec_test",),
        own=("import numpy\nhuge = numpy.ones(12 << 27)",),
        cells={"matvec": "def matvec(matrix, vector):\n    return np.ones(12 << 27)[:5]"},
    ),
    Submission(
        "12 GiB bit by bit",
        "accident",
        "a cell that hoards is ended, nothing else",
        own=("hoard = []\nwhile True:\n    hoard.append(bytearray(b'x' * (64 << 20)))",),
        slow=True,
    ),
    Submission(
        "12 GiB in children",
        "accident",
        "memory of the whole tree counts; the cell that started it is left out",
        own=(
            """
            import os, time
            for _ in range(12):
                if os.fork() == 0:
                    hoard = bytearray(os.urandom(1 << 20) * 1024)
                    time.sleep(100)
            time.sleep(100)
            """,
        ),
        slow=True,
    ),
    Submission(
        "a result of 600 MB",
        "accident",
        "too large for an answer",
        ("softmax_test", "softmax_test_large"),
        cells={"softmax": "def softmax(x):\n    return np.zeros(75 << 20)"},
    ),
    Submission(
        "a list in itself",
        "accident",
        "a value without end is no answer",
        ("fold_test",),
        cells={"fold": "def fold(step, items, start):\n    items.append(items)\n    return items"},
    ),
    Submission(
        "an endless loop",
        "accident",
        "the call is interrupted, later cells go on",
        ("fold_test",),
        cells={"fold": "def fold(step, items, start):\n    while True:\n        pass"},
        slow=True,
    ),
    Submission(
        "an endless loop in C",
        "accident",
        "no signal ends it, so the process is replaced",
        ("fold_test",),
        cells={"fold": "import itertools\ndef fold(step, items, start):\n    return sum(itertools.repeat(0))"},
        slow=True,
    ),
    Submission(
        "an endless cell",
        "accident",
        "a cell that never ends is interrupted; what it defined before stays",
        cells={"answer": "matrix_bytes = 2_000_000\nwhile True: pass"},
        slow=True,
    ),
    Submission(
        "an endless cell in C",
        "accident",
        "a cell that no signal ends is left out, with what it defined",
        ("answer_test",),
        cells={"answer": "import itertools\nmatrix_bytes = 2_000_000\nsum(itertools.repeat(0))"},
        slow=True,
    ),
    Submission(
        "five endless loops",
        "accident",
        "each costs its own task and no other",
        (*SOFTMAX, "windows_test", "fold_test", "parse_shape_test", "blocks_test", "blocks_test_view"),
        cells={
            "softmax": "import itertools\ndef softmax(x):\n    return sum(itertools.repeat(0))",
            "windows": "def windows(items, size):\n    yield sum(itertools.repeat(0))",
            "fold": "def fold(step, items, start):\n    return sum(itertools.repeat(0))",
            "parse_shape": """
                class ShapeError(ValueError): pass
                def parse_shape(text): return sum(itertools.repeat(0))
            """,
            "blocks": "def blocks(vector, size):\n    return sum(itertools.repeat(0))",
        },
        slow=True,
    ),
    Submission(
        "an endless generator",
        "accident",
        "list() of it never ends",
        ("windows_test",),
        cells={"windows": "def windows(items, size):\n    while True:\n        yield (5, 3)"},
        slow=True,
    ),
    Submission(
        "a deadlock",
        "accident",
        "a thread that waits for itself is interrupted",
        ("fold_test",),
        cells={
            "fold": """
                import threading
                lock = threading.Lock()
                def fold(step, items, start):
                    lock.acquire()
                    lock.acquire()
            """
        },
        slow=True,
    ),
    Submission(
        "a long sleep",
        "accident",
        "an own cell that sleeps is interrupted",
        own=("import time\ntime.sleep(1000)",),
        slow=True,
    ),
    Submission(
        "recursion without end",
        "accident",
        "a RecursionError is no answer",
        ("fold_test",),
        cells={"fold": "def fold(step, items, start):\n    return fold(step, items, start)"},
    ),
    Submission(
        "a stack that overflows",
        "accident",
        "with the limit raised it is a crash, which costs one cell",
        ("fold_test",),
        own=("import sys, threading\nsys.setrecursionlimit(10**9)",),
        cells={
            "fold": """
                class Deep:
                    def __getattr__(self, name):
                        return getattr(self, name + "x") if len(name) < 10**6 else 0
                def fold(step, items, start):
                    return Deep().a
            """
        },
    ),
    Submission(
        "forks in a cell",
        "accident",
        "a fork bomb fills its own sandbox; the cell is left out",
        own=(FORKS,),
        slow=True,
    ),
    Submission(
        "a fork in a function",
        "accident",
        "a child that goes on as if it were its parent is not heard",
        cells={
            "fold": """
                import os
                def fold(step, items, start):
                    os.fork()
                    for item in items:
                        start = step(start, item)
                    return start
            """
        },
    ),
    Submission(
        "a daemon",
        "accident",
        "it ends with its sandbox",
        own=("import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)",),
    ),
    Submission(
        "a thread that never ends",
        "accident",
        "it slows its own process down, and ends with it",
        own=("import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()",),
    ),
    Submission(
        "exit in a cell", "accident", "exit() ends one cell", own=("exit()", "import sys; sys.exit(1)", "quit()")
    ),
    Submission(
        "the process ends in a cell",
        "accident",
        "the cell is left out, whoever it belongs to, and each further one too",
        edit=_own_after("softmax", "import os\nos._exit(0)", "import os\nos.abort()"),
    ),
    Submission(
        "the process ends before everything",
        "accident",
        "own cells at the front that crash are left out",
        own=("import os\nos._exit(3)", "import ctypes\nctypes.string_at(0)", "import os\nos._exit(3)"),
    ),
    Submission(
        "the process ends in a function",
        "accident",
        "it costs the test that called it",
        ("fold_test",),
        cells={"fold": "import os\ndef fold(step, items, start):\n    os._exit(0)"},
    ),
    Submission(
        "a segmentation fault",
        "accident",
        "it costs the test that called it",
        ("matvec_test",),
        cells={"matvec": "import ctypes\ndef matvec(matrix, vector):\n    ctypes.memset(8, 0, 8)"},
    ),
    Submission(
        "six crashes",
        "accident",
        "each costs its own task and no other",
        (*SOFTMAX, *RING, "windows_test", "fold_test", "sample_test", "answer_test"),
        cells={
            "softmax": "import os\ndef softmax(x):\n    os.abort()",
            "Ring": "class Ring:\n    def __init__(self, size):\n        os.abort()",
            "windows": "def windows(items, size):\n    os.abort()",
            "fold": "def fold(step, items, start):\n    os.abort()",
            "sample": "def sample(weights, count, rng):\n    os.abort()",
            "answer": "matrix_bytes = 2_000_000\nos.abort()",
        },
    ),
    Submission(
        "every descriptor closed",
        "accident",
        "the cell is left out",
        own=("import os\nos.closerange(0, 1000)",),
    ),
    Submission(
        "stdout closed",
        "accident",
        "streams are the student's to close; later cells get new ones",
        own=("import sys\nsys.stdout.close()\nsys.stderr.close()", "print('still here')"),
        cells={"blocks": "def blocks(vector, size):\n    print('blocks')\n    return vector.view(-1, size)"},
    ),
    Submission(
        "input asked for",
        "accident",
        "nobody answers, so the cell fails",
        own=("name = input('your name? ')", "import getpass; getpass.getpass()"),
    ),
    Submission(
        "everything reset",
        "accident",
        "a %reset at the front has nothing to lose",
        own=("%reset -f", "del __builtins__", "import builtins\nbuiltins.print = None"),
    ),
    Submission(
        "other defaults",
        "accident",
        "settings of the libraries are the student's, and change no test",
        own=(
            """
            import torch, warnings, numpy
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True)
            warnings.simplefilter("error")
            numpy.seterr(all="raise")
            numpy.set_printoptions(precision=1)
            """,
        ),
    ),
    Submission(
        "names taken",
        "accident",
        "own globals of the names that tests use are another process's",
        edit=_own_after("answer", "rng = step = ring = vector = expect_equal = expect_close = before = None"),
    ),
    Submission(
        "the record defined again",
        "accident",
        "an equal class of the same name holds the same values",
        edit=_own_after("record", "@dataclass\nclass Summary:\n    mean: float\n    peak: float\n    at: int"),
    ),
    Submission(
        "an answer that is no data",
        "accident",
        "a generator where a number belongs costs its own task and no later one",
        ("answer_test",),
        cells={"answer": "matrix_bytes = (4 * size for size in [500_000])"},
    ),
    Submission(
        "a module for an answer",
        "accident",
        "what cannot cross costs its own task and no later one",
        ("answer_test",),
        cells={"answer": "matrix_bytes = np"},
    ),
    Submission(
        "a float for an int",
        "accident",
        "2e6 is the right number of the wrong type",
        ("answer_test",),
        cells={"answer": "matrix_bytes = 4 * 1e3 * 500"},
    ),
    Submission(
        "600 cells of its own",
        "accident",
        "own cells cost time and nothing else",
        own=("x = [number for number in range(1000)]",) * 600,
        slow=True,
    ),
    Submission(
        "Windows line ends",
        "accident",
        "carriage returns are white space",
        raw=lambda data: data.replace(rb"\n", rb"\r\n"),
    ),
)
