"""The conventions for FLOPs and bytes: one table for torch and numpy, so that the same code has the same work in both.

FLOPs
    * one for each output element of an elementwise operation, whatever libm function it calls (add, exp, tanh, max, <);
    * one for each input element of a reduction (so that ``(x * y).sum()`` equals ``dot(x, y)``: 2n);
    * two for each multiply-add of a matrix product: 2·m·n·k, and one more per element for a bias;
    * an operation defined by a formula (softmax, gelu, layer norm): the formula, written out with the rules above;
    * fused attention: its matrix products only, 4·B·H·Sq·Sk·D forward, as in the FlashAttention papers; a causal mask
      is not subtracted;
    * copies, fills, selections, indexing, random numbers, sorting and logic on booleans: none.
    Integer arithmetic is counted by the same rules. Factorisations use the leading terms of Golub and Van Loan.

Bytes
    What each operation reads from and writes to memory when it runs on its own: eager, unfused, nothing cached between
    operations. Views are free. An operation reads each distinct element once: an expanded dimension costs nothing,
    ``x * x`` reads ``x`` once, and ``x[1:] - x[:-1]`` at most the whole of ``x``. A gather reads the rows it selects,
    not the table.

Reference: Golub and Van Loan, "Matrix Computations", 4th ed.; Dao et al., "FlashAttention", arXiv:2205.14135, sec. 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

# FLOPs an output element, where it is not 1.
POINTWISE: dict[str, int] = {
    "addcdiv": 2, "addcmul": 2, "clamp": 2, "clip": 2, "elu": 3, "gelu": 5, "gelu_backward": 11, "hardtanh": 2,
    "leaky_relu": 2, "lerp": 3, "log_sigmoid_forward": 4, "logaddexp": 4, "sigmoid": 4, "sigmoid_backward": 3,
    "silu": 5, "silu_backward": 9, "softplus": 3, "tanh_backward": 3, "divmod": 2, "hypot": 4,
}  # fmt: skip

# FLOPs an input element, FLOPs an output element.
REDUCTIONS: dict[str, tuple[int, int]] = {
    "sum": (1, 0), "prod": (1, 0), "nansum": (1, 0), "max": (1, 0), "min": (1, 0), "amax": (1, 0), "amin": (1, 0),
    "argmax": (1, 0), "argmin": (1, 0), "aminmax": (2, 0), "ptp": (2, 1), "mean": (1, 1), "var": (4, 2), "std": (4, 3),
    "var_mean": (4, 2), "std_mean": (4, 3), "logsumexp": (4, 2), "norm": (2, 1), "vector_norm": (2, 1), "trace": (1, 0),
    "cumsum": (1, 0), "cumprod": (1, 0), "logcumsumexp": (4, 0), "cummax": (1, 0), "cummin": (1, 0), "diff": (1, 0),
    "count_nonzero": (1, 0),
}  # fmt: skip

# FLOPs per element of a row-wise operation whose output is as large as its input.
ROWWISE: dict[str, int] = {
    "softmax": 5, "safe_softmax": 5, "log_softmax": 5, "softmax_backward_data": 4, "log_softmax_backward_data": 4,
    "native_dropout": 2, "native_dropout_backward": 2, "mse_loss": 3, "mse_loss_backward": 3, "native_layer_norm":
    7, "native_layer_norm_backward": 14, "native_batch_norm": 7, "native_batch_norm_legit": 7,
    "native_batch_norm_backward": 14, "cudnn_batch_norm": 7, "native_group_norm": 7,
}  # fmt: skip

FREE = frozenset(
    """
    clone copy copyto to_copy where masked_fill fill zero zeros ones full zeros_like ones_like full_like
    scalar_tensor positive bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_not
    logical_xor invert any all arange linspace eye identity tri tril triu tril_indices triu_indices diag diagflat
    diag_embed cat concatenate stack vstack hstack dstack column_stack block split pad constant_pad_nd
    reflection_pad1d roll flip rot90 tile repeat resize repeat_interleave index index_select take take_along_axis
    gather embedding select_backward slice_backward select_scatter slice_scatter diagonal_scatter as_strided_scatter
    scatter index_put index_copy masked_select masked_scatter nonzero argwhere flatnonzero sort argsort topk
    kthvalue median searchsorted unique unique2 one_hot bincount histogram rand randn randint randperm rand_like
    randn_like randint_like normal uniform random bernoulli multinomial exponential astype array asarray
    ascontiguousarray array_equal flatten ravel reshape tolist item tobytes local_scalar_dense equal im2col col2im
    unfold pixel_shuffle complex isclose nll_loss_forward nll_loss_backward max_pool2d_with_indices_backward
    atleast_1d atleast_2d meshgrid ix_ broadcast_to lift_fresh_copy fill_diagonal expand_copy permute_copy view_copy
    new_zeros new_ones new_full asanyarray indices choose compress extract
    """.split()  # noqa: SIM905  (150 quoted names would hide what is missing)
)

# Factorisations of an m x n matrix, m >= n, by the usual algorithm for dense real input.
FACTORISATIONS: dict[str, Callable[[int, int], float]] = {
    "cholesky": lambda m, n: n**3 / 3,
    "lu_factor": lambda m, n: m * n**2 - n**3 / 3,
    "det": lambda m, n: 2 * n**3 / 3,
    "slogdet": lambda m, n: 2 * n**3 / 3,
    "inv": lambda m, n: 2 * n**3,
    "solve": lambda m, n: 2 * n**3 / 3,  # and 2·n² for each right-hand side
    "lstsq": lambda m, n: 2 * m * n**2 - 2 * n**3 / 3,
    "qr": lambda m, n: 4 * m * n**2 - 4 * n**3 / 3,
    "eigh": lambda m, n: 9 * n**3,
    "eigvalsh": lambda m, n: 4 * n**3 / 3,
    "svd": lambda m, n: 6 * m * n**2 + 20 * n**3,
    "svdvals": lambda m, n: 2 * m * n**2 + 2 * n**3,
}


def flops_of(name: str, elements_in: int, elements_out: int) -> float | None:
    """Return the FLOPs of an operation by its canonical name; None when there is no rule for it."""
    if name in FREE:
        return 0
    if name in REDUCTIONS:
        per_input, per_output = REDUCTIONS[name]
        return per_input * elements_in + per_output * elements_out
    if name in ROWWISE:
        return ROWWISE[name] * elements_in
    if name in POINTWISE:
        return POINTWISE[name] * elements_out
    return None


def factorisation_flops(name: str, shape: tuple[int, ...], right_hand_sides: int = 0) -> float | None:
    """Return the FLOPs to factorise ``shape[:-2]`` matrices; None when there is no formula for it."""
    formula = FACTORISATIONS.get(name)
    if formula is None or len(shape) < 2:
        return None
    m, n = max(shape[-2:]), min(shape[-2:])
    return math.prod(shape[:-2]) * (formula(m, n) + 2 * n * n * right_hand_sides)
