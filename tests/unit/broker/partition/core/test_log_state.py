"""The end of a led log: order, entries, duplicates, room."""

from __future__ import annotations

import pytest

from broker.errors import NotLeader, OutOfOrderSequence, Overloaded
from broker.partition.core.append_queue import Append
from broker.partition.core.leader_effects import NOTHING, PLAN, SEND, SEND_AND_PLAN
from broker.partition.core.log_state import LogOffsets, LogState
from client.ids import LedgerId, Offset
from tests.fakes.brokers import batch
from tests.unit.broker.partition.core.leader_driver import NOW_MS, new_log


def append(log: LogState, *values: str, now_s: float = 10.0, **options: int) -> Append:
    data = batch(*(values or ("x",)), **options)
    return log.append(data, NOW_MS, now_s, from_client=True)


def take(log: LogState) -> list[int]:
    """Take what is for the ledger; return how many batches each entry holds."""
    sizes = []
    while log.queue.waiting:
        sizes.append(len(log.queue.take().appends))
    return sizes


def test_a_turn_of_the_loop_is_planned_once_and_ends_in_one_entry() -> None:
    log = new_log()
    append(log)
    assert log.outgoing() is PLAN
    append(log)
    assert log.outgoing() is NOTHING
    assert log.on_turn_over() is SEND
    assert take(log) == [2]
    assert log.on_turn_over() is NOTHING


def test_a_full_entry_leaves_at_once() -> None:
    log = new_log(shared_entry_batches_max=2)
    append(log)
    append(log)
    assert log.outgoing() is SEND


def test_what_finds_no_place_in_an_entry_goes_into_the_next_one() -> None:
    log = new_log(shared_entry_bytes_max=500)
    append(log, pad=300)
    assert log.outgoing() is PLAN
    log.on_turn_over()
    assert take(log) == [1]
    log.on_confirmed()
    append(log, pad=100)
    append(log, pad=300)
    assert log.outgoing() is SEND_AND_PLAN
    assert take(log) == [1]
    log.on_turn_over()
    assert take(log) == [1]


def test_entries_gather_while_enough_are_under_way() -> None:
    log = new_log(entries_before_sharing=1)
    append(log)
    log.outgoing()
    log.on_turn_over()
    take(log)
    append(log)
    assert log.outgoing() is NOTHING
    assert log.on_confirmed().end_offset == 1
    assert log.outgoing() is PLAN


def test_ids_follow_the_ledger_across_a_change() -> None:
    log = new_log()
    log.write_snapshot()
    append(log)
    log.finish_segment()
    previous = log.hold(LedgerId(2), NOW_MS)
    append(log)
    ids = []
    while log.queue.waiting:
        ids.append(log.queue.take().entry_id)
    assert ids == [0, 1, 2]
    assert previous.entry_count == 3
    with pytest.raises(AssertionError, match="unconfirmed"):
        log.switch()
    for _ in range(3):
        log.on_confirmed()
    assert log.has_own_snapshot
    log.switch()
    assert not log.has_own_snapshot, "that one is in the previous ledger"
    log.on_turn_over()
    assert [log.queue.take().entry_id, log.queue.take().entry_id] == [0, 1]
    log.on_confirmed()
    assert log.has_own_snapshot


def test_parked_a_duplicate_is_answered_with_what_is_on_its_way() -> None:
    log = new_log()
    first = append(log, "a", pid=7)
    assert append(log, "a", pid=7) is first, "it gathers"
    log.outgoing()
    log.on_turn_over()
    assert append(log, "a", pid=7) is first, "it waits"
    take(log)
    assert append(log, "a", pid=7) is first, "it was sent"
    log.on_confirmed()
    again = append(log, "a", pid=7)
    assert again is not first
    assert (again.completed, again.base_offset, again.end_offset) == (True, 0, 1)
    assert log.offsets.log_end == 1


def test_accepted_order_sequences_do_not_wait_for_confirmations() -> None:
    log = new_log()
    append(log, "a", pid=7, sequence=0)
    append(log, "b", pid=7, sequence=1)
    with pytest.raises(OutOfOrderSequence):
        append(log, "d", pid=7, sequence=3)
    assert log.offsets.log_end == 2


def test_settling_a_gap_is_refused_as_what_is_missing_was() -> None:
    log = new_log(settled_s=15.0)
    with pytest.raises(NotLeader):
        append(log, "b", pid=7, sequence=1)
    with pytest.raises(NotLeader):
        append(log, "b", pid=7, sequence=1, now_s=14.9)
    append(log, "b", pid=7, sequence=1, now_s=15.0)


def test_a_batch_larger_than_all_room_goes_alone() -> None:
    log = new_log(in_flight_bytes_max=400)
    assert log.has_room(10_000)
    append(log, pad=600)
    assert not log.has_room(1)
    with pytest.raises(Overloaded):
        append(log)
    assert log.offsets.log_end == 1


def test_what_follows_a_batch_that_waited_in_vain_is_refused_for_the_same_reason() -> None:
    log = new_log()
    append(log, "a", pid=7, sequence=0)
    refusal = log.refuse(batch("b", pid=7, sequence=1))
    assert isinstance(refusal, Overloaded)
    with pytest.raises(Overloaded, match="before this"):
        append(log, "c", pid=7, sequence=2)


def test_a_producer_that_the_log_does_not_know_cannot_overtake_its_batch_that_waited_in_vain() -> (
    None
):
    log = new_log()
    log.refuse(batch("b", pid=7, sequence=1))
    log.refuse(batch("c", pid=7, sequence=2))
    with pytest.raises(Overloaded, match="before this"):
        append(log, "c", pid=7, sequence=2)
    with pytest.raises(Overloaded, match="before this"):
        append(log, "d", pid=7, sequence=3)
    append(log, "b", pid=7, sequence=1)
    append(log, "c", pid=7, sequence=2)
    assert log.offsets.log_end == 2


@pytest.mark.parametrize(("chunk_bytes", "is_copied"), [(0, False), (9_000, False), (12_000, True)])
def test_a_batch_keeps_little_more_than_itself(chunk_bytes: int, is_copied: bool) -> None:
    log = new_log(copy_below_bytes=4096)
    data = bytes(batch("x", pad=5_000))
    chunk = memoryview(data + bytes(max(0, chunk_bytes - len(data))))
    appended = log.append(chunk[: len(data)], NOW_MS, 10.0, from_client=True)
    kept = [part.obj for part in appended.buffers if isinstance(part, memoryview)]
    assert kept == ([] if is_copied else [chunk.obj])
    assert b"".join(appended.buffers)[-5_000:] == data[-5_000:]


def test_after_a_takeover_everything_is_confirmed() -> None:
    offsets = LogOffsets(Offset(5), Offset(20))
    assert (offsets.high_watermark, offsets.last_stable, offsets.log_end) == (20, 20, 20)
    assert offsets.describe() == "log_start=5 high_watermark=20 log_end=20"


def test_accept_then_confirm() -> None:
    offsets = LogOffsets(Offset(0), Offset(0))
    offsets.on_accepted(Offset(3))
    offsets.on_accepted(Offset(5))
    assert (offsets.high_watermark, offsets.log_end) == (0, 5)
    offsets.on_confirmed(Offset(3))
    offsets.on_confirmed(Offset(3))
    assert offsets.high_watermark == 3
    offsets.on_trimmed(Offset(3))
    offsets.check()


@pytest.mark.parametrize("end", [2, 6])
def test_the_high_watermark_stays_within_the_log(end: int) -> None:
    offsets = LogOffsets(Offset(0), Offset(3))
    offsets.on_accepted(Offset(5))
    with pytest.raises(AssertionError):
        offsets.on_confirmed(Offset(end))


def test_nothing_goes_back() -> None:
    offsets = LogOffsets(Offset(2), Offset(3))
    with pytest.raises(AssertionError):
        offsets.on_accepted(Offset(3))
    with pytest.raises(AssertionError):
        offsets.on_trimmed(Offset(1))
    with pytest.raises(AssertionError):
        offsets.on_trimmed(Offset(4))
    with pytest.raises(AssertionError):
        LogOffsets(Offset(4), Offset(3))
