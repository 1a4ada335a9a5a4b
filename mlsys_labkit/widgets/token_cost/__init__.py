"""Cost of a token: the price of an hour of a GPU, and its share in a million tokens."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.token_cost import model

# name: label, least, most, step of the slider
KNOBS = {
    "price": ("USD a GPU, all in", 5_000, 80_000, 1_000),
    "years": ("Years of use", 1, 8, 1),
    "interest": ("Interest a year", 0.0, 0.25, 0.01),
    "utilisation": ("Hours that are sold", 0.05, 1.0, 0.05),
    "watts": ("Watts a GPU, with its server", 100, 2_500, 50),
    "pue": ("Power usage effectiveness", 1.0, 2.0, 0.05),
    "usd_per_kwh": ("USD a kWh", 0.02, 0.4, 0.01),
    "staff": ("USD a GPU and year for people", 0, 5_000, 100),
    "grams_per_kwh": ("g CO2e a kWh", 10, 900, 10),
    "tokens_per_second": ("Tokens a second and busy GPU", 50, 10_000, 50),
}


def token_cost(
    *,
    price: float = 35_000,
    years: float = 5,
    interest: float = 0.1,
    utilisation: float = 0.6,
    watts: float = 1_300,
    pue: float = 1.3,
    usd_per_kwh: float = 0.1,
    staff: float = 1_000,
    grams_per_kwh: float = 400,
    tokens_per_second: float = 1_000,
    rent: float = 2.5,
) -> Any:
    """Derive the cost of a million tokens from a GPU's price, and compare it with a ``rent`` in USD per hour.

    The defaults are round numbers to begin with, not quotations. Money in USD; ``interest`` and ``utilisation`` are
    shares of one. Raises LabkitError for a value outside its slider's range.
    Reference: Barroso, Hoelzle, Ranganathan, "The Datacenter as a Computer", 3rd edition, 2018, chapter 6.

    Example:
        >>> token_cost(utilisation=0.3)
        <Cost of a token>
    """
    given = dict(locals())
    for name, (label, least, most, _) in KNOBS.items():
        if not least <= given[name] <= most:
            raise LabkitError(f"{name} ({label}) is between {least:g} and {most:g}; got {given[name]!r}")
    if not 0 < rent <= 100:
        raise LabkitError(f"rent is USD an hour, above 0 and at most 100; got {rent!r}")
    knobs = [[name, *of] for name, of in KNOBS.items()]
    return KIND.show(knobs=knobs, rent=float(rent), **{name: float(given[name]) for name in KNOBS})


def _static(state: State) -> str:
    paid = model.hour(state)
    rows = [(f"an hour: {name}", f"{usd:.3g} USD") for name, usd in paid.items()]
    rows += [
        ("an hour, together", f"{sum(paid.values()):.3g} USD"),
        ("a million tokens", f"{model.million(state):.3g} USD"),
        ("energy of a million tokens", f"{model.energy(state):.3g} kWh"),
        ("CO2e of a million tokens", f"{model.carbon(state):.3g} g"),
    ]
    return paragraph(f"Asked for an hour: {state['rent']:g} USD.") + table(
        "What an hour costs its owner", ["what", "how much"], rows
    )


KIND = Kind("token_cost", "Cost of a token", _static)
