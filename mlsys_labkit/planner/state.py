"""Bytes of parameters, gradients and optimizer state on a rank under ZeRO."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit import specs
from mlsys_labkit.planner.errors import PlanError

_NOT_MODELLED = ("float4", "int8")  # their recipes decide which products stay wide, and what scaling costs


@dataclass(frozen=True)
class Precision:
    """Bytes per parameter, and the dtype that matrices are multiplied in.

    The default is mixed precision with Adam: weights and gradients in 16 bits; the optimizer's 12 bytes are a copy of
    the weights, momentum and variance, in 32 bits each. ``Precision.single()`` is everything in 32 bits: 4, 4 and 8.

    With "float8", matrices of the layers are multiplied in 8 bits; activations stay in 16 bits between products, and so
    do attention and the output layer. Raises PlanError for "float4" and "int8", whose recipes are not modelled, and for
    a dtype that is not in ``specs.DTYPES``.

    Reference: Rajbhandari et al., "ZeRO", arXiv:1910.02054, sec. 3.1 (K = 12).
    """

    parameter_bytes: float = 2
    gradient_bytes: float = 2
    optimizer_bytes: float = 12
    compute: str = "bfloat16"

    def __post_init__(self) -> None:
        known = [dtype for dtype in specs.DTYPES if dtype not in _NOT_MODELLED]
        if self.compute not in known:
            why = "; training in it is not modelled" if self.compute in _NOT_MODELLED else ""
            raise PlanError(f"compute is one of {', '.join(known)}; got {self.compute!r}{why}")

    @property
    def itemsize(self) -> int:
        """Bytes of an activation."""
        return {"float64": 8, "float32": 4, "tf32": 4}.get(self.compute, 2)

    @classmethod
    def single(cls) -> Precision:
        """Return the precision of float32 training in torch with Adam(W): two moments, no second copy of weights."""
        return cls(parameter_bytes=4, gradient_bytes=4, optimizer_bytes=8, compute="float32")


@dataclass(frozen=True)
class StateBytes:
    """Bytes of one rank."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


def zero_bytes(parameters: float, ranks: int, stage: int, precision: Precision | None = None) -> StateBytes:
    """Return the bytes of a model's state on each of ``ranks`` data-parallel ranks under a ZeRO stage.

    Stage 0 divides nothing among the ranks, stage 1 the optimizer's state, 2 also the gradients, 3 also the parameters.
    Shares are even: padding is left out. Raises PlanError for a stage that is not 0 to 3 or fewer ranks than 1.

    Example:
        >>> [round(zero_bytes(7.5e9, 64, stage).total / 1e9, 1) for stage in range(4)]
        [120.0, 31.4, 16.6, 1.9]

    Reference: Rajbhandari et al., "ZeRO", arXiv:1910.02054, fig. 1.
    """
    if stage not in (0, 1, 2, 3):
        raise PlanError(f"a ZeRO stage is 0, 1, 2 or 3, got {stage!r}")
    if ranks < 1:
        raise PlanError(f"at least one rank must hold the state, got ranks={ranks!r}")
    each = precision or Precision()
    # The lowest stage that divides each kind of state; higher stages divide it as well.
    bytes_each = {3: each.parameter_bytes, 2: each.gradient_bytes, 1: each.optimizer_bytes}
    held = (parameters * size / (ranks if stage >= first else 1) for first, size in bytes_each.items())
    return StateBytes(*held)
