"""A chapter's deck: a slide for each figure with the text beside it, and one for a stretch of text without a figure.

A slide has one thing to show. The text that it does not show is in its notes, with the listings.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bs4 import BeautifulSoup, Tag
from slide_text import caption, gist, lead, names_a_figure, plain, points, shortened, sums_up

_LEFT_TO_THE_CHAPTER = ("words", "references")
_BLOCKS = ("p", "div", "ul", "ol", "dl", "table", "blockquote", "pre")
_MOST_BESIDE = 460  # characters of text beside what is shown
_MOST_ALONE = 640  # characters of text on a slide that shows nothing else
_PARAGRAPH = 400  # of them, from one paragraph
_LONG = 1700  # characters of paragraphs that are not left to the notes alone
_ROWS = 11  # of a table on one slide


@dataclass
class _Slide:
    """A slide being made: what it says (HTML), its formula, the block that it shows, and the blocks of its notes."""

    said: list[str] = field(default_factory=list)
    formula: list[str] = field(default_factory=list)
    shown: Tag | None = None
    told: list[Tag] = field(default_factory=list)


def slides_of(section: Tag) -> Iterator[str]:
    """Yield the slides of a section in the chapter's order."""
    heading = section.find(re.compile("h[1-3]"), recursive=False)
    name = str(section.get("id", ""))
    if name in _LEFT_TO_THE_CHAPTER:
        return
    blocks = _joined(section.find_all(_BLOCKS, recursive=False))
    made = [slide for stretch in _stretches(blocks) for slide in _slides(stretch)]
    for summary in [block for block in blocks if block.name == "p" and sums_up(block)]:
        _sum_up(made[-1], summary)
    for number, slide in enumerate(part for each in made for part in _screens(each)):
        level = heading.name if heading.name == "h1" and not number else "h2"
        again = ' class="again"' if number else ""
        head = f"<{level}{again}>{heading.decode_contents()}</{level}>"
        notes = "".join(map(_note, slide.told or blocks[:1]))
        yield _html(f"{name}-{number}-more" if number else name, head, slide, notes)


def _joined(blocks: list[Tag]) -> list[Tag]:
    """Return the blocks with a numbered list that counts on joined to the list that it goes on from."""
    kept: list[Tag] = []
    first = None
    for block in blocks:
        if block.name == "ol" and first is not None and "start" in block.attrs:
            first.extend(BeautifulSoup(str(block), "html.parser").find("ol").find_all("li", recursive=False))
            continue
        first = block if block.name == "ol" else first
        kept.append(block)
    return kept


def _stretches(blocks: list[Tag]) -> list[list[Tag]]:
    """Return a section's blocks cut behind each block that has to be shown; the rest stays with the one before it."""
    cut: list[list[Tag]] = [[]]
    for block in blocks:
        cut[-1].append(block)
        if _is_figure(block) or any(kind(block) for kind in _SHOWN):
            cut.append([])
    *before, rest = cut
    if before and not _needs_a_slide(rest, before[-1]):
        before[-1] += rest
        return before
    return [stretch for stretch in cut if stretch] or [[]]


def _needs_a_slide(blocks: list[Tag], other: list[Tag]) -> bool:
    """Say whether blocks need a slide of their own: for a long text, or for a second formula beside ``other``."""
    formulas = sum(map(_is_formula, blocks))
    long = sum(len(block.get_text()) for block in blocks if block.name == "p" and not sums_up(block)) > _LONG
    return long or (formulas > 0 and formulas + sum(map(_is_formula, other)) > 1)


def _slides(stretch: list[Tag]) -> list[_Slide]:
    """Return the slides of a stretch: what its figure cannot say, then the figure."""
    at = next((place for place, block in enumerate(stretch) if _is_figure(block)), None)
    if at is None:
        return [_without_figure(stretch)]
    if not _needs_a_slide(stretch[:at], []):
        return [_with_figure(stretch, at)]
    # The paragraph that leads to the figure goes with the figure.
    own = at - 1 if stretch[at - 1].name == "p" else at
    return [_without_figure(stretch[:own]), _with_figure(stretch[own:], at - own)]


def _with_figure(stretch: list[Tag], at: int) -> _Slide:
    """Return the slide of a figure: it says the gist of the paragraphs next to the figure first."""
    before, after = stretch[:at], stretch[at + 1 :]
    nearest = [*before[-1:], *after[:1], *before[-2::-1], *after[1:]]
    slide = _Slide(formula=_formulas(stretch), shown=stretch[at], told=before + after)
    slide.said = _filled(stretch, nearest, [caption(_before(stretch, at))], slide.formula)
    return slide


def _without_figure(stretch: list[Tag]) -> _Slide:
    """Return the slide of a stretch without a figure: its table, else its list, else a cell, beside the text."""
    slide = _Slide(told=list(stretch), formula=_formulas(stretch))
    kinds = _SHOWN if sum(map(_is_formula, stretch)) > 1 else (*_SHOWN, _is_listing)
    slide.shown = next((block for kind in kinds for block in stretch if kind(block)), None)
    led = [caption(_before(stretch, place)) for place, block in enumerate(stretch) if block is slide.shown]
    if slide.shown is not None and _is_list(slide.shown):
        led = [text for text in led if not names_a_figure(text)]
    slide.said = _filled(stretch, stretch, led, slide.formula, alone=slide.shown is None)
    return slide


def _before(stretch: list[Tag], place: int) -> Tag | None:
    """Return the paragraph in front of a block."""
    return stretch[place - 1] if place and stretch[place - 1].name == "p" else None


def _formulas(stretch: list[Tag]) -> list[str]:
    """Return the formulas of a stretch, each behind the sentence that leads to it."""
    texts = []
    for place, block in enumerate(stretch):
        if _is_formula(block):
            leading = lead(_before(stretch, place))
            texts += [f"<p>{leading}</p>" if leading else "", str(block)]
    return texts


def _filled(
    stretch: list[Tag], nearest: list[Tag], led: list[str], formula: list[str], alone: bool = False
) -> list[str]:
    """Return the gist of paragraphs, the nearest first, while there is room, in front of the text that leads."""
    has = plain(" ".join([*led, *formula]))
    room = (_MOST_ALONE if alone else _MOST_BESIDE) - len(has)
    gists: dict[int, str] = {}
    for block in nearest:
        said = gist(block, _PARAGRAPH if alone else 0) if block.name == "p" and not sums_up(block) else ""
        size = len(plain(said))
        if said and not _told(plain(said), has) and (size <= room or not (gists or has)):
            gists[stretch.index(block)] = said
            room -= size
    return [*(gists[place] for place in sorted(gists)), *filter(None, led)]


def _told(text: str, has: str) -> bool:
    """Say whether a slide that ``has`` a text tells the beginning or the end of another text already."""
    return text[:50] in has or text[-50:] in has


def _sum_up(slide: _Slide, summary: Tag) -> None:
    """Put the section's summary on its last slide, in place of the gists for which there is no more room."""
    led = [text for text in slide.said if points(text)]
    gists = [text for text in slide.said if not points(text)]
    room = (_MOST_ALONE if slide.shown is None else _MOST_BESIDE) + 100 - len(plain(str(summary)))
    while gists and sum(len(plain(text)) for text in gists + led + slide.formula) > room:
        gists.pop()
    slide.said = [*gists, summary.decode_contents(), *led]


def _screens(slide: _Slide) -> Iterator[_Slide]:
    """Yield a slide, and further slides for the rows of a table that is too long for one screen."""
    if slide.shown is None or not _is_table(slide.shown) or len(slide.shown.select("tbody > tr")) <= _ROWS:
        yield slide
        return
    rows = slide.shown.select("tbody > tr")
    for first in range(0, len(rows), _ROWS):
        part = BeautifulSoup(str(slide.shown), "html.parser").find(slide.shown.name)
        for number, row in enumerate(part.select("tbody > tr")):
            if not first <= number < first + _ROWS:
                row.decompose()
        yield _Slide(slide.said if not first else [], [], part, slide.told)


def _html(name: str, head: str, slide: _Slide, notes: str) -> str:
    kind, shown = _shown(slide.shown)
    body = f'<div class="formula" tabindex="0">{"".join(slide.formula)}</div>' if slide.formula else ""
    body += (
        f'<div class="said" tabindex="0">{"".join(f"<p>{text}</p>" for text in slide.said)}</div>' if slide.said else ""
    )
    body += f'<div class="shown">{shown}</div>' if shown else ""
    return (
        f'<section id="{html.escape(name)}">{head}<div class="body {kind}">{body}</div>'
        f'<aside class="notes">{notes}</aside></section>'
    )


def _shown(block: Tag | None) -> tuple[str, str]:
    """Return the kind of a block that a slide shows, for its layout, and its HTML."""
    if block is None:
        return "alone", ""
    if _is_drawing(block):
        return "drawing", "".join(map(str, block.select(".output")))
    if _is_figure(block):
        return "widget", f'<div class="sized">{"".join(map(str, block.select(".output")))}</div>'
    if _is_list(block):
        return "list", str(shortened(block, _MOST_ALONE))
    return ("table" if _is_table(block) else "code"), str(block)


def _note(block: Tag) -> str:
    """Return a block for the notes: a cell as the text of its listing and of what it prints."""
    if "cell" not in block.get("class", ()):
        copy = BeautifulSoup(str(block), "html.parser")
        for named in copy.select("[id]"):
            del named["id"]
        return str(copy)
    return "".join(f"<pre>{html.escape(listing.get_text().strip())}</pre>" for listing in block.find_all("pre"))


def _is_figure(block: Tag) -> bool:
    return block.select_one(".output.text_html") is not None and "cell" in block.get("class", ())


def _is_drawing(block: Tag) -> bool:
    return block.select_one(".lk-drawing") is not None


def _is_formula(block: Tag) -> bool:
    return "math-wrapper" in block.get("class", ())


def _is_table(block: Tag) -> bool:
    return block.name == "table" or "table-wrapper" in block.get("class", ())


def _is_list(block: Tag) -> bool:
    return block.name in ("ul", "ol", "dl")


def _is_listing(block: Tag) -> bool:
    return block.find("pre") is not None and not _is_figure(block)


def _is_kernel(block: Tag) -> bool:
    return _is_listing(block) and "__global__" in block.get_text()


_SHOWN = (_is_table, _is_list, _is_kernel)  # beside figures: what a slide has to show
