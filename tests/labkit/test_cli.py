"""The ``labkit`` command: one clear line and an exit code for everything that goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_labkit._frontends import cli, doctor
from mlsys_labkit.errors import LabkitError

LABKIT = Path(sys.executable).parent / "labkit"


def verb(action):
    """Return the entry points of one fake verb, named ``act``."""

    class Point:
        name = "act"

        def load(self):
            return lambda verbs: verbs.add_parser("act").set_defaults(run=action)

    return [Point()]


def raising(error: BaseException):
    def run(_: object) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (LabkitError("expected 3, got 4; do this"), 2, "labkit: expected 3, got 4; do this"),
        (KeyboardInterrupt(), 130, "labkit: interrupted; what was finished is kept"),
        (
            OSError(28, "No space left on device", "/full/x"),
            2,
            "labkit: No space left on device: /full/x",
        ),
    ],
)
def test_command_errors_are_one_line(monkeypatch, capsys, error, code, line) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda group: verb(raising(error)))
    assert cli.main(["act"]) == code
    assert capsys.readouterr().err.strip() == line


def test_verb_of_two_words_is_chosen_before_the_verb_of_its_first_word(monkeypatch) -> None:
    class Point:
        name = "hub"

        def load(self):
            def add(verbs) -> None:
                for name in ("hub", "hub backup"):
                    parser = verbs.add_parser(name)
                    parser.add_argument("file", nargs="?")
                    parser.set_defaults(run=lambda arguments, name=name: calls.append((name, arguments.file)))

            return add

    calls: list[tuple[str, str | None]] = []
    monkeypatch.setattr(cli, "entry_points", lambda group: [Point()])
    for words in (["hub"], ["hub", "hub.toml"], ["hub", "backup"], ["hub", "backup", "hub.toml"]):
        assert cli.main(words) == 0
    assert calls == [("hub", None), ("hub", "hub.toml"), ("hub backup", None), ("hub backup", "hub.toml")]


def test_command_without_one_of_its_verbs_keeps_the_others(monkeypatch, capsys) -> None:
    class Broken:
        name = "act"

        def load(self) -> None:
            raise ImportError("no nbgrader")

    monkeypatch.setattr(cli, "entry_points", lambda group: [Broken()])
    assert cli.main(["act", "--anything"]) == 2
    assert "'act' could not be loaded (no nbgrader)" in capsys.readouterr().err
    assert cli.main([]) == 0


def test_help_lists_every_verb() -> None:
    done = subprocess.run([LABKIT, "--help"], capture_output=True, text=True, check=True)
    for name in ("doctor", "build", "run", "prove"):
        assert name in done.stdout
    assert "not available" not in done.stdout


def test_doctor_json_and_text_agree(capsys) -> None:
    code = cli.main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["ready"] == (code == 0)
    names = {finding["name"] for finding in told["findings"]}
    assert {"python", "numpy", "torch", "cores", "memory", "device", "c++ compiler"} <= names
    cli.main(["doctor"])
    text = capsys.readouterr().out
    assert all(name in text for name in names)


def test_doctor_reports_how_to_fix_each_finding(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", (("no-such-package", "everything", "widgets", True),))
    finding = next(finding for finding in doctor.examine() if finding.name == "no-such-package")
    assert (finding.status, finding.mend) == ("broken", "pip install 'mlsys-labkit[widgets]'")


def test_doctor_survives_a_failing_check(monkeypatch) -> None:
    def gpu() -> None:
        raise RuntimeError("driver gone")

    monkeypatch.setattr(doctor, "_gpu", gpu)
    assert any(finding.status == "broken" and "driver gone" in finding.detail for finding in doctor.examine())


def test_doctor_says_when_free_memory_cannot_be_read(monkeypatch) -> None:
    monkeypatch.setattr("mlsys_labkit._base.limits.memory_free_bytes", lambda: None)  # macOS without psutil
    finding = next(finding for finding in doctor.examine() if finding.name == "memory")
    assert (finding.status, finding.mend) == ("absent", "pip install psutil to see it")


def test_doctor_without_a_compiler_says_which_labs_need_it(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    findings = {finding.name: finding for finding in doctor.examine()}
    found = findings["c++ compiler"]
    assert (found.status, "g++ 12 or newer" in found.detail, "install g++" in found.mend) == ("absent", True, True)
    assert doctor.report([found]).endswith(
        "Ready, except for the labs with CUDA kernels (03, 04, 09 and 10): they need the compiler."
    )
