"""Which batches of transactions are void, by the markers behind them."""

from __future__ import annotations

from broker.compaction.core.transaction_ends import TransactionEnds
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.record_builder import Record, build_batch
from client.wire.kafka.batches.records import BatchHeader, parse_header


def data(producer_id: int, offset: int) -> BatchHeader:
    batch = build_batch(
        [Record(b"k", b"v")],
        base_offset=Offset(offset),
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        transactional=True,
    )
    return parse_header(batch)


def marker(producer_id: int, *, commit: bool) -> Marker:
    return Marker(ProducerId(producer_id), 0, commit, 0)


def test_a_marker_decides_what_its_producer_wrote_since_the_one_before() -> None:
    ends = TransactionEnds()
    batches = [data(1, 0), data(2, 1), data(1, 2), data(1, 5), data(1, 8)]
    ends.on_data(batches[0])
    ends.on_data(batches[1])
    ends.on_data(batches[2])
    ends.on_marker(marker(1, commit=False), Offset(3))
    ends.on_marker(marker(2, commit=True), Offset(4))
    ends.on_data(batches[3])
    ends.on_marker(marker(1, commit=True), Offset(6))
    ends.on_marker(marker(1, commit=False), Offset(7))  # nothing is open
    ends.on_data(batches[4])
    assert [ends.is_aborted(one) for one in batches] == [True, False, True, False, False]
    assert ends.is_open_below(Offset(9))
    assert not ends.is_open_below(Offset(8))
    ends.on_marker(marker(1, commit=False), Offset(9))
    assert ends.is_aborted(batches[4])
    assert not ends.is_open_below(Offset(99))
