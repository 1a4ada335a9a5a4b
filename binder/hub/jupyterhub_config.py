"""Configuration of JupyterHub on one machine. The settings are in hub.toml beside it, or in $MLSYS_HUB_SETTINGS."""

import os
import sys
from pathlib import Path

from mlsys_grading.hub.configure import configure
from mlsys_grading.hub.settings import read_settings
from mlsys_labkit.errors import LabkitError

c = get_config()  # noqa: F821 - traitlets provides it
try:
    configure(c, read_settings(Path(os.environ.get("MLSYS_HUB_SETTINGS", Path(__file__).parent / "hub.toml"))))
except LabkitError as error:
    sys.exit(f"labkit hub: {error}")
