"""Costs of an hour of a GPU and of a million tokens; the twin of ``model.js``.

A business is a mapping: ``price`` (USD per GPU, with its share of server, network and hall), ``years`` of use,
``interest`` (a year, 0.1 is 10 %), ``utilisation`` (share of all hours that are sold), ``watts`` (at the plug of the
server, a GPU), ``pue`` (power usage effectiveness: the hall's power over the computers'), ``usd_per_kwh``, ``staff``
(USD per GPU and year), ``grams_per_kwh`` (CO2e of the grid) and ``tokens_per_second`` of a busy GPU.
Reference: Barroso, Hoelzle, Ranganathan, "The Datacenter as a Computer", 3rd edition, 2018, chapter 6.
"""

from __future__ import annotations

from collections.abc import Mapping

HOURS_A_YEAR = 8766.0
IDLE = 0.3
"""Part of its full power that an idle GPU server draws."""

Business = Mapping[str, float]


def payment(price: float, years: float, interest: float) -> float:
    """Return USD per year that repay ``price`` in equal parts over ``years``, interest included (an annuity).

    Example:
        >>> round(payment(100.0, 2, 0.1), 4)
        57.619
    """
    if interest == 0:
        return price / years
    return float(price * interest / (1 - (1 + interest) ** -years))


def hour(business: Business) -> dict[str, float]:
    """Return USD per hour sold, by purpose; the hours sold also pay for the hours not sold."""
    sold = HOURS_A_YEAR * business["utilisation"]
    kwh = business["watts"] / 1000 * business["pue"]
    power = kwh * (business["utilisation"] + IDLE * (1 - business["utilisation"])) * HOURS_A_YEAR
    yearly = payment(business["price"], business["years"], business["interest"])
    capital = business["price"] / business["years"]
    return {
        "machine": capital / sold,
        "interest": (yearly - capital) / sold,
        "power": power * business["usd_per_kwh"] / sold,
        "people": business["staff"] / sold,
    }


def million(business: Business) -> float:
    """Return USD for a million tokens."""
    return sum(hour(business).values()) / (3600 * business["tokens_per_second"]) * 1e6


def energy(business: Business) -> float:
    """Return kWh for a million tokens, the hall's share and idle hours included."""
    share = business["utilisation"] + IDLE * (1 - business["utilisation"])
    kw = business["watts"] / 1000 * business["pue"] * share / business["utilisation"]
    return kw / (3600 * business["tokens_per_second"]) * 1e6


def carbon(business: Business) -> float:
    """Return the grams of CO2e for a million tokens, of use alone: making the machine is left out."""
    return energy(business) * business["grams_per_kwh"]
