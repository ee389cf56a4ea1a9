"""Held batches: asked once, released in order, and never behind a marker."""

from __future__ import annotations

import pytest

from broker.errors import (
    BrokerError,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotEnoughReplicas,
    Overloaded,
)
from broker.partition.core.held_batches import Guard, HeldBatches, Released
from client.ids import ProducerId
from client.wire.kafka.batches.records import BatchHeader, Record, build_batch, parse_header

PID = ProducerId(1)
LAST_SEQUENCE = 2**31 - 1


def header(sequence: int = 0, *, pid: int = 1, epoch: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(None, b"x", 5)],
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return parse_header(batch)


SIZE = header().size


@pytest.fixture
def held() -> HeldBatches[str]:
    return HeldBatches("t-0", size_bytes_max=3 * SIZE, overhead_bytes=0)


def ask(held: HeldBatches[str], batch: str, header: BatchHeader) -> Guard:
    guard = held.hold(header, batch)
    assert guard is not None
    return guard


def test_verify_asks_once_and_releases_in_order(held: HeldBatches[str]) -> None:
    guard = ask(held, "a", header(0))
    assert held.hold(header(1), "b") is None
    assert PID in held
    assert held.on_verified(guard, 1, -1) == Released(("a", "b"))
    assert PID not in held
    assert (len(held), held.size_bytes) == (0, 0)


def test_producers_do_not_wait_for_each_other(held: HeldBatches[str]) -> None:
    first, second = ask(held, "a", header(pid=1)), ask(held, "b", header(pid=2))
    assert held.on_verified(second, 1, -1).batches == ("b",)
    assert held.on_verified(first, 1, -1).batches == ("a",)


def test_guard_a_marker_voids_the_question(held: HeldBatches[str]) -> None:
    guard = ask(held, "a", header())
    released = held.on_marker(PID, 0, is_tv2=False)
    assert released.batches == ("a",)
    assert isinstance(released.error, NotEnoughReplicas), "the client asks again"
    assert held.on_verified(guard, 1, -1) == Released(())


def test_guard_the_next_question_is_another_one(held: HeldBatches[str]) -> None:
    """Same producer, epoch, sequence: the late answer to the first says nothing of the second."""
    late = ask(held, "a", header())
    held.on_marker(PID, 0, is_tv2=False)
    guard = ask(held, "a again", header())
    assert held.on_verified(late, 1, -1).batches == ()
    assert held.on_refused(late, InvalidTransactionState(PID, "late")).batches == ()
    assert held.on_verified(guard, 1, -1).batches == ("a again",)


def test_guard_the_end_of_the_leadership_voids_all(held: HeldBatches[str]) -> None:
    guards = [ask(held, "a", header(pid=1)), ask(held, "b", header(pid=2))]
    assert held.drain() == ("a", "b")
    assert all(held.on_verified(guard, 1, -1).batches == () for guard in guards)
    assert held.size_bytes == 0


@pytest.mark.parametrize(
    ("marker_epoch", "is_tv2", "is_void"),
    [(2, False, False), (3, False, True), (4, False, True), (3, True, False), (4, True, True)],
)
def test_next_epoch_a_marker_of_the_transaction_before_voids_nothing(
    held: HeldBatches[str], marker_epoch: int, is_tv2: bool, is_void: bool
) -> None:
    """In TV2 a marker has the epoch after that of the transaction that it ends."""
    guard = ask(held, "a", header(epoch=3))
    released = held.on_marker(PID, marker_epoch, is_tv2=is_tv2)
    assert released.batches == (("a",) if is_void else ())
    assert held.on_verified(guard, 1, -1).batches == (() if is_void else ("a",))


def test_a_marker_of_another_producer_voids_nothing(held: HeldBatches[str]) -> None:
    guard = ask(held, "a", header())
    assert held.on_marker(ProducerId(2), 0, is_tv2=False).batches == ()
    assert held.on_verified(guard, 1, -1).batches == ("a",)


@pytest.mark.parametrize(("answering", "is_taken"), [(2, False), (3, True), (4, True)])
def test_coordinator_epoch_an_older_one_has_no_say(
    held: HeldBatches[str], answering: int, is_taken: bool
) -> None:
    released = held.on_verified(ask(held, "a", header()), answering, 3)
    assert released.batches == ("a",)
    assert (released.error is None) is is_taken
    assert released.error is None or released.error.retriable


@pytest.mark.parametrize(
    "error", [InvalidTransactionState(PID, "not open"), InvalidProducerEpoch(PID, "fenced")]
)
def test_a_refusal_is_for_all_that_is_held(held: HeldBatches[str], error: BrokerError) -> None:
    guard = ask(held, "a", header(0))
    held.hold(header(1), "b")
    assert held.on_refused(guard, error) == Released(("a", "b"), error)
    ask(held, "c", header(2))  # the error says what to do, sequences come anew


# --- REFUSED-ORDER --------------------------------------------------------------------------


def refuse(held: HeldBatches[str], sequence: int) -> None:
    held.on_refused(ask(held, "a", header(sequence)), NotEnoughReplicas("nobody answers"))


@pytest.mark.parametrize("sequence", [0, 7, LAST_SEQUENCE])
def test_what_follows_a_refused_batch_waits_for_it(held: HeldBatches[str], sequence: int) -> None:
    refuse(held, sequence)
    following = (sequence + 1) % 2**31
    with pytest.raises(NotEnoughReplicas, match=f"send sequence {sequence}"):
        held.hold(header(following), "b")
    guard = ask(held, "a", header(sequence))
    assert held.hold(header(following), "b") is None
    assert held.on_verified(guard, 1, -1).batches == ("a", "b")


def test_the_first_of_several_refused_ones_comes_first(held: HeldBatches[str]) -> None:
    guard = ask(held, "a", header(4))
    held.hold(header(5), "b")
    held.on_refused(guard, NotEnoughReplicas("nobody answers"))
    with pytest.raises(NotEnoughReplicas):
        held.hold(header(5), "b")
    refuse(held, 4)
    with pytest.raises(NotEnoughReplicas):
        held.hold(header(5), "b")


def test_what_arrived_late_still_comes_first(held: HeldBatches[str]) -> None:
    guard = ask(held, "b", header(5))
    held.hold(header(4), "a")
    held.on_refused(guard, NotEnoughReplicas("nobody answers"))
    with pytest.raises(NotEnoughReplicas, match="send sequence 4"):
        held.hold(header(5), "b")


def test_a_new_epoch_begins_anew(held: HeldBatches[str]) -> None:
    refuse(held, 4)
    ask(held, "b", header(5, epoch=1))
    held.on_marker(PID, 0, is_tv2=False)


def test_two_epochs_do_not_share_a_guard(held: HeldBatches[str]) -> None:
    guard = ask(held, "a", header(epoch=0))
    with pytest.raises(NotEnoughReplicas, match="epoch 0"):
        held.hold(header(epoch=1), "b")
    assert held.on_verified(guard, 1, -1).batches == ("a",)


# --- limits ---------------------------------------------------------------------------------


def test_what_is_held_is_limited(held: HeldBatches[str]) -> None:
    guard = ask(held, "a", header(0))
    held.hold(header(1), "b")
    held.hold(header(2), "c")
    with pytest.raises(Overloaded):
        held.hold(header(3), "d")
    assert held.size_bytes == 3 * SIZE
    assert held.on_verified(guard, 1, -1).batches == ("a", "b", "c")
    with pytest.raises(NotEnoughReplicas, match="send sequence 3"):
        held.hold(header(4), "e")
    ask(held, "d", header(3))


def test_one_batch_is_always_taken() -> None:
    held = HeldBatches[str]("t-0", size_bytes_max=1)
    ask(held, "a", header())
    with pytest.raises(Overloaded):
        held.hold(header(pid=2), "b")


def test_what_is_remembered_is_limited() -> None:
    held = HeldBatches[str]("t-0", size_bytes_max=SIZE)
    for pid in range(1_001):
        guard = ask(held, "a", header(4, pid=pid))
        held.on_refused(guard, NotEnoughReplicas("nobody answers"))
    with pytest.raises(NotEnoughReplicas):
        held.hold(header(5, pid=1_000), "b")
    ask(held, "b", header(5, pid=0))
