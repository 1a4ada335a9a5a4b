"""Formgrader in a browser, on a real Jupyter server, after ``labkit grade``: it shows marks and accepts marks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook

from mlsys_labkit._frontends.cli import main
from tests.grading.gradebook_helpers import LAB, SECRET, SOURCE, answered
from tests.grading.nbgrader_cli import CONFIG

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.browser,
    pytest.mark.places,
    pytest.mark.xdist_group("grade"),
]
NOTEBOOK = json.loads(json.dumps(SOURCE).replace("float(4 * (halve(2) == 1) / 2)", "assert halve(2) == 1"))
RIGHT = {"double": "def double(x):\n    return 2 * x", "halve": "def halve(x):\n    return x / 2", "why": "Because."}
WRONG = RIGHT | {"double": "def double(x):\n    return min(2 * x, 4)"}


@contextmanager
def server(root: Path, home: Path) -> Iterator[str]:
    """Start a Jupyter server with formgrader; yield formgrader's address, which needs no token."""
    settings = {name: str(home) for name in ("HOME", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    extensions = {"nbgrader.server_extensions.formgrader": True, "jupyterlab": False, "notebook": False}
    (home / "jupyter_server_config.json").write_text(json.dumps({"ServerApp": {"jpserver_extensions": extensions}}))
    log = home / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyter_server",
                "--no-browser",
                "--allow-root",
                "--port=0",
                "--ServerApp.port_retries=0",
                "--IdentityProvider.token=",
                f"--ServerApp.root_dir={root}",
            ],
            cwd=root,
            env=os.environ | settings | {"PATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + 600
        while not (found := [path for path in home.glob("jpserver-*.json") if path.stat().st_size]):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield json.loads(found[0].read_text())["url"] + "formgrader/{}"
    finally:
        process.terminate()
        process.wait(30)


def hand_in(root: Path, student: str, answers: dict[str, str]) -> None:
    folder = root / "submitted" / student / LAB
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{LAB}.ipynb").write_text(json.dumps(answered(answers, NOTEBOOK)))


def grade(root: Path) -> None:
    assert main(["grade", LAB, "--course", str(root), "--jobs", "1"]) == 0


def score(root: Path, student: str) -> tuple[float, bool]:
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        found = book.find_submission(LAB, student)
        return found.score, found.needs_manual_grade


def test_marks_are_seen_and_those_that_a_person_gives_survive_another_grading(browser: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    root, home = tmp_path / "class", tmp_path / "home"
    home.mkdir()
    (root / "source" / LAB).mkdir(parents=True)
    (root / "source" / LAB / f"{LAB}.ipynb").write_text(json.dumps(NOTEBOOK))
    shutil.copy(CONFIG, root)
    hand_in(root, "ada", RIGHT)
    hand_in(root, "bob", WRONG)
    grade(root)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        submission = book.find_submission_notebook(LAB, LAB, "bob").id
    with server(root, home) as address:
        page = browser.new_page()
        page.goto(address.format(f"gradebook/{LAB}/{LAB}"))
        page.wait_for_selector("text=Submission #2")
        shown = page.locator("table tbody tr").all_inner_texts()
        assert sorted(text.split()[2:5] for text in shown) == [["7", "/", "27"], ["9", "/", "27"]]

        page.goto(address.format(f"submissions/{submission}"))
        for name, points in (("double_test", "3"), ("double_more", "0")):
            expect(page.locator(f"#{name}")).to_have_attribute("placeholder", points)
        assert page.get_attribute("#why", "placeholder") is None
        expect(page.locator("body")).to_contain_text("min(2 * x, 4)", use_inner_text=True)
        expect(page.locator("body")).to_contain_text(SECRET, use_inner_text=True)  # whoever marks sees the hidden test
        for name, points in (("why", "4.5"), ("double_more", "1")):
            with page.expect_response(
                lambda answer: "api/grade" in answer.url and answer.request.method != "GET"
            ) as done:
                page.fill(f"#{name}", points)
                page.press(f"#{name}", "Tab")
            assert done.value.ok
        page.close()
    assert score(root, "bob") == (7 + 4.5 + 1, True), "the picture and the drawing wait still"

    hand_in(root, "bob", RIGHT | {"halve": "def halve(x):\n    return x"})
    grade(root)
    assert score(root, "bob") == (3 + 1 + 0 + 4.5, True), "a person's mark counts, the machine's follows the answer"
    assert score(root, "ada")[0] == 9
