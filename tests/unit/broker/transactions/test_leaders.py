"""Who leads the partitions of a transaction, out of a view that may be behind."""

from __future__ import annotations

import asyncio
from uuid import UUID

from broker.transactions.core.marker_queue import Leader, Unled
from broker.transactions.core.transaction import TransactionPartition
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from tests.fakes.transaction_front import TransactionFront
from tests.fakes.virtual_time import run


class Looks:
    """The leaders of a front's transactions, and how often they may have changed."""

    def __init__(self, front: TransactionFront) -> None:
        self.front = front
        self.leaders = front.transactions._leaders
        self.changes = 0
        self.leaders._on_changed = self._on_changed
        self.told: list[Leader | Unled] = []

    def _on_changed(self) -> None:
        self.changes += 1

    def partition(self, index: int = 0) -> TransactionPartition:
        return TransactionPartition("t", self.front.cluster.topics["t"].topic_id, index)

    async def changed(self, count: int) -> None:
        await self.front.settle(lambda: self.changes >= count)


def test_an_epoch_is_read_before_it_is_told() -> None:
    async def scenario() -> None:
        looks = Looks(await TransactionFront().start())
        assert looks.leaders.leader(looks.partition()) is Unled.UNKNOWN
        await looks.changed(1)
        assert looks.leaders.leader(looks.partition()) == Leader(1, 1)

    run(scenario())


def test_and_read_again_after_a_takeover() -> None:
    async def scenario() -> None:
        looks = Looks(await TransactionFront().start())
        looks.leaders.leader(looks.partition())
        await looks.changed(1)
        await looks.front.lead_data("t", 0, 7)
        await asyncio.sleep(0.1)
        assert looks.leaders.leader(looks.partition()) is Unled.UNKNOWN
        await looks.changed(2)
        assert looks.leaders.leader(looks.partition()) == Leader(1, 7)

    run(scenario())


def test_a_topic_is_deleted_when_the_store_says_so() -> None:
    async def scenario() -> None:
        looks = Looks(await TransactionFront().start())
        gone = looks.partition()
        await looks.front.topics.delete("t")
        told: list[Leader | Unled] = []
        looks.leaders._on_changed = lambda: told.append(looks.leaders.leader(gone))
        assert looks.leaders.leader(gone) is Unled.UNKNOWN
        await looks.front.settle(lambda: bool(told))
        assert told == [Unled.DELETED]

    run(scenario())


def test_made_again_it_is_another_topic() -> None:
    async def scenario() -> None:
        looks = Looks(await TransactionFront().start())
        gone = looks.partition()
        await looks.front.topics.delete("t")
        await looks.front.topics.create("t", 3)
        told: list[Leader | Unled] = []
        looks.leaders._on_changed = lambda: told.append(looks.leaders.leader(gone))
        looks.leaders.leader(gone)
        await looks.front.settle(lambda: bool(told))
        assert told == [Unled.DELETED]

    run(scenario())


def test_a_view_that_is_behind_deletes_nothing() -> None:
    """The topic is in the store; only this broker's view lacks it."""

    async def scenario() -> None:
        front = await TransactionFront().start()
        looks = Looks(front)
        there = looks.partition()
        front.cluster.topic_by_id = {}
        for count in (1, 2):
            assert looks.leaders.leader(there) is Unled.UNKNOWN
            await looks.changed(count)

    run(scenario())


def test_nor_does_a_node_that_cannot_be_read() -> None:
    async def scenario() -> None:
        front = await TransactionFront().start()
        assert not await front.cluster.is_deleted("t", front.cluster.topics["t"].topic_id)
        assert await front.cluster.is_deleted("t", UUID(int=5))
        assert await front.cluster.is_deleted("u", None)
        await front.store.set(paths.topic("t"), b"from the future")
        assert not await front.cluster.is_deleted("t", UUID(int=5))

    run(scenario())


def test_nor_does_a_store_that_is_away() -> None:
    async def scenario() -> None:
        front = await TransactionFront().start()
        looks = Looks(front)
        gone = looks.partition()
        await front.topics.delete("t")

        def lose(operation: Operation) -> Fault | None:
            return Fault.LOSE_REQUEST if operation.name == "sync" else None

        front.tree.on_request = lose
        looks.leaders.leader(gone)
        await looks.changed(1)
        assert looks.leaders.leader(gone) is Unled.UNKNOWN

    run(scenario())
