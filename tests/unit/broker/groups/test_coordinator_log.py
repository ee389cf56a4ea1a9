"""A coordinator and its log: durable before answers, offsets, and a log that stays short."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    MessageTooLarge,
    NotCoordinator,
    Overloaded,
    RebalanceInProgress,
)
from broker.groups.core.group_offsets import EndedTopic, TopicPartition
from broker.groups.core.group_types import (
    Commit,
    OffsetToCommit,
)
from client.ids import Offset
from tests.fakes.group_coordinator import GROUP, Broker, settle
from tests.fakes.partitions import FakeLog
from tests.fakes.virtual_time import run


class TestDurability:
    def test_a_commit_is_answered_and_shown_only_when_durable(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog(), manual=True).active()
            call = asyncio.ensure_future(broker.commit(5))
            await settle()
            assert not call.done()
            assert broker.offset() is None
            broker.partition.confirm()
            assert await call is None
            assert broker.offset() == 5

        run(scenario())

    def test_an_assignment_is_handed_out_only_when_durable(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog(), manual=True).active()
            joined = await broker.join()
            call = asyncio.ensure_future(broker.sync(joined, {joined.member_id: b"1"}))
            await settle()
            assert not call.done()
            broker.partition.confirm()
            assert await call == b"1"

        run(scenario())

    def test_commits_are_pipelined_and_answered_in_order(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog(), manual=True).active()
            calls = [asyncio.ensure_future(broker.commit(offset)) for offset in range(5)]
            await settle()
            assert broker.partition.pending_count == 5
            broker.partition.confirm(3)
            await settle()
            assert [call.done() for call in calls] == [True] * 3 + [False] * 2
            assert broker.offset() == 2

        run(scenario())

    def test_a_lost_append_fails_everything_that_waits(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog(), manual=True).active()
            await broker.join()
            call = asyncio.ensure_future(broker.commit(5, group="other"))
            parked = asyncio.ensure_future(broker.join())
            await settle()
            broker.lose()
            for waiting in (call, parked):
                with pytest.raises(NotCoordinator):
                    await waiting
            with pytest.raises(NotCoordinator):
                broker.offset()

        run(scenario())

    def test_a_lost_append_alone_makes_it_read_the_log_again(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog(), manual=True).active()
            call = asyncio.ensure_future(broker.commit(5))
            await settle()
            broker.partition.lose(surviving=1)
            with pytest.raises(NotCoordinator):
                await call
            with pytest.raises(CoordinatorLoading):
                broker.offset()
            broker.partition.is_open = True
            await broker.active()
            assert broker.offset() == 5

        run(scenario())

    def test_a_refused_record_is_that_requests_problem_alone(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            broker.partition.batch_bytes_max = 300
            assert await broker.commit(1) is None
            with pytest.raises(MessageTooLarge):
                await broker.commit(2, metadata="x" * 1000)
            assert broker.offset() == 1
            assert await broker.commit(3) is None

        run(scenario())

    def test_a_refused_assignment_starts_a_rebalance(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            joined = await broker.join()
            broker.partition.batch_bytes_max = 300
            with pytest.raises(MessageTooLarge):
                await broker.sync(joined, {joined.member_id: b"x" * 1000})
            with pytest.raises(RebalanceInProgress):
                broker.heartbeat(joined)
            again = await broker.join(joined.member_id)
            assert await broker.sync(again, {again.member_id: b"fits"}) == b"fits"

        run(scenario())

    def test_an_overloaded_log_asks_the_client_to_come_back(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            broker.partition.refuse = Overloaded("full")
            with pytest.raises(CoordinatorNotAvailable):
                await broker.commit(1)
            broker.partition.refuse = None
            assert await broker.commit(1) is None

        run(scenario())

    def test_a_request_that_was_stored_by_halves_is_read_back(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            many = [OffsetToCommit("t", index, index, -1, "x" * 4000) for index in range(300)]
            broker.partition.refuse_after = 1
            with pytest.raises(NotCoordinator):
                await broker.coordinator.commit(Commit(GROUP, "", None, -1), many)
            await broker.active()
            stored = [index for index in range(300) if broker.offset(partition=index) is not None]
            assert 0 < len(stored) < 300
            assert stored == list(range(len(stored)))

        run(scenario())

    def test_a_large_request_takes_several_batches(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            many = [OffsetToCommit("t", index, index, -1, "x" * 4000) for index in range(300)]
            outcomes = await broker.coordinator.commit(Commit(GROUP, "", None, -1), many)
            assert set(outcomes) == {None}
            assert broker.partition.append_count == 3
            assert broker.offset(partition=299) == 299

        run(scenario())


class TestGroupsAndOffsets:
    def test_delete_groups(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            broker = await Broker(log).active()
            await broker.commit(1, group="a")
            await broker.stable()
            outcomes = await broker.coordinator.delete_groups(["a", GROUP, "none"])
            assert [type(one).__name__ for one in outcomes] == [
                "NoneType",
                "NonEmptyGroup",
                "GroupIdNotFound",
            ]
            assert broker.coordinator.view().describe("a") is None
            broker.lose()
            new = await Broker(log).active()
            assert new.offset(group="a") is None
            assert new.coordinator.view().describe("a") is None

        run(scenario())

    def test_delete_offsets(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            await broker.commit(1, topic="t")
            await broker.commit(2, topic="u")
            (outcome,) = await broker.coordinator.delete_offsets(GROUP, [TopicPartition("t", 0)])
            assert outcome is None
            assert broker.offset(topic="t") is None
            assert broker.offset(topic="u") == 2
            with pytest.raises(GroupIdNotFound):
                await broker.coordinator.delete_offsets("none", [TopicPartition("t", 0)])

        run(scenario())

    def test_a_deleted_topic_takes_its_offsets_along(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            broker = await Broker(log, manual=True).active()
            calls = [
                asyncio.ensure_future(broker.commit(1, group=group, topic=topic))
                for group in ("a", "b")
                for topic in ("t", "u")
            ]
            await settle()
            broker.coordinator.delete_topic(
                EndedTopic("t", None)
            )  # with commits still on their way
            broker.partition.confirm()
            await asyncio.gather(*calls)
            assert broker.offset(group="a", topic="t") is None
            assert broker.offset(group="b", topic="u") == 1
            broker.coordinator.close()
            broker.coordinator.delete_topic(EndedTopic("u", None))  # nothing to do any more

        run(scenario())

    def test_offsets_expire(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            broker = await Broker(log).active()
            await broker.commit(1)
            await asyncio.sleep(6 * 86_400)
            assert broker.offset() == 1
            await asyncio.sleep(86_400 + 600)
            assert broker.offset() is None
            assert broker.coordinator.view().describe(GROUP) is None

        run(scenario(), timeout_s=10 * 86_400)


class TestBoundedLog:
    async def _fill(self, broker: Broker, count: int) -> None:
        for offset in range(count):
            await broker.commit(offset, partition=offset % 3)

    def test_the_log_is_copied_and_trimmed(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            broker = await Broker(log, copy_bytes_min=5_000).active()
            await broker.stable()
            first = broker.coordinator.view().describe(GROUP)
            for offset in range(300):
                await broker.commit(offset, group="x", partition=offset % 3)
                assert log.size() < 20_000
            await asyncio.sleep(1)
            assert broker.partition.rolls > 1
            assert log.start > 200
            broker.lose()
            new = await Broker(log).active()
            assert [new.offset(group="x", partition=index) for index in range(3)] == [297, 298, 299]
            assert new.coordinator.view().describe(GROUP) == first

        run(scenario())

    @pytest.mark.parametrize("confirmed", range(12))
    def test_a_crash_in_the_middle_loses_nothing(self, confirmed: int) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            for index in range(8):
                await old.commit(index, group=f"g{index}", metadata="x" * 50)
            old.lose()
            broker = Broker(log, manual=True, copy_bytes_min=500)
            await broker.active()
            await settle()
            calls = [
                asyncio.ensure_future(broker.commit(100 + index, group=f"g{index}"))
                for index in range(2)
            ]
            await settle()
            broker.partition.confirm(confirmed)
            await settle()
            acked = [index for index, call in enumerate(calls) if call.done()]
            broker.lose()
            await asyncio.gather(*calls, return_exceptions=True)
            new = await Broker(log).active()
            for index in range(8):
                expected = 100 + index if index in acked else index
                assert new.offset(group=f"g{index}") in (expected, 100 + index)

        run(scenario())

    def test_a_commit_on_its_way_is_not_undone_by_the_copy(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            await self._fill(old, 30)
            old.lose()
            broker = Broker(log, manual=True, copy_bytes_min=500)
            await broker.active()
            call = asyncio.ensure_future(broker.commit(1000, partition=0))
            await settle()
            while not call.done() or broker.partition.pending_count:
                broker.partition.confirm(1)
                await settle()
            await asyncio.sleep(1)
            assert log.start >= 30
            broker.lose()
            new = await Broker(log).active()
            assert [new.offset(partition=index) for index in range(3)] == [1000, 28, 29]

        run(scenario())

    def test_a_log_of_many_leaders_is_copied_too(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            for number in range(20):
                broker = await Broker(log).active()
                await asyncio.sleep(1)
                assert await broker.commit(number) is None
                broker.lose()
                assert len(log.batches) <= 17
            assert log.start > 0
            last = await Broker(log).active()
            assert last.offset() == 19

        run(scenario())

    def test_a_failed_copy_is_tried_again(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            broker = await Broker(log, copy_bytes_min=3_000).active()
            broker.partition.read_errors = []
            await self._fill(broker, 10)
            broker.partition.batch_bytes_max = 125  # the copy's batches are larger
            await self._fill(broker, 30)
            assert log.start == 0
            broker.partition.batch_bytes_max = 1 << 20
            await self._fill(broker, 60)
            await asyncio.sleep(1)
            assert log.start > 0
            assert broker.offset(partition=2) == 59

        run(scenario())

    def test_a_log_that_is_trimmed_while_it_is_read(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            await self._fill(old, 10)
            broker = Broker(log)
            broker.partition.read_bytes_max = 1
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await old.partition.changes.delete_records(Offset(7))
            await broker.active()
            assert [broker.offset(partition=index) for index in range(3)] == [9, 7, 8]

        run(scenario())
