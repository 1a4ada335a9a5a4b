"""Functions that are pickled by value keep the file of their code, whatever cloudpickle does with it."""

from __future__ import annotations

import pickle
from types import CodeType
from typing import Any

import cloudpickle
import pytest

from mlsys_labkit.ranks import by_value
from mlsys_labkit.ranks.processes.channel import pack, unpack


@pytest.fixture(autouse=True)
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cloudpickle replace the files of code, as its release 3.1.3 does."""
    plain = cloudpickle.Pickler.dispatch_table[CodeType]

    def reduce(code: CodeType) -> Any:
        make, arguments = plain(code)
        return make, tuple("<dynamic-code>" if each == code.co_filename else each for each in arguments)

    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table.maps[0], CodeType, reduce)


def made() -> Any:
    space: dict[str, Any] = {}
    exec(compile("def outer():\n    return lambda: 1", "notebook cell 3", "exec"), {"__name__": "__main__"}, space)
    return space["outer"]


def test_the_stand_in_for_cloudpickle_loses_the_file() -> None:
    assert pickle.loads(cloudpickle.dumps(made())).__code__.co_filename == "<dynamic-code>"


def test_functions_and_those_that_they_make_keep_their_file() -> None:
    for arrived in (pickle.loads(by_value.dumps(made())), unpack(pack(made(), "returned"))):
        assert arrived.__code__.co_filename == "notebook cell 3"
        assert arrived().__code__.co_filename == "notebook cell 3"
