"""``lk.progress()``: which checks passed on which answer of a lab, and the time at work."""

from mlsys_labkit._frontends.progress.panel import Panel, progress
from mlsys_labkit._frontends.progress.state import LabProgress

__all__ = ["LabProgress", "Panel", "progress"]
