"""Roofline: what a machine allows at each arithmetic intensity, and where a piece of work stands.

    roofline = Roofline.from_spec("h100-sxm")          # datasheet only: model, not measured
    roofline = Roofline.measure()                      # this machine, measured once and then remembered
    roofline.place(work).verdict

Reference: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from mlsys_labkit.roofline.model import Roofline
from mlsys_labkit.roofline.place import Placement
from mlsys_labkit.roofline.roof import Ceiling

__all__ = ["Ceiling", "Placement", "Roofline"]
