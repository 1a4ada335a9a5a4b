"""``labkit build --contract``: the lab's own solution graded, and what its calls do beside returning plain data.

A submission may do the same and nothing else. An unintended line is a defect of the solution, to be mended before the
lab goes out: if a function of the solution writes to its arguments, every student's may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mlsys_grading.build.outputs import outputs, write
from mlsys_grading.counters.peak import BALLAST_BYTES
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import CourseFolder
from mlsys_grading.grade.engine import open_engine
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import Store
from mlsys_grading.lab import Lab
from mlsys_grading.scratch import scratch_folder


def learnt(lab: Lab) -> dict[str, list[str]]:
    """Grade the lab's solution, and return its contract. Raises LabkitError if the solution loses points."""
    with scratch_folder("labkit-contract") as root, open_engine("local", 1) as engine:
        made = outputs(lab)
        write(root, {name.removeprefix("build/"): data for name, data in made.items() if name.startswith("build/")})
        source = CourseFolder(root).source(lab.name)
        return learn(engine, source, Bounds().of(source.notebook, {}), Store(root))


def in_words(contract: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Write a line for each call that does more than return plain data.

    Example:
        >>> list(in_words({"call scale": ["writes to its arguments"], "memory before gram": ["5 MiB"]}))
        ['call scale: writes to its arguments', 'memory before gram: the solution held 5 MiB, 12 MiB more are allowed']
    """
    for call, did in sorted(contract.items()):
        if call.startswith("memory before "):
            yield f"{call}: the solution held {', '.join(did)}, {BALLAST_BYTES >> 20} MiB more are allowed"
        elif call.startswith("memory beside "):
            yield f"{call}: the solution's process took {', '.join(did)} that no trace of it shows, forgiven to all"
        else:
            yield f"{call}: {', '.join(did)}"
