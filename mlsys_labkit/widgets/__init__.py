"""Interactive pictures: anywidgets that stay interactive in an exported page, without a kernel.

Each function returns a widget: live in JupyterLab, plain HTML where anywidget is not installed.
"""

from __future__ import annotations

from mlsys_labkit.widgets.accelerator_map import accelerator_map
from mlsys_labkit.widgets.annotated_source import annotated_source
from mlsys_labkit.widgets.block_table import block_table
from mlsys_labkit.widgets.collective_animator import collective_animator
from mlsys_labkit.widgets.compiled_stages import compiled_stages
from mlsys_labkit.widgets.compiler_map import compiler_map
from mlsys_labkit.widgets.energy_ladder import energy_ladder
from mlsys_labkit.widgets.hardware_explorer import hardware_explorer
from mlsys_labkit.widgets.line_fit import line_fit
from mlsys_labkit.widgets.memory_bars import memory_bars
from mlsys_labkit.widgets.memory_timeline import memory_timeline
from mlsys_labkit.widgets.number_formats import number_formats
from mlsys_labkit.widgets.occupancy import occupancy
from mlsys_labkit.widgets.pca import pca
from mlsys_labkit.widgets.pipeline_gantt import pipeline_gantt, rank_timeline
from mlsys_labkit.widgets.prediction import prediction
from mlsys_labkit.widgets.progress_panel import progress_panel
from mlsys_labkit.widgets.request_timeline import request_timeline
from mlsys_labkit.widgets.roofline import roofline
from mlsys_labkit.widgets.scaling_laws import scaling_laws
from mlsys_labkit.widgets.serving_planner import serving_planner
from mlsys_labkit.widgets.strides import strides
from mlsys_labkit.widgets.tile_walk import tile_walk
from mlsys_labkit.widgets.token_cost import token_cost
from mlsys_labkit.widgets.training_planner import training_planner
from mlsys_labkit.widgets.transformer_sizer import transformer_sizer
from mlsys_labkit.widgets.warp_access import warp_access

__all__ = [
    "accelerator_map",
    "annotated_source",
    "block_table",
    "collective_animator",
    "compiled_stages",
    "compiler_map",
    "energy_ladder",
    "hardware_explorer",
    "line_fit",
    "memory_bars",
    "memory_timeline",
    "number_formats",
    "occupancy",
    "pca",
    "pipeline_gantt",
    "prediction",
    "progress_panel",
    "rank_timeline",
    "request_timeline",
    "roofline",
    "scaling_laws",
    "serving_planner",
    "strides",
    "tile_walk",
    "token_cost",
    "training_planner",
    "transformer_sizer",
    "warp_access",
]
