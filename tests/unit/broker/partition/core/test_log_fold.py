"""The fold over a log with transactions: what a snapshot keeps of it."""

from __future__ import annotations

import pytest

from broker.errors import OutOfOrderSequence
from broker.partition.core.log_fold import LogFold
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.open_transactions import SegmentTransactions
from client.errors import LogCorrupt
from client.ids import LeaderEpoch, Offset, ProducerId
from client.log.snapshot import Snapshot, open_snapshot, seal_snapshot
from client.wire.kafka.batches.records import parse_header
from tests.fakes.brokers import batch
from tests.fakes.transactions import marker, transactional


class Log:
    """A fold and its segment."""

    def __init__(self, **limits: int) -> None:
        self.limits = LogLimits(**limits)
        self.fold = LogFold(self.limits)
        self.segment = SegmentTransactions(1_000)

    def data(self, offset: int, pid: int = 1, *, now_ms: int = 5, **options: int) -> None:
        header = parse_header(transactional(pid=pid, **options))
        self.fold.on_data(header, Offset(offset), now_ms, -1, self.segment)

    def end(self, offset: int, pid: int = 1, epoch: int = 0, *, commit: bool = True) -> None:
        self.fold.on_marker(marker(pid, epoch, commit=commit), Offset(offset), 5, self.segment)

    def snapshot(self, end: int = 99) -> Snapshot:
        state, is_told = self.fold.encode(self.segment)
        said = self.segment.snapshot(is_first=True) if is_told else None
        return open_snapshot(seal_snapshot(Offset(end), LeaderEpoch(0), 5, (), state, said))

    def restored(self) -> Log:
        other = Log()
        other.fold.restore(self.snapshot(), other.segment)
        return other


def open_in(log: Log) -> list[tuple[int, int]]:
    return [(pid, known.first_offset) for pid, known in log.fold.transactions]


def test_a_log_without_transactions_is_told_as_ever() -> None:
    log = Log()
    log.fold.producers.accept(parse_header(batch("x", pid=1)), Offset(0), 5)
    found = log.snapshot()
    assert found.transactions is None
    assert bytes(found.producers) == log.fold.producers.encode()
    assert not log.restored().fold.has_transactions


def test_a_snapshot_keeps_all_of_it() -> None:
    log = Log()
    log.data(0, 1)
    log.data(1, 2)
    log.end(2, 1, commit=False)
    log.data(3, 3)
    other = log.restored()
    assert open_in(other) == [(2, 1), (3, 3)]
    assert other.segment.is_transactional
    assert other.segment.within(Offset(0), Offset(9)) == [(1, 0, 2)]
    assert other.fold.transactions.coordinator_epoch(ProducerId(1)) == 1
    assert list(other.fold.producers.windows()) == list(log.fold.producers.windows())
    assert other.fold.has_transactions
    assert bytes(other.snapshot().producers) == bytes(log.snapshot().producers)


def test_what_is_aborted_says_what_is_stable_behind_it() -> None:
    log = Log()
    log.data(0, 1)
    log.data(1, 2)
    log.end(2, 2, commit=False)
    assert log.segment.aborted.rest.stable_offset == 0
    log.end(3, 1, commit=False)
    assert log.segment.aborted.rest.stable_offset == 4
    assert log.segment.within(Offset(0), Offset(1)) == [(1, 0, 3)]


def test_a_marker_of_a_new_epoch_empties_the_window() -> None:
    log = Log()
    log.data(0, 1, sequence=0)
    log.end(1, 1, epoch=1)
    producers = log.fold.producers
    assert producers.epoch(ProducerId(1)) == 1
    with pytest.raises(OutOfOrderSequence):
        producers.find_duplicate(parse_header(transactional(epoch=1, sequence=1)))
    assert producers.find_duplicate(parse_header(transactional(epoch=1))) is None
    assert producers.find_repeated(parse_header(transactional(epoch=0))) is None


def test_a_marker_of_the_same_epoch_keeps_the_window() -> None:
    log = Log()
    log.data(0, 1, sequence=0)
    log.end(1, 1, epoch=0)
    again = log.fold.producers.find_repeated(parse_header(transactional(sequence=0)))
    assert again is not None
    assert again.base_offset == 0


def test_open_ones_are_pinned_and_forgotten_ones_take_their_coordinators_along() -> None:
    log = Log(producer_count_max=4, producer_expiration_ms=100)
    log.data(0, 1)
    log.end(1, 2)
    for pid in range(3, 9):
        header = parse_header(batch("x", pid=pid))
        log.fold.producers.accept(header, Offset(pid), 10)
    assert ProducerId(1) in log.fold.producers, "the oldest, but open"
    assert ProducerId(2) not in log.fold.producers
    assert log.fold.transactions.coordinator_epoch(ProducerId(2)) == -1
    assert log.fold.producers.expire(1_000) == 3
    assert [pid for pid, *_ in log.fold.producers.windows()] == [1]


def test_bytes_behind_the_state_are_refused() -> None:
    log = Log()
    log.data(0)
    found = log.snapshot()
    longer = found._replace(producers=memoryview(bytes(found.producers) + b"x"))
    with pytest.raises(LogCorrupt, match="1 bytes follow"):
        Log().fold.restore(longer, SegmentTransactions(9))
