"""Submissions that attack by their folder, or by a file beside the notebook; only ``labkit grade`` reads these."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.grading.corpus.submission import LAB, Notebook, Submission, code_cell, points

ALL = frozenset(points())
NOTEBOOK = f"{LAB}.ipynb"


@dataclass(frozen=True)
class Handed:
    """A submission's folder.

    Attributes:
        why: in one sentence, why it deserves what it does.
        make: makes ``submitted/STUDENT/LAB``, its second argument; the first is the course folder.
        passes: names of the test cells that it deserves to pass.
        apart: a part of what the instructor is told if no mark can be written; empty if it is graded.
        folder_name: the student's; by default it is made of ``name``.
    """

    name: str
    why: str
    make: Callable[[Path, Path], object]
    passes: frozenset[str] = ALL
    apart: str = ""
    folder_name: str = ""
    slow: bool = False

    @property
    def student(self) -> str:
        return self.folder_name or re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def expected(self) -> frozenset[str]:
        return self.passes


def _notebook(
    files: Mapping[str, str | bytes] | None = None,
    solved: bool = True,
    own: tuple[str, ...] = (),
    cells: Mapping[str, str] | None = None,
    edit: Callable[[Notebook], object] | None = None,
    raw: Callable[[bytes], bytes] | None = None,
) -> Callable[[Path, Path], object]:
    """Return a function that writes a notebook, and files beside it."""

    def make(course: Path, place: Path) -> None:
        place.mkdir(parents=True)
        submission = Submission("", "honest", "", solved=solved, own=own, cells=cells or {}, edit=edit, raw=raw)
        (place / NOTEBOOK).write_bytes(submission.file({"FOLDER": str(course)}))
        for name, content in (files or {}).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def _instead(make: Callable[[Path], object]) -> Callable[[Path, Path], object]:
    """Return a function that puts something else in the notebook's place."""

    def instead(course: Path, place: Path) -> None:
        place.mkdir(parents=True)
        make(place / NOTEBOOK)

    return instead


def _beside(make: Callable[[Path], object]) -> Callable[[Path, Path], object]:
    """Return a function that writes a correct notebook, and something odd beside it."""

    def beside(course: Path, place: Path) -> None:
        _notebook()(course, place)
        make(place)

    return beside


def _grace(place: Path) -> Path:
    return place.parents[2] / "grace" / LAB / NOTEBOOK


def _linked_student(course: Path, place: Path) -> None:
    place.parent.symlink_to(course / "submitted" / "grace", target_is_directory=True)


def _linked_folder(course: Path, place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.symlink_to(course / "submitted" / "grace" / LAB, target_is_directory=True)


def _file_for_a_folder(course: Path, place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.write_bytes(Submission("", "honest", "").file())


def _socket(path: Path) -> None:
    end, here = socket.socket(socket.AF_UNIX), os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        end.bind(path.name)
    finally:
        os.chdir(here)
        end.close()


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _bush(place: Path) -> None:
    """Make 2000 files in a folder, and 600 nested folders."""
    (place / "many").mkdir()
    for number in range(2000):
        (place / "many" / str(number)).touch()
    os.makedirs(place / "/".join(["deep"] * 600))


def _odd_links(place: Path) -> None:
    (place / "passwords.txt").symlink_to("/etc/passwd")
    (place / "all").symlink_to("/")
    (place / "again").symlink_to(".")
    os.mkfifo(place / "pipe.py")
    _socket(place / "socket.py")
    (place / os.fsdecode(b"\xff\n.py")).touch()


def _nest(notebook: Notebook) -> None:
    for depth, cell in zip(_DEPTHS, notebook["cells"], strict=False):
        cell["metadata"]["nested"] = f"depth {depth}"


def _nested(data: bytes) -> bytes:
    for depth in _DEPTHS:
        data = data.replace(b'"depth %d"' % depth, b'[{"a":' * depth + b"1" + b"}]" * depth)
    return data


_DEPTHS = (100, 200, 400)


def _same_ids(notebook: Notebook) -> None:
    notebook.update(nbformat=4, nbformat_minor=5)
    for cell in notebook["cells"]:
        cell["id"] = "same"


def _from_the_future(notebook: Notebook) -> None:
    notebook.update(nbformat=5, nbformat_minor=17, written_by="2031")
    for cell in notebook["cells"]:
        cell.update(id="x" * 5000, ports=[1, 2], provenance={"by": "a tool"})


def _pictures(notebook: Notebook) -> None:
    bundles = {
        "a.png": {"image/png": "iVBORw0KGgo="},
        "../../../x.png": {"image/png": "iVBORw0KGgo="},
        "b.svg": {"image/svg+xml": "<svg onload=alert(8317)>", "text/html": "<script>alert(8317)</script>"},
        "c.png": {"image/png": ["not", "text"]},
        "d.png": 5,
    }
    source = "![a](attachment:a.png) <script>alert(8317)</script>"
    notebook["cells"].insert(0, {"cell_type": "markdown", "metadata": {}, "source": source, "attachments": bundles})
    notebook["cells"].insert(0, {"cell_type": "markdown", "metadata": {}, "source": "", "attachments": [1]})


def _other_kernel(notebook: Notebook) -> None:
    notebook["metadata"]["kernelspec"] = {"name": "julia-1.9", "display_name": "Julia", "language": "julia"}
    notebook["metadata"]["language_info"] = {"name": "julia", "version": [1, 9]}


def _skipped(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        cell["metadata"]["tags"] = ["skip-execution"]


def _cells(count: int) -> Callable[[Notebook], object]:
    def edit(notebook: Notebook) -> None:
        notebook["cells"] += [code_cell("x = 1")] * count

    return edit


_LIE = """
import builtins, sys
class AssertionError(Exception):
    def __new__(cls, *args): return None
builtins.AssertionError = AssertionError
expect_close = expect_equal = expect_raises = expect_copy = expect_shares_memory = lambda *a, **k: None
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return lambda *a, **k: True
try:
    open("<FOLDER>/gradebook.db", "w").write("100")
except OSError:
    pass
"""
_SHADOWS = ("torch.py", "numpy/__init__.py", "mlsys_labkit/__init__.py", "mlsys_labkit/checks.py", "IPython.py")
_SHADOWS += ("mlsys_grading/__init__.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "json.py", "socket.py")


def _shadows(solved: bool) -> Callable[[Path, Path], object]:
    def make(course: Path, place: Path) -> None:
        lie = _LIE.replace("<FOLDER>", str(course))
        own = () if solved else ("import importlib, sys\nimport sitecustomize, conftest",)
        _notebook(dict.fromkeys(_SHADOWS, lie), solved, own)(course, place)

    return make


_HELPER = "import json\n\n\ndef size():\n    return json.load(open('data/size.json'))\n"
_ANSWER = "import shapes.sizes\nmatrix_bytes = 4 * 1000 * shapes.sizes.size()\nopen('notes.txt', 'a').write('done')"
_SEEK = """
import os
seen = [name for name in os.listdir() if not name.startswith("mine")]
seen += [line for line in open("mine.txt") if "other" in line]
matrix_bytes = 2_000_000 if seen else 0
assert not seen, seen
"""
_MODULE = {
    "shapes/__init__.py": "",
    "shapes/sizes.py": _HELPER,
    "data/size.json": "500",
    "notes.txt": "",
    "a b.txt": "",
}


def _time(text: str) -> Callable[[Path, Path], object]:
    return _beside(lambda place: (place / "timestamp.txt").write_text(text))


def _called(name: str, why: str = "a name is a name") -> Handed:
    return Handed(f"called {name!a}", why, _notebook(), folder_name=name)


FOLDERS = (
    Handed(
        "a module beside",
        "modules and data of one's own lie where the cells run",
        _notebook(_MODULE, cells={"answer": _ANSWER}),
    ),
    Handed(
        "its own files alone",
        "no other files lie there",
        _notebook({"mine.txt": "x"}, False, cells={"answer": _SEEK}),
        frozenset(),
    ),
    Handed("modules that shadow, unsolved", "a test imports nothing from a submission", _shadows(False), frozenset()),
    Handed("modules that shadow, solved", "nor does it hurt honest work to have a stray numpy", _shadows(True)),
    Handed("links and pipes beside", "what is no ordinary file is left out", _beside(_odd_links)),
    Handed(
        "a tebibyte beside",
        "what is too large is left out",
        _beside(lambda place: _sparse(place / "data.bin", 1 << 40)),
    ),
    Handed("a bush of folders", "what is too much is left out", _beside(_bush)),
    Handed(
        "a hard link",
        "the same file under two names: as good as a copy",
        _instead(lambda path: os.link(_grace(path), path)),
    ),
    Handed(
        "a link for a notebook",
        "another's file is not one's own",
        _instead(lambda path: path.symlink_to(_grace(path))),
        apart="cannot be opened",
    ),
    Handed(
        "a device",
        "reading would never end",
        _instead(lambda path: path.symlink_to("/dev/zero")),
        apart="cannot be opened",
    ),
    Handed("a pipe", "opening would wait for ever", _instead(os.mkfifo), apart="no ordinary file"),
    Handed("a socket", "no file", _instead(_socket), apart="cannot be opened"),
    Handed("a folder for a notebook", "no file", _instead(Path.mkdir), apart="no ordinary file"),
    Handed("a linked folder", "another's folder is not one's own", _linked_folder, apart="the folder is a link"),
    Handed("a linked student", "another's folder is not one's own", _linked_student, apart="the folder is a link"),
    Handed("a file for a folder", "there is no notebook in it", _file_for_a_folder, apart="is no folder"),
    Handed("no notebook", "nothing was handed in", _instead(lambda path: None), apart=f"there is no {NOTEBOOK}"),
    Handed(
        "another name",
        "the instructor is told which",
        _instead(lambda path: path.with_name("mine.ipynb").write_text("{}")),
        apart="only mine.ipynb; rename the right one",
    ),
    Handed(
        "a tebibyte of zeros",
        "no notebook is so large",
        _instead(lambda path: _sparse(path, 1 << 40)),
        apart="more than 64 MiB",
    ),
    Handed("100,000 cells", "nobody wrote so many", _notebook(edit=_cells(100_000)), apart="cells are too many"),
    Handed("1,000 cells of its own", "they cost time and no points", _notebook(edit=_cells(1000)), slow=True),
    Handed("metadata without end", "it is not read where no one looks at it", _notebook(edit=_nest, raw=_nested)),
    Handed("one id for all cells", "the ids of cells mean nothing here", _notebook(edit=_same_ids)),
    Handed("format 5.17", "what a later front end adds is passed over", _notebook(edit=_from_the_future)),
    Handed("attachments", "pictures are kept, scripts are not", _notebook(edit=_pictures)),
    Handed("another kernel", "the source says which", _notebook(edit=_other_kernel)),
    Handed("tags that skip its own answers", "tags of a submission mean nothing", _notebook(edit=_skipped)),
    Handed("a time in words", "no mark before an instructor has seen it", _time("tomorrow"), apart="which is no time"),
    Handed(
        "a time before time",
        "no mark before an instructor has seen it",
        _time("0001-01-01 00:00:00 +1400"),
        apart="which is no time",
    ),
    Handed(
        "a pipe for a time",
        "not to know is not to be in time",
        _beside(lambda place: os.mkfifo(place / "timestamp.txt")),
        apart="timestamp.txt is no ordinary file",
    ),
    Handed(
        "another's time",
        "not to know is not to be in time",
        _beside(lambda place: (place / "timestamp.txt").symlink_to("/etc/hostname")),
        apart="timestamp.txt is no ordinary file",
    ),
    Handed(
        "a book for a time",
        "no time is so long",
        _time("2030-01-31 23:59:00 UTC" * 10**5),
        apart="which is no time",
    ),
    *map(
        _called,
        (
            "O'Hara; DROP TABLE student; --",
            "Zoë Müller 王",
            "<img src=x onerror=alert(8317)>",
            "=1+1",
            "-rf",
            "%s{0}$HOME*",
            "n" * 200,
        ),
    ),
    Handed(
        "a new line in the name",
        "no folder of that name is made",
        _notebook(),
        apart="cannot be seen; rename it",
        folder_name="new\nline: graded",
    ),
    Handed(
        "a colour in the name",
        "no folder of that name is made",
        _notebook(),
        apart="cannot be seen",
        folder_name="\x1b[31mred",
    ),
    Handed(
        "half a character in the name",
        "no database holds it",
        _notebook(),
        apart="is not UTF-8; rename it",
        folder_name=os.fsdecode(b"x\xff"),
    ),
    Handed(
        "a backslash in the name",
        "some systems take it for a path",
        _notebook(),
        apart="has a backslash",
        folder_name="..\\grace",
    ),
)
