"""A transaction coordinator around its core: durability, markers, producer ids, fail-over."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    NotCoordinator,
    OldConnection,
    TransactionAbortable,
)
from broker.transactions.core.marker_queue import Leader, Outcome, Unled
from broker.transactions.core.transaction import TIMED_OUT, TransactionState
from client.errors import ConnectionLoss
from client.ids import BrokerId, LeaderEpoch
from tests.fakes.transaction_bench import P0, P1, TransactionBench
from tests.fakes.virtual_time import run

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT


def test_a_transaction_from_begin_to_end() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        assert who == (1000, 0)
        await bench.add(who, P0, P1)
        assert bench.state is ONGOING
        assert await bench.coordinator.verify("tx", who, (P0,)) == (None,)
        assert await bench.end(who) == who
        await bench.becomes(COMPLETE_COMMIT)
        assert {broker: len(markers) for _, broker, markers in bench.link.sent} == {1: 1, 2: 1}
        (term, _, (marker,)), _ = bench.link.sent
        assert term == (0, bench.partition.leader_epoch)
        assert (marker.producer, marker.is_commit, marker.leader_epoch) == (who, True, 1)

    run(scenario())


def test_nothing_is_answered_before_it_is_durable() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active(manual=True)
        init = asyncio.ensure_future(bench.init())
        await asyncio.sleep(1)
        assert not init.done()
        bench.partition.confirm()
        assert await init == (1000, 0)
        add = asyncio.ensure_future(bench.add(init.result()))
        await asyncio.sleep(1)
        assert not add.done()
        bench.partition.confirm()
        await add
        end = asyncio.ensure_future(bench.end(init.result()))
        await asyncio.sleep(1)
        assert not end.done()
        assert not bench.link.sent
        bench.partition.confirm()
        await end
        await asyncio.sleep(1)
        assert len(bench.link.sent) == 1

    run(scenario())


def test_markers_go_out_until_they_are_confirmed() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who, P0, P1)
        bench.link.broken.add(BrokerId(1))
        bench.link.outcomes[P1] = Outcome.FAILED
        await bench.end(who)
        await asyncio.sleep(5)
        assert bench.state is PREPARE_COMMIT
        assert bench.coordinator.marker_count == 2
        bench.link.broken.clear()
        bench.link.outcomes.clear()
        await bench.becomes(COMPLETE_COMMIT)
        assert bench.coordinator.marker_count == 0

    run(scenario())


def test_markers_wait_for_a_leader() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who)
        bench.leaders.known[P0] = Unled.UNKNOWN
        await bench.end(who)
        await asyncio.sleep(5)
        assert not bench.link.sent
        bench.leaders.known[P0] = Leader(BrokerId(9), LeaderEpoch(4))
        bench.coordinator.on_leaders_changed()
        await bench.becomes(COMPLETE_COMMIT)
        assert [broker for _, broker, _ in bench.link.sent] == [9]

    run(scenario())


def test_a_deleted_topic_needs_no_marker() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who)
        bench.leaders.known[P0] = Unled.DELETED
        await bench.end(who)
        await bench.becomes(COMPLETE_COMMIT)
        assert not bench.link.sent

    run(scenario())


@pytest.mark.parametrize("is_answered", [False, True])
def test_the_next_coordinator_goes_on_with_a_decision(is_answered: bool) -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who, P0, P1)
        bench.link.holds |= {BrokerId(1)} if is_answered else {BrokerId(1), BrokerId(2)}
        await bench.end(who)
        await asyncio.sleep(0.1)
        first = bench.partition.leader_epoch
        bench.lose()
        assert bench.link.closed == 1
        bench.link.free()
        await bench.active()
        await bench.becomes(COMPLETE_COMMIT)
        later = [term for term, _, _ in bench.link.sent if term.epoch > first]
        assert len(later) == 2

    run(scenario())


def test_a_decision_that_was_not_durable_is_not_one() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who)
        bench.partition.manual = True
        end = asyncio.ensure_future(bench.end(who))
        await asyncio.sleep(0.1)
        bench.lose()
        with pytest.raises(NotCoordinator):
            await end
        await bench.active()
        assert bench.state is ONGOING
        assert not bench.link.sent
        await bench.end(who, is_commit=False)
        await bench.becomes(COMPLETE_ABORT)

    run(scenario())


def test_a_log_that_fails_is_read_again() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who)
        bench.link.holds.add(BrokerId(1))
        await bench.end(who)
        await asyncio.sleep(0.1)
        bench.coordinator._on_log_failed(NotCoordinator("its end is unknown"))
        assert bench.link.closed == 1
        with pytest.raises(CoordinatorLoading):
            await bench.init()
        bench.link.free()
        await bench.becomes(COMPLETE_COMMIT)
        assert bench.link.opened == 2  # newer sessions: what is late in the old ones is dropped

    run(scenario())


def test_a_record_that_the_log_refuses_changes_nothing() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        bench.partition.refuse = NotCoordinator("no")
        with pytest.raises(BrokerError):
            await bench.add(who)
        bench.partition.refuse = None
        assert bench.state is EMPTY
        await bench.add(who)
        assert bench.state is ONGOING

    run(scenario())


def test_no_producer_id_can_be_had() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        bench.producer_id_errors.append(ConnectionLoss("the store is away"))
        with pytest.raises(CoordinatorNotAvailable):
            await bench.init()
        assert await bench.init() == (1000, 0)

    run(scenario())


def test_leadership_lost_while_an_id_is_allocated() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        init = asyncio.ensure_future(bench.init())
        await asyncio.sleep(0)
        bench.lose()
        with pytest.raises(NotCoordinator):
            await init
        await bench.active()
        assert bench.coordinator.view().ids() == []

    run(scenario())


def test_time_that_runs_out_aborts_and_fences() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init(timeout_ms=1_000)
        await bench.add(who)
        await bench.becomes(COMPLETE_ABORT)
        assert [event.name for event in bench.events] == [TIMED_OUT]
        stored = bench.coordinator.view().describe("tx")
        assert stored is not None
        assert stored.epoch == who.epoch + 1
        with pytest.raises(BrokerError):
            await bench.end(who)

    run(scenario())


def test_the_log_is_kept_short_and_loses_nothing() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active(copy_bytes_min=4_000)
        who = await bench.init()
        for _ in range(100):
            await bench.add(who, P0, P1)
            await bench.end(who)
            await bench.becomes(COMPLETE_COMMIT)
        await bench.add(who, P0)
        await asyncio.sleep(1)
        assert bench.log.start > 0
        assert bench.log.size() < 20_000
        before = bench.coordinator.view().describe("tx")
        bench.lose()
        await bench.active()
        assert bench.coordinator.view().describe("tx") == before
        await bench.end(who)
        await bench.becomes(COMPLETE_COMMIT)

    run(scenario())


class TestConnections:
    """OLD-CONNECTION and FRESH-LEADER, through the shell."""

    def test_a_replaced_connection_says_nothing_more(self) -> None:
        async def scenario() -> None:
            bench = await TransactionBench().active()
            who = await bench.init(connection=1)
            await bench.add(who, connection=2)
            with pytest.raises(OldConnection):
                await bench.end(who, connection=1)
            await bench.end(who, connection=2)

        run(scenario())

    def test_nor_one_of_before_the_takeover(self) -> None:
        async def scenario() -> None:
            bench = await TransactionBench().active()
            who = await bench.init(connection=1)
            bench.lose()
            await bench.active(accepted_before=5)
            with pytest.raises(OldConnection):
                await bench.add(who, connection=5)
            await bench.add(who, connection=6)

        run(scenario())

    def test_a_log_that_is_read_again_forgets_no_connection(self) -> None:
        async def scenario() -> None:
            bench = await TransactionBench().active()
            who = await bench.init(connection=2)
            bench.coordinator._on_log_failed(NotCoordinator("its end is unknown"))
            await asyncio.sleep(1)
            with pytest.raises(OldConnection):
                await bench.add(who, connection=1)
            await bench.add(who, connection=2)

        run(scenario())


def test_while_markers_are_written_the_next_transaction_waits() -> None:
    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who)
        bench.link.holds.add(BrokerId(1))
        await bench.end(who)
        add = asyncio.ensure_future(bench.add(who, P1))
        await asyncio.sleep(0.5)
        assert not add.done()
        with pytest.raises(ConcurrentTransactions):
            await bench.end(who)
        bench.link.free()
        await add
        assert bench.state is ONGOING

    run(scenario())


def test_a_producer_is_refused_once_the_log_has_shown_that_this_broker_coordinates_still() -> None:
    """PROVEN: a coordinator that was taken over knows nothing of what its successor has begun."""

    async def scenario() -> None:
        bench = await TransactionBench().active()
        who = await bench.init()
        await bench.add(who, P0)
        bench.partition.manual = True
        asked = [
            asyncio.ensure_future(bench.coordinator.verify(*question))
            for question in (("nobody", who, (P0,)), ("tx", who, (P0, P1)))
        ]
        await asyncio.sleep(1)
        assert not any(one.done() for one in asked)
        for _ in asked:
            bench.partition.confirm()
        with pytest.raises(InvalidProducerIdMapping):
            await asked[0]
        assert [type(error) for error in await asked[1]] == [type(None), TransactionAbortable]
        lost = asyncio.ensure_future(bench.coordinator.verify("nobody", who, (P0,)))
        await asyncio.sleep(1)
        bench.coordinator.close()
        with pytest.raises(NotCoordinator):
            await lost

    run(scenario())
