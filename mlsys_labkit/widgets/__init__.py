"""Pictures that move under the hand: anywidgets that stay alive in an exported page, without a kernel.

Each function returns a widget: live in JupyterLab, plain HTML where anywidget is not installed.
"""

from __future__ import annotations

from mlsys_labkit.widgets.stride_viewer import strides

__all__ = ["strides"]
