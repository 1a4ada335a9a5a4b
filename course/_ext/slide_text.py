"""Sentences that a slide takes from the chapter's paragraphs: those that stand alone, or beside what they point to."""

from __future__ import annotations

import html
import re

from bs4 import BeautifulSoup, NavigableString, Tag

_LEAST = 30  # characters that a statement has
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9“\"(]|$)")
# A sentence about something that is shown: a slide has it only if that thing is on the slide.
_POINTS = re.compile(
    r"[:,\w]$|\b(below|above|here (is|are)|the (next|last|following|previous) \w+"
    r"|this (cell|figure|widget|section|chapter)"
    r"|the (cell|cells|figure|figures|widget|picture|drawing|table|listing|sketch|chart|timeline)\b)"
    r"|^(Step|Drag|Move|Press|Click|Choose|Read|Set|Turn|Let|Try|Compare|Look|Here|Now|Open|Follow|Change|Switch) "
    r"|^(See|Chapter|Lab)\b",
    re.IGNORECASE,
)
# A sentence that goes on from the one before it.
_GOES_ON = re.compile(
    r"^(\(|[a-z]|(This|That|These|Those|It|Its|They|Their|Them|So|Hence|Thus|But|And|Or|Both|Such|Then|Therefore|Yet"
    r"|Each|Neither|Either|Others|Another|Nor|Again|Still|Only|Even so|As a result|However|Instead|Also|By then"
    r"|The (first|second|third|same|other|rest|ratio|result|former|latter|two|three))\b"
    r"|[^,:]{0,34}\b(them|both|those|these|this|it|uses that)\b)"
)
# A sentence that asks or announces: without the next one it says nothing.
_ANNOUNCES = re.compile(r"\?$|^(Two|Three|Four|Five|Six|Some|Several) [^.]{0,60}\.$")
# A place in the chapter that a slide does not have.
_ELSEWHERE = re.compile(
    r"\b(below|above|earlier|first figure|(next|last|previous|following) (paragraph|section|chapter|cell))\b"
)


def sentences(paragraph: Tag) -> list[str]:
    """Return the sentences of ``paragraph`` as HTML."""
    found: list[list[str]] = [[]]
    for part in paragraph.contents:
        if isinstance(part, NavigableString):
            head, *rest = _SENTENCE.split(str(part))
            found[-1].append(html.escape(head, quote=False))
            found += [[html.escape(more, quote=False)] for more in rest]
        else:
            found[-1].append(str(part))
    return [text for sentence in found if (text := "".join(sentence).strip())]


def points(sentence: str) -> bool:
    """Say whether the sentence needs something that is shown beside it."""
    text = plain(sentence)
    return bool(_POINTS.search(text)) or text.count("(") != text.count(")")


def gist(paragraph: Tag, room: int = 0) -> str:
    """Return a sentence of ``paragraph``, one with a bold term if there is one, with the sentences that it needs.

    Those are the ones that it goes on from, and the next one if it asks or announces something. Further sentences
    follow while there is ``room`` (characters). The text is empty if no sentence stands without what the page shows.
    """
    said = sentences(paragraph)
    for at in sorted(range(len(said)), key=lambda at: "<strong>" not in said[at]):
        first = _begin(said, at)
        kept, last = said[first : at + 1], at
        while last + 1 < len(said) and not points(said[last + 1]):
            if not _ANNOUNCES.search(plain(said[last])) and len(plain(" ".join([*kept, said[last + 1]]))) > room:
                break
            last += 1
            kept.append(said[last])
        alone = not _goes_on(kept[0]) and not any(map(points, kept)) and not _ANNOUNCES.search(plain(kept[-1]))
        if alone and len(plain(" ".join(kept))) >= _LEAST:
            return " ".join(kept)
    return ""


def _goes_on(sentence: str) -> bool:
    return bool(_GOES_ON.match(plain(sentence)))


def _begin(said: list[str], at: int) -> int:
    """Return the place of the first sentence that the one at ``at`` goes on from, at most two before it."""
    first = at
    while first > 0 and _goes_on(said[first]) and at - first < 2:
        first -= 1
    return first


def lead(paragraph: Tag | None) -> str:
    """Return the sentence that leads to the block behind it, with those that it goes on from."""
    said = sentences(paragraph) if paragraph is not None else []
    return " ".join(said[_begin(said, len(said) - 1) :]) if said else ""


def caption(paragraph: Tag | None) -> str:
    """Return the last sentence of the paragraph before something that is shown, if it speaks of that alone."""
    last = sentences(paragraph)[-1:] if paragraph is not None else []
    return last[0] if last and points(last[0]) and not _ELSEWHERE.search(plain(last[0])) else ""


def names_a_figure(sentence: str) -> bool:
    """Say whether the sentence speaks of something that is drawn or printed."""
    return bool(re.search(r"\b(table|figure|drawing|widget|cell|listing)\b", plain(sentence)))


def sums_up(paragraph: Tag) -> bool:
    """Say whether this is the line that sums up a section."""
    return plain(str(paragraph)).startswith("In short.")


def plain(text: str) -> str:
    """Return the words of a piece of HTML."""
    return " ".join(BeautifulSoup(text, "html.parser").get_text().split())


def shortened(listed: Tag, most: int) -> Tag:
    """Return a list; one of more than ``most`` characters with the first sentence and the first question of items."""
    if len(plain(str(listed))) <= most:
        return listed
    short = BeautifulSoup(str(listed), "html.parser").find(listed.name)
    for item in short.find_all("li", recursive=False):
        first, *rest = sentences(item.find("p") or item)
        asked = [each for each in rest if "?" in each and "?" not in first]
        item.clear()
        item.append(BeautifulSoup(" ".join([first, *asked[:1]]), "html.parser"))
    return short
