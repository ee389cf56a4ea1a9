"""A partition with many large entries hands over some in each turn of the loop, as others do."""

from __future__ import annotations

import asyncio

import pytest

from broker.partition.leading.send_turns import TURN_BYTES_MAX, SendTurns
from broker.partition.partition import Partition
from tests.fakes.brokers import Broker, World, batch, done, settle
from tests.fakes.virtual_time import run

LARGE_BYTES = 300_000
IN_A_TURN = TURN_BYTES_MAX // LARGE_BYTES
COUNT = 4 * IN_A_TURN


def large(value: int) -> bytes:
    return batch(str(value), pad=LARGE_BYTES)


class Watch:
    """Counts what two partitions have handed to their ledgers, turn by turn."""

    def __init__(self, broker: Broker) -> None:
        self._writers = broker.ledgers.writers
        self._begun = [writer.last_add_pushed for writer in self._writers]

    def sent(self) -> list[int]:
        return [
            writer.last_add_pushed - begun
            for writer, begun in zip(self._writers, self._begun, strict=True)
        ]

    async def turns(self) -> list[list[int]]:
        """Return it now, and after each turn of the loop in which it changed."""
        found = [self.sent()]
        for _ in range(10 * COUNT):
            await asyncio.sleep(0)
            if (now := self.sent()) != found[-1]:
                found.append(now)
        return found


async def two_partitions(world: World) -> tuple[Broker, Partition, Partition]:
    await world.start()
    broker = await world.broker(1, owning=False)
    partitions = [await broker.open(await world.topic(name)) for name in ("hot", "other")]
    await settle()
    return broker, *partitions


def test_a_small_entry_does_not_wait_for_the_large_ones_of_another_partition() -> None:
    async def scenario() -> None:
        world = World(shared_entry_bytes_max=0)
        broker, hot, other = await two_partitions(world)
        watch = Watch(broker)
        appends = [hot.append(large(number)) for number in range(COUNT)]
        small = other.append(batch("small"))
        turns = await watch.turns()
        # The small one goes in the turn in which it came, as if it were alone.
        assert turns == [[IN_A_TURN * n, 1] for n in range(1, 5)]
        assert [await done(append) for append in appends] == list(range(COUNT))
        assert await done(small) == 0
        await world.close()

    run(scenario())


def test_partitions_with_many_large_entries_take_turns() -> None:
    async def scenario() -> None:
        world = World(shared_entry_bytes_max=0)
        broker, hot, other = await two_partitions(world)
        watch = Watch(broker)
        appends = [hot.append(large(number)) for number in range(COUNT)]
        others = [other.append(large(number)) for number in range(IN_A_TURN)]
        assert (await watch.turns())[:3] == [
            [IN_A_TURN, 0], [2 * IN_A_TURN, 0], [2 * IN_A_TURN, IN_A_TURN],
        ]  # fmt: skip
        assert [await done(append) for append in appends] == list(range(COUNT))
        assert [await done(append) for append in others] == list(range(IN_A_TURN))
        await world.close()

    run(scenario())


def test_a_partition_that_is_written_alone_hands_all_over_in_one_turn() -> None:
    async def scenario() -> None:
        world = World(shared_entry_bytes_max=0)
        broker, hot, _ = await two_partitions(world)
        for writer in broker.ledgers.writers:
            writer.is_shared = False
        watch = Watch(broker)
        appends = [hot.append(large(number)) for number in range(COUNT)]
        assert await watch.turns() == [[COUNT, 0]]
        assert [await done(append) for append in appends] == list(range(COUNT))
        await world.close()

    run(scenario())


def test_who_stops_leading_while_it_waits_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        world = World(shared_entry_bytes_max=0)
        _, hot, other = await two_partitions(world)
        appends = [hot.append(large(number)) for number in range(COUNT)]
        others = [other.append(large(number)) for number in range(IN_A_TURN)]
        await asyncio.sleep(0)
        hot.resign("for a test")
        assert [await done(append) for append in others] == list(range(IN_A_TURN))
        assert all(append.completed for append in appends)
        assert any(append.error is not None for append in appends)
        await world.close()

    run(scenario())


class Raises:
    def on_turn(self) -> None:
        raise ZeroDivisionError


class Counts:
    def __init__(self) -> None:
        self.turns = 0

    def on_turn(self) -> None:
        self.turns += 1


def test_what_one_raises_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: raised.append(context)
        )
        turns, behind = SendTurns(), Counts()
        turns.on_sent(TURN_BYTES_MAX)
        for sender in (Raises(), behind):
            assert not turns.admits(sender, TURN_BYTES_MAX, is_shared=True)
        await settle()
        assert behind.turns == 1
        assert len(raised) == 1

    raised: list[object] = []
    run(scenario())


@pytest.mark.parametrize("bytes_max", [LARGE_BYTES // 2, 10 * LARGE_BYTES])
def test_turns_are_as_large_as_is_said(bytes_max: int) -> None:
    async def scenario() -> None:
        turns, sender = SendTurns(bytes_max), Counts()
        count = 0
        while turns.admits(sender, LARGE_BYTES, is_shared=True):
            turns.on_sent(LARGE_BYTES)
            count += 1
        assert count == max(1, bytes_max // LARGE_BYTES)

    run(scenario())
