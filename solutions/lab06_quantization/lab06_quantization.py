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
# # Lab 06 · Quantization
#
# A language model that writes one token reads every weight once and does two operations with each, so the bytes
# decide the time. The cheapest speed-up needs no new hardware: store the same numbers in fewer bits. This lab does it, from
# the single bit up to a kernel that multiplies by four-bit weights, and after every step asks a real language model whether
# it noticed.
#
# **You will be able to**
#
# - read and write any small float, from FP16 down to FP4, bit by bit;
# - choose between affine and symmetric, between one scale a tensor, a row or a group, and count what each costs;
# - say why outliers hurt, and move them where they hurt less;
# - pack two weights into a byte, in the block formats of today's tensor cores, too;
# - quantize a model with round-to-nearest and with GPTQ, and measure the difference in perplexity;
# - write a Triton kernel that reads four-bit weights and prove, byte by byte, what it reads.
#
# | time | difficulty | hardware | points |
# |---|---|---|---|
# | 210 minutes | ●●●○ | any laptop; a GPU only for the last, ungraded section | 100 in 11 tasks |
#
# The time includes reading. Take two sittings: Parts 1 to 4 (110 minutes), then Parts 5 to 8 (100 minutes). A summary stands between them.
#
# Needs lab 01 (bytes and FLOPs) and lab 05 (Triton) for the last task. Reads along with
# [chapter 9, *Fewer bits, fewer weights*](../../course/chapters/09_bits.md).
#
# Each task goes the same way: **predict**, **write**, **check**, then **look**. Marks come from exact bits, counted bytes and
# perplexity, never from a clock. Stuck? `lk.hint("decode")` in a new cell gives a nudge, and a stronger one each time you ask.
# Hints cost no marks. `lk.progress()` shows how far you are. Long checks, helpers and the code of pictures are folded: click the three dots
# in a cell to read it.

# %% jupyter={"source_hidden": true} tags=["install"]
from importlib.util import find_spec

if find_spec("mlsys_labkit") is None:  # opened on Colab, which brings torch and the rest
    get_ipython().run_line_magic("pip", "install -q mlsys-labkit")

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab06_imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext mlsys_labkit
import contextlib
import io
import logging
import warnings

import numpy as np
import plotly.graph_objects as go
import torch
import triton
import triton.language as tl

import mlsys_labkit as lk
from mlsys_labkit import lm
from mlsys_labkit.formats import FORMATS

GREY = "#8a8f98"  # readable on light and on dark


def require(holds, message):
    """Raise the error of a check unless the condition holds."""
    __tracebackhide__ = True
    if not holds:
        raise lk.checks.CheckError(message)


# %% tags=["parameters"]
smoke = False  # True: shorter texts, for a quick run through
seed = 0

# %% [markdown]
# Try it: four bits are a number in FP4 E2M1, which has 16 numbers in all. Change the bits until they mean −1.5, and run the cell
# again each time. Part 1 says how to read them.

# %%
bits = "0000"  # change it: the sign, two bits of exponent, one bit of mantissa
number = FORMATS["fp4_e2m1"].values()[int(bits, 2)]
print(f"{bits} means {number:g}: " + ("found it" if number == -1.5 else "not yet"))

# %% [markdown]
# ## The model that measures the damage
#
# `lm.load()` gives a real language model, small enough for any machine: a decoder in the shape of today's large ones (RMSNorm,
# rotary positions, grouped-query attention, SwiGLU), trained on the text of Python's standard library. It writes text
# that looks like Python and seldom is. Its judge is **perplexity** on text that it has never seen. A perplexity of 12 means that the
# model is, on average, as unsure of the next token as if it had to choose among 12 equally likely ones. Lower is better; a quantized
# model that keeps it has lost nothing that this text can tell.

# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab06_model", "locked": true, "schema_version": 3, "solution": false, "task": false}
model, tokenizer = lm.load()
unseen = torch.tensor(tokenizer.encode(lm.held_out()))
windows = unseen[: len(unseen) // 512 * 512].view(-1, 512)
judged = windows[0::14][:8].flatten()  # what perplexity is measured on
calibration = windows[1::2][:32]  # what GPTQ may look at: other windows of the same text
weights = {
    name: module.weight.detach().clone()
    for name, module in model.named_modules()
    if isinstance(module, torch.nn.Linear) and name != "lm_head"
}


def perplexity_with(replacement, tokens=judged):
    """Perplexity of the model with every linear layer's weight W [out, in] replaced by `replacement(name, W)`."""
    layers = dict(model.named_modules())
    try:
        for name, weight in weights.items():
            layers[name].weight.data = replacement(name, weight.clone()).to(weight.dtype).reshape(weight.shape)
        return lm.perplexity(model, tokens)
    finally:
        for name, weight in weights.items():
            layers[name].weight.data = weight.clone()


baseline = lm.perplexity(model, judged)

# %%
prompt = tokenizer.encode("\ndef read(self, size=-1):\n")
print(tokenizer.decode(prompt + list(lm.generate(model, prompt, 70, temperature=0.9, top_k=20, seed=seed))))
held = sum(weight.numel() for weight in weights.values())
print(f"\nperplexity {baseline:.2f} · {held / 1e6:.2f} million weights in {len(weights)} linear layers")

# %% [markdown]
# ## Part 1 · Numbers, bit by bit
#
# A small float is three fields: a sign $s$, an exponent $E$, a mantissa $M$. Let $e$ be the number of bits of the exponent and $m$
# that of the mantissa. With the bias $b = 2^{e-1} - 1$ the float stands for
#
# $$(-1)^s \cdot 2^{E - b} \cdot \left(1 + \tfrac{M}{2^m}\right) \ \text{ if } E > 0, \qquad
#   (-1)^s \cdot 2^{1 - b} \cdot \tfrac{M}{2^m} \ \text{ if } E = 0 .$$
#
# The second line, the *subnormals*, fills the gap around zero evenly. IEEE formats keep the largest $E$ for infinity ($M = 0$)
# and NaN. FP16, BF16 and FP8 E5M2 do; E4M3 gives up infinity and keeps a single NaN; FP4 E2M1 has no specials at all.

# %%
lk.widgets.number_formats(0.3, "fp8_e5m2")

# %% [markdown]
# ### Task 1 · From bits to numbers
# *8 points · 10 minutes · ●○○○*
#
# Decode codes of any IEEE-like format: `FP16` is (5, 10), `BF16` is (8, 7), `FP8 E5M2` is (5, 2).

# %%
lk.predict("decode")


# %% nbgrader={"grade": false, "grade_id": "decode", "locked": false, "schema_version": 3, "solution": true, "task": false}
def decode(codes, exponent_bits, mantissa_bits):
    """The numbers that some codes stand for.

    codes: int array of any shape, each below 2^(1 + exponent_bits + mantissa_bits). Returns float64 of the same shape.
    The largest exponent is infinity (mantissa 0) or NaN (else), with the sign.

    >>> decode(np.array([0x3C00, 0x0001, 0xFC00]), 5, 10)          # FP16
    array([ 1.00000000e+00,  5.96046448e-08,            -inf])
    """
    ### BEGIN SOLUTION
    codes = np.asarray(codes).astype(np.int64)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    negative = codes >> (exponent_bits + mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    significand = np.where(exponent > 0, (1 << mantissa_bits) + mantissa, mantissa)
    size = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)
    special = np.where(mantissa == 0, np.inf, np.nan)
    size = np.where(exponent == (1 << exponent_bits) - 1, special, size)
    return np.where(negative == 1, -size, size)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "decode_test", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# Normal numbers, subnormals, infinities and NaN of three formats.
for name, bits, codes, numbers in [
    (
        "FP16: 1, -1.5, the largest number, -inf",
        (5, 10),
        [0x3C00, 0xBE00, 0x7BFF, 0xFC00],
        [1.0, -1.5, 65504.0, -np.inf],
    ),
    (
        "FP16: three subnormals, the smallest and the largest among them",
        (5, 10),
        [0x0001, 0x0200, 0x03FF],
        [2.0**-24, 2.0**-15, 1023 * 2.0**-24],
    ),
    ("FP16: the smallest normal", (5, 10), [0x0400], [2.0**-14]),
    ("FP16: NaN with two mantissas", (5, 10), [0x7C01, 0x7E00], [np.nan, np.nan]),
    (
        "BF16: 1, -2, the smallest subnormal, inf",
        (8, 7),
        [0x3F80, 0xC000, 0x0001, 0x7F80],
        [1.0, -2.0, 2.0**-133, np.inf],
    ),
]:
    lk.checks.expect_close(decode(np.array(codes), *bits), np.array(numbers), rtol=0, atol=0, name=name)
matrix = decode(np.array([[0x3C, 0x01], [0xBC, 0x7C]]), 5, 2)
lk.checks.expect_close(
    matrix, np.array([[1.0, 2.0**-16], [-1.0, np.inf]]), rtol=0, atol=0, name="a matrix of FP8 E5M2 codes"
)
print("Passed: numbers, subnormals, infinities and NaN of three formats.")

# %% nbgrader={"grade": true, "grade_id": "decode_test_all", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# A fourth format.
lk.checks.expect_close(
    decode(np.array([0x38, 0x07, 0x08]), 4, 3), np.array([1.0, 7 * 2.0**-9, 2.0**-6]), rtol=0, name="an IEEE-like E4M3"
)
print("Passed: a fourth format.")
### BEGIN HIDDEN TESTS
# every code of five formats; NumPy's own type is the judge of FP16, the published definitions of the others
every = np.arange(1 << 16, dtype=np.uint16)
lk.checks.expect_close(
    decode(every.astype(np.int64), 5, 10), every.view(np.float16).astype(np.float64), rtol=0, atol=0, name="all of FP16"
)
with np.errstate(invalid="ignore"):  # a signalling NaN complains when it is widened
    bf16 = (every.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
lk.checks.expect_close(decode(every.astype(np.int64), 8, 7), bf16, rtol=0, atol=0, name="all of BF16")
for e, m in [(5, 2), (4, 3), (3, 4)]:
    codes = np.arange(1 << (1 + e + m))
    expected = []
    for code in codes.tolist():  # one code at a time, by the formula
        sign, E, M = (-1.0) ** (code >> (e + m)), (code >> m) % (1 << e), code % (1 << m)
        if E == (1 << e) - 1:
            expected.append(sign * np.inf if M == 0 else np.nan)
        elif E == 0:
            expected.append(sign * 2.0 ** (2 - 2 ** (e - 1)) * M / 2**m)
        else:
            expected.append(sign * 2.0 ** (E + 1 - 2 ** (e - 1)) * (1 + M / 2**m))
    lk.checks.expect_close(decode(codes, e, m), np.array(expected), rtol=0, atol=0, name=f"all codes of E{e}M{m}")
### END HIDDEN TESTS

# %% [markdown]
# ### Task 2 · From numbers to bits
# *8 points · 15 minutes · ●●○○*
#
# Rounding is one idea for every format: positive floats, sorted by code, are sorted by size. So the nearest number is next to
# the place where the number would be inserted. A tie goes to the **even code** (its last bit is 0); over many roundings that
# leaves no drift, as always rounding up would. Beyond the largest number there is nothing, so **saturate**.

# %%
lk.predict("encode")


# %% nbgrader={"grade": false, "grade_id": "encode", "locked": false, "schema_version": 3, "solution": true, "task": false}
def encode(x, table):
    """Round to the nearest number of a small signed float format.

    x: finite floats, any shape. table [n]: the format's non-negative numbers in ascending order, table[c] being the number of
    code c; n is a power of two and the sign bit is worth n. Returns int64 codes of x's shape: nearest, ties to the even code,
    saturated at table[-1]; negative numbers have the sign bit set, and so has -0.0.

    >>> encode(np.array([0.25, 0.75, 2.5, -100.0]), np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]))      # FP4 E2M1
    array([ 0,  2,  4, 15])
    """
    ### BEGIN SOLUTION
    x = np.asarray(x, dtype=np.float64)
    size = np.minimum(np.abs(x), table[-1])
    above = np.clip(
        np.searchsorted(table, size), 1, len(table) - 1
    )  # the first number not below, never the first of all
    below = above - 1
    down, up = size - table[below], table[above] - size
    code = np.where((down < up) | ((down == up) & (below % 2 == 0)), below, above)
    return code + len(table) * np.signbit(x)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "encode_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# FP4 E2M1: nearest, ties, saturation, both signs.
e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
for what, x, codes in [
    ("nearest", [0.3, 0.7, 1.1, 2.4, 3.4, 5.2], [1, 1, 2, 4, 5, 7]),
    ("ties go to the even code", [0.25, 1.25, 0.75, 1.75, 2.5, 3.5, 5.0], [0, 2, 2, 4, 4, 6, 6]),
    ("beyond the largest number", [6.5, 100.0], [7, 7]),
    ("negative numbers", [-0.7, -2.5, -100.0], [9, 12, 15]),
]:
    try:
        got = encode(np.array(x), e2m1).tolist()
    except IndexError:
        require(
            max(x) <= 6, f"FP4 E2M1, {what}: an index outside the table; saturate, that is cut |x| off at table[-1]"
        )
        raise
    for looks, slip in {
        "each is the next number towards zero, and not the nearest": [0, 1, 2, 4, 5, 6],
        "these ties went up; the code of a tie is even": [1, 3, 2, 4, 5, 6, 7],
        "these ties went down; the code of a tie is even": [0, 2, 1, 3, 4, 5, 6],
        "code 8 is -0; saturate, that is cut |x| off at table[-1]": [8, 8],
    }.items():
        require(got != slip, f"FP4 E2M1, {what}: {looks}")
    lk.checks.expect_equal(got, codes, name=f"FP4 E2M1, {what}")
print("Passed: FP4 E2M1, nearest, ties to the even code, saturated, both signs.")

# %% nbgrader={"grade": true, "grade_id": "encode_test_zero", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# Zeros keep their sign.
got = encode(np.array([0.0, -0.0, -0.1]), np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])).tolist()
require(
    got != [0, 0, 8], "0, -0 and -0.1: -0.0 has lost its sign bit, for -0.0 < 0 is False; ask for the sign bit itself"
)
require(got != [0, 8, 0], "0, -0 and -0.1: -0.1 rounds to the code of 0, and its sign bit stays: 8")
lk.checks.expect_equal(got, [0, 8, 8], name="0, -0 and -0.1")
print("Passed: zeros keep their sign.")

# %% nbgrader={"grade": true, "grade_id": "encode_test_formats", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Codes have the shape of x.
shaped = np.array([[[0.2], [0.7]], [[-2.6], [5.5]]])  # no ties, and nothing beyond 6
lk.checks.expect_equal(
    encode(shaped, np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])).tolist(),
    [[[0], [1]], [[13], [7]]],
    name="codes of an array [2, 2, 1]",
)
print("Passed: codes have the shape of x.")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(602)
for name in ("fp4_e2m1", "fp6_e2m3", "fp6_e3m2"):
    format_ = FORMATS[name]
    table = format_.values()[: 1 << (format_.bits - 1)]
    middles = (table[1:] + table[:-1]) / 2
    x = np.concatenate(
        [table, middles, np.nextafter(middles, 9e9), np.nextafter(middles, 0), rng.standard_normal(200) * table[-1]]
    )
    x = np.concatenate([x, -x[x != 0]])
    lk.checks.expect_equal(
        encode(x.copy(), table.copy()).tolist(), format_.encode(x, saturate=True).tolist(), name=f"codes of {name}"
    )
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
# Picture: the numbers of five formats. FP6 has six bits, two of mantissa and three of exponent (E3M2) or the reverse (E2M3).
with lk.picture(
    "Each format spends its codes its own way: floats near zero (FP6 has six bits), integers evenly, NF4 where a bell curve has "
    "its mass: its 16 numbers are fixed quantiles of one."
):
    figure = go.Figure()
    names = ["int4", "fp4_e2m1", "nf4", "fp6_e2m3", "fp6_e3m2"]
    for height, name in enumerate(names):
        numbers = FORMATS[name].values()
        numbers = numbers[np.isfinite(numbers)] / np.abs(numbers[np.isfinite(numbers)]).max()
        figure.add_scatter(
            x=numbers, y=np.full(len(numbers), height), mode="markers", marker={"symbol": "line-ns-open", "size": 16}
        )
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False)
    figure.update_layout(height=300, xaxis_title="number / largest number", showlegend=False)
    lk.show(figure, summary="The numbers of five formats on one axis, each scaled to a largest number of one.")

# %% [markdown]
# ## Part 2 · Integers and a scale
#
# Hardware multiplies integers cheaply, and an integer with a scale is a number: $x \approx s \cdot q$ (*symmetric*), or
# $x \approx s \cdot (q - z)$ with a *zero point* $z$ (*affine*), which shifts the codes to where the numbers are.
#
# One rule is easily missed: **zero must come back as exactly zero**. Padding, masks and ReLU are full of zeros, and an error on
# them adds up instead of averaging out. So the range always includes 0 and $z$ is a whole number.

# %% [markdown]
# ### Task 3 · Affine int8
# *8 points · 12 minutes · ●●○○*
#
# One rule of rounding holds for the rest of the lab: to the nearest whole number, by `torch.round`. Here round $x / s$, *then* add $z$, and
# keep the sum within $0 \dots 2^{\text{bits}} - 1$. Every number then comes back to within half a step $s$.
#
# Two bits for the range from −1.3 to 1.7: $s = 1$ and $z = \text{round}(1.3) = 1$. The number 0.4 gets the code $\text{round}(0.4) + 1 = 1$ and
# comes back as $1 - 1 = 0$. Rounding the distance from the least number, $\text{round}(0.4 + 1.3) = 2$, looks alike and is not: the code
# comes back as 1, and 0.6 is more than half a step.

# %%
lk.predict("affine")


# %% nbgrader={"grade": false, "grade_id": "affine", "locked": false, "schema_version": 3, "solution": true, "task": false}
def affine(x, bits=8):
    """Quantize a whole tensor with one scale and one zero point: x ≈ scale · (codes − zero).

    x: float tensor, any shape. Codes use all of 0 … 2^bits − 1, for the range from min(x, 0) to max(x, 0).
    Returns codes (torch.int32, x's shape), scale (float), zero (int, 0 … 2^bits − 1). A tensor of zeros gets scale 1.0, zero 0.

    >>> affine(torch.tensor([-1.0, 0.0, 1.55]), bits=8)
    (tensor([  0, 100, 255], dtype=torch.int32), 0.01, 100)
    """
    ### BEGIN SOLUTION
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    if high == low:
        return torch.zeros_like(x, dtype=torch.int32), 1.0, 0
    top = 2**bits - 1
    scale = (high - low) / top
    zero = round(-low / scale)
    codes = torch.clamp(torch.round(x.double() / scale) + zero, 0, top).to(torch.int32)
    return codes, scale, zero
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "affine_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The example of the docstring in eight bits, then a matrix in two.
codes, scale, zero = affine(torch.tensor([-1.0, 0.0, 1.55]), bits=8)
require(codes.tolist() != [0, 100, 254], "codes of -1, 0 and 1.55: 254.99 is cut off to 254; round it")
lk.checks.expect_equal((codes.tolist(), zero), ([0, 100, 255], 100), name="codes and zero point")
lk.checks.expect_close(scale, 0.01, rtol=1e-6, name="scale")
codes, scale, zero = affine(torch.tensor([[-1.0, 2.0], [0.9, 0.0]]), bits=2)
lk.checks.expect_equal((codes.tolist(), zero), ([[0, 3], [2, 1]], 1), name="codes of a 2 x 2 in two bits")
lk.checks.expect_close(scale, 1.0, rtol=1e-6, name="scale in two bits")
print("Passed: codes, scale and zero point in eight bits and in two.")

# %% nbgrader={"grade": true, "grade_id": "affine_test_range", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The range reaches to 0, whatever the signs.
for what, x, wanted in [
    ("positive only", [1.0, 4.0], ([64, 255], 0)),
    ("negative only", [-3.0, -1.0], ([0, 170], 255)),
]:
    codes, scale, zero = affine(torch.tensor(x), bits=8)
    came = (codes.tolist(), int(zero))
    require(codes.tolist() != [0, 255], f"{what}: the codes cover {min(x):g} … {max(x):g}; the range must reach to 0")
    lk.checks.expect_equal(came, wanted, name=f"codes and zero point, {what}: the range must include 0")
codes, scale, zero = affine(torch.tensor([-127.5, 127.5]), bits=8)
require(int(codes[1]) <= 255, f"-127.5 … 127.5: 127.5 gets the code {int(codes[1])}, and eight bits end at 255: clamp")
lk.checks.expect_equal((int(zero), int(codes[1])), (128, 255), name="zero point and largest code of -127.5 … 127.5")
x = torch.tensor([-1.3, -0.6, 0.4, 1.7])
codes, scale, zero = affine(x.clone(), bits=2)
for number, code in zip(x.tolist(), codes.tolist()):
    steps = abs(scale * (code - int(zero)) - number) / scale
    require(
        steps <= 0.501,
        f"-1.3 … 1.7 in two bits: {number:.1f} comes back {steps:.2f} steps off, and half a step is the most: "
        "round x / scale alone, then add the zero point",
    )
print("Passed: the range reaches to 0, no code lies beyond 255, and a number comes back to within half a step.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(603)
tried = {
    "both signs": torch.randn(40, 7, generator=generator),
    "positive only": torch.rand(50, generator=generator) + 3.0,  # the range must still reach down to 0
    "negative only": -torch.rand(50, generator=generator) - 0.5,
    "one number": torch.tensor([2.5]),
}
for what, x in tried.items():
    for bits in (8, 4, 2):
        codes, scale, zero = affine(x.clone(), bits)
        lk.checks.expect_equal(list(codes.shape), list(x.shape), name=f"shape of the codes, {what}")
        assert 0 <= int(codes.min()) and int(codes.max()) <= 2**bits - 1, f"{what}: codes must lie in 0 … {2**bits - 1}"
        low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
        lk.checks.expect_close(scale, (high - low) / (2**bits - 1), rtol=1e-6, name=f"scale, {what}, {bits} bits")
        lk.checks.expect_equal(
            zero, int(np.rint(-low / ((high - low) / (2**bits - 1)))), name=f"zero point, {what}, {bits} bits"
        )
        back = scale * (codes.double() - zero)
        worst = float((back - x.double()).abs().max())
        assert worst <= scale * 0.501, f"{what}, {bits} bits: off by {worst:.3g}, and half a step is {scale / 2:.3g}"
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "affine_test_zeros", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# A tensor of zeros, and zeros that stay zeros.
codes, scale, zero = affine(torch.zeros(3, 2))
lk.checks.expect_equal((codes.tolist(), float(scale), int(zero)), ([[0, 0]] * 3, 1.0, 0), name="a tensor of zeros")
codes, scale, zero = affine(torch.tensor([-0.3, 0.0, 1.7, 0.0, 0.9]))
lk.checks.expect_equal(
    (int(codes[1]), int(codes[3])), (int(zero), int(zero)), name="codes of two zeros: the zero point"
)
print("Passed: a tensor of zeros, and zeros that stay zeros.")

# %% [markdown]
# ### Task 4 · How many weights share a scale?
# *10 points · 18 minutes · ●●○○*
#
# One scale for a matrix lets its largest weight decide the step of all the others. A scale for each row (output channel) confines
# the damage to a row, a scale for each **group** of neighbours in a row confines it further, and costs bytes: with 16-bit
# scales and groups of 64, a quarter of a bit a weight. (`quantize_groups` returns its scales in float32, so that rounding them is not a
# second error here; a model is stored with 16-bit ones, and bits are counted for these.) Weights are nearly symmetric around zero,
# so a scale is enough and no zero point is needed: the code is $w / s$, rounded as in task 3.

# %%
lk.predict("groups")


# %% nbgrader={"grade": false, "grade_id": "groups", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantize_groups(W, bits, group):
    """Symmetric quantization with one scale for each `group` neighbours of a row.

    W [out, in]; `group` divides `in`; group = in gives one scale a row. The largest absolute value of a group gets the code
    ±(2^(bits−1) − 1). Returns codes (torch.int8 [out, in], from −2^(bits−1) + 1 up) and scales (float32 [out, in / group]);
    a group of zeros has scale 1. Raises ValueError when `group` does not divide `in`.

    >>> quantize_groups(torch.tensor([[0.7, -0.3, 0.02, 0.14]]), bits=4, group=2)
    (tensor([[ 7, -3,  1,  7]], dtype=torch.int8), tensor([[0.1000, 0.0200]]))
    """
    ### BEGIN SOLUTION
    out, inner = W.shape
    if inner % group:
        raise ValueError(f"group must divide the {inner} inputs, got {group}")
    top = 2 ** (bits - 1) - 1
    blocks = W.reshape(out, inner // group, group)
    scales = blocks.abs().amax(-1) / top
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = torch.clamp(torch.round(blocks / scales[..., None]), -top, top)
    return codes.reshape(out, inner).to(torch.int8), scales
    ### END SOLUTION


# %% nbgrader={"grade": false, "grade_id": "groups_dequantize", "locked": true, "schema_version": 3, "solution": false, "task": false}
def dequantize_groups(codes, scales):
    """The weights [out, in] that codes [out, in] and scales [out, groups] stand for."""
    return codes.float() * scales.repeat_interleave(codes.shape[1] // scales.shape[1], dim=1)


def bits_per_weight(bits, group, scale_bits=16):
    """Return the bits in memory for one weight, with its share of a scale as it is stored."""
    return bits + scale_bits / group


# %% nbgrader={"grade": true, "grade_id": "groups_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The example of the docstring, then two rows.
codes, scales = quantize_groups(torch.tensor([[0.7, -0.3, 0.02, 0.14]]), bits=4, group=2)
lk.checks.expect_equal(codes.tolist(), [[7, -3, 1, 7]], name="codes")
lk.checks.expect_close(scales, torch.tensor([[0.1, 0.02]]), rtol=1e-6, name="scales")
codes, scales = quantize_groups(torch.tensor([[0.1, -0.7, 0.3, 0.3], [7.0, 1.0, -2.0, -14.0]]), bits=4, group=2)
lk.checks.expect_equal(
    codes.tolist(), [[1, -7, 7, 7], [7, 1, -1, -7]], name="codes of two rows, some largest ones negative"
)
lk.checks.expect_close(scales, torch.tensor([[0.1, 0.3 / 7], [1.0, 2.0]]), rtol=1e-6, name="scales [2 rows, 2 groups]")
print("Passed: a scale for each group of each row, by the largest absolute value.")

# %% nbgrader={"grade": true, "grade_id": "groups_test_edges", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# A group of zeros, the dtype, and a group that does not divide the inputs.
codes, scales = quantize_groups(torch.tensor([[0.0, 0.0, 1.27, -0.64]]), bits=8, group=2)
lk.checks.expect_equal(
    (codes.tolist(), float(scales[0, 0])), ([[0, 0, 127, -64]], 1.0), name="a group of zeros, in int8"
)
assert codes.dtype == torch.int8, f"codes are torch.int8, got {codes.dtype}"
lk.checks.expect_raises(ValueError, quantize_groups, torch.ones(2, 10), 4, 4)
print("Passed: a group of zeros, and a group that does not divide the inputs.")

# %% nbgrader={"grade": true, "grade_id": "groups_test_many", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# One scale a row, in three bits.
codes, scales = quantize_groups(torch.tensor([[3.0, -1.0, 0.4], [0.5, 0.3, -0.5]]), bits=3, group=3)
lk.checks.expect_equal(codes.tolist(), [[3, -1, 0], [3, 2, -3]], name="a scale a row, three bits")
print("Passed: one scale a row.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(604)
for out, inner, group, bits in [(3, 8, 4, 4), (5, 12, 12, 8), (1, 6, 1, 3), (4, 64, 32, 2)]:
    W = torch.randn(out, inner, generator=generator) * 10.0 ** torch.randint(-3, 3, (out, 1), generator=generator)
    codes, scales = quantize_groups(W.clone(), bits, group)
    lk.checks.expect_equal(list(scales.shape), [out, inner // group], name="shape of the scales")
    top = 2 ** (bits - 1) - 1
    for r in range(out):  # one group at a time, in float64
        for g in range(inner // group):
            block = W[r, g * group : (g + 1) * group].double().numpy()
            step = np.abs(block).max() / top
            lk.checks.expect_close(
                float(scales[r, g]), step, rtol=1e-5, name=f"scale of row {r}, group {g}, {bits} bits"
            )
            got = codes[r, g * group : (g + 1) * group].double().numpy()
            assert np.abs(got).max() <= top, f"codes lie within ±{top}, got {np.abs(got).max():.0f}"
            assert np.abs(got * step - block).max() <= step * 0.5001, f"row {r}, group {g}: more than half a step off"
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "groups_test_perplexity", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# the model judges: int8 with a scale a row must go unnoticed
int8 = perplexity_with(lambda name, W: dequantize_groups(*quantize_groups(W, 8, W.shape[1])))
assert abs(int8 / baseline - 1) <= 0.005, (
    f"int8 a row changed the perplexity by {100 * (int8 / baseline - 1):.2f} %, at most 0.5 % is expected"
)
print(f"Passed: int8 with a scale a row changes the perplexity by {100 * (int8 / baseline - 1):+.2f} %.")
### BEGIN HIDDEN TESTS
truth = lm.perplexity(model, judged)
int4 = perplexity_with(lambda name, W: dequantize_groups(*quantize_groups(W, 4, 64)))
assert 1.003 <= int4 / truth <= 1.15, f"int4 in groups of 64 changed the perplexity by {100 * (int4 / truth - 1):.2f} %"
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
# Picture: perplexity against bits per weight
with lk.picture(
    "With a right answer, eight bits cost next to nothing and three a lot; groups buy back part of it for a fraction of a bit."
):
    table = []
    a_row = held / sum(len(weight) for weight in weights.values())  # weights that share a scale: 303 in the mean
    for bits in (8, 4, 3) if not smoke else (4,):
        for group in (None, 64, 16) if bits < 8 else (None,):
            got = perplexity_with(
                lambda name, W, b=bits, g=group: dequantize_groups(*quantize_groups(W, b, g or W.shape[1]))
            )
            size = bits_per_weight(bits, group or a_row)
            table.append((bits, group, size, got))
            print(
                f"{bits} bits, {f'groups of {group}' if group else 'a scale a row':14s}: {size:5.2f} bits a weight, perplexity {got:6.2f} ({100 * (got / baseline - 1):+.2f} %)"
            )
    figure = go.Figure()
    for bits in dict.fromkeys(row[0] for row in table):
        rows = [row for row in table if row[0] == bits]
        figure.add_scatter(
            x=[row[2] for row in rows], y=[row[3] for row in rows], mode="lines+markers", name=f"{bits} bits"
        )
    figure.add_hline(
        y=baseline,
        line={"dash": "dot", "color": GREY},
        annotation_text="unquantized",
        annotation_position="top left",  # the right end is where 8 bits stand
    )
    figure.update_layout(height=320, xaxis_title="bits a weight, scales included", yaxis_title="perplexity")
    lk.show(figure, summary="Perplexity against bits a weight for 8, 4 and 3 bits at three granularities.")

# %% [markdown]
# ## Part 3 · Outliers
#
# Weights are tame. Activations are not: in large language models a few channels are a hundred times larger than the rest, always
# the same ones. A scale for the whole tensor then gives the other channels two or three codes. A scale for each channel would help,
# but the matrix product sums *over* channels, so the scale cannot be taken out of the sum.
#
# **SmoothQuant** moves the trouble instead: $XW^\top = (X / s)(W \cdot s)^\top$ for any $s > 0$, a number for each input channel. It
# divides the activations' outliers away and multiplies them into the weights, which can bear it. With $\alpha$ between 0 and 1
#
# $$s_j = \frac{\max |X_j|^{\alpha}}{\max |W_j|^{1 - \alpha}} .$$

# %% [markdown]
# ### Task 5 · Smooth
# *8 points · 12 minutes · ●●○○*

# %%
lk.predict("smooth")


# %% nbgrader={"grade": false, "grade_id": "smooth", "locked": false, "schema_version": 3, "solution": true, "task": false}
def smooth(X, W, alpha=0.5):
    """Move outliers from activations to weights without changing their product.

    X [tokens, in], W [out, in]. Returns X / s and W · s, with s [in] as above, maxima of absolute values over tokens and over
    outputs. A channel whose X or W is all zero keeps s = 1. The inputs stay as they were.

    >>> A, B = smooth(torch.tensor([[100.0, 1.0]]), torch.tensor([[1.0, 1.0]]))
    >>> A, B
    (tensor([[10.,  1.]]), tensor([[10.,  1.]]))
    """
    ### BEGIN SOLUTION
    x, w = X.abs().amax(0), W.abs().amax(0)
    s = torch.where((x > 0) & (w > 0), x**alpha / w ** (1 - alpha), torch.ones_like(x))
    return X / s, W * s
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "smooth_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The example of the docstring, then alpha = 3/4.
A, B = smooth(torch.tensor([[100.0, 1.0]]), torch.tensor([[1.0, 1.0]]))
lk.checks.expect_close(A, torch.tensor([[10.0, 1.0]]), rtol=1e-5, name="activations")
lk.checks.expect_close(B, torch.tensor([[10.0, 1.0]]), rtol=1e-5, name="weights")
# maxima 16 and 81 in X, 4 and 1 in W; alpha = 3/4: s = 16^(3/4) / 4^(1/4) and 81^(3/4) / 1
X, W = torch.tensor([[16.0, 1.0], [-8.0, -81.0]]), torch.tensor([[1.0, -1.0], [-4.0, 0.5], [2.0, 0.25]])
A, B = smooth(X.clone(), W.clone(), alpha=0.75)
s = torch.tensor([8.0 / 2**0.5, 27.0])
lk.checks.expect_close(A, X / s, rtol=1e-5, name="activations of two tokens, alpha = 3/4")
lk.checks.expect_close(B, W * s, rtol=1e-5, name="weights of three outputs, alpha = 3/4")
print("Passed: s for each input channel, with both powers.")

# %% nbgrader={"grade": true, "grade_id": "smooth_test_zero", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# A channel of zeros keeps s = 1.
A, B = smooth(torch.tensor([[0.0, 3.0, 4.0]]), torch.tensor([[5.0, 0.0, 4.0]]))
lk.checks.expect_close(
    A, torch.tensor([[0.0, 3.0, 4.0]]), rtol=1e-6, name="activations with channels of zeros in X or W"
)
lk.checks.expect_close(B, torch.tensor([[5.0, 0.0, 4.0]]), rtol=1e-6, name="weights with channels of zeros in X or W")
print("Passed: a channel of zeros keeps s = 1.")

# %% nbgrader={"grade": true, "grade_id": "smooth_test_inputs", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# The inputs stay as they were.
X, W = torch.tensor([[100.0, 1.0]]), torch.tensor([[1.0, 1.0]])
A, B = smooth(X, W)
lk.checks.expect_close(A, torch.tensor([[10.0, 1.0]]), rtol=1e-5, name="activations")
lk.checks.expect_close(X, torch.tensor([[100.0, 1.0]]), rtol=0, name="X after the call")
lk.checks.expect_close(W, torch.tensor([[1.0, 1.0]]), rtol=0, name="W after the call")
print("Passed: the inputs stay as they were.")

# %% nbgrader={"grade": true, "grade_id": "smooth_test_product", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# The product stays, and at alpha = 1/2 the maxima are equal.
generator = torch.Generator().manual_seed(605)
X, W = torch.randn(50, 24, generator=generator), torch.randn(10, 24, generator=generator) * 0.1
X[:, 3] *= 80.0
A, B = smooth(X.clone(), W.clone(), 0.5)
lk.checks.expect_close(
    A.double() @ B.double().T, X.double() @ W.double().T, rtol=1e-5, atol=1e-5, name="the product of 50 tokens"
)
lk.checks.expect_close(
    A.abs().amax(0),
    B.abs().amax(0),
    rtol=1e-4,
    name="at alpha = 1/2, largest activation and largest weight of each channel",
)
print("Passed: the product stays, and the trouble is shared evenly.")
### BEGIN HIDDEN TESTS
X[:, 17] *= -40.0
X[:, 5], W[:, 6] = 0.0, 0.0
for alpha in (0.5, 0.75, 0.0):
    A, B = smooth(X.clone(), W.clone(), alpha)
    lk.checks.expect_close(
        A.double() @ B.double().T, X.double() @ W.double().T, rtol=1e-5, atol=1e-5, name=f"the product, alpha={alpha}"
    )
    x, w = np.abs(X.double().numpy()).max(0), np.abs(W.double().numpy()).max(0)
    s = np.array([a**alpha / b ** (1 - alpha) if a and b else 1.0 for a, b in zip(x, w)])
    lk.checks.expect_close(A, X.double().numpy() / s, rtol=1e-5, atol=1e-7, name=f"activations, alpha={alpha}")
    lk.checks.expect_close(B, W.double().numpy() * s, rtol=1e-5, atol=1e-7, name=f"weights, alpha={alpha}")
### END HIDDEN TESTS


# %% jupyter={"source_hidden": true}
def int8_product_error(X, W):
    """Relative error of X Wᵀ with int8 activations (one scale) and int8 weights (a scale a row)."""
    a, b = (
        dequantize_groups(*quantize_groups(X.reshape(1, -1), 8, X.numel())).reshape(X.shape),
        dequantize_groups(*quantize_groups(W, 8, W.shape[1])),
    )
    return float((a @ b.T - X @ W.T).norm() / (X @ W.T).norm())


with lk.picture(
    "With a right answer, the error falls as the outlier moves into the weights, until the weights have one of their own."
):
    generator = torch.Generator().manual_seed(seed)
    X, W = torch.randn(256, 256, generator=generator), torch.randn(128, 256, generator=generator) * 0.05
    X[:, :2] *= 100.0  # two channels a hundred times as large, as large models have them
    alphas = [0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0]
    errors = [int8_product_error(*smooth(X, W, alpha)) for alpha in alphas]
    figure = go.Figure(go.Scatter(x=alphas, y=errors, mode="lines+markers", name="smoothed"))
    before = int8_product_error(X, W)
    figure.add_scatter(
        x=[0.0, 1.0], y=[before, before], mode="lines", line={"dash": "dot", "color": GREY}, name="not smoothed"
    )
    figure.update_layout(height=300, xaxis_title="alpha", yaxis_title="relative error of the product", yaxis_type="log")
    figure.update_yaxes(tickvals=[1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5], tickformat="~g")
    lk.show(figure, summary="Error of an int8 product against alpha, beside the error without smoothing.")

# %% [markdown]
# ## Part 4 · Four bits
#
# No machine addresses half a byte. Two codes share one: the first in the low four bits, the second in the high four. A code is two's
# complement, so −1 is `1111`; to read it, the sign bit has to be spread to the left again.

# %% [markdown]
# ### Task 6 · Two in a byte
# *8 points · 12 minutes · ●●○○*

# %%
lk.predict("pack")


# %% nbgrader={"grade": false, "grade_id": "pack", "locked": false, "schema_version": 3, "solution": true, "task": false}
def pack(codes):
    """codes: torch.int8 [..., n], n even, from −8 to 7 -> torch.uint8 [..., n / 2]; codes[2j] in the low half of byte j.

    >>> pack(torch.tensor([1, -1, -8, 7], dtype=torch.int8))
    tensor([241, 120], dtype=torch.uint8)
    """
    ### BEGIN SOLUTION
    nibbles = codes.to(torch.uint8) & 15
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)
    ### END SOLUTION


def unpack(packed):
    """The inverse: torch.uint8 [..., n / 2] -> torch.int8 [..., n]."""
    ### BEGIN SOLUTION
    low, high = (packed & 15).to(torch.int8), (packed >> 4).to(torch.int8)
    return torch.stack([(low ^ 8) - 8, (high ^ 8) - 8], dim=-1).flatten(-2)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pack_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# Low half first, with their signs, there and back.
got = pack(torch.tensor([1, -1, -8, 7], dtype=torch.int8)).tolist()
require(
    got != [0x1F, 0x87],
    "packed bytes of 1, -1, -8, 7: the first of two codes is in the high half, and belongs in the low one",
)
require(
    got != [0xF1, 0xF8],
    "packed bytes of 1, -1, -8, 7: -8 has spread over all eight bits; cut each code to four bits first",
)
require(
    got != [0x81, 0x7F],
    "packed bytes of 1, -1, -8, 7: the first half of the row shares bytes with the second; neighbours share one",
)
lk.checks.expect_equal(got, [0xF1, 0x78], name="packed bytes of 1, -1, -8, 7")
got = unpack(torch.tensor([0xF1, 0x78], dtype=torch.uint8)).tolist()
require(
    got != [1, 15, 8, 7],
    "unpacked codes of 0xF1, 0x78: four bits from 8 up are a negative code, 1111 is -1: spread the sign",
)
lk.checks.expect_equal(got, [1, -1, -8, 7], name="unpacked codes of 0xF1, 0x78")
codes = torch.arange(-8, 8, dtype=torch.int8)
lk.checks.expect_equal(
    unpack(pack(codes.clone())).tolist(), list(range(-8, 8)), name="the sixteen codes, there and back"
)
print("Passed: low half first, with their signs.")

# %% nbgrader={"grade": true, "grade_id": "pack_test_shapes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Blocks of any shape, uint8 and int8.
codes = torch.tensor([[[-8, 7], [0, -1]], [[3, -4], [5, -6]], [[1, 1], [2, 2]]], dtype=torch.int8)
got = pack(codes.clone())
assert got.dtype == torch.uint8 and unpack(got).dtype == torch.int8, (
    f"packed is uint8 and codes are int8, got {got.dtype} and {unpack(got).dtype}"
)
lk.checks.expect_equal(
    got.tolist(), [[[0x78], [0xF0]], [[0xC3], [0xA5]], [[0x11], [0x22]]], name="packed bytes of a block [3, 2, 2]"
)
print("Passed: blocks of any shape, uint8 and int8.")

# %% nbgrader={"grade": true, "grade_id": "pack_test_bytes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Four bytes unpacked.
lk.checks.expect_equal(
    unpack(torch.tensor([0x00, 0xFF, 0x2F, 0xF7], dtype=torch.uint8)).tolist(),
    [0, 0, -1, -1, -1, 2, 7, -1],
    name="the bytes 0x00, 0xFF, 0x2F and 0xF7",
)
print("Passed: four bytes unpacked.")
### BEGIN HIDDEN TESTS
every = torch.arange(256, dtype=torch.uint8)
signed = [b if b < 8 else b - 16 for b in range(16)]
lk.checks.expect_equal(
    unpack(every.clone()).tolist(), [signed[n] for b in range(256) for n in (b & 15, b >> 4)], name="every byte"
)
lk.checks.expect_equal(pack(unpack(every.clone())).tolist(), list(range(256)), name="every byte, there and back")
### END HIDDEN TESTS

# %% [markdown]
# ### The block formats of today's tensor cores
#
# Blackwell multiplies four-bit floats in hardware, with the scales inside the instruction. **MXFP4** (an open standard) gives each block of
# 32 numbers in E2M1 a scale that is a power of two, stored as a bare exponent, E8M0: a byte $k$ that means $2^{k - 127}$. The
# standard picks it from the block's largest number alone,
#
# $$\text{scale} = 2^{\lfloor \log_2 \max |x| \rfloor - 2},$$
#
# for 2 is the exponent of E2M1's largest number, $6 = 1.5 \cdot 2^2$. **NVFP4** takes blocks of 16 and an E4M3 scale, which is finer and takes more bits: 4.5
# instead of 4.25 bits a number.
#
# A logarithm that a program computes is rounded. Just below a power of two it may be rounded *up* to the whole number: `np.log2` gives exactly 3
# for the float below 8, and its floor is one too large. The exponent stands in the bits of a float, and `np.frexp` reads it from there.

# %% [markdown]
# ### Task 7 · MXFP4
# *10 points · 18 minutes · ●●●○*

# %%
lk.predict("mxfp4")


# %% nbgrader={"grade": false, "grade_id": "mxfp4_nearest", "locked": true, "schema_version": 3, "solution": false, "task": false}
def nearest_e2m1(x):
    """Codes (int64, 0 … 15) of the nearest E2M1 numbers, ties to even, saturated at ±6."""
    return FORMATS["fp4_e2m1"].encode(x, saturate=True).astype(np.int64)


# %% nbgrader={"grade": false, "grade_id": "mxfp4", "locked": false, "schema_version": 3, "solution": true, "task": false}
def mxfp4(x):
    """Quantize x [n], n a multiple of 32, to MXFP4.

    Returns codes (int64 [n], from `nearest_e2m1`) and scales (int64 [n / 32], E8M0 codes from 0 to 254). A block of zeros has
    scale 0. A block's numbers are divided by its scale before they are rounded; the largest may then saturate.

    >>> codes, scales = mxfp4(np.array([1.0] + [0.25] * 31))
    >>> codes[:3], scales
    (array([6, 2, 2]), array([125]))
    """
    ### BEGIN SOLUTION
    blocks = np.asarray(x, dtype=np.float64).reshape(-1, 32)
    largest = np.abs(blocks).max(axis=1)
    # largest = f · 2^power with 0.5 <= f < 1: floor(log2) is power − 1, without a rounded log
    _, power = np.frexp(largest)
    scales = np.where(largest > 0, np.clip(power - 1 - 2 + 127, 0, 254), 0)
    codes = nearest_e2m1(np.ldexp(blocks, (127 - scales)[:, None]))
    return codes.reshape(-1), scales.astype(np.int64)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "mxfp4_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# The example of the docstring, saturation, and a scale for each block.
codes, scales = mxfp4(np.array([1.0] + [0.25] * 31))
lk.checks.expect_equal(
    (codes[:3].tolist(), scales.tolist()), ([6, 2, 2], [125]), name="codes and scale of a small block"
)
codes, scales = mxfp4(np.array([7.5, -5.2, 1.0] + [0.0] * 29))
require(
    scales.tolist() != [128],
    "a block whose largest number is 7.5: the scale is 2, and by the formula it is 1; 7.5 saturates at 6",
)
lk.checks.expect_equal(
    (codes[:4].tolist(), scales.tolist()), ([7, 15, 2, 0], [127]), name="a block whose largest number saturates"
)
codes, scales = mxfp4(np.array([1.9] * 32 + [-48.0] + [3.0] * 31))
require(scales.tolist() != [130, 130], "blocks with 1.9 and -48: both have the scale of -48; each block has its own")
require(scales.tolist() != [125, 126], "a block of -48 and 3: its scale is that of 3; -48 is the largest in size")
lk.checks.expect_equal(
    (codes[[0, 32]].tolist(), scales.tolist()),
    ([7, 15], [125, 130]),
    name="two blocks, the largest numbers 1.9 and -48, each with its scale",
)
print("Passed: a scale for each block, and what lies between 6 and 8 saturates.")

# %% nbgrader={"grade": true, "grade_id": "mxfp4_test_edges", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Zeros, both sides of a power of two, and a block below the smallest scale.
codes, scales = mxfp4(np.concatenate([np.zeros(32), np.ones(32), np.zeros(32)]))
lk.checks.expect_equal(
    (scales.tolist(), codes[::32].tolist()), ([0, 125, 0], [0, 6, 0]), name="scales and codes of blocks of 0, 1 and 0"
)
for power in (-4, 2, 4, 11):
    scales = [int(mxfp4(np.full(32, x))[1][0]) for x in (2.0**power, np.nextafter(2.0**power, 0))]
    what = f"scales of 2^{power} and of the number just below it"
    require(
        scales != [power + 125] * 2,
        f"{what}: the second is one too large, for the floor of its log2 is {power - 1}; "
        f"np.log2 rounds up to {power}, np.frexp rounds nothing",
    )
    lk.checks.expect_equal(scales, [power + 125, power + 124], name=what)
codes, scales = mxfp4(np.full(32, 2.0**-130))
require(int(scales[0]) >= 0, f"a block of 2^-130: the scale's code is {int(scales[0])}, and a byte begins at 0")
lk.checks.expect_equal((scales.tolist(), int(codes[0])), ([0], 0), name="scales from 0 up: a block of 2^-130")
print("Passed: zeros, both sides of a power of two, and a block below the smallest scale.")

# %% nbgrader={"grade": true, "grade_id": "mxfp4_test_blocks", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# Very small and very large blocks.
codes, scales = mxfp4(np.concatenate([np.full(32, 3.0 * 2.0**-40), np.full(32, 2.0**60)]))
lk.checks.expect_equal(
    (codes[[0, 32]].tolist(), scales.tolist()), ([7, 6], [86, 185]), name="very small and very large blocks"
)
print("Passed: a block of very small numbers, and one of very large ones.")
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(607)
tried = {
    "a bell curve": rng.standard_normal(32 * 8),
    "any size": rng.standard_normal(32 * 8) * np.repeat(2.0 ** rng.integers(-100, 100, 8), 32),
    "powers of two": np.repeat(2.0 ** np.arange(-8.0, 8.0), 32),  # where floor(log2) sits on an edge
    "an outlier a block": np.where(np.arange(256) % 32 == 5, 60.0, rng.standard_normal(256)),
}
for what, x in tried.items():
    blocks = FORMATS["mxfp4"].quantize(x)
    codes, scales = mxfp4(x.copy())
    lk.checks.expect_equal(scales.tolist(), blocks.scales.tolist(), name=f"scales, {what}")
    lk.checks.expect_equal(codes.tolist(), blocks.codes.tolist(), name=f"codes, {what}")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
# Picture: perplexity of four formats of four bits. nf4_blocks are blocks of 64 numbers in NF4, each with an FP32 scale, the largest |x|.
with lk.picture(
    "Four bits, four ways: the scale's own format matters as much as the numbers'. nf4_blocks are 64 numbers in NF4 that share a "
    "scale in FP32. The last line is made by your quantize_groups."
):
    shown = {}
    for name in ("mxfp4", "nvfp4", "nf4_blocks"):
        format_ = FORMATS[name]
        got = perplexity_with(lambda _, W, f=format_: torch.from_numpy(f.round(W.double().numpy())))
        shown[f"{name} ({format_.bits_per_number:g} bits)"] = got
    shown["int4, groups of 64 (4.25 bits)"] = perplexity_with(
        lambda _, W: dequantize_groups(*quantize_groups(W, 4, 64))
    )
    for name, got in shown.items():
        print(f"{name:32s} perplexity {got:6.2f} ({100 * (got / baseline - 1):+.2f} %)")

# %% [markdown]
# ## Half-way
#
# A good place to stop: save the notebook, and run all cells when you come back. So far:
#
# - a small float is sign, exponent and mantissa; rounding goes to the nearest, ties to the even code, and saturates;
# - an integer with a scale is a number, and zero must come back as zero;
# - a scale for each group confines the damage of its largest weight, for a fraction of a bit;
# - outliers can be moved from activations to weights without changing their product;
# - two codes share a byte, and MXFP4 takes its scale from the exponent of a block's largest number.
#
# ## Part 5 · Rounding that pays for its errors
#
# Round-to-nearest treats each weight as if it were alone. But what counts is the layer's *output*, $\lVert X W^\top - X \hat W^\top \rVert$, and
# there errors can cancel: an error made in one column can be paid back by shifting the columns not yet rounded. How much each must shift is
# in the matrix $H = X^\top X$ of the inputs that the layer really sees.
#
# **GPTQ** goes through the columns one after another, those with the largest inputs (the largest $H_{cc}$) first, while there are still many
# others to pay for them. Sort the columns of $W$, and both rows and columns of $H$, into that order. Then, with $U$ the *upper* Cholesky factor of $H^{-1}$, so that $H^{-1} = U^\top U$:
#
# 1. round column $c$ to $\hat w_c$, with the scale of the group that it belongs to in $W$. Scales stay what they were at the start, and
#    codes stay within $\pm(2^{\text{bits}-1} - 1)$, also where step 3 has shifted a weight beyond them;
# 2. its error, scaled: $\varepsilon = (w_c - \hat w_c) / U_{cc}$;
# 3. for all later columns $j > c$: $w_j \leftarrow w_j - \varepsilon\, U_{cj}$.
#
# $H$ may be singular, so it is damped before it is inverted: `damp` times the mean of its diagonal is added to *every* diagonal entry.
#
# Two weights by hand, with scale 1 and strongly correlated inputs, $H = \begin{pmatrix} 2 & 1.8 \\ 1.8 & 2 \end{pmatrix}$. Then
# $U_{01} / U_{00} = -0.9$, so nine tenths of an error are handed on.
#
# | | $w_0$ | $w_1$ | error of the output, $d^\top H d$ with $d = w - \hat w$ |
# |---|---|---|---|
# | as it is | $1.4$ | $2.3$ | |
# | to nearest | $1$ | $2$ | $0.93$ |
# | GPTQ: round $w_0$ | $1$, error $0.4$ | $2.3 + 0.9 \cdot 0.4 = 2.66$ | |
# | GPTQ: round $w_1$ | $1$ | $3$ | $0.29$ |
#
# $w_1$ is rounded the wrong way, and the output is three times as good.


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "lab06_hessians", "locked": true, "schema_version": 3, "solution": false, "task": false}
# H = XᵀX of every layer, from 32 windows of text
@torch.no_grad()
def hessians(texts):
    """Return H = XᵀX of every linear layer's inputs over some texts [n, tokens], by the layer's name."""
    layers, found, handles = dict(model.named_modules()), {}, []
    for name in weights:

        def add(module, given, name=name):
            x = given[0].flatten(0, -2)
            found[name] = found.get(name, 0) + x.T @ x

        handles.append(layers[name].register_forward_pre_hook(add))
    try:
        for part in texts.split(8):
            model(part)
    finally:
        for handle in handles:
            handle.remove()
    return found


looked_at = hessians(calibration)


# %% [markdown]
# ### Task 8 · GPTQ
# *14 points · 35 minutes · ●●●●*

# %%
lk.predict("gptq")


# %% nbgrader={"grade": false, "grade_id": "gptq", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gptq(W, H, bits, group, damp=0.01):
    """Quantize W [out, in] so that the layer's output changes least, given H [in, in] = XᵀX of its inputs.

    Scales are those of `quantize_groups(W, bits, group)`. Columns are rounded in the order of decreasing H[c, c] (of equals the
    left one first). Returns codes (torch.int8 [out, in], in W's order of columns) and scales (float32 [out, in / group]).
    W and H stay as they were. Work in float64: a Cholesky factor of an inverse needs the digits.
    """
    ### BEGIN SOLUTION
    _, scales = quantize_groups(W, bits, group)
    order = torch.argsort(H.diagonal(), descending=True, stable=True)
    W, H = W.double()[:, order], H.double()[order][:, order]
    H += damp * H.diagonal().mean() * torch.eye(len(H), dtype=H.dtype)
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(H)), upper=True)
    top = 2 ** (bits - 1) - 1
    codes = torch.zeros(W.shape, dtype=torch.int8)
    for c, place in enumerate(order.tolist()):
        scale = scales[:, place // group].double()
        code = torch.clamp(torch.round(W[:, c] / scale), -top, top)
        codes[:, place] = code.to(torch.int8)
        error = (W[:, c] - code * scale) / U[c, c]
        W[:, c + 1 :] -= error[:, None] * U[c, c + 1 :]
    return codes, scales
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gptq_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# inputs that know nothing of each other: nothing to pay back, so GPTQ is round-to-nearest
W = torch.randn(6, 16, generator=torch.Generator().manual_seed(608))
codes, scales = gptq(W.clone(), torch.eye(16) * 3.0, 4, 8)
lk.checks.expect_equal(
    codes.tolist(), quantize_groups(W.clone(), 4, 8)[0].tolist(), name="codes for independent inputs"
)
# correlated inputs, all equally large: the columns from left to right
W = torch.tensor([[0.7, 0.24, -0.37, 0.14], [-0.33, 0.7, 0.44, -0.26]])
H = torch.tensor([[4.0, 3, 2, 1], [3, 4, 3, 2], [2, 3, 4, 3], [1, 2, 3, 4]])
codes, scales = gptq(W.clone(), H.clone(), 4, 4)
require(
    codes.tolist() != [[7, 2, -4, 1], [-3, 7, 4, -3]],
    "codes for correlated inputs: these are round-to-nearest's; errors do not reach later columns, or are added to them, "
    "or U is not the upper factor of the inverse of H",
)
lk.checks.expect_equal(codes.tolist(), [[7, 2, -3, 1], [-3, 7, 4, -2]], name="codes for correlated inputs")
print("Passed: nothing is paid back where inputs are independent, and errors are paid back where they are not.")

# %% nbgrader={"grade": true, "grade_id": "gptq_test_order", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# the later the column, the larger its inputs: column 3 is rounded first
W = torch.tensor([[0.7, 0.24, -0.37, 0.14], [-0.33, 0.7, 0.44, -0.26]])
H = torch.tensor([[1.0, 1, 1.5, 2], [1, 2, 2, 3], [1.5, 2, 4, 4], [2, 3, 4, 8]])
codes, scales = gptq(W.clone(), H.clone(), 4, 4)
name = "codes, the column with the largest inputs first"
for looks, slip in {
    "these come from going left to right; go by H[c, c], the largest first": [[7, 2, -4, 2], [-3, 7, 4, -2]],
    "these are in the order of rounding; put each into its own column": [[1, -4, 3, 7], [-3, 5, 7, -3]],
    "these are round-to-nearest's; see the check above": [[7, 2, -4, 1], [-3, 7, 4, -3]],
}.items():
    require(codes.tolist() != slip, f"{name}: {looks}")
lk.checks.expect_equal(codes.tolist(), [[7, 3, -4, 1], [-3, 7, 5, -3]], name=name)
print("Passed: the largest H[c, c] first, and each code in its own column.")

# %% nbgrader={"grade": true, "grade_id": "gptq_test_singular", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# One token: H has rank 1, and only damping gives it an inverse.
x = torch.tensor([[1.0, 2.0, 1.0, 3.0]])
W, H = torch.tensor([[0.7, 0.24, -0.37, 0.14], [-0.33, 0.7, 0.44, -0.26]]), x.T @ x
before = W.clone(), H.clone()
try:
    codes, scales = gptq(W, H, 4, 4)
except (RuntimeError, ValueError) as error:  # torch's and NumPy's LinAlgError
    inverted = any(word in str(error) for word in ("ingular", "positive-definite", "positive definite"))
    require(not inverted, "H of rank 1 has no inverse: add damp times its mean diagonal to every diagonal entry first")
    raise
lk.checks.expect_equal(codes.tolist(), [[7, 3, -4, 1], [-3, 7, 5, -3]], name="codes with a singular H")
lk.checks.expect_close(W, before[0], rtol=0, name="W after the call")
lk.checks.expect_close(H, before[1], rtol=0, name="H after the call")
# a mean diagonal of 8: with damp = 1, column 1 hands on 6 / (2 + 8) of its error, -0.045. By its own entry, damping would make
# that 6 / (2 + 2), by 1 alone 6 / (2 + 1)
W, H = torch.tensor([[0.7, 0.355, 0.09], [0.7, 0.355, 0.125]]), torch.tensor([[2.0, 0, 0], [0, 20, 6], [0, 6, 2]])
codes, scales = gptq(W, H, 4, 3, damp=1.0)
name = "codes with damp = 1, times the mean diagonal of H"
require(
    codes.tolist() != [[7, 4, 0], [7, 4, 1]], f"{name}: each diagonal entry is damped by itself; add the mean to all"
)
require(
    codes.tolist() != [[7, 4, 0], [7, 4, 0]], f"{name}: H is damped less than that; is the mean diagonal multiplied in?"
)
lk.checks.expect_equal(codes.tolist(), [[7, 4, 1], [7, 4, 1]], name=name)
print("Passed: a singular H, damping by the mean diagonal, and the inputs stay as they were.")

# %% nbgrader={"grade": true, "grade_id": "gptq_test_many", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Two groups in a row, and a weight that is shifted beyond the largest code.
W, by_task_4 = torch.tensor([[0.7, 0.1, 1.4, 0.2]]), "scales of quantize_groups (if these are off, mend task 4 first)"
lk.checks.expect_close(quantize_groups(W.clone(), 4, 2)[1], torch.tensor([[0.1, 0.2]]), rtol=1e-6, name=by_task_4)
codes, scales = gptq(W.clone(), torch.diag(torch.tensor([1.0, 2.0, 3.0, 9.0])), 4, 2)
require(
    codes.tolist() != [[1, 7, 1, 7]],
    "codes of two groups: these are right, but in the order in which the columns were rounded; put each back into its own column",
)
lk.checks.expect_equal(codes.tolist(), [[7, 1, 7, 1]], name="codes of two groups: each column by its own group's scale")
lk.checks.expect_close(scales, torch.tensor([[0.1, 0.2]]), rtol=1e-6, name="the scales are those of quantize_groups")
# the error of 0.355 shifts -0.7 to about -0.76, beyond the smallest code's number
codes, scales = gptq(torch.tensor([[0.355, -0.7]]), torch.tensor([[9.0, 5.5], [5.5, 4.0]]), 4, 2)
require(
    int(codes[0, 1]) >= -7,
    f"a weight is shifted beyond -0.7, the least that it can be: its code is {int(codes[0, 1])}; clamp",
)
lk.checks.expect_equal(codes.tolist(), [[4, -7]], name="codes from -7 to 7, also where a weight is shifted beyond them")
print("Passed: two groups, two scales, and codes that stay within ±7.")


### BEGIN HIDDEN TESTS
def slowly(W, H, bits, group, damp):
    """The same without Cholesky: after each column the inverse of what is left is made anew (Optimal Brain Quantization)."""
    W, H = W.double().numpy().copy(), H.double().numpy().copy()
    out, inner = W.shape
    left = sorted(range(inner), key=lambda c: (-H[c, c], c))
    H += damp * np.diag(H).mean() * np.eye(inner)
    top = 2 ** (bits - 1) - 1
    largest = np.abs(W.reshape(out, -1, group)).max(2) / top
    scales = np.where(largest > 0, largest, 1.0).astype(np.float32).astype(np.float64)
    codes = np.zeros((out, inner))
    while left:
        c, *left = left
        inverse = np.linalg.inv(H[np.ix_([c, *left], [c, *left])])
        scale = scales[:, c // group]
        codes[:, c] = np.clip(np.rint(W[:, c] / scale), -top, top)
        error = (W[:, c] - codes[:, c] * scale) / inverse[0, 0]
        W[:, left] -= error[:, None] * inverse[0, 1:]
    return codes, scales


draws = torch.Generator().manual_seed(608)
torch.randn(6, 16, generator=draws)
for out, inner, group, bits, damp in [
    (5, 12, 12, 4, 0.01),
    (4, 16, 8, 3, 0.01),
    (3, 24, 6, 4, 0.1),
    (1, 8, 2, 2, 0.01),
]:
    X = torch.randn(40, inner, generator=draws) @ torch.randn(
        inner, inner, generator=draws
    )  # columns that know of each other
    W = torch.randn(out, inner, generator=draws)
    H = X.T @ X
    codes, scales = gptq(W.clone(), H.clone(), bits, group, damp)
    expected = slowly(W, H, bits, group, damp)
    lk.checks.expect_equal(
        codes.tolist(), expected[0].astype(int).tolist(), name=f"codes, out={out} in={inner} group={group}"
    )
    lk.checks.expect_close(scales, expected[1], rtol=1e-5, name=f"scales, out={out} in={inner} group={group}")
### END HIDDEN TESTS


# %% nbgrader={"grade": true, "grade_id": "gptq_test_perplexity", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# the model judges: of what three bits cost by rounding to nearest, how much does GPTQ win back?
def rounded(name, W):  # the judge's own round-to-nearest: nobody gains by making that worse
    blocks = W.reshape(len(W), -1, 64)
    step = blocks.abs().amax(-1, keepdim=True) / 3
    return (torch.round(blocks / step) * step).reshape(W.shape)


nearest = perplexity_with(rounded)
careful = perplexity_with(lambda name, W: dequantize_groups(*gptq(W, looked_at[name], 3, 64)))
won = (nearest - careful) / (nearest - baseline)
gap = f"perplexity {careful:.2f} in three bits, round-to-nearest {nearest:.2f}, unquantized {baseline:.2f}: {won:.0%} of the gap won back"
require(
    won > 0.02,
    f"{gap}: this is no better than round-to-nearest; do errors shift the later columns, in the right direction?",
)
require(
    won >= 1 / 3,
    f"{gap}, at least a third is expected: is U the upper factor of the inverse, and the largest H[c, c] first?",
)
print(f"Passed: {gap}.")
### BEGIN HIDDEN TESTS
truth = lm.perplexity(model, judged)
assert (nearest - careful) / (nearest - truth) >= 1 / 3, f"{gap}, at least a third is expected"
assert careful >= truth * 0.995, "better than unquantized is too good to be true: are codes and scales really used?"
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
# Picture: round-to-nearest and GPTQ in four bits and in three
with lk.picture("With a right answer, GPTQ wins back two fifths to a half of the perplexity that rounding cost."):
    for bits in (4, 3):
        nearest = perplexity_with(lambda name, W, b=bits: dequantize_groups(*quantize_groups(W, b, 64)))
        careful = perplexity_with(lambda name, W, b=bits: dequantize_groups(*gptq(W, looked_at[name], b, 64)))
        won = 100 * (nearest - careful) / (nearest - baseline)
        print(
            f"{bits} bits: perplexity {baseline:.2f} → {nearest:.2f} to nearest, {careful:.2f} with GPTQ: {won:.0f} % of the gap won back"
        )

# %% [markdown]
# At four bits the gap is small, so on a few thousand tokens chance moves the share that is won back: on the first half of this text it is about 16 %,
# on the second 51 %. At three bits the gap is seven times as large, and the halves agree: 50 % and 46 %. The larger the model, the more its
# inputs are correlated, and the more there is to win.
#
# ## Part 6 · The other half of the bytes
#
# At long contexts the weights are no longer what fills the memory: the **KV cache** is. Every token leaves a key and a value of every layer and
# head behind, and every later token reads them all. They can be stored in eight bits like anything else. Keys and values arrive one token
# at a time, so a scale has to be known then and there: one for each vector of a head.
#
# The scale is stored in float16, which has a smallest and a largest number. A scale below half of $2^{-24}$ is rounded to 0 (the largest value
# of the vector is then below $3.8 \cdot 10^{-6}$). Such a vector is stored like a vector of zeros: scale 1, codes 0. Above 65,504 float16
# becomes infinite, for values beyond eight million. Keys and values are far from that, and no check goes there.

# %% [markdown]
# ### Task 9 · A cache in int8
# *8 points · 15 minutes · ●●○○*

# %%
lk.predict("kv")


# %% nbgrader={"grade": false, "grade_id": "kv", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantize_vectors(x):
    """Symmetric int8 with a scale for each vector along the last axis.

    x [..., h]. Returns codes (torch.int8 [..., h], from −127 to 127) and scales (torch.float16 [..., 1]). The codes are rounded
    with the scale *as it is stored*, in float16. A vector whose stored scale would be 0 gets scale 1 and codes 0.

    >>> quantize_vectors(torch.tensor([[127.0, -64.0], [0.0, 0.0]]))
    (tensor([[127, -64], [  0,   0]], dtype=torch.int8), tensor([[1.], [1.]], dtype=torch.float16))
    """
    ### BEGIN SOLUTION
    scales = (x.abs().amax(-1, keepdim=True) / 127).to(torch.float16)
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = torch.clamp(torch.round(x / scales.float()), -127, 127).to(torch.int8)
    return codes, scales
    ### END SOLUTION


def cache_bytes(config, tokens, bits, scale_bits=0):
    """Bytes that `tokens` tokens of one sequence leave in a cache, keys and values of all layers and key-value heads.

    config: an lm.Config with .layers, .kv_heads, .head_width. `scale_bits` for each vector, 0 where there is no scale.

    >>> cache_bytes(model.config, 1, 16)
    2048
    """
    ### BEGIN SOLUTION
    vectors = 2 * config.layers * config.kv_heads * tokens
    return vectors * (config.head_width * bits + scale_bits) // 8
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "kv_cache", "locked": true, "schema_version": 3, "solution": false, "task": false}
class Int8Cache(lm.KVCache):
    """A KV cache that keeps codes and scales, and gives keys and values back as the model wants them."""

    def __init__(self, config, batch=1, capacity=None):
        super().__init__(config, batch, capacity)
        self.codes = {}

    def append(self, layer, keys, values):
        given = [quantize_vectors(keys), quantize_vectors(values)]
        held = self.codes.get(layer)
        if held:
            given = [tuple(torch.cat([a, b], dim=2) for a, b in zip(h, g)) for h, g in zip(held, given)]
        self.codes[layer] = given
        return tuple(codes.float() * scales.float() for codes, scales in given)


# %% nbgrader={"grade": true, "grade_id": "kv_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# A scale for each vector, and a vector of zeros.
codes, scales = quantize_vectors(torch.tensor([[127.0, -64.0], [0.0, 0.0]]))
lk.checks.expect_equal(
    (codes.tolist(), scales.tolist()), ([[127, -64], [0, 0]], [[1.0], [1.0]]), name="codes and scales"
)
codes, scales = quantize_vectors(torch.tensor([[[127.0, -64.0], [-1.27, 0.02]]]))
lk.checks.expect_equal(codes.tolist(), [[[127, -64], [-127, 2]]], name="codes of a large and a small vector [1, 2, 2]")
lk.checks.expect_close(scales.float(), torch.tensor([[[1.0], [0.01]]]), rtol=1e-3, name="their scales [1, 2, 1]")
assert (codes.dtype, scales.dtype) == (torch.int8, torch.float16), (
    f"codes are int8 and scales float16, got {codes.dtype}, {scales.dtype}"
)
print("Passed: a scale for each vector, and a vector of zeros.")

# %% nbgrader={"grade": true, "grade_id": "kv_test_bytes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# Bytes of keys and values, scales included.
lk.checks.expect_equal(int(cache_bytes(model.config, 1, 16)), 2048, name="bytes of one token in FP16")
lk.checks.expect_equal(
    int(cache_bytes(model.config, 10, 8, 16)),
    10 * 1088,
    name="bytes of ten tokens in int8, a scale of 16 bits a vector",
)
print("Passed: bytes of keys and values, scales included.")
### BEGIN HIDDEN TESTS
llama = lm.Config(vocabulary=32000, width=4096, layers=32, heads=32, kv_heads=8, head_width=128, hidden=11008)
for tokens, bits, scale_bits in [(1, 16, 0), (4096, 16, 0), (4096, 8, 16), (100, 4, 16)]:
    lk.checks.expect_equal(
        int(cache_bytes(llama, tokens, bits, scale_bits)),
        2 * 32 * 8 * tokens * (128 * bits + scale_bits) // 8,
        name=f"bytes of {tokens} tokens in {bits} bits",
    )
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "kv_test_vectors", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 3.99 / 127 is not a float16: the stored scale is 0.05 % smaller, and by that scale 3.4708 is 110.53, not 110.47
codes, scales = quantize_vectors(torch.tensor([[3.99, 3.4708]]))
lk.checks.expect_equal(codes.tolist(), [[127, 111]], name="codes by the scale as it is stored, in float16")
# 1e-5 / 127 is 7.9e-8, and the nearest float16 is 6.0e-8: 1e-5 is 168 of these steps
codes, scales = quantize_vectors(torch.tensor([[1e-5, -1e-5]]))
lk.checks.expect_equal(
    codes.tolist(), [[127, -127]], name="codes within ±127, also where the stored scale is too small"
)
# 1e-6 / 127 is 7.9e-9, which float16 rounds to 0
codes, scales = quantize_vectors(torch.tensor([[1e-6, -5e-7]]))
require(
    float(scales[0, 0]) > 0, "a vector [1e-6, -5e-7]: the stored scale is 0; replace 0 by 1 after the cast to float16"
)
lk.checks.expect_equal(
    (codes.tolist(), scales.tolist()), ([[0, 0]], [[1.0]]), name="a vector whose scale float16 rounds to 0"
)
print("Passed: codes fit the scale that a reader gets, none wraps round, and no stored scale is 0.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(609)
x = torch.randn(2, 3, 5, 16, generator=generator) * 10.0 ** torch.randint(-2, 3, (2, 3, 5, 1), generator=generator)
codes, scales = quantize_vectors(x.clone())
lk.checks.expect_equal(list(scales.shape), [2, 3, 5, 1], name="shape of the scales")
step = (x.abs().amax(-1, keepdim=True) / 127).half()
lk.checks.expect_close(scales.float(), step.float(), rtol=1e-3, name="scales")
lk.checks.expect_equal(
    codes.tolist(), torch.clamp(torch.round(x / step.float()), -127, 127).to(torch.int8).tolist(), name="codes"
)
with torch.no_grad():
    text = unseen[None, :256]
    exact, cache = model(text), Int8Cache(model.config)
    stored = torch.cat([model(part, cache) for part in text.split(64, dim=1)], dim=1)
loss = [float(torch.nn.functional.cross_entropy(logits[0, :-1], text[0, 1:])) for logits in (exact, stored)]
assert abs(loss[1] - loss[0]) <= 0.005, (
    f"an int8 cache moved the loss by {loss[1] - loss[0]:+.4f} nats; it should hardly be seen"
)
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
# Picture: bytes of the cache, and what the model makes of a cache in int8
with lk.picture(
    "With a right answer, the int8 cache takes little more than half of the bytes, and the perplexity stays."
):
    rows = [("FP16", 16, 0), ("int8, a scale a vector", 8, 16)]
    for name, bits, scale_bits in rows:
        per_token = cache_bytes(model.config, 1, bits, scale_bits)
        print(
            f"{name:24s} {per_token:6.0f} bytes a token here; a batch of 32 x 8,192 tokens: {32 * 8192 * per_token / 1e6:,.0f} MB"
        )
    texts, losses = judged.view(-1, 512)[: 1 if smoke else 4, :256], []
    for kept in (lm.KVCache, Int8Cache):  # each of four parts reads from the cache what earlier parts left
        cache = kept(model.config, batch=len(texts))
        with torch.no_grad():
            logits = torch.cat([model(part, cache) for part in texts.split(64, dim=1)], dim=1)
        losses.append(torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), texts[:, 1:].flatten()))
    exact, stored = (float(loss.exp()) for loss in losses)
    print(
        f"perplexity of {texts.numel():,} tokens read in parts: {exact:.3f} with the cache in float32, {stored:.3f} in int8"
    )

# %% [markdown]
# ## Part 7 · Rivals at equal bytes
#
# Fewer bits is not the only way to fewer bytes. **2:4 sparsity** keeps the two largest of every four weights; tensor cores since Ampere skip
# the zeros, and two bits a kept weight say where it was. **Low rank** replaces $W$ by two thin factors (lab 02). Which loses least, at
# the same number of bytes?

# %% [markdown]
# ### Task 10 · Two of four
# *8 points · 12 minutes · ●●○○*

# %%
lk.predict("prune")


# %% nbgrader={"grade": false, "grade_id": "prune", "locked": false, "schema_version": 3, "solution": true, "task": false}
def prune_2_4(W):
    """Keep the two weights of largest absolute value of every four neighbours of a row.

    W [out, in], 4 divides in. Returns values [out, in / 2] (W's dtype) and places (torch.uint8 [out, in / 2], 0 to 3: where
    in its four each kept value was), in the order in which they stood in W. Of equals, the one further left is kept.

    >>> prune_2_4(torch.tensor([[1.0, -3.0, 0.5, 2.0]]))
    (tensor([[-3.,  2.]]), tensor([[1, 3]], dtype=torch.uint8))
    """
    ### BEGIN SOLUTION
    fours = W.reshape(len(W), -1, 4)
    order = torch.sort(fours.abs(), dim=-1, descending=True, stable=True).indices
    places = torch.sort(order[..., :2], dim=-1).values
    return fours.gather(-1, places).reshape(len(W), -1), places.reshape(len(W), -1).to(torch.uint8)
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "prune_restore", "locked": true, "schema_version": 3, "solution": false, "task": false}
def restore_2_4(values, places):
    """The dense [out, in] matrix of what was kept."""
    dense = torch.zeros(len(values), values.shape[1] // 2, 4, dtype=values.dtype)
    at = places.long().reshape(len(values), -1, 2)
    return dense.scatter(-1, at, values.reshape(at.shape)).reshape(len(values), -1)


# %% nbgrader={"grade": true, "grade_id": "prune_test", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# Two of each four, by absolute value, in their order.
for what, W, kept in [
    ("one four", [[1.0, -3.0, 0.5, 2.0]], ([[-3.0, 2.0]], [[1, 3]])),
    ("the larger one to the right", [[2.0, 0.5, 1.0, -3.0]], ([[2.0, -3.0]], [[0, 3]])),
    (
        "large and small fours in a row",
        [[5.0, 8.0, 7.0, 6.0, 0.125, 0.5, -0.25, 0.1875]],
        ([[8.0, 7.0, 0.5, -0.25]], [[1, 2, 1, 2]]),
    ),
    ("two rows", [[1.0, 2.0, 3.0, 4.0], [-4.0, -3.0, -2.0, -1.0]], ([[3.0, 4.0], [-4.0, -3.0]], [[2, 3], [0, 1]])),
]:
    values, places = prune_2_4(torch.tensor(W))
    lk.checks.expect_equal((values.tolist(), places.tolist()), kept, name=f"values and places, {what}")
print("Passed: two of each four, by absolute value, in their order.")

# %% nbgrader={"grade": true, "grade_id": "prune_test_equals", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# Of equals, the ones further left.
values, places = prune_2_4(torch.tensor([[1.0, 1.0, -1.0, 1.0, 0.0, 2.0, -2.0, 2.0]]))
require(
    sorted(values.abs().flatten().tolist()) != [1, 1, 2, 2] or places.tolist() == [[0, 1, 1, 2]],
    f"of equals, the ones further left: places [0, 1] and [1, 2], got {places.tolist()}; compare sizes without signs, and sort with stable=True",
)
lk.checks.expect_equal(
    (values.tolist(), places.tolist()),
    ([[1.0, 1.0, 2.0, -2.0]], [[0, 1, 1, 2]]),
    name="of equals, the ones further left",
)
print("Passed: of equals, the ones further left.")

# %% nbgrader={"grade": true, "grade_id": "prune_test_random", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# Two rows of two fours.
values, places = prune_2_4(torch.arange(-8.0, 8.0).reshape(2, 8))
lk.checks.expect_equal(values.tolist(), [[-8.0, -7.0, -4.0, -3.0], [2.0, 3.0, 6.0, 7.0]], name="values of -8 … 7")
assert places.dtype == torch.uint8, f"places are torch.uint8, got {places.dtype}"
print("Passed: 16 weights, and places in uint8.")
### BEGIN HIDDEN TESTS
generator = torch.Generator().manual_seed(610)
tried = {
    "a bell curve": torch.randn(7, 20, generator=generator),
    "wide rows": torch.randn(2, 64, generator=generator) * 100,
    "one row, one four": torch.tensor([[0.0, 0.5, 0.0, -1.0]]),
}
for what, W in tried.items():
    values, places = prune_2_4(W.clone())
    expected = []
    for row in W.tolist():  # by hand: the two largest, the left one of equals, in their order
        kept = []
        for start in range(0, len(row), 4):
            best = sorted(range(4), key=lambda j: (-abs(row[start + j]), j))[:2]
            kept += [(row[start + j], j) for j in sorted(best)]
        expected.append(kept)
    lk.checks.expect_equal(values.tolist(), [[v for v, _ in row] for row in expected], name=f"values, {what}")
    lk.checks.expect_equal(places.tolist(), [[j for _, j in row] for row in expected], name=f"places, {what}")
### END HIDDEN TESTS

# %% jupyter={"source_hidden": true}
# Picture: four ways to nine bits a weight or fewer
with lk.picture(
    "With right answers, at about nine bits a weight or fewer, rounding wins by a wide margin: this model's weights all matter a little."
):

    def low_rank(name, W):
        rank = int(W.numel() * 9 / 16 / sum(W.shape))  # factors in 16 bits, at nine bits a weight
        u, s, v = torch.linalg.svd(W.double(), full_matrices=False)
        return (u[:, :rank] * s[:rank]) @ v[:rank]

    rivals = {
        "2:4 in 16 bits (9 bits a weight)": lambda name, W: restore_2_4(*prune_2_4(W)),
        "low rank in 16 bits (9 bits)": low_rank,
        "int8, a scale a row (8.05 bits)": lambda name, W: dequantize_groups(*quantize_groups(W, 8, W.shape[1])),
        "int4, groups of 64 (4.25 bits)": lambda name, W: dequantize_groups(*quantize_groups(W, 4, 64)),
    }
    for name, replacement in rivals.items():
        got = perplexity_with(replacement)
        print(f"{name:34s} perplexity {got:8.2f} ({100 * (got / baseline - 1):+.1f} %)")

# %% [markdown]
# Sparse and low-rank models that work are *trained* to be so. Cut afterwards, without a step of training, they lose.
#
# ## Part 8 · A kernel that reads four bits
#
# All this pays only if the bytes are really not read. Unpacking to FP16 in memory first would read *more* than before. So the kernel loads
# packed bytes, unpacks them in registers, and multiplies with 16-bit activations: **W4A16**. At batch 1 it does one multiply-add for each half
# byte, far on the memory side of any roofline, so the time follows the bytes. Four bits are a quarter of sixteen, and scales add to that: in
# groups of 64 the weights of a large matrix take 3.8 times fewer bytes. In a small one the activations, which every program reads, weigh in, too.

# %% [markdown]
# ### Task 11 · W4A16 in Triton
# *10 points · 25 minutes · ●●●●*
#
# $y = W x$, with $W$ packed by `pack`. Each program makes `ROWS` outputs; a step of the loop takes one group of `GROUP` inputs, so one scale
# a row. Byte $j$ of a row holds the weights of inputs $2j$ (low half) and $2j + 1$ (high half): load the even and the odd inputs
# apart. Every byte of `packed` and every scale must be loaded exactly once, and every input at most once by each program.

# %%
lk.predict("w4a16")


# %% nbgrader={"grade": false, "grade_id": "w4a16", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def w4a16(packed, scales, x, y, OUT, IN: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):
    """y[o] = Σ W[o, i] x[i]; packed uint8 [OUT, IN / 2], scales fp16 [OUT, IN / GROUP], x fp16 [IN], y fp32 [OUT].

    GROUP divides IN and is a power of two; OUT need not be a multiple of ROWS. Accumulate in fp32.
    """
    ### BEGIN SOLUTION
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < OUT
    pairs = tl.arange(0, GROUP // 2)
    total = tl.zeros([ROWS], dtype=tl.float32)
    for group in range(IN // GROUP):
        at = group * (GROUP // 2) + pairs
        codes = tl.load(packed + rows[:, None] * (IN // 2) + at[None, :], mask=inside[:, None], other=0).to(tl.int32)
        low = ((codes & 15) ^ 8) - 8
        high = ((codes >> 4) ^ 8) - 8
        even = tl.load(x + 2 * at).to(tl.float32)
        odd = tl.load(x + 2 * at + 1).to(tl.float32)
        scale = tl.load(scales + rows * (IN // GROUP) + group, mask=inside, other=0.0).to(tl.float32)
        total += scale * tl.sum(low.to(tl.float32) * even[None, :] + high.to(tl.float32) * odd[None, :], axis=1)
    tl.store(y + rows, total, mask=inside)
    ### END SOLUTION


# %% jupyter={"source_hidden": true} nbgrader={"grade": false, "grade_id": "w4a16_launch", "locked": true, "schema_version": 3, "solution": false, "task": false}
def packed_layer(out, inner, group, seed):
    """A random layer as the kernel takes it, [out, inner] in groups of `group`, and the product that it should make."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-7, 8, (out, inner))
    nibbles = codes.astype(np.uint8) & 15
    packed = torch.from_numpy(nibbles[:, 0::2] | (nibbles[:, 1::2] << 4))
    scales = torch.from_numpy(rng.uniform(0.5, 2.0, (out, inner // group)).astype(np.float16))
    x = torch.from_numpy(rng.standard_normal(inner).astype(np.float16))
    W = codes * np.repeat(scales.double().numpy(), group, axis=1)
    return packed, scales, x, W @ x.double().numpy()


def traced_w4a16(packed, scales, x, out, inner, group, rows):
    """Run the kernel under the tracer. Returns y and the trace."""
    y = torch.full((out,), float("nan"))
    trace = lk.triton_trace.trace(w4a16)[(triton.cdiv(out, rows),)](
        packed, scales, x, y, out, IN=inner, GROUP=group, ROWS=rows
    )
    return y, trace


# %% nbgrader={"grade": true, "grade_id": "w4a16_test", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# One input at a time, for each half of a byte; then whole layers.
for i, weight in [(0, 1.0), (1, -1.0)]:  # every byte is 0xF1: even inputs have weight 1 (low half), odd ones -1
    x = torch.zeros(32, dtype=torch.float16)
    x[i] = 1.0
    y, trace = traced_w4a16(
        torch.full((16, 16), 0xF1, dtype=torch.uint8), torch.ones(16, 1, dtype=torch.float16), x, 16, 32, 32, rows=16
    )
    half = "low half 1" if i == 0 else "high half F, that is -1"
    lk.checks.expect_close(y, np.full(16, weight), name=f"y where every byte is 0xF1 and only x[{i}] is 1 ({half})")
for out, inner, group, rows in [(48, 128, 64, 16), (21, 64, 32, 16)]:  # whole programs, and a last one that is not full
    packed, scales, x, expected = packed_layer(out, inner, group, seed=0)
    y, trace = traced_w4a16(packed, scales, x, out, inner, group, rows)
    lk.checks.expect_close(y, expected, rtol=1e-4, atol=1e-3, name=f"y, out={out} in={inner} group={group} rows={rows}")
    lk.checks.expect_no_findings(trace)
print("Passed: both halves of a byte, two groups a row, with whole programs and with a last one that is not full.")

# %% nbgrader={"grade": true, "grade_id": "w4a16_test_shapes", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# One group a row.
packed, scales, x, expected = packed_layer(8, 32, 32, seed=9)
y, trace = traced_w4a16(packed, scales, x, 8, 32, 32, rows=8)
lk.checks.expect_close(y, expected, rtol=1e-4, atol=1e-3, name="y, one group a row")
lk.checks.expect_no_findings(trace)
print("Passed: one group a row.")
### BEGIN HIDDEN TESTS
for out, inner, group, rows in [(5, 64, 32, 4), (33, 96, 32, 16), (64, 256, 64, 32), (1, 16, 16, 8)]:
    packed, scales, x, expected = packed_layer(out, inner, group, seed=out)
    y, trace = traced_w4a16(packed, scales, x, out, inner, group, rows)
    lk.checks.expect_close(y, expected, rtol=1e-4, atol=1e-3, name=f"y, out={out} in={inner} group={group} rows={rows}")
    lk.checks.expect_no_findings(trace)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "w4a16_test_bytes", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# The bytes that the kernel reads and writes.
packed, scales, x, expected = packed_layer(40, 192, 64, seed=3)
y, trace = traced_w4a16(packed, scales, x, 40, 192, 64, rows=16)
lk.checks.expect_close(y, expected, rtol=1e-4, atol=1e-3, name="y")
lk.checks.expect_no_findings(trace)
lk.checks.expect_traffic(trace, "packed", loaded_bytes=packed.nbytes)  # half a byte a weight, once
lk.checks.expect_traffic(trace, "scales", loaded_bytes=scales.nbytes)
lk.checks.expect_traffic(trace, "y", stored_bytes=y.nbytes, loaded_bytes=0)
lk.checks.expect_traffic(trace, "x", at_most_loaded_bytes=3 * x.nbytes)  # once a program, and there are three
print("Passed: half a byte a weight, each scale once, and each input once a program.")

# %% jupyter={"source_hidden": true}
# Picture: the roofline of the FP16 product and of the four-bit one
with lk.picture(
    "With a right answer, the same product of a third of the bytes: at batch 1 that is what the time follows."
):
    packed, scales, x, expected = packed_layer(256, 256, 64, seed=1)
    y, trace = traced_w4a16(packed, scales, x, 256, 256, 64, rows=32)
    flops = 2.0 * 256 * 256
    roof = lk.Roofline.from_spec("h100-sxm")
    full = lk.Work(
        flops=flops, bytes_read=2 * 256 * 256 + 2 * 256, bytes_written=4 * 256, dtype="float16", name="FP16 weights"
    )
    four = lk.Work(
        flops=flops,
        bytes_read=trace.work.bytes_read,
        bytes_written=trace.work.bytes_written,
        dtype="float16",
        name="four-bit weights",
    )
    worst = np.abs(y.double().numpy() - expected).max()
    fewer = (full.bytes_read + full.bytes_written) / (four.bytes_read + four.bytes_written)
    print(
        f"FP16 moves {fewer:.1f} times the bytes of your kernel, whose result is off by {worst:.2g} at most; "
        f"the tracer reports {len(trace.findings)} accesses out of bounds or other findings"
    )
    figure = roof.plotly([full, four], dtypes=["float16"])
    figure.update_traces(line_dash="dot", selector=lambda trace: trace.name.startswith("shared"))
    lk.show(
        figure,
        summary="Roofline with the FP16 product and the four-bit one, both memory bound.",
    )

# %% [markdown]
# ## The libraries
#
# You have written by hand what serving stacks call in one line. Where torchao is installed, here are its numbers beside yours.

# %% jupyter={"source_hidden": true}
# torchao's int8 beside yours
try:
    logging.disable(logging.WARNING)  # it speaks of GPU code that is not for this machine
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
except ImportError:
    logging.disable(logging.NOTSET)
    print("torchao is not installed, so there is nothing to compare: pip install torchao shows it.")
else:
    logging.disable(logging.NOTSET)
    fresh, _ = lm.load()
    quantize_(fresh, Int8WeightOnlyConfig(), filter_fn=lambda module, name: name in weights)
    theirs = lm.perplexity(fresh, judged)
    with lk.picture("With a right answer, one line of a library and yours have the same perplexity."):
        yours = perplexity_with(lambda name, W: dequantize_groups(*quantize_groups(W, 8, W.shape[1])))
        print(f"int8 weight-only: torchao {theirs:.3f}, yours {yours:.3f}, unquantized {baseline:.3f}")

# %% [markdown]
# ## On your GPU
#
# Not graded. A kernel that reads a quarter of the bytes can still need the same time. On an H100, with a layer of 8192 × 8192 at batch 1, the
# solution of task 11 took 47 µs and torch's FP16 product 50 µs (measured on 2026-11-27). The H100 reads 35 MB, the codes and scales, in 12 µs. And even
# with all of them in the L2 cache, the kernel took 37 µs. So bytes do not decide its time. Two other things do:
#
# - **Short steps.** A step of its loop loads 64 bytes per row and needs them at once. A row takes 64 such steps, one after the other, so few bytes are on
#   their way at any time.
# - **Instructions.** Compiled for the H100, its loop has about 8 instructions per weight: they isolate a code, restore its sign, convert it to a
#   float, multiply, and add sums up across threads.
#
# Longer steps alone, 2,048 bytes of each of 4 rows, brought 25 µs. The given kernel below, `w4a16_wide`, also needs fewer instructions, about 3.4 per
# weight:
#
# - **16 bytes per load.** It reads `packed.view(torch.int32)`, words of eight codes. A thread loads four words at once from each of `ROWS` rows. It converts
#   an input to FP32 once for all these rows, and adds up across threads once, after the loop.
# - **A conversion by masking.** A float whose bits are an integer $k < 2^{24}$ has the value $k \cdot 2^{-149}$: these are the subnormals of
#   Part 1 and the smallest normal floats. So the kernel clears all bits of a word but one code's and takes the result as a float. A code $u$
#   whose lowest bit is bit $p$ then counts $u \cdot 2^{p-149}$, and no shift is needed. The kernel multiplies the input by $2^{100-p}$, once for all rows, and the scale by
#   $2^{49}$. Multiplying by a power of two rounds nothing.
# - **Signs eight at a time.** This needs codes from 0 to 15. One XOR flips the sign bits of a word's eight codes, which makes each code $c$ into
#   $u = c + 8$. Then $\sum c\,x = \sum u\,x - 8 \sum x$, and the last sum is the same for all rows.
#
# On the same H100 it took 17.6 µs, 2.8 times as fast as FP16.

# %%
@triton.jit
def bits_as_float(words, PLACE: tl.constexpr):
    """The code u in bits PLACE to PLACE + 3 as the float u · 2^(PLACE - 149); PLACE is at most 20."""
    return (words & (15 << PLACE)).to(tl.float32, bitcast=True)


@triton.jit
def w4a16_wide(
    words, scales, x, y, OUT,
    IN: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """As w4a16, with words = packed.view(torch.int32), [OUT, IN / 8]. WORDS divides IN / 8, and 32 divides GROUP.

    With AHEAD = 3, the loads of the next two steps are on their way while a step computes.
    """
    rows = tl.arange(0, ROWS) + ROWS * tl.program_id(0)
    inside = rows[:, None] < OUT
    total = tl.zeros([ROWS, WORDS // 4], dtype=tl.float32)
    for start in tl.range(0, IN // 8, WORDS, num_stages=AHEAD):
        word = start + tl.arange(0, WORDS)
        group = (start + 4 * tl.arange(0, WORDS // 4)) // (GROUP // 8)  # of each four words
        codes = tl.load(words + rows[:, None] * (IN // 8) + word[None, :], mask=inside, other=0)
        at = rows[:, None] * (IN // GROUP) + group[None, :]
        scale = tl.load(scales + at, mask=inside, other=0.0).to(tl.float32)
        inputs = tl.load(x + 8 * start + tl.arange(0, 8 * WORDS)).to(tl.float32)
        even, odd = tl.split(tl.reshape(inputs, (WORDS, 2, 2, 2)))  # input 8 w + i belongs to word w
        x04, x26 = tl.split(even)
        x15, x37 = tl.split(odd)
        x0, x4 = tl.split(x04)
        x1, x5 = tl.split(x15)
        x2, x6 = tl.split(x26)
        x3, x7 = tl.split(x37)
        low = codes ^ -0x77777778  # the bits 0x88888888
        high = low >> 8
        sums = bits_as_float(low, 0) * (x0 * 2.0**100) - (x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7) * 2.0**-46
        sums += bits_as_float(low, 4) * (x1 * 2.0**96)
        sums += bits_as_float(low, 8) * (x2 * 2.0**92)
        sums += bits_as_float(low, 12) * (x3 * 2.0**88)
        sums += bits_as_float(low, 16) * (x4 * 2.0**84)
        sums += bits_as_float(low, 20) * (x5 * 2.0**80)
        sums += bits_as_float(high, 16) * (x6 * 2.0**84)
        sums += bits_as_float(high, 20) * (x7 * 2.0**80)
        total += tl.sum(tl.reshape(sums, (ROWS, WORDS // 4, 4)), axis=2) * (scale * 2.0**49)
    tl.store(y + rows, tl.sum(total, axis=1), mask=rows < OUT)


# %% [markdown]
# The next cell checks it on any machine: the values, and that each byte of the codes is loaded once.

# %%
for out, inner, group in [(8, 256, 64), (21, 512, 128)]:
    packed, scales, x, expected = packed_layer(out, inner, group, seed=out)
    y = torch.full((out,), float("nan"))
    trace = lk.triton_trace.trace(w4a16_wide)[(triton.cdiv(out, 4),)](
        packed.view(torch.int32), scales, x, y, out, IN=inner, GROUP=group, ROWS=4, WORDS=32, AHEAD=3
    )
    lk.checks.expect_close(y, expected, rtol=1e-4, atol=1e-3, name=f"y, out={out} in={inner} group={group}")
    lk.checks.expect_no_findings(trace)
    lk.checks.expect_traffic(trace, "words", loaded_bytes=packed.nbytes)
print("Passed: the same product, and each byte of the codes once.")

# %% [markdown]
# Where there is a GPU, the next cell times both kernels at batch 1 against torch's FP16 product, at the size of a real layer. Elsewhere it says why it does
# nothing.

# %% jupyter={"source_hidden": true}
# Both kernels against torch's FP16 product, where there is a CUDA GPU
device = lk.detect()
if device.kind != "cuda" or device.virtual:
    print(f"Skipped: this needs a CUDA GPU, and here is: {device.label}. Nothing was measured.")
else:
    out, inner, group = 8192, 8192, 128
    packed = torch.randint(0, 256, (out, inner // 2), dtype=torch.uint8, device="cuda")
    scales = torch.rand(out, inner // group, dtype=torch.float16, device="cuda")
    x, y = torch.randn(inner, dtype=torch.float16, device="cuda"), torch.empty(out, device="cuda")
    dense = torch.randn(out, inner, dtype=torch.float16, device="cuda")
    with lk.picture("Both kernels beside torch's FP16 product, on this GPU."):
        for name, call in {
            "FP16, torch": lambda: dense @ x,
            "W4A16, wide": lambda: w4a16_wide[(triton.cdiv(out, 8),)](
                packed.view(torch.int32), scales, x, y, out, IN=inner, GROUP=group, ROWS=8, WORDS=128, AHEAD=3, num_warps=1
            ),
            "W4A16, yours": lambda: w4a16[(triton.cdiv(out, 16),)](
                packed, scales, x, y, out, IN=inner, GROUP=group, ROWS=16
            ),
        }.items():
            print(lk.bench(call, name=name, device="cuda"))

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
# - A small float is three fields. Sorted by code it is sorted by size, and that is all there is to rounding.
# - A scale is shared by whoever must suffer together: tensor, row, group, block. Count its bytes.
# - Outliers can be moved to where they hurt less, exactly.
# - Round-to-nearest is blind to what the layer computes. GPTQ pays one weight's error back with the next.
# - Eight bits go unnoticed; four bits cost something, and how much is measured, not believed.
# - Bytes that a kernel does not load are the only ones it saves.
#
# ## Next
#
# [Chapter 9, *Fewer bits, fewer weights*](../../course/chapters/09_bits.md), has the derivations and the history. Then come models too large for one machine: many ranks, and
# the messages between them.
