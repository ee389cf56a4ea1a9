"""OLD-CONNECTION, FRESH-LEADER and CHANNEL: late messages have no effect."""

from __future__ import annotations

import pytest

from broker.coordinator.core.connection_order import ChannelOrder, ConnectionOrder, Session
from broker.errors import BrokerError, InvalidProducerIdMapping, OldConnection, ProducerFenced
from broker.faults import Code, code_of
from client.ids import ConnectionId, LeaderEpoch
from tests.unit.broker.transactions.core.transaction_driver import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    NEW,
    ONGOING,
    P1,
    TV2,
    Bench,
    producer,
)

FIRST = producer(NEW, 0)


def test_the_newest_connection_counts() -> None:
    order = ConnectionOrder(ConnectionId(0))
    order.admit("a", ConnectionId(5), counts=True)
    order.admit("a", ConnectionId(5), counts=True)
    order.admit("a", ConnectionId(8), counts=True)
    with pytest.raises(OldConnection):
        order.admit("a", ConnectionId(5), counts=True)
    order.admit("b", ConnectionId(5), counts=True)
    order.admit("a", ConnectionId(9), counts=False)
    order.admit("a", ConnectionId(8), counts=True)
    order.forget("a")
    order.admit("a", ConnectionId(5), counts=True)


def test_connections_from_before_the_takeover_do_not_count() -> None:
    order = ConnectionOrder(ConnectionId(5))
    for counts in (True, False):
        with pytest.raises(OldConnection):
            order.admit("a", ConnectionId(5), counts=counts)
    order.admit("a", ConnectionId(6), counts=True)


def test_who_does_not_close_the_connection_sends_the_client_to_look_again() -> None:
    assert code_of(OldConnection("old")) == Code.not_coordinator
    assert OldConnection.retriable


def outcome(bench: Bench, token: object) -> object:
    return bench.replies[token]  # type: ignore[index]


class TestOldConnection:
    """The newest connection of the current incarnation is the only one that is heard."""

    def test_a_late_end_of_the_transaction_before(self) -> None:
        """Jepsen's case: EndTxn over connection 1 is repeated over 2, and read after that."""
        bench = Bench()
        bench.init(connection=1)
        bench.add(FIRST, connection=1)
        assert outcome(bench, bench.end(FIRST, connection=2)) == FIRST
        bench.confirm()
        bench.add(FIRST, P1, connection=2)
        late = bench.end(FIRST, connection=1)
        assert isinstance(bench.replies[late], OldConnection)
        assert bench.stored.state is ONGOING
        assert bench.stored.partitions == (P1,)

    def test_a_late_add(self) -> None:
        bench = Bench()
        bench.init(connection=1)
        bench.add(FIRST, connection=2)
        bench.end(FIRST, connection=2)
        bench.confirm()
        late = bench.add(FIRST, connection=1)
        assert isinstance(bench.replies[late], OldConnection)
        assert bench.stored.state is COMPLETE_COMMIT

    @pytest.mark.parametrize("expected", [None, FIRST])
    def test_a_late_init(self, expected: object) -> None:
        bench = Bench()
        bench.init(connection=1)
        bench.add(FIRST, connection=2)
        late = bench.init(expected, connection=1)  # type: ignore[arg-type]
        assert isinstance(bench.replies[late], OldConnection)
        assert bench.stored.state is ONGOING

    def test_a_fenced_producer_does_not_shut_out_its_successor(self) -> None:
        bench = Bench()
        bench.init(connection=1)
        assert outcome(bench, bench.init(connection=2)) == producer(NEW, 1)
        for connection in (1, 9):
            for token in (
                bench.add(FIRST, connection=connection),
                bench.end(FIRST, connection=connection),
            ):
                assert isinstance(bench.replies[token], ProducerFenced)
        bench.add(producer(NEW, 1), connection=2)
        bench.end(producer(NEW, 1), connection=2, is_commit=False)
        bench.confirm()
        assert bench.stored.state is COMPLETE_ABORT
        late = bench.init(FIRST, connection=9)
        assert isinstance(bench.replies[late], ProducerFenced)
        assert outcome(bench, bench.end(producer(NEW, 1), connection=2, is_commit=False)) == (
            producer(NEW, 1)
        )

    def test_an_epoch_that_was_followed_by_a_transaction_counts_for_nothing(self) -> None:
        bench = Bench()
        bench.init(connection=1)
        second = outcome(bench, bench.init(FIRST, connection=2))
        assert second == producer(NEW, 1)
        bench.add(producer(NEW, 1), connection=2)
        late = bench.end(FIRST, connection=9)
        assert isinstance(bench.replies[late], ProducerFenced)
        assert outcome(bench, bench.end(producer(NEW, 1), connection=2)) == second

    def test_a_retry_with_the_epoch_before_counts(self) -> None:
        bench = Bench()
        bench.init(connection=1)
        bench.add(FIRST, connection=1, version=TV2)
        bench.end(FIRST, connection=1, version=TV2)
        bench.confirm()
        retry = bench.end(FIRST, connection=2, version=TV2)
        assert bench.replies[retry] == producer(NEW, 1)
        late = bench.end(FIRST, connection=1, version=TV2)
        assert isinstance(bench.replies[late], OldConnection)

    def test_the_epoch_under_way_counts(self) -> None:
        bench = Bench()
        bench.init(connection=1)
        bench.slow = True
        bench.init(connection=2)
        early = bench.end(producer(NEW, 1), connection=3)
        assert isinstance(bench.replies[early], BrokerError)
        late = bench.end(FIRST, connection=2)
        assert isinstance(bench.replies[late], OldConnection)

    def test_a_parked_request_whose_connection_was_replaced(self) -> None:
        bench = Bench()
        bench.init(connection=1)
        bench.add(FIRST, connection=1)
        bench.end(FIRST, connection=1)
        parked = bench.add(FIRST, P1, connection=1)
        assert parked not in bench.replies
        bench.end(FIRST, connection=2)
        bench.confirm()
        assert isinstance(bench.replies[parked], OldConnection)
        assert bench.stored.state is COMPLETE_COMMIT

    def test_other_brokers_are_not_ordered_so(self) -> None:
        bench = Bench()
        bench.init(connection=4)
        assert outcome(bench, bench.add(FIRST, version=TV2)) is None
        assert outcome(bench, bench.end(FIRST, connection=4, version=TV2)) == producer(NEW, 1)


class TestFreshLeader:
    """What was accepted before the takeover may be late."""

    def test_every_request_of_an_older_connection_is_refused(self) -> None:
        bench = Bench(accepted_before=7)
        assert isinstance(outcome(bench, bench.end(FIRST, connection=7)), OldConnection)
        assert isinstance(outcome(bench, bench.end(FIRST, connection=8)), InvalidProducerIdMapping)
        assert isinstance(outcome(bench, bench.init(connection=7)), OldConnection)
        assert outcome(bench, bench.init(connection=8)) == FIRST
        for connection in (6, 7):
            for token in (
                bench.init(connection=connection),
                bench.add(FIRST, connection=connection),
                bench.end(producer(NEW, 5), connection=connection),
            ):
                assert isinstance(bench.replies[token], OldConnection)


class TestChannel:
    """One session per coordinator partition: the newest."""

    def test_the_newest_session_is_the_only_one(self) -> None:
        order = ChannelOrder()
        old = Session(LeaderEpoch(3), 5)
        assert order.hear(1, old)
        assert order.hear(1, old)
        for newer in (Session(LeaderEpoch(3), 6), Session(LeaderEpoch(4), 1)):
            assert order.hear(1, newer)
            assert order.hear(1, newer)
            assert not order.hear(1, old)
        assert order.hear(2, old)
        assert order.hear(1, newer)
