"""Slides made from the chapters' pages: a file per deck; ``slide_deck`` chooses what is on each slide.

reveal.js travels with the site, out of the wheel of sphinx-revealjs: no other host is asked, and no node is needed.
Reference: https://revealjs.com/markup/
"""

from __future__ import annotations

import html
import re
import shutil
from importlib.resources import as_file, files
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from docutils import nodes
from slide_deck import slides_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mlsys_labkit._base import light_dark_colours

FOLDER = "slides"
_REVEAL = ("LICENSE", "dist/reset.css", "dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js")
_STYLE = Path(__file__).parents[1] / "_static/slides.css"
_ASKS_FOR_SLIDES = re.compile(r"^slides: true$", re.MULTILINE)

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
<script src="../_static/slide_fit.js"></script>
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
    slides = [slide for section in [top, *top.find_all("section")] for slide in slides_of(section)]
    style = light_dark_colours.inlined(_STYLE.read_text("utf-8"), ":root")
    return _PAGE.format(style=style, title=html.escape(_text(top.find("h1"))), slides="\n".join(slides))


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
