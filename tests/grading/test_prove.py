"""``labkit prove``, called as a command: it fails for every way in which a test can fail to test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_labkit._frontends.cli import main
from tests.grading.course import Course

LABKIT = [sys.executable, "-c", "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main())"]
HEAD = '# %% wrong={{"grade_id": "Tally", "name": "{name}", "misconception": "none", "keeps": 0{more}}}\n'


def prove(course: Course, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any], str]:
    """Prove the one lab; return the exit code, its proof, and the text on stderr."""
    code = main(["prove", "--root", str(course.root), "--jobs", "2", "--json", *options])
    said = capsys.readouterr()
    return code, json.loads(said.out)[0], said.err


def add_wrong(course: Course, name: str, see: str, before: str = "", more: str = "") -> None:
    """Add a wrong answer to Tally whose ``see`` has the body ``see``; ``more`` ends its header."""
    tally = "class Tally:\n    def __init__(self):\n        self.counts = {}\n\n    def see(self, thing):\n"
    body = f"{before}{tally}        {see}\n"
    course.wrong.write_text(course.wrong.read_text() + "\n\n" + HEAD.format(name=name, more=more) + body)


def wrong(proof: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for task in proof["tasks"] for one in task["wrong"] if one["name"] == name)
    return found


def test_a_sound_lab_is_proved(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    code, proof, said = prove(course, capsys)
    assert (code, said, proof["proved"]) == (0, "", True)
    assert [(t["name"], t["points"], t["solution"], t["unsolved"]) for t in proof["tasks"]] == [
        ("scaled", 50, 50, 0),
        ("Tally", 50, 50, 0),
    ]
    assert wrong(proof, "in_place")["earned"] == 10  # the marks for empty input
    assert wrong(proof, "sign_lost")["caught_by"].startswith("scaled_test (line 56) expect_close")
    assert wrong(proof, "no_start")["caught_by"] == "Tally_test (line 89) KeyError"


def test_the_table_names_every_task_and_wrong_answer(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "lab90", "--root", str(course.root), "--jobs", "2", "--verbose"]) == 0
    table = capsys.readouterr().out
    assert "3/3 in_place, sign_lost, first_only" in table
    assert "proved: 2 tasks, 100 points, 6 wrong answers" in table
    assert "Tally / total: keeps 0; Tally_test (line 90) AssertionError" in table


def test_a_visible_check_catches_a_wrong_answer_or_its_header_says_why_none_does(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    _, proof, _ = prove(course, capsys)
    seen = {one["name"]: one["seen"] for task in proof["tasks"] for one in task["wrong"]}
    assert seen == {name: name != "in_place" for name in seen}
    assert len(seen) == 6

    late = "self.counts[thing] = 1\n        return self.counts[thing]"  # only the hidden test sees a thing twice
    add_wrong(course, "forgets", late)
    add_wrong(course, "silent", "pass", more=', "unseen": "it returns nothing"')
    code, proof, said = prove(course, capsys)
    assert code == 1
    assert (wrong(proof, "forgets")["seen"], wrong(proof, "silent")["seen"]) == (False, True)
    assert "Tally / forgets: only a hidden test catches it; test it visibly" in said
    assert 'Tally / silent: a visible check catches it; remove "unseen" from its header' in said
    assert "wrong_answers.py: 2 of 8 wrong answers are unseen, at most 20% may be" in said


def test_tests_that_do_not_test_are_found(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    line = course.edit(course.source, 'expect_close(secret_input, secret_before, name="the argument afterwards")\n', "")
    assert line == 62
    code, proof, said = prove(course, capsys)
    assert code == 1
    assert not proof["proved"]
    assert wrong(proof, "in_place")["earned"] == 50
    line = course.wrong.read_text().split("\n").index("def scaled(x, factor):") + 1
    assert f"wrong_answers.py:{line}: scaled / in_place: keeps 50 of 50 points, 10 allowed" in said
    assert "multiplying in place makes a copy" in said
    assert said.count("\n") == 1


def test_a_solution_that_fails_is_located(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(course.source, "    secret_copy *= factor\n", "    secret_copy *= factor + 1\n")
    code, proof, said = prove(course, capsys)
    assert code == 1
    assert proof["tasks"][0]["solution"] == 10
    assert proof["tasks"][1]["solution"] == 50
    assert "lab90_tiny.py:56: the solution fails in scaled_test: CheckError" in said


def test_stub_that_earns_marks_is_a_problem(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(course.source, "expect_equal(scaled([], 2).size, 0)", "assert callable(scaled)")
    code, proof, said = prove(course, capsys)
    assert code == 1
    assert proof["tasks"][0]["unsolved"] == 10
    assert "lab90_tiny.py:70: the unsolved notebook gets 10 points in scaled_test_empty" in said


def test_an_unsolved_task_must_fail_for_the_right_reason(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(
        course.source, "expect_equal(scaled([], 2).size, 0)", "assert not scaled.__doc__ is None and tally_before"
    )
    course.edit(course.source, 'with lk.picture("numbers, scaled"):\n    print', "print")
    course.edit(course.source, "import numpy as np\n", "import numpy as np\ntally_before = []\n")
    code, _, said = prove(course, capsys)
    assert code == 1
    # The solution fails there too (an empty list is false), and one mistake is reported once.
    assert "the solution fails in scaled_test_empty: AssertionError" in said
    assert "the unsolved notebook fails in scaled_test_empty" not in said
    assert "the unsolved notebook fails in cell 9, which is not graded: NotImplementedError" in said


def test_an_unsolved_task_that_fails_before_its_stub(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(
        course.source,
        "numbers = np.loadtxt",
        "with lk.picture('x'):\n    ready = scaled([1.0], 1)\nnumbers = np.loadtxt",
    )
    text = course.source.read_text()
    picture = text[text.index("# %%\n# A cell that needs") : text.index("# %% [markdown]\n# ## Scale")]
    course.source.write_text(
        text.replace(picture, "").replace("# %%\nwith lk.picture", picture + "# %%\nwith lk.picture")
    )
    course.edit(course.source, "expect_equal(scaled([], 2).size, 0)", "assert ready.size == 1")
    code, _, said = prove(course, capsys)
    assert code == 1
    assert "fails in scaled_test_empty with NameError: name 'ready' is not defined, not NotImplementedError" in said


@pytest.mark.parametrize(
    ("line", "said_about_it"),
    [
        (
            "import sys; print('careful', file=sys.stderr)",
            "text on stderr ('careful'), which nbgrader marks as a failure",
        ),
        ("import os; _ = os.write(2, b'from C')", "text on stderr ('from C')"),
        ("4", "the cell ends in a value (4), which nbgrader reads as marks"),
    ],
)
def test_marks_lost_without_an_error_are_explained(
    course: Course, capsys: pytest.CaptureFixture[str], line: str, said_about_it: str
) -> None:
    """nbgrader takes marks away for text on stderr and for a number at the end of a cell."""
    course.edit(course.source, "expect_equal(scaled([], 2).size, 0)", f"expect_equal(scaled([], 2).size, 0)\n{line}")
    code, proof, said = prove(course, capsys)
    assert code == 1
    assert proof["tasks"][0]["solution"] == (44 if line == "4" else 40)
    assert said_about_it in said


def test_invalid_wrong_answers_are_problems(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    """Each loses all its marks, but for a reason that proves nothing about the tests."""
    add_wrong(course, "endless", "while True: pass")
    add_wrong(course, "exits", "import os; os._exit(7)")
    add_wrong(course, "crashes", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    add_wrong(course, "misspelt", "return undefined_name")
    add_wrong(course, "syntax", "return (")
    add_wrong(course, "stub", "raise NotImplementedError")
    add_wrong(course, "own_cell", "return 1", before="raise ValueError('at once')\n")
    add_wrong(course, "greedy", "self.counts[thing] = bytearray(8 << 30); return 1")
    code, proof, said = prove(course, capsys, "--cell-seconds", "3", "--memory-gib", "2")
    assert code == 1
    expected = {
        "endless": "still running after 3 s; make it wrong, not endless",
        "exits": "its process exited with code 7",
        "crashes": "its process was ended by SIGSEGV",
        "misspelt": "NameError: name 'undefined_name' is not defined",
        "syntax": "its own cell fails: SyntaxError",
        "stub": "NotImplementedError",
        "own_cell": "its own cell fails: ValueError: at once",
    }
    for name, reason in expected.items():
        assert reason in wrong(proof, name)["slip"]
        assert f"Tally / {name}: " in said
    assert wrong(proof, "greedy")["caught_by"] == "Tally_test (line 89) MemoryError"
    assert all(wrong(proof, name)["slip"] == "" for name in ("shared", "total", "no_start", "in_place"))


def test_a_wrong_answer_after_threads_is_replayed(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    """A fork of a process with threads may hang: the answer must then come from a process without them."""
    course.edit(
        course.source,
        "numbers = np.loadtxt",
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nnumbers = np.loadtxt",
    )
    right_in_a_fork = (
        "if threading.active_count() > 1: raise ValueError\n"
        "        self.counts[thing] = self.counts.get(thing, 0) + 1\n        return self.counts[thing]"
    )
    add_wrong(course, "whoami", right_in_a_fork)
    code, proof, said = prove(course, capsys)
    assert (code, said) == (0, "")
    assert [one["caught_by"] for one in proof["tasks"][1]["wrong"]] == [
        "Tally_test (line 92) AssertionError",
        "Tally_test (line 92) AssertionError",
        "Tally_test (line 91) KeyError",
        "Tally_test (line 91) ValueError",
    ]


def test_tasks_after_a_dead_solution_are_not_run(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks before the cell that died keep their proof; later ones are reported as not run."""
    course.edit(course.source, "# %% [markdown]\n# The end.", "# %%\npass")
    course.edit(
        course.source,
        "expect_equal(scaled([], 2).size, 0)",
        "expect_equal(scaled([], 2).size, 0)\nimport os; os._exit(3)",
    )
    code, proof, said = prove(course, capsys)
    assert code == 1
    assert "the solution stopped in scaled_test_empty: its process exited with code 3" in said
    assert "caught_by" in wrong(proof, "first_only")
    assert wrong(proof, "shared")["slip"].startswith("not run")


def _alive(marker: str) -> list[psutil.Process]:
    running = psutil.process_iter(["environ", "status"])
    return [p for p in running if marker in str(p.info["environ"]) and p.info["status"] != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_leave_no_process_behind(course: Course, tmp_path: Path, number: signal.Signals) -> None:
    """A daemon that a wrong answer put into a session of its own is ended, too."""
    started = tmp_path / "started"
    daemon = "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    add_wrong(course, "daemon", f"{daemon}; open({str(started)!r}, 'w').close(); time.sleep(600)")
    marker = f"prove-{os.getpid()}-{tmp_path.name}"
    process = subprocess.Popen(
        [*LABKIT, "prove", "--root", str(course.root), "--jobs", "2"],
        env={**os.environ, "MARKER": marker},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        _until(started.exists)
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert said.strip() == "labkit: interrupted; what was finished is kept"
    _until(lambda: not _alive(marker))


def _until(condition: Any, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_the_cell_runs_where_and_as_a_kernel_would_run_it(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    """Data beside the notebook, line and cell magics, top-level await, In and Out, getsource of a cell's function."""
    course.edit(
        course.source,
        "expect_equal(scaled([], 2).size, 0)",
        "\n".join(
            [
                "import asyncio, inspect, os, sys",
                "expect_equal(scaled([], 2).size, 0)",
                "assert 'def scaled' in inspect.getsource(scaled)",
                "await asyncio.sleep(0)",
                "assert os.listdir() == ['data'] and sys.path[0] == ''",
                "# %timeit -n 1 -r 1 -q pass",
                "assert get_ipython().run_cell_magic('capture', 'said', 'print(3)') is None and said.stdout == '3\\n'",
                "assert __name__ == '__main__' and sys.modules['__main__'].scaled is scaled",
                "assert 'import asyncio' in In[-1] and _ih is In",
            ]
        ),
    )
    code, _, said = prove(course, capsys)
    assert (code, said) == (0, "")


def test_a_lab_without_a_graded_task_is_not_proved(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.source.write_text("# %%\nx = 1\n")
    course.wrong.unlink()
    code, proof, said = prove(course, capsys)
    assert (code, proof["proved"]) == (1, False)
    assert said == "solutions/lab90_tiny/lab90_tiny.py: there is no graded task, so that nothing is proved; write one\n"


def test_a_lab_that_does_not_exist_is_one_line(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "lab12", "--root", str(course.root)]) == 2
    assert capsys.readouterr().err == "labkit: there is no lab 'lab12'; the labs are: lab90_tiny\n"
