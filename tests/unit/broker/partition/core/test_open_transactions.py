"""Open transactions: what a marker does, what is stable, what a snapshot keeps."""

from __future__ import annotations

import tracemalloc

import pytest

from broker.errors import (
    InvalidTransactionState,
    NotEnoughReplicas,
    TransactionCoordinatorFenced,
)
from broker.partition.core.open_transactions import (
    UNKNOWN_EPOCH,
    MarkerVerdict,
    OpenTransactions,
)
from client.errors import LogCorrupt
from client.ids import Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header

CLOSE, WRITE, DONE = MarkerVerdict.CLOSE, MarkerVerdict.WRITE, MarkerVerdict.DONE


def header(pid: int = 1, epoch: int = 0, *, transactional: bool = True) -> BatchHeader:
    batch = build_batch(
        [Record(None, b"x", 5)],
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=0,
        transactional=transactional,
    )
    return parse_header(batch)


def marker(pid: int = 1, epoch: int = 0, *, commit: bool = True, coordinator: int = 1) -> Marker:
    return Marker(ProducerId(pid), epoch, commit, coordinator)


def opened(*batches: tuple[int, int]) -> OpenTransactions:
    """Return transactions of (producer, first offset), all of epoch 0."""
    state = OpenTransactions()
    for pid, offset in batches:
        state.on_batch(header(pid), Offset(offset), 100 + offset)
    return state


def stable(state: OpenTransactions, high_watermark: int, log_start: int = 0) -> int:
    return state.last_stable(Offset(log_start), Offset(high_watermark))


# --- VERIFY: what needs the coordinator's word ----------------------------------------------


def test_the_first_batch_of_a_transaction_needs_verification_and_the_next_one_does_not() -> None:
    state = OpenTransactions()
    assert state.needs_verification(header())
    state.on_batch(header(), Offset(0), 5)
    assert not state.needs_verification(header())
    assert state.needs_verification(header(pid=2))
    assert state.needs_verification(header(epoch=1)), "open, but of another epoch"


def test_after_its_marker_a_batch_needs_verification_again() -> None:
    state = opened((1, 0))
    state.on_marker(marker(), Offset(1))
    assert state.needs_verification(header())


def test_plain_batches_are_refused_while_their_producers_transaction_is_open() -> None:
    state = opened((1, 7))
    with pytest.raises(InvalidTransactionState, match="open since offset 7"):
        state.needs_verification(header(transactional=False))
    assert not state.needs_verification(header(pid=2, transactional=False))


def test_open_transactions_are_limited_and_never_evicted() -> None:
    state = OpenTransactions(count_max=2)
    state.on_batch(header(1), Offset(0), 5)
    state.on_batch(header(2), Offset(1), 5)
    with pytest.raises(NotEnoughReplicas):
        state.needs_verification(header(3))
    assert not state.needs_verification(header(1))
    state.on_marker(marker(1), Offset(2))
    assert state.needs_verification(header(3))


# --- MARKER-ONCE, COORDINATOR-EPOCH ---------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "is_tv2", "verdict"),
    [
        (4, False, DONE),
        (5, False, CLOSE),
        (6, False, CLOSE),
        (4, True, DONE),
        (5, True, DONE),  # it ended the transaction before
        (6, True, CLOSE),
    ],
)
def test_a_marker_closes_by_its_epoch(epoch: int, is_tv2: bool, verdict: MarkerVerdict) -> None:
    state = OpenTransactions()
    state.on_batch(header(epoch=5), Offset(0), 5)
    assert state.judge(marker(epoch=epoch), 5, is_tv2=is_tv2) is verdict


@pytest.mark.parametrize("is_tv2", [False, True])
@pytest.mark.parametrize(
    ("epoch", "coordinator", "verdict"),
    [
        (4, 3, DONE),
        (4, 4, DONE),
        (5, 3, DONE),  # a retry whose answer was lost
        (5, 4, WRITE),  # only the log tells the next leader of the new coordinator
        (6, 3, WRITE),  # it fences
    ],
)
def test_a_marker_with_nothing_to_close(
    epoch: int, coordinator: int, is_tv2: bool, verdict: MarkerVerdict
) -> None:
    state = OpenTransactions()
    state.on_marker(marker(epoch=5, coordinator=3), Offset(0))
    again = marker(epoch=epoch, coordinator=coordinator)
    assert state.judge(again, 5, is_tv2=is_tv2) is verdict


def test_a_marker_of_an_unknown_producer_is_written() -> None:
    state = OpenTransactions()
    assert state.judge(marker(), UNKNOWN_EPOCH, is_tv2=False) is WRITE
    assert state.on_marker(marker(commit=False), Offset(0)) is None, "it aborts no data"


@pytest.mark.parametrize("is_open", [False, True])
def test_an_older_coordinator_is_refused(is_open: bool) -> None:
    state = OpenTransactions()
    state.on_marker(marker(coordinator=3), Offset(0))
    if is_open:
        state.on_batch(header(), Offset(1), 5)
    with pytest.raises(TransactionCoordinatorFenced, match="epoch 2 after 3"):
        state.judge(marker(epoch=9, coordinator=2), 0, is_tv2=False)
    assert state.judge(marker(pid=2, coordinator=2), 0, is_tv2=False) is WRITE


def test_a_judgement_changes_nothing() -> None:
    state = opened((1, 0))
    state.judge(marker(coordinator=9), 0, is_tv2=False)
    assert ProducerId(1) in state
    assert state.coordinator_epoch(ProducerId(1)) == UNKNOWN_EPOCH


def test_an_abort_is_what_readers_must_know() -> None:
    state = opened((1, 3), (2, 4))
    assert state.on_marker(marker(1, commit=False), Offset(5)) == AbortedTransaction(
        ProducerId(1), Offset(3), Offset(5)
    )
    assert state.on_marker(marker(2, commit=True), Offset(6)) is None


# --- STABLE ---------------------------------------------------------------------------------


def test_without_transactions_all_below_the_high_watermark_is_stable() -> None:
    assert stable(OpenTransactions(), 7) == 7


def test_nothing_is_stable_behind_the_first_open_transaction() -> None:
    state = opened((1, 3), (2, 5))
    assert stable(state, 9) == 3
    assert stable(state, 2) == 2, "accepted, but not confirmed"


def test_a_transaction_is_undecided_until_its_marker_is_confirmed() -> None:
    state = opened((1, 3))
    state.on_marker(marker(), Offset(8))
    for high_watermark in (4, 8):
        state.on_confirmed(Offset(high_watermark))
        assert stable(state, high_watermark) == 3
    state.on_confirmed(Offset(9))
    assert stable(state, 9) == 9


def test_an_older_transaction_holds_back_a_decided_one() -> None:
    state = opened((1, 3), (2, 5))
    state.on_marker(marker(2), Offset(6))
    state.on_confirmed(Offset(7))
    assert stable(state, 7) == 3
    state.on_marker(marker(1), Offset(7))
    state.on_confirmed(Offset(8))
    assert stable(state, 8) == 8


def test_markers_in_another_order_than_their_transactions_hold_back_what_they_end() -> None:
    state = opened((1, 0), (2, 5), (3, 7))
    for offset, pid in ((10, 3), (11, 1), (12, 2)):
        state.on_marker(marker(pid), Offset(offset))
    found = []
    for high_watermark in (10, 11, 12, 13):
        state.on_confirmed(Offset(high_watermark))
        found.append(stable(state, high_watermark))
    assert found == [0, 0, 5, 13]


def test_an_open_transaction_keeps_nothing_of_those_that_end_behind_it() -> None:
    state = opened((1, 0))
    batch, end = header(2), marker(2)

    def end_some(first: int) -> None:
        for offset in range(first, first + 2_000, 2):
            state.on_batch(batch, Offset(offset), 5)
            state.on_marker(end, Offset(offset + 1))
            state.on_confirmed(Offset(offset + 2))

    end_some(1)
    tracemalloc.start()
    try:
        end_some(3_001)
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()
    assert stable(state, 5_001) == 0


def test_ten_thousand_open_ones_take_what_is_counted_for_them() -> None:
    """0.3 KiB each, as `ops/MEMORY.md` has it; 40 bytes in a snapshot."""
    count = 10_000
    batches = [header(pid) for pid in range(count)]
    state = OpenTransactions(count_max=count)
    tracemalloc.start()
    try:
        for offset, batch in enumerate(batches):
            state.on_batch(batch, Offset(offset), 5)
        assert tracemalloc.get_traced_memory()[0] < 300 * count
    finally:
        tracemalloc.stop()
    assert len(state.encode()) < 40 * count


def test_the_log_start_may_pass_an_open_transaction() -> None:
    assert stable(opened((1, 3)), 9, log_start=6) == 6


def test_what_will_be_stable_when_the_log_is_confirmed() -> None:
    state = opened((1, 3), (2, 5))
    state.on_marker(marker(1), Offset(6))
    assert state.first_open(Offset(7)) == 5
    state.on_marker(marker(2), Offset(7))
    assert state.first_open(Offset(8)) == 8


# --- snapshots ------------------------------------------------------------------------------


def restored(state: OpenTransactions) -> OpenTransactions:
    other = opened((9, 1))
    assert bytes(other.restore(memoryview(state.encode() + b"rest"))) == b"rest"
    return other


def test_a_snapshot_keeps_open_transactions_and_coordinators() -> None:
    state = opened((1, 3), (2, 5), (3, 6))
    state.on_marker(marker(2, coordinator=4), Offset(8))
    state.on_batch(header(2), Offset(9), 109)
    state.on_marker(marker(3, coordinator=7), Offset(10))
    other = restored(state)
    assert list(other) == list(state)
    assert [other.coordinator_epoch(ProducerId(pid)) for pid in (1, 2, 3, 9)] == [-1, 4, 7, -1]
    assert stable(other, 11) == 3
    assert other.encode() == state.encode()


def test_markers_before_a_snapshot_are_confirmed_to_its_reader() -> None:
    state = opened((1, 3))
    state.on_marker(marker(1), Offset(4))
    assert stable(state, 5) == 3
    assert stable(restored(state), 5) == 5


def test_a_damaged_snapshot_is_refused() -> None:
    data = opened((1, 3), (2, 5)).encode()
    for size in range(len(data)):
        with pytest.raises(LogCorrupt):
            OpenTransactions().restore(memoryview(data[:size]))
    count, first, second = data[:4], data[4:34], data[34:]
    with pytest.raises(LogCorrupt, match="not in order"):
        OpenTransactions().restore(memoryview(count + second + first))


def test_an_expired_producer_is_forgotten() -> None:
    state = OpenTransactions()
    state.on_marker(marker(coordinator=3), Offset(0))
    state.forget(ProducerId(1))
    assert state.coordinator_epoch(ProducerId(1)) == UNKNOWN_EPOCH
    state.on_batch(header(), Offset(1), 5)
    with pytest.raises(AssertionError):
        state.forget(ProducerId(1))
