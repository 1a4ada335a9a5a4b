# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 91 · Twenty points
#
# The lab that every submission of the corpus answers: one task for each way in which values cross between two
# processes.

# %% nbgrader={"grade": false, "grade_id": "imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
from dataclasses import dataclass

import numpy as np
import torch

from mlsys_labkit.checks import expect_close, expect_copy, expect_equal, expect_raises, expect_shares_memory

# %% tags=["parameters"]
smoke = False
seed = 0

# %% nbgrader={"grade": false, "grade_id": "record", "locked": true, "schema_version": 3, "solution": false, "task": false}
@dataclass(frozen=True)
class Summary:
    """A summary of one vector: its mean, its largest magnitude, and the index of that."""

    mean: float
    peak: float
    at: int

# %% [markdown]
# ## Softmax

# %% nbgrader={"grade": false, "grade_id": "softmax", "locked": false, "schema_version": 3, "solution": true, "task": false}
def softmax(x):
    """Return softmax over the last axis of a float64 array of any rank, in new memory; large inputs do not overflow."""
    ### BEGIN SOLUTION
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "softmax_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
rng = np.random.default_rng(seed + 1)
scores = rng.normal(size=(3, 5))
by_definition = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
expect_close(softmax(scores), by_definition, name="softmax")
expect_close(softmax(np.array([2.0, 2.0])), np.array([0.5, 0.5]), name="softmax of equals")

# %% nbgrader={"grade": true, "grade_id": "softmax_test_large", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
expect_close(softmax(np.array([0.0, 0.0])), np.array([0.5, 0.5]), name="softmax of zeros")
### BEGIN HIDDEN TESTS
hidden_scores = np.array([[1000.0, 1000.0 + np.log(3.0)], [-1000.0, -1000.0]])
expect_close(softmax(hidden_scores), np.array([[0.25, 0.75], [0.5, 0.5]]), rtol=1e-9, name="softmax of large scores")
### END HIDDEN TESTS

# %% [markdown]
# ## Scaling in place

# %% nbgrader={"grade": false, "grade_id": "scale_rows_", "locked": false, "schema_version": 3, "solution": true, "task": false}
def scale_rows_(matrix, factors):
    """Multiply row i of a float32 tensor by ``factors[i]``, in place; returns nothing."""
    ### BEGIN SOLUTION
    matrix.mul_(factors[:, None])
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "scale_rows_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
torch.manual_seed(seed + 2)
matrix, factors = torch.randn(4, 3), torch.tensor([1.0, -2.0, 0.5, 0.0])
by_rows = torch.stack([row * factor for row, factor in zip(matrix, factors)])
expect_equal(scale_rows_(matrix, factors), None, name="what scale_rows_ returns")
expect_close(matrix, by_rows, name="the matrix afterwards")
expect_equal(factors, torch.tensor([1.0, -2.0, 0.5, 0.0]), name="the factors afterwards")

# %% [markdown]
# ## A ring buffer

# %% nbgrader={"grade": false, "grade_id": "Ring", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Ring:
    """The last ``size`` things that were pushed."""

    def __init__(self, size):
        ### BEGIN SOLUTION
        self.size, self.kept = size, []
        ### END SOLUTION

    def push(self, thing):
        """Add one; returns what it displaced, or None."""
        ### BEGIN SOLUTION
        self.kept.append(thing)
        return self.kept.pop(0) if len(self.kept) > self.size else None
        ### END SOLUTION

    def __len__(self):
        ### BEGIN SOLUTION
        return len(self.kept)
        ### END SOLUTION

    def items(self):
        """Return the items as a list, the oldest first."""
        ### BEGIN SOLUTION
        return list(self.kept)
        ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ring_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
ring = Ring(2)
expect_equal(ring.push(7), None, name="the first push")
expect_equal(ring.items(), [7], name="items")
expect_equal(len(ring), 1, name="len")

# %% nbgrader={"grade": true, "grade_id": "ring_test_full", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
ring, other = Ring(3), Ring(1)
displaced = [ring.push(3 * number + 1) for number in range(8)]
expect_equal(displaced, [None, None, None, 1, 4, 7, 10, 13], name="what was displaced")
expect_equal(ring.items(), [16, 19, 22], name="items")
expect_equal(len(other), 0, name="another ring's len")

# %% [markdown]
# ## Windows

# %% nbgrader={"grade": false, "grade_id": "windows", "locked": false, "schema_version": 3, "solution": true, "task": false}
def windows(items, size):
    """Yield each run of ``size`` neighbours of an iterable as a tuple; holds no more than one run."""
    ### BEGIN SOLUTION
    run = []
    for item in items:
        run = [*run, item][-size:]
        if len(run) == size:
            yield tuple(run)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "windows_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
expect_equal(list(windows([5, 3, 8, 1], 2)), [(5, 3), (3, 8), (8, 1)], name="windows of 2")
squares = windows((number * number for number in range(100)), 3)
expect_equal([next(squares), next(squares)], [(0, 1, 4), (1, 4, 9)], name="the first two of 3")
expect_equal(list(windows([1], 2)), [], name="too few items")

# %% [markdown]
# ## Fold

# %% nbgrader={"grade": false, "grade_id": "fold", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fold(step, items, start):
    """Return ``step(step(start, items[0]), items[1])``, and so on."""
    ### BEGIN SOLUTION
    total = start
    for item in items:
        total = step(total, item)
    return total
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "fold_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
asked = []


def step(total, item):
    asked.append((total, item))
    return 2 * total + item


expect_equal(fold(step, [1, 0, 1, 1], 0), 11, name="binary 1011")
expect_equal(asked, [(0, 1), (1, 0), (2, 1), (5, 1)], name="the order of the steps")
expect_equal(fold(step, [], 5), 5, name="nothing to fold")

# %% [markdown]
# ## Sampling

# %% nbgrader={"grade": false, "grade_id": "sample", "locked": false, "schema_version": 3, "solution": true, "task": false}
def sample(weights, count, rng):
    """Draw ``count`` indices with probabilities proportional to ``weights`` (positive floats): an int64 array.

    Draws come from ``rng``, a numpy Generator, alone.
    """
    ### BEGIN SOLUTION
    weights = np.asarray(weights, dtype=np.float64)
    return np.searchsorted(np.cumsum(weights), rng.random(count) * weights.sum(), side="right")
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "sample_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
drawn = sample([1.0, 2.0, 5.0], 4000, np.random.default_rng(seed + 3))
# Three standard deviations of a binomial count of 4000 draws are at most 3 * sqrt(4000) / 2 = 95; five leave no flake.
expect_close(np.bincount(drawn, minlength=3), np.array([500, 1000, 2500]), atol=159, name="counts")
again = sample([1.0, 2.0, 5.0], 4000, np.random.default_rng(seed + 3))
expect_equal(np.array_equal(drawn, again), True, name="the same seed, the same draws")
other = sample([1.0, 2.0, 5.0], 4000, np.random.default_rng(seed + 4))
expect_equal(np.array_equal(drawn, other), False, name="another seed, the same draws")

# %% [markdown]
# ## Shapes

# %% nbgrader={"grade": false, "grade_id": "parse_shape", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ShapeError(ValueError):
    """A text that is no shape. ``text`` is what came."""

    ### BEGIN SOLUTION
    def __init__(self, text):
        super().__init__(f"no shape: {text!r}")
        self.text = text
    ### END SOLUTION


def parse_shape(text):
    """Return ``"2x3x4"`` as a tuple of positive ints; raise ShapeError for anything else."""
    ### BEGIN SOLUTION
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ShapeError(text)
    return tuple(map(int, parts))
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "parse_shape_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
for shape, size in zip(map(parse_shape, ["7", "12x1"]), [(7,), (12, 1)]):
    expect_equal(shape, size, name="shape")
expect_raises(ShapeError, parse_shape, "2xx3")
try:
    parse_shape("2x0")
except ShapeError as error:
    expect_equal(error.text, "2x0", name="the error's text")
else:
    raise AssertionError("2x0 is no shape")

# %% [markdown]
# ## A summary

# %% nbgrader={"grade": false, "grade_id": "summarize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def summarize(vector):
    """Return the ``Summary`` of a float64 tensor of rank 1."""
    ### BEGIN SOLUTION
    at = int(vector.abs().argmax())
    return Summary(float(vector.mean()), float(vector.abs()[at]), at)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "summarize_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
torch.manual_seed(seed + 5)
vector = torch.randn(9, dtype=torch.float64)
vector[4] = -8.5
summary = summarize(vector)
expect_equal(type(summary).__name__, "Summary", name="the type")
expect_close(summary.mean, sum(vector.tolist()) / 9, name="mean")
expect_equal((summary.peak, summary.at), (8.5, 4), name="peak and place")
expect_equal(summary == Summary(summary.mean, 8.5, 3), False, name="equal to another summary")

# %% [markdown]
# ## Blocks

# %% nbgrader={"grade": false, "grade_id": "blocks", "locked": false, "schema_version": 3, "solution": true, "task": false}
def blocks(vector, size):
    """Return a tensor of length n as a tensor of n / size rows, without copying."""
    ### BEGIN SOLUTION
    return vector.view(-1, size)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "blocks_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
torch.manual_seed(seed + 6)
vector = torch.randn(12)
expect_close(blocks(vector, 4), torch.stack([vector[0:4], vector[4:8], vector[8:12]]), name="blocks")

# %% nbgrader={"grade": true, "grade_id": "blocks_test_view", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} tags=["claim"]
vector = torch.arange(6.0)
rows = blocks(vector, 3)
expect_equal(tuple(rows.shape), (2, 3), name="the shape")
expect_shares_memory(rows, vector, name="blocks")

# %% [markdown]
# ## A number

# %% nbgrader={"grade": false, "grade_id": "answer", "locked": false, "schema_version": 3, "solution": true, "task": false}
# How many bytes has a float32 matrix of 1000 rows and 500 columns?
matrix_bytes = 0
### BEGIN SOLUTION
matrix_bytes = 4 * 1000 * 500
### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "answer_test", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
expect_equal(matrix_bytes, 2_000_000, name="matrix_bytes")

# %% [markdown]
# ## Matrix times vector

# %% nbgrader={"grade": false, "grade_id": "matvec", "locked": false, "schema_version": 3, "solution": true, "task": false}
def matvec(matrix, vector):
    """Return the product of a 2-D and a 1-D float64 array, in new memory."""
    ### BEGIN SOLUTION
    return (matrix * vector).sum(axis=1)
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "matvec_test", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
rng = np.random.default_rng(seed + 7)
matrix, vector = rng.normal(size=(5, 3)), rng.normal(size=3)
before = matrix.copy(), vector.copy()
product = matvec(matrix, vector)
expect_close(product, np.einsum("ij,j->i", *before), name="product")
expect_copy(product, vector, name="product")
expect_equal((matrix.tolist(), vector.tolist()), (before[0].tolist(), before[1].tolist()), name="the arguments")
### BEGIN HIDDEN TESTS
expect_close(matvec(np.zeros((2, 0)), np.zeros(0)), np.zeros(2), name="nothing to add up")
expect_close(matvec(matrix.T, matrix[:, 0]), np.einsum("ij,i->j", before[0], before[0][:, 0]), name="transposed")
### END HIDDEN TESTS
