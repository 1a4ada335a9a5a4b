"""The search for hidden lines: it knows all of them, and finds them wherever a file can hold text."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import marshal
import py_compile
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlsys_grading.lab import read_labs
from mlsys_grading.release import git
from mlsys_grading.release.hidden import HiddenLines, hidden_lines
from mlsys_grading.release.search import search
from tests.conftest import ROOT
from tests.grading.course import FIXTURE

LINE = "secret_copy = np.array(x, dtype=np.float64, copy=True)"  # of the tiny lab's solution
HARMLESS = "public_copy = np.empty(y, dtype=np.float32, order='F')"


@pytest.fixture(scope="module")
def hidden() -> HiddenLines:
    return hidden_lines(read_labs(FIXTURE))


def zipped(text: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep/inside.py", text)
    return file.getvalue()


def tarred(data: bytes, how: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{how}") as archive:
        member = tarfile.TarInfo("deep/inside")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def arrays(text: str) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, words=np.array([text]), letters=np.frombuffer(text.encode(), dtype=np.uint8))
    return file.getvalue()


def notebook(source: object, ensure_ascii: bool = False) -> bytes:
    cells = [{"cell_type": "code", "id": "a", "metadata": {}, "source": source, "outputs": [], "execution_count": None}]
    return json.dumps({"cells": cells, "nbformat": 4}, ensure_ascii=ensure_ascii).encode()


WAYS: dict[str, Callable[[str], bytes]] = {
    "a line of its own": lambda line: f"def f(x):\n    {line}\n".encode(),
    "within a sentence": lambda line: f"and so, as we know, `{line}` does it".encode(),
    "other white space": lambda line: line.replace(" ", "").replace(",", " ,\t").encode(),
    "over two lines": lambda line: line.replace("dtype", "\n    dtype").encode(),
    "Windows' line ends": lambda line: f"\r\n{line}\r\n".encode(),
    "a quoted string": lambda line: repr(f"x\n{line}\n").encode(),
    "a notebook": lambda line: notebook(["def f(x):\n", f"    {line}\n"]),
    "a notebook, split anywhere": lambda line: notebook([line[:20], line[20:]]),
    "a notebook's output": lambda line: json.dumps({"cells": [{"outputs": [{"data": {"text/html": line}}]}]}).encode(),
    "escaped to the last letter": lambda line: (
        b'{"a": "' + "".join(f"\\u{ord(letter):04x}" for letter in line).encode() + b'"}'
    ),
    "UTF-16": lambda line: line.encode("utf-16"),
    "a binary file": lambda line: bytes(range(128, 256)) * 9 + line.encode() + b"\0\xff\xfe",
    "gzip": lambda line: gzip.compress(line.encode()),
    "bzip2": lambda line: bz2.compress(line.encode()),
    "xz": lambda line: lzma.compress(line.encode()),
    "a zip file": zipped,
    "a tar file": lambda line: tarred(line.encode(), ""),
    "a tar.gz": lambda line: tarred(line.encode(), "gz"),
    "a tar.xz": lambda line: tarred(line.encode(), "xz"),
    "a wheel in a tar.bz2": lambda line: tarred(zipped(line), "bz2"),
    "a gzip in a tar": lambda line: tarred(gzip.compress(line.encode()), ""),
    "numpy's arrays": arrays,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_hidden_line_is_found(hidden: HiddenLines, way: str) -> None:
    found = search([("some/file", WAYS[way](LINE))], hidden)
    assert found
    assert {each.partition(" holds ")[2] for each in found} == {f"solutions/lab90_tiny/lab90_tiny.py:49: {LINE}"}
    assert search([("some/file", WAYS[way](HARMLESS))], hidden) == []


def compiled(folder: Path) -> bytes:
    source = folder / "module.py"
    source.write_text(f"def scaled(x, factor):\n    {LINE}\n")
    return Path(py_compile.compile(str(source), str(folder / "module.pyc"), doraise=True)).read_bytes()


@pytest.mark.parametrize("name", ["kit/module.pyc", "kit/data.bin"])
def test_compiled_python_is_refused(hidden: HiddenLines, tmp_path: Path, name: str) -> None:
    data = compiled(tmp_path)
    assert marshal.loads(data[16:]).co_names == ("scaled",)  # it is what it is taken for
    (found,) = search([(name, data)], hidden)
    assert found == f"{name} is compiled Python: nobody can read what is in it, so it does not travel"


@pytest.mark.parametrize(("data", "kind"), [(b"\x28\xb5\x2f\xfd....", "zstd"), (b"7z\xbc\xaf\x27\x1c", "7-Zip")])
def test_archive_that_cannot_be_unpacked_is_refused(hidden: HiddenLines, data: bytes, kind: str) -> None:
    assert search([("a", data)], hidden) == [
        f"a is packed by {kind}: nobody can read what is in it, so it does not travel"
    ]


def test_endlessly_nested_archive_is_refused(hidden: HiddenLines) -> None:
    data = LINE.encode()
    for _ in range(12):
        data = gzip.compress(data)
    (found,) = search([("a", data)], hidden)
    assert "packed more than 8 times" in found


def locked_zip() -> bytes:
    """Return a zip file whose one member is marked as encrypted."""
    data = bytearray(zipped(LINE))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(header) + flags] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 no zip",
        b"\x1f\x8b no gzip",
        b"BZh9 no",
        zipped(LINE)[:-9],
        gzip.compress(b"a" * 99)[:-5],
        locked_zip(),
    ],
    ids=["zip", "gzip", "bzip2", "cut zip", "cut gzip", "encrypted zip"],
)
def test_damaged_archive_is_refused(hidden: HiddenLines, data: bytes) -> None:
    assert search([("a", data)], hidden) == [
        "a is a damaged archive: nobody can read what is in it, so it does not travel"
    ]


@pytest.mark.parametrize("data", [b"{ no JSON", b"[" * 99_999, b"", b"\x00", b"\xff\xfe\x00", b"PK is no zip file"])
def test_a_file_that_only_looks_like_another_is_read_as_it_is(hidden: HiddenLines, data: bytes) -> None:
    assert search([("a", data)], hidden) == []
    (found,) = search([("a", data + b"\n\n" + LINE.encode())], hidden)
    assert found.endswith(LINE)


def test_text_before_an_archive_is_searched(hidden: HiddenLines) -> None:
    assert len(search([("a", LINE.encode() + b"\n" + zipped(HARMLESS))], hidden)) == 1
    assert len(search([("a", b"#!/bin/sh\n" + zipped(LINE))], hidden)) == 1


def run_git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.edu", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "a.py").write_text(f"{HARMLESS}\n")
    run_git(folder, "add", "a.py")
    run_git(folder, "commit", "--quiet", "--message", "A beginning")
    return folder


def in_an_old_commit(folder: Path) -> None:
    (folder / "a.py").write_text(f"{LINE}\n")
    run_git(folder, "commit", "--quiet", "--all", "--message", "Oh no")
    (folder / "a.py").write_text("nothing to see\n")
    run_git(folder, "commit", "--quiet", "--all", "--message", "Better")


def on_no_branch(folder: Path) -> None:
    in_an_old_commit(folder)
    run_git(folder, "reset", "--quiet", "--hard", "HEAD~2")


def packed(folder: Path) -> None:
    in_an_old_commit(folder)
    run_git(folder, "gc", "--quiet")


def in_a_message(folder: Path) -> None:
    run_git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Mend {LINE}")


def in_a_tag(folder: Path) -> None:
    run_git(folder, "tag", "--annotate", "v1", "--message", LINE)


@pytest.mark.parametrize("leak", [in_an_old_commit, on_no_branch, packed, in_a_message, in_a_tag])
def test_git_objects_are_searched(hidden: HiddenLines, repository: Path, leak: Callable[[Path], None]) -> None:
    assert search(git.every_object(repository), hidden) == []
    leak(repository)
    (found,) = search(git.every_object(repository), hidden)
    assert re.fullmatch(r"git (blob|commit|tag) [0-9a-f]{12} holds .*", found)
    assert found.endswith(LINE)


def marked_lines(path: Path) -> list[str]:
    """Return the hidden lines by a second, simple reading: text between markers, and whole files of wrong answers."""
    lines, hidden = [], path.name == "wrong_answers.py"
    for line in path.read_text(encoding="utf-8").splitlines():
        if "### BEGIN " in line:
            hidden = True
        elif "### END " in line:
            hidden = False
        elif hidden and not line.startswith("# %%"):
            lines.append(line.removeprefix("#-").removeprefix("#+").strip())
    return lines


def squeezed(text: str) -> str:
    return re.sub(r"[\s\\\"'`]", "", text)


def test_every_hidden_line_of_every_lab_is_known() -> None:
    labs = read_labs(ROOT)
    hidden = hidden_lines(labs)
    shown = "\n".join((ROOT / "labs" / lab.name / f"{lab.name}.ipynb").read_text(encoding="utf-8") for lab in labs)
    notes = "\n".join(lab.notes_path.read_text(encoding="utf-8") for lab in labs)
    visible = squeezed(shown + notes)
    lines = {line for lab in labs for path in (lab.path, lab.wrong_path) for line in marked_lines(path)}
    assert len(lines) > 2000
    missed = [
        line
        for line in lines
        if len(squeezed(line)) >= 32
        and squeezed(line) not in visible
        and not line.startswith("# ")  # heads of files of wrong answers, for instance
        and not hidden.found_in(line)
    ]
    assert missed == []


def test_commonplaces_and_what_is_shown_are_no_secret(hidden: HiddenLines) -> None:
    for text in ("for i in range(len(x)):", "return x", "from dataclasses import dataclass", "def scaled(x, factor):"):
        assert hidden.found_in(text) == []


def test_kit_and_labs_hold_no_hidden_line() -> None:
    files = [name for name in git.files_of(ROOT) if name.startswith(("mlsys_labkit/", "labs/", "binder/"))]
    assert len(files) > 500
    assert search(((name, (ROOT / name).read_bytes()) for name in files), hidden_lines(read_labs(ROOT))) == []
