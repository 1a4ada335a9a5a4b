"""Energy of an operation on words that come from somewhere; the twin of ``model.js``.

Reference: Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014.
"""

from __future__ import annotations


def word(joules: float, bits: float, word_bits: float) -> float:
    """Return the joules to move a word of ``word_bits``, where moving ``bits`` takes ``joules``.

    Example:
        >>> word(1e-11, 64, 32)
        5e-12
    """
    return joules * word_bits / bits


def operation(arithmetic: float, move: float, uses: float) -> dict[str, float]:
    """Return the joules of one operation whose word was moved for ``move`` joules and is used ``uses`` times.

    Example:
        >>> operation(4e-12, 640e-12, 160)
        {'arithmetic': 4e-12, 'movement': 4e-12}
    """
    return {"arithmetic": arithmetic, "movement": move / uses}


def balance(arithmetic: float, move: float) -> float:
    """Return the uses of each word at which moving it costs as much as computing with it.

    Example:
        >>> balance(4.0, 640.0)
        160.0
    """
    return move / arithmetic
