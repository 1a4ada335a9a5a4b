"""Formulas as MathML, so that pages show them with no script and no network."""

from __future__ import annotations

from html import escape

from mlsys_labkit.errors import require


def to_mathml(latex: str, *, block: bool = False) -> str:
    r"""Convert LaTeX to a ``<math>`` element; return the source in ``<code>`` if the converter cannot parse it.

    Example:
        >>> to_mathml(r"\frac{1}{2}").startswith("<math")
        True

    Reference: MathML Core, W3C.
    """
    convert = require("latex2mathml.converter", "labs").convert

    try:
        return str(convert(latex.strip(), display="block" if block else "inline"))
    except Exception:  # the library raises a class of its own for each mistake, and IndexError for others
        return f'<code class="math-source">{escape(latex)}</code>'
