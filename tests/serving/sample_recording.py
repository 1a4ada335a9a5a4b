"""A short run written by hand, so that every figure about it can be worked out on paper.

Blocks of 4 tokens, 6 in the pool. "a" (6 tokens) is prefilled in two chunks; "b" finds a's first block and shares it;
"c" waits, starts, is preempted and computed anew; "d" is dropped by its client before anything happened.

    step  time      tables afterwards       held
    0     1-2       a: 0 1                  a 5
    1     2-4       a: 0 1, b: 0 2          a 6, b 6       a's and b's first token
    2     4-5       a: 0 1, b: 0 2, c: 3    a 7, b 7, c 3
    3     5-6       b: 0 2                  b 8            a ends; c is preempted
    4     6-8       c: 3                    c 4            b ends
    5     8-9       -                                      c ends
"""

from __future__ import annotations

from mlsys_labkit.serving import EngineStep, Preempted, Recording, Request, Scheduled

REQUESTS = (
    Request("a", prompt=(1, 2, 3, 4, 5, 6), max_new_tokens=3, arrival_seconds=1.0),
    Request("b", prompt=(1, 2, 3, 4, 9, 9), max_new_tokens=4, arrival_seconds=1.5),
    Request("c", prompt=(7, 7, 7), max_new_tokens=3, arrival_seconds=2.0),
    Request("d", prompt=(8,), max_new_tokens=3, arrival_seconds=7.0),
)
STEPS = (
    EngineStep(0, 1, 2, (Scheduled("a", "prefill", 5, 0),), (), (), (), (), (), {"a": (0, 1)}, {"a": 5}),
    EngineStep(
        1,
        2,
        4,
        (Scheduled("a", "prefill", 1, 5), Scheduled("b", "prefill", 2, 4, 4)),
        waiting=("c",),
        block_tables={"a": (0, 1), "b": (0, 2)},
        held_tokens={"a": 6, "b": 6},
    ),
    EngineStep(
        2,
        4,
        5,
        (Scheduled("a", "decode", 1, 6), Scheduled("b", "decode", 1, 6), Scheduled("c", "prefill", 3, 0)),
        block_tables={"a": (0, 1), "b": (0, 2), "c": (3,)},
        held_tokens={"a": 7, "b": 7, "c": 3},
    ),
    EngineStep(
        3,
        5,
        6,
        (Scheduled("a", "decode", 1, 7), Scheduled("b", "decode", 1, 7)),
        preempted=(Preempted("c", "recompute"),),
        finished=("a",),
        waiting=("c",),
        copies=((0, 4),),
        block_tables={"b": (0, 2)},
        held_tokens={"b": 8},
        turned_blocks=(1,),
    ),
    EngineStep(
        4,
        6,
        8,
        (Scheduled("b", "decode", 1, 8), Scheduled("c", "prefill", 4, 0)),
        finished=("b",),
        block_tables={"c": (3,)},
        held_tokens={"c": 4},
        turned_blocks=(0, 1, 2),
    ),
    EngineStep(5, 8, 9, (Scheduled("c", "decode", 1, 4),), finished=("c", "d"), turned_blocks=(0, 2)),
)
RECORDING = Recording(
    REQUESTS,
    STEPS,
    tokens={"a": (21, 22, 23), "b": (31, 32, 33, 34), "c": (41, 42, 43), "d": ()},
    token_seconds={"a": (4.0, 5.0, 6.0), "b": (4.0, 5.0, 6.0, 8.0), "c": (5.0, 8.0, 9.0), "d": ()},
    reasons={"a": "length", "b": "stop", "c": "length", "d": "abort"},
    block_size=4,
    blocks=6,
    block_bytes=4096,
)
