"""A module whose import starts the kernel. A fork server imports it before anything else.

Libraries ask when they are imported whether they are in a notebook (plotly, tqdm, matplotlib, ipywidgets), and the
kernel is there when its process is forked. So are the modules that it imports when its first cell runs.
"""

from __future__ import annotations

import bdb  # noqa: F401

import IPython.core.logger  # noqa: F401

from mlsys_grading.kernel.kernel import kernel_of_this_process

kernel_of_this_process()
