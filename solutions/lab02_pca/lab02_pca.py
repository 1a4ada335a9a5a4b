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
# # Lab 02 · Subspaces and PCA
#
# A model turns pictures and words into points in a space of hundreds of dimensions, and far fewer directions hold most of their
# variance. This lab finds those directions in four ways, which differ in the *bytes* that they move.
#
# **You will be able to**
#
# - project onto a subspace without ever forming the projection matrix, and say why the error stands at a right angle;
# - compute principal components by eigendecomposition, by SVD, by power iteration and by a randomized sketch, and choose
#   between them by passes over the data, memory and precision;
# - predict a reconstruction error from the tail of a spectrum, before reconstructing anything;
# - compare words inside a semantic subspace, and say when such a comparison means nothing;
# - run PCA over a stream that is larger than your memory;
# - replace a trained weight matrix by two thin ones.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 160 minutes | ●●●○ | any laptop; a GPU only for the last, ungraded section | 100 in 11 tasks |
#
# The time includes reading; the minutes beside a task are for writing it. Needs lab 01, and what an eigenvector is. Reads
# along with chapter 3, [Geometry: subspaces and PCA](../../course/chapters/03_geometry.md).
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**, **check**, then
# **look**. Marks come from right answers and from counted bytes, passes and FLOPs, never from a clock. Stuck? `lk.hint("project")`
# in a new cell gives a nudge, and a stronger one each time you ask. **Hints cost no marks.** `lk.progress()` shows how far you
# are. Long checks and the code of pictures are folded: click the three dots in a cell to read it.

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab02_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import textwrap
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

import mlsys_labkit as lk

# %% tags=["parameters"]
smoke = False  # True: shorter measurements and smaller pictures, for a quick run through
seed = 0

# %% [markdown]
# Try it: which line through the origin comes nearest to these six points, measured at right angles to the line? Change the slope
# and run the cell again until it says so. In Part 4 you compute the answer.

# %%
slope = 0.0  # change it
six = np.array([[-3.0, -2.0], [-2.0, -0.5], [-1.0, -1.2], [1.0, 0.2], [2.0, 1.9], [3.0, 1.6]])
across = np.array([-slope, 1.0]) / np.hypot(slope, 1.0)  # the direction at right angles to the line
loss = np.sum((six @ across) ** 2)
print(f"lost {loss:.2f} of {np.sum(six**2):.2f}: " + ("found it" if loss < 1.2 else "another line loses less"))

# %% [markdown]
# ## Two tables of points
#
# Every picture in this lab comes from two real tables, one point a row. **Digits**: 1,797 handwritten digits, 8 × 8 pixels
# of brightness 0 to 16, so 64 numbers each. **Words**: English words as a small sentence model
# (all-MiniLM-L6-v2) sees them, 384 numbers each. Rows are samples throughout: `X` has shape `[n, d]`.

# %%
digits, labels = lk.datasets.digits()
words, table = lk.datasets.words()
groups = lk.datasets.word_groups()
row = {word: i for i, word in enumerate(words)}
print(f"digits {digits.shape}, {digits.nbytes / 1e3:,.0f} kB · words {table.shape}, {table.nbytes / 1e6:.1f} MB")

# %% jupyter={"source_hidden": true}
BLUE, ORANGE, GREEN, GREY = "#3b82f6", "#f97316", "#10b981", "#8a8f98"


def gallery(images, titles, diverging=False):
    """Images [m, 64] side by side; `diverging` draws minus in one colour and plus in another."""
    images = np.asarray(images, dtype=float).reshape(-1, 8, 8)
    sheet = np.full((8, 9 * len(images) - 1), np.nan)
    for i, image in enumerate(images):
        sheet[:, 9 * i : 9 * i + 8] = image
    limit = np.nanmax(np.abs(sheet))
    scale, low = ("RdBu", -limit) if diverging else ("Greys", 0)
    figure = go.Figure(go.Heatmap(z=sheet, zmin=low, zmax=limit, colorscale=scale, showscale=False, hoverinfo="skip"))
    for i, title in enumerate(titles):
        figure.add_annotation(x=9 * i + 3.5, y=-1.2, text=title, showarrow=False)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, autorange="reversed", scaleanchor="x")
    figure.update_layout(height=170, margin={"l": 10, "r": 10, "t": 30, "b": 10})
    return figure


lk.show(
    gallery(digits[:10], [str(label) for label in labels[:10]]),
    summary="The first ten digits, 0 to 9, as 8 by 8 pixels.",
)

# %% [markdown]
# The next cell holds the record that every PCA in this lab returns, and what the tests use to compare answers. Two
# correct programs may return `v` and `−v`, or two different bases of one plane. So the tests never compare
# components entry by entry: they measure the **angle** between the subspaces that they span.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab02_helpers", "locked": true, "schema_version": 3, "solution": false, "task": false}
@dataclass(frozen=True)
class PCA:
    """mean [d]; components [d, k], orthonormal columns; variances [k] along them, largest first, divisor n − 1."""

    mean: np.ndarray
    components: np.ndarray
    variances: np.ndarray


def expect_that(holds, message):
    """Raise the error of a check unless the condition holds."""
    __tracebackhide__ = True
    if not holds:
        raise lk.checks.CheckError(message)


def expect_orthonormal(Q, shape, name="components"):
    """Q has this shape and orthonormal columns."""
    __tracebackhide__ = True
    Q = np.asarray(Q)
    expect_that(Q.shape == shape, f"{name}: expected shape {shape}, got {Q.shape}; one direction a column")
    expect_that(np.isfinite(Q).all(), f"{name}: {np.sum(~np.isfinite(Q))} of {Q.size} entries are NaN or infinite")
    worst = np.abs(Q.T @ Q - np.eye(shape[1])).max(initial=0.0)
    expect_that(worst < 1e-8, f"{name}: columns must be orthonormal, yet QᵀQ is off the identity by {worst:.1e}")


def subspace_angle(P, Q):
    """Sine of the largest angle between the spans of two orthonormal [d, k]: 0 if they are one, 1 at right angles."""
    return float(np.linalg.norm(P - Q @ (Q.T @ P), 2))


def expect_span(actual, expected, at_most=1e-6, name="components"):
    """`actual` is orthonormal and spans what `expected` [d, k] spans, to an angle whose sine is `at_most`."""
    __tracebackhide__ = True
    expect_orthonormal(actual, expected.shape, name)
    sine = subspace_angle(np.asarray(actual), expected)
    expect_that(
        sine <= at_most,
        f"{name}: another subspace; the sine of the angle is {sine:.1e}, at most {at_most:.0e} is allowed\n"
        "  next      are the vectors in the order of the values, and are they columns (eigh, the first result of svd) "
        "or rows (the third result of svd)?",
    )


def planted(rng, n, d, deviations, mean=0.0):
    """n samples in d dimensions whose standard deviations along a hidden orthonormal basis are exactly `deviations`.

    Returns X [n, d] and the basis V [d, r]. Exact because the scores are orthonormal and orthogonal to the ones vector.
    """
    deviations = np.asarray(deviations, dtype=float)
    scores = rng.standard_normal((n, len(deviations) + 1))
    scores[:, 0] = 1.0
    scores = np.linalg.qr(scores)[0][:, 1:]
    V = np.linalg.qr(rng.standard_normal((d, len(deviations))))[0]
    return np.sqrt(n - 1) * (scores * deviations) @ V.T + mean, V


def with_spectrum(rng, n, d, values):
    """A matrix [n, d] with these singular values and random singular vectors, and its right singular vectors [d, r]."""
    U = np.linalg.qr(rng.standard_normal((n, len(values))))[0]
    V = np.linalg.qr(rng.standard_normal((d, len(values))))[0]
    return (U * values) @ V.T, V


def diagonal(values):
    """The operator v -> values · v, for those who may see a matrix only through its products."""
    return lambda v: np.asarray(values) * v


def products(A):
    """The two passes over a matrix: W -> A W and Y -> Aᵀ Y."""
    return lambda W: A @ W, lambda Y: A.T @ Y


# %% [markdown]
# ## Part 1 · Project, without the projection matrix
#
# A subspace is what you can reach by mixing a few vectors, the columns of `basis` $B \in \mathbb{R}^{d \times k}$. The
# point of it nearest to $x$ is $Bc$ for some $c$, and *nearest* means that the error is orthogonal to every column:
#
# $$B^\top (x - Bc) = 0 \;\Longrightarrow\; c = (B^\top B)^{-1} B^\top x, \qquad P = B (B^\top B)^{-1} B^\top .$$
#
# $P$ is idempotent, $P^2 = P$: what lies in the subspace stays where it is. It is also a $d \times d$ matrix, and that is
# where data movement enters. You never need $P$. You need $Px$, and brackets are free.

# %% [markdown]
# ### Task 1 · Project onto a subspace
# *8 points · 8 minutes · ●○○○*
#
# Return the nearest point of the subspace for each row of `X`, without an array of $d \times d$ numbers.

# %%
lk.predict("project")


# %% nbgrader={"grade": false, "grade_id": "project", "locked": false, "schema_version": 3, "solution": true, "task": false}
def project(X, basis):
    """The nearest point of span(basis) to each row of X.

    X [n, d]; basis [d, k], columns linearly independent but neither orthogonal nor of unit length; two of them may be
    0.001 rad apart. Returns [n, d].
    No array of d × d numbers may ever be alive.

    >>> project(np.array([[3.0, 4.0, 5.0]]), np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]))   # the x-y plane
    array([[3., 4., 0.]])
    """
    ### BEGIN SOLUTION
    Q, _ = np.linalg.qr(basis)  # same span, orthonormal columns: (BᵀB)⁻¹ becomes the identity
    return (X @ Q) @ Q.T
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "project_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
plane = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])  # skewed on purpose: its columns are not orthogonal
points = np.array([[3.0, 4.0, 5.0], [1.0, -2.0, 7.0]])
expected = np.array([[3.0, 4.0, 0.0], [1.0, -2.0, 0.0]])
unit = plane / np.linalg.norm(plane, axis=0)
slips = {
    "this is B Bᵀ x. Only an orthonormal basis needs no (BᵀB)⁻¹": points @ plane @ plane.T,
    "columns of length 1 are not enough. They must also be orthogonal to each other": points @ unit @ unit.T,
    "this is the error x − Px, and the point Px is wanted": points - expected,
    "these are the points themselves. The columns used span all of space: take the reduced QR": points.copy(),
}
lk.checks.expect_close(project(points, plane), expected, slips=slips, name="two points' shadows on the x-y plane")
# Both points of the line are (1, 1, 1, 1) times the mean of the point's four numbers.
line = np.full((4, 1), 5.0)
lk.checks.expect_close(
    project(np.array([[1.0, 2.0, 3.0, 6.0]]), line), np.full((1, 4), 3.0), name="a line, its basis not of length 1"
)
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(211)
# (n, d, k): ragged; one sample; a line; the whole space, where nothing may change; fewer samples than directions
for n, d, k in [(7, 5, 3), (1, 6, 2), (9, 4, 1), (5, 3, 3), (2, 12, 8)]:
    X, basis = rng.standard_normal((n, d)), rng.standard_normal((d, k))
    got = project(X.copy(), basis.copy())
    # least squares is the same question, asked and answered another way
    nearest = (basis @ np.linalg.lstsq(basis, X.T, rcond=None)[0]).T
    lk.checks.expect_close(got, nearest, rtol=1e-9, atol=1e-9, name=f"project, n={n} d={d} k={k}")
    lk.checks.expect_close((X - got) @ basis, np.zeros((n, k)), atol=1e-9, name="error times basis, orthogonal")
    lk.checks.expect_close(
        project(got.copy(), basis.copy()), got, rtol=1e-9, atol=1e-9, name="projecting twice, idempotent"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "project_test_bases", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# The subspace is what counts: stretch and mix its basis, and nothing changes.
stretched = np.array([[1e-3, 500.0], [0.0, 500.0], [0.0, 0.0]])
expected = np.array([[3.0, 4.0, 0.0]])
lk.checks.expect_close(project(np.array([[3.0, 4.0, 5.0]]), stretched), expected, name="another basis of the x-y plane")
# Columns 0.001 rad apart: still a plane, and a float64 solver has digits to spare.
close = np.array([[1.0, 1.0], [0.0, 1e-3], [0.0, 0.0]])
lk.checks.expect_close(
    project(np.array([[1.0, 2.0, 3.0]]), close), np.array([[1.0, 2.0, 0.0]]), atol=1e-7, name="nearly parallel columns"
)
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(213)
for n, d, k in [(7, 5, 3), (2, 12, 8)]:
    X, basis = rng.standard_normal((n, d)), rng.standard_normal((d, k))
    nearest = (basis @ np.linalg.lstsq(basis, X.T, rcond=None)[0]).T
    mixed = basis @ (rng.standard_normal((k, k)) + 3 * np.eye(k)) * 1e-3
    lk.checks.expect_close(
        project(X.copy(), mixed), nearest, rtol=1e-7, atol=1e-8, name="another basis of one subspace"
    )
lk.checks.expect_close(project(np.zeros((2, 3)), close), np.zeros((2, 3)), name="the zero vector")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "project_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# d = 2,048 and k = 3: the answer is 131 kB, the projection matrix would be 34 MB.
rng = np.random.default_rng(212)
tall = rng.standard_normal((2048, 3))
few = rng.standard_normal((8, 2048))
nearest = (tall @ np.linalg.lstsq(tall, few.T, rcond=None)[0]).T
shadows = lk.checks.expect_peak(project, few, tall, at_most_bytes=4_000_000)
# a budget proves nothing about an answer that is not one
lk.checks.expect_close(shadows, nearest, rtol=1e-9, atol=1e-9, name="project, d=2048 k=3")

# %% jupyter={"source_hidden": true}
with lk.picture("Every dotted error meets the line at a right angle: that is all that “nearest” means."):
    rng = np.random.default_rng(seed)
    cloud = rng.standard_normal((24, 2)) @ np.array([[2.0, 0.6], [0.0, 0.7]])
    axis = np.array([[2.0], [1.0]])
    feet = project(cloud, axis)
    pairs = np.stack([cloud, feet, np.full_like(cloud, np.nan)], axis=1).reshape(-1, 2)  # NaN lifts the pen
    figure = go.Figure(
        [
            go.Scatter(x=[-6, 6], y=[-3, 3], mode="lines", line={"color": GREY}, name="span(basis)"),
            go.Scatter(x=pairs[:, 0], y=pairs[:, 1], mode="lines", line={"color": GREY, "dash": "dot"}, name="error"),
            go.Scatter(x=cloud[:, 0], y=cloud[:, 1], mode="markers", marker={"color": BLUE, "size": 8}, name="x"),
            go.Scatter(x=feet[:, 0], y=feet[:, 1], mode="markers", marker={"color": ORANGE, "size": 8}, name="Px"),
        ]
    )
    figure.update_yaxes(scaleanchor="x", range=[-3.2, 3.2])
    figure.update_layout(height=360)
    lk.show(
        figure, summary="24 points and their projections onto the line y = x/2; the errors are perpendicular to it."
    )

# %% [markdown]
# ## Part 2 · Covariance, and the mean that spoils it
#
# Which subspace is worth projecting onto? The one along which the data varies. With $\bar x$ the mean row,
#
# $$\Sigma = \frac{1}{n-1} \sum_{i=1}^{n} (x_i - \bar x)(x_i - \bar x)^\top \in \mathbb{R}^{d \times d}.$$
#
# Textbooks rewrite this as $\overline{x x^\top} - \bar x \bar x^\top$: one pass instead of two. Algebra agrees.
# Floating-point arithmetic does not.

# %% [markdown]
# ### Task 2 · A covariance that survives its mean
# *8 points · 8 minutes · ●●○○*
#
# Write it so that pixels in bytes and columns far from zero come out right.

# %%
lk.predict("covariance")


# %% nbgrader={"grade": false, "grade_id": "covariance", "locked": false, "schema_version": 3, "solution": true, "task": false}
def covariance(X):
    """Sample covariance of the rows of X [n, d] with divisor n − 1. Returns float64 [d, d]; X stays as it was.

    X may be of any real dtype, uint8 pixels included. Raises ValueError for fewer than two rows.

    >>> covariance(np.array([[0.0, 0.0], [2.0, 4.0]]))
    array([[2., 4.],
           [4., 8.]])
    """
    ### BEGIN SOLUTION
    n = X.shape[0]
    if n < 2:
        raise ValueError(f"covariance needs at least 2 rows, got {n}")
    centred = X - X.mean(axis=0, dtype=np.float64)
    return centred.T @ centred / (n - 1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "covariance_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Two points, four points with a constant column, and one column; X stays as it was.
two = np.array([[0.0, 0.0], [2.0, 4.0]])
expected = np.array([[2.0, 4.0], [4.0, 8.0]])
centred = two - np.array([1.0, 2.0])
slips = {
    "the divisor is n, and n − 1 is wanted": expected / 2,
    "the mean is still in it. Take the mean row away first": two.T @ two,
    "one mean of all numbers was taken away. Each column has its own: mean(axis=0)": (two - 1.5).T @ (two - 1.5),
    "the mean of each row was taken away. Each column has its own: mean(axis=0)": np.array([[1.0, -1.0], [-1.0, 1.0]]),
    "rows were taken for columns. Samples are rows: np.cov needs rowvar=False": np.cov(two),
    "this is C Cᵀ, rows by rows. CᵀC is wanted, columns by columns": centred @ centred.T,
}
lk.checks.expect_close(covariance(two), expected, slips=slips, name="two points")
points = np.array([[1.0, 7.0, 0.0], [2.0, 7.0, 3.0], [4.0, 7.0, 0.0], [5.0, 7.0, 3.0]])
expected = np.array([[10 / 3, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
lk.checks.expect_close(covariance(points), expected, name="four points, one column constant")
untouched = np.array([[1.0, 7.0, 0.0], [2.0, 7.0, 3.0], [4.0, 7.0, 0.0], [5.0, 7.0, 3.0]])
expect_that(np.array_equal(points, untouched), "X itself was changed. Centre into a new array: X - mean, not X -= mean")
lk.checks.expect_close(covariance(np.array([[1.0], [3.0]])), np.array([[2.0]]), name="one column, a 1 by 1 matrix")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(221)
# more rows than columns; fewer (rank deficient); one column; the fewest rows there can be
for n, d in [(20, 3), (4, 9), (11, 1), (2, 5)]:
    deviations = rng.uniform(0.5, 3.0, min(n - 1, d))
    X, V = planted(rng, n, d, deviations, mean=rng.standard_normal(d))
    before = X.copy()
    lk.checks.expect_close(
        covariance(X), V * deviations**2 @ V.T, rtol=1e-9, atol=1e-9, name=f"covariance, n={n} d={d}"
    )
    lk.checks.expect_close(X, before, rtol=0, atol=0, name="X after the call")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "covariance_test_pixels", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
pixels = np.array([[0, 255], [200, 100], [100, 5]], dtype=np.uint8)  # a product of two bytes does not fit into a byte
expected = np.array([[10_000.0, -7_750.0], [-7_750.0, 15_925.0]])
mean = pixels.mean(axis=0)
wrapped = (pixels.T @ pixels - 3 * np.outer(mean, mean)) / 2
slips = {"a product of two bytes was kept in one byte, which ends at 255. Convert to float64 first": wrapped}
lk.checks.expect_close(covariance(pixels), expected, slips=slips, name="uint8 pixels", rtol=1e-9)
for dtype in (np.float32, np.float16):  # float16 ends at 65,504, and the sums of squares do not
    name = f"float64 from pixels in {dtype.__name__}"
    lk.checks.expect_close(covariance(pixels.astype(dtype)), expected, dtype="float64", rtol=1e-9, name=name)
### BEGIN HIDDEN TESTS
pixels = np.random.default_rng(223).integers(0, 256, (30, 4), dtype=np.uint8)
lk.checks.expect_close(covariance(pixels), np.cov(pixels.astype(float), rowvar=False), rtol=1e-9, name="uint8 pixels")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "covariance_test_one_row", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_raises(ValueError, covariance, np.ones((1, 3)))  # one sample has no spread to estimate: n − 1 is 0
### BEGIN HIDDEN TESTS
lk.checks.expect_raises(ValueError, covariance, np.array([[5.0]]))
lk.checks.expect_raises(ValueError, covariance, np.ones((0, 3)))
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "covariance_test_offset", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Seconds since 1970, pressures in pascal, token ids: real columns sit far from zero. Spread 1 around a mean of ten million.
rng = np.random.default_rng(222)
X, V = planted(rng, 50, 3, [1.0, 0.5, 0.25], mean=1e7)
lk.checks.expect_close(
    covariance(X),
    V * np.array([1.0, 0.25, 0.0625]) @ V.T,
    name="covariance far from zero",
    otherwise="squares of 1e7 are 1e14 and leave no digits for the spread. Centre in float64 first, then multiply",
    rtol=0,
    atol=1e-6,
)

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Covariance of the 64 pixels. The grid of period 8 is the image's own rows: a pixel varies with the one below it."
):
    figure = go.Figure(go.Heatmap(z=covariance(digits), colorscale="RdBu", zmid=0, colorbar={"title": "pixel²"}))
    figure.update_yaxes(autorange="reversed", scaleanchor="x", title="pixel")
    figure.update_xaxes(title="pixel", constrain="domain")
    figure.update_layout(height=420)
    lk.show(figure, summary="Heat map of the 64 by 64 covariance of digit pixels; bands repeat every 8 pixels.")

# %% [markdown]
# ## Part 3 · What a subspace keeps, and what it loses
#
# Let the columns of $Q$ be orthonormal. Pythagoras splits every centred row into what $Q$ keeps and what it loses,
# $\|x\|^2 = \|Q^\top x\|^2 + \|x - QQ^\top x\|^2$. Average over rows, and since $\|Q^\top x\|^2 = \operatorname{Tr}(Q^\top x x^\top Q)$,
#
# $$\frac{1}{n-1}\sum_i \|Q^\top x_i\|^2 = \operatorname{Tr}(Q^\top \Sigma\, Q) = \sum_j q_j^\top \Sigma\, q_j .$$
#
# Read it from right to left: the variance that a subspace captures can be had **without ever forming $\Sigma$**.

# %% [markdown]
# ### Task 3 · What is kept, and what is lost
# *8 points · 10 minutes · ●●○○*
#
# Compute both parts without $\Sigma$.

# %%
lk.predict("variance_split")

# %% [markdown]
# Now turn the direction through 300 of the digits, seen on their three leading axes, and watch the two parts. Their sum is the variance along these
# three axes. The other 61 axes, which the picture leaves out, hold nearly half of all the variance.

# %%
lk.widgets.pca(digits[:300])


# %% nbgrader={"grade": false, "grade_id": "variance_split", "locked": false, "schema_version": 3, "solution": true, "task": false}
def variance_split(X, Q):
    """Variance that a subspace keeps, direction by direction, and the variance that it loses.

    X [n, d], n ≥ 2, not centred; Q [d, k] with orthonormal columns. Returns (along [k], lost): the sample variance
    (divisor n − 1) along each column of Q, and the variance of the rest as one number, never below 0.
    No array of d × d numbers may ever be alive; a few the size of X may.

    >>> variance_split(np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([[1.0], [0.0]]))   # total 10 = 2 along x + 8 lost
    (array([2.]), 8.0)
    """
    ### BEGIN SOLUTION
    centred = X - X.mean(axis=0)
    coordinates = centred @ Q
    along = np.einsum("nk,nk->k", coordinates, coordinates) / (len(X) - 1)
    total = np.einsum("nd,nd->", centred, centred) / (len(X) - 1)
    return along, max(float(total - along.sum()), 0.0)  # rounding may leave −1e-16 where nothing is lost
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "variance_split_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The example of the docstring, then two directions in space.
along, lost = variance_split(np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([[1.0], [0.0]]))
slips = {
    "the mean is still in it. Take the mean row away first": np.array([4.0]),
    "the divisor is n, and n − 1 is wanted": np.array([1.0]),
    "this is the standard deviation, the root of the variance": np.array([2**0.5]),
}
lk.checks.expect_close(along, np.array([2.0]), slips=slips, name="variance along x")
slips = {
    "this is the total, kept and lost": 10.0,
    "the divisor is n, and n − 1 is wanted": 4.0,
    "the mean is still in it. Take the mean row away first": 16.0,
    "the mean is still in the rest. Take the projection away from the centred rows": 18.0,
    "one variance of all numbers was taken. Add up the squares of the rest, over n − 1": 8 / 3,
}
lk.checks.expect_close(lost, 8.0, slips=slips, name="variance lost")
corners = np.array([[1.0, 0.0, 5.0], [3.0, 0.0, 5.0], [1.0, 4.0, 8.0], [3.0, 4.0, 8.0]])
along, lost = variance_split(corners, np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
lk.checks.expect_close(along, np.array([16 / 3, 4 / 3]), name="variance along y and x of four points in space")
lk.checks.expect_close(lost, 3.0, name="variance lost, along z")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(231)
# ragged; two samples; more dimensions than samples; a single direction
for n, d, k in [(30, 6, 2), (2, 4, 3), (5, 17, 4), (12, 3, 1)]:
    X = rng.standard_normal((n, d)) * rng.uniform(0.2, 4.0, d) + rng.uniform(-50, 50, d)
    Q = np.linalg.qr(rng.standard_normal((d, k)))[0]
    sigma = np.cov(X, rowvar=False)
    along, lost = variance_split(X.copy(), Q.copy())
    lk.checks.expect_close(along, np.diag(Q.T @ sigma @ Q), rtol=1e-9, atol=1e-9, name=f"qᵀΣq, n={n} d={d} k={k}")
    residual = X - X.mean(0) - (X - X.mean(0)) @ Q @ Q.T
    lk.checks.expect_close(lost, np.sum(residual**2) / (n - 1), rtol=1e-8, atol=1e-8, name="variance of the residual")
    # turning the basis inside its own span shares the variance out differently and keeps the sum
    turned, still = variance_split(X.copy(), Q @ np.linalg.qr(rng.standard_normal((k, k)))[0])
    lk.checks.expect_close(
        np.sum(turned), np.trace(Q.T @ sigma @ Q), rtol=1e-9, name="the trace, which does not see the basis"
    )
    lk.checks.expect_close(still, lost, rtol=1e-8, atol=1e-8, name="variance lost, same span")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "variance_split_test_whole", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# The whole space loses nothing, and rounding must not make that a little less than nothing.
rng = np.random.default_rng(233)
for _ in range(20):
    X = rng.standard_normal((9, 5)) * 10.0 ** rng.integers(-3, 4)
    limit = 1e-12 * np.sum(X**2)
    lost = variance_split(X, np.linalg.qr(rng.standard_normal((5, 5)))[0])[1]
    expect_that(lost >= 0, f"lost: the whole space loses nothing, yet rounding left {lost:.1e}. Clip at 0")
    expect_that(lost <= limit, f"lost: the whole space loses nothing, so expected 0 up to rounding, got {lost:.1e}")
### BEGIN HIDDEN TESTS
for d in (2, 3, 7) * 5:
    X = rng.standard_normal((6, d)) * 10.0 ** rng.integers(-3, 4)
    limit = 1e-12 * np.sum(X**2)
    lost = variance_split(X, np.linalg.qr(rng.standard_normal((d, d)))[0])[1]
    assert 0 <= lost <= limit, f"lost: the whole space of {d} dimensions loses nothing, got {lost}"
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "variance_split_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 40 rows of 2,048: X is 0.66 MB, its covariance would be 34 MB.
rng = np.random.default_rng(232)
wide = rng.standard_normal((40, 2048))
frame = np.linalg.qr(rng.standard_normal((2048, 2)))[0]
expected = np.var(wide @ frame, axis=0, ddof=1)
along, lost = lk.checks.expect_peak(variance_split, wide, frame, at_most_bytes=4_000_000)
lk.checks.expect_close(along, expected, rtol=1e-9, name="variance along two directions")

# %% [markdown]
# ## Part 4 · PCA by eigendecomposition
#
# Which $k$ orthonormal directions keep the most? Write $\Sigma = \sum_j \lambda_j v_j v_j^\top$, $\lambda_1 \ge \lambda_2 \ge \dots$
# For any $Q$ the share of $v_j$ that it covers is $s_j = \|Q^\top v_j\|^2 \in [0, 1]$, and the shares add up to $k$. So
#
# $$\operatorname{Tr}(Q^\top \Sigma\, Q) = \sum_j \lambda_j s_j \;\le\; \lambda_1 + \dots + \lambda_k ,$$
#
# because the shares, $k$ in all and at most 1 each, do best on the largest $\lambda_j$. Equality for $Q = [v_1 \dots v_k]$: the top eigenvectors are optimal, and what
# is lost is the tail $\lambda_{k+1} + \dots + \lambda_d$. That is the whole theorem.

# %% [markdown]
# ### Task 4 · The top eigenvectors
# *10 points · 10 minutes · ●●○○*
#
# Turn the theorem into code, and mind what rounding does to an eigenvalue that is zero.

# %%
lk.predict("pca_eigh")


# %% nbgrader={"grade": false, "grade_id": "pca_eigh", "locked": false, "schema_version": 3, "solution": true, "task": false}
def pca_eigh(X, k):
    """The k leading principal components of X [n, d], n ≥ 2, from the eigenvectors of its covariance.

    Returns PCA(mean [d], components [d, k], variances [k]), largest variance first, none negative.
    Raises ValueError if k > d. X stays as it was.

    >>> pca_eigh(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), 1).variances   # three points on a line, 5 apart
    array([25.])
    """
    ### BEGIN SOLUTION
    n, d = X.shape
    if k > d:
        raise ValueError(f"asked for {k} components in {d} dimensions")
    mean = X.mean(axis=0)
    centred = X - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / (n - 1))  # ascending
    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pca_eigh_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# Three points on a line, then a spectrum that is known.
line = pca_eigh(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), 1)
slips = {
    "this is the smallest one. eigh sorts from the smallest to the largest": np.array([0.0]),
    "this is the standard deviation. Eigenvalues of a covariance are variances already": np.array([5.0]),
    "the mean is still in it. Take the mean row away first": np.array([62.5]),
    "the divisor is n, and n − 1 is wanted": np.array([50 / 3]),
}
lk.checks.expect_close(line.variances, np.array([25.0]), slips=slips, name="variance along the line", atol=1e-12)
lk.checks.expect_close(line.mean, np.array([3.0, 4.0]), name="mean")
expect_span(line.components, np.array([[0.6], [0.8]]))
# A planted spectrum, so that the answer is known by construction.
X, V = planted(np.random.default_rng(240), 30, 5, [4.0, 3.0, 2.0, 1.0], mean=2.0)
got = pca_eigh(X, 3)
lk.checks.expect_close(got.variances, np.array([16.0, 9.0, 4.0]), rtol=1e-8, name="variances, largest first")
expect_span(np.asarray(got.components)[:, :1], V[:, :1], name="first component")
expect_span(got.components, V[:, :3], name="all three components")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(241)
# tall; square; k = d; one dimension; far from the origin
for n, d, deviations, k, mean in [
    (40, 6, [4.0, 3.0, 2.0, 1.0, 0.5, 0.2], 3, 0.0),
    (7, 6, [5.0, 3.0, 2.0, 1.0, 0.7, 0.3], 6, 2.0),
    (25, 1, [3.0], 1, -4.0),
    (30, 10, [2.0, 1.5, 1.0, 0.5], 4, 100.0),
]:
    X, V = planted(rng, n, d, deviations, mean)
    got = pca_eigh(X, k)
    lk.checks.expect_close(got.mean, np.full(d, mean), rtol=1e-9, atol=1e-9, name="mean")
    lk.checks.expect_close(
        got.variances, np.square(deviations)[:k], rtol=1e-7, atol=1e-9, name=f"variances, n={n} d={d} k={k}"
    )
    expect_orthonormal(got.components, (d, k))
    for j in range(1, k + 1):  # each prefix must be the best subspace of its size: the order counts
        expect_span(np.asarray(got.components)[:, :j], V[:, :j], name=f"first {j} components")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "pca_eigh_test_rank", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Fewer samples than dimensions: the covariance has rank n − 1 and its other eigenvalues are zero, give or take rounding.
# A variance below zero would turn into NaN at the first square root.
rng = np.random.default_rng(242)
for n, d in [(4, 12), (2, 6), (3, 30)]:
    X, V = planted(rng, n, d, np.linspace(2.0, 1.0, n - 1), mean=5.0)
    got = pca_eigh(X, d)
    expect_orthonormal(got.components, (d, d))
    expect_span(np.asarray(got.components)[:, : n - 1], V, name="components with variance")
    expect_that(
        np.min(got.variances) >= 0,
        f"variances: the least is {np.min(got.variances):.1e}, and none may be negative. Clip at 0",
    )
    lk.checks.expect_close(
        np.asarray(got.variances)[n - 1 :], np.zeros(d - n + 1), atol=1e-10, name="variances beyond the rank"
    )
### BEGIN HIDDEN TESTS
for n, d in [(5, 9), (2, 20)]:
    X, V = planted(rng, n, d, np.linspace(3.0, 1.0, n - 1), mean=-7.0)
    got = pca_eigh(X, d)
    expect_span(np.asarray(got.components)[:, : n - 1], V, name="components with variance")
    assert np.min(got.variances) >= 0, f"variances: a variance cannot be negative, got {np.min(got.variances):.1e}"
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "pca_eigh_test_equal", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# All rows alike: no direction has any variance, and the components must be orthonormal all the same.
still = pca_eigh(np.full((5, 4), 2.5), 3)
lk.checks.expect_close(still.variances, np.zeros(3), name="variances of five equal rows")
expect_orthonormal(still.components, (4, 3))
# A repeated eigenvalue: any basis of that plane will do, and only of that plane.
X, V = planted(np.random.default_rng(243), 30, 5, [3.0, 2.0, 2.0, 0.5], mean=1.0)
got = pca_eigh(X, 3)
lk.checks.expect_close(got.variances, np.array([9.0, 4.0, 4.0]), rtol=1e-8, name="variances with a repeated one")
expect_span(got.components, V[:, :3], name="all three components")
### BEGIN HIDDEN TESTS
X, V = planted(np.random.default_rng(244), 20, 6, [2.0, 2.0, 1.0], mean=-3.0)
got = pca_eigh(X, 2)
lk.checks.expect_close(got.variances, np.array([4.0, 4.0]), rtol=1e-8, name="variances with a repeated one")
expect_span(got.components, V[:, :2], name="both components")
still = pca_eigh(np.full((2, 3), -8.0), 3)
lk.checks.expect_close(still.variances, np.zeros(3), name="variances of two equal rows")
expect_orthonormal(still.components, (3, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "pca_eigh_test_refused", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# More components than dimensions are refused, and X stays as it was.
lk.checks.expect_raises(ValueError, pca_eigh, np.ones((3, 2)), 3)
points = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
untouched = points.copy()
pca_eigh(points, 2)
expect_that(np.array_equal(points, untouched), "X itself was changed. Centre into a new array: X - mean, not X -= mean")
### BEGIN HIDDEN TESTS
lk.checks.expect_raises(ValueError, pca_eigh, np.ones((9, 1)), 2)
X = np.random.default_rng(245).standard_normal((8, 3))
before = X.copy()
pca_eigh(X, 1)
lk.checks.expect_equal(X, before, name="X after the call")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "The first eight principal directions: strokes that, added to the mean with either sign, make digits. Above: share of the variance."
):
    found = pca_eigh(digits, 64)
    share = found.variances / found.variances.sum()
    lk.show(
        gallery(found.components[:, :8].T, [f"{100 * s:.0f} %" for s in share[:8]], diverging=True),
        summary=f"Eight components as images; they hold {100 * share[:8].sum():.0f} % of the variance.",
    )

# %% [markdown]
# ## Part 5 · PCA by SVD: no covariance
#
# With $X_c = U S V^\top$ the covariance is $V S^2 V^\top / (n-1)$: the right singular vectors *are* the components. Why bother?
# Two reasons, and both get marks. $\Sigma$ holds the **squares** of the singular values, and what that does to the digits is the
# question below. And if $d \gg n$ the **bytes** of $\Sigma$ dwarf those of the data.

# %% [markdown]
# ### Task 5 · Components without a covariance
# *10 points · 8 minutes · ●●○○*
#
# The same three fields as before, from the data themselves.

# %%
lk.predict("pca_svd")


# %% nbgrader={"grade": false, "grade_id": "pca_svd", "locked": false, "schema_version": 3, "solution": true, "task": false}
def pca_svd(X, k):
    """The k leading principal components of X [n, d], n ≥ 2, from the thin SVD of the centred data; no covariance.

    Returns PCA(mean [d], components [d, k], variances [k]), largest first. Raises ValueError if k > min(n, d).

    >>> pca_svd(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), 1).variances
    array([25.])
    """
    ### BEGIN SOLUTION
    n, d = X.shape
    if k > min(n, d):
        raise ValueError(f"asked for {k} components of a {n} by {d} matrix, which has {min(n, d)}")
    mean = X.mean(axis=0)
    _, singular, Vt = np.linalg.svd(X - mean, full_matrices=False)
    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / (n - 1))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pca_svd_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Three points on a line, then a spectrum that is known.
line = pca_svd(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), 1)
slips = {
    "this is a singular value. Variances are their squares over n − 1": np.array([50**0.5]),
    "singular values must be squared": np.array([50**0.5 / 2]),
    "the squares of the singular values must be divided by n − 1": np.array([50.0]),
    "the mean is still in it. Take the mean row away first": np.array([62.5]),
    "the divisor is n, and n − 1 is wanted": np.array([50 / 3]),
}
lk.checks.expect_close(line.variances, np.array([25.0]), slips=slips, name="variance along the line")
lk.checks.expect_close(line.mean, np.array([3.0, 4.0]), name="mean")
expect_span(line.components, np.array([[0.6], [0.8]]))
X, V = planted(np.random.default_rng(250), 30, 5, [4.0, 3.0, 2.0, 1.0], mean=2.0)
got = pca_svd(X, 3)
lk.checks.expect_close(got.variances, np.array([16.0, 9.0, 4.0]), rtol=1e-9, name="variances, largest first")
expect_span(np.asarray(got.components)[:, :1], V[:, :1], name="first component")
expect_span(got.components, V[:, :3], name="all three components")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(251)
# tall; wide, where thin means n; square and complete; one column
for n, d, deviations, k in [
    (40, 6, [4.0, 3.0, 2.0, 1.0, 0.5, 0.2], 3),
    (5, 20, [3.0, 2.0, 1.0, 0.5], 4),
    (7, 6, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 6),
    (9, 1, [2.0], 1),
]:
    mean = rng.uniform(-20, 20, d)
    X, V = planted(rng, n, d, deviations, mean)
    got = pca_svd(X.copy(), k)
    lk.checks.expect_close(got.mean, mean, rtol=1e-9, atol=1e-9, name="mean")
    lk.checks.expect_close(got.variances, np.square(deviations)[:k], rtol=1e-9, name=f"variances, n={n} d={d} k={k}")
    for j in range(1, k + 1):
        expect_span(np.asarray(got.components)[:, :j], V[:, :j], name=f"first {j} components")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "pca_svd_test_edges", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
for shape, k in [((3, 9), 4), ((9, 3), 4)]:  # more directions than there are, on either side
    lk.checks.expect_raises(ValueError, pca_svd, np.ones(shape), k)
# equal rows: zero variance, and still orthonormal directions
still = pca_svd(np.full((4, 6), -1.5), 3)
lk.checks.expect_close(still.variances, np.zeros(3), name="variances of equal rows")
expect_orthonormal(still.components, (6, 3))
### BEGIN HIDDEN TESTS
for shape, k in [((2, 5), 3), ((5, 2), 3)]:
    lk.checks.expect_raises(ValueError, pca_svd, np.ones(shape), k)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "pca_svd_test_precision", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# One direction a billion times quieter than the loudest: its variance is 1e-18 of the largest, below float64's 2e-16.
rng = np.random.default_rng(252)
X, V = planted(rng, 60, 4, [1.0, 1e-3, 1e-6, 1e-9])
got = pca_svd(X, 4)
lk.checks.expect_close(
    np.sqrt(np.maximum(got.variances, 0.0)),
    np.array([1.0, 1e-3, 1e-6, 1e-9]),
    name="standard deviations",
    otherwise="the quiet direction is lost: a covariance, a Gram matrix X Xᵀ or float32 is on the way. Take the SVD of the data",
    rtol=1e-4,
    atol=0,
)

# %% nbgrader={"grade": true, "grade_id": "pca_svd_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 24 rows of 2,048: the data is 0.4 MB; a 2,048 × 2,048 anything is 34 MB.
rng = np.random.default_rng(253)
wide, V = planted(rng, 24, 2048, [3.0, 2.0, 1.0], mean=1.0)
got = lk.checks.expect_peak(pca_svd, wide, 3, at_most_bytes=6_000_000)
expect_span(got.components, V, name="components of 24 wide rows")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Deviations fall by ten each. Squared, what is below 1e-8 of the largest drowns in rounding (a 0 has no mark); SVD carries on."
):
    true = 10.0 ** -np.arange(13.0)
    X, _ = planted(np.random.default_rng(seed), 60, 13, true)
    figure = go.Figure(go.Scatter(y=true, mode="lines", line={"color": GREY, "dash": "dot"}, name="truth"))
    looks = {"size": 14, "color": ORANGE, "symbol": "square-open"}, {"size": 7, "color": BLUE}
    for fit, marker, name in zip((pca_eigh, pca_svd), looks, ("eigh of Σ", "SVD of X"), strict=True):
        seen = np.sqrt(fit(X, 13).variances)
        figure.add_scatter(y=np.where(seen > 0, seen, np.nan), mode="markers", marker=marker, name=name)
    figure.update_yaxes(type="log", exponentformat="power", title="standard deviation found")
    figure.update_xaxes(title="component")
    figure.update_layout(height=360)
    lk.show(figure, summary="SVD follows the true deviations down to 1e-12; eigh of the covariance is lost below 1e-8.")

# %% [markdown]
# ## Part 6 · The error is the tail
#
# Keep $k$ coordinates a row, throw the rest away, build the rows again: the mean squared error you will measure is the
# sum of the variances you dropped. **Not about: equal.** So you can choose $k$ from the spectrum alone, and know
# the loss before you have compressed one row.

# %% [markdown]
# ### Task 6 · How many directions?
# *6 points · 12 minutes · ●●●○*
#
# Find the smallest $k$ that keeps a given share, and sum the tail from its small end.

# %%
lk.predict("rank_for")


# %% nbgrader={"grade": false, "grade_id": "rank_for", "locked": false, "schema_version": 3, "solution": true, "task": false}
def rank_for(variances, keep):
    """The smallest k whose first k directions lose at most the share 1 − keep of the variance.

    variances [d], largest first, none negative. keep is a share from 0 to 1: at 0 nothing has to stay, and at 1 every
    direction stays that has any variance, however little. Compare without a tolerance.
    Returns an int from 0 to d. Raises ValueError if keep lies outside [0, 1].

    >>> rank_for(np.array([4.0, 2.0, 1.0, 1.0]), 0.75)   # the tail 1 + 1 is a quarter of 8
    2
    """
    ### BEGIN SOLUTION
    if not 0 <= keep <= 1:
        raise ValueError(f"keep is a share from 0 to 1, got {keep}")
    # tail[k] is lost by keeping k. Summed from its small end: a tiny tail must not drown in the head.
    tail = np.append(np.cumsum(variances[::-1])[::-1], 0.0)
    return int(np.argmax(tail <= (1 - keep) * tail[0]))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "rank_for_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
spectrum = np.array([4.0, 2.0, 1.0, 1.0])
for keep, k in [(0.5, 1), (0.75, 2), (0.76, 3), (1.0, 4)]:
    lk.checks.expect_equal(rank_for(spectrum, keep), k, name=f"rank that keeps {keep:.0%} of [4, 2, 1, 1]")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(261)
# the theorem itself, on data: rebuilding from k directions stays within the budget and from k − 1 does not
for n, d in [(50, 8), (6, 20)]:
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 3.0, d)
    X -= X.mean(axis=0)
    U, S, Vt = np.linalg.svd(X, full_matrices=False)
    for keep in (0.3, 0.8, 0.95):
        k = rank_for(S**2 / (n - 1), keep)
        budget = (1 - keep) * np.sum(X**2)
        assert 1 <= k <= len(S), f"rank: expected 1 to {len(S)}, got {k}"
        assert np.sum((X - X @ Vt[:k].T @ Vt[:k]) ** 2) <= budget, f"k={k} loses more than {1 - keep:.0%} of the energy"
        assert np.sum((X - X @ Vt[: k - 1].T @ Vt[: k - 1]) ** 2) > budget, (
            f"k={k} is not the smallest that keeps {keep:.0%}"
        )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "rank_for_test_none", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
k = rank_for(np.array([4.0, 2.0]), 0.0)
expect_that(k == 0, f"rank when nothing has to stay: expected 0, got {k}. Begin the search with no direction at all")
lk.checks.expect_equal(rank_for(np.array([4.0, 2.0, 0.0, 0.0]), 1.0), 2, name="rank, with directions of no variance")
lk.checks.expect_equal(rank_for(np.zeros(5), 0.9), 0, name="rank of data without variance")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(rank_for(np.zeros(2), 1.0), 0, name="rank of data without variance")
lk.checks.expect_equal(rank_for(np.array([3.0]), 0.1), 1, name="rank in one dimension")
lk.checks.expect_equal(rank_for(np.array([1.0, 0.0]), 0.0), 0, name="rank when nothing has to stay")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "rank_for_test_quiet", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1 + 1e-17 rounds to 1: a tail found as total minus head would be 0 one direction too early.
k = rank_for(np.array([1.0, 1e-17]), 1.0)
expect_that(
    k == 2,
    f"rank that keeps a very quiet direction: expected 2, got {k}\n"
    "  next      sum what is lost from its small end, without a subtraction (total minus head) and without a tolerance",
)
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(rank_for(np.array([8.0, 1e-16, 1e-17]), 1.0), 3, name="rank that keeps very quiet directions")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "rank_for_test_refused", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
for keep in (-0.1, 1.1):
    lk.checks.expect_raises(ValueError, rank_for, np.array([4.0, 2.0, 1.0]), keep)
### BEGIN HIDDEN TESTS
for keep in (-1.0, 1.0001):
    lk.checks.expect_raises(ValueError, rank_for, np.array([4.0, 2.0, 1.0]), keep)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "One digit from ever fewer numbers. The lines above give the share of variance that each k keeps, over all digits."
):
    found = pca_svd(digits, 64)
    shown, titles, lines = [digits[3]], ["64 pixels"], []
    total = found.variances.sum()
    for keep in (0.95, 0.9, 0.8, 0.6, 0.3):
        k = rank_for(found.variances, keep)
        Q = found.components[:, :k]
        rebuilt = found.mean + (digits - found.mean) @ Q @ Q.T
        measured = np.sum((digits - rebuilt) ** 2) / (len(digits) - 1)
        stored = len(digits) * k + 64 * k + 64  # coordinates, directions, mean
        lines.append(
            f"keep {keep:.0%}: k = {k:2d}, error {measured:6.2f} = tail {found.variances[k:].sum():6.2f}, stored {stored / digits.size:4.0%}"
        )
        shown.append(np.clip(rebuilt[3], 0, None))
        titles.append(f"k = {k}")
    print("\n".join(lines))
    lk.show(gallery(shown, titles), summary="A handwritten 3, rebuilt from fewer and fewer components.")

# %% [markdown]
# ## Part 7 · Meaning in a subspace
#
# The cosine of two embeddings mixes everything a model knows about two words. Often you want one question answered: *alike with
# respect to what?* If a category (gender, tense, number) is a subspace spanned by `basis`, project both words onto it and
# take the cosine there:
#
# $$\cos_B(x, y) = \frac{Px \cdot Py}{\|Px\| \, \|Py\|}, \qquad \text{share}_B(y) = \frac{\|Py\|^2}{\|y\|^2}.$$
#
# The second number is as important as the first. A cosine of 1 between two shadows says nothing if both words stand
# nearly upright on the plane and hardly cast one. With coordinates $Q^\top y$ a scan over the table touches $k$ numbers a
# word instead of $d$: that is why search engines do it, too.

# %% [markdown]
# ### Task 7 · Cosine and share inside a subspace
# *8 points · 12 minutes · ●●●○*
#
# Scan a whole table, without a second table beside it.

# %%
lk.predict("subspace_cosine")


# %% nbgrader={"grade": false, "grade_id": "subspace_cosine", "locked": false, "schema_version": 3, "solution": true, "task": false}
def subspace_cosine(x, table, basis):
    """Cosine of x with every row of table inside span(basis), and how much of each row lies in there.

    x [d]; table [n, d]; basis [d, k], columns independent, not orthonormal. Returns (cosine [n], share [n]).
    A cosine with a vector of exactly no length in the subspace is 0, and so is the share of a zero row; never NaN.
    Nothing as large as the table may be made: np.einsum("nd,nd->n", table, table) sums squares without a copy.

    >>> subspace_cosine(np.array([1.0, 0.0, 9.0]), np.array([[2.0, 2.0, 0.0], [0.0, 0.0, 5.0]]), np.eye(3)[:, :2])
    (array([0.70710678, 0.        ]), array([1., 0.]))
    """
    ### BEGIN SOLUTION
    Q, _ = np.linalg.qr(basis)
    there, here = table @ Q, x @ Q  # k coordinates each; Q keeps lengths and angles
    inside = np.einsum("nk,nk->n", there, there)
    whole = np.einsum("nd,nd->n", table, table)
    lengths = np.sqrt(inside) * np.linalg.norm(here)
    cosine = np.divide(there @ here, lengths, out=np.zeros_like(inside), where=lengths > 0)
    share = np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0)
    return cosine, share
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "subspace_cosine_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
floor = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])  # the x-y plane again, by a skewed basis
rows = np.array([[2.0, 2.0, 0.0], [0.0, 3.0, 3.0], [0.0, 0.0, 5.0]])
slips = {
    "these are the shares. Return (cosine, share)": np.array([1.0, 0.5, 0.0]),
    "coordinates in this basis keep no angles, for it is not orthonormal. Take those in Q of its QR": np.array(
        [3 / 10**0.5, 0.5**0.5, 0.0]
    ),
    "columns of length 1 are not enough. They must also be orthogonal to each other: take Q of the QR": np.array(
        [8**0.5 / 3, 3**-0.5, 0.0]
    ),
    "divide by the lengths of the projections, not by that of x itself": np.array([0.5**0.5, 0.0, 0.0]) / 82**0.5,
    "this is a dot product. Divide by the lengths of both projections": np.array([2.0, 0.0, 0.0]),
}
cosine, share = subspace_cosine(np.array([1.0, 0.0, 9.0]), rows, floor)
lk.checks.expect_close(cosine, np.array([0.5**0.5, 0.0, 0.0]), slips=slips, name="cosines in the plane", atol=1e-12)
lk.checks.expect_close(share, np.array([1.0, 0.5, 0.0]), atol=1e-12, name="shares in the plane")
# On a line every cosine is 1 or −1, whatever the lengths.
axis = np.array([[0.0], [7.0], [0.0]])
cosine, share = subspace_cosine(np.array([1.0, 2.0, 0.0]), np.array([[9.0, 0.1, 0.0], [3.0, -4.0, 0.0]]), axis)
lk.checks.expect_close(cosine, np.array([1.0, -1.0]), atol=1e-12, name="cosines on a line")
lk.checks.expect_close(share, np.array([0.01 / 81.01, 0.64]), atol=1e-12, name="shares on a line")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(271)
for n, d, k in [(6, 5, 2), (1, 4, 3), (8, 7, 1), (3, 4, 4)]:  # a single row; a line, where cosines are ±1; all of space
    x, rows, basis = rng.standard_normal(d), rng.standard_normal((n, d)), rng.standard_normal((d, k)) * 5
    cosine, share = subspace_cosine(x.copy(), rows.copy(), basis.copy())
    P = basis @ np.linalg.pinv(basis)  # small here, so the matrix itself may be the judge
    px = P @ x
    for i, y in enumerate(rows):
        py = P @ y
        lk.checks.expect_close(
            cosine[i],
            px @ py / np.sqrt((px @ px) * (py @ py)),
            rtol=1e-9,
            atol=1e-9,
            name=f"cosine {i}, n={n} d={d} k={k}",
        )
        lk.checks.expect_close(share[i], (py @ py) / (y @ y), rtol=1e-9, atol=1e-9, name=f"share {i}")
# length says nothing about direction
lk.checks.expect_close(
    subspace_cosine(3 * x, rows * 1e-3, basis)[0], cosine, rtol=1e-9, atol=1e-9, name="cosines of rescaled vectors"
)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "subspace_cosine_test_zeros", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# A zero row is a padding token; a zero query an unknown word; neither may poison a ranking with NaN.
floor = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
cosine, share = subspace_cosine(np.array([1.0, 2.0, 0.0]), np.zeros((2, 3)), floor)
lk.checks.expect_close(np.stack([cosine, share]), np.zeros((2, 2)), name="cosine and share of zero rows")
cosine, share = subspace_cosine(np.zeros(3), np.array([[1.0, 0.0, 0.0], [0.0, 3.0, 4.0]]), floor)
lk.checks.expect_close(share, np.array([1.0, 0.36]), name="shares beside a zero query")
lk.checks.expect_close(cosine, np.zeros(2), name="cosines of a zero query")
cosine, share = subspace_cosine(np.array([2.0, 0.0, 0.0]), np.array([[3e-30, 4e-30, 0.0], [0.0, 5e-30, 0.0]]), floor)
small = "a constant takes the place of a small length. Only a length of exactly 0 needs care: ask for it"
name = "cosines with rows of length 5e-30, which are not zero"
lk.checks.expect_close(cosine, np.array([0.6, 0.0]), atol=1e-12, otherwise=small, name=name)
lk.checks.expect_close(share, np.ones(2), name="shares of rows of length 5e-30")
### BEGIN HIDDEN TESTS
rows = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
cosine, share = subspace_cosine(np.array([2.0, 0.0, 0.0]), rows, floor)
lk.checks.expect_close(cosine, np.array([1.0, 0.0, 0.0]), atol=1e-12, name="cosines, a zero row among others")
lk.checks.expect_close(share, np.array([1.0, 0.0, 0.0]), atol=1e-12, name="shares, a zero row among others")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "subspace_cosine_test_bytes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# A table of 40,000 × 256 is 82 MB; two coordinates for each row are 640 kB. Half of the table is a generous budget.
rng = np.random.default_rng(272)
rows, pair = rng.standard_normal((40_000, 256)), rng.standard_normal((256, 2))
cosine, share = lk.checks.expect_peak(subspace_cosine, rows[0], rows, pair, at_most_bytes=rows.nbytes // 2)
lk.checks.expect_close(cosine[0], 1.0, rtol=1e-9, name="cosine of a word with itself")

# %% [markdown]
# **A line that means gender.** Ten pairs (man–woman, king–queen, …) give ten differences; their first uncentred singular direction
# is one vector. The ten *other* pairs were never used to find it: they are the test. Words are centred on the middle of the
# ten pairs, for a direction needs an origin.

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Pairs never seen before. In 384 dimensions they are close; on one line, −1 where the pair is told apart."
):

    def held_out(first, second):
        """Cosines of each held-out pair: in the whole space, and on the line that the other pairs define."""
        a, b = (table[[row[word] for word in groups[group]]] for group in (first, second))
        line = np.linalg.svd(b[::2] - a[::2], full_matrices=False)[2][:1].T
        middle = (a[::2].mean(axis=0) + b[::2].mean(axis=0)) / 2
        a, b = a[1::2], b[1::2]
        whole = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        on_line = [subspace_cosine(u - middle, v[None] - middle, line)[0][0] for u, v in zip(a, b, strict=True)]
        return whole, np.array(on_line)

    figure = go.Figure()
    kinds = {
        "gender": ("people/male", "people/female"),
        "plural": ("count/one", "count/many"),
        "capital": ("world/country", "world/capital"),
        "past tense": ("tense/present", "tense/past"),
    }
    results = {kind: held_out(*pair) for kind, pair in kinds.items()}
    figure.add_bar(
        x=list(kinds), y=[whole.mean() for whole, _ in results.values()], name="384 dimensions", marker_color=GREY
    )
    figure.add_bar(
        x=list(kinds), y=[line.mean() for _, line in results.values()], name="the pair's own line", marker_color=BLUE
    )
    figure.update_yaxes(title="mean cosine of held-out pairs", range=[-1.05, 1.05])
    figure.update_layout(height=340, barmode="group")
    for kind, (_, line) in results.items():
        print(f"{kind}: {np.mean(line < 0):.0%} of {len(line)} unseen pairs told apart")
    lk.show(
        figure,
        summary="Held-out pairs: cosines of 0.6 to 0.9 in the whole space, strongly negative on their category's line.",
    )

# %% [markdown]
# The past tense is harder than the plural: “ran” and “walked” are less alike than two plurals that end in s. Now three topics span a
# subspace. The words in blue have two meanings, and their place shows which meaning has more weight in the model. The size of a
# marker is the **share** of its word. Most of what the model knows about “bolt” is elsewhere.

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Cosines with two topics inside a three-topic subspace. The larger the marker, the more of the word lies in it."
):
    topics = {
        "animals": ["animals", "birds", "sea life"],
        "computing": ["hardware", "programming", "operating systems", "networks"],
        "food": ["fruit", "vegetables", "food", "drinks"],
    }
    centre = table.mean(axis=0)
    axes = np.stack(
        [table[[row[w] for g in names for w in groups[g]]].mean(axis=0) - centre for names in topics.values()], axis=1
    )
    plain = ["dog", "laptop", "bread"]
    double = ["mouse", "apple", "kernel", "python", "bark", "crane", "ruby", "bolt"]
    chosen = plain + double
    vectors = table[[row[word] for word in chosen]] - centre
    (animal, share), (computing, _) = (subspace_cosine(axes[:, j], vectors, axes) for j in (0, 1))
    figure = go.Figure(
        go.Scatter(
            x=animal,
            y=computing,
            mode="markers+text",
            text=chosen,
            textposition=["bottom center" if word == "kernel" else "top center" for word in chosen],
            marker={
                "size": 4 + 160 * share,
                "sizemode": "diameter",
                "color": [GREY] * len(plain) + [BLUE] * len(double),
                "opacity": 0.75,
            },
            customdata=100 * share,
            hovertemplate="%{text}: animals %{x:.2f}, computing %{y:.2f}, share %{customdata:.0f} %<extra></extra>",
        )
    )
    figure.update_xaxes(title="cosine with “animals”", range=[-1.1, 1.2])
    figure.update_yaxes(title="cosine with “computing”", range=[-1.0, 1.25])
    figure.update_layout(height=460, showlegend=False)
    lk.show(
        figure,
        summary=f"Mouse lies between animals and computing with a share of {share[3]:.0%}; bolt has one of {share[-1]:.1%}.",
    )

# %% [markdown]
# ## Part 8 · Power iteration: one direction, one product a step
#
# A covariance of a million features has $10^{12}$ entries. Nobody forms it, yet its top direction is within reach, because
# all you need is the product $\Sigma v$. Multiply, normalise, repeat: each step shrinks the angle's tangent
# to the top direction by $\lambda_2/\lambda_1$. The matrix arrives as a *function*, and every call of it is a pass over the data.

# %% [markdown]
# ### Task 8 · Multiply, normalise, repeat
# *10 points · 10 minutes · ●●○○*
#
# One call of `apply` a step, and a handful of vectors.

# %%
lk.predict("power_iteration")


# %% nbgrader={"grade": false, "grade_id": "power_iteration", "locked": false, "schema_version": 3, "solution": true, "task": false}
def power_iteration(apply, start, steps):
    """Leading eigenpair of a symmetric positive semidefinite operator that is known only through its products.

    apply(v [d]) -> [d]; start [d], not zero, stays as it was; steps ≥ 1, each with exactly one call of apply on a vector
    v of length 1. Returns (value, vector) of the last step: value is the Rayleigh quotient vᵀ·apply(v), which costs no
    further call, and vector is the product apply(v), normalised.
    If a product is exactly zero, stop there and return (0.0, v).

    >>> power_iteration(diagonal([4.0, 1.0]), np.array([1.0, 1.0]), 1)   # (2.5, [4, 1] / √17)
    (2.5, array([0.9701425 , 0.24253563]))
    """
    ### BEGIN SOLUTION
    v = start / np.linalg.norm(start)
    value = 0.0
    for _ in range(steps):
        product = apply(v)
        value = float(v @ product)
        length = np.linalg.norm(product)
        if length == 0:
            return 0.0, v
        v = product / length
    return value, v
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "power_iteration_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
value, vector = power_iteration(diagonal([4.0, 1.0]), np.array([1.0, 1.0]), 1)
slips = {
    "this is the quotient of the new vector, and it costs one more product. Use the vector that was multiplied": 65
    / 17,
    "this is the length of the product. The value is vᵀ·apply(v) with the v that was multiplied": 8.5**0.5,
    "start does not have length 1. Normalise it before the first product": 5.0,
}
lk.checks.expect_close(value, 2.5, slips=slips, name="value after one step from (1, 1)")
slips = {
    "this vector went into the product. Return the normalised product": np.array([0.5, 0.5]) ** 0.5,
    "the vector must have length 1, not a largest entry of 1": np.array([1.0, 0.25]),
    "the product is not normalised": np.array([4.0, 1.0]) / 2**0.5,
}
lk.checks.expect_close(vector, np.array([4.0, 1.0]) / 17**0.5, slips=slips, name="vector after one step")
value, vector = power_iteration(diagonal([4.0, 1.0]), np.array([1.0, 1.0]), 2)
lk.checks.expect_close(value, 65 / 17, name="value after two steps: that of the vector that went into the second")
lk.checks.expect_close(vector, np.array([16.0, 1.0]) / 257**0.5, name="vector after two steps")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(281)
# in two dimensions the path is known in closed form: after t steps the tangent is (λ₂/λ₁)ᵗ times the first one
for ratio, steps in [(0.5, 1), (0.5, 12), (0.9, 30), (0.0, 3)]:
    value, vector = power_iteration(diagonal([3.0, 3.0 * ratio]), np.array([2.0, 2.0]), steps)
    tangent = ratio**steps
    expected = np.array([1.0, tangent]) / np.hypot(1.0, tangent)
    lk.checks.expect_close(
        np.abs(vector), expected, rtol=1e-10, atol=1e-12, name=f"vector, ratio {ratio}, {steps} steps"
    )
    before = ratio ** (2 * (steps - 1))  # the quotient belongs to the vector that went into the last product
    lk.checks.expect_close(
        value, 3.0 * (1 + ratio * before) / (1 + before), rtol=1e-10, name=f"value, ratio {ratio}, {steps} steps"
    )
# a planted covariance in a hidden basis, reached only through X
X, V = planted(rng, 40, 9, [3.0, 1.0, 0.5], mean=0.0)
value, vector = power_iteration(lambda v: X.T @ (X @ v) / 39, rng.standard_normal(9), 40)
lk.checks.expect_close(value, 9.0, rtol=1e-9, name="variance of the top direction")
expect_span(np.asarray(vector).reshape(9, 1), V[:, :1], name="vector")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "power_iteration_test_scale", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 1e30 to the 40th power is far beyond 1e308: only a vector normalised at every step survives, and 1e-30 likewise.
for scale in (1e30, 1e-30):
    value, vector = power_iteration(diagonal([2 * scale, scale]), np.array([1.0, 1.0]), 40)
    all_steps = "take all 40 steps, normalise in each, and stop early only if a product is exactly 0"
    name = f"value of an operator of size {scale:.0e}"
    lk.checks.expect_close(value / scale, 2.0, rtol=1e-9, otherwise=all_steps, name=name)
    name = "vector after 40 steps"
    lk.checks.expect_close(np.abs(vector), np.array([1.0, 0.0]), atol=1e-9, otherwise=all_steps, name=name)
### BEGIN HIDDEN TESTS
value, vector = power_iteration(diagonal([3e40, 1e40]), np.array([1.0, 2.0]), 30)
lk.checks.expect_close(value / 1e40, 3.0, rtol=1e-9, name="value of an operator of size 1e40")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "power_iteration_test_zero", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# The zero operator; and start stays as it was.
value, vector = power_iteration(diagonal([0.0, 0.0]), np.array([3.0, 4.0]), 5)
lk.checks.expect_close(value, 0.0, name="value of the zero operator")
lk.checks.expect_close(vector, np.array([0.6, 0.8]), name="the unit vector that was multiplied")
first = np.array([3.0, 4.0])
power_iteration(diagonal([1.0, 1.0]), first, 2)
expect_that(
    np.array_equal(first, [3.0, 4.0]), "start itself was changed. Divide into a new array: v / length, not v /= length"
)
### BEGIN HIDDEN TESTS
value, vector = power_iteration(lambda v: 0.0 * v, np.array([0.0, -2.0, 0.0]), 3)
lk.checks.expect_close(value, 0.0, name="value of the zero operator")
lk.checks.expect_close(np.linalg.norm(vector), 1.0, name="length of the vector")
first = np.array([-5.0, 12.0])
power_iteration(diagonal([2.0, 1.0]), first, 3)
lk.checks.expect_equal(first, np.array([-5.0, 12.0]), name="start after the call")
value, vector = power_iteration(lambda v: 7.0 * v, np.array([-2.0]), 2)
lk.checks.expect_close(value, 7.0, name="value in one dimension")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "power_iteration_test_products", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 100,000 dimensions: the matrix would be 80 GB. Ten steps may call `apply` ten times and hold a handful of vectors.
calls = 0
slopes = 1.0 / np.arange(1.0, 100_001.0)


def counted(v):
    global calls
    calls += 1
    return slopes * v


power_iteration(counted, np.ones(100_000), 10)
lk.checks.expect_equal(calls, 10, name="products with the operator in 10 steps")
value, vector = lk.checks.expect_peak(
    power_iteration, diagonal(slopes), np.ones(100_000), 10, at_most_bytes=10 * slopes.nbytes
)
### BEGIN HIDDEN TESTS
calls = 0
value, vector = power_iteration(counted, np.ones(100_000), 25)
lk.checks.expect_equal(calls, 25, name="products with the operator in 25 steps")
lk.checks.expect_close(value, 1.0, rtol=1e-6, name="value after 25 steps")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Tangent of the angle to the true direction. The slope is log(λ₂/λ₁): a small gap costs passes, hence bytes."
):
    figure = go.Figure()
    for ratio, colour in [(0.5, BLUE), (0.8, GREEN), (0.95, ORANGE)]:
        ends = [power_iteration(diagonal([1.0, ratio]), np.array([1.0, 1.0]), steps)[1] for steps in range(1, 31)]
        figure.add_scatter(
            x=np.arange(1, 31),
            y=[abs(v[1] / v[0]) for v in ends],
            mode="markers",
            marker={"color": colour},
            name=f"λ₂/λ₁ = {ratio}",
        )
        figure.add_scatter(
            x=[0, 30], y=[1, ratio**30], mode="lines", line={"color": colour, "dash": "dot"}, showlegend=False
        )
    figure.update_yaxes(type="log", exponentformat="power", title="tangent of the angle")
    figure.update_xaxes(title="products with Σ, each a pass over the data")
    figure.update_layout(height=360)
    lk.show(
        figure,
        summary="On a log scale the measured angles lie on straight lines, the theoretical rates for 0.5, 0.8 and 0.95.",
    )

# %% [markdown]
# ## Part 9 · Randomized PCA: a block at a time
#
# One vector a pass wastes the pass: for every number that arrives from memory you do two operations. Take a block of
# $\ell = k + p$ random vectors $\Omega$ instead, and each byte does $\ell$ times the work. With $A$ the centred data,
#
# $$Y = A\Omega, \quad Q = \mathrm{qr}(Y), \quad \big[\, W = \mathrm{qr}(A^\top Q),\; Q = \mathrm{qr}(A W) \,\big]^{\,q\text{ times}}, \quad B = A^\top Q = \hat V \hat S \hat U^\top .$$
#
# All $k$ components come at once. Each product with $A$ or $A^\top$ is a pass over the data. The `qr` between products is no ornament: without it all
# $\ell$ columns fall into the top direction, like $\ell$ power iterations that do not know of each other.
# (Halko, Martinsson and Tropp, 2011.)

# %% [markdown]
# ### Task 9 · A block of random directions
# *11 points · 16 minutes · ●●●○*
#
# Follow the formula; the passes and the width of the blocks are counted.

# %%
lk.predict("randomized_pca")


# %% nbgrader={"grade": false, "grade_id": "randomized_pca", "locked": false, "schema_version": 3, "solution": true, "task": false}
def randomized_pca(times, times_t, d, k, power, rng, oversample=8):
    """The k leading right singular pairs of a matrix A [n, d] that is known only through products with thin blocks.

    times(W [d, l]) -> A W [n, l];  times_t(Y [n, l]) -> Aᵀ Y [d, l];  each call is one pass over A, and a block may have
    at most k + oversample columns (and at most d). Exactly 2 + 2·power passes, k ≤ min(n, d), and n may be less than
    k + oversample. A's rank may be less than k. `rng` is a numpy Generator, and nothing else is random: equal seeds give
    equal blocks. Every block after the first is a Q of a qr, with orthonormal columns.
    Returns (components [d, k] with orthonormal columns, singular values [k], largest first).

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> randomized_pca(*products(A), 3, 2, 1, np.random.default_rng(0))[1]
    array([3., 2.])
    """
    ### BEGIN SOLUTION
    width = min(k + oversample, d)
    Q, _ = np.linalg.qr(times(rng.standard_normal((d, width))))
    for _ in range(power):
        W, _ = np.linalg.qr(times_t(Q))
        Q, _ = np.linalg.qr(times(W))
    V, singular, _ = np.linalg.svd(times_t(Q), full_matrices=False)  # d × width: small beside A
    return V[:, :k], singular[:k]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "randomized_pca_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# diag(3, 2, 1) exactly, then halving values in a tall matrix.
A = np.diag([3.0, 2.0, 1.0])
components, singular = randomized_pca(*products(A), 3, 2, 1, np.random.default_rng(0))
whole = "a block of min(k + oversample, d) = 3 columns spans all of space, so these are exact. Check the width, and B = Aᵀ Q"
lk.checks.expect_close(
    singular, np.array([3.0, 2.0]), name="singular values of diag(3, 2, 1)", otherwise=whole, rtol=1e-9
)
expect_span(components, np.eye(3)[:, :2])
# Halving values, in a tall matrix: σ₁₄/σ₅ = 2⁻⁹, four products, so an angle of about 2⁻³⁶ (a bare sketch: 2⁻¹⁸).
A, V = with_spectrum(np.random.default_rng(290), 90, 40, 0.5 ** np.arange(30.0))
components, singular = randomized_pca(*products(A), 40, 5, 1, np.random.default_rng(7))
closer = "the block is too far from the top directions. Are there `power` rounds between sketch and end, and k + oversample columns?"
lk.checks.expect_close(singular, 0.5 ** np.arange(5.0), name="singular values, 90 by 40", otherwise=closer, rtol=1e-9)
expect_span(components, V[:, :5], at_most=1e-7, name="components, 90 by 40")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(291)
for n, d in [(80, 50), (40, 90)]:  # tall and wide
    values = 0.5 ** np.arange(30.0)
    A, V = with_spectrum(rng, n, d, values)
    components, singular = randomized_pca(*products(A), d, 5, 1, np.random.default_rng(7))
    lk.checks.expect_close(singular, values[:5], rtol=1e-9, name=f"singular values, {n} by {d}")
    expect_span(components, V[:, :5], at_most=1e-7)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "randomized_pca_test_steep", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 1, 1/10, …, 1e-7: A is applied six times in all, so a block that is not re-orthonormalised holds 1e-42 beside 1.
values = 10.0 ** -np.arange(8.0)
A, V = with_spectrum(np.random.default_rng(293), 50, 20, values)
components, singular = randomized_pca(*products(A), 20, 8, 2, np.random.default_rng(8))
drowned = "small directions are lost beside the top one. Put a qr around every product in the loop"
lk.checks.expect_close(
    singular, values, name="singular values of a steep spectrum", otherwise=drowned, rtol=1e-5, atol=0
)
expect_span(components, V, at_most=1e-6, name="components of a steep spectrum")
blocks = []
randomized_pca(
    lambda W: (blocks.append(np.array(W)), A @ W)[1],
    lambda Y: (blocks.append(np.array(Y)), A.T @ Y)[1],
    20,
    8,
    2,
    np.random.default_rng(8),
)
for number, block in enumerate(blocks[1:], 2):
    worst = np.abs(block.T @ block - np.eye(block.shape[1])).max()
    expect_that(
        worst < 1e-8,
        f"block {number} of {len(blocks)}, as it goes into a product, has no orthonormal columns (off by {worst:.1e})\n"
        "  next      put a qr around every product in the loop, W = qr(Aᵀ Q) and Q = qr(A W), not around one of the two",
    )
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(294)
A, V = with_spectrum(rng, 30, 25, values)
components, singular = randomized_pca(*products(A), 25, 8, 2, np.random.default_rng(9))
lk.checks.expect_close(singular, values, rtol=1e-5, atol=0, name="singular values of a steep spectrum")
# slow decay, where the tail is nearly as loud as the head: q = 4 damps it by (σ₁₉/σ₁₀)^10 = 0.04 in amplitude, 0.0016 in energy
slow = 1 / np.sqrt(np.arange(1.0, 101.0))
A, V = with_spectrum(rng, 200, 100, slow)
components, singular = randomized_pca(*products(A), 100, 10, 4, np.random.default_rng(9))
expect_orthonormal(components, (100, 10))
captured = np.sum((A @ components) ** 2) / np.sum(slow[:10] ** 2)
assert captured > 0.998, (
    f"power = 4 captures {captured:.1%} of what the best 10 directions capture; expected more than 99.8 %"
)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "randomized_pca_test_small", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# Rank 2 and k = 3: the third direction has no variance, and is orthonormal all the same.
A, V = with_spectrum(np.random.default_rng(295), 12, 6, np.array([2.0, 1.0]))
components, singular = randomized_pca(*products(A), 6, 3, 1, np.random.default_rng(10))
expect_span(np.asarray(components)[:, :2], V, name="the two components with variance")
expect_orthonormal(components, (6, 3))
lk.checks.expect_close(singular, np.array([2.0, 1.0, 0.0]), atol=1e-9, name="singular values of rank 2")
# d is 6, so that a block of k + oversample = 11 columns would be wider than the space.
widths = []
randomized_pca(lambda W: (widths.append(W.shape[1]), A @ W)[1], lambda Y: A.T @ Y, 6, 3, 1, np.random.default_rng(13))
expect_that(max(widths) <= 6, f"in 6 dimensions a block has at most 6 columns; one had {max(widths)}")
# All that is random comes from rng: equal seeds give equal blocks, and others others.
blocks = []
for seed_of_block in (14, 14, 15):
    rng = np.random.default_rng(seed_of_block)
    randomized_pca(lambda W: (blocks.append(np.array(W)), A @ W)[1], lambda Y: A.T @ Y, 6, 3, 0, rng)
same = "two generators of one seed gave different blocks. Draw from `rng`, not from np.random"
expect_that(np.array_equal(blocks[0], blocks[1]), same)
expect_that(not np.array_equal(blocks[0], blocks[2]), "two seeds gave the same block. Draw it from the `rng` that came")
# Fewer rows than the block has columns.
A, V = with_spectrum(np.random.default_rng(296), 4, 30, np.array([3.0, 2.0, 1.0]))
components, singular = randomized_pca(*products(A), 30, 3, 0, np.random.default_rng(11))
expect_span(components, V, name="components of four rows")
### BEGIN HIDDEN TESTS
A, V = with_spectrum(np.random.default_rng(297), 5, 20, np.array([4.0, 2.0]))
components, singular = randomized_pca(*products(A), 20, 4, 2, np.random.default_rng(12))
expect_orthonormal(components, (20, 4))
lk.checks.expect_close(singular, np.array([4.0, 2.0, 0.0, 0.0]), atol=1e-9, name="singular values of rank 2")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "randomized_pca_test_passes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# The passes over the matrix, counted.
rng = np.random.default_rng(292)
A = rng.standard_normal((300, 80)) * 0.8 ** np.arange(80)
widths = []


def times(W):
    widths.append(W.shape[1])
    return A @ W


def times_t(Y):
    widths.append(Y.shape[1])
    return A.T @ Y


for power in (0, 1, 3):
    widths.clear()
    randomized_pca(times, times_t, 80, 4, power, np.random.default_rng(power), oversample=5)
    lk.checks.expect_equal(len(widths), 2 + 2 * power, name=f"passes over the data with power = {power}")
    expect_that(max(widths) <= 9, f"a block had {max(widths)} columns; at most k + oversample = 9 fit")
widths.clear()
randomized_pca(times, times_t, 80, 6, 1, np.random.default_rng(6), oversample=0)
expect_that(max(widths) <= 6, f"oversample = 0 asks for blocks of 6 columns; one had {max(widths)}")
### BEGIN HIDDEN TESTS
# the passes must have bought something: σ₁₀/σ₄ is about 0.8⁶, and eight products leave about 2e-5 of the first angle
widths.clear()
components, _ = randomized_pca(times, times_t, 80, 4, 3, np.random.default_rng(5), oversample=5)
best = np.linalg.svd(A, full_matrices=False)[2][:4].T
expect_span(components, best, at_most=1e-3)
lk.checks.expect_equal(len(widths), 8, name="passes over the data with power = 3")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "What ten directions miss, relative to the best ten. The words' spectrum falls slowly, and a slow tail costs passes."
):
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    best = np.sum(np.linalg.svd(centred, compute_uv=False)[:10] ** 2)
    passes, excess = [], []
    for power in range(5):
        misses = []
        for draw in range(2 if smoke else 4):
            Q, _ = randomized_pca(*products(centred), 384, 10, power, np.random.default_rng(seed + draw))
            misses.append(1 - np.sum((centred @ Q) ** 2) / best)
        passes += [2 + 2 * power] * len(misses)
        excess += misses
    figure = go.Figure(go.Scatter(x=passes, y=excess, mode="markers", marker={"color": BLUE, "size": 8}))
    figure.update_yaxes(type="log", tickvals=[0.003, 0.01, 0.03, 0.1, 0.3], tickformat=".1~%", title="variance missed")
    figure.update_xaxes(title="passes over the table", dtick=2)
    figure.update_layout(height=340)
    lk.show(
        figure,
        summary=f"Two passes miss {np.mean(excess[:2]):.0%} of what exact PCA captures, ten passes {np.mean(excess[-2:]):.1%}.",
    )

# %% [markdown]
# ### Three routes, one roofline
#
# Ten million rows of 384 float32 numbers, 15 GB, and the same ten components. What does each route ask of an H100? The work is by
# formula (the data alone; thin blocks are 5 % of them), the machine is a data sheet: **a model, not a measurement**. The covariance
# does 192 operations for each byte and meets the compute roof. Power iteration can fuse $A^\top(Av)$, row block by row block, into one
# pass, and still does one operation a byte: it moves a hundred times the data. The block reads the data four times and wins.

# %%
n, d, k = 10_000_000, 384, 10
formula = {"flops": "formula", "bytes_read": "formula"}
routes = [
    lk.Work(flops=2 * n * d * d, bytes_read=4 * n * d, name="covariance, 1 pass", how=formula),
    lk.Work(flops=100 * 4 * n * d, bytes_read=100 * 4 * n * d, name="power, 100 passes", how=formula),
    lk.Work(flops=4 * 2 * n * d * (k + 8), bytes_read=4 * 4 * n * d, name="randomized, 4 passes", how=formula),
]
h100 = lk.Roofline.from_spec("h100-sxm")
for work in routes:
    print(textwrap.fill(str(h100.place(work)), 88, subsequent_indent="  "))
lk.widgets.roofline(["h100-sxm"], works=routes)

# %% [markdown]
# ## Part 10 · Streaming PCA: one pass, bounded memory
#
# Logs, activations, sensor data: the rows go by once and do not fit. What must you remember of the past to finish the
# covariance later? Three things: how many rows $n_A$, their mean $\mu_A$, and their scatter $S_A = \sum (x - \mu_A)(x - \mu_A)^\top$. To
# merge a chunk $B$ into $A$:
#
# $$\delta = \mu_B - \mu_A, \qquad S = S_A + S_B + \frac{n_A n_B}{n_A + n_B}\,\delta\delta^\top, \qquad \mu = \mu_A + \frac{n_B}{n_A + n_B}\,\delta .$$
#
# Exact, in any order, in $O(d^2)$ memory: the same merge that a thousand machines would use to combine their
# covariances with one all-reduce (Chan, Golub and LeVeque, 1979). The stream reuses its buffer, as fast readers do: a chunk
# is yours until you ask for the next.

# %% [markdown]
# ### Task 10 · PCA over a stream
# *13 points · 17 minutes · ●●●○*
#
# One pass, and memory that does not grow with the stream.

# %%
lk.predict("streaming_pca")


# %% nbgrader={"grade": false, "grade_id": "streaming_pca", "locked": false, "schema_version": 3, "solution": true, "task": false}
def streaming_pca(chunks, d, k):
    """The k leading principal components of rows that come by once.

    chunks() -> a fresh iterator over float64 arrays [b, d], b ≥ 0 and different from chunk to chunk; call it once; k ≤ d.
    A chunk's memory is overwritten when the next one is asked for; a stream, and a chunk, may have no rows; rows may lie
    far from the origin. At most about ten d × d matrices may be alive.
    Returns PCA(mean [d], components [d, k], variances [k]), largest first, none negative.
    Raises ValueError for fewer than two rows in all.

    >>> streaming_pca(lambda: iter([np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [6.0, 8.0]])]), 2, 1).variances
    array([25.])
    """
    ### BEGIN SOLUTION
    n, mean, scatter = 0, np.zeros(d), np.zeros((d, d))
    for chunk in chunks():
        b = len(chunk)
        if b == 0:
            continue
        chunk_mean = chunk.mean(axis=0)
        centred = chunk - chunk_mean
        delta = chunk_mean - mean
        scatter += centred.T @ centred
        scatter += np.outer(delta, delta) * (n * b / (n + b))
        mean += delta * (b / (n + b))
        n += b
    if n < 2:
        raise ValueError(f"PCA needs at least 2 rows, the stream had {n}")
    values, vectors = np.linalg.eigh(scatter / (n - 1))
    return PCA(mean, vectors[:, ::-1][:, :k].copy(), np.clip(values[::-1][:k], 0.0, None))
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab02_stream", "locked": true, "schema_version": 3, "solution": false, "task": false}
def stream(X, sizes):
    """A `chunks` function over the rows of X in pieces of these sizes, through one buffer; its `.passes` counts calls."""

    def chunks():
        chunks.passes += 1
        buffer = np.empty((max(sizes, default=0), X.shape[1]))
        start = 0
        for size in sizes:
            buffer[:size] = X[start : start + size]
            start += size
            yield buffer[:size]
        buffer[:] = np.nan  # whoever kept a view now holds NaN

    chunks.passes = 0
    return chunks


# %% nbgrader={"grade": true, "grade_id": "streaming_pca_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# Three points on a line in two chunks, then ragged chunks.
line = streaming_pca(lambda: iter([np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [6.0, 8.0]])]), 2, 1)
slips = {
    "the term with δδᵀ is missing, or is 0": np.array([6.25]),
    "δ is the distance from the old mean. Update the mean after the scatter": np.array([25 / 3]),
    "n_A is the count before this chunk. Update n last": np.array([40.0]),
    "the divisor is n, and n − 1 is wanted": np.array([50 / 3]),
}
lk.checks.expect_close(line.variances, np.array([25.0]), slips=slips, name="variance along the line")
expect_span(line.components, np.array([[0.6], [0.8]]))
# Ragged chunks through one buffer, which the next chunk overwrites.
X, V = planted(np.random.default_rng(300), 60, 8, [4.0, 3.0, 2.0, 1.0], mean=2.0)
kept = "a chunk was kept, and its memory was overwritten with NaN. Take what you need of a chunk before you ask for the next"
try:
    got = streaming_pca(stream(X, [13, 1, 30, 9, 7]), 8, 3)
except np.linalg.LinAlgError:
    raise lk.checks.CheckError(kept) from None
expect_that(np.isfinite(np.asarray(got.mean)).all(), kept)
lk.checks.expect_close(got.mean, np.full(8, 2.0), rtol=1e-9, name="mean, 5 chunks through one buffer")
lk.checks.expect_close(got.variances, np.array([16.0, 9.0, 4.0]), rtol=1e-8, name="variances, 5 chunks")
expect_span(np.asarray(got.components)[:, :1], V[:, :1], name="first component")
expect_span(got.components, V[:, :3], name="all three components")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(301)
deviations = [4.0, 3.0, 2.0, 1.0, 0.5]
X, V = planted(rng, 60, 8, deviations, mean=rng.uniform(-3, 3, 8))
for sizes in [[60], [7, 9, 30, 1, 13], [1] * 60]:  # in one piece; ragged; row by row, where a chunk has no scatter
    got = streaming_pca(stream(X, sizes), 8, 3)
    lk.checks.expect_close(got.mean, X.mean(axis=0), rtol=1e-9, name=f"mean, {len(sizes)} chunks")
    lk.checks.expect_close(got.variances, np.square(deviations)[:3], rtol=1e-8, name=f"variances, {len(sizes)} chunks")
    for j in (1, 2, 3):
        expect_span(np.asarray(got.components)[:, :j], V[:, :j], name=f"first {j} components")
# chunks that differ in their means: sorted data, a drifting sensor. All variance along x is *between* the chunks
drift = np.repeat(np.arange(6.0), 10)[:, None] * np.array([1.0, 0.0]) + rng.standard_normal((60, 2)) * 1e-3
got = streaming_pca(stream(drift, [10] * 6), 2, 2)
lk.checks.expect_close(
    got.variances, np.linalg.eigvalsh(np.cov(drift, rowvar=False))[::-1], rtol=1e-7, name="variances of drifting chunks"
)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "streaming_pca_test_edges", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# Empty chunks, single rows, too few rows, and fewer rows than dimensions.
X, V = planted(np.random.default_rng(304), 6, 3, [2.0, 1.0], mean=1.0)
try:
    got = streaming_pca(stream(X, [0, 2, 0, 0, 4, 0]), 3, 2)
except ZeroDivisionError:
    raise lk.checks.CheckError(
        "a chunk without rows: division by zero. Such a chunk changes nothing: skip it"
    ) from None
lk.checks.expect_close(got.variances, np.array([4.0, 1.0]), rtol=1e-8, name="variances, empty chunks first and between")
got = streaming_pca(stream(X, [1] * 6), 3, 2)
lk.checks.expect_close(got.variances, np.array([4.0, 1.0]), rtol=1e-8, name="variances, row by row")
for sizes in ([], [0, 0], [1]):  # no chunk, no row, one row
    lk.checks.expect_raises(ValueError, streaming_pca, stream(np.ones((1, 3)), sizes), 3, 1)
for seed_of_rows in range(
    8
):  # three rows in ten dimensions: seven variances are 0, and rounding must not make them less
    X, V = planted(np.random.default_rng(seed_of_rows), 3, 10, [2.0, 1.0])
    least = np.min(streaming_pca(stream(X, [1, 2]), 10, 10).variances)
    expect_that(least >= 0, f"variances: the least is {least:.1e}, and none may be negative. Clip at 0")
### BEGIN HIDDEN TESTS
# equal rows, and fewer rows than dimensions
still = streaming_pca(stream(np.full((6, 3), 4.0), [2, 0, 4]), 3, 2)
lk.checks.expect_close(still.variances, np.zeros(2), name="variances of equal rows")
expect_orthonormal(still.components, (3, 2))
X, V = planted(np.random.default_rng(305), 3, 10, [2.0, 1.0])
got = streaming_pca(stream(X, [1, 2]), 10, 4)
assert np.min(got.variances) >= 0, f"variances: a variance cannot be negative, got {np.min(got.variances):.1e}"
expect_span(np.asarray(got.components)[:, :2], V, name="components of three rows")
lk.checks.expect_raises(ValueError, streaming_pca, stream(np.ones((1, 4)), [0, 1, 0]), 4, 2)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "streaming_pca_test_far", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# Far from the origin: sums of raw squares lose the spread, merged scatters do not.
X, V = planted(np.random.default_rng(306), 80, 4, [1.0, 0.5, 0.2], mean=1e7)
got = streaming_pca(stream(X, [17, 33, 30]), 4, 3)
lk.checks.expect_close(
    got.variances,
    np.array([1.0, 0.25, 0.04]),
    name="variances far from the origin",
    otherwise="squares of 1e7 leave no digits for the spread. Sum squares about each chunk's own mean, and merge",
    rtol=0,
    atol=1e-5,
)
### BEGIN HIDDEN TESTS
X, V = planted(np.random.default_rng(307), 50, 3, [2.0, 1.0], mean=-2e7)
got = streaming_pca(stream(X, [20, 30]), 3, 2)
lk.checks.expect_close(got.variances, np.array([4.0, 1.0]), rtol=0, atol=1e-5, name="variances far from the origin")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "streaming_pca_test_passes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The stream may be asked for its chunks once.
rng = np.random.default_rng(302)
X, V = planted(rng, 90, 5, [3.0, 2.0, 1.0], mean=2.0)
once = stream(X, [40, 20, 30])
expect_span(streaming_pca(once, 5, 2).components, V[:, :2])
expect_that(
    once.passes == 1,
    f"chunks() was called {once.passes} times, and the stream comes by once. Merge mean and scatter as you go",
)


# %% nbgrader={"grade": true, "grade_id": "streaming_pca_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 24,576 rows of 64 are 12.6 MB and pass in chunks of 1,024; a 64 × 64 matrix is 33 kB. Ten of those and five chunks will do.
def long_stream():
    rng = np.random.default_rng(303)
    return (rng.standard_normal((1024, 64)) * np.linspace(2.0, 1.0, 64) for _ in range(24))


got = lk.checks.expect_peak(streaming_pca, long_stream, 64, 4, at_most_bytes=10 * (64 * 64 * 8) + 5 * (1024 * 64 * 8))
everything = np.concatenate(list(long_stream()))
right = np.linalg.eigvalsh(np.cov(everything, rowvar=False))[::-1][:4]
lk.checks.expect_close(got.variances, right, rtol=1e-8, name="variances of the long stream")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Live bytes while twelve chunks go by: a saw, not a staircase. More chunks make more teeth, none of them taller."
):

    def going_by():
        rng = np.random.default_rng(seed)
        return (rng.standard_normal((128, 64)) for _ in range(12))

    trace = lk.trace_memory(streaming_pca, going_by, 64, 4)
    print(f"{12 * 128 * 64 * 8:,} B went by; at most {trace.peak_bytes:,} B were alive")
    display(lk.widgets.memory_timeline(trace))

# %% [markdown]
# ## Part 11 · A weight matrix in two thin pieces
#
# A layer computes $y = xW$ with $W \in \mathbb{R}^{m \times n}$, and at batch size one every weight is read for two operations: it is
# its bytes that cost. Keep the $k$ largest singular triples, $W \approx AB$ with $A \in \mathbb{R}^{m \times k}$, $B \in \mathbb{R}^{k \times n}$:
# the best rank-$k$ approximation there is (Eckart and Young, 1936), with error exactly the tail of the spectrum, $k(m+n)$ numbers
# instead of $mn$. But mind the brackets.

# %% [markdown]
# ### Task 11 · Two thin factors
# *8 points · 8 minutes · ●●○○*
#
# Factor the weight, then multiply by it without ever putting it together again.

# %%
lk.predict("low_rank")


# %% nbgrader={"grade": false, "grade_id": "low_rank", "locked": false, "schema_version": 3, "solution": true, "task": false}
def factor(W, k):
    """The best rank-k factors of a weight matrix: W [m, n] ≈ A @ B in the Frobenius norm.

    Returns (A [m, k], B [k, n]), 0 ≤ k ≤ min(m, n).

    >>> A, B = factor(np.diag([5.0, 2.0]), 1)
    >>> A @ B
    array([[5., 0.],
           [0., 0.]])
    """
    ### BEGIN SOLUTION
    U, singular, Vt = np.linalg.svd(W, full_matrices=False)
    return U[:, :k] * singular[:k], Vt[:k]
    ### END SOLUTION


def apply_factors(X, A, B):
    """X [b, m] times the factored weight: [b, n], in 2·b·k·(m + n) floating-point operations when b and k are small."""
    ### BEGIN SOLUTION
    return (X @ A) @ B
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "low_rank_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Rank 1 of diag(5, 2), the tail of a spectrum, and X A B.
A, B = (np.asarray(part) for part in factor(np.diag([5.0, 2.0]), 1))
expect_that(A.shape == (2, 1), f"A for a 2 by 2 matrix at rank 1: expected shape (2, 1), got {A.shape}")
rows = "rows of Vt, the third result of svd, and not its columns: Vt[:k]"
expect_that(B.shape == (1, 2), f"B for a 2 by 2 matrix at rank 1: expected shape (1, 2), got {B.shape}; {rows}")
slips = {
    "the smallest singular values were kept. svd sorts from the largest": np.diag([0.0, 2.0]),
    "the singular values are missing. One of the two factors carries them": np.diag([1.0, 0.0]),
    "the singular values are in both factors, and one of them carries them": np.diag([25.0, 0.0]),
    "the columns were centred. A weight is taken as it stands": np.array([[2.5, -1.0], [-2.5, 1.0]]),
}
lk.checks.expect_close(A @ B, np.diag([5.0, 0.0]), slips=slips, name="rank 1 of diag(5, 2)", atol=1e-12)
W, _ = with_spectrum(np.random.default_rng(310), 6, 9, np.array([4.0, 3.0, 2.0, 1.0]))
A, B = (np.asarray(part) for part in factor(W, 2))
lk.checks.expect_equal((A.shape, B.shape), ((6, 2), (2, 9)), name="shapes of A and B for a 6 by 9 matrix at rank 2")
error = np.linalg.norm(W - A @ B)
lk.checks.expect_close(error, 5**0.5, rtol=1e-8, name="error at rank 2, the tail: √(2² + 1²)")
X = np.random.default_rng(313).standard_normal((4, 6))
lk.checks.expect_close(apply_factors(X, A, B), X @ A @ B, rtol=1e-9, atol=1e-9, name="X A B")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(311)
for m, n, k in [(12, 7, 3), (6, 15, 1), (9, 9, 4), (7, 3, 2)]:  # tall, wide, square
    values = np.linspace(3.0, 0.5, min(m, n))
    W, _ = with_spectrum(rng, m, n, values)
    A, B = (np.asarray(part) for part in factor(W.copy(), k))
    lk.checks.expect_equal((A.shape, B.shape), ((m, k), (k, n)), name=f"shapes of A and B, {m} by {n} at rank {k}")
    lk.checks.expect_close(
        np.linalg.norm(W - A @ B),
        np.sqrt(np.sum(values[k:] ** 2)),
        rtol=1e-8,
        atol=1e-9,
        name=f"error at rank {k} of a {m} by {n} matrix, the tail",
    )
    X = rng.standard_normal((4, m))
    lk.checks.expect_close(apply_factors(X, A, B), X @ A @ B, rtol=1e-9, atol=1e-9, name="X A B")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "low_rank_test_ends", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Rank 0, full rank, and a weight of zeros.
W = np.array([[1.0, 2.0, 2.0], [2.0, 4.0, -1.0]])
for k, expected in [(0, np.zeros((2, 3))), (2, W)]:  # nothing of it, all of it
    A, B = (np.asarray(part) for part in factor(W, k))
    lk.checks.expect_equal((A.shape, B.shape), ((2, k), (k, 3)), name=f"shapes of A and B at rank {k}")
    lk.checks.expect_close(A @ B, expected, atol=1e-12, name=f"A B at rank {k}")
A, B = (np.asarray(part) for part in factor(np.zeros((3, 4)), 2))
lk.checks.expect_close(A @ B, np.zeros((3, 4)), name="A B for a weight of zeros")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(314)
for m, n in [(12, 7), (6, 15), (1, 5)]:
    W = rng.standard_normal((m, n))
    for k, expected in [(0, np.zeros((m, n))), (min(m, n), W)]:
        A, B = (np.asarray(part) for part in factor(W.copy(), k))
        lk.checks.expect_equal((A.shape, B.shape), ((m, k), (k, n)), name=f"shapes of A and B, {m} by {n} at rank {k}")
        lk.checks.expect_close(A @ B, expected, atol=1e-9, name=f"A B at rank {k}")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "low_rank_test_flops", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
# A batch of 4 through a 512 × 768 layer at rank 8: 2·4·8·(512 + 768) = 81,920 operations. W itself would take 38 times that.
rng = np.random.default_rng(312)
X, A, B = rng.standard_normal((4, 512)), rng.standard_normal((512, 8)), rng.standard_normal((8, 768))
apply_factors(X, A, B)
work = lk.count_work(apply_factors, X, A, B)
expect_that(
    81_920 * 0.99 <= work.flops <= 81_920 * 1.01,
    f"apply_factors: expected 81,920 FLOPs, counted {work.flops:,.0f}; which product comes first?",
)

# %% [markdown]
# **On a network that has really learnt something.** A small classifier (64 → 256 → 256 → 10) trains on 1,437 digits in about a second;
# 360 digits are held out. Its middle matrix starts as noise $W_0$, which has no small rank, and ends as $W_0 + \Delta W$.


# %% jupyter={"source_hidden": true}
def train(steps, hidden=256, batch=64, rate=1e-3):
    """Adam on a three-layer ReLU network. Returns the weights before and after, and held-out inputs and labels."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(digits))
    learn, held = order[:1437], order[1437:]
    weights = [rng.standard_normal((a, b)) * np.sqrt(2 / a) for a, b in [(64, hidden), (hidden, hidden), (hidden, 10)]]
    first = [w.copy() for w in weights]
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
    for step in range(1, steps + 1):
        pick = rng.choice(learn, batch)
        layers = [digits[pick] / 16]
        for w in weights[:-1]:
            layers.append(np.maximum(layers[-1] @ w, 0))
        scores = layers[-1] @ weights[-1]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        signal = scores / scores.sum(axis=1, keepdims=True)
        signal[np.arange(batch), labels[pick]] -= 1
        for i in (2, 1, 0):
            gradient = layers[i].T @ signal / batch
            signal = signal @ weights[i].T * (layers[i] > 0)
            m, v = moments[i]
            m += 0.1 * (gradient - m)
            v += 0.001 * (gradient**2 - v)
            weights[i] -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return first, weights, digits[held] / 16, labels[held]


first, trained, held_images, held_labels = train(100 if smoke else 400)


def accuracy(product, *weights):
    """Share of held-out digits named correctly when `product(h, *weights)` is the middle layer's product."""
    hidden = np.maximum(held_images @ trained[0], 0)
    return np.mean((np.maximum(product(hidden, *weights), 0) @ trained[2]).argmax(axis=1) == held_labels)


print(f"held-out accuracy {accuracy(np.matmul, trained[1]):.1%} with all of W, {trained[1].size:,} weights")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Training moves W along few directions (above). See what rank 16, an eighth of the bytes, still knows (below)."
):
    figure = go.Figure()
    for name, matrix, colour in [
        ("W₀, noise", first[1], GREY),
        ("W, trained", trained[1], BLUE),
        ("ΔW = W − W₀", trained[1] - first[1], ORANGE),
    ]:
        energy = np.cumsum(np.linalg.svd(matrix, compute_uv=False) ** 2)
        figure.add_scatter(x=np.arange(1, 257), y=energy / energy[-1], mode="lines", line={"color": colour}, name=name)
    figure.update_xaxes(title="rank k", type="log")
    figure.update_yaxes(title="share of ‖·‖² in the first k", tickformat=".0%", rangemode="tozero")
    figure.update_layout(height=340)
    lines = []
    for k in (2, 4, 8, 16, 32, 64):
        A, B = factor(trained[1], k)
        lines.append(
            f"rank {k:2d}: {(A.size + B.size) / trained[1].size:5.1%} of the bytes, accuracy {accuracy(apply_factors, A, B):.1%}"
        )
    lk.show(figure, summary="Half of the update's energy lies in a handful of directions; noise spreads over all 256.")
    print("\n".join(lines))

# %% [markdown]
# Two lessons stand side by side here. $\Delta W$ has low rank, which is why LoRA may train two thin factors instead of a whole
# matrix. And $W$ itself has **not**: rank 16 drops most of its energy and hardly any of its accuracy, because the inputs use
# only a few of its directions. The norm of the error bounds the damage and does not measure it. Lab 06
# compares low rank with quantization and pruning at equal bytes.
#
# ## On your GPU
#
# Not graded. Where there is a GPU, the next cell times three routes to the same ten components and places them under its roof. Elsewhere it
# says why it does nothing.

# %% jupyter={"source_hidden": true}
device = lk.detect()
if device.kind != "cuda" or device.virtual:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    import torch

    rows_on_gpu = torch.randn(200_000, 512, device="cuda") * torch.linspace(3, 0.1, 512, device="cuda")
    rows_on_gpu -= rows_on_gpu.mean(0)
    n, d = rows_on_gpu.shape
    roof = lk.Roofline.of(device)
    timed = {
        "covariance + eigh": (lambda: torch.linalg.eigh(rows_on_gpu.T @ rows_on_gpu), 2 * n * d * d, 4 * n * d),
        "thin SVD": (lambda: torch.linalg.svd(rows_on_gpu, full_matrices=False), 6 * n * d * d, 3 * 4 * n * d),
        "randomized, q = 1": (lambda: torch.svd_lowrank(rows_on_gpu, q=18, niter=1), 4 * 2 * n * d * 18, 4 * 4 * n * d),
    }
    for name, (route, flops, read) in timed.items():
        timing = lk.bench(route, name=name)
        work = lk.Work(flops=flops, bytes_read=read, name=name, how={"flops": "formula", "bytes_read": "formula"})
        print(timing, roof.place(work.with_seconds(timing.median)).verdict, sep="\n  ")

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
# - A projection is two thin products. The matrix $P$ exists on paper only.
# - Kept variance plus lost variance is constant; the best subspace is the top eigenvectors, and the error is the tail. Exactly.
# - Squaring a matrix spends half of your digits. SVD does not square.
# - Count passes before you count operations: one vector a pass uses each byte once, a block once for each of its columns, in fewer passes.
# - Count, mean and scatter are all that a stream needs to be remembered by.
# - Report a cosine in a subspace together with its share. If the share is small, the cosine means nothing.
#
# ## Next
#
# Chapter 3, *Geometry: subspaces and PCA*, has the proofs. Lab 03 begins with kernels: the same bytes, moved by
# thousands of threads at once.
