"""Who leads what while brokers come, go and hand over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.cluster.owner_node import Owner, OwnerNode
from broker.errors import (
    BrokerError,
    LeaderNotAvailable,
    LeadershipLost,
    NotLeader,
    UnknownTopicOrPartition,
)
from broker.leadership import ownership
from broker.partition import opening
from broker.partition.partition import Partition
from client.errors import ConnectionLoss, LedgerFenced, RecoveryInconclusive
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.store import SessionState
from client.node.grouped_requests import GroupedRequests
from client.wire.bookkeeper.messages import AddRequest
from tests.fakes.bookies import FakeBookie, Fate
from tests.fakes.brokers import (
    ClientBackend,
    FakeBackend,
    World,
    batch,
    done,
    in_world,
    read_all,
    settle,
    until,
    with_config,
)
from tests.fakes.owners import STEPS, leader_of, other, owner, owner_path

both = pytest.mark.parametrize("backend", [FakeBackend, ClientBackend])


@both
def test_brokers_share_the_partitions_as_planned(backend: type) -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=8)
        first = await world.broker(1)
        await until(lambda: len(first.partitions) == 8)
        second = await world.broker(2)
        await until(lambda: len(first.partitions) == len(second.partitions) == 4)
        for index in range(8):
            wanted = first.cluster.preferred_leader(topic, index)
            leader = first if wanted == 1 else second
            partition = leader.partitions.leader("t", index)
            assert await done(partition.append(batch(f"p{index}"))) == 0
            holder = owner(world, topic, index)
            assert holder is not None
            assert holder.broker == wanted
            with pytest.raises(NotLeader) as caught:
                other(world, leader).partitions.leader("t", index)
            assert caught.value.leader == wanted

    in_world(scenario, backend)


def test_a_session_that_ends_ends_every_leadership_though_some_have_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await world.topic(partition_count=4)
        broker = await world.broker(1)
        await until(lambda: len(broker.partitions) == 4)
        led = list(broker.partitions)
        reports: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        still_led: list[Partition] = []

        def look(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                still_led.extend(partition for partition in led if partition.is_open)

        for partition in led[:2]:
            monkeypatch.setattr(partition._runner, "_carry_out", fail)
        broker.store.add_session_listener(look)  # called after the broker's own
        world.cluster.expire(broker.store)
        await until(lambda: len(reports) >= 2)
        assert still_led == []
        assert {type(report["exception"]) for report in reports} == {ZeroDivisionError}

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    in_world(scenario)


def test_many_takeovers_go_on_at_once_but_few_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may read megabytes; the rest of it is waiting."""
    at_once = {"all": 0, "reading": 0}
    most = dict(at_once)

    def counted(what: str, call: Callable[..., Awaitable[object]]) -> Callable[..., object]:
        async def counting(*args: object) -> object:
            at_once[what] += 1
            most[what] = max(most[what], at_once[what])
            try:
                await asyncio.sleep(0.1)
                return await call(*args)
            finally:
                at_once[what] -= 1

        return counting

    async def scenario(world: World) -> None:
        await world.topic(partition_count=150)
        first = await world.broker(1)
        await until(lambda: len(first.partitions) == 150)
        for partition in first.partitions:
            await done(partition.append(batch("x")))
        monkeypatch.setattr(opening, "replay_ledger", counted("reading", opening.replay_ledger))
        monkeypatch.setattr(opening.Opening, "run", counted("all", opening.Opening.run))
        first.kill()
        second = await world.broker(2)
        await until(lambda: len(second.partitions) == 150)

    in_world(scenario)
    assert most == {"all": 128, "reading": 32}


def test_the_first_broker_of_a_cluster_does_not_claim_it_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every partition wants it, until the others are there."""
    monkeypatch.setattr(ownership, "_OPENINGS_MAX", 3)

    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=30)
        gate = world.backend.service.stop_at("create")
        first = await world.broker(1)
        await asyncio.sleep(1)
        assert len(first.partitions) == 0
        assert first.partitions.opening_count == 30
        claimed = [await world.admin.exists(owner_path(topic, index)) for index in range(30)]
        assert len([node for node in claimed if node is not None]) == 3
        await world.broker(2)
        gate.set()
        for index in range(30):
            await leader_of(world, topic, index)

    in_world(scenario)


def test_what_a_request_waits_for_is_opened_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_OPENINGS_MAX", 1)

    async def scenario(world: World) -> None:
        await world.topic(partition_count=8)
        gate = world.backend.service.stop_at("create")
        first = await world.broker(1)
        monkeypatch.setattr(first.partitions.awaited, "hold_s", 1.0)
        await until(lambda: first.partitions.opening_count == 8)
        waiting = asyncio.create_task(first.partitions.leader_soon("t", 6))
        asyncio.get_running_loop().call_soon(gate.set)
        assert (await waiting).index == 6
        assert [each.index for each in first.partitions] == [0, 6]

    in_world(scenario)


def test_a_partition_that_waits_for_its_rival_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ownership, "_OPENINGS_MAX", 1)

    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=8)
        for index in range(7):
            rival = OwnerNode(
                GroupedRequests(world.admin), topic, index, Owner(BrokerId(9), "alive")
            )
            assert await rival.claim(lambda: None, lambda owner: False, "/gone", STEPS)
        monkeypatch.setattr(ownership.Ownership, "_is_alive", lambda _, holder: holder.broker == 9)
        first = await world.broker(1)
        await until(lambda: first.partitions.find("t", 7) is not None)
        assert (len(first.partitions), first.partitions.opening_count) == (1, 0)

    in_world(scenario)


def test_the_registry_knows_what_it_does_not_lead() -> None:
    async def scenario(world: World) -> None:
        await world.topic()
        broker = await world.broker(1)
        await broker.leads(await world.topic("u"))
        with pytest.raises(UnknownTopicOrPartition):
            broker.partitions.leader("nope", 0)
        with pytest.raises(UnknownTopicOrPartition):
            broker.partitions.leader("t", 1)
        assert broker.partitions.find("nope", 0) is None

    in_world(scenario)


def test_a_partition_that_is_being_opened_says_so() -> None:
    async def scenario(world: World) -> None:
        gate = world.backend.service.stop_at("create")
        topic = await world.topic()
        broker = await world.broker(1)
        await settle()
        with pytest.raises(LeaderNotAvailable) as caught:
            broker.partitions.leader("t", 0)
        assert caught.value.leader == 1
        gate.set()
        await broker.leads(topic)
        assert broker.partitions.leader("t", 0) is broker.opened[0]

    in_world(scenario)


@both
def test_a_graceful_hand_over_shows_nothing_but_not_leader(backend: type) -> None:
    """A producer with several batches under way sees refusals only, no unknown end."""

    async def scenario(world: World) -> None:
        topic = await world.topic()
        await world.broker(1)
        await world.broker(2)
        old = await leader_of(world, topic)
        if backend is FakeBackend:
            world.backend.service.arrival_s = lambda: 0.02
        else:
            for number in range(1, 5):
                slow_down(world.backend.bookies[f"b{number}:1"], 0.02)
        acknowledged: list[str] = []
        errors: list[BrokerError] = []
        refused_at: list[float] = []
        loop = asyncio.get_running_loop()

        async def produce() -> None:
            sent = 0
            waiting: list[asyncio.Task[int]] = []
            while len(acknowledged) < 200:
                await asyncio.sleep(0.005)
                for broker in world.brokers:
                    partition = broker.partitions.find("t", 0)
                    if partition is None:
                        continue
                    try:
                        append = partition.append(batch(f"v{sent}", pid=1, sequence=sent))
                    except BrokerError as error:
                        errors.append(error)
                        continue
                    sent += 1
                    waiting.append(asyncio.ensure_future(done(append)))
                for task in [task for task in waiting if task.done()]:
                    waiting.remove(task)
                    assert task.result() == len(acknowledged)
                    acknowledged.append(f"v{len(acknowledged)}")
            for offset in await asyncio.gather(*waiting):
                assert offset == len(acknowledged)
                acknowledged.append(f"v{offset}")

        producing = asyncio.create_task(produce())
        await until(lambda: len(acknowledged) > 50)
        refused_at.append(loop.time())
        await old.stop()
        old.dead = True
        partition = await other(world, old).leads(topic)
        assert loop.time() - refused_at[0] < 0.5
        await producing
        assert {type(error) for error in errors} <= {NotLeader}
        assert [value for _, value in await read_all(partition)] == acknowledged
        assert old.closed == old.opened
        if backend is FakeBackend:
            first = world.backend.service.get(world.segments(topic).segments[0].ledger_id)
            assert not first.fenced or first.closed_at is not None

    in_world(scenario, backend)


def slow_down(bookie: FakeBookie, seconds: float) -> None:
    """Let adds take a while."""
    loop = asyncio.get_running_loop()

    def fate_of(request: object) -> Fate:
        if not isinstance(request, AddRequest):
            return Fate.DELIVER
        loop.call_later(seconds, bookie.release, 1)
        return Fate.HOLD_REQUEST

    bookie.fate_of = fate_of


def test_a_broker_that_is_not_wanted_any_more_hands_over() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=6)
        first = await world.broker(1)
        for index in range(6):
            await done((await first.leads(topic, index)).append(batch(f"p{index}", pid=1)))
        second = await world.broker(2)
        await until(lambda: len(second.partitions) == 3)
        for partition in second.partitions:
            assert partition.leader_epoch == 1
            again = partition.append(batch(f"p{partition.index}", pid=1))
            assert again.base_offset == 0
        recovered = world.backend.service.recovered
        closed = [world.backend.service.ledgers[ledger].closed_at for ledger in recovered]
        assert None not in closed

    in_world(scenario)


def test_a_bug_in_one_seat_is_reported_and_does_not_stop_the_others() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=2)
        broker = await world.broker(1)
        broken = [True]

        def on_opened(partition: object) -> None:
            if broken:
                broken.pop()
                raise RuntimeError("a test did it")

        broker.ownership.add_observer(on_opened, lambda partition: None)
        await until(lambda: len(broker.partitions) == 2)
        assert not broken
        assert topic.partition_count == 2

    in_world(scenario)


def test_shutdown_does_not_wait_for_a_takeover_for_ever() -> None:
    async def scenario(world: World) -> None:
        await world.topic()
        world.backend.service.stop_at("create")
        broker = await world.broker(1)
        await settle()
        started_s = asyncio.get_running_loop().time()
        await broker.ownership.close()
        assert asyncio.get_running_loop().time() - started_s <= 10
        assert broker.ownership._owned == {}

    in_world(scenario)


def test_a_partition_that_is_wanted_again_while_it_is_let_go() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        gate = world.backend.service.stop_at("close")
        wanted = broker.cluster.preferred_leader
        broker.cluster.preferred_leader = lambda topic, index: None  # type: ignore[method-assign]
        broker.ownership._follow_plan()
        await settle()
        assert not partition.is_open
        broker.cluster.preferred_leader = wanted  # type: ignore[method-assign]
        broker.ownership._follow_plan()
        gate.set()
        again = await broker.leads(topic)
        assert again.leader_epoch == 1

    in_world(scenario)


def test_leadership_that_ends_by_itself_is_won_again() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        await done(partition.append(batch("a", pid=1)))
        broker.ledgers.writers[-1].fail_add = LedgerFenced("a test did it")
        append = partition.append(batch("b", pid=1, sequence=1))
        with pytest.raises(LeadershipLost):
            await done(append)
        again = await broker.leads(topic)
        assert again.leader_epoch == 1
        assert await done(again.append(batch("b", pid=1, sequence=1))) == 1

    in_world(scenario)


def test_lost_takeovers_are_tried_again_with_growing_pauses() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        for _ in range(6):
            world.backend.service.fail_next("create", ConnectionLoss("not yet"))
        broker = await world.broker(1)
        started = asyncio.get_running_loop().time()
        partition = await broker.leads(topic)
        waited = asyncio.get_running_loop().time() - started
        assert 1.5 < waited < 7
        assert partition.leader_epoch == 0

    in_world(scenario)


def test_two_brokers_that_both_want_a_partition_do_no_harm_and_one_gets_through() -> None:
    """Duelling leaders: each believes the plan wants it, and that the other is gone."""

    async def scenario(world: World) -> None:
        topic = await world.topic()
        brokers = [await world.broker(1), await world.broker(2)]
        for broker in brokers:
            me = broker.id
            broker.cluster.preferred_leader = (  # type: ignore[method-assign]
                lambda topic, index, me=me: me
            )
            broker.ownership._is_alive = lambda owner: False  # type: ignore[method-assign]
            broker.ownership._follow_plan()
        acknowledged: list[int] = []
        sequence = 0
        async with asyncio.timeout(500):
            while sequence < 60:
                await asyncio.sleep(0.01)
                for broker in brokers:
                    partition = broker.partitions.find("t", 0)
                    if partition is None:
                        continue
                    try:
                        append = partition.append(batch(f"{sequence}", pid=1, sequence=sequence))
                        acknowledged.append(await done(append))
                    except BrokerError:
                        continue
                    sequence += 1
                    if sequence % 7 == 0:
                        broker.ownership._owned[(topic.topic_id, 0)]._wake.set()
                        loser = brokers[sequence % 2]
                        if loser.partitions.find("t", 0) is None:
                            loser.ownership._owned[(topic.topic_id, 0)]._wake.set()
        assert acknowledged == list(range(60))
        await until(lambda: any(broker.partitions.find("t", 0) for broker in brokers))
        leaders = [broker.partitions.find("t", 0) for broker in brokers]
        last = next(partition for partition in leaders if partition is not None)
        assert await read_all(last) == [(number, f"{number}") for number in range(60)]

    in_world(scenario)


def test_a_damaged_log_is_reported_and_not_opened() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        path = paths.partition(topic.id_text, 0)
        world.cluster.tree.set(path, b"{damaged", -1)
        broker = await world.broker(1)
        await asyncio.sleep(30)
        assert broker.partitions.find("t", 0) is None
        world.cluster.tree.set(path, b"", -1)
        await asyncio.sleep(60)
        assert broker.partitions.find("t", 0) is not None

    in_world(scenario)


def test_a_deleted_topic_is_let_go() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        await world.admin.delete(paths.topic("t"))
        await until(lambda: not partition.is_open)
        await settle()
        assert len(broker.partitions) == 0
        assert broker.ownership._owned == {}
        again = await world.topic("t")
        assert (await broker.leads(again)).topic.topic_id == again.topic_id

    in_world(scenario)


def test_changed_settings_and_new_partitions_arrive() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        changed = with_config(topic, max_message_bytes="100")
        await world.admin.set(paths.topic("t"), changed.encode())
        await until(lambda: partition.topic.config.max_message_bytes == 100)
        with pytest.raises(BrokerError):
            partition.append(batch("x", pad=200))

    in_world(scenario)


def test_an_unclear_recovery_does_not_keep_the_others_waiting() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=4)
        first = await world.broker(1)
        await until(lambda: len(first.partitions) == 4)
        first.kill()
        for _ in range(3):
            world.backend.service.fail_next("recover_read", RecoveryInconclusive("away"))
        second = await world.broker(2)
        await world.admin.delete(paths.broker(first.id))
        started = asyncio.get_running_loop().time()
        await until(lambda: len(second.partitions) == 4)
        assert asyncio.get_running_loop().time() - started < 3
        assert {partition.leader_epoch for partition in second.partitions} == {1}
        assert topic.partition_count == 4

    in_world(scenario)
