"""A cell's name in messages is the one that the notebook shows, whatever IPython calls it inside."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from mlsys_labkit._base.cells import cell_label, cell_number

NAMES = ["def where():\n    import sys\n    return sys._getframe().f_code.co_filename", "1 + 1", "found = where()"]


@pytest.fixture
def shell() -> InteractiveShell:
    shell = InteractiveShell()
    for source in NAMES:
        shell.run_cell(source, store_history=True)
    return shell


def test_a_cell_is_called_by_the_number_that_the_notebook_shows(shell: InteractiveShell) -> None:
    assert cell_number(shell.user_ns["found"], shell) == 1


class OldCompiler:
    """A compiler like IPython 7's, which names a cell and does not keep the name."""

    def get_code_name(self, raw: str, parsed: str, number: int) -> str:
        return f"<ipython-input-{number}-{hash(parsed)}>"


def test_cell_number_works_without_ipythons_table_of_names() -> None:
    history = SimpleNamespace(input_hist_raw=["", *NAMES], input_hist_parsed=["", *NAMES])
    shell = SimpleNamespace(compile=OldCompiler(), history_manager=history)
    assert cell_number(f"<ipython-input-2-{hash(NAMES[1])}>", shell) == 2
    assert cell_number("/home/ada/train.py", shell) is None


@pytest.mark.parametrize("name", ["train.py", "<string>", ""])
def test_cell_number_of_another_file_is_none(shell: InteractiveShell, name: str) -> None:
    assert cell_number(name, shell) is None
    assert cell_label(name) == ""
