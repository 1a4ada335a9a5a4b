"""Steps of the campaign in order of value, and the choice of steps and cases from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Step:
    """One module of ``steps``.

    Attributes:
        seconds: time after which no case begins; at most eight minutes, so that a step fits in one session.
        workers: processes that run cases at the same time; 1 where cases measure time.
        cases: patterns of the names of the cases to run.
        module: where ``cases`` is; "" for the module of that name in ``steps``.
    """

    name: str
    seconds: int
    workers: int
    answers: str
    cases: tuple[str, ...] = ("*",)
    module: str = ""


STEPS = (
    Step(
        "smoke", 120, 1, "tools and versions, the first kernel, faults, lab 03 cell by cell: the places where it breaks"
    ),
    Step("kernels", 240, 8, "the kernels and programs of the tests against their oracles"),
    Step("exercises", 240, 3, "the tests of the CUDA labs with their kernels launched on the GPU"),
    Step("faults", 300, 1, "twenty planted faults in one Jupyter kernel, which has to answer after each"),
    Step("speed", 420, 1, "lab 04's ladder, Triton, W4A16, paged decode and lab 09 against libraries and copies"),
    Step("labs", 480, 4, "the solutions of all labs, executed, with their sections for a GPU"),
    Step("marks", 480, 4, "the marks of every solution and wrong answer, with the GPU and without"),
    Step("counters", 240, 1, "the simulator's counters beside Nsight Compute's, kernel by kernel"),
    Step("sanitizer", 420, 4, "check beside compute-sanitizer on planted bugs and on correct programs"),
    Step("clocks", 240, 1, "bench of equal code, of a planted 10 %, and the host's share of short kernels"),
    Step("engine", 300, 1, "memory trace on CPU and CUDA, the serving engine on the GPU, one NCCL rank"),
    Step("suite", 420, 1, "the unit tests marked gpu, and those that may differ beside a GPU"),
)


def chosen_steps(words: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that ``words`` name, in the order of STEPS, or all.

    A word is a step, or a step and a pattern of its cases: ``kernels/reduce*``. Raises ValueError in one line.
    """
    if not words:
        return STEPS
    known = {step.name: step for step in STEPS}
    patterns: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, _, pattern = word.partition("/")
        if name not in known:
            raise ValueError(f"there is no step {name!r}; there are: {', '.join(known)}")
        patterns[name] = (*patterns.get(name, ()), pattern or "*")
    return tuple(replace(step, cases=patterns[step.name]) for step in STEPS if step.name in patterns)


def chosen_cases(step: Step, names: Sequence[str]) -> tuple[str, ...]:
    """Return the cases that the step's pattern matches. Raises ValueError when there is none."""
    for pattern in step.cases:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"step {step.name} has no case like {pattern!r}; it has: {', '.join(names)[:300]}")
    return tuple(name for name in names if any(fnmatchcase(name, pattern) for pattern in step.cases))
