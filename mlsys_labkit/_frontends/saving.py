"""Extension of the Jupyter server that keeps saved notebooks small. The kit's installation switches it on.

plotly's extension of JupyterLab adds a PNG to each figure it draws, of two to five times the figure's bytes, and shows
the PNG instead of the figure when the notebook is opened again. A figure of :func:`mlsys_labkit.show` already has HTML
for places without plotly, so its PNG is removed. Other figures keep theirs.
"""

from __future__ import annotations

from typing import Any

from mlsys_labkit._frontends.figures import PLOTLY_MIME


def leave_out_snapshots(model: dict[str, Any], **_: Any) -> None:
    """Remove plotly's PNG from figures with HTML, in a contents model that is about to be saved.

    Example:
        >>> data = {"application/vnd.plotly.v1+json": {}, "text/html": "<figure>", "image/png": "iVBORw0KGgo="}
        >>> leave_out_snapshots({"type": "notebook", "content": {"cells": [{"outputs": [{"data": data}]}]}})
        >>> "image/png" in data
        False

    Reference: Jupyter Server documentation, "File save hooks".
    """
    cells = (model.get("content") or {}).get("cells", ()) if model.get("type") == "notebook" else ()
    for output in (output for cell in cells for output in cell.get("outputs", ())):
        data = output.get("data", {})
        if PLOTLY_MIME in data and "text/html" in data:
            data.pop("image/png", None)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    server.contents_manager.register_pre_save_hook(leave_out_snapshots)
