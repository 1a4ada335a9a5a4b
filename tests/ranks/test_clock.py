"""The virtual clock against times worked out by hand, alpha-beta formulas, and a second clock for blocking programs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.ranks import (
    Collective,
    Compute,
    DeadlockError,
    Event,
    Irecv,
    Isend,
    Link,
    MismatchError,
    RanksError,
    Recv,
    RunTrace,
    Send,
    Wait,
    collective_seconds,
    critical_path,
    node_links,
    pattern,
    rank_seconds,
    replay,
    simulate,
)
from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS

LINK = Link(latency_seconds=1, bytes_per_second=10)


def times(trace, rank):
    return [(event.kind, event.name, event.start_seconds, event.end_seconds) for event in trace.of(rank)]


def test_blocking_send_waits_for_its_receive():
    """10 bytes take 1 + 10/10 = 2 s, from when the later of the two has called."""
    for early, late in ((0, 3), (3, 0)):
        trace = simulate([[Compute("a", early), Send(1, 10)], [Compute("b", late), Recv(0)]], LINK)
        assert times(trace, 0) == [("compute", "a", 0, early), ("send", "send", early, 5)]
        assert times(trace, 1) == [("compute", "b", 0, late), ("recv", "recv", late, 5)]
        assert trace.backend == "simulated"
        assert trace.seconds == 5
        assert trace.received_bytes(1) == trace.sent_bytes(0) == 10
        assert trace.of(0, "send")[0].key == trace.of(1, "recv")[0].key


def test_asynchronous_send_overlaps_with_computation():
    program = [
        [Isend(1, 90, handle="x"), Compute("a", 4), Wait("x")],
        [Irecv(0, handle="y"), Compute("b", 20), Wait("y")],
    ]
    trace = simulate(program, LINK)
    assert times(trace, 0) == [("send", "send", 0, 0), ("compute", "a", 0, 4), ("wait", "send", 4, 10)]
    assert times(trace, 1)[-1] == ("wait", "recv", 20, 20)
    assert [event.asynchronous for event in trace.of(0)] == [True, False, False]


def test_port_carries_one_message_at_a_time_in_each_direction():
    """Two messages of 2 s from one rank take 4 s, two ranks' messages to one rank too; both ways at once take 2 s."""
    fan_out = simulate([[Isend(1, 10), Isend(2, 10), Wait()], [Recv(0)], [Recv(0)]], LINK)
    assert [fan_out.of(rank)[-1].end_seconds for rank in range(3)] == [4, 2, 4]
    fan_in = simulate([[Irecv(1), Irecv(2), Wait()], [Send(0, 10)], [Send(0, 10)]], LINK)
    assert [fan_in.of(rank)[-1].end_seconds for rank in range(3)] == [4, 2, 4]
    both = simulate([[Isend(1, 10), Recv(1), Wait()], [Isend(0, 10), Recv(0), Wait()]], LINK)
    assert both.seconds == 2


def test_messages_meet_in_the_order_of_their_calls_and_by_tag():
    trace = simulate(
        [
            [Isend(1, 10, tag=7), Isend(1, 20), Isend(1, 30), Wait()],
            [Recv(0), Recv(0, tag=7), Recv(0)],
        ],
        LINK,
    )
    assert [event.bytes for event in trace.of(1)] == [20, 10, 30]
    assert trace.findings == ()
    keys = [event.key for event in trace.of(0, "send")]
    assert len(set(keys)) == 3
    assert sorted(keys) == sorted(event.key for event in trace.of(1, "recv"))


def test_links_may_differ_from_pair_to_pair():
    fast, slow = Link(0, 100), Link(1, 10)
    links = node_links(2, inside=fast, between=slow)
    for given_links in (links, {(a, b): links(a, b) for a in range(4) for b in range(4)}):
        inside = simulate([[Send(1, 100)], [Recv(0)], [], []], given_links)
        between = simulate([[Send(2, 100)], [], [Recv(0)], []], given_links)
        assert (inside.seconds, between.seconds) == (1, 11)
    with pytest.raises(RanksError, match="no link from rank 0 to rank 1"):
        simulate([[Send(1, 4)], [Recv(0)]], {(1, 0): LINK})


@given(st.integers(1, 9), st.integers(0, 20), st.fractions(0, 10), st.fractions(Fraction(1, 9), 1000))
def test_collectives_take_what_the_formula_says(p, each, latency, bandwidth):
    link, n = Link(latency, bandwidth), p * each
    for name, ways in ALGORITHMS.items():
        for way in ways:
            size = 0 if name == "barrier" else n
            trace = simulate([[Compute("start", 0), Collective(name, size, algorithm=way)] for _ in range(p)], link)
            assert trace.seconds == collective_seconds(name, way, p, size, link)


@pytest.mark.parametrize("way", ["ring", "doubling", "direct"])
@pytest.mark.parametrize("p", [2, 3, 4, 7, 8])
def test_an_all_reduce_made_of_messages_takes_as_long_as_the_formula(way, p):
    """A second derivation of the time: the pattern's own messages, each sent as soon as possible."""
    n, plan = 60 * p, pattern("all_reduce", p, way)
    programs = [[] for _ in range(p)]
    for step in plan.rounds:
        for message in step:
            size = sum(plan.sizes(n)[chunk] for chunk in message.chunks)
            programs[message.source].append(Isend(message.destination, size))
            programs[message.destination].append(Irecv(message.source))
        for program in programs:
            program.append(Wait())
    trace = simulate(programs, LINK)
    assert trace.seconds == collective_seconds("all_reduce", way, p, n, LINK)
    assert trace.findings == ()
    if way == "ring":
        assert trace.seconds == 2 * (p - 1) * (1 + Fraction(n, p * 10))
        assert {trace.sent_bytes(rank) for rank in range(p)} == {2 * (p - 1) * n // p}


def test_a_collective_starts_with_its_last_member_and_goes_by_the_slowest_link():
    links = node_links(2, inside=Link(0, 100), between=Link(0, 10))
    programs = [[Compute("a", rank), Collective("all_reduce", 400)] for rank in range(4)]
    trace = simulate(programs, links)
    assert {event.end_seconds for event in trace if event.kind == "collective"} == {3 + 6 * 10}
    pair = simulate(
        [[Collective("all_reduce", 400, group=(2, 0))], [], [Collective("all_reduce", 400, group=(0, 2))]], links
    )
    assert pair.seconds == 2 * 20
    assert pair.of(0)[0].group == (0, 2)


def test_a_collective_and_a_message_share_the_ports():
    """90 bytes take 10 s; an all-reduce of 20 bytes of 2 ranks 2(1 + 1) = 4 s. Whichever begins first is first."""
    both = [Isend(1, 90), Collective("all_reduce", 20), Wait()]
    late = simulate([both, [Irecv(0), Collective("all_reduce", 20), Wait()]], LINK)
    assert late.of(0, "collective")[0].end_seconds == late.seconds == 14
    summing = Collective("all_reduce", 20, asynchronous=True)
    first = simulate([[summing, Send(1, 90), Wait()], [summing, Recv(0), Wait()]], LINK)
    assert first.of(1, "recv")[0].end_seconds == first.seconds == 14


def test_a_handle_of_several_calls_is_waited_for_in_their_order():
    trace = simulate([[Isend(1, 10, handle="x"), Isend(1, 20, handle="x"), Wait("x")], [Recv(0), Recv(0)]], LINK)
    assert [(event.bytes, event.end_seconds) for event in trace.of(0, "wait")] == [(10, 2), (20, 5)]


def test_asynchronous_all_reduce_overlaps_with_the_backward_pass():
    """Two buckets of 3 s each behind backwards of 4 s: all but the last one's time is hidden."""
    link = Link(0, 10)
    backward = [Compute("B1", 4), Collective("all_reduce", 30, asynchronous=True, handle="1"), Compute("B0", 4)]
    programs = [[*backward, Collective("all_reduce", 30, asynchronous=True, handle="0"), Wait()] for _ in range(2)]
    trace = simulate(programs, link)
    assert trace.seconds == 4 + 4 + 3
    assert [event.end_seconds for event in trace.of(0, "wait")] == [8, 11]


def test_simulate_names_the_ranks_of_a_deadlock():
    with pytest.raises(DeadlockError) as told:
        simulate([[Send(1, 4), Recv(1)], [Send(0, 4), Recv(0)]])
    assert "rank 0 waits in operation 0, send to rank 1; rank 1 waits in operation 0, send to rank 0" in str(told.value)
    with pytest.raises(DeadlockError, match=r"rank 0 waits in operation 0, recv from rank 1; rank 1 has ended"):
        simulate([[Recv(1)], [Compute("a", 1)]])
    with pytest.raises(DeadlockError, match=r"rank 1 waits in operation 1, irecv from rank 0; rank 0 has ended"):
        simulate([[], [Irecv(0, handle="x"), Wait("x")]])
    with pytest.raises(DeadlockError, match=r"rank 0 waits in operation 0, all_reduce of ranks \[0, 1\]; rank 1 waits"):
        simulate([[Collective("all_reduce", 4)], [Recv(0)]])


@pytest.mark.parametrize(
    ("programs", "says"),
    [
        ([[Send(2, 4)], []], "rank 0 names rank 2"),
        ([[Recv(-1)], []], "expected 0 to 1"),
        ([[Compute("a", -1)]], "takes -1 s; expected 0 or more"),
        ([[Compute("a", math.nan)]], "expected 0 or more"),
        ([[Compute("a", math.inf)]], "expected 0 or more"),
        ([[Wait("x")]], "rank 0 waits for 'x'"),
        ([[Collective("all_reduce", 4, group=(1,))], []], "rank 0 calls all_reduce on group"),
        ([[Collective("all_sum", 4)]], "no pattern for the collective 'all_sum'"),
        ([["compute"]], "expected an operation"),
    ],
)
def test_simulate_refuses_bad_programs(programs, says):
    with pytest.raises(RanksError, match=says):
        simulate(programs)


def test_members_of_a_group_must_call_the_same():
    with pytest.raises(MismatchError, match="rank 0 calls all_reduce of 4 B by its default, rank 1 all_reduce of 8 B"):
        simulate([[Collective("all_reduce", 4)], [Collective("all_reduce", 8)]])
    with pytest.raises(MismatchError, match="rank 1 broadcast"):
        simulate([[Collective("all_reduce", 4)], [Collective("broadcast", 4)]])


def test_link_refuses_bad_latency_and_bandwidth():
    for latency, bandwidth in ((-1, 1), (math.inf, 1), (0, 0), (0, -5), (math.nan, 1), (0, math.nan)):
        with pytest.raises(RanksError, match="a link has a latency"):
            Link(latency, bandwidth)


def test_simulate_reports_handles_that_are_never_waited_for():
    trace = simulate([[Isend(1, 4), Isend(1, 4)], [Recv(0)]], LINK)
    assert trace.findings == (
        "rank 0 never waited for its isend to rank 1",
        "rank 0 never waited for its isend to rank 1, which met no other end",
    )


# Random programs without deadlock: a list of messages and tasks in one order, of which each rank does its own.
ACTS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.integers(0, 9)),
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 50)),
    ),
    max_size=30,
)


def programs_of(acts, asynchronous):
    programs = [[] for _ in range(4)]
    for number, act in enumerate(acts):
        if len(act) == 2:
            programs[act[0]].append(Compute(f"t{number}", act[1]))
        else:
            source, to = act[0], (act[0] + act[1]) % 4
            programs[source].append(Isend(to, act[2]) if asynchronous else Send(to, act[2]))
            programs[to].append(Recv(source))
    return [[*program, Wait()] for program in programs]


@given(ACTS)
def test_simulate_agrees_with_an_independent_clock_on_blocking_programs(acts):
    now = [Fraction(0)] * 4
    for act in acts:
        if len(act) == 2:
            now[act[0]] += act[1]
        else:
            source, to = act[0], (act[0] + act[1]) % 4
            now[source] = now[to] = max(now[source], now[to]) + 1 + Fraction(act[2], 10)
    trace = simulate(programs_of(acts, asynchronous=False), LINK)
    ends = [max((event.end_seconds for event in trace.of(rank)), default=0) for rank in range(4)]
    assert ends == now


@given(ACTS, st.booleans())
def test_critical_path_is_connected_and_as_long_as_the_run(acts, asynchronous):
    """It covers the run without a gap; slow any of its tasks down by a second, and the run takes a second more."""
    programs = programs_of(acts, asynchronous)
    trace = simulate(programs, LINK)
    stretches = critical_path(trace).stretches
    assert sum(stretch.seconds for stretch in stretches) == (trace.seconds or 0)
    assert all(a.end_seconds == b.start_seconds for a, b in pairwise(stretches))
    for stretch in stretches:
        if stretch.kind == "compute" and not asynchronous:
            slow = Compute(stretch.name, stretch.seconds + 1)
            slower = [[slow if getattr(op, "name", "") == slow.name else op for op in program] for program in programs]
            assert simulate(slower, LINK).seconds >= trace.seconds + 1
    if trace.seconds:
        assert all(spent.compute + spent.calls + spent.other == trace.seconds for spent in rank_seconds(trace))
        assert all(spent.other >= 0 for spent in rank_seconds(trace))


@given(ACTS, st.booleans())
def test_replay_of_a_simulated_run_reproduces_its_times(acts, asynchronous):
    trace = simulate(programs_of(acts, asynchronous), LINK)
    assert replay(trace, LINK) == trace
    assert (replay(trace).seconds or 0) <= (trace.seconds or 0)


def test_replay_uses_the_given_compute_times():
    recorded = RunTrace(
        2,
        (
            Event(0, "compute", "F0", line=("cell", 3)),
            Event(0, "send", "isend", bytes=20, peers=(1,), key="m", asynchronous=True),
            Event(0, "wait", "isend", bytes=20, peers=(1,), key="m"),
            Event(1, "recv", "recv", bytes=20, peers=(0,), key="m"),
            Event(1, "compute", "F0"),
        ),
        "local",
    )
    clocked = replay(recorded, LINK, compute_seconds={"F0": 4})
    assert [(event.start_seconds, event.end_seconds) for event in clocked] == [(0, 4), (4, 4), (4, 7), (0, 7), (7, 11)]
    assert clocked.of(0)[0].line == ("cell", 3)
    assert replay(recorded, LINK, lambda event: 1 + event.rank).seconds == 1 + 3 + 2
    with pytest.raises(RanksError, match="no time is known for the task 'F0' of rank 0"):
        replay(recorded, LINK)
    with pytest.raises(RanksError, match="no time is known for the task 'F0'"):
        replay(recorded, LINK, compute_seconds={"B0": 1})


def test_replay_matches_messages_by_their_keys():
    """Two groups' messages with the same ends and tag, received in the other order."""
    sends = (Event(0, "send", "send", size, (1,), key=key, asynchronous=True) for key, size in (("a", 10), ("b", 20)))
    receives = (Event(1, "recv", "recv", size, (0,), key=key) for key, size in (("b", 20), ("a", 10)))
    clocked = replay(RunTrace(2, (*sends, *receives), "gloo"), LINK)
    assert [(event.key, event.end_seconds) for event in clocked.of(1)] == [("b", 3), ("a", 5)]


def test_critical_path_includes_time_outside_of_events():
    """A recorded run has gaps: 1 s before the first task, 2 s between the send and the second one."""
    events = (
        Event(0, "compute", "a", start_seconds=1, end_seconds=3),
        Event(0, "compute", "b", start_seconds=5, end_seconds=6),
        Event(1, "compute", "early", start_seconds=0, end_seconds=1),
    )
    path = critical_path(RunTrace(2, events, "gloo"))
    assert [(s.kind, s.start_seconds, s.end_seconds) for s in path.stretches] == [
        ("other", 0, 1),
        ("compute", 1, 3),
        ("other", 3, 5),
        ("compute", 5, 6),
    ]
    assert str(path) == "other (rank 0) -> a (rank 0) -> other (rank 0) -> b (rank 0)"


def test_a_message_to_oneself_takes_no_time():
    trace = simulate([[Isend(0, 50), Irecv(0), Wait(), Compute("a", 3)]], LINK)
    assert trace.seconds == 3
    with pytest.raises(DeadlockError, match="rank 0 waits in operation 0, send to rank 0"):
        simulate([[Send(0, 4), Recv(0)]])


def test_communicators_of_the_same_ranks_are_kept_apart():
    """Rank 1 calls the two in the other order: no mismatch, since each has its own tag."""
    one, two = (Collective("all_reduce", 10 * k, asynchronous=True, tag=k) for k in (1, 2))
    trace = simulate([[one, two, Wait()], [two, one, Wait()]], LINK)
    assert sorted({event.key for event in trace.of(0, "collective")}) == ["world tag 1 #0", "world tag 2 #0"]
    with pytest.raises(MismatchError):
        simulate([[Collective("all_reduce", 1), Collective("all_reduce", 2)], [Collective("all_reduce", 2)]])


def test_waiting_twice_for_a_handle_takes_no_more_time():
    trace = simulate([[Isend(1, 10, handle="x"), Wait("x"), Wait("x")], [Recv(0)]], LINK)
    assert [(event.start_seconds, event.end_seconds) for event in trace.of(0, "wait")] == [(0, 2), (2, 2)]


def test_critical_path_changes_rank_to_the_last_caller():
    trace = simulate([[Compute("long", 9), Send(1, 10)], [Compute("short", 1), Recv(0), Compute("end", 1)]], LINK)
    path = critical_path(trace)
    assert [(s.kind, s.rank, s.name) for s in path.stretches] == [
        ("compute", 0, "long"),
        ("message", 0, "recv"),
        ("compute", 1, "end"),
    ]
    assert (path.of("compute"), path.of("message")) == (10, 2)
