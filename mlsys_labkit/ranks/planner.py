"""The former path of ``mlsys_labkit.planner``, kept for notebooks that import it from here."""

from mlsys_labkit.planner import *  # noqa: F403
