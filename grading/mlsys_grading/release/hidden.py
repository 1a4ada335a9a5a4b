"""The lines that no student may read, of solutions, hidden tests and wrong answers, and the search for them in a text.

Lines are compared word by word: white space, quotes and escapes make no difference, and a line is found within a longer
one too. Short commonplaces do not count, nor lines that the visible part of a lab shows. For a wrong answer the coach's
notes count as visible: a hint may contain a line that a wrong answer gets right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from mlsys_grading.build.leaks import visible
from mlsys_grading.lab import Lab

LEAST_CHARACTERS = 29  # of a line's words together; shorter ones are commonplaces: "for i in range(len(x)):"
_LEAST_WORDS = 5
_NO_WORDS = re.compile(r"\\[nrt]|[\\\"'`]")  # escapes and quotes of a string around a line
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")

Words = tuple[str, ...]


@dataclass(frozen=True)
class HiddenLines:
    """Lines as words, each with its place: ``file:line: text``."""

    places: dict[Words, str] = field(default_factory=dict)
    _by_start: dict[Words, list[Words]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.places)

    def add(self, text: str, place: str) -> None:
        """Add a line, unless it is a commonplace or known already."""
        words = _words(text)
        if len(words) >= _LEAST_WORDS and sum(map(len, words)) >= LEAST_CHARACTERS and words not in self.places:
            self._put(words, f"{place}: {text.strip()}")

    def found_in(self, text: str) -> list[str]:
        """Return the places of the hidden lines that ``text`` holds, each once.

        Example:
            >>> hidden = HiddenLines()
            >>> hidden.add("return (q @ k.T) / math.sqrt(q.shape[-1])", "lab.py:7")
            >>> hidden.found_in("> so we write `return (q@k.T) / math.sqrt( q.shape[-1] )`")
            ['lab.py:7: return (q @ k.T) / math.sqrt(q.shape[-1])']
        """
        return [self.places[line] for line in dict.fromkeys(self._lines_in(text))]

    def without(self, texts: Sequence[str]) -> HiddenLines:
        """Return the lines that none of ``texts`` holds."""
        shown = {line for text in texts for line in self._lines_in(text)}
        return HiddenLines()._take(self, shown)

    def __or__(self, other: HiddenLines) -> HiddenLines:
        return HiddenLines()._take(self)._take(other)

    def _take(self, other: HiddenLines, leave: Set[Words] = frozenset()) -> HiddenLines:
        for line, place in other.places.items():
            if line not in leave and line not in self.places:
                self._put(line, place)
        return self

    def _put(self, words: Words, place: str) -> None:
        self.places[words] = place
        self._by_start.setdefault(words[:_LEAST_WORDS], []).append(words)

    def _lines_in(self, text: str) -> Iterator[Words]:
        words = _words(text)
        for at, start in enumerate(zip(*(words[n:] for n in range(_LEAST_WORDS)), strict=False)):
            for line in self._by_start.get(start, ()):
                if words[at : at + len(line)] == line:
                    yield line


def hidden_lines(labs: Sequence[Lab]) -> HiddenLines:
    """Collect the hidden lines of all ``labs``, because one lab's notebook may show another's solution."""
    answers, wrong = HiddenLines(), HiddenLines()
    for lab in labs:
        for cell in lab.cells:
            shown = visible(cell).split("\n")
            for n, line in enumerate(cell.source.split("\n")):
                if n >= len(shown) or line != shown[n]:
                    answers.add(line, lab.where(lab.path, cell.line + n))
        for each in lab.wrong_answers:
            for number, line in each.written:
                wrong.add(line, lab.where(lab.wrong_path, number))
    cells = [visible(cell) for lab in labs for cell in lab.cells]
    notes = [lab.notes_path.read_text(encoding="utf-8") for lab in labs if lab.notes_path.is_file()]
    return answers.without(cells) | wrong.without([*cells, *notes])


def _words(text: str) -> Words:
    return tuple(_WORD.findall(_NO_WORDS.sub(" ", text)))
