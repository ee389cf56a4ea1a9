"""Requests that come before their coordinator is ready: which wait, for how long, and for what."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from broker.coordinator.coordinators import PREPARE_AGAIN_S
from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from broker.coordinator.runtime import Phase
from broker.errors import BrokerError, LogReadFailed
from broker.front.handlers import find_coordinator, offset_fetch
from client.ids import BookieId
from client.metadata import paths
from tests.fakes.group_bench import GroupBench
from tests.fakes.transaction_front import ID, TransactionFront
from tests.fakes.virtual_time import run

HOLD_S = 1.0
"""For how long requests wait for a partition that is being opened, and for its log."""
SLOW: list[BrokerError] = [LogReadFailed("slow")] * 3
"""What delays the reading of a log for 0.7 s, by its pauses."""

INDEX = coordinator_partition("g", 4)
TOPICS = {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}


async def opening() -> GroupBench:
    """Return a bench whose broker is about to lead what keeps group `g`, and an offset of it."""
    bench = await (await GroupBench().start()).serving()
    await bench.commit(1)
    bench.opens_by_itself = False
    bench.close(INDEX)
    bench.awaited.begin(key_of(bench))
    return bench


def key_of(bench: GroupBench) -> tuple[UUID, int]:
    return bench.cluster.topics[OFFSETS_TOPIC].topic_id, INDEX


def open_now(bench: GroupBench) -> None:
    """What `Ownership` does in one turn when a partition is led."""
    bench.awaited.end(key_of(bench))
    bench.open(INDEX)


def has_topic(bench: GroupBench, name: str) -> bool:
    return name in bench.cluster.topics


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def fetched(bench: GroupBench) -> Any:
    topics = [{"name": "t", "partition_indexes": [0]}]
    return await bench.call(offset_fetch, 7, group_id="g", topics=topics)


@pytest.mark.parametrize("ask", [GroupBench.join, fetched])
def test_who_begins_waits_until_the_partition_is_led_and_its_log_is_read(ask: Any) -> None:
    async def scenario() -> None:
        bench = await opening()
        asked = asyncio.ensure_future(ask(bench))
        await bench.settle_for(0.5)
        assert not asked.done()
        open_now(bench)
        bench.partitions[INDEX].read_errors = list(SLOW)
        await bench.settle_for(0.5)
        assert not asked.done()
        assert (await asked).error_code.name == "none"

    run(scenario())


def test_who_begins_waits_for_a_partition_no_longer_than_allowed() -> None:
    async def scenario() -> None:
        bench = await opening()
        began_s = now_s()
        assert (await bench.join()).error_code.name == "coordinator_load_in_progress"
        assert HOLD_S <= now_s() - began_s < HOLD_S + 0.1
        began_s = now_s()
        assert (await bench.join()).error_code.name == "coordinator_load_in_progress"
        assert now_s() - began_s < 0.1, "it was waited for already"

    run(scenario())


def test_who_begins_waits_for_a_log_no_longer_than_allowed() -> None:
    async def scenario() -> None:
        bench = await opening()
        open_now(bench)
        bench.partitions[INDEX].read_errors = 100 * SLOW
        began_s = now_s()
        assert (await bench.join()).error_code.name == "coordinator_load_in_progress"
        assert HOLD_S <= now_s() - began_s < HOLD_S + 0.1
        began_s = now_s()
        assert (await bench.join()).error_code.name == "coordinator_load_in_progress"
        assert now_s() - began_s < 0.1, "it was waited for already"

    run(scenario())


def test_who_waits_for_a_log_hears_at_once_that_another_broker_leads() -> None:
    async def scenario() -> None:
        bench = await opening()
        open_now(bench)
        bench.partitions[INDEX].read_errors = 100 * SLOW
        asked = asyncio.ensure_future(bench.join())
        await bench.settle_for(0.2)
        await bench.store.delete(f"{paths.BROKERS}/1")
        await bench.register(2)
        await bench.settle(lambda: 1 not in bench.cluster.brokers)
        bench.close(INDEX)
        began_s = now_s()
        assert (await asked).error_code.name == "not_coordinator"
        assert now_s() - began_s < 0.1

    run(scenario())


def test_what_members_send_later_does_not_wait() -> None:
    async def scenario() -> None:
        bench = await opening()
        began_s = now_s()
        assert await bench.commit(2) == "coordinator_load_in_progress"
        assert now_s() - began_s < 0.1

    run(scenario())


def test_a_transactional_producer_waits_for_its_coordinator() -> None:
    async def scenario() -> None:
        front = await (await TransactionFront().start()).serving()
        await front.began()
        front.take_over()
        for partition in front.transaction_partitions.values():
            partition.read_errors = list(SLOW)
        front.connection += 1
        began_s = now_s()
        assert (await front.init()).error_code.name == "none"
        assert now_s() - began_s >= 0.5

    run(scenario())


def test_the_coordinator_is_named_when_it_leads_for_the_first_time() -> None:
    async def scenario() -> None:
        front = TransactionFront()
        front.hold_s = 0.3
        await front.start()
        for kind, name, key in ((0, OFFSETS_TOPIC, "g"), (1, TRANSACTIONS_TOPIC, ID)):
            asked = asyncio.ensure_future(front.call(find_coordinator, 2, key=key, key_type=kind))
            await front.settle(partial(has_topic, front, name))
            await front.settle_for(0.1)
            assert not asked.done()
            index = coordinator_partition(key, front.cluster.topics[name].partition_count)
            await front.lead_data(name, index, 0)
            began_s = now_s()
            assert (await asked).error_code.name == "none"
            assert now_s() - began_s < 0.1, "the other partitions do not matter"

    run(scenario())


def test_a_coordinator_that_never_leads_is_named_all_the_same() -> None:
    async def scenario() -> None:
        bench = GroupBench()
        bench.hold_s = 0.3
        await bench.start()
        began_s = now_s()
        keys = [str(number) for number in range(20)]
        reply = await bench.call(find_coordinator, 6, coordinator_keys=keys, key_type=0)
        assert {(one.error_code.name, one.node_id) for one in reply.coordinators} == {("none", 1)}
        assert 0.3 <= now_s() - began_s < 0.5, "all of them wait at the same time"

    run(scenario())


def test_a_topic_that_cannot_be_made_is_tried_once_for_all_keys() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        for number in range(3):
            await bench.store.delete(paths.cookie(BookieId(f"b{number}")))
        seen: list[str] = []
        bench.tree.on_request = lambda operation: seen.append(operation.path)
        keys = [str(number) for number in range(20)]
        reply = await bench.call(find_coordinator, 6, coordinator_keys=keys, key_type=0)
        codes = [one.error_code.name for one in reply.coordinators]
        assert codes == 20 * ["coordinator_not_available"]
        assert len(seen) < 5

    run(scenario())


class TestTopicsAtStart:
    def test_they_are_there_before_anybody_asks(self) -> None:
        async def scenario() -> None:
            front = await TransactionFront(internal_topics_at_start=True).start()
            await front.settle(lambda: {*front.cluster.topics} >= TOPICS)
            assert all(one.internal for one in front.cluster.topics.values() if one.name != "t")
            await front.settle(
                lambda: all(one.phase is Phase.ACTIVE for one in front.groups.coordinators())
            )

        run(scenario())

    def test_without_the_setting_nothing_is_made(self) -> None:
        async def scenario() -> None:
            front = await TransactionFront().start()
            await front.settle_for(5.0)
            assert {*front.cluster.topics} == {"t"}

        run(scenario())

    def test_it_is_tried_again_until_there_are_bookies(self) -> None:
        async def scenario() -> None:
            bench = GroupBench(internal_topics_at_start=True, default_replication_factor=4)
            await bench.start()
            await bench.settle_for(3 * PREPARE_AGAIN_S)
            assert OFFSETS_TOPIC not in bench.cluster.topics
            await bench.store.create(paths.cookie(BookieId("b3")))
            await bench.settle_for(PREPARE_AGAIN_S)
            assert OFFSETS_TOPIC in bench.cluster.topics

        run(scenario())

    def test_closing_ends_it(self) -> None:
        async def scenario() -> None:
            bench = GroupBench(internal_topics_at_start=True, default_replication_factor=4)
            await bench.start()
            await bench.settle_for(0.5)
            bench.groups.close()
            await bench.store.create(paths.cookie(BookieId("b3")))
            await bench.settle_for(3 * PREPARE_AGAIN_S)
            assert OFFSETS_TOPIC not in bench.cluster.topics

        run(scenario())
