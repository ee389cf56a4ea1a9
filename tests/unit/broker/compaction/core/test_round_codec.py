"""Messages of a round survive their way to another process and back."""

from __future__ import annotations

import pytest

from broker.compaction.core.round_codec import (
    PREFIX,
    body_bytes,
    decode_answer,
    decode_request,
    encode_answer,
    encode_failure,
    encode_request,
)
from broker.compaction.core.round_messages import (
    BeginGroup,
    BeginRound,
    Begun,
    CleanRun,
    Ended,
    EndGroup,
    EnterKeys,
    Request,
    Run,
    Source,
    WorkDone,
    Written,
)
from broker.compaction.core.segment_output import OWN_LEDGER
from broker.errors import CompactionFailed
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.log.segment import SegmentFacts, SnapshotPlace, TransactionFacts
from client.wire.kafka.batches.records import Buffer

RUN = Run(
    Source(LedgerId(7), Offset(10), Offset(30), False),
    True,
    False,
    [b"first", b"", bytes(70_000)],
    [AbortedTransaction(ProducerId(3), Offset(11), Offset(19))],
)
TOLD = TransactionFacts(True, 2, SnapshotPlace(OWN_LEDGER, EntryId(4)), Offset(12))


def split(frame: list[Buffer]) -> tuple[bytes, bytes]:
    whole = b"".join(frame)
    prefix, body = whole[: PREFIX.size], whole[PREFIX.size :]
    assert body_bytes(prefix) == len(body)
    return prefix, body


@pytest.mark.parametrize(
    "request_",
    [
        BeginRound(9, bytes(range(32)), Offset(3), Offset(30), 1_800_000_000_000, 5, 1 << 30, 1000),
        EnterKeys(RUN),
        BeginGroup(Offset(10), Offset(30), LeaderEpoch(4), Offset(29)),
        CleanRun(RUN._replace(aborted=[])),
        EndGroup(),
    ],
)
def test_requests(request_: Request) -> None:
    assert decode_request(*split(encode_request(request_))) == request_


def test_answers() -> None:
    outputs = [
        Begun(Offset(10)),
        Written([b"one", b"two"]),
        Ended(SegmentFacts(Offset(19), 123, 5, TOLD)),
        Begun(Offset(20)),
        Written([memoryview(b"three")]),
        Ended(SegmentFacts(Offset(29), 77, -1)),
    ]
    done = WorkDone(outputs, Offset(30), True, True, 12, 1_800_000_000_005)
    found = decode_answer(*split(encode_answer(done)))
    assert found._replace(outputs=[]) == done._replace(outputs=[])
    assert [type(one) for one in found.outputs] == [type(one) for one in outputs]
    payloads = [
        b"".join(map(bytes, one.payload)) for one in found.outputs if isinstance(one, Written)
    ]
    assert payloads == [b"onetwo", b"three"]
    ended = [one.facts for one in found.outputs if isinstance(one, Ended)]
    assert ended == [one.facts for one in outputs if isinstance(one, Ended)]
    assert [one.base_offset for one in found.outputs if isinstance(one, Begun)] == [10, 20]


def test_a_failure_is_raised() -> None:
    with pytest.raises(CompactionFailed, match="batch at offset 7"):
        decode_answer(*split(encode_failure("batch at offset 7")))
