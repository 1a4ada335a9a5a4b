"""Scaling laws: how large a model, on how many tokens, for a budget of arithmetic; and for a life of serving."""

from __future__ import annotations

from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.scaling_laws import model


def scaling_laws(flops: float = 5.76e23, parameters: float | None = None, served: float = 0.0) -> Any:
    """Spend ``flops`` of training on a model of so many ``parameters``; by default on the best size.

    ``served`` are the tokens that it will write in its life, each 2 FLOPs per parameter. The law is Chinchilla's fit.
    Raises LabkitError for a budget outside 1e18 to 1e27 FLOPs, parameters outside 1e7 to 1e13, negative ``served``.
    Reference: Hoffmann et al., arXiv:2203.15556; Sardana et al., "Beyond Chinchilla-Optimal", arXiv:2401.00448.

    Example:
        >>> scaling_laws(flops=1e24, served=1e13)
        <Scaling laws>
    """
    if not 1e18 <= flops <= 1e27:
        raise LabkitError(f"flops is the arithmetic of a training run, 1e18 to 1e27; got {flops!r}")
    size = model.best_parameters(model.CHINCHILLA, flops) if parameters is None else float(parameters)
    if not 1e7 <= size <= 1e13:
        raise LabkitError(f"parameters is between 1e7 and 1e13; got {parameters!r}")
    if not 0 <= served <= 1e17:
        raise LabkitError(f"served is a number of tokens, 0 to 1e17; got {served!r}")
    return KIND.show(law=dict(model.CHINCHILLA), flops=float(flops), parameters=size, served=float(served))


def _static(state: State) -> str:
    law, flops = state["law"], state["flops"]
    best = model.best_parameters(law, flops)
    rows = []
    for name, size in (("shown", state["parameters"]), ("best for this budget", best)):
        tokens = flops / 6 / size
        rows.append((name, si(size), si(tokens), f"{tokens / size:.3g}", f"{model.loss(law, size, tokens):.3f}"))
    return paragraph(f"{flops:.3g} FLOPs of training.") + table(
        "Chinchilla's fit", ["model", "parameters", "tokens", "tokens a parameter", "loss"], rows
    )


KIND = Kind("scaling_laws", "Scaling laws", _static)
