"""Rule 5: every test cell seeds what it draws."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.python import attribute, stored, words
from mlsys_grading.build.rules import Objection
from mlsys_grading.build.view import View

_TORCH_DRAWS = words("""
    rand randn randint randperm normal bernoulli multinomial poisson rand_like randn_like randint_like
""")
_TORCH_DRAWS_IN_PLACE = words("normal_ uniform_ random_ bernoulli_ exponential_ geometric_ log_normal_")
_TORCH_LAYERS = words("""
    Linear Bilinear Conv1d Conv2d Conv3d Embedding RNN LSTM GRU
    MultiheadAttention Transformer TransformerEncoderLayer TransformerDecoderLayer
""")
_NUMPY_SAFE = words("default_rng Generator RandomState SeedSequence PCG64 Philox seed get_state set_state")
_PYTHON_SAFE = words("seed Random getstate setstate")
_MAKERS = words("numpy.random.default_rng numpy.random.RandomState random.Random")
_SEEDS = words("numpy.random.seed random.seed torch.manual_seed torch.random.manual_seed")
_RNG_NAMES = words("rng gen generator random_state")


def unseeded_randomness(view: View) -> Iterator[Objection]:
    """Find draws without a seed in the same cell: their numbers depend on the cells that ran before."""
    seeded: dict[str, int] = {}
    for call in view.calls:
        name = view.called(call)
        if name in _SEEDS and (call.args or call.keywords):
            seeded.setdefault(name.split(".")[0], call.lineno)
    for call in view.calls:
        name, line = view.called(call), call.lineno
        family, _, draw = name.rpartition(".")
        unseeded = {library for library in ("numpy", "random", "torch") if seeded.get(library, line + 1) > line}
        if name in _MAKERS and not call.args and not call.keywords:
            yield line, f"{draw}() without a seed", f"write {draw}(seed + 1) or another fixed number"
        elif family == "numpy.random" and draw not in _NUMPY_SAFE and "numpy" in unseeded:
            instead = "write rng = np.random.default_rng(0) in this cell and draw from rng"
            yield line, f"{name} draws from numpy's global state", instead
        elif (
            family == "random" and draw not in _PYTHON_SAFE and "random" in view.names.values() and "random" in unseeded
        ):
            instead = "write rng = random.Random(0) in this cell and draw from rng"
            yield line, f"{name} draws from Python's global state", instead
        elif _draws_from_torch(call, name) and "torch" in unseeded:
            instead = "write torch.manual_seed(0) before it in this cell, or pass generator="
            yield line, f"{draw or attribute(call.func)} draws from torch's global state", instead
        elif name in ("os.urandom", "uuid.uuid4") or family == "secrets":
            yield line, f"{name} cannot be seeded", "draw from np.random.default_rng(0)"
    bound = {arg.arg for node in view.nodes if isinstance(node, ast.arguments) for arg in node.args}
    bound |= stored(view.tree) | set(view.names)
    for call in view.calls:
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        rng = of.id if isinstance(of, ast.Name) else ""
        if rng in _RNG_NAMES - bound:
            problem = f"{rng!r} comes from another cell, in whatever state that left it"
            yield call.lineno, problem, f"write {rng} = np.random.default_rng(0) in this cell"
            return


def _draws_from_torch(call: ast.Call, name: str) -> bool:
    if any(keyword.arg == "generator" for keyword in call.keywords):
        return False
    family, _, draw = name.rpartition(".")
    return (
        (family == "torch" and draw in _TORCH_DRAWS)
        or (family == "torch.nn" and draw in _TORCH_LAYERS)
        or attribute(call.func) in _TORCH_DRAWS_IN_PLACE
    )
