"""All findings of the build in a set of labs."""

from __future__ import annotations

from collections.abc import Sequence

from mlsys_grading.build.claims import check_claims
from mlsys_grading.build.crossing.check import check_crossing
from mlsys_grading.build.finding import BuildFinding
from mlsys_grading.build.form.cells import unique_tasks
from mlsys_grading.build.form.check import check_form
from mlsys_grading.build.leaks import check_leaks
from mlsys_grading.build.rules.check import check_tests
from mlsys_grading.lab import Lab


def lint(labs: Sequence[Lab]) -> dict[str, list[BuildFinding]]:
    """Return the findings by lab name, in the order of files and lines; a lab with warnings alone can be built."""
    found = {lab.name: _lint_one(lab) for lab in labs}
    for finding in unique_tasks(labs):
        next(found[lab.name] for lab in labs if finding.where.startswith(lab.where(lab.path))).append(finding)
    return found


def _lint_one(lab: Lab) -> list[BuildFinding]:
    findings = {*check_form(lab), *check_tests(lab), *check_crossing(lab), *check_claims(lab), *check_leaks(lab)}
    return sorted(findings, key=_by_line)


def _by_line(finding: BuildFinding) -> tuple[str, int, BuildFinding]:
    path, _, line = finding.where.partition(":")
    return path, int(line or 0), finding
