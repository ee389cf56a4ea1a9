"""Which batches of transactions are void, by the list of aborted transactions."""

from __future__ import annotations

from broker.compaction.core.cleaning import NOTHING_ABORTED, AbortedRanges
from client.ids import Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header


def data(producer_id: int, offset: int) -> BatchHeader:
    batch = build_batch(
        [Record(b"k", b"v")],
        base_offset=Offset(offset),
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        transactional=True,
    )
    return parse_header(batch)


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last))


def test_a_batch_is_void_from_its_transactions_first_offset_to_the_marker() -> None:
    ranges = AbortedRanges([aborted(1, 2, 5), aborted(2, 3, 6), aborted(1, 8, 9)])
    void = {
        producer: [offset for offset in range(12) if ranges.covers(data(producer, offset))]
        for producer in (1, 2, 3)
    }
    assert void == {1: [2, 3, 4, 8], 2: [3, 4, 5], 3: []}
    assert not NOTHING_ABORTED.covers(data(1, 3))


def test_a_marker_names_what_it_has_aborted() -> None:
    ranges = AbortedRanges([aborted(1, 2, 5), aborted(1, 8, 9)])
    assert ranges.ended_by(data(1, 9)) == aborted(1, 8, 9)
    assert ranges.ended_by(data(1, 8)) is None
    assert ranges.ended_by(data(2, 5)) is None
