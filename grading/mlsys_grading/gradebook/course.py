"""Settings of a course in nbgrader's own configuration: its name, and its plugin for late submissions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.gradebook.machine_marks import LatePenalty
from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class CourseSettings:
    """``course`` is nbgrader's ``course_id``; ``late`` is the plugin of its ``AssignLatePenalties``."""

    course: str
    late: LatePenalty


def course_settings(folder: Path) -> CourseSettings:
    """Read ``folder/nbgrader_config.py``, or nbgrader's defaults if there is none.

    Raises LabkitError with the reason if it cannot be read, or names a plugin that is not there.
    Reference: https://nbgrader.readthedocs.io/en/stable/plugins/late-plugin.html

    Example:
        >>> course_settings(Path("/nowhere")).late.late_submission_penalty("ada", 10.0, 3600.0) is None
        True
    """
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.preprocessors import AssignLatePenalties
    from traitlets.config import Config
    from traitlets.config.loader import PyFileConfigLoader

    path = folder / "nbgrader_config.py"
    try:
        with _importing_from(folder):
            config = PyFileConfigLoader(path.name, str(folder)).load_config() if path.is_file() else Config()
            late = AssignLatePenalties(config=config)
            late.init_plugin()
            return CourseSettings(CourseDirectory(config=config).course_id or "default_course", late.plugin_inst)
    except Exception as error:  # the file is a program, which may raise anything
        raise LabkitError(f"{path}: {type(error).__name__}: {' '.join(str(error).split())}; mend it") from None


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let nbgrader find plugins beside its configuration; another course's may have the same name."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    known = set(sys.modules)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]
