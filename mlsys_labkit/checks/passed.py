"""The names of the checks that passed since a cell began, for the line under a test cell that passes."""

from __future__ import annotations

from collections import Counter

_MOST = 64
_passed: Counter[str] = Counter()  # in order of their first pass


def begin() -> None:
    """Forget the checks that passed so far.

    Example:
        >>> begin()
        >>> note_pass("a scalar")
        >>> in_words()
        'a scalar'
    """
    _passed.clear()


def note_pass(name: str) -> None:
    """Record that the check called ``name`` passed."""
    if type(name) is str and (len(_passed) < _MOST or name in _passed):
        _passed[name] += 1


def in_words(limit: int = 100) -> str:
    """Return what was checked, in at most ``limit`` characters; "" where no check has a name of its own.

    Example:
        >>> begin()
        >>> for name in ("result", "A @ B", "A @ B", "a ragged tile"):
        ...     note_pass(name)
        >>> in_words()
        'A @ B; a ragged tile'
    """
    names = [" ".join(name.split()) for name in _passed if name and name != "result"]
    shown: list[str] = []
    for index, name in enumerate(names):
        if len("; ".join([*shown, name])) > limit:
            return "; ".join([*shown, f"{len(names) - index} more"]) if shown else f"{name[: limit - 3]}..."
        shown.append(name)
    return "; ".join(shown)
