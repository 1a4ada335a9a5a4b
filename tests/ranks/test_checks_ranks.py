"""``checks.expect_messages`` on traces written by hand, ``checks.run_ranks`` on ranks that go wrong in every way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, strategies as st

from mlsys_labkit import checks, ranks
from mlsys_labkit.checks import CheckError, ImpossibleCountError
from mlsys_labkit.ranks import Event, RunTrace

Message = tuple[int, int, int]  # from, to, bytes


def trace_of(p: int, messages: Sequence[Message], findings: tuple[str, ...] = ()) -> RunTrace:
    """Build a trace of blocking messages, one after another."""
    events: list[Event] = []
    for number, (source, to, size) in enumerate(messages):
        key, line = f"#{number}", ("lab.py", 10 + source)
        events.append(Event(source, "send", "send", size, (to,), key=key, line=line, source="dist.send(x, to)"))
        events.append(Event(to, "recv", "recv", size, (source,), key=key, line=line, source="dist.recv(x, source)"))
    return RunTrace(p, tuple(sorted(events, key=lambda event: event.rank)), "local", findings)


def collective(rank: int, name: str, p: int) -> Event:
    return Event(rank, "collective", name, 8, group=tuple(range(p)), line=("lab.py", 3), source=f"dist.{name}(x)")


MESSAGES = st.integers(2, 6).flatmap(
    lambda p: st.tuples(
        st.just(p),
        st.lists(
            st.tuples(st.integers(0, p - 1), st.integers(1, p - 1), st.integers(0, 99)).map(
                lambda one: (one[0], (one[0] + one[1]) % p, one[2])
            ),
            max_size=12,
        ),
    )
)


@given(MESSAGES)
def test_expect_messages_passes_exact_figures_and_fails_any_other(case: tuple[int, list[Message]]) -> None:
    p, messages = case
    trace = trace_of(p, messages)
    sent = [sum(1 for source, _, _ in messages if source == rank) for rank in range(p)]
    out = [sum(size for source, _, size in messages if source == rank) for rank in range(p)]
    into = [sum(size for _, to, size in messages if to == rank) for rank in range(p)]
    figures = {"messages": sent, "sent_bytes": out, "received_bytes": into}
    totals = {"total_messages": len(messages), "total_bytes": sum(out)}
    checks.expect_messages(trace, **figures, **totals, edges={message[:2] for message in messages})
    for figure, true in figures.items():
        for rank in range(p):
            more = [amount + (one == rank) for one, amount in enumerate(true)]
            less = [amount - (one == rank) for one, amount in enumerate(true)]
            checks.expect_messages(trace, **{f"at_most_{figure}": more, f"at_least_{figure}": less})
            with pytest.raises(ImpossibleCountError, match=rf"{'on' if 'received' in figure else 'by'} rank {rank}"):
                checks.expect_messages(trace, **{figure: more})
            for how in ("", "at_most_"):
                with pytest.raises(CheckError, match=f"rank {rank}: too many"):
                    checks.expect_messages(trace, **{how + figure: less})
    for figure, true in totals.items():
        with pytest.raises(ImpossibleCountError):
            checks.expect_messages(trace, **{f"at_least_{figure}": true + 1})
        with pytest.raises(CheckError, match="too many"):
            checks.expect_messages(trace, **{figure: true - 1})


@pytest.mark.parametrize("p", range(2, 10))
def test_expect_messages_counts_rounds_of_a_chain_a_star_and_a_tree(p: int) -> None:
    """Independent figures: a chain and a star take p - 1 rounds, a binomial tree ceil(log2 p)."""
    chain = [(rank, rank + 1, 8) for rank in range(p - 1)]
    star = [(0, rank, 8) for rank in range(1, p)]
    tree = [(rank, rank + 2**k, 8) for k in range(4) for rank in range(2**k) if rank + 2**k < p]
    for messages, rounds in ((chain, p - 1), (star, p - 1), (tree, math.ceil(math.log2(p)))):
        checks.expect_messages(trace_of(p, messages), rounds=rounds)
        with pytest.raises(CheckError, match="rounds: too many"):
            checks.expect_messages(trace_of(p, messages), at_most_rounds=rounds - 1)


def test_expect_messages_names_the_line_that_sent_most() -> None:
    trace = trace_of(3, [(0, 1, 10), (1, 2, 300), (2, 0, 20)])
    with pytest.raises(CheckError) as caught:
        checks.expect_messages(trace, at_most_total_bytes=100, name="my ring")
    text = str(caught.value)
    assert text.startswith("my ring: bytes of all ranks: too many")
    assert "330 (3.3x)" in text
    assert "line 11: dist.send(x, to)" in text
    with pytest.raises(CheckError, match=r"(?s)by rank 0: too many.*line 10: dist\.send"):  # its own line, not rank 1's
        checks.expect_messages(trace, at_most_sent_bytes=5)


def test_expect_messages_allows_only_the_given_edges() -> None:
    trace = trace_of(3, [(0, 1, 4), (1, 2, 4), (2, 0, 4)])
    checks.expect_messages(trace, edges=[(0, 1), (1, 2), (2, 0), (0, 2)])  # not all need be used
    with pytest.raises(CheckError, match="rank 1 sent to rank 2"):
        checks.expect_messages(trace, edges=[(0, 1), (1, 0), (2, 0)])
    with pytest.raises(CheckError, match="no message from it"):
        checks.expect_messages(trace, edges=[])


def test_expect_messages_refuses_collectives_that_are_not_named() -> None:
    trace = RunTrace(
        2, tuple(collective(rank, name, 2) for rank in (0, 1) for name in ("all_reduce", "barrier")), "local"
    )
    with pytest.raises(CheckError, match=r"(?s)all_reduce x1, barrier x1.*line 3: dist\.all_reduce\(x\)"):
        checks.expect_messages(trace)
    with pytest.raises(CheckError, match=r"line 3: dist\.barrier\(x\)"):
        checks.expect_messages(trace, collectives={"all_reduce": 1})
    for wrong in ({"all_reduce": 2, "barrier": 1}, {"all_reduce": 1, "barrier": 1, "all_gather": 1}):
        with pytest.raises(CheckError, match="collectives of the library"):
            checks.expect_messages(trace, collectives=wrong)
    checks.expect_messages(trace, collectives={"all_reduce": 1, "barrier": 1, "all_gather": 0})
    checks.expect_messages(trace, collectives=None)


def test_expect_messages_fails_a_trace_with_findings() -> None:
    trace = trace_of(2, [(0, 1, 4)], findings=("rank 1 never waited for its irecv", "another one"))
    with pytest.raises(CheckError, match=r"(?s)never waited for its irecv \(and 1 more\)"):
        checks.expect_messages(trace, collectives=None)


def test_expect_messages_refuses_other_types_and_unknown_figures() -> None:
    with pytest.raises(CheckError, match="not a trace of ranks"):
        checks.expect_messages([1, 2, 3])
    with pytest.raises(TypeError, match="knows no figure 'bytes'"):
        checks.expect_messages(trace_of(2, []), bytes=3)
    with pytest.raises(TypeError, match="one number for each of 2 ranks, got 3"):
        checks.expect_messages(trace_of(2, []), messages=[0, 0, 0])
    with pytest.raises(TypeError, match="one number for all ranks"):
        checks.expect_messages(trace_of(2, []), total_bytes=[0, 0])


# --- run_ranks ---


def pass_on(x: torch.Tensor, plus: float) -> torch.Tensor:
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.recv(x, rank - 1)
        x += plus
    if rank < p - 1:
        dist.send(x, rank + 1)
    return x


def test_run_ranks_returns_values_in_order_with_the_messages() -> None:
    tensors = [torch.full((2,), 10.0 * rank) for rank in range(4)]
    run = checks.run_ranks(pass_on, 4, ranks.each(tensors), 1.0)
    assert [value.tolist() for value in run.values] == [[float(rank)] * 2 for rank in range(4)]
    checks.expect_messages(
        run.trace, messages=[1, 1, 1, 0], sent_bytes=[8, 8, 8, 0], edges=itertools.pairwise(range(4))
    )
    assert [tensor[0].item() for tensor in tensors] == [0, 10, 20, 30]  # the caller's own are untouched


def test_run_ranks_returns_the_arguments_after_the_call() -> None:
    tensors = [torch.full((2,), 10.0 * rank) for rank in range(3)]
    run = checks.run_ranks(pass_on, 3, ranks.each(tensors), 1.0, arguments=True)
    for rank, (value, (x, plus)) in enumerate(run.values):
        assert value.tolist() == x.tolist() == [float(rank)] * 2
        assert plus == 1.0


def hand_on(x: torch.Tensor, times: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    for _ in range(times):
        incoming = torch.empty_like(x)
        sending = dist.isend(x, (rank + 1) % p)
        dist.recv(incoming, (rank - 1) % p)
        sending.wait()
        x = incoming
        dist.all_reduce(x.clone())


def test_run_ranks_memory_leaves_out_the_copies_of_messages() -> None:
    run = checks.run_ranks(hand_on, 3, torch.ones(1000, dtype=torch.float64), 20, memory=True, timeout_seconds=300)
    assert [memory.peak_bytes for memory in run.memory] == [4 * 8000] * 3  # its argument, x, incoming, the clone


def stub(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        raise NotImplementedError("write this")
    dist.send(x, 1)


def everyone_sends_first(x: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    dist.send(x, (rank + 1) % p)
    dist.recv(x, (rank - 1) % p)


def wrong_shape(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(torch.empty(len(x) + 1), 0)


def raises(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        raise IndexError("chunk 7 of 3")
    dist.recv(x, 1)


def never_waits(x: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 0:
        dist.isend(x, 1).wait()
    else:
        dist.irecv(x, 0)
    return x


def test_run_ranks_passes_a_stubs_not_implemented_error_through() -> None:
    with pytest.raises(NotImplementedError, match="write this"):
        checks.run_ranks(stub, 2, torch.ones(3))


@pytest.mark.parametrize(
    ("function", "p", "words"),
    [
        (everyone_sends_first, 3, "everyone_sends_first on 3 ranks: deadlock"),
        (wrong_shape, 2, "wrong_shape on 2 ranks: the two ends of a message disagree"),
        (never_waits, 2, "(?s)never_waits on 2 ranks: the run ended with something open.*irecv"),
        (raises, 2, "(?s)raises on 2 ranks: a rank failed.*rank 1.*chunk 7 of 3"),
    ],
)
def test_run_ranks_reports_a_failed_rank_as_one_check_error(function, p: int, words: str) -> None:
    with pytest.raises(CheckError, match=words) as caught:
        checks.run_ranks(function, p, torch.ones(3))
    cause = caught.value.__cause__
    assert isinstance(cause, IndexError) if function is raises else cause is None


def swap(x: torch.Tensor, other: int) -> None:
    __tracebackhide__ = True
    dist.send(x, other)
    dist.recv(x, other)


def asks_for_a_swap(x: torch.Tensor) -> None:
    swap(x, 1 - dist.get_rank())  # this line


def test_run_ranks_skips_helpers_with_a_hidden_traceback() -> None:
    with pytest.raises(CheckError, match=r"(?s)deadlock.*swap\(x, 1 - dist\.get_rank\(\)\)  # this line"):
        checks.run_ranks(asks_for_a_swap, 2, torch.ones(3))
