"""A real JupyterLab of one's own, and notebooks opened in it by a real browser."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

DEADLINE_SECONDS = 300  # on a machine with twenty times the work it has cores for
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
# The kernel has answered every cell, and the panel has drawn what it sent.
ALL_RUN = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle'
    && panel.content.widgets.filter(cell => cell.model.type === 'code').every(cell => cell.model.executionCount);
}"""
# anywidget 0.11 gives a model two seconds to load and complains afterwards, though it is drawn when it has; ipywidgets
# then makes a view of a model that is not there yet. Neither has a line of ours on its stack.
LATE = ("[anywidget] Failed to initialize model.", "create_view (")


@dataclass
class Lab:
    """A running server; ``troubles`` collects what pages wrote to the console as errors, and uncaught exceptions."""

    url: str
    token: str
    folder: Path
    troubles: list[str] = field(default_factory=list)
    usual: set[str] = field(default_factory=set)

    def open(self, page: Any, notebook: Path) -> Any:
        """Open ``notebook`` in JupyterLab and wait for its kernel; returns ``page``."""
        page.set_default_timeout(DEADLINE_SECONDS * 1000)
        page.on("pageerror", lambda error: self.troubles.append(f"uncaught: {error.stack or error}"))
        page.on("console", lambda said: said.type == "error" and self.troubles.append(f"{said.text} {said.location}"))
        space = secrets.token_hex(4)  # a workspace of its own: nothing that another page left open comes back
        page.goto(f"{self.url}lab/workspaces/{space}/tree/{notebook.relative_to(self.folder)}?token={self.token}")
        page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )
        return page

    def complaints(self) -> set[str]:
        """Return the errors of the page that are neither usual nor mere timeouts of a busy machine."""
        late = {one for one in self.troubles if any(text in one for text in LATE) and "blob:" not in one}
        return set(self.troubles) - self.usual - late

    def run_all(self, page: Any) -> None:
        page.evaluate(RUN_ALL)
        page.wait_for_function(ALL_RUN)

    def theme(self, page: Any, name: str) -> None:
        """Switch to "light" or "dark", and wait until JupyterLab has."""
        page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })",
            f"JupyterLab {name.title()}",
        )
        page.wait_for_selector(f"body[data-jp-theme-light='{str(name == 'light').lower()}']", state="attached")


@contextmanager
def serving(folder: Path, home: Path, **environment: str) -> Iterator[Lab]:
    """Run JupyterLab over ``folder`` on a port that the system chooses, with its settings and state under ``home``."""
    token = secrets.token_hex(16)
    own = {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command += ["--ServerApp.port=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    news = home / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text('{"fetchNews": "false", "checkForUpdates": false}')  # there is no network
    own["JUPYTERLAB_SETTINGS_DIR"] = str(home / "settings")
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "server.log", "w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, env={**os.environ, **own, **environment})
        try:
            yield Lab(_address(home, server, token), token, folder)
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _address(home: Path, server: subprocess.Popen[bytes], token: str) -> str:
    """Return the address that the server wrote to its runtime file, once it listens there."""
    import urllib.request

    found: Callable[[], Path | None] = lambda: next((home / "runtime").glob("jpserver-*.json"), None)  # noqa: E731
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        time.sleep(0.05)
        try:
            url = str(json.loads(found().read_text())["url"])  # type: ignore[union-attr]
            urllib.request.urlopen(f"{url}api/status?token={token}", timeout=30).close()
        except (AttributeError, OSError, ValueError):
            continue
        return url
    raise AssertionError(f"JupyterLab did not start:\n{(home / 'server.log').read_text()[-2000:]}")
