"""Oracles of the verdicts about models and money: the planner, NumPy, and closed formulas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlsys_labkit._base.units import si
from mlsys_labkit.planner import Assumptions, Layout, Transformer, layer_activations, stage_memory
from mlsys_labkit.widgets.training_planner import model as training, plan_of
from mlsys_labkit.widgets.transformer_sizer.model import FIELDS
from tests.labkit.verdict_numbers import Expected, State, fixed, nearest, plain, whole

Seen = Mapping[str, Any]
PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers")


def line_fit(state: State, seen: Seen) -> Expected:
    """Fit with NumPy."""
    x, y = np.array(state["x"]), np.array(state["y"])
    error = np.mean((state["slope"] * x + state["intercept"] - y) ** 2)
    least = np.mean((np.polyval(np.polyfit(x, y, 1), x) - y) ** 2)
    walked = re.search(r"; (\d+ steps?)\.$", seen["says"][0])
    return Expected(
        f"Slope {plain(state['slope'])}, intercept {plain(state['intercept'])}: mean squared error {plain(error)}, "
        f"least possible {plain(least)}{f'; {walked[1]}' if walked else ''}."
    )


def pca(state: State, seen: Seen) -> Expected:
    """Project the points and decompose them by singular values."""
    points = np.array(state["points"])
    centred = points - points.mean(axis=0)
    angle, tilt = np.radians(state["angle"]), np.radians(state["tilt"])
    plane = np.array([np.cos(angle), np.sin(angle)])
    unit = plane if points.shape[1] == 2 else np.append(np.cos(tilt) * plane, np.sin(tilt))
    total = np.sum(centred**2)
    kept, best = np.sum((centred @ unit) ** 2), np.linalg.svd(centred, compute_uv=False)[0] ** 2
    spectrum, k = np.array(state["spectrum"]), state["k"]
    left = spectrum[k:].sum()
    note = (
        f"{k} of {len(spectrum)} components keep {plain(100 * (1 - left / spectrum.sum()))} %; the error is the sum of "
        f"the eigenvalues left out, {plain(left)}."
    )
    share = plain(100 * kept / total)  # the view's two shares add up to 100 as they are written
    return Expected(
        f"This direction keeps {share} % of the variance and loses {plain(100 - float(share))} %; "
        f"the best direction keeps {plain(100 * best / total)} %.",
        notes=[note],
    )


def memory_bars(state: State, seen: Seen) -> Expected:
    """Ask the planner for every stage."""
    shape = next(one for one in state["presets"] if one["name"] == state["name"])
    sizes = Transformer(**{name: shape[name] for name in FIELDS})
    cut = dict(state["layout"])
    batch = cut["data"] * cut["micro_batch"] * cut.pop("micro_batches")
    layout = Layout(**cut, global_batch=batch)
    at, full = _fullest(sizes, layout)
    name, room = next((name, room) for key, name, room in state["devices"] if key == state["device"])
    usable = Assumptions().memory_fraction * room
    fits = f"fits, with {si(usable - full.peak, 'B')} to spare of"
    verdict = fits if full.peak <= usable else f"is {si(full.peak - usable, 'B')} more than"
    stage = f" (stage {at})" if layout.pipeline > 1 else ""
    largest = max(PARTS, key=lambda part: getattr(full, part))
    gpus = layout.data * layout.tensor * layout.pipeline
    rows = {}
    if state["view"] == "zero":
        ranks = [_fullest(sizes, replace(layout, zero=zero))[1] for zero in range(4)]
        rows = {part: [si(getattr(rank, part), "B") for rank in ranks] for part in PARTS}
        rows["at the peak"] = [si(rank.peak, "B") for rank in ranks]
        rows["fits"] = ["yes" if rank.peak <= usable else "no" for rank in ranks]
    return Expected(
        f"{state['name']} on {gpus} GPU{'s' if gpus > 1 else ''} with ZeRO-{layout.zero}: {si(full.peak, 'B')} on the "
        f"fullest rank{stage}; that {verdict} the {si(usable, 'B')} that tensors may fill on {name}; the largest part "
        f"is {largest}.",
        rows,
    )


def _fullest(sizes: Transformer, layout: Layout) -> tuple[int, Any]:
    """Return the pipeline stage with the highest peak, and its memory."""
    stages = [stage_memory(sizes, layout, stage) for stage in range(layout.pipeline)]
    at = max(range(len(stages)), key=lambda stage: (round(stages[stage].peak, 3), -stage))
    return at, stages[at]


def transformer_sizer(state: State, seen: Seen) -> Expected:
    """Ask the planner for the exact counts."""
    shape, batch, length = state["shape"], state["batch"], state["sequence"]
    sizes = Transformer(**{name: shape[name] for name in FIELDS})
    d, n, heads, words = sizes.width, sizes.layers, sizes.heads, sizes.vocabulary
    layouts = [Layout(micro_batch=batch, global_batch=batch, sequence=length, flash=flash) for flash in (False, True)]
    kept, flash = (sum(row.bytes for row in layer_activations(sizes, one)) / 2 for one in layouts)
    rule, elements = 12 * n * d * d + words * d, 9 * batch * length * d + 2 * batch * heads * length**2
    return Expected(
        f"{state['name'] or 'This model'} has {si(sizes.parameters)} parameters; 12Nd² + Vd says {si(rule)}, off by "
        f"{_off(rule, sizes.parameters)}; a layer saves {si(kept)} elements, "
        f"{plain(max(0, 100 * (kept - flash) / kept))} % of them attention's scores, which "
        f"FlashAttention does not keep; 9BLd + 2BhL² says {si(elements)}, off by {_off(elements, kept)}.",
        {
            "the same with FlashAttention, 9BLd": [si(9 * batch * length * d), si(flash)],
            "training FLOPs a token, 6 x parameters": [
                si(6 * sizes.active_parameters),
                si(sizes.training_flops_per_token(length)),
            ],
            "cache a token, 4Nd bytes": [si(4 * n * d, "B"), si(sizes.kv_bytes_per_token(2), "B")],
            "weights on disk, 2 bytes each": [si(2 * rule, "B"), si(2 * sizes.parameters, "B")],
        },
    )


def _off(rule: float, true: float) -> str:
    percent = 100 * (rule / true - 1)
    return f"{'−' if percent < 0 else '+'}{fixed(abs(percent), 1)} %"


def training_planner(state: State, seen: Seen) -> Expected:
    """Ask the model in Python, which is tested against the planner."""
    plan = plan_of(state)
    gpus, held = state["data"] * state["tensor"] * state["pipeline"], training.memory(plan)
    free = held["free"]
    times = training.seconds(plan)
    name, worst = max(list(times.items())[1:], key=lambda one: one[1])
    loss = f"; the largest loss: {state['words'].get(name, name)}" if worst > 0.02 * sum(times.values()) else ""
    step = plan["data"] * plan["micro_batch"] * plan["micro_batches"] * plan["sequence"]
    days = state["tokens"] / step * sum(times.values()) / 86400
    useful = plan["flops"] * step / gpus / plan["peak"] / sum(times.values())
    fits = f"it fits, {si(free, 'B')} free" if free >= 0 else f"it does not fit, {si(-free, 'B')} too much"
    return Expected(
        f"{whole(gpus)} GPU{'s' if gpus > 1 else ''}: {fits}; {nearest(100 * useful)} % of the peak is useful{loss}; "
        f"{plain(days)} days for {si(state['tokens'])} tokens.",
        {
            **{part: [si(held[part], "B")] for part in PARTS},
            "tokens a step": [si(step)],
            "tokens a second": [si(step / sum(times.values()))],
            "days": [plain(days)],
        },
    )


def serving_planner(state: State, seen: Seen) -> Expected:
    """Count bytes read and FLOPs of a step; search the users that fit one by one."""
    sizes = next(each for each in state["models"] if each["name"] == state["model"])
    gpu = next(each for each in state["devices"] if each["key"] == state["device"])
    gpus, users = state["gpus"], state["users"]
    weights, cached = sizes["parameters"] * state["bits"] / 8, state["context"] * sizes["cache"]
    parts = min(gpus, sizes["cuts"])

    def free(of: int) -> float:
        return 0.9 * gpu["memory"] - weights / gpus - of * cached / parts

    fit = 0
    while free(fit + 1) >= 0 and fit < 10**7:
        fit += max(1, int(free(fit + 1) // (2 * cached / parts)))
    visited = weights * (1 - (1 - sizes["active"] / sizes["parameters"]) ** users)
    read = (visited + users * cached * gpus / parts) / gpus / gpu["bandwidth"]
    compute = 2 * sizes["active"] * users / gpus / gpu["peak"]
    step = max(read, compute) / state["efficiency"] + (2 * sizes["layers"] * 5e-6 if gpus > 1 else 0)
    usd = state["price"] * gpus / 3600 * step / users * 1e6
    rows = {"users that fit": [whole(fit)], "USD for a million tokens": [plain(usd)]}
    if free(users) < 0:
        return Expected(
            f"It does not fit: {si(-free(users), 'B')} too much on each GPU; take at most {fit} users, "
            "fewer bits, more GPUs or less context.",
            rows,
        )
    return Expected(
        f"{users} users write {plain(1 / step)} tokens a second each, {plain(users / step)} together, at {plain(usd)} "
        "USD a million.",
        rows,
    )


def token_cost(state: State, seen: Seen) -> Expected:
    """Pay off the price year by year, and add up the bills of a year."""
    low, high = 0.0, 10 * state["price"]
    for _ in range(200):  # the payment that leaves no debt after the last year
        debt, yearly = state["price"], (low + high) / 2
        for _ in range(int(state["years"])):
            debt = debt * (1 + state["interest"]) - yearly
        low, high = (yearly, high) if debt > 0 else (low, yearly)
    sold = 8766 * state["utilisation"]
    busy = state["utilisation"] + 0.3 * (1 - state["utilisation"])
    power = state["watts"] / 1000 * state["pue"] * busy * 8766 * state["usd_per_kwh"]
    cost, rent = (low + power + state["staff"]) / sold, state["rent"]
    margin = f"a margin of {nearest(100 * (rent - cost) / rent)} %"
    yearly = rent * sold - power - state["staff"]
    years = state["price"] / yearly if yearly > 0 else None
    paid = f"; at this rent the machine is {'not paid for within 50 years' if years else 'never paid for'}"
    if years and years < 50:
        paid = f"; without interest the machine is paid for after {plain(years)} years"
    capital, tokens = state["price"] / state["years"] / sold, state["tokens_per_second"] * 3600
    kwh = state["watts"] / 1000 * state["pue"] * busy / state["utilisation"] / tokens * 1e6
    rows = {
        "an hour: machine": [f"{plain(capital)} USD"],
        "an hour: interest": [f"{plain(max(0, round(low / sold - capital, 12)))} USD"],
        "an hour: power": [f"{plain(power / sold)} USD"],
        "an hour: people": [f"{plain(state['staff'] / sold)} USD"],
        "a million tokens cost their owner": [f"{plain(cost / tokens * 1e6)} USD"],
        "a million tokens at the rent asked": [f"{plain(rent / tokens * 1e6)} USD"],
        "energy of a million tokens": [f"{plain(kwh)} kWh"],
        "CO2e of a million tokens, use alone": [f"{plain(kwh * state['grams_per_kwh'])} g"],
    }
    return Expected(
        f"An hour costs {plain(cost)} USD and is rented for {plain(rent)}: "
        f"{margin if rent >= cost else f'a loss of {plain(cost - rent)} USD'}{paid}.",
        rows,
        labels=[f"cost {plain(cost)} USD an hour", f"asked {plain(rent)} USD"],
    )


def scaling_laws(state: State, seen: Seen) -> Expected:
    """Use Chinchilla's published fit; search its least loss on a fine grid."""
    size = state["parameters"]

    def loss(n: Any) -> Any:
        return 1.69 + 406.4 / n**0.34 + 410.7 / (state["flops"] / 6 / n) ** 0.28

    best = 1e9
    for decades in (5, 0.05, 5e-4, 5e-6):  # each grid lies closer around the least of the grid before
        grid = best * np.logspace(-decades, decades, 1001)
        best = grid[np.argmin(loss(grid))]
    tokens = state["flops"] / 6 / size
    return Expected(
        f"Loss {fixed(loss(size), 3)} with {si(size)} parameters and {si(tokens)} tokens, {plain(tokens / size)} a "
        f"parameter; the best size for this training is {si(best)}, with loss {fixed(loss(best), 3)}.",
        {"this model": [si(size), si(tokens), plain(tokens / size)]},
    )
