"""Serving planner: which GPUs for which model and how many users, and what a million tokens cost there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsys_labkit import specs
from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.ranks import MODELS, Transformer
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.serving_planner import model

DEVICES = ("h100-sxm", "h200", "b200", "gb200", "a100-sxm-80gb", "l4", "l40s", "mi300x", "rtx4090")
GPUS = (1, 2, 4, 8, 16, 32, 64, 72)  # up to the GPUs of an NVL72
USERS = 1024
BITS = (16, 8, 4)


def serving_planner(
    model_name: str = "llama-3-70b",
    device: str = "h100-sxm",
    *,
    gpus: int = 4,
    bits: int = 16,
    users: int = 32,
    context: int = 4096,
    usd_per_gpu_hour: float = 2.5,
    devices: Sequence[str] = DEVICES,
) -> Any:
    """Size a server: memory, time to the first token, time per token, tokens per second, and the price of a million.

    ``model_name`` is a name of ``planner.MODELS``; ``device`` a GPU of ``mlsys_labkit.specs``; the model is cut over
    ``gpus`` (1 to 72, an NVL72) of them, its weights in ``bits`` (16, 8 or 4) and its cache in 16; ``users`` share the
    batch with ``context`` tokens each. The sums are those of ``serving_planner.model``: bandwidth or arithmetic,
    whichever is slower, at a stated part of the peak, and two all-reduces per layer. More GPUs than key-value heads
    hold copies of the cache; under latent attention (DeepSeek-V3) GPUs share out the users. Nothing is measured.
    Raises LabkitError for a name or a number that is not on offer.
    Reference: Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023.

    Example:
        >>> serving_planner("llama-3-8b", "l4", gpus=1, bits=8, users=8)
        <Serving planner>
    """
    if model_name not in MODELS:
        raise LabkitError(f"no model {model_name!r}; choose among {', '.join(MODELS)}")
    offered = list(dict.fromkeys([device, *devices]))
    if gpus not in GPUS or bits not in BITS:
        raise LabkitError(f"gpus is one of {GPUS} and bits one of {BITS}; got {gpus} and {bits}")
    if not (1 <= users <= USERS and 256 <= context <= 131072 and 0 < usd_per_gpu_hour <= 100):
        raise LabkitError(
            "users is 1 to 1024, context 256 to 131072 tokens and usd_per_gpu_hour above 0 and at most 100; "
            f"got {users}, {context} and {usd_per_gpu_hour}"
        )
    return KIND.show(
        models=[_model(name) for name in MODELS],
        devices=[_device(key) for key in offered],
        model=model_name,
        device=device,
        gpus=gpus,
        bits=bits,
        users=users,
        context=context,
        price=usd_per_gpu_hour,
        efficiency=0.6,
    )


def _model(name: str) -> dict[str, Any]:
    sizes = Transformer.named(name)
    counts = {"parameters": sizes.parameters, "active": sizes.active_parameters, "layers": sizes.layers}
    cuts = USERS if sizes.latent else sizes.kv_heads
    return {"name": name, **counts, "cache": sizes.kv_bytes_per_token(), "cuts": cuts}


def _device(key: str) -> dict[str, Any]:
    device = specs.get(key)
    dtype = next((name for name in ("bfloat16", "float16") if name in device.peaks), None)
    if dtype is None or device.memory_bytes is None:
        raise LabkitError(f"{device.name} has no 16-bit peak or no memory of its own on record; choose another device")
    found = {"peak": device.peak(dtype), "bandwidth": device.bandwidth(), "memory": device.memory_bytes}
    return {"key": key, "name": device.name, **found}


def setup_of(state: State) -> dict[str, float]:
    """Return the numbers of a state, as ``model`` takes them."""
    sizes = next(each for each in state["models"] if each["name"] == state["model"])
    gpu = next(each for each in state["devices"] if each["key"] == state["device"])
    numbers = {name: state[name] for name in ("gpus", "bits", "users", "context", "price", "efficiency")}
    return {**sizes, **gpu, **numbers}


def _static(state: State) -> str:
    setup = setup_of(state)
    held = model.memory(setup)
    rows = [
        ("weights on each GPU", si(held["weights"], "B")),
        ("cache on each GPU", si(held["cache"], "B")),
        ("left of the usable memory", si(held["free"], "B")),
        ("users that fit", model.most_users(setup)),
        ("time to the first token, at least", si(model.prefill_seconds(setup), "s")),
        ("time a token", f"{1e3 * model.decode_seconds(setup):.3g} ms"),
        ("tokens a second, all users", f"{state['users'] / model.decode_seconds(setup):,.0f}"),
        ("USD for a million tokens", f"{model.usd_per_million(setup):.3g}"),
    ]
    return paragraph(f"{state['model']} on {state['gpus']} x {setup['name']}, {state['users']} users.") + table(
        "A model, not measured", ["what", "how much"], rows
    )


KIND = Kind("serving_planner", "Serving planner", _static)
