"""Rule 5: every test cell seeds what it draws."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.python import attribute, calls, stored
from mlsys_grading.build.rules.cell import Objection, TestCell

_TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"}


_TORCH_DRAWS |= {"rand_like", "randn_like", "randint_like"}


_TORCH_DRAWS_IN_PLACE = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "log_normal_"}


_TORCH_LAYERS = {"Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "RNN", "LSTM", "GRU"}


_TORCH_LAYERS |= {"MultiheadAttention", "Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"}


_NUMPY_SAFE = {
    "default_rng",
    "Generator",
    "RandomState",
    "SeedSequence",
    "PCG64",
    "Philox",
    "seed",
    "get_state",
    "set_state",
}


_PYTHON_SAFE = {"seed", "Random", "getstate", "setstate"}


_SEEDS = {"numpy.random.seed", "random.seed", "torch.manual_seed", "torch.random.manual_seed"}


_RNG_NAMES = {"rng", "gen", "generator", "random_state"}


def unseeded_randomness(cell: TestCell) -> Iterator[Objection]:
    """Rule 5: a test cell draws the same numbers whatever ran before it, so each cell seeds itself."""
    seeded: dict[str, int] = {}
    for call in calls(cell.tree):
        name = cell.called(call)
        if name in _SEEDS and (call.args or call.keywords):
            seeded.setdefault(name.split(".")[0], call.lineno)
    for call in calls(cell.tree):
        name = cell.called(call)
        family, _, draw = name.rpartition(".")
        if (
            name in ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")
            and not call.args
            and not call.keywords
        ):
            yield call.lineno, f"{draw}() without a seed", f"write {draw}(seed + 1) or another fixed number"
        elif (
            family == "numpy.random" and draw not in _NUMPY_SAFE and seeded.get("numpy", call.lineno + 1) > call.lineno
        ):
            yield (
                call.lineno,
                f"{name} draws from numpy's global state",
                "write rng = np.random.default_rng(0) in this cell and draw from rng",
            )
        elif (
            family == "random"
            and draw not in _PYTHON_SAFE
            and "random" in cell.names.values()
            and seeded.get("random", call.lineno + 1) > call.lineno
        ):
            yield (
                call.lineno,
                f"{name} draws from Python's global state",
                "write rng = random.Random(0) in this cell and draw from rng",
            )
        elif _draws_from_torch(call, name) and seeded.get("torch", call.lineno + 1) > call.lineno:
            yield (
                call.lineno,
                f"{draw or attribute(call.func)} draws from torch's global state",
                "write torch.manual_seed(0) before it in this cell, or pass generator=",
            )
        elif name in ("os.urandom", "uuid.uuid4") or family == "secrets":
            yield call.lineno, f"{name} cannot be seeded", "draw from np.random.default_rng(0)"
    bound = stored(cell.tree) | {
        arg.arg for node in ast.walk(cell.tree) if isinstance(node, ast.arguments) for arg in node.args
    }
    for call in calls(cell.tree):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            rng = call.func.value.id
            if rng in _RNG_NAMES and rng not in bound and rng not in cell.names:
                yield (
                    call.lineno,
                    f"{rng!r} comes from another cell, in whatever state that left it",
                    f"write {rng} = np.random.default_rng(0) in this cell",
                )
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
