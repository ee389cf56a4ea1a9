"""Offloading of a led partition over scripted ledgers and an object store with faults: what is
copied, proven, dropped and read back, and what a store may do to us without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import LogReadFailed, NotReadYet
from broker.front.handlers import list_offsets
from broker.offload.config import OffloadConfig
from broker.offload.offloader import Offloader
from broker.partition.partition import Partition
from client.errors import StoreRefuses, StoreUnavailable
from client.ids import Offset
from client.log.offloaded import name_of
from client.objects.memory import Fault
from tests.fakes.brokers import Broker, World, done, forget_cache, settle, with_config
from tests.fakes.keyed import keyed
from tests.fakes.one_partition import fetch, one_partition

OFF = {
    "remote_storage_enable": "true",
    "local_retention_ms": "0",
    "retention_ms": "-1",
    "segment_ms": "86400000",
}
FAR_MS = 10 * 86_400_000


def offloader(broker: Broker, *partitions: Partition, **settings: int) -> Offloader:
    """Return the offloader of a broker, in no hurry about nothing."""
    config = OffloadConfig(
        **{"bytes_per_s": 0, "ledger_grace_ms": 0, "object_grace_ms": 0, **settings}
    )
    return Offloader(broker.services, partitions, config, lambda: "cluster")


async def filled(partition: Partition, rounds: int = 4) -> bytes:
    """Write segments of a few batches each; return all that consumers are to get."""
    for number in range(rounds):
        for batch in range(3):
            key = f"{number}.{batch}"
            await done(partition.append(keyed((key, "v" * 50), (key, None))))
        await partition.changes.roll()
    return await whole(partition)


async def whole(partition: Partition) -> bytes:
    """Read everything, past the cache."""
    forget_cache(partition)
    found, at = b"", partition.log_start_offset
    while at < partition.high_watermark:
        read = await partition.reader.read(at, 100, at_least_one=True, read_committed=False)
        assert read.next_offset > at
        found += b"".join(map(bytes, read.buffers))
        at = read.next_offset
    return found


def old_enough(world: World) -> None:
    """Let records become older than any local retention."""
    now_ms = world.clock.now_ms
    world.clock.now_ms = lambda: now_ms() + FAR_MS  # type: ignore[method-assign]


def gone(world: World, partition: Partition) -> int:
    """Return how many ledgers the list says are gone; they are, and no other is."""
    listed = world.segments(partition.topic)
    there = world.ledger_ids()
    for segment in listed.segments:
        assert (segment.ledger_id in there) is not segment.is_ledger_gone
    return sum(segment.is_ledger_gone for segment in listed.segments)


def test_old_segments_are_copied_their_ledgers_go_and_all_bytes_are_read_back() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition)
        old_enough(world)
        work = offloader(broker, partition)
        await work.visit_all()
        await settle()
        # KEEP-TAIL: of four sealed segments and the active one, the last two stay.
        assert gone(world, partition) == 3
        assert len(world.objects.objects) == 4
        assert partition.usage.listed.offload.stored_until == partition.high_watermark
        # Earliest local, latest tiered, earliest that waits, of four segments with six offsets.
        assert [list_offsets._tiered(partition, asked) for asked in (-4, -5, -6)] == [18, 23, 24]
        assert await whole(partition) == before
        assert work.status(partition).reason == ""
        assert work.status(partition).plan.lag_bytes == 0

    one_partition(scenario, config=OFF)


def test_every_offset_and_timestamp_is_found_in_objects_too() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition)
        by_time = [await partition.reader.offset_for_timestamp(ms) for ms in range(0, 2000, 100)]
        newest = await partition.reader.offset_of_max_timestamp()
        old_enough(world)
        await offloader(broker, partition).visit_all()
        assert gone(world, partition) == 3
        for offset in range(partition.high_watermark):
            forget_cache(partition)
            found = await fetch(partition, offset)
            assert found
            assert found in before
        assert by_time == [
            await partition.reader.offset_for_timestamp(ms) for ms in range(0, 2000, 100)
        ]
        assert newest == await partition.reader.offset_of_max_timestamp()

    one_partition(scenario, config=OFF)


def test_a_topic_that_does_not_ask_for_it_stays_on_bookies() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        old_enough(world)
        await offloader(broker, partition).visit_all()
        assert world.objects.calls == []
        assert [list_offsets._tiered(partition, asked) for asked in (-4, -5, -6)] == [0, -1, -1]
        assert b'"version":1' in world.segments(partition.topic).encode()

    one_partition(scenario)


def test_ledgers_stay_as_long_as_local_retention_and_grace_say() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        await offloader(broker, partition).visit_all()
        assert gone(world, partition) == 0
        old_enough(world)
        await offloader(broker, partition, ledger_grace_ms=2 * FAR_MS).visit_all()
        assert gone(world, partition) == 0
        await offloader(broker, partition).visit_all()
        assert gone(world, partition) == 3

    one_partition(scenario, config={**OFF, "local_retention_ms": "2000000"})


def test_nothing_is_copied_before_either_lag_is_over() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        await offloader(broker, partition).visit_all()
        some = len(world.objects.objects)
        assert 0 < some < 4  # what has 500 newer bytes
        old_enough(world)
        await offloader(broker, partition).visit_all()
        assert len(world.objects.objects) == 4

    lags = {"remote_copy_lag_ms": str(FAR_MS // 2), "remote_copy_lag_bytes": "1000"}
    one_partition(scenario, config={**OFF, "local_retention_ms": "-1", **lags})


LIES: dict[str, Fault] = {
    "the answer is lost": Fault(loses_answer=True),
    "its own put is told to exist": Fault(says_exists=True),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_put_that_succeeds_and_fails_is_believed_by_what_it_stored(lie: str) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition)
        old_enough(world)
        world.objects.faults = lambda call, name: LIES[lie] if call == "put" else Fault()
        work = offloader(broker, partition)
        await work.visit_all()
        assert gone(world, partition) == 3
        assert len(world.objects.objects) == 4
        assert [call for call, _ in world.objects.calls].count("put") == 4
        assert await whole(partition) == before

    one_partition(scenario, config=OFF)


SPOILED: dict[str, Fault] = {
    "cut short": Fault(cuts=True),
    "a bit flipped": Fault(flips=True),
}


@pytest.mark.parametrize("how", SPOILED)
def test_an_object_that_is_no_good_costs_no_ledger_and_is_made_anew(how: str) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition)
        old_enough(world)
        spoiled = [SPOILED[how]]

        def once(call: str, name: str) -> Fault:
            return spoiled.pop() if call == "put" and spoiled else Fault()

        world.objects.faults = once
        work = offloader(broker, partition)
        for _ in range(3):
            await work.visit_all()
            assert await whole(partition) == before
            await asyncio.sleep(700)
            await broker.services.lease.ask(broker.store)
        assert gone(world, partition) == 3
        assert await whole(partition) == before
        listed = world.segments(partition.topic)
        assert listed.offload.graves == ()
        assert len(world.objects.objects) == 4  # the bad one was deleted
        assert broker.services.metrics.offload_failures == 1

    one_partition(scenario, config=OFF)


AWAY: dict[str, Any] = {
    "503": StoreUnavailable("503 Service Unavailable"),
    "credentials": StoreRefuses("refuses our credentials"),
}


@pytest.mark.parametrize("why", AWAY)
def test_a_store_that_is_away_says_so_delays_only_old_data_and_is_caught_up_with(why: str) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition, 4)
        old_enough(world)
        work = offloader(broker, partition)
        await work.visit_all()
        world.objects.faults = lambda call, name: Fault(refuses=AWAY[why])
        await filled_more(partition)
        await asyncio.sleep(60)
        await broker.services.lease.ask(broker.store)
        await work.visit_all()
        status = work.status(partition)
        assert str(AWAY[why]) in status.reason
        assert status.plan.lag_bytes > 0
        forget_cache(partition)
        with pytest.raises(LogReadFailed, match=str(AWAY[why])):
            await fetch(partition, 0)
        last = partition.high_watermark - 1
        assert await fetch(partition, last)
        world.objects.faults = lambda call, name: Fault()
        await asyncio.sleep(700)
        await broker.services.lease.ask(broker.store)
        await work.visit_all()
        assert work.status(partition).reason == ""
        assert work.status(partition).plan.lag_bytes == 0
        assert (await whole(partition)).startswith(before)

    one_partition(scenario, config=OFF)


async def filled_more(partition: Partition) -> None:
    await done(partition.append(keyed(("more", "x"))))
    await partition.changes.roll()


def test_nobody_waits_for_a_slow_store_and_who_asks_again_gets_it() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition)
        old_enough(world)
        await offloader(broker, partition).visit_all()
        world.objects.faults = lambda call, name: Fault(delay_s=3.0)
        forget_cache(partition)
        loop = asyncio.get_running_loop()
        tries, found = 0, b""
        while not found:
            began_s = loop.time()
            try:
                found = await fetch(partition, 0)
            except NotReadYet:
                assert loop.time() - began_s < 0.6
                tries += 1
                await asyncio.sleep(0.1)
        # A footer and a run of blocks, three seconds each, and nothing was asked for twice.
        assert tries > 5
        assert before.startswith(found)
        calls = [call for call, _ in world.objects.calls[-2:]]
        assert calls == ["tail", "read"]

    one_partition(scenario, config=OFF)


def test_what_is_trimmed_is_buried_and_deleted_and_strays_are_swept() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        old_enough(world)
        work = offloader(broker, partition)
        await work.visit_all()
        listed = world.segments(partition.topic)
        first, second = listed.segments[:2]
        assert second.end_offset is not None
        await partition.changes.delete_records(second.end_offset)
        names = {name_of(first), name_of(second)}
        assert {grave.name for grave in partition.usage.listed.offload.graves} == names
        assert len(world.objects.objects) == 4  # LIST-FIRST
        stray = next(iter(world.objects.objects)).replace(".seg", "")[:-4] + "beef.seg"
        world.objects.objects[stray] = b"a zombie's"
        world.objects.modified_ms[stray] = 0
        await asyncio.sleep(86_500)
        await broker.services.lease.ask(broker.store)
        await work.visit_all()
        assert partition.usage.listed.offload.graves == ()
        assert len(world.objects.objects) == 2
        assert stray not in world.objects.objects
        assert await whole(partition)

    one_partition(scenario, config=OFF)


def test_who_takes_it_off_the_store_with_deletion_keeps_what_is_local() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition)
        old_enough(world)
        work = offloader(broker, partition)
        await work.visit_all()
        local = partition.usage.listed.offload.local_from
        assert 0 < local < partition.high_watermark
        partition.configure(
            with_config(
                partition.topic,
                **{**OFF, "remote_storage_enable": "false", "remote_log_delete_on_disable": "true"},
            )
        )
        await work.visit_all()
        assert partition.log_start_offset == local
        assert world.objects.objects == {}
        rest = await whole(partition)
        assert rest
        assert before.endswith(rest)

    one_partition(scenario, config=OFF)


def test_who_copies_nothing_more_leaves_no_intent_behind() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        world.objects.faults = lambda call, name: Fault(refuses=StoreUnavailable("503"))
        await offloader(broker, partition).visit_all()
        assert partition.usage.listed.offload.intent is not None
        config = {**OFF, "remote_log_copy_disable": "true", "local_retention_ms": "-1"}
        partition.configure(with_config(partition.topic, **config))
        world.objects.faults = lambda call, name: Fault()
        await offloader(broker, partition).visit_all()
        assert partition.usage.listed.offload.intent is None
        assert partition.usage.listed.offload.graves == ()
        assert world.objects.objects == {}

    one_partition(scenario, config=OFF)


class _Crash(Exception):
    """The broker is gone, in the middle of whatever it was at."""


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_loses_nothing_and_the_next_leader_goes_on(is_after: bool) -> None:
    """The broker dies before or after its n-th act, for each n until all of them are over."""

    def crash_at(count: int) -> bool:
        crashed = False

        async def scenario(world: World, broker: Broker, partition: Partition) -> None:
            nonlocal crashed
            before = await filled(partition, 3)
            old_enough(world)
            work = offloader(broker, partition)
            acts = 0
            do: Callable[..., Any] = work._do

            async def dying(one: Partition, act: Any) -> Any:
                nonlocal acts
                acts += 1
                if acts == count and not is_after:
                    raise _Crash
                outcome = await do(one, act)
                if acts == count:
                    raise _Crash
                return outcome

            work._do = dying  # type: ignore[method-assign]
            try:
                await work.visit_all()
            except _Crash:
                crashed = True
            partition.resign("killed")
            successor = await broker.open(partition.topic)
            assert await whole(successor) == before
            work = offloader(broker, successor)
            for _ in range(2):
                await work.visit_all()
                await asyncio.sleep(20)
                await broker.services.lease.ask(broker.store)
            await settle()
            assert await whole(successor) == before
            gone(world, successor)
            listed = world.segments(successor.topic)
            assert listed.offload.intent is None
            assert listed.offload.graves == ()
            named = {
                name.path(f"log/{successor.topic.id_text}/0")
                for name in map(name_of, listed.segments)
                if name is not None
            }
            assert named == {*world.objects.objects}
            assert len(named) == 3

        one_partition(scenario, config=OFF)
        return crashed

    count = 1
    while crash_at(count):
        count += 1
    assert count > 10


def test_a_leader_that_was_replaced_lists_nothing() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        before = await filled(partition, 3)
        old_enough(world)
        work = offloader(broker, partition)
        successor: list[Partition] = []

        real = world.objects.put

        async def put(name: str, parts: Any) -> None:
            await real(name, parts)
            if not successor:
                successor.append(await broker.open(partition.topic))

        world.objects.put = put  # type: ignore[method-assign]
        await work.visit_all()
        assert not partition.is_open
        listed = world.segments(partition.topic)
        assert listed.offload.intent is not None
        assert not any(segment.stored for segment in listed.segments)
        # The object is there under the listed name: the successor finds it, and copies no more.
        await offloader(broker, successor[0]).visit_all()
        assert len(world.objects.objects) == 3
        assert [call for call, _ in world.objects.calls].count("put") == 3
        assert await whole(successor[0]) == before
        assert successor[0].usage.listed.offload.stored_until == Offset(18)

    one_partition(scenario, config=OFF)
