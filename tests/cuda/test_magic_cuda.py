"""``%%cuda`` in a real shell: names, options, unsolved cells, and errors on the cell's own lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from mlsys_labkit import cuda
from mlsys_labkit.checks import graded_kernel
from mlsys_labkit.cuda.source.stub import CPP_STUB
from mlsys_labkit.magics import load_ipython_extension, unload_ipython_extension

SCALE = "__global__ void scale(float* x)\n{\n    x[threadIdx.x] *= FACTOR;\n}\n"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    running = InteractiveShell()
    load_ipython_extension(running)
    yield running
    unload_ipython_extension(running)


def run(shell: InteractiveShell, line: str, cell: str) -> Any:
    shell.run_cell_magic("cuda", line, cell)
    return shell.user_ns[line.split()[0]]


def test_a_kernel_gets_its_name(shell: InteractiveShell) -> None:
    kernel = run(shell, "mine -D FACTOR=3", SCALE)
    x = np.arange(4, dtype=np.float32)
    kernel[1, 4](x)
    np.testing.assert_array_equal(x, [0, 3, 6, 9])
    assert (kernel.name, repr(kernel)) == ("scale", "<kernel scale on the simulator>")


def test_a_template_s_instance(shell: InteractiveShell) -> None:
    cell = "template <typename T, int N> __global__ void fill(T* x) { x[threadIdx.x] = N; }"
    kernel = run(shell, "mine --backend simulator fill<float, 7>", cell)
    x = np.zeros(2, np.float32)
    kernel[1, 2](x)
    np.testing.assert_array_equal(x, [7, 7])


def test_several_kernels_are_a_namespace(shell: InteractiveShell) -> None:
    cell = "__global__ void one(int* x) { *x = 1; }\n__global__ void two(int* x) { *x = 2; }"
    kernels = run(shell, "mine", cell)
    x = np.zeros(1, np.int32)
    kernels.two[1, 1](x)
    assert x[0] == 2
    assert list(kernels) == ["one", "two"]
    assert {"one", "two"} <= set(dir(kernels))
    with pytest.raises(AttributeError, match="there are: one, two"):
        _ = kernels.three
    assert run(shell, "mine one", cell).name == "one"


def test_one_behind_an_ifdef_is_left_out(shell: InteractiveShell) -> None:
    cell = "__global__ void one(int* x) { *x = 1; }\n#ifdef NEVER\n__global__ void two(int* x) { *x = 2; }\n#endif"
    assert list(run(shell, "mine", cell)) == ["one"]


def test_authors_markers_are_no_cpp(shell: InteractiveShell) -> None:
    for marker in ("### {} SOLUTION", "// {} SOLUTION", "# {} SOLUTION", "/// ### {} SOLUTION"):
        begin, end = (f"    {marker.format(word)}\n" for word in ("BEGIN", "END"))
        cell = SCALE.replace("    x[", begin + "    x[").replace("FACTOR;\n", "FACTOR;\n" + end)
        assert run(shell, "mine -D FACTOR=2", cell).name == "scale"


@pytest.mark.parametrize("stub", [CPP_STUB, "# YOUR CODE HERE\nraise NotImplementedError()"])
def test_an_unsolved_cell_raises_when_it_is_launched(shell: InteractiveShell, stub: str) -> None:
    cell = f"__global__ void scale(float* x)\n{{\n{stub}\n}}\n"
    kernel = run(shell, "mine --graded", cell)
    assert kernel.source
    x = np.zeros(4, np.float32)
    for launch in (kernel[1, 4], kernel.check[1, 4], kernel.profile[1, 4], kernel.seeded(2)[1, 4], kernel.other[1, 4]):
        with pytest.raises(NotImplementedError, match="is not written yet: line 5 of its cell"):
            launch(x)
    with pytest.raises(NotImplementedError):
        kernel.resources("sm_90")
    run(shell, "mine -D FACTOR=2", SCALE)[1, 4](x)


def test_a_cell_that_does_not_compile_leaves_no_earlier_kernel(shell: InteractiveShell) -> None:
    """Otherwise the tests would run the earlier kernel and pass."""
    run(shell, "mine -D FACTOR=2", SCALE)
    with pytest.raises(cuda.CudaCompileError):
        shell.run_cell_magic("cuda", "mine", SCALE)
    kernel, x = shell.user_ns["mine"], np.ones(4, np.float32)
    for attempt in (lambda: kernel[1, 4](x), lambda: kernel.scale.check[1, 4](x), lambda: graded_kernel(kernel)):
        with pytest.raises(cuda.CudaCompileError, match="did not compile: mend what its cell complains of"):
            attempt()
    assert repr(kernel) == "<kernel mine, did not compile>"
    run(shell, "mine -D FACTOR=2", SCALE)[1, 4](x)
    np.testing.assert_array_equal(x, [2, 2, 2, 2])


def test_errors_stand_on_the_cell_s_lines(shell: InteractiveShell) -> None:
    with pytest.raises(cuda.CudaCompileError) as caught:
        run(shell, "mine", SCALE)
    assert caught.value.diagnostics[0].line == 4  # the magic's own line is the first
    assert caught.value.diagnostics[0].source_line == "    x[threadIdx.x] *= FACTOR;"


def test_profiles_stand_on_the_cell_s_lines(shell: InteractiveShell) -> None:
    kernel = run(shell, "mine -D FACTOR=2", SCALE)
    x = np.ones(4, np.float32)
    assert {count.line for count in kernel.profile[1, 4](x).lines if count.space} == {4}
    assert kernel.check[1, 8](x)[0].line == 4


def test_what_a_reader_sees_of_an_error(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%%cuda mine\n" + SCALE)
    said = capsys.readouterr()
    assert "line 4:" in said.out + said.err
    assert "run_cell_magic" not in said.out + said.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "write %%cuda name"),
        ("3x", "'3x' is no variable name"),
        ("mine --grade", "--grade"),
        ("a --backend tpu", "tpu"),
    ],
)
def test_a_line_that_cannot_be_read(shell: InteractiveShell, line: str, said: str) -> None:
    with pytest.raises(cuda.CudaError) as caught:
        shell.run_cell_magic("cuda", line, SCALE)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_graded_cells_follow_the_rules(shell: InteractiveShell) -> None:
    cell = SCALE.replace("FACTOR", "2").replace("{\n", '{\n    asm("nop");\n')
    with pytest.raises(cuda.CudaCompileError, match="graded"):
        run(shell, "mine --graded", cell)
    assert run(shell, "mine", cell).name == "scale"


def test_a_cell_says_which_variable_has_no_value(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, "mine", "__global__ void total(float* y)\n{\n    float sum;\n    sum += 1;\n    *y = sum;\n}\n")
    said = capsys.readouterr().out
    assert "sum is used in total before it has a value" in said
    assert "line 5: sum += 1;" in said
    run(shell, "mine", SCALE.replace("FACTOR", "2"))
    assert capsys.readouterr().out == ""
