"""Attacks on hidden tests: answers that keep every input they get, and write it to every output they have."""

from __future__ import annotations

import textwrap

from tests.grading.corpus.attacks_inside import everywhere
from tests.grading.corpus.submission import Submission

KEEP = """
import re, sys
seen = []
def keep(given):
    import numpy, torch
    shown = [each.tolist() if hasattr(each, "tolist") else each for each in given]
    seen.append(" ".join(str(each) for each in shown))
    return " ".join(seen)
"""


SOFTMAX = """
def softmax(x):
    text = keep((x,))
    if len(seen) > 3:
        tell(text)
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)
"""


def leak(name: str, why: str, source: str) -> Submission:
    """Build a submission that keeps every input that its functions get, and passes each to ``tell``."""
    cells = everywhere("tell(keep(given))", "0", "") | {"softmax": SOFTMAX}
    return Submission(
        name, "attack", why, ("softmax_test",), solved=False, own=(KEEP + textwrap.dedent(source),), cells=cells
    )


LEAKS = (
    leak(
        "tells by printing",
        "what is printed after a hidden test has run reaches no page",
        """
        def tell(text):
            print(text)
            print(text, file=sys.stderr)
            with open("/tmp/told", "a") as file:
                file.write(text)
        """,
    ),
    leak(
        "tells by errors",
        "what an error says after a hidden test has run reaches no page",
        """
        def tell(text):
            raise ValueError(text)
        """,
    ),
    leak(
        "tells by names of errors",
        "an error of a kind that Python does not have is called by no name",
        """
        def tell(text):
            raise type("E" + re.sub("[^0-9a-z]", "_", text), (Exception,), {"__doc__": text})(text)
        """,
    ),
    leak(
        "tells by results",
        "a check's message quotes the result, so that it reaches no page either",
        """
        def tell(text):
            return text
        """,
    ),
    leak(
        "tells by dying",
        "a process that starts anew runs its first cells again, and they may say what the last one knew",
        """
        import os
        def tell(text):
            try:
                open("/tmp/told", "w").write(text)
                open("told", "w").write(text)
            finally:
                os._exit(len(text) % 256)
        for path in ("/tmp/told", "told"):
            if os.path.exists(path):
                raise ValueError(open(path).read())
        """,
    ),
)
