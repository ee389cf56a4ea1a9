"""Sequences, epochs, the five-batch window, snapshots, and the gaps that refusals explain."""

from __future__ import annotations

import pytest

from broker.errors import InvalidProducerEpoch, OutOfOrderSequence
from broker.partition.core import producer_state
from broker.partition.core.producer_state import (
    SEQUENCE_MODULUS,
    AcceptedBatch,
    ProducerState,
    RefusedBatches,
    SequenceGaps,
    is_gap,
    next_sequence,
)
from client.errors import LogCorrupt
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header

LAST = 2**31 - 1
NOW = 1000


def header(sequence: int, count: int = 1, *, epoch: int = 0, pid: int = 1) -> BatchHeader:
    template = parse_header(build_batch([Record(None, b"x", 5)]))
    return template._replace(
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=sequence,
        last_offset_delta=count - 1,
        record_count=count,
    )


class Log:
    """A state fed with consecutive offsets."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def send(self, sequence: int, count: int = 1, *, epoch: int = 0, pid: int = 1) -> int:
        """Return the base offset the batch gets, or got when it is a duplicate."""
        batch = header(sequence, count, epoch=epoch, pid=pid)
        known = self.state.find_duplicate(batch)
        if known is not None:
            return known.base_offset
        base = self.end
        self.state.accept(batch, Offset(base), NOW)
        self.end += count
        return base


@pytest.fixture
def log() -> Log:
    return Log()


def test_consecutive_batches_are_accepted(log: Log) -> None:
    assert [log.send(0, 3), log.send(3, 2), log.send(5)] == [0, 3, 5]


@pytest.mark.parametrize("first", [0, 1, 77, LAST])
def test_unknown_producer_may_begin_anywhere(log: Log, first: int) -> None:
    assert log.send(first) == 0


def test_gap_is_out_of_order(log: Log) -> None:
    log.send(0)
    with pytest.raises(OutOfOrderSequence):
        log.send(2)


def test_exact_repetition_is_answered_with_its_offset(log: Log) -> None:
    log.send(0, 3)
    log.send(3, 2)
    assert log.send(0, 3) == 0
    assert log.send(3, 2) == 3
    assert log.end == 5


def test_overlap_that_is_no_repetition_is_out_of_order(log: Log) -> None:
    log.send(0, 3)
    for first, count in ((0, 2), (0, 4), (1, 2), (2, 1)):
        with pytest.raises(OutOfOrderSequence):
            log.send(first, count)


def test_the_window_holds_five_batches(log: Log) -> None:
    for number in range(6):
        log.send(number)
    assert [log.send(number) for number in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequence):
        log.send(0)


def test_sequences_wrap_to_zero(log: Log) -> None:
    log.send(LAST)
    assert log.send(0) == 1
    assert next_sequence(LAST) == 0


def test_a_batch_may_span_the_wrap(log: Log) -> None:
    log.send(LAST - 1, 4)
    ((_, _, (batch,)),) = log.state.windows()
    assert (batch.first_sequence, batch.last_sequence) == (LAST - 1, 1)
    assert batch.next_offset == 4
    assert log.send(LAST - 1, 4) == 0
    assert log.send(2) == 4


def test_older_epoch_is_fenced(log: Log) -> None:
    log.send(0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        log.send(1, epoch=2)


def test_newer_epoch_begins_at_zero_with_an_empty_window(log: Log) -> None:
    log.send(0)
    log.send(1)
    with pytest.raises(OutOfOrderSequence):
        log.send(2, epoch=1)
    assert log.send(0, epoch=1) == 2
    assert log.send(0, epoch=1) == 2
    with pytest.raises(InvalidProducerEpoch):
        log.send(2, epoch=0)


def test_a_refused_batch_changes_nothing(log: Log) -> None:
    log.send(0)
    before = list(log.state.windows())
    for sequence, epoch in ((5, 0), (7, 1)):
        with pytest.raises(OutOfOrderSequence):
            log.send(sequence, epoch=epoch)
    assert list(log.state.windows()) == before


def test_producers_do_not_disturb_each_other(log: Log) -> None:
    log.send(0, pid=1)
    log.send(40, pid=2)
    assert log.send(1, pid=1) == 2
    assert log.send(41, pid=2) == 3


def test_expired_producers_are_unknown() -> None:
    state = ProducerState(expiration_ms=100)
    state.accept(header(0, pid=1), Offset(0), 1000)
    state.accept(header(0, pid=2), Offset(1), 1050)
    assert state.expire(1099) == 0
    assert state.expire(1100) == 1
    assert ProducerId(1) not in state
    assert ProducerId(2) in state
    assert state.find_duplicate(header(500, pid=1)) is None


def test_the_silent_ones_are_dropped_when_there_are_too_many() -> None:
    state = ProducerState(producer_count_max=20)
    for pid in range(20):
        state.accept(header(0, pid=pid), Offset(pid), 1000 + (pid + 10) % 20)
    state.accept(header(0, pid=99), Offset(20), 2000)
    assert len(state) == 19
    assert ProducerId(10) not in state
    assert ProducerId(11) not in state
    assert ProducerId(99) in state


def test_snapshot_round_trip(log: Log) -> None:
    for number in range(7):
        log.send(number, pid=1, epoch=4)
    log.send(LAST, pid=2)
    restored = ProducerState()
    rest = restored.restore(memoryview(log.state.encode() + b"more"))
    assert bytes(rest) == b"more"
    assert list(restored.windows()) == list(log.state.windows())
    assert restored.find_duplicate(header(6, pid=1, epoch=4)) == AcceptedBatch(6, 6, Offset(6), -1)
    assert restored.find_duplicate(header(0, pid=2)) is None


def test_restoring_replaces_what_was_there(log: Log) -> None:
    log.send(0, pid=5)
    log.state.restore(memoryview(ProducerState().encode()))
    assert len(log.state) == 0


@pytest.mark.parametrize("cut", [0, 3, 5, 25, 40])
def test_truncated_snapshots_are_refused(log: Log, cut: int) -> None:
    log.send(0)
    data = log.state.encode()
    assert cut < len(data)
    with pytest.raises(LogCorrupt):
        ProducerState().restore(memoryview(data)[:cut])


def test_a_marker_moves_the_epoch_and_clears_the_window(log: Log) -> None:
    log.send(0)
    log.state.accept(header(-1, epoch=1), Offset(1), NOW)
    ((_, epoch, window),) = log.state.windows()
    assert (epoch, window) == (1, ())
    with pytest.raises(OutOfOrderSequence):
        log.send(1, epoch=1)
    assert log.send(0, epoch=1) == 1


def test_any_gap_may_be_ours_until_the_leadership_has_settled() -> None:
    gaps = SequenceGaps(settled_s=5.0)
    assert gaps.may_follow_refused(header(10), 4.9)
    assert not gaps.may_follow_refused(header(10), 5.0)


def test_what_is_known_to_be_refused_explains_what_its_producer_sent_after_it() -> None:
    refused = RefusedBatches(kept_s=5.0)
    gaps = SequenceGaps(1.0, lambda header, now_s: refused.is_before("t", 0, header, now_s))
    refused.note("t", 0, header(10, pid=1, epoch=3), 1.0)
    refused.note("t", 0, header(20, pid=1, epoch=3), 2.0)
    assert gaps.may_follow_refused(header(15, pid=1, epoch=3), 6.9)
    assert not gaps.may_follow_refused(header(15, pid=1, epoch=3), 7.0), "it had time to come back"
    assert not gaps.may_follow_refused(header(10, pid=1, epoch=3), 3.0), "it is the first one"
    assert not gaps.may_follow_refused(header(15, pid=1, epoch=4), 3.0)
    assert not gaps.may_follow_refused(header(15, pid=2, epoch=3), 3.0)
    assert not refused.is_before("t", 1, header(15, pid=1, epoch=3), 3.0)
    assert not refused.is_before("u", 0, header(15, pid=1, epoch=3), 3.0)


def test_a_refusal_of_long_ago_or_of_another_epoch_is_replaced() -> None:
    refused = RefusedBatches(kept_s=5.0)
    refused.note("t", 0, header(10, pid=1), 1.0)
    refused.note("t", 0, header(20, pid=1), 6.0)
    assert not refused.is_before("t", 0, header(15, pid=1), 6.0)
    refused.note("t", 0, header(30, pid=1, epoch=1), 7.0)
    assert not refused.is_before("t", 0, header(25, pid=1, epoch=1), 7.0)
    refused.note("t", 0, header(10, pid=1, epoch=1), 7.0)
    assert refused.is_before("t", 0, header(25, pid=1, epoch=1), 7.0)


def test_refused_batches_without_a_producer_are_not_kept_and_the_oldest_of_many_go() -> None:
    refused = RefusedBatches(kept_s=5.0)
    refused.note("t", 0, header(10, pid=-1), 1.0)
    assert not refused._batches
    for pid in range(producer_state._REMEMBERED_MAX + 1):
        refused.note("t", 0, header(10, pid=pid), 1.0)
    assert len(refused._batches) == producer_state._REMEMBERED_MAX
    assert not refused.is_before("t", 0, header(15, pid=0), 1.0)


def test_what_was_refused_for_want_of_room_explains_gaps_behind_it_only() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    gaps.on_no_room(header(10, pid=1, epoch=3))
    assert gaps.lacked_room(header(15, pid=1, epoch=3))
    assert not gaps.lacked_room(header(10, pid=1, epoch=3))
    assert not gaps.lacked_room(header(5, pid=1, epoch=3))
    assert not gaps.lacked_room(header(15, pid=1, epoch=4))
    assert not gaps.lacked_room(header(15, pid=2, epoch=3))


def test_the_oldest_refusal_of_a_producer_counts_until_one_of_its_batches_is_accepted() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    gaps.on_no_room(header(10))
    gaps.on_no_room(header(20))
    assert gaps.lacked_room(header(15))
    gaps.on_accepted(header(0).producer_id)
    assert not gaps.lacked_room(header(15))
    gaps.on_no_room(header(20))
    assert not gaps.lacked_room(header(15))
    assert gaps.lacked_room(header(25))


def test_a_newer_epoch_begins_anew_with_what_it_is_refused() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    gaps.on_no_room(header(10, epoch=3))
    gaps.on_no_room(header(20, epoch=4))
    assert not gaps.lacked_room(header(15, epoch=4))
    assert gaps.lacked_room(header(25, epoch=4))


def test_many_refused_producers_cost_bounded_memory() -> None:
    gaps = SequenceGaps(settled_s=0.0)
    for pid in range(producer_state._REMEMBERED_MAX + 1):
        gaps.on_no_room(header(10, pid=pid))
    assert not gaps.lacked_room(header(15, pid=0))
    assert gaps.lacked_room(header(15, pid=producer_state._REMEMBERED_MAX))


@pytest.mark.parametrize(
    ("first", "expected", "found"),
    [
        (5, 5, False),
        (6, 5, True),
        (4, 5, False),
        (0, SEQUENCE_MODULUS - 1, True),
        (SEQUENCE_MODULUS - 1, 0, False),
    ],
)
def test_a_gap_is_ahead_also_around_the_end_of_the_numbers(
    first: int, expected: int, found: bool
) -> None:
    assert is_gap(first, expected) is found
