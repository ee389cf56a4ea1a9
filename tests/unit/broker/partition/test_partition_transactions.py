"""Transactions of one led partition: held batches, guards, markers, what is stable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorLoading,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    LeadershipLost,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownLeaderEpoch,
)
from broker.partition.core.append_queue import Append, HeldAppend
from broker.partition.core.held_batches import HELD_OVERHEAD_BYTES, ProducerTransaction
from broker.partition.core.producer_state import WINDOW_BATCHES
from broker.partition.partition import Partition
from client.ids import LeaderEpoch, Offset
from client.log.aborted_transactions import ABORTED_TYPE, open_block
from client.log.entry_format import is_internal, open_internal
from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import headers
from tests.fakes.brokers import Broker, World, batch, done, settle
from tests.fakes.one_partition import fetch, one_partition
from tests.fakes.transactions import (
    CLASSIC,
    TV2,
    FakeVerifier,
    end,
    marker,
    send,
    transactional,
)

Scenario = Callable[[World, FakeVerifier, Partition], Awaitable[None]]


def run(scenario: Scenario, **limits: int) -> None:
    """Run a scenario on a partition whose coordinator is a fake."""

    async def whole(world: World, broker: Broker, partition: Partition) -> None:
        verifier = FakeVerifier()
        broker.services.coordinators.verifier = verifier
        await done(partition.append(batch("first")))
        await scenario(world, verifier, partition)

    one_partition(whole, **limits)


async def refused(append: Append) -> BrokerError:
    """Return the error of an append that is refused in the end."""
    await settle()
    assert append.completed
    assert append.error is not None
    return append.error


def held_bytes(partition: Partition) -> int:
    return partition._services.ledgers.memory.size


# --- VERIFY -------------------------------------------------------------------------------------


def test_without_a_coordinator_to_ask_transactions_are_refused() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for transaction in (None, CLASSIC, TV2):
            with pytest.raises(InvalidTransactionState):
                partition.append(transactional(), transaction=transaction)
        assert partition.log_end_offset == 0

    one_partition(scenario)


def test_a_batch_of_no_transactional_id_is_refused() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        with pytest.raises(InvalidTransactionState):
            partition.append(transactional())
        await done(send(partition))
        with pytest.raises(InvalidTransactionState):
            partition.append(transactional(sequence=1))

    run(scenario)


@pytest.mark.parametrize("transaction", [CLASSIC, TV2])
def test_verify_the_first_batch_waits_for_the_coordinator_and_the_next_ones_behind_it(
    transaction: object,
) -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        assert isinstance(transaction, type(CLASSIC))
        first = send(partition, "a", "b", transaction=transaction)
        second = send(partition, "c", transaction=transaction, sequence=2)
        await settle()
        assert [first.base_offset, second.base_offset] == [-1, -1]
        assert (first.end_offset - first.base_offset, first.completed) == (2, False)
        assert await done(partition.append(batch("other"))) == 1, "others do not wait"
        (asked,) = verifier.asked
        assert asked[:4] == ("tx", 1, 0, "t")
        assert asked.topic_id == partition.topic.topic_id
        assert (asked.partition, asked.is_tv2) == (0, transaction.is_tv2)
        gate.set()
        assert [await done(first), await done(second)] == [2, 4]
        assert (first.base_offset, first.end_offset) == (2, 4)
        assert await done(send(partition, transaction=transaction, sequence=3)) == 5
        assert len(verifier.asked) == 1, "the transaction is open"
        assert partition.last_stable_offset == 2

    run(scenario)


@pytest.mark.parametrize(
    ("said", "classic", "tv2"),
    [
        (CoordinatorLoading("x"), NotEnoughReplicas, NotEnoughReplicas),
        (ConcurrentTransactions("x"), NotEnoughReplicas, ConcurrentTransactions),
        (ProducerFenced("x"), InvalidProducerEpoch, InvalidProducerEpoch),
        (InvalidProducerIdMapping("x"), InvalidProducerIdMapping, InvalidProducerIdMapping),
        (TransactionAbortable("x"), TransactionAbortable, TransactionAbortable),
        (InvalidTransactionState(1, "x"), InvalidTransactionState, InvalidTransactionState),  # type: ignore[arg-type]
    ],
)
def test_a_producer_hears_of_its_coordinators_refusal_as_it_can_deal_with_it(
    said: BrokerError, classic: type, tv2: type
) -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        verifier.refuse(said)
        for pid, transaction, kind in ((1, CLASSIC, classic), (2, TV2, tv2)):
            appends = [
                send(partition, pid=pid, sequence=at, transaction=transaction) for at in range(2)
            ]
            assert [type(await refused(append)) for append in appends] == [kind, kind]
        assert partition.log_end_offset == 1
        assert held_bytes(partition) == 0

    run(scenario)


def test_a_bug_in_asking_keeps_no_producer_waiting() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        def fail(_: object) -> int:
            raise ZeroDivisionError

        verifier.answer = fail
        assert isinstance(await refused(send(partition)), NotEnoughReplicas)

    run(scenario)


def test_nothing_is_taken_before_what_was_refused_and_comes_again() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        verifier.refuse(CoordinatorLoading("x"))
        assert isinstance(await refused(send(partition, "a")), NotEnoughReplicas)
        verifier.vouch()
        with pytest.raises(NotEnoughReplicas, match="first"):
            send(partition, "b", sequence=1)
        assert await done(send(partition, "a")) == 1
        assert await done(send(partition, "b", sequence=1)) == 2

    run(scenario)


def test_a_fenced_producer_is_told_so_and_nobody_is_asked() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition, epoch=5)
        with pytest.raises(InvalidProducerEpoch):
            send(partition, epoch=4)
        assert verifier.asked == []
        gate = verifier.hold()
        late = send(partition, epoch=5)
        await settle()
        task = asyncio.create_task(end(partition, epoch=6))
        await settle()
        gate.set()
        assert isinstance(await refused(late), NotEnoughReplicas), "the marker voids its question"
        await task
        with pytest.raises(InvalidProducerEpoch):
            send(partition, epoch=5)

    run(scenario)


def test_a_fence_while_a_batch_is_held_is_seen_when_it_is_accepted() -> None:
    """The epoch is checked again in the step that accepts."""

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        held = send(partition, epoch=4)
        partition._leader.log.producers.on_marker(1, 5, 0)  # type: ignore[arg-type]
        gate.set()
        assert isinstance(await refused(held), InvalidProducerEpoch)

    run(scenario)


def test_a_plain_batch_does_not_mix_with_its_producers_transaction() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        held = send(partition)
        with pytest.raises(InvalidTransactionState):
            partition.append(batch("plain", pid=1, sequence=1))
        gate.set()
        await done(held)
        with pytest.raises(InvalidTransactionState):
            partition.append(batch("plain", pid=1, sequence=1))
        await end(partition)
        assert await done(partition.append(batch("plain", pid=1, sequence=1))) == 3

    run(scenario)


def test_a_repeated_batch_does_not_open_its_transaction_again() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        first = send(partition, "a")
        assert await done(first) == 1
        await end(partition)
        again = send(partition, "a")
        assert again.completed
        assert (again.base_offset, again.error) == (1, None)
        assert len(verifier.asked) == 1
        assert partition.last_stable_offset == partition.log_end_offset == 3

    run(scenario)


def test_a_batch_that_comes_too_late_is_refused_and_nobody_is_asked() -> None:
    """Its producer's next transaction would be told what its coordinator says of the late one."""

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        for sequence in range(WINDOW_BATCHES + 1):
            await done(send(partition, sequence=sequence))
        await end(partition)
        with pytest.raises(OutOfOrderSequence):
            send(partition, sequence=0)
        assert len(verifier.asked) == 1
        await done(send(partition, sequence=WINDOW_BATCHES + 1))

    run(scenario)


def test_a_batch_that_is_sent_twice_while_it_is_held_is_stored_once() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        appends = [send(partition, "a"), send(partition, "b", sequence=1), send(partition, "a")]
        gate.set()
        assert [await done(append) for append in appends] == [1, 2, 1]
        assert partition.log_end_offset == 3

    run(scenario)


def test_sequences_are_checked_when_a_held_batch_is_accepted() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await asyncio.sleep(10)  # so that no gap is of our own making
        assert isinstance(
            await refused(send(partition, sequence=3, transaction=TV2)), OutOfOrderSequence
        )
        assert await done(send(partition, sequence=3)) == 1, "it may have written here long ago"
        assert isinstance(
            await refused(send(partition, pid=1, epoch=1, sequence=7)), OutOfOrderSequence
        )

    run(scenario)


# --- GUARD, the end, limits ---------------------------------------------------------------------


def test_guard_a_marker_voids_the_question_also_with_nothing_to_do() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition, epoch=0)
        gate = verifier.hold()
        held = send(partition)
        await settle()
        await end(partition, epoch=0)  # the same once more: nothing is written
        assert isinstance(await refused(held), NotEnoughReplicas)
        gate.set()
        await settle()
        assert partition.log_end_offset == 2, "the answer was thrown away"
        again = send(partition)
        assert await done(again) == 2
        assert len(verifier.asked) == 2

    run(scenario)


def test_next_epoch_a_batch_that_comes_before_the_marker_waits_for_it() -> None:
    """In TV2 a producer goes on as soon as its end is decided, and its marker may be late."""

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition, transaction=TV2))
        gate = verifier.hold()
        early = [send(partition, transaction=TV2, epoch=1)]
        early.append(send(partition, transaction=TV2, epoch=1, sequence=1))
        await settle()
        await end(partition, epoch=1, is_tv2=True)
        assert not any(append.completed for append in early), "their coordinator is asked still"
        gate.set()
        assert [await done(append) for append in early] == [3, 4], "behind the marker, in order"
        assert partition.last_stable_offset == 3
        assert len(verifier.asked) == 2, "one question each"

    run(scenario)


def test_an_older_coordinator_than_the_log_knows_vouches_for_nothing() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition, coordinator=7)
        verifier.vouch(6)
        assert isinstance(await refused(send(partition)), NotEnoughReplicas)
        verifier.vouch(7)
        assert await done(send(partition)) == 2

    run(scenario)


def test_the_end_of_the_leadership_fails_what_is_held() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        held = send(partition)
        await settle()
        assert held_bytes(partition) == held.size
        partition.resign("a test")
        assert isinstance(held.error, NotLeader)
        assert held_bytes(partition) == 0
        gate.set()
        await settle()

    run(scenario)


def test_held_bytes_are_bounded() -> None:
    size = len(transactional())

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        held = [send(partition, sequence=at) for at in range(2)]
        for pid, at in ((1, 2), (2, 0)):
            with pytest.raises(Overloaded):
                send(partition, pid=pid, sequence=at)
        gate.set()
        assert [await done(append) for append in held] == [1, 2]
        assert await done(send(partition, sequence=2)) == 3

    run(scenario, held_bytes_max=2 * (size + HELD_OVERHEAD_BYTES))


def test_a_small_held_batch_keeps_no_large_frame() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        verifier.hold()
        small = transactional()
        frame = memoryview(bytearray(small + bytes(100_000)))
        held = partition.append(frame[: len(small)], transaction=CLASSIC)
        assert isinstance(held, HeldAppend)
        assert held.batch == small
        assert not isinstance(held.batch, memoryview)

    run(scenario)


def test_open_transactions_are_bounded() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        for pid in (1, 2):
            await done(send(partition, pid=pid))
        with pytest.raises(NotEnoughReplicas):
            send(partition, pid=3)
        await done(send(partition, pid=1, sequence=1))
        await end(partition, pid=1)
        await done(send(partition, pid=3))

    run(scenario, open_transactions_max=2)


@pytest.mark.parametrize("transaction", [CLASSIC, TV2])
def test_no_batch_overtakes_one_that_found_too_many_open(transaction: ProducerTransaction) -> None:
    """The log does not know the producer, and would take any sequence of it."""

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition, pid=1))
        with pytest.raises(NotEnoughReplicas):
            send(partition, pid=2, transaction=transaction)
        await end(partition, pid=1)
        with pytest.raises(Overloaded, match="before this one"):
            await done(send(partition, pid=2, sequence=1, transaction=transaction))
        await done(send(partition, pid=2, transaction=transaction))
        await done(send(partition, pid=2, sequence=1, transaction=transaction))

    run(scenario, open_transactions_max=1)


def test_transactions_that_were_held_together_stay_within_the_limit() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        appends = [send(partition, pid=pid) for pid in (1, 2, 3)]
        gate.set()
        assert [await done(one) for one in appends[:2]] == [1, 2]
        assert isinstance(await refused(appends[2]), NotEnoughReplicas)
        await end(partition, pid=1)
        await done(send(partition, pid=3))

    run(scenario, open_transactions_max=2)


def test_no_room_for_what_was_held_lets_none_behind_it_in() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        held = [send(partition, sequence=at) for at in range(2)]
        world.backend.service.answer_s = lambda: 5.0
        partition.append(batch("x", pad=1000))
        gate.set()
        assert [type(await refused(append)) for append in held] == [Overloaded, Overloaded]
        with pytest.raises(NotEnoughReplicas):
            send(partition, sequence=1)
        await asyncio.sleep(10)
        assert await done(send(partition)) == 2

    run(scenario, in_flight_bytes_max=1000)


def test_a_coordinators_own_batches_have_no_sequence_and_keep_their_order() -> None:
    """As offsets of a transaction are appended to the group's log."""

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        gate = verifier.hold()
        order: list[int] = []
        for at in range(2):
            held = partition.append(
                transactional(str(at), sequence=-1), from_client=False, transaction=CLASSIC
            )
            assert isinstance(held, HeldAppend)
            held.on_accepted(lambda append: order.append(append.base_offset))
        await done(partition.append(batch("other"), from_client=False))
        gate.set()
        await settle()
        assert order == [2, 3]
        held.on_accepted(lambda append: order.append(append.base_offset))
        assert order == [2, 3, 3], "at once"
        now = partition.append(transactional(sequence=-1), from_client=False, transaction=CLASSIC)
        assert now.base_offset == 4
        with pytest.raises(InvalidProducerEpoch):
            partition.append(
                transactional(sequence=-1, epoch=-1), from_client=False, transaction=CLASSIC
            )

    run(scenario)


# --- markers ------------------------------------------------------------------------------------


def test_a_marker_is_a_control_batch_with_an_offset_of_its_own() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition, "a"))
        await end(partition, commit=False, coordinator=3)
        assert partition.log_end_offset == partition.high_watermark == 3
        data = await fetch(partition, 2)
        ((at, header),) = headers(data)
        assert (header.base_offset, header.size, header.leader_epoch) == (2, 78, 0)
        assert read_marker(data[at:]) == marker(commit=False, coordinator=3)

    run(scenario)


def test_stable_only_when_the_marker_is_confirmed() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition, "a"))
        heard: list[int] = []
        partition.on_high_watermark(
            Offset(1), lambda: heard.append(partition.last_stable_offset), read_committed=True
        )
        world.backend.service.answer_s = lambda: 5.0
        task = asyncio.create_task(end(partition))
        await asyncio.sleep(1)
        assert (partition.log_end_offset, partition.high_watermark) == (3, 2)
        assert partition.last_stable_offset == 1
        assert not task.done()
        assert heard == []
        await task
        assert partition.last_stable_offset == 3
        assert heard == [3]

    run(scenario)


def test_marker_address_another_leader_epoch_refuses_it() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition))
        with pytest.raises(UnknownLeaderEpoch):
            await end(partition, leader_epoch=LeaderEpoch(1))
        with pytest.raises(FencedLeaderEpoch):
            await end(partition, leader_epoch=LeaderEpoch(-1))
        assert partition.last_stable_offset == 1
        await end(partition, leader_epoch=LeaderEpoch(0))
        assert partition.last_stable_offset == 3

    run(scenario)


def test_an_older_coordinators_marker_is_refused() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition, coordinator=7)
        verifier.vouch(7)
        await done(send(partition))
        with pytest.raises(TransactionCoordinatorFenced):
            await end(partition, coordinator=6)
        assert len(partition.transactions.open_transactions()) == 1

    run(scenario)


def test_marker_once_a_retry_writes_nothing_and_is_done_when_the_lead_is_proven() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        for is_tv2, epoch in ((False, 0), (True, 1)):
            await done(send(partition, epoch=epoch))
            marker_epoch = epoch + is_tv2
            await end(partition, epoch=marker_epoch, is_tv2=is_tv2)
            log_end = partition.log_end_offset
            service = world.backend.service
            ledger = service.ledgers[partition._leader.log.active.ledger_id]
            count = len(ledger.entries)
            await end(partition, epoch=marker_epoch, is_tv2=is_tv2)
            assert partition.log_end_offset == log_end
            assert len(ledger.entries) == count + 1, "the proof, of no offset"

    run(scenario)


def test_proofs_are_shared_by_those_who_ask_while_one_is_under_way() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition)
        service = world.backend.service
        ledger = service.ledgers[partition._leader.log.active.ledger_id]
        count = len(ledger.entries)
        service.answer_s = lambda: 1.0
        tasks = []
        for _ in range(10):
            tasks.append(asyncio.create_task(end(partition)))
            await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
        assert len(ledger.entries) == count + 2

    run(scenario)


def test_what_is_sent_anyhow_is_the_proof() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition)
        ledger = world.backend.service.ledgers[partition._leader.log.active.ledger_id]
        count = len(ledger.entries)
        task = asyncio.create_task(end(partition))
        append = partition.append(batch("x"))
        await task
        assert append.completed
        assert len(ledger.entries) == count + 1

    run(scenario)


def test_proven_a_leader_that_was_taken_over_says_nothing() -> None:
    """It finds nothing open, while its successor has the data."""

    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition)
        successor = await world.broker(2, owning=False)
        successor.services.coordinators.verifier = verifier
        next_leader = await successor.open(partition.topic)
        await done(send(next_leader))
        with pytest.raises(LeadershipLost):
            await end(partition)
        assert next_leader.last_stable_offset < next_leader.high_watermark

    run(scenario)


def test_an_entry_that_was_under_way_proves_nothing() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition)
        service = world.backend.service
        service.answer_s = lambda: 1.0
        append = partition.append(batch("x"))
        await settle()
        assert not append.completed
        service.answer_s = lambda: 0.0
        successor = await world.broker(2, owning=False)
        await successor.open(partition.topic)
        assert not append.completed
        service.arrival_s = lambda: 5.0
        task = asyncio.create_task(end(partition))
        assert await done(append) == 2, "it was stored before, and says so now"
        await settle()
        assert not task.done()
        with pytest.raises(LeadershipLost):
            await task

    run(scenario)


def test_a_marker_of_a_partition_without_data_is_written_for_its_epochs() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition, pid=9, epoch=4, coordinator=3)
        assert partition.log_end_offset == partition.last_stable_offset == 2
        with pytest.raises(InvalidProducerEpoch):
            send(partition, pid=9, epoch=3)
        await end(partition, pid=9, epoch=4, coordinator=3)
        await end(partition, pid=9, epoch=3, coordinator=3)
        assert partition.log_end_offset == 2
        await end(partition, pid=9, epoch=4, coordinator=4)
        assert partition.log_end_offset == 3, "COORDINATOR-EPOCH: the log has to know it"

    run(scenario)


def test_what_is_open_is_shown() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await end(partition, pid=2, coordinator=3)
        verifier.vouch(3)
        for pid in (2, 1):
            await done(send(partition, pid=pid))
        now_ms = world.clock.now_ms()
        assert partition.transactions.open_transactions() == [
            (2, 0, 3, 2, now_ms),
            (1, 0, -1, 3, now_ms),
        ]

    run(scenario)


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition, pid=1))
        for pid in range(2, 60):
            await done(partition.append(batch("x", pid=pid)))
        producers = partition._leader.log.producers
        assert 1 in producers
        await partition.changes.maintain(world.clock.now_ms() + 10**10)
        assert len(producers) == 1
        assert 1 in producers
        with pytest.raises(InvalidTransactionState):
            partition.append(batch("plain", pid=1, sequence=1))
        await end(partition)
        await partition.changes.maintain(world.clock.now_ms() + 10**11)
        assert len(producers) == 0
        assert partition._leader.log.fold.transactions.coordinator_epoch(1) == -1  # type: ignore[arg-type]

    run(scenario, producer_count_max=20)


def test_a_transaction_that_is_open_for_long_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        await done(send(partition, pid=1))
        transactions, now_ms = partition.transactions, world.clock.now_ms()
        for later_ms in (1_000, 59_000):
            transactions.look(now_ms + later_ms)
        assert "transaction_open" not in caplog.text
        for later_ms in (61_000, 130_000):
            transactions.look(now_ms + later_ms)
        told = [record for record in caplog.records if "transaction_open" in record.message]
        assert [record.getMessage().split(" ", 1)[1] for record in told] == [
            "topic=t partition=0 producer=1 producer_epoch=0 offset=1 seconds=61"
        ]
        usage = partition.usage
        assert (usage.open_transactions, usage.oldest_open_ms) == (1, now_ms)
        assert usage.undecided_records == 1
        await end(partition)
        transactions.look(now_ms + 200_000)
        assert (usage.open_transactions, usage.oldest_open_ms) == (0, None)
        assert usage.undecided_records == 0

    run(scenario)


def test_blocks_of_aborted_transactions_are_entries_of_the_ledger() -> None:
    async def scenario(world: World, verifier: FakeVerifier, partition: Partition) -> None:
        for number in range(7):
            await done(send(partition, sequence=number))
            await end(partition, commit=False)
        ledger = world.backend.service.ledgers[partition._leader.log.active.ledger_id]
        found = [
            open_block(entry)
            for entry in ledger.entries
            if is_internal(entry) and open_internal(entry).type == ABORTED_TYPE
        ]
        assert [len(block) for block in found] == [2, 2, 2]
        assert len(partition._leader.log.active.transactions.aborted.rest) == 1
        read = await partition.reader.read(
            Offset(0), 1 << 20, at_least_one=True, read_committed=True
        )
        assert [one.first_offset for one in read.aborted] == [1, 3, 5, 7, 9, 11, 13]

    run(scenario, aborted_block_entries=2)
