"""Rules of CONTRIBUTING.md's section "Style" that a script can check."""

from __future__ import annotations

import ast
import collections
import re
import subprocess
from collections.abc import Iterator

from tests.conftest import ROOT

QUESTION = re.compile(r"(?:What|Who|Whose|Where|Whether|How|Which)\b")
ASKED = re.compile(rf"""(?:"{{1,3}}|'{{1,3}})\\?\s*{QUESTION.pattern}""")
PUBLIC_CLASS = re.compile(r"^ *class ([A-Z]\w*)\b.*:$", re.MULTILINE)
MOST_LINES = 400
SLOW_IMPORT = re.compile(
    r"^(?:import|from) "
    r"(?:openai|transformers|torch\._dynamo|torch\.distributed\.tensor|mlsys_labkit\.memory\.torch_tracer)\b",
    re.MULTILINE,
)
# Collections of submissions and answers, one entry after the other.
DATA = re.compile(r"tests/grading/(?:corpus/|unusual_answers)|/bundles/|^solutions/")


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring."""
    for node in ast.walk(ast.parse(source)):
        has_one = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if has_one and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def test_docstrings_are_no_questions() -> None:
    found = [
        f"{path}:{line} {text.splitlines()[0]}"
        for path in tracked("*.py")
        if not path.startswith("solutions/")  # notebooks: cells of C++ among them, and questions to students
        if ASKED.search(source := (ROOT / path).read_text(encoding="utf-8"))  # to parse all takes five seconds
        for line, text in docstrings(source)
        if QUESTION.match(text)
    ]
    assert found == []


def test_public_classes_have_distinct_names() -> None:
    """A name in a traceback, or in a search, leads to one class of the two packages."""
    homes = collections.defaultdict(list)
    for path in tracked("mlsys_labkit/*.py", "grading/*.py"):
        for name in PUBLIC_CLASS.findall((ROOT / path).read_text(encoding="utf-8")):
            homes[name].append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_files_are_short() -> None:
    sources = tracked("*.py", "*.js", "*.css", "*.cpp", "*.h", "*.cu")
    lengths = {path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path in sources if not DATA.search(path)}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_modules_of_tests_import_no_slow_library() -> None:
    """Each of the five workers imports every module: such a library is imported in the tests that use it."""
    found = [path for path in tracked("tests/*.py") if SLOW_IMPORT.search((ROOT / path).read_text(encoding="utf-8"))]
    assert found == []
