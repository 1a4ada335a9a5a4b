"""Errors the kit raises on purpose: one clear line that says what was expected, what came, and what to do next."""

from __future__ import annotations

import importlib
from types import ModuleType


class LabkitError(Exception):
    """Base of every deliberate error. Its text is one line, fit to be shown to a student without a traceback."""


class MissingExtraError(LabkitError, ImportError):
    """A part of the kit needs a library that an optional extra installs."""


def require(module: str, extra: str) -> ModuleType:
    """Import ``module`` or raise a one-line error that names the extra to install.

    Example:
        >>> require("math", "torch").sqrt(4.0)
        2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the library is there, and broken: its own traceback says more than we could
        raise MissingExtraError(
            f"{module} is not installed; run: pip install 'mlsys-labkit[{extra}]', then restart the kernel"
        ) from None
