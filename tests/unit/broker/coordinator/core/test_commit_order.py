"""Late offsets of transactions: which connections may still commit."""

from __future__ import annotations

import pytest

from broker.coordinator.core.connection_order import CommitOrder
from broker.errors import OldConnection
from client.ids import ConnectionId, ProducerId


def admit(order: CommitOrder, connection: int, *, producer_id: int = 7, epoch: int = 0) -> None:
    order.admit(ProducerId(producer_id), epoch, ConnectionId(connection))


def test_old_connection_the_newest_one_counts() -> None:
    order = CommitOrder(ConnectionId(0))
    admit(order, 1)
    admit(order, 3)
    admit(order, 3)
    with pytest.raises(OldConnection):
        admit(order, 2)
    admit(order, 2, producer_id=8)


def test_old_connection_a_newer_epoch_may_come_over_an_older_connection() -> None:
    order = CommitOrder(ConnectionId(0))
    admit(order, 3)
    admit(order, 2, epoch=1)
    admit(order, 4, epoch=0)  # fenced: it counts for nothing
    admit(order, 2, epoch=1)
    with pytest.raises(OldConnection):
        admit(order, 1, epoch=1)


def test_fresh_leader_connections_from_before_the_takeover_are_refused() -> None:
    order = CommitOrder(ConnectionId(5))
    with pytest.raises(OldConnection):
        admit(order, 5)
    admit(order, 6)


def test_those_that_committed_last_are_remembered() -> None:
    order = CommitOrder(ConnectionId(0), producers_max=2)
    for producer_id in (1, 2, 1, 3):
        admit(order, 9, producer_id=producer_id)
    admit(order, 8, producer_id=2)
    with pytest.raises(OldConnection):
        admit(order, 8, producer_id=3)
