"""Findings of the local backend: buffers that are read early, handles and messages left open, and random programs."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings, strategies as st

from mlsys_labkit import ranks
from tests.ranks.run_helpers import line_of, local

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # torch 2.13 has new names for old ones


def test_receive_buffer_is_poisoned_until_its_wait() -> None:
    def early() -> tuple[bool, bool, float]:
        r = dist.get_rank()
        x, whole = torch.full((2,), 7.0), torch.zeros(2, dtype=torch.int32)
        if r == 0:
            dist.send(torch.tensor([1.0, 2.0]), 1)
            dist.barrier()
        else:
            request = dist.irecv(x, 0)
            dist.barrier()  # rank 0 has sent by now
        poisoned = r == 0 or bool(x.isnan().all())
        gather = dist.all_gather_into_tensor(whole, torch.tensor([r], dtype=torch.int32), async_op=True)
        hidden = bool((whole == torch.iinfo(torch.int32).min).all())
        gather.wait()
        if r:
            request.wait()
        return poisoned, hidden, x.sum().item()

    assert local(early, 2).values == [(True, True, 14.0), (True, True, 3.0)]


@pytest.mark.parametrize(
    ("dtype", "wrong"), [(torch.uint8, 255), (torch.bool, True), (torch.int8, -128), (torch.uint16, 65535)]
)
def test_buffers_of_every_kind_of_number_are_poisoned(dtype: torch.dtype, wrong: int) -> None:
    def early() -> list[int]:
        x = torch.zeros(2, dtype=dtype)
        if dist.get_rank() == 0:
            dist.send(x, 1)
            return []
        request = dist.irecv(x, 0)
        seen = x.tolist()
        request.wait()
        return [*seen, *x.tolist()]

    assert local(early, 2).values == [[], [wrong, wrong, 0, 0]]


def test_output_that_overlaps_the_input_is_not_poisoned() -> None:
    def in_place() -> list[float]:
        whole = torch.zeros(2)
        whole[dist.get_rank()] = 1.0 + dist.get_rank()
        dist.all_gather_into_tensor(whole, whole[dist.get_rank()].view(1), async_op=True).wait()
        return whole.tolist()

    assert local(in_place, 2).values == [[1, 2], [1, 2]]


def test_isend_sends_a_buffer_that_changed_before_the_wait() -> None:
    def hasty(patient: bool) -> float:
        x = torch.ones(1)
        if dist.get_rank() == 0:
            request = dist.isend(x, 1)
            if patient:
                request.wait()
            x.fill_(99)
            request.wait()
        else:
            dist.recv(x.zero_(), 0)
        return x.item()

    assert local(hasty, 2, True).values[1] == 1
    assert local(hasty, 2, False).values[1] == 99


def test_isend_sends_the_buffer_as_it_was_at_the_senders_wait() -> None:
    """Whenever the receiver looks: after its wait the sender may do what it likes with its buffer."""

    def sends_and_reuses() -> float:
        x = torch.ones(1)
        if dist.get_rank() == 0:
            dist.barrier()
            dist.isend(x, 1).wait()
            x.fill_(99)
            dist.barrier()
        else:
            request = dist.irecv(x, 0)
            dist.barrier()
            dist.barrier()
            request.wait()
        return x.item()

    assert local(sends_and_reuses, 2).values == [99, 1]


def test_both_ranks_may_wait_for_their_isend_first() -> None:
    """The receives are there: no network would block here."""

    def exchange() -> float:
        other = 1 - dist.get_rank()
        incoming = torch.zeros(1)
        receive = dist.irecv(incoming, other)
        dist.isend(torch.tensor([float(dist.get_rank())]), other).wait()
        receive.wait()
        return incoming.item()

    assert local(exchange, 2).values == [1, 0]


def test_a_batch_of_sends_and_receives_needs_no_order() -> None:
    def ring() -> float:
        r, p = dist.get_rank(), dist.get_world_size()
        x, y = torch.tensor([float(r)]), torch.zeros(1)
        operations = [dist.P2POp(dist.isend, x, (r + 1) % p), dist.P2POp(dist.irecv, y, (r - 1) % p)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        return y.item()

    assert local(ring, 4).values == [3, 0, 1, 2]


def test_polling_is_completed_lets_the_other_ranks_run() -> None:
    def poll() -> float:
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            request = dist.irecv(x, 1)
            while not request.is_completed():
                pass
        else:
            dist.send(x + 5, 0)
        return x.item()

    assert local(poll, 2).values[0] == 5


def test_findings_name_open_messages_and_handles() -> None:
    def careless() -> None:
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            dist.isend(x, 1)  # met
            dist.isend(x, 1, tag=9)  # never met
        else:
            dist.irecv(x, 0)  # met
            dist.irecv(x)  # from anyone
            dist.all_reduce(torch.zeros(1), async_op=True)

    found = local(careless, 2).trace.findings
    patterns = [
        "rank 0 never waits for its isend to rank 1",
        "rank 0 sends to rank 1, which never receives it",
        "rank 1 never waits for its irecv from rank 0",
        "rank 1 receives from any rank, which never sends it",
        "rank 1 calls all_reduce, and rank 0 never does",
    ]
    assert len(found) == len(patterns)
    for sentence, pattern in zip(found, patterns, strict=True):
        assert sentence.startswith(f"{pattern} (test_local_findings.py:"), sentence


def test_correct_run_has_no_findings_and_a_source_line_per_event() -> None:
    def right() -> None:
        x = torch.zeros(3)
        dist.all_reduce(x)
        request = dist.isend(x, 1) if dist.get_rank() == 0 else dist.irecv(x, 0)
        request.wait()
        dist.recv(x, 1) if dist.get_rank() == 0 else dist.send(x, 0)

    trace = local(right, 2).trace
    assert trace.findings == ()
    assert [(e.kind, e.name, e.asynchronous) for e in trace.of(0)] == [
        ("collective", "all_reduce", False),
        ("send", "send", True),
        ("wait", "send", False),
        ("recv", "recv", False),
    ]
    assert [e.line for e in trace.of(0)] == [
        line_of(right, "all_reduce"),
        line_of(right, "isend"),
        line_of(right, ".wait"),
        line_of(right, "dist.recv"),
    ]
    assert trace.of(1)[0].source == "dist.all_reduce(x)"
    assert len({e.key for e in trace.of(0)}) == 3
    assert [e.key for e in trace.of(0)] == [e.key for e in trace.of(1)]
    assert all(e.seconds is None for e in trace)


# ---- random programs

Step = tuple[str, int, int, bool, bool]  # what, source, destination (or root), send at once, receive at once


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[Step]]:
    p = draw(st.integers(2, 5))
    pair = st.tuples(st.integers(0, p - 1), st.integers(1, p - 1)).map(lambda t: (t[0], (t[0] + t[1]) % p))
    message = st.tuples(st.just("message"), pair, st.booleans(), st.booleans())
    collective = st.tuples(st.sampled_from(["all_reduce", "broadcast"]), pair, st.booleans(), st.booleans())
    steps = draw(st.lists(message | message | collective, min_size=1, max_size=14))
    return p, [(what, *ends, now, then) for what, ends, now, then in steps]


def follow(steps: list[Step], left_out: int) -> list[float]:
    """Run the steps in one order on all ranks, without the receive of step ``left_out``.

    Each request that is not waited for at once is waited for at the end.
    """
    r, p = dist.get_rank(), dist.get_world_size()
    got, open_ = [], []
    for tag, (what, source, destination, now, then) in enumerate(steps, start=1):
        if what == "message" and r == source:
            request = dist.isend(torch.tensor([float(tag)]), destination, tag=tag)
            request.wait() if now else open_.append(request)
        elif what == "message" and r == destination and tag - 1 != left_out:
            got.append(torch.zeros(1))
            request = dist.irecv(got[-1], source, tag=tag)
            request.wait() if then else open_.append(request)
        elif what == "all_reduce":
            got.append(torch.tensor([float(tag * r)]))
            request = dist.all_reduce(got[-1], async_op=True)
            request.wait() if now else open_.append(request)
        elif what == "broadcast":
            got.append(torch.tensor([float(tag if r == source else 0)]))
            dist.broadcast(got[-1], source)
    for request in open_:
        request.wait()
    del p
    return [x.item() for x in got]


@given(programs())
@settings(max_examples=25, deadline=None)
def test_programs_with_matching_calls_finish(program: tuple[int, list[Step]]) -> None:
    p, steps = program
    run = local(follow, p, steps, -1)
    for r, got in enumerate(run.values):
        expected = []
        for tag, (what, _, destination, _, _) in enumerate(steps, start=1):
            if what == "message":
                expected += [float(tag)] if r == destination else []
            else:
                expected.append(float(tag) * (p * (p - 1) // 2 if what == "all_reduce" else 1))
        assert got == expected
    assert run.trace.findings == ()
    sent = [sum(1 for what, source, *_ in steps if what == "message" and source == r) for r in range(p)]
    assert [run.trace.messages(r) for r in range(p)] == sent
    assert [run.trace.sent_bytes(r) for r in range(p)] == [4 * count for count in sent]


@given(programs(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_send_without_its_receive_is_a_deadlock_that_names_both_ranks(
    program: tuple[int, list[Step]], data: st.DataObject
) -> None:
    p, steps = program
    messages = [index for index, step in enumerate(steps) if step[0] == "message"]
    if not messages:
        return
    missing = data.draw(st.sampled_from(messages))
    _, source, destination, *_ = steps[missing]
    with pytest.raises(ranks.DeadlockError) as caught:
        local(follow, p, steps, missing)
    text = str(caught.value)
    assert f"rank {source} waits for rank {destination} to receive with tag {missing + 1} (" in text
    assert text.startswith("deadlock: ")
    assert caught.value.trace is not None
