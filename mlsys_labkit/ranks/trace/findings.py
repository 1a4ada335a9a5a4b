"""The trace of a finished run, and what the run left open: unmatched messages and handles that no rank waited for."""

from __future__ import annotations

import linecache
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mlsys_labkit.ranks.student_lines import at
from mlsys_labkit.ranks.trace.events import Event, RunTrace


def make_trace(
    events: Sequence[Sequence[Event]], backend: str, ended: bool = False, seen: Sequence[str] = ()
) -> RunTrace:
    """Build the trace of all ranks, with findings if the run ended: a failed run leaves calls open anyway.

    ``seen`` are findings that the events do not show.
    """
    flat = _with_sources(event for one in events for event in one)
    return RunTrace(len(events), flat, backend, (*findings(flat), *seen) if ended else ())


def findings(events: Sequence[Event]) -> tuple[str, ...]:
    """Describe what is wrong with a run that ended: what it left open, and tensors changed during a collective.

    Example:
        >>> findings([Event(0, "send", "send", peers=(1,), group=(0, 1), key="0>1 #0", asynchronous=True)])
        ('rank 0 sends to rank 1, which never receives it',)

    Reference: MPI Forum, "MPI: A Message-Passing Interface Standard", 4.1, section 3.7.3: every request is completed.
    """
    waited = Counter((event.rank, event.key) for event in events if event.kind == "wait")
    alone, sentences = unmatched(events), []
    for place, event in enumerate(events):
        if place in alone:
            sentences.append(alone[place])
        elif event.asynchronous and not waited[event.rank, event.key]:
            name = {"send": "isend", "recv": "irecv"}.get(event.name, f"asynchronous {event.name}")
            towards = {"send": f" to {_other(event)}", "recv": f" from {_other(event)}"}.get(event.kind, "")
            sentences.append(f"rank {event.rank} never waits for its {name}{towards}{at(event.line)}")
        if event.changed:
            sentences.append(
                f"rank {event.rank} changes a tensor of its asynchronous {event.name} before the wait{at(event.line)}; "
                "another rank may get the old value or the new one, so change it after wait()"
            )
    return tuple(sentences)


def unmatched(events: Sequence[Event]) -> dict[int, str]:
    """Return findings on messages with one end and collectives without a member, by the place of the event."""
    ends: dict[str, set[str]] = defaultdict(set)
    members: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event.kind in ("send", "recv"):
            ends[event.key].add(event.kind)
        elif event.kind == "collective":
            members[event.key].add(event.rank)
    found = {}
    for place, event in enumerate(events):
        absent = sorted(set(event.group) - members[event.key]) if event.kind == "collective" else []
        if event.kind == "send" and "recv" not in ends[event.key]:
            found[place] = f"rank {event.rank} sends to {_other(event)}, which never receives it{at(event.line)}"
        elif event.kind == "recv" and "send" not in ends[event.key]:
            found[place] = f"rank {event.rank} receives from {_other(event)}, which never sends it{at(event.line)}"
        elif absent:
            found[place] = f"rank {event.rank} calls {event.name}, and rank {absent[0]} never does{at(event.line)}"
    return found


def _other(event: Event) -> str:
    return f"rank {event.peers[0]}" if event.peers else "any rank"


def _with_sources(events: Iterable[Event]) -> tuple[Event, ...]:
    """Add the text of the lines to events, for files that this process can read (a notebook has its cells)."""
    return tuple(
        replace(event, source=linecache.getline(*event.line).strip()) if event.line and not event.source else event
        for event in events
    )
