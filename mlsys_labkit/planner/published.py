"""Published training runs, each with its source, beside the planner's estimate."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any

from mlsys_labkit.planner.assumptions import Assumptions
from mlsys_labkit.planner.cluster import FABRICS, Cluster
from mlsys_labkit.planner.errors import PlanError
from mlsys_labkit.planner.estimate import plan
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.result import Plan
from mlsys_labkit.planner.state import Precision
from mlsys_labkit.planner.transformer import Transformer
from mlsys_labkit.work.network_link import Link

UNITS = ("tokens/s/GPU", "TFLOP/s/GPU", "hardware TFLOP/s/GPU", "s/step")
_LAYOUT = {each.name for each in fields(Layout)} - {"precision"}


@dataclass(frozen=True)
class PublishedRun:
    """One published run.

    Args:
        name: what ran, on how many GPUs.
        group: who published it; ``source`` says where, ``year`` when.
        model, cluster, layout, assumptions: the run as the planner takes it.
        value, unit: the published figure. "TFLOP/s/GPU" counts the model's FLOPs, "hardware" also recomputed ones.
        causal: the published FLOPs leave out masked scores.
        fitted: one of the runs that the constants of ``Assumptions`` were fitted to; the others are held out.
        miss: if the estimate is more than 20 % off, the assumption that fails.
    """

    name: str
    group: str
    source: str
    year: int
    model: Transformer
    cluster: Cluster
    layout: Layout
    assumptions: Assumptions
    value: float
    unit: str
    causal: bool = False
    fitted: bool = False
    miss: str = ""

    def plan(self) -> Plan:
        """Return the planner's estimate."""
        return plan(self.model, self.cluster, self.layout, self.assumptions)

    def estimate(self) -> float:
        """Return the estimate in the unit of ``value``."""
        run = self.plan()
        if self.unit == "s/step":
            return run.step_seconds
        if self.unit == "tokens/s/GPU":
            return run.tokens_per_second / run.cluster.gpus
        flops = float(run.hardware_flops if self.unit.startswith("hardware") else run.flops)
        if self.causal:
            attention = self.model.forward_flops(self.layout.global_batch, self.layout.sequence).attention
            flops -= 3 * attention / 2
        return flops / run.step_seconds / run.cluster.gpus / 1e12

    @property
    def error(self) -> float:
        """By how much the estimated speed is above the published one, as a fraction."""
        ratio = self.estimate() / self.value
        return (1 / ratio if self.unit == "s/step" else ratio) - 1


def published_runs() -> tuple[PublishedRun, ...]:
    """Return all runs of ``published.toml``.

    Example:
        >>> runs = published_runs()
        >>> len(runs) > 150, sum(run.fitted for run in runs) < len(runs) / 2
        (True, True)
    """
    table = tomllib.loads(files("mlsys_labkit.planner").joinpath("published.toml").read_text(encoding="utf-8"))
    return tuple(run for group in table["groups"] for run in _runs(group, table["gpts"]))


def _runs(group: Mapping[str, Any], gpts: Mapping[str, Any]) -> Iterator[PublishedRun]:
    misses = group.get("misses", {})
    for place, row in enumerate(group["rows"]):
        values = {**group.get("same", {}), **dict(zip(group["columns"], row, strict=True))}
        name = values.get("name") or _name(values)
        chosen = group.get("fitted", [])
        fitted = place % 2 == 0 if chosen == "every second" else name in chosen
        yield _run(group, name, values, gpts, fitted, misses.get(name, ""))


def _name(values: Mapping[str, Any]) -> str:
    recompute = values.get("recompute", "none")
    parts = [values["model"], f"{values['gpus']} GPUs", f"{values['sequence']} tokens"]
    return ", ".join(parts + ([f"recompute {recompute}"] if recompute != "none" else []))


def _run(
    group: Mapping[str, Any], name: str, values: dict[str, Any], gpts: Mapping[str, Any], fitted: bool, miss: str
) -> PublishedRun:
    cuts = {key: value for key, value in values.items() if key in _LAYOUT}
    gpus = values["gpus"]
    taken = cuts.get("tensor", 1) * cuts.get("pipeline", 1) * cuts.get("context", 1)
    cuts["data"] = gpus // taken
    if "micro_batches" in values:
        cuts["global_batch"] = cuts["data"] * cuts.get("micro_batch", 1) * values["micro_batches"]
    layout = Layout(**cuts, precision=Precision(**group["precision"]))
    hidden = Assumptions().hidden | group.get("hidden", {})
    assumptions = replace(Assumptions(), hidden=hidden, **group.get("assumptions", {}))
    if group["unit"] not in UNITS:
        raise PlanError(f"a published run has a unit of {', '.join(UNITS)}; got {group['unit']!r}")
    return PublishedRun(
        name,
        group["name"],
        group["source"],
        group["year"],
        _model(values, gpts),
        _cluster(group, values),
        layout,
        assumptions,
        value=values["value"],
        unit=group["unit"],
        causal=bool(values.get("causal")),
        fitted=fitted,
        miss=miss,
    )


def _model(values: Mapping[str, Any], gpts: Mapping[str, Any]) -> Transformer:
    if values["model"] == "gpt":
        return Transformer.gpt(values["layers"], values["width"], values["heads"])
    if values["model"] in gpts:  # no biases, no dropout; a learned position for each token of a sequence
        gpt = gpts[values["model"]]
        made = Transformer.gpt(gpt["layers"], gpt["width"], gpt["heads"], gpt["vocabulary"], values["sequence"])
        return replace(made, biased=False, name=values["model"])
    return replace(Transformer.named(values["model"]), extra_predictions=values.get("extra_predictions", 0))


def _cluster(group: Mapping[str, Any], values: Mapping[str, Any]) -> Cluster:
    cluster = Cluster.named(values.get("cluster", group.get("cluster", "")), values["gpus"])
    if "port_gigabytes" in values:  # bytes per second of a GPU's share of its node's ports
        slow = Link(FABRICS["ndr-400g"].link.latency_seconds, values["port_gigabytes"] * 1e9)
        cluster = replace(cluster, inter=slow)
    return replace(cluster, **group.get("gpu", {}))
