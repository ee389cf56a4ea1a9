"""Compaction of a led partition over scripted ledgers: rounds, swaps, readers, grace, failures."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.compaction.core.round_messages import Request, WorkDone
from broker.compaction.worker import LocalWorker
from broker.errors import CompactionFailed
from broker.partition.partition import Partition
from broker.topics.topic_cleaner import TopicCleaner
from client.errors import NoNode, WriteFailed
from client.ids import Offset
from client.ledger.config import LedgerClientConfig
from client.log.segment_pages import Page, PageRef
from client.log.segments import NEVER_COMPACTED
from client.metadata import paths
from tests.fakes.brokers import Broker, World, done, forget_cache, settle, with_config
from tests.fakes.keyed import Kept, keyed, newest, read_keyed
from tests.fakes.one_partition import one_partition

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
DAY_MS = 86_400_000


def compactor(broker: Broker, *partitions: Partition, **settings: int) -> Compactor:
    """Return the compactor of a broker, without a limit of its speed."""
    return Compactor(
        broker.services,
        partitions,
        CompactionConfig(bytes_per_s=0, **{"grace_ms": 60_000, **settings}),
    )


async def write(partition: Partition, *pairs: tuple[str, str | None]) -> list[Kept]:
    """Append a batch and roll, so that it is a segment of its own."""
    base = await done(partition.append(keyed(*pairs)))
    await partition.changes.roll()
    return [Kept(base + at, key, value) for at, (key, value) in enumerate(pairs)]


async def filled(partition: Partition, rounds: int = 6) -> list[Kept]:
    """Overwrite two of three keys again and again, a segment each."""
    written = await write(partition, ("only", "once"))
    for number in range(rounds):
        written += await write(partition, ("a", f"a{number}"), ("b", f"b{number}"))
    forget_cache(partition)
    return written


def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        end = partition.log_end_offset
        await compactor(broker, partition).visit_all()
        found = await read_keyed(partition)
        # The last two segments with records are not cleaned.
        assert found == [written[0], *written[-4:]]
        assert partition.log_end_offset == end
        assert {*found} <= {*written}
        assert newest(found) == newest(written)

    one_partition(scenario, config=COMPACT)


def test_every_offset_can_still_be_asked_for() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        await compactor(broker, partition).visit_all()
        whole = await read_keyed(partition)
        for start in range(partition.high_watermark):
            forget_cache(partition)
            assert await read_keyed(partition, start) == [
                one for one in whole if one.offset >= start
            ]

    one_partition(scenario, config=COMPACT)


def test_a_reader_of_an_old_ledger_goes_on_until_its_grace_is_over() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        old = world.segments(partition.topic)
        cleaning = compactor(broker, partition)
        await cleaning.visit_all()
        forget_cache(partition)
        by_old_list = await partition.reader.log.read(
            old, Offset(0), partition.high_watermark, 1 << 20, at_least_one=True
        )
        assert by_old_list.next_offset == 1
        listed = world.segments(partition.topic)
        retired = [one.ledger_id for one in listed.compaction.retired]
        assert retired
        assert {*retired} <= {*world.ledger_ids()}
        await asyncio.sleep(60.001)
        await broker.services.lease.ask(broker.store)
        await cleaning.visit_all()
        await settle()
        assert not {*retired} & {*world.ledger_ids()}
        assert world.segments(partition.topic).compaction.retired == ()
        assert newest(await read_keyed(partition)) == newest(written)

    one_partition(scenario, config=COMPACT)


ASKED: dict[str, Callable[[Partition], Coroutine[Any, Any, object]]] = {
    "records": lambda one: one.reader.read(
        Offset(3), 1 << 20, at_least_one=True, read_committed=False
    ),
    "committed records": lambda one: one.reader.read(
        Offset(3), 1 << 20, at_least_one=True, read_committed=True
    ),
    "a timestamp": lambda one: one.reader.offset_for_timestamp(0),
}


@pytest.mark.parametrize("what", ASKED)
def test_who_misses_a_page_that_was_replaced_goes_by_the_new_list(what: str) -> None:
    """LIST-ANEW: pages have no grace, and need none."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        old = world.segments(partition.topic)
        pages, gate = partition.reader._node.pages, asyncio.Event()
        page = pages.page
        waiting: list[PageRef] = []

        async def slow(ref: PageRef) -> Page:
            if not waiting:
                waiting.append(ref)
                await gate.wait()
            return await page(ref)

        pages.page = slow  # type: ignore[method-assign]
        task = asyncio.get_running_loop().create_task(ASKED[what](partition))
        await settle()
        assert waiting
        await compactor(broker, partition).visit_all()
        assert waiting[0].name not in await pages.names(world.segments(partition.topic))
        broker.services.pages._pages.clear()
        with pytest.raises(NoNode):
            await page(waiting[0])
        gate.set()
        await task
        assert world.segments(partition.topic) != old

    one_partition(scenario, config=COMPACT, segment_page_entries=2)


def test_who_reads_from_memory_is_given_what_is_left_too() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await write(partition, ("only", "once"))
        for number in range(6):
            written += await write(partition, ("a", f"a{number}"), ("b", f"b{number}"))
        assert await read_keyed(partition) == written
        await compactor(broker, partition).visit_all()
        assert await read_keyed(partition) == [written[0], *written[-4:]]

    one_partition(scenario, config=COMPACT)


def test_a_partition_that_cannot_be_read_says_why_and_is_tried_again() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        cleaning = compactor(broker, partition)
        world.backend.service.fail_next("open", WriteFailed("no bookie answers"))
        await cleaning.visit_all()
        status = cleaning.status(partition)
        assert status is not None
        assert "no bookie answers" in status.reason
        assert status.failure_count == 1
        assert status.why is not None
        await cleaning.visit_all()  # too early
        assert broker.services.metrics.compaction_rounds == 0
        await asyncio.sleep(15.1)
        await broker.services.lease.ask(broker.store)
        await cleaning.visit_all()
        status = cleaning.status(partition)
        assert status is not None
        assert (status.reason, status.failure_count) == ("", 0)
        assert newest(await read_keyed(partition)) == newest(written)

    one_partition(scenario, config=COMPACT)


def test_a_worker_that_dies_fails_the_round_and_nothing_else() -> None:
    class Dying(LocalWorker):
        left = 5

        async def do(self, request: Request) -> WorkDone:
            self.left -= 1
            if self.left == 0:
                raise CompactionFailed("the child process is gone: signal 9")
            return await super().do(request)

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        before = {*world.ledger_ids()}
        worker = Dying(broker.services.turns)
        cleaning = Compactor(broker.services, [partition], CompactionConfig(bytes_per_s=0), worker)
        await cleaning.visit_all()
        status = cleaning.status(partition)
        assert status is not None
        assert "signal 9" in status.reason
        assert (status.failure_count, worker.left) == (1, 0)
        assert {*world.ledger_ids()} == before, "what it had begun is gone"
        assert await read_keyed(partition) == written
        await asyncio.sleep(15.1)
        await broker.services.lease.ask(broker.store)
        await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == 1
        assert newest(await read_keyed(partition)) == newest(written)

    one_partition(scenario, config=COMPACT)


def test_what_a_round_holds_is_counted_and_stays_below_its_limit() -> None:
    held: list[int] = []

    class Watched(LocalWorker):
        async def do(self, request: Request) -> WorkDone:
            done = await super().do(request)
            held.append(cleaning.held_bytes)
            return done

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        nonlocal cleaning
        value = "v" * 20_000
        for _ in range(4):
            await write(partition, *((f"k{at}", value) for at in range(40)))
        forget_cache(partition)
        config = CompactionConfig(bytes_per_s=0, key_bytes_max=2_000)
        cleaning = Compactor(broker.services, [partition], config, Watched(broker.services.turns))
        assert cleaning.held_bytes == 0
        await cleaning.visit_all()
        frame_bytes_max = LedgerClientConfig().frame_bytes_max
        assert 40 * len(value) < max(held) <= config.key_bytes_max + 8 * frame_bytes_max
        assert cleaning.held_bytes == 0, "the round is over"

    cleaning: Compactor
    one_partition(scenario, config=COMPACT)


def test_who_asks_has_it_compacted_however_clean_it_is() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        cleaning = compactor(broker, partition)
        await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == 0, "half of it is not dirty enough"
        cleaning.ask(partition)
        assert cleaning.is_asked(partition)
        await cleaning.visit_all()
        assert not cleaning.is_asked(partition)
        assert broker.services.metrics.compaction_rounds == 1

    one_partition(
        scenario, config={"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "1.0"}
    )


def test_topics_that_are_not_compacted_and_internal_ones_are_left_alone() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        cleaning = compactor(broker, partition)
        cleaning.ask(partition)
        await cleaning.visit_all()
        assert cleaning.status(partition) is None
        assert not cleaning.covers(partition)
        partition.configure(
            dataclasses.replace(with_config(partition.topic, **COMPACT), name="__consumer_offsets")
        )
        await cleaning.visit_all()
        assert cleaning.status(partition) is None
        assert world.segments(partition.topic).compaction == NEVER_COMPACTED

    one_partition(scenario)


def test_a_round_that_a_trim_overtakes_lists_nothing_and_leaves_nothing_behind() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        before = {*world.ledger_ids()}
        gate = world.backend.service.stop_at("close")
        task = asyncio.get_running_loop().create_task(compactor(broker, partition).visit_all())
        await settle()
        await partition.changes.delete_records(Offset(5))
        gate.set()
        await task
        listed = world.segments(partition.topic)
        assert listed.compaction == NEVER_COMPACTED
        assert {*world.ledger_ids()} < before
        assert (await read_keyed(partition))[0].offset == 5
        await compactor(broker, partition).visit_all()
        assert newest(await read_keyed(partition)).keys() == {"a", "b"}

    one_partition(scenario, config=COMPACT)


def test_a_later_leader_goes_on_where_the_one_before_was() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        await compactor(broker, partition).visit_all()
        retired = world.segments(partition.topic).compaction.retired
        await partition.close(1)
        other = await world.broker(2, owning=False)
        taken = await other.open(partition.topic)
        assert world.segments(partition.topic).compaction.retired == retired
        for number in range(4):
            written += await write(taken, ("a", f"later {number}"))
        await asyncio.sleep(61)
        await other.services.lease.ask(other.store)
        await compactor(other, taken).visit_all()
        forget_cache(taken)
        assert newest(await read_keyed(taken)) == newest(written)
        assert not {one.ledger_id for one in retired} & {*world.ledger_ids()}
        await taken.close(1)

    one_partition(scenario, config=COMPACT)


def test_deleting_the_topic_takes_replaced_ledgers_too() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await filled(partition)
        await compactor(broker, partition).visit_all()
        listed = world.segments(partition.topic)
        assert listed.compaction.retired
        await partition.close(1)
        cleaner: Any = TopicCleaner(
            broker.store, broker.cluster, None, broker.ledgers, broker.id, world.clock
        )  # type: ignore[arg-type]
        await cleaner._clean_partition(paths.partition(partition.topic.id_text, 0))
        assert world.ledger_ids() == []

    one_partition(scenario, config=COMPACT)


def test_retention_takes_compacted_segments_once_the_policy_says_so() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        await compactor(broker, partition).visit_all()
        await partition.changes.maintain(world.clock.now_ms() + 1000 * DAY_MS)
        assert newest(await read_keyed(partition)) == newest(written), "compact alone keeps all"
        both = {**COMPACT, "cleanup_policy": "compact,delete", "retention_ms": "1000"}
        partition.configure(with_config(partition.topic, **both))
        await partition.changes.maintain(world.clock.now_ms() + 1000 * DAY_MS)
        listed = world.segments(partition.topic)
        assert not any(segment.cleaned for segment in listed.segments)
        assert await read_keyed(partition) == []
        # What was replaced before waits for its grace, whoever trims.
        assert listed.compaction.retired
        await asyncio.sleep(61)
        await broker.services.lease.ask(broker.store)
        await compactor(broker, partition).visit_all()
        await settle()
        assert {*world.ledger_ids()} == {
            one.ledger_id for one in world.segments(partition.topic).segments
        }

    one_partition(scenario, config=COMPACT)


def test_records_are_deleted_up_to_an_offset_that_compaction_has_removed() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        written = await filled(partition)
        await compactor(broker, partition).visit_all()
        assert await partition.changes.delete_records(Offset(4)) == 4
        left = await read_keyed(partition)
        assert left == [one for one in written[-4:] if one.offset >= 4]
        for start in range(4, partition.high_watermark):
            forget_cache(partition)
            assert await read_keyed(partition, start) == [
                one for one in left if one.offset >= start
            ]

    one_partition(scenario, config=COMPACT)


def test_a_segment_is_rolled_in_time_to_be_compacted() -> None:
    config = {**COMPACT, "min_cleanable_dirty_ratio": "1.0", "max_compaction_lag_ms": "5000"}

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(4):
            await done(partition.append(keyed(("a", f"a{number}"))))
            await asyncio.sleep(5.001)
            await broker.services.lease.ask(broker.store)
            await partition.changes.maintain(world.clock.now_ms())
            await settle()
        assert len(world.segments(partition.topic).segments) > 3
        await compactor(broker, partition).visit_all()
        forget_cache(partition)
        assert [one.offset for one in await read_keyed(partition)] == [2, 3]

    one_partition(scenario, config=config)
