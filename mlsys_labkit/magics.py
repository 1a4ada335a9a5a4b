"""``%load_ext mlsys_labkit``: ``%%work``, ``%%trace_memory``, ``%%cuda``, ``%%cu``, ``%%ranks`` and ``%bench``.

Each calls a plain function, which can be used outside a notebook: ``count_work(fn)``, ``trace_memory(fn)``,
``cuda.compile(source)``, ``cuda.run_program(source)``, ``ranks.run(fn, p)`` and ``bench(fn)``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsys_labkit._frontends.progress.watch import follow, leave
from mlsys_labkit._frontends.unsolved import restore, shorten
from mlsys_labkit.errors import LabkitError, require

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics with ``shell``; called by ``%load_ext mlsys_labkit``.

    Example:
        >>> from IPython.core.interactiveshell import InteractiveShell
        >>> shell = InteractiveShell()
        >>> load_ipython_extension(shell)
        >>> shell.run_line_magic("bench", "-s 0.05 sum(range(1000))").device
        'cpu'
    """
    register = shell.magics_manager.register_function
    register(lambda line, cell: work_cell(shell, line, cell), "cell", "work")
    register(lambda line, cell: trace_memory_cell(shell, line, cell), "cell", "trace_memory")
    register(lambda line, cell: cuda_cell(shell, line, cell), "cell", "cuda")
    register(cu_cell, "cell", "cu")
    register(lambda line, cell: ranks_cell(shell, line, cell), "cell", "ranks")
    register(lambda line: bench_line(shell, line), "line", "bench")
    follow(shell)  # which of a lab's checks pass, for lk.progress()
    shorten(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics from ``shell``.

    Example:
        >>> from IPython.core.interactiveshell import InteractiveShell
        >>> shell = InteractiveShell()
        >>> load_ipython_extension(shell)
        >>> unload_ipython_extension(shell)
        >>> shell.find_line_magic("bench") is None
        True
    """
    cells = ("work", "trace_memory", "cuda", "cu", "ranks")
    for kind, name in (*(("cell", cell) for cell in cells), ("line", "bench")):
        shell.magics_manager.magics[kind].pop(name, None)
    leave(shell)
    restore(shell)


def work_cell(shell: InteractiveShell, line: str, cell: str) -> Any:
    """``%%work [device]``: count the cell's FLOPs and bytes and place them on a roofline.

    numpy arrays that the cell names are counted through a wrapper while it runs, and plain again afterwards; torch is
    counted as it is.
    ``device`` is a key such as ``h100-sxm``; without it, this machine's (or ``LABKIT_DEVICE``'s) roofline serves.
    """
    from mlsys_labkit.device import detect
    from mlsys_labkit.roofline import Roofline
    from mlsys_labkit.work import counting_work
    from mlsys_labkit.work.numpy_counter import CountedArray

    key = line.strip()
    roofline = Roofline.from_spec(key) if key else Roofline.of(detect())
    space = shell.user_ns
    named = {node.id for node in ast.walk(ast.parse(shell.transform_cell(cell))) if isinstance(node, ast.Name)}
    arrays = {name: space[name] for name in named if type(space.get(name)) is np.ndarray}
    with counting_work() as counter:
        wrapped = {name: counter.wrap(array) for name, array in arrays.items()}
        space.update(wrapped)
        try:
            _run(shell, cell)
        finally:
            counted = {name: value for name, value in space.items() if isinstance(value, CountedArray)}
            for name, value in counted.items():
                space[name] = arrays[name] if value is wrapped.get(name) else value.view(np.ndarray)[()]
    return roofline.place(counter.work)


def trace_memory_cell(shell: InteractiveShell, line: str, cell: str) -> Any:
    """``%%trace_memory [name]``: the cell's live bytes over time; the trace is also kept under ``name``.

    Shown as a timeline, or as a table where there are no events or too many for one.
    """
    from mlsys_labkit import widgets
    from mlsys_labkit.memory import trace_memory

    name = line.strip()
    if name and not name.isidentifier():
        raise LabkitError(f"%%trace_memory keeps its trace under a variable name; {name!r} is not one")
    with trace_memory() as trace:
        _run(shell, cell)
    if name:
        shell.user_ns[name] = trace
    try:
        return widgets.memory_timeline(trace)
    except LabkitError:  # no event, or more than a timeline can show: the trace itself is a table
        return trace


def cuda_cell(shell: InteractiveShell, line: str, cell: str) -> None:
    """``%%cuda name [--graded] [--backend simulator|gpu] [-D SIZE=16] [kernel]``: compile the cell's CUDA C++.

    The kernel is kept under ``name``; several kernels are kept as ``name.first``, ``name.second``, unless ``kernel``
    says which one is meant, such as ``matmul<16>``. Line numbers in messages are the cell's own. If the cell does not
    compile, ``name`` holds no earlier kernel: launching it raises an error that says so. The cell prints which
    variables are used before they have a value.
    """
    from mlsys_labkit.cuda.errors import CudaCompileError
    from mlsys_labkit.cuda.kernel.absent import broken_kernel
    from mlsys_labkit.cuda.kernel.cell import compile_cell
    from mlsys_labkit.cuda.kernel.cell_line import CellLine
    from mlsys_labkit.cuda.kernel.unset_findings import unset_findings

    try:
        name, made = compile_cell(line, cell)
    except CudaCompileError:
        name = CellLine.read(line).name
        shell.user_ns[name] = broken_kernel(name, cell)
        raise
    shell.user_ns[name] = made
    for finding in unset_findings(f"\n{cell}"):  # line 1 of the source is the magic's own
        print(finding)


def cu_cell(line: str, cell: str) -> Any:
    """``%%cu [--check | --profile] [-D N=1024] [arguments]``: run the cell, a whole CUDA program with a main.

    The output is shown as it comes, and the findings or profiles after it. Line numbers in messages are the cell's own.
    """
    from mlsys_labkit.cuda.program.command import run_cell

    return run_cell(line, cell)


def ranks_cell(shell: InteractiveShell, line: str, cell: str) -> None:
    """``%%ranks 4 [name] [--backend local|gloo|nccl|auto] [--timeout 60] [--memory]``: run the cell on every rank.

    ``rank`` and ``world_size`` are defined, and each rank keeps its variables for the next cell; ``name["x"]``, or
    ``ranks.pull("x")``, is ``x`` of every rank. Line numbers in messages are the cell's own.
    """
    from mlsys_labkit.ranks.cell import run_cell

    run_cell(shell, line, cell)


def bench_line(shell: InteractiveShell, line: str) -> Any:
    """``%bench [-s SECONDS] statement``: time a statement; the median, its interval and a verdict."""
    from mlsys_labkit.timing import bench

    seconds, statement = _bench_arguments(line)
    code = compile(shell.transform_cell(statement), "<%bench>", "exec")
    space = shell.user_ns

    def run() -> None:
        exec(code, space)

    return bench(run, name=statement.strip()) if seconds is None else bench(run, name=statement, seconds=seconds)


def _bench_arguments(line: str) -> tuple[float | None, str]:
    if not line.strip():
        raise LabkitError("%bench needs a statement to time, such as: %bench a @ b")
    if line.split()[0] != "-s":
        return None, line
    try:
        _, seconds, statement = line.split(None, 2)
        return float(seconds), statement
    except ValueError:
        raise LabkitError(
            f"%bench -s takes seconds and a statement, such as: %bench -s 0.5 a @ b; you wrote {line.strip()!r}"
        ) from None


def _run(shell: InteractiveShell, cell: str) -> None:
    """Run a cell's body in the student's namespace and show its last expression, as a plain cell would."""
    tree = ast.parse(shell.transform_cell(cell))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), shell.user_ns)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), shell.user_ns)
        if value is not None:
            require("IPython.display", "labs").display(value)
