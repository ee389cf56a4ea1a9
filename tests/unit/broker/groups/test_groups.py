"""The registry of coordinators: routing, deleted topics, lag."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from broker.coordinator.core.routing import OFFSETS_TOPIC, coordinator_partition
from broker.coordinator.runtime import Phase
from broker.errors import CoordinatorLoading, NotCoordinator, NotEnoughReplicas
from broker.front.handlers import offset_commit, offset_fetch
from broker.groups.core.group_types import Commit, GroupState, OffsetToCommit
from broker.groups.groups import SWEEP_S
from broker.topics.core.topic_rules import TopicShape
from broker.topics.topic_changes import TopicChanges
from client.metadata import paths
from client.metadata.memory import Fault
from tests.fakes.bad_nodes import BAD_NODES
from tests.fakes.clock import rng
from tests.fakes.group_bench import GroupBench
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import VirtualClock, run


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

    def test_what_was_committed_since_the_topic_was_made_anew_is_the_new_ones(self) -> None:
        """This broker's view lags: it still shows the old topic when the commit comes."""

        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(9, group_id="old")
            await bench.settle_for(1)
            old = bench.cluster.topics["t"]
            bench.tree.freeze(bench.store)
            other = TopicChanges(bench.tree.session(), VirtualClock(), rng(7))
            await other.delete(old)
            shape = TopicShape(1, 3, old.config)
            new = await other.create("t", shape, internal=False, assignments={})
            await bench.commit(5)
            assert bench.cluster.topics["t"].topic_id == old.topic_id
            bench.tree.thaw(bench.store)
            await bench.settle_for(1)
            assert bench.cluster.topics["t"].topic_id == new.topic_id
            assert await bench.fetch() == 5
            assert await bench.fetch("old") == -1

        run(scenario())

    @pytest.mark.parametrize("late_s", [0.0, 0.5, 5.0])
    def test_what_was_on_its_way_when_the_view_caught_up_is_the_new_ones(
        self, late_s: float
    ) -> None:
        """The log is slow, so the commit is stored when this broker has heard of the new topic."""

        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(9, partition_index=1)
            await bench.settle_for(1)
            old = bench.cluster.topics["t"]
            bench.tree.freeze(bench.store)
            other = TopicChanges(bench.tree.session(), VirtualClock(), rng(7))
            await other.delete(old)
            shape = TopicShape(3, 3, old.config)
            new = await other.create("t", shape, internal=False, assignments={})
            partition = bench.groups.coordinator("g").partition
            assert isinstance(partition, FakePartition)
            partition.manual = True
            committing = asyncio.ensure_future(bench.commit(5))
            await bench.settle(lambda: partition.pending_count > 0)
            bench.tree.thaw(bench.store)
            await bench.settle(lambda: bench.cluster.topics["t"].topic_id == new.topic_id)
            await bench.settle_for(late_s)
            partition.manual = False
            partition.confirm()
            assert await committing == "none"
            await bench.settle_for(0.05)
            assert await bench.fetch() == 5, "what was acknowledged is there, at once"
            assert await bench.fetch(index=1) == -1
            bench.groups._missing = frozenset()
            await bench.groups._sweep_once()
            await bench.settle_for(2)
            assert await bench.fetch() == 5

        run(scenario())

    def test_a_log_that_takes_nothing_for_a_while_is_tried_again(self) -> None:
        """Neither at once, nor never: what is refused would be refused once more."""

        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(9, partition_index=1)
            await bench.settle_for(1)
            old = bench.cluster.topics["t"]
            bench.tree.freeze(bench.store)
            other = TopicChanges(bench.tree.session(), VirtualClock(), rng(7))
            await other.delete(old)
            shape = TopicShape(3, 3, old.config)
            new = await other.create("t", shape, internal=False, assignments={})
            await bench.commit(5)
            partition = bench.groups.coordinator("g").partition
            assert isinstance(partition, FakePartition)
            partition.refuse = NotEnoughReplicas("not now")
            before = partition.append_count
            bench.tree.thaw(bench.store)
            await bench.settle(lambda: bench.cluster.topics["t"].topic_id == new.topic_id)
            await bench.settle_for(5)
            assert partition.append_count == before
            partition.refuse = None
            await bench.settle_for(2)
            assert await bench.fetch() == 5
            assert await bench.fetch(index=1) == -1

        run(scenario())

    def test_what_was_committed_for_the_new_one_survives_a_view_that_shows_neither(self) -> None:
        """A server that catches up may show for a moment that there is no topic of the name."""

        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(9, group_id="old")
            await bench.settle_for(1)
            old = bench.cluster.topics["t"]
            bench.tree.freeze(bench.store)
            other = TopicChanges(bench.tree.session(), VirtualClock(), rng(7))
            await other.delete(old)
            shape = TopicShape(3, 3, old.config)
            new = await other.create("t", shape, internal=False, assignments={})
            await bench.commit(5)
            bench.cluster._topic_view._forget("t")
            bench.cluster._topic_view._report()
            await bench.settle(lambda: "t" not in bench.cluster.topics)
            await bench.settle_for(1)
            assert bench.cluster.topics["t"].topic_id == new.topic_id
            assert await bench.fetch() == 5
            assert await bench.fetch("old") == -1

        run(scenario())

    @pytest.mark.parametrize("bad", BAD_NODES)
    def test_a_topic_whose_node_is_unreadable_keeps_its_offsets(self, bad: bytes) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            for name in ("a", "b", "c"):
                await bench.commit(7, group_id=name)
            node = await bench.store.get(paths.topic("t"))
            version = await bench.store.set(paths.topic("t"), bad, node.version)
            await bench.settle_for(1)
            assert bench.store.unreadable.all().keys() == {paths.topic("t")}
            assert "t" in bench.cluster.topics, "what it was before stays in force"
            await bench.settle_for(3 * SWEEP_S)
            await bench.store.set(paths.topic("t"), node.data, version)
            await bench.settle_for(1)
            assert not bench.store.unreadable.all()
            assert [await bench.fetch(name) for name in ("a", "b", "c")] == [7, 7, 7]

        run(scenario())

    @pytest.mark.parametrize("bad", BAD_NODES)
    def test_a_node_that_was_never_readable_is_no_deletion_for_the_sweep(self, bad: bytes) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(7)
            # As in a broker that was started since: its view never had the topic.
            del bench.cluster._topic_view.values["t"]
            bench.cluster._on_topics_changed()
            bench.groups._topic_ids = bench.groups._current_ids()
            node = await bench.store.get(paths.topic("t"))
            await bench.store.set(paths.topic("t"), bad, node.version)
            await bench.settle_for(3 * SWEEP_S)
            assert "t" not in bench.cluster.topics
            assert await bench.fetch() == 7

        run(scenario())

    def test_a_topic_that_only_the_view_has_lost_keeps_its_offsets(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(7)
            topics = bench.cluster.topics
            bench.cluster.topics = {name: one for name, one in topics.items() if name != "t"}
            bench.groups._on_cluster_changed()
            await bench.settle_for(1)
            bench.cluster.topics = topics
            assert await bench.fetch() == 7

        run(scenario())

    def test_while_the_store_is_away_a_lost_topic_keeps_its_offsets(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(7)
            bench.tree.on_request = lambda operation: (
                Fault.LOSE_REQUEST if operation.name == "sync" else None
            )
            await bench.tree.session().delete(paths.topic("t"))
            await bench.settle_for(60)
            assert "t" not in bench.cluster.topics
            assert await bench.fetch() == 7
            bench.tree.on_request = lambda operation: None
            await bench.settle_for(2)
            assert await bench.fetch() == -1

        run(scenario())

    def test_commits_for_a_topic_made_anew_stay_while_the_old_one_is_asked_for(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(7)
            await bench.settle_for(1)
            is_deleted, may_answer = bench.cluster.is_deleted, asyncio.Event()

            async def slow(name: str, topic_id: UUID | None) -> bool:
                await may_answer.wait()
                return await is_deleted(name, topic_id)

            bench.cluster.is_deleted = slow  # type: ignore[method-assign]
            await bench.topics.delete("t")
            await bench.settle(lambda: "t" in bench.groups._lost)
            await bench.settle_for(1)
            await bench.topics.create("t", 3)
            await bench.commit(9, partition_index=1)
            may_answer.set()
            await bench.settle_for(1)
            assert await bench.fetch() == -1
            assert await bench.fetch(index=1) == 9

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
            await bench.settle_for(1)
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

    @pytest.mark.parametrize("version", [8, 10])
    def test_a_coordinator_that_takes_over_tells_topics_of_one_name_apart(
        self, version: int
    ) -> None:
        """Deleted and made anew within less than clocks differ, while nobody coordinates."""

        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await self._commit(bench, version, 7)
            self._absent(bench)
            old_id = bench.cluster.topics["t"].topic_id
            await bench.topics.delete("t")
            await bench.topics.create("t", 3)
            await bench.settle(lambda: bench.cluster.topics["t"].topic_id != old_id)
            await self._back(bench)
            # At once, before anything can have been removed from the log.
            assert await self._fetch(bench, version) == -1
            assert await bench.fetch() == -1
            await bench.settle_for(1)
            assert not bench.groups.coordinator("g").view().committed("g"), "it is removed, too"
            await self._commit(bench, version, 2)
            assert await self._fetch(bench, version) == 2

        run(scenario())

    async def _commit(self, bench: GroupBench, version: int, offset: int) -> None:
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
                 "committed_metadata": None}]  # fmt: skip
        topic = {"name": "t", "topic_id": bench.cluster.topics["t"].topic_id, "partitions": rows}
        reply = await bench.call(
            offset_commit, version, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=[topic],
        )  # fmt: skip
        assert reply.topics[0].partitions[0].error_code.name == "none"

    async def _fetch(self, bench: GroupBench, version: int) -> int:
        topic = {
            "name": "t", "topic_id": bench.cluster.topics["t"].topic_id, "partition_indexes": [0]
        }  # fmt: skip
        groups = [{"group_id": "g", "topics": [topic]}]
        reply = await bench.call(offset_fetch, version, groups=groups)
        assert reply.groups[0].error_code.name == "none"
        return int(reply.groups[0].topics[0].partitions[0].committed_offset)

    def test_what_is_asked_for_with_an_id_was_committed_for_that_id(self) -> None:
        """A view that lags shows the old topic; the log has the new one's offset already."""

        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            old = bench.cluster.topics["t"]
            bench.tree.freeze(bench.store)
            other = TopicChanges(bench.tree.session(), VirtualClock(), rng(7))
            await other.delete(old)
            shape = TopicShape(1, 3, old.config)
            new = await other.create("t", shape, internal=False, assignments={})
            commit = Commit("g", "", None, -1)
            rows = [OffsetToCommit("t", 0, 5, -1, "", new.topic_id)]
            assert await bench.groups.coordinator("g").commit(commit, rows) == (None,)
            assert bench.cluster.topics["t"].topic_id == old.topic_id
            assert await self._fetch(bench, 10) == -1
            assert await self._fetch(bench, 8) == 5
            await bench.groups._remove_older_topics()
            bench.tree.thaw(bench.store)
            await bench.settle_for(2)
            assert await self._fetch(bench, 10) == 5

        run(scenario())

    def test_what_names_the_old_topic_by_its_id_goes_with_it_however_late(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            old = bench.cluster.topics["t"]
            bench.tree.freeze(bench.store)
            other = TopicChanges(bench.tree.session(), VirtualClock(), rng(7))
            await other.delete(old)
            shape = TopicShape(1, 3, old.config)
            await other.create("t", shape, internal=False, assignments={})
            await self._commit(bench, 10, 7)
            bench.tree.thaw(bench.store)
            await bench.settle_for(1)
            assert bench.cluster.topics["t"].topic_id != old.topic_id
            assert await bench.fetch() == -1

        run(scenario())

    def test_while_the_store_does_not_say_whose_an_offset_is_nobody_is_told_one(self) -> None:
        async def scenario() -> None:
            bench = await (await GroupBench().start()).serving()
            await bench.commit(7)
            self._absent(bench)
            old_id = bench.cluster.topics["t"].topic_id
            await bench.topics.delete("t")
            await bench.topics.create("t", 3)
            await bench.settle(lambda: bench.cluster.topics["t"].topic_id != old_id)
            bench.tree.on_request = lambda operation: (
                Fault.LOSE_REQUEST if operation.name == "sync" else None
            )
            await self._back(bench)
            topics = [{"name": "t", "partition_indexes": [0]}]
            reply = await bench.call(offset_fetch, 7, group_id="g", topics=topics)
            assert reply.error_code.name == "coordinator_load_in_progress"
            bench.tree.on_request = lambda operation: None
            assert await bench.fetch() == -1

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
            await bench.settle_for(1)
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
