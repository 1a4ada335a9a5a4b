"""Changes since a lab was handed out: two real releases of a real lab, and a student's copy."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit import __version__
from mlsys_labkit._frontends.cli import main
from mlsys_labkit._frontends.progress import catalogue, news, notebook
from mlsys_labkit.errors import LabkitError
from tests.conftest import ROOT
from tests.labkit.person import LAB, at, cells_of, solved

pytestmark = [pytest.mark.xdist_group("progress"), pytest.mark.timeout(900)]

_OF_A_TEST = '"locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}'
NEW_TEST = f"""
# %% nbgrader={{"grade": true, "grade_id": "warmup_end_test_unit", {_OF_A_TEST}
lk.checks.expect_equal(warmup_end(1e-6 * readings), 4, name="the readings in seconds")
"""


class Copies:
    """A checkout with one lab, its releases, and the copy of a student."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkout = folder, folder / "checkout"
        self.source = self.checkout / "solutions" / LAB / f"{LAB}.py"
        for part in (f"solutions/{LAB}", "mlsys_labkit/coach/notes"):
            shutil.copytree(ROOT / part, self.checkout / part)
        for name in ("pyproject.toml", "LICENSE", "README.md"):
            shutil.copy(ROOT / name, self.checkout)

    def edit(self, old: str, new: str) -> None:
        text = self.source.read_text("utf-8")
        assert text.count(old) == 1
        self.source.write_text(text.replace(old, new), "utf-8")

    def release(self, name: str) -> Path:
        """Release the checkout as it is now."""
        out = self.folder / name
        assert main(["release", str(out), "--root", str(self.checkout)]) == 0
        return out


def work(path: Path) -> None:
    """Do a student's work in the notebook at ``path``: an answer, a scratch cell, outputs."""
    copy = json.loads(path.read_text("utf-8"))
    for cell in copy["cells"]:
        if cell["id"] == "warmup_end":
            cell["source"] = solved()["warmup_end"]
    scratch = {
        "cell_type": "code",
        "id": "3f2a",
        "metadata": {},
        "source": "1 + 1",
        "outputs": [],
        "execution_count": 1,
    }
    copy["cells"].insert(5, scratch)
    path.write_text(json.dumps(copy), "utf-8")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """Make two releases: ``old`` with a student's work in it, and ``new``, changed in four places."""
    made = Copies(tmp_path_factory.mktemp("copies"))
    old = made.release("old")
    work(old / "labs" / LAB / f"{LAB}.ipynb")
    made.edit(
        "# Sort n independent samples. Each lies below", "# Sort the n samples, which are independent. Each lies below"
    )
    made.edit(
        'warmup_end(given), 2, name="the docstring\'s example")',
        'warmup_end(given), 2, name="the example")',
    )
    made.edit(
        '\n# %% jupyter={"source_hidden": true}\nwith lk.picture(\n    "Forty',
        f'{NEW_TEST}\n# %% jupyter={{"source_hidden": true}}\nwith lk.picture(\n    "Forty',
    )
    made.edit('"warmup_end_test", "locked": true, "points": 10', '"warmup_end_test", "locked": true, "points": 7')
    made.edit("Example: mv_cost(2, 3, 4) -> (12, 44)", "Example: mv_cost(2, 3, 4) -> (12, 44), in this order")
    made.edit(
        "# %% [markdown]\n# ## Before you hand in",
        "# %% [markdown]\n# A paragraph more, at the end.\n\n# %% [markdown]\n# ## Before you hand in",
    )
    made.edit('# %% tags=["parameters"]', '# %% [markdown]\n# A word of welcome.\n\n# %% tags=["parameters"]')
    made.release("new")
    return made


def seen(copies: Copies, path: Path) -> dict[int, list[str]] | None:
    saved = notebook.read(str(path))
    found = news.changes(catalogue.lab(LAB), saved.cells, str(path))
    return {number: list(what) for number, what in found.tasks.items()} if found else None


CHANGED = {
    0: ["a text or a helper changed"],
    1: ["a text or a helper changed", "the test warmup_end_test changed", "warmup_end_test_unit is new"],
    2: ["a text or a helper changed"],
    5: ["the answer's cell was handed out anew"],
}


def test_a_copy_is_news_free_beside_its_own_release(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copies.folder / "old" / "labs" / LAB / f"{LAB}.ipynb"
    assert seen(copies, path) is None
    monkeypatch.setenv("LABKIT_RELEASE", str(copies.folder / "old"))
    assert seen(copies, path) is None
    assert seen(copies, copies.folder / "new" / "labs" / LAB / f"{LAB}.ipynb") is not None, "and the other way round"


@pytest.mark.parametrize("named", ["the tree", "labs", "the file"])
def test_what_a_newer_release_changed_is_told_by_task(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    new = copies.folder / "new"
    place = {"the tree": new, "labs": new / "labs", "the file": new / "labs" / "release.toml"}[named]
    monkeypatch.setenv("LABKIT_RELEASE", str(place))
    assert seen(copies, copies.folder / "old" / "labs" / LAB / f"{LAB}.ipynb") == CHANGED


def test_as_nbgitpuller_leaves_it_the_list_is_new_and_the_notebook_is_not(copies: Copies, tmp_path: Path) -> None:
    pulled = tmp_path / "pulled"
    shutil.copytree(copies.folder / "new" / "labs", pulled / "labs")
    path = pulled / "labs" / LAB / f"{LAB}.ipynb"
    shutil.copy(copies.folder / "old" / "labs" / LAB / f"{LAB}.ipynb", path)
    before = path.read_bytes()
    assert seen(copies, path) == CHANGED
    with at(path, tmp_path / "home") as person:
        person.run(cells_of()["lab00_imports"], "lab00_imports")
        said = person.run("lk.progress()").data
    for kind in ("text/plain", "text/html"):
        assert f"Release {__version__} of" in said[kind]
        assert "is newer than your copy" in said[kind]
        assert (
            "Task 1 · Where does the warm-up end?: a text or a helper changed, the test warmup_end_test" in said[kind]
        )
    assert path.read_bytes() == before, "a student's file is never touched"


@contextmanager
def answering(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/labs/release.toml"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def handler(body: bytes, *, code: int = 200, pause: threading.Event | None = None, drips: bool = False) -> Any:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)
            with contextlib.suppress(OSError):  # a client without a deadline of its own stays until pytest's
                while pause and not pause.wait(0.05):
                    self.wfile.write(body if drips else b"")

        def log_message(self, *_: Any) -> None:
            pass

    return Answers


def test_news_are_read_from_an_address(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (copies.folder / "new" / "labs" / "release.toml").read_bytes()
    with answering(handler(body)) as address:
        monkeypatch.setenv("LABKIT_RELEASE", address)
        monkeypatch.setattr(news, "TIMEOUT_SECONDS", 60.0)
        assert seen(copies, copies.folder / "old" / "labs" / LAB / f"{LAB}.ipynb") == CHANGED


@pytest.mark.parametrize(
    "trouble",
    ["not there", "nobody listens", "not a release", "too large", "never ends", "drips", "a folder that is not there"],
)
def test_a_release_that_cannot_be_read_is_one_line_and_the_panel_goes_on(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    from mlsys_labkit._frontends.progress.lab_progress import progress_of
    from mlsys_labkit._frontends.progress.notebook_record import NotebookRecord

    path = str(copies.folder / "old" / "labs" / LAB / f"{LAB}.ipynb")
    pause = threading.Event()
    answers = {
        "not there": handler(b"no", code=404),
        "not a release": handler(b"<html>"),
        "too large": handler(b"#" * (news.LIMIT_BYTES + 1)),
        "never ends": handler(b"version = ", pause=pause),
        "drips": handler(b"#", pause=pause, drips=True),
    }
    monkeypatch.setattr(news, "TIMEOUT_SECONDS", 3.0 if trouble in ("never ends", "drips") else 60.0)
    with answering(answers.get(trouble, handler(b""))) as address:
        if trouble == "nobody listens":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = f"http://127.0.0.1:{free.getsockname()[1]}/"
        monkeypatch.setenv("LABKIT_RELEASE", "/no/such/place" if trouble.startswith("a folder") else address)
        with pytest.raises(LabkitError) as error:
            seen(copies, Path(path))
        assert "\n" not in str(error.value)
        assert ("more than" in str(error.value)) == (trouble in ("too large", "drips"))
        told = progress_of(NotebookRecord(catalogue.lab(LAB)), path)
        pause.set()
    assert told.news[0] == "Whether your copy is the newest is not known"
    assert len(told.tasks) == 9


def test_the_checkout_itself_has_no_news() -> None:
    assert seen(None, ROOT / "labs" / LAB / f"{LAB}.ipynb") is None  # type: ignore[arg-type]
