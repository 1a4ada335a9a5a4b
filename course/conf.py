"""Sphinx settings of the course text: one static site that asks no other host for anything.

Pages are MyST notebooks whose cells are executed in the build (and kept in a cache). Widgets travel as their own living
HTML, so that the site needs no widget manager; formulas are MathML, so that it needs no MathJax.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A cell that describes this machine would differ from build to build.
os.environ["LABKIT_DEVICE"] = "h100-sxm"

import cell_cache  # noqa: E402, of _ext

project = "Machine-learning systems"
author = "The mlsys-labkit authors"
copyright = "The mlsys-labkit authors"
language = "en"

extensions = ["myst_nb", "sphinx_copybutton"]
extensions += ["access", "cell_cache", "chapter_list", "citations", "mathml"]  # of _ext, as the next ones
extensions += ["notebooks", "plans", "slides", "summaries"]
exclude_patterns = ["README.md", "_ext"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "cache"
nb_execution_cache_path = str(cell_cache.cache_of(HERE.parent))
nb_execution_timeout = 600  # a cell takes seconds; a busy machine needs much longer
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # formulas in the answers of exercises
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "application/vnd.plotly.v1+json", None),
    ("html", "text/html", 0),
]

html_theme = "furo"
html_title = "Machine-learning systems"
html_static_path = ["_static"]
html_css_files = ["fonts.css", "course.css"]
html_js_files = ["progress.js"]
html_show_sourcelink = False
html_copy_source = False
# Opened from a folder, a page may not fetch its neighbours, which the summaries below a search result are made from.
html_show_search_summary = False
