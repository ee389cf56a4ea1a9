"""The registry of coordinators: routing, deleted topics, lag."""

from __future__ import annotations

import pytest

from broker.coordinator.core.routing import OFFSETS_TOPIC, coordinator_partition
from broker.coordinator.runtime import Phase
from broker.errors import CoordinatorLoading, NotCoordinator
from broker.groups.core.group_types import GroupState
from broker.groups.groups import SWEEP_S
from tests.fakes.group_bench import GroupBench
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import run


def test_groups_spread_over_the_partitions() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        for name in ("a", "b", "c", "d", "e"):
            await bench.commit(1, group_id=name)
            coordinator = bench.groups.coordinator(name)
            assert coordinator.partition.index == coordinator_partition(name, 4)
        sizes = [len(log.batches) for log in bench.logs.values()]
        assert sum(sizes) == 5

    run(scenario())


def test_no_topic_yet() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        with pytest.raises(NotCoordinator):
            bench.groups.coordinator("g")

    run(scenario())


def test_a_partition_that_is_about_to_open() -> None:
    async def scenario() -> None:
        bench = GroupBench()
        bench.opens_by_itself = False
        await bench.start()
        await bench.topics.create(OFFSETS_TOPIC, 4, internal=True)
        with pytest.raises(CoordinatorLoading):
            bench.groups.coordinator("g")

    run(scenario())


def test_other_partitions_are_none_of_its_business() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        partition = FakePartition(FakeLog("t"))
        bench.groups.on_opened(partition)  # type: ignore[arg-type]
        assert bench.groups.coordinators() == []
        bench.groups.on_closed(partition)  # type: ignore[arg-type]

    run(scenario())


def test_a_late_close_does_not_end_its_successor() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        index = coordinator_partition("g", 4)
        old = bench.partitions[index]
        old.lose()
        new = bench.open(index)
        bench.groups.on_closed(old)  # type: ignore[arg-type]
        assert bench.groups.coordinator("g").partition is new

    run(scenario())


def test_closing_everything() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        coordinators = bench.groups.coordinators()
        bench.groups.close()
        assert {one.phase for one in coordinators} == {Phase.CLOSED}

    run(scenario())


def test_member_ids_are_unique() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        made = {bench.groups._new_member_id("c") for _ in range(100)}
        assert len(made) == 100
        assert all(one.startswith("c-") and len(one) == 38 for one in made)

    run(scenario())


class TestDeletedTopics:
    def test_offsets_go_with_their_topic(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.topics.create("u", 1)
            for name in ("a", "b", "c"):
                await bench.commit(1, group_id=name, topic="t")
                await bench.commit(2, group_id=name, topic="u")
            await bench.topics.delete("t")
            await bench.settle_for(1)
            for name in ("a", "b", "c"):
                assert await bench.fetch(name, "t") == -1
                assert await bench.fetch(name, "u") == 2

        run(scenario())

    def test_a_topic_made_again_starts_without_offsets(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(1)
            await bench.topics.delete("t")
            await bench.topics.create("t", 3)
            await bench.settle_for(1)
            assert await bench.fetch() == -1

        run(scenario())

    def _absent(self, bench: GroupBench) -> None:
        """Close the coordinator, so that it misses what happens to the topic."""
        bench.opens_by_itself = False
        bench.close(coordinator_partition("g", 4))

    async def _back(self, bench: GroupBench) -> None:
        bench.open(coordinator_partition("g", 4))
        await bench.settle(lambda: bench.groups.coordinator("g").phase is Phase.ACTIVE)

    def test_a_deletion_that_nobody_saw_is_found_later(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(1)
            self._absent(bench)
            await bench.topics.delete("t")
            await bench.settle(lambda: "t" not in bench.cluster.topics)
            await self._back(bench)
            assert await bench.fetch() == 1
            await bench.settle_for(SWEEP_S)
            assert await bench.fetch() == 1  # once missing proves nothing
            await bench.settle_for(SWEEP_S)
            assert await bench.fetch() == -1

        run(scenario())

    def test_offsets_of_a_predecessor_are_found_later(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(1)
            self._absent(bench)
            await bench.topics.delete("t")
            await bench.settle_for(1000)
            await bench.topics.create("t", 3)
            await self._back(bench)
            await bench.commit(5, partition_index=1)
            await bench.settle_for(SWEEP_S)
            assert await bench.fetch() == -1
            assert await bench.fetch(index=1) == 5

        run(scenario())

    def test_a_view_that_lags_deletes_nothing(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(1)
            self._absent(bench)
            bench.cluster.topics = {
                name: one for name, one in bench.cluster.topics.items() if name != "t"
            }
            bench.groups._topic_ids = bench.groups._current_ids()
            await self._back(bench)
            bench.groups._missing = frozenset({"t"})
            await bench.groups._sweep_once()
            assert await bench.fetch() == 1

        run(scenario())

    def test_the_sweep_waits_for_the_store(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(1)
            self._absent(bench)
            await bench.topics.delete("t")
            await bench.settle(lambda: "t" not in bench.cluster.topics)
            await self._back(bench)
            bench.tree.suspend(bench.store)
            await bench.settle_for(3 * SWEEP_S)
            assert await bench.fetch() == 1
            bench.tree.resume(bench.store)
            await bench.settle_for(2 * SWEEP_S)
            assert await bench.fetch() == -1

        run(scenario())


def test_state_counts() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        for name in ("a", "b"):
            await bench.commit(1, group_id=name)
        assert bench.groups.rebalance_count == 0
        await bench.join()
        assert bench.groups.rebalance_count == 1
        counts = bench.groups.state_counts()
        assert counts[GroupState.EMPTY] == 2
        assert counts[GroupState.COMPLETING] == 1
        assert counts[GroupState.STABLE] == 0

    run(scenario())


def test_the_config_reaches_the_coordinators() -> None:
    async def scenario() -> None:
        bench = GroupBench(group_session_timeout_min_ms=100)
        await (await bench.start()).serving()
        reply = await bench.join(9, session_timeout=200)
        assert reply.error_code.name == "none"

    run(scenario())
