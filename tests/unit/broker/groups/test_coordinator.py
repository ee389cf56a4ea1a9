"""A coordinator around its core: loading, durability before answers, fail-over, bounding."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordinator.runtime import Phase
from broker.errors import (
    BrokerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    LogReadFailed,
    MessageTooLarge,
    NotCoordinator,
    Overloaded,
    RebalanceInProgress,
    UnknownMember,
)
from broker.groups.commit_order import CommitOrder
from broker.groups.coordinator import Coordinator
from broker.groups.core.group_offsets import TopicPartition
from broker.groups.core.group_types import (
    Commit,
    GroupConfig,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    OffsetToCommit,
    Sync,
)
from broker.groups.core.offset_records import offset_record
from client.ids import ConnectionId, Offset
from client.wire.kafka.batches.record_builder import Record, build_batch
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import VirtualClock, run

GROUP = "g"


class Broker:
    """One coordinator over a fake partition, with requests in their shortest form."""

    def __init__(self, log: FakeLog, *, manual: bool = False, copy_bytes_min: int = 1 << 30):
        self.partition = FakePartition(log, manual=manual)
        self._members = 0
        self.coordinator = Coordinator(
            self.partition,  # type: ignore[arg-type]
            GroupConfig(initial_rebalance_delay_ms=0),
            clock=VirtualClock(),
            new_member_id=self._new_member_id,
            copy_bytes_min=copy_bytes_min,
            order=CommitOrder(ConnectionId(0)),
        )
        self.coordinator.start()

    def _new_member_id(self, prefix: str) -> str:
        self._members += 1
        return f"{prefix}-{self.partition.leader_epoch}-{self._members}"

    async def active(self) -> Broker:
        while self.coordinator.phase is not Phase.ACTIVE:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.01)
        return self

    def lose(self, surviving: int = 0) -> None:
        self.partition.lose(surviving)
        self.coordinator.close()

    async def join(self, member_id: str = "", *, instance_id: str | None = None) -> JoinReply:
        return await self.coordinator.join(
            Join(
                group_id=GROUP,
                member_id=member_id,
                instance_id=instance_id,
                client_id="c",
                client_host="/h",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(("range", b"\0\0\0\0\0\1\0\1t"),),
                requires_member_id=False,
                can_skip_assignment=False,
            )
        )

    async def sync(self, reply: JoinReply, assignments: dict[str, bytes] | None = None) -> bytes:
        request = Sync(
            GROUP, reply.member_id, None, reply.generation, None, None,
            tuple((assignments or {}).items()),
        )  # fmt: skip
        return (await self.coordinator.sync(request)).assignment

    def heartbeat(self, reply: JoinReply) -> None:
        self.coordinator.heartbeat(Heartbeat(GROUP, reply.member_id, None, reply.generation))

    async def commit(
        self, offset: int, *, group: str = GROUP, reply: JoinReply | None = None,
        topic: str = "t", partition: int = 0, metadata: str = "m",
    ) -> BrokerError | None:  # fmt: skip
        who = (reply.member_id, None, reply.generation) if reply else ("", None, -1)
        (outcome,) = await self.coordinator.commit(
            Commit(group, *who), [OffsetToCommit(topic, partition, offset, 3, metadata)]
        )
        return outcome

    def offset(self, *, group: str = GROUP, topic: str = "t", partition: int = 0) -> int | None:
        committed = self.coordinator.view().committed(group).get(topic, partition)
        return None if committed is None else committed.offset

    async def stable(self) -> tuple[JoinReply, JoinReply]:
        """A group of two, stable; the leader first."""
        first, second = await asyncio.gather(self.join(), self.join())
        if first.leader != first.member_id:
            first, second = second, first
        waits = asyncio.ensure_future(self.sync(second))
        assert await self.sync(first, {first.member_id: b"1", second.member_id: b"2"}) == b"1"
        assert await waits == b"2"
        return first, second


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_group_forms_commits_and_is_described() -> None:
    async def scenario() -> None:
        broker = await Broker(FakeLog()).active()
        first, second = await broker.stable()
        assert {first.generation, second.generation} == {1}
        assert await broker.commit(5, reply=second) is None
        committed = broker.coordinator.view().committed(GROUP).get("t", 0)
        assert committed is not None
        assert (committed.offset, committed.leader_epoch, committed.metadata) == (5, 3, "m")
        description = broker.coordinator.view().describe(GROUP)
        assert description is not None
        assert description.state is GroupState.STABLE
        assert broker.coordinator.view().descriptions() == [description]
        assert broker.coordinator.view().describe("other") is None
        assert broker.coordinator.last_view.state_counts()[GroupState.STABLE] == 1
        assert list(broker.coordinator.last_view.oldest_commits()) == ["t"]

    run(scenario())


class TestLoading:
    def test_requests_wait_elsewhere(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            first, _ = await old.stable()
            old.lose()
            broker = Broker(log)
            with pytest.raises(CoordinatorLoading):
                await broker.join()
            with pytest.raises(CoordinatorLoading):
                await broker.commit(1)
            with pytest.raises(CoordinatorLoading):
                broker.offset()
            with pytest.raises(CoordinatorLoading):
                await broker.sync(first)
            with pytest.raises(CoordinatorLoading):
                broker.heartbeat(first)

        run(scenario())

    def test_read_errors_are_retried(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            await old.commit(7)
            old.lose()
            broker = Broker(log)
            broker.partition.read_errors = [LogReadFailed("bookies away")] * 3
            await broker.active()
            assert broker.offset() == 7

        run(scenario())

    def test_a_doubtful_leadership_is_waited_for(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            await old.commit(7)
            old.lose()
            broker = Broker(log)
            broker.partition.in_doubt = True
            await asyncio.sleep(60)
            with pytest.raises(CoordinatorLoading):
                broker.offset()
            broker.partition.in_doubt = False
            await broker.active()
            assert broker.offset() == 7

        run(scenario())

    def test_a_damaged_log_is_not_guessed_at(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            log.batches.append((Offset(0), Offset(1), build_batch([Record(b"\0\1junk", b"x")])))
            broker = Broker(log)
            await asyncio.sleep(1)
            assert broker.coordinator.phase is Phase.FAILED
            with pytest.raises(CoordinatorNotAvailable):
                await broker.join()

        run(scenario())

    def test_records_of_newer_kinds_are_skipped(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            log.batches.append((Offset(0), Offset(1), build_batch([Record(b"\0\7junk", b"x")])))
            await Broker(log).active()

        run(scenario())

    def test_control_batches_are_skipped(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            batch = build_batch([Record(b"\0\0\0\0", b"")], control=True, transactional=True)
            log.batches.append((Offset(0), Offset(1), batch))
            await Broker(log).active()

        run(scenario())

    def test_it_reads_up_to_the_end_even_if_that_is_shown_late(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            for offset in (1, 2, 3):
                await old.commit(offset)
            old.lose()
            broker = Broker(log)
            broker.partition.read_bytes_max = 1
            broker.partition.show(Offset(1))
            await asyncio.sleep(5)
            assert broker.coordinator.phase is Phase.LOADING
            broker.partition.show(None)
            await broker.active()
            assert broker.offset() == 3

        run(scenario())

    def test_closing_ends_it(self) -> None:
        async def scenario() -> None:
            broker = Broker(FakeLog())
            broker.coordinator.close()
            broker.coordinator.close()
            with pytest.raises(NotCoordinator):
                await broker.join()

        run(scenario())


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


class TestFailOver:
    def test_members_go_on_without_a_rebalance_and_commits_survive(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            first, second = await old.stable()
            await old.commit(41, reply=first)
            await old.commit(42, reply=second)
            old.lose()
            new = await Broker(log).active()
            new.heartbeat(first)
            new.heartbeat(second)
            assert await new.sync(second) == b"2"
            assert new.offset() == 42
            assert await new.commit(43, reply=second) is None
            description = new.coordinator.view().describe(GROUP)
            assert description is not None
            assert description.state is GroupState.STABLE
            assert len(description.members) == 2

        run(scenario())

    @pytest.mark.parametrize("surviving", [0, 1, 2])
    def test_what_was_on_its_way_may_survive_but_in_order(self, surviving: int) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log, manual=True).active()
            calls = [asyncio.ensure_future(old.commit(offset)) for offset in (1, 2)]
            await settle()
            old.lose(surviving)
            for call in calls:
                with pytest.raises(NotCoordinator):
                    await call
            new = await Broker(log).active()
            assert new.offset() == (surviving or None)

        run(scenario())

    def test_a_zombie_commits_nothing(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log, manual=True).active()
            call = asyncio.ensure_future(old.commit(1))
            await settle()
            new = await Broker(log).active()  # the old one does not know yet
            assert await new.commit(10) is None
            old.partition.lose()
            with pytest.raises(NotCoordinator):
                await call
            third = await Broker(log).active()
            assert third.offset() == 10

        run(scenario())

    def test_an_old_generation_cannot_commit_at_the_new_coordinator(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            first, second = await old.stable()
            old.lose()
            new = await Broker(log).active()
            outcomes = new.coordinator.leave(GROUP, [Leaving(second.member_id, None)])
            assert outcomes == (None,)
            rejoined = await new.join(first.member_id)
            assert rejoined.generation == 2
            with pytest.raises(UnknownMember):
                await new.commit(1, reply=second)
            with pytest.raises(IllegalGeneration):
                await new.commit(1, reply=first)

        run(scenario())

    def test_silent_members_expire_at_the_new_coordinator(self) -> None:
        async def scenario() -> None:
            log = FakeLog()
            old = await Broker(log).active()
            first, _ = await old.stable()
            old.lose()
            new = await Broker(log).active()
            await asyncio.sleep(9)
            new.heartbeat(first)
            await asyncio.sleep(2)
            with pytest.raises(RebalanceInProgress):
                new.heartbeat(first)

        run(scenario())


class TestStall:
    def test_a_process_that_stood_still_hears_its_members_first(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            first, second = await broker.stable()
            loop = asyncio.get_running_loop()
            await asyncio.sleep(5)
            loop._now_s += 60  # type: ignore[attr-defined]
            await asyncio.sleep(0.5)  # the timer is overdue; then a heartbeat is read
            broker.heartbeat(first)
            await asyncio.sleep(0.4)
            description = broker.coordinator.view().describe(GROUP)
            assert description is not None
            assert description.state is GroupState.STABLE
            await asyncio.sleep(0.2)
            with pytest.raises(UnknownMember):
                broker.heartbeat(second)

        run(scenario())


class TestDoubt:
    def test_state_is_not_told_while_leadership_is_in_doubt(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            first, _ = await broker.stable()
            broker.partition.in_doubt = True
            for ask in (
                broker.offset,
                lambda: broker.coordinator.view().descriptions(),
                lambda: broker.coordinator.view().describe(GROUP),
                lambda: broker.heartbeat(first),
            ):
                with pytest.raises(NotCoordinator):
                    ask()

        run(scenario())

    def test_sessions_stay_alive_meanwhile(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            members = await broker.stable()
            broker.partition.in_doubt = True
            for _ in range(5):
                await asyncio.sleep(9)
                for member in members:
                    with pytest.raises(NotCoordinator):
                        broker.heartbeat(member)
            broker.partition.in_doubt = False
            for member in members:
                broker.heartbeat(member)

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
            broker.coordinator.delete_topic("t")  # with commits still on their way
            broker.partition.confirm()
            await asyncio.gather(*calls)
            assert broker.offset(group="a", topic="t") is None
            assert broker.offset(group="b", topic="u") == 1
            broker.coordinator.close()
            broker.coordinator.delete_topic("u")  # nothing to do any more

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


def test_a_client_that_went_away_is_not_answered() -> None:
    async def scenario() -> None:
        broker = await Broker(FakeLog(), manual=True).active()
        call = asyncio.ensure_future(broker.commit(5))
        await settle()
        call.cancel()
        await settle()
        broker.partition.confirm()
        await settle()
        assert broker.offset() == 5

    run(scenario())


def test_leaving_members_empty_the_group() -> None:
    async def scenario() -> None:
        broker = await Broker(FakeLog()).active()
        members = await broker.stable()
        leaving = [Leaving(one.member_id, None) for one in members]
        assert broker.coordinator.leave(GROUP, leaving) == (None, None)
        description = broker.coordinator.view().describe(GROUP)
        assert description is not None
        assert description.state is GroupState.EMPTY
        assert await broker.commit(1) is None

    run(scenario())


def test_the_log_holds_kafkas_records() -> None:
    async def scenario() -> None:
        log = FakeLog()
        broker = await Broker(log).active()
        await broker.commit(5)
        committed = broker.coordinator.view().committed(GROUP).get("t", 0)
        expected = offset_record(GROUP, "t", 0, committed)
        assert expected.value is not None
        assert expected.key in log.batches[0][2]
        assert expected.value in log.batches[0][2]

    run(scenario())
