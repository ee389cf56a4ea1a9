"""A partition hands entries to its ledger's writer only while that has room."""

from __future__ import annotations

import asyncio

from broker.partition.partition import Partition
from client.errors import LedgerFenced
from client.ids import Offset
from tests.fakes.brokers import Broker, World, batch, done, read_all, settle, until
from tests.fakes.one_partition import one_partition

SIZE = len(batch("a", pad=500))


def large(value: str) -> bytes:
    return batch(value, pad=500)


async def narrow(broker: Broker, room_bytes: int = 2 * SIZE) -> None:
    await settle()
    broker.ledgers.room_bytes = room_bytes
    broker.ledgers.hold_answers = True


def test_entries_wait_in_the_partition_until_the_writer_has_room() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await narrow(broker)
        writer = broker.ledgers.writers[0]
        before = writer.last_add_pushed
        appends = [partition.append(large(name)) for name in "abcde"]
        await settle()
        assert writer.last_add_pushed == before + 2
        assert writer.in_flight_bytes == 2 * SIZE
        assert partition.usage.in_flight_bytes == 5 * SIZE, "what waits counts for the partition"
        broker.ledgers.release()
        assert [await done(append) for append in appends] == [0, 1, 2, 3, 4]
        assert await read_all(partition) == [(n, name) for n, name in enumerate("abcde")]

    one_partition(scenario, shared_entry_bytes_max=0)


def test_what_waits_goes_out_as_answers_come_and_never_beyond_the_room() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await narrow(broker)
        world.backend.service.answer_s = lambda: 0.01
        broker.ledgers.hold_answers = False
        writer = broker.ledgers.writers[0]
        appends = [partition.append(large(str(number))) for number in range(20)]
        most = 0
        while not appends[-1].completed:
            most = max(most, writer.in_flight_bytes)
            await asyncio.sleep(0.001)
        assert 2 * len(large("1")) <= most <= 2 * len(large("11")) < 3 * SIZE

    one_partition(scenario, shared_entry_bytes_max=0)


def test_a_roll_waits_for_what_waits_and_the_next_writer_has_limits_too() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await narrow(broker)
        appends = [partition.append(large(name)) for name in "abc"]
        rolling = asyncio.ensure_future(partition.changes.roll())
        await until(lambda: partition._leader.log.queue.is_holding)
        appends += [partition.append(large(name)) for name in "defgh"]
        await settle()
        first = broker.ledgers.writers[0]
        assert len(first.ledger.entries) < 4
        broker.ledgers.release()
        await rolling
        second = broker.ledgers.writers[1]
        assert [await done(append) for append in appends] == list(range(8))
        assert first.ledger.closed_at == len(first.ledger.entries) - 1
        assert second.last_add_confirmed == second.last_add_pushed
        expected = [(n, name) for n, name in enumerate("abcdefgh")]
        assert await read_all(partition) == expected

    one_partition(scenario, shared_entry_bytes_max=0)


def test_closing_in_peace_confirms_what_waits() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await narrow(broker)
        appends = [partition.append(large(name)) for name in "abcde"]
        closing = asyncio.ensure_future(partition.close(5))
        await settle()
        broker.ledgers.release()
        await closing
        assert [append.error for append in appends] == [None] * 5
        assert partition.high_watermark == 5

    one_partition(scenario, shared_entry_bytes_max=0)


def test_what_waits_fails_with_the_ledger() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await narrow(broker)
        appends = [partition.append(large(name)) for name in "abcde"]
        broker.ledgers.writers[0].fail_add = LedgerFenced("somebody recovers")
        broker.ledgers.release()
        await settle()
        assert all(append.completed and append.error is not None for append in appends)
        assert not partition.is_open

    one_partition(scenario, shared_entry_bytes_max=0)


def test_room_that_a_snapshot_leaves_wakes_who_waits() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        partition._leader.log.write_snapshot()
        partition._sender.send()
        held = partition.usage.in_flight_bytes
        assert held
        limit = held + SIZE - 1
        object.__setattr__(partition._services.limits, "in_flight_bytes_max", limit)
        called: list[bool] = []
        assert not partition.admission.has_room(SIZE)
        partition.admission.on_room(SIZE, lambda: called.append(True))
        await settle()
        assert called == []
        assert not partition.admission.has_room(1), "nobody overtakes"
        broker.ledgers.release()
        await settle()
        assert called == [True]
        assert partition.admission.has_room(SIZE)
        assert partition.log_end_offset == Offset(0)

    one_partition(scenario)


def test_who_waits_no_longer_lets_the_next_one_through() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        partition.append(large("a"))
        limit = 2 * SIZE
        object.__setattr__(partition._services.limits, "in_flight_bytes_max", limit)
        called: list[str] = []
        cancel = partition.admission.on_room(2 * SIZE, lambda: called.append("large"))
        partition.admission.on_room(SIZE, lambda: called.append("small"))
        await settle()
        assert called == []
        cancel()
        cancel()
        await settle()
        assert called == ["small"]

    one_partition(scenario)


def test_one_who_fails_to_use_the_room_keeps_nobody_from_it() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        heard: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: heard.append(context["exception"])
        )

        def fail() -> None:
            raise RuntimeError("a bug")

        partition.admission.on_room(1, fail)
        partition.admission.on_room(1, lambda: heard.append("next"))
        await settle()
        assert [str(each) for each in heard] == ["a bug", "next"]

    one_partition(scenario)
