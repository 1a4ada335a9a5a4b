"""Pipeline schedules against closed formulas, and against torch.distributed.pipelining's own tables."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.ranks import (
    DeadlockError,
    Event,
    Link,
    PipelineStep,
    RanksError,
    RunTrace,
    bubble,
    bubble_fraction,
    critical_path,
    live_micro_batches,
    pipeline_programs,
    schedule,
    simulate,
)


def run(name, p, m, *, v=1, link=None, **given):
    return simulate(pipeline_programs(schedule(name, p, m, chunks=v), **given), link or Link())


@pytest.mark.parametrize("m", [4, 8, 16])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_of_four_stages_is_exact(name, m):
    assert bubble_fraction(run(name, 4, m)) == Fraction(4 - 1, m + 4 - 1)
    assert bubble_fraction(run(name, 4, m, forward_seconds=1.0, backward_seconds=2.0)) == 1 - m / (m + 3)


TIMES = st.fractions(Fraction(1, 7), 5, max_denominator=12)


@given(st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 9), st.integers(1, 20), TIMES, TIMES)
def test_the_bubble_is_p_minus_1_over_m_plus_p_minus_1(name, p, m, forward, backward):
    trace = run(name, p, m, forward_seconds=forward, backward_seconds=backward)
    assert bubble_fraction(trace) == Fraction(p - 1, m + p - 1) == bubble(name, p, m)
    assert trace.seconds == (m + p - 1) * (forward + backward)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), TIMES, TIMES)
def test_interleaving_divides_the_bubble_by_the_chunks(p, groups, v, forward, backward):
    m, times = p * groups, {"forward_seconds": forward, "backward_seconds": backward}
    trace = run("interleaved", p, m, v=v, **times)
    idle = trace.seconds - m * (forward + backward)
    assert idle * v == (p - 1) * (forward + backward)
    assert bubble_fraction(trace) == bubble("interleaved", p, m, chunks=v, **times)


@given(st.integers(1, 7), st.integers(0, 8), TIMES, TIMES, st.fractions(0, 1, max_denominator=8))
def test_a_split_backward_leaves_a_bubble_of_f_plus_b_less_w(p, more, forward, inputs, share):
    """ZB-H1 of Qi et al., table 2: (p - 1)(F + B - W), B and W being the two parts of the backward; here W <= F."""
    m, weight = p + more, forward * share
    times = {"forward_seconds": forward, "backward_seconds": inputs + weight, "weight_seconds": weight}
    trace = run("zero_bubble", p, m, **times)
    if weight <= inputs:
        assert trace.seconds == m * (forward + inputs + weight) + (p - 1) * (forward + inputs - weight)
        assert bubble_fraction(trace) == bubble("zero_bubble", p, m, **times)


@given(
    st.sampled_from([("gpipe", 1), ("1f1b", 1), ("zero_bubble", 1), ("interleaved", 2)]),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_peaks_of_live_activations(kind, p, groups):
    """GPipe holds all; 1F1B of stage s at most p - s, and so does ZB-H1's first stage; a trace tells the same."""
    name, v = kind
    m = p * groups
    plan = schedule(name, p, m, chunks=v)
    peaks = tuple(map(plan.peak, range(p)))
    assert live_micro_batches(simulate(pipeline_programs(plan))) == peaks
    if name == "gpipe":
        assert peaks == (m,) * p
    if name == "1f1b":
        assert peaks == tuple(min(m, p - stage) for stage in range(p))
    if name == "zero_bubble":
        assert max(peaks) <= p, "no more than 1F1B's worst stage: what ZB-H1 promises"


def torch_order(kind, p, m, v=1):
    """Return torch's table of a schedule in our steps: torch's stage index counts chunks of all ranks."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    maker = getattr(schedules, kind)
    if hasattr(maker, "_calculate_single_rank_operations"):
        rounds = max(1, m // p)
        self = SimpleNamespace(
            n_local_stages=v,
            pp_group_size=p,
            _n_microbatches=m,
            number_of_rounds=rounds,
            microbatches_per_round=m // rounds,
        )
        rows = [maker._calculate_single_rank_operations(self, rank) for rank in range(p)]
    elif hasattr(maker, "_get_pipeline_order"):
        order = maker._get_pipeline_order(SimpleNamespace(_num_stages=p, _n_microbatches=m))
        rows = [order[rank] for rank in range(p)]
    else:
        pytest.skip(f"this torch has no table of {kind}")
    kinds = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
    return tuple(
        tuple(
            PipelineStep(kinds[action.computation_type.name], action.microbatch_index, action.stage_index // p)
            for action in row
            if action is not None and action.computation_type.name in kinds
        )
        for row in rows
    )


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 4, 3), (3, 6, 1 + 1), (8, 16, 4)])
def test_interleaved_is_the_order_of_torch(p, m, v):
    assert schedule("interleaved", p, m, chunks=v).steps == torch_order("ScheduleInterleaved1F1B", p, m, v)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (4, 8), (4, 16), (8, 16)])
def test_zero_bubble_and_1f1b_are_the_order_of_torch(p, m):
    order = torch_order("ScheduleInterleavedZeroBubble", p, m)
    assert schedule("zero_bubble", p, m).steps == order
    without = tuple(tuple(step for step in row if step.kind != "W") for row in order)
    assert schedule("1f1b", p, m).steps == without, "the same warm-up, the same turns"


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (4, 7)])
def test_gpipe_is_the_order_of_torch(p, m):
    assert schedule("gpipe", p, m).steps == torch_order("ScheduleGPipe", p, m)


def test_prefetching_hides_part_of_the_message_time():
    """One micro-batch, nothing to hide behind: 2(p-1) messages more. Many: between free and every message in turn."""
    link = Link(latency_seconds=1, bytes_per_second=1000)
    assert run("1f1b", 4, 1, message_bytes=1000, link=link).seconds == 4 * 3 + 2 * 3 * 2
    free = run("1f1b", 4, 16).seconds
    early = run("1f1b", 4, 16, message_bytes=1000, link=link).seconds
    late = run("1f1b", 4, 16, message_bytes=1000, link=link, prefetch=False).seconds
    assert free < early < late


def test_a_run_of_traffic_is_two_messages_a_micro_batch_and_boundary():
    trace = run("1f1b", 4, 8, message_bytes=100)
    assert [(edge.source, edge.destination, edge.messages, edge.bytes) for edge in trace.edges] == [
        (a, b, 8, 800) for a in range(4) for b in range(4) if abs(a - b) == 1
    ]
    assert trace.findings == ()
    wrapped = run("interleaved", 4, 8, v=2, message_bytes=100)
    assert {(edge.source, edge.destination): edge.messages for edge in wrapped.edges}[3, 0] == 8


def test_the_critical_path_of_a_pipeline_leads_through_all_stages():
    path = critical_path(run("gpipe", 3, 2))
    assert path.seconds == path.of("compute") == (2 + 3 - 1) * 3
    assert {stretch.rank for stretch in path.stretches} == {0, 1, 2}
    assert path.stretches[0].name == "F0"


def test_pipeline_programs_refuse_incomplete_or_disordered_steps():
    for rows, says in [
        ([["F0", "B0"], ["F0"]], "stage 1 has B0 0 times"),
        ([["F0", "B0", "F0"]], "stage 0 has F0 2 times"),
        ([["B0", "F0"]], "stage 0 has its steps F0, B0 in another order"),
        ([["F0", "C0"]], 'expected a step such as "F0"'),
        ([[("F", 0)]], "expected a step such as"),
        ([[], []], "at least one step"),
        ([], "at least one step"),
    ]:
        with pytest.raises(RanksError, match=says):
            pipeline_programs(rows)
    with pytest.raises(DeadlockError, match="rank 0 waits"):
        simulate(pipeline_programs([["F0", "B0", "F1", "B1"], ["F1", "F0", "B1", "B0"]]))


def test_schedule_refuses_bad_arguments():
    for call, says in [
        (lambda: schedule("pipedream", 4, 8), "expected a schedule of gpipe, 1f1b"),
        (lambda: schedule("gpipe", 0, 8), "got 0 stages"),
        (lambda: schedule("1f1b", 4, 8, chunks=2), "1f1b has one chunk a stage"),
        (lambda: schedule("interleaved", 4, 6, chunks=2), "a multiple of 4 micro-batches, got 6"),
        (lambda: bubble("pipedream", 4, 8), "expected a schedule of"),
        (lambda: bubble("1f1b", 0, 8), "got 0 stages"),
        (lambda: bubble("gpipe", 4, 8, chunks=2), "gpipe has one chunk a stage"),
        (lambda: bubble("interleaved", 4, 6, chunks=2), "a multiple of 4 micro-batches, got 6"),
        (lambda: bubble("gpipe", 4, 8, forward_seconds=0, backward_seconds=0), "not both 0"),
        (lambda: bubble_fraction(RunTrace(1, (Event(0, "compute", "F0"),), "local")), "has no times"),
        (lambda: bubble_fraction(RunTrace(1, (), "local")), "took none"),
    ]:
        with pytest.raises(RanksError, match=says):
            call()


def test_bubble_of_32_stages_and_128_micro_batches_is_the_formula():
    assert bubble_fraction(run("1f1b", 32, 128)) == Fraction(31, 128 + 31)
