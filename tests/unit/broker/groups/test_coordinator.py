"""A coordinator around its core: loading, fail-over, and what it answers meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordinator.runtime import Phase
from broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    IllegalGeneration,
    LogReadFailed,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from broker.groups.core.consumer_heartbeat import JOINING, ConsumerHeartbeat
from broker.groups.core.group_types import (
    GroupState,
    GroupType,
    Leaving,
)
from broker.groups.core.offset_records import offset_record
from client.ids import Offset
from client.wire.kafka.batches.records import Record, build_batch
from client.wire.steps import finish
from tests.fakes.group_coordinator import GROUP, Broker, settle
from tests.fakes.partitions import FakeLog
from tests.fakes.raised import Bug, broken
from tests.fakes.virtual_time import run


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
        assert broker.coordinator.view().group_ids() == [GROUP]
        assert broker.coordinator.view().headline(GROUP) == (
            GROUP, GroupState.STABLE, description.protocol_type, len(description.members),
            GroupType.CLASSIC,
        )  # fmt: skip
        assert broker.coordinator.view().headline("other") is None
        assert broker.coordinator.view().describe("other") is None
        assert broker.coordinator.last_view.state_counts()[GroupState.STABLE] == 1
        assert list(finish(broker.coordinator.last_view.committed_topics())) == ["t"]

    run(scenario())


@pytest.mark.parametrize("name", ["replay", "on_stored", "on_deadline", "effect"])
def test_whatever_raises_who_waits_hears_and_the_log_is_read_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(context.get("exception"))
        )
        broker = await Broker(FakeLog()).active()
        first, _ = await broker.stable()
        assert await broker.commit(5, reply=first) is None
        coordinator = broker.coordinator
        shard = coordinator._shard

        def broken_once(*_args: object) -> None:
            monkeypatch.undo()
            broken()

        waiting = asyncio.ensure_future(broker.commit(6, reply=first))
        await asyncio.sleep(0)
        owner, name_of = (
            (coordinator, "_on_effect") if name == "effect" else (coordinator._shard, name)
        )
        monkeypatch.setattr(type(owner), name_of, broken_once)
        if name == "effect":
            with pytest.raises(Bug):
                coordinator._perform([object()])
        elif name == "on_deadline":
            await asyncio.sleep(120)
        found = await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), 30)
        if name not in ("on_deadline", "effect"):
            assert isinstance(found[0], NotCoordinator)
            assert [type(error) for error in told] == [Bug]
        await broker.active()
        assert broker.offset() in (5, 6)
        assert coordinator._shard is not shard

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
            log.batches.append((Offset(0), Offset(1), build_batch([Record(b"\0\x0fjunk", b"x")])))
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
                lambda: broker.coordinator.view().group_ids(),
                lambda: broker.coordinator.view().describe(GROUP),
                lambda: broker.heartbeat(first),
            ):
                with pytest.raises(NotCoordinator):
                    ask()
            assert broker.coordinator.last_view.describe(GROUP) is not None

        run(scenario())

    def test_nobody_is_refused_for_what_a_successor_may_know(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            first, _ = await broker.stable()
            broker.partition.in_doubt = True
            later = first._replace(generation=first.generation + 1)
            stranger = first._replace(member_id="of a successor")
            for reply in (later, stranger):
                with pytest.raises(NotCoordinator):
                    await broker.commit(1, reply=reply)
                with pytest.raises(NotCoordinator):
                    await broker.sync(reply)
                with pytest.raises(NotCoordinator):
                    broker.heartbeat(reply)
            with pytest.raises(NotCoordinator):
                await broker.join(stranger.member_id)
            with pytest.raises(NotCoordinator):
                broker.coordinator.leave(GROUP, [Leaving(stranger.member_id, None)])

        run(scenario())

    def test_a_member_of_the_consumer_protocol_is_heard_meanwhile(self) -> None:
        async def scenario() -> None:
            broker = await Broker(FakeLog()).active()
            joining = ConsumerHeartbeat(
                GROUP, "m", JOINING, None, None, "c", "/h", 60_000, ("t",), None, None, {},
                lambda _: True,
            )  # fmt: skip
            epoch = (await broker.coordinator.heartbeat_consumer(joining)).epoch
            beat = joining._replace(epoch=epoch)
            broker.partition.in_doubt = True
            for _ in range(5):
                await asyncio.sleep(40)
                with pytest.raises(NotCoordinator):
                    await broker.coordinator.heartbeat_consumer(beat)
            broker.partition.in_doubt = False
            assert (await broker.coordinator.heartbeat_consumer(beat)).epoch == epoch

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
