# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lab 01 · Linear algebra is data movement
#
# A matrix has rows and columns; memory is one long line of bytes. Everything in this lab follows from that gap: what a
# transpose costs, how much more traffic the same three loops cause in another order, why $A(Bx)$ and
# $(AB)x$ are one function at two prices, and how many bytes a transformer needs before it says a word.
#
# **You will be able to**
#
# - turn an index into a byte address, and make transposes, slices, broadcasts and windows without moving a byte;
# - predict which cache lines a loop touches, and order a matrix product by it;
# - read a matrix as data and as a function, and a neuron as a cosine;
# - write backpropagation by hand and prove it right;
# - size a transformer to the last parameter, and know where the usual rules of thumb bend.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 160 minutes | ●●○○ | any laptop; a GPU only for the last, ungraded section | 100 in 12 tasks |
#
# The time includes reading; the minutes beside a task are for writing it. Needs numpy and lab 00. Reads along with
# chapter 1, [Tensors and linear algebra](../../course/chapters/01_tensors.md), and chapter 2,
# [Neurons to transformers](../../course/chapters/02_transformers.md).
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**, **check**, then
# **look**. Marks come from right answers and from counted bytes, passes and FLOPs, never from a clock. Stuck? `lk.hint("offset")`
# in a new cell gives a nudge, and a stronger one each time you ask. **Hints cost no marks.** `lk.progress()` shows how far you
# are. Long checks and the code of pictures are folded: click the three dots in a cell to read it.

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab01_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import functools
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
import torch
from IPython.display import HTML, display

import mlsys_labkit as lk

# %% tags=["parameters"]
smoke = False  # True: shorter measurements and smaller pictures, for a quick run through
seed = 0

# %% [markdown]
# ## Part 1 · Memory is a line
#
# An array is a stretch of memory plus three facts about how to read it: its **shape**, its **strides** (how many bytes
# to step to reach the next element along each axis) and an **offset** (where element $(0, \dots, 0)$ lies). NumPy,
# PyTorch and every GPU kernel you will write agree on this. Here are the three facts as a record, and `look`, which
# reads memory through them. It never copies.


# %% nbgrader={"grade": false, "grade_id": "layout_record", "locked": true, "schema_version": 3, "solution": false, "task": false}
@dataclass(frozen=True)
class Layout:
    """A way to read a stretch of memory as an array.

    shape:   the length of each axis
    strides: bytes from one element to the next along each axis; may be negative, may be 0
    offset:  bytes from the start of the memory to element (0, ..., 0)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def look(memory, layout):
    """Read ``memory`` (a 1-D array) through ``layout``. A view: no element moves."""
    return np.ndarray(layout.shape, memory.dtype, buffer=memory, offset=layout.offset, strides=layout.strides)


# %% [markdown]
# Try it: six numbers lie in memory, and this reads them as two rows of three. Change the shape to `(3, 2)` and the strides until
# you read the transpose, then run the cell again.

# %%
six = np.arange(6.0)
matrix = look(six, Layout(shape=(2, 3), strides=(24, 8)))
print(matrix)
if matrix.shape == (3, 2):
    found = np.array_equal(matrix, six.reshape(2, 3).T)
    print(
        "That is the transpose, and no number moved." if found else "Not yet: the transpose begins 0, 3 and then 1, 4."
    )

# %% [markdown]
# The next cell holds what the checks and the pictures share. Nothing in it is part of a task; run it and go on.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "layout_helpers", "locked": true, "schema_version": 3, "solution": false, "task": false}
def expect_layout(actual, expected, why, slips=()):
    """Check one layout against another. The stride of an axis with fewer than two elements is never used.

    slips: {what went wrong: the layout that this gives}.
    """
    for slip, wrong in dict(slips).items():
        if (tuple(actual.shape), tuple(actual.strides)) == (wrong.shape, wrong.strides):
            raise lk.checks.CheckError(f"{why}: {slip}")
    lk.checks.expect_equal(type(actual).__name__, "Layout", name=f"type of the result ({why})")
    lk.checks.expect_equal(tuple(actual.shape), expected.shape, name=f"shape ({why})")
    lk.checks.expect_equal(len(actual.strides), len(expected.strides), name=f"number of strides ({why})")
    if 0 not in expected.shape:
        used = [axis for axis, length in enumerate(expected.shape) if length > 1]
        lk.checks.expect_equal(
            {axis: actual.strides[axis] for axis in used},
            {axis: expected.strides[axis] for axis in used},
            name=f"strides in bytes, by axis ({why})",
        )
        lk.checks.expect_equal(actual.offset, expected.offset, name=f"offset in bytes ({why})")


def layout_of(view, memory):
    """The layout through which the numpy array ``view`` reads ``memory``."""
    start = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return Layout(view.shape, view.strides, start)


def visited_bytes(layout):
    """Byte offsets in the order in which a loop over the array's elements visits them."""
    steps = np.zeros((), int)
    for length, stride in zip(layout.shape, layout.strides):
        steps = steps[..., None] + np.arange(length) * stride
    return steps.ravel() + layout.offset


def memory_strip(layouts, summary, itemsize=8):
    """Draw memory as a line, one row a layout. Colour is the order of first visit; ×n marks elements read n times."""
    visits = {}
    for name, layout in layouts.items():
        walk = visited_bytes(layout) // itemsize
        if len(walk) and walk.min() > -100 and walk.max() < 300:
            visits[name] = walk
        else:
            print(f"{name}: not drawn, it is empty or reads other memory than this (a copy?)")
    if not visits:
        return
    elements = np.arange(min(map(min, visits.values())), max(map(max, visits.values())) + 1)
    order, text = np.full((len(visits), len(elements)), np.nan), np.full((len(visits), len(elements)), "", dtype=object)
    for row, walk in enumerate(visits.values()):
        places, first, times = np.unique(walk - elements[0], return_index=True, return_counts=True)
        order[row, places] = first / max(first.max(), 1)
        text[row, places] = [f"×{count}" if count > 1 else "" for count in times]
    bar = {"title": "visited", "tickvals": [0, 1], "ticktext": ["first", "last"]}
    hover = "%{y}: element %{x} of memory<extra></extra>"
    where = {"x": elements, "y": list(visits), "xgap": 1.5, "ygap": 10}
    figure = go.Figure()
    figure.add_heatmap(
        z=np.zeros_like(order), colorscale=["rgba(128,128,128,0.2)"] * 2, showscale=False, hoverinfo="skip", **where
    )
    figure.add_heatmap(
        z=order,
        colorscale=["#7c6cf0", "#12a08a", "#f2c230"],
        colorbar=bar,
        text=text,
        texttemplate="%{text}",
        hoverongaps=False,
        **where,
    )
    figure.update_traces(hovertemplate=hover, selector={"showscale": None})
    figure.update_yaxes(autorange="reversed", showgrid=False, ticksuffix="  ")
    figure.update_xaxes(title="element of memory", showgrid=False, zeroline=False)
    finish(figure, 110 + 55 * len(visits), summary)


def heatmaps(panels, summary, zmin, zmax, axis=None, corners=(), **options):
    """Matrices side by side under one colour scale."""
    figure, width = go.Figure(), 1 / len(panels)
    for number, (title, values) in enumerate(panels.items()):
        which = {"xaxis": f"x{number + 1}", "yaxis": f"y{number + 1}"}
        figure.add_heatmap(z=values, x=axis, y=axis, zmin=zmin, zmax=zmax, showscale=number == 0, **which, **options)
        for x, y, label in corners:
            figure.add_scatter(
                x=[x], y=[y], text=label, mode="markers+text", showlegend=False, hoverinfo="skip", **which
            )
        plain = {"showgrid": False, "zeroline": False, "dtick": None if corners else 1}
        across = {"domain": [number * width, (number + 0.9) * width], "title": title, **plain}
        down = {"anchor": f"x{number + 1}", "autorange": True if corners else "reversed", **plain}
        figure.update_layout({f"xaxis{number + 1}": across, f"yaxis{number + 1}": down})
    marker = {"size": 22, "symbol": "circle", "color": "white", "line": {"width": 1.5, "color": "black"}}
    figure.update_traces(marker=marker, textfont={"color": "black"}, selector={"type": "scatter"})
    finish(figure, 320, summary)


def bars(values, title, summary, unit=""):
    """One horizontal bar a name."""
    figure = go.Figure()
    text = [f"{value:,.0f}{unit}" for value in values.values()]
    figure.add_bar(y=list(values), x=list(values.values()), text=text, orientation="h")
    figure.update_traces(textposition="outside", cliponaxis=False)
    figure.update_xaxes(title=title, range=[0, 1.12 * max(values.values())])
    figure.update_yaxes(autorange="reversed", ticksuffix="  ")
    finish(figure, 100 + 32 * len(values), summary)


def curves(series, x, x_title, y_title, summary):
    """Lines on two logarithmic axes, told apart by colour, dash and marker."""
    figure = go.Figure()
    styles = [("solid", "circle"), ("dash", "square"), ("dot", "diamond")]
    for (name, values), (dash, symbol) in zip(series.items(), styles):
        line, marker = {"dash": dash}, {"symbol": symbol, "size": 9}
        figure.add_scatter(x=x, y=values, name=name, mode="lines+markers", line=line, marker=marker)
    figure.update_xaxes(type="log", title=x_title, tickvals=x)
    figure.update_yaxes(type="log", title=y_title, dtick=1, exponentformat="SI")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    finish(figure, 380, summary)


def finish(figure, height, summary):
    figure.update_layout(height=height, margin={"l": 10, "r": 10, "t": 20, "b": 40})
    lk.show(figure, summary=summary)


# %% [markdown]
# ### Task 1 · From an index to an address
# *5 points · 5 minutes · ●○○○*
#
# Every load that a CPU or a GPU issues starts with this sum. In a kernel, computing addresses is often half of the
# instructions.
#
# $$\text{address}(i_0, i_1, \dots) = \text{offset} + i_0 s_0 + i_1 s_1 + \dots$$

# %%
lk.predict("offset")


# %% nbgrader={"grade": false, "grade_id": "offset", "locked": false, "schema_version": 3, "solution": true, "task": false}
def offset(index, strides, start=0):
    """Byte offset of one element from the start of its memory.

    index:   one integer an axis, 0 <= index[axis] < shape[axis]; () for a scalar
    strides: bytes per step along each axis; negative and 0 are legal
    start:   byte offset of element (0, ..., 0)
    returns: int, bytes
    raises:  ValueError if index and strides differ in length, either way

    >>> offset((1, 2), strides=(24, 8))
    40
    """
    ### BEGIN SOLUTION
    return start + sum(i * stride for i, stride in zip(index, strides, strict=True))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "offset_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(offset((1, 2), strides=(24, 8)), 40, name="a float64 matrix, 3 wide")
lk.checks.expect_equal(offset((2, 1, 3), strides=(2, 40, 8)), 68, name="three axes, the longest stride in the middle")
lk.checks.expect_equal(offset((1, 2), strides=(24, 8), start=100), 140, name="a matrix that starts at byte 100")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(101)
memory = np.arange(5 * 6 * 7, dtype=np.int16)
block = memory.reshape(5, 6, 7)
cases = {
    "contiguous": block,
    "transposed: strides no longer fall from left to right": block.transpose(2, 0, 1),
    "starting inside memory": block[2:, 1:, 3:],
}
for why, view in cases.items():
    layout = layout_of(view, memory)
    for _ in range(6):
        index = tuple(int(rng.integers(length)) for length in view.shape)
        element = view[(..., *(slice(i, i + 1) for i in index))]
        expected = layout_of(element, memory).offset
        lk.checks.expect_equal(offset(index, layout.strides, layout.offset), expected, name=f"{index} ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "offset_test_strides", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(offset((2,), strides=(-8,), start=16), 0, name="the last of 3, backwards")
lk.checks.expect_equal(offset((3, 4), strides=(0, 8)), 32, name="a stride of 0, which stands still")
lk.checks.expect_equal(offset((), strides=(), start=16), 16, name="a scalar: no axis, no step")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(121)
memory = np.arange(5 * 6 * 7, dtype=np.int16)
block = memory.reshape(5, 6, 7)
cases = {
    "reversed: strides are negative and the start is not 0": block[::-1, 1::2, ::-3],
    "broadcast: stride 0 stands still": np.broadcast_to(block[:, :1, 2:], (5, 6, 5)),
    "a 0-d view in the middle of memory": block[2:3, 3:4, 4:5].reshape(()),
}
for why, view in cases.items():
    layout = layout_of(view, memory)
    for _ in range(6):
        index = tuple(int(rng.integers(length)) for length in view.shape)
        element = view[(..., *(slice(i, i + 1) for i in index))]
        expected = layout_of(element, memory).offset
        lk.checks.expect_equal(offset(index, layout.strides, layout.offset), expected, name=f"{index} ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "offset_test_lengths", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_raises(ValueError, offset, (1, 2), (56, 8, 1))  # one index too few
lk.checks.expect_raises(ValueError, offset, (1, 2, 3, 4), (56, 8, 1))  # one too many
### BEGIN HIDDEN TESTS
lk.checks.expect_raises(ValueError, offset, (), (8,))
lk.checks.expect_raises(ValueError, offset, (0,), ())
### END HIDDEN TESTS

# %% [markdown]
# Sixteen numbers in memory, four readings. Nothing but strides and offset differs between the panels.

# %% jupyter={"source_hidden": true}
with lk.picture("One stretch of memory, four matrices: only the strides and the start differ."):
    readings = {
        "(32, 8): rows": ((32, 8), 0),
        "(8, 32): columns": ((8, 32), 0),
        "(32, −8), start 24": ((32, -8), 24),
        "(0, 8): one row": ((0, 8), 0),
    }
    panels = {
        name: [[offset((i, j), strides, start) // 8 for j in range(4)] for i in range(4)]
        for name, (strides, start) in readings.items()
    }
    told = (
        "Element numbers read by four stride pairs: by rows, by columns, every row backwards, and one row four times."
    )
    heatmaps(panels, told, 0, 15, texttemplate="%{z}", colorscale="Viridis", xgap=2, ygap=2)

# %% [markdown]
# ### Task 2 · Strides for a fresh array
# *6 points · 6 minutes · ●○○○*
#
# When you allocate an array the framework must choose strides. C, NumPy and PyTorch choose **row-major**: the last axis
# is the one whose neighbours are neighbours in memory. Whoever walks that axis innermost walks memory in order, and
# memory rewards it, as Part 3 will show.

# %%
lk.predict("contiguous_strides")


# %% nbgrader={"grade": false, "grade_id": "contiguous_strides", "locked": false, "schema_version": 3, "solution": true, "task": false}
def contiguous_strides(shape, itemsize):
    """Row-major strides: the last axis is contiguous, each axis before it steps over everything after it.

    shape:    length of each axis; () for a scalar. An axis of length 0 counts as 1, as in PyTorch.
    itemsize: bytes an element
    returns:  tuple of ints, bytes, one an axis

    >>> contiguous_strides((2, 3, 4), itemsize=8)
    (96, 32, 8)
    """
    ### BEGIN SOLUTION
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "contiguous_strides_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
strides = tuple(contiguous_strides((2, 3, 4), itemsize=8))
slips = {
    "these count elements. Strides count bytes": (12, 4, 1),
    "the first axis is contiguous here, as in Fortran. In row-major order it is the last": (8, 16, 48),
    "the strides are right and in reverse order": (8, 32, 96),
    "the length of the axis itself is in its stride. A step along an axis jumps over the axes after it": (192, 96, 32),
}
lk.checks.expect_close(strides, (96, 32, 8), slips=slips, name="strides of (2, 3, 4) float64")
lk.checks.expect_equal(tuple(contiguous_strides((5,), itemsize=2)), (2,), name="strides of 5 float16")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(102)
for _ in range(12):
    shape = tuple(int(n) for n in rng.integers(1, 9, size=rng.integers(1, 6)))
    for dtype in (torch.int8, torch.float16, torch.float32, torch.complex128):
        fresh = torch.empty(shape, dtype=dtype, device="meta")
        expected = tuple(stride * fresh.element_size() for stride in fresh.stride())
        lk.checks.expect_equal(
            tuple(contiguous_strides(shape, fresh.element_size())), expected, name=f"strides of {shape} {dtype}"
        )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "contiguous_strides_test_ones", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
strides = tuple(contiguous_strides((7, 1, 3), itemsize=4))
lk.checks.expect_equal(strides, (12, 12, 4), name="a length of 1 in the middle")
lk.checks.expect_equal(tuple(contiguous_strides((1,), itemsize=8)), (8,), name="one element, which still has a stride")
lk.checks.expect_equal(tuple(contiguous_strides((), itemsize=8)), (), name="a scalar: no axes, no strides")
### BEGIN HIDDEN TESTS
for shape in ((1, 1, 6), (6, 1, 1), (1, 4, 1, 2), ()):
    fresh = torch.empty(shape, dtype=torch.float32, device="meta")
    expected = tuple(4 * stride for stride in fresh.stride())
    lk.checks.expect_equal(tuple(contiguous_strides(shape, 4)), expected, name=f"strides of {shape}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "contiguous_strides_test_empty", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
strides = tuple(contiguous_strides((3, 0, 2), itemsize=8))
lk.checks.expect_equal(strides, (16, 16, 8), name="an axis of length 0, which counts as 1")
### BEGIN HIDDEN TESTS
for shape in ((0,), (0, 5), (4, 0), (2, 0, 3, 0, 4)):
    fresh = torch.empty(shape, dtype=torch.float16, device="meta")
    expected = tuple(2 * stride for stride in fresh.stride())
    lk.checks.expect_equal(tuple(contiguous_strides(shape, 2)), expected, name=f"strides of {shape}, which is empty")
### END HIDDEN TESTS

# %% [markdown]
# Play with it: change shape and strides, move along an axis, and watch the address. Which axis is cheap to walk?

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Your strides for a 3 × 4 matrix of float64, as elements (bytes / 8). Step along each axis and watch the address."
):
    elements = [stride // 8 for stride in contiguous_strides((3, 4), 8)]  # the viewer counts in elements
    display(lk.widgets.strides((3, 4), elements, itemsize=8))

# %% [markdown]
# ## Part 2 · Views: new arrays at no cost
#
# A **view** is a second layout over memory that exists already. Making one takes a few integer operations, whether the
# array holds a kilobyte or a terabyte. The next three tasks each compute a new `Layout` from an old one: there is not
# even an array for you to copy. In the fourth you build the view on a real array, and a copy will cost you the marks.
#
# ### Task 3 · Transpose
# *6 points · 5 minutes · ●○○○*

# %%
lk.predict("transpose")


# %% nbgrader={"grade": false, "grade_id": "transpose", "locked": false, "schema_version": 3, "solution": true, "task": false}
def transpose(layout, axes):
    """The layout whose axis ``i`` is ``layout``'s axis ``axes[i]`` (as numpy.transpose and torch.permute define it).

    axes:    a permutation of 0 ... number of axes - 1
    returns: Layout
    raises:  ValueError if ``axes`` is not such a permutation

    >>> transpose(Layout((2, 3), (24, 8)), (1, 0))
    Layout(shape=(3, 2), strides=(8, 24), offset=0)
    """
    ### BEGIN SOLUTION
    if sorted(axes) != list(range(len(layout.shape))):
        raise ValueError(f"axes must be a permutation of 0 to {len(layout.shape) - 1}, not {axes}")
    return Layout(
        tuple(layout.shape[axis] for axis in axes), tuple(layout.strides[axis] for axis in axes), layout.offset
    )
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "transpose_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
turned = transpose(Layout((2, 3), (24, 8)), (1, 0))
expect_layout(turned, Layout((3, 2), (8, 24)), "the docstring's example")
turned = transpose(Layout((2, 3, 4), (96, 32, 8)), (1, 2, 0))
slips = {"axes was read the other way round. New axis i is the old axis axes[i]": Layout((4, 2, 3), (8, 96, 32))}
expect_layout(turned, Layout((3, 4, 2), (32, 8, 96)), "axes (1, 2, 0): the old axis 1 comes first", slips)
turned = transpose(Layout((7,), (8,)), (0,))
expect_layout(turned, Layout((7,), (8,)), "a vector: nothing to swap")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(103)
memory = np.arange(720, dtype=np.float32)
whole = memory.reshape(2, 3, 4, 5, 6)
cases = {
    "a scalar: the only permutation is the empty one": (memory[:1].reshape(()), ()),
    "identity": (memory[:24].reshape(2, 3, 4), (0, 1, 2)),
}
for trial in range(8):
    cases[f"random permutation {trial}"] = (whole, tuple(int(axis) for axis in rng.permutation(5)))
for why, (view, axes) in cases.items():
    expect_layout(transpose(layout_of(view, memory), axes), layout_of(view.transpose(axes), memory), why)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "transpose_test_views", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# A view that starts at byte 16 and reads its rows backwards: the offset stays, the sign of a stride as well.
turned = transpose(Layout((2, 3), (24, -8), offset=16), (1, 0))
expect_layout(turned, Layout((3, 2), (-8, 24), offset=16), "a view that starts inside memory, read backwards")
### BEGIN HIDDEN TESTS
memory = np.arange(720, dtype=np.float32)
whole = memory.reshape(2, 3, 4, 5, 6)
for why, view, axes in [
    ("a view that starts inside memory, with negative strides", whole[1, ::-1, 1:, ::2, 0], (2, 0, 1)),
    ("empty", whole[:, :0, :, 0, 0], (1, 2, 0)),
    ("a stretched axis", np.broadcast_to(whole[1, :, :1, 2, 3], (3, 4)), (1, 0)),
]:
    expect_layout(transpose(layout_of(view, memory), axes), layout_of(view.transpose(axes), memory), why)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "transpose_test_refused", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# an axis twice, one too many, one too few, one twice and too many, one that is not there
for axes in [(0, 0), (0, 1, 2), (1,), (0, 1, 0), (0, 2)]:
    lk.checks.expect_raises(ValueError, transpose, Layout((2, 3), (24, 8)), axes)
### BEGIN HIDDEN TESTS
for axes in [(1, 1), (2, 1, 0), (), (1, 2), (1, 0, 1)]:
    lk.checks.expect_raises(ValueError, transpose, Layout((2, 3), (24, 8)), axes)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("A matrix of 4 × 6 and its transpose lie in the same 24 elements. Only the order of the walk differs."):
    matrix = Layout((4, 6), (48, 8))
    told = "Walking A visits memory from left to right; walking its transpose jumps six elements at every step."
    memory_strip({"A, row by row": matrix, "Aᵀ, row by row": transpose(matrix, (1, 0))}, told)
    memory = np.arange(24.0)
    print(look(memory, transpose(matrix, (1, 0))))  # a real array, reading the same 192 bytes

# %% [markdown]
# The transpose was free. *Walking* it is not: look at the jumps in the second row. That bill arrives in Task 7.

# %% [markdown]
# ### Task 4 · Slice
# *8 points · 8 minutes · ●●○○*
#
# `x[4:20:3]` is three integers of arithmetic: where to start, how far to step, how many. Reading backwards is a slice,
# too. `slice(a, b, c).indices(n)` gives you Python's own rules for omitted, negative and out-of-range bounds.

# %%
lk.predict("slice_view")


# %% nbgrader={"grade": false, "grade_id": "slice_view", "locked": false, "schema_version": 3, "solution": true, "task": false}
def slice_view(layout, axis, cut):
    """The layout of ``layout[..., cut, ...]`` with the slice ``cut`` at ``axis``.

    axis:    0 <= axis < number of axes
    cut:     a Python slice, with any bounds and any step but 0
    returns: Layout with the same number of axes

    >>> slice_view(Layout((10,), (8,)), 0, slice(1, 8, 3))
    Layout(shape=(3,), strides=(24,), offset=8)
    """
    ### BEGIN SOLUTION
    start, stop, step = cut.indices(layout.shape[axis])
    shape, strides = list(layout.shape), list(layout.strides)
    shape[axis] = len(range(start, stop, step))
    strides[axis] *= step
    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[axis])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "slice_view_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
part = slice_view(Layout((10,), (8,)), 0, slice(1, 8, 3))
expect_layout(part, Layout((3,), (24,), 8), "x[1:8:3] is elements 1, 4, 7")
part = slice_view(Layout((10,), (8,)), 0, slice(None, None, -1))
expect_layout(part, Layout((10,), (-8,), 72), "x[::-1] starts at the last element")
part = slice_view(Layout((4, 6), (48, 8)), 1, slice(1, 6, 4))
expect_layout(part, Layout((4, 2), (48, 32), 8), "x[:, 1:6:4] is columns 1 and 5")
### BEGIN HIDDEN TESTS
memory = np.arange(7 * 8 * 9, dtype=np.int32)
block = memory.reshape(7, 8, 9)
for why, view, axis, cut in [
    ("everything", block, 1, slice(None)),
    ("backwards: starts at the last element", block, 1, slice(None, None, -1)),
    ("backwards in steps that do not divide the length", block, 2, slice(None, 1, -3)),
    ("step that does not divide the length: round up", block, 1, slice(0, 8, 3)),
    ("length 1", block[3:4], 0, slice(None, None, -1)),
]:
    expected = view[(slice(None),) * axis + (cut,)]
    expect_layout(
        slice_view(layout_of(view, memory), axis, cut), layout_of(expected, memory), f"axis {axis}, {cut}: {why}"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "slice_view_test_views", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# x[2:8:2] of 10 float64 starts at byte 16 and steps 16. Its [1:3] starts one of these steps further on.
part = slice_view(Layout((3,), (16,), offset=16), 0, slice(1, 3))
expect_layout(part, Layout((2,), (16,), offset=32), "a slice of a slice: the old offset stays")
part = slice_view(Layout((3,), (16,), offset=16), 0, slice(None, None, 2))
expect_layout(part, Layout((2,), (32,), offset=16), "a slice of a slice: the steps multiply")
### BEGIN HIDDEN TESTS
memory = np.arange(7 * 8 * 9, dtype=np.int32)
block = memory.reshape(7, 8, 9)
for why, view, axis, cut in [
    ("a slice of a slice", block[1:, ::2, ::-1], 1, slice(1, None, 2)),
    ("a reversed axis, reversed again", block[::-1], 0, slice(None, None, -1)),
    ("a stretched axis: stride 0 stays 0", np.broadcast_to(block[:, :1], (7, 8, 9)), 1, slice(2, 7, 2)),
    ("a transposed input: axis 0 is not the largest stride", block.transpose(2, 0, 1), 0, slice(1, 8, 2)),
]:
    expected = view[(slice(None),) * axis + (cut,)]
    expect_layout(
        slice_view(layout_of(view, memory), axis, cut), layout_of(expected, memory), f"axis {axis}, {cut}: {why}"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "slice_view_test_bounds", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
part = slice_view(Layout((10,), (8,)), 0, slice(8, 99))
expect_layout(part, Layout((2,), (8,), 64), "x[8:99]: the bound beyond the end is clipped")
part = slice_view(Layout((10,), (8,)), 0, slice(-3, None))
expect_layout(part, Layout((3,), (8,), 56), "x[-3:]: counted from the end")
part = slice_view(Layout((10,), (8,)), 0, slice(5, 2))
expect_layout(part, Layout((0,), (8,)), "x[5:2]: empty")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(104)
memory = np.arange(7 * 8 * 9, dtype=np.int32)
block = memory.reshape(7, 8, 9)
for _ in range(20):
    bounds = [None if rng.random() < 0.2 else int(rng.integers(-12, 13)) for _ in range(2)]
    axis, cut = int(rng.integers(3)), slice(*bounds, int(rng.choice([-4, -2, -1, 1, 2, 5])))
    expected = block[(slice(None),) * axis + (cut,)]
    expect_layout(slice_view(layout_of(block, memory), axis, cut), layout_of(expected, memory), f"axis {axis}, {cut}")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("Four slices of a 6 × 8 matrix. A column uses one element in eight: remember that gap."):
    matrix = Layout((6, 8), (64, 8))
    slices = {
        "A[2:4]": slice_view(matrix, 0, slice(2, 4)),
        "A[::2]": slice_view(matrix, 0, slice(None, None, 2)),
        "A[:, 3:4]": slice_view(matrix, 1, slice(3, 4)),
        "A[:, ::-3]": slice_view(matrix, 1, slice(None, None, -3)),
    }
    memory_strip(slices, "Two rows are one block; every other row is three; a column is one element in eight.")

# %% [markdown]
# ### Task 5 · Broadcast
# *8 points · 9 minutes · ●●○○*
#
# Adding one bias vector to a batch of 4096 rows does not need 4096 biases. A stride of **0** says: stand still. The
# rules, shared by NumPy and PyTorch: line the shapes up at the *right*; an axis of length 1 may be stretched to any
# length; axes missing on the left are added; anything else is an error.

# %%
lk.predict("broadcast")


# %% nbgrader={"grade": false, "grade_id": "broadcast", "locked": false, "schema_version": 3, "solution": true, "task": false}
def broadcast(layout, shape):
    """The layout of ``layout`` broadcast to ``shape``, without repeating a byte.

    shape:   the target, at least as many axes as ``layout`` has
    returns: Layout of exactly that shape
    raises:  ValueError if the rules forbid it

    >>> broadcast(Layout((3, 1), (8, 8)), (2, 3, 4))
    Layout(shape=(2, 3, 4), strides=(0, 8, 0), offset=0)
    """
    ### BEGIN SOLUTION
    added = len(shape) - len(layout.shape)
    if added < 0:
        raise ValueError(f"cannot broadcast {layout.shape} to fewer axes: {shape}")
    strides = [0] * added
    for old, stride, new in zip(layout.shape, layout.strides, shape[added:], strict=True):
        if old not in (1, new):
            raise ValueError(f"cannot stretch an axis of length {old} to {new}")
        strides.append(stride if old == new else 0)
    return Layout(tuple(shape), tuple(strides), layout.offset)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "broadcast_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
wide = broadcast(Layout((3, 1), (8, 8)), (2, 3, 4))
expect_layout(wide, Layout((2, 3, 4), (0, 8, 0)), "the docstring's example")
wide = broadcast(Layout((4,), (8,)), (4, 4))
expect_layout(wide, Layout((4, 4), (0, 8)), "a row of 4 to 4 rows: shapes line up at the right")
wide = broadcast(Layout((), ()), (2, 3))
expect_layout(wide, Layout((2, 3), (0, 0)), "a scalar to a matrix: every stride is 0")
### BEGIN HIDDEN TESTS
memory = np.arange(120, dtype=np.float64)
cases = {
    "a row to many rows": (memory[:5], (4, 5)),
    "a column to many columns": (memory[:4].reshape(4, 1), (4, 5)),
    "square: aligning at the left would fit, too, and be wrong": (memory[:3], (3, 3)),
    "stretch between real axes": (memory[:8].reshape(4, 1, 2), (4, 7, 2)),
    "a scalar to a scalar": (memory[:1].reshape(()), ()),
}
for why, (view, shape) in cases.items():
    expect_layout(broadcast(layout_of(view, memory), shape), layout_of(np.broadcast_to(view, shape), memory), why)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "broadcast_test_views", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
wide = broadcast(Layout((3,), (-8,), offset=40), (2, 3))
expect_layout(wide, Layout((2, 3), (0, -8), offset=40), "an offset and a negative stride, which are kept")
wide = broadcast(Layout((4, 6), (96, 16)), (4, 6))
expect_layout(wide, Layout((4, 6), (96, 16)), "nothing to do: real strides survive")
wide = broadcast(Layout((3, 1), (8, 8)), (3, 0))
expect_layout(wide, Layout((3, 0), (8, 0)), "stretched to length 0: legal, and empty")
### BEGIN HIDDEN TESTS
memory = np.arange(120, dtype=np.float64)
cases = {
    "nothing to do: real strides must survive": (memory.reshape(4, 5, 6)[::-1, ::2], (4, 3, 6)),
    "stretch between real axes": (memory.reshape(4, 1, 30)[:, :, ::3], (4, 7, 10)),
    "stretched to length 0: legal, and empty": (memory[:3].reshape(3, 1), (3, 0)),
    "an offset and a negative stride are kept": (memory[50:20:-3], (2, 10)),
    "a scalar inside memory": (memory[7:8].reshape(()), (2, 3)),
}
for why, (view, shape) in cases.items():
    expect_layout(broadcast(layout_of(view, memory), shape), layout_of(np.broadcast_to(view, shape), memory), why)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "broadcast_test_refused", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_raises(ValueError, broadcast, Layout((3,), (8,)), (4,))  # 3 is neither 1 nor 4
lk.checks.expect_raises(ValueError, broadcast, Layout((2,), (8,)), (4,))  # 2 divides 4, and still is not 1
lk.checks.expect_raises(ValueError, broadcast, Layout((1, 4), (32, 8)), (4,))  # axes never vanish
lk.checks.expect_raises(ValueError, broadcast, Layout((3, 4), (32, 8)), (3, 1))  # a long axis cannot shrink to 1
### BEGIN HIDDEN TESTS
for small, shape, why in [
    ((6,), (3,), "6 is a multiple of 3"),
    ((3,), (6,), "3 divides 6"),
    ((4, 1), (4,), "axes never vanish"),
    ((2, 3), (2, 3, 4), "shapes line up at the right: 3 meets 4"),
    ((2,), (0,), "2 cannot become 0"),
]:
    lk.checks.expect_raises(ValueError, broadcast, Layout(small, tuple(8 for _ in small)), shape)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("A bias of 6 numbers, added to 5 rows: 30 reads, 6 elements of memory."):
    rows = {
        "bias": Layout((6,), (8,)),
        "bias over 5 rows": broadcast(Layout((6,), (8,)), (5, 6)),
        "a column over 5": broadcast(Layout((6, 1), (8, 8)), (6, 5)),
    }
    memory_strip(rows, "Broadcast, each of the 6 elements is read 5 times; none is stored twice.")

# %% [markdown]
# ### Task 6 · Windows
# *8 points · 10 minutes · ●●○○*
#
# A convolution, a moving average, the frames of a speech recogniser: all slide a window along a signal, and the windows
# overlap. As a view they are stored once: two axes walk the *same* memory, one in steps of `step` elements, one in
# steps of 1.
#
# Now on a real array, so the check looks at memory: the result must **share** it with `x`. The tool is
# `np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)`. It does what you say and checks nothing: wrong
# strides read other people's memory. (PyTorch's `Tensor.unfold` is this function.)

# %%
lk.predict("windows")


# %% nbgrader={"grade": false, "grade_id": "windows", "locked": false, "schema_version": 3, "solution": true, "task": false}
def windows(x, width, step=1):
    """All full windows of ``width`` elements of ``x``, a new one every ``step`` elements, as a view.

    x:       array [n]; any dtype, any stride
    width:   elements a window, >= 1;  step: elements between the starts of two windows, >= 1
    returns: array [count, width] that shares memory with x; result[i, j] is x[i * step + j].
             count is 0 if x is shorter than one window

    >>> windows(np.arange(5), width=3)
    array([[0, 1, 2],
           [1, 2, 3],
           [2, 3, 4]])
    """
    ### BEGIN SOLUTION
    count = max(0, (len(x) - width) // step + 1)
    (stride,) = x.strides
    return np.lib.stride_tricks.as_strided(x, (count, width), (step * stride, stride), writeable=False)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "windows_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
x = np.arange(5)
lk.checks.expect_equal(windows(x, width=3), np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4]]), name="windows of 3")
x = np.arange(10, 16, dtype=np.int16)
expected = np.array([[10, 11, 12], [12, 13, 14]], np.int16)
lk.checks.expect_equal(windows(x, 3, 2), expected, name="2-byte elements, windows of 3, every 2")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(106)
signal = rng.integers(-99, 99, size=41)
for x, width, step, why in [
    (signal.astype(np.float32), 5, 1, "4-byte elements"),
    (signal.astype(np.int8), 4, 3, "1-byte elements, step 3"),
    (signal.astype(np.int16), 3, 7, "gaps between windows"),
]:
    expected = np.stack([np.array(x[start : start + width]) for start in range(0, len(x) - width + 1, step)])
    lk.checks.expect_equal(windows(x, width, step), expected, name=f"windows ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "windows_test_strides", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
x = np.array([5, -1, -1, 1, -1, -1, 8, -1, -1, 2], np.float32)[::3]  # 5, 1, 8, 2: the -1s between are not in x
expected = np.array([[5, 1], [1, 8], [8, 2]], np.float32)
lk.checks.expect_equal(windows(x, width=2), expected, name="a strided signal, 12 bytes from one element to the next")
x = np.arange(5, dtype=np.int16)[::-1]  # 4, 3, 2, 1, 0
expected = np.array([[4, 3, 2], [2, 1, 0]], np.int16)
lk.checks.expect_equal(windows(x, width=3, step=2), expected, name="a reversed signal, step 2")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(126)
signal = rng.integers(-99, 99, size=41)
for x, width, step, why in [
    (signal.astype(np.float64)[::2], 6, 2, "a strided signal: its own stride counts"),
    (signal.astype(np.float64)[::-1], 6, 4, "a reversed signal: negative stride"),
    (np.broadcast_to(np.float32(3), 9), 4, 2, "a constant, stride 0"),
]:
    expected = np.stack([np.array(x[start : start + width]) for start in range(0, len(x) - width + 1, step)])
    lk.checks.expect_equal(windows(x, width, step), expected, name=f"windows ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "windows_test_short", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
for length in (2, 1, 0):
    shape = tuple(windows(np.zeros(length), 3).shape)
    lk.checks.expect_equal(shape, (0, 3), name=f"shape for width 3 and {length} elements: no window")
shape = tuple(windows(np.zeros(2), 3, 2).shape)
lk.checks.expect_equal(shape, (0, 3), name="shape for width 3, step 2 and 2 elements: no window")
lk.checks.expect_equal(windows(np.arange(3), 3), np.array([[0, 1, 2]]), name="as long as a window: exactly one")
expected = np.array([[0, 1, 2], [2, 3, 4]])
lk.checks.expect_equal(windows(np.arange(6), 3, 2), expected, name="a last element that fills no window")
### BEGIN HIDDEN TESTS
for length, width, step in [(1, 9, 1), (1, 4, 2), (0, 1, 5)]:  # shorter than a window: no window, and no error
    shape = tuple(windows(np.zeros(length), width, step).shape)
    lk.checks.expect_equal(shape, (0, width), name=f"shape for {length} elements, width {width}")
x = np.arange(8, dtype=np.int16)
for width, step, why in [(8, 2, "exactly one window"), (3, 2, "a last element that fills no window"), (1, 1, "of one")]:
    expected = np.stack([np.array(x[start : start + width]) for start in range(0, len(x) - width + 1, step)])
    lk.checks.expect_equal(windows(x, width, step), expected, name=f"windows ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "windows_test_view", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
x = np.arange(5)
view = windows(x, width=3)
lk.checks.expect_equal(view, np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4]]), name="windows of 3")
lk.checks.expect_shares_memory(view, x)
### BEGIN HIDDEN TESTS
signal = np.arange(41, dtype=np.int16)
for x, why in [(signal, "contiguous"), (signal[::2], "a strided signal"), (signal[::-1], "a reversed signal")]:
    view = windows(x, 4, 3)
    expected = np.stack([np.array(x[start : start + 4]) for start in range(0, len(x) - 3, 3)])
    lk.checks.expect_equal(view, expected, name=f"windows ({why})")
    lk.checks.expect_shares_memory(view, x)
# A million samples in windows of 400: written out, 3.2 GB.
_ = lk.checks.expect_peak(windows, np.zeros(1_000_000), 400, at_most_bytes=64 * 1024)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("Windows of 4, every 2: what lies inside is stored once and read twice."):
    signal = np.arange(14.0)
    rows = {"signal": layout_of(signal, signal), "windows of 4, every 2": layout_of(windows(signal, 4, 2), signal)}
    memory_strip(rows, "6 windows of 4 read 24 numbers from 14 elements; those in the middle are read twice.")
    second = np.zeros(16_000, np.float32)
    frames = windows(second, width=400, step=160)
    print(f"One second of speech in 25 ms frames: {frames.nbytes:,} B to read, {second.nbytes:,} B stored, 0 B copied.")

# %% [markdown]
# ## Part 3 · dot, mv, mm
#
# Three operations carry nearly all of machine learning. A **dot** multiplies two vectors and adds up. **mv**, matrix
# times vector, is one dot a row. **mm**, matrix times matrix, is one mv a column. Count what each computes and what it
# must move at least (every input read once, every output written once):

# %%
n = 256
x, y, a, b = np.ones(n), np.ones(n), np.ones((n, n)), np.ones((n, n))
for name, work in {
    "dot": lk.count_work(np.dot, x, y),
    "mv": lk.count_work(np.dot, a, x),
    "mm": lk.count_work(np.dot, a, b),
}.items():
    print(f"{name:4}{work.flops:12,.0f} FLOP {work.bytes_moved:11,.0f} B {work.intensity:8.3f} FLOP/B")

# %% [markdown]
# The last column is the **arithmetic intensity**, here in float64: half of what lab 00 found for the 4-byte float32. A dot uses each number
# once and throws it away, and so does an mv with its matrix: both run at the speed of memory on every machine you can buy today. Only mm can
# use a number $n$ times, and only if it finds it still in cache. That is a matter of order.
#
# Memory does not hand out single numbers. It hands out **cache lines**, 64 bytes on nearly every CPU (GPUs: 32-byte
# sectors, same story). Take one float and you pay for sixteen.
#
# ### Task 7 · What a view costs to walk
# *9 points · 12 minutes · ●●●○*

# %%
lk.predict("lines_touched")


# %% nbgrader={"grade": false, "grade_id": "lines_touched", "locked": false, "schema_version": 3, "solution": true, "task": false}
def lines_touched(layout, itemsize, line_bytes=64):
    """Count the cache lines that hold at least one byte of the array.

    layout:     the array; its memory starts on a line boundary
    itemsize:   bytes an element; an element may lie across two lines
    line_bytes: bytes a line; line k holds bytes k * line_bytes up to, not including, (k + 1) * line_bytes
    returns:    int; 0 for an empty array

    >>> lines_touched(Layout((8,), (8,)), itemsize=8)         # 64 contiguous bytes
    1
    >>> lines_touched(Layout((8,), (512,)), itemsize=8)       # a column of an 8 x 64 matrix
    8
    """
    ### BEGIN SOLUTION
    first_bytes = np.array([layout.offset])
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        first_bytes = (first_bytes[:, None] + stride * np.arange(length)).ravel()
    lines = set()
    for byte in (*range(0, itemsize, line_bytes), itemsize - 1):
        lines.update(((first_bytes + byte) // line_bytes).tolist())
    return len(lines)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "lines_touched_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(lines_touched(Layout((8,), (8,)), itemsize=8), 1, name="lines under 64 contiguous bytes")
lk.checks.expect_equal(lines_touched(Layout((7,), (512,)), itemsize=8), 7, name="lines under a column of 7 rows")
start = Layout((8,), (8,), offset=32)
lk.checks.expect_equal(lines_touched(start, itemsize=8), 2, name="lines under 64 bytes that start at byte 32")
lk.checks.expect_equal(lines_touched(Layout((8,), (8,)), 8, line_bytes=32), 2, name="32-byte lines under 64 bytes")
turned = Layout((7, 2), (8, 64))
name = "different lines under 2 x 7 numbers, transposed to 7 x 2: a line that is touched again counts once"
lk.checks.expect_equal(lines_touched(turned, itemsize=8), 2, name=name)
### BEGIN HIDDEN TESTS
for layout, itemsize, why in [
    (Layout((64, 3), (256, 4), 0), 4, "three columns share their lines"),
    (Layout((33,), (96,), 0), 4, "every other element skips a line and a half"),
    (Layout((25, 4), (8, 200), 0), 8, "a transposed matrix touches what the matrix touches"),
    (Layout((6, 6), (48, 56), 0), 8, "two axes whose steps meet in the same lines"),
]:
    first_bytes = [layout.offset]
    for length, stride in zip(layout.shape, layout.strides):
        first_bytes = [start + i * stride for start in first_bytes for i in range(length)]
    covered = [start + byte for start in first_bytes for byte in range(itemsize)]
    for line_bytes in (32, 64, 128):
        lk.checks.expect_equal(
            lines_touched(layout, itemsize, line_bytes),
            len({byte // line_bytes for byte in covered}),
            name=f"{line_bytes}-byte lines under {layout} ({why})",
        )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "lines_touched_test_straddling", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(lines_touched(Layout((), (), 60), itemsize=8), 2, name="one number across a boundary: two lines")
lk.checks.expect_equal(lines_touched(Layout((), (), 56), itemsize=8), 1, name="one number that just fits")
elements = Layout((3,), (4096,))  # a long element lies over a line for its first byte, for its last, and more between
lk.checks.expect_equal(lines_touched(elements, itemsize=200), 12, name="three elements of 200 bytes, 4 lines for each")
### BEGIN HIDDEN TESTS
for layout, itemsize, why in [
    (Layout((5,), (12,), 0), 12, "12-byte elements straddle lines now and then"),
    (Layout((3, 2), (200, 1000), 40), 200, "elements longer than a line"),
    (Layout((), (), 124), 8, "a scalar across a boundary"),
]:
    first_bytes = [layout.offset]
    for length, stride in zip(layout.shape, layout.strides):
        first_bytes = [start + i * stride for start in first_bytes for i in range(length)]
    covered = [start + byte for start in first_bytes for byte in range(itemsize)]
    for line_bytes in (32, 64, 128):
        lk.checks.expect_equal(
            lines_touched(layout, itemsize, line_bytes),
            len({byte // line_bytes for byte in covered}),
            name=f"{line_bytes}-byte lines under {layout} ({why})",
        )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "lines_touched_test_strides", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(lines_touched(Layout((9,), (-64,), 512), 8), 9, name="backwards, one line a step")
lk.checks.expect_equal(
    lines_touched(Layout((2,), (-8,), 64), 8), 2, name="backwards across a boundary: bytes 64 and 56"
)
lk.checks.expect_equal(lines_touched(Layout((100, 50), (0, 0), 128), 4), 1, name="stride 0: 5000 reads of one line")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(107)
for trial in range(10):
    shape = tuple(int(n) for n in rng.integers(1, 8, size=3))
    strides = tuple(int(s) * 4 for s in rng.integers(-40, 41, size=3))
    start = sum(-stride * (length - 1) for stride, length in zip(strides, shape) if stride < 0)
    layout = Layout(shape, strides, start + 4 * int(rng.integers(20)))
    first_bytes = [layout.offset]
    for length, stride in zip(layout.shape, layout.strides):
        first_bytes = [start + i * stride for start in first_bytes for i in range(length)]
    covered = [start + byte for start in first_bytes for byte in range(4)]
    for line_bytes in (32, 64, 128):
        lk.checks.expect_equal(
            lines_touched(layout, 4, line_bytes),
            len({byte // line_bytes for byte in covered}),
            name=f"{line_bytes}-byte lines under {layout} (random {trial})",
        )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "lines_touched_test_empty", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(lines_touched(Layout((0, 9), (72, 8)), itemsize=8), 0, name="an empty array: no line")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(lines_touched(Layout((4, 0), (8, 8), 64), 8, 32), 0, name="an empty array: no line")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("Of the bytes that memory delivers, how many did you ask for? float32, 64 × 64, lines of 64 B."):
    full = Layout((64, 64), (256, 4))
    asked = {
        "a row": slice_view(full, 0, slice(5, 6)),
        "a column": slice_view(full, 1, slice(5, 6)),
        "every other column": slice_view(full, 1, slice(None, None, 2)),
        "every 16th column": slice_view(full, 1, slice(None, None, 16)),
        "the diagonal": Layout((64,), (260,)),
        "an 8 × 8 tile": slice_view(slice_view(full, 0, slice(0, 8)), 1, slice(0, 8)),
        "a 16 × 16 tile": slice_view(slice_view(full, 0, slice(0, 16)), 1, slice(0, 16)),
    }
    used = {name: 100 * math.prod(view.shape) * 4 / (64 * lines_touched(view, 4)) for name, view in asked.items()}
    told = "; ".join(f"{name}: {share:.0f} % of the bytes fetched are used" for name, share in used.items())
    bars(used, "useful bytes, % of the bytes fetched", told, unit=" %")

# %% [markdown]
# ### Task 8 · Three loops, six orders
# *12 points · 14 minutes · ●●●○*
#
# $C_{ij} \mathrel{+}= A_{ik} B_{kj}$ holds whatever the order of the three loops. All six orders multiply the same
# numbers equally often. They differ in how they walk, and so in how many lines they fetch.
#
# Your loops run over spies here: `lk.trace_accesses` writes down every address that you read or write, and an LRU cache
# of 16 lines (tiny, so that tiny matrices show what large ones do) counts the misses. Choose the order with the
# **fewest misses of all six**, for row-major float64. One element at a time: no `@`, no slices. The three loops are yours.

# %%
lk.predict("matmul")


# %% nbgrader={"grade": false, "grade_id": "matmul", "locked": false, "schema_version": 3, "solution": true, "task": false}
def matmul(a, b, c):
    """Add the matrix product of ``a`` and ``b`` to ``c``, in place, one element at a time.

    a: [m, k];  b: [k, n];  c: [m, n], which may hold numbers already: they stay in the sum, as in BLAS
    a and b may be views, and any length may be 0
    Every read and write is of one element: no `@`, no slices.
    returns: None

    >>> c = np.ones((1, 1)); matmul(np.array([[2.0]]), np.array([[3.0]]), c); c
    array([[7.]])
    """
    ### BEGIN SOLUTION
    (m, inner), n = a.shape, b.shape[1]
    for i in range(m):
        for k in range(inner):
            factor = a[i, k]  # stays in a register while a row of b and a row of c stream past
            for j in range(n):
                c[i, j] += factor * b[k, j]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "matmul_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
a, b = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]])
c = np.zeros((2, 2))
matmul(a, b, c)
lk.checks.expect_close(c, np.array([[7.0, 11.0], [16.0, 23.0]]), name="2 x 3 times 3 x 2")
a, b, c = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0, 20.0]]), np.zeros((3, 2))
matmul(a, b, c)
lk.checks.expect_close(c, np.array([[10.0, 20.0], [20.0, 40.0], [30.0, 60.0]]), name="3 x 1 times 1 x 2")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(108)
for m, k, n, why in [
    (3, 4, 5, "no two lengths alike"),
    (5, 3, 2, "ragged the other way"),
    (4, 4, 4, "square: indices that are swapped still fit"),
    (1, 6, 1, "a dot product"),
    (6, 1, 5, "an outer product"),
    (1, 5, 4, "a row times a matrix"),
]:
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.zeros((m, n))
    expected = a @ b
    matmul(a, b, c)
    lk.checks.expect_close(c, expected, name=f"a b for {m} x {k} x {n} ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "matmul_test_sum", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
c = np.ones((1, 1))
matmul(np.array([[2.0]]), np.array([[3.0]]), c)
lk.checks.expect_close(c, np.array([[7.0]]), name="1 + 2 * 3: what c held stays in the sum")
a, b, c = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([[100.0, 200.0]])
matmul(a, b, c)
lk.checks.expect_close(c, np.array([[113.0, 216.0]]), name="1 x 2 times 2 x 2, added to 100 and 200")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(128)
for m, k, n in [(3, 4, 5), (4, 4, 4), (5, 1, 2)]:
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    expected = c + a @ b
    matmul(a, b, c)
    lk.checks.expect_close(c, expected, name=f"c + a b for {m} x {k} x {n}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "matmul_test_views", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
a, b, c = np.array([[1.0, 3.0], [2.0, 4.0]]).T, np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]])[:, ::2], np.zeros((2, 2))
matmul(a, b, c)
lk.checks.expect_close(c, np.array([[7.0, 10.0], [15.0, 22.0]]), name="views as inputs: transposed, strided")
c = np.array([[5.0, 6.0]])
matmul(np.zeros((1, 0)), np.zeros((0, 2)), c)
lk.checks.expect_close(c, np.array([[5.0, 6.0]]), name="k = 0, nothing to add: c stays as it was")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(138)
a, b, c = rng.standard_normal((4, 3)).T, rng.standard_normal((5, 8))[::-1, ::2].T, np.zeros((3, 5))
expected = a @ b
matmul(a, b, c)
lk.checks.expect_close(c, expected, name="views as inputs: transposed, reversed, strided")
for m, k, n in [(3, 0, 2), (0, 3, 2), (2, 3, 0)]:
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    expected = c.copy()
    matmul(a, b, c)
    lk.checks.expect_close(c, expected, name=f"a length of 0: {m} x {k} x {n}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "matmul_test_lines", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
# float64, m = 12, k = n = 24: a row of a, b or c is 3 lines, all of b is 72, and the cache holds 16.
rng = np.random.default_rng(118)
a, b, c = rng.standard_normal((12, 24)), rng.standard_normal((24, 24)), np.zeros((12, 24))
expected = a @ b
trace = lk.trace_accesses(matmul, a, b, c)
lk.checks.expect_close(c, expected, name="the product itself: a fast wrong answer is worth nothing")
lk.checks.expect_equal(
    trace.at_once, 0, name="number of operations on slices or whole arrays, and single elements were asked for"
)
# 144 lines are everything once; 936 are what the best of the six orders fetches. 36 more are for those who load a row of
# c first and store it last: the same order, and the row is fetched twice. The next best order fetches 1,224.
lk.checks.expect_cache_misses(trace, at_least=144, at_most=936 + 36, line_bytes=64, lines=16)
# Each multiplication loads its element of b. Registers may save some of these loads; a whole-array product would show
# far too few.
loads = lk.Work(bytes_read=8 * trace.reads[1])
lk.checks.expect_work(loads, at_least_bytes=12 * 24 * 24, name="loads of elements of b")
# By theory the best order fetches all of b anew for each row of a, and a and c once: 12 * 72 + 36 + 36 = 936 above.
# Ragged rows share lines with their neighbours; b, walked from end to end, still costs its whole lines and no more.
m, k, n = 11, 27, 21
trace = lk.trace_accesses(matmul, np.ones((m, k)), np.ones((k, n)), np.zeros((m, n)))
once = (m * k + k * n + m * n) // 8
best = m * (math.ceil(k * n / 8) + 1) + 2 * (math.ceil(m * n / 8) + 1) + (math.ceil(m * k / 8) + 1)
lk.checks.expect_cache_misses(trace, at_least=once, at_most=best, line_bytes=64, lines=16, name="11 x 27 x 21")
### BEGIN HIDDEN TESTS
m, k, n = 10, 29, 19
trace = lk.trace_accesses(matmul, np.ones((m, k)), np.ones((k, n)), np.zeros((m, n)))
once = (m * k + k * n + m * n) // 8
best = m * (math.ceil(k * n / 8) + 1) + 2 * (math.ceil(m * n / 8) + 1) + (math.ceil(m * k / 8) + 1)
lk.checks.expect_cache_misses(trace, at_least=once, at_most=best, line_bytes=64, lines=16, name="10 x 29 x 19")
### END HIDDEN TESTS

# %% [markdown]
# All six orders beside yours. The arithmetic is the same to the last multiplication.


# %% jupyter={"source_hidden": true}
def in_order(order):
    """The product with its loops nested in ``order``, the first letter outermost."""

    def loops(a, b, c):
        length = {"i": a.shape[0], "j": b.shape[1], "k": a.shape[1]}
        for index in itertools.product(*(range(length[letter]) for letter in order)):
            at = dict(zip(order, index))
            c[at["i"], at["j"]] += a[at["i"], at["k"]] * b[at["k"], at["j"]]

    return loops


with lk.picture("Cache misses of one product in six loop orders (the last letter is the innermost loop)."):
    small = (np.ones((12, 24)), np.ones((24, 24)), np.zeros((12, 24)))
    candidates = {"yours": matmul} | {"".join(order): in_order(order) for order in itertools.permutations("ijk")}
    counted = {
        name: lk.access.cache_misses(lk.trace_accesses(loops, *small), line_bytes=64, lines=16).misses
        for name, loops in candidates.items()
    }
    told = "; ".join(f"{name}: {count:,} misses" for name, count in counted.items())
    bars(counted, "misses, 16 lines of 64 B", told)

# %% [markdown]
# Watch the innermost loop. With $j$ inside, it runs along rows of $B$ and $C$ and uses all eight numbers of every line.
# With $k$ inside, it runs down a column of $B$: a line a number, gone again before its neighbours are asked for. With $i$ inside it
# runs down two columns at once: twice as bad again. Even the best order fetches all of $B$ once for every row of $A$; mending *that*
# is called tiling and gets a lab of its own.

# %% [markdown]
# ## Part 4 · A matrix is data, a matrix is a function
#
# A matrix can be read in two ways. As **data**: a table, one sample a row. As a **function**: $x \mapsto Ax$, which turns,
# stretches and projects. Multiplying functions composes them: $(AB)x = A(Bx)$, first $B$, then $A$. The order is part of
# the meaning, even where the shapes would fit both ways: turning and then stretching is not stretching and then turning.
#
# A network layer $Y = X W^\top$ is both at once: the rows of $X$ are data, $W$ is the function, learnt.
# Even a graph is a matrix. Let $G_{ij} = 1$ where an edge leads from $j$ to $i$: then $G$ is a function that moves one step along
# every edge, and $(G^k)_{ij}$ counts the walks of length $k$.
#
# ### Task 9 · One function, two prices
# *8 points · 6 minutes · ●●○○*
#
# Matrix multiplication is associative: brackets never change the function. They change the bill. Apply a chain of
# matrices to a vector for the fewest FLOPs.

# %%
lk.predict("apply_chain")


# %% nbgrader={"grade": false, "grade_id": "apply_chain", "locked": false, "schema_version": 3, "solution": true, "task": false}
def apply_chain(matrices, x):
    """The product matrices[0] @ matrices[1] @ ... @ matrices[-1] @ x, at the fewest FLOPs.

    matrices: list of torch tensors, [n0, n1], [n1, n2], ...; may be empty: doing nothing is a function, too. A length
              may be 0
    x:        torch tensor [n_last], a vector
    The list and its tensors stay as they are.
    returns:  torch tensor [n0]

    >>> apply_chain([torch.tensor([[1., 2., 3.], [4., 5., 6.]])], torch.tensor([7., 8., 9.]))
    tensor([ 50., 122.])
    """
    ### BEGIN SOLUTION
    for matrix in reversed(matrices):
        x = matrix @ x
    return x
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "apply_chain_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
one = [torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])]
lk.checks.expect_close(apply_chain(one, torch.tensor([7.0, 8.0, 9.0])), torch.tensor([50.0, 122.0]), name="one matrix")
two = [torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])]
x = torch.tensor([1.0, 2.0, 3.0])
lk.checks.expect_close(apply_chain(two, x), torch.tensor([14.0]), name="two matrices")
lk.checks.expect_equal(len(two), 2, name="matrices in the list that you were given, after the call")
lk.checks.expect_equal(x, torch.tensor([1.0, 2.0, 3.0]), name="x, after the call")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(109)
for sizes, why in [
    ((2, 7, 3, 5), "every length different"),
    ((1, 6, 1), "through a bottleneck of 1"),
    ((30, 20, 40, 10, 50), "long enough for the order to cost"),
]:
    chain = [
        torch.randn(rows, columns, generator=generator, dtype=torch.float64) for rows, columns in zip(sizes, sizes[1:])
    ]
    x = torch.randn(sizes[-1], generator=generator, dtype=torch.float64)
    product = functools.reduce(np.matmul, [matrix.numpy() for matrix in chain])
    lk.checks.expect_close(apply_chain(chain, x), torch.from_numpy(product @ x.numpy()), name=f"{sizes} ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "apply_chain_test_square", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
turn, stretch = torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]])
moved = apply_chain([turn, stretch], torch.tensor([1.0, 3.0]))
lk.checks.expect_close(moved, torch.tensor([-3.0, 2.0]), name="stretched first, then turned: all shapes fit both ways")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(129)
chain = [torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(3)]
x = torch.randn(4, generator=generator, dtype=torch.float64)
product = functools.reduce(np.matmul, [matrix.numpy() for matrix in chain])
lk.checks.expect_close(apply_chain(chain, x), torch.from_numpy(product @ x.numpy()), name="three square matrices")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "apply_chain_test_empty", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(apply_chain([], torch.tensor([1.0, 2.0])), torch.tensor([1.0, 2.0]), name="an empty chain")
through_nothing = apply_chain([torch.zeros(2, 0), torch.zeros(0, 3)], torch.ones(3))
lk.checks.expect_close(through_nothing, torch.zeros(2), name="through a length of 0: the sum over no terms is 0")
### BEGIN HIDDEN TESTS
lk.checks.expect_close(apply_chain([], torch.ones(3)), torch.ones(3), name="an empty chain gives x back")
through_nothing = apply_chain([torch.zeros(5, 0), torch.zeros(0, 3)], torch.ones(3))
lk.checks.expect_close(through_nothing, torch.zeros(5), name="through a length of 0")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "apply_chain_test_flops", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
chain, x = [torch.ones(30, 20), torch.ones(20, 40)], torch.ones(40)
lk.checks.expect_work(lk.count_work(apply_chain, chain, x), flops=2 * 20 * 40 + 2 * 30 * 20, name="two matrices")
### BEGIN HIDDEN TESTS
# Each matrix has to be used once, at 2 FLOP an element. No order of brackets does better than that.
generator = torch.Generator().manual_seed(119)
for sizes in [(30, 20, 40, 10, 50), (64, 64, 64, 64)]:
    chain = [torch.randn(rows, columns, generator=generator) for rows, columns in zip(sizes, sizes[1:])]
    least = sum(2 * rows * columns for rows, columns in zip(sizes, sizes[1:]))
    lk.checks.expect_work(lk.count_work(apply_chain, chain, torch.ones(sizes[-1])), flops=least)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("One function in two bracketings. At twice the width one costs 4 times as much, the other 8 times."):
    widths = [64, 128, 256] if smoke else [64, 128, 256, 512]
    bills = {"A(B(Cx)), yours": [], "((AB)C)x": []}
    for width in widths:
        chain, x = [torch.ones(width, width)] * 3, torch.ones(width)
        bills["A(B(Cx)), yours"].append(lk.count_work(apply_chain, chain, x).flops)
        bills["((AB)C)x"].append(lk.count_work(lambda chain, x: chain[0] @ chain[1] @ chain[2] @ x, chain, x).flops)
    ratio = bills["((AB)C)x"][-1] / bills["A(B(Cx)), yours"][-1]
    told = f"At width {widths[-1]}, multiplying the matrices first costs {ratio:.0f} times the FLOPs."
    curves(bills, widths, "width of each matrix", "FLOP", told)

# %% [markdown]
# The same function in motion. Stretching and then turning is not turning and then stretching, although all shapes fit:

# %% jupyter={"source_hidden": true}
with lk.picture("A flag, stretched first or turned first. Read a product from right to left."):
    flag = np.array([[0, 0], [0, 2], [1.2, 1.5], [0, 1]], dtype=float)
    stretch, turn = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    figure = go.Figure()
    for name, chain, dash in [
        ("the flag", [], "solid"),
        ("turn · stretch: stretched first", [turn, stretch], "dash"),
        ("stretch · turn: turned first", [stretch, turn], "dot"),
    ]:
        moved = np.array([apply_chain(chain, torch.tensor(point, dtype=torch.float32)).numpy() for point in flag])
        figure.add_scatter(x=moved[:, 0], y=moved[:, 1], name=name, mode="lines", fill="toself", line={"dash": dash})
    figure.update_yaxes(scaleanchor="x")
    finish(figure, 320, "Stretched first, the cloth gets longer; turned first, the pole does.")

# %% [markdown]
# And as a graph: four stations on a ring line with one shortcut. Each application of $G$ walks one edge.

# %% jupyter={"source_hidden": true}
with lk.picture("In how many ways can you be at each station after 0 to 6 steps from station 0?"):
    graph = torch.zeros(4, 4)
    for here, there in [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]:
        graph[there, here] = 1
    start = torch.tensor([1.0, 0.0, 0.0, 0.0])
    for steps in range(7):
        print(f"{steps} steps:", apply_chain([graph] * steps, start).int().tolist())

# %% [markdown]
# Remember the two prices when you meet low-rank adapters: while they train, $(W + BA)x$ is run as $Wx + B(Ax)$, and $BA$
# is never formed.

# %% [markdown]
# ## Part 5 · A neuron has seen this before
#
# A neuron takes a dot product of its input with its weights. A dot product measures agreement, mixed up with length:
# $w \cdot x = \lVert w\rVert \, \lVert x\rVert \cos\theta$. Divide the lengths away and what stays is between −1 and 1: one means *I have
# seen exactly this before*, zero *nothing to do with me*, minus one *the very opposite*.
#
# ### Task 10 · Cosines, for many neurons at once
# *8 points · 8 minutes · ●●○○*
#
# A layer is a matrix of neurons, a batch is a matrix of inputs: all their dot products are one mm. The tempting way,
# broadcasting to `[batch, neurons, features]` and then summing, gives the same numbers through an array that is
# `features` times larger than the answer. The check looks at peak memory.

# %%
lk.predict("cosines")


# %% nbgrader={"grade": false, "grade_id": "cosines", "locked": false, "schema_version": 3, "solution": true, "task": false}
def cosines(x, w):
    """Cosine of the angle between every input and every neuron.

    x: [batch, features], one input a row;  w: [neurons, features], one neuron a row; numpy, floating point
    returns: [batch, neurons]; 0 where the input or the neuron is all zeros (it points nowhere); a batch may be empty
    x and w stay as they are. A short row is no zero row: its cosines are as good as any.

    >>> cosines(np.array([[0.0, 2.0]]), np.array([[0.0, 5.0], [3.0, 0.0], [0.0, -1.0]]))
    array([[ 1.,  0., -1.]])
    """

    ### BEGIN SOLUTION
    def unit(rows):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(lengths == 0, 1, lengths)

    return unit(x) @ unit(w).T
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "cosines_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
seen = cosines(np.array([[3.0, 4.0]]), np.array([[6.0, 8.0], [-4.0, 3.0]]))
lk.checks.expect_close(seen, np.array([[1.0, 0.0]]), name="a twice as long neuron and one at a right angle")
x, w = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 4.0], [-5.0, 0.0]])
seen = cosines(x, w)
lk.checks.expect_close(
    seen, np.array([[0.6, -1.0], [0.8, 0.0]]), name="two inputs, one a row; two neurons, one a column"
)
lk.checks.expect_equal(x, np.array([[1.0, 0.0], [0.0, 2.0]]), name="x, after the call")
lk.checks.expect_equal(w, np.array([[3.0, 4.0], [-5.0, 0.0]]), name="w, after the call")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(110)
for batch, neurons, features, why in [
    (5, 3, 7, "no two lengths alike"),
    (4, 4, 4, "square: a transposed answer would fit"),
    (1, 6, 2, "one input"),
    (6, 1, 9, "one neuron"),
    (3, 2, 1, "one feature: only signs are left"),
]:
    x, w = rng.standard_normal((batch, features)), rng.standard_normal((neurons, features)) * 30
    lengths = np.sqrt(np.einsum("bf,bf->b", x, x))[:, None] * np.sqrt(np.einsum("nf,nf->n", w, w))
    expected = np.einsum("bf,nf->bn", x, w) / lengths
    lk.checks.expect_close(cosines(x, w), expected, name=f"cosines, {batch} x {neurons} x {features} ({why})")
    lk.checks.expect_close(cosines(-5 * x, w), -expected, name=f"five times as long, turned round ({why})")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "cosines_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Inputs 256 KiB each, answer 128 KiB; [batch, neurons, features] would be 32 MiB.
seen = lk.checks.expect_peak(cosines, np.ones((128, 256)), np.ones((128, 256)), at_most_bytes=2 * 1024**2)
lk.checks.expect_close(seen, np.ones((128, 128)), name="128 equal inputs and 128 equal neurons")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(120)
x, w = rng.standard_normal((100, 300)), rng.standard_normal((150, 300))
expected = (x @ w.T) / np.sqrt(np.outer((x * x).sum(axis=1), (w * w).sum(axis=1)))
seen = lk.checks.expect_peak(cosines, x, w, at_most_bytes=2 * 1024**2)
lk.checks.expect_close(seen, expected, name="cosines, 100 x 150 x 300")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "cosines_test_zeros", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
seen = cosines(np.array([[3e-30, 4e-30]]), np.array([[3.0, 4.0]]))
small = "a constant takes the place of a small length. Only a length of exactly 0 needs care: ask for it"
lk.checks.expect_close(seen, np.ones((1, 1)), otherwise=small, name="an input of length 5e-30, which is not zero")
seen = cosines(np.array([[3.0, 4.0]]), np.array([[3e-30, 4e-30]]))
lk.checks.expect_close(seen, np.ones((1, 1)), otherwise=small, name="a neuron of length 5e-30, which is not zero")
lk.checks.expect_close(cosines(np.zeros((1, 3)), np.ones((2, 3))), np.zeros((1, 2)), name="an input of zeros")
seen = cosines(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0], [6.0, 8.0]]))
lk.checks.expect_close(seen, np.array([[0.0, 1.0]]), name="a neuron of zeros beside another")
lk.checks.expect_close(cosines(np.zeros((0, 4)), np.ones((3, 4))), np.zeros((0, 3)), name="an empty batch")
### BEGIN HIDDEN TESTS
x, w = np.array([[1.0, 2.0], [0.0, 0.0], [2.0, -1.0]]), np.array([[0.0, 0.0], [2.0, 4.0]])
lk.checks.expect_close(cosines(x, w), np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), name="zeros on both sides")
lk.checks.expect_close(cosines(np.zeros((0, 2)), np.zeros((5, 2))), np.zeros((0, 5)), name="an empty batch")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("Peak of new memory for 128 inputs, 128 neurons, 256 features in float64."):
    x, w = np.ones((128, 256)), np.ones((128, 256))
    ways = {"one mm, yours": cosines, "broadcast, then sum": lambda x, w: (x[:, None, :] * w).sum(axis=2)}
    peaks = {name: lk.trace_memory(way, x, w).peak_new_bytes / 1e3 for name, way in ways.items()}
    bars(peaks, "kB", "; ".join(f"{name}: {peak:,.0f} kB" for name, peak in peaks.items()), unit=" kB")

# %% [markdown]
# Ten neurons and nothing learnt: each neuron's weights are simply the mean image of one handwritten digit. Every image
# is then shown to all ten.

# %% jupyter={"source_hidden": true}
with lk.picture("How strongly each of ten mean-image neurons lights up, by the digit that is shown to it."):
    images, labels = lk.datasets.digits()
    centred = images - images.mean(axis=0)
    neurons = np.stack([centred[labels == digit].mean(axis=0) for digit in range(10)])
    activity = cosines(centred, neurons)
    by_digit = np.stack([activity[labels == digit].mean(axis=0) for digit in range(10)])
    share = 100 * (activity.argmax(axis=1) == labels).mean()
    told = f"Each digit lights up its own neuron most; the strongest neuron is right for {share:.0f} % of the images."
    panel = {"neuron (rows: digit shown)": by_digit}
    heatmaps(panel, told, -1, 1, axis=list(range(10)), texttemplate="%{z:.1f}", colorscale="RdBu_r", xgap=1, ygap=1)
    print(told)

# %% [markdown]
# ### Task 11 · XOR, backwards by hand
# *13 points · 25 minutes · ●●●○*
#
# Stack linear layers and you get a linear layer: $W_2(W_1 x) = (W_2 W_1)x$. Depth without a bend buys nothing. XOR shows what is missing. Every
# linear score $f(x) = w \cdot x + b$ has $f(0,0) + f(1,1) = f(0,1) + f(1,0)$. XOR asks for two low scores on the left of this equation and for two
# high scores on the right, so no linear score computes it. One hidden layer with a bend can:
#
# $$h = \tanh(x W_1^\top + b_1) \qquad z = h\, w_2 + b_2 \qquad p = \frac{1}{1 + e^{-z}}$$
#
# $$L = -\frac1n \sum_{\text{samples}} \big( y \log p + (1 - y) \log (1 - p) \big)$$
#
# With two hidden neurons that is nine parameters. Forward is given. **Backward** is the same road walked in the other direction: each step
# takes the gradient of $L$ with respect to its output and turns it into gradients for its inputs and its parameters. The first step
# is a gift of the logistic function and the cross-entropy together: $\partial L / \partial z = (p - y) / n$.
# The checks look at the gradients in the order of that road: `b2`, `w2`, `b1`, `w1`. If one is wrong, those before it are right.


# %% nbgrader={"grade": false, "grade_id": "xor_forward", "locked": true, "schema_version": 3, "solution": false, "task": false}
class Net(NamedTuple):
    """The parameters of the network; also the record for their gradients, shape by shape."""

    w1: np.ndarray  # [hidden, inputs]
    b1: np.ndarray  # [hidden]
    w2: np.ndarray  # [hidden]
    b2: np.ndarray  # [], a single number


def forward(net, x):
    """Hidden activity [n, hidden] and probability of "true" [n] for the inputs x [n, inputs]."""
    hidden = np.tanh(x @ net.w1.T + net.b1)
    return hidden, 1 / (1 + np.exp(-(hidden @ net.w2 + net.b2)))


# %% [markdown]
# The next cell holds what the checks use: the same gradients by finite differences. Run it and go on.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "xor_checks", "locked": true, "schema_version": 3, "solution": false, "task": false}
def loss_of(w1, b1, w2, b2, x, y):
    """The loss from its definition, in a form that cannot overflow: log(1 + e^z) - y z."""
    z = np.tanh(x @ w1.T + b1) @ w2 + b2
    return float(np.mean(np.logaddexp(0, z) - y * z))


def by_differences(w1, b1, w2, b2, x, y, step=1e-6):
    """The gradients with no calculus at all: move one parameter a little each way and look at the loss."""
    parameters = [np.array(parameter, dtype=np.float64) for parameter in (w1, b1, w2, b2)]
    gradients = [np.zeros_like(parameter) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients):
        for index in np.ndindex(parameter.shape):
            kept = parameter[index]
            sides = []
            for moved in (kept + step, kept - step):
                parameter[index] = moved
                sides.append(loss_of(*parameters, x, y))
            parameter[index] = kept
            gradient[index] = (sides[0] - sides[1]) / (2 * step)
    return gradients


def random_case(rng, n, inputs, hidden):
    """A net, inputs and answers."""
    net = Net(
        rng.normal(size=(hidden, inputs)), rng.normal(size=hidden), rng.normal(size=hidden), np.array(rng.normal())
    )
    return net, rng.normal(size=(n, inputs)), rng.integers(0, 2, size=n).astype(np.float64)


def expect_gradients(gradients, expected, why, n, rtol=1e-5, atol=1e-8):
    """Check the four gradients of n samples in the order in which the backward pass reaches them: b2, w2, b1, w1."""
    for name, right in reversed(list(zip(Net._fields, expected))):
        actual = np.asarray(getattr(gradients, name))
        slips = {
            f"{n} times too large: L is a mean over {n} samples, and 1/n is missing": n * right,
            f"{n} times too small: 1/n is in it twice": right / n,
            "every sign is turned. The first step is p − y, not y − p": -right,
        }
        lk.checks.expect_close(actual, right, rtol=rtol, atol=atol, slips=slips, name=f"gradient of {name} ({why})")


# %%
lk.predict("xor_backward")


# %% nbgrader={"grade": false, "grade_id": "xor_backward", "locked": false, "schema_version": 3, "solution": true, "task": false}
def backward(net, x, y):
    """Gradients of the mean cross-entropy L with respect to all parameters, by the chain rule.

    net: Net with any number of inputs and hidden neurons;  x: [n, inputs], n >= 1;  y: [n], each 0 or 1
    returns: Net of gradients, each shaped like its parameter, exact up to rounding: differences are too coarse.
             By hand, in numpy: no autograd

    >>> zeros = Net(np.zeros((2, 2)), np.zeros(2), np.zeros(2), np.array(0.0))  # answers 1/2 to everything
    >>> float(backward(zeros, np.zeros((4, 2)), np.array([1.0, 1.0, 1.0, 0.0])).b2)
    -0.25
    """
    ### BEGIN SOLUTION
    hidden, p = forward(net, x)
    dz = (p - y) / len(y)  # [n]
    dhidden = np.outer(dz, net.w2)  # [n, hidden]
    dbend = dhidden * (1 - hidden**2)  # the slope of tanh, from its own output
    return Net(w1=dbend.T @ x, b1=dbend.sum(axis=0), w2=hidden.T @ dz, b2=dz.sum())
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "xor_backward_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
net, x, y = random_case(np.random.default_rng(11), n=4, inputs=2, hidden=2)
expect_gradients(backward(net, x, y), by_differences(*net, x, y), "4 samples, 2 inputs, 2 hidden", len(y))
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(111)
for n, inputs, hidden, why in [(5, 2, 2, "another net"), (3, 3, 3, "square: a transposed gradient would fit")]:
    net, x, y = random_case(rng, n, inputs, hidden)
    expect_gradients(backward(net, x, y), by_differences(*net, x, y), why, len(y))
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "xor_backward_test_shapes", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
net, x, y = random_case(np.random.default_rng(12), n=7, inputs=3, hidden=5)
expect_gradients(backward(net, x, y), by_differences(*net, x, y), "7 samples, 3 inputs, 5 hidden", len(y))
net, x, y = random_case(np.random.default_rng(13), n=1, inputs=2, hidden=4)
expect_gradients(backward(net, x, y), by_differences(*net, x, y), "one sample", len(y))
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(112)
for n, inputs, hidden, why in [(6, 4, 3, "no two lengths alike"), (9, 1, 1, "one input, one hidden neuron")]:
    net, x, y = random_case(rng, n, inputs, hidden)
    expect_gradients(backward(net, x, y), by_differences(*net, x, y), why, len(y))
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "xor_backward_test_exact", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Tighter than differences can reach: the chain rule, not an approximation of it. PyTorch's autograd is the judge.
net, x, y = random_case(np.random.default_rng(14), n=6, inputs=2, hidden=3)
w1, b1, w2, b2 = leaves = [torch.tensor(parameter, dtype=torch.float64, requires_grad=True) for parameter in net]
z = torch.tanh(torch.from_numpy(x) @ w1.T + b1) @ w2 + b2
torch.nn.functional.binary_cross_entropy_with_logits(z, torch.from_numpy(y)).backward()
expected = [leaf.grad.numpy() for leaf in leaves]
expect_gradients(backward(net, x, y), expected, "autograd, to the last digits", len(y), rtol=1e-11, atol=1e-13)
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(113)
for n, inputs, hidden in [(7, 3, 5), (3, 3, 3), (1, 2, 4), (9, 1, 1)]:
    net, x, y = random_case(rng, n, inputs, hidden)
    w1, b1, w2, b2 = leaves = [torch.tensor(parameter, dtype=torch.float64, requires_grad=True) for parameter in net]
    z = torch.tanh(torch.from_numpy(x) @ w1.T + b1) @ w2 + b2
    torch.nn.functional.binary_cross_entropy_with_logits(z, torch.from_numpy(y)).backward()
    expected = [leaf.grad.numpy() for leaf in leaves]
    why = f"autograd, {n} samples, {inputs} inputs, {hidden} hidden"
    expect_gradients(backward(net, x, y), expected, why, n, rtol=1e-11, atol=1e-13)
### END HIDDEN TESTS

# %% [markdown]
# Now let it learn: small steps downhill, from twenty different random starts.

# %%
lk.predict("xor_starts")

# %% jupyter={"source_hidden": true}
x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = np.array([0.0, 1.0, 1.0, 0.0])


@functools.cache
def train(start):
    """1000 steps downhill from the random start of that number: the losses on the way, and the net."""
    rng = np.random.default_rng([seed, start])
    net, losses = Net(rng.normal(size=(2, 2)), np.zeros(2), rng.normal(size=2), np.array(0.0)), []
    for step in range(1000):
        net = Net(*(parameter - 0.5 * gradient for parameter, gradient in zip(net, backward(net, x, y))))
        p = forward(net, x)[1]
        losses.append(-float(np.mean(np.log(np.where(y == 1, p, 1 - p)))))
    return losses, net


with lk.picture("Loss of the nine-parameter network from different random starts."):
    figure, told = go.Figure(), []
    runs = [train(start) for start in range(6 if smoke else 20)]
    for kind, dash, color in [("learnt", "solid", "#2a7fbf"), ("stuck", "dot", "#cc5a00")]:
        group = [losses for losses, _ in runs if (losses[-1] < 0.1) == (kind == "learnt")]
        for number, losses in enumerate(group):
            line = {"dash": dash, "width": 1.5, "color": color}
            figure.add_scatter(x=np.arange(0, 1000, 10), y=losses[::10], name=kind, line=line, showlegend=number == 0)
        told.append(f"{len(group)} starts: {kind}")
    figure.add_scatter(
        x=[0, 999],
        y=[math.log(2) / 2] * 2,
        name="½ ln 2",
        mode="lines",
        line={"dash": "dash", "width": 1, "color": "#7c7c7c"},
    )
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="cross-entropy, nats", type="log", dtick=1)
    finish(figure, 340, "; ".join(told) + ", level near ½ ln 2 = 0.347")

# %% [markdown]
# Those that are stuck answer two of the four inputs right and say "one half" to the other two: the mean loss is
# then $\frac{2 \cdot \ln 2}{4}$. The gradient there is nearly zero: your mathematics is right, the landscape is not kind. Look at the two
# kinds of net from above:

# %% jupyter={"source_hidden": true}
with lk.picture("What two trained networks answer over the plane. The white corners are the XOR table."):
    by_loss = sorted((train(start) for start in range(6 if smoke else 20)), key=lambda run: run[0][-1])
    axis = np.linspace(-0.5, 1.5, 41)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    panels = {
        f"{name}, loss {losses[-1]:.3f}": forward(net, plane)[1].reshape(41, 41)
        for name, (losses, net) in [("the best start", by_loss[0]), ("the worst", by_loss[-1])]
    }
    corners = [(*point, str(int(answer))) for point, answer in zip(x, y)]
    told = "The best start tells the ones from the zeros; the worst answers one half at two of the four corners."
    heatmaps(panels, told, 0, 1, axis=axis, corners=corners, colorscale="Viridis", colorbar={"title": "p"})

# %% [markdown]
# ## Part 6 · How big is a transformer?
#
# Before you buy a GPU, size the model. Two rules of thumb are quoted everywhere, for $N$ layers of width $d$, vocabulary $V$, batch $B$,
# length $L$, $h$ heads:
#
# $$\text{parameters} \approx 12 N d^2 + V d$$
#
# $$\text{activations per layer} \approx 9 B L d + 2 B h L^2 \;\text{ elements}$$
#
# Both count *elements*; bytes are two or four times as many, and a GB is $10^9$ of them, a GiB $2^{30}$. Slips between these three are the most
# common error in published sizings. Below is a real block, in the shape of GPT-2: click the three dots to read it. You will count it exactly, then
# PyTorch will count it, on the **meta device**: tensors with shapes and no memory, so that GPT-3 fits on a laptop.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "transformer_modules", "locked": true, "schema_version": 3, "solution": false, "task": false}
class Block(torch.nn.Module):
    """One pre-norm transformer block, as in GPT-2: every Linear and LayerNorm has a bias."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
        self.qkv, self.out = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)

    def forward(self, x, fused=False):
        batch, length, d = x.shape
        head = (batch, length, self.heads, d // self.heads)
        q, k, v = (part.view(head).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if fused:
            context = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(2, 3) / math.sqrt(head[-1])
            context = torch.softmax(scores, dim=-1) @ v
        x = x + self.out(context.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    """Token and position embeddings, ``layers`` blocks, a last LayerNorm. The output layer reuses the token embedding."""

    def __init__(self, layers, d, vocab, context, heads=1):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocab, d), torch.nn.Embedding(context, d)
        self.blocks = torch.nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(d)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def kept_for_backward(block, x, **options):
    """Elements that PyTorch keeps from block(x) until the backward pass, its parameters apart; shared memory once."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}
    kept = []  # holds on to the tensors, so that no address is used twice

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(x, **options)
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // t.element_size() for t in kept}
    return sum(size for address, size in sizes.items() if address not in parameters)


# %% [markdown]
# ### Task 12 · Count it to the last one
# *9 points · 22 minutes · ●●●○*
#
# Walk through `Block` and `Transformer` above with a pencil. For the parameters: weights, biases, norms, embeddings. For the activations, what
# does autograd keep of each step of `Block.forward` (with `fused=False`)?
#
# | step | keeps for its backward |
# |---|---|
# | `LayerNorm` | its input, and two numbers a token (mean and inverse deviation) |
# | `Linear` | its input |
# | `q @ k` and `p @ v` | both factors |
# | `softmax` | its output |
# | `gelu` | its input |
# | `+`, and division by a constant | nothing |
#
# A tensor that two steps keep is stored once. `kept_for_backward(Block(d, heads), torch.ones(batch, length, d))` shows what
# PyTorch keeps: change one length at a time to see which of your terms is off.

# %%
lk.predict("transformer_size")


# %% nbgrader={"grade": false, "grade_id": "transformer_size", "locked": false, "schema_version": 3, "solution": true, "task": false}
def parameter_count(layers, d, vocab, context):
    """Exactly how many parameters ``Transformer(layers, d, vocab, context)`` has. Returns int, elements.

    >>> parameter_count(layers=1, d=2, vocab=3, context=4)
    92
    """
    ### BEGIN SOLUTION
    block = 12 * d**2 + 13 * d  # 3+1+4+4 matrices; biases 3+1+4+1, two norms of 2
    return layers * block + vocab * d + context * d + 2 * d
    ### END SOLUTION


def activation_count(batch, length, d, heads):
    """Exactly how many elements one ``Block(d, heads)`` keeps for backward, from x [batch, length, d]. Returns int.

    >>> activation_count(batch=1, length=1, d=1, heads=1)
    21
    """
    ### BEGIN SOLUTION
    wide = 1 + 1 + 3 + 1 + 1 + 1 + 4 + 4  # x, norm1, q k v, context, x after attention, norm2, up, gelu
    return wide * batch * length * d + batch * heads * length**2 + 4 * batch * length
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "transformer_size_test_parameters", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
count = parameter_count(layers=2, d=5, vocab=7, context=11)  # two blocks of 365, embeddings of 35 and 55, a norm of 10
slips = {
    "the position embedding, context · d, is missing": 830 - 55,
    "the token embedding, vocab · d, is missing": 830 - 35,
    "the last norm, 2 d, is missing": 830 - 10,
    "the output layer has no matrix of its own: it reuses the token embedding": 830 + 35,
    "the biases of the four Linears, 9 d a block, are missing": 830 - 2 * 45,
    "the two norms of each block, 4 d, are missing": 830 - 2 * 20,
    "neither biases nor norms of the blocks are counted, 13 d a block": 830 - 2 * 65,
}
lk.checks.expect_close(count, 830, slips=slips, name="parameters for layers, d, vocab, context = 2, 5, 7, 11")
count = parameter_count(layers=1, d=2, vocab=3, context=4)
lk.checks.expect_equal(count, 92, name="parameters of the docstring's example")
# GPT-2 small, as published ("124M").
count = parameter_count(layers=12, d=768, vocab=50257, context=1024)
lk.checks.expect_equal(count, 124_439_808, name="parameters of GPT-2 small")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(
    parameter_count(48, 1600, 50257, 1024), 1_557_611_200, name="parameters of GPT-2 XL, as published"
)
rng = np.random.default_rng(112)
for sizes in [(96, 12288, 50257, 2048)] + [
    tuple(int(rng.integers(1, h)) for h in (5, 300, 900, 200)) for _ in range(6)
]:
    count = parameter_count(*sizes)
    with torch.device("meta"):
        module = Transformer(*sizes)
    expected = sum(parameter.numel() for parameter in module.parameters())
    lk.checks.expect_equal(count, expected, name=f"parameters for layers, d, vocab, context = {sizes}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "transformer_size_test_no_layers", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
count = parameter_count(layers=0, d=8, vocab=11, context=5)
lk.checks.expect_equal(count, 144, name="no layers: two embeddings and the last norm")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(parameter_count(0, 10, 7, 3), 120, name="no layers: two embeddings and the last norm")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "transformer_size_test_activations", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
count = activation_count(batch=2, length=3, d=35, heads=5)  # B L d = 210, B h L L = 90, B L = 6
slips = {
    "softmax keeps its output only, not the scores as well: B h L L once": 3474 + 90,
    "what softmax keeps, B h L L, is missing": 3474 - 90,
    "each head has an L x L matrix of its own": 3474 - 72,
    "each norm keeps two numbers a token, 4 B L for both": 3474 - 24,
    "one norm keeps two numbers a token, and there are two norms": 3474 - 12,
    "both sides of the gelu are kept: its input, and its output as the input of the last Linear": 3474 - 840,
    "q, k and v are three tensors, each of B L d": 3474 - 420,
    "one tensor of B L d is missing: x, norm1's output, the context, x after attention, or norm2's output": 3474 - 210,
    "one tensor of B L d is too many: one that two steps keep is stored once": 3474 + 210,
}
name = "elements kept for batch, length, d, heads = 2, 3, 35, 5"
lk.checks.expect_close(count, 3474, slips=slips, name=name)
count = activation_count(batch=1, length=1, d=1, heads=1)
lk.checks.expect_equal(count, 21, name="elements kept in the docstring's example")
torch.manual_seed(112)
count = activation_count(batch=2, length=6, d=8, heads=2)
lk.checks.expect_equal(count, kept_for_backward(Block(8, 2), torch.ones(2, 6, 8)), name="elements kept for backward")
### BEGIN HIDDEN TESTS
for batch, length, d, heads, why in [
    (3, 5, 12, 4, "no two lengths alike"),
    (5, 2, 64, 1, "short and wide, one head"),
]:
    count = activation_count(batch, length, d, heads)
    expected = kept_for_backward(Block(d, heads), torch.ones(batch, length, d))
    lk.checks.expect_equal(
        count, expected, name=f"elements kept for batch, length, d, heads = {batch, length, d, heads} ({why})"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "transformer_size_test_long", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
count = activation_count(batch=1, length=40, d=8, heads=8)
expected = kept_for_backward(Block(8, 8), torch.ones(1, 40, 8))
lk.checks.expect_equal(count, expected, name="long and thin: the L x L part dominates")
### BEGIN HIDDEN TESTS
for batch, length, d, heads, why in [(2, 30, 6, 3, "long and thin"), (2, 1, 16, 2, "a single token")]:
    count = activation_count(batch, length, d, heads)
    expected = kept_for_backward(Block(d, heads), torch.ones(batch, length, d))
    lk.checks.expect_equal(
        count, expected, name=f"elements kept for batch, length, d, heads = {batch, length, d, heads} ({why})"
    )
### END HIDDEN TESTS

# %% [markdown]
# How good are the rules? For the parameters, very good from $d \approx 1000$ on: what they leave out (biases, norms,
# positions) grows like $d$, what they keep like $d^2$.

# %% jupyter={"source_hidden": true}
with lk.picture("Three counts of what one block keeps for backward: d = 2048, 16 heads, batch 8, 2 B an element."):
    models = {
        "GPT-2 small": (12, 768, 50257, 1024),
        "GPT-2 XL": (48, 1600, 50257, 1024),
        "GPT-3": (96, 12288, 50257, 2048),
    }
    for name, (layers, d, vocab, context) in models.items():
        rule, exact = 12 * layers * d**2 + vocab * d, parameter_count(layers, d, vocab, context)
        print(f"{name:12} {exact:>15,} parameters, the rule is {100 * (exact - rule) / exact:.2f} % short;", end=" ")
        print(f"in bfloat16 {2 * exact / 1e9:6.2f} GB = {2 * exact / 2**30:6.2f} GiB")
    batch, d, heads, lengths = 8, 2048, 16, [256, 512, 1024, 2048, 4096, 8192]
    counts = {
        "rule: 9BLd + 2BhL²": [9 * batch * n * d + 2 * batch * heads * n**2 for n in lengths],
        "exact, attention written out": [activation_count(batch, n, d, heads) for n in lengths],
        # Fused attention keeps one number a query, the log of the softmax's sum, instead of a row of L probabilities.
        "exact, fused attention": [activation_count(batch, n, d, heads) - batch * heads * (n**2 - n) for n in lengths],
    }
    gigabytes = {name: [2 * count / 1e9 for count in series] for name, series in counts.items()}
    told = "; ".join(
        f"{name}: {series[0]:.2f} GB at L = 256, {series[-1]:.0f} GB at 8192" for name, series in gigabytes.items()
    )
    curves(gigabytes, lengths, "length L, tokens", "kept for backward, GB", told)

# %% [markdown]
# The rule for the activations counts what one would draw on a whiteboard (the input, q, k, v, the context, the hidden
# layer; scores and probabilities). Autograd keeps more of the narrow tensors (norms, both sides of the GELU) and
# fewer of the square ones (the softmax needs its output only). Where $hL = 7d$, here at $L = 896$, the two errors cancel,
# which is why the rule has survived. Fused attention drops the square from memory; from the FLOPs it does not.
# A rule of thumb is a hypothesis; you now own the instrument that tests it.

# %% [markdown]
# ## On your GPU
#
# Not graded. Here dot, mv and mm are placed on a roofline: on your GPU's own, with measured times, if you have one;
# otherwise on a datasheet (of an H100, if `LABKIT_DEVICE` names no other), as a model without any time.

# %% jupyter={"source_hidden": true}
device = lk.detect()
n = 1024 if smoke else 4096
place = "cuda" if device.kind == "cuda" and not device.virtual else "meta"
x, y, a, b = (torch.ones(shape, device=place) for shape in [(n,), (n,), (n, n), (n, n)])
operations = {"dot": (torch.dot, x, y), "mv": (torch.mv, a, x), "mm": (torch.mm, a, b)}
roofline = lk.Roofline.of(device) if device.kind == "cuda" else lk.Roofline.from_spec("h100-sxm")
works = {name: lk.count_work(function, *arguments) for name, (function, *arguments) in operations.items()}
if place == "cuda":
    for name, (function, *arguments) in operations.items():
        timing = lk.bench(function, *arguments, name=name)
        works[name] = works[name].with_seconds(timing.median)
        print(timing)
else:
    print(f"Timing skipped: no GPU here. What follows is {roofline.device.label}.")
for work in works.values():
    print(roofline.place(work).verdict)
HTML(roofline.svg(works.values()))

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel, run all cells, save, and look here: which tasks pass the checks you see, and what is left. In
# JupyterLab, a right-click on the panel and *Create New View for Cell Output* keeps it beside the notebook while you work.

# %%
lk.progress()

# %% [markdown]
# ## What to take along
#
# - An array is memory, a shape, strides and an offset. Transposes, slices, broadcasts and windows only edit the last three.
# - A view is free to make. Walking it costs what its cache lines cost: 64 bytes for every 4 you want, in the worst case.
# - Loop order changes no result and up to fifteen times the traffic. Let the innermost loop walk rows.
# - $A(Bx)$, never $(AB)x$, unless many vectors share the product.
# - A neuron is a dot product; divided by the lengths it says how well the input matches what the neuron knows.
# - Gradients you can check against differences are gradients you can trust.
# - $12Nd^2 + Vd$ is safe. $9BLd + 2BhL^2$ depends on how attention is written: measure.
#
# ## Next
#
# Chapter 1, *Tensors and linear algebra*, and chapter 2, *Neurons to transformers*, tell the story behind the numbers.
# In **Lab 02 · Subspaces and PCA** matrices become geometry.
