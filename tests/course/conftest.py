"""The course's site, built once for all tests of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.conftest import ROOT


@dataclass(frozen=True)
class Site:
    """A built site: its folder, and Sphinx's output from building it."""

    folder: Path
    said: str

    @cached_property
    def pages(self) -> dict[str, PageOf]:
        """Page name (with its folder, without .html) -> its elements."""
        return {
            str(path.relative_to(self.folder).with_suffix("")): PageOf(path)
            for path in sorted(self.folder.rglob("*.html"))
        }


class PageOf(HTMLParser):
    """The ids, links and pictures of a page, and the text outside scripts and styles."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.size = path, path.stat().st_size
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.text = ""
        self._inside = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._inside = tag
        if found.get("id"):
            self.ids.add(str(found["id"]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag == "link" and "stylesheet" in str(found.get("rel")) and found.get("href"):
            self.resources.append(str(found["href"]))
        if tag in ("script", "img") and found.get("src"):
            self.resources.append(str(found["src"]))
        if tag == "img":
            self.pictures.append(found)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1200))  # whichever comes first waits until it is built


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site with warnings as errors; executed cells are kept in build/, as `make site` keeps them."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-j", "2", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", folder / "doctrees", ROOT / "course", folder / "html"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return Site(folder / "html", done.stdout + done.stderr)
