"""Tests of branches and of values that end with a turn or a branch: the interpreter beside Triton's own compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlsys_labkit.triton_trace import TritonKernelError, compile_for, trace
from mlsys_labkit.triton_trace.errors import TritonCompileError
from tests.triton import branches, refused_branches as refused
from tests.triton.branches import ACCEPTED, ONE

_NO_VALUE = r"has no value here: Triton's compiler forgets"
REFUSED = {
    refused.number_or_block: r"v is a block of shape \[8\] of tl\.float32 in the first branch of the if and one tl",
    refused.block_or_number: r"give it one shape in both, as tl\.zeros\(\[8\], tl\.float32\) has it",
    refused.whole_or_float: r"v is one tl\.int32 in the first .* second; .* one of them, as \.to\(tl\.float32\)",
    refused.whole_before: r"v is one tl\.int32 before the if and one tl\.float32 after its first branch; .*: begin",
    refused.whole_before_and_not_taken: r"or convert in the branch: \.to\(tl\.int32\)",
    refused.half_or_single: r"begin with tl\.float16, or convert in the branch: \.to\(tl\.float32\)",
    refused.small_or_large_shape: r"v is a block of shape \[8\] .* and a block of shape \[16\]",
    refused.integer_widths: r"k is one tl\.int64 .* and one tl\.int32 in the second",
    refused.last_of_a_chain: r"v is one tl\.float32 .* and one tl\.int32 in the second",
    refused.inside_the_other_branch: r"give v that shape before the if, as tl\.zeros\(\[8\], tl\.float32\) has it",
    refused.loop_in_the_other_branch: r"v is one tl\.int32 before the loop and one tl\.float32 after a turn",
    refused.returns_with_another_type: r"v is one tl\.int32 before the if",
    refused.constant_is_assigned: r"B is a constant of the compiler, and a branch",
    refused.constants_differ: rf"half {_NO_VALUE}",
    refused.one_branch_only: rf"v {_NO_VALUE}",
    refused.none_before: rf"v {_NO_VALUE}",
    refused.none_or_number: r"v is one tl\.float32 in the first branch of the if and a NoneType in the second",
    refused.tuples_differ: r"pair is \(one tl\.int32, one tl\.int32\) .* and \(one tl\.int32, one tl\.float32\) in",
    refused.expression_differs: r"this expression is one tl\.float32 before its if and one tl\.int32 after its else",
    refused.expression_of_block_and_number: r"this expression is a block of shape \[8\] of tl\.float32 before its if",
    refused.helper_differs: r"v is one tl\.float32 .* \[if flag:\]",
    refused.helper_differs_for_one_type: r"w is one tl\.float32 .* and one tl\.int32",
    refused.program_decides: r"v is one tl\.float32",
    refused.pointers_differ: r"p is one pointer before the if and a block of shape \[8\] of pointers",
    refused.assigned_number_one: r"v is one tl\.float32",
    refused.first_assigned_in_a_loop: rf"v {_NO_VALUE}",
    refused.begins_in_the_first_turn: rf"v {_NO_VALUE}",
    refused.loops_of_two_widths: r"k is one tl\.int64 .* and one tl\.int32",
    refused.unrolled_loop: r"t is one tl\.float32 before the if",
    refused.return_differs: r"this return is one tl\.float32 and another one is a block of shape \[8\] of tl\.float32",
    refused.third_return_differs: r"this return is one tl\.float32 and another one is one tl\.int32",
    refused.return_in_a_loop: r"a return in a loop; Triton's compiler refuses that: put the condition into while",
}
FORMS = [(kernel, 3) for kernel in ACCEPTED] + [(kernel, 1) for kernel in ONE]


def launch(how: Any, n: int = 3) -> Any:
    return how(np.ones(64, np.float32), np.zeros(64, np.float32), n, B=8)


def compiler(kernel: Any) -> Any:
    return lambda *args, **meta: compile_for(kernel, "sm_90", *args, **meta)


def test_interpreter_runs_the_branches_that_triton_compiles() -> None:
    for kernel, n in FORMS:
        errors = [one for one in launch(trace(kernel)[1,], n).findings if one.severity == "error"]
        assert not errors, f"{kernel.__name__}: {errors[0]}"


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_interpreter_refuses_branches_by_line(kernel: Any) -> None:
    with pytest.raises(TritonKernelError, match=REFUSED[kernel]) as caught:
        launch(trace(kernel)[1,])
    assert caught.value.place in ("branches.py", "refused_branches.py")
    assert caught.value.line
    assert "\n" not in str(caught.value)


def test_refusals_cover_every_kernel_of_the_list() -> None:
    jitted = {**vars(branches), **vars(refused)}.values()
    kernels = {one.__name__ for one in jitted if getattr(one, "arg_names", ())[:4] == ["x", "out", "n", "B"]}
    assert {one.__name__ for one in (*REFUSED, *ACCEPTED, *ONE)} == kernels


def test_argument_of_one_is_no_constant_where_others_are_given() -> None:
    for kernel in ONE:
        with pytest.raises(TritonKernelError, match="in the first branch of the if"):
            launch(trace(kernel)[1,], 3)


def test_trial_of_a_branch_leaves_no_trace() -> None:
    """The branch that is not taken stores, prints and asserts far outside the arrays."""
    traced = launch(trace(branches.other_branch_goes_far)[1,])
    assert (traced.arrays["out"].stored_bytes, traced.arrays["x"].loaded_bytes) == (32, 32)
    assert (traced.output, traced.work.flops) == ("", 0)


@pytest.mark.soak
@pytest.mark.parametrize(("kernel", "n"), FORMS, ids=lambda one: getattr(one, "__name__", None))
def test_compiler_accepts_what_the_interpreter_runs(kernel: Any, n: int) -> None:
    assert launch(compiler(kernel), n).registers


@pytest.mark.soak
@pytest.mark.parametrize("kernel", [*REFUSED, *ONE], ids=lambda kernel: kernel.__name__)
def test_compiler_refuses_what_the_interpreter_refuses(kernel: Any) -> None:
    with pytest.raises(TritonCompileError):
        launch(compiler(kernel))
