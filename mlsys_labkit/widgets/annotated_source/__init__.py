"""Annotated source: a kernel's own lines, each with its traffic and its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlsys_labkit._base.units import plain
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.annotated_source import model
from mlsys_labkit.widgets.base import Kind, State, paragraph, table

if TYPE_CHECKING:
    from mlsys_labkit.cuda.finding import KernelFinding
    from mlsys_labkit.cuda.profile import Profile

HEATS = {
    "sectors": "global sectors a request",
    "wavefronts": "shared wavefronts a request",
    "requests": "requests",
    "steps": "lane-steps (work done)",
}


def annotated_source(
    profile: Profile, findings: Sequence[KernelFinding] = (), *, heat: str = "", line: int | None = None
) -> Any:
    """Show a kernel's source with a heat bar per line, the counts of a chosen line, and the findings.

    ``heat`` is "sectors" or "wavefronts" (a request: global or shared traffic), "requests" or "steps" (lane-steps); by
    default that of the first two whose worst line has more above what its bytes need.
    ``line`` is the line that is chosen first, by default that of the first finding, or the hottest.
    Raises LabkitError for anything but a profile, another ``heat``, or a line that the source does not have.

    Example:
        >>> from mlsys_labkit.cuda.counters import LineCount
        >>> from mlsys_labkit.cuda.profile import Profile
        >>> source = "__global__ void fill(float* x) { x[threadIdx.x] = 1; }"
        >>> stores = LineCount(1, "fill", "global", "store", 4, 1, 32, 4, 0, 4, 0, 4, 32)
        >>> annotated_source(Profile("fill", source, (1, 1, 1), (32, 1, 1), 0, (stores,)))
        <Annotated source>

    Reference: NVIDIA, "Nsight Compute" documentation, source page.
    """
    from mlsys_labkit.cuda.profile import Profile

    if not isinstance(profile, Profile):
        raise LabkitError(
            f"expected what kernel.profile[grid, block](...) returns, got {type(profile).__name__}; pass the profile"
        )
    if heat and heat not in HEATS:
        raise LabkitError(f"heat is one of {', '.join(HEATS)}, got {heat!r}")
    code = profile.source.expandtabs(4).splitlines()
    counts = [
        [value for field, value in asdict(count).items() if field not in ("function", "executed", "file")]
        for count in profile.lines
        # line 0: code that is not the student's
        if count.space in ("global", "shared") and 1 <= count.line <= len(code) and not count.file
    ]
    heat = heat or max(model.PER_REQUEST, key=lambda metric: model.most_excess(counts, metric))
    steps: dict[int, int] = {}
    for count in profile.lines:  # several accesses of one line carry the same steps
        if not count.file:
            steps[count.line] = max(steps.get(count.line, 0), count.executed)
    marks: list[State] = [
        {"line": found.line, "other": found.other_line, "kind": found.kind.replace("_", " "), "message": found.message}
        for found in findings
    ]
    first = next((mark["line"] for mark in marks if mark["line"]), None)
    chosen = line or first or model.hottest(model.heat(counts, [], heat)) or next(iter(sorted(steps)), 1)
    if not 1 <= chosen <= max(1, len(code)):
        raise LabkitError(f"line {chosen} is not in the source, which has lines 1 to {len(code)}")
    return KIND.show(
        title=f"{profile.kernel}, grid {_dims(profile.grid)}, block {_dims(profile.block)}",
        note=_note(profile),
        code=code,
        counts=counts,
        steps=[[at, done] for at, done in sorted(steps.items()) if done and 1 <= at <= len(code)],
        findings=marks,
        heat=heat,
        line=chosen,
    )


def _dims(sizes: Sequence[int]) -> str:
    used = list(sizes)
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return " x ".join(str(size) for size in used)


def _note(profile: Profile) -> str:
    part = f"; {profile.blocks_run} of {profile.blocks_total} blocks were run" if profile.sampled else ""
    label = profile.label[:1].upper() + profile.label[1:]
    return f"{label}: counted from the source as the CPU's compiler left it, not on a GPU{part}."


def _static(state: State) -> str:
    code = state["code"]
    rows = []
    for count in state["counts"]:
        at, space, op, size, requests = count[: model.LANES]
        unit = "sectors" if space == "global" else "wavefronts"
        _, top, low = model.PER_REQUEST[unit]
        moved, ideal = plain(count[top] / requests), plain(count[low] / requests)
        text = code[at - 1].strip() if 0 < at <= len(code) else ""
        access = f"{space} {op}, {size} B"
        rows.append([f"{at}: {text}", access, requests, f"{moved} {unit}", ideal, count[model.WORST]])
    head = ["line", "access", "requests", "a request", "at best", "worst"]
    found = [[f"line {mark['line']}", mark["kind"], mark["message"]] for mark in state["findings"]]
    return (
        table(f"Memory traffic by line: {state['title']}", head, rows)
        + (table("Findings", ["where", "kind", "what happened"], found) if found else "")
        + paragraph(state["note"])
    )


KIND = Kind("annotated_source", "Annotated source", _static)
