"""The page after the login: it lists the course's labs, and each link opens the notebook in the person's server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.hub.command import _make_sources
from mlsys_grading.hub.front_page import LabLink, lab_links
from tests.hub.hub_process import PATIENCE_SECONDS, ROOT, STUDENTS_PASSWORD, Hub, Person, needs_hub, send_login


def test_links_have_the_notebooks_headings(tmp_path: Path) -> None:
    lab = "# Lab 07 · Ranks · and more\n\n| time |\n|---|\n| 90 minutes | any laptop |\n"
    notebooks = {"b two": [{"source": ["## Second\n", "more"]}], "a": [], "empty": None, "lab07": [{"source": lab}]}
    for name, cells in notebooks.items():
        (tmp_path / name).mkdir()
        if cells is not None:
            (tmp_path / name / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))
    assert lab_links(tmp_path, "ml") == [
        LabLink("a", "ml/a/a.ipynb"),
        LabLink("Second", "ml/b%20two/b%20two.ipynb"),
        LabLink("Ranks · and more", "ml/lab07/lab07.ipynb", "07", "90"),
    ]
    assert lab_links(tmp_path / "none", "ml") == []


def test_sources_that_the_course_lacks_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "solutions" / "lab00_your_machine", tmp_path / "solutions" / "lab00_your_machine")
    _make_sources(tmp_path)
    made = tmp_path / "build/source/lab00_your_machine/lab00_your_machine.ipynb"
    assert "### BEGIN HIDDEN TESTS" in made.read_text()
    assert not (tmp_path / "labs").exists()
    capsys.readouterr()
    _make_sources(tmp_path)
    _make_sources(tmp_path / "no checkout")
    assert capsys.readouterr().out == ""


@needs_hub
@pytest.mark.browser
@pytest.mark.xdist_group("hub")
@pytest.mark.timeout(900)
def test_a_link_opens_the_lab_in_the_persons_server(hub: Hub, bob: Person, browser: Any) -> None:
    bob.stop_server()  # this Hub has two devices for all tests, and ada has the other
    page = browser.new_context().new_page()
    page.set_default_timeout(1e3 * PATIENCE_SECONDS)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(hub.url)
    send_login(page, "cleo", STUDENTS_PASSWORD)
    assert page.url.endswith("/hub/home")
    for number in range(len(list((ROOT / "labs").glob("lab*")))):
        assert "minutes" in page.get_by_role("link", name=f"Lab {number:02}: ").inner_text()
    page.get_by_role("link", name="Lab 00: ").click()
    page.click(".jp-Notebook h1:has-text('Lab 00')")
    page.wait_for_url("**/user/cleo/lab/tree/mlsys/lab00_your_machine/lab00_your_machine.ipynb")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    usage = page.locator("#jp-main-statusbar :text('CPU:')").last
    usage.wait_for()
    colour = usage.evaluate("node => getComputedStyle(node).backgroundColor")
    assert colour == "rgba(0, 0, 0, 0)", "no warning of a processor that is hardly used"
    idle = "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
    page.wait_for_function(idle)
    assert not page.evaluate("() => window.jupyterapp.hasPlugin('@jupyterlab/debugger-extension:main')")
    assert errors == []
    page.context.close()
    hub.log_in("cleo").stop_server()
