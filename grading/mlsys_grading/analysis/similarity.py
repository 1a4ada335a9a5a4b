"""Search for answers that are more alike than chance and the lab explain: a reason to look, never a verdict.

Winnowing picks fingerprints out of each student's own cells. What the lab gave, and what its reference solution says,
is taken out. A fingerprint counts as many bits as it is surprising that one more student has it: what many write counts
little, and what only one pair shares counts most.
Reference: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms for document fingerprinting", SIGMOD 2003.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, groupby
from math import log2
from typing import Any

from mlsys_grading.analysis.answers import Answer, answers_of, given_code, released
from mlsys_grading.analysis.tokens import CanonicalToken, tokens
from mlsys_grading.gradebook.sheet import Sheet, guarded
from mlsys_grading.lab import Lab

GRAM = 14  # tokens: shorter matches are noise
WINDOW = 4  # grams: a match of GRAM + WINDOW - 1 tokens is always found
MOST_SHARED = 0.1  # share of the students: a fingerprint of more is no evidence
LEAST_RING = 6  # students: as many may have copied, however small the class
LEAST_BITS = 60.0
LEAST_SHARE = 0.85  # of the shorter answer
CLOSE_LOOKS = 200  # pairs
_HEADER = ("student a", "student b", "stands out", "cell a", "cell b", "share", "bits", "lines a", "lines b")


@dataclass(frozen=True)
class CellMatch:
    """Two cells that share code.

    Attributes:
        bits: how surprising what they share is, in all.
        share: of the bits of the cell that has fewer: 1 if all of it stands in the other.
        lines_a, lines_b: lines that match, from 1.
    """

    cell_a: str
    cell_b: str
    bits: float
    share: float
    lines_a: tuple[int, ...]
    lines_b: tuple[int, ...]
    source_a: str
    source_b: str


@dataclass(frozen=True)
class Pair:
    """Two students and their matching cells, the most alike first. One long, nearly whole match makes it stand out."""

    a: str
    b: str
    cells: tuple[CellMatch, ...]
    stands_out: bool

    @property
    def strength(self) -> float:
        """Bits, each match's weighed by its share: long and whole copies come first."""
        return sum(match.bits * match.share for match in self.cells)


@dataclass(frozen=True)
class Similarities:
    """All pairs that share significant code, the strongest first; thresholds are ``least_bits`` and ``least_share``."""

    lab: str
    students: int
    pairs: tuple[Pair, ...]
    least_bits: float = LEAST_BITS
    least_share: float = LEAST_SHARE

    @property
    def standing_out(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.stands_out)

    def to_sheet(self) -> Sheet:
        """Make a row for each two cells that match, guarded against formulas."""
        rows = [
            (
                *map(guarded, (pair.a, pair.b)),
                "yes" if pair.stands_out else "no",
                *map(guarded, (match.cell_a, match.cell_b)),
                f"{match.share:.2f}",
                f"{match.bits:.0f}",
                *(" ".join(map(str, lines)) for lines in (match.lines_a, match.lines_b)),
            )
            for pair in self.pairs
            for match in pair.cells
        ]
        return Sheet(_HEADER, tuple(rows))


# Fingerprint -> cell -> lines. One entry per cell keeps the cost of repeated code linear.
_Prints = Mapping[int, Mapping[int, set[int]]]


def similarities(
    lab: Lab,
    submissions: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    least_bits: float = LEAST_BITS,
    least_share: float = LEAST_SHARE,
) -> Similarities:
    """Compare all submissions of a lab with each other.

    Args:
        submissions: student -> cells as ``examine.notebook.read_cells`` reads them.
        least_bits, least_share: of one match, for its pair to stand out.

    In a class of fewer than ten nearly everything is rare, and little should be read into it.
    """
    stubs = list(released(lab))
    answers = {student: answers_of(lab, cells, stubs) for student, cells in sorted(submissions.items())}
    given = {gram for source in given_code(lab) for part in _grams(tokens(source)) for gram, _ in part}
    prints = {student: _prints(cells, given) for student, cells in answers.items()}
    owners: dict[int, list[str]] = defaultdict(list)
    for student, found in prints.items():
        for gram in found:
            owners[gram].append(student)
    most = max(LEAST_RING, MOST_SHARED * len(answers))
    bits = {gram: log2((len(answers) + 1) / max(len(who) - 1, 1)) for gram, who in owners.items() if len(who) <= most}
    shared: dict[tuple[str, str], list[int]] = defaultdict(list)
    for gram in bits:
        for pair in combinations(owners[gram], 2):
            shared[pair].append(gram)
    strongest = sorted(shared, key=lambda pair: (-sum(bits[gram] for gram in shared[pair]), pair))[:CLOSE_LOOKS]
    pairs = []
    for a, b in strongest:
        matches = _matches(answers[a], answers[b], prints[a], prints[b], shared[a, b], bits)
        stands_out = any(match.bits >= least_bits and match.share >= least_share for match in matches)
        pairs.append(Pair(a, b, matches, stands_out))
    pairs.sort(key=lambda pair: (-pair.strength, pair.a, pair.b))
    return Similarities(lab.name, len(answers), tuple(pairs), least_bits, least_share)


def winnow(grams: Sequence[int], window: int = WINDOW) -> list[int]:
    """Choose the places of the fingerprints: the smallest hash in each window, of equal ones the last.

    Example:
        >>> hashes = [77, 74, 42, 17, 98, 50, 17, 98, 8, 88, 67, 39, 77, 74, 42, 17, 98]  # the paper's figure 2
        >>> [hashes[place] for place in winnow(hashes, 4)]
        [17, 17, 8, 39, 17]
    """
    chosen: list[int] = []
    for start in range(max(1, len(grams) - window + 1) if grams else 0):
        within = range(start, min(start + window, len(grams)))
        place = min(within, key=lambda at: (grams[at], -at))
        if not chosen or chosen[-1] != place:
            chosen.append(place)
    return chosen


def _grams(found: Sequence[CanonicalToken]) -> Iterator[list[tuple[int, tuple[int, ...]]]]:
    """Yield, for each function of a cell, the hash and the lines of each run of GRAM tokens."""
    for _, within in groupby(found, key=lambda token: token.part):
        part = list(within)
        grams = []
        for start in range(len(part) - GRAM + 1):
            run = part[start : start + GRAM]
            text = "\0".join(token.text for token in run).encode("utf-8", "replace")
            # A hash of its own: Python's differs from run to run, and so would the fingerprints.
            gram = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
            grams.append((gram, tuple(sorted({token.line for token in run}))))
        yield grams


def _prints(cells: Sequence[Answer], given: set[int]) -> _Prints:
    found: dict[int, dict[int, set[int]]] = defaultdict(dict)
    for at, cell in enumerate(cells):
        for grams in _grams(tokens(cell.source)):
            for place in winnow([gram for gram, _ in grams]):
                gram, lines = grams[place]
                if gram not in given:
                    found[gram].setdefault(at, set()).update(lines)
    return dict(found)


def _matches(
    cells_a: Sequence[Answer],
    cells_b: Sequence[Answer],
    prints_a: _Prints,
    prints_b: _Prints,
    shared: Sequence[int],
    bits: Mapping[int, float],
) -> tuple[CellMatch, ...]:
    between: dict[tuple[int, int], set[int]] = defaultdict(set)
    for gram in shared:
        for one in prints_a[gram]:
            for other in prints_b[gram]:
                between[one, other].add(gram)
    whole_a, whole_b = _bits_by_cell(prints_a, bits), _bits_by_cell(prints_b, bits)
    matches = []
    for (a, b), grams in between.items():
        weight = sum(bits[gram] for gram in grams)
        matches.append(
            CellMatch(
                cells_a[a].cell,
                cells_b[b].cell,
                round(weight, 2),
                round(weight / min(whole_a[a], whole_b[b]), 4),
                _lines(prints_a, grams, a),
                _lines(prints_b, grams, b),
                cells_a[a].source,
                cells_b[b].source,
            )
        )
    return tuple(sorted(matches, key=lambda match: (-match.bits * match.share, match.cell_a, match.cell_b)))


def _bits_by_cell(prints: _Prints, bits: Mapping[int, float]) -> dict[int, float]:
    whole: dict[int, float] = defaultdict(float)
    for gram, places in prints.items():
        for cell in places:
            whole[cell] += bits.get(gram, 0.0)
    return whole


def _lines(prints: _Prints, grams: Iterable[int], cell: int) -> tuple[int, ...]:
    return tuple(sorted({line for gram in grams for line in prints[gram][cell]}))
