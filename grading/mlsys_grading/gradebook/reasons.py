"""Reasons why a test gave no points, in plain words, cut to what a student may read.

A test's message is made of what student code returned, raised or printed. Once a hidden test has run, that can be the
hidden test's own input, kept and handed out later. So a message is quoted only for visible tests before the first
hidden one; later ones, and hidden ones, get words of ours, a few for all kinds of errors. Nor is the kind told that a
cell raised after a hidden test: code chooses it, and each cell would carry five bits of what it was given.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.said import CheckMessage, check_message
from mlsys_grading.gradebook.text import one_line, without_controls
from mlsys_grading.result import CellMark, Result

MAX_PRINTED = 4_000
_HIDDEN = (
    "Part of this test is hidden: if its visible part passes in your notebook, try other inputs, the smallest and the "
    "unusual ones first."
)
_RUN = "Run the test in your notebook to see its message."

_WORDS: Mapping[str, str] = {
    "AssertionError": "A result is not what the test expects.",
    "CheckError": "A result is not what the test expects.",
    "NotImplementedError": "This part is not written yet.",
    "NameError": "A name that the test needs is not there: is the cell that defines it as it should be?",
    "CellTimeoutError": "It took too long and was stopped.",
    "StudentSilentError": "It took too long and was stopped.",
    "StarvedError": "The machine was too busy to run it: it has to be graded again.",
    "StudentGoneError": "The program ended in the middle of the test: by an exit, a crash, or for want of memory.",
    "ContractError": "The code changed an argument, or returned an object, where the exercise asks for plain results.",
    "NotPlainError": "A result is of a kind that the exercise does not ask for.",
    "ProtocolError": "A result is of a kind that the exercise does not ask for.",
    "MemoryError": "It needed more memory than there was.",
    "RecursionError": "It called itself too many times.",
    "RefusedSourceError": "The kernel contains something that Triton does not compile, or that the tests cannot use.",
    "SyntaxError": "The code has a syntax error.",
}
_NEXT: Mapping[str, str] = {
    _WORDS["NotImplementedError"]: "Write it for one small case first, then run the tests below it.",
    _WORDS["NameError"]: "Restart the kernel and run all cells: the first that fails shows what is missing.",
    _WORDS["CellTimeoutError"]: "Try a small input. Does a loop not end, or is work done again and again?",
    _WORDS["StarvedError"]: "You have nothing to do.",
    _WORDS["StudentGoneError"]: "Look for an exit, and for arrays that are larger than the exercise needs.",
    _WORDS["ContractError"]: "Work on a copy of what you are given, and return what the text of the task names.",
    _WORDS["NotPlainError"]: "Return what the text of the task names: a number, a list, an array.",
    _WORDS["MemoryError"]: "Find the largest array, and ask whether all of it is needed at once.",
    _WORDS["RecursionError"]: "Look at the case that ends the recursion.",
    _WORDS["SyntaxError"]: "Run the cell in your notebook: Python marks the place.",
}
_CHOSEN = ("MemoryError", "RecursionError")
_BUILT_IN = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
)


@dataclass(frozen=True)
class MarkWords:
    """The text about one test that its student may read.

    Attributes:
        words: the reason for missing points.
        next_step: something to try; "" for full points.
        quote: the error's message; "" if it may not be quoted.
        said: the quote in parts, if it is that of a check.
        printed: what the test printed; "" if it may not be quoted.
        hidden: part of the test is hidden.
    """

    words: str
    next_step: str
    quote: str
    said: CheckMessage | None
    printed: str
    hidden: bool


@dataclass(frozen=True)
class Explanation:
    """The text about one submission that its student may read, by the names of cells.

    Attributes:
        tests: for each mark.
        errors: for each failed cell, a sentence or the error's message.
        kinds: for each failed cell, the kind of its error.
    """

    tests: Mapping[str, MarkWords]
    errors: Mapping[str, str]
    kinds: Mapping[str, str]


def explain(lab: RegisteredLab, result: Result) -> Explanation:
    """Choose the words for each test and failed cell: no message that can carry a hidden test's inputs."""
    quoted = quotable(lab, result)
    hidden = {mark.name for mark in result.marks if mark.hidden}
    unseen = hidden | {cell.name for cell in lab.cells if cell.hidden}
    failed = result.failed_cells or {}
    open_cells = quoted if unseen else quoted | failed.keys()  # the place of an own cell among the tests is not known
    kinds = {name: told_kind(error) if name in open_cells else "an error" for name, error in failed.items()}
    tests = {mark.name: _mark_words(mark, mark.name in unseen, mark.name in quoted - hidden) for mark in result.marks}
    errors = {
        name: one_line(without_controls(error, MAX_PRINTED)) if name in quoted else f"It raised {kinds[name]}."
        for name, error in failed.items()
    }
    return Explanation(tests, errors, kinds)


def _mark_words(mark: CellMark, is_hidden: bool, is_quoted: bool) -> MarkWords:
    words, quote = reason(mark, is_quoted), one_line(without_controls(mark.error, MAX_PRINTED)) if is_quoted else ""
    if quote in mark.kinds[:1]:  # the kind alone, which the words have said
        quote = ""
    if is_hidden and mark.failed_input:
        words = f"{words} It fails for {mark.failed_input}."
    is_check = "CheckError" in mark.kinds[:1]
    said = check_message(quote.partition(": ")[2]) if is_check and quote else None
    printed = without_controls(mark.printed, MAX_PRINTED).strip("\n") if is_quoted else ""
    next_step = said.next_step if said and said.next_step else _advice(mark, words, is_hidden, is_quoted)
    return MarkWords(words, next_step, quote, said, printed, is_hidden)


def reason(mark: CellMark, with_kind: bool = False) -> str:
    """Return the reason for missing points, by the kind of error alone; "" for full points.

    Student code can choose among fifty kinds by what it was given. Those that say little to an honest student have one
    text, unless ``with_kind``: for instructors, and where the message may be quoted as well.

    Example:
        >>> reason(CellMark("f_test", 0.0, 2.0, error="AssertionError: 3 is not 4", kinds=("AssertionError",)))
        'A result is not what the test expects.'
    """
    if mark.points >= mark.max_points and not mark.error:
        return ""
    if mark.points > 0:
        return "Some of it holds, and some does not."
    if not mark.kinds:
        return "The test was not reached." if mark.error else "The test gave no points."
    for kind in mark.kinds:
        if kind in _WORDS and (with_kind or kind not in _CHOSEN):
            return _WORDS[kind]
    return f"The code raised {told_kind(mark.kinds[0]) if with_kind else 'an error'}."


def told_kind(kind: str) -> str:
    """Return the name of an error's kind if it is Python's own: any other name is the student's text.

    Example:
        >>> told_kind("TypeError: 3 is no list"), told_kind("Secret42")
        ('TypeError', 'an error of its own kind')
    """
    name = kind.partition(":")[0].strip()
    return name if name in _BUILT_IN else "an error of its own kind"


def quotable(lab: RegisteredLab, result: Result) -> frozenset[str]:
    """Return the names of the cells whose messages and output may be quoted."""
    hidden = {mark.name for mark in result.marks if mark.hidden} | {cell.name for cell in lab.cells if cell.hidden}
    names = takewhile(lambda name: name not in hidden, (cell.name for cell in lab.cells))
    tests = {cell.name for cell in lab.tests}
    # A process started anew has run the first cells again, after hidden tests had run in the one before.
    return frozenset(name for name in names if name in tests or not result.restarts)


def _advice(mark: CellMark, words: str, is_hidden: bool, is_quoted: bool) -> str:
    """Return something to try. It depends on nothing that the words do not show, so that it tells nothing more."""
    if not words:
        return ""
    if is_hidden and mark.failed_input:
        return "Try this input in your notebook."
    if is_hidden and {"AssertionError", "CheckError"} & set(mark.kinds):
        return _HIDDEN
    return _NEXT.get(words) or ("Work through the smallest case that fails by hand." if is_quoted else _RUN)
