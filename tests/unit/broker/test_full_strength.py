"""Rolling partitions back to full strength: which, when, and what a failure does."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import NotEnoughReplicas
from broker.full_strength import FullStrength
from client.errors import NotEnoughBookies
from client.ids import BookieId
from tests.fakes.brokers import World
from tests.fakes.ledgers import FakeLedgers
from tests.fakes.virtual_time import run


class Partition:
    """One that has `copies` of the three it should have."""

    def __init__(self, name: str, copies: int) -> None:
        self.name = name
        self.copies = copies
        self.rolls = 0
        self.fails = 0
        self.has_lost_member = False

    def would_grow(self, bookie_count: int) -> bool:
        return min(3, bookie_count) > self.copies

    async def roll(self) -> None:
        self.rolls += 1
        await asyncio.sleep(0.01)
        if self.fails:
            self.fails -= 1
            raise NotEnoughReplicas("not now")
        self.copies = 3
        self.has_lost_member = False


def test_partitions_that_would_gain_are_rolled_when_bookies_appear() -> None:
    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        short, full = Partition("short-0", 2), Partition("full-0", 3)
        strength = FullStrength([short, full], ledgers.client())
        strength.start()
        await asyncio.sleep(100)
        assert short.rolls == 0, "there is nothing to gain"
        ledgers.set_bookie_count(3)
        await asyncio.sleep(1)
        assert (short.rolls, full.rolls) == (1, 0)
        await strength.close()

    run(scenario())


def test_a_failed_roll_is_tried_again_and_holds_up_nobody() -> None:
    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        first, second = Partition("a-0", 2), Partition("b-0", 2)
        first.fails = 2
        strength = FullStrength([first, second], ledgers.client())
        strength.start()
        ledgers.set_bookie_count(3)
        await asyncio.sleep(1)
        assert (first.copies, second.copies) == (2, 3)
        await asyncio.sleep(100)
        assert (first.copies, first.rolls) == (3, 3)
        await strength.close()

    run(scenario())


def test_a_lost_member_is_waited_for_and_then_done_without() -> None:
    """Auto recovery would fence the ledger in the end."""

    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        restarting, lost = Partition("a-0", 2), Partition("b-0", 2)
        restarting.has_lost_member = lost.has_lost_member = True
        strength = FullStrength([restarting, lost], ledgers.client())
        strength.start()
        await asyncio.sleep(8)
        restarting.has_lost_member = False
        assert lost.rolls == 0
        await asyncio.sleep(15)
        assert (restarting.rolls, lost.rolls) == (0, 1)
        await strength.close()

    run(scenario())


@pytest.mark.parametrize(
    ("at_open", "now", "grows"), [(2, 2, False), (2, 3, True), (3, 9, False), (4, 9, True)]
)
def test_a_partition_knows_whether_a_new_ledger_would_be_larger(
    at_open: int, now: int, grows: bool
) -> None:
    """Three copies over four bookies, two of them before an answer."""

    async def scenario() -> None:
        world = await World().start()
        size = {"quire_ensemble_size": "5"} if at_open == 4 else {}
        topic = await world.topic(min_insync_replicas="2", **size)
        world.backend.service.bookie_count = at_open
        broker = await world.broker(1, owning=False)
        partition = await broker.open(topic)
        assert partition.would_grow(now) is grows
        assert partition.is_under_replicated is (at_open < 3)
        partition._write.writer.suspended.append(BookieId("b:1"))  # type: ignore[attr-defined]
        assert partition.is_under_replicated
        partition.resign("test")
        assert not partition.would_grow(9)
        await world.close()

    run(scenario())


def test_without_an_ack_quorum_of_bookies_there_is_no_ledger() -> None:
    async def scenario() -> None:
        world = await World().start()
        topic = await world.topic(min_insync_replicas="2")
        world.backend.service.bookie_count = 1
        broker = await world.broker(1, owning=False)
        with pytest.raises(NotEnoughBookies):
            await broker.ledgers.create(
                ensemble_size=topic.ensemble_size,
                write_quorum=topic.write_quorum,
                ack_quorum=topic.ack_quorum,
                write_quorum_min=topic.ack_quorum,
            )
        await world.close()

    run(scenario())
