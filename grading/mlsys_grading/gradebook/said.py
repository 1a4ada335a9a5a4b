"""A check's message in parts: what it is about, the value that it expected, the one that it got, and advice."""

from __future__ import annotations

from dataclasses import dataclass

_LABELS = ("expected", "actual", "meaning", "next")


@dataclass(frozen=True)
class CheckMessage:
    """The parts of a message of ``mlsys_labkit.checks``; each may be empty."""

    headline: str
    expected: str = ""
    actual: str = ""
    meaning: str = ""
    next_step: str = ""


def check_message(line: str) -> CheckMessage:
    """Split a message that was put on one line.

    A value that contains a label moves the cut. No word is lost, because the parts in order are the message.

    Example:
        >>> found = check_message("y: wrong shape expected (2, 3) actual (3, 2) next transpose the result")
        >>> found.headline, found.expected, found.actual, found.next_step
        ('y: wrong shape', '(2, 3)', '(3, 2)', 'transpose the result')
    """
    parts, name, rest = {"headline": ""}, "headline", line
    labels = list(_LABELS)
    while found := [(place, label) for label in labels if (place := rest.find(f" {label} ")) >= 0]:
        place, label = min(found)
        parts[name], rest = rest[:place], rest[place + len(label) + 2 :]
        name = "next_step" if label == "next" else label
        labels = labels[labels.index(label) + 1 :]
    return CheckMessage(**parts | {name: rest})
