"""Jupyter server extension: nbgrader's formgrader in the kit's style, with buttons that do as ``labkit grade`` does.

nbgrader's own buttons would run students' cells as the course's user, who owns the gradebook and the hidden tests, and
would put the hidden tests into the feedback. It replaces ``nbgrader.server_extensions.formgrader``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.utils import url_path_join
from nbgrader.server_extensions import formgrader
from nbgrader.server_extensions.formgrader.base import BaseApiHandler, check_notebook_dir, check_xsrf
from tornado import web

from mlsys_grading.grade.refresh_feedback import rewrite
from mlsys_labkit._frontends.page import look
from mlsys_labkit.errors import LabkitError

# Files beside a graded notebook. nbgrader's handler serves any file of the course folder, such as a page that a student
# handed in, on the course's own origin. `labkit grade` puts no file there.
_FILES = "submissions/(?!components/)[^/]+/(?!(?:next|prev)(?:_incorrect)?/?$).+"
_STYLE = Path(__file__).with_name("formgrader.css")
_LABKIT = "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main())"


def _guarded(method: Callable[..., Any]) -> Any:
    """Apply the checks that nbgrader's own handlers make."""
    return web.authenticated(check_xsrf(check_notebook_dir(method)))


class CourseKernels(AsyncMappingKernelManager):
    """Kernels of the course, which start in the course's folder wherever their notebook is.

    Python imports modules from the folder in which it starts. In a submission's folder, a student's module would run
    as the course's user as soon as an instructor opens the notebook to read it.
    """

    def cwd_for_path(self, path: str, **more: Any) -> str:
        """Return the course's folder."""
        return str(super().cwd_for_path("", **more))  # type: ignore[no-untyped-call]


class _Grade(BaseApiHandler):  # type: ignore[misc]
    @_guarded
    async def post(self, lab: str, student: str) -> None:
        """Grade one submission, as ``labkit grade LAB --student STUDENT`` does in a terminal."""
        command = [sys.executable, "-c", _LABKIT, "grade", f"--student={student}", f"--course={self.coursedir.root}"]
        pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_exec(*command, "--", lab, stdout=pipe, stderr=both)
        log = (await process.communicate())[0].decode(errors="replace")
        error = {"error": log.strip().splitlines()[-1]} if process.returncode else {}
        self.write(json.dumps({"success": process.returncode == 0, "log": log} | error))


class _Style(BaseApiHandler):  # type: ignore[misc]
    @web.authenticated
    def get(self) -> None:
        """Send formgrader's own styles, and the kit's after them."""
        theirs = Path(formgrader.handlers.static_path, "css", "nbgrader.css").read_text("utf-8")
        self.set_header("Content-Type", "text/css; charset=utf-8")
        self.write(theirs + look.stylesheet(_STYLE))


class _Feedback(BaseApiHandler):  # type: ignore[misc]
    @_guarded
    def post(self, lab: str, student: str = "") -> None:
        """Write the feedback again, with the marks and comments that people have given after the grading."""
        try:
            count = rewrite(Path(self.coursedir.root), lab, student)
        except LabkitError as error:
            self.write(json.dumps({"success": False, "error": str(error), "log": ""}))
        else:
            self.write(json.dumps({"success": True, "log": f"feedback of {count} submissions"}))


def load_jupyter_server_extension(app: Any) -> None:
    """Add our handlers, then nbgrader's: tornado takes the first that matches."""
    api = url_path_join(app.web_app.settings["base_url"], "/formgrader/api")
    handlers = {
        f"{api}/submission/([^/]+)/([^/]+)/autograde": _Grade,
        f"{api.removesuffix('api')}static/css/nbgrader.css": _Style,
        f"{api}/assignment/([^/]+)/generate_feedback": _Feedback,
        f"{api}/assignment/([^/]+)/([^/]+)/generate_feedback": _Feedback,
    }
    closed = (f"{api.removesuffix('api')}{_FILES}", web.ErrorHandler, {"status_code": 404})
    app.web_app.add_handlers(".*$", [*handlers.items(), closed])
    formgrader.formgrader.load_jupyter_server_extension(app)
