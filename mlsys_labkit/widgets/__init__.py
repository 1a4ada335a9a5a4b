"""Interactive pictures: anywidgets that stay interactive in an exported page, without a kernel.

Each function returns a widget: live in JupyterLab, plain HTML where anywidget is not installed.
"""

from __future__ import annotations

from mlsys_labkit.widgets.accelerator_map import accelerator_map as accelerator_map
from mlsys_labkit.widgets.annotated_source import annotated_source as annotated_source
from mlsys_labkit.widgets.answer import answer as answer
from mlsys_labkit.widgets.block_table import block_table as block_table
from mlsys_labkit.widgets.collective_animator import collective_animator as collective_animator
from mlsys_labkit.widgets.compiled_stages import compiled_stages as compiled_stages
from mlsys_labkit.widgets.compiler_map import compiler_map as compiler_map
from mlsys_labkit.widgets.energy_ladder import energy_ladder as energy_ladder
from mlsys_labkit.widgets.hardware_explorer import hardware_explorer as hardware_explorer
from mlsys_labkit.widgets.line_fit import line_fit as line_fit
from mlsys_labkit.widgets.memory_bars import memory_bars as memory_bars
from mlsys_labkit.widgets.memory_timeline import memory_timeline as memory_timeline
from mlsys_labkit.widgets.number_formats import number_formats as number_formats
from mlsys_labkit.widgets.occupancy import occupancy as occupancy
from mlsys_labkit.widgets.pca import pca as pca
from mlsys_labkit.widgets.pipeline_gantt import pipeline_gantt as pipeline_gantt, rank_timeline as rank_timeline
from mlsys_labkit.widgets.prediction import prediction as prediction
from mlsys_labkit.widgets.progress_panel import progress_panel as progress_panel
from mlsys_labkit.widgets.request_timeline import request_timeline as request_timeline
from mlsys_labkit.widgets.roofline import roofline as roofline
from mlsys_labkit.widgets.scaling_laws import scaling_laws as scaling_laws
from mlsys_labkit.widgets.serving_planner import serving_planner as serving_planner
from mlsys_labkit.widgets.strides import strides as strides
from mlsys_labkit.widgets.tile_walk import tile_walk as tile_walk
from mlsys_labkit.widgets.token_cost import token_cost as token_cost
from mlsys_labkit.widgets.training_planner import training_planner as training_planner
from mlsys_labkit.widgets.transformer_sizer import transformer_sizer as transformer_sizer
from mlsys_labkit.widgets.warp_access import warp_access as warp_access

__all__ = sorted(name for name, made in globals().items() if callable(made))
