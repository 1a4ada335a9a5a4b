"""``lk.progress()``: which checks passed on which answer of a lab, and the time at work."""

from mlsys_labkit._frontends.progress.lab_progress import LabProgress
from mlsys_labkit._frontends.progress.panel import Panel, progress

__all__ = ["LabProgress", "Panel", "progress"]
