"""Bytes of the messages of a round, between a broker and the process that does its work.

A frame is a head and blobs:

    head length u32, blobs' length u32, head (JSON), blobs one after the other

Whatever is small stands in the head, entries are blobs, whose lengths the head has in order. Both
ends are of one version, on one machine; a frame that cannot be read is a bug.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    Begun,
    CleanRun,
    Ended,
    EndGroup,
    EnterKeys,
    Output,
    Request,
    Run,
    Source,
    WorkDone,
    Written,
)
from broker.errors import CompactionFailed
from client.ids import LeaderEpoch, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.log.segment import Segment, segment_from_json, segment_to_json
from client.wire.kafka.batches.records import Buffer

PREFIX: Final = struct.Struct(">II")
_NOWHERE: Final = Segment(LedgerId(0), Offset(0), LeaderEpoch(0), 0)
"""Facts travel as those of a segment do."""


def body_bytes(prefix: Buffer) -> int:
    """Return how many bytes follow the prefix of a frame."""
    head, blobs = PREFIX.unpack(prefix)
    return int(head + blobs)


def encode_request(request: Request) -> list[Buffer]:
    """Return the frame of a request, in parts."""
    match request:
        case BeginRound():
            said = request._asdict()
            return _frame({"kind": "round", **said, "secret": request.secret.hex()})
        case BeginGroup():
            return _frame({"kind": "group", **request._asdict()})
        case EndGroup():
            return _frame({"kind": "end"})
        case EnterKeys(run) | CleanRun(run):
            kind = "enter" if isinstance(request, EnterKeys) else "clean"
            head = {
                "kind": kind,
                "source": run.source,
                "is_first": run.is_first,
                "is_last": run.is_last,
                "aborted": run.aborted,
                "sizes": [len(payload) for payload in run.payloads],
            }
            return _frame(head, run.payloads)


def decode_request(prefix: Buffer, body: Buffer) -> Request:
    """Return the request of a frame."""
    head, blobs = _parts(prefix, body)
    kind = head.pop("kind")
    if kind == "round":
        return BeginRound(**{**head, "secret": bytes.fromhex(head["secret"])})
    if kind == "group":
        return BeginGroup(**head)
    if kind == "end":
        return EndGroup()
    aborted = [
        AbortedTransaction(ProducerId(one), Offset(first), Offset(last))
        for one, first, last in head["aborted"]
    ]
    run = Run(
        Source(*head["source"]),
        head["is_first"],
        head["is_last"],
        _cut(blobs, head["sizes"]),
        aborted,
    )
    return EnterKeys(run) if kind == "enter" else CleanRun(run)


def encode_answer(done: WorkDone) -> list[Buffer]:
    """Return the frame of an answer, in parts."""
    outputs: list[object] = []
    blobs: list[Buffer] = []
    for one in done.outputs:
        match one:
            case Begun(base):
                outputs.append(base)
            case Written(payload):
                outputs.append([sum(map(len, payload))])
                blobs += payload
            case Ended(facts):
                outputs.append(segment_to_json(_NOWHERE._replace(facts=facts)))
    return _frame({**done._asdict(), "outputs": outputs}, blobs)


def encode_failure(reason: str) -> list[Buffer]:
    """Return the frame of an answer: the round cannot go on."""
    return _frame({"failed": reason})


def decode_answer(prefix: Buffer, body: Buffer) -> WorkDone:
    """Return the answer of a frame. Raises CompactionFailed if that is the answer."""
    head, blobs = _parts(prefix, body)
    if "failed" in head:
        raise CompactionFailed(head["failed"])
    payloads = iter(_cut(blobs, [one[0] for one in head["outputs"] if isinstance(one, list)]))
    outputs: list[Output] = []
    for one in head["outputs"]:
        if isinstance(one, list):
            outputs.append(Written([next(payloads)]))
        elif isinstance(one, dict):
            facts = segment_from_json(one).facts
            assert facts is not None
            outputs.append(Ended(facts))
        else:
            outputs.append(Begun(Offset(one)))
    return WorkDone(**{**head, "outputs": outputs})


def _frame(head: dict[str, Any], blobs: Iterable[Buffer] = ()) -> list[Buffer]:
    parts = [*blobs]
    packed = json.dumps(head, separators=(",", ":")).encode()
    return [PREFIX.pack(len(packed), sum(map(len, parts))), packed, *parts]


def _parts(prefix: Buffer, body: Buffer) -> tuple[dict[str, Any], memoryview]:
    size, _ = PREFIX.unpack(prefix)
    view = memoryview(body)
    return json.loads(bytes(view[:size])), view[size:]


def _cut(blobs: memoryview, sizes: Sequence[int]) -> list[Buffer]:
    ends = accumulate(sizes, initial=0)
    return [blobs[start:end] for start, end in pairwise(ends)]
