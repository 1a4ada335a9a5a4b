"""The report's folder: written beside its final place and renamed, so that a reader finds the old or the new one."""

from __future__ import annotations

import glob
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mlsys_grading.report import index_page
from mlsys_grading.report.junit import to_junit
from mlsys_grading.report.result import NotebookResult, RunResult, notebook_from_json, to_json
from mlsys_grading.scratch import abandoned, scratch_folder
from mlsys_labkit.errors import LabkitError

DATA = "report.json"
PLOTLY = "assets/plotly.min.js"
_OLD = ".old"


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Make a folder beside ``out`` for the new report, and remove it at the end unless :func:`publish` has moved it.

    It is made before anything runs, so that a place that cannot be written is reported at once.

    Raises:
        LabkitError: ``out`` holds something that is no report, or its place cannot be written.
    """
    if out.exists() and not (out / DATA).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise LabkitError(f"--out {out} exists and is no report of labkit run; name a new folder")
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            _settle(out)
            stage = stack.enter_context(scratch_folder(f".{out.name}", out.parent))
            (stage / "notebooks").mkdir()
            stage.chmod(0o755)  # a scratch folder's 0700 would keep a web server or a class from reading it
        except OSError as error:
            raise LabkitError(
                f"cannot write the report to {out}: {error.strerror}; choose another place with --out DIR"
            ) from None
        yield stage


def _settle(out: Path) -> None:
    """Finish a :func:`publish` that was killed between its two renames."""
    for old in out.parent.glob(f"{glob.escape(f'.{out.name}')}-*{_OLD}"):
        if abandoned(old):
            if out.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(out)


def publish(stage: Path, out: Path) -> None:
    """Rename ``stage`` to ``out``, in place of an earlier report."""
    old = stage.with_name(stage.name + _OLD)
    if out.exists():
        out.rename(old)
    try:
        stage.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def fill(stage: Path, run: RunResult, roofline: str | None, caption: str) -> None:
    """Write the front page, JUnit XML, JSON and the files that pages load into ``stage``."""
    (stage / "index.html").write_text(index_page.render(run, roofline, caption), encoding="utf-8")
    (stage / "junit.xml").write_text(to_junit(run), encoding="utf-8")
    (stage / DATA).write_text(json.dumps(to_json(run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    pages = (stage / "notebooks").glob("*.html")
    if any(f'src="../{PLOTLY}"' in page.read_text("utf-8") for page in pages):
        from importlib.resources import as_file, files

        (stage / PLOTLY).parent.mkdir(exist_ok=True)
        with as_file(files("plotly") / "package_data" / "plotly.min.js") as plotly:
            shutil.copyfile(plotly, stage / PLOTLY)


def read_notebooks(out: Path) -> dict[str, NotebookResult]:
    """Return the notebooks of the report in ``out`` by name; none if there is no report of this version."""
    try:
        data = json.loads((out / DATA).read_text("utf-8"))
        return {notebook["name"]: notebook_from_json(notebook) for notebook in data["notebooks"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def keep_pages(out: Path, stage: Path, notebooks: Sequence[NotebookResult]) -> None:
    """Copy the old report's pages of ``notebooks``."""
    for notebook in notebooks:
        for file in (out / "notebooks").glob(f"{notebook.name}.*"):
            shutil.copyfile(file, stage / "notebooks" / file.name)
