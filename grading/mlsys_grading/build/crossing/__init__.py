"""Rules against idioms in test cells that do not cross between the examiner and the student's process.

Each rule covers idioms whose verdict was seen to differ between a plain shell and the graders. The table in
``tests/grading/crossing_idioms.py`` holds them, and every idiom that was tried and gives the same verdict in both.
"""

import ast
from collections.abc import Callable, Iterator

from mlsys_grading.build.view import View

Objection = tuple[ast.AST, str]
Rule = Callable[[View], Iterator[Objection]]
