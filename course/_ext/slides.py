"""Slides made from the chapters' pages: one or more per section, one per figure, with the prose as notes.

reveal.js travels with the site, out of the wheel of sphinx-revealjs: no other host is asked, and no node is needed.
Reference: https://revealjs.com/markup/
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

from bs4 import BeautifulSoup, NavigableString, Tag
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mlsys_labkit._base import light_dark_colours

FOLDER = "slides"
_REVEAL = ("LICENSE", "dist/reset.css", "dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js")
_STYLE = Path(__file__).parents[1] / "_static/slides.css"
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9“\"(]|$)")
_ASKS_FOR_SLIDES = re.compile(r"^slides: true$", re.MULTILINE)
_SHOWN = ("ul", "ol", "table", "dl", "blockquote", "figure", "pre")

_MOST = 1000  # characters on a slide: some 14 lines of 85, and the space between blocks
_LINES = 20  # of code and output on a slide; longer ones are set smaller

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: slides</title>
<link rel="stylesheet" href="reveal/reset.css">
<link rel="stylesheet" href="reveal/reveal.css">
<link rel="stylesheet" href="../_static/pygments.css">
<link rel="stylesheet" href="../_static/fonts.css">
<style>{style}</style>
</head>
<body>
<main class="reveal"><div class="slides">
{slides}
</div></main>
<script src="reveal/reveal.js"></script>
<script src="reveal/notes.js"></script>
<script src="../_static/slides.js"></script>
</body>
</html>
"""


def deck(page: str, chapter: str) -> str:
    """Return the deck of a chapter's built ``page``; ``chapter`` is its file's name, used for links into the page."""
    article = BeautifulSoup(page, "html.parser").select_one("article")
    for mark in article.select("a.headerlink, p.as-notebook, button"):
        if not mark.find_parent(class_="output"):
            mark.decompose()
    for link in article.select("a[href]"):
        link["href"] = _from_slides(str(link["href"]), chapter)
    top = article.find("section")
    slides = [slide for section in [top, *top.find_all("section")] for slide in _slides(section)]
    style = light_dark_colours.inlined(_STYLE.read_text("utf-8"), ":root")
    return _PAGE.format(style=style, title=html.escape(_text(top.find("h1"))), slides="\n".join(slides))


def _slides(section: Tag) -> Iterator[str]:
    """Yield the slides of a section in its order: main sentences, formulas, lists, cells, as many as a screen holds."""
    heading = section.find(re.compile("h[1-3]"), recursive=False)
    children = section.find_all([*_SHOWN, "p", "div"], recursive=False)
    least = 3 if sum(not _is_cell(child) for child in children) == 1 else 1
    named, name = heading.decode_contents(), str(section.get("id", ""))
    level = "h1" if heading.name == "h1" else "h2"
    blocks = [
        (part, _gist(part, least) if part.name == "p" else _cell(part) if _is_cell(part) else str(part))
        for child in children
        for part in _parts(child)
    ]
    for number, group in enumerate(_groups(blocks)):
        notes = [child for child, _ in group if child.name == "p"]
        if group and not notes:
            notes = group[0][0].find_all_previous("p", limit=1)
        head = f'<h2 class="again">{named}</h2>' if number else f"<{level}>{named}</{level}>"
        shown = "".join(text for _, text in group)
        yield _slide(head, shown, "".join(map(str, notes)), f"{name}-{number}-more" if number else name)


def _cell(cell: Tag) -> str:
    """Return a cell as a slide shows it: a long one in smaller type."""
    lines = sum(listing.get_text().count("\n") for listing in cell.find_all("pre"))
    scale = max(_LINES / lines, 0.5) if lines > _LINES else 1
    return f'<div style="--code-scale: {scale:.2f}">{cell}</div>'


def _parts(block: Tag) -> list[Tag]:
    """Return a long list as several lists that count on, and any other block alone."""
    items = block.find_all("li", recursive=False)
    if block.name not in ("ul", "ol") or len(block.get_text()) <= _MOST or len(items) < 2:
        return [block]
    groups = _groups([(item, str(item)) for item in items])
    first, lists = int(str(block.get("start", 1))), []
    for group in groups:
        start = f' start="{first}"' if block.name == "ol" else ""
        text = f"<{block.name}{start}>{''.join(text for _, text in group)}</{block.name}>"
        lists.append(BeautifulSoup(text, "html.parser").find(block.name))
        first += len(group)
    return lists


def _groups(blocks: list[tuple[Tag, str]]) -> list[list[tuple[Tag, str]]]:
    """Return the blocks in groups that fit a screen each."""
    groups: list[list[tuple[Tag, str]]] = [[]]
    filled = 0
    for block, text in blocks:
        size = _size(block, text)
        if groups[-1] and filled + size > _MOST:
            groups.append([])
            filled = 0
        groups[-1].append((block, text))
        filled += size
    return groups


def _size(block: Tag, text: str) -> int:
    """Return the room that a block takes, in characters of running text. A living figure takes the whole slide."""
    if block.select_one(".lk-drawing"):
        return 560
    if block.select_one(".output.text_html"):
        return _MOST
    listings = [block] if block.name == "pre" else block.find_all("pre")
    if listings:
        return 100 + 65 * sum(listing.get_text().count("\n") for listing in listings)
    rows = len(block.find_all(["tr", "li", "dt"])) or 1
    return len(BeautifulSoup(text, "html.parser").get_text()) + 45 * rows


def _is_cell(element: Tag) -> bool:
    return "cell" in element.get("class", ())


def _slide(heading: str, body: str, notes: str, name: str) -> str:
    # A slide longer than the screen scrolls, with the keyboard as well.
    return (
        f'<section id="{html.escape(name)}" tabindex="0">{heading}<div class="body">{body}</div>'
        f'<aside class="notes">{notes}</aside></section>'
    )


def _gist(paragraph: Tag, least: int) -> str:
    """Return the sentences of ``paragraph`` for the slide: with bold terms or before a formula, else the first."""
    sentences = [[]]
    for part in paragraph.contents:
        if isinstance(part, NavigableString):
            head, *rest = _SENTENCE.split(str(part))
            sentences[-1].append(html.escape(head, quote=False))
            sentences += [[html.escape(more, quote=False)] for more in rest]
        else:
            sentences[-1].append(str(part))
    told = [text for sentence in sentences if (text := "".join(sentence).strip())]
    kept = {at for at, sentence in enumerate(told) if "<strong>" in sentence} or {
        *range(least),
        int(told[0].endswith("?")),
    }
    after = paragraph.find_next_sibling()
    if after is not None and "math" in after.get("class", ()):
        kept.add(len(told) - 1)
    return f"<p>{' '.join(told[at] for at in sorted(kept) if at < len(told))}</p>"


def _from_slides(address: str, chapter: str) -> str:
    """Return an address on a page in chapters/ as seen from slides/. Both folders are one below the top."""
    if re.match(r"[a-z]+:", address) or address.startswith("../"):
        return address
    return f"../chapters/{chapter}.html{address}" if address.startswith("#") else f"../chapters/{address}"


def _text(heading: Tag) -> str:
    return heading.get_text().rstrip("¶").strip()


def _chapters(folder: str) -> list[Path]:
    """Return the chapters whose front matter says ``slides: true``."""
    chapters = sorted(Path(folder, "chapters").glob("*.md"))
    return [path for path in chapters if _ASKS_FOR_SLIDES.search(path.read_text("utf-8").split("---\n", 2)[1])]


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir, FOLDER)
    (folder / "reveal").mkdir(parents=True, exist_ok=True)
    for name in _REVEAL:
        with as_file(files("sphinx_revealjs") / "_static" / "revealjs" / name) as path:
            shutil.copyfile(path, folder / "reveal" / path.name)
    for chapter in _chapters(app.srcdir):
        page = Path(app.outdir, "chapters", f"{chapter.stem}.html").read_text("utf-8")
        (folder / f"{chapter.stem}.html").write_text(deck(page, chapter.stem), "utf-8")


class Decks(SphinxDirective):
    """Insert a list of links to the decks."""

    def run(self) -> list[nodes.Node]:
        found = nodes.bullet_list()
        for chapter in Path(self.env.srcdir, "chapters").glob("*.md"):
            self.env.note_dependency(str(chapter))  # its front matter may ask for slides in the next build
        for chapter in _chapters(self.env.srcdir):
            title = re.search(r"^# (.*)$", chapter.read_text("utf-8"), re.MULTILINE)
            name = f"Chapter {int(chapter.stem[:2])}: {title[1] if title else chapter.stem}"
            link = nodes.reference("", name, refuri=f"../{FOLDER}/{chapter.stem}.html", internal=True)
            found += nodes.list_item("", nodes.paragraph("", "", link))
        return [found]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("decks", Decks)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
