"""Hints appear one at a time, predictions reveal the answer once committed, pictures wait for their task."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsys_labkit import coach
from mlsys_labkit.coach import hints, notes, predictions
from mlsys_labkit.errors import LabkitError

GOOD = """
[slice_rows]
question = "How many bytes move?"
options = ["none", "all", "half"]
answer = 0
because = "A view moves nothing."
hints = ["Think of the header.", "Only the offset changes.", "offset + start * strides[0]"]
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "lab99_test.toml"
    file.write_text(GOOD)
    monkeypatch.setattr(notes, "all_notes", lambda: {note.task: note for note in notes.read_notes(file)})
    hints._taken.clear()
    return file


@pytest.mark.usefixtures("written")
def test_ladder_climbs_and_stays_on_the_last_rung() -> None:
    assert [coach.hint("slice_rows").rung for _ in range(5)] == [1, 2, 3, 3, 3]
    assert coach.hint("slice_rows", 1).text == "Think of the header."
    assert hints.taken("slice_rows") == 3
    assert "last hint" in str(coach.hint("slice_rows", 3))
    hints._taken.clear()
    coach.hint("slice_rows", 2)
    assert hints.taken("slice_rows") == 2, "a hint that was asked for by its number has been taken as well"
    assert all("Hints cost no marks." in str(coach.hint("slice_rows", rung)) for rung in (1, 2, 3))
    with pytest.raises(LabkitError, match="has hints 1 to 3; you asked for 4"):
        coach.hint("slice_rows", 4)


@pytest.mark.usefixtures("written")
def test_unknown_task_names_the_nearest() -> None:
    with pytest.raises(LabkitError, match="no task called 'slice_row'; the nearest names are: slice_rows"):
        coach.hint("slice_row")


@pytest.mark.usefixtures("written")
def test_committing_reveals_the_answer() -> None:
    right, wrong = coach.predict("slice_rows", "a"), coach.predict("slice_rows", "C")
    assert (right.right, wrong.right) == (True, False)
    assert str(wrong) == "You predicted: half. It is: none.\nA view moves nothing."
    with pytest.raises(LabkitError, match="choose one of a, b, c"):
        coach.predict("slice_rows", "d")


@pytest.mark.usefixtures("written")
def test_running_the_cell_again_keeps_the_commitment() -> None:
    card = coach.predict("slice_rows", again=True)
    assert card.choice is None
    card.choice = 2  # what the Commit button sends
    assert coach.predict("slice_rows").choice == 2
    coach.predict("slice_rows", "a")
    assert coach.predict("slice_rows").choice == 0
    assert coach.predict("slice_rows", again=True).choice is None


@pytest.mark.usefixtures("written")
def test_a_choice_is_kept_by_the_option_and_not_by_its_number() -> None:
    kept: dict[str, str | None] = {}
    predictions.keep_with(kept.__setitem__)
    try:
        coach.predict("slice_rows", again=True).choice = 1
        assert kept == {"slice_rows": "all"}
        coach.predict("slice_rows", again=True)
        assert kept == {"slice_rows": None}
        predictions.restore("slice_rows", "HALF", str.upper)
        assert coach.predict("slice_rows").choice == 2
        predictions.restore("slice_rows", "ALL", str.upper)
        assert coach.predict("slice_rows").choice == 2, "the choice of this kernel stays"
        coach.predict("slice_rows", again=True)
        predictions.restore("slice_rows", "an option of another release", str)
        assert coach.predict("slice_rows").choice is None
        predictions.restore("a task of another release", "all", str)
    finally:
        predictions.forget(kept.__setitem__)
        predictions._committed.clear()


@pytest.mark.usefixtures("written")
def test_the_card_asks_without_waiting() -> None:
    assert "How many bytes move?" in coach.predict("slice_rows")._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("answer = 0", "answer = 3"), "answer = 3, but its options are numbered 0 to 2"),
        (("because", "becuase"), "has unknown keys ['becuase']"),
        (('because = "A view moves nothing."\n', ""), "asks a question but lacks ['because']"),
        (('"Think of the header.", ', '"Think of the header.", "x", '), "has 4 hints"),
        (("[slice_rows]", "[slice_rows"), "not valid TOML"),
    ],
)
def test_a_bad_note_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = tmp_path / "lab99_test.toml"
    file.write_text(GOOD.replace(*change))
    with pytest.raises(LabkitError) as raised:
        notes.read_notes(file)
    assert message in str(raised.value)
    assert "lab99_test.toml" in str(raised.value)


def test_every_shipped_note_reads() -> None:
    assert all(one.hints or one.question for one in notes.all_notes().values())


def test_picture_waits_for_an_unsolved_task_only(capsys: pytest.CaptureFixture[str]) -> None:
    def slice_view() -> None:
        raise NotImplementedError

    with coach.picture("strides"):
        slice_view()
    assert capsys.readouterr().out.strip() == "[strides: drawn once slice_view is solved]"
    with pytest.raises(ZeroDivisionError), coach.picture("strides"):
        1 / 0  # noqa: B018


def test_picture_waits_for_an_unsolved_task_on_another_rank(capsys: pytest.CaptureFixture[str]) -> None:
    with coach.picture("messages"):
        try:
            raise NotImplementedError
        except NotImplementedError as error:
            raise LabkitError("rank 2 raised NotImplementedError") from error
    assert capsys.readouterr().out.strip() == "[messages: drawn once the task above is solved]"
    with pytest.raises(LabkitError, match="rank 2"), coach.picture("messages"):
        raise LabkitError("rank 2 raised ValueError") from ValueError()
