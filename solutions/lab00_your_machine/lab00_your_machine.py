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
# # Lab 00 · Your machine
#
# A kernel is as fast as its machine lets it be, and most people have never measured theirs. Here you time it without
# fooling yourself, see where memory goes, and draw the one picture this course keeps coming back to: the roofline.
#
# **You will be able to**
#
# - quote a time with its interval, and know when not to believe it;
# - find the memory that nobody wrote down, and do with half of it;
# - count the FLOPs and the bytes of dot, mv and mm;
# - say from a datasheet what holds a kernel back, and when a measurement cannot be true.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 100 minutes | ●○○○ | any laptop; a GPU only for the last, ungraded section | 100 in 9 tasks |
#
# The time includes reading; the minutes beside a task are for writing it. Needs a little numpy. Reads along with
# chapter 0, [Find f, then make it fast](../../course/chapters/00_find_f.md), and chapter 5,
# [Roofline](../../course/chapters/05_roofline.md).
#
# Each task goes the same way: **predict** (not graded: committing to a guess is what teaches), **write**, **check**, then
# **look**; the three tasks after the roof share its picture. Marks come from right answers and from counted bytes, passes and FLOPs, never from a clock. Stuck? `lk.hint("warmup_end")`
# in a new cell gives a nudge, and a stronger one each time you ask. **Hints cost no marks.** `lk.progress()` shows how far you
# are. Long checks and the code of pictures are folded: click the three dots in a cell to read it.

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% nbgrader={"grade": false, "grade_id": "lab00_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import math

import numpy as np
import plotly.graph_objects as go

import mlsys_labkit as lk

# %% tags=["parameters"]
smoke = False  # True: shorter measurements and smaller pictures, for a quick run through
seed = 0

# %% [markdown]
# ## Part 1 · Which machine is this?
#
# `lk.detect()` looks for a GPU, and then for everything that limits you: how many cores this process may really use (a container often
# has fewer than `os.cpu_count()` claims) and how much memory is left before something is killed.

# %%
device = lk.detect()
device

# %% [markdown]
# Guess, then measure: how long does this machine take to multiply two 256 × 256 matrices? Change the first line to your guess and
# run the cell. Do not be surprised by a factor of ten.

# %%
guess = 1e-3  # seconds; change it
square = np.ones((256, 256), np.float32)
measured = lk.bench(np.matmul, square, square, seconds=0.05, name="256 x 256 matmul").median
factor = max(guess / measured, measured / guess)
print(f"measured {measured * 1e6:.0f} µs: your guess is off by a factor of {factor:.1f}")

# %% [markdown]
# The rest of this lab compares your machine with one that you may not have. `lk.specs` holds datasheets, each number with its source
# and its small print:

# %% nbgrader={"grade": false, "grade_id": "lab00_h100", "locked": true, "schema_version": 3, "solution": false, "task": false}
h100 = lk.specs.get("h100-sxm")
print(h100.name)
print(f"{h100.peak('bfloat16') / 1e12:6.0f} TFLOP/s of arithmetic in bfloat16, dense")
print(f"{h100.bandwidth() / 1e12:6.2f} TB/s from memory")

# %% [markdown]
# ## Part 2 · Time it, honestly
#
# One stopwatch reading is an anecdote. The first calls are slow (caches are cold, pages are not there yet, something compiles), later
# ones are disturbed by everything else that the machine does. Here are forty readings of one function, in microseconds.

# %% nbgrader={"grade": false, "grade_id": "lab00_readings", "locked": true, "schema_version": 3, "solution": false, "task": false}
readings = np.array(
    """
    941.0 402.5 188.1 131.0 104.2 101.3 103.9 100.2 99.8 101.1
    100.7 187.4 100.1 99.9 102.2 100.4 101.8 100.0 99.7 100.9
    101.5 100.3 143.8 100.6 99.9 100.8 101.2 100.5 100.1 102.7
    99.6 100.2 312.9 100.4 101.0 100.7 99.8 100.3 101.6 100.1
    """.split(),
    dtype=float,
)

# %% [markdown]
# ### Task 1 · Where does the warm-up end?
# *10 points · 8 minutes · ●○○○*
#
# Take the **median of the second half** as the steady level. The warm-up is the run of **leading** samples that are more than 25 %
# above it. Spikes later on are noise, not warm-up: they stay.

# %%
lk.predict("warmup_end")


# %% nbgrader={"grade": false, "grade_id": "warmup_end", "locked": false, "schema_version": 3, "solution": true, "task": false}
def warmup_end(samples):
    """Index of the first sample after the warm-up.

    samples: 1-D array of n >= 2 times, in any unit, in the order they were taken; not changed.
    The second half is samples[n // 2:]. A sample exactly 25 % above its median is not warm-up.
    Returns an int from 0 (no warm-up) to n - 1: there always is a sample at or below that median.

    Example: warmup_end(np.array([9.0, 3.0, 1.0, 1.1, 1.0, 1.0])) -> 2
    """
    ### BEGIN SOLUTION
    samples = np.asarray(samples, dtype=float)
    limit = 1.25 * np.median(samples[len(samples) // 2 :])
    steady = np.flatnonzero(samples <= limit)
    return int(steady[0])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "warmup_end_test", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
given = np.array([9.0, 3.0, 1.0, 1.1, 1.0, 1.0])
lk.checks.expect_equal(warmup_end(given), 2, name="the docstring's example")
untouched = np.array([9.0, 3.0, 1.0, 1.1, 1.0, 1.0])
lk.checks.expect_equal(given, untouched, name="the array that you were given, after the call")
lk.checks.expect_equal(warmup_end(np.array([1.0, 1.0, 1.0, 1.0])), 0, name="no warm-up at all")
lk.checks.expect_equal(warmup_end(np.array([0.5, 1.0, 1.0, 1.0])), 0, name="a fast first sample, which is no warm-up")
spiky = np.array([5.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0])
lk.checks.expect_equal(warmup_end(spiky), 1, name="a spike after the warm-up, which is noise")
lk.checks.expect_equal(warmup_end(readings), 4, name="the readings above")
lk.checks.expect_equal(warmup_end(readings * 1e-6), 4, name="the readings above, in seconds")
lk.checks.expect_equal(warmup_end(np.array([1.25, 1.0, 1.0, 1.0])), 0, name="exactly 25 % above, which is not more")
lk.checks.expect_equal(warmup_end(np.array([4.0, 4.0, 4.0, 1.0, 1.0])), 3, name="a warm-up longer than the first half")
# Three samples: the second half is [2.2, 1.6], its median 1.9, the limit 2.375.
lk.checks.expect_equal(warmup_end(np.array([2.6, 2.2, 1.6])), 1, name="an odd number of samples")
rng = np.random.default_rng(7)
for leading in (0, 1, 6):  # slow samples, 2 to 9 times as long as the steady ones
    samples = np.concatenate([rng.uniform(2, 9, leading), rng.uniform(1.0, 1.05, 30)])
    lk.checks.expect_equal(warmup_end(samples), leading, name=f"{leading} slow samples before 30 steady ones")

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Forty readings: crosses are warm-up, the dashed line is the median of the rest. "
    "The spikes are real, and the median shrugs them off."
):
    end = warmup_end(readings)
    figure = go.Figure()
    for label, part, marker in (
        ("warm-up", slice(0, end), {"color": "gray", "symbol": "x", "size": 9}),
        ("kept", slice(end, None), {"symbol": "circle", "size": 8}),
    ):
        x, y = np.arange(len(readings))[part], readings[part]
        figure.add_scatter(x=x, y=y, mode="markers", name=label, marker=marker)
    middle = float(np.median(readings[end:]))
    figure.add_hline(y=middle, line_dash="dash", line_color="#2a7fbf")
    figure.update_layout(xaxis_title="sample", yaxis_title="time in µs", height=320)
    figure.update_yaxes(type="log", tickvals=[100, 200, 500, 1000])
    slow = int(np.sum(readings[end:] > 1.25 * middle))
    lk.show(figure, summary=f"{end} warm-up samples, then a median of {middle:.1f} µs and {slow} spikes.")

# %% [markdown]
# ### Task 2 · How sure is that median?
# *12 points · 12 minutes · ●●○○*
#
# Sort n independent samples. Each lies below the true median with probability one half. Let $X$ be the number of samples below it:
# $X \sim \mathrm{Bin}(n, \tfrac12)$, a binomial distribution, whatever the shape of the noise. The probability that fewer than $l$
# samples lie below is
#
# $$P(X \le l - 1) = \frac{1}{2^n} \sum_{i=0}^{l-1} \binom{n}{i}.$$
#
# If it is at most 0.025, the interval from the $l$-th smallest sample to the $l$-th largest covers the true median at least 95 % of the
# time. This assumes no normal distribution, and timings seldom have one. In Python, $\binom{n}{i}$ is `math.comb(n, i)`.

# %%
lk.predict("median_interval")


# %% nbgrader={"grade": false, "grade_id": "median_interval", "locked": false, "schema_version": 3, "solution": true, "task": false}
def median_interval(samples):
    """The distribution-free 95 % confidence interval of the median: (low, high), two of the samples.

    samples: 1-D array of n times, in any order, not changed; n may be in the thousands.
    l, counted from 1, is the largest rank with P(X <= l - 1) <= 0.025, X ~ Bin(n, 1/2).
    low is the l-th smallest sample and high the l-th largest.
    Fewer than six samples have no such l: raise ValueError.

    Example: for 10 samples l = 2, so median_interval(np.arange(10.0)) -> (1.0, 8.0)
    Reference: W. J. Conover, Practical Nonparametric Statistics, section 3.2.
    """
    ### BEGIN SOLUTION
    n = len(samples)
    if n < 6:
        raise ValueError(f"the median of {n} samples has no 95 % interval; take at least 6")
    tail, rank = 0, 0  # the tail counts outcomes out of 2**n, in whole numbers
    while (tail + math.comb(n, rank)) * 40 <= 2**n:
        tail += math.comb(n, rank)
        rank += 1
    ordered = np.sort(samples)
    return float(ordered[rank - 1]), float(ordered[n - rank])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "median_interval_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
slips = {
    "one rank too far inside. Ranks count from 1 and Python counts from 0: the 2nd smallest is ordered[1]": (2.0, 7.0),
    "one rank too far outside. l is the largest rank that the condition allows, 2 for ten samples": (0.0, 9.0),
    "low is right, and high one rank too far inside: the 2nd largest of ten is ordered[8]": (1.0, 7.0),
    "low is right, and high one rank too far outside: the 2nd largest of ten is ordered[8]": (1.0, 9.0),
    "high is right, and low one rank too far inside: the 2nd smallest of ten is ordered[1]": (2.0, 8.0),
    "these are ranks, and the samples of these ranks are wanted": (2.0, 9.0),
}
lk.checks.expect_close(median_interval(np.arange(10.0)), (1.0, 8.0), slips=slips, name="ranks 2 and 9 of 10")
lk.checks.expect_close(median_interval(np.arange(1.0, 16.0)), (4.0, 12.0), name="ranks for 15 samples")
lk.checks.expect_close(median_interval(np.arange(1.0, 101.0)), (40.0, 61.0), name="ranks for 100 samples")
### BEGIN HIDDEN TESTS
# Ranks from the printed table of the binomial (sign-test) interval.
for n, low, high in ((8, 1, 8), (9, 2, 8), (20, 6, 15), (25, 8, 18), (30, 10, 21), (50, 18, 33)):
    lk.checks.expect_close(
        median_interval(np.arange(1.0, n + 1)), (float(low), float(high)), name=f"ranks for {n} samples"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "median_interval_test_unsorted", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
samples = np.array([70.0, 30.0, 90.0, 10.0, 80.0, 20.0, 60.0, 40.0, 50.0])
lk.checks.expect_close(median_interval(samples), (20.0, 80.0), name="nine samples that are not in order")
untouched = np.array([70.0, 30.0, 90.0, 10.0, 80.0, 20.0, 60.0, 40.0, 50.0])
lk.checks.expect_equal(samples, untouched, name="the array that you were given, after the call")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(11)
samples = rng.exponential(size=30)
kept = samples.copy()
lk.checks.expect_close(median_interval(samples), (np.sort(kept)[9], np.sort(kept)[20]), name="unsorted samples")
lk.checks.expect_equal(samples, kept, name="the array that you were given, after the call")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "median_interval_test_few", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_raises(ValueError, median_interval, np.arange(5.0))
lk.checks.expect_close(
    median_interval(np.arange(6.0)), (0.0, 5.0), name="six samples, the fewest that have an interval"
)
### BEGIN HIDDEN TESTS
lk.checks.expect_close(median_interval(np.arange(7.0)), (0.0, 6.0), name="seven samples")
for n in (0, 1, 3):
    lk.checks.expect_raises(ValueError, median_interval, np.arange(float(n)))
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "median_interval_test_many", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 2**1100 does not fit a float, and 0.5**1100 is 0 there. Python's whole numbers have room for both sides.
lk.checks.expect_close(median_interval(np.arange(1.0, 1101)), (518.0, 583.0), name="ranks for 1,100 samples")
### BEGIN HIDDEN TESTS
lk.checks.expect_close(median_interval(np.arange(1.0, 2001)), (956.0, 1045.0), name="ranks for 2,000 samples")
### END HIDDEN TESTS

# %% [markdown]
# That is what `lk.bench` does for you, and more: it finds the warm-up, goes on until the interval is narrow or the budget is spent, and
# ends with a verdict. Read the verdict before you read the number.

# %%
budget = 0.1 if smoke else 0.3  # seconds for each measurement
a = np.random.default_rng(seed).standard_normal((256, 256)).astype(np.float32)
lk.bench(lambda: a @ a, seconds=budget, name="256 x 256 matmul")

# %% [markdown]
# To ask *which is faster*, never time one after the other: the machine drifts. `lk.compare` interleaves the two and answers with one of
# **faster**, **slower**, **same** or **undecided**. The last one is an answer, too.

# %%
down, across = (lambda: a.sum(axis=0)), (lambda: a.sum(axis=1))
lk.compare(down, across, seconds=budget, names=("sum(axis=0)", "sum(axis=1)"))

# %% [markdown]
# ## Part 3 · Where memory goes
#
# An array lives as long as something refers to it. What counts on a machine is the **peak**: the bytes alive at the worst moment. A
# program that needs more memory than there is does not run slowly: it is killed.
#
# ### Task 3 · Standardize within one extra array
# *12 points · 10 minutes · ●●○○*
#
# `(x - mean) / std` looks innocent. Each operation writes a fresh array, and for a moment several of them are alive together.


# %%
def standardize_carelessly(x):
    centred = x - x.mean()
    variance = (centred**2).mean()
    return centred / np.sqrt(variance)


# %%
lk.predict("standardize")

# %% [markdown]
# Now watch it. Each step of the timeline is one array that is born or dies; the table names the line that made it.

# %%
x = np.random.default_rng(seed).standard_normal(250_000)
with lk.trace_memory() as careless:
    standardize_carelessly(x)
print(f"x has {x.nbytes / 1e6:.1f} MB, the new arrays peak at {careless.peak_bytes / 1e6:.1f} MB")
lk.widgets.memory_timeline(careless)

# %% [markdown]
# Your turn. Compute the same numbers while never holding more than **one** array of the input's size beside the input. The input must not change.
# (`np.subtract(a, b, out=a)` and `a -= b` write into what is already there; `np.dot(a, a)` sums squares without writing any.)


# %% nbgrader={"grade": false, "grade_id": "standardize", "locked": false, "schema_version": 3, "solution": true, "task": false}
def standardize(x):
    """(x - mean) / standard deviation, in one new array.

    x: float64 array of n >= 1 elements, 1-D, contiguous, not changed.
    Returns a new float64 array; zeros if all elements are equal. It is right to six digits also for elements near 1e8
    that differ by about 1.
    Peak of new memory: n * 8 bytes, and at most 16 KiB of small change.

    Example: standardize(np.array([1.0, 3.0])) -> array([-1., 1.])
    """
    ### BEGIN SOLUTION
    out = x - x.mean()
    deviation = math.sqrt(np.dot(out, out) / len(out))
    if deviation:
        out /= deviation
    return out
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "standardize_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
right = np.array([-1.0, 1.0])
slips = {"the divisor is n − 1 (ddof=1). The standard deviation of these numbers divides by n": right / math.sqrt(2)}
lk.checks.expect_close(standardize(np.array([1.0, 3.0])), right, slips=slips, name="the docstring's example")
sample = np.array([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])  # mean 5, standard deviation 2
halves = np.array([-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0])
lk.checks.expect_close(standardize(sample), halves, name="eight elements")
untouched = np.array([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
lk.checks.expect_equal(sample, untouched, name="the input, after the call")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(5)
for n in (2, 7, 1000):  # 7 is odd; the rest is ordinary
    x_in = rng.uniform(-3, 8, n)
    kept = x_in.copy()
    expected = (kept - kept.mean()) / np.sqrt(((kept - kept.mean()) ** 2).mean())
    lk.checks.expect_close(standardize(x_in), expected, atol=1e-9, name=f"{n} elements")
    lk.checks.expect_equal(x_in, kept, name="the input, after the call")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "standardize_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
sample = np.random.default_rng(3).standard_normal(20_000)
result = lk.checks.expect_peak(standardize, sample, at_most_bytes=sample.nbytes + 16_384)
lk.checks.expect_close(result.mean(), 0.0, atol=1e-9, name="the mean of what you return")
slips = {"the divisor is n − 1 (ddof=1), and n is wanted": math.sqrt(1 - 1 / 20_000)}
lk.checks.expect_close(result.std(), 1.0, slips=slips, name="the standard deviation of what you return")
### BEGIN HIDDEN TESTS
# The small change stays small: it must not grow with the input.
big = np.random.default_rng(6).standard_normal(6_000_000)
result = lk.checks.expect_peak(standardize, big, at_most_bytes=big.nbytes + 16_384)
lk.checks.expect_close(result, (big - big.mean()) / big.std(), atol=1e-9, name="six million elements")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "standardize_test_far", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Far from zero the mean of the squares and the square of the mean agree in nearly every digit: their difference is noise.
far = np.array([1e8 - 2, 1e8 - 1, 1e8, 1e8 + 1, 1e8 + 2])
expected = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / math.sqrt(2)
slips = {"the divisor is n − 1 (ddof=1), and n is wanted": expected * math.sqrt(4 / 5)}
lost = "squares of 1e8 are 1e16 and leave no digits for the spread. Take the mean away first, then square"
lk.checks.expect_close(
    standardize(far), expected, atol=1e-6, slips=slips, otherwise=lost, name="a large mean and a small spread"
)
### BEGIN HIDDEN TESTS
far = 1e8 + np.random.default_rng(8).standard_normal(1000)
lk.checks.expect_close(
    standardize(far), (far - far.mean()) / far.std(), rtol=1e-6, atol=1e-6, name="a large mean and a small spread"
)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "standardize_test_equal", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(standardize(np.full(9, 4.0)), np.zeros(9), name="all elements equal")
lk.checks.expect_close(standardize(np.array([7.0])), np.zeros(1), name="one element")
### BEGIN HIDDEN TESTS
lk.checks.expect_close(standardize(np.full(4, -2.5)), np.zeros(4), name="all elements equal")
lk.checks.expect_close(standardize(np.zeros(3)), np.zeros(3), name="all elements 0")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture("The same numbers from your version: one array where the careless one held two."):
    with lk.trace_memory() as yours:
        standardize(x)
    for name, one in (("careless", careless), ("yours", yours)):
        print(f"{name:9} {one.peak_bytes / x.nbytes:.2f} times x")
    display(lk.widgets.memory_timeline(yours))

# %% [markdown]
# ## Part 4 · The two speeds of a machine
#
# A machine does arithmetic at one speed and brings numbers from memory at another.
#
# ### Task 4 · The speed of memory
# *8 points · 4 minutes · ●○○○*
#
# Copy a large array, and divide bytes by seconds. Mind the units: GB is $10^9$ bytes (GiB is $2^{30}$).

# %%
lk.predict("copy_bandwidth")


# %% nbgrader={"grade": false, "grade_id": "copy_bandwidth", "locked": false, "schema_version": 3, "solution": true, "task": false}
def copy_bandwidth(elements, itemsize, seconds):
    """Bytes per second that a copy of one array moved to and from memory.

    elements: number of elements, 0 for an empty array; itemsize: bytes of one; seconds: time of the copy, more than 0.
    Returns a float in B/s.

    Example: copy_bandwidth(1_000_000_000, 4, 0.004) -> 2e12
    """
    ### BEGIN SOLUTION
    return 2 * elements * itemsize / seconds
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "copy_bandwidth_test", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(copy_bandwidth(1_000_000_000, 4, 0.004), 2e12, name="the docstring's example, in B/s")
lk.checks.expect_close(copy_bandwidth(1, 8, 2.0), 8.0, name="one double in two seconds")
lk.checks.expect_close(copy_bandwidth(0, 4, 1.0), 0.0, name="an empty array, which moves nothing")
# 1 GiB of bfloat16 on an H100, at its full 3.35 TB/s: 641 µs.
lk.checks.expect_close(copy_bandwidth(2**29, 2, 2 * 2**30 / 3.35e12), 3.35e12, name="1 GiB in 641 µs")

# %% jupyter={"source_hidden": true}
with lk.picture("Your machine's two speeds, measured now. They are yours, and nobody grades them."):
    elements = 16_000_000  # 64 MB an array: more than most caches hold
    source, target = np.ones(elements, np.float32), np.empty(elements, np.float32)
    copying = lk.bench(np.copyto, target, source, seconds=budget, name="copy")
    bandwidth = copy_bandwidth(elements, 4, copying.median)
    print(f"memory      {bandwidth / 1e9:8.1f} GB/s     ({copying.verdict})")
    n = 512
    square = np.ones((n, n), np.float32)
    multiplying = lk.bench(np.matmul, square, square, seconds=budget, name="matmul")
    print(f"arithmetic  {2 * n**3 / multiplying.median / 1e9:8.1f} GFLOP/s  ({multiplying.verdict})")
    del source, target

# %% [markdown]
# ## Part 5 · How much arithmetic for each byte?
#
# ### Task 5 · Count it
# *16 points · 10 minutes · ●○○○*
#
# Three operations, each with its arithmetic and its least possible traffic: every input read **once**, every output written **once**.
#
# | | computes | shapes |
# |---|---|---|
# | dot | one number | $n \cdot n$ |
# | mv | matrix times vector | $(m \times n) \cdot n$ |
# | mm | matrix times matrix | $(m \times k) \cdot (k \times n)$ |
#
# By the field's convention a multiply and an add are two floating-point operations (FLOPs), and a dot product of length $n$ counts $2n$.
# FLOPs divided by bytes moved are the **arithmetic intensity**, in FLOP/B.

# %%
lk.predict("costs")


# %% nbgrader={"grade": false, "grade_id": "costs", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dot_cost(n, itemsize):
    """(FLOPs, bytes moved) of a dot product of two vectors of n elements.

    Example: dot_cost(8, 4) -> (16, 68)
    """
    ### BEGIN SOLUTION
    return 2 * n, (2 * n + 1) * itemsize
    ### END SOLUTION


def mv_cost(m, n, itemsize):
    """(FLOPs, bytes moved) of an m x n matrix times a vector.

    Example: mv_cost(2, 3, 4) -> (12, 44)
    """
    ### BEGIN SOLUTION
    return 2 * m * n, (m * n + n + m) * itemsize
    ### END SOLUTION


def mm_cost(m, n, k, itemsize):
    """(FLOPs, bytes moved) of an m x k matrix times a k x n matrix.

    Example: mm_cost(2, 3, 4, 2) -> (48, 52)
    """
    ### BEGIN SOLUTION
    return 2 * m * n * k, (m * k + k * n + m * n) * itemsize
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "costs_test", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
one_less = "each sum was given one addition less. By the convention above, a dot product of length n counts 2n"
name = "(FLOPs, bytes) of dot_cost(8, 4)"
lk.checks.expect_close(dot_cost(8, 4), (16, 68), slips={one_less: (15, 68)}, name=name)
name = "(FLOPs, bytes) of mv_cost(2, 3, 4)"
lk.checks.expect_close(mv_cost(2, 3, 4), (12, 44), slips={one_less: (10, 44)}, name=name)
name = "(FLOPs, bytes) of mm_cost(2, 3, 4, 2)"
lk.checks.expect_close(mm_cost(2, 3, 4, 2), (48, 52), slips={one_less: (42, 52)}, name=name)

# %% nbgrader={"grade": true, "grade_id": "costs_test_ragged", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(mm_cost(1, 1, 8, 4), (16, 68), name="1 x 8 times 8 x 1, a dot product")
lk.checks.expect_close(mm_cost(3, 1, 5, 4), (30, 92), name="3 x 5 times 5 x 1, a matrix times a vector")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(13)
for _ in range(20):  # ragged shapes, 1 included; the traffic is counted from real arrays
    m, n, k = (int(size) for size in rng.integers(1, 40, 3))
    for dtype in (np.float16, np.float32, np.float64):
        left, right = np.ones((m, k), dtype), np.ones((k, n), dtype)
        moved = left.nbytes + right.nbytes + (left @ right).nbytes
        lk.checks.expect_close(mm_cost(m, n, k, left.itemsize), (2 * m * n * k, moved), name=f"mm_cost({m}, {n}, {k})")
        moved = left.nbytes + left[0].nbytes + left[:, 0].nbytes
        lk.checks.expect_close(mv_cost(m, k, left.itemsize), (2 * m * k, moved), name=f"mv_cost({m}, {k})")
### END HIDDEN TESTS

# %% [markdown]
# Now the ratio of your two counts, the arithmetic intensity. It decides what limits each of the three.

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Three fates: in float32 a dot product stays at ¼ FLOP/B and a matrix-vector product at ½, "
    "however large. Only a matmul's intensity grows with its size."
):
    sizes = 2 ** np.arange(3, 14)
    figure = go.Figure()
    for label, cost, dash in (
        ("mm", lambda n: mm_cost(n, n, n, 4), "solid"),
        ("mv", lambda n: mv_cost(n, n, 4), "dash"),
        ("dot", lambda n: dot_cost(n, 4), "dot"),
    ):
        intensity = [np.divide(*cost(int(n))) for n in sizes]
        figure.add_scatter(x=sizes, y=intensity, name=label, line_dash=dash, mode="lines+markers")
    figure.update_layout(xaxis_title="n", yaxis_title="FLOP/B", height=340)
    figure.update_xaxes(type="log", tickvals=sizes[::2], ticktext=[f"{n}" for n in sizes[::2]])
    figure.update_yaxes(type="log", tickvals=[0.25, 0.5, 1, 10, 100, 1000])
    lk.show(figure, summary="dot stays at 1/4 FLOP/B and mv at 1/2 in float32; mm grows as n/6.")

# %% [markdown]
# ## Part 6 · The roofline
#
# A kernel of intensity $I$ on a machine with peak $P$ (FLOP/s) and bandwidth $B$ (B/s) can run at no more than
#
# $$\min(P,\; I \cdot B).$$
#
# Left of the **ridge** $P / B$ it starves for bytes, right of it arithmetic is the limit. (Williams, Waterman and Patterson, 2009.)
#
# ### Task 6 · Draw the roof
# *12 points · 6 minutes · ●○○○*
#
# Two lines of code for the picture that this course keeps coming back to. Below the checks, yours draw the roofs of the H100.

# %%
lk.predict("attainable")


# %% nbgrader={"grade": false, "grade_id": "attainable", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ridge(peak, bandwidth):
    """The intensity in FLOP/B at which the two roofs meet. peak in FLOP/s, bandwidth in B/s.

    Example: ridge(1000.0, 10.0) -> 100.0
    """
    ### BEGIN SOLUTION
    return peak / bandwidth
    ### END SOLUTION


def attainable(intensity, peak, bandwidth):
    """The most FLOP/s that a kernel of this intensity (FLOP/B) can reach.

    intensity: a number or an array of any shape, from 0 (no arithmetic) to infinity (np.inf: the kernel moves no bytes).
    Returns a number or an array of the same shape.

    Example: attainable(4.0, 1000.0, 10.0) -> 40.0
    """
    ### BEGIN SOLUTION
    return np.minimum(peak, np.asarray(intensity) * bandwidth)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "attainable_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(attainable(4.0, 1000.0, 10.0), 40.0, name="left of the ridge")
lk.checks.expect_close(attainable(400.0, 1000.0, 10.0), 1000.0, name="right of the ridge")
lk.checks.expect_close(attainable(100.0, 1000.0, 10.0), 1000.0, name="on the ridge, where both roofs agree")
### BEGIN HIDDEN TESTS
for intensity, peak, bandwidth, expected in ((0.25, 65e12, 320e9, 80e9), (1000.0, 312e12, 2039e9, 312e12)):
    lk.checks.expect_close(attainable(intensity, peak, bandwidth), expected, name=f"{intensity:g} FLOP/B on a GPU")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "attainable_test_array", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
many = np.array([0.0, 0.25, 100.0, 1e9, np.inf])
roof = np.array([0.0, 2.5, 1000.0, 1000.0, 1000.0])
lk.checks.expect_close(attainable(many, 1000.0, 10.0), roof, name="an array, from no arithmetic to no bytes")
rows = np.array([[4.0, 400.0], [0.0, 40.0], [np.inf, 1.0]])
roof = np.array([[40.0, 1000.0], [0.0, 400.0], [1000.0, 10.0]])
lk.checks.expect_close(attainable(rows, 1000.0, 10.0), roof, name="an array of two axes")
### BEGIN HIDDEN TESTS
many = np.array([[np.inf, 3.0], [0.0, 50.0], [20.0, 7.0]])
lk.checks.expect_close(
    attainable(many, 60.0, 4.0), np.array([[60.0, 12.0], [0.0, 60.0], [60.0, 28.0]]), name="an array of two axes"
)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "attainable_test_ridge", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_close(ridge(1000.0, 10.0), 100.0, name="ridge(1000, 10)")
# An H100 in bfloat16, dense: 989.4 TFLOP/s and 3.35 TB/s.
lk.checks.expect_close(ridge(989.4e12, 3.35e12), 295.3433, rtol=1e-6, name="the ridge of an H100")
### BEGIN HIDDEN TESTS
# Two datasheets, ridges worked out by hand: T4 fp16 65e12 / 320e9, A100 bf16 312e12 / 2039e9.
for peak, bandwidth, expected in ((65e12, 320e9, 203.125), (312e12, 2039e9, 153.0161)):
    lk.checks.expect_close(ridge(peak, bandwidth), expected, rtol=1e-6, name="ridge")
    lk.checks.expect_close(attainable(expected, peak, bandwidth), peak, rtol=1e-6, name="on the ridge")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
with lk.picture(
    "Your roofs of an H100, with your three operations on the one of float32. The thin lines stand at the ridges."
):
    figure = go.Figure()
    across = np.geomspace(0.1, 10_000, 101)
    for dtype, dash in (("bfloat16", "solid"), ("float32", "dash")):
        peak = h100.peak(dtype)
        roof = attainable(across, peak, h100.bandwidth()) / 1e12
        figure.add_scatter(x=across, y=roof, mode="lines", name=dtype, line_dash=dash)
        figure.add_vline(x=ridge(peak, h100.bandwidth()), line_dash=dash, line_width=1, line_color="gray")
    for label, (flops, moved) in {
        "dot": dot_cost(10**6, 4),
        "mv": mv_cost(1000, 1000, 4),
        "mm": mm_cost(1000, 1000, 1000, 4),
    }.items():
        height = attainable(flops / moved, h100.peak("float32"), h100.bandwidth()) / 1e12
        figure.add_scatter(x=[flops / moved], y=[height], mode="markers+text", text=label, showlegend=False)
    figure.update_traces(
        marker={"size": 11, "symbol": "diamond"}, textposition="top left", selector={"mode": "markers+text"}
    )
    figure.update_xaxes(type="log", title="FLOP/B", dtick=1)
    figure.update_yaxes(type="log", title="TFLOP/s", tickvals=[1, 10, 100, 1000])
    figure.update_layout(height=360)
    told = ", ".join(
        f"{ridge(h100.peak(dtype), h100.bandwidth()):.0f} FLOP/B in {dtype}" for dtype in ("float32", "bfloat16")
    )
    lk.show(figure, summary=f"Ridges of an H100: {told}. dot and mv stand on the slope, mm on the roof of float32.")

# %% [markdown]
# ### Task 7 · What holds it back?
# *12 points · 8 minutes · ●●○○*
#
# Say for a kernel what limits it on a machine: memory or arithmetic. The peak depends on the number format: ask the
# datasheet with `spec.peak(dtype)` and `spec.bandwidth()`. A kernel that sits exactly on the ridge counts as `"compute"`.

# %%
lk.predict("bound")


# %% nbgrader={"grade": false, "grade_id": "bound", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bound(flops, bytes_moved, spec, dtype):
    """Which roof limits a kernel on the machine that spec (a lk.specs.DeviceSpec) describes?

    Returns "memory" or "compute".
    flops >= 0 and bytes_moved >= 0, not both 0. dtype such as "float32" or "bfloat16".
    A kernel that moves no bytes is "compute"; so is one exactly on the ridge.
    """
    ### BEGIN SOLUTION
    # Compared as products: no division, so no bytes is no special case.
    return "compute" if flops * spec.bandwidth() >= spec.peak(dtype) * bytes_moved else "memory"
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "bound_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(bound(*dot_cost(10**6, 4), h100, "float32"), "memory", name="a dot product")
lk.checks.expect_equal(bound(*mm_cost(4096, 4096, 4096, 2), h100, "bfloat16"), "compute", name="a large matmul")
### BEGIN HIDDEN TESTS
# One token of a 7-billion-parameter model in bfloat16 reads every weight for two FLOPs: 1 FLOP/B. A batch of 512 reuses them.
lk.checks.expect_equal(bound(2 * 7e9, 2 * 7e9, h100, "bfloat16"), "memory", name="decoding one token")
lk.checks.expect_equal(bound(512 * 2 * 7e9, 2 * 7e9, h100, "bfloat16"), "compute", name="a batch of 512")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "bound_test_formats", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# The same 600-cubed matmul in two formats: 100 FLOP/B against a ridge of 20, 200 against one of 295.
lk.checks.expect_equal(bound(*mm_cost(600, 600, 600, 4), h100, "float32"), "compute", name="n = 600, float32")
lk.checks.expect_equal(bound(*mm_cost(600, 600, 600, 2), h100, "bfloat16"), "memory", name="n = 600, bfloat16")
# On an A100 the ridge of bfloat16 is at 153 FLOP/B, left of these 200.
a100 = lk.specs.get("a100-sxm-80gb")
lk.checks.expect_equal(bound(*mm_cost(600, 600, 600, 2), a100, "bfloat16"), "compute", name="n = 600 on an A100")
### BEGIN HIDDEN TESTS
t4 = lk.specs.get("t4")
lk.checks.expect_equal(bound(*mm_cost(600, 600, 600, 2), t4, "float16"), "memory", name="on a T4: 200 < 203")
lk.checks.expect_equal(bound(*mm_cost(60, 60, 60, 4), h100, "float32"), "memory", name="n = 60, float32: 10 < 20")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "bound_test_ridge", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
on_the_ridge = h100.peak("float32"), h100.bandwidth()  # FLOPs and bytes of one second at both speeds
lk.checks.expect_equal(bound(*on_the_ridge, h100, "float32"), "compute", name="exactly on the ridge")
### BEGIN HIDDEN TESTS
t4 = lk.specs.get("t4")
lk.checks.expect_equal(bound(2 * t4.peak("float16"), 2 * t4.bandwidth(), t4, "float16"), "compute", name="on the ridge")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "bound_test_zero", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(bound(1.0, 0.0, h100, "float32"), "compute", name="a kernel that moves nothing")
lk.checks.expect_equal(bound(0.0, 1.0, h100, "float32"), "memory", name="a copy, which computes nothing")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(bound(10**6, 0, h100, "bfloat16"), "compute", name="no bytes, in whole numbers")
lk.checks.expect_equal(bound(0, 10**6, h100, "bfloat16"), "memory", name="no FLOPs, in whole numbers")
### END HIDDEN TESTS

# %% [markdown]
# ### Task 8 · How large is large enough?
# *10 points · 8 minutes · ●●○○*
#
# From which $n$ on is an $n \times n \times n$ matmul limited by arithmetic?

# %%
lk.predict("large_enough")


# %% nbgrader={"grade": false, "grade_id": "large_enough", "locked": false, "schema_version": 3, "solution": true, "task": false}
def large_enough(peak, bandwidth, itemsize):
    """The smallest n >= 1 for which an n x n x n matmul reaches the ridge, every matrix moved once.

    peak in FLOP/s, bandwidth in B/s, itemsize in bytes. Returns an int.

    Example: large_enough(1000.0, 10.0, 4) -> 600    (600 / 6 = 100 FLOP/B)
    """
    ### BEGIN SOLUTION
    # 2 n^3 / (3 n^2 itemsize) >= peak / bandwidth
    n = max(1, math.ceil(1.5 * itemsize * peak / bandwidth))
    while n > 1 and 2 * (n - 1) * bandwidth >= 3 * itemsize * peak:  # rounding may have carried ceil one too far
        n -= 1
    return n
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "large_enough_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(large_enough(1000.0, 10.0, 4), 600, name="the docstring's example")
lk.checks.expect_equal(large_enough(h100.peak("bfloat16"), h100.bandwidth(), 2), 887, name="an H100 in bfloat16")
### BEGIN HIDDEN TESTS
for key, dtype, itemsize in (("h100-sxm", "float32", 4), ("t4", "float16", 2), ("a100-sxm-80gb", "tf32", 4)):
    spec = lk.specs.get(key)
    needed, there = 3 * itemsize * spec.peak(dtype), 2 * spec.bandwidth()
    expected = next(n for n in range(1, 5000) if n * there >= needed)
    lk.checks.expect_equal(
        large_enough(spec.peak(dtype), spec.bandwidth(), itemsize), expected, name=f"{key} in {dtype}"
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "large_enough_test_rounding", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(large_enough(7.0, 3.0, 1), 4, name="3.5, which rounds up")
lk.checks.expect_equal(large_enough(8.0, 3.0, 1), 4, name="exactly 4, which is enough")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(large_enough(100.0, 64.0, 2), 5, name="4.6875 rounds up")
lk.checks.expect_equal(large_enough(64.0, 16.0, 2), 12, name="exactly 12")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "large_enough_test_one", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(large_enough(1.0, 1e6, 4), 1, name="a slow processor with a fast memory: any size will do")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(large_enough(1e9, 1e12, 8), 1, name="a ridge at 0.001 FLOP/B")
### END HIDDEN TESTS

# %% [markdown]
# ### Task 9 · Too good to be true
# *8 points · 9 minutes · ●●○○*
#
# A friend measured a kernel on an H100 and is proud of it. The roofline says how fast it can be at best; whoever is faster has
# **miscounted** (the wrong precision, FLOPs that were never done, a result that came from a cache, a GPU that had not finished).

# %%
lk.predict("fastest_seconds")


# %% nbgrader={"grade": false, "grade_id": "fastest_seconds", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fastest_seconds(flops, bytes_moved, peak, bandwidth):
    """The least time in seconds that this work can take.

    It must do all its arithmetic and move all its bytes; peak in FLOP/s, bandwidth in B/s.

    Example: fastest_seconds(2000.0, 10.0, 1000.0, 10.0) -> 2.0
    """
    ### BEGIN SOLUTION
    return max(flops / peak, bytes_moved / bandwidth)
    ### END SOLUTION


def too_good(seconds, flops, bytes_moved, peak, bandwidth):
    """True if no machine with these two speeds can have done the work in so few seconds.

    The clock is granted 2 %: a time is too good if it is below 0.98 times the least, and only then.
    """
    ### BEGIN SOLUTION
    return bool(seconds < 0.98 * fastest_seconds(flops, bytes_moved, peak, bandwidth))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "fastest_seconds_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
slips = {
    "this is the shorter of the two times. The work is done when its longer half is done": 1.0,
    "the two times were added. Arithmetic and traffic go on at once": 3.0,
}
example = fastest_seconds(2000.0, 10.0, 1000.0, 10.0)
lk.checks.expect_close(example, 2.0, slips=slips, name="the docstring's example, 2 s of arithmetic and 1 s of traffic")
lk.checks.expect_close(fastest_seconds(0.0, 50.0, 1000.0, 10.0), 5.0, name="a copy: no arithmetic")
# Arithmetic and traffic overlap: 2 s of one and 5 s of the other take 5 s.
lk.checks.expect_close(fastest_seconds(2000.0, 50.0, 1000.0, 10.0), 5.0, name="arithmetic and traffic at once")
### BEGIN HIDDEN TESTS
peak, bandwidth = 989.4e12, 3.35e12
# A copy of 1 GB: 2 GB moved, no arithmetic.
lk.checks.expect_close(fastest_seconds(0.0, 2e9, peak, bandwidth), 2e9 / 3.35e12, name="a copy")
lk.checks.expect_close(fastest_seconds(989.4e12, 3.35e12, peak, bandwidth), 1.0, name="both roofs at once")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "fastest_seconds_test_too_good", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(too_good(1.0, 2000.0, 10.0, 1000.0, 10.0), True, name="twice as fast as the roof allows")
lk.checks.expect_equal(too_good(3.0, 2000.0, 10.0, 1000.0, 10.0), False, name="slower than the roof allows")
# 4096-cubed in bfloat16 on an H100: 100 µs would be 1.37 PFLOP/s.
work = (2 * 4096**3, 3 * 4096**2 * 2, 989.4e12, 3.35e12)
lk.checks.expect_equal(too_good(100e-6, *work), True, name="4096-cubed in 100 µs")
lk.checks.expect_equal(too_good(1e-3, 0.0, 2e10, 989.4e12, 3.35e12), True, name="a copy of 10 GB in 1 ms")
### BEGIN HIDDEN TESTS
lk.checks.expect_equal(too_good(200e-6, *work), False, name="4096-cubed in 200 µs")
lk.checks.expect_equal(too_good(1e-3, 0.0, 2e9, 989.4e12, 3.35e12), False, name="a copy of 1 GB in 1 ms")
lk.checks.expect_equal(too_good(1e-4, 0.0, 2e9, 989.4e12, 3.35e12), True, name="a copy of 1 GB in 0.1 ms")
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "fastest_seconds_test_clock", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
lk.checks.expect_equal(too_good(1.98, 2000.0, 10.0, 1000.0, 10.0), False, name="1 % below the least: the clock's share")
lk.checks.expect_equal(too_good(1.94, 2000.0, 10.0, 1000.0, 10.0), True, name="3 % below the least")
just = "0.9802 times the least. The limit is the least times 0.98, not the least divided by 1.02"
lk.checks.expect_equal(too_good(1.9604, 2000.0, 10.0, 1000.0, 10.0), False, name=just)
### BEGIN HIDDEN TESTS
work = (2 * 4096**3, 3 * 4096**2 * 2, 989.4e12, 3.35e12)
floor = 2 * 4096**3 / 989.4e12
lk.checks.expect_equal(too_good(0.99 * floor, *work), False, name="1 % below the least")
lk.checks.expect_equal(too_good(0.97 * floor, *work), True, name="3 % below the least")
### END HIDDEN TESTS

# %% [markdown]
# ## Part 7 · Your own roofline
#
# Solid lines are measured on this machine's processor. The diamonds are your dot, mv and mm: **counted by your formulas**, timed by
# the kit. The matrix has 151 MB on purpose. In a cache it would leave the slope behind, for the slope is the speed of memory.

# %% jupyter={"source_hidden": true}
with lk.picture("Your machine. The dot product hugs the slope, the matmul reaches for the roof."):
    n, k = 6144, 1024
    matrix, vector, square = (np.ones(shape, np.float32) for shape in ((n, n), n, (k, k)))
    upper, lower = matrix.reshape(2, -1)
    cases = (
        ("dot", dot_cost(n * n // 2, 4), 4, np.dot, (upper, lower)),
        ("mv", mv_cost(n, n, 4), 4 * n, np.matmul, (matrix, vector)),
        ("mm", mm_cost(k, k, k, 4), 4 * k * k, np.matmul, (square, square)),
    )
    cpu = lk.detect({}, probes=())  # the points run on the processor, whatever GPU sits beside it
    # refresh: a roof kept from a busier day would sit below today's points
    roofline = lk.Roofline.measure(seconds=0.5 if smoke else 2.0, device=cpu, refresh=True)
    points = []
    for name, (flops, moved), written, function, inputs in cases:
        work = lk.Work(name=name, flops=flops, bytes_read=moved - written, bytes_written=written)
        timing = lk.bench(function, *inputs, seconds=budget)
        points.append(work.with_seconds(timing.median))
        display(roofline.place(points[-1]))
    display(lk.widgets.roofline(device=roofline, works=points))
    del matrix, upper, lower, cases, inputs

# %% [markdown]
# Low under the roof? That is no mark lost, it is a finding: other programs share your cores and your memory, and one `bench` of a third of
# a second meets them or does not. *Above* the roof? Then the machine was busier when the roof was measured. Run the cell again, and read
# both as what they are: readings.

# %% [markdown]
# Now the H100 beside the generation before it, the A100. Set *Work* to a matrix product. Its sizes are powers of two: between which two of them
# does the H100 begin to be limited by arithmetic? `large_enough` computed the size between them. Why is a smaller product enough on the A100?

# %%
area = 2 * 600**2  # bytes of one matrix in bfloat16
small = lk.Work(name="mm 600", flops=2 * 600**3, bytes_read=2 * area, bytes_written=area, dtype="bfloat16")
lk.widgets.roofline(devices=["h100-sxm", "a100-sxm-80gb"], works=[small], dtype="bfloat16")

# %% [markdown]
# ## On your GPU
#
# Not graded. With an NVIDIA GPU and torch, this measures its roof beside the datasheet's: timed by CUDA events, its memory over arrays far
# larger than its L2 cache. Without one the cell says what is missing.

# %% jupyter={"source_hidden": true}
if device.virtual:
    print(f"Not measured: LABKIT_DEVICE asks for a model ({device.name}), and a model has no clock.")
    print("Unset it and restart the kernel to measure the hardware that is here.")
elif device.kind == "cuda":
    try:
        display(lk.Roofline.measure(device=device, seconds=2.0 if smoke else 6.0))
    except lk.LabkitError as problem:
        print(f"Not measured on {device.name}: {problem}")
else:
    print("Not measured: neither NVIDIA's driver nor torch reports a GPU on this machine.")
    print("You miss no marks: everything above is complete without one.")
    print("You expected one to be here? `labkit doctor` in a terminal says what is wrong.")

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
# - One reading is an anecdote. Take many, drop the warm-up, quote the **median with its interval**, and read the verdict first.
# - Temporaries are the memory you did not write down. Ask for the **peak**, not for the sum.
# - Intensity decides: **dot** and **mv** live on the slope, **mm** can climb to the roof. Decoding one token of a language model is an mv.
# - Faster arithmetic moves the ridge to the right: on a better machine *more* kernels are memory bound.
# - Above the roof is not a record. It is a counting error.
#
# ## Next
#
# Chapter 5, *Roofline*, has the picture's history and its limits. **Lab 01 · Linear algebra is data movement** shows the bytes behind
# every transpose.
