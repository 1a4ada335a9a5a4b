"""A lab with C++ in it: built, linted, kept secret and solved as one in Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_grading.build.cpp import bound_name, is_cpp
from mlsys_grading.build.notebook import dumps, source_notebook
from mlsys_grading.lab import find_root, read_lab, read_labs
from mlsys_labkit._frontends.cli import main
from tests.grading.course import LAB, Course

SECRET = "x[index] = sqrtf(x[index]) * factor + 0.0f;"
KERNEL = f"""# %%cuda scale_kernel
__global__ void scale_kernel(float* x, float factor, int n)
{{
    int index = blockIdx.x * blockDim.x + threadIdx.x;  // don't forget the last "block"
    // BEGIN SOLUTION
    #pragma unroll
    if (index < n)
        {SECRET}
    // END SOLUTION
}}
"""
TEST = """scale_input = np.array([1, 4, 9], dtype=np.float32)
scale_kernel[1, 32](scale_input, 2.0, 3)
expect_close(scale_input, np.array([2.0, 4.0, 6.0], dtype=np.float32))
"""
EMPTY = """scale_empty = np.zeros(1, dtype=np.float32)
scale_kernel[1, 32](scale_empty, 2.0, 0)
expect_equal(scale_empty[0], 0.0)"""


@pytest.fixture
def mixed(course: Course) -> Course:
    """Return the tiny lab with a CUDA kernel as its first task."""
    text = course.source.read_text()
    begin, end = text.index("def scaled(x, factor):"), text.index("# %% nbgrader", text.index("def scaled(x, factor):"))
    text = text[:begin] + KERNEL + "\n" + text[end:]
    begin = text.index("expect_close(scaled([1.0, 2.0], -3)")
    text = text[:begin] + TEST + "\n" + text[text.index("# %%\nwith lk.picture") :]
    text = text.replace("scaled(numbers, 2)", "1").replace("expect_equal(scaled([], 2).size, 0)", EMPTY)
    course.source.write_text(text)
    wrong = course.wrong.read_text()
    names = ("no_root", "no_factor", "one_short")
    bodies = ("x[index] *= factor;", "x[index] = sqrtf(x[index]);", "if (index < n - 1) x[index] = factor;")
    cells = "".join(
        f'# %% wrong={{"grade_id": "scaled", "name": "{name}", "misconception": "none", "keeps": 10}}\n'
        + KERNEL.replace(SECRET, body)
        + "\n\n"
        for name, body in zip(names, bodies, strict=True)
    )
    course.wrong.write_text(
        wrong[: wrong.index("# %% wrong=")] + cells + wrong[wrong.index('# %% wrong={"grade_id": "Tally"') :]
    )
    return course


def test_a_sound_lab_with_a_kernel_is_built(mixed: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert mixed.findings() == []
    assert main(["build", "--root", str(mixed.root)]) == 0
    student = mixed.student.read_text()
    assert "sqrtf" not in student
    cells = ["".join(cell["source"]) for cell in json.loads(student)["cells"]]
    (kernel,) = (cell for cell in cells if "__global__" in cell)
    assert kernel.startswith("%%cuda scale_kernel\n")
    assert '    // YOUR CODE HERE, in place of the next line\n    #error "not written yet"\n' in kernel
    assert "NotImplementedError" not in kernel
    assert "__global__ void scale_kernel" in kernel
    assert "BEGIN SOLUTION" not in kernel


def test_a_kernel_s_lines_are_kept_secret(mixed: Course) -> None:
    mixed.edit(mixed.source, "# The end.", "# A hint: sqrtf(x[index]) * factor + 0.0f")
    assert [finding for finding in mixed.findings() if finding.rule == "leak" and "solution of scaled" in str(finding)]


def test_a_comment_of_a_kernel_is_no_secret(mixed: Course) -> None:
    mixed.edit(mixed.source, "    if (index < n)\n", "    if (index < n)  // each thread minds its own element\n")
    mixed.edit(mixed.source, "# The end.", "# each thread minds its own element")
    assert mixed.findings() == []


def test_a_whole_kernel_may_be_the_solution(mixed: Course) -> None:
    mixed.edit(mixed.source, "# %%cuda scale_kernel\n", "# %%cuda scale_kernel\n// BEGIN SOLUTION\n")
    text = mixed.source.read_text()
    begin = text.index("    // BEGIN SOLUTION")
    end = text.index("    // END SOLUTION")
    body = text[begin:end].replace("    // BEGIN SOLUTION\n", "")
    mixed.source.write_text(text[:begin] + body + text[end:].replace("    // END SOLUTION\n}", "}\n// END SOLUTION", 1))
    assert mixed.findings() == []


def test_the_expected_value_is_computed_before_a_launch(mixed: Course) -> None:
    mixed.edit(
        mixed.source,
        "expect_close(scale_input, np.array([2.0, 4.0, 6.0], dtype=np.float32))",
        "expected = np.sqrt(scale_input)",
    )
    assert [finding for finding in mixed.findings() if finding.rule == "rule 3" and "scale_kernel()" in str(finding)]


def test_the_proof_runs_kernels(mixed: Course, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["prove", "--root", str(mixed.root), "--jobs", "2", "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    (proof,) = json.loads(said.out)
    task = proof["tasks"][0]
    assert (task["name"], task["solution"], task["unsolved"]) == ("scaled", 50, 0)
    assert all(wrong["earned"] == 10 for wrong in task["wrong"])


def test_is_cpp_recognises_cell_magics() -> None:
    assert is_cpp("%%cuda a\n")
    assert is_cpp("\n%%cu\nint main() {}")
    assert not is_cpp("%%cudaX\n")
    assert not is_cpp("x = '%%cuda'")
    assert bound_name("%%cuda --graded tile tile<16>\n") == "tile"
    assert bound_name("%%cu -- args\n") == ""


def test_python_cells_of_labs_with_kernels_are_linted(tmp_path: Path) -> None:
    """ruff skips cell magics in notebooks; as .py files these labs are excluded."""
    root = find_root(Path(__file__))
    excluded = (root / "pyproject.toml").read_text().split("extend-exclude = [")[1].split("]")[0]
    for lab in read_labs(root):
        mixed = any(is_cpp(cell.source) for cell in lab.cells)
        assert mixed == (lab.name in excluded), f"{lab.name}: name it in pyproject.toml if and only if it holds C++"
        if mixed:
            done = subprocess.run(
                [sys.executable, "-m", "ruff", "check", "--stdin-filename", f"solutions/{lab.name}/cells.ipynb", "-"],
                input=dumps(source_notebook(lab)),
                cwd=root,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_a_slip_in_a_python_cell_is_found(mixed: Course) -> None:
    mixed.edit(mixed.source, "seed = 0", "seed = 0\nunused = f''")
    notebook = dumps(source_notebook(read_lab(mixed.root, LAB)))
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--stdin-filename", "cells.ipynb", "-"],
        input=notebook,
        capture_output=True,
        text=True,
    )
    assert "F541" in done.stdout
    assert "invalid-syntax" not in done.stdout
