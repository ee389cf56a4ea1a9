"""Rolling partitions back to full strength: which, when, and what a failure does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from broker.errors import NotEnoughReplicas, Overloaded
from broker.leadership.under_replicated_roller import UnderReplicatedRoller
from client.errors import ConnectionLoss, NotEnoughBookies
from client.ids import BookieId, LedgerId
from tests.fakes.brokers import World
from tests.fakes.ledgers import FakeLedgers
from tests.fakes.virtual_time import run


class Partition:
    """One that has `copies` of the three it should have."""

    def __init__(self, name: str, copies: int) -> None:
        self.name = name
        self.copies = copies
        self.rolls = 0
        self.changes = self
        self.fails = 0
        self.has_lost_member = False
        self.ledger_id = LedgerId(0)
        self.replication = self

    def would_repair(self, marked: Collection[LedgerId]) -> bool:
        return self.ledger_id in marked

    def would_shed(self, bookie_count: int) -> bool:
        return self.has_lost_member

    def would_grow(self, bookie_count: int) -> bool:
        return min(3, bookie_count) > self.copies

    has_ledger = True
    seeks = 0

    def may_gain(self, bookie_count: int) -> bool:
        return not self.has_ledger and bookie_count >= 2

    async def seek_ledger(self) -> None:
        self.seeks += 1
        if self.fails:
            self.fails -= 1
            raise NotEnoughBookies("not on two racks")
        self.has_ledger = True

    is_rolling = False

    async def roll(self, wait_s: float | None = None) -> None:
        self.rolls += 1
        await asyncio.sleep(0.01)
        if self.fails:
            self.fails -= 1
            raise NotEnoughReplicas("not now")
        self.copies = 3
        self.has_lost_member = False
        self.ledger_id = LedgerId(self.ledger_id + 100)


async def nothing_marked() -> list[LedgerId]:
    return []


def test_partitions_that_would_gain_are_rolled_when_bookies_appear() -> None:
    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        short, full = Partition("short-0", 2), Partition("full-0", 3)
        strength = UnderReplicatedRoller([short, full], ledgers.client(), nothing_marked)
        strength.start()
        await asyncio.sleep(100)
        assert short.rolls == 0, "there is nothing to gain"
        ledgers.set_bookie_count(3)
        await asyncio.sleep(1)
        assert (short.rolls, full.rolls) == (1, 0)
        await strength.close()

    run(scenario())


def test_partitions_without_a_ledger_look_for_one_when_bookies_may_be_enough() -> None:
    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 1
        short, full = Partition("short-0", 3), Partition("full-0", 3)
        short.has_ledger, short.fails = False, 1
        strength = UnderReplicatedRoller([short, full], ledgers.client(), nothing_marked)
        strength.start()
        await asyncio.sleep(100)
        assert short.seeks == 0
        ledgers.set_bookie_count(2)
        await asyncio.sleep(1)
        assert (short.seeks, short.has_ledger) == (1, False)
        await asyncio.sleep(6)
        assert (short.seeks, short.has_ledger, full.seeks) == (2, True, 0)
        await strength.close()

    run(scenario())


def test_a_failed_roll_is_tried_again_and_holds_up_nobody() -> None:
    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        first, second = Partition("a-0", 2), Partition("b-0", 2)
        first.fails = 2
        strength = UnderReplicatedRoller([first, second], ledgers.client(), nothing_marked)
        strength.start()
        ledgers.set_bookie_count(3)
        await asyncio.sleep(1)
        assert (first.copies, second.copies) == (2, 3)
        await asyncio.sleep(100)
        assert (first.copies, first.rolls) == (3, 3)
        await strength.close()

    run(scenario())


def test_rolls_that_never_end_hold_up_nobody() -> None:
    """IN-TIME: a bookie that its ledger cannot do without, and that is slow, makes a roll last."""

    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        stuck = [Stuck(f"stuck-{number}", 2) for number in range(9)]
        sound = Partition("sound-0", 2)
        strength = UnderReplicatedRoller([*stuck, sound], ledgers.client(), nothing_marked)
        strength.start()
        ledgers.set_bookie_count(3)
        await asyncio.sleep(20)
        assert sound.rolls == 1
        await asyncio.sleep(300)
        assert [one.rolls for one in stuck] == [1] * 9, "what goes on is not begun once more"
        await strength.close()

    run(scenario())


def test_ledgers_that_are_sought_without_end_hold_up_nobody() -> None:
    """IN-TIME: a metadata store or a bookie that is slow makes the search last."""

    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 1
        stuck = [Seeking(f"stuck-{number}", 3) for number in range(9)]
        short, sound = Partition("short-0", 3), Partition("sound-0", 1)
        short.has_ledger = False
        strength = UnderReplicatedRoller([*stuck, short, sound], ledgers.client(), nothing_marked)
        strength.start()
        ledgers.set_bookie_count(2)
        await asyncio.sleep(30)
        assert (short.has_ledger, sound.rolls) == (True, 1)
        await strength.close()

    run(scenario())


class Seeking(Partition):
    """It has no ledger, and looks for one without end."""

    has_ledger = False

    async def seek_ledger(self) -> None:
        await asyncio.sleep(1e6)


class Stuck(Partition):
    """Its roll begins, and never ends."""

    async def roll(self, wait_s: float | None = None) -> None:
        self.rolls += 1
        self.is_rolling = True
        await asyncio.sleep(1e6 if wait_s is None else wait_s)
        raise Overloaded("its roll goes on")


def test_a_lost_member_is_waited_for_and_then_done_without() -> None:
    """Auto recovery would fence the ledger in the end."""

    async def scenario() -> None:
        ledgers = FakeLedgers()
        ledgers.bookie_count = 2
        restarting, lost = Partition("a-0", 2), Partition("b-0", 2)
        restarting.has_lost_member = lost.has_lost_member = True
        strength = UnderReplicatedRoller([restarting, lost], ledgers.client(), nothing_marked)
        strength.start()
        await asyncio.sleep(8)
        restarting.has_lost_member = False
        assert lost.rolls == 0
        await asyncio.sleep(15)
        assert (restarting.rolls, lost.rolls) == (0, 1)
        await strength.close()

    run(scenario())


def test_a_marked_ledger_is_ended_so_that_its_copies_can_be_made_up() -> None:
    """Also when the marks cannot be read for a while."""

    async def scenario() -> None:
        marked: list[LedgerId] = []
        is_away = True

        async def marks() -> list[LedgerId]:
            if is_away:
                raise ConnectionLoss("/ledgers")
            return marked

        one, other = Partition("a-0", 3), Partition("b-0", 3)
        one.ledger_id, other.ledger_id = LedgerId(7), LedgerId(8)
        strength = UnderReplicatedRoller([one, other], FakeLedgers().client(), marks)
        strength.start()
        marked.append(LedgerId(7))
        await asyncio.sleep(20)
        assert (one.rolls, other.rolls) == (0, 0)
        is_away = False
        await asyncio.sleep(6)
        assert (one.rolls, other.rolls) == (1, 0)
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
        assert partition.replication.would_grow(now) is grows
        assert partition.replication.is_under_replicated is (at_open < 3)
        marked = [partition.changes._steps.writer.ledger_id]
        assert partition.replication.would_repair(marked)
        assert not partition.replication.would_repair([LedgerId(marked[0] + 1)])
        partition.changes._steps.writer.suspended.append(BookieId("b:1"))  # type: ignore[attr-defined]
        assert partition.replication.is_under_replicated
        assert not partition.replication.would_repair(marked), "a member does not take part yet"
        assert not partition.replication.would_shed(9)
        partition.changes._steps.writer.lost_members.append(BookieId("b:1"))  # type: ignore[attr-defined]
        assert partition.replication.would_shed(2)
        assert not partition.replication.would_shed(1), "too few for an acknowledgement"
        partition.resign("test")
        assert not partition.replication.would_grow(9)
        assert not partition.replication.would_shed(9)
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
